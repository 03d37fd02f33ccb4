/* Test door: an exchange over socket pairs, for processes that this test forks. The parent is the
 * hub: it gathers one blob from everyone and hands all of them to everyone, until they hang up. */
#ifndef TESTS_WIRE_HUB_H
#define TESTS_WIRE_HUB_H

#include "wire/wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HUB_MAX = 64, HUB_BLOB = 8192 };

struct hub_end { // of one process
    int fd, size;
    char blob[HUB_MAX][HUB_BLOB];
    const void *all[HUB_MAX];
    size_t bytes[HUB_MAX];
};

// Called by the hub on every round, to look at the blobs or to spoil them.
typedef void hub_meddle_fn(char blob[][HUB_BLOB], size_t *bytes, int n);

__attribute__((unused)) static bool hub_read(int fd, void *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = read(fd, (char *)to + at, n - at);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

__attribute__((unused)) static bool hub_write(int fd, const void *from, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)from + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

// An ls_wire_exchange_fn.
__attribute__((unused)) static enum ls_status hub_exchange(void *arg, const void *mine, size_t n,
                                                           const void *const **all,
                                                           const size_t **bytes,
                                                           struct ls_error *err)
{
    struct hub_end *end = arg;
    if (n > HUB_BLOB || !hub_write(end->fd, &n, sizeof n) || !hub_write(end->fd, mine, n))
        return ls_error_set(err, LS_ERR_IO, "the hub is gone");
    for (int i = 0; i < end->size; i++) {
        if (!hub_read(end->fd, &end->bytes[i], sizeof n) ||
            !hub_read(end->fd, end->blob[i], end->bytes[i]))
            return ls_error_set(err, LS_ERR_IO, "the hub is gone");
        end->all[i] = end->blob[i];
    }
    *all = end->all;
    *bytes = end->bytes;
    return LS_OK;
}

// One round; false once a process has hung up.
__attribute__((unused)) static bool hub_round(const int *fd, int n, hub_meddle_fn *meddle)
{
    static char blob[HUB_MAX][HUB_BLOB];
    static size_t bytes[HUB_MAX];
    for (int i = 0; i < n; i++)
        if (!hub_read(fd[i], &bytes[i], sizeof bytes[i]) || bytes[i] > HUB_BLOB ||
            !hub_read(fd[i], blob[i], bytes[i]))
            return false;
    if (meddle)
        meddle(blob, bytes, n);
    for (int to = 0; to < n; to++)
        for (int i = 0; i < n; i++) {
            hub_write(fd[to], &bytes[i], sizeof bytes[i]);
            hub_write(fd[to], blob[i], bytes[i]);
        }
    return true;
}

typedef int hub_main_fn(struct hub_end *end, int rank, void *arg);

// Forks `n` processes that run `main` and serves `rounds` of their exchanges. They are killed after
// 60 s by an alarm, so that a hang shows as a failed test.
__attribute__((unused)) static void hub_start(int n, hub_main_fn *main, void *arg, int rounds,
                                              hub_meddle_fn *meddle, pid_t *pid)
{
    static int fd[HUB_MAX];
    fflush(stdout); // or every child prints it again
    for (int i = 0; i < n; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            abort();
        pid[i] = fork();
        if (pid[i] == 0) {
            for (int k = 0; k < i; k++)
                close(fd[k]);
            close(pair[0]);
            alarm(60);
            struct hub_end *end = calloc(1, sizeof *end);
            end->fd = pair[1];
            end->size = n;
            int rc = main(end, i, arg);
            close(end->fd);
            free(end);
            exit(rc);
        }
        close(pair[1]);
        fd[i] = pair[0];
    }
    for (int r = 0; r < rounds && hub_round(fd, n, meddle); r++)
        ;
    for (int i = 0; i < n; i++)
        close(fd[i]);
}

// Exit code, or 128 + signal.
__attribute__((unused)) static int hub_wait(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
