/* Finds where programs that are not ours can meet: an address of keeper 0 that every keeper has reached, and
 * ports that are held until a program takes them. Nothing is looked up by name, and no address is believed
 * before the one at its end has shown keeper 0's token. */
#include "wire/address.h"
#include "wire/link.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const double answer_wait = 3;  /* seconds for the first address that answers */
static const double more_wait = 0.25; /* and then for others: those that work take milliseconds */

/* What a keeper publishes first: the card, whose port answers with the token, and its ports behind it. */
struct offer {
    struct ls_wire_card card;
    uint16_t n_ports;
};
/* And then: by which addresses of keeper 0 it got there, and from which address of its own. */
struct report {
    uint32_t reached; /* bit i: address i of keeper 0's card */
    struct ls_wire_address from[LS_WIRE_MAX_ADDRESSES];
};

struct meeting {
    int rank, size, ports;
    const char *const *host;
    ls_wire_exchange_fn *exchange;
    void *arg;
    struct ls_wire_rendezvous *r;
    struct ls_wire_card mine, root;
    int listener; /* keeper 0: where others try its addresses; -1 */
    pthread_t porter;
};

// ---- keeper 0: shows its token to whoever comes ------------------------------------------------

static void *show_token(void *arg)
{
    const struct meeting *m = arg;
    for (;;) {
        struct pollfd p = {.fd = m->listener, .events = POLLIN};
        poll(&p, 1, -1);
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINVAL || errno == EBADF)) // shut down: the end
            return NULL;
        if (fd < 0)
            continue;
        // A fresh socket takes these few bytes at once.
        send(fd, m->mine.token, sizeof m->mine.token, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
}

static enum ls_status start_porter(struct meeting *m, struct ls_error *err)
{
    m->listener = ls_wire_listen(&m->mine.port);
    if (m->listener < 0)
        return ls_error_errno(err, errno, "cannot listen for other keepers");
    int rc = pthread_create(&m->porter, NULL, show_token, m);
    if (rc) {
        close(m->listener);
        m->listener = -1;
        return ls_error_errno(err, rc, "cannot start a thread");
    }
    return LS_OK;
}

static void stop_porter(struct meeting *m)
{
    if (m->listener < 0)
        return;
    shutdown(m->listener, SHUT_RDWR);
    pthread_join(m->porter, NULL);
    close(m->listener);
    m->listener = -1;
}

// ---- the others: try its addresses, all at once -------------------------------------------------

struct attempt {
    int fd; // -1: over
    bool connected;
    uint8_t token[LS_WIRE_TOKEN];
    size_t got;
};

// The very same address on another machine is a bridge (docker0 and the like): it leads home.
static bool leads_home(const struct meeting *m, const struct ls_wire_address *a)
{
    for (int i = 0; i < m->mine.n_addresses; i++) {
        const struct ls_wire_address *b = &m->mine.address[i];
        if (a->v6 == b->v6 && !memcmp(a->bytes, b->bytes, sizeof a->bytes))
            return true;
    }
    return false;
}

static int begin(const struct meeting *m, const struct ls_wire_address *a)
{
    struct sockaddr_storage to;
    if (m->mine.machine != m->root.machine && (a->loopback || leads_home(m, a)))
        return -1;
    ls_wire_address_fill(a, m->root.port, &to);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n = a->v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, n) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

// Returns true when the right token has come; the attempt is over when its fd is -1.
static bool proceed(const struct meeting *m, struct attempt *a, struct ls_wire_address *from)
{
    int why = 0;
    socklen_t n = sizeof why;
    if (!a->connected) {
        getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &why, &n);
        a->connected = !why;
    }
    ssize_t got = why ? -1 : recv(a->fd, a->token + a->got, sizeof a->token - a->got, MSG_DONTWAIT);
    if (got < 0 && !why && (errno == EAGAIN || errno == EINTR))
        return false;
    a->got += got > 0 ? (size_t)got : 0;
    if (got > 0 && a->got < sizeof a->token)
        return false;
    struct sockaddr_storage me;
    n = sizeof me;
    bool right = a->got == sizeof a->token && !memcmp(a->token, m->root.token, sizeof a->token) &&
                 !getsockname(a->fd, (struct sockaddr *)&me, &n) && ls_wire_address_of(&me, from);
    close(a->fd);
    a->fd = -1;
    return right;
}

