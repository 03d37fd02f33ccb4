/* Connects the tree of keepers. Everyone listens before the exchange of cards, so a connection that
 * is refused afterwards is a wrong address and not an early one. A child tries its parent's
 * addresses a quarter of a second apart and keeps the first that shows the right token. */
#include "wire/connect.h"
#include "wire/address.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const double stagger = 0.25; // as in RFC 8305, "happy eyeballs"

enum { MAX_GUESTS = 64 };

/* What a child says first, with the parent's token, and what the parent answers, with the child's.
 */
struct hello {
    uint32_t magic, version;
    int32_t rank;
    uint8_t token[LS_WIRE_TOKEN];
};

struct attempt {
    int fd; // -1: not started, or over
    bool connected;
    double started;
    struct sockaddr_storage to;
    struct hello answer;
    size_t got;
    char why[64]; // it is over
};

struct guest {
    int fd;
    double since;
    struct hello hello;
    size_t got;
};

struct meeting {
    const struct ls_wire_control_config *config;
    struct ls_wire_link *links;
    int n_links;
    int listener;
    struct ls_wire_card *cards; // [size]
    struct attempt attempt[LS_WIRE_MAX_ADDRESSES];
    int n_attempts, started;
    struct guest guest[MAX_GUESTS];
    int n_guests;
};

static socklen_t address_size(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static enum ls_status exchange_cards(struct meeting *m, struct ls_error *err)
{
    const struct ls_wire_control_config *c = m->config;
    struct ls_wire_card mine;
    LS_TRY(ls_wire_card_make(&mine, err));
    m->listener = ls_wire_listen(&mine.port);
    if (m->listener < 0)
        return ls_error_errno(err, errno, "cannot listen for other keepers");
    const void *const *all;
    const size_t *bytes;
    LS_TRY(c->exchange(c->arg, &mine, sizeof mine, &all, &bytes, err));
    m->cards = calloc((size_t)c->size, sizeof *m->cards);
    if (!m->cards)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d keepers", c->size);
    for (int k = 0; k < c->size; k++) {
        if (bytes[k] == sizeof mine)
            memcpy(&m->cards[k], all[k], sizeof mine);
        if (m->cards[k].magic != LS_WIRE_MAGIC || m->cards[k].version != LS_WIRE_CARD_VERSION)
            return ls_error_set(
                err, LS_ERR_ENV,
                "keeper %d on %s speaks another version; use one build on all nodes", k,
                c->host[k]);
    }
    return LS_OK;
}

static void tune(int fd)
{
    int on = 1;
    // Small messages in both directions must not wait for each other.
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// ---- as a child ---------------------------------------------------------------------------------

static void give_up(struct attempt *a, const char *why)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    snprintf(a->why, sizeof a->why, "%s", why);
}

static void give_up_errno(struct attempt *a, int why)
{
    char text[64];
    give_up(a, strerror_r(why, text, sizeof text));
}

static void say_hello(struct meeting *m, struct attempt *a)
{
    int why = 0;
    socklen_t n = sizeof why;
    getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &why, &n);
    if (why) {
        give_up_errno(a, why);
        return;
    }
    a->connected = true;
    tune(a->fd);
    struct hello h = {LS_WIRE_MAGIC, LS_WIRE_CARD_VERSION, m->config->rank, {0}};
    memcpy(h.token, m->cards[m->links[0].peer].token, sizeof h.token);
    // A fresh socket takes these few bytes at once.
    if (send(a->fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h)
        give_up_errno(a, errno);
}

static void start_attempt(struct meeting *m, double now)
{
    struct attempt *a = &m->attempt[m->started++];
    a->started = now;
    a->fd = socket(a->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0 ||
        (connect(a->fd, (struct sockaddr *)&a->to, address_size(&a->to)) && errno != EINPROGRESS))
        give_up_errno(a, errno);
}

// Starts the next attempt when it is due, ends those that take too long.
static void tend_attempts(struct meeting *m, double now)
{
    if (m->config->rank == 0 || m->links[0].fd >= 0)
        return;
    bool waiting = false;
    for (int i = 0; i < m->started; i++) {
        struct attempt *a = &m->attempt[i];
        if (a->fd >= 0 && !a->connected && now - a->started > m->config->connect_deadline)
            give_up(a, "no answer");
        waiting = waiting || (a->fd >= 0 && i == m->started - 1 && now - a->started < stagger);
    }
    if (!waiting && m->started < m->n_attempts)
        start_attempt(m, now);
}

static void hear_parent(struct meeting *m, struct attempt *a, double now)
{
    ssize_t n = recv(a->fd, (char *)&a->answer + a->got, sizeof a->answer - a->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        n < 0 ? give_up_errno(a, errno) : give_up(a, "it hung up");
        return;
    }
    a->got += (size_t)n;
    if (a->got < sizeof a->answer)
        return;
    int parent = m->links[0].peer;
    if (a->answer.magic != LS_WIRE_MAGIC || a->answer.rank != parent ||
        memcmp(a->answer.token, m->cards[m->config->rank].token, LS_WIRE_TOKEN) != 0) {
        give_up(a, "someone else answers");
        return;
    }
    ls_wire_link_init(&m->links[0], a->fd, parent, now);
    a->fd = -1;
}

static enum ls_status check_attempts(const struct meeting *m, struct ls_error *err)
{
    const struct ls_wire_control_config *c = m->config;
    if (c->rank == 0 || m->links[0].fd >= 0 || m->started < m->n_attempts)
        return LS_OK;
    char list[640] = "it has no address", address[64];
    size_t at = 0;
    for (int i = 0; i < m->n_attempts; i++) {
        const struct attempt *a = &m->attempt[i];
        if (a->fd >= 0)
            return LS_OK;
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s: %s", i ? "; " : "",
                                   ls_wire_address_text(&a->to, address), a->why);
    }
    int parent = m->links[0].peer;
    return ls_error_set(err, LS_ERR_ENV,
                        "keeper %d on %s cannot reach keeper %d on %s (%s); open TCP between the "
                        "nodes of a job",
                        c->rank, c->host[c->rank], parent, c->host[parent], list);
}

