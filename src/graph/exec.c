/* A planned program on one device, as one rank of many or alone: arenas, one prepared kernel or
 * collective per op, and for each segment the list of launches with their pointers. */
#include "graph/exec.h"

#include <stdlib.h>
#include <string.h>

void *ls_exec_address(const struct ls_exec *e, int t)
{
    const struct ls_prog *p = e->prog;
    int64_t at = ls_graph_offset(p, t);
    for (; p->tensor[t].storage != LS_STORE_OWN; t = p->tensor[t].base) {
        const struct ls_tensor *x = &p->tensor[t];
        if (x->storage == LS_STORE_VIEW && x->slice_axis >= 0)
            at += e->coord[x->slice_axis] * ls_graph_bytes(p, t);
    }
    return (char *)e->mem[p->tensor[t].role] + p->tensor[t].at + at;
}

static const struct ls_op *find_op(const struct ls_prog *p, int id)
{
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].id == id)
            return &p->op[i];
    return NULL;
}

static bool moves_nothing(const struct ls_prog *p, const struct ls_op *op)
{
    bool view = op->kind == LS_K_SLICE && p->tensor[op->out[0]].storage == LS_STORE_VIEW;
    return op->kind == LS_K_RESHAPE || op->kind == LS_K_JOIN || view;
}

static enum ls_status prepare_op(struct ls_exec *e, int i, struct ls_operand *io,
                                 struct ls_error *err)
{
    const struct ls_prog *p = e->prog;
    const struct ls_op *op = &p->op[i];
    struct ls_exec_launch *l = &e->launch[i];
    struct ls_op_desc desc;
    int64_t workspace = 0;
    if (op->kind == LS_K_JOIN && !p->tensor[ls_graph_root(p, op->out[0])].persistent)
        return ls_error_set(err, LS_ERR_UNSUPPORTED,
                            "a transient gradient bucket reached the device: run the fuse pass; "
                            "with ZeRO 2 and 3 there is no kernel that zeroes its gaps yet");
    if (moves_nothing(p, op) || !ls_exec_is_here(e, op))
        return LS_OK;
    l->here = true;
    if (ls_graph_is_collective(op->kind))
        return ls_exec_prepare_collective(e, op, l, err);
    if (op->kind == LS_K_KEEP)
        return ls_exec_prepare_keep(e, op, l, err);
    l->source = ls_exec_source(e, op);
    if (l->source >= 0) {
        e->launch[l->source].collective->squares = &e->launch[l->source].squares;
        return LS_OK;
    }
    if (op->kind == LS_K_PACK) {
        const struct ls_op *user = find_op(p, op->pack_op);
        if (!user)
            return ls_error_set(err, LS_ERR_INTERNAL, "pack %d serves no op", op->id);
        ls_graph_describe(p, user, io, &desc);
        LS_TRY(e->api->prepare_pack(e->dev, &desc, op->pack_operand, &l->kernel, err));
    } else {
        struct ls_attr attr = ls_exec_resolve(e, op);
        ls_graph_describe(p, op, io, &desc);
        desc.attr = &attr;
        LS_TRY(e->api->prepare(e->dev, &desc, &l->kernel, &workspace, err));
    }
    if (workspace > e->workspace_bytes)
        e->workspace_bytes = workspace;
    l->operands = calloc((size_t)op->nin + (size_t)op->nout, sizeof *l->operands);
    if (!l->operands)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    for (int k = 0; k < op->nin; k++) {
        l->operands[k] = ls_exec_address(e, op->in[k]);
        int root = ls_graph_root(p, op->in[k]);
        if (p->tensor[root].role != LS_ROLE_INPUT)
            continue;
        if (!ls_grow(&e->loan, &e->caploan, e->nloan + 1, sizeof *e->loan))
            return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
        e->loan[e->nloan++] =
            (struct ls_exec_loan){&l->operands[k], root, ls_graph_offset(p, op->in[k])};
    }
    for (int k = 0; k < op->nout; k++)
        l->operands[op->nin + k] = ls_exec_address(e, op->out[k]);
    return LS_OK;
}

static enum ls_status prepare_all(struct ls_exec *e, struct ls_error *err)
{
    const struct ls_prog *p = e->prog;
    int most = 0;
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].nin + p->op[i].nout > most)
            most = p->op[i].nin + p->op[i].nout;
    e->launch = calloc((size_t)p->nop + 1, sizeof *e->launch);
    struct ls_operand *io = calloc((size_t)most + LS_OP_MAX_OUT, sizeof *io);
    if (!e->launch || !io) {
        free(io);
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    }
    enum ls_status status = LS_OK;
    for (int i = 0; i < p->nop && status == LS_OK; i++)
        status = prepare_op(e, i, io, err);
    free(io);
    for (int s = 0; s < LS_SEGMENTS && status == LS_OK; s++) {
        e->list[s] = calloc((size_t)p->nop + 1, sizeof **e->list);
        if (!e->list[s])
            status = ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
        for (int i = 0; i < p->nop && status == LS_OK; i++)
            if (p->op[i].segs >> s & 1 && e->launch[i].here)
                e->list[s][e->nlist[s]++] = i;
    }
    return status;
}

