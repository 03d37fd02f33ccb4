/* Shared by the three kernel files, each of which ref_f32.c and ref_f64.c include with `real`
 * defined as float or double. Intermediate values are double; `real` is what is stored. */
#ifndef LS_TESTS_KERNELS_H
#define LS_TESTS_KERNELS_H

#include "tests/reference/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct call {
    const struct ls_op_desc *op;
    const struct ls_attr *attr;
    void *const *in, *const *out;
};

static int64_t numel(const struct ls_operand *o)
{
    int64_t n = 1;
    for (int d = 0; d < o->ndim; d++)
        n *= o->shape[d];
    return n;
}

static int64_t last_dim(const struct ls_operand *o)
{
    return o->ndim > 0 ? o->shape[o->ndim - 1] : 1;
}

static double *temporary(int64_t n)
{
    double *t = calloc((size_t)(n > 0 ? n : 1), sizeof *t);
    if (!t)
        abort();
    return t;
}

/* Stores a gradient result. Accumulating form: operands are followed by the accumulators (the
 * first belongs to result `first`) and control; the first micro-batch of a step overwrites. */
static void store_gradient(const struct call *c, int result, int first, const double *value)
{
    const struct ls_op_desc *op = c->op;
    real *y = c->out[result];
    int64_t n = numel(&op->out[result]);
    const real *acc = NULL;
    if (c->attr->accumulate) {
        const double *control = c->in[op->nin - 1];
        int grads = op->nout - first;
        if (control[LS_C_MICRO] > 0)
            acc = c->in[op->nin - 1 - grads + (result - first)];
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = acc ? (real)(acc[i] + (real)value[i]) : (real)value[i];
}

#endif
