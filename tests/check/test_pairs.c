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

/* Bandwidth of the pair (a, b) on a rail. */
typedef double fabric(int a, int b, int rail);

static double noise(int a, int b)
{
    return 1 + 0.03 * (ls_uniform(7, (uint64_t)a, (uint64_t)b) - 0.5);
}
static double even(int a, int b, int rail)
{
    return 10e9 * noise(a, b + 100 * rail);
}
static double slow_node(int a, int b, int rail)
{
    return even(a, b, rail) * (a == 2 || b == 2 ? 0.4 : 1);
}
static double slow_link(int a, int b, int rail)
{
    return even(a, b, rail) * (a == 0 && b == 1 ? 0.3 : 1);
}
static double bad_rail(int a, int b, int rail)
{
    return even(a, b, rail) * (rail == 1 ? 0.5 : 1);
}
static double bimodal(int a, int b, int rail) /* even and odd halves: 0..3 and 4..7 */
{
    return even(a, b, rail) * (a / 4 != b / 4 ? 0.5 : 1);
}
static double two_slow_nodes(int a, int b, int rail)
{
    return even(a, b, rail) * (a == 1 || b == 1 || a == 5 || b == 5 ? 0.25 : 1);
}
static double bit_slow(int a, int b, int rail)
{
    return even(a, b, rail) * (a == 2 || b == 2 ? 0.7 : 1);
}
static double noisy(int a, int b, int rail)
{
    return 1e9 * (0.7 + 0.6 * ls_uniform(3 + (uint64_t)rail, (uint64_t)a, (uint64_t)b));
}

struct outcome {
    struct ls_check_finding *found;
    int n, group[MOST];
    double reference;
};

static struct outcome measure(int nodes, int rails, fabric *of, bool mute)
{
    struct ls_check_pair pair[LS_CHECK_ROUNDS * MOST * 2];
    int partner[MOST], scratch[MOST], n = 0;
    struct outcome o = {0};
    for (int round = 0; round < LS_CHECK_ROUNDS; round++) {
        ls_check_round(nodes, round, 5, partner, scratch);
        for (int i = 0; i < nodes; i++)
            for (int rail = 0; rail < rails && partner[i] > i; rail++)
                pair[n++] = (struct ls_check_pair){
                    .a = i,
                    .b = partner[i],
                    .rail = rail,
                    .value = mute && round == 1 ? (double)NAN : of(i, partner[i], rail)};
    }
    struct ls_error err = {0};
    enum ls_status status =
        ls_check_find_slow(nodes, pair, n, o.group, &o.reference, &o.found, &o.n, &err);
    if (status != LS_OK)
        tap_ok(false, "%s", err.message);
    return o;
}

static void expect(const char *what, struct outcome o, int n, enum ls_check_cause cause, int a,
                   int b, int rail)
{
    bool ok = o.n == n;
    if (ok && n)
        ok = o.found[0].cause == cause && o.found[0].a == a && o.found[0].b == b &&
             o.found[0].rail == rail;
    tap_ok(ok, "%s", what);
    for (int i = 0; !ok && i < o.n; i++)
        tap_note("found cause %d, %d %d, rail %d, score %.2f", (int)o.found[i].cause, o.found[i].a,
                 o.found[i].b, o.found[i].rail, o.found[i].score);
    free(o.found);
}

static void test_fabrics(void)
{
    expect("an even fabric", measure(8, 1, even, false), 0, 0, 0, 0, 0);
    expect("one slow node", measure(8, 1, slow_node, false), 1, LS_CHECK_SLOW_NODE, 2, -1, -1);
    expect("one slow link", measure(8, 1, slow_link, false), 1, LS_CHECK_SLOW_LINK, 0, 1, -1);
    expect("one bad rail of two", measure(8, 2, bad_rail, false), 1, LS_CHECK_SLOW_RAIL, -1, -1, 1);
    expect("one bad rail of three", measure(8, 3, bad_rail, false), 1, LS_CHECK_SLOW_RAIL, -1, -1,
           1);
    struct outcome o = measure(8, 1, bimodal, false);
    tap_ok(o.n == 1 && o.found[0].cause == LS_CHECK_SLOW_GROUP &&
               o.found[0].a / 4 != o.found[0].b / 4,
           "a bimodal fabric is two groups, and no slow nodes");
    bool groups = true;
    for (int i = 0; i < 8; i++)
        groups &= (o.group[i] == o.group[0]) == (i < 4);
    tap_ok(groups, "its groups are the right ones");
    free(o.found);
    o = measure(8, 1, two_slow_nodes, false);
    tap_ok(o.n == 2 && o.found[0].cause == LS_CHECK_SLOW_NODE &&
               o.found[1].cause == LS_CHECK_SLOW_NODE && o.found[0].a + o.found[1].a == 6,
           "two slow nodes");
    free(o.found);
    expect("noise of 30 % alone accuses nobody", measure(8, 1, noisy, false), 0, 0, 0, 0, 0);
    expect("nor among 64 nodes", measure(64, 1, noisy, false), 0, 0, 0, 0, 0);
    expect("a node that lost 30 %", measure(16, 1, bit_slow, false), 1, LS_CHECK_SLOW_NODE, 2, -1,
           -1);
    expect("a round that was not measured", measure(8, 1, slow_node, true), 1, LS_CHECK_SLOW_NODE,
           2, -1, -1);
}

static void test_sizes(void)
{
    expect("1 node: no pairs, nothing to say", measure(1, 1, even, false), 1, LS_CHECK_NO_BASIS, -1,
           -1, -1);
    expect("2 nodes: one pair, nothing to compare with", measure(2, 1, slow_node, false), 1,
           LS_CHECK_NO_BASIS, -1, -1, -1);
    expect("2 nodes, two rails", measure(2, 2, bad_rail, false), 1, LS_CHECK_SLOW_RAIL, -1, -1, 1);
    expect("3 nodes, one slow", measure(3, 1, slow_node, false), 1, LS_CHECK_SLOW_NODE, 2, -1, -1);
    expect("4 nodes, one slow", measure(4, 1, slow_node, false), 1, LS_CHECK_SLOW_NODE, 2, -1, -1);
    expect("4 nodes, one slow link", measure(4, 1, slow_link, false), 1, LS_CHECK_SLOW_LINK, 0, 1,
           -1);
    expect("5 nodes, one slow", measure(5, 1, slow_node, false), 1, LS_CHECK_SLOW_NODE, 2, -1, -1);
    expect("7 nodes, one slow link", measure(7, 1, slow_link, false), 1, LS_CHECK_SLOW_LINK, 0, 1,
           -1);
    expect("63 nodes, one slow", measure(63, 1, slow_node, false), 1, LS_CHECK_SLOW_NODE, 2, -1,
           -1);
    struct outcome o = measure(64, 1, slow_node, false);
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
    test_sizes();
    return tap_done();
}