// ---- as a parent --------------------------------------------------------------------------------

static void drop_guest(struct meeting *m, int i)
{
    if (m->guest[i].fd >= 0)
        close(m->guest[i].fd);
    m->guest[i] = m->guest[--m->n_guests];
}

static void accept_guests(struct meeting *m, double now)
{
    for (;;) {
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (m->n_guests == MAX_GUESTS) { // strangers crowd the door: the oldest has had its time
            int oldest = 0;
            for (int i = 1; i < m->n_guests; i++)
                if (m->guest[i].since < m->guest[oldest].since)
                    oldest = i;
            drop_guest(m, oldest);
        }
        tune(fd);
        m->guest[m->n_guests++] = (struct guest){.fd = fd, .since = now};
    }
}

// False: the guest has left, or has become a link.
static bool hear_guest(struct meeting *m, struct guest *g, double now)
{
    ssize_t n = recv(g->fd, (char *)&g->hello + g->got, sizeof g->hello - g->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    g->got += (size_t)n;
    if (g->got < sizeof g->hello)
        return true;
    const struct ls_wire_control_config *c = m->config;
    if (g->hello.magic != LS_WIRE_MAGIC || g->hello.version != LS_WIRE_CARD_VERSION ||
        memcmp(g->hello.token, m->cards[c->rank].token, LS_WIRE_TOKEN) != 0)
        return false;
    for (int i = 1; i < m->n_links; i++) {
        struct ls_wire_link *link = &m->links[i];
        if (link->peer != g->hello.rank || link->fd >= 0)
            continue;
        struct hello h = {LS_WIRE_MAGIC, LS_WIRE_CARD_VERSION, c->rank, {0}};
        memcpy(h.token, m->cards[link->peer].token, sizeof h.token);
        if (send(g->fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h)
            return false;
        ls_wire_link_init(link, g->fd, link->peer, now);
        g->fd = -1;
        return false;
    }
    return false;
}

// ---- the meeting --------------------------------------------------------------------------------

static bool complete(const struct meeting *m)
{
    for (int i = m->config->rank == 0; i < m->n_links; i++)
        if (m->links[i].fd < 0)
            return false;
    return true;
}

static enum ls_status too_late(const struct meeting *m, struct ls_error *err)
{
    const struct ls_wire_control_config *c = m->config;
    int missing = 0, first = -1;
    for (int i = c->rank == 0; i < m->n_links; i++)
        if (m->links[i].fd < 0) {
            missing++;
            first = first < 0 ? m->links[i].peer : first;
        }
    char more[48] = "";
    if (missing > 1)
        snprintf(more, sizeof more, " and %d more", missing - 1);
    return ls_error_set(err, LS_ERR_TIMEOUT,
                        "keeper %d on %s%s did not connect with keeper %d on %s within %g s", first,
                        c->host[first], more, c->rank, c->host[c->rank], c->deadline);
}

static void step(struct meeting *m)
{
    struct pollfd fds[1 + LS_WIRE_MAX_ADDRESSES + MAX_GUESTS];
    struct attempt *who[LS_WIRE_MAX_ADDRESSES];
    int n = 0, n_attempts = 0;
    fds[n++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
    for (int i = 0; i < m->started; i++) {
        struct attempt *a = &m->attempt[i];
        if (a->fd < 0)
            continue;
        who[n_attempts++] = a;
        fds[n++] = (struct pollfd){.fd = a->fd, .events = a->connected ? POLLIN : POLLOUT};
    }
    for (int i = 0; i < m->n_guests; i++)
        fds[n++] = (struct pollfd){.fd = m->guest[i].fd, .events = POLLIN};
    // Short enough for the next attempt and for every deadline.
    if (poll(fds, (nfds_t)n, 50) <= 0)
        return;
    double now = ls_time_monotonic();
    for (int i = n - 1; i > n_attempts; i--) // backwards: dropping moves the last one
        if (fds[i].revents && !hear_guest(m, &m->guest[i - 1 - n_attempts], now))
            drop_guest(m, i - 1 - n_attempts);
    for (int i = 0; i < n_attempts && m->links[0].fd < 0; i++) {
        if (!fds[1 + i].revents)
            continue;
        if (who[i]->connected)
            hear_parent(m, who[i], now);
        else
            say_hello(m, who[i]);
    }
    accept_guests(m, now);
}

static enum ls_status meet(struct meeting *m, struct ls_error *err)
{
    double start = ls_time_monotonic();
    LS_TRY(exchange_cards(m, err));
    const struct ls_wire_control_config *c = m->config;
    if (c->rank > 0) {
        struct sockaddr_storage to[LS_WIRE_MAX_ADDRESSES];
        m->n_attempts = ls_wire_card_routes(&m->cards[c->rank], &m->cards[m->links[0].peer], to,
                                            LS_WIRE_MAX_ADDRESSES);
        for (int i = 0; i < m->n_attempts; i++)
            m->attempt[i] = (struct attempt){.fd = -1, .to = to[i]};
    }
    while (!complete(m)) {
        double now = ls_time_monotonic();
        if (now - start > c->deadline)
            return too_late(m, err);
        tend_attempts(m, now);
        LS_TRY(check_attempts(m, err));
        step(m);
    }
    return LS_OK;
}

enum ls_status ls_wire_connect(const struct ls_wire_control_config *config,
                               struct ls_wire_link *links, int n_links, struct ls_error *err)
{
    struct meeting *m = calloc(1, sizeof *m);
    if (!m)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory to connect keepers");
    m->config = config;
    m->links = links;
    m->n_links = n_links;
    m->listener = -1;
    enum ls_status st = meet(m, err);
    for (int i = 0; i < m->n_attempts; i++)
        if (m->attempt[i].fd >= 0)
            close(m->attempt[i].fd);
    while (m->n_guests)
        drop_guest(m, m->n_guests - 1);
    if (m->listener >= 0)
        close(m->listener);
    free(m->cards);
    free(m);
    return st;
}
