/* The one pass for all parallelism: gives every tensor a placement on ONE mesh axis and inserts a
 * conversion (a collective, a view or a slice) wherever an operand is not where its op wants it.
 * Each op looks at a handful of candidates read off its dims string and takes the cheapest; there is
 * no search across ops, so what matters globally must be pinned. */
#include "graph/shard.h"

#include <stdlib.h>
#include <string.h>

/* ---- one op ---- */

/* Conversions on another axis, and joins of pieces that were grouped by placement, let everything
 * through. */
static bool transparent(const struct ls_op *op)
{
    return ls_graph_is_collective(op->kind) || op->kind == LS_K_KEEP || op->kind == LS_K_SLICE ||
           op->kind == LS_K_JOIN;
}

/* Result k updates a slice in place; a gather then completes the buffer `into`. */
static void gather_back(struct ls_shard *s, const struct ls_op *op, int part, int into, int result)
{
    struct ls_prog *p = s->p;
    int in[2] = {part, into};
    struct ls_op g = {.kind = LS_K_ALL_GATHER,
                      .nin = 2,
                      .nout = 1,
                      .in = in,
                      .out = &result,
                      .segs = op->segs,
                      .phase = op->phase,
                      .layer = op->layer,
                      .id = p->next_id++,
                      .seq = -1,
                      .wait = -1,
                      .pack_op = -1,
                      .attr = {.axes = (uint8_t)(1u << s->axis)}};
    p->tensor[result].base = into;
    ls_shard_set(s, result, ls_shard_have(s, into));
    ls_graph_push(p, &g);
}

static void update_shapes(struct ls_shard *s, const struct ls_op *op)
{
    struct ls_prog *p = s->p;
    struct ls_dims dims;
    if (op->kind == LS_K_RESHAPE) {
        struct ls_tensor *y = &p->tensor[op->out[0]];
        y->base = op->in[0];
        if (ls_shard_have(s, op->out[0]).kind == LS_PLACE_S)
            y->shape[0] = p->tensor[op->in[0]].shape[0];
    }
    if (op->kind == LS_K_CONCAT) {
        int64_t n = 0;
        for (int k = 0; k < op->nin; k++)
            n += ls_graph_numel(p, op->in[k]);
        p->tensor[op->out[0]].shape[0] = n;
    }
    if (op->kind == LS_K_ALL_REDUCE || op->kind == LS_K_KEEP || op->kind == LS_K_SEND)
        memcpy(p->tensor[op->out[0]].shape, p->tensor[op->in[0]].shape, sizeof p->tensor[0].shape);
    if (!ls_graph_kind(op->kind)->dims || ls_graph_dims(p, op, &dims, &p->error) != LS_OK)
        return;
    for (int k = 0; k < op->nout; k++)
        for (int d = 0; dims.out[k][d]; d++)
            p->tensor[op->out[k]].shape[d] = dims.extent[(unsigned char)dims.out[k][d]];
}

/* Notes the axis that slices the last dimension, where the kernel must know which slice it has. */
static void note_slice(const struct ls_shard *s, struct ls_op *op, struct ls_place place)
{
    int last = s->p->tensor[op->in[0]].ndim - 1;
    if (op->kind != LS_K_DROPOUT && op->kind != LS_K_XENT_SUM && op->kind != LS_K_XENT_GRAD)
        return;
    if (place.kind == LS_PLACE_S && place.dim == last)
        op->attr.axes |= (uint8_t)(1u << s->axis);
}

static void deliver_pins(struct ls_shard *s, const struct ls_op *op, const int *into,
                         const int *result)
{
    struct ls_prog *p = s->p;
    for (int k = 0; k < op->nout; k++) {
        int t = op->out[k];
        if (into[k] >= 0) {
            gather_back(s, op, t, into[k], result[k]);
            continue;
        }
        if (!ls_shard_pinned(s, t) ||
            ls_graph_same_place(p->tensor[t].pin[s->axis], ls_shard_have(s, t)))
            continue;
        /* A sum over micro-batches is complete only in the last one. */
        unsigned segs = op->kind == LS_K_ACCUM ? op->segs & ~(unsigned)LS_SEG_MICRO : op->segs;
        int r = ls_shard_convert(s, t, p->tensor[t].pin[s->axis], op, segs);
        p->tensor[t].pinned = 0; /* the pins of the other axes went along to r */
        s->now[t] = r;
    }
}

void ls_shard_place(struct ls_shard *s, const struct ls_op *original)
{
    struct ls_prog *p = s->p;
    struct ls_op op = *original;
    int into[LS_OP_MAX_OUT] = {-1, -1, -1, -1}, result[LS_OP_MAX_OUT];
    if (p->error.status != LS_OK)
        return;
    for (int k = 0; k < op.nin; k++)
        op.in[k] = s->now[op.in[k]];
    if (op.nout && p->tensor[op.out[0]].placed >> s->axis & 1) {
        ls_graph_push(p, &op);
        return;
    }
    if (ls_shard_decompose(s, &op))
        return;
    struct ls_shard_choice c = {.in = s->choice};
    if (transparent(&op)) {
        for (int k = 0; k < op.nin; k++)
            c.in[k] = ls_shard_have(s, op.in[k]);
        for (int k = 0; k < op.nout; k++)
            c.out[k] = ls_shard_have(s, op.in[0]);
    } else
        ls_shard_choose(s, &op, &c);
    for (int k = 0; k < op.nin && p->error.status == LS_OK; k++) {
        int was = op.in[k];
        op.in[k] = ls_shard_convert(s, was, c.in[k], &op, op.segs);
        for (int q = 0; q < op.nout; q++)
            if (ls_graph_state_of(&op, q) == k && op.in[k] != was)
                into[q] = was;
    }
    for (int k = 0; k < op.nout && p->error.status == LS_OK; k++) {
        result[k] = op.out[k];
        int state = ls_graph_state_of(&op, k);
        if (into[k] >= 0)
            op.out[k] = ls_shard_new(s, result[k], c.out[k], "part");
        if (state >= 0)
            ls_shard_become(s, op.out[k], LS_STORE_NEXT, op.in[state]);
        ls_shard_set(s, op.out[k], c.out[k]);
    }
    if (p->error.status != LS_OK)
        return;
    if (op.nin)
        note_slice(s, &op, c.in[0]);
    update_shapes(s, &op);
    ls_graph_push(p, &op);
    deliver_pins(s, &op, into, result);
}

