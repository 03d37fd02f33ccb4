/* Unix sockets between the ranks of a node: they pass memory files, and their end tells that a
 * process has ended. Abstract names leave nothing in the file system. */
#include "comm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* First words on a connection: who I am, and that I know the listener's secret. */
struct hello {
    uint64_t nonce[2];
    int32_t local;
};

struct parcel {
    uint64_t tag, bytes;
};

static socklen_t address(const struct ls_comm_socket_name *name, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "lockstep-%016llx%016llx",
                     (unsigned long long)name->nonce[0], (unsigned long long)name->nonce[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

enum ls_status ls_comm_socket_listen(const struct ls_comm_socket_name *name, int backlog, int *fd,
                                     struct ls_error *err)
{
    struct sockaddr_un a;
    socklen_t n = address(name, &a);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&a, n) != 0 || listen(s, backlog) != 0) {
        ls_error_errno(err, errno, "cannot open a Unix socket for the ranks of this node");
        if (s >= 0)
            close(s);
        return LS_ERR_ENV;
    }
    *fd = s;
    return LS_OK;
}

/* Waits for `events`; false at the deadline. */
static bool ready(int fd, short events, double until)
{
    for (;;) {
        double left = until - ls_time_monotonic();
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
        if (n > 0)
            return true;
        if (n == 0 && left <= 0)
            return false;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Only processes of the same user get at the memory of a training run. */
static bool same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static enum ls_status unreachable(struct ls_comm_world *w, int local, const char *why,
                                  struct ls_error *err)
{
    int rank = w->local_rank[local];
    return ls_error_set(
        err, LS_ERR_ENV,
        "rank %d on %s cannot be reached over a Unix socket: %s; ranks with one node "
        "number must run on one machine, as one user, in one network namespace",
        rank, w->host[rank], why);
}

static enum ls_status call(struct ls_comm_world *w, int local,
                           const struct ls_comm_socket_name *name, double until,
                           struct ls_error *err)
{
    struct sockaddr_un a;
    socklen_t n = address(name, &a);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return ls_error_errno(err, errno, "socket");
    /* EAGAIN: the listener's queue is full. */
    while (connect(s, (struct sockaddr *)&a, n) != 0) {
        int e = errno;
        if ((e != EAGAIN && e != EINTR) || ls_time_monotonic() > until) {
            close(s);
            return unreachable(w, local, strerror(e), err);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    struct hello h = {.nonce = {name->nonce[0], name->nonce[1]}, .local = w->me};
    if (!same_user(s) || send(s, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h) {
        close(s);
        return unreachable(w, local, "it belongs to another user, or has closed the connection",
                           err);
    }
    w->sock[local] = s;
    return LS_OK;
}

enum ls_status ls_comm_socket_mesh(struct ls_comm_world *w, int listener,
                                   const struct ls_comm_socket_name *names, struct ls_error *err)
{
    double until = ls_time_monotonic() + w->deadline;
    for (int k = 0; k < w->me; k++)
        LS_TRY(call(w, k, &names[k], until, err));
    for (int missing = w->locals - w->me - 1; missing > 0;) {
        int s = -1;
        if (ready(listener, POLLIN, until))
            s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s < 0 && ls_time_monotonic() < until)
            continue;
        if (s < 0) {
            for (int k = w->me + 1; k < w->locals; k++)
                if (w->sock[k] < 0)
                    return ls_error_set(err, LS_ERR_TIMEOUT,
                                        "rank %d on %s has not connected to rank %d of the same "
                                        "node after %g s",
                                        w->local_rank[k], w->host[w->local_rank[k]], w->rank,
                                        w->deadline);
            break;
        }
        struct hello h;
        if (same_user(s) && ready(s, POLLIN, until) && recv(s, &h, sizeof h, 0) == sizeof h &&
            memcmp(h.nonce, names[w->me].nonce, sizeof h.nonce) == 0 && h.local > w->me &&
            h.local < w->locals && w->sock[h.local] < 0) {
            w->sock[h.local] = s;
            missing--;
        } else {
            close(s); /* a stranger */
        }
    }
    return LS_OK;
}

enum ls_status ls_comm_socket_send(struct ls_comm_world *w, int local, uint64_t tag, uint64_t bytes,
                                   int fd, struct ls_error *err)
{
    struct parcel p = {.tag = tag, .bytes = bytes};
    struct iovec v = {.iov_base = &p, .iov_len = sizeof p};
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    double until = ls_time_monotonic() + w->deadline;
    while (sendmsg(w->sock[local], &m, MSG_NOSIGNAL) < 0) {
        if (errno == EINTR || (errno == EAGAIN && ready(w->sock[local], POLLOUT, until)))
            continue;
        return unreachable(w, local, strerror(errno), err);
    }
    return LS_OK;
}

enum ls_status ls_comm_socket_recv(struct ls_comm_world *w, int local, uint64_t tag, uint64_t bytes,
                                   const char *what, int *fd, struct ls_error *err)
{
    int rank = w->local_rank[local];
    double start = ls_time_monotonic();
    struct parcel p = {0};
    struct iovec v = {.iov_base = &p, .iov_len = sizeof p};
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    for (;;) {
        if (ls_comm_aborted(w))
            return ls_error_set(err, w->error.status, "%s", w->error.message);
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof control.room};
        ssize_t n = recvmsg(w->sock[local], &m, MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
        int got = -1;
        if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof got))
            memcpy(&got, CMSG_DATA(c), sizeof got);
        if (n == sizeof p && got >= 0 && p.tag == tag && p.bytes == bytes) {
            *fd = got;
            return LS_OK;
        }
        if (got >= 0)
            close(got);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return ls_error_set(err, LS_ERR_IO, "%s: rank %d on %s is gone (its process has ended)",
                                what, rank, w->host[rank]);
        if (n > 0)
            return ls_error_set(err, LS_ERR_INTERNAL,
                                "%s: rank %d on %s does something else at this point (%llu bytes "
                                "here, %llu there): all ranks must make the same calls in the same "
                                "order",
                                what, rank, w->host[rank], (unsigned long long)bytes,
                                (unsigned long long)p.bytes);
        if (errno != EAGAIN && errno != EINTR)
            return ls_error_errno(err, errno, "%s: from rank %d on %s", what, rank, w->host[rank]);
        if (ls_time_monotonic() - start > w->deadline)
            return ls_error_set(err, LS_ERR_TIMEOUT, "%s: rank %d on %s has not arrived after %g s",
                                what, rank, w->host[rank], w->deadline);
        /* Short enough to notice an abort soon. */
        ready(w->sock[local], POLLIN, ls_time_monotonic() + 0.02);
    }
}

bool ls_comm_gone(struct ls_comm_world *w, int local)
{
    if (local == w->me)
        return false;
    if (w->sock[local] < 0)
        return true;
    struct pollfd p = {.fd = w->sock[local], .events = POLLIN};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}
