/* Every collective, type, op, layout and size against a reference in double, with the buffers in
 * shared arenas and outside, in place and not; equal bits on all members, and in a second run. */
#include "tests/comm/harness.h"
#include "tests/comm/numbers.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

enum { MEMORY = 16 << 20 };

struct kit {
    struct rank *r;
    struct ls_comm *c;
    int n, me;
    char *in[2], *out[2]; /* shared arena, private */
    double *want;
    int cases;
};

static uint64_t checksum(const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = 14695981039346656037ULL;
    size_t i = 0;
    for (uint64_t w; i + 8 <= n; i += 8) {
        memcpy(&w, b + i, 8);
        h = (h ^ w) * 1099511628211ULL;
        h ^= h >> 29;
    }
    for (; i < n; i++)
        h = (h ^ b[i]) * 1099511628211ULL;
    return h;
}

/* All members must have the same bits: compared through the library's own all-gather of 8 bytes. */
static int same_everywhere(struct kit *k, const void *p, size_t n, const char *what)
{
    uint64_t mine = checksum(p, n), all[HARNESS_RANKS];
    struct ls_comm_request *q;
    if (ls_comm_all_gather(k->c, &mine, all, 1, LS_COMM_U64, &q, &k->r->err) != LS_OK ||
        ls_comm_wait(q, &k->r->err) != LS_OK)
        return harness_fail(k->r, "%s: %s", what, k->r->err.message);
    for (int i = 0; i < k->n; i++)
        if (all[i] != mine)
            return harness_fail(k->r, "%s: members %d and %d have different bits", what, k->me, i);
    return 0;
}

static int all_reduce(struct kit *k, int shared, bool in_place, int64_t n, enum ls_comm_type t,
                      enum ls_comm_op op)
{
    char what[128];
    snprintf(what, sizeof what, "all-reduce of %lld %s, op %d, %s%s", (long long)n, number_name(t),
             op, shared ? "arena" : "private", in_place ? ", in place" : "");
    char *in = k->in[shared], *out = in_place ? in : k->out[shared];
    size_t bytes = (size_t)(n * number_size(t));
    uint64_t bits[2] = {0};
    for (int round = 0; round < 2; round++) {
        numbers_fill(in, n, t, k->me, 1);
        if (!in_place)
            memset(out, 0xee, bytes + 8);
        struct ls_comm_request *q;
        if (ls_comm_all_reduce(k->c, in, out, n, t, op, &q, &k->r->err) != LS_OK ||
            ls_comm_wait(q, &k->r->err) != LS_OK)
            return harness_fail(k->r, "%s: %s", what, k->r->err.message);
        bits[round] = checksum(out, bytes);
    }
    if (bits[0] != bits[1])
        return harness_fail(k->r, "%s: two runs differ", what);
    numbers_reduce(k->want, n, t, op, k->n, 0, 1);
    int64_t bad = numbers_compare(out, k->want, n, t, op, k->n);
    if (bad >= 0)
        return harness_fail(k->r, "%s: element %lld is %g, expected %g", what, (long long)bad,
                            number_at(out, bad, t), k->want[bad]);
    if (!in_place && n && (unsigned char)out[bytes] != 0xee)
        return harness_fail(k->r, "%s: wrote past the end", what);
    k->cases++;
    return same_everywhere(k, out, bytes, what);
}

static int reduce_scatter(struct kit *k, int shared, bool in_place, int64_t n, enum ls_comm_type t,
                          enum ls_comm_op op)
{
    char what[128];
    snprintf(what, sizeof what, "reduce-scatter of %lld %s, op %d, %s%s", (long long)n,
             number_name(t), op, shared ? "arena" : "private", in_place ? ", in place" : "");
    char *in = k->in[shared];
    char *out = in_place ? in + k->me * n * number_size(t) : k->out[shared];
    numbers_fill(in, n * k->n, t, k->me, 2);
    struct ls_comm_request *q;
    double squares = -1, want = 0;
    if (ls_comm_reduce_scatter(k->c, in, out, n, t, op, t == LS_COMM_F32 ? &squares : NULL, &q,
                               &k->r->err) != LS_OK ||
        ls_comm_wait(q, &k->r->err) != LS_OK)
        return harness_fail(k->r, "%s: %s", what, k->r->err.message);
    for (int64_t i = 0; i < n && t == LS_COMM_F32; i++)
        want += number_at(out, i, t) * number_at(out, i, t);
    bool same = isfinite(want) ? fabs(squares - want) <= 1e-12 * want
                               : isnan(squares) == isnan(want) && isinf(squares) == isinf(want);
    if (t == LS_COMM_F32 && !same)
        return harness_fail(k->r, "%s: the sum of squares is %.17g, expected %.17g", what, squares,
                            want);
    numbers_reduce(k->want, n, t, op, k->n, n * k->me, 2);
    int64_t bad = numbers_compare(out, k->want, n, t, op, k->n);
    if (bad >= 0)
        return harness_fail(k->r, "%s: element %lld is %g, expected %g", what, (long long)bad,
                            number_at(out, bad, t), k->want[bad]);
    k->cases++;
    return 0;
}

