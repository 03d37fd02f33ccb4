/* Frames over a non-blocking socket: partial reads and writes, nothing else. */
#include "wire/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// A peer that takes nothing is declared lost by its silence long before this much is queued.
static const size_t max_queued = 4 * (size_t)LS_WIRE_FRAME_MAX;

void ls_wire_link_init(struct ls_wire_link *link, int fd, int peer, double now)
{
    *link = (struct ls_wire_link){.fd = fd, .peer = peer, .heard = now, .said = now};
}

void ls_wire_link_close(struct ls_wire_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    free(link->body);
    free(link->out);
    *link = (struct ls_wire_link){.fd = -1, .peer = link->peer};
}

bool ls_wire_link_pending(const struct ls_wire_link *link)
{
    return link->out_end > link->out_at;
}

bool ls_wire_link_flush(struct ls_wire_link *link)
{
    while (ls_wire_link_pending(link)) {
        ssize_t n = send(link->fd, link->out + link->out_at, link->out_end - link->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n < 0)
            return false;
        link->out_at += (size_t)n;
    }
    link->out_at = link->out_end = 0;
    return true;
}

static bool make_room(struct ls_wire_link *link, size_t n)
{
    if (link->out_at) {
        memmove(link->out, link->out + link->out_at, link->out_end - link->out_at);
        link->out_end -= link->out_at;
        link->out_at = 0;
    }
    if (n > max_queued || link->out_end > max_queued - n)
        return false;
    size_t need = link->out_end + n, cap = link->out_cap ? link->out_cap : 4096;
    if (need <= link->out_cap)
        return true;
    while (cap < need)
        cap *= 2;
    char *grown = realloc(link->out, cap);
    if (!grown)
        return false;
    link->out = grown;
    link->out_cap = cap;
    return true;
}

bool ls_wire_link_send(struct ls_wire_link *link, uint32_t type, int a, int b, int c,
                       const void *data, size_t n)
{
    struct ls_wire_head head = {LS_WIRE_MAGIC, type, (uint32_t)n, a, b, c};
    if (link->fd < 0 || n > LS_WIRE_FRAME_MAX || !make_room(link, sizeof head + n))
        return false;
    memcpy(link->out + link->out_end, &head, sizeof head);
    if (n)
        memcpy(link->out + link->out_end + sizeof head, data, n);
    link->out_end += sizeof head + n;
    return ls_wire_link_flush(link);
}

static bool take_head(struct ls_wire_link *link, const char **why)
{
    if (link->head.magic != LS_WIRE_MAGIC || link->head.n > LS_WIRE_FRAME_MAX) {
        *why = "it sent something that is not a frame";
        return false;
    }
    free(link->body);
    link->body = malloc((size_t)link->head.n + 1);
    if (!link->body) {
        *why = "out of memory";
        return false;
    }
    // Texts may be used as strings.
    link->body[link->head.n] = '\0';
    return true;
}

int ls_wire_link_receive(struct ls_wire_link *link, const char **why)
{
    const size_t head = sizeof link->head;
    if (link->got >= head && link->got == head + link->head.n)
        link->got = 0;
    for (;;) {
        if (link->got >= head && link->got == head + link->head.n)
            return 1;
        char *to =
            link->got < head ? (char *)&link->head + link->got : link->body + link->got - head;
        size_t want = link->got < head ? head - link->got : head + link->head.n - link->got;
        ssize_t n = recv(link->fd, to, want, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n <= 0) {
            *why = n == 0 ? "it closed the connection, so it was killed or its node is lost"
                          : "the connection broke";
            return -1;
        }
        link->got += (size_t)n;
        if (link->got == head && !take_head(link, why))
            return -1;
    }
}
