/* The passes in order, each followed by the verifier. */
#include "graph/graph.h"

#include <string.h>

const char *const ls_graph_passes[] = {"build",    "differentiate", "evaluate", "bucket",
                                       "optimize", "shard",         "fuse",     "layout",
                                       "schedule", "plan",          NULL};

/* Where the model is divided among ranks, before parameters are grouped by where they are. */
static enum ls_status bucket(struct ls_prog *p, struct ls_error *err)
{
    LS_TRY(ls_graph_shard(p, LS_AXIS_TENSOR, err));
    LS_TRY(ls_graph_shard(p, LS_AXIS_PIPELINE, err));
    LS_TRY(ls_graph_verify(p, "evaluate, shard", err));
    return ls_graph_bucket(p, err);
}

static enum ls_status shard(struct ls_prog *p, struct ls_error *err)
{
    static const enum ls_axis order[] = {LS_AXIS_TENSOR, LS_AXIS_PIPELINE, LS_AXIS_DATA,
                                         LS_AXIS_REPLICA};
    for (int i = 0; i < LS_AXES; i++)
        LS_TRY(ls_graph_shard(p, order[i], err));
    return LS_OK;
}

enum ls_status ls_graph_compile(struct ls_prog *p, ls_pack_size_fn *pack_size, void *arg,
                                const char *stop_after, struct ls_error *err)
{
    typedef enum ls_status pass(struct ls_prog *, struct ls_error *);
    static pass *const passes[] = {NULL,
                                   ls_graph_differentiate,
                                   ls_graph_evaluate,
                                   bucket,
                                   ls_graph_optimize,
                                   shard,
                                   ls_graph_fuse,
                                   NULL,
                                   ls_graph_schedule,
                                   ls_graph_plan};
    for (int i = 0; ls_graph_passes[i]; i++) {
        const char *name = ls_graph_passes[i];
        if (!strcmp(name, "layout"))
            LS_TRY(ls_graph_layout(p, pack_size, arg, err));
        else if (passes[i])
            LS_TRY(passes[i](p, err));
        LS_TRY(ls_graph_verify(p, name, err));
        if (stop_after && !strcmp(stop_after, name))
            break;
    }
    return LS_OK;
}
