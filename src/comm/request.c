/* Requests: what every collective does from start to wait. Members of a node announce themselves in
 * slots; what then happens inside the node is in node.c, and between nodes in wire.c. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots ---- */

static struct ls_comm_slot *slot(const struct ls_comm_request *r, int local)
{
    return &r->comm->line[local]->slot[ls_comm_slot_of(r->sequence)];
}

static uint64_t done_by(const struct ls_comm_request *r, int local)
{
    return atomic_load_explicit(&r->comm->line[local]->done[ls_comm_slot_of(r->sequence)],
                                memory_order_acquire);
}

static bool arrived(const struct ls_comm_request *r, int local)
{
    return atomic_load_explicit(&slot(r, local)->arrive, memory_order_acquire) >= r->sequence;
}

/* Does this member need the buffers of local member k? */
static bool needs(const struct ls_comm_request *r, int k)
{
    const struct ls_comm *c = r->comm;
    return r->kind != LS_COMM_BROADCAST || c->nodes > 1 || c->members[k] == r->root;
}

/* The slot was used by a collective LS_COMM_RING earlier, which some may still need. */
static bool slot_free(const struct ls_comm_request *r)
{
    if (r->sequence <= LS_COMM_RING)
        return true;
    for (int k = 0; k < r->comm->locals; k++)
        if (done_by(r, k) + LS_COMM_RING < r->sequence)
            return false;
    return true;
}

static uint64_t what(const struct ls_comm_request *r)
{
    uint64_t pack = (uint64_t)r->kind | (uint64_t)r->type << 8 | (uint64_t)r->op << 16 |
                    (uint64_t)(r->kind == LS_COMM_BROADCAST ? r->root : 0) << 24;
    return ls_mix64(pack, (uint64_t)r->count);
}

static void post(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    struct ls_comm_slot *s = slot(r, c->local);
    s->what = what(r);
    s->count = (uint64_t)r->count;
    if (r->small) {
        ls_comm_node_small_in(r);
    } else {
        int64_t in = r->bytes * (r->kind == LS_COMM_REDUCE_SCATTER ? c->n : 1);
        int64_t out = r->bytes * (r->kind == LS_COMM_ALL_GATHER ? c->n : 1);
        bool staged = c->algorithm == LS_COMM_STAGED;
        s->in = staged ? 0 : ls_comm_shm_locate(c->world, r->in, in);
        s->out = staged ? 0 : ls_comm_shm_locate(c->world, r->out, out);
    }
    struct ls_comm_status *status = &c->world->control->rank[c->world->me];
    atomic_store_explicit(&status->sequence, r->sequence, memory_order_relaxed);
    atomic_store_explicit(&status->group, c->id, memory_order_relaxed);
    ls_comm_show_collective(c, r->sequence);
    atomic_store_explicit(&s->arrive, r->sequence, memory_order_release);
}

/* This member needs nothing of the collective any more, nor does it touch its peers' buffers. */
static void leave(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    atomic_store_explicit(&c->line[c->local]->done[ls_comm_slot_of(r->sequence)], r->sequence,
                          memory_order_release);
}

static bool all_arrived(const struct ls_comm_request *r)
{
    for (int k = 0; k < r->comm->locals; k++)
        if (needs(r, k) && !arrived(r, k))
            return false;
    return true;
}

static bool all_left(const struct ls_comm_request *r)
{
    for (int k = 0; k < r->comm->locals; k++)
        if (done_by(r, k) < r->sequence)
            return false;
    return true;
}

/* All members must mean the same collective. */
static bool agree(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    for (int k = 0; k < c->locals; k++) {
        const struct ls_comm_slot *s = slot(r, k);
        if (!needs(r, k) || s->what == what(r))
            continue;
        int rank = c->rank[c->members[k]];
        char text[128];
        ls_comm_fail(c->world, LS_ERR_INTERNAL,
                     "%s has %lld elements of type %s here, but rank %d on %s has started another "
                     "one, of %llu elements: all ranks must start the same collectives in the same "
                     "order",
                     ls_comm_request_text(r, text), (long long)r->count, ls_comm_type_name(r->type),
                     rank, c->world->host[rank], (unsigned long long)s->count);
        return false;
    }
    return true;
}

/* Can the members of this node work in each other's buffers? All find the same answer. */
static bool is_direct(const struct ls_comm_request *r)
{
    const struct ls_comm *c = r->comm;
    if (c->locals == 1)
        return true;
    bool across = c->nodes > 1;
    for (int k = 0; k < c->locals; k++) {
        const struct ls_comm_slot *s = slot(r, k);
        bool in = r->kind != LS_COMM_BROADCAST || across || c->members[k] == r->root;
        bool out = r->kind == LS_COMM_ALL_REDUCE || across;
        if ((in && !s->in) || (out && !s->out))
            return false;
    }
    return true;
}