static int all_gather(struct kit *k, int shared, bool in_place, int64_t n, enum ls_comm_type t)
{
    char what[128];
    snprintf(what, sizeof what, "all-gather of %lld %s, %s%s", (long long)n, number_name(t),
             shared ? "arena" : "private", in_place ? ", in place" : "");
    int64_t bytes = n * number_size(t);
    char *out = k->out[shared], *in = in_place ? out + k->me * bytes : k->in[shared];
    memset(out, 0xee, (size_t)(bytes * k->n));
    numbers_fill(in, n, t, k->me, 3);
    struct ls_comm_request *q;
    if (ls_comm_all_gather(k->c, in, out, n, t, &q, &k->r->err) != LS_OK ||
        ls_comm_wait(q, &k->r->err) != LS_OK)
        return harness_fail(k->r, "%s: %s", what, k->r->err.message);
    char *want = k->in[0]; /* private memory that is free now */
    for (int i = 0; i < k->n; i++) {
        numbers_fill(want, n, t, i, 3);
        if (n && memcmp(out + i * bytes, want, (size_t)bytes) != 0)
            return harness_fail(k->r, "%s: block %d is wrong", what, i);
    }
    k->cases++;
    return 0;
}

static int broadcast(struct kit *k, int shared, int64_t n, enum ls_comm_type t, int root)
{
    char what[128];
    snprintf(what, sizeof what, "broadcast of %lld %s from %d, %s", (long long)n, number_name(t),
             root, shared ? "arena" : "private");
    int64_t bytes = n * number_size(t);
    char *buf = k->out[shared];
    if (k->me == root)
        numbers_fill(buf, n, t, root, 4);
    else
        memset(buf, 0xee, (size_t)bytes);
    struct ls_comm_request *q;
    if (ls_comm_broadcast(k->c, buf, n, t, root, &q, &k->r->err) != LS_OK ||
        ls_comm_wait(q, &k->r->err) != LS_OK)
        return harness_fail(k->r, "%s: %s", what, k->r->err.message);
    numbers_fill(k->in[0], n, t, root, 4);
    if (n && memcmp(buf, k->in[0], (size_t)bytes) != 0)
        return harness_fail(k->r, "%s: wrong", what);
    k->cases++;
    return 0;
}

static int send_recv(struct kit *k, int shared, int64_t n)
{
    /* Around a ring, both directions at once, several under way. */
    char what[128];
    snprintf(what, sizeof what, "send and receive of %lld f32, %s", (long long)n,
             shared ? "arena" : "private");
    if (k->n == 1)
        return 0;
    int right = (k->me + 1) % k->n, left = (k->me + k->n - 1) % k->n;
    struct ls_comm_request *q[8];
    float *in = (float *)(void *)k->in[shared], *out = (float *)(void *)k->out[shared];
    numbers_fill(in, 2 * n, LS_COMM_F32, k->me, 5);
    struct ls_error *err = &k->r->err;
    if (ls_comm_send(k->c, in, n, LS_COMM_F32, right, &q[0], err) != LS_OK ||
        ls_comm_send(k->c, in + n, n, LS_COMM_F32, right, &q[1], err) != LS_OK ||
        ls_comm_send(k->c, in, n, LS_COMM_F32, left, &q[2], err) != LS_OK ||
        ls_comm_recv(k->c, out, n, LS_COMM_F32, left, &q[3], err) != LS_OK ||
        ls_comm_recv(k->c, out + n, n, LS_COMM_F32, left, &q[4], err) != LS_OK ||
        ls_comm_recv(k->c, out + 2 * n, n, LS_COMM_F32, right, &q[5], err) != LS_OK)
        return harness_fail(k->r, "%s: %s", what, err->message);
    for (int i = 5; i >= 0; i--)
        if (ls_comm_wait(q[i], err) != LS_OK)
            return harness_fail(k->r, "%s: %s", what, err->message);
    float *want = (float *)(void *)k->in[0];
    numbers_fill(want, 2 * n, LS_COMM_F32, left, 5);
    /* With two members both directions meet in one pair of queues: order is by start. */
    if (n && memcmp(out, want, (size_t)(2 * n) * sizeof *out) != 0)
        return harness_fail(k->r, "%s: wrong from the left", what);
    numbers_fill(want, n, LS_COMM_F32, right, 5);
    if (n && memcmp(out + 2 * n, want, (size_t)n * sizeof *out) != 0)
        return harness_fail(k->r, "%s: wrong from the right", what);
    k->cases++;
    return 0;
}

struct plan {
    const char *algorithm;
    const int64_t *sizes;
    int nsizes;
    bool brief; /* f32 sums only, beside all types at one size */
};

