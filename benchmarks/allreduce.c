/* All-reduce of f32 sums between processes of this machine: one line per size, "bytes median_us
 * best_us GB/s". With --nodes, the ranks act as several nodes, which talk over UCX (set
 * UCX_TLS=tcp UCX_NET_DEVICES=lo for the loopback device). Peers print the same:
 * peer_allreduce_mpi.c, peer_allreduce_gloo.py. Before each call, outside the time, every rank writes
 * its buffer, as a backward pass does. With --limit, every rank sums its slice of all buffers into all of
 * them and nobody announces anything or waits: what the memory, the caches and the way between the cores
 * allow at that size. */
#include "comm/comm.h"
#include "comm/reduce.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 16, CARD = 4096, SAMPLES = 400 };

static struct shared {
    _Atomic int arrived, generation;
    size_t bytes[RANKS];
    _Alignas(64) char card[RANKS][CARD];
} * shared;

static int size = 2, nodes = 1;
static bool private_memory;
static char *limit; /* [size][most]: buffers that all ranks see; NULL */
static size_t most;

static enum ls_status exchange(void *arg, const void *mine, size_t n, const void *const **all,
                               const size_t **bytes, struct ls_error *err)
{
    static const void *cards[RANKS];
    int rank = *(int *)arg;
    if (n > CARD)
        return ls_error_set(err, LS_ERR_OVERFLOW, "card of %zu bytes", n);
    memcpy(shared->card[rank], mine, n);
    shared->bytes[rank] = n;
    int generation = atomic_load(&shared->generation);
    if (atomic_fetch_add(&shared->arrived, 1) == size - 1) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
    }
    while (atomic_load(&shared->generation) == generation)
        sched_yield();
    for (int i = 0; i < size; i++)
        cards[i] = shared->card[i];
    *all = cards;
    *bytes = shared->bytes;
    return LS_OK;
}

static bool set_by_user(const char *name)
{
    return getenv(name) != NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void check(enum ls_status status, const struct ls_error *err)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "allreduce: %s\n", err->message);
    exit(1);
}

/* This rank's part of an all-reduce, and no more. */
static void reduce_slice(int64_t n, int rank)
{
    const void *src[RANKS];
    void *dst[RANKS];
    int64_t lo = n * rank / size, hi = n * (rank + 1) / size;
    for (int k = 0; k < size; k++)
        src[k] = dst[k] = (float *)(void *)(limit + (size_t)k * most) + lo;
    ls_comm_reduce(LS_COMM_F32, LS_COMM_SUM, size, src, size, dst, size, hi - lo);
}

static void all_reduce(struct ls_comm *c, float *x, int64_t n, int rank)
{
    struct ls_error err = {0};
    struct ls_comm_request *q;
    if (limit) {
        reduce_slice(n, rank);
        return;
    }
    check(ls_comm_all_reduce(c, x, x, n, LS_COMM_F32, LS_COMM_SUM, &q, &err), &err);
    check(ls_comm_wait(q, &err), &err);
}

static void measure(struct ls_comm *c, float *x, size_t bytes, int rank)
{
    static double sample[SAMPLES];
    struct ls_error err = {0};
    int64_t n = (int64_t)(bytes / sizeof *x);
    /* About a fifth of a second, at most SAMPLES. */
    double guess = (double)bytes / 2e9 + 2e-5;
    int count = (int)(0.2 / guess), warm = 5;
    count = count > SAMPLES ? SAMPLES : count < 7 ? 7 : count;
    for (int i = -warm; i < count; i++) {
        for (int64_t k = 0; k < n; k++)
            x[k] = 1;
        check(ls_comm_barrier(c, &err), &err);
        double start = ls_time_monotonic();
        all_reduce(c, x, n, rank);
        if (i >= 0)
            sample[i] = ls_time_monotonic() - start;
        if (limit)
            check(ls_comm_barrier(c, &err), &err);
    }
    if (x[0] != (float)size || x[n - 1] != (float)size) {
        fprintf(stderr, "allreduce: wrong sum\n");
        exit(1);
    }
    qsort(sample, (size_t)count, sizeof *sample, compare);
    if (rank == 0) {
        double median = sample[count / 2];
        printf("%zu %.2f %.2f %.3f\n", bytes, median * 1e6, sample[0] * 1e6,
               (double)bytes / median / 1e9);
        fflush(stdout);
    }
}

