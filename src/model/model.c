/* What all families share: the frame around a model, the linear layer, initial values; and the MLP. */
#include "model/model.h"

#include <math.h>
#include <string.h>

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

/* He et al., ICCV 2015; Glorot & Bengio, AISTATS 2010. */
struct ls_fill ls_model_fill(struct ls_init_choice init, double fan_in, double fan_out)
{
    switch (init.init) {
    case LS_INIT_HE:
        return (struct ls_fill){LS_FILL_NORMAL, sqrt(2 / fan_in)};
    case LS_INIT_GLOROT:
        return (struct ls_fill){LS_FILL_UNIFORM, sqrt(6 / (fan_in + fan_out))};
    case LS_INIT_NORMAL:
        return (struct ls_fill){LS_FILL_NORMAL, init.std};
    case LS_INIT_ZEROS:
        break;
    }
    return (struct ls_fill){LS_FILL_CONSTANT, 0};
}

int ls_model_param(struct ls_builder *b, int ndim, const int64_t *shape, enum ls_rule rule,
                   struct ls_fill fill, const char *path, const char *what)
{
    const char *name = ls_arena_printf(&b->prog->arena, "%s.%s", path, what);
    if (!name) {
        ls_error_set(&b->prog->error, LS_ERR_NOMEM, "building the model");
        return 0;
    }
    return ls_graph_param(b->prog, ndim, shape, rule, fill, name);
}

int ls_model_linear(struct ls_builder *b, int x, int64_t units, bool bias,
                    struct ls_init_choice init, const char *path)
{
    struct ls_prog *p = b->prog;
    int64_t inputs = p->tensor[x].shape[1];
    int w = ls_model_param(b, 2, (const int64_t[]){inputs, units}, LS_RULE_DECAY,
                           ls_model_fill(init, (double)inputs, (double)units), path, "weight");
    int y = *ls_graph_emit(p, LS_K_MATMUL, NULL, IN(x, w));
    if (!bias)
        return y;
    int c = ls_model_param(b, 1, &units, LS_RULE_PLAIN, (struct ls_fill){LS_FILL_CONSTANT, 0}, path,
                           "bias");
    return *ls_graph_emit(p, LS_K_BIAS, NULL, IN(y, c));
}

int ls_model_flatten(struct ls_builder *b, int x)
{
    struct ls_tensor t = b->prog->tensor[x];
    if (t.ndim == 2)
        return x;
    int64_t rows = t.shape[0];
    return ls_graph_reshape(b->prog, x, 2,
                            (const int64_t[]){rows, ls_graph_numel(b->prog, x) / rows});
}

int ls_model_dropout(struct ls_builder *b, int x, double rate, const char *path)
{
    if (rate <= 0)
        return x;
    struct ls_attr attr = {.rate = rate, .path = ls_hash64(path)};
    return *ls_graph_emit(b->prog, LS_K_DROPOUT, &attr, IN(x, b->prog->control));
}

static void build_mlp(struct ls_builder *b, int *x)
{
    const struct ls_job *job = b->job;
    struct ls_init_choice init = {job->model.init, job->model.init_std};
    *x = ls_model_flatten(b, *x);
    char path[32];
    int i = 0;
    for (; i < job->model.nhidden; i++) {
        b->prog->layer = i;
        snprintf(path, sizeof path, "fc%d", i + 1);
        *x = ls_model_linear(b, *x, job->model.hidden[i], true, init, path);
        *x = *ls_graph_emit(b->prog, job->model.activation == LS_ACT_GELU ? LS_K_GELU : LS_K_RELU,
                            NULL, IN(*x));
        snprintf(path, sizeof path, "drop%d", i + 1);
        *x = ls_model_dropout(b, *x, job->model.dropout, path);
    }
    b->prog->layer = i;
    *x = ls_model_linear(b, *x, job->model.classes, true, init, "head");
}