static int run(struct rank *r)
{
    const struct plan *plan = r->arg;
    struct kit k = {.r = r, .n = r->size, .me = r->rank};
    int bad = harness_group(r, "all", &k.c);
    if (bad)
        return bad;
    void *mem[2];
    for (int i = 0; i < 2; i++)
        if (ls_comm_alloc(r->world, MEMORY, &mem[i], &r->err) != LS_OK)
            return harness_fail(r, "%s", r->err.message);
    k.in[1] = mem[0];
    k.out[1] = mem[1];
    k.in[0] = malloc(MEMORY);
    k.out[0] = malloc(MEMORY);
    k.want = malloc(MEMORY);
    if (ls_comm_choose(k.c, plan->algorithm, &r->err) != LS_OK)
        return harness_fail(r, "%s", r->err.message);
    for (int s = 0; s < plan->nsizes && !bad; s++) {
        int64_t n = plan->sizes[s];
        bool types = !plan->brief || s == plan->nsizes / 2;
        for (int shared = 0; shared < 2 && !bad; shared++) {
            for (int t = LS_COMM_F32; t <= LS_COMM_F64 && !bad; t++)
                for (int op = LS_COMM_SUM; op <= LS_COMM_AVG && !bad; op++) {
                    if (!types && (t != LS_COMM_F32 || op != LS_COMM_SUM))
                        continue;
                    bad = all_reduce(&k, shared, op % 2, n, t, op);
                    if (!bad && n * k.n * 8 <= MEMORY)
                        bad = reduce_scatter(&k, shared, op % 2, n, t, op);
                }
            for (int t = LS_COMM_F32; t <= LS_COMM_F64 && !bad; t++) {
                if ((!types && t != LS_COMM_F32) || n * k.n * 8 > MEMORY)
                    continue;
                bad = all_gather(&k, shared, t % 2, n, t) || broadcast(&k, shared, n, t, 0) ||
                      broadcast(&k, shared, n, t, k.n - 1);
            }
            if (!bad && n * k.n * 8 <= MEMORY)
                bad = reduce_scatter(&k, shared, true, n, LS_COMM_F32, LS_COMM_SUM);
            if (!bad && n * 12 <= MEMORY)
                bad = all_reduce(&k, shared, true, n, LS_COMM_F32, LS_COMM_SUM) ||
                      send_recv(&k, shared, n);
        }
    }
    if (!bad && ls_comm_barrier(k.c, &r->err) != LS_OK)
        bad = harness_fail(r, "%s", r->err.message);
    harness_tell(r, k.cases);
    free(k.in[0]);
    free(k.out[0]);
    free(k.want);
    return bad;
}

static void check(const char *layout, const struct plan *plan)
{
    if (!harness_can(layout))
        return;
    struct harness *h = harness_new(layout);
    int bad = harness_run(h, 30, run, (void *)(uintptr_t)plan);
    tap_ok(bad == 0, "layout %s, %s: %d cases of every rank", layout, plan->algorithm,
           harness_told(h, 0));
    harness_free(h);
}

int main(int argc, char **argv)
{
    /* Around the sizes at which something changes: vector blocks, tiles of 120 KiB, the one-hop limit
     * of 8 KiB, staged pieces of 256 KiB, rounds of 4 MiB. */
    static const int64_t few[] = {0, 1, 3, 17, 2049, 15361, 70001};
    static const int64_t edges[] = {2,     16,    63,    65,    2048,   4096,
                                    15360, 30721, 65536, 65537, 131073, 1100001};
    static const int64_t handful[] = {1, 65, 2049, 30721, 131073};
    const struct plan crowd = {"auto", handful, sizeof handful / sizeof *handful, true};
    const struct plan quick = {"auto", few, sizeof few / sizeof *few, false};
    const struct plan sizes = {"auto", edges, sizeof edges / sizeof *edges, true};
    if (argc == 3) { /* one case by hand: LAYOUT ALGORITHM */
        const struct plan one = {argv[2], few, sizeof few / sizeof *few, true};
        check(argv[1], &one);
        return tap_done();
    }
    check("0", &quick);
    check("00", &quick);
    check("00", &sizes);
    check("000", &crowd);
    check("00000000", &crowd);
    check("01", &quick);
    check("01", &sizes);
    check("012", &crowd);
    check("0011", &quick);
    check("0101", &sizes);
    check("0112223", &crowd);
    check("00112233", &crowd);
    const struct plan staged = {"staged", few, sizeof few / sizeof *few, true};
    check("0000", &staged);
    static const char *const algorithm[] = {"ring", "halving", "exchange"};
    for (int i = 0; i < 3; i++) {
        const struct plan forced = {algorithm[i], handful, sizeof handful / sizeof *handful, true};
        check("01", &forced);
        check("00122", &forced);
        check("012345", &forced);
    }
    return tap_done();
}
