/* BATCH_NORM and BATCH_NORM_EVAL. Statistics take one pass over memory: mean and sum of squared
 * deviations of each block of 64 rows (the second look at a block finds it in the cache), blocks put
 * together in double (Chan, Golub & LeVeque, 1979). That is as good as two passes.
 */
#include "plugins/cpu/colsum.h"

#include <math.h>
#include <string.h>

struct norm {
    struct ls_kernel head;
    bool relu, eval;
    double eps;
    struct ls_fold fold;
};

/* A mean and a sum of squared deviations from it, of n values. */
static inline void merge(double n0, double *mean0, double *dev0, double n1, double mean1,
                         double dev1)
{
    double n = n0 + n1, d = mean1 - *mean0;
    *mean0 += d * (n1 / n);
    *dev0 += dev1 + d * d * (n0 * n1 / n);
}

static void block_stats(const float *x, int64_t stride, int64_t rows, int64_t cols, float *mean,
                        float *dev)
{
    float share = 1.0f / (float)rows;
    memset(mean, 0, (size_t)cols * sizeof *mean);
    memset(dev, 0, (size_t)cols * sizeof *dev);
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            mean[j] += x[i * stride + j];
    for (int64_t j = 0; j < cols; j++)
        mean[j] *= share;
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) {
            float d = x[i * stride + j] - mean[j];
            dev[j] += d * d;
        }
}

/* Statistics of folded rows [lo, hi): stats[0..cols) means, stats[cols..2 cols) deviations. */
static void slice_stats(const struct ls_fold *f, const float *x, int64_t lo, int64_t hi,
                        double *stats)
{
    float mean[LS_FOLD_WIDE], dev[LS_FOLD_WIDE];
    memset(stats, 0, (size_t)f->cols * 2 * sizeof *stats);
    for (int64_t j = 0; j < f->cols; j += LS_FOLD_WIDE) {
        int64_t cols = f->cols - j < LS_FOLD_WIDE ? f->cols - j : LS_FOLD_WIDE;
        for (int64_t i = lo; i < hi; i += LS_FOLD_BLOCK) {
            int64_t rows = hi - i < LS_FOLD_BLOCK ? hi - i : LS_FOLD_BLOCK;
            block_stats(x + i * f->cols + j, f->cols, rows, cols, mean, dev);
            double *m = stats + j, *d = m + f->cols;
            double n0 = (double)(i - lo), n1 = (double)rows;
            for (int64_t q = 0; q < cols; q++)
                merge(n0, &m[q], &d[q], n1, mean[q], dev[q]);
        }
    }
}

/* Puts threads, folded columns and left-over rows together: mean, rstd, unbiased variance. */
static void channel_stats(const struct norm *k, const float *x, const double *stats, int parts,
                          float *mean, float *rstd, float *var)
{
    const struct ls_fold *f = &k->fold;
    const float *tail = x + f->rows * f->cols;
    for (int64_t j = 0; j < f->c; j++) {
        double n = 0, m = 0, d = 0;
        for (int t = 0; t < parts; t++) {
            int64_t lo, hi;
            ls_fold_slice(f, t, parts, &lo, &hi);
            const double *s = stats + (int64_t)t * 2 * f->cols + j;
            for (int64_t g = 0; g < f->fold && hi > lo; g++) {
                merge(n, &m, &d, (double)(hi - lo), s[g * f->c], s[f->cols + g * f->c]);
                n += (double)(hi - lo);
            }
        }
        for (int64_t i = 0; i < f->tail; i++, n++)
            merge(n, &m, &d, 1, tail[i * f->c + j], 0);
        mean[j] = (float)m;
        rstd[j] = (float)(1 / sqrt(d / n + k->eps));
        var[j] = (float)(n > 1 ? d / (n - 1) : 0);
    }
}

/* y = (x - mean) * factor + bias over rows of `cols` columns. */
static void apply(const float *x, float *y, int64_t rows, int64_t cols, const float *mean,
                  const float *factor, const float *bias, bool relu)
{
    for (int64_t i = 0; i < rows; i++, x += cols, y += cols)
        if (relu)
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                float v = (x[j] - mean[j]) * factor[j] + bias[j];
                y[j] = v < 0 ? 0 : v;
            }
        else
