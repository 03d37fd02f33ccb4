/* Waiting: the loop that makes everything move, how it spins and yields, and its errors: who is
 * missing, and what it does. */
#include "comm/internal.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* ---- patience ---- */

enum {
    SPINS = 2000,       /* about 0.1 ms of pause instructions */
    SPINS_CROWDED = 20, /* the one that I wait for may need this CPU */
    NAP_AFTER_MS = 50,  /* a peer that is this late is not about to come in microseconds */
    NAP_NS = 50000,
};

void ls_comm_patience_start(struct ls_comm_patience *p)
{
    *p = (struct ls_comm_patience){0};
}

bool ls_comm_patience_pause(struct ls_comm_patience *p, bool crowded)
{
    unsigned spins = crowded ? SPINS_CROWDED : SPINS;
    if (++p->idle < spins) {
#if defined __x86_64__
        __builtin_ia32_pause();
#elif defined __aarch64__
        __asm__ volatile("isb");
#endif
        return false;
    }
    sched_yield();
    if (p->idle % 16)
        return false;
    double now = ls_time_monotonic();
    if (p->start == 0)
        p->start = p->peer_check = now;
    if (now - p->start > NAP_AFTER_MS * 1e-3)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    if (now - p->peer_check < 1e-3)
        return false;
    p->peer_check = now;
    return true;
}

/* ---- wait ---- */

static void release(struct ls_comm_request *r)
{
    r->next = r->comm->spare;
    r->comm->spare = r;
}

/* The oldest of the group holds up the others. */
static const struct ls_comm_request *holder(const struct ls_comm_request *r)
{
    if (r->phase != LS_COMM_QUEUE)
        return r;
    const struct ls_comm_request *o = r->comm->active;
    while (o->kind >= LS_COMM_SEND)
        o = o->next;
    return o;
}

/* A first meeting on the network may take as long as a connection. */
static double deadline_for(const struct ls_comm_request *r)
{
    const struct ls_comm_world *w = r->comm->world;
    const char *doing;
    int rank;
    if (!w->net || w->deadline >= w->connect_deadline || ls_comm_missing(r, &rank, 1, &doing) < 1)
        return w->deadline;
    bool met = w->node[rank] == w->node[w->rank] || w->heard[rank];
    return met ? w->deadline : w->connect_deadline;
}

/* Who can name the rank that is really late speaks first, and its word ends the waits of all: those
 * who miss a process of their own node, then those who miss data from another node, then those who
 * wait for the members that carry their data there. */
static double patience_for(const struct ls_comm_request *r)
{
    double d = deadline_for(r), grace = d < 10 ? 0.1 * d : 1;
    if (r->phase == LS_COMM_RUN || (r->kind >= LS_COMM_SEND && r->net.active))
        return d + grace;
    return r->comm->nodes > 1 && r->phase > LS_COMM_RUN ? d + 2 * grace : d;
}

enum ls_status ls_comm_wait(struct ls_comm_request *r, struct ls_error *err)
{
    struct ls_comm *c = r->comm;
    struct ls_comm_world *w = c->world;
    if (r->phase != LS_COMM_END)
        ls_comm_step(r);
    if (r->phase == LS_COMM_END) {
        release(r);
        return LS_OK;
    }
    struct ls_comm_status *mine = &w->control->rank[w->me];
    uint32_t before = atomic_load_explicit(&mine->activity, memory_order_relaxed);
    ls_comm_activity(w, LS_COMM_COLLECTIVE);
    struct ls_comm_patience patience;
    ls_comm_patience_start(&patience);
    double since = 0;
    uint64_t last = 0;
    while (!ls_comm_aborted(w)) {
        uint64_t now = ls_comm_advance_all(w);
        if (r->phase == LS_COMM_END)
            break;
        if (now != last) {
            last = now;
            since = 0;
            ls_comm_patience_start(&patience);
            continue;
        }
        /* A look at the network costs as much as a yield, so there is nothing to gain by spinning. */
        if (!ls_comm_patience_pause(&patience, w->crowded || w->net))
            continue;
        double time = ls_time_monotonic();
        if (since == 0)
            since = time;
        double limit = patience_for(holder(r));
        if (!ls_comm_blame_gone(r) && time - since > limit)
            ls_comm_blame(r, limit);
    }
    ls_comm_activity(w, before);
    if (w->failed && r->phase != LS_COMM_END)
        return ls_error_set(err, w->error.status, "%s", w->error.message);
    release(r);
    return LS_OK;
}

uint64_t ls_comm_advance_all(struct ls_comm_world *w)
{
    if (w->net)
        ls_comm_wire_progress(w);
    for (struct ls_comm *c = w->groups; c; c = c->next)
        for (struct ls_comm_request *r = c->active, *next; r; r = next) {
            next = r->next;
            w->moves += ls_comm_step(r);
        }
    return w->moves;
}

void ls_comm_progress(struct ls_comm_world *w)
{
    if (!w->failed)
        ls_comm_advance_all(w);
}

/* ---- who is missing ---- */

const char *ls_comm_request_text(const struct ls_comm_request *r, char out[static 128])
{
    static const char *const name[] = {[LS_COMM_ALL_REDUCE] = "all-reduce",
                                       [LS_COMM_REDUCE_SCATTER] = "reduce-scatter",
                                       [LS_COMM_ALL_GATHER] = "all-gather",
                                       [LS_COMM_BROADCAST] = "broadcast",
                                       [LS_COMM_SEND] = "send",
                                       [LS_COMM_RECV] = "receive"};
    snprintf(out, 128, "%s %llu of group %s", r->barrier ? "barrier" : name[r->kind],
             (unsigned long long)r->sequence, r->comm->name);
    return out;
}

