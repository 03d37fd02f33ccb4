/* Where a training step spends its time on the CPU backend: runs the ops of one step in order, as
 * the program would, and prints for each the median time and its share of what the machine can do.
 * A tool for whoever works on plugins/cpu; its figures judge nobody.
 *
 *   cpu_ops PLUGIN_DIR [mlp|conv] [batch] [threads] [seconds]
 */
#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_OPS = 128, MAX_TENSORS = 256, MAX_STEPS = 4000 };

struct tensor {
    struct ls_operand o;
    void *mem;
};
struct op {
    char name[64];
    enum ls_kind kind;
    struct ls_attr attr;
    int nin, nout, io[LS_OP_MAX_OUT + 12];
    double flops, bytes;
    bool pack;
    struct ls_kernel *kernel;
    void *at[LS_OP_MAX_OUT + 12];
    float *times;
};

static const struct ls_device_api *api;
static struct ls_device *dev;
static struct tensor tensors[MAX_TENSORS];
static struct op ops[MAX_OPS];
static int ntensor, nop, control;
static int64_t workspace_bytes;
static struct ls_error err;

/* With one thread, time on the CPU: other programs on the machine then matter less. */
static clockid_t clock_id = CLOCK_MONOTONIC;
static double now(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(enum ls_status status)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "cpu_ops: %s\n", err.message);
    exit(1);
}

/* ---- building the step ----------------------------------------------------------------------- */

static int64_t numel(int t)
{
    int64_t n = 1;
    for (int d = 0; d < tensors[t].o.ndim; d++)
        n *= tensors[t].o.shape[d];
    return n;
}

static int describe(enum ls_dtype dtype, int ndim, const int *shape)
{
    struct ls_operand *o = &tensors[ntensor].o;
    *o = (struct ls_operand){.dtype = dtype, .ndim = ndim};
    for (int d = 0; d < ndim; d++)
        o->shape[d] = shape[d];
    return ntensor++;
}

static int tensor(enum ls_dtype dtype, int ndim, const int *shape)
{
    int t = describe(dtype, ndim, shape);
    int64_t n = numel(t);
    must(api->alloc(dev, n * ls_dtype_size(dtype), &tensors[t].mem, &err));
    for (int64_t i = 0; dtype == LS_F32 && i < n; i++)
        ((float *)tensors[t].mem)[i] = (float)(0.05 * ls_normal(3, (uint64_t)t, (uint64_t)i));
    for (int64_t i = 0; dtype == LS_I32 && i < n; i++)
        ((int32_t *)tensors[t].mem)[i] = (int32_t)(i % 10);
    return t;
}

static int view(int base, int64_t *offset, int ndim, const int *shape)
{
    int t = describe(LS_F32, ndim, shape);
    tensors[t].mem = (float *)tensors[base].mem + *offset;
    *offset = ls_round_up(*offset + numel(t), 16);
    return t;
}

#define SHAPE(...)                                                   \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) \
    {                                                                \
        __VA_ARGS__                                                  \
    }

static struct op *push(const char *name, enum ls_kind kind, struct ls_attr attr, int nin, int nout,
                       const int *io)
{
    struct op *op = &ops[nop++];
    snprintf(op->name, sizeof op->name, "%s", name);
    op->kind = kind, op->attr = attr, op->nin = nin, op->nout = nout;
    memcpy(op->io, io, (size_t)(nin + nout) * sizeof *io);
    for (int i = 0; i < nin + nout; i++)
        if (io[i] != control)
            op->bytes += (double)(numel(io[i]) * ls_dtype_size(tensors[io[i]].o.dtype));
    return op;
}
#define IO(...)     \
    (const int[])   \
    {               \
        __VA_ARGS__ \
    }

static void prepare(struct op *op)
{
    struct ls_operand o[LS_OP_MAX_OUT + 12];
    struct ls_op_desc d = {op->kind, &op->attr, op->nin, op->nout, o, o + op->nin};
    for (int i = 0; i < op->nin + op->nout; i++) {
        o[i] = tensors[op->io[i]].o;
        op->at[i] = tensors[op->io[i]].mem;
    }
    int64_t bytes = 0;
    must(api->prepare(dev, &d, &op->kernel, &bytes, &err));
    if (bytes > workspace_bytes)
        workspace_bytes = bytes;
    op->times = calloc(MAX_STEPS, sizeof *op->times);
    if (!op->times)
        exit(1);
}

