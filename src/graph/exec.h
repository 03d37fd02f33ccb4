/* An opened program, shared by the files of the executor; private to this folder. */
#ifndef LS_GRAPH_EXEC_H
#define LS_GRAPH_EXEC_H

#include "graph/graph.h"

struct ls_exec_launch {
    bool here; /* this rank runs the op, in the segments that it belongs to */
    struct ls_kernel *kernel;
    void **operands;
    struct ls_collective *collective; /* instead of a kernel */
    double squares; /* of a collective's result, where a sumsq reads it from there */
    int source;     /* sumsq without a kernel: the op of the collective that sums the squares */
};
struct ls_exec_pending {
    void *req;
    int wait; /* index of the op before which it must have ended */
};
struct ls_exec_loan {
    void **operand;
    int tensor;     /* the input */
    int64_t offset; /* bytes into it */
};
struct ls_exec {
    const struct ls_prog *prog;
    const struct ls_device_api *api;
    struct ls_device *dev;
    const struct ls_exec_comm *comm; /* NULL: one rank */
    int coord[LS_AXES];
    void *mem[LS_ROLES];
    bool lent[LS_ROLES]; /* the memory is the communicator's */
    void *workspace;
    int64_t workspace_bytes;
    void *zeros; /* what a keep op copies where it does not keep */
    int64_t zeros_bytes;
    struct ls_exec_launch *launch; /* per op */
    int *list[LS_SEGMENTS], nlist[LS_SEGMENTS];
    struct ls_exec_loan *loan; /* every operand that lies in an input tensor */
    int nloan, caploan;
    struct ls_exec_pending *pending; /* in the order of their start; room for all collectives */
    int npending;
};

void *ls_exec_address(const struct ls_exec *e, int t);

/* exec_ranks.c */
/* Does this rank's pipeline stage run the op? */
bool ls_exec_is_here(const struct ls_exec *e, const struct ls_op *op);
/* The attributes with what depends on this rank's coordinates. */
struct ls_attr ls_exec_resolve(const struct ls_exec *e, const struct ls_op *op);
enum ls_status ls_exec_prepare_collective(struct ls_exec *e, const struct ls_op *op,
                                          struct ls_exec_launch *l, struct ls_error *err);
enum ls_status ls_exec_prepare_keep(struct ls_exec *e, const struct ls_op *op,
                                    struct ls_exec_launch *l, struct ls_error *err);
enum ls_status ls_exec_start(struct ls_exec *e, int op, struct ls_error *err);
/* The reduce_scatter that can tell op `op`, a sumsq, its result; -1: it needs a kernel. */
int ls_exec_source(const struct ls_exec *e, const struct ls_op *op);
/* Ends all collectives for which op `op` must wait, and those that were started before them. */
enum ls_status ls_exec_wait(struct ls_exec *e, int op, struct ls_error *err);
static inline enum ls_status ls_exec_drain(struct ls_exec *e, struct ls_error *err)
{
    return ls_exec_wait(e, e->prog->nop, err);
}

#endif
