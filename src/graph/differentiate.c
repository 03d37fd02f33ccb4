/* Reverse-mode differentiation of the loss sum: one rule per kind, contributions joined by add. Only
 * what leads to a parameter gets a gradient. */
#include "graph/graph.h"

#include <stdlib.h>

struct grads {
    int *of;      /* gradient of each tensor, or -1 */
    bool *wanted; /* does a parameter lie behind it? */
    int n;        /* tensors of the forward program */
};

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

/* Adds a contribution to the gradient of `primal`. */
static void give(struct ls_prog *p, struct grads *g, int primal, int grad)
{
    if (p->error.status != LS_OK)
        return;
    if (g->of[primal] >= 0)
        grad = *ls_graph_emit(p, LS_K_ADD, NULL, IN(g->of[primal], grad));
    if (p->tensor[grad].primal < 0) /* add passes one tensor to both of its operands */
        p->tensor[grad].primal = primal;
    g->of[primal] = grad;
}

static bool wants(const struct grads *g, int t)
{
    return t < g->n && g->wanted[t];
}

typedef void rule(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g);

static void diff_matmul(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    int a = op->in[0], b = op->in[1];
    bool ta = op->attr.ta, tb = op->attr.tb;
    /* c = op(a) op(b): d op(a) = dc op(b)^T and d op(b) = op(a)^T dc; a transposed operand gets the
     * transposed product. */
    if (wants(g, b)) {
        struct ls_attr attr =
            tb ? (struct ls_attr){.ta = true, .tb = ta} : (struct ls_attr){.ta = !ta};
        const int *r = tb ? ls_graph_emit(p, LS_K_MATMUL, &attr, IN(dy, a))
                          : ls_graph_emit(p, LS_K_MATMUL, &attr, IN(a, dy));
        give(p, g, b, *r);
    }
    if (wants(g, a)) {
        struct ls_attr attr =
            ta ? (struct ls_attr){.ta = tb, .tb = true} : (struct ls_attr){.tb = !tb};
        const int *r = ta ? ls_graph_emit(p, LS_K_MATMUL, &attr, IN(b, dy))
                          : ls_graph_emit(p, LS_K_MATMUL, &attr, IN(dy, b));
        give(p, g, a, *r);
    }
}

static void diff_bias(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    if (wants(g, op->in[1]))
        give(p, g, op->in[1], *ls_graph_emit(p, LS_K_SUM_ROWS, NULL, IN(dy)));
    if (wants(g, op->in[0]))
        give(p, g, op->in[0], dy); /* the same tensor: no copy */
}

static void diff_relu(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    give(p, g, op->in[0], *ls_graph_emit(p, LS_K_RELU_GRAD, NULL, IN(op->out[0], dy)));
}

static void diff_gelu(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    give(p, g, op->in[0], *ls_graph_emit(p, LS_K_GELU_GRAD, NULL, IN(op->in[0], dy)));
}

static void diff_add(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    for (int k = 0; k < 2; k++)
        if (wants(g, op->in[k]))
            give(p, g, op->in[k], dy);
}

static void diff_conv2d(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    int x = op->in[0], w = op->in[1];
    struct ls_attr attr = {.stride = op->attr.stride, .pad = op->attr.pad};
    if (wants(g, w)) {
        attr.height = (int32_t)p->tensor[w].shape[2];
        attr.width = (int32_t)p->tensor[w].shape[3];
        give(p, g, w, *ls_graph_emit(p, LS_K_CONV2D_GRAD_WEIGHT, &attr, IN(x, dy)));
    }
    if (wants(g, x)) {
        attr.height = (int32_t)p->tensor[x].shape[1];
        attr.width = (int32_t)p->tensor[x].shape[2];
        give(p, g, x, *ls_graph_emit(p, LS_K_CONV2D_GRAD_DATA, &attr, IN(w, dy)));
    }
}

static void diff_pool(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    struct ls_attr attr = op->attr;
    attr.height = (int32_t)p->tensor[op->in[0]].shape[1];
    attr.width = (int32_t)p->tensor[op->in[0]].shape[2];
    const int *r =
        op->kind == LS_K_MAX_POOL ? ls_graph_emit(p, LS_K_MAX_POOL_GRAD, &attr, IN(op->out[1], dy))
        : op->kind == LS_K_AVG_POOL ? ls_graph_emit(p, LS_K_AVG_POOL_GRAD, &attr, IN(dy))
                                    : ls_graph_emit(p, LS_K_GLOBAL_POOL_GRAD, &attr, IN(dy));
    give(p, g, op->in[0], *r);
}