/* A pack op in front of `user`'s, if the backend wants one; the operand then is the packed one. */
static void pack(struct op *user, int operand)
{
    struct ls_operand o[LS_OP_MAX_OUT + 12];
    struct ls_op_desc d = {user->kind, &user->attr, user->nin, user->nout, o, o + user->nin};
    for (int i = 0; i < user->nin + user->nout; i++)
        o[i] = tensors[user->io[i]].o;
    int64_t bytes = api->pack_size(dev, &d, operand);
    if (bytes <= 0)
        return;
    int packed = describe(LS_F32, o[operand].ndim, (int[LS_MAX_DIMS]){0});
    memcpy(tensors[packed].o.shape, o[operand].shape, sizeof o[operand].shape);
    tensors[packed].o.packed = true;
    must(api->alloc(dev, bytes, &tensors[packed].mem, &err));
    struct op *op = &ops[nop];
    *op = *user;
    snprintf(op->name, sizeof op->name, "pack %.50s", user->name);
    op->pack = true, op->flops = 0, op->bytes = (double)(2 * bytes);
    must(api->prepare_pack(dev, &d, operand, &op->kernel, &err));
    op->at[0] = tensors[user->io[operand]].mem;
    op->at[1] = tensors[packed].mem;
    op->times = calloc(MAX_STEPS, sizeof *op->times);
    user->io[operand] = packed;
    nop++;
}

static void optimizer(int loss, int count, int p, int g, int64_t n, bool norm)
{
    int m = tensor(LS_F32, 1, (int[]){(int)n}), v = tensor(LS_F32, 1, (int[]){(int)n});
    memset(tensors[m].mem, 0, (size_t)n * 4);
    memset(tensors[v].mem, 0, (size_t)n * 4);
    int sq = tensor(LS_F32, 0, NULL), vec = tensor(LS_F32, SHAPE(norm ? 3 : 2));
    if (norm)
        push("sumsq", LS_K_SUMSQ, (struct ls_attr){0}, 1, 1, IO(g, sq))->flops = 2.0 * (double)n;
    push("concat", LS_K_CONCAT, (struct ls_attr){0}, norm ? 3 : 2, 1,
         norm ? IO(loss, count, sq, vec) : IO(loss, count, vec));
    push("commit", LS_K_COMMIT, (struct ls_attr){0}, 2, 1, IO(vec, control, control));
    push("adamw", LS_K_ADAMW,
         (struct ls_attr){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01}, 5, 3,
         IO(p, m, v, g, control, p, m, v))
        ->flops = 14.0 * (double)n;
}

