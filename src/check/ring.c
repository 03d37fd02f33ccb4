/* TCP between nodes, on ports that the kernel chooses, as everything does that Lockstep starts: every node
 * connects to the next one, and to the one half of the nodes away; on each connection a clock is read. */
#include "check/internal.h"
#include "wire/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_DEADLINE 1.5 /* for one address; a dropped packet is sent again after 1 s */
#define RING_DEADLINE    5.0
enum { LINKS = 2, ROUTES = 6, PINGS = 8, MAX_WHY = 200 };

/* Out: connecting, then asking for the time. */
struct out_link {
    int to; /* node */
    int fd; /* -1: finished */
    struct sockaddr_storage route[ROUTES];
    int nroute, at;
    double since, sent, best, offset; /* monotonic; wall; smallest round trip; peer - own clock */
    int pings;
    bool connected, ok;
    char why[MAX_WHY];
};
struct ring {
    int nodes, me;
    int *leader; /* [nodes] lowest rank of each */
    struct ls_wire_card card;
    int listener;
    struct out_link out[LINKS];
    int nout;
    int in[2 * LINKS + 4]; /* accepted; strangers may come, too */
    int nin, expected, closed;
};

/* ---- sockets ---- */

static int open_listener(uint16_t *port)
{
    static const int families[] = {AF_INET6, AF_INET};
    for (int i = 0; i < 2; i++) {
        int fd = socket(families[i], SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), off = 0;
        struct sockaddr_storage any = {.ss_family = (sa_family_t)families[i]};
        socklen_t size = i ? sizeof(struct sockaddr_in) : (socklen_t)sizeof(struct sockaddr_in6);
        if (fd < 0)
            continue;
        if (!i)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, (struct sockaddr *)&any, size) == 0 && listen(fd, 16) == 0 &&
            getsockname(fd, (struct sockaddr *)&any, &size) == 0) {
            *port = ntohs(i ? ((struct sockaddr_in *)&any)->sin_port
                            : ((struct sockaddr_in6 *)&any)->sin6_port);
            return fd;
        }
        close(fd);
    }
    return -1;
}

static void note(struct out_link *l, const char *what)
{
    char address[64];
    size_t n = strlen(l->why);
    snprintf(l->why + n, sizeof l->why - n, "%s%s: %s", n ? ", " : "",
             l->at < l->nroute ? ls_wire_address_text(&l->route[l->at], address) : "no address",
             what);
}

static void ping(struct out_link *l)
{
    l->sent = ls_time_wall();
    if (write(l->fd, "t", 1) == 1)
        return;
    note(l, strerror(errno));
    close(l->fd);
    l->fd = -1;
}

/* Starts with the next address, until one does not fail at once. */
static void try_next(struct out_link *l)
{
    for (l->fd = -1; l->at < l->nroute; l->at++) {
        const struct sockaddr_storage *to = &l->route[l->at];
        socklen_t size = to->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                  : (socklen_t)sizeof(struct sockaddr_in6);
        int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        l->since = ls_time_monotonic();
        if (fd >= 0 &&
            (connect(fd, (const struct sockaddr *)to, size) == 0 || errno == EINPROGRESS)) {
            l->fd = fd;
            return;
        }
        note(l, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
}

static void fail_route(struct out_link *l, const char *why)
{
    note(l, why);
    close(l->fd);
    l->at++;
    try_next(l);
}

static void out_ready(struct out_link *l)
{
    if (!l->connected) {
        int error = 0, on = 1;
        socklen_t size = sizeof error;
        getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) {
            fail_route(l, strerror(error));
            return;
        }
        setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        l->connected = true;
        ping(l);
        return;
    }
    double theirs, now = ls_time_wall();
    ssize_t n = read(l->fd, &theirs, sizeof theirs);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n !=
        sizeof theirs) { /* eight bytes do not come in parts; anything else is no peer of ours */
        note(l, n < 0 ? strerror(errno) : "connected, but the peer did not answer");
        close(l->fd);
        l->fd = -1;
        return;
    }
    if (l->pings++ == 0 || now - l->sent < l->best) {
        l->best = now - l->sent;
        l->offset = theirs - (l->sent + now) / 2;
    }
    if (l->pings < PINGS) {
        ping(l);
        return;
    }
    l->ok = true;
    close(l->fd);
    l->fd = -1;
}

static void in_ready(struct ring *r, int i)
{
    char asked[16];
    ssize_t n = read(r->in[i], asked, sizeof asked);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    double now = ls_time_wall();
    if (n > 0 && write(r->in[i], &now, sizeof now) == sizeof now)
        return;
    close(r->in[i]);
    r->in[i] = r->in[--r->nin];
    r->closed++;
}

/* ---- the loop ---- */

static int fill(const struct ring *r, struct pollfd *fds)
{
    int n = 0;
    fds[n++] = (struct pollfd){.fd = r->listener, .events = POLLIN};
    for (int i = 0; i < r->nin; i++)
        fds[n++] = (struct pollfd){.fd = r->in[i], .events = POLLIN};
    for (int i = 0; i < r->nout; i++)
        fds[n++] =
            (struct pollfd){.fd = r->out[i].fd, .events = r->out[i].connected ? POLLIN : POLLOUT};
    return n;
}

