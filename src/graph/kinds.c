/* What the graph knows of every kind: names and dims come from the one table in device/op.h; state
 * pairs, accumulating results and FLOP weights, which only the graph needs, stand here. */
#include "graph/graph.h"

/* X(ENUM, state pairs, accumulating results, FLOPs per point) */
#define EXTRA(X)                     \
    X(MATMUL, (0), 1, 2)             \
    X(BIAS, (0), 0, 1)               \
    X(RELU, (0), 0, 1)               \
    X(GELU, (0), 0, 8)               \
    X(ADD, (0), 0, 1)                \
    X(CONV2D, (0), 0, 2)             \
    X(MAX_POOL, (0), 0, 1)           \
    X(AVG_POOL, (0), 0, 1)           \
    X(GLOBAL_POOL, (0), 0, 1)        \
    X(RESHAPE, (0), 0, 0)            \
    X(BATCH_NORM, (0), 0, 8)         \
    X(BATCH_NORM_EVAL, (0), 0, 2)    \
    X(DROPOUT, (0), 0, 1)            \
    X(XENT, (0), 0, 4)               \
    X(TOP1, (0), 0, 1)               \
    X(RELU_GRAD, (0), 0, 1)          \
    X(GELU_GRAD, (0), 0, 12)         \
    X(CONV2D_GRAD_DATA, (0), 0, 2)   \
    X(CONV2D_GRAD_WEIGHT, (0), 1, 2) \
    X(MAX_POOL_GRAD, (0), 0, 1)      \
    X(AVG_POOL_GRAD, (0), 0, 1)      \
    X(GLOBAL_POOL_GRAD, (0), 0, 1)   \
    X(BATCH_NORM_GRAD, (0), 6, 10)   \
    X(XENT_GRAD, (0), 0, 3)          \
    X(SUM_ROWS, (0), 1, 1)           \
    X(JOIN, (0), 0, 0)               \
    X(ACCUM, (1), 0, 1)              \
    X(SUMSQ, (0), 0, 2)              \
    X(CONCAT, (0), 0, 0)             \
    X(COMMIT, (2), 0, 0)             \
    X(SGD, (1, 2), 0, 6)             \
    X(ADAMW, (1, 2, 3), 0, 14)       \
    X(EMA, (1), 0, 3)                \
    X(PACK, (0), 0, 0)               \
    X(ALL_REDUCE, (1), 0, 0)         \
    X(REDUCE_SCATTER, (0), 0, 0)     \
    X(ALL_GATHER, (0), 0, 0)         \
    X(SLICE, (0), 0, 0)              \
    X(KEEP, (0), 0, 0)               \
    X(SEND, (0), 0, 0)               \
    X(XENT_MAX, (0), 0, 1)           \
    X(XENT_SUM, (0), 0, 3)           \
    X(XENT_FINISH, (0), 0, 1)

/* X(ENUM, two sets of operands): the op is linear in each set jointly, so that terms of a sum pass
 * through it. Shorter than the truth on purpose: the sooner a sum is completed, the fewer readers
 * differ about it. No reshape: its view would share bytes with a sum that is completed in place. */
#define LINEAR(X)             \
    X(MATMUL, 1, 2)           \
    X(CONV2D, 1, 2)           \
    X(ADD, 3, 0)              \
    X(AVG_POOL, 1, 0)         \
    X(GLOBAL_POOL, 1, 0)      \
    X(DROPOUT, 1, 0)          \
    X(AVG_POOL_GRAD, 1, 0)    \
    X(GLOBAL_POOL_GRAD, 1, 0) \
    X(SUM_ROWS, 1, 0)         \
    X(ACCUM, 3, 0)            \
    X(CONCAT, ~0u, 0)

#define LIST(...)   \
    {               \
        __VA_ARGS__ \
    }

static const struct ls_kind_info kinds[LS_KIND_COUNT] = {
#define X(e, n, d) [LS_K_##e].name = n, [LS_K_##e].dims = d,
    LS_KINDS(X)
#undef X
#define X(e, s, a, f) [LS_K_##e].state = LIST s, [LS_K_##e].accumulates = a, [LS_K_##e].flops = f,
        EXTRA(X)
#undef X
#define X(e, a, b) [LS_K_##e].linear = {a, b},
            LINEAR(X)
#undef X
                [LS_K_XENT_MAX]
                    .max = true,
};

const struct ls_kind_info *ls_graph_kind(enum ls_kind kind)
{
    return &kinds[kind];
}