static void build_mlp(int batch)
{
    enum { LAYERS = 3 };
    static const int d[LAYERS + 1] = {784, 512, 512, 10};
    char name[64];
    int64_t n = 0, at = 0;
    for (int l = 0; l < LAYERS; l++)
        n += ls_round_up((int64_t)d[l] * d[l + 1], 16) + ls_round_up(d[l + 1], 16);
    int p = tensor(LS_F32, SHAPE((int)n)), g = tensor(LS_F32, SHAPE((int)n));
    int x[LAYERS + 1], w[LAYERS], b[LAYERS], dw[LAYERS], db[LAYERS], dx[LAYERS + 1];
    /* buckets hold parameters in the order in which backward completes their gradients */
    for (int l = LAYERS - 1; l >= 0; l--) {
        int64_t start = at;
        w[l] = view(p, &at, SHAPE(d[l], d[l + 1])), b[l] = view(p, &at, SHAPE(d[l + 1]));
        at = start;
        dw[l] = view(g, &at, SHAPE(d[l], d[l + 1])), db[l] = view(g, &at, SHAPE(d[l + 1]));
    }
    for (int l = 0; l <= LAYERS; l++)
        x[l] = tensor(LS_F32, SHAPE(batch, d[l])), dx[l] = tensor(LS_F32, SHAPE(batch, d[l]));
    int labels = tensor(LS_I32, SHAPE(batch)), lse = tensor(LS_F32, SHAPE(batch));
    int loss = tensor(LS_F32, 0, NULL), count = tensor(LS_F32, 0, NULL);
    for (int l = 0; l < LAYERS; l++) {
        struct ls_attr a = {.bias = true, .act = l + 1 < LAYERS ? LS_OP_ACT_RELU : 0};
        snprintf(name, sizeof name, "matmul+bias %dx%dx%d", batch, d[l + 1], d[l]);
        push(name, LS_K_MATMUL, a, 3, 1, IO(x[l], w[l], b[l], x[l + 1]))->flops =
            2.0 * batch * d[l] * d[l + 1];
    }
    push("xent", LS_K_XENT, (struct ls_attr){0}, 2, 3, IO(x[LAYERS], labels, loss, count, lse));
    push("xent_grad", LS_K_XENT_GRAD, (struct ls_attr){0}, 3, 1,
         IO(x[LAYERS], labels, lse, dx[LAYERS]));
    for (int l = LAYERS - 1; l >= 0; l--) {
        snprintf(name, sizeof name, "dW %dx%dx%d", d[l], d[l + 1], batch);
        push(name, LS_K_MATMUL, (struct ls_attr){.ta = true, .accumulate = true}, 4, 1,
             IO(x[l], dx[l + 1], dw[l], control, dw[l]))
            ->flops = 2.0 * batch * d[l] * d[l + 1];
        push("db", LS_K_SUM_ROWS, (struct ls_attr){.accumulate = true}, 3, 1,
             IO(dx[l + 1], db[l], control, db[l]));
        if (l == 0)
            break;
        snprintf(name, sizeof name, "dx %dx%dx%d", batch, d[l], d[l + 1]);
        push(name, LS_K_MATMUL, (struct ls_attr){.tb = true}, 2, 1, IO(dx[l + 1], w[l], dx[l]))
            ->flops = 2.0 * batch * d[l] * d[l + 1];
        push("relu_grad", LS_K_RELU_GRAD, (struct ls_attr){0}, 2, 1, IO(x[l], dx[l], dx[l]));
    }
    optimizer(loss, count, p, g, n, false);
}