/* ---- the pass ---- */

/* What exists before the program runs is where its pin says; inputs differ along data. */
static void place_persistent(struct ls_shard *s)
{
    struct ls_prog *p = s->p;
    bool own = s->axis == LS_AXIS_DATA;
    for (int i = 0; i < p->ntensor; i++) {
        struct ls_tensor *t = &p->tensor[i];
        if (t->role == LS_ROLE_INPUT && t->storage == LS_STORE_OWN && own)
            ls_shard_set(s, i, (struct ls_place){LS_PLACE_O, 0});
        if (!t->persistent || t->placed >> s->axis & 1)
            continue;
        if (t->storage == LS_STORE_VIEW) { /* a member follows its bucket */
            if (ls_shard_pinned(s, t->base) && p->tensor[t->base].pin[s->axis].kind == LS_PLACE_S)
                t->place[s->axis] = (struct ls_place){LS_PLACE_S, LS_DIM_FLAT};
        } else if (ls_shard_pinned(s, i)) {
            t->place[s->axis] = t->pin[s->axis];
            if (t->pin[s->axis].kind != LS_PLACE_S)
                continue;
            int64_t *extent = &t->shape[t->pin[s->axis].dim];
            if (*extent % s->n)
                ls_error_set(&p->error, LS_ERR_INTERNAL,
                             "shard: dimension %d of %s is %lld, not a multiple of %d ranks",
                             t->pin[s->axis].dim, t->name, (long long)*extent, s->n);
            else
                *extent /= s->n;
        }
    }
    for (int i = 0; i < p->ntensor; i++)
        if (p->tensor[i].persistent)
            p->tensor[i].placed |= (uint8_t)(1u << s->axis);
}

/* A P gradient of an R parameter may wait for the accumulation; any other mends to its primal. */
static void settle_gradients(struct ls_shard *s)
{
    struct ls_prog *p = s->p;
    struct ls_op last = {.phase = LS_PHASE_BACKWARD, .segs = LS_SEG_MICRO | LS_SEG_LAST};
    for (int i = 0; i < p->nparam; i++) {
        if (p->param[i].grad < 0)
            continue;
        int g = s->now[p->param[i].grad];
        struct ls_place w = ls_shard_have(s, p->param[i].tensor), h = ls_shard_have(s, g);
        bool waits = h.kind == LS_PLACE_P && w.kind == LS_PLACE_R;
        if (s->axis != LS_AXIS_DATA && !ls_graph_same_place(w, h) && !waits)
            g = ls_shard_convert(s, g, w, &last, last.segs);
        p->param[i].grad = g;
    }
    for (int i = 0; i < 2; i++)
        p->loss[i] = s->now[p->loss[i]];
}

static int most_operands(const struct ls_op *op, int n)
{
    int most = 8;
    for (int i = 0; i < n; i++)
        most = op[i].nin > most ? op[i].nin : most;
    return most;
}

enum ls_status ls_graph_shard(struct ls_prog *p, enum ls_axis axis, struct ls_error *err)
{
    struct ls_shard s = {.p = p, .axis = axis, .n = ls_graph_mesh(p, axis)};
    if (s.n == 1)
        return LS_OK;
    if (axis == LS_AXIS_REPLICA)
        return ls_error_set(err, LS_ERR_UNSUPPORTED,
                            "%d replicas: there is no segment yet that averages them", s.n);
    ls_shard_grow(&s);
    if (axis == LS_AXIS_PIPELINE)
        ls_shard_pin_stages(&s);
    place_persistent(&s);
    int n;
    struct ls_op *old = ls_graph_take_ops(p, &n);
    size_t most = (size_t)most_operands(old, n);
    s.scratch = calloc(most, sizeof *s.scratch);
    s.choice = calloc(most, sizeof *s.choice);
    if (!s.scratch || !s.choice)
        ls_error_set(&p->error, LS_ERR_NOMEM, "shard: out of memory");
    int i = 0;
    for (; i < n && !(old[i].segs & LS_SEG_EVAL); i++)
        ls_shard_place(&s, &old[i]);
    if (p->error.status == LS_OK)
        settle_gradients(&s); /* before the evaluation: the joins of buckets will stand there */
    for (; i < n; i++)
        ls_shard_place(&s, &old[i]);
    free(old);
    free(s.now);
    free(s.made);
    free(s.scratch);
    free(s.choice);
    return ls_graph_check(p, "shard", err);
}
