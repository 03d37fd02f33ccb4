/* Comparisons of what all ranks said: who is named, and what is said of them. */
#include "check/internal.h"
#include "tests/tap.h"

#include <stdio.h>
#include <string.h>

enum { MAX = 8 };
static const char *const hosts[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"};

/* Facts of ranks, NULL at the end of the list; "-": that rank gave none; "skip WHY": it skipped the check. */
static struct ls_check_list compare(const char *id, int per_node, const char *const *fact)
{
    static const char *facts[MAX];
    static const char *host[MAX];
    static int node[MAX];
    struct ls_check_world w = {.host = host, .node = node, .fact = facts};
    struct ls_check_list list = {0};
    const struct ls_check *check = ls_check_find(id);
    for (; fact[w.size]; w.size++) {
        bool skip = !strncmp(fact[w.size], "skip ", 5);
        facts[w.size] = strcmp(fact[w.size], "-") && !skip ? fact[w.size] : NULL;
        node[w.size] = w.size / per_node;
        host[w.size] = hosts[node[w.size]];
        if (skip)
            ls_check_add(&list, check, LS_CHECK_SKIP, w.size, "", fact[w.size] + 5, "", "");
    }
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
    expect("a library that one node lacks", compare("ver.nccl", 1, FACTS("2.21.5", "skip none")),
           "fail 1 none");
}

/* What is lost on some nodes is a difference, and not their own affair: NCCL hangs with InfiniBand on one of two
 * nodes (NVIDIA/nccl issue 234), and with other NICs on one (issue 2428). */
static void test_lost(void)
{
    static const char two[] = "2 active ports of 400 Gbit/s, InfiniBand: mlx5_0/1, mlx5_1/1";
    static const char none[] = "skip no InfiniBand or RoCE device here";
    struct ls_check_list list = compare("ib.port", 1, FACTS(two, none));
    tap_ok(list.n == 1 && !strcmp(list.result[0].expected, two) &&
               strstr(list.result[0].advice, "NICs, cables"),
           "what is missing is said, and what to do");
    expect("InfiniBand on one of two nodes", list, "fail 1 no InfiniBand or RoCE device here");
    expect("the first one may be the one without", compare("ib.port", 1, FACTS(none, two)),
           "fail 0 no InfiniBand or RoCE device here");
    expect("on most nodes", compare("ib.port", 1, FACTS(two, none, two, none, two)),
           "fail 1 no InfiniBand or RoCE device here | fail 3 no InfiniBand or RoCE device here");
    list = compare("ib.port", 1, FACTS(none, none, two));
    tap_ok(list.n == 3 && !strcmp(list.result[2].expected, "no InfiniBand or RoCE device here"),
           "where most have none, that is expected");
    expect("on the odd one", list,
           "skip 0 no InfiniBand or RoCE device here | skip 1 no InfiniBand or RoCE device here | "
           "fail 2 2 active ports of 400 Gbit/s, InfiniBand: mlx5_0/1, mlx5_1/1");
    expect("nowhere", compare("ib.port", 1, FACTS(none, none)),
           "skip 0 no InfiniBand or RoCE device here | skip 1 no InfiniBand or RoCE device here");
    expect(
        "one port less",
        compare("ib.port", 1, FACTS(two, two, "1 active port of 400 Gbit/s, InfiniBand: mlx5_0/1")),
        "fail 2 1 active port of 400 Gbit/s, InfiniBand: mlx5_0/1");
    expect("as many, and others",
           compare("ib.port", 1,
                   FACTS(two, two, "2 active ports of 400 Gbit/s, InfiniBand: mlx5_0/1, mlx5_2/1")),
           "warn 2 2 active ports of 400 Gbit/s, InfiniBand: mlx5_0/1, mlx5_2/1");
    expect("what is not in use in this job",
           compare("ib.gid", 1, FACTS("skip no RoCE port", "skip no RoCE port")),
           "skip 0 no RoCE port | skip 1 no RoCE port");
    expect("every NVLink is dead",
           compare("gpu.nvlink", 1,
                   FACTS("18 active links of each GPU", "0 active links of each GPU")),
           "fail 1 0 active links of each GPU");
    expect("NVML that is missing on one node",
           compare("gpu.nvlink", 1, FACTS("18 active links of each GPU", "skip NVML is missing")),
           "fail 1 NVML is missing");
}

/* A job on processors may have nodes with and without GPUs: told once, and only a warning. */
static void test_nodes_without_gpus(void)
{
    struct ls_check_list list =
        compare("gpu.visible", 1, FACTS("GPU-a", "skip no GPU here", "GPU-a"));
    expect("without a GPU that it was to have, it has nothing to share", list,
           "skip 1 no GPU here"); /* nobody says that it has one */
    static const char *const facts[] = {"550.54", NULL};
    static const int node[] = {0, 1};
    struct ls_check_world w = {2, hosts, node, (const char *[]){facts[0], facts[1]}};
    struct ls_check_list both = {0};
    const struct ls_check *visible = ls_check_find("gpu.visible"),
                          *driver = ls_check_find("ver.driver");
    ls_check_add(&both, visible, LS_CHECK_PASS, 0, "", "1 x H100", "", "");
    ls_check_add(&both, visible, LS_CHECK_SKIP, 1, "", "no GPU here", "", "");
    ls_check_add(&both, driver, LS_CHECK_SKIP, 1, "", "no GPU here", "", "");
    driver->compare(driver, &w, &both);
    w.fact = (const char *[]){"GPU-a", NULL};
    visible->compare(visible, &w, &both);
    expect("a warning of gpu.visible, and of nothing else", both,
           "pass 0 1 x H100 | warn 1 no GPU here | skip 1 no GPU here | pass 0 550.54");
}

/* A job description that one node cannot read is told by job.cfg, a machine by sys.machine. */
static void test_told_once(void)
{
    static const struct {
        const char *first, *then;
        enum ls_check_status status;
        const char *want;
    } row[] = {
        {"job.cfg", "job.data", LS_CHECK_FAIL, "fail 1 no file | skip 1 nothing | pass 0 a"},
        {"job.cfg", "job.data", LS_CHECK_TIMEOUT, "timeout 1 no file | skip 1 nothing | pass 0 a"},
        {"sys.machine", "ib.port", LS_CHECK_TIMEOUT,
         "timeout 1 no file | skip 1 nothing | pass 0 a"},
        {"sys.machine", "job.data", LS_CHECK_TIMEOUT, "timeout 1 no file | fail 1 nothing"},
    };
    static const int node[] = {0, 1};
    struct ls_check_world w = {2, hosts, node, (const char *[]){"a", NULL}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct ls_check_list list = {0};
        const struct ls_check *then = ls_check_find(row[i].then);
        char what[128];
        snprintf(what, sizeof what, "what follows from %s in %s is not told twice", row[i].first,
                 row[i].then);
        ls_check_add(&list, ls_check_find(row[i].first), row[i].status, 1, "", "no file", "", "");
        ls_check_add(&list, then, LS_CHECK_SKIP, 1, "", "nothing", "", "");
        then->compare(then, &w, &list);
        expect(what, list, row[i].want);
    }
}

/* One advice for each row: what is to be installed, and what is not. */
static void test_remedies(void)
{
    static const struct {
        const char *id, *want;
    } rows[] = {{"ver.ucx", "install the same"},   {"ver.kernel", "install the same"},
                {"fs.bin", "install the same"},    {"ib.port", "cables"},
                {"ver.verbs", "install the same"}, {"ver.cuda", "install the same"},
                {"ib.gid", "NCCL_IB_GID_INDEX"},   {"gpu.nvlink", "drained"},
                {"job.cfg", "file system"},        {"job.data", "file system"},
                {"env.nccl", "the same settings"}, {"env.conf", "the same settings"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ls_check_list list = compare(rows[i].id, 1, FACTS("a=1", "a=1", "a=2"));
        tap_ok(list.n == 1 && list.result[0].rank == 2 &&
                   strstr(list.result[0].advice, rows[i].want),
               "%s says what to do: %s", rows[i].id, list.n ? list.result[0].advice : "");
        ls_check_list_free(&list);
    }
}

/* net.if, with what net.port found before it. */
static void subnets(const char *what, enum ls_check_status port, const char *const *fact,
                    const char *want)
{
    static const char *facts[MAX];
    static const int node[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct ls_check_world w = {.host = hosts, .node = node, .fact = facts};
    struct ls_check_list list = {0};
    for (; fact[w.size]; w.size++)
        facts[w.size] = fact[w.size];
    ls_check_add(&list, ls_check_find("net.port"), port, -1, "", "net.port", "", "");
    const struct ls_check *check = ls_check_find("net.if");
    check->compare(check, &w, &list);
    char whole[512];
    snprintf(whole, sizeof whole, "%s -1 net.port%s%s", ls_check_status_names[port],
             *want ? " | " : "", want);
    expect(what, list, whole);
}

static void test_subnets(void)
{
    static const char a[] = "subnet 10.1.0.0/16, default route",
                      b[] = "subnet 10.2.0.0/16, default route", other[] = "subnet 192.168.0.0/24",
                      vm[] = "subnet 10.1.0.7/32, default route",
                      v6[] = "subnet fd00::/64, default route";
    subnets("one subnet", LS_CHECK_SKIP, FACTS("subnet 10.1.0.0/16", "subnet 10.1.0.0/16"),
            "pass 0 subnet 10.1.0.0/16 | pass 1 subnet 10.1.0.0/16");
    subnets("racks with their own subnets that reach each other", LS_CHECK_PASS, FACTS(a, a, b, vm),
            "pass 0 subnet 10.1.0.0/16, default route | pass 1 subnet 10.1.0.0/16, default route | "
            "pass 2 subnet 10.2.0.0/16, default route | pass 3 subnet 10.1.0.7/32, default route");
    subnets("nobody has tried", LS_CHECK_SKIP, FACTS(a, a, b),
            "warn 2 subnet 10.2.0.0/16, default route");
    subnets("they do not reach each other: net.port fails, and this explains", LS_CHECK_FAIL,
            FACTS(a, a, b), "warn 2 subnet 10.2.0.0/16, default route");
    subnets("connected, but not by way of that interface", LS_CHECK_PASS, FACTS(a, a, other),
            "warn 2 subnet 192.168.0.0/24");
    subnets("the default route alone is no difference", LS_CHECK_SKIP,
            FACTS("subnet 10.1.0.0/16", a),
            "pass 0 subnet 10.1.0.0/16 | pass 1 subnet 10.1.0.0/16, default route");
    subnets("IPv6 on one node only: no address of one is of use to the other", LS_CHECK_PASS,
            FACTS(a, b, v6), "fail 2 subnet fd00::/64, default route");
}

static void test_settings(void)
{
    expect("the same settings", compare("env.nccl", 1, FACTS("A=1\nB=2", "A=1\nB=2")),
           "pass 0 2 settings | pass 1 2 settings");
    expect("none", compare("env.nccl", 1, FACTS("", "")),
           "pass 0 no settings | pass 1 no settings");
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
    expect("files", compare("env.conf", 1, FACTS("/etc/nccl.conf=1", "/etc/nccl.conf=1")),
           "pass 0 1 file | pass 1 1 file");
    expect("a library from elsewhere",
           compare("fs.bin", 1,
                   FACTS("p=1\nlibucp.so.0=/usr/lib", "p=1\nlibucp.so.0=/usr/lib",
                         "p=1\nlibucp.so.0=/opt/ucx/lib")),
           "fail 2 libucp.so.0=/opt/ucx/lib");
    expect("a file on one node only", compare("env.conf", 1, FACTS("", "/etc/nccl.conf=1", "")),
           "fail 1 /etc/nccl.conf=1");
    expect("a file that one node lacks",
           compare("env.conf", 1, FACTS("/etc/nccl.conf=1", "/etc/nccl.conf=1", "")),
           "fail 2 /etc/nccl.conf not there");
}

static void test_gpus(void)
{
    expect("a GPU for each rank",
           compare("gpu.visible", 2, FACTS("GPU-a", "GPU-b", "GPU-a", "GPU-b")), "");
    expect("two ranks of a node with one GPU",
           compare("gpu.visible", 2, FACTS("GPU-a", "GPU-b", "GPU-c", "GPU-c")),
           "fail 3 shared with rank 2: GPU-c");
}

static void test_cpus(void)
{
    expect("tasks that are not bound share all that they were given",
           compare("sys.cpu", 2, FACTS("0-3 of 4", "0-3 of 4")), "pass 0 4 CPUs | pass 1 4 CPUs");
    expect("bound apart",
           compare("sys.cpu", 2, FACTS("0-1 of 64", "2-3 of 64", "0-1 of 64", "32-33 of 64")),
           "pass 0 2 CPUs | pass 1 2 CPUs | pass 2 2 CPUs | pass 3 2 CPUs");
    expect("an inherited SLURM_CPU_BIND",
           compare("sys.cpu", 2, FACTS("0-1 of 64", "2-3 of 64", "0-1 of 64", "0-1 of 64")),
           "pass 0 2 CPUs | pass 1 2 CPUs | warn 2 2 tasks share 2 CPUs | warn 3 2 tasks share 2 "
           "CPUs");
    expect(
        "only some share", compare("sys.cpu", 4, FACTS("0 of 8", "1 of 8", "2 of 8", "2 of 8")),
        "warn 0 4 tasks share 3 CPUs | warn 1 4 tasks share 3 CPUs | warn 2 4 tasks share 3 CPUs "
        "| warn 3 4 tasks share 3 CPUs");
    expect("one task may have few", compare("sys.cpu", 1, FACTS("0 of 8", "0 of 8")),
           "pass 0 1 CPUs | pass 1 1 CPUs");
    expect("nonsense", compare("sys.cpu", 2, FACTS("x of 8", " of 8", "0", "")), "");
}

static void test_links(void)
{
    expect("all connected", compare("net.port", 1, FACTS("1 ok", "2 ok", "0 ok")),
           "pass -1 3 connections between nodes");
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
    expect("no file system in common",
           compare("fs.out", 1, FACTS("unseen 1 none", "unseen 2 none", "unseen 0 none")),
           "fail 0 none | fail 1 none | fail 2 none");
    expect("what another node has renamed over its file",
           compare("fs.out", 1, FACTS("seen 1 /x: fine", "stale 0 after 3.5 s old")),
           "pass 0 /x: fine | fail 1 after 3.5 s old");
    expect("a node that knows no folder, and says so",
           compare("fs.out", 1, FACTS("unseen 1 none", "skip no job")),
           "skip 1 no job | skip 0 the node that should write what it reads wrote nothing");
    expect("who saw nothing has renamed nothing",
           compare("fs.out", 1, FACTS("unseen 1 none", "stale 0 after 3.5 s old")),
           "fail 0 none | skip 1 the node that should write what it reads wrote nothing");
    expect("one node knows no names: it is its fault",
           compare("net.name", 1, FACTS("", "n2 (unknown)", "")), "warn 1 n2 (unknown)");
    expect("nobody knows: it is the name service",
           compare("net.name", 1, FACTS("n1 (unknown)", "n2 (unknown)", "n0 (unknown)")),
           "warn -1 3 of 3 nodes cannot look up names of nodes: n0 cannot find n1 (unknown)");
    expect("families",
           compare("net.name", 1, FACTS("\nIPv4", "\nIPv6", "\nIPv4", "n0 (unknown)\nIPv4")),
           "warn 1 its own name is an address of IPv6 | warn 3 n0 (unknown)");
    expect(
        "one family", compare("net.name", 1, FACTS("\nIPv6", "\nIPv6", "\n")),
        "pass 0 own name, and those of other nodes | pass 1 own name, and those of other nodes | "
        "pass 2 own name, and those of other nodes");
    expect("all know", compare("net.name", 1, FACTS("", "")),
           "pass 0 own name, and those of other nodes | pass 1 own name, and those of other nodes");
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
           "timeout 1 no answer after 5 s | skip 0 the node that should write what it reads wrote "
           "nothing | "
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
    test_lost();
    test_nodes_without_gpus();
    test_told_once();
    test_remedies();
    test_subnets();
    test_settings();
    test_gpus();
    test_cpus();
    test_links();
    test_clocks();
    test_pairs();
    test_files_and_names();
    test_blame();
    test_verdict();
    return tap_done();
}
