/* Runs a schedule: sends tiles as soon as what they need is there, folds those that come in straight
 * out of the network's buffer, and keeps what comes too early as letters. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PENDING = 64 }; /* sends handed to the network and not finished */

enum message { HELLO, ANSWER, CREDIT, TILE, ABORT };

struct header {
    uint8_t message, pair;
    uint16_t step;
    int32_t from; /* world rank */
    uint32_t group, round, tile, count;
    uint64_t sequence;
};

/* ---- places of a tile ---- */

static int64_t wire_bytes(const struct ls_comm_request *r, const struct ls_comm_tile *t, bool final)
{
    return t->n * (final ? ls_comm_size(r->type) : r->net.wire_size);
}

static const char *source(const struct ls_comm_request *r, int local, const struct ls_comm_tile *t)
{
    int64_t block = r->kind == LS_COMM_REDUCE_SCATTER ? t->block : 0;
    return r->src[local] + (block * r->src_stride + t->at) * ls_comm_size(r->type);
}

static char *result(const struct ls_comm_request *r, int local, const struct ls_comm_tile *t)
{
    int64_t block = r->kind == LS_COMM_ALL_GATHER ? t->block : 0;
    return r->dst[local] + (block * r->dst_stride + t->at) * ls_comm_size(r->type);
}

static char *partial(const struct ls_comm_request *r, const struct ls_comm_tile *t)
{
    const struct ls_comm_schedule *s = &r->net;
    if (s->in_place)
        return result(r, r->comm->local, t);
    int64_t before = s->combine ? r->comm->my_node * s->lane_elements : 0;
    return s->partial + (before + t->place) * s->wire_size;
}

/* Where a result goes: to all members of the node, or to the one whose block it is. */
static int results(const struct ls_comm_request *r, const struct ls_comm_tile *t, void **to)
{
    const struct ls_comm *c = r->comm;
    int n = 0;
    if (r->kind >= LS_COMM_SEND) {
        to[n++] = result(r, c->local, t);
        return n;
    }
    for (int k = 0; k < c->locals; k++)
        if (r->kind != LS_COMM_REDUCE_SCATTER || c->members[k] == t->block)
            to[n++] = result(r, k, t);
    return n;
}

/* ---- arithmetic on a tile ---- */

/* Folds `data` (or nothing) and, if that has not been done, this node's members. `finish`: the
 * result is complete and goes to its places; otherwise it becomes the partial one. */
static void fold(struct ls_comm_request *r, struct ls_comm_tile *t, const void *data, bool finish)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    const void **operand = r->gather;
    void **to = (void **)r->gather + c->locals + 2;
    char *mine = partial(r, t);
    int members = finish ? c->n : 0, n = 0;
    int nd = finish ? results(r, t, to) : 0;
    if (s->half_wire) {
        if (t->begun)
            operand[n++] = mine;
        if (data)
            operand[n++] = data;
        for (int k = 0; k < c->locals && !t->begun; k++)
            operand[n++] = source(r, k, t);
        if (!finish)
            to[nd++] = mine;
        ls_comm_reduce(r->type, r->op, members, operand, n, to, nd, t->n);
    } else if (t->begun) {
        operand[n++] = mine;
        if (data)
            operand[n++] = data;
        if (n > 1)
            ls_comm_reduce(LS_COMM_F32, LS_COMM_SUM, 0, operand, n, (void *[]){mine}, 1, t->n);
        if (finish)
            ls_comm_reduce_half(r->type, r->op, members, (float *)(void *)mine, NULL, 0, NULL, to,
                                nd, t->n);
    } else {
        for (int k = 0; k < c->locals; k++)
            operand[n++] = source(r, k, t);
        ls_comm_reduce_half(r->type, r->op, members, data, operand, n,
                            finish ? NULL : (float *)(void *)mine, to, nd, t->n);
    }
    t->begun = true;
}

/* A tile of this node alone, in the form in which partial results travel. */
static const char *own_partial(struct ls_comm_request *r, struct ls_comm_tile *t)
{
    if (!t->begun && r->comm->locals == 1 && r->net.half_wire)
        return source(r, 0, t);
    if (!t->begun)
        fold(r, t, NULL, false);
    return partial(r, t);
}

static void store(struct ls_comm_request *r, const struct ls_comm_tile *t, const void *data)
{
    void **to = (void **)r->gather + r->comm->locals + 2;
    int n = results(r, t, to);
    for (int k = 0; k < n; k++)
        if (to[k] != data)
            memcpy(to[k], data, (size_t)(t->n * ls_comm_size(r->type)));
}

