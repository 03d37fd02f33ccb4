/* The control channel's life: opening, the sockets, the clock, closing. What messages mean stands
 * in tree.c, how the tree is connected in connect.c. One thread, nothing blocks between open and
 * close. */
#include "wire/connect.h"
#include "wire/tree.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FANOUT = 32, FRAMES_PER_TURN = 64 };
// Messages at the end are small and peers are polling: this is for one that is stuck.
static const double close_wait = 2;

static void free_control(struct ls_wire_control *c)
{
    for (int i = 0; c->link && i < c->n_links; i++)
        ls_wire_link_close(&c->link[i]);
    for (int k = 0; c->host && k < c->size; k++)
        free(c->host[k]);
    for (struct ls_wire_gather *g = c->gathers, *next; g; g = next) {
        next = g->next;
        free(g->data);
        free(g);
    }
    ls_wire_queue_free(&c->queue);
    if (c->epoll >= 0)
        close(c->epoll);
    free(c->held);
    free(c->echo);
    free(c->ended);
    free(c->broken);
    free(c->link);
    free(c->host);
    free(c);
}

static bool allocate(struct ls_wire_control *c, const struct ls_wire_control_config *config)
{
    int first = c->fanout * c->rank + 1, children = 0;
    if (first < c->size)
        children = c->size - first < c->fanout ? c->size - first : c->fanout;
    c->n_links = 1 + children;
    c->link = calloc((size_t)c->n_links, sizeof *c->link);
    c->broken = calloc((size_t)c->n_links, sizeof *c->broken);
    c->host = calloc((size_t)c->size, sizeof *c->host);
    c->ended = calloc((size_t)c->size, sizeof *c->ended);
    if (!c->link || !c->broken || !c->host || !c->ended)
        return false;
    for (int k = 0; k < c->size; k++)
        if (!(c->host[k] = strdup(config->host[k])))
            return false;
    for (int i = 0; i < c->n_links; i++)
        ls_wire_link_init(&c->link[i], -1, i ? first + i - 1 : (c->rank - 1) / c->fanout, 0);
    return true;
}

static enum ls_status connect_tree(struct ls_wire_control *c,
                                   const struct ls_wire_control_config *config,
                                   struct ls_error *err)
{
    LS_TRY(ls_wire_connect(config, c->link, c->n_links, err));
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0)
        return ls_error_errno(err, errno, "epoll");
    for (int i = 0; i < c->n_links; i++)
        ls_wire_tree_watch(c, i, true);
    return LS_OK;
}

enum ls_status ls_wire_control_open(const struct ls_wire_control_config *config,
                                    struct ls_wire_control **control, struct ls_error *err)
{
    struct ls_wire_control_config full = *config;
    full.connect_deadline = full.connect_deadline > 0 ? full.connect_deadline : 3;
    full.deadline = full.deadline > 0 ? full.deadline : 30;
    full.silence = full.silence > 0 ? full.silence : 15;
    full.fanout = full.fanout > 0 ? full.fanout : 16;
    if (full.fanout > MAX_FANOUT || full.size < 1 || full.size > 1 << 20 || full.rank < 0 ||
        full.rank >= full.size)
        return ls_error_set(err, LS_ERR_INTERNAL, "keeper %d of %d with fan-out %d", full.rank,
                            full.size, full.fanout);
    struct ls_wire_control *c = calloc(1, sizeof *c);
    if (!c)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the control channel");
    c->rank = full.rank;
    c->size = full.size;
    c->fanout = full.fanout;
    c->silence = full.silence;
    c->epoll = -1;
    enum ls_status st = LS_OK;
    if (!allocate(c, &full))
        st = ls_error_set(err, LS_ERR_NOMEM, "no memory for %d keepers", full.size);
    else if (full.size > 1)
        st = connect_tree(c, &full, err);
    if (st != LS_OK) {
        free_control(c);
        return st;
    }
    *control = c;
    return LS_OK;
}

int ls_wire_control_fd(const struct ls_wire_control *control)
{
    return control->epoll;
}

