/* type = "layers": a plain list of layers, each checked against what flows into it. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

static enum ls_status build_list(struct ls_builder *b, const struct ls_layer *layers, int n,
                                 const char *path, int *x);

/* "3 x 3 x 64" of what flows at this point, for messages. */
static const char *flow(const struct ls_builder *b, int x, char out[static 80])
{
    const struct ls_tensor *t = &b->prog->tensor[x];
    int at = 0;
    out[0] = '\0';
    for (int d = 1; d < t->ndim; d++)
        at +=
            snprintf(out + at, 80 - (size_t)at, d > 1 ? " x %lld" : "%lld", (long long)t->shape[d]);
    return out;
}

static enum ls_status need_image(struct ls_builder *b, const struct ls_layer *l, int x,
                                 const char *type)
{
    char text[80];
    if (b->prog->tensor[x].ndim == 4)
        return LS_OK;
    return ls_error_set(
        b->err, LS_ERR_USAGE,
        "%s:%d: %s expects images (height x width x channels), found a vector of %s; "
        "place it before flatten and global_pool",
        l->file, l->line, type, flow(b, x, text));
}

static enum ls_status fit_window(struct ls_builder *b, const struct ls_layer *l, int x,
                                 const char *type)
{
    LS_TRY(need_image(b, l, x, type));
    const struct ls_tensor *t = &b->prog->tensor[x];
    char text[80];
    if (t->shape[1] + 2 * l->pad >= l->kernel && t->shape[2] + 2 * l->pad >= l->kernel)
        return LS_OK;
    return ls_error_set(
        b->err, LS_ERR_USAGE,
        "%s:%d: a %s with kernel %lld does not fit an image of %s with pad %lld; use "
        "a smaller kernel, more pad, or fewer pools before it",
        l->file, l->line, type, (long long)l->kernel, flow(b, x, text), (long long)l->pad);
}

static enum ls_status build_conv(struct ls_builder *b, const struct ls_layer *l, const char *path,
                                 int *x)
{
    LS_TRY(fit_window(b, l, *x, "conv"));
    struct ls_prog *p = b->prog;
    int64_t c = p->tensor[*x].shape[3], area = l->kernel * l->kernel;
    struct ls_fill fill = ls_model_fill((struct ls_init_choice){l->init, l->init_std},
                                        (double)(c * area), (double)(l->filters * area));
    int w = ls_model_param(b, 4, (const int64_t[]){l->filters, c, l->kernel, l->kernel},
                           LS_RULE_DECAY, fill, path, "weight");
    struct ls_attr attr = {.stride = (int32_t)l->stride, .pad = (int32_t)l->pad};
    *x = *ls_graph_emit(p, LS_K_CONV2D, &attr, IN(*x, w));
    if (l->bias) {
        int bias = ls_model_param(b, 1, &l->filters, LS_RULE_PLAIN,
                                  (struct ls_fill){LS_FILL_CONSTANT, 0}, path, "bias");
        *x = *ls_graph_emit(p, LS_K_BIAS, NULL, IN(*x, bias));
    }
    return LS_OK;
}

/* The running statistic `what` averages result `statistic` of the batch norm. */
static void running(struct ls_builder *b, const struct ls_layer *l, int64_t channels, double start,
                    int statistic, const char *path, const char *what)
{
    ls_model_param(b, 1, &channels, LS_RULE_EMA, (struct ls_fill){LS_FILL_CONSTANT, start}, path,
                   what);
    if (b->prog->error.status != LS_OK)
        return;
    struct ls_param *row = &b->prog->param[b->prog->nparam - 1];
    row->grad = statistic;
    row->momentum = l->momentum;
}

static void build_batch_norm(struct ls_builder *b, const struct ls_layer *l, const char *path,
                             int *x)
{
    struct ls_prog *p = b->prog;
    int64_t c = p->tensor[*x].shape[p->tensor[*x].ndim - 1];
    int gain = ls_model_param(b, 1, &c, LS_RULE_PLAIN, (struct ls_fill){LS_FILL_CONSTANT, 1}, path,
                              "gain");
    int bias = ls_model_param(b, 1, &c, LS_RULE_PLAIN, (struct ls_fill){LS_FILL_CONSTANT, 0}, path,
                              "bias");
    struct ls_attr attr = {.eps = l->eps};
    const int *r = ls_graph_emit(p, LS_K_BATCH_NORM, &attr, IN(*x, gain, bias));
    running(b, l, c, 0, r[1], path, "running_mean");
    running(b, l, c, 1, r[3], path, "running_var");
    *x = r[0];
}

static enum ls_status build_pool(struct ls_builder *b, const struct ls_layer *l, int *x)
{
    static const char *const type[] = {
        [LS_LAYER_MAX_POOL] = "max_pool", [LS_LAYER_AVG_POOL] = "avg_pool"};
    LS_TRY(fit_window(b, l, *x, type[l->type]));
    if (l->pad >= l->kernel)
        return ls_error_set(b->err, LS_ERR_USAGE,
                            "%s:%d: %s with pad %lld and kernel %lld has windows of padding alone; "
                            "pad must be smaller than the kernel",
                            l->file, l->line, type[l->type], (long long)l->pad,
                            (long long)l->kernel);
    struct ls_attr attr = {.kernel = (int32_t)l->kernel,
                           .stride = (int32_t)(l->stride > 0 ? l->stride : l->kernel),
                           .pad = (int32_t)l->pad};
    *x = *ls_graph_emit(b->prog, l->type == LS_LAYER_MAX_POOL ? LS_K_MAX_POOL : LS_K_AVG_POOL,
                        &attr, IN(*x));
    return LS_OK;
}