/* Exchange: all operands are there; sums them in the order of the nodes. */
static void combine(struct ls_comm_request *r)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    bool scatter = r->kind == LS_COMM_REDUCE_SCATTER;
    int from = scatter ? s->chunk[c->my_node] : 0;
    int to = scatter ? s->chunk[c->my_node + 1] : s->tiles;
    for (int i = from; i < to; i++) {
        struct ls_comm_tile *t = &s->tile[i];
        const void *mine = own_partial(r, t);
        const void **operand = r->gather;
        void **out = (void **)r->gather + c->nodes + c->locals + 2;
        for (int k = 0; k < c->nodes; k++)
            operand[k] = k == c->my_node
                             ? mine
                             : s->partial + (k * s->lane_elements + t->place) * s->wire_size;
        int nd = results(r, t, out);
        if (s->half_wire) {
            ls_comm_reduce(r->type, r->op, c->n, operand, c->nodes, out, nd, t->n);
            continue;
        }
        void *sum = s->partial + t->place * s->wire_size;
        ls_comm_reduce(LS_COMM_F32, LS_COMM_SUM, 0, operand, c->nodes, &sum, 1, t->n);
        ls_comm_reduce_half(r->type, r->op, c->n, sum, NULL, 0, NULL, out, nd, t->n);
    }
    s->combine = false;
}

/* ---- coming in ---- */

static bool come(const struct ls_comm_schedule *s, int step, int tile)
{
    if (step < 0)
        return true;
    const struct ls_comm_step *t = &s->step[step];
    return tile < t->recv_from || tile >= t->recv_to || tile < t->recv_from + t->got;
}

static struct ls_comm_credit *credit_of(struct ls_comm_schedule *s, int rank)
{
    for (int i = 0; i < s->credits; i++)
        if (s->credit[i].rank == rank)
            return &s->credit[i];
    return NULL;
}

/* False: not yet. */
static bool take_tile(struct ls_comm_request *r, const struct header *h, const void *data,
                      size_t bytes)
{
    struct ls_comm_schedule *s = &r->net;
    struct ls_comm_step *t = NULL;
    for (int i = 0; i < s->steps && !t; i++)
        if (s->step[i].from == h->from && s->step[i].in_number == h->step)
            t = &s->step[i];
    if (t && ((int)h->tile < t->recv_from || (int)h->tile >= t->recv_to))
        t = NULL;
    int64_t count = r->count < UINT32_MAX ? r->count : UINT32_MAX;
    if (!t || h->count != (uint32_t)count ||
        (int64_t)bytes != wire_bytes(r, &s->tile[h->tile], t->how == LS_COMM_STORE)) {
        char text[128];
        ls_comm_fail(
            r->comm->world, LS_ERR_INTERNAL,
            "%s: rank %d on %s sends %zu bytes of a collective of %u elements, here it has "
            "%lld: all ranks must start the same collectives in the same order",
            ls_comm_request_text(r, text), h->from, r->comm->world->host[h->from], bytes, h->count,
            (long long)r->count);
        return true;
    }
    struct ls_comm_credit *from = credit_of(s, h->from);
    if (from)
        from->heard = true;
    int i = (int)h->tile;
    if (i != t->recv_from + t->got || !come(s, t->after, i))
        return false;
    struct ls_comm_tile *tile = &s->tile[i];
    switch (t->how) {
    case LS_COMM_REDUCE:
        fold(r, tile, data, false);
        break;
    case LS_COMM_FINISH:
        fold(r, tile, data, true);
        break;
    case LS_COMM_STORE:
        store(r, tile, data);
        break;
    case LS_COMM_KEEP:
        memcpy(s->partial + (t->keep * s->lane_elements + tile->place) * s->wire_size, data, bytes);
        break;
    }
    t->got++;
    return true;
}

static bool wanted_by(const struct ls_comm_request *r, const struct header *h)
{
    bool pair = r->kind >= LS_COMM_SEND;
    if (!r->net.active || r->sequence != h->sequence || pair != (h->pair != 0))
        return false;
    if (pair)
        return r->comm->rank[r->root] == h->from &&
               (r->kind == LS_COMM_RECV) == (h->message == TILE);
    return r->net.round == h->round;
}

/* False: nobody wants it yet. */
static bool deliver(struct ls_comm_world *w, const struct header *h, const void *data, size_t bytes)
{
    for (struct ls_comm *c = w->groups; c; c = c->next) {
        if (c->id != h->group)
            continue;
        for (struct ls_comm_request *r = c->active; r; r = r->next) {
            if (!wanted_by(r, h))
                continue;
            if (h->message == TILE)
                return take_tile(r, h, data, bytes);
            struct ls_comm_credit *credit = credit_of(&r->net, h->from);
            if (credit)
                credit->open = credit->heard = true;
            return true;
        }
    }
    return false;
}

