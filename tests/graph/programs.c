/* Small programs for the tests of the graph. See programs.h. */
#include "tests/graph/programs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST(...)                                              \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

static void begin(struct ls_prog *p, const struct program_options *o, const int64_t image[3])
{
    struct ls_graph_options options = {.micro_batch = o->micro_batch,
                                       .update = o->update,
                                       .optimizer = o->optimizer,
                                       .bucket_bytes = o->bucket_bytes ? o->bucket_bytes : 1 << 20,
                                       .zero = o->zero};
    memcpy(options.mesh, o->mesh, sizeof options.mesh);
    ls_graph_init(p, &options);
    const int64_t shape[4] = {o->micro_batch, image[0], image[1], image[2]};
    p->images = ls_graph_tensor(p, LS_ROLE_INPUT, false, LS_F32, 4, shape, "images");
    p->labels = ls_graph_tensor(p, LS_ROLE_INPUT, false, LS_I32, 1, shape, "labels");
}

static void end(struct ls_prog *p, int logits)
{
    p->logits = logits;
    const int *r = ls_graph_emit(p, LS_K_XENT, NULL, LIST(logits, p->labels));
    p->loss[0] = r[0];
    p->loss[1] = r[1];
    struct ls_error err = {0};
    if (ls_graph_check(p, "build", &err) != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(1);
    }
}

static int weight(struct ls_prog *p, const char *name, int ndim, const int64_t *shape,
                  double spread)
{
    struct ls_fill fill = {LS_FILL_NORMAL, spread};
    return ls_graph_param(p, ndim, shape, LS_RULE_DECAY, fill, name);
}

/* Gains and biases start away from 1 and 0, so that nothing cancels. */
static int vector(struct ls_prog *p, const char *name, int64_t n, double spread)
{
    struct ls_fill fill = {LS_FILL_UNIFORM, spread};
    return ls_graph_param(p, 1, &n, LS_RULE_PLAIN, fill, name);
}

static int matmul(struct ls_prog *p, int a, int b, bool ta, bool tb)
{
    struct ls_attr attr = {.ta = ta, .tb = tb};
    return *ls_graph_emit(p, LS_K_MATMUL, &attr, LIST(a, b));
}

static int one(struct ls_prog *p, enum ls_kind kind, int x)
{
    return *ls_graph_emit(p, kind, NULL, LIST(x));
}

static int two(struct ls_prog *p, enum ls_kind kind, int a, int b)
{
    return *ls_graph_emit(p, kind, NULL, LIST(a, b));
}

static int linear(struct ls_prog *p, int x, const char *name, int64_t units)
{
    char full[64];
    int64_t in = p->tensor[x].shape[1];
    snprintf(full, sizeof full, "%s.weight", name);
    /* as [units, in]: the transposed operand is the common case */
    int w = weight(p, full, 2, (const int64_t[]){units, in}, 1 / sqrt((double)in));
    snprintf(full, sizeof full, "%s.bias", name);
    return two(p, LS_K_BIAS, matmul(p, x, w, false, true), vector(p, full, units, 0.3));
}

static int dropout(struct ls_prog *p, const struct program_options *o, int x, const char *name)
{
    struct ls_attr attr = {.rate = o->dropout, .path = ls_hash64(name)};
    return o->dropout > 0 ? *ls_graph_emit(p, LS_K_DROPOUT, &attr, LIST(x, p->control)) : x;
}

static int flatten(struct ls_prog *p, int x)
{
    int64_t rows = p->tensor[x].shape[0];
    return ls_graph_reshape(p, x, 2, (const int64_t[]){rows, ls_graph_numel(p, x) / rows});
}