int ls_wire_control_timeout(const struct ls_wire_control *c)
{
    if (c->queue.head)
        return 0;
    double now = ls_time_monotonic(), due = now + 3600;
    bool any = false;
    for (int i = 0; i < c->n_links; i++) {
        const struct ls_wire_link *link = &c->link[i];
        if (c->broken[i])
            return 0;
        if (link->fd < 0)
            continue;
        any = true;
        double speak = link->said + c->silence / 4, lost = link->heard + c->silence;
        due = speak < due ? speak : due;
        due = lost < due ? lost : due;
    }
    if (c->echo && ls_wire_tree_echo_due(c) < due)
        due = ls_wire_tree_echo_due(c);
    if (!any && !c->echo)
        return -1;
    return due <= now ? 0 : (int)((due - now) * 1e3) + 1;
}

static void read_link(struct ls_wire_control *c, int i, int turns)
{
    struct ls_wire_link *link = &c->link[i];
    while (turns-- > 0 && link->fd >= 0) {
        const char *why;
        int got = ls_wire_link_receive(link, &why);
        if (got < 0 && !c->broken[i])
            c->broken[i] = why;
        if (got <= 0)
            return;
        link->heard = ls_time_monotonic();
        ls_wire_tree_handle(c, i);
    }
}

static void tend_link(struct ls_wire_control *c, int i, double now)
{
    struct ls_wire_link *link = &c->link[i];
    if (link->fd < 0)
        return;
    if (!c->broken[i] && now - link->said >= c->silence / 4)
        ls_wire_tree_send(c, i, LS_WIRE_ALIVE, 0, 0, 0, NULL, 0);
    if (!c->broken[i] && now - link->heard >= c->silence)
        c->broken[i] = "it has said nothing for too long, so it or its node stands still";
    if (!c->broken[i])
        return;
    // What it managed to say comes first. It may break further links, not this one again.
    read_link(c, i, 1 << 20);
    const char *why = c->broken[i];
    ls_wire_link_close(link);
    c->broken[i] = NULL;
    ls_wire_tree_lost(c, i, why);
}

void ls_wire_control_io(struct ls_wire_control *c)
{
    struct epoll_event ready[MAX_FANOUT + 1];
    int n = c->epoll < 0 ? 0 : epoll_wait(c->epoll, ready, MAX_FANOUT + 1, 0);
    for (int e = 0; e < n; e++) {
        int i = (int)ready[e].data.u32;
        if (ready[e].events & EPOLLOUT) {
            if (!ls_wire_link_flush(&c->link[i]))
                c->broken[i] = "the connection broke";
            ls_wire_tree_watch(c, i, false);
        }
        if (ready[e].events & ~(uint32_t)EPOLLOUT)
            read_link(c, i, FRAMES_PER_TURN);
    }
    double now = ls_time_monotonic();
    for (int i = 0; i < c->n_links; i++)
        tend_link(c, i, now);
    ls_wire_tree_tick(c, now);
}

struct ls_wire_item *ls_wire_control_take(struct ls_wire_control *c)
{
    return ls_wire_queue_take(&c->queue);
}

void ls_wire_control_hold(struct ls_wire_control *c, struct ls_wire_item *item)
{
    free(c->held);
    c->held = item;
}

// True when nothing is left: all is sent, and the peer has closed, so that it has everything.
static bool say_goodbye(struct ls_wire_link *link, struct pollfd *poll_fd)
{
    char waste[4096];
    if (!ls_wire_link_flush(link))
        return true;
    if (ls_wire_link_pending(link)) {
        *poll_fd = (struct pollfd){.fd = link->fd, .events = POLLOUT};
        return false;
    }
    shutdown(link->fd, SHUT_WR);
    // Closing with unread bytes would take back what the peer has not read yet.
    for (;;) {
        ssize_t n = recv(link->fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0)
            return true;
    }
    *poll_fd = (struct pollfd){.fd = link->fd, .events = POLLIN};
    return false;
}

void ls_wire_control_close(struct ls_wire_control *c)
{
    if (!c)
        return;
    double end = ls_time_monotonic() + close_wait;
    for (;;) {
        struct pollfd fds[MAX_FANOUT + 1];
        nfds_t n = 0;
        for (int i = 0; i < c->n_links; i++)
            if (c->link[i].fd >= 0 && say_goodbye(&c->link[i], &fds[n]))
                ls_wire_link_close(&c->link[i]);
            else if (c->link[i].fd >= 0)
                n++;
        double left = end - ls_time_monotonic();
        if (n == 0 || left <= 0)
            break;
        poll(fds, n, (int)(left * 1e3) + 1);
    }
    free_control(c);
}