void ls_comm_wire_receive(struct ls_comm_world *w, const void *header, size_t header_bytes,
                          const void *data, size_t bytes)
{
    struct header h;
    if (header_bytes != sizeof h)
        return;
    memcpy(&h, header, sizeof h);
    if (h.from < 0 || h.from >= w->size)
        return;
    w->heard[h.from] = true;
    switch (h.message) {
    case HELLO:
        w->greeted[h.from] = w->owed[h.from] = w->owing = true;
        return;
    case ANSWER:
        w->answered[h.from] = true;
        return;
    case ABORT: {
        char reason[768];
        snprintf(reason, sizeof reason, "%.*s", (int)bytes, (const char *)data);
        ls_comm_set_abort(w, reason);
        return;
    }
    default:
        break;
    }
    if (deliver(w, &h, data, bytes))
        return;
    struct ls_comm_letter *l = malloc(sizeof *l + sizeof h + bytes);
    if (!l) {
        ls_comm_fail(w, LS_ERR_NOMEM, "a message of rank %d on %s that came early", h.from,
                     w->host[h.from]);
        return;
    }
    l->next = NULL;
    l->bytes = bytes;
    memcpy(l->data, &h, sizeof h);
    if (bytes)
        memcpy(l->data + sizeof h, data, bytes);
    *w->letters_end = l;
    w->letters_end = &l->next;
}

static void claim(struct ls_comm_world *w)
{
    for (bool again = true; again && w->letters;) {
        again = false;
        for (struct ls_comm_letter **p = &w->letters, *l; (l = *p);) {
            struct header h;
            memcpy(&h, l->data, sizeof h);
            if (!deliver(w, &h, l->data + sizeof h, l->bytes)) {
                p = &l->next;
                continue;
            }
            *p = l->next;
            if (!*p)
                w->letters_end = p;
            free(l);
            again = true; /* it may have opened the way for an earlier one */
        }
    }
}

/* ---- going out ---- */

static struct header header_for(const struct ls_comm_request *r, enum message message)
{
    const struct ls_comm *c = r->comm;
    return (struct header){
        .message = (uint8_t)message,
        .pair = r->kind >= LS_COMM_SEND,
        .from = c->world->rank,
        .group = c->id,
        .round = r->net.round,
        .sequence = r->sequence,
        .count = r->count < UINT32_MAX ? (uint32_t)r->count : UINT32_MAX,
    };
}

void ls_comm_wire_open(struct ls_comm_request *r)
{
    struct ls_comm_schedule *s = &r->net;
    struct ls_comm *c = r->comm;
    s->active = true;
    s->pending = 0;
    for (int i = 0; i < s->credits; i++)
        if (s->credit[i].to_recv > LS_COMM_EAGER) {
            struct header h = header_for(r, CREDIT);
            ls_comm_net_send(c->world->net, s->credit[i].rank, &h, sizeof h, NULL, 0, &s->pending);
        }
    /* What this node has of a result goes to its members first. */
    int from = 0, to = 0, root = -1;
    if (r->kind == LS_COMM_ALL_GATHER) {
        from = s->chunk[c->my_node];
        to = s->chunk[c->my_node + 1];
    } else if (r->kind == LS_COMM_BROADCAST && c->where[r->root] == c->my_node) {
        to = s->tiles;
        root = r->root;
    }
    for (int i = from; i < to; i++)
        for (int k = 0; k < c->locals; k++)
            if (c->members[k] == (root >= 0 ? root : s->tile[i].block))
                store(r, &s->tile[i], source(r, k, &s->tile[i]));
    claim(c->world);
}

static bool all_come(const struct ls_comm_schedule *s, int before)
{
    for (int i = 0; i < before; i++)
        if (s->step[i].got < s->step[i].recv_to - s->step[i].recv_from)
            return false;
    return true;
}

static void send_step(struct ls_comm_request *r, int index)
{
    struct ls_comm_schedule *s = &r->net;
    struct ls_comm_step *t = &s->step[index];
    struct ls_comm_credit *credit = credit_of(s, t->to);
    if (t->after_all && !all_come(s, index))
        return;
    while (t->sent < t->send_to - t->send_from && s->pending < MOST_PENDING) {
        int i = t->send_from + t->sent;
        if (!come(s, t->after, i))
            return;
        struct ls_comm_tile *tile = &s->tile[i];
        int64_t bytes = wire_bytes(r, tile, t->final);
        if (!credit->open && credit->sent > 0 && credit->sent + bytes > LS_COMM_EAGER)
            return;
        const char *data = t->final ? result(r, r->comm->local, tile) : own_partial(r, tile);
        struct header h = header_for(r, TILE);
        h.step = (uint16_t)t->out_number;
        h.tile = (uint32_t)i;
        if (!ls_comm_net_send(r->comm->world->net, t->to, &h, sizeof h, data, (size_t)bytes,
                              &s->pending))
            return;
        credit->sent += bytes;
        t->sent++;
    }
}