#pragma omp simd
            for (int64_t j = 0; j < cols; j++)
                y[j] = (x[j] - mean[j]) * factor[j] + bias[j];
}

/* Workspace: mean, factor, bias [3][cols] in float, padded to 64 bytes; then statistics
 * [threads][2][cols] in double. */
static int64_t wide_bytes(const struct ls_fold *f)
{
    return ls_round_up(f->cols * 3 * 4, 64);
}

static void norm(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    const struct norm *k = (const struct norm *)head;
    const struct ls_fold *f = &k->fold;
    const float *x = io[0], *gain = io[1], *bias = io[2];
    float *y = io[k->eval ? 5 : 3], *wide = ws;
    double *stats = (double *)((char *)ws + wide_bytes(f));
    int64_t lo, hi;
    ls_fold_slice(f, part, parts, &lo, &hi);
    if (!k->eval) {
        slice_stats(f, x, lo, hi, stats + (int64_t)part * 2 * f->cols);
        ls_cpu_barrier();
    }
    if (part == 0) {
        const float *mean = k->eval ? io[3] : io[4];
        if (!k->eval)
            channel_stats(k, x, stats, parts, io[4], io[5], io[6]);
        for (int64_t j = 0; j < f->c; j++) {
            double rstd =
                k->eval ? 1 / sqrt(((const float *)io[4])[j] + k->eps) : ((const float *)io[5])[j];
            wide[j] = mean[j];
            wide[f->cols + j] = (float)(gain[j] * rstd);
            wide[2 * f->cols + j] = bias[j];
        }
        for (int i = 0; i < 3; i++)
            ls_fold_spread(f, wide + i * f->cols, wide + i * f->cols);
    }
    ls_cpu_barrier();
    apply(x + lo * f->cols, y + lo * f->cols, hi - lo, f->cols, wide, wide + f->cols,
          wide + 2 * f->cols, k->relu);
    if (part == parts - 1)
        apply(x + f->rows * f->cols, y + f->rows * f->cols, f->tail, f->c, wide, wide + f->cols,
              wide + 2 * f->cols, k->relu);
}

enum ls_status LS_V(ls_cpu_norm)(struct ls_device *dev, const struct ls_op_desc *op,
                                 struct ls_kernel **kernel, int64_t *workspace,
                                 struct ls_error *err)
{
    bool eval = op->kind == LS_K_BATCH_NORM_EVAL;
    if (eval)
        LS_TRY(ls_cpu_check(op, 5, 1, "ffffff", err));
    else
        LS_TRY(ls_cpu_check(op, 3, 4, "fffffff", err));
    const struct ls_operand *x = &op->in[0];
    if (x->ndim < 1 || !ls_cpu_same_shape(x, &op->out[0]))
        return ls_cpu_unsupported(op, "expected x [..., c] and y like x", err);
    int64_t c = x->shape[x->ndim - 1];
    bool fits = true;
    for (int i = 1; i < op->nin; i++)
        fits = fits && op->in[i].ndim == 1 && op->in[i].shape[0] == c;
    for (int i = 1; i < op->nout; i++)
        fits = fits && op->out[i].ndim == 1 && op->out[i].shape[0] == c;
    if (!fits || op->attr->act == LS_OP_ACT_GELU)
        return ls_cpu_unsupported(op, "expected one value per channel, and no GELU", err);
    struct norm *k = ls_cpu_kernel(sizeof *k, err);
    if (!k)
        return LS_ERR_NOMEM;
    k->eval = eval;
    k->relu = op->attr->act == LS_OP_ACT_RELU;
    k->eps = op->attr->eps;
    k->fold = ls_fold_make(ls_cpu_rows(x), c);
    k->head.work = norm;
    k->head.threads = ls_cpu_threads(dev, ls_cpu_numel(x) * 8);
    *workspace = wide_bytes(&k->fold) + (eval ? 0 : k->head.threads * 2 * k->fold.cols * 8);
    *kernel = &k->head;
    return LS_OK;
}