static void try_root(const struct meeting *m, struct report *report)
{
    struct attempt attempt[LS_WIRE_MAX_ADDRESSES] = {{0}};
    int n = m->root.n_addresses;
    for (int i = 0; i < n; i++)
        attempt[i].fd = begin(m, &m->root.address[i]);
    double end = ls_time_monotonic() + answer_wait;
    for (;;) {
        struct pollfd fds[LS_WIRE_MAX_ADDRESSES];
        int open = 0;
        for (int i = 0; i < n; i++) {
            fds[i] = (struct pollfd){.fd = attempt[i].fd,
                                     .events = attempt[i].connected ? POLLIN : POLLOUT};
            open += attempt[i].fd >= 0;
        }
        double left = end - ls_time_monotonic();
        if (!open || left <= 0)
            break;
        if (poll(fds, (nfds_t)n, (int)(left * 1e3) + 1) <= 0)
            continue;
        for (int i = 0; i < n; i++) {
            if (attempt[i].fd < 0 || !fds[i].revents || !proceed(m, &attempt[i], &report->from[i]))
                continue;
            if (!report->reached)
                end = ls_time_monotonic() + more_wait;
            report->reached |= 1U << i;
        }
    }
    for (int i = 0; i < n; i++)
        if (attempt[i].fd >= 0)
            close(attempt[i].fd);
}

// ---- together -----------------------------------------------------------------------------------

static enum ls_status hold_ports(struct meeting *m, uint16_t *port, struct ls_error *err)
{
    struct ls_wire_rendezvous *r = m->r;
    r->held = calloc((size_t)m->ports, sizeof *r->held);
    if (!r->held)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d ports", m->ports);
    for (; r->n_held < m->ports; r->n_held++) {
        /* Nobody listens: whoever comes before the program does is refused, and tries again. Between our release
         * and the program's bind, no connection of another process is to take it. */
        r->held[r->n_held] = ls_wire_bind_apart(LS_WIRE_PORT_RANGE, &port[r->n_held]);
        if (r->held[r->n_held] < 0)
            return ls_error_errno(err, errno, "cannot get port %d of %d", r->n_held + 1, m->ports);
    }
    return LS_OK;
}

static bool read_offer(const void *data, size_t n, struct offer *offer)
{
    if (n < sizeof *offer)
        return false;
    memcpy(offer, data, sizeof *offer);
    return offer->card.magic == LS_WIRE_MAGIC && offer->card.version == LS_WIRE_CARD_VERSION &&
           offer->card.n_addresses <= LS_WIRE_MAX_ADDRESSES &&
           n == sizeof *offer + offer->n_ports * sizeof(uint16_t);
}

static enum ls_status take_offers(struct meeting *m, const void *const *all, const size_t *bytes,
                                  struct ls_error *err)
{
    struct ls_wire_rendezvous *r = m->r;
    struct offer offer;
    for (int k = 0; k < m->size; k++) {
        if (!read_offer(all[k], bytes[k], &offer))
            return ls_error_set(
                err, LS_ERR_ENV,
                "keeper %d on %s speaks another version; use one build on all nodes", k,
                m->host[k]);
        if (k == 0)
            m->root = offer.card;
        r->first[k + 1] = r->first[k] + offer.n_ports;
    }
    r->port = calloc((size_t)r->first[m->size] + 1, sizeof *r->port);
    if (!r->port)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the ports of %d keepers", m->size);
    for (int k = 0; k < m->size; k++)
        memcpy(r->port + r->first[k], (const char *)all[k] + sizeof offer,
               (size_t)(r->first[k + 1] - r->first[k]) * sizeof *r->port);
    return LS_OK;
}

static enum ls_status publish_ports(struct meeting *m, struct ls_error *err)
{
    size_t size = sizeof(struct offer) + (size_t)m->ports * sizeof(uint16_t);
    char *text = calloc(1, size);
    uint16_t *port = calloc((size_t)m->ports, sizeof *port);
    const void *const *all = (const void *const[]){text};
    const size_t *bytes = &size;
    enum ls_status status =
        text && port ? hold_ports(m, port, err)
                     : ls_error_set(err, LS_ERR_NOMEM, "no memory for %d ports", m->ports);
    if (status == LS_OK) {
        struct offer offer = {m->mine, (uint16_t)m->ports};
        memcpy(text, &offer, sizeof offer);
        memcpy(text + sizeof offer, port, (size_t)m->ports * sizeof *port);
        if (m->size > 1)
            status = m->exchange(m->arg, text, size, &all, &bytes, err);
    }
    if (status == LS_OK)
        status = take_offers(m, all, bytes, err);
    free(port);
    free(text);
    return status;
}

