/* The loop's side of communicators, in worlds of processes: the program's collectives, and what rank 0
 * deals out and collects. */
#include "tests/comm/harness.h"
#include "tests/tap.h"
#include "train/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE = 5003, ALL = SLICE * HARNESS_RANKS };

static int open_ranks(struct rank *r, struct ls_ranks *ranks)
{
    *ranks = (struct ls_ranks){.rank = r->rank, .size = r->size, .world = r->world};
    return harness_group(r, "data", &ranks->data);
}

/* What rank `who` puts at place `i`: sums of these are exact. */
static float value(int who, int64_t i)
{
    return (float)((who + 1) * (int)(i % 1000) + who);
}

static float sum(int size, int64_t i)
{
    float s = 0;
    for (int who = 0; who < size; who++)
        s += value(who, i);
    return s;
}

static int finish(struct rank *r, struct ls_exec_comm *comm, const struct ls_collective *c)
{
    void *req = NULL;
    if (comm->start(comm->arg, c, &req, &r->err) != LS_OK)
        return harness_fail(r, "start: %s", r->err.message);
    comm->progress(comm->arg);
    return comm->wait(comm->arg, req, &r->err) == LS_OK
               ? 0
               : harness_fail(r, "wait: %s", r->err.message);
}

/* As a step of ZeRO 1 uses them: everyone's slice of the sum, in place, and from the slices the whole. */
static int collectives(struct rank *r)
{
    struct ls_ranks ranks;
    struct ls_exec_comm comm;
    void *mem;
    if (open_ranks(r, &ranks))
        return 1;
    ls_ranks_exec_comm(&ranks, &comm);
    if (comm.coord[LS_AXIS_DATA] != r->rank)
        return harness_fail(r, "coordinate %d", comm.coord[LS_AXIS_DATA]);
    if (comm.alloc(comm.arg, ALL * 4, &mem, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    int64_t n = (int64_t)SLICE * r->size;
    float *x = mem, *mine = x + (int64_t)SLICE * r->rank;
    struct ls_collective c = {.kind = LS_K_ALL_REDUCE,
                              .axes = 1u << LS_AXIS_DATA,
                              .in = x,
                              .out = x,
                              .count = n,
                              .dtype = LS_F32,
                              .outer = 1};
    for (int64_t i = 0; i < n; i++)
        x[i] = value(r->rank, i);
    if (finish(r, &comm, &c))
        return 1;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != sum(r->size, i))
            return harness_fail(r, "all-reduce: element %lld is %g", (long long)i, (double)x[i]);

    for (int64_t i = 0; i < n; i++)
        x[i] = value(r->rank, i);
    c.kind = LS_K_REDUCE_SCATTER;
    c.out = mine;
    if (finish(r, &comm, &c))
        return 1;
    for (int64_t i = 0; i < SLICE; i++)
        if (mine[i] != sum(r->size, i + (int64_t)SLICE * r->rank))
            return harness_fail(r, "reduce-scatter: element %lld is %g", (long long)i,
                                (double)mine[i]);

    c.kind = LS_K_ALL_GATHER;
    c.in = mine;
    c.out = x;
    c.count = SLICE;
    if (finish(r, &comm, &c))
        return 1;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != sum(r->size, i))
            return harness_fail(r, "all-gather: element %lld is %g", (long long)i, (double)x[i]);

    c.kind = LS_K_ALL_REDUCE;
    c.in = c.out = x;
    c.count = 1;
    c.max = true;
    x[0] = (float)r->rank;
    if (finish(r, &comm, &c))
        return 1;
    if (x[0] != (float)(r->size - 1))
        return harness_fail(r, "maximum: %g", (double)x[0]);
    return ranks.seconds > 0 ? 0 : harness_fail(r, "that took %g s", ranks.seconds);
}

/* What would need slices that are no blocks, another group or another type is refused, before
 * anyone waits for it. */
static int refusals(struct rank *r)
{
    static const struct ls_collective bad[] = {
        {.kind = LS_K_ALL_GATHER,
         .axes = 1u << LS_AXIS_DATA,
         .count = 8,
         .dtype = LS_F32,
         .dim = 1,
         .outer = 2},
        {.kind = LS_K_REDUCE_SCATTER,
         .axes = 1u << LS_AXIS_DATA,
         .count = 1,
         .dtype = LS_F32,
         .outer = 1},
        {.kind = LS_K_ALL_REDUCE,
         .axes = 1u << LS_AXIS_TENSOR,
         .count = 8,
         .dtype = LS_F32,
         .outer = 1},
        {.kind = LS_K_ALL_REDUCE,
         .axes = 1u << LS_AXIS_DATA,
         .count = 8,
         .dtype = LS_I32,
         .outer = 1},
        {.kind = LS_K_SEND, .axes = 1u << LS_AXIS_DATA, .count = 8, .dtype = LS_F32, .outer = 1},
    };
    struct ls_ranks ranks;
    struct ls_exec_comm comm;
    if (open_ranks(r, &ranks))
        return 1;
    ls_ranks_exec_comm(&ranks, &comm);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *req = NULL;
        struct ls_error err = {0};
        if (comm.start(comm.arg, &bad[i], &req, &err) != LS_ERR_UNSUPPORTED || req)
            return harness_fail(r, "case %zu was taken: %s", i, err.message);
    }
    return 0;
}

/* Rank 0 has everything, the others their slice. */
static int deal(struct rank *r)
{
    struct ls_ranks ranks;
    if (open_ranks(r, &ranks))
        return 1;
    bool leads = r->rank == 0;
    int64_t n = leads ? (int64_t)SLICE * r->size : SLICE, at = (int64_t)SLICE * r->rank;
    float *x = calloc((size_t)n, sizeof *x);
    int bad = 0;
    for (int64_t i = 0; leads && i < n; i++)
        x[i] = value(0, i);
    if (ls_ranks_deal(&ranks, x, SLICE * 4, false, &r->err) != LS_OK)
        bad = harness_fail(r, "deal: %s", r->err.message);
    for (int64_t i = 0; i < n && !bad; i++)
        if (x[i] != value(0, at + i))
            bad = harness_fail(r, "deal: element %lld is %g", (long long)i, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        x[i] = i < SLICE ? value(r->rank + 5, at + i) : -1;
    if (!bad && ls_ranks_deal(&ranks, x, SLICE * 4, true, &r->err) != LS_OK)
        bad = harness_fail(r, "collect: %s", r->err.message);
    for (int64_t i = 0; i < n && !bad; i++)
        if (x[i] != value((int)((at + i) / SLICE) + 5, at + i))
            bad = harness_fail(r, "collect: element %lld is %g", (long long)i, (double)x[i]);
    free(x);
    return bad;
}

static void check(const char *layout, int (*fn)(struct rank *), const char *what)
{
    if (!harness_can(layout))
        return;
    struct harness *h = harness_new(layout);
    bool ok = harness_run(h, 30, fn, NULL) == 0;
    tap_ok(ok, "layout %s: %s", layout, what);
    for (int i = 0; !ok && layout[i]; i++)
        tap_note("rank %d: %s", i, harness_message(h, i));
    harness_free(h);
}

int main(void)
{
    static const char *const layouts[] = {"0", "00", "000", "0000", "01", "0011", "01201"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        check(layouts[i], collectives, "the collectives of a step of ZeRO 1");
        check(layouts[i], deal, "slices are dealt out, and collected");
    }
    check("00", refusals, "what cannot run is refused");
    return tap_done();
}