/* ---- the way of a request ---- */

void ls_comm_finish(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    r->phase = LS_COMM_END;
    if (r->squares && (r->small || c->nodes > 1))
        *r->squares = ls_comm_squares(r->out, r->count);
    for (struct ls_comm_request **p = &c->active; *p; p = &(*p)->next)
        if (*p == r) {
            *p = r->next;
            if (!*p)
                c->active_end = p;
            r->next = NULL;
            return;
        }
}

static bool oldest(const struct ls_comm_request *r)
{
    const struct ls_comm_request *first = r->comm->active;
    while (first && first->kind >= LS_COMM_SEND)
        first = first->next;
    return first == r;
}

static _Atomic uint64_t *counter(const struct ls_comm *c, int local, bool worked)
{
    return worked ? &c->line[local]->worked : &c->line[local]->staged;
}

static bool all_counted(const struct ls_comm *c, bool worked)
{
    for (int k = 0; k < c->locals; k++)
        if (atomic_load_explicit(counter(c, k, worked), memory_order_acquire) < c->pieces)
            return false;
    return true;
}

static void count_piece(struct ls_comm *c, bool worked)
{
    atomic_store_explicit(counter(c, c->local, worked), c->pieces, memory_order_release);
}

/* The first members of each node carry the data of all of them over the network. */
bool ls_comm_carries(const struct ls_comm_request *r)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_plan plan;
    ls_comm_plan(c, r->kind, r->type, r->op, r->count, &plan);
    return c->nodes > 1 && c->local < plan.lanes;
}

static void begin_run(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    r->phase = LS_COMM_RUN;
    if (!ls_comm_carries(r))
        return;
    if (!ls_comm_schedule_build(r, c->local)) {
        char text[128];
        ls_comm_fail(c->world, LS_ERR_NOMEM, "%s", ls_comm_request_text(r, text));
        return;
    }
    ls_comm_wire_open(r);
}

static void begin_piece(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int64_t piece = ls_comm_node_piece(r), rest = r->count - r->begin;
    r->length = rest < piece ? rest : piece;
    ls_comm_node_place(r, !r->direct);
    if (r->direct) {
        begin_run(r);
        return;
    }
    ls_comm_node_stage_in(r);
    c->pieces++;
    count_piece(c, false);
    r->phase = LS_COMM_GATHER;
}

/* True while there is another piece. */
static bool next_piece(struct ls_comm_request *r)
{
    r->begin += r->length;
    r->net.round++;
    if (r->begin >= r->count)
        return false;
    begin_piece(r);
    return true;
}

static void run_direct(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    r->begin = 0;
    r->length = r->count;
    ls_comm_node_place(r, false);
    ls_comm_node_work(r);
    leave(r);
    r->phase = LS_COMM_LEAVE;
    /* Nobody reads the buffers of those who only take. */
    if (r->kind == LS_COMM_BROADCAST && r->root != c->me)
        ls_comm_finish(r);
}

/* One phase further; false if that needs others. */
static bool advance(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    switch (r->phase) {
    case LS_COMM_POST:
        if (!slot_free(r))
            return false;
        post(r);
        r->phase = LS_COMM_ARRIVE;
        return true;
    case LS_COMM_ARRIVE:
        if (!all_arrived(r) || !agree(r))
            return false;
        if (r->small) {
            ls_comm_node_small_out(r);
            leave(r);
            ls_comm_finish(r);
            return true;
        }
        r->direct = is_direct(r);
        r->phase = LS_COMM_QUEUE;
        if (r->direct && c->nodes == 1)
            run_direct(r);
        return true;
    case LS_COMM_QUEUE:
        if (!oldest(r))
            return false;
        begin_piece(r);
        return true;
    case LS_COMM_GATHER:
        if (!all_counted(c, false))
            return false;
        if (c->nodes > 1) {
            begin_run(r);
            return true;
        }
        ls_comm_node_work(r);
        count_piece(c, true);
        r->phase = LS_COMM_SETTLE;
        return true;
    case LS_COMM_RUN:
        if (ls_comm_carries(r) && !ls_comm_wire_run(r))
            return false;
        if (!r->direct) {
            count_piece(c, true);
            r->phase = LS_COMM_SETTLE;
        } else if (!next_piece(r)) {
            leave(r);
            r->phase = LS_COMM_LEAVE;
        }
        return true;
    case LS_COMM_SETTLE:
        if (!all_counted(c, true))
            return false;
        ls_comm_node_stage_out(r);
        if (!next_piece(r)) {
            leave(r);
            ls_comm_finish(r);
        }
        return true;
    case LS_COMM_LEAVE:
        if (!all_left(r))
            return false;
        ls_comm_finish(r);
        return true;
    case LS_COMM_END:
        return false;
    }
    return false;
}