bool ls_comm_wire_run(struct ls_comm_request *r)
{
    struct ls_comm_schedule *s = &r->net;
    if (r->comm->world->letters)
        claim(r->comm->world);
    for (int i = s->first_open; i < s->steps; i++) {
        struct ls_comm_step *t = &s->step[i];
        if (t->to >= 0)
            send_step(r, i);
        if (i == s->first_open && t->sent == t->send_to - t->send_from &&
            t->got == t->recv_to - t->recv_from)
            s->first_open++;
    }
    if (s->first_open < s->steps || s->pending)
        return false;
    if (s->combine)
        combine(r);
    s->active = false;
    return true;
}

/* ---- hello, abort ---- */

void ls_comm_wire_progress(struct ls_comm_world *w)
{
    w->moves += ls_comm_net_progress(w->net);
    for (int i = 0; i < w->size && w->owing; i++)
        if (w->owed[i] && ls_comm_net_connect(w->net, i, NULL) == LS_OK) {
            struct header h = {.message = ANSWER, .from = w->rank};
            w->owed[i] = false;
            ls_comm_net_send(w->net, i, &h, sizeof h, NULL, 0, &w->greetings);
        }
    w->owing = false;
}

static enum ls_status no_answer(struct ls_comm_world *w, int rank, bool opening, double seconds,
                                const char *what, struct ls_error *err)
{
    const char *why = ls_comm_net_broken(w->net, rank);
    if (opening)
        return ls_error_set(err, LS_ERR_ENV,
                            "%s: rank %d on %s cannot be reached over UCX from rank %d on %s (%s "
                            "after %g s); check that the nodes share a network, or choose one with "
                            "UCX_NET_DEVICES",
                            what, rank, w->host[rank], w->rank, w->host[w->rank],
                            why ? why : "no answer", seconds);
    if (why)
        return ls_error_set(err, LS_ERR_IO, "%s: the connection to rank %d on %s broke (%s)", what,
                            rank, w->host[rank], why);
    return ls_error_set(err, LS_ERR_TIMEOUT, "%s: rank %d on %s has not arrived after %g s", what,
                        rank, w->host[rank], seconds);
}

enum ls_status ls_comm_wire_greet(struct ls_comm_world *w, const int *to, int nto, const int *from,
                                  int nfrom, double deadline, bool opening, const char *what,
                                  struct ls_error *err)
{
    for (int i = 0; i < nto; i++) {
        LS_TRY(ls_comm_net_connect(w->net, to[i], err));
        if (w->answered[to[i]])
            continue;
        struct header h = {.message = HELLO, .from = w->rank};
        ls_comm_net_send(w->net, to[i], &h, sizeof h, NULL, 0, &w->greetings);
    }
    struct ls_comm_patience patience;
    ls_comm_patience_start(&patience);
    double start = ls_time_monotonic();
    for (;;) {
        ls_comm_wire_progress(w);
        int missing = -1;
        for (int i = 0; i < nto && missing < 0; i++)
            if (!w->answered[to[i]])
                missing = to[i];
        for (int i = 0; i < nfrom && missing < 0; i++)
            if (!w->greeted[from[i]] && !w->answered[from[i]])
                missing = from[i];
        if (missing < 0 && !w->greetings && !w->owing)
            return LS_OK;
        if (ls_comm_aborted(w))
            return ls_error_set(err, w->error.status, "%s", w->error.message);
        if (missing >= 0 && ls_comm_net_broken(w->net, missing))
            return no_answer(w, missing, opening, ls_time_monotonic() - start, what, err);
        if (!ls_comm_patience_pause(&patience, true))
            continue;
        double waited = ls_time_monotonic() - start;
        if (waited > deadline)
            return no_answer(w, missing >= 0 ? missing : to[0], opening, waited, what, err);
    }
}

void ls_comm_wire_abort(struct ls_comm_world *w, const char *reason)
{
    struct header h = {.message = ABORT, .from = w->rank};
    for (int i = 0; i < w->size; i++)
        if (ls_comm_net_connected(w->net, i) && !ls_comm_net_broken(w->net, i))
            ls_comm_net_send(w->net, i, &h, sizeof h, reason, strlen(reason), &w->farewells);
    /* A fair chance to leave this machine, not more. */
    double until = ls_time_monotonic() + 0.1;
    while (w->farewells && ls_time_monotonic() < until)
        ls_comm_net_progress(w->net);
}