/* conv 3x3 to c1, batch norm + ReLU, max pool; the same to c2; the same to c3; global pool; linear. */
static void build_conv(int batch)
{
    enum { BLOCKS = 3 };
    static const int ch[BLOCKS + 1] = {1, 32, 64, 64}, hw[BLOCKS + 1] = {28, 14, 7, 3};
    struct ls_attr conv = {.stride = 1, .pad = 1}, pool = {.kernel = 2, .stride = 2};
    struct ls_attr norm = {.eps = 1e-5, .act = LS_OP_ACT_RELU}, none = {0};
    int x[BLOCKS + 1], c[BLOCKS], y[BLOCKS], place[BLOCKS], w[BLOCKS], gain[BLOCKS], bias[BLOCKS];
    int stat[BLOCKS][3], dw[BLOCKS], dgain[BLOCKS], dbias[BLOCKS], dx[BLOCKS + 1], dy[BLOCKS];
    int64_t n = 640 + 10;
    char name[64];
    for (int l = 0; l < BLOCKS; l++)
        n += ch[l] * ch[l + 1] * 9 + 3 * ch[l + 1] + 64;
    int p = tensor(LS_F32, SHAPE((int)n)), g = tensor(LS_F32, SHAPE((int)n));
    int64_t at = 0, gat = 0;
    x[0] = tensor(LS_F32, SHAPE(batch, 28, 28, 1));
    dx[0] = -1;
    for (int l = 0; l < BLOCKS; l++) {
        int h = hw[l], o = ch[l + 1];
        w[l] = view(p, &at, SHAPE(o, ch[l], 3, 3)), dw[l] = view(g, &gat, SHAPE(o, ch[l], 3, 3));
        gain[l] = view(p, &at, SHAPE(o)), dgain[l] = view(g, &gat, SHAPE(o));
        bias[l] = view(p, &at, SHAPE(o)), dbias[l] = view(g, &gat, SHAPE(o));
        c[l] = tensor(LS_F32, SHAPE(batch, h, h, o)), y[l] = tensor(LS_F32, SHAPE(batch, h, h, o));
        dy[l] = tensor(LS_F32, SHAPE(batch, h, h, o));
        x[l + 1] = tensor(LS_F32, SHAPE(batch, h / 2, h / 2, o));
        dx[l + 1] = tensor(LS_F32, SHAPE(batch, h / 2, h / 2, o));
        place[l] = tensor(LS_U8, SHAPE(batch, h / 2, h / 2, o));
        for (int i = 0; i < 3; i++)
            stat[l][i] = tensor(LS_F32, SHAPE(o));
    }
    int flat = tensor(LS_F32, SHAPE(batch, 64)), dflat = tensor(LS_F32, SHAPE(batch, 64));
    int logits = tensor(LS_F32, SHAPE(batch, 10)), dlogits = tensor(LS_F32, SHAPE(batch, 10));
    int wl = view(p, &at, SHAPE(64, 10)), dwl = view(g, &gat, SHAPE(64, 10));
    int labels = tensor(LS_I32, SHAPE(batch)), lse = tensor(LS_F32, SHAPE(batch));
    int loss = tensor(LS_F32, 0, NULL), count = tensor(LS_F32, 0, NULL);
    for (int l = 0; l < BLOCKS; l++) {
        double flops = 2.0 * batch * hw[l] * hw[l] * ch[l] * ch[l + 1] * 9;
        snprintf(name, sizeof name, "conv %dx%d %d->%d", hw[l], hw[l], ch[l], ch[l + 1]);
        struct op *op = push(name, LS_K_CONV2D, conv, 2, 1, IO(x[l], w[l], c[l]));
        op->flops = flops;
        pack(op, 1);
        push("batch_norm+relu", LS_K_BATCH_NORM, norm, 3, 4,
             IO(c[l], gain[l], bias[l], y[l], stat[l][0], stat[l][1], stat[l][2]));
        push("max_pool", LS_K_MAX_POOL, pool, 1, 2, IO(y[l], x[l + 1], place[l]));
    }
    push("global_pool", LS_K_GLOBAL_POOL, none, 1, 1, IO(x[BLOCKS], flat));
    push("matmul", LS_K_MATMUL, none, 2, 1, IO(flat, wl, logits));
    push("xent", LS_K_XENT, none, 2, 3, IO(logits, labels, loss, count, lse));
    push("xent_grad", LS_K_XENT_GRAD, none, 3, 1, IO(logits, labels, lse, dlogits));
    push("dW", LS_K_MATMUL, (struct ls_attr){.ta = true, .accumulate = true}, 4, 1,
         IO(flat, dlogits, dwl, control, dwl));
    push("dx", LS_K_MATMUL, (struct ls_attr){.tb = true}, 2, 1, IO(dlogits, wl, dflat));
    push("global_pool_grad", LS_K_GLOBAL_POOL_GRAD, none, 1, 1, IO(dflat, dx[BLOCKS]));
    for (int l = BLOCKS - 1; l >= 0; l--) {
        struct ls_attr grad = conv, acc = conv, pgrad = pool;
        pgrad.height = pgrad.width = grad.height = grad.width = hw[l];
        acc.height = acc.width = 3, acc.accumulate = true;
        push("max_pool_grad", LS_K_MAX_POOL_GRAD, pgrad, 2, 1, IO(place[l], dx[l + 1], dy[l]));
        push("relu_grad", LS_K_RELU_GRAD, none, 2, 1, IO(y[l], dy[l], dy[l]));
        push("batch_norm_grad", LS_K_BATCH_NORM_GRAD, (struct ls_attr){.accumulate = true}, 8, 3,
             IO(c[l], gain[l], stat[l][0], stat[l][1], dy[l], dgain[l], dbias[l], control, dy[l],
                dgain[l], dbias[l]));
        double flops = 2.0 * batch * hw[l] * hw[l] * ch[l] * ch[l + 1] * 9;
        snprintf(name, sizeof name, "conv dW %dx%d %d->%d", hw[l], hw[l], ch[l], ch[l + 1]);
        push(name, LS_K_CONV2D_GRAD_WEIGHT, acc, 4, 1, IO(x[l], dy[l], dw[l], control, dw[l]))
            ->flops = flops;
        if (l == 0)
            break;
        snprintf(name, sizeof name, "conv dx %dx%d %d->%d", hw[l], hw[l], ch[l], ch[l + 1]);
        struct op *op = push(name, LS_K_CONV2D_GRAD_DATA, grad, 2, 1, IO(w[l], dy[l], dx[l]));
        op->flops = flops;
        pack(op, 0);
    }
    optimizer(loss, count, p, g, n, true);
}

