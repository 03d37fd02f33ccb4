/* Opening and closing the world: who shares a node with whom, the node's control block, the exchange
 * of socket names and network addresses; the abort word, and the first error. */
#include "comm/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LS_COMM_VERSION 1

/* What every rank tells all others; a UCX worker address follows. */
struct card {
    char magic[8];
    int32_t version, rank, size, node;
    struct ls_comm_socket_name socket;
};
static const char card_magic[8] = "lscomm";

/* ---- abort word and errors ---- */

void ls_comm_set_abort(struct ls_comm_world *w, const char *reason)
{
    uint32_t none = 0;
    if (!w->control || !atomic_compare_exchange_strong(&w->control->abort, &none, 1))
        return; /* the first reason stays */
    snprintf(w->control->reason, sizeof w->control->reason, "%.*s",
             (int)sizeof w->control->reason - 1, reason);
    atomic_store_explicit(&w->control->abort, 2, memory_order_release);
}

bool ls_comm_aborted(struct ls_comm_world *w)
{
    if (w->failed)
        return true;
    if (!w->control || atomic_load_explicit(&w->control->abort, memory_order_acquire) != 2)
        return false;
    w->failed = true;
    ls_error_set(&w->error, LS_ERR_ABORTED, "%.*s", (int)sizeof w->control->reason - 1,
                 w->control->reason);
    ls_comm_tell_abort(w, w->control->reason);
    return true;
}

void ls_comm_tell_abort(struct ls_comm_world *w, const char *reason)
{
    if (w->forwarded)
        return;
    w->forwarded = true;
    if (w->net)
        ls_comm_wire_abort(w, reason);
}

