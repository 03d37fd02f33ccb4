/* Comparisons of what all ranks said: who is named, and what is said of them. */
#include "check/internal.h"
#include "tests/tap.h"

#include <stdio.h>
#include <string.h>

enum { MAX = 8 };
static const char *const hosts[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"};

/* Facts of ranks, one on each node, NULL at the end of the list; "-": that rank gave none. */
static struct ls_check_list compare(const char *id, int per_node, const char *const *fact)
{
    static const char *facts[MAX];
    static const char *host[MAX];
    static int node[MAX];
    struct ls_check_world w = {.host = host, .node = node, .fact = facts};
    struct ls_check_list list = {0};
    for (; fact[w.size]; w.size++) {
        facts[w.size] = strcmp(fact[w.size], "-") ? fact[w.size] : NULL;
        node[w.size] = w.size / per_node;
        host[w.size] = hosts[node[w.size]];
    }
    const struct ls_check *check = ls_check_find(id);
    check->compare(check, &w, &list);
    return list;
}
#define FACTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* "fail 2 'measured'" for each result, in one text. */
static void expect(const char *what, struct ls_check_list list, const char *want)
{
    char got[2048] = "";
    for (int i = 0; i < list.n; i++) {
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s%s %d %s", i ? " | " : "",
                 ls_check_status_names[list.result[i].status], list.result[i].rank,
                 list.result[i].measured);
    }
    bool ok = !strcmp(got, want) && !list.failed;
    tap_ok(ok, "%s", what);
    if (!ok)
        tap_note("got  %s", got), tap_note("want %s", want);
    ls_check_list_free(&list);
}

static void test_versions(void)
{
    expect("the same everywhere", compare("ver.ucx", 1, FACTS("1.13", "1.13")),
           "pass 0 1.13 | pass 1 1.13");
    expect("the odd one is named", compare("ver.ucx", 1, FACTS("1.13", "1.13", "1.15", "1.13")),
           "fail 2 1.15");
    expect("rank 0 may be the odd one", compare("ver.ucx", 1, FACTS("1.15", "1.13", "1.13")),
           "fail 0 1.15");
    expect("at a tie the first is right", compare("ver.ucx", 1, FACTS("1.13", "1.15")),
           "fail 1 1.15");
    expect("what only slows down is a warning",
           compare("ver.kernel", 1, FACTS("6.1", "6.1", "5.1")), "warn 2 5.1");
    expect("ranks without a fact do not count", compare("ver.ucx", 2, FACTS("1", "-", "1", "-")),
           "pass 0 1 | pass 2 1");
    expect("none at all: nothing is said, and so nothing passes",
           compare("ver.ucx", 1, FACTS("-", "-")), "");
    struct ls_check_list list = compare("ver.ucx", 1, FACTS("1.13", "1.13", "1.15"));
    tap_ok(!strcmp(list.result[0].expected, "1.13"), "what the majority has is expected");
    ls_check_list_free(&list);
}

static void test_settings(void)
{
    expect("the same settings", compare("env.nccl", 1, FACTS("A=1\nB=2", "A=1\nB=2")),
           "pass 0 2 settings | pass 1 2 settings");
    expect("none", compare("env.nccl", 1, FACTS("", "")), "pass 0 0 settings | pass 1 0 settings");
    struct ls_check_list list =
        compare("env.nccl", 1, FACTS("A=1\nB=2", "A=1\nB=2", "A=1\nB=3\nC=4"));
    tap_ok(list.n == 1 && !strcmp(list.result[0].measured, "B=3, C=4") &&
               !strcmp(list.result[0].expected, "B=2, C not set"),
           "only what differs is shown");
    ls_check_list_free(&list);
    list = compare("env.nccl", 1, FACTS("A=1\nB=2", "A=1\nB=2", "A=1"));
    tap_ok(list.n == 1 && !strcmp(list.result[0].measured, "B not set") &&
               !strcmp(list.result[0].expected, "B=2"),
           "also what is missing");
    ls_check_list_free(&list);
    expect("a key that begins another", compare("env.nccl", 1, FACTS("A=1", "A=1", "AB=1\nA=1")),
           "fail 2 AB=1");
}

