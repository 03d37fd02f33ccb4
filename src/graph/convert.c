/* Conversions: what brings a tensor from one placement to another on one mesh axis (a collective, a view
 * or a slice), what that costs, and which were made already. Which are needed is choose.c's business. */
#include "graph/shard.h"

#include <string.h>

#define NEVER LS_SHARD_NEVER
#define START LS_SHARD_START

static const struct ls_place whole = {LS_PLACE_R, 0};

int ls_graph_mesh(const struct ls_prog *p, enum ls_axis axis)
{
    return p->options.mesh[axis] > 1 ? p->options.mesh[axis] : 1;
}

void ls_graph_pin(struct ls_prog *p, int t, enum ls_axis axis, struct ls_place place)
{
    if (ls_graph_mesh(p, axis) == 1)
        return;
    p->tensor[t].pin[axis] = place;
    p->tensor[t].pinned |= (uint8_t)(1u << axis);
}

bool ls_graph_is_collective(enum ls_kind kind)
{
    return kind == LS_K_ALL_REDUCE || kind == LS_K_REDUCE_SCATTER || kind == LS_K_ALL_GATHER ||
           kind == LS_K_SEND;
}

bool ls_graph_micro_meets(const struct ls_prog *p)
{
    for (int i = 0; i < p->nop; i++)
        if (ls_graph_is_collective(p->op[i].kind) && p->op[i].segs & LS_SEG_MICRO &&
            p->op[i].attr.axes >> LS_AXIS_DATA & 1)
            return true;
    return false;
}

bool ls_graph_same_place(struct ls_place a, struct ls_place b)
{
    bool sized = a.kind == LS_PLACE_S || a.kind == LS_PLACE_A;
    return a.kind == b.kind && (!sized || a.dim == b.dim);
}

struct ls_place ls_shard_have(const struct ls_shard *s, int t)
{
    return s->p->tensor[t].place[s->axis];
}

bool ls_shard_pinned(const struct ls_shard *s, int t)
{
    return s->p->tensor[t].pinned >> s->axis & 1;
}

void ls_shard_set(struct ls_shard *s, int t, struct ls_place place)
{
    s->p->tensor[t].place[s->axis] = place;
    s->p->tensor[t].placed |= (uint8_t)(1u << s->axis);
}

/* Follows the growth of the tensor array: a new tensor is read as itself. */
void ls_shard_grow(struct ls_shard *s)
{
    if (!ls_grow(&s->now, &s->capnow, s->p->ntensor, sizeof *s->now)) {
        ls_error_set(&s->p->error, LS_ERR_NOMEM, "shard: out of memory");
        return;
    }
    for (; s->nnow < s->p->ntensor; s->nnow++)
        s->now[s->nnow] = s->nnow;
}

/* Gathered again in the backward phase (memory), but not sent again between stages. */
static enum ls_phase cache_phase(struct ls_place from, const struct ls_op *user)
{
    return from.kind == LS_PLACE_A ? LS_PHASE_FORWARD : user->phase;
}

static int cached(const struct ls_shard *s, int t, struct ls_place want, enum ls_phase phase,
                  unsigned segs)
{
    for (int i = 0; i < s->nmade; i++) {
        const struct ls_shard_made *m = &s->made[i];
        if (m->from == t && m->phase == phase && (m->segs & segs) == segs &&
            ls_graph_same_place(m->want, want))
            return m->to;
    }
    return -1;
}