static void run(struct ring *r)
{
    double end = ls_time_monotonic() + RING_DEADLINE;
    enum { MOST_IN = sizeof r->in / sizeof *r->in };
    for (int i = 0; i < r->nout; i++)
        try_next(&r->out[i]);
    for (;;) {
        struct pollfd fds[1 + MOST_IN + LINKS];
        int busy = r->closed < r->expected, nin = r->nin, n = fill(r, fds);
        for (int i = 0; i < r->nout; i++)
            busy += r->out[i].fd >= 0;
        double now = ls_time_monotonic();
        if (!busy || now >= end)
            return;
        poll(fds, (nfds_t)n, 50);
        for (int i = nin - 1; i >= 0; i--)
            if (fds[1 + i].revents)
                in_ready(r, i);
        for (int i = 0; i < r->nout; i++) {
            struct out_link *l = &r->out[i];
            if (l->fd >= 0 && fds[1 + nin + i].revents)
                out_ready(l);
            else if (l->fd >= 0 && !l->connected &&
                     ls_time_monotonic() - l->since > CONNECT_DEADLINE)
                fail_route(l, "no answer");
        }
        if (fds[0].revents && r->nin < MOST_IN) {
            int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;
            if (fd >= 0) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                r->in[r->nin++] = fd;
            }
        }
    }
}

static void plan_links(struct ring *r, const void *const *all, const size_t *bytes)
{
    int stride[LINKS] = {1, r->nodes / 2};
    for (int i = 0; i < LINKS && (i == 0 || r->nodes > 3); i++) {
        struct out_link *l = &r->out[r->nout++];
        l->to = (r->me + stride[i]) % r->nodes;
        l->fd = -1;
        struct ls_wire_card card;
        int rank = r->leader[l->to];
        if (bytes[rank] == sizeof card) {
            memcpy(&card, all[rank], sizeof card);
            l->nroute = ls_wire_card_routes(&r->card, &card, l->route, ROUTES);
        }
        if (l->nroute == 0)
            snprintf(l->why, sizeof l->why, "it has no address that can be reached");
    }
    r->expected = r->nout;
}

static void tell(const struct ring *r, struct ls_buf *out)
{
    struct ls_buf port, clock;
    ls_buf_init(&port, 4096);
    ls_buf_init(&clock, 4096);
    for (int i = 0; i < r->nout; i++) {
        const struct out_link *l = &r->out[i];
        if (l->fd >= 0)
            close(l->fd);
        ls_buf_printf(&port, "%d %s\n", l->to,
                      l->ok       ? "ok"
                      : l->why[0] ? l->why
                                  : "no answer in time");
        if (l->ok)
            ls_buf_printf(&clock, "%d %.6f %.6f\n", l->to, l->offset, l->best);
    }
    ls_check_pack_fact(out, "net.port", port.data ? port.data : "");
    ls_check_pack_fact(out, "sys.clock", clock.data ? clock.data : "");
    ls_buf_free(&port);
    ls_buf_free(&clock);
}

void ls_check_ring(const struct ls_check_context *context, struct ls_wire_client *client,
                   struct ls_buf *out)
{
    struct ring *r = calloc(1, sizeof *r);
    struct ls_error err = {0};
    const void *const *all;
    const size_t *bytes;
    (void)context;
    if (!r || !(r->leader = malloc((size_t)client->n_nodes * sizeof *r->leader))) {
        free(r);
        return;
    }
    r->nodes = client->n_nodes;
    r->me = client->node[client->rank];
    for (int rank = client->size - 1; rank >= 0; rank--)
        r->leader[client->node[rank]] = rank;
    bool lead = r->nodes > 1 && r->leader[r->me] == client->rank;
    r->listener = -1;
    if (lead && ls_wire_card_make(&r->card, &err) == LS_OK) {
        r->listener = open_listener(&r->card.port);
        if (r->listener < 0)
            ls_error_errno(&err, errno, "listening on a port that the kernel chooses");
    }
    bool ready = r->listener >= 0;
    enum ls_status status =
        ls_wire_exchange(client, &r->card, ready ? sizeof r->card : 0, &all, &bytes, &err);
    if (lead && ready && status == LS_OK) {
        plan_links(r, all, bytes);
        run(r);
        tell(r, out);
    } else if (lead)
        ls_check_pack(out, "net.port", LS_CHECK_FAIL, "", err.message, "a port to listen on", "");
    else if (r->nodes == 1 && client->rank == 0) {
        ls_check_pack(out, "net.port", LS_CHECK_SKIP, "", "one node", "", "");
        ls_check_pack(out, "sys.clock", LS_CHECK_SKIP, "", "one node", "", "");
    }
    for (int i = 0; i < r->nin; i++)
        close(r->in[i]);
    if (r->listener >= 0)
        close(r->listener);
    free(r->leader);
    free(r);
}