bool ls_comm_step(struct ls_comm_request *r)
{
    if (r->kind >= LS_COMM_SEND)
        return ls_comm_step_pair(r);
    bool moved = false;
    while (!r->comm->world->failed && r->phase != LS_COMM_END && advance(r))
        moved = true;
    return moved;
}

bool ls_comm_late(const struct ls_comm_request *r, int k)
{
    switch (r->phase) {
    case LS_COMM_POST:
        return done_by(r, k) + LS_COMM_RING < r->sequence;
    case LS_COMM_ARRIVE:
        return needs(r, k) && !arrived(r, k);
    case LS_COMM_GATHER:
    case LS_COMM_SETTLE:
        return atomic_load(counter(r->comm, k, r->phase == LS_COMM_SETTLE)) < r->comm->pieces;
    case LS_COMM_LEAVE:
        return done_by(r, k) < r->sequence;
    default:
        return false;
    }
}

/* ---- start ---- */

static struct ls_comm_request *new_request(struct ls_comm *c)
{
    struct ls_comm_request *r = c->spare;
    if (r) {
        c->spare = r->next;
        return r;
    }
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->src = calloc((size_t)c->locals, sizeof *r->src);
    r->dst = calloc((size_t)c->locals, sizeof *r->dst);
    r->gather = calloc((size_t)(c->n + 2 * c->locals + 4), sizeof *r->gather);
    if (!r->src || !r->dst || !r->gather) {
        free(r->src);
        free(r->dst);
        free(r->gather);
        free(r);
        return NULL;
    }
    return r;
}

static void alone(struct ls_comm_request *r)
{
    if (r->in != r->out && r->bytes)
        memcpy(r->out, r->in, (size_t)r->bytes);
    if (r->squares)
        *r->squares = ls_comm_squares(r->out, r->count);
}

enum ls_status ls_comm_start(struct ls_comm *c, const struct ls_comm_request *model,
                             struct ls_comm_request **req, struct ls_error *err)
{
    struct ls_comm_world *w = c->world;
    if (ls_comm_aborted(w))
        return ls_error_set(err, w->error.status, "%s", w->error.message);
    int64_t bytes, all;
    if (model->count < 0 || !ls_mul_i64(model->count, ls_comm_size(model->type), &bytes) ||
        !ls_mul_i64(bytes, c->n, &all))
        return ls_error_set(err, LS_ERR_USAGE, "group %s: a collective of %lld elements", c->name,
                            (long long)model->count);
    if (model->squares && model->type != LS_COMM_F32)
        return ls_error_set(err, LS_ERR_USAGE,
                            "group %s: squares are summed of f32 only, not of %s", c->name,
                            ls_comm_type_name(model->type));
    bool pair = model->kind >= LS_COMM_SEND;
    if ((pair || model->kind == LS_COMM_BROADCAST) &&
        (model->root < 0 || model->root >= c->n || (pair && model->root == c->me)))
        return ls_error_set(err, LS_ERR_USAGE, "group %s: member %d of %d is no possible %s",
                            c->name, model->root, c->n, pair ? "peer" : "root");
    struct ls_comm_request *r = new_request(c);
    if (!r)
        return ls_error_set(err, LS_ERR_NOMEM, "a request of group %s", c->name);
    if (model->squares)
        *model->squares = 0;
    r->comm = c;
    r->next = NULL;
    r->kind = model->kind;
    r->type = model->type;
    r->op = model->op;
    r->root = model->root;
    r->squares = model->squares;
    r->in = model->in;
    r->out = model->out;
    r->count = model->count;
    r->bytes = bytes;
    r->barrier = model->barrier;
    r->phase = LS_COMM_POST;
    r->begin = r->length = r->moved = 0;
    r->pieces = 0;
    r->net.round = 0;
    r->net.active = false;
    if (pair) {
        enum ls_status status = ls_comm_pair_start(r);
        if (status != LS_OK)
            return ls_error_set(err, status, "%s", w->error.message);
    } else {
        r->sequence = ++c->sequence;
        r->small = ls_comm_node_is_small(r);
        if (c->n == 1) {
            alone(r);
            r->phase = LS_COMM_END;
        }
    }
    if (r->phase != LS_COMM_END) {
        *c->active_end = r;
        c->active_end = &r->next;
        ls_comm_step(r);
    }
    *req = r;
    return LS_OK;
}