/* Elements that cross the axis to bring t where `op` wants it, or NEVER. */
double ls_shard_cost(const struct ls_shard *s, int t, struct ls_place want, const struct ls_op *op)
{
    struct ls_place h = ls_shard_have(s, t);
    const struct ls_tensor *x = &s->p->tensor[t];
    double n = (double)ls_graph_numel(s->p, t);
    if (ls_graph_same_place(h, want) || cached(s, t, want, cache_phase(h, op), op->segs) >= 0)
        return 0;
    if (h.kind == LS_PLACE_O && op->kind != LS_K_ACCUM)
        return NEVER;
    if (want.kind == LS_PLACE_S && (want.dim >= x->ndim || x->shape[want.dim] % s->n))
        return NEVER; /* no uneven slices */
    switch (h.kind) {
    case LS_PLACE_R:
        if (want.kind == LS_PLACE_S)
            return 1;
        return want.kind == LS_PLACE_P && op->kind == LS_K_CONCAT ? 1 : NEVER;
    case LS_PLACE_PMAX:
        return want.kind == LS_PLACE_R ? START + 2 * n : NEVER;
    case LS_PLACE_O:
    case LS_PLACE_P:
        if (want.kind == LS_PLACE_P)
            return 0; /* from O: the accumulation defines the sum */
        return want.kind == LS_PLACE_R   ? START + 2 * n
               : want.kind == LS_PLACE_S ? START + n
                                         : NEVER;
    case LS_PLACE_S: /* a parameter moves only where its bucket is sharded */
        if (want.kind != LS_PLACE_R)
            return NEVER;
        return x->role == LS_ROLE_PARAM && s->axis == LS_AXIS_TENSOR ? NEVER : START + n * s->n;
    default:
        return NEVER;
    }
}

int ls_shard_new(struct ls_shard *s, int t, struct ls_place place, const char *tag)
{
    struct ls_prog *p = s->p;
    struct ls_tensor a = p->tensor[t];
    enum ls_role role = a.role == LS_ROLE_PARAM || a.role == LS_ROLE_STATE ? LS_ROLE_WORK : a.role;
    int r = ls_graph_tensor(p, role, false, a.dtype, a.ndim, a.shape, "%s/%s", a.name, tag);
    if (p->error.status != LS_OK)
        return 0;
    struct ls_tensor *b = &p->tensor[r];
    memcpy(b->place, a.place, sizeof b->place);
    memcpy(b->pin, a.pin, sizeof b->pin);
    b->pinned = a.pinned & (uint8_t) ~(1u << s->axis);
    b->placed = a.placed;
    b->primal = a.primal;
    ls_shard_set(s, r, place);
    ls_shard_grow(s);
    return r;
}

void ls_shard_become(struct ls_shard *s, int t, enum ls_storage storage, int base)
{
    s->p->tensor[t].storage = storage;
    s->p->tensor[t].base = base;
    s->p->tensor[t].role = s->p->tensor[base].role;
}