static void test_gpus(void)
{
    expect("a GPU for each rank",
           compare("gpu.visible", 2, FACTS("GPU-a", "GPU-b", "GPU-a", "GPU-b")), "");
    expect("two ranks of a node with one GPU",
           compare("gpu.visible", 2, FACTS("GPU-a", "GPU-b", "GPU-c", "GPU-c")),
           "fail 3 shared with rank 2: GPU-c");
}

static void test_links(void)
{
    expect("all connected", compare("net.port", 1, FACTS("1 ok", "2 ok", "0 ok")),
           "pass -1 3 connections, each way over the network");
    expect(
        "a node that nobody reaches and that reaches nobody",
        compare("net.port", 1,
                FACTS("1 ok\n2 refused", "2 refused\n3 ok", "3 refused\n0 refused", "0 ok\n1 ok")),
        "fail 2 no connection from n0 to n2: refused");
    expect("one link between two that are fine elsewhere",
           compare("net.port", 1, FACTS("1 lost\n2 ok", "2 ok\n3 ok", "3 ok\n0 ok", "0 ok\n1 ok")),
           "fail -1 no connection from n0 to n1: lost");
    expect("two nodes that cannot talk: nobody is blamed",
           compare("net.port", 1, FACTS("1 lost", "0 lost")),
           "fail -1 no connection from n0 to n1: lost | fail -1 no connection from n1 to n0: lost");
    expect("nonsense is not believed", compare("net.port", 1, FACTS("x", "9 ok\n-1 ok\n1 ok\n0")),
           "");
    expect("an ok that is none", compare("net.port", 1, FACTS("1 okay", "0 ok")),
           "fail -1 no connection from n0 to n1: okay");
}

static void test_clocks(void)
{
    expect("clocks that agree",
           compare("sys.clock", 1, FACTS("1 0.001 0.0001", "2 -0.001 0.0001", "0 0.0 0.0001")),
           "pass -1 3 nodes within 1 ms");
    expect("one that is ahead",
           compare("sys.clock", 1, FACTS("1 0.2 0.0001", "2 -0.2 0.0001", "0 0.0 0.0001")),
           "warn 1 0.200 s ahead of the other nodes");
    expect(
        "one that is far behind, and node 0",
        compare("sys.clock", 1, FACTS("1 100 0.0001", "2 0 0.0001", "3 0 0.0001", "0 -100 0.0001")),
        "fail 0 100.000 s behind the other nodes");
    expect("a ring with a hole is a chain",
           compare("sys.clock", 1, FACTS("1 0.0 0.0001", "-", "1 0.0 0.0001")),
           "pass -1 3 nodes within 0 ms");
    expect("a node without a connection is not judged",
           compare("sys.clock", 1, FACTS("1 0.0 0.0001", "0 0.0 0.0001", "-")),
           "skip 2 no connection to it | pass -1 2 nodes within 0 ms");
}

static void test_pairs(void)
{
    expect("a slow node in the figures of all",
           compare("net.pair", 1, FACTS("1 9e9\n2 3e9\n3 9e9", "3 9e9\n2 3e9", "3 3e9", "-")),
           "warn 2 33 % of the bandwidth of the others, with every partner");
    expect("a slow link",
           compare("net.pair", 1, FACTS("1 3e9\n2 9e9\n3 9e9", "3 9e9\n2 9e9", "3 9e9", "-")),
           "warn -1 n0 to n1: 33 % of the bandwidth of other pairs");
    expect(
        "figures of one pair that differ as much as pairs: neither a warning nor a pass",
        compare("net.pair", 1,
                FACTS("1 3e9 0.0\n1 1e9 0.0\n2 9e9 0.0\n2 2e9 0.0", "2 8e9 0.0\n2 3e9 0.0", "-")),
        "skip -1 measurements differ by 33 % among themselves, so the slowest pair, n0 and n1 at "
        "33 % of the others, says nothing");
    expect(
        "all wait for CPUs",
        compare("net.pair", 1, FACTS("1 3e9 0.5\n2 9e9 0.4", "2 9e9 0.3", "-")),
        "skip -1 the tasks waited for a CPU for 40 % of the time, so the slowest pair, n0 and n1 "
        "at 33 % of the others, says nothing");
    expect("nonsense is no measurement",
           compare("net.pair", 1, FACTS("1 nan inf\n2 -inf nan", "2 x y")),
           "skip -1 no pair was measured");
    expect("two nodes", compare("net.pair", 1, FACTS("1 3e9", "-")),
           "skip -1 3.00 GB/s each way; with one pair, there is nothing to compare it with");
}