/* One CPU per rank where there are enough, as mpirun does. */
static void bind_to_cpu(int rank)
{
    cpu_set_t have, one;
    if (sched_getaffinity(0, sizeof have, &have) != 0 || CPU_COUNT(&have) < size)
        return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &have) && seen++ == rank) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

static int run(int rank, const size_t *bytes, int nbytes)
{
    int node[RANKS], all[RANKS];
    const char *host[RANKS];
    for (int i = 0; i < size; i++) {
        node[i] = i * nodes / size;
        host[i] = "localhost";
        all[i] = i;
    }
    struct ls_comm_config config = {.rank = rank,
                                    .size = size,
                                    .node = node,
                                    .host = host,
                                    .exchange = exchange,
                                    .arg = &rank,
                                    .deadline = 30,
                                    .connect_deadline = 10,
                                    .is_set = set_by_user};
    bind_to_cpu(rank);
    struct ls_error err = {0};
    struct ls_comm_world *world;
    struct ls_comm *c;
    void *x;
    check(ls_comm_open(&config, &world, &err), &err);
    check(ls_comm_group(world, "all", all, size, &c, &err), &err);
    if (limit) {
        x = limit + (size_t)rank * most;
    } else if (private_memory) {
        x = aligned_alloc(2 << 20, (most + (2 << 20) - 1) / (2 << 20) * (2 << 20));
        if (!x)
            return 1;
        madvise(x, most, MADV_HUGEPAGE);
    } else {
        check(ls_comm_alloc(world, (int64_t)most, &x, &err), &err);
    }
    for (int i = 0; i < nbytes; i++)
        measure(c, x, bytes[i], rank);
    check(ls_comm_barrier(c, &err), &err);
    ls_comm_close(world);
    return 0;
}

/* A buffer for every rank, in huge pages where that can be had, seen by all. */
static char *see_all(void)
{
    enum { HUGE = 2 << 20, COLLAPSE = 25 /* MADV_COLLAPSE, Linux 6.1 */ };
    most = (most + HUGE - 1) / HUGE * HUGE;
    size_t all = (size_t)size * most;
    char *p = mmap(NULL, all + HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p = (char *)(((uintptr_t)p + HUGE - 1) / HUGE * HUGE);
    madvise(p, all, MADV_HUGEPAGE);
    memset(p, 0, all);
    madvise(p, all, COLLAPSE);
    return p;
}

int main(int argc, char **argv)
{
    static const size_t usual[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                   1 << 20, 4 << 20,  16 << 20, 64 << 20};
    size_t given[32];
    int n = 0, status = 0;
    bool wants_limit = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc)
            size = atoi(argv[++i]);
        else if (strcmp(argv[i], "--nodes") == 0 && i + 1 < argc)
            nodes = atoi(argv[++i]);
        else if (strcmp(argv[i], "--private") == 0)
            private_memory = true;
        else if (strcmp(argv[i], "--limit") == 0)
            wants_limit = true;
        else if (n < 32 && atol(argv[i]) >= 4)
            given[n++] = (size_t)atol(argv[i]);
    }
    if (size < 1 || size > RANKS || nodes < 1 || nodes > size) {
        fprintf(stderr,
                "usage: allreduce [--ranks N] [--nodes K] [--private | --limit] [BYTES...]\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (int i = 0; i < (n ? n : 8); i++) {
        size_t bytes = n ? given[i] : usual[i];
        most = bytes > most ? bytes : most;
    }
    if (wants_limit && !(limit = see_all()))
        return 1;
    for (int rank = 1; rank < size; rank++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(run(rank, n ? given : usual, n ? n : 8));
        }
    status = run(0, n ? given : usual, n ? n : 8);
    for (int child; wait(&child) > 0;)
        status |= child != 0;
    return status;
}