/* Fills in kind and result of the op that takes t from `h` to `want`; false: there is none. */
static bool plan_conversion(struct ls_shard *s, int t, struct ls_place h, struct ls_place want,
                            struct ls_op *op, const struct ls_op *user)
{
    struct ls_prog *p = s->p;
    int r = -1;
    if (h.kind == LS_PLACE_S && h.dim == LS_DIM_FLAT) {
        /* gather the bucket, then look at it through the same view */
        int g = ls_shard_convert(s, p->tensor[t].base, whole, user, op->segs);
        r = ls_shard_new(s, t, whole, "full");
        ls_shard_become(s, r, LS_STORE_VIEW, g);
        p->tensor[r].offset = p->tensor[t].offset;
        p->tensor[r].slice_axis = p->tensor[t].slice_axis;
    } else if (h.kind == LS_PLACE_R && want.kind == LS_PLACE_S) {
        r = ls_shard_new(s, t, want, "slice");
        p->tensor[r].shape[want.dim] /= s->n;
        op->kind = LS_K_SLICE;
        op->attr.dim = want.dim;
        if (want.dim ==
            0) { /* rows lie together: a view whose offset is coordinate * numel, with an
                                op that moves nothing, so that later axes see where it comes from */
            ls_shard_become(s, r, LS_STORE_VIEW, t);
            p->tensor[r].slice_axis = (int)s->axis;
        }
    } else if ((h.kind == LS_PLACE_R || h.kind == LS_PLACE_A) && want.kind == LS_PLACE_P) {
        r = ls_shard_new(s, t, want, "term");
        op->kind = LS_K_KEEP;
        op->attr.from = h.kind == LS_PLACE_A ? h.dim : 0;
    } else if (h.kind == LS_PLACE_A && want.kind == LS_PLACE_A) {
        r = ls_shard_new(s, t, want, "sent");
        op->kind = LS_K_SEND;
        op->attr.from = h.dim;
        op->attr.to = want.dim;
    } else if (h.kind == LS_PLACE_S && want.kind == LS_PLACE_R) {
        r = ls_shard_new(s, t, want, "gathered");
        p->tensor[r].shape[h.dim] *= s->n;
        op->kind = LS_K_ALL_GATHER;
        op->attr.dim = h.dim;
    } else if ((h.kind == LS_PLACE_P || h.kind == LS_PLACE_PMAX) && want.kind == LS_PLACE_R) {
        r = ls_shard_new(s, t, want, "reduced"); /* in place: a mended P is never read again */
        ls_shard_become(s, r, LS_STORE_NEXT, t);
        op->kind = LS_K_ALL_REDUCE;
        op->attr.max = h.kind == LS_PLACE_PMAX;
    } else if ((h.kind == LS_PLACE_P || h.kind == LS_PLACE_O) && want.kind == LS_PLACE_S &&
               want.dim == 0) {
        r = ls_shard_new(s, t, want, "scattered");
        p->tensor[r].shape[0] /= s->n;
        if (p->tensor[ls_graph_root(p, t)].persistent) {
            /* in place: nobody else reads that slice, and the bytes of an accumulator stay anyway */
            ls_shard_become(s, r, LS_STORE_VIEW, t);
            p->tensor[r].slice_axis = (int)s->axis;
        }
        op->kind = LS_K_REDUCE_SCATTER;
    } else
        return false;
    op->out[0] = r;
    return true;
}

int ls_shard_convert(struct ls_shard *s, int t, struct ls_place want, const struct ls_op *user,
                     unsigned segs)
{
    struct ls_prog *p = s->p;
    struct ls_place h = ls_shard_have(s, t);
    if (ls_graph_same_place(h, want) || (h.kind == LS_PLACE_O && want.kind == LS_PLACE_P) ||
        p->error.status != LS_OK)
        return t;
    int r = cached(s, t, want, cache_phase(h, user), segs), out[1];
    if (r >= 0)
        return r;
    struct ls_op op = {.nin = 1,
                       .nout = 1,
                       .in = &t,
                       .out = out,
                       .segs = segs,
                       .phase = user->phase,
                       .layer = user->layer,
                       .id = p->next_id++,
                       .seq = -1,
                       .wait = -1,
                       .pack_op = -1,
                       .attr = {.axes = (uint8_t)(1u << s->axis)}};
    op.kind = LS_KIND_COUNT;
    if (!plan_conversion(s, t, h, want, &op, user)) {
        ls_error_set(&p->error, LS_ERR_INTERNAL,
                     "shard: no conversion of %s from %d to %d on axis %d", p->tensor[t].name,
                     h.kind, want.kind, (int)s->axis);
        return t;
    }
    r = out[0];
    if (p->error.status != LS_OK)
        return t;
    if (op.kind != LS_KIND_COUNT) /* a view of a gathered bucket has no op */
        ls_graph_push(p, &op);
    if (h.kind == LS_PLACE_P || h.kind == LS_PLACE_PMAX)
        s->now[t] = r; /* a mended P is never read again */
    else if (ls_grow(&s->made, &s->capmade, s->nmade + 1, sizeof *s->made))
        s->made[s->nmade++] = (struct ls_shard_made){t, r, want, cache_phase(h, user), segs};
    else
        ls_error_set(&p->error, LS_ERR_NOMEM, "shard: out of memory");
    return r;
}