static int conv(struct ls_prog *p, int x, const char *name, int64_t filters, int kernel, int stride,
                int pad)
{
    int64_t in = p->tensor[x].shape[3];
    const int64_t shape[4] = {filters, in, kernel, kernel};
    int w = weight(p, name, 4, shape, 1 / sqrt((double)(in * kernel * kernel)));
    struct ls_attr attr = {.stride = stride, .pad = pad};
    return *ls_graph_emit(p, LS_K_CONV2D, &attr, LIST(x, w));
}

static int pool(struct ls_prog *p, int x, enum ls_kind kind, int kernel, int stride, int pad)
{
    struct ls_attr attr = {.kernel = kernel, .stride = stride, .pad = pad};
    return *ls_graph_emit(p, kind, &attr, LIST(x));
}

static void running(struct ls_prog *p, const char *name, const char *what, int statistic,
                    double start)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, what);
    struct ls_fill fill = {LS_FILL_CONSTANT, start};
    int64_t channels = p->tensor[statistic].shape[0];
    ls_graph_param(p, 1, &channels, LS_RULE_EMA, fill, full);
    p->param[p->nparam - 1].grad = statistic;
    p->param[p->nparam - 1].momentum = 0.75;
}

static int batch_norm(struct ls_prog *p, int x, const char *name)
{
    char full[64];
    int64_t channels = p->tensor[x].shape[p->tensor[x].ndim - 1];
    snprintf(full, sizeof full, "%s.gain", name);
    int gain = vector(p, full, channels, 1);
    snprintf(full, sizeof full, "%s.bias", name);
    int bias = vector(p, full, channels, 0.3);
    struct ls_attr attr = {.eps = 1e-3};
    const int *r = ls_graph_emit(p, LS_K_BATCH_NORM, &attr, LIST(x, gain, bias));
    int y = r[0], mean = r[1], var = r[3];
    running(p, name, "running_mean", mean, 0);
    running(p, name, "running_var", var, 1);
    return y;
}

void program_mlp(struct ls_prog *p, const struct program_options *o)
{
    begin(p, o, (const int64_t[]){4, 3, 2});
    int x = linear(p, flatten(p, p->images), "first", 8);
    x = dropout(p, o, one(p, LS_K_GELU, x), "first.drop");
    /* a tied weight: x + relu(x W) W^T */
    int w = weight(p, "tied", 2, (const int64_t[]){8, 7}, 0.4);
    int h = one(p, LS_K_RELU, matmul(p, x, w, false, false));
    x = two(p, LS_K_ADD, x, matmul(p, h, w, false, true));
    /* weights that are products: P^T Q and P^T R^T */
    int q = weight(p, "low.p", 2, (const int64_t[]){3, 8}, 0.5);
    int r = weight(p, "low.q", 2, (const int64_t[]){3, 6}, 0.5);
    int s = weight(p, "low.r", 2, (const int64_t[]){6, 3}, 0.5);
    int a = matmul(p, x, matmul(p, q, r, true, false), false, false);
    int b = matmul(p, x, matmul(p, q, s, true, true), false, false);
    /* what a product yields is also read behind its bias and behind its activation */
    b = two(p, LS_K_ADD, b, two(p, LS_K_BIAS, b, vector(p, "low.bias_b", 6, 0.3)));
    a = two(p, LS_K_ADD, one(p, LS_K_GELU, a), one(p, LS_K_RELU, a));
    x = two(p, LS_K_ADD, a, b);
    x = dropout(p, o, one(p, LS_K_RELU, two(p, LS_K_BIAS, x, vector(p, "low.bias", 6, 0.3))),
                "low.drop");
    end(p, linear(p, x, "head", 5));
}

