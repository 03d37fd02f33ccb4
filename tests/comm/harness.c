/* See harness.h. */
#include "tests/comm/harness.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct harness {
    int size, doomed;
    bool all_meet;
    double connect_deadline;
    int node[HARNESS_RANKS];
    pid_t pid[HARNESS_RANKS];
    int status[HARNESS_RANKS];
    char message[HARNESS_RANKS][1200];
    _Atomic int told[HARNESS_RANKS];
    _Atomic int arrived, generation;
    size_t bytes[HARNESS_RANKS];
    _Alignas(64) char card[HARNESS_RANKS][HARNESS_CARD];
};

bool harness_can(const char *layout)
{
#ifdef LS_TEST_NO_UCX
    for (const char *p = layout; *p; p++)
        if (*p != layout[0]) {
            printf("# SKIP layout %s: this build has no UCX\n", layout);
            return false;
        }
#endif
    (void)layout;
    return true;
}

struct harness *harness_new(const char *layout)
{
    struct harness *h =
        mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h == MAP_FAILED)
        abort();
    h->doomed = -1;
    h->connect_deadline = 20; /* 3 is usual; busy test machines are not */
    for (; layout[h->size]; h->size++)
        h->node[h->size] = layout[h->size] - '0';
    return h;
}

void harness_doom(struct harness *h, int rank)
{
    h->doomed = rank;
    h->connect_deadline = 1;
}

void harness_meet_all(struct harness *h)
{
    h->all_meet = true;
}

void harness_connect(struct harness *h, double deadline)
{
    h->connect_deadline = deadline;
}

void harness_free(struct harness *h)
{
    munmap(h, sizeof *h);
}

static bool meet(struct harness *h)
{
    int generation = atomic_load(&h->generation);
    double until = ls_time_monotonic() + 30;
    if (atomic_fetch_add(&h->arrived, 1) == h->size - 1) {
        atomic_store(&h->arrived, 0);
        atomic_fetch_add(&h->generation, 1);
        return true;
    }
    while (atomic_load(&h->generation) == generation) {
        sched_yield();
        if (ls_time_monotonic() > until)
            return false;
    }
    return true;
}

void harness_barrier(struct rank *r)
{
    if (!meet(r->shared))
        abort();
}

struct exchange {
    struct harness *h;
    int rank;
    const void *all[HARNESS_RANKS];
};

static enum ls_status exchange(void *arg, const void *mine, size_t n, const void *const **all,
                               const size_t **bytes, struct ls_error *err)
{
    struct exchange *x = arg;
    struct harness *h = x->h;
    if (n > HARNESS_CARD)
        return ls_error_set(err, LS_ERR_OVERFLOW, "card of %zu bytes", n);
    memcpy(h->card[x->rank], mine, n);
    h->bytes[x->rank] = n;
    if (!meet(h))
        return ls_error_set(err, LS_ERR_TIMEOUT, "exchange");
    if (x->rank == h->doomed)
        _exit(9);
    for (int i = 0; i < h->size; i++)
        x->all[i] = h->card[i];
    *all = x->all;
    *bytes = h->bytes;
    return LS_OK;
}

static int child(struct harness *h, int rank, double deadline, int (*fn)(struct rank *), void *arg)
{
    struct rank r = {.shared = h, .rank = rank, .size = h->size, .arg = arg};
    struct exchange x = {.h = h, .rank = rank};
    static const char *const name[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"};
    const char *host[HARNESS_RANKS];
    for (int i = 0; i < h->size; i++)
        host[i] = name[h->node[i] % 8];
    struct ls_comm_config config = {
        .rank = rank,
        .size = h->size,
        .node = h->node,
        .host = host,
        .exchange = exchange,
        .arg = &x,
        .deadline = deadline,
        .connect_deadline = h->connect_deadline,
        .all_meet = h->all_meet,
    };
    setenv("UCX_TLS", "tcp", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    setenv("UCX_LOG_LEVEL", "error", 0);
    alarm(120);
    if (ls_comm_open(&config, &r.world, &r.err) != LS_OK) {
        harness_fail(&r, "open: %s", r.err.message);
        return (int)r.err.status;
    }
    int code = fn(&r);
    ls_comm_close(r.world);
    return code;
}

void harness_start(struct harness *h, double deadline, int (*fn)(struct rank *), void *arg)
{
    fflush(stdout);
    memset(h->message, 0, sizeof h->message);
    memset(h->told, 0, sizeof h->told);
    h->arrived = 0;
    for (int i = 0; i < h->size; i++) {
        pid_t pid = fork();
        if (pid < 0)
            abort();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(child(h, i, deadline, fn, arg));
        }
        h->pid[i] = pid;
    }
}

int harness_wait(struct harness *h)
{
    int bad = 0;
    for (int i = 0; i < h->size; i++) {
        waitpid(h->pid[i], &h->status[i], 0);
        bad += h->status[i] != 0;
    }
    return bad;
}

int harness_run(struct harness *h, double deadline, int (*fn)(struct rank *), void *arg)
{
    harness_start(h, deadline, fn, arg);
    int bad = harness_wait(h);
    for (int i = 0; i < h->size; i++)
        if (h->status[i])
            printf("# rank %d: status %#x: %s\n", i, h->status[i], h->message[i]);
    return bad;
}

pid_t harness_pid(const struct harness *h, int rank)
{
    return h->pid[rank];
}

int harness_status(const struct harness *h, int rank)
{
    return h->status[rank];
}

int harness_fail(struct rank *r, const char *fmt, ...)
{
    char *to = r->shared->message[r->rank];
    if (to[0])
        return 1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(to, sizeof r->shared->message[0], fmt, ap);
    va_end(ap);
    return 1;
}

const char *harness_message(const struct harness *h, int rank)
{
    return h->message[rank];
}

void harness_tell(struct rank *r, int value)
{
    atomic_store(&r->shared->told[r->rank], value);
}

int harness_told(const struct harness *h, int rank)
{
    return atomic_load(&((struct harness *)(uintptr_t)h)->told[rank]);
}

int harness_group(struct rank *r, const char *name, struct ls_comm **comm)
{
    int all[HARNESS_RANKS];
    for (int i = 0; i < r->size; i++)
        all[i] = i;
    if (ls_comm_group(r->world, name, all, r->size, comm, &r->err) != LS_OK)
        return harness_fail(r, "group: %s", r->err.message);
    return 0;
}
