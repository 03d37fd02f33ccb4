/* Many requests under way at once, in groups that share members, waited for in another order, with
 * computation in between; one-member groups; more requests than slots. */
#include "tests/comm/harness.h"
#include "tests/tap.h"

#include <string.h>

enum { REQUESTS = 24, MOST = 120001 };

static int64_t size_of(int i)
{
    static const int64_t size[] = {1, 1000, 30000, 5, MOST, 2049, 0, 70000};
    return size[i % 8];
}

static int overlapping(struct rank *r)
{
    struct ls_comm *all, *some = NULL, *alone;
    if (harness_group(r, "all", &all))
        return 1;
    int even[HARNESS_RANKS], n = 0;
    for (int i = 0; i < r->size; i += 2)
        even[n++] = i;
    if (r->rank % 2 == 0 && ls_comm_group(r->world, "even", even, n, &some, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    if (ls_comm_group(r->world, "alone", &r->rank, 1, &alone, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    void *shared;
    if (ls_comm_alloc(r->world, (int64_t)REQUESTS * MOST * 4, &shared, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    for (int round = 0; round < 3; round++) {
        float *x[3][REQUESTS];
        struct ls_comm_request *q[3][REQUESTS];
        struct ls_comm *group[3] = {all, some, alone};
        for (int i = 0; i < REQUESTS; i++)
            for (int g = 0; g < 3; g++) {
                if (!group[g])
                    continue;
                int64_t m = size_of(i + g);
                bool arena = g == 0 && i % 3;
                x[g][i] = arena ? (float *)shared + (int64_t)i * MOST : malloc((size_t)(m + 1) * 4);
                for (int64_t k = 0; k < m; k++)
                    x[g][i][k] = (float)(r->rank + 1 + i + (int)(k % 7));
                if (ls_comm_all_reduce(group[g], x[g][i], x[g][i], m, LS_COMM_F32, LS_COMM_SUM,
                                       &q[g][i], &r->err) != LS_OK)
                    return harness_fail(r, "start: %s", r->err.message);
                if ((i + r->rank) % 3 == 0)
                    ls_comm_progress(r->world);
            }
        for (int g = 2; g >= 0; g--)
            for (int k = 0; k < REQUESTS; k++) {
                int i = round == 0   ? REQUESTS - 1 - k
                        : round == 1 ? k
                                     : (k * 7 + r->rank) % REQUESTS;
                if (!group[g])
                    continue;
                if (ls_comm_wait(q[g][i], &r->err) != LS_OK)
                    return harness_fail(r, "wait: %s", r->err.message);
                float sum = 0;
                int members = 0;
                for (int m = 0; m < r->size; m++)
                    if (g == 0 || (g == 1 && m % 2 == 0) || m == r->rank) {
                        if (g == 2 && m != r->rank)
                            continue;
                        sum += (float)(m + 1 + i);
                        members++;
                    }
                for (int64_t e = 0; e < size_of(i + g); e++)
                    if (x[g][i][e] != sum + (float)(members * (int)(e % 7)))
                        return harness_fail(r, "group %d, request %d, element %lld: %g, not %g", g,
                                            i, (long long)e, (double)x[g][i][e],
                                            (double)(sum + (float)(members * (int)(e % 7))));
                if (!(g == 0 && i % 3))
                    free(x[g][i]);
            }
    }
    if (ls_comm_barrier(all, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    if (some)
        ls_comm_group_close(some);
    return 0;
}

/* A pipeline: each passes to the next what it got, while collectives run beside it. */
static int pipeline(struct rank *r)
{
    struct ls_comm *c;
    if (harness_group(r, "stages", &c))
        return 1;
    enum { N = 100000, ROUNDS = 6 };
    float *a = malloc(sizeof *a * N), sum;
    struct ls_comm_request *q, *p;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < N; k++)
            a[k] = (float)(i * 1000 + k % 100);
        sum = 1;
        if (ls_comm_all_reduce(c, &sum, &sum, 1, LS_COMM_F32, LS_COMM_SUM, &p, &r->err) != LS_OK)
            return harness_fail(r, "%s", r->err.message);
        if (r->rank > 0 && (ls_comm_recv(c, a, N, LS_COMM_F32, r->rank - 1, &q, &r->err) != LS_OK ||
                            ls_comm_wait(q, &r->err) != LS_OK))
            return harness_fail(r, "%s", r->err.message);
        for (int k = 0; k < N; k++) {
            if (a[k] != (float)(i * 1000 + k % 100 + r->rank))
                return harness_fail(r, "round %d, element %d: %g", i, k, (double)a[k]);
            a[k] += 1;
        }
        if (r->rank < r->size - 1 &&
            (ls_comm_send(c, a, N, LS_COMM_F32, r->rank + 1, &q, &r->err) != LS_OK ||
             ls_comm_wait(q, &r->err) != LS_OK))
            return harness_fail(r, "%s", r->err.message);
        if (ls_comm_wait(p, &r->err) != LS_OK)
            return harness_fail(r, "%s", r->err.message);
        if (sum != (float)r->size)
            return harness_fail(r, "sum %g", (double)sum);
    }
    free(a);
    return ls_comm_barrier(c, &r->err) == LS_OK ? 0 : harness_fail(r, "%s", r->err.message);
}

/* Said by lockstep plan: must name what runs. */
static int described(struct rank *r)
{
    struct ls_comm *c;
    char text[96];
    if (harness_group(r, "data", &c))
        return 1;
    const char *want = *(const char *const *)r->arg;
    ls_comm_describe(c, 1 << 20, text);
    return strcmp(text, want) == 0 ? 0 : harness_fail(r, "\"%s\", expected \"%s\"", text, want);
}

static void explained(void)
{
    static const struct {
        enum ls_comm_kind kind;
        int n, nodes;
        const char *algorithm;
        int64_t bytes;
        const char *want; /* NULL: refused */
    } table[] = {
        {LS_COMM_ALL_REDUCE, 1, 1, "auto", 100, "one rank, nothing to do"},
        {LS_COMM_ALL_REDUCE, 4, 1, "auto", 8192, "shared memory, one hop"},
        {LS_COMM_ALL_REDUCE, 4, 1, "staged", 8196, "shared memory, staged"},
        {LS_COMM_ALL_REDUCE, 4, 1, "ring", 8196, "shared memory, direct"},
        {LS_COMM_ALL_REDUCE, 4, 4, "auto", 4096,
         "ucx exchange over 4 nodes, 1 lane of 1 segment of 4.0 KiB"},
        {LS_COMM_ALL_REDUCE, 4, 4, "auto", 65536,
         "ucx halving and doubling over 4 nodes, 1 lane of 1 segment of 64.0 KiB"},
        {LS_COMM_ALL_REDUCE, 8, 4, "ring", 65536,
         "ucx ring over 4 nodes, 1 lane of 1 segment of 64.0 KiB"},
        {LS_COMM_REDUCE_SCATTER, 4, 4, "halving", 1 << 20,
         "ucx ring over 4 nodes, 1 lane of 9 segments of 120.0 KiB"},
        {LS_COMM_ALL_GATHER, 4, 4, "auto", 4096,
         "ucx exchange over 4 nodes, 1 lane of 1 segment of 4.0 KiB"},
        {LS_COMM_ALL_REDUCE, 2, 3, "auto", 4096, NULL},
        {LS_COMM_ALL_REDUCE, 4, 2, "rign", 4096, NULL},
        {LS_COMM_SEND, 4, 2, "auto", 4096, NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[96] = "";
        struct ls_error err = {0};
        enum ls_status st = ls_comm_explain(table[i].kind, table[i].n, table[i].nodes,
                                            table[i].algorithm, table[i].bytes, text, &err);
        bool ok = table[i].want ? st == LS_OK && !strcmp(text, table[i].want) : st == LS_ERR_USAGE;
        if (!tap_ok(ok, "explained: %d ranks on %d nodes, %s, %lld bytes", table[i].n,
                    table[i].nodes, table[i].algorithm, (long long)table[i].bytes))
            tap_note("got %d, \"%s\" %s", (int)st, text, err.message);
    }
}

int main(void)
{
    explained();
    static const char *const layouts[] = {"0", "00", "0000", "01", "0011", "01201"};
    for (int i = 0; i < 6; i++) {
        if (!harness_can(layouts[i]))
            continue;
        struct harness *h = harness_new(layouts[i]);
        tap_ok(harness_run(h, 60, overlapping, NULL) == 0,
               "layout %s: %d requests in three groups at once", layouts[i], REQUESTS);
        tap_ok(harness_run(h, 60, pipeline, NULL) == 0, "layout %s: a pipeline beside collectives",
               layouts[i]);
        harness_free(h);
    }
    static const struct {
        const char *layout, *text;
    } says[] = {
        {"0", "one rank, nothing to do"},
        {"00", "shared memory, direct"},
        {"01", "ucx ring over 2 nodes, 1 lane of 9 segments of 120.0 KiB"},
        {"0011", "ucx ring over 2 nodes, 2 lanes of 5 segments of 120.0 KiB"},
    };
    for (int i = 0; i < 4; i++) {
        if (!harness_can(says[i].layout))
            continue;
        struct harness *h = harness_new(says[i].layout);
        tap_ok(harness_run(h, 60, described, (void *)(uintptr_t)&says[i].text) == 0,
               "layout %s: %s", says[i].layout, says[i].text);
        harness_free(h);
    }
    return tap_done();
}
