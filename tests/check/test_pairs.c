/* The slow-node finder on synthetic fabrics, and the pairing rounds. */
#include "check/pairs.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

/* ---- rounds ---- */

enum { MOST = 70 };

static void test_rounds(int n)
{
    int partner[LS_CHECK_ROUNDS][MOST], scratch[MOST], sat_out[MOST] = {0}, bad = 0, repeated = 0;
    for (int round = 0; round < LS_CHECK_ROUNDS; round++) {
        ls_check_round(n, round, 42, partner[round], scratch);
        for (int i = 0; i < n; i++) {
            int p = partner[round][i];
            bad += p >= n || p == i || (p >= 0 && partner[round][p] != i);
            sat_out[i] += p < 0;
        }
    }
    for (int i = 0; i < n; i++) {
        bad += sat_out[i] > (n == 1 ? LS_CHECK_ROUNDS : n % 2);
        for (int a = 0; a < LS_CHECK_ROUNDS; a++)
            for (int b = 0; b < a; b++)
                repeated += partner[a][i] >= 0 && partner[a][i] == partner[b][i];
    }
    tap_ok(bad == 0, "%d nodes: partners are mutual, and nobody sits out twice", n);
    if (n > 2 && n <= 16)
        tap_ok(repeated == 0, "%d nodes: no pair meets twice", n);
}

/* ---- fabrics ---- */

/* Bandwidth of the pair (a, b). */
typedef double fabric(int a, int b);

static double noise(int a, int b)
{
    return 1 + 0.03 * (ls_uniform(7, (uint64_t)a, (uint64_t)b) - 0.5);
}
static double even(int a, int b)
{
    return 10e9 * noise(a, b);
}
static double slow_node(int a, int b)
{
    return even(a, b) * (a == 2 || b == 2 ? 0.4 : 1);
}
static double slow_link(int a, int b)
{
    return even(a, b) * (a == 0 && b == 1 ? 0.3 : 1);
}
static double bimodal(int a, int b) /* even and odd halves: 0..3 and 4..7 */
{
    return even(a, b) * (a / 4 != b / 4 ? 0.5 : 1);
}
static double two_slow_nodes(int a, int b)
{
    return even(a, b) * (a == 1 || b == 1 || a == 5 || b == 5 ? 0.25 : 1);
}
static double bit_slow(int a, int b)
{
    return even(a, b) * (a == 2 || b == 2 ? 0.7 : 1);
}
enum { SWEEPS = 5 };
/* How measurements are disturbed: [0, noise) is lost of each, at random; node `busy` (-1: all; NODES: none)
 * waits for its CPU. `mute`: a round was not measured. */
struct disturbance {
    double noise, waited;
    int busy;
    bool mute;
    uint64_t seed;
};
enum { NOBODY = MOST };
static const struct disturbance calm = {0.03, 0, NOBODY, false, 1};

struct outcome {
    struct ls_check_finding *found;
    int n, group[MOST];
    double reference;
};

static struct outcome measure(int nodes, fabric *of, const struct disturbance *d)
{
    static struct ls_check_pair pair[SWEEPS * LS_CHECK_ROUNDS * MOST];
    int partner[MOST], scratch[MOST], n = 0;
    struct outcome o = {0};
    for (int sweep = 0; sweep < SWEEPS * LS_CHECK_ROUNDS; sweep++) {
        int round = sweep % LS_CHECK_ROUNDS;
        ls_check_round(nodes, round, 5, partner, scratch);
        for (int i = 0; i < nodes; i++)
            if (partner[i] >= 0) {
                int a = i < partner[i] ? i : partner[i], b = i < partner[i] ? partner[i] : i;
                double kept = 1 - d->noise * ls_uniform(d->seed, (uint64_t)n, 0);
                double value = of(a, b) * kept;
                pair[n++] = (struct ls_check_pair){
                    .a = a,
                    .b = b,
                    .value = d->mute && round == 1 ? (double)NAN : value,
                    .waited = d->busy < 0 || d->busy == i ? d->waited : 0.001};
            }
    }
    struct ls_error err = {0};
    enum ls_status status =
        ls_check_find_slow(nodes, pair, n, o.group, &o.reference, &o.found, &o.n, &err);
    if (status != LS_OK)
        tap_ok(false, "%s", err.message);
    return o;
}

static void expect(const char *what, struct outcome o, int n, enum ls_check_cause cause, int a,
                   int b)
{
    bool ok = o.n == n;
    if (ok && n)
        ok = o.found[0].cause == cause && o.found[0].a == a && o.found[0].b == b;
    tap_ok(ok, "%s", what);
    for (int i = 0; !ok && i < o.n; i++)
        tap_note("found cause %d, %d %d, score %.2f", (int)o.found[i].cause, o.found[i].a,
                 o.found[i].b, o.found[i].score);
    free(o.found);
}

static void test_fabrics(void)
{
    static const struct disturbance deaf = {0.03, 0, NOBODY, true, 1};
    expect("an even fabric", measure(8, even, &calm), 0, 0, 0, 0);
    expect("one slow node", measure(8, slow_node, &calm), 1, LS_CHECK_SLOW_NODE, 2, -1);
    expect("one slow link", measure(8, slow_link, &calm), 1, LS_CHECK_SLOW_LINK, 0, 1);
    struct outcome o = measure(8, bimodal, &calm);
    tap_ok(o.n == 1 && o.found[0].cause == LS_CHECK_SLOW_GROUP &&
               o.found[0].a / 4 != o.found[0].b / 4,
           "a bimodal fabric is two groups, and no slow nodes");
    bool groups = true;
    for (int i = 0; i < 8; i++)
        groups &= (o.group[i] == o.group[0]) == (i < 4);
    tap_ok(groups, "its groups are the right ones");
    free(o.found);
    o = measure(8, two_slow_nodes, &calm);
    tap_ok(o.n == 2 && o.found[0].cause == LS_CHECK_SLOW_NODE &&
               o.found[1].cause == LS_CHECK_SLOW_NODE && o.found[0].a + o.found[1].a == 6,
           "two slow nodes");
    free(o.found);
    expect("a node that lost 30 %", measure(16, bit_slow, &calm), 1, LS_CHECK_SLOW_NODE, 2, -1);
    expect("a round that was not measured", measure(8, slow_node, &deaf), 1, LS_CHECK_SLOW_NODE, 2,
           -1);
}

