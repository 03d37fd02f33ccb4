/* ib.mtu on a libibverbs of devices that exist nowhere (fake_verbs.c), and our declarations beside those of the real
 * one's header, where that is installed. */
#include "check/verbs.h"
#include "tests/check/local.h"

#include "config.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
_Static_assert(offsetof(struct ls_verbs_port, active_mtu) ==
                       offsetof(struct ibv_port_attr, active_mtu) &&
                   sizeof((struct ls_verbs_port){0}.active_mtu) ==
                       sizeof((struct ibv_port_attr){0}.active_mtu),
               "where active_mtu lies");
_Static_assert(sizeof(struct ls_verbs_port) >= sizeof(struct ibv_port_attr), "room for all of it");
_Static_assert(LS_VERBS_MTU_256 == (int)IBV_MTU_256 && LS_VERBS_MTU_4096 == (int)IBV_MTU_4096 &&
                   (int)IBV_MTU_1024 == 3,
               "numbers of MTUs");
static const char header[] = "infiniband/verbs.h declares them so";
#else
static const char header[] = "# SKIP infiniband/verbs.h is not installed (libibverbs-dev)";
#endif

static void use(const char *name, const char *devices)
{
    context.verbs = built("check", name);
    setenv("FAKE_VERBS", devices, 1);
}

static void make_nics(enum ls_topo_link link)
{
    reset();
    node->nnic = 3;
    node->niface = 2;
    for (int i = 0; i < 3; i++) {
        struct ls_topo_nic *n = &node->nic[i];
        snprintf(n->name, sizeof n->name, "mlx5_%d", i);
        n->class = i < 2 ? LS_TOPO_NIC_COMPUTE : LS_TOPO_NIC_STORAGE;
        n->nport = 2; /* nothing is plugged into the second one */
        n->port[0] = (struct ls_topo_port){.number = 1, .active = true, .link = link};
        n->port[1] = (struct ls_topo_port){.number = 2, .link = link};
        if (link == LS_TOPO_LINK_ETHERNET)
            snprintf(n->netdev, sizeof n->netdev, "eth%d", i);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(node->iface[i].name, sizeof node->iface[i].name, "eth%d", i);
        node->iface[i].mtu = i ? 1500 : 9000;
    }
}

static void expect_mtu(const char *what, const char *devices, const char *want)
{
    use("libfakeverbs.so", devices);
    const char *got = run("ib.mtu");
    tap_ok(!strcmp(got, want), "%s: %s", what, got);
}

static void test_infiniband(void)
{
    make_nics(LS_TOPO_LINK_IB);
    expect_mtu("alike", "mlx5_0=5 mlx5_1=5 mlx5_2=1", "F active MTU 4096");
    expect_mtu("the order is the library's", "mlx5_2=1 mlx5_1=4 mlx5_0=4", "F active MTU 2048");
    expect_mtu("one is smaller", "mlx5_0=5 mlx5_1=4 mlx5_2=5", "fail: mlx5_1/1 active MTU 2048");
    expect_mtu(
        "one that the library does not know", "mlx5_0=5",
        "skip: MTUs were not compared: libibverbs.so.1 does not know mlx5_1: its provider may "
        "be missing");
    expect_mtu("one that cannot be opened", "mlx5_0=5 mlx5_1=closed",
               "skip: MTUs were not compared: mlx5_1 cannot be opened: Permission denied");
    expect_mtu("one that does not answer", "mlx5_0=5 mlx5_1=mute",
               "skip: MTUs were not compared: mlx5_1/1 does not answer: Invalid argument");
    expect_mtu("a number that nobody knows", "mlx5_0=5 mlx5_1=9",
               "skip: MTUs were not compared: mlx5_1/1 has MTU number 9, expected 1 to 5");
    expect_mtu(
        "no list", "none",
        "skip: MTUs were not compared: libibverbs.so.1 finds no device: Function not implemented");
    node->nic[0].class = node->nic[1].class = LS_TOPO_NIC_DOWN;
    expect_mtu("nothing is up", "mlx5_0=5",
               "skip: MTUs were not compared: no active port of a compute NIC");
}

static void test_roce(void)
{
    make_nics(LS_TOPO_LINK_ETHERNET);
    expect_mtu("an interface explains it", "mlx5_0=5 mlx5_1=3",
               "fail: mlx5_1/1 active MTU 1024, as its network interface eth1 has MTU 1500");
    expect_mtu("alike", "mlx5_0=5 mlx5_1=5",
               "F active MTU 4096: its network interface eth0 has MTU 9000");
    node->niface = 0;
    expect_mtu("an interface that is not known", "mlx5_0=5 mlx5_1=5",
               "F active MTU 4096: the MTU of its network interface is not known");
}

static void test_library(void)
{
    make_nics(LS_TOPO_LINK_IB);
    use("libnowhere.so", "mlx5_0=5 mlx5_1=5");
    const char *got = run("ib.mtu");
    tap_ok(!strncmp(got, "skip: MTUs were not compared: ", 30) && strstr(got, "libnowhere"),
           "no library: %s", got);
    use("libfakeverbs_old.so", "mlx5_0=5 mlx5_1=5");
    got = run("ib.mtu");
    tap_ok(!strcmp(got, "skip: MTUs were not compared: libibverbs.so.1 has no ibv_query_port"),
           "an old one: %s", got);
}

static void test_nodes(void)
{
    static const char *const host[] = {"n0", "n1", "n2"};
    static const int number[] = {0, 1, 2};
    static const struct {
        const char *what, *fact[3], *want;
    } rows[] = {
        {"alike",
         {"active MTU 4096", "active MTU 4096", "active MTU 4096"},
         "pass 0 | pass 1 | pass 2"},
        {"one is smaller", {"active MTU 4096", "active MTU 2048", "active MTU 4096"}, "fail 1"},
        {"another interface, and the same MTU",
         {"active MTU 4096: its network interface a has MTU 9000",
          "active MTU 4096: its network interface b has MTU 4200",
          "active MTU 4096: its network interface a has MTU 9000"},
         "warn 1"},
        {"smaller, and why",
         {"active MTU 4096: its network interface a has MTU 9000",
          "active MTU 4096: its network interface a has MTU 9000",
          "active MTU 1024: its network interface a has MTU 1500"},
         "fail 2"},
        {"one could not ask",
         {"active MTU 4096", "skip", "active MTU 4096"},
         "skip 1 | pass 0 | pass 2"},
        {"most could not ask", {"skip", "active MTU 4096", "skip"}, "skip 0 | skip 2 | pass 1"},
    };
    const struct ls_check *check = ls_check_find("ib.mtu");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ls_check_list list = {0};
        char got[256] = "";
        const char *fact[3];
        for (int r = 0; r < 3; r++) {
            bool skipped = !strcmp(rows[i].fact[r], "skip");
            fact[r] = skipped ? NULL : rows[i].fact[r];
            if (skipped)
                ls_check_add(&list, check, LS_CHECK_SKIP, r, "", "MTUs were not compared", "", "");
        }
        struct ls_check_world w = {3, host, number, fact};
        check->compare(check, &w, &list);
        for (int k = 0; k < list.n; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s %d", k ? " | " : "",
                     ls_check_status_names[list.result[k].status], list.result[k].rank);
        tap_ok(!strcmp(got, rows[i].want), "nodes: %s: %s", rows[i].what, got);
        ls_check_list_free(&list);
    }
}

int main(void)
{
    open_world();
    tap_ok(true, "%s", header);
    test_infiniband();
    test_roce();
    test_library();
    test_nodes();
    return close_world();
}