static void test_files_and_names(void)
{
    expect("all have seen the next one's file",
           compare("fs.out", 1, FACTS("seen 1 /x: fine", "seen 0 /x: fine")),
           "pass 0 /x: fine | pass 1 /x: fine");
    expect("a file that is not to be seen",
           compare("fs.out", 1, FACTS("seen 1 /x: fine", "unseen 0 /x/f: no such file")),
           "pass 0 /x: fine | fail 1 /x/f: no such file");
    expect("one node knows no names: it is its fault",
           compare("net.name", 1, FACTS("", "n2 (unknown)", "")), "warn 1 n2 (unknown)");
    expect("nobody knows: it is the name service",
           compare("net.name", 1, FACTS("n1 (unknown)", "n2 (unknown)", "n0 (unknown)")),
           "warn -1 3 of 3 nodes cannot look up names of nodes: n0 cannot find n1 (unknown)");
    expect("all know", compare("net.name", 1, FACTS("", "")),
           "pass 0 own name, and those of neighbours | pass 1 own name, and those of neighbours");
}

/* A reader is not blamed for what the writer did not write. */
static void test_blame(void)
{
    static const char *facts[] = {"unseen 1 /x: none", NULL, "seen 0 /x: fine"};
    static const int node[] = {0, 1, 2};
    struct ls_check_world w = {3, hosts, node, facts};
    struct ls_check_list list = {0};
    const struct ls_check *check = ls_check_find("fs.out");
    ls_check_add(&list, check, LS_CHECK_TIMEOUT, 1, "", "no answer after 5 s", "", "");
    check->compare(check, &w, &list);
    expect("only the node that hangs is blamed", list,
           "timeout 1 no answer after 5 s | skip 0 the node whose file it should read wrote none | "
           "pass 2 /x: fine");
}

static void test_verdict(void)
{
    static const char *host[] = {"n0", "n1", "n2", "n3"};
    static int node[] = {0, 1, 2, 3};
    struct ls_check_report r = {.size = 4, .nodes = 4, .host = host, .node = node};
    struct ls_check_verdict v;
    struct ls_arena arena = {0};
    int group[8];
    const struct ls_check *check = ls_check_find("sys.cpu"), *pmix = ls_check_find("env.pmix");
    for (int i = 0; i < 4; i++)
        ls_check_add(&r.list, check, LS_CHECK_PASS, i, "", "same", "", "");
    ls_check_judge(&r.list, &v);
    tap_ok(v.worst == LS_CHECK_PASS && v.count[LS_CHECK_PASS] == 1 && !v.environment,
           "four equal passes are one");
    ls_check_add(&r.list, check, LS_CHECK_SKIP, 0, "", "no", "", "");
    ls_check_judge(&r.list, &v);
    tap_ok(v.worst == LS_CHECK_PASS, "a skip changes nothing");
    ls_check_add(&r.list, check, LS_CHECK_TIMEOUT, 1, "", "late", "", "");
    ls_check_add(&r.list, check, LS_CHECK_FAIL, 2, "", "bad", "", "");
    ls_check_judge(&r.list, &v);
    ls_check_group(&r.list, group);
    tap_ok(v.worst == LS_CHECK_FAIL && group[3] == 0 && group[6] == 6, "the worst counts");
    tap_ok(!strcmp(ls_check_exclude(&r, &arena), "n[1-2]"), "the nodes to leave out: %s",
           ls_check_exclude(&r, &arena));
    ls_check_add(&r.list, check, LS_CHECK_FAIL, 0, "", "bad", "", "");
    ls_check_add(&r.list, check, LS_CHECK_FAIL, 3, "", "bad", "", "");
    tap_ok(!*ls_check_exclude(&r, &arena), "but never all nodes");
    ls_check_add(&r.list, pmix, LS_CHECK_FAIL, -1, "", "none", "", "");
    ls_check_judge(&r.list, &v);
    tap_ok(v.environment, "without PMIx there is no run");
    ls_check_list_free(&r.list);
    ls_arena_free(&arena);
}

int main(void)
{
    test_versions();
    test_settings();
    test_gpus();
    test_links();
    test_clocks();
    test_pairs();
    test_files_and_names();
    test_blame();
    test_verdict();
    return tap_done();
}