static const char not_arrived[] = "has not arrived", not_done[] = "has not finished its part",
                  no_data[] = "has arrived, but its data has not";

static int missing_on_network(const struct ls_comm_request *r, int *rank, int max,
                              const char **doing)
{
    const struct ls_comm_schedule *s = &r->net;
    int n = 0;
    for (int i = 0; i < s->steps && n < max; i++) {
        const struct ls_comm_step *t = &s->step[i];
        int who = t->got < t->recv_to - t->recv_from                  ? t->from
                  : t->sent < t->send_to - t->send_from || s->pending ? t->to
                                                                      : -1;
        if (who < 0 || (n > 0 && rank[n - 1] == who))
            continue;
        bool heard = false;
        for (int k = 0; k < s->credits; k++)
            heard |= s->credit[k].rank == who && s->credit[k].heard;
        /* Only the first one counts: later steps wait for what it holds up. */
        *doing = heard ? no_data : not_arrived;
        rank[n++] = who;
        break;
    }
    return n;
}

int ls_comm_missing(const struct ls_comm_request *r, int *rank, int max, const char **doing)
{
    const struct ls_comm *c = r->comm;
    if (r->kind >= LS_COMM_SEND && !r->net.active) {
        *doing = r->kind == LS_COMM_SEND ? "has not received" : "has not sent";
        rank[0] = c->rank[r->root];
        return 1;
    }
    if (r->kind >= LS_COMM_SEND || (r->phase == LS_COMM_RUN && ls_comm_carries(r)))
        return missing_on_network(r, rank, max, doing);
    int n = 0;
    *doing = r->phase == LS_COMM_ARRIVE ? not_arrived : not_done;
    for (int k = 0; k < c->locals && n < max; k++) {
        if (k != c->local && ls_comm_late(r, k))
            rank[n++] = c->rank[c->members[k]];
    }
    return n;
}

/* What a rank of this node does; "" where that is not known. */
static const char *activity_text(const struct ls_comm_world *w, int rank, char out[static 128])
{
    char text[128];
    out[0] = '\0';
    for (int k = 0; k < w->locals; k++) {
        if (w->local_rank[k] != rank)
            continue;
        const struct ls_comm_status *s = &w->control->rank[k];
        uint32_t activity = atomic_load(&s->activity), group = atomic_load(&s->group);
        const char *of = "";
        for (const struct ls_comm *c = w->groups; c; c = c->next)
            if (c->id == group)
                of = c->name;
        ls_comm_activity_text(activity, atomic_load(&s->sequence), of, text);
        snprintf(out, 128, "%s%.120s", *text ? "; " : "", text);
    }
    return out;
}

bool ls_comm_blame_gone(struct ls_comm_request *r)
{
    struct ls_comm_world *w = r->comm->world;
    const struct ls_comm_request *h = holder(r);
    int rank[16];
    const char *doing;
    char text[128];
    for (int i = 0, n = ls_comm_missing(h, rank, 16, &doing); i < n; i++) {
        for (int k = 0; k < w->locals; k++) {
            if (w->local_rank[k] != rank[i] || !ls_comm_gone(w, k))
                continue;
            /* It may have done its part, and ended, since we looked. */
            int again[16], m = ls_comm_missing(h, again, 16, &doing);
            while (m > 0 && again[m - 1] != rank[i])
                m--;
            if (m == 0)
                return false;
            ls_comm_fail(w, LS_ERR_IO, "%s: rank %d on %s is gone (its process has ended)",
                         ls_comm_request_text(h, text), rank[i], w->host[rank[i]]);
            return true;
        }
        const char *why = w->net ? ls_comm_net_broken(w->net, rank[i]) : NULL;
        if (why && w->broken_since == 0)
            w->broken_since = ls_time_monotonic();
        /* Most often the other side has ended after an error, and a third one tells us which. */
        if (why && ls_time_monotonic() - w->broken_since > 0.1) {
            ls_comm_fail(w, LS_ERR_IO, "%s: the connection to rank %d on %s broke (%s)",
                         ls_comm_request_text(h, text), rank[i], w->host[rank[i]], why);
            return true;
        }
    }
    return false;
}

enum ls_status ls_comm_blame(struct ls_comm_request *r, double seconds)
{
    struct ls_comm_world *w = r->comm->world;
    const struct ls_comm_request *h = holder(r);
    int rank[64];
    const char *doing = not_done;
    char text[128], does[128], more[96] = "";
    int n = ls_comm_missing(h, rank, 64, &doing);
    if (n == 0)
        return ls_comm_fail(w, LS_ERR_TIMEOUT, "%s: not finished after %.3g s",
                            ls_comm_request_text(h, text), seconds);
    if (n > 1)
        snprintf(more, sizeof more, " (nor %s%d more, rank %d on %s first)",
                 n == 64 ? "at least " : "", n - 1, rank[1], w->host[rank[1]]);
    w->suspect = rank[0];
    return ls_comm_fail(w, LS_ERR_TIMEOUT, "%s: rank %d on %s %s after %.3g s%s%s",
                        ls_comm_request_text(h, text), rank[0], w->host[rank[0]], doing, seconds,
                        activity_text(w, rank[0], does), more);
}