enum ls_status ls_comm_fail(struct ls_comm_world *w, enum ls_status status, const char *fmt, ...)
{
    if (w->failed)
        return w->error.status;
    char text[sizeof w->error.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    w->failed = true;
    ls_error_set(&w->error, status, "%s", text);
    char reason[sizeof text + 64];
    snprintf(reason, sizeof reason, "stopped by rank %d on %s: %s", w->rank, w->host[w->rank],
             text);
    ls_comm_set_abort(w, reason);
    ls_comm_tell_abort(w, reason);
    return status;
}

void ls_comm_abort(struct ls_comm_world *w, const char *reason)
{
    ls_comm_fail(w, LS_ERR_ABORTED, "%s", reason);
}

void ls_comm_activity(struct ls_comm_world *w, enum ls_comm_activity activity)
{
    atomic_store_explicit(&w->control->rank[w->me].activity, activity, memory_order_relaxed);
    if (w->window)
        atomic_store_explicit(&w->window->activity, activity, memory_order_relaxed);
}

int ls_comm_suspect(const struct ls_comm_world *w)
{
    return w->suspect;
}

/* ---- open ---- */

static enum ls_status copy_config(struct ls_comm_world *w, const struct ls_comm_config *config,
                                  struct ls_error *err)
{
    if (config->size < 1 || config->rank < 0 || config->rank >= config->size)
        return ls_error_set(err, LS_ERR_USAGE, "rank %d of a world of %d", config->rank,
                            config->size);
    if (!(config->deadline > 0) || !(config->connect_deadline > 0))
        return ls_error_set(err, LS_ERR_USAGE, "deadlines must be larger than 0");
    size_t n = (size_t)config->size;
    w->rank = config->rank;
    w->size = config->size;
    w->deadline = config->deadline;
    w->connect_deadline = config->connect_deadline;
    w->all_meet = config->all_meet;
    w->window = config->window;
    w->suspect = -1;
    w->node = calloc(n, sizeof *w->node);
    w->host = calloc(n, sizeof *w->host);
    w->local_rank = calloc(n, sizeof *w->local_rank);
    w->sock = calloc(n, sizeof *w->sock);
    w->address = calloc(n, sizeof *w->address);
    w->address_bytes = calloc(n, sizeof *w->address_bytes);
    w->greeted = calloc(n, sizeof *w->greeted);
    w->answered = calloc(n, sizeof *w->answered);
    w->heard = calloc(n, sizeof *w->heard);
    w->owed = calloc(n, sizeof *w->owed);
    if (!w->node || !w->host || !w->local_rank || !w->sock || !w->address || !w->address_bytes ||
        !w->greeted || !w->answered || !w->heard || !w->owed)
        return ls_error_set(err, LS_ERR_NOMEM, "a world of %d ranks", w->size);
    w->nodes = 0;
    for (int i = 0; i < w->size; i++) {
        w->node[i] = config->node[i];
        w->host[i] = strdup(config->host[i]);
        if (!w->host[i])
            return ls_error_set(err, LS_ERR_NOMEM, "a world of %d ranks", w->size);
        if (w->node[i] == config->node[w->rank]) {
            if (i == w->rank)
                w->me = w->locals;
            w->local_rank[w->locals++] = i;
        }
        int first = 0;
        while (w->node[first] != w->node[i])
            first++;
        w->nodes += first == i;
    }
    for (int k = 0; k < w->locals; k++)
        w->sock[k] = -1;
    return LS_OK;
}

/* All-gathers the cards, and keeps what they say. */
static enum ls_status exchange(struct ls_comm_world *w, const struct ls_comm_config *config,
                               const struct ls_comm_socket_name *mine,
                               struct ls_comm_socket_name *names, struct ls_error *err)
{
    size_t n = 0;
    const void *address = w->net ? ls_comm_net_address(w->net, &n) : NULL;
    struct card *card = calloc(1, sizeof *card + n);
    if (!card)
        return ls_error_set(err, LS_ERR_NOMEM, "exchange of addresses");
    memcpy(card->magic, card_magic, sizeof card_magic);
    card->version = LS_COMM_VERSION;
    card->rank = w->rank;
    card->size = w->size;
    card->node = w->node[w->rank];
    card->socket = *mine;
    if (n)
        memcpy(card + 1, address, n);
    const void *const *all;
    const size_t *bytes;
    enum ls_status status =
        config->exchange(config->arg, card, sizeof *card + n, &all, &bytes, err);
    free(card);
    if (status != LS_OK)
        return status;
    for (int i = 0, k = 0; i < w->size; i++) {
        struct card c;
        memset(&c, 0, sizeof c);
        if (bytes[i] >= sizeof c)
            memcpy(&c, all[i], sizeof c);
        if (memcmp(c.magic, card_magic, sizeof card_magic) != 0 || c.version != LS_COMM_VERSION ||
            c.rank != i || c.size != w->size || c.node != w->node[i])
            return ls_error_set(err, LS_ERR_ENV,
                                "rank %d on %s runs another version of Lockstep, or has another "
                                "view of the layout: found rank %d of %d on node %d, expected rank "
                                "%d of %d on node %d",
                                i, w->host[i], c.rank, c.size, c.node, i, w->size, w->node[i]);
        if (w->node[i] == w->node[w->rank])
            names[k++] = c.socket;
        size_t rest = bytes[i] - sizeof c;
        w->address[i] = malloc(rest + 1);
        if (!w->address[i])
            return ls_error_set(err, LS_ERR_NOMEM, "exchange of addresses");
        memcpy(w->address[i], (const char *)all[i] + sizeof c, rest);
        w->address_bytes[i] = rest;
    }
    return LS_OK;
}

/* The first rank of the node makes the control block; all enter their CPUs and wait for the rest. */
static enum ls_status open_control(struct ls_comm_world *w, struct ls_error *err)
{
    static const char what[] = "start of the communicators";
    const uint64_t tag = 0xc0;
    w->control_bytes = sizeof *w->control + (size_t)w->locals * sizeof(struct ls_comm_status);
    void *map;
    int fd;
    if (w->me == 0) {
        LS_TRY(ls_comm_shm_create("lockstep-control", w->control_bytes, &fd, &map, err));
        enum ls_status status = LS_OK;
        for (int k = 1; k < w->locals && status == LS_OK; k++)
            status = ls_comm_socket_send(w, k, tag, w->control_bytes, fd, err);
        close(fd);
        w->control = map;
        LS_TRY(status);
    } else {
        LS_TRY(ls_comm_socket_recv(w, 0, tag, w->control_bytes, what, &fd, err));
        enum ls_status status = ls_comm_shm_map(fd, w->control_bytes, &map, err);
        close(fd);
        LS_TRY(status);
        w->control = map;
    }
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        for (int i = 0; i < LS_COMM_CPU_WORDS * 64; i++)
            if (CPU_ISSET(i, &cpus))
                atomic_fetch_or(&w->control->cpus[i / 64], UINT64_C(1) << (i % 64));
    atomic_fetch_add(&w->control->ready, 1);
    struct ls_comm_patience patience;
    ls_comm_patience_start(&patience);
    double start = ls_time_monotonic();
    while ((int)atomic_load(&w->control->ready) < w->locals) {
        if (!ls_comm_patience_pause(&patience, true))
            continue;
        for (int k = 0; k < w->locals; k++)
            if (ls_comm_gone(w, k) && (int)atomic_load(&w->control->ready) < w->locals)
                return ls_error_set(err, LS_ERR_IO, "%s: rank %d on %s is gone", what,
                                    w->local_rank[k], w->host[w->local_rank[k]]);
        if (ls_time_monotonic() - start > w->deadline)
            return ls_error_set(err, LS_ERR_TIMEOUT, "%s: only %u of %d ranks on %s after %g s",
                                what, atomic_load(&w->control->ready), w->locals, w->host[w->rank],
                                w->deadline);
    }
    int usable = 0;
    for (int i = 0; i < LS_COMM_CPU_WORDS; i++)
        usable += __builtin_popcountll(atomic_load(&w->control->cpus[i]));
    w->crowded = usable < w->locals;
    return LS_OK;
}

/* Does a node talk to the one `away` further on in a collective over all nodes? To all, where an exchange runs by itself;
 * else to those 1, 2, 4, ... away (rings, broadcasts) and to its partners in halving. So every pair that a
 * collective needs has met when the world is open, and there are few of them in a world of thousands. */
static bool meets(int nodes, int node, int away)
{
    if (nodes <= LS_COMM_EXCHANGE_NODES || (away & (away - 1)) == 0)
        return true;
    for (int d = 1; d < nodes; d *= 2)
        if (ls_comm_halving_partner(nodes, node, d) == (node + away) % nodes)
            return true;
    return false;
}

/* The ranks that a rank greets when the world opens: on the nodes that its own meets, those with its own place (or,
 * where there are fewer, a place modulo their number). */
static int greets(const struct ls_comm_world *w, const int *order, int rank, int *to)
{
    int node = 0, place = 0, n = 0;
    while (order[node] != w->node[rank])
        node++;
    for (int i = 0; i < rank; i++)
        place += w->node[i] == w->node[rank];
    for (int away = 1; away < w->nodes; away++) {
        int other = order[(node + away) % w->nodes], members = 0, at = 0;
        if (!w->all_meet && !meets(w->nodes, node, away))
            continue;
        for (int i = 0; i < w->size; i++)
            members += w->node[i] == other;
        for (int i = 0; i < w->size; i++)
            if (w->node[i] == other && at++ == place % members)
                to[n++] = i;
    }
    return n;
}

static enum ls_status greet(struct ls_comm_world *w, struct ls_error *err)
{
    int *order = calloc((size_t)w->nodes, sizeof *order);
    int *to = calloc((size_t)w->size + 32, sizeof *to);
    int *from = calloc((size_t)w->size + 32, sizeof *from); /* each greets a rank at most once */
    enum ls_status status = LS_ERR_NOMEM;
    if (order && to && from) {
        for (int i = 0, n = 0; i < w->size; i++) {
            int first = 0;
            while (w->node[first] != w->node[i])
                first++;
            if (first == i)
                order[n++] = w->node[i];
        }
        int nfrom = 0;
        for (int i = 0; i < w->size; i++)
            for (int k = 0, n = greets(w, order, i, to); k < n; k++)
                if (to[k] == w->rank)
                    from[nfrom++] = i;
        int nto = greets(w, order, w->rank, to);
        status = ls_comm_wire_greet(w, to, nto, from, nfrom, w->connect_deadline, true,
                                    "start of the communicators", err);
    } else {
        ls_error_set(err, status, "a world of %d ranks", w->size);
    }
    free(order);
    free(to);
    free(from);
    return status;
}

enum ls_status ls_comm_open(const struct ls_comm_config *config, struct ls_comm_world **world,
                            struct ls_error *err)
{
    struct ls_comm_world *w = calloc(1, sizeof *w);
    if (!w)
        return ls_error_set(err, LS_ERR_NOMEM, "a world of %d ranks", config->size);
    w->letters_end = &w->letters;
    int listener = -1;
    struct ls_comm_socket_name mine, *names = NULL;
    enum ls_status status = copy_config(w, config, err);
    if (status != LS_OK)
        goto fail;
    names = calloc((size_t)w->locals, sizeof *names);
    if (!names || getrandom(&mine, sizeof mine, 0) != (ssize_t)sizeof mine) {
        status = ls_error_set(err, names ? LS_ERR_IO : LS_ERR_NOMEM, "opening a world");
        goto fail;
    }
    if ((status = ls_comm_socket_listen(&mine, w->locals + 8, &listener, err)) != LS_OK ||
        (w->nodes > 1 && (status = ls_comm_net_open(w, config, &w->net, err)) != LS_OK))
        goto fail;
    if (w->size > 1 && (status = exchange(w, config, &mine, names, err)) != LS_OK)
        goto fail;
    if (w->size == 1)
        names[0] = mine;
    if ((status = ls_comm_socket_mesh(w, listener, names, err)) != LS_OK ||
        (status = open_control(w, err)) != LS_OK)
        goto fail;
    if (w->net && (status = greet(w, err)) != LS_OK)
        goto fail;
    ls_comm_activity(w, LS_COMM_STARTING);
    close(listener);
    free(names);
    *world = w;
    return LS_OK;
fail:
    if (listener >= 0)
        close(listener);
    free(names);
    ls_comm_close(w);
    return status;
}

void ls_comm_close(struct ls_comm_world *w)
{
    if (!w)
        return;
    if (w->control)
        ls_comm_activity(w, LS_COMM_DONE);
    /* The network first: it may still hold pointers into requests. */
    if (w->net)
        ls_comm_net_close(w->net, !w->failed);
    w->net = NULL;
    while (w->groups)
        ls_comm_group_close(w->groups);
    for (struct ls_comm_letter *l = w->letters, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    for (int i = 0; i < w->arenas; i++) {
        struct ls_comm_arena *a = &w->arena[i];
        size_t huge = 2 << 20;
        size_t size =
            (size_t)ls_round_up(a->bytes, a->bytes >= (int64_t)huge ? (int64_t)huge : 4096);
        for (int k = 0; k < w->locals; k++)
            ls_comm_shm_unmap(a->base[k], size);
        free(a->base);
    }
    free(w->arena);
    ls_comm_shm_unmap(w->control, w->control_bytes);
    for (int k = 0; k < w->locals && w->sock; k++)
        if (w->sock[k] >= 0)
            close(w->sock[k]);
    for (int i = 0; i < w->size; i++) {
        if (w->host)
            free(w->host[i]);
        if (w->address)
            free(w->address[i]);
    }
    free(w->node);
    free(w->host);
    free(w->local_rank);
    free(w->sock);
    free(w->address);
    free(w->address_bytes);
    free(w->greeted);
    free(w->answered);
    free(w->heard);
    free(w->owed);
    free(w);
}
