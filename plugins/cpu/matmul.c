/* MATMUL in all its forms: plain, transposed, with bias and activation behind it, accumulating.
 */
#include "plugins/cpu/gemm.h"

struct matmul {
    struct ls_kernel head;
    struct ls_gemm g;
    bool bias, keep_pre, accumulate;
};

/* Operands a, b, then bias, or accumulator and control; results c, then the value before the
 * activation. */
static void matmul(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    const struct matmul *mm = (const struct matmul *)head;
    struct ls_gemm_data d = {.a = io[0], .b = io[1]};
    if (mm->accumulate) {
        d.c = io[4];
        d.add = ((const double *)io[3])[LS_C_MICRO] > 0;
    } else {
        d.bias = mm->bias ? io[2] : NULL;
        d.c = io[2 + mm->bias];
        d.pre = mm->keep_pre ? io[3 + mm->bias] : NULL;
    }
    LS_V(ls_gemm_part)(&mm->g, &d, ws, part, parts, ls_cpu_thread());
}

static enum ls_status check(const struct ls_op_desc *op, struct ls_error *err)
{
    const struct ls_attr *at = op->attr;
    if (at->accumulate && (at->bias || at->act != LS_OP_ACT_NONE))
        return ls_cpu_unsupported(op, "accumulate goes with no epilogue", err);
    if (at->keep_pre && at->act != LS_OP_ACT_GELU)
        return ls_cpu_unsupported(op, "keep_pre goes with GELU only", err);
    if (at->accumulate)
        return ls_cpu_check(op, 4, 1, "fffdf", err);
    if (at->bias)
        return ls_cpu_check(op, 3, at->keep_pre ? 2 : 1, "fffff", err);
    return ls_cpu_check(op, 2, at->keep_pre ? 2 : 1, "ffff", err);
}

enum ls_status LS_V(ls_cpu_matmul)(struct ls_device *dev, const struct ls_op_desc *op,
                                   struct ls_kernel **kernel, int64_t *workspace,
                                   struct ls_error *err)
{
    LS_TRY(check(op, err));
    const struct ls_attr *at = op->attr;
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
    mm->g = (struct ls_gemm){.ta = at->ta, .tb = at->tb, .m = m, .n = n, .k = k, .act = at->act};
    mm->bias = at->bias, mm->keep_pre = at->keep_pre, mm->accumulate = at->accumulate;
    mm->head.work = matmul;
    struct ls_gemm_plan plan = LS_V(ls_gemm_plan)(&mm->g, dev->threads);
    mm->head.threads = plan.threads;
    mm->head.shares = plan.shares;
    *workspace = plan.workspace;
    *kernel = &mm->head;
    return LS_OK;
}
