/* Accumulation over micro-batches, the commit, and the update of every bucket. One rank takes the
 * same path as many: pins say where sums are completed and what is sliced, and the commit is where ranks
 * agree. */
#include "graph/graph.h"

#include <stdlib.h>

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

static const struct ls_place whole = {LS_PLACE_R, 0}, sum = {LS_PLACE_P, 0};

/* ZeRO is four pins on the data axis, each of which says "whole" or "this rank's slice" (Rajbhandari et
 * al., SC 2020). Averages are small and stay whole. */
static void pin_data(struct ls_prog *p, int t, const struct ls_bucket *b, int from_stage,
                     struct ls_place otherwise)
{
    bool slice = b->rule != LS_RULE_EMA && p->options.zero >= from_stage;
    ls_graph_pin(p, t, LS_AXIS_DATA, slice ? (struct ls_place){LS_PLACE_S, 0} : otherwise);
}

/* On the other axes a persistent tensor is where `like` is. */
static void place_like(struct ls_prog *p, int t, int like)
{
    for (int axis = LS_AXIS_PIPELINE; axis <= LS_AXIS_TENSOR; axis++) {
        p->tensor[t].place[axis] = p->tensor[like].place[axis];
        p->tensor[t].placed |= (uint8_t)(1u << axis);
    }
}

static int state(struct ls_prog *p, enum ls_role role, const struct ls_bucket *b, int like,
                 const char *what)
{
    int t = ls_graph_tensor(p, role, true, p->tensor[b->param].dtype, 1, &b->n, "bucket%d.%s",
                            (int)(b - p->bucket), what);
    place_like(p, t, like);
    return t;
}

/* The sum over micro-batches, completed over the ranks behind the last of them. */
static int accumulate_bucket(struct ls_prog *p, struct ls_bucket *b)
{
    b->acc = state(p, LS_ROLE_GRAD, b, b->grad, "acc");
    pin_data(p, b->acc, b, 2, sum);
    pin_data(p, b->param, b, 3, whole);
    int t = *ls_graph_emit(p, LS_K_ACCUM, NULL, IN(b->acc, b->grad, p->control));
    pin_data(p, t, b, 1, whole);
    for (enum ls_axis axis = LS_AXIS_PIPELINE; axis <= LS_AXIS_TENSOR; axis++)
        if (p->tensor[b->grad].place[axis].kind == LS_PLACE_P)
            ls_graph_pin(p, t, axis, whole);
    return t;
}

/* All that is accumulated, per bucket and for the loss: what commit and update read. */
static void accumulate(struct ls_prog *p, int *sums, int *stats)
{
    p->phase = LS_PHASE_BACKWARD;
    p->segs = LS_SEG_MICRO | LS_SEG_LAST;
    for (int i = 0; i < p->nbucket; i++)
        sums[i] = accumulate_bucket(p, &p->bucket[i]);
    int pair = ls_graph_concat(p, IN(p->loss[0], p->loss[1]));
    int acc = ls_graph_tensor(p, LS_ROLE_GRAD, true, LS_F32, 1, (const int64_t[]){2}, "stats.acc");
    place_like(p, acc, p->loss[0]); /* a sum may stay a sum as long as it is only added to */
    ls_graph_pin(p, acc, LS_AXIS_DATA, sum);
    *stats = *ls_graph_emit(p, LS_K_ACCUM, NULL, IN(acc, pair, p->control));
}

static int commit(struct ls_prog *p, const int *sums, int stats, int *parts)
{
    int n = 0;
    parts[n++] = stats;
    for (int i = 0; i < p->nbucket; i++)
        if (p->bucket[i].rule != LS_RULE_EMA)
            parts[n++] = *ls_graph_emit(p, LS_K_SUMSQ, NULL, IN(sums[i]));
    /* What a rank wishes for travels with the sums: every rank learns of it after the same step. */
    p->wishes =
        ls_graph_tensor(p, LS_ROLE_STATE, true, LS_F32, 1, (const int64_t[]){LS_WISHES}, "wishes");
    ls_graph_pin(p, p->wishes, LS_AXIS_DATA, sum);
    parts[n++] = p->wishes;
    struct ls_attr attr = {.max_norm = p->options.optimizer.max_norm, .wishes = LS_WISHES};
    return *ls_graph_emit(p, LS_K_COMMIT, &attr, IN(ls_graph_concat(p, n, parts), p->control));
}

static int moment(struct ls_prog *p, const struct ls_bucket *b, const char *what)
{
    int t = state(p, LS_ROLE_STATE, b, b->param, what);
    pin_data(p, t, b, 1, whole);
    return t;
}

static void update(struct ls_prog *p, struct ls_bucket *b, int grad, int control)
{
    struct ls_attr attr = p->options.optimizer;
    attr.max_norm = 0;
    if (b->rule != LS_RULE_DECAY)
        attr.decay = 0;
    if (b->rule == LS_RULE_EMA) {
        struct ls_attr ema = {.momentum = b->momentum};
        ls_graph_emit(p, LS_K_EMA, &ema, IN(b->param, grad, control));
        return;
    }
    if (p->options.update == LS_UPDATE_SGD) {
        b->v = moment(p, b, "v");
        ls_graph_emit(p, LS_K_SGD, &attr, IN(b->param, b->v, grad, control));
        return;
    }
    b->m = moment(p, b, "m");
    b->v = moment(p, b, "v");
    ls_graph_emit(p, LS_K_ADAMW, &attr, IN(b->param, b->m, b->v, grad, control));
}

enum ls_status ls_graph_optimize(struct ls_prog *p, struct ls_error *err)
{
    int *sums = ls_arena_alloc(&p->arena, (size_t)(p->nbucket + 1) * sizeof *sums);
    int *parts = ls_arena_alloc(&p->arena, (size_t)(p->nbucket + 2) * sizeof *parts);
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