/* Is the only finding this one? If not, says what was found. */
static bool only(struct outcome o, enum ls_check_cause cause, int a)
{
    bool ok = o.n == 1 && o.found[0].cause == cause && (a < 0 || o.found[0].a == a);
    for (int i = 0; !ok && i < o.n; i++)
        tap_note("found cause %d, %d %d, score %.2f, noise %.2f", (int)o.found[i].cause,
                 o.found[i].a, o.found[i].b, o.found[i].score, o.found[i].noise);
    free(o.found);
    return ok;
}

/* Over many draws of noise: how often is nothing found, is it not judged, is node 2 found, and somebody else? */
static void draw(int nodes, fabric *of, double noise, int count[static 4])
{
    memset(count, 0, 4 * sizeof *count);
    for (uint64_t seed = 0; seed < 200; seed++) {
        const struct disturbance d = {noise, 0.001, NOBODY, false, seed};
        struct outcome o = measure(nodes, of, &d);
        int what = o.n == 0 ? 0 : o.found[0].cause == LS_CHECK_TOO_NOISY && o.n == 1 ? 1 : 2;
        for (int i = 0; what == 2 && i < o.n; i++)
            if (o.found[i].cause != LS_CHECK_SLOW_NODE || o.found[i].a != 2)
                what = 3;
        count[what]++;
        free(o.found);
    }
    tap_note("%d nodes, noise %.2f: %d fine, %d not judged, %d node 2, %d others", nodes, noise,
             count[0], count[1], count[2], count[3]);
}

static void test_noise(void)
{
    static const double noises[] = {0.03, 0.1, 0.2, 0.4, 0.8, 0.95};
    int count[4], accused = 0, wrong = 0, found = 0, acquitted = 0;
    for (int nodes = 4; nodes <= 64; nodes *= 4)
        for (size_t i = 0; i < sizeof noises / sizeof *noises; i++) {
            draw(nodes, even, noises[i], count);
            accused += count[2] + count[3];
            draw(nodes, slow_node, noises[i], count);
            wrong += count[3];
            found += noises[i] <= 0.2 ? count[2] : 0;
            acquitted += count[0];
        }
    tap_ok(accused == 0, "no noise accuses anybody in an even fabric");
    tap_ok(wrong == 0, "nor anybody but the slow node in another");
    tap_ok(acquitted == 0, "which is never acquitted");
    tap_ok(found == 3 * 3 * 200, "and always found where noise is 20 %% or less: %d", found);

    /* Two cores that serve four nodes: figures of one pair differ by several times. */
    const struct disturbance wild = {0.8, 0.001, NOBODY, false, 3};
    tap_ok(only(measure(4, slow_link, &wild), LS_CHECK_TOO_NOISY, 0),
           "wild measurements: not judged, not even what is slow");
    const struct disturbance crowded = {0.05, 0.4, -1, false, 3};
    tap_ok(only(measure(4, slow_link, &crowded), LS_CHECK_TOO_BUSY, 0),
           "steady figures, but all wait for their CPUs: not judged");
    tap_ok(measure(4, even, &crowded).n == 0, "busy, but nobody is slow: fine");
    const struct disturbance stray = {0.05, 0.6, 2, false, 3};
    tap_ok(only(measure(8, slow_node, &stray), LS_CHECK_SLOW_NODE, 2),
           "one node waits, the others do not: it is the slow one");
}

static void test_sizes(void)
{
    expect("1 node: no pairs, nothing to say", measure(1, even, &calm), 1, LS_CHECK_NO_BASIS, -1,
           -1);
    expect("2 nodes: one pair, nothing to compare with", measure(2, slow_node, &calm), 1,
           LS_CHECK_NO_BASIS, -1, -1);
    expect("3 nodes, one slow", measure(3, slow_node, &calm), 1, LS_CHECK_SLOW_NODE, 2, -1);
    expect("4 nodes, one slow", measure(4, slow_node, &calm), 1, LS_CHECK_SLOW_NODE, 2, -1);
    expect("4 nodes, one slow link", measure(4, slow_link, &calm), 1, LS_CHECK_SLOW_LINK, 0, 1);
    expect("5 nodes, one slow", measure(5, slow_node, &calm), 1, LS_CHECK_SLOW_NODE, 2, -1);
    expect("7 nodes, one slow link", measure(7, slow_link, &calm), 1, LS_CHECK_SLOW_LINK, 0, 1);
    expect("63 nodes, one slow", measure(63, slow_node, &calm), 1, LS_CHECK_SLOW_NODE, 2, -1);
    struct outcome o = measure(64, slow_node, &calm);
    tap_ok(o.n == 1 && fabs(o.found[0].score - 0.4) < 0.02 && fabs(o.reference / 10e9 - 1) < 0.02,
           "64 nodes: score and reference in figures");
    free(o.found);
}

int main(void)
{
    for (int n = 1; n <= 9; n++)
        test_rounds(n);
    test_rounds(16);
    test_rounds(63);
    test_rounds(64);
    test_fabrics();
    test_noise();
    test_sizes();
    return tap_done();
}
