/* MATMUL in all its forms: plain, transposed, with bias and activation behind it, accumulating.
 */
#include "plugins/cpu/kinds.h"
#include "plugins/cpu/onednn.h"
#include "plugins/cpu/vec.h"

struct matmul {
    struct ls_kernel head;
    bool ta, tb, bias, keep_pre, accumulate;
    enum ls_act act;
    int device_threads;
    int64_t m, n, k;
};

static void epilogue(const struct matmul *mm, const float *bias, float *c, float *pre, int64_t lo,
                     int64_t hi)
{
    int64_t n = mm->n;
    for (int64_t i = lo; i < hi; i++) {
        float *y = c + i * n;
        if (bias)
            for (int64_t j = 0; j < n; j++)
                y[j] += bias[j];
        if (pre)
            memcpy(pre + i * n, y, (size_t)n * sizeof *y);
        if (mm->act == LS_OP_ACT_RELU)
            for (int64_t j = 0; j < n; j++)
                y[j] = y[j] < 0 ? 0 : y[j];
        else if (mm->act == LS_OP_ACT_GELU)
            for (int64_t j = 0; j < n; j++)
                y[j] = ls_geluf(y[j]);
    }
}

static void finish(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct matmul *mm = (const struct matmul *)head;
    int64_t lo, hi;
    ls_cpu_slice(mm->m, 1, part, parts, &lo, &hi);
    epilogue(mm, mm->bias ? io[2] : NULL, io[mm->bias ? 3 : 2],
             mm->keep_pre ? io[mm->bias ? 4 : 3] : NULL, lo, hi);
}

static enum ls_status run_matmul(struct ls_kernel *head, void *const *io, void *ws,
                                 struct ls_error *err)
{
    (void)err;
    const struct matmul *mm = (const struct matmul *)head;
    const float *a = io[0], *b = io[1];
    float beta = 0, *c;
    if (mm->accumulate) {
        c = io[4];
        beta = ((const double *)io[3])[LS_C_MICRO] > 0;
    } else {
        c = io[mm->bias ? 3 : 2];
    }
    ls_dnn_sgemm(mm->device_threads, mm->ta, mm->tb, mm->m, mm->n, mm->k, a, b, beta, c);
    if (!mm->bias && mm->act == LS_OP_ACT_NONE)
        return LS_OK;
    ls_cpu_parallel(head, finish, io, ws);
    return LS_OK;
}

enum ls_status LS_V(ls_cpu_matmul)(struct ls_device *dev, const struct ls_op_desc *op,
                                   struct ls_kernel **kernel, int64_t *workspace,
                                   struct ls_error *err)
{
    const struct ls_attr *at = op->attr;
    if (at->accumulate && (at->bias || at->act != LS_OP_ACT_NONE))
        return ls_cpu_unsupported(op, "accumulate goes with no epilogue", err);
    if (at->keep_pre && at->act != LS_OP_ACT_GELU)
        return ls_cpu_unsupported(op, "keep_pre goes with GELU only", err);
    if (at->accumulate)
        LS_TRY(ls_cpu_check(op, 4, 1, "fffdf", err));
    else if (at->bias)
        LS_TRY(ls_cpu_check(op, 3, at->keep_pre ? 2 : 1, "fffff", err));
    else
        LS_TRY(ls_cpu_check(op, 2, at->keep_pre ? 2 : 1, "ffff", err));
    const struct ls_operand *a = &op->in[0], *b = &op->in[1], *c = &op->out[0];
    if (a->ndim != 2 || b->ndim != 2 || c->ndim != 2)
        return ls_cpu_unsupported(op, "expected matrices", err);
    int64_t m = a->shape[at->ta], k = a->shape[!at->ta], n = b->shape[!at->tb];
    if (b->shape[at->tb] != k || c->shape[0] != m || c->shape[1] != n)
        return ls_cpu_unsupported(op, "the shapes do not fit each other", err);
    if (at->bias && (op->in[2].ndim != 1 || op->in[2].shape[0] != n))
        return ls_cpu_unsupported(op, "the bias needs one value per column", err);
    if ((at->accumulate && !ls_cpu_same_shape(&op->in[2], c)) ||
        (at->keep_pre && !ls_cpu_same_shape(&op->out[1], c)))
        return ls_cpu_unsupported(op, "a result has another shape", err);
    struct matmul *mm = ls_cpu_kernel(sizeof *mm, err);
    if (!mm)
        return LS_ERR_NOMEM;
    mm->head.run = run_matmul;
    mm->head.threads = ls_cpu_threads(dev, m * n * 8);
    mm->device_threads = m * n * k < 100000 ? 1 : dev->threads;
    mm->ta = at->ta, mm->tb = at->tb, mm->bias = at->bias, mm->keep_pre = at->keep_pre;
    mm->accumulate = at->accumulate, mm->act = at->act;
    mm->m = m, mm->n = n, mm->k = k;
    *workspace = 0;
    *kernel = &mm->head;
    return LS_OK;
}