static enum ls_status build_residual(struct ls_builder *b, const struct ls_layer *l,
                                     const char *path, int *x)
{
    char one[80], two[80];
    for (int64_t r = 0; r < l->repeat; r++) {
        int branch = *x, shortcut = *x;
        const char *block = ls_arena_printf(&b->prog->arena, "%s.%lld", path, (long long)r);
        const char *beside =
            ls_arena_printf(&b->prog->arena, "%s.%lld.shortcut", path, (long long)r);
        if (!block || !beside)
            return ls_error_set(b->err, LS_ERR_NOMEM, "building the model");
        LS_TRY(build_list(b, l->layers, l->nlayers, block, &branch));
        LS_TRY(build_list(b, l->shortcut, l->nshortcut, beside, &shortcut));
        const struct ls_tensor *s = &b->prog->tensor[shortcut], *t = &b->prog->tensor[branch];
        if (s->ndim != t->ndim || memcmp(s->shape, t->shape, sizeof s->shape) != 0)
            return ls_error_set(
                b->err, LS_ERR_USAGE,
                "%s:%d: residual block %lld: the branch yields %s, the shortcut %s; "
                "they are added, so give `shortcut` layers that match",
                l->file, l->line, (long long)r, flow(b, branch, one), flow(b, shortcut, two));
        *x = *ls_graph_emit(b->prog, LS_K_ADD, NULL, IN(shortcut, branch));
        LS_TRY(ls_graph_check(b->prog, "build", b->err));
    }
    return LS_OK;
}

static enum ls_status build_layer(struct ls_builder *b, const struct ls_layer *l, const char *path,
                                  int *x)
{
    char text[80];
    switch (l->type) {
    case LS_LAYER_CONV:
        return build_conv(b, l, path, x);
    case LS_LAYER_BATCH_NORM:
        build_batch_norm(b, l, path, x);
        return LS_OK;
    case LS_LAYER_RELU:
        *x = *ls_graph_emit(b->prog, LS_K_RELU, NULL, IN(*x));
        return LS_OK;
    case LS_LAYER_GELU:
        *x = *ls_graph_emit(b->prog, LS_K_GELU, NULL, IN(*x));
        return LS_OK;
    case LS_LAYER_MAX_POOL:
    case LS_LAYER_AVG_POOL:
        return build_pool(b, l, x);
    case LS_LAYER_GLOBAL_POOL:
        LS_TRY(need_image(b, l, *x, "global_pool"));
        *x = *ls_graph_emit(b->prog, LS_K_GLOBAL_POOL, NULL, IN(*x));
        return LS_OK;
    case LS_LAYER_FLATTEN:
        *x = ls_model_flatten(b, *x);
        return LS_OK;
    case LS_LAYER_LINEAR:
        if (b->prog->tensor[*x].ndim != 2)
            return ls_error_set(
                b->err, LS_ERR_USAGE,
                "%s:%d: linear expects a vector, found images of %s; put flatten or "
                "global_pool before it",
                l->file, l->line, flow(b, *x, text));
        *x = ls_model_linear(b, *x, l->units, l->bias,
                             (struct ls_init_choice){l->init, l->init_std}, path);
        return LS_OK;
    case LS_LAYER_DROPOUT:
        *x = ls_model_dropout(b, *x, l->rate, path);
        return LS_OK;
    case LS_LAYER_RESIDUAL:
        return build_residual(b, l, path, x);
    }
    return ls_error_set(b->err, LS_ERR_INTERNAL, "%s:%d: unknown layer type", l->file, l->line);
}

static enum ls_status build_list(struct ls_builder *b, const struct ls_layer *layers, int n,
                                 const char *path, int *x)
{
    static const char *const types[] = {"conv",     "batch_norm", "relu",        "gelu",
                                        "max_pool", "avg_pool",   "global_pool", "flatten",
                                        "linear",   "dropout",    "residual"};
    for (int i = 0; i < n; i++) {
        const char *name = ls_arena_printf(&b->prog->arena, "%s%s%d.%s", path, *path ? "." : "", i,
                                           types[layers[i].type]);
        if (!name)
            return ls_error_set(b->err, LS_ERR_NOMEM, "building the model");
        LS_TRY(build_layer(b, &layers[i], name, x));
        LS_TRY(ls_graph_check(b->prog, "build", b->err));
        if (!*path)
            b->prog->layer++;
    }
    return LS_OK;
}

enum ls_status ls_model_layers(struct ls_builder *b, int *x)
{
    const struct ls_job *job = b->job;
    char text[80];
    LS_TRY(build_list(b, job->model.layers, job->model.nlayers, "", x));
    const struct ls_tensor *t = &b->prog->tensor[*x];
    if (t->ndim != 2 || t->shape[1] != job->model.classes)
        return ls_error_set(
            b->err, LS_ERR_USAGE,
            "%s: the last layer yields %s, expected a vector of model.classes = %lld; "
            "end the list with linear, units = %lld",
            job->path, flow(b, *x, text), (long long)job->model.classes,
            (long long)job->model.classes);
    return LS_OK;
}
