/* Kinds that treat every element alone: BIAS, RELU, GELU, ADD, their gradients, ACCUM.
 */
#include "plugins/cpu/kinds.h"
#include "plugins/cpu/vec.h"

struct elementwise {
    struct ls_kernel head;
    enum ls_kind kind;
    int64_t n, inner; /* elements; length of a row (BIAS) */
};

void LS_V(ls_cpu_relu)(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; /* not x > 0 ? x : 0: NaN must pass */
}
static void gelu(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ls_geluf(x[i]);
}
static void add(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}
static void relu_grad(const float *y, const float *dy, float *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}
static void gelu_grad(const float *x, const float *dy, float *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = ls_gelu_gradf(x[i]) * dy[i];
}
static void accum(float *acc, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] += x[i];
}
/* Elements [lo, hi) of y = x + b, where a row may start before lo and end behind hi. */
static void bias(const float *x, const float *b, float *y, int64_t lo, int64_t hi, int64_t inner)
{
    for (int64_t i = lo; i < hi;) {
        int64_t col = i % inner, len = inner - col;
        if (len > hi - i)
            len = hi - i;
        add(x + i, b + col, y + i, len);
        i += len;
    }
}

static void elementwise(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct elementwise *e = (const struct elementwise *)head;
    const float *a = io[0], *b = io[1];
    int64_t lo, hi;
    ls_cpu_slice(e->n, 16, part, parts, &lo, &hi);
    int64_t n = hi - lo;
    switch (e->kind) {
    case LS_K_RELU:
        LS_V(ls_cpu_relu)(a + lo, (float *)io[1] + lo, n);
        break;
    case LS_K_GELU:
        gelu(a + lo, (float *)io[1] + lo, n);
        break;
    case LS_K_BIAS:
        bias(a, b, io[2], lo, hi, e->inner);
        break;
    case LS_K_ADD:
        add(a + lo, b + lo, (float *)io[2] + lo, n);
        break;
    case LS_K_RELU_GRAD:
        relu_grad(a + lo, b + lo, (float *)io[2] + lo, n);
        break;
    case LS_K_GELU_GRAD:
        gelu_grad(a + lo, b + lo, (float *)io[2] + lo, n);
        break;
    default: /* ACCUM */
        if (((const double *)io[2])[LS_C_MICRO] > 0)
            accum((float *)io[3] + lo, b + lo, n);
        else
            memcpy((float *)io[3] + lo, b + lo, (size_t)n * sizeof *b);
    }
}

enum ls_status LS_V(ls_cpu_elementwise)(struct ls_device *dev, const struct ls_op_desc *op,
                                        struct ls_kernel **kernel, int64_t *workspace,
                                        struct ls_error *err)
{
    bool unary = op->kind == LS_K_RELU || op->kind == LS_K_GELU;
    if (unary)
        LS_TRY(ls_cpu_check(op, 1, 1, "ff", err));
    else if (op->kind == LS_K_ACCUM)
        LS_TRY(ls_cpu_check(op, 3, 1, "ffdf", err));
    else
        LS_TRY(ls_cpu_check(op, 2, 1, "fff", err));
    const struct ls_operand *x = &op->in[0];
    bool fits = ls_cpu_same_shape(x, &op->out[0]);
    int64_t inner = x->ndim > 0 ? x->shape[x->ndim - 1] : 1;
    if (op->kind == LS_K_BIAS)
        fits = fits && x->ndim > 0 && op->in[1].ndim == 1 && op->in[1].shape[0] == inner;
    else if (!unary)
        fits = fits && ls_cpu_same_shape(x, &op->in[1]);
    if (!fits)
        return ls_cpu_unsupported(op, "the shapes do not fit each other", err);
    struct elementwise *e = ls_cpu_kernel(sizeof *e, err);
    if (!e)
        return LS_ERR_NOMEM;
    e->kind = op->kind;
    e->n = ls_cpu_numel(x);
    e->inner = inner;
    e->head.work = elementwise;
    e->head.threads = ls_cpu_threads(dev, e->n * (unary ? 8 : 12));
    *workspace = 0;
    *kernel = &e->head;
    return LS_OK;
}