void program_convnet(struct ls_prog *p, const struct program_options *o)
{
    begin(p, o, (const int64_t[]){7, 6, 3});
    int x = conv(p, p->images, "stem", 4, 3, 1, 1);
    x = two(p, LS_K_BIAS, x, vector(p, "stem.bias", 4, 0.3));
    x = one(p, LS_K_RELU, batch_norm(p, x, "stem.norm"));
    x = pool(p, x, LS_K_MAX_POOL, 3, 2, 1); /* 4 x 3 */
    int h = one(p, LS_K_RELU, batch_norm(p, conv(p, x, "block.a", 5, 3, 1, 1), "block.norm_a"));
    h = dropout(p, o, h, "block.drop");
    h = batch_norm(p, conv(p, h, "block.b", 6, 3, 2, 1), "block.norm_b"); /* 2 x 2 */
    h = two(p, LS_K_ADD, h, one(p, LS_K_RELU, h)); /* not to be fused: the sum reads h as well */
    x = one(p, LS_K_RELU, two(p, LS_K_ADD, h, conv(p, x, "block.side", 6, 1, 2, 0)));
    x = pool(p, x, LS_K_AVG_POOL, 2, 1, 1); /* 3 x 3 */
    x = pool(p, x, LS_K_MAX_POOL, 2, 1, 0); /* 2 x 2 */
    x = two(p, LS_K_BIAS, conv(p, x, "last", 5, 2, 1, 1), vector(p, "last.bias", 5, 0.3));
    x = one(p, LS_K_GLOBAL_POOL, one(p, LS_K_RELU, x));
    end(p, linear(p, batch_norm(p, x, "head.norm"), "head", 5));
}

void program_tiny(struct ls_prog *p, const struct program_options *o, bool plain)
{
    begin(p, o, (const int64_t[]){3, 2, 4});
    int x = plain ? p->images : batch_norm(p, p->images, "norm");
    end(p, linear(p, flatten(p, x), "head", 3));
}

static int sliced(struct ls_prog *p, int t, int dim)
{
    ls_graph_pin(p, t, LS_AXIS_TENSOR, (struct ls_place){LS_PLACE_S, (uint8_t)dim});
    return t;
}

static int whole(struct ls_prog *p, int t)
{
    ls_graph_pin(p, t, LS_AXIS_TENSOR, (struct ls_place){LS_PLACE_R, 0});
    return t;
}

void program_wide(struct ls_prog *p, const struct program_options *o)
{
    enum { inputs = 24, width = 8, hidden = 16, classes = 8 };
    begin(p, o, (const int64_t[]){4, 3, 2});
    int first = weight(p, "first.weight", 2, (const int64_t[]){inputs, width}, 0.3);
    if (o->tied)
        sliced(p, first, 0);
    int x = whole(p, matmul(p, flatten(p, p->images), first, false, false));
    x = one(p, LS_K_GELU, two(p, LS_K_BIAS, x, vector(p, "first.bias", width, 0.3)));
    p->layer = 1;
    int up = sliced(p, weight(p, "up.weight", 2, (const int64_t[]){width, hidden}, 0.4), 1);
    int up_bias = sliced(p, vector(p, "up.bias", hidden, 0.3), 0);
    int h = two(p, LS_K_BIAS, matmul(p, x, up, false, false), up_bias);
    h = dropout(p, o, one(p, LS_K_GELU, h), "up.drop");
    int down = sliced(p, weight(p, "down.weight", 2, (const int64_t[]){hidden, width}, 0.4), 0);
    h = whole(p, matmul(p, h, down, false, false));
    h = two(p, LS_K_BIAS, h, vector(p, "down.bias", width, 0.3));
    x = two(p, LS_K_ADD, x, dropout(p, o, h, "down.drop"));
    p->layer = 2;
    int head = first;
    if (!o->tied)
        head = sliced(p, weight(p, "head.weight", 2, (const int64_t[]){width, classes}, 0.4), 1);
    int y = matmul(p, x, head, false, o->tied);
    if (!o->tied)
        y = two(p, LS_K_BIAS, y, sliced(p, vector(p, "head.bias", classes, 0.3), 0));
    end(p, y);
    whole(p,
          p->op[p->nop - 1].out[2]); /* log-sum-exp, or two scatters and a gather would be chosen */
}
