/* Every pair of ranks that a collective over all of them needs has met when the world is open: there, a node that
 * cannot be reached is found in seconds, and named as such. Later it would take the deadline of a collective. */
#include "comm/internal.h"
#include "tests/comm/harness.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    bool all = r->world->nodes <= LS_COMM_EXCHANGE_NODES || r->world->all_meet;
    int bad = 0, algorithms = all ? 4 : 3;
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

/* Two ranks that have not met when the world was opened, as they are on nodes 5 apart of 16. */
enum { ONE = 1, OTHER = 6 };
static const char sixteen[] = "0123456789:;<=>?";

/* `late` seconds pass before ONE sends something to OTHER; a negative number: it never does. */
static int first_meeting(struct rank *r)
{
    int late = *(const int *)r->arg;
    struct ls_comm *c;
    struct ls_comm_request *q;
    int32_t x = r->rank;
    enum ls_status status = LS_OK;
    if (harness_group(r, "data", &c) || ls_comm_barrier(c, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    if ((r->rank == ONE || r->rank == OTHER) &&
        ls_comm_net_connected(r->world->net, ONE + OTHER - r->rank))
        return harness_fail(r, "they have met before");
    if (r->rank == ONE && late >= 0) {
        nanosleep(&(struct timespec){.tv_sec = late}, NULL);
        status = ls_comm_send(c, &x, 1, LS_COMM_I32, OTHER, &q, &r->err);
    } else if (r->rank == OTHER) {
        status = ls_comm_recv(c, &x, 1, LS_COMM_I32, ONE, &q, &r->err);
    }
    if (status == LS_OK && (r->rank == OTHER || (r->rank == ONE && late >= 0)))
        status = ls_comm_wait(q, &r->err);
    harness_barrier(r);
    if (late < 0 && r->rank == OTHER)
        return status == LS_ERR_TIMEOUT && strstr(r->err.message, "rank 1 on n1 has not arrived")
                   ? 0
                   : harness_fail(r, "status %d: %s", (int)status, r->err.message);
    return status == LS_OK && x == (r->rank == OTHER ? ONE : r->rank)
               ? 0
               : harness_fail(r, "has %d; %s", x, r->err.message);
}

static void check_deadline(void)
{
    if (!harness_can(sixteen))
        return;
    struct harness *h = harness_new(sixteen);
    int late = 4, never = -1;
    tap_ok(harness_run(h, 2, first_meeting, &late) == 0,
           "a first meeting has as long as a connection may take");
    harness_connect(h, 5);
    tap_ok(harness_run(h, 2, first_meeting, &never) == 0, "and not longer");
    harness_free(h);
}

static void check_exchange(const char *layout)
{
    if (!harness_can(layout))
        return;
    struct harness *h = harness_new(layout);
    harness_meet_all(h);
    tap_ok(harness_run(h, 60, meets_nobody_new, NULL) == 0,
           "layout %s: where an exchange was asked for, everyone has met at the start", layout);
    harness_free(h);
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
    check_exchange(sixteen);
    check_exchange("00112233445566778899::;;<<==>>??");
    check_deadline();
    return tap_done();
}
