/* SUM_ROWS: what a bias's gradient is made of.
 */
#include "plugins/cpu/colsum.h"

#include <string.h>

struct sum_rows {
    struct ls_kernel head;
    bool accumulate, by_columns;
    struct ls_fold fold;
};

static void block_sum(const float *x, int64_t stride, int64_t rows, int64_t cols, float *s)
{
    memcpy(s, x, (size_t)cols * sizeof *s);
    int64_t i = 1;
    for (; i + 4 <= rows; i += 4) {
        const float *a = x + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            s[j] += (a[j] + b[j]) + (c[j] + d[j]);
    }
    for (; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            s[j] += x[i * stride + j];
}

/* sum[from..to) of rows [lo, hi). */
static void column_sums(const float *x, int64_t stride, int64_t lo, int64_t hi, int64_t from,
                        int64_t to, double *sum)
{
    float s[LS_FOLD_WIDE];
    memset(sum + from, 0, (size_t)(to - from) * sizeof *sum);
    for (int64_t j = from; j < to; j += LS_FOLD_WIDE) {
        int64_t cols = to - j < LS_FOLD_WIDE ? to - j : LS_FOLD_WIDE;
        for (int64_t i = lo; i < hi; i += LS_FOLD_BLOCK) {
            int64_t rows = hi - i < LS_FOLD_BLOCK ? hi - i : LS_FOLD_BLOCK;
            block_sum(x + i * stride + j, stride, rows, cols, s);
            for (int64_t q = 0; q < cols; q++)
                sum[j + q] += s[q];
        }
    }
}

static void finish(const double *sum, float *y, int64_t from, int64_t to, bool add)
{
    if (add)
        for (int64_t j = from; j < to; j++)
            y[j] += (float)sum[j];
    else
        for (int64_t j = from; j < to; j++)
            y[j] = (float)sum[j];
}

/* Puts threads, folded columns and left-over rows together into the first c sums. */
static void gather(const struct ls_fold *f, const float *x, double *sum, int parts)
{
    const float *tail = x + f->rows * f->cols;
    for (int64_t g = 1; g < parts * f->fold; g++)
        for (int64_t j = 0; j < f->c; j++)
            sum[j] += sum[g * f->c + j];
    for (int64_t i = 0; i < f->tail; i++)
        for (int64_t j = 0; j < f->c; j++)
            sum[j] += tail[i * f->c + j];
}

static bool adds(const struct sum_rows *s, void *const *io)
{
    return s->accumulate && ((const double *)io[2])[LS_C_MICRO] > 0;
}

/* Workspace: sums, by columns [c], else [threads][cols]. */
static void sum_rows(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    const struct sum_rows *s = (const struct sum_rows *)head;
    const struct ls_fold *f = &s->fold;
    double *sum = ws;
    int64_t lo, hi;
    if (s->by_columns) {
        ls_cpu_slice(f->c, 16, part, parts, &lo, &hi);
        column_sums(io[0], f->c, 0, f->rows, lo, hi, sum);
        finish(sum, io[s->accumulate ? 3 : 1], lo, hi, adds(s, io));
    } else {
        ls_fold_slice(f, part, parts, &lo, &hi);
        column_sums(io[0], f->cols, lo, hi, 0, f->cols, sum + part * f->cols);
    }
}

static enum ls_status run_sum_rows(struct ls_kernel *head, void *const *io, void *ws,
                                   struct ls_error *err)
{
    (void)err;
    const struct sum_rows *s = (const struct sum_rows *)head;
    ls_cpu_parallel(head, sum_rows, io, ws);
    if (!s->by_columns) {
        gather(&s->fold, io[0], ws, head->threads);
        finish(ws, io[s->accumulate ? 3 : 1], 0, s->fold.c, adds(s, io));
    }
    return LS_OK;
}

enum ls_status LS_V(ls_cpu_sum_rows)(struct ls_device *dev, const struct ls_op_desc *op,
                                     struct ls_kernel **kernel, int64_t *workspace,
                                     struct ls_error *err)
{
    bool accumulate = op->attr->accumulate;
    if (accumulate)
        LS_TRY(ls_cpu_check(op, 3, 1, "ffdf", err));
    else
        LS_TRY(ls_cpu_check(op, 1, 1, "ff", err));
    const struct ls_operand *x = &op->in[0], *y = &op->out[0];
    if (x->ndim < 1 || y->ndim != 1 || y->shape[0] != x->shape[x->ndim - 1] ||
        (accumulate && !ls_cpu_same_shape(&op->in[1], y)))
        return ls_cpu_unsupported(op, "expected x [..., n] and results [n]", err);
    struct sum_rows *s = ls_cpu_kernel(sizeof *s, err);
    if (!s)
        return LS_ERR_NOMEM;
    s->fold = ls_fold_make(ls_cpu_rows(x), y->shape[0]);
    s->accumulate = accumulate;
    s->head.run = run_sum_rows;
    s->head.threads = ls_cpu_threads(dev, ls_cpu_numel(x) * 4);
    /* Wide rows are cut by columns: no second step, and the thread that made them has them. */
    s->by_columns = s->fold.fold == 1 && s->fold.c >= 64 * dev->threads;
    *workspace = s->fold.cols * 8 * (s->by_columns ? 1 : s->head.threads);
    *kernel = &s->head;
    return LS_OK;
}