/* ---- running it ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(float *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_value);
    return t[n / 2];
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "mlp";
    int batch = argc > 3 ? atoi(argv[3]) : 128;
    struct ls_device_config config = {.threads = argc > 4 ? atoi(argv[4]) : 2};
    double seconds = argc > 5 ? atof(argv[5]) : 2;
    if (argc < 2 || batch < 1) {
        fprintf(stderr, "usage: cpu_ops PLUGIN_DIR [mlp|conv] [batch] [threads] [seconds]\n");
        return 2;
    }
    if (config.threads == 1)
        clock_id = CLOCK_THREAD_CPUTIME_ID;
    must(ls_device_load(argv[1], "cpu", &api, &err));
    must(api->open(&config, &dev, &err));
    control = describe(LS_F64, SHAPE((int)LS_CONTROL_WORDS));
    must(api->alloc(dev, LS_CONTROL_WORDS * 8, &tensors[control].mem, &err));
    ((double *)tensors[control].mem)[LS_C_LR] = 1e-3;
    ((double *)tensors[control].mem)[LS_C_MICROS] = 1;
    if (!strcmp(what, "conv"))
        build_conv(batch);
    else
        build_mlp(batch);
    for (int i = 0; i < nop; i++)
        if (!ops[i].pack)
            prepare(&ops[i]);
    void *ws = NULL;
    if (workspace_bytes)
        must(api->alloc(dev, workspace_bytes, &ws, &err));
    float *step = calloc(MAX_STEPS, sizeof *step), *whole = calloc(MAX_STEPS, sizeof *whole);
    if (!step || !whole)
        return 1;
    int n = 0;
    double end = ls_time_monotonic() + seconds;
    for (int warm = -20; n < MAX_STEPS && (warm < 1 || ls_time_monotonic() < end); warm++) {
        double t0 = now(), t = t0;
        for (int i = 0; i < nop; i++) {
            must(api->launch(dev, ops[i].kernel, ops[i].at, ws, &err));
            double u = now();
            ops[i].times[n] = (float)(u - t);
            t = u;
        }
        step[n] = (float)(t - t0);
        /* and once more without looking at the clock in between */
        t0 = now();
        for (int i = 0; i < nop; i++)
            must(api->launch(dev, ops[i].kernel, ops[i].at, ws, &err));
        whole[n] = (float)(now() - t0);
        n += warm >= 0;
    }
    double sum = 0;
    printf("%s, batch %d, %s, %d steps\n", what, batch, api->describe(dev), n);
    printf("%-28s %9s %9s %8s %8s\n", "op", "median us", "min us", "GF/s", "GB/s");
    for (int i = 0; i < nop; i++) {
        double m = median(ops[i].times, n);
        sum += m;
        printf("%-28s %9.1f %9.1f %8.1f %8.1f\n", ops[i].name, m * 1e6, ops[i].times[0] * 1e6,
               ops[i].flops / m / 1e9, ops[i].bytes / m / 1e9);
    }
    double m = median(whole, n);
    printf("sum of medians %.1f us; step without clocks: median %.1f us, p10 %.1f us, min %.1f us, "
           "%.0f samples/s\n",
           sum * 1e6, m * 1e6, whole[n / 10] * 1e6, whole[0] * 1e6, batch / m);
    return 0;
}
