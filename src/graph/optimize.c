/* Accumulation over micro-batches, the commit, and the update of every bucket. One rank takes the
 * same path as many: the commit is where ranks will agree. */
#include "graph/graph.h"

#include <stdlib.h>

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

static int state(struct ls_prog *p, enum ls_role role, const struct ls_bucket *b, const char *what)
{
    return ls_graph_tensor(p, role, true, p->tensor[b->param].dtype, 1, &b->n, "bucket%d.%s",
                           (int)(b - p->bucket), what);
}

/* All that is accumulated, per bucket and for the loss: what commit and update read. */
static void accumulate(struct ls_prog *p, int *sums, int *stats)
{
    p->phase = LS_PHASE_BACKWARD;
    p->segs = LS_SEG_MICRO | LS_SEG_LAST;
    for (int i = 0; i < p->nbucket; i++) {
        struct ls_bucket *b = &p->bucket[i];
        b->acc = state(p, LS_ROLE_GRAD, b, "acc");
        sums[i] = *ls_graph_emit(p, LS_K_ACCUM, NULL, IN(b->acc, b->grad, p->control));
    }
    int pair = ls_graph_concat(p, IN(p->loss[0], p->loss[1]));
    int acc = ls_graph_tensor(p, LS_ROLE_GRAD, true, LS_F32, 1, (const int64_t[]){2}, "stats.acc");
    *stats = *ls_graph_emit(p, LS_K_ACCUM, NULL, IN(acc, pair, p->control));
}

static int commit(struct ls_prog *p, const int *sums, int stats, int *parts)
{
    int n = 0;
    parts[n++] = stats;
    for (int i = 0; i < p->nbucket; i++)
        if (p->bucket[i].rule != LS_RULE_EMA)
            parts[n++] = *ls_graph_emit(p, LS_K_SUMSQ, NULL, IN(sums[i]));
    struct ls_attr attr = {.max_norm = p->options.optimizer.max_norm};
    return *ls_graph_emit(p, LS_K_COMMIT, &attr, IN(ls_graph_concat(p, n, parts), p->control));
}

static void update(struct ls_prog *p, struct ls_bucket *b, int sum, int control)
{
    struct ls_attr attr = p->options.optimizer;
    attr.max_norm = 0;
    if (b->rule != LS_RULE_DECAY)
        attr.decay = 0;
    if (b->rule == LS_RULE_EMA) {
        struct ls_attr ema = {.momentum = b->momentum};
        ls_graph_emit(p, LS_K_EMA, &ema, IN(b->param, sum, control));
        return;
    }
    if (p->options.update == LS_UPDATE_SGD) {
        b->v = state(p, LS_ROLE_STATE, b, "v");
        ls_graph_emit(p, LS_K_SGD, &attr, IN(b->param, b->v, sum, control));
        return;
    }
    b->m = state(p, LS_ROLE_STATE, b, "m");
    b->v = state(p, LS_ROLE_STATE, b, "v");
    ls_graph_emit(p, LS_K_ADAMW, &attr, IN(b->param, b->m, b->v, sum, control));
}

enum ls_status ls_graph_optimize(struct ls_prog *p, struct ls_error *err)
{
    int *sums = ls_arena_alloc(&p->arena, (size_t)(p->nbucket + 1) * sizeof *sums);
    int *parts = ls_arena_alloc(&p->arena, (size_t)(p->nbucket + 1) * sizeof *parts);
    if (!sums || !parts)
        return ls_error_set(err, LS_ERR_NOMEM, "optimize: out of memory");
    int nold, split = 0, stats;
    struct ls_op *old = ls_graph_take_ops(p, &nold);
    while (split < nold && !(old[split].segs & LS_SEG_EVAL))
        split++;
    for (int i = 0; i < split; i++)
        ls_graph_push(p, &old[i]);
    accumulate(p, sums, &stats);
    p->phase = LS_PHASE_UPDATE;
    p->segs = LS_SEG_UPDATE;
    int control = commit(p, sums, stats, parts);
    for (int i = 0; i < p->nbucket && p->error.status == LS_OK; i++)
        update(p, &p->bucket[i], sums[i], control);
    for (int i = split; i < nold; i++)
        ls_graph_push(p, &old[i]);
    free(old);
    return ls_graph_check(p, "optimize", err);
}