static void diff_reshape(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    struct ls_tensor x = p->tensor[op->in[0]];
    give(p, g, op->in[0], ls_graph_reshape(p, dy, x.ndim, x.shape));
}

static void diff_batch_norm(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    const int *r = ls_graph_emit(p, LS_K_BATCH_NORM_GRAD, NULL,
                                 IN(op->in[0], op->in[1], op->out[1], op->out[2], dy));
    int d[3] = {r[0], r[1], r[2]};
    for (int k = 0; k < 3; k++)
        if (wants(g, op->in[k]))
            give(p, g, op->in[k], d[k]);
}

static void diff_dropout(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g)
{
    /* Linear and self-adjoint: the same op with the same key. */
    give(p, g, op->in[0], *ls_graph_emit(p, LS_K_DROPOUT, &op->attr, IN(dy, p->control)));
}

static void diff_xent(struct ls_prog *p, const struct ls_op *op, struct grads *g)
{
    give(p, g, op->in[0],
         *ls_graph_emit(p, LS_K_XENT_GRAD, NULL, IN(op->in[0], op->in[1], op->out[2])));
}

static rule *const rules[LS_KIND_COUNT] = {
    [LS_K_MATMUL] = diff_matmul,
    [LS_K_BIAS] = diff_bias,
    [LS_K_RELU] = diff_relu,
    [LS_K_GELU] = diff_gelu,
    [LS_K_ADD] = diff_add,
    [LS_K_CONV2D] = diff_conv2d,
    [LS_K_MAX_POOL] = diff_pool,
    [LS_K_AVG_POOL] = diff_pool,
    [LS_K_GLOBAL_POOL] = diff_pool,
    [LS_K_RESHAPE] = diff_reshape,
    [LS_K_BATCH_NORM] = diff_batch_norm,
    [LS_K_DROPOUT] = diff_dropout,
};

static void differentiate_op(struct ls_prog *p, const struct ls_op *op, struct grads *g,
                             struct ls_error *err)
{
    if (op->kind == LS_K_XENT) {
        diff_xent(p, op, g);
        return;
    }
    if (op->nout == 0 || g->of[op->out[0]] < 0)
        return; /* does not reach the loss */
    bool any = false;
    for (int k = 0; k < op->nin; k++)
        any |= wants(g, op->in[k]);
    if (!any)
        return;
    if (!rules[op->kind])
        ls_error_set(err, LS_ERR_INTERNAL, "%s has no derivative", ls_graph_kind(op->kind)->name);
    else
        rules[op->kind](p, op, g->of[op->out[0]], g);
}

enum ls_status ls_graph_differentiate(struct ls_prog *p, struct ls_error *err)
{
    enum ls_status status = LS_OK;
    int nforward = p->nop;
    struct grads g = {.n = p->ntensor};
    g.of = malloc((size_t)g.n * sizeof *g.of);
    g.wanted = calloc((size_t)g.n, sizeof *g.wanted);
    if (!g.of || !g.wanted) {
        status = ls_error_set(err, LS_ERR_NOMEM, "differentiating the program");
        goto out;
    }
    for (int t = 0; t < g.n; t++)
        g.of[t] = -1;
    for (int i = 0; i < p->nparam; i++)
        g.wanted[p->param[i].tensor] = p->param[i].rule != LS_RULE_EMA;
    for (int i = 0; i < nforward; i++)
        for (int k = 0; k < p->op[i].nin; k++)
            for (int q = 0; g.wanted[p->op[i].in[k]] && q < p->op[i].nout; q++)
                g.wanted[p->op[i].out[q]] = true;

    p->phase = LS_PHASE_BACKWARD;
    p->segs = LS_SEG_MICRO | LS_SEG_LAST;
    for (int i = nforward - 1; i >= 0 && status == LS_OK; i--) {
        struct ls_op op = p->op[i]; /* a copy: emission moves the array */
        p->layer = op.layer;
        differentiate_op(p, &op, &g, &p->error);
        status = ls_graph_check(p, "differentiate", err);
    }
    for (int i = 0; i < p->nparam && status == LS_OK; i++) {
        struct ls_param *param = &p->param[i];
        if (param->rule != LS_RULE_EMA)
            param->grad = g.of[param->tensor];
        if (param->grad < 0)
            status = ls_error_set(err, LS_ERR_INTERNAL, "parameter %s does not reach the loss",
                                  p->tensor[param->tensor].name);
    }
out:
    free(g.of);
    free(g.wanted);
    return status;
}
