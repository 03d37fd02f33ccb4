/* The program arrays: tensors, ops, emission with shape inference, small queries. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

int ls_graph_state_of(const struct ls_op *op, int k)
{
    const struct ls_kind_info *info = ls_graph_kind(op->kind);
    if (op->attr.accumulate) {
        unsigned bits = info->accumulates;
        if (!(bits >> k & 1))
            return -1;
        int before = __builtin_popcount(bits & ((1u << k) - 1));
        return op->nin - 1 - __builtin_popcount(bits) + before;
    }
    if (op->kind == LS_K_ALL_GATHER)
        return op->nin == 2 ? 1 : -1; /* gathers into the buffer of which it read a slice */
    return info->state[k] - 1;
}

void ls_graph_init(struct ls_prog *p, const struct ls_graph_options *options)
{
    *p = (struct ls_prog){.options = *options,
                          .images = -1,
                          .labels = -1,
                          .logits = -1,
                          .loss = {-1, -1},
                          .wishes = -1,
                          .eval = -1,
                          .segs = LS_SEG_MICRO | LS_SEG_LAST};
    p->control = ls_graph_tensor(p, LS_ROLE_CONTROL, true, LS_F64, 1,
                                 (const int64_t[]){LS_CONTROL_WORDS}, "control");
}

void ls_graph_free(struct ls_prog *p)
{
    free(p->tensor);
    free(p->op);
    free(p->param);
    free(p->bucket);
    ls_arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}

static void out_of_memory(struct ls_prog *p)
{
    ls_error_set(&p->error, LS_ERR_NOMEM, "no memory for a program of %d ops and %d tensors",
                 p->nop, p->ntensor);
}

enum ls_status ls_graph_check(const struct ls_prog *p, const char *pass, struct ls_error *err)
{
    if (p->error.status == LS_OK)
        return LS_OK;
    return ls_error_set(err, p->error.status, "%s: %s", pass, p->error.message);
}

int ls_graph_tensor(struct ls_prog *p, enum ls_role role, bool persistent, enum ls_dtype dtype,
                    int ndim, const int64_t *shape, const char *fmt, ...)
{
    int64_t extent[LS_MAX_DIMS] = {0}; /* `shape` may lie in the array that grows */
    for (int d = 0; d < ndim; d++)
        extent[d] = shape[d];
    struct ls_buf name;
    ls_buf_init(&name, 256);
    va_list ap;
    va_start(ap, fmt);
    ls_buf_vprintf(&name, fmt, ap);
    va_end(ap);
    char *kept = name.failed ? NULL : ls_arena_strdup(&p->arena, name.data ? name.data : "");
    ls_buf_free(&name);
    if (!kept || !ls_grow(&p->tensor, &p->captensor, p->ntensor + 1, sizeof *p->tensor)) {
        out_of_memory(p);
        return 0;
    }
    struct ls_tensor *t = &p->tensor[p->ntensor];
    *t = (struct ls_tensor){.name = kept,
                            .dtype = dtype,
                            .role = role,
                            .persistent = persistent,
                            .ndim = ndim,
                            .primal = -1,
                            .base = -1,
                            .packed = -1,
                            .slice_axis = -1,
                            .at = -1};
    for (int d = 0; d < ndim; d++)
        t->shape[d] = extent[d];
    return p->ntensor++;
}