/* Rows of one micro-batch; left to us, every rank gets one a step. */
static enum ls_status choose_micro_batch(const struct ls_job *job, int ranks, int64_t *rows,
                                         struct ls_error *err)
{
    *rows = job->train.micro_batch;
    if (*rows != LS_JOB_AUTO)
        return LS_OK;
    if (job->train.global_batch % ranks)
        return ls_error_set(
            err, LS_ERR_USAGE,
            "%s: train.global_batch = %lld does not divide by %d ranks; set "
            "train.micro_batch to a divisor of it: ranks take micro-batches whose numbers "
            "differ by at most one",
            job->path, (long long)job->train.global_batch, ranks);
    *rows = job->train.global_batch / ranks;
    return LS_OK;
}

/* What the optimizer section says, as the attributes of update ops. */
static struct ls_graph_options options(const struct ls_job *job, int64_t micro, int ranks)
{
    bool sgd = job->optimizer.type == LS_OPT_SGD;
    return (struct ls_graph_options){.micro_batch = micro,
                                     .update = sgd ? LS_UPDATE_SGD : LS_UPDATE_ADAMW,
                                     .optimizer = {.momentum = sgd ? job->optimizer.momentum : 0,
                                                   .nesterov = sgd && job->optimizer.nesterov,
                                                   .beta1 = sgd ? 0 : job->optimizer.beta1,
                                                   .beta2 = sgd ? 0 : job->optimizer.beta2,
                                                   .eps = sgd ? 0 : job->optimizer.eps,
                                                   .decay = job->optimizer.weight_decay,
                                                   .max_norm = job->optimizer.clip},
                                     .bucket_bytes = job->parallel.bucket,
                                     .zero = (int)job->parallel.zero,
                                     .mesh = {[LS_AXIS_DATA] = ranks}};
}

enum ls_status ls_model_build(const struct ls_job *job, const struct ls_model_input *input,
                              struct ls_prog *p, struct ls_error *err)
{
    int64_t micro;
    memset(p, 0, sizeof *p); /* fit for ls_graph_free, whatever happens */
    LS_TRY(choose_micro_batch(job, input->ranks, &micro, err));
    struct ls_graph_options opt = options(job, micro, input->ranks);
    ls_graph_init(p, &opt);
    p->images = ls_graph_tensor(
        p, LS_ROLE_INPUT, false, LS_F32, 4,
        (const int64_t[]){opt.micro_batch, input->height, input->width, input->channels}, "images");
    p->labels = ls_graph_tensor(p, LS_ROLE_INPUT, false, LS_I32, 1,
                                (const int64_t[]){opt.micro_batch}, "labels");
    struct ls_builder b = {.job = job, .prog = p, .err = err};
    int x = p->images;
    switch (job->model.type) {
    case LS_MODEL_MLP:
        build_mlp(&b, &x);
        break;
    case LS_MODEL_LAYERS:
        LS_TRY(ls_model_layers(&b, &x));
        break;
    }
    p->logits = x;
    const int *loss = ls_graph_emit(p, LS_K_XENT, NULL, IN(x, p->labels));
    p->loss[0] = loss[0];
    p->loss[1] = loss[1];
    return ls_graph_check(p, "build", err);
}

void ls_model_initial(const struct ls_prog *p, int param, uint64_t seed, float *values)
{
    const struct ls_param *row = &p->param[param];
    uint64_t key = ls_mix64(seed, ls_hash64(p->tensor[row->tensor].name));
    int64_t n = ls_graph_numel(p, row->tensor);
    switch (row->fill.kind) {
    case LS_FILL_CONSTANT:
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)row->fill.a;
        break;
    case LS_FILL_NORMAL:
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)(row->fill.a * ls_normal(key, 0, (uint64_t)i));
        break;
    case LS_FILL_UNIFORM:
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)(row->fill.a * (2 * ls_uniform(key, 0, (uint64_t)i) - 1));
        break;
    }
}

int64_t ls_model_count(const struct ls_prog *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->nparam; i++)
        if (p->param[i].rule != LS_RULE_EMA)
            n += ls_graph_numel(p, p->param[i].tensor);
    return n;
}
