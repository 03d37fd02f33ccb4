/* What an executor does because there are other ranks: it starts collectives at their place, waits for
 * them where the schedule says, and tells kernels which slice they have. */
#include "graph/exec.h"

#include <stdlib.h>
#include <string.h>

bool ls_exec_is_here(const struct ls_exec *e, const struct ls_op *op)
{
    int stage = e->coord[LS_AXIS_PIPELINE];
    if (op->kind == LS_K_SEND) /* only the pipeline sends */
        return stage == op->attr.from || stage == op->attr.to;
    struct ls_place at = op->nout ? e->prog->tensor[op->out[0]].place[LS_AXIS_PIPELINE]
                                  : (struct ls_place){LS_PLACE_R, 0};
    return at.kind != LS_PLACE_A || at.dim == stage;
}

static int axis_of(const struct ls_op *op)
{
    return __builtin_ctz(op->attr.axes);
}

struct ls_attr ls_exec_resolve(const struct ls_exec *e, const struct ls_op *op)
{
    struct ls_attr attr = op->attr;
    if (!attr.axes)
        return attr;
    int coord = e->coord[axis_of(op)], ranks = ls_graph_mesh(e->prog, (enum ls_axis)axis_of(op));
    if (op->kind == LS_K_SLICE) {
        attr.from = (int16_t)coord;
    } else {
        const struct ls_tensor *x = &e->prog->tensor[op->in[0]];
        int64_t mine = x->ndim ? x->shape[x->ndim - 1] : 1;
        attr.first = coord * mine;
        attr.whole = ranks * mine;
    }
    return attr;
}

enum ls_status ls_exec_prepare_collective(struct ls_exec *e, const struct ls_op *op,
                                          struct ls_exec_launch *l, struct ls_error *err)
{
    const struct ls_prog *p = e->prog;
    const struct ls_tensor *x = &p->tensor[op->in[0]];
    struct ls_collective *c = calloc(1, sizeof *c);
    if (!c)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    *c = (struct ls_collective){.kind = op->kind,
                                .axes = op->attr.axes,
                                .in = ls_exec_address(e, op->in[0]),
                                .out = ls_exec_address(e, op->out[0]),
                                .count = ls_graph_numel(p, op->in[0]),
                                .dtype = x->dtype,
                                .max = op->attr.max,
                                .dim = op->attr.dim,
                                .outer = 1,
                                .from = op->attr.from,
                                .to = op->attr.to,
                                .seq = op->seq};
    for (int d = 0; d < op->attr.dim; d++)
        c->outer *= x->shape[d];
    c->inner = c->outer > 0 ? c->count / c->outer : 0;
    l->collective = c;
    return LS_OK;
}

/* A concat of one operand is a copy: of the tensor itself, or of zeros. */
enum ls_status ls_exec_prepare_keep(struct ls_exec *e, const struct ls_op *op,
                                    struct ls_exec_launch *l, struct ls_error *err)
{
    const struct ls_prog *p = e->prog;
    int64_t n = ls_graph_numel(p, op->in[0]), workspace = 0;
    struct ls_operand io[2] = {{.dtype = p->tensor[op->in[0]].dtype, .ndim = 1, .shape = {n}}};
    io[1] = io[0];
    struct ls_attr attr = {0};
    struct ls_op_desc desc = {
        .kind = LS_K_CONCAT, .attr = &attr, .nin = 1, .nout = 1, .in = &io[0], .out = &io[1]};
    LS_TRY(e->api->prepare(e->dev, &desc, &l->kernel, &workspace, err));
    if (workspace > e->workspace_bytes)
        e->workspace_bytes = workspace;
    l->operands = calloc(2, sizeof *l->operands);
    if (!l->operands)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    bool keeps = e->coord[axis_of(op)] == op->attr.from;
    l->operands[0] = keeps ? ls_exec_address(e, op->in[0]) : e->zeros;
    l->operands[1] = ls_exec_address(e, op->out[0]);
    return LS_OK;
}

int ls_exec_source(const struct ls_exec *e, const struct ls_op *op)
{
    const struct ls_prog *p = e->prog;
    if (op->kind != LS_K_SUMSQ || !e->comm || !e->comm->squares)
        return -1;
    for (int i = 0; i < p->nop && &p->op[i] != op; i++)
        if (p->op[i].kind == LS_K_REDUCE_SCATTER && p->op[i].out[0] == op->in[0])
            return i;
    return -1;
}

enum ls_status ls_exec_start(struct ls_exec *e, int op, struct ls_error *err)
{
    if (!e->comm->start)
        return ls_error_set(err, LS_ERR_INTERNAL, "a program of many ranks without a communicator");
    struct ls_exec_pending *p = &e->pending[e->npending];
    *p = (struct ls_exec_pending){.wait = e->prog->op[op].wait};
    LS_TRY(e->api->sync(e->dev, err)); /* what it reads is in memory */
    LS_TRY(e->comm->start(e->comm->arg, e->launch[op].collective, &p->req, err));
    e->npending++;
    return LS_OK;
}

enum ls_status ls_exec_wait(struct ls_exec *e, int op, struct ls_error *err)
{
    int n = 0;
    for (int k = 0; k < e->npending; k++)
        if (e->pending[k].wait <= op)
            n = k + 1;
    if (!n)
        return LS_OK;
    enum ls_status status = LS_OK;
    for (int k = 0; k < n && status == LS_OK; k++)
        status = e->comm->wait(e->comm->arg, e->pending[k].req, err);
    e->npending -= n;
    memmove(e->pending, e->pending + n, (size_t)e->npending * sizeof *e->pending);
    return status;
}
