/* Every pair of ranks that a collective over all of them needs has met when the world is open: there, a node that
 * cannot be reached is found in seconds, and named as such. Later it would take the deadline of a collective. */
#include "comm/internal.h"
#include "tests/comm/harness.h"
#include "tests/tap.h"

#include <stdlib.h>

enum { MOST = 300000 };

static int connections(const struct rank *r, bool *with)
{
    int n = 0;
    for (int i = 0; i < r->size; i++)
        n += with[i] = ls_comm_net_connected(r->world->net, i);
    return n;
}

static int reduce_all(struct rank *r, struct ls_comm *c, const char *how, float *x)
{
    static const int64_t counts[] = {1, 2000, 30000, MOST};
    struct ls_comm_request *q;
    if (ls_comm_choose(c, how, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int64_t k = 0; k < counts[i]; k++)
            x[k] = 1;
        if (ls_comm_all_reduce(c, x, x, counts[i], LS_COMM_F32, LS_COMM_SUM, &q, &r->err) !=
                LS_OK ||
            ls_comm_wait(q, &r->err) != LS_OK)
            return harness_fail(r, "%s: %s", how, r->err.message);
        for (int64_t k = 0; k < counts[i]; k++)
            if (x[k] != (float)r->size)
                return harness_fail(r, "%s of %lld: a sum is %g", how, (long long)counts[i],
                                    (double)x[k]);
    }
    return 0;
}

static int meets_nobody_new(struct rank *r)
{
    struct ls_comm *c;
    struct ls_comm_request *q;
    bool at_start[HARNESS_RANKS], at_end[HARNESS_RANKS];
    int before = connections(r, at_start);
    float *x = malloc(MOST * sizeof *x);
    if (!x || harness_group(r, "data", &c))
        return 1;
    static const char *const how[] = {"auto", "halving", "ring", "exchange"};
    int bad = 0, algorithms = r->world->nodes <= LS_COMM_EXCHANGE_NODES ? 4 : 3;
    for (int i = 0; i < algorithms && !bad; i++)
        bad = reduce_all(r, c, how[i], x);
    for (int root = 0; root < r->size && !bad; root++)
        for (int64_t count = 1; count <= MOST && !bad; count *= MOST)
            bad = ls_comm_broadcast(c, x, count, LS_COMM_F32, root, &q, &r->err) != LS_OK ||
                  ls_comm_wait(q, &r->err) != LS_OK;
    free(x);
    if (bad)
        return harness_fail(r, "broadcast: %s", r->err.message);
    /* Nobody leaves while another still looks. */
    harness_barrier(r);
    connections(r, at_end);
    harness_barrier(r);
    for (int i = 0; i < r->size; i++)
        if (at_end[i] != at_start[i])
            return harness_fail(r, "rank %d is first met in a collective", i);
    return before > 0 || r->world->nodes == 1 ? 0 : harness_fail(r, "nobody was met at the start");
}

int main(void)
{
    static const char *const layouts[] = {"01",           "012",        "0123",        "01234",
                                          "012345",       "0123456",    "01234567",    "0011223",
                                          "001122334455", "0123456789", "0123456789:;"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!harness_can(layouts[i]))
            continue;
        struct harness *h = harness_new(layouts[i]);
        tap_ok(harness_run(h, 60, meets_nobody_new, NULL) == 0,
               "layout %s: all who talk to each other have met at the start", layouts[i]);
        harness_free(h);
    }
    return tap_done();
}