static int *copy_ints(struct ls_prog *p, const int *from, int n)
{
    int *to = ls_arena_alloc(&p->arena, (size_t)(n ? n : 1) * sizeof *to);
    if (!to)
        out_of_memory(p);
    else if (n)
        memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

void ls_graph_push(struct ls_prog *p, const struct ls_op *op)
{
    struct ls_op copy = *op;
    copy.in = copy_ints(p, op->in, op->nin);
    copy.out = copy_ints(p, op->out, op->nout);
    if (!copy.in || !copy.out)
        return;
    if (!ls_grow(&p->op, &p->capop, p->nop + 1, sizeof *p->op))
        out_of_memory(p);
    else
        p->op[p->nop++] = copy;
}

struct ls_op *ls_graph_take_ops(struct ls_prog *p, int *n)
{
    struct ls_op *old = p->op;
    *n = p->nop;
    p->op = NULL;
    p->nop = p->capop = 0;
    return old;
}

static struct ls_op new_op(struct ls_prog *p, enum ls_kind kind, const struct ls_attr *attr,
                           int nin, const int *in, int *out)
{
    return (struct ls_op){.kind = kind,
                          .attr = attr ? *attr : (struct ls_attr){0},
                          .nin = nin,
                          .in = (int *)in, /* only read: ls_graph_push copies */
                          .out = out,
                          .segs = p->segs,
                          .phase = p->phase,
                          .layer = p->layer,
                          .id = p->next_id++,
                          .seq = -1,
                          .wait = -1,
                          .pack_op = -1};
}

static int add_result(struct ls_prog *p, const struct ls_op *op, int k, int ndim,
                      const int64_t *shape)
{
    int state = ls_graph_state_of(op, k);
    const struct ls_tensor *old = state >= 0 ? &p->tensor[op->in[state]] : NULL;
    enum ls_role role = old ? old->role : p->phase == LS_PHASE_UPDATE ? LS_ROLE_WORK : LS_ROLE_ACT;
    enum ls_dtype dtype = old                                   ? old->dtype
                          : op->kind == LS_K_MAX_POOL && k == 1 ? LS_U8 /* a place, not a value */
                                                                : LS_F32;
    int t = ls_graph_tensor(p, role, false, dtype, ndim, shape, k ? "%s.%d.%d" : "%s.%d",
                            ls_graph_kind(op->kind)->name, op->id, k);
    if (state >= 0 && p->error.status == LS_OK) {
        p->tensor[t].storage = LS_STORE_NEXT;
        p->tensor[t].base = op->in[state];
    }
    return t;
}

const int *ls_graph_emit(struct ls_prog *p, enum ls_kind kind, const struct ls_attr *attr, int nin,
                         const int *in)
{
    if (p->error.status != LS_OK)
        return p->zeros;
    int out[LS_OP_MAX_OUT];
    struct ls_op op = new_op(p, kind, attr, nin, in, out);
    struct ls_dims dims;
    if (ls_graph_dims(p, &op, &dims, &p->error) != LS_OK)
        return p->zeros;
    op.nout = dims.nout;
    for (int k = 0; k < op.nout; k++) {
        int64_t shape[LS_MAX_DIMS] = {0};
        int ndim = (int)strlen(dims.out[k]);
        for (int d = 0; d < ndim; d++)
            shape[d] = dims.extent[(unsigned char)dims.out[k][d]];
        out[k] = add_result(p, &op, k, ndim, shape);
    }
    ls_graph_push(p, &op);
    return p->error.status == LS_OK ? p->op[p->nop - 1].out : p->zeros;
}

int ls_graph_concat(struct ls_prog *p, int nin, const int *in)
{
    if (p->error.status != LS_OK)
        return 0;
    int64_t n = 0;
    for (int k = 0; k < nin; k++)
        n += ls_graph_numel(p, in[k]);
    int out[1];
    struct ls_op op = new_op(p, LS_K_CONCAT, NULL, nin, in, out);
    op.nout = 1;
    out[0] = add_result(p, &op, 0, 1, &n);
    ls_graph_push(p, &op);
    return out[0];
}

int ls_graph_reshape(struct ls_prog *p, int t, int ndim, const int64_t *shape)
{
    if (p->error.status != LS_OK)
        return 0;
    int out[1];
    struct ls_op op = new_op(p, LS_K_RESHAPE, NULL, 1, &t, out);
    op.nout = 1;
    out[0] = add_result(p, &op, 0, ndim, shape);
    if (p->error.status != LS_OK)
        return 0;
    struct ls_tensor *view = &p->tensor[out[0]];
    view->storage = LS_STORE_VIEW;
    view->base = t;
    view->role = p->tensor[t].role;
    view->dtype = p->tensor[t].dtype;
    if (ls_graph_numel(p, out[0]) != ls_graph_numel(p, t))
        ls_error_set(&p->error, LS_ERR_INTERNAL, "reshape of %s changes the number of elements",
                     p->tensor[t].name);
    ls_graph_push(p, &op);
    return out[0];
}

int ls_graph_param(struct ls_prog *p, int ndim, const int64_t *shape, enum ls_rule rule,
                   struct ls_fill fill, const char *name)
{
    int t = ls_graph_tensor(p, LS_ROLE_PARAM, true, LS_F32, ndim, shape, "%s", name);
    if (!ls_grow(&p->param, &p->capparam, p->nparam + 1, sizeof *p->param)) {
        out_of_memory(p);
        return 0;
    }
    p->param[p->nparam++] = (struct ls_param){.tensor = t, .grad = -1, .rule = rule, .fill = fill};
    return t;
}

int64_t ls_graph_numel(const struct ls_prog *p, int t)
{
    int64_t n = 1;
    for (int d = 0; d < p->tensor[t].ndim; d++)
        n *= p->tensor[t].shape[d];
    return n;
}

int64_t ls_graph_bytes(const struct ls_prog *p, int t)
{
    return ls_graph_numel(p, t) * ls_dtype_size(p->tensor[t].dtype);
}

int ls_graph_root(const struct ls_prog *p, int t)
{
    while (p->tensor[t].storage != LS_STORE_OWN)
        t = p->tensor[t].base;
    return t;
}

int64_t ls_graph_offset(const struct ls_prog *p, int t)
{
    int64_t bytes = 0;
    for (; p->tensor[t].storage != LS_STORE_OWN; t = p->tensor[t].base)
        if (p->tensor[t].storage == LS_STORE_VIEW)
            bytes += p->tensor[t].offset * ls_dtype_size(p->tensor[t].dtype);
    return bytes;
}

double ls_graph_flops(const struct ls_prog *p, const struct ls_op *op)
{
    struct ls_dims dims;
    if (!ls_graph_kind(op->kind)->dims || ls_graph_dims(p, op, &dims, NULL) != LS_OK)
        return op->kind == LS_K_SGD ? 6 * (double)ls_graph_numel(p, op->in[0]) : 0;
    /* A convolution's or pool's image extents do not multiply: every output point is visited. */
    double points = 1;
    for (int c = 0; c < 128; c++)
        if (dims.extent[c] && c != 'H' && c != 'W' && c != 'C')
            points *= (double)dims.extent[c];
    if (!dims.extent['P'])
        for (const char *c = "HW"; *c; c++)
            points *= dims.extent[(unsigned char)*c] ? (double)dims.extent[(unsigned char)*c] : 1;
    return ls_graph_kind(op->kind)->flops * points;
}

void ls_graph_describe(const struct ls_prog *p, const struct ls_op *op, struct ls_operand *io,
                       struct ls_op_desc *desc)
{
    for (int k = 0; k < op->nin + op->nout; k++) {
        const struct ls_tensor *t = &p->tensor[k < op->nin ? op->in[k] : op->out[k - op->nin]];
        io[k] = (struct ls_operand){.dtype = t->dtype, .ndim = t->ndim};
        if (t->packed >= 0) { /* shaped as the plain tensor that it stands for */
            const struct ls_tensor *plain = &p->tensor[t->packed];
            io[k] = (struct ls_operand){.dtype = plain->dtype, .ndim = plain->ndim, .packed = true};
            t = plain;
        }
        for (int d = 0; d < t->ndim; d++)
            io[k].shape[d] = t->shape[d];
    }
    *desc = (struct ls_op_desc){.kind = op->kind,
                                .attr = &op->attr,
                                .nin = op->nin,
                                .nout = op->nout,
                                .in = io,
                                .out = io + op->nin};
}
