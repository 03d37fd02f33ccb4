/* A planned program on one device: arenas, one prepared kernel per op, and for each segment the list
 * of launches with their pointers. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

struct launch {
    struct ls_kernel *kernel;
    void **operands;
};
struct ls_exec {
    const struct ls_prog *prog;
    const struct ls_device_api *api;
    struct ls_device *dev;
    void *mem[LS_ROLES];
    void *workspace;
    int64_t workspace_bytes;
    struct launch *launch; /* per op; kernel NULL: nothing to run */
    int *list[LS_SEGMENTS], nlist[LS_SEGMENTS];
};

static void *address(const struct ls_exec *e, int t)
{
    const struct ls_tensor *root = &e->prog->tensor[ls_graph_root(e->prog, t)];
    return (char *)e->mem[root->role] + root->at + ls_graph_offset(e->prog, t);
}

static const struct ls_op *find_op(const struct ls_prog *p, int id)
{
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].id == id)
            return &p->op[i];
    return NULL;
}

static bool has_kernel(const struct ls_op *op)
{
    return op->kind != LS_K_RESHAPE && op->kind != LS_K_JOIN;
}

static enum ls_status prepare_op(struct ls_exec *e, int i, struct ls_operand *io,
                                 struct ls_error *err)
{
    const struct ls_prog *p = e->prog;
    const struct ls_op *op = &p->op[i];
    struct launch *l = &e->launch[i];
    struct ls_op_desc desc;
    int64_t workspace = 0;
    if (op->kind == LS_K_JOIN && !p->tensor[ls_graph_root(p, op->out[0])].persistent)
        return ls_error_set(err, LS_ERR_INTERNAL,
                            "a transient gradient bucket reached the device: run the fuse pass");
    if (!has_kernel(op))
        return LS_OK;
    if (op->kind == LS_K_PACK) {
        const struct ls_op *user = find_op(p, op->pack_op);
        if (!user)
            return ls_error_set(err, LS_ERR_INTERNAL, "pack %d serves no op", op->id);
        ls_graph_describe(p, user, io, &desc);
        LS_TRY(e->api->prepare_pack(e->dev, &desc, op->pack_operand, &l->kernel, err));
    } else {
        ls_graph_describe(p, op, io, &desc);
        LS_TRY(e->api->prepare(e->dev, &desc, &l->kernel, &workspace, err));
    }
    if (workspace > e->workspace_bytes)
        e->workspace_bytes = workspace;
    l->operands = calloc((size_t)op->nin + (size_t)op->nout, sizeof *l->operands);
    if (!l->operands)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    for (int k = 0; k < op->nin; k++)
        l->operands[k] = address(e, op->in[k]);
    for (int k = 0; k < op->nout; k++)
        l->operands[op->nin + k] = address(e, op->out[k]);
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
            if (p->op[i].segs >> s & 1 && e->launch[i].kernel)
                e->list[s][e->nlist[s]++] = i;
    }
    return status;
}

enum ls_status ls_exec_open(const struct ls_prog *prog, const struct ls_device_api *api,
                            struct ls_device *dev, struct ls_exec **exec, struct ls_error *err)
{
    struct ls_exec *e = calloc(1, sizeof *e);
    if (!e)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the program");
    *e = (struct ls_exec){.prog = prog, .api = api, .dev = dev};
    enum ls_status status = LS_OK;
    for (int r = 0; r < LS_ROLES && status == LS_OK; r++)
        if (prog->arena_bytes[r])
            status = api->alloc(dev, prog->arena_bytes[r], &e->mem[r], err);
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
    }
    for (int s = 0; s < LS_SEGMENTS; s++)
        free(e->list[s]);
    for (int r = 0; r < LS_ROLES; r++)
        if (e->mem[r])
            e->api->free(e->dev, e->mem[r], e->prog->arena_bytes[r]);
    if (e->workspace)
        e->api->free(e->dev, e->workspace, e->workspace_bytes);
    free(e->launch);
    free(e);
}

enum ls_status ls_exec_run(struct ls_exec *e, enum ls_segment segment, struct ls_error *err)
{
    int s = __builtin_ctz((unsigned)segment);
    for (int k = 0; k < e->nlist[s]; k++) {
        const struct launch *l = &e->launch[e->list[s][k]];
        LS_TRY(e->api->launch(e->dev, l->kernel, l->operands, e->workspace, err));
    }
    return LS_OK;
}

enum ls_status ls_exec_read(struct ls_exec *e, int tensor, void *host, struct ls_error *err)
{
    return e->api->read(e->dev, host, address(e, tensor), ls_graph_bytes(e->prog, tensor), err);
}

enum ls_status ls_exec_write(struct ls_exec *e, int tensor, const void *host, struct ls_error *err)
{
    return e->api->write(e->dev, address(e, tensor), host, ls_graph_bytes(e->prog, tensor), err);
}

int64_t ls_exec_bytes(const struct ls_exec *e)
{
    int64_t bytes = e->workspace_bytes;
    for (int r = 0; r < LS_ROLES; r++)
        bytes += e->prog->arena_bytes[r];
    return bytes;
}
