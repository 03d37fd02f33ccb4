/* Softmax cross-entropy and accuracy: XENT, XENT_GRAD, TOP1.
 */
#include "plugins/cpu/kinds.h"
#include "plugins/cpu/vec.h"

#include <math.h>

struct loss {
    struct ls_kernel head;
    enum ls_kind kind;
    int64_t rows, width;
};

/* Rows of few classes are worked on sixteen at a time, class by class: a vector then holds one
 * class of sixteen rows. */
#define LANES 16

static void lse_lanes(const float *x, int64_t v, float *lse)
{
    float max[LANES], sum[LANES];
    for (int r = 0; r < LANES; r++)
        max[r] = x[r * v], sum[r] = 0;
    for (int64_t j = 1; j < v; j++)
        for (int r = 0; r < LANES; r++)
            max[r] = x[r * v + j] > max[r] ? x[r * v + j] : max[r];
    for (int64_t j = 0; j < v; j++)
        for (int r = 0; r < LANES; r++)
            sum[r] += ls_expf(x[r * v + j] - max[r]);
    for (int r = 0; r < LANES; r++)
        lse[r] = max[r] + logf(sum[r]);
}

static float lse_row(const float *x, int64_t v)
{
    float max = x[0], sum = 0;
    for (int64_t j = 1; j < v; j++)
        max = x[j] > max ? x[j] : max;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < v; j++)
        sum += ls_expf(x[j] - max);
    return max + logf(sum);
}

static void lse_rows(const float *x, int64_t v, float *lse, int64_t lo, int64_t hi)
{
    int64_t i = lo;
    if (v <= 64)
        for (; i + LANES <= hi; i += LANES)
            lse_lanes(x + i * v, v, lse + i);
    for (; i < hi; i++)
        lse[i] = lse_row(x + i * v, v);
}

static void log_sum_exp(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct loss *l = (const struct loss *)head;
    int64_t lo, hi;
    ls_cpu_slice(l->rows, LANES, part, parts, &lo, &hi);
    lse_rows(io[0], l->width, io[4], lo, hi);
}

static enum ls_status run_xent(struct ls_kernel *head, void *const *io, void *ws,
                               struct ls_error *err)
{
    (void)err;
    const struct loss *l = (const struct loss *)head;
    const float *x = io[0];
    const int32_t *label = io[1];
    const float *lse = io[4];
    ls_cpu_parallel(head, log_sum_exp, io, ws);
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < l->rows; i++) {
        if (label[i] < 0)
            continue;
        count++; /* a label that is no class makes the loss NaN, and the step is skipped */
        sum += label[i] < l->width ? (double)lse[i] - x[i * l->width + label[i]] : (double)NAN;
    }
    *(float *)io[2] = (float)sum;
    *(float *)io[3] = (float)count;
    return LS_OK;
}

static void xent_grad_row(const float *x, int32_t label, float lse, float *dx, int64_t v)
{
    if (label < 0) {
        memset(dx, 0, (size_t)v * sizeof *dx);
        return;
    }
    for (int64_t j = 0; j < v; j++)
        dx[j] = ls_expf(x[j] - lse);
    if (label < v)
        dx[label] -= 1;
}

/* The exponentials of a block of narrow rows in one go, then the labels. */
#define BLOCK 1024
static void xent_grad_narrow(const float *x, const int32_t *label, const float *lse, float *dx,
                             int64_t v, int64_t rows)
{
    float shift[BLOCK];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < v; j++)
            shift[i * v + j] = lse[i];
    for (int64_t i = 0; i < rows * v; i++)
        dx[i] = ls_expf(x[i] - shift[i]);
    for (int64_t i = 0; i < rows; i++) {
        if (label[i] < 0)
            memset(dx + i * v, 0, (size_t)v * sizeof *dx);
        else if (label[i] < v)
            dx[i * v + label[i]] -= 1;
    }
}

static void xent_grad(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct loss *l = (const struct loss *)head;
    const float *x = io[0];
    const int32_t *label = io[1];
    const float *lse = io[2];
    float *dx = io[3];
    int64_t v = l->width, step = v <= 64 ? BLOCK / v : 1, lo, hi;
    ls_cpu_slice(l->rows, LANES, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i += step) {
        if (step == 1)
            xent_grad_row(x + i * v, label[i], lse[i], dx + i * v, v);
        else
            xent_grad_narrow(x + i * v, label + i, lse + i, dx + i * v, v,
                             hi - i < step ? hi - i : step);
    }
}

static bool is_first_largest(const float *x, int64_t v, int32_t label)
{
    float at = x[label];
    bool yes = true;
    for (int64_t j = 0; j < label; j++)
        yes &= x[j] < at;
    for (int64_t j = label; j < v; j++)
        yes &= x[j] <= at;
    return yes;
}

static enum ls_status run_top1(struct ls_kernel *head, void *const *io, void *ws,
                               struct ls_error *err)
{
    (void)ws, (void)err;
    const struct loss *l = (const struct loss *)head;
    const float *x = io[0];
    const int32_t *label = io[1];
    int64_t hits = 0;
    for (int64_t i = 0; i < l->rows; i++)
        if (label[i] >= 0 && label[i] < l->width)
            hits += is_first_largest(x + i * l->width, l->width, label[i]);
    *(float *)io[2] = (float)hits;
    return LS_OK;
}

enum ls_status LS_V(ls_cpu_loss)(struct ls_device *dev, const struct ls_op_desc *op,
                                 struct ls_kernel **kernel, int64_t *workspace,
                                 struct ls_error *err)
{
    if (op->kind == LS_K_XENT)
        LS_TRY(ls_cpu_check(op, 2, 3, "fifff", err));
    else if (op->kind == LS_K_TOP1)
        LS_TRY(ls_cpu_check(op, 2, 1, "fif", err));
    else
        LS_TRY(ls_cpu_check(op, 3, 1, "fiff", err));
    const struct ls_operand *x = &op->in[0];
    if (x->ndim != 2 || op->in[1].ndim != 1 || op->in[1].shape[0] != x->shape[0])
        return ls_cpu_unsupported(op, "expected logits [n,v] and labels [n]", err);
    bool fits = op->kind == LS_K_XENT_GRAD
                    ? ls_cpu_same_shape(x, &op->out[0]) && ls_cpu_same_shape(&op->in[1], &op->in[2])
                    : ls_cpu_numel(&op->out[0]) == 1;
    if (op->kind == LS_K_XENT)
        fits = fits && ls_cpu_numel(&op->out[1]) == 1 && ls_cpu_same_shape(&op->in[1], &op->out[2]);
    if (!fits)
        return ls_cpu_unsupported(op, "the shapes do not fit each other", err);
    struct loss *l = ls_cpu_kernel(sizeof *l, err);
    if (!l)
        return LS_ERR_NOMEM;
    l->kind = op->kind;
    l->rows = x->shape[0], l->width = x->shape[1];
    if (op->kind == LS_K_XENT_GRAD)
        l->head.work = xent_grad;
    else
        l->head.run = op->kind == LS_K_XENT ? run_xent : run_top1;
    /* an exponential costs about as much as moving 16 bytes */
    l->head.threads = ls_cpu_threads(dev, l->rows * l->width * 16);
    *workspace = 0;
    *kernel = &l->head;
    return LS_OK;
}
