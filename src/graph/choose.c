/* The choice of one op: where it takes its operands and yields its results on one mesh axis, out of a
 * handful of candidates read off its dims string. */
#include "graph/shard.h"

#include <string.h>

#define NEVER LS_SHARD_NEVER
#define START LS_SHARD_START

static const struct ls_place whole = {LS_PLACE_R, 0};

static struct ls_place sharded(const char *labels, char letter, struct ls_place otherwise)
{
    const char *at = strchr(labels, letter);
    return at ? (struct ls_place){LS_PLACE_S, (uint8_t)(at - labels)} : otherwise;
}

static void clear(const struct ls_op *op, struct ls_shard_choice *c)
{
    for (int k = 0; k < op->nin; k++)
        c->in[k] = whole;
    for (int k = 0; k < op->nout; k++)
        c->out[k] = whole;
}

/* Random numbers are keyed by the place in the whole tensor, which dropout can only tell where it
 * misses rows of the last dimension. */
static bool has_letter(const struct ls_op *op, const struct ls_dims *dims, char letter)
{
    if (op->kind == LS_K_DROPOUT) {
        size_t n = strlen(dims->in[0]);
        return n > 1 && dims->in[0][n - 1] == letter;
    }
    for (int k = 0; k < op->nin; k++)
        if (k < dims->nin && strchr(dims->in[k], letter))
            return true;
    return false;
}

/* Candidate number `which` of an op: all whole, one letter sharded, or all of a linear set P. Returns
 * false when there are no more; sets *legal to false where this one does not exist. */
static bool candidate(const struct ls_prog *p, const struct ls_op *op, const struct ls_dims *dims,
                      int which, struct ls_shard_choice *c, bool *legal)
{
    const struct ls_kind_info *info = ls_graph_kind(op->kind);
    *legal = true;
    clear(op, c);
    if (which == 0)
        return true;
    if (which <= 26) {
        char letter = (char)('a' + which - 1);
        *legal = has_letter(op, dims, letter);
        for (int k = 0; k < op->nin; k++)
            c->in[k] = *legal ? sharded(dims->in[k], letter, whole) : whole;
        for (int k = 0; k < op->nout; k++)
            c->out[k] = sharded(dims->out[k], letter,
                                (struct ls_place){info->max ? LS_PLACE_PMAX : LS_PLACE_P, 0});
        return true;
    }
    if (which == 27 && op->kind == LS_K_RESHAPE) { /* rows stay rows */
        const struct ls_tensor *x = &p->tensor[op->in[0]], *y = &p->tensor[op->out[0]];
        *legal = x->shape[0] == y->shape[0];
        c->in[0] = c->out[0] = (struct ls_place){LS_PLACE_S, 0};
        return true;
    }
    if (which <= 27)
        *legal = false;
    if (which > 29)
        return false;
    uint32_t set = which > 27 ? info->linear[which - 28] : 0;
    *legal = set != 0;
    for (int k = 0; k < op->nin; k++)
        if (k < 32 ? set >> k & 1 : set == ~0u)
            c->in[k] = (struct ls_place){LS_PLACE_P, 0};
    for (int k = 0; k < op->nout; k++)
        c->out[k] = (struct ls_place){LS_PLACE_P, 0};
    return true;
}

/* Where a result should end up: its pin, or where the tensor is of which it is the gradient; P stands
 * for anywhere. */
struct ls_place ls_shard_target(const struct ls_shard *s, int t)
{
    const struct ls_tensor *x = &s->p->tensor[t];
    if (ls_shard_pinned(s, t))
        return x->pin[s->axis];
    if (x->primal >= 0) {
        struct ls_place w = ls_shard_have(s, s->now[x->primal]);
        if (w.kind == LS_PLACE_R || w.kind == LS_PLACE_A ||
            (w.kind == LS_PLACE_S && w.dim != LS_DIM_FLAT))
            return w;
    }
    return (struct ls_place){LS_PLACE_P, 0};
}

static double result_cost(const struct ls_shard *s, const struct ls_op *op, int k,
                          const struct ls_shard_choice *c)
{
    struct ls_place want = ls_shard_target(s, op->out[k]), got = c->out[k];
    double n = (double)ls_graph_numel(s->p, op->out[k]), sum = 0;
    if (want.kind != LS_PLACE_P && !ls_graph_same_place(want, got))
        sum += got.kind == LS_PLACE_P   ? START + n * (want.kind == LS_PLACE_R ? 2 : 1)
               : got.kind == LS_PLACE_S ? START + n * s->n
                                        : 1;
    int state = ls_graph_state_of(op, k); /* the persistent version stays where it is */
    if (state < 0 || ls_graph_same_place(ls_shard_have(s, op->in[state]), c->in[state]))
        return sum;
    if (ls_shard_have(s, op->in[state]).kind == LS_PLACE_R && c->in[state].kind == LS_PLACE_S)
        return sum + START + n; /* gathered again */
    return NEVER;
}

/* Inside a micro-batch nothing reduces over data: O in, O out. */
static bool own_rule(const struct ls_shard *s, const struct ls_op *op)
{
    bool micro = op->segs & (LS_SEG_MICRO | LS_SEG_EVAL) && op->kind != LS_K_ACCUM;
    return s->axis == LS_AXIS_DATA && micro;
}

static void choose_own(const struct ls_shard *s, const struct ls_op *op, struct ls_shard_choice *c)
{
    bool own = false;
    clear(op, c);
    for (int k = 0; k < op->nin; k++)
        if (ls_shard_have(s, op->in[k]).kind == LS_PLACE_O) {
            c->in[k].kind = LS_PLACE_O;
            own = true;
        }
    for (int k = 0; k < op->nout && own; k++)
        c->out[k].kind = LS_PLACE_O;
}

void ls_shard_choose(struct ls_shard *s, const struct ls_op *op, struct ls_shard_choice *best)
{
    struct ls_prog *p = s->p;
    if (own_rule(s, op)) {
        choose_own(s, op, best);
        return;
    }
    if (s->axis == LS_AXIS_PIPELINE) {
        ls_shard_pipeline(s, op, best);
        return;
    }
    struct ls_dims dims;
    if (ls_graph_labels(p, op, &dims, &p->error) != LS_OK)
        return;
    struct ls_shard_choice c = {.in = s->scratch};
    double low = NEVER;
    bool legal;
    for (int which = 0; candidate(p, op, &dims, which, &c, &legal); which++) {
        double sum = legal ? 0 : NEVER;
        for (int k = 0; k < op->nin && sum < NEVER; k++)
            sum += ls_shard_cost(s, op->in[k], c.in[k], op);
        for (int k = 0; k < op->nout && sum < NEVER; k++)
            sum += result_cost(s, op, k, &c);
        if (sum >= low)
            continue;
        low = sum;
        memcpy(best->in, c.in, (size_t)op->nin * sizeof *c.in);
        memcpy(best->out, c.out, sizeof c.out);
    }
    if (low >= NEVER)
        ls_error_set(&p->error, LS_ERR_INTERNAL, "shard: %s #%d has no legal placement on axis %d",
                     ls_graph_kind(op->kind)->name, op->id, (int)s->axis);
}