/* Arenas, and room for what is under way. Communicated arenas come from the communicator. */
static enum ls_status allocate(struct ls_exec *e, struct ls_error *err)
{
    const struct ls_prog *p = e->prog;
    bool lent = e->comm && e->comm->alloc;
    int collectives = 0;
    for (int t = 0; t < p->ntensor && lent; t++)
        e->lent[p->tensor[t].role] |= p->tensor[t].comm;
    for (int r = 0; r < LS_ROLES; r++) {
        if (p->arena_bytes[r] && e->lent[r])
            LS_TRY(e->comm->alloc(e->comm->arg, p->arena_bytes[r], &e->mem[r], err));
        else if (p->arena_bytes[r])
            LS_TRY(e->api->alloc(e->dev, p->arena_bytes[r], &e->mem[r], err));
    }
    for (int i = 0; i < p->nop; i++) {
        collectives += ls_graph_is_collective(p->op[i].kind);
        if (p->op[i].kind == LS_K_KEEP && ls_graph_bytes(p, p->op[i].in[0]) > e->zeros_bytes)
            e->zeros_bytes = ls_graph_bytes(p, p->op[i].in[0]);
    }
    if (e->zeros_bytes)
        LS_TRY(e->api->alloc(e->dev, e->zeros_bytes, &e->zeros, err));
    e->pending = calloc((size_t)collectives + 1, sizeof *e->pending);
    if (!e->pending)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    if (collectives && !e->comm)
        return ls_error_set(err, LS_ERR_INTERNAL,
                            "a program of many ranks was opened as that of one");
    return LS_OK;
}

enum ls_status ls_exec_open(const struct ls_prog *prog, const struct ls_device_api *api,
                            struct ls_device *dev, const struct ls_exec_comm *comm,
                            struct ls_exec **exec, struct ls_error *err)
{
    struct ls_exec *e = calloc(1, sizeof *e);
    if (!e)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    *e = (struct ls_exec){.prog = prog, .api = api, .dev = dev, .comm = comm};
    if (comm)
        memcpy(e->coord, comm->coord, sizeof e->coord);
    enum ls_status status = allocate(e, err);
    if (status == LS_OK)
        status = prepare_all(e, err);
    if (status == LS_OK && e->workspace_bytes)
        status = api->alloc(dev, e->workspace_bytes, &e->workspace, err);
    if (status != LS_OK)
        ls_exec_close(e);
    else
        *exec = e;
    return status;
}

void ls_exec_close(struct ls_exec *e)
{
    if (!e)
        return;
    for (int i = 0; e->launch && i < e->prog->nop; i++) {
        if (e->launch[i].kernel)
            e->api->release(e->dev, e->launch[i].kernel);
        free(e->launch[i].operands);
        free(e->launch[i].collective);
    }
    for (int s = 0; s < LS_SEGMENTS; s++)
        free(e->list[s]);
    for (int r = 0; r < LS_ROLES; r++)
        if (e->mem[r] && !e->lent[r])
            e->api->free(e->dev, e->mem[r], e->prog->arena_bytes[r]);
    if (e->workspace)
        e->api->free(e->dev, e->workspace, e->workspace_bytes);
    if (e->zeros)
        e->api->free(e->dev, e->zeros, e->zeros_bytes);
    free(e->pending);
    free(e->launch);
    free(e->loan);
    free(e);
}

/* A sumsq whose result came with the collective that made its operand. */
static enum ls_status hand_over(struct ls_exec *e, const struct ls_op *op, int source,
                                struct ls_error *err)
{
    float value = (float)e->launch[source].squares;
    return e->api->write(e->dev, ls_exec_address(e, op->out[0]), &value, sizeof value, err);
}

enum ls_status ls_exec_run(struct ls_exec *e, enum ls_segment segment, struct ls_error *err)
{
    int s = __builtin_ctz((unsigned)segment);
    for (int k = 0; k < e->nlist[s]; k++) {
        int i = e->list[s][k];
        const struct ls_exec_launch *l = &e->launch[i];
        if (e->npending) {
            LS_TRY(ls_exec_wait(e, i, err));
            if (e->npending && e->comm->progress)
                e->comm->progress(e->comm->arg);
        }
        if (l->collective)
            LS_TRY(ls_exec_start(e, i, err));
        else if (!l->kernel)
            LS_TRY(hand_over(e, &e->prog->op[i], l->source, err));
        else
            LS_TRY(e->api->launch(e->dev, l->kernel, l->operands, e->workspace, err));
    }
    return segment == LS_SEG_LAST ? LS_OK : ls_exec_drain(e, err);
}

enum ls_status ls_exec_read(struct ls_exec *e, int tensor, void *host, struct ls_error *err)
{
    LS_TRY(ls_exec_drain(e, err));
    return e->api->read(e->dev, host, ls_exec_address(e, tensor), ls_graph_bytes(e->prog, tensor),
                        err);
}

enum ls_status ls_exec_write(struct ls_exec *e, int tensor, const void *host, struct ls_error *err)
{
    LS_TRY(ls_exec_drain(e, err));
    return e->api->write(e->dev, ls_exec_address(e, tensor), host, ls_graph_bytes(e->prog, tensor),
                         err);
}

enum ls_status ls_exec_lend(struct ls_exec *e, int tensor, const void *host, struct ls_error *err)
{
    if (!e->api->host_memory)
        return ls_exec_write(e, tensor, host, err);
    LS_TRY(ls_exec_drain(e, err));
    for (int i = 0; i < e->nloan; i++)
        if (e->loan[i].tensor == tensor)
            *e->loan[i].operand = (char *)host + e->loan[i].offset; /* inputs are only read */
    return LS_OK;
}

int64_t ls_exec_bytes(const struct ls_exec *e)
{
    int64_t bytes = e->workspace_bytes + e->zeros_bytes;
    for (int r = 0; r < LS_ROLES; r++)
        bytes += e->prog->arena_bytes[r];
    return bytes;
}
