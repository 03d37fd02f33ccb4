/* BATCH_NORM_GRAD: with h = (x - mean) * rstd and averages over all rows,
 * dbias = sum dy, dgain = sum dy h, dx = gain * rstd * (dy - avg(dy) - h * avg(dy h)).
 */
#include "plugins/cpu/colsum.h"

#include <string.h>

struct norm_grad {
    struct ls_kernel head;
    bool accumulate;
    struct ls_fold fold;
};

/* Rows of the per-channel values that the passes need, each [cols] floats: the mean, and
 * the factors of dx = a dy + b (x - mean) + c. */
enum { W_MEAN, W_A, W_B, W_C, W_COUNT };

static void block_sums(const float *x, const float *dy, int64_t stride, int64_t rows, int64_t cols,
                       const float *mean, float *s, float *t)
{
    memset(s, 0, (size_t)cols * sizeof *s);
    memset(t, 0, (size_t)cols * sizeof *t);
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++) {
            float d = dy[i * stride + j];
            s[j] += d;
            t[j] += d * (x[i * stride + j] - mean[j]);
        }
}

/* Sums of dy and dy (x - mean) over folded rows [lo, hi). */
static void slice_sums(const struct ls_fold *f, const float *x, const float *dy, const float *mean,
                       int64_t lo, int64_t hi, double *sums)
{
    float s[LS_FOLD_WIDE], t[LS_FOLD_WIDE];
    memset(sums, 0, (size_t)f->cols * 2 * sizeof *sums);
    for (int64_t j = 0; j < f->cols; j += LS_FOLD_WIDE) {
        int64_t cols = f->cols - j < LS_FOLD_WIDE ? f->cols - j : LS_FOLD_WIDE;
        for (int64_t i = lo; i < hi; i += LS_FOLD_BLOCK) {
            int64_t rows = hi - i < LS_FOLD_BLOCK ? hi - i : LS_FOLD_BLOCK, at = i * f->cols + j;
            block_sums(x + at, dy + at, f->cols, rows, cols, mean + j, s, t);
            for (int64_t q = 0; q < cols; q++) {
                sums[j + q] += s[q];
                sums[f->cols + j + q] += t[q];
            }
        }
    }
}

static void channel_sums(const struct norm_grad *k, void *const *io, const double *sums, int parts,
                         float *wide)
{
    const struct ls_fold *f = &k->fold;
    const float *x = (const float *)io[0] + f->rows * f->cols;
    const float *dy = (const float *)io[4] + f->rows * f->cols;
    const float *gain = io[1], *mean = io[2], *rstd = io[3];
    bool add = k->accumulate && ((const double *)io[7])[LS_C_MICRO] > 0;
    float *dgain = io[k->accumulate ? 9 : 6], *dbias = io[k->accumulate ? 10 : 7];
    double share = 1 / (double)(f->rows * f->fold + f->tail);
    for (int64_t j = 0; j < f->c; j++) {
        double s = 0, t = 0;
        for (int p = 0; p < parts; p++)
            for (int64_t g = 0; g < f->fold; g++) {
                const double *at = sums + (int64_t)p * 2 * f->cols + g * f->c + j;
                s += at[0];
                t += at[f->cols];
            }
        for (int64_t i = 0; i < f->tail; i++) {
            s += dy[i * f->c + j];
            t += (double)dy[i * f->c + j] * (x[i * f->c + j] - mean[j]);
        }
        double a = (double)gain[j] * rstd[j];
        wide[W_A * f->cols + j] = (float)a;
        wide[W_B * f->cols + j] = (float)(-a * rstd[j] * rstd[j] * t * share);
        wide[W_C * f->cols + j] = (float)(-a * s * share);
        dgain[j] = (add ? dgain[j] : 0) + (float)(t * rstd[j]);
        dbias[j] = (add ? dbias[j] : 0) + (float)s;
    }
    for (int i = W_A; i <= W_C; i++)
        ls_fold_spread(f, wide + i * f->cols, wide + i * f->cols);
}

static void apply(const struct ls_fold *f, const float *x, const float *dy, float *dx, int64_t rows,
                  int64_t cols, const float *wide)
{
    const float *mean = wide, *a = wide + W_A * f->cols, *b = wide + W_B * f->cols;
    const float *c = wide + W_C * f->cols;
    for (int64_t i = 0; i < rows; i++, x += cols, dy += cols, dx += cols)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            dx[j] = a[j] * dy[j] + (b[j] * (x[j] - mean[j]) + c[j]);
}

static int64_t wide_bytes(const struct ls_fold *f)
{
    return ls_round_up(f->cols * W_COUNT * 4, 64);
}

static void norm_grad(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    const struct norm_grad *k = (const struct norm_grad *)head;
    const struct ls_fold *f = &k->fold;
    const float *x = io[0], *dy = io[4];
    float *dx = io[k->accumulate ? 8 : 5], *wide = ws;
    double *sums = (double *)((char *)ws + wide_bytes(f));
    int64_t lo, hi;
    ls_fold_slice(f, part, parts, &lo, &hi);
    if (part == 0)
        ls_fold_spread(f, io[2], wide + W_MEAN * f->cols);
    ls_cpu_barrier();
    slice_sums(f, x, dy, wide, lo, hi, sums + (int64_t)part * 2 * f->cols);
    ls_cpu_barrier();
    if (part == 0)
        channel_sums(k, io, sums, parts, wide);
    ls_cpu_barrier();
    apply(f, x + lo * f->cols, dy + lo * f->cols, dx + lo * f->cols, hi - lo, f->cols, wide);
    int64_t at = f->rows * f->cols;
    if (part == parts - 1)
        apply(f, x + at, dy + at, dx + at, f->tail, f->c, wide);
}

/* Operands x, gain, mean, rstd, dy; accumulating: then the two accumulators and control. */
enum ls_status LS_V(ls_cpu_norm_grad)(struct ls_device *dev, const struct ls_op_desc *op,
                                      struct ls_kernel **kernel, int64_t *workspace,
                                      struct ls_error *err)
{
    bool accumulate = op->attr->accumulate;
    if (accumulate)
        LS_TRY(ls_cpu_check(op, 8, 3, "fffffffdfff", err));
    else
        LS_TRY(ls_cpu_check(op, 5, 3, "ffffffff", err));
    const struct ls_operand *x = &op->in[0];
    if (x->ndim < 1 || !ls_cpu_same_shape(x, &op->in[4]) || !ls_cpu_same_shape(x, &op->out[0]))
        return ls_cpu_unsupported(op, "expected x [..., c], with dy and dx like x", err);
    int64_t c = x->shape[x->ndim - 1];
    bool fits = true;
    for (int i = 1; i < (accumulate ? 7 : 5); i++)
        fits = fits && (i == 4 || (op->in[i].ndim == 1 && op->in[i].shape[0] == c));
    for (int i = 1; i < 3; i++)
        fits = fits && op->out[i].ndim == 1 && op->out[i].shape[0] == c;
    if (!fits)
        return ls_cpu_unsupported(op, "expected one value per channel", err);
    struct norm_grad *k = ls_cpu_kernel(sizeof *k, err);
    if (!k)
        return LS_ERR_NOMEM;
    k->accumulate = accumulate;
    k->fold = ls_fold_make(ls_cpu_rows(x), c);
    k->head.work = norm_grad;
    k->head.threads = ls_cpu_threads(dev, ls_cpu_numel(x) * 12);
    *workspace = wide_bytes(&k->fold) + k->head.threads * 2 * k->fold.cols * 8;
    *kernel = &k->head;
    return LS_OK;
}
