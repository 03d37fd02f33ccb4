/* The small kinds at the end of a step: SUMSQ, CONCAT, COMMIT.
 */
#include "plugins/cpu/kinds.h"

#include <math.h>
#include <string.h>

struct sumsq {
    struct ls_kernel head;
    int64_t n;
};
struct concat {
    struct ls_kernel head;
    int nin;
    int64_t n[LS_OP_MAX_IN];
};
struct commit {
    struct ls_kernel head;
    int64_t n;
    double max_norm;
    int wishes;
};

typedef float floats_8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles_8 __attribute__((vector_size(64)));
#define CHAINS 4 /* independent sums: with one, every add waits for the one before it */

static double sumsq_slice(const float *x, int64_t n)
{
    doubles_8 sum[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + 8 * CHAINS <= n; i += 8 * CHAINS)
        for (int c = 0; c < CHAINS; c++) {
            doubles_8 v = __builtin_convertvector(*(const floats_8 *)(x + i + 8 * c), doubles_8);
            sum[c] += v * v;
        }
    double rest = 0;
    for (; i < n; i++)
        rest += (double)x[i] * x[i];
    for (int c = 0; c < CHAINS; c++)
        for (int k = 0; k < 8; k++)
            rest += sum[c][k];
    return rest;
}

/* Cut alike for any number of threads: ranks that have different numbers come to the same norm, bit for bit, or
 * they would clip their copies of the parameters differently. */
#define BLOCKS 128

/* Workspace: one double per block. */
static void sumsq(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    const struct sumsq *s = (const struct sumsq *)head;
    int64_t first, end, lo, hi;
    ls_cpu_slice(BLOCKS, 1, part, parts, &first, &end);
    for (int b = (int)first; b < end; b++) {
        ls_cpu_slice(s->n, 16, b, BLOCKS, &lo, &hi);
        ((double *)ws)[b] = sumsq_slice((const float *)io[0] + lo, hi - lo);
    }
}

static enum ls_status run_sumsq(struct ls_kernel *head, void *const *io, void *ws,
                                struct ls_error *err)
{
    (void)err;
    double *sum = ws, total = 0;
    ls_cpu_parallel(head, sumsq, io, ws);
    for (int b = 0; b < BLOCKS; b++)
        total += sum[b];
    *(float *)io[1] = (float)total;
    return LS_OK;
}

static enum ls_status run_concat(struct ls_kernel *head, void *const *io, void *ws,
                                 struct ls_error *err)
{
    (void)ws, (void)err;
    const struct concat *c = (const struct concat *)head;
    float *y = io[c->nin];
    for (int i = 0; i < c->nin; i++) {
        memcpy(y, io[i], (size_t)c->n[i] * sizeof *y);
        y += c->n[i];
    }
    return LS_OK;
}

static enum ls_status run_commit(struct ls_kernel *head, void *const *io, void *ws,
                                 struct ls_error *err)
{
    (void)ws, (void)err;
    const struct commit *c = (const struct commit *)head;
    const float *v = io[0];
    double *control = io[2], sum = 0;
    for (int64_t i = 2; i < c->n - c->wishes; i++)
        sum += v[i];
    for (int64_t i = 0; i < c->wishes; i++)
        control[LS_C_WISH + i] = v[c->n - c->wishes + i];
    double count = v[1], norm = sqrt(sum) / count;
    bool skip = !isfinite(norm) || !isfinite(v[0]) || !(count > 0);
    double clip = c->max_norm > 0 && c->max_norm < norm ? c->max_norm / norm : 1;
    control[LS_C_LOSS] = v[0];
    control[LS_C_COUNT] = count;
    control[LS_C_NORM] = norm;
    control[LS_C_SCALE] = clip / count;
    control[LS_C_SKIP] = skip;
    control[skip ? LS_C_SKIPPED : LS_C_UPDATES] += 1;
    return LS_OK;
}

static enum ls_status prepare_concat(const struct ls_op_desc *op, struct ls_kernel **kernel,
                                     struct ls_error *err)
{
    char types[LS_OP_MAX_IN + 1];
    if (op->nin < 1 || op->nin > LS_OP_MAX_IN)
        return ls_cpu_unsupported(op, "expected 1 to 64 operands", err);
    memset(types, 'f', sizeof types);
    LS_TRY(ls_cpu_check(op, op->nin, 1, types, err));
    struct concat *c = ls_cpu_kernel(sizeof *c, err);
    if (!c)
        return LS_ERR_NOMEM;
    int64_t sum = 0;
    for (int i = 0; i < op->nin; i++)
        sum += c->n[i] = ls_cpu_numel(&op->in[i]);
    if (sum != ls_cpu_numel(&op->out[0])) {
        free(c);
        return ls_cpu_unsupported(op, "the result has not the length of all operands", err);
    }
    c->nin = op->nin;
    c->head.run = run_concat;
    *kernel = &c->head;
    return LS_OK;
}

enum ls_status LS_V(ls_cpu_reduce)(struct ls_device *dev, const struct ls_op_desc *op,
                                   struct ls_kernel **kernel, int64_t *workspace,
                                   struct ls_error *err)
{
    *workspace = 0;
    if (op->kind == LS_K_CONCAT)
        return prepare_concat(op, kernel, err);
    if (op->kind == LS_K_SUMSQ) {
        LS_TRY(ls_cpu_check(op, 1, 1, "ff", err));
        if (ls_cpu_numel(&op->out[0]) != 1)
            return ls_cpu_unsupported(op, "the result is one number", err);
        struct sumsq *s = ls_cpu_kernel(sizeof *s, err);
        if (!s)
            return LS_ERR_NOMEM;
        s->n = ls_cpu_numel(&op->in[0]);
        s->head.run = run_sumsq;
        s->head.threads = ls_cpu_threads(dev, s->n * 4);
        *workspace = BLOCKS * (int64_t)sizeof(double);
        *kernel = &s->head;
        return LS_OK;
    }
    LS_TRY(ls_cpu_check(op, 2, 1, "fdd", err));
    int64_t n = ls_cpu_numel(&op->in[0]);
    if (n < 2 + op->attr->wishes || op->attr->wishes < 0 || op->attr->wishes > LS_WISHES ||
        ls_cpu_numel(&op->in[1]) != LS_CONTROL_WORDS ||
        ls_cpu_numel(&op->out[0]) != LS_CONTROL_WORDS)
        return ls_cpu_unsupported(op, "expected loss, count and the control tensor", err);
    struct commit *c = ls_cpu_kernel(sizeof *c, err);
    if (!c)
        return LS_ERR_NOMEM;
    c->n = n;
    c->max_norm = op->attr->max_norm;
    c->wishes = op->attr->wishes;
    c->head.run = run_commit;
    *kernel = &c->head;
    return LS_OK;
}