// Loopback if all reach it, or else the first in the order of the card; -1: none.
static int choose(const struct ls_wire_card *root, uint32_t reached)
{
    for (int loopback = 1; loopback >= 0; loopback--)
        for (int i = 0; i < root->n_addresses; i++)
            if (reached & 1U << i && root->address[i].loopback == loopback)
                return i;
    return -1;
}

static enum ls_status nowhere(const struct meeting *m, const struct report *reports,
                              struct ls_error *err)
{
    char list[512] = "", text[64];
    size_t at = 0;
    for (int i = 0; i < m->root.n_addresses && at < sizeof list; i++)
        if (!m->root.address[i].loopback)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
                                   ls_wire_address_name(&m->root.address[i], text));
    for (int k = 1; k < m->size; k++)
        if (!reports[k].reached)
            return ls_error_set(err, LS_ERR_ENV,
                                "keeper %d on %s reaches no address of keeper 0 on %s (it has %s); "
                                "open TCP between the nodes of a job",
                                k, m->host[k], m->host[0], list);
    return ls_error_set(
        err, LS_ERR_ENV,
        "no address of keeper 0 on %s is reached by all keepers (it has %s); connect "
        "the nodes of a job by one network",
        m->host[0], list);
}

static enum ls_status agree(struct meeting *m, struct ls_error *err)
{
    struct report mine = {.reached = UINT32_MAX};
    const void *const *all;
    const size_t *bytes;
    memcpy(mine.from, m->root.address, sizeof mine.from);
    if (m->rank > 0) {
        mine = (struct report){0};
        try_root(m, &mine);
    }
    LS_TRY(m->exchange(m->arg, &mine, sizeof mine, &all, &bytes, err));
    struct report *reports = calloc((size_t)m->size, sizeof *reports);
    if (!reports)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d keepers", m->size);
    uint32_t reached = UINT32_MAX;
    for (int k = 0; k < m->size; k++) {
        if (bytes[k] == sizeof mine)
            memcpy(&reports[k], all[k], sizeof mine);
        reached &= reports[k].reached;
    }
    int best = choose(&m->root, reached);
    enum ls_status status = best < 0 ? nowhere(m, reports, err) : LS_OK;
    for (int k = 0; k < m->size && best >= 0; k++)
        ls_wire_address_name(&reports[k].from[best], m->r->address[k]);
    free(reports);
    return status;
}

static enum ls_status meet(struct meeting *m, struct ls_error *err)
{
    struct ls_wire_rendezvous *r = m->r;
    r->n_keepers = m->size;
    r->address = calloc((size_t)m->size, sizeof *r->address);
    r->first = calloc((size_t)m->size + 1, sizeof *r->first);
    if (!r->address || !r->first)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d keepers", m->size);
    LS_TRY(ls_wire_card_make(&m->mine, err));
    if (m->size == 1) {
        strcpy(r->address[0], "127.0.0.1");
        return publish_ports(m, err);
    }
    if (m->rank == 0)
        LS_TRY(start_porter(m, err));
    LS_TRY(publish_ports(m, err));
    return agree(m, err);
}

enum ls_status ls_wire_rendezvous_open(int rank, int size, const char *const *host, int ports,
                                       ls_wire_exchange_fn *exchange, void *arg,
                                       struct ls_wire_rendezvous **rendezvous, struct ls_error *err)
{
    struct meeting m = {rank, size, ports, host, exchange, arg, NULL, {0}, {0}, -1, 0};
    if (ports < 1 || ports > UINT16_MAX || size < 1 || rank < 0 || rank >= size)
        return ls_error_set(err, LS_ERR_INTERNAL, "%d ports for keeper %d of %d", ports, rank,
                            size);
    m.r = calloc(1, sizeof *m.r);
    if (!m.r)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a rendezvous");
    enum ls_status status = meet(&m, err);
    stop_porter(&m);
    if (status == LS_OK)
        *rendezvous = m.r;
    else
        ls_wire_rendezvous_close(m.r);
    return status;
}

void ls_wire_rendezvous_release(struct ls_wire_rendezvous *r, int i)
{
    if (i < 0 || i >= r->n_held || r->held[i] < 0)
        return;
    close(r->held[i]);
    r->held[i] = -1;
}

void ls_wire_rendezvous_close(struct ls_wire_rendezvous *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_held; i++)
        ls_wire_rendezvous_release(r, i);
    free(r->held);
    free(r->port);
    free(r->first);
    free(r->address);
    free(r);
}
