/* What tasks name: NICs and interfaces, on a node that has some of each kind. */
#include "tests/check/local.h"

#include "config.h"

static void set(int i, const char *text)
{
    environment[i] = (char *)(uintptr_t)text;
}

/* mlx5_0, 1 and 10 are InfiniBand for computing; mlx5_2 is slower RoCE, without a GID; mlx5_3 is down. */
static void make_node(void)
{
    static const struct {
        const char *name;
        enum ls_topo_nic_class class;
        enum ls_topo_link link;
        double gbit;
        bool active;
    } nics[] = {{"mlx5_0", LS_TOPO_NIC_COMPUTE, LS_TOPO_LINK_IB, 400, true},
                {"mlx5_1", LS_TOPO_NIC_COMPUTE, LS_TOPO_LINK_IB, 400, true},
                {"mlx5_10", LS_TOPO_NIC_COMPUTE, LS_TOPO_LINK_IB, 400, true},
                {"mlx5_2", LS_TOPO_NIC_STORAGE, LS_TOPO_LINK_ETHERNET, 100, true},
                {"mlx5_3", LS_TOPO_NIC_DOWN, LS_TOPO_LINK_IB, 400, false}};
    reset();
    context.environ = environment;
    node->nnic = 5;
    for (int i = 0; i < 5; i++) {
        struct ls_topo_nic *n = &node->nic[i];
        snprintf(n->name, sizeof n->name, "%s", nics[i].name);
        n->class = nics[i].class;
        n->open = true;
        n->nport = 1;
        n->port[0] = (struct ls_topo_port){.number = 1,
                                           .active = nics[i].active,
                                           .up = nics[i].active,
                                           .link = nics[i].link,
                                           .gbit = nics[i].gbit,
                                           .sm_lid = 1};
    }
}

static void use(const char *what, const char *first, const char *second, const char *want)
{
    make_node();
    set(0, first);
    set(1, second);
    const char *got = run("ib.use");
    tap_ok(!strcmp(got, want), "%s: %s", what, got);
}

#define ALL "3 ports of 400 Gbit/s, InfiniBand"
#define ONE "1 port of 400 Gbit/s, InfiniBand"

static void test_ports(void)
{
    use("nothing is named", NULL, NULL,
        "F all\nNCCL: " ALL "; UCX: " ALL "\nNCCL_IB_HCA=(not set), mlx5_0/1, mlx5_1/1, mlx5_10/1; "
        "UCX_NET_DEVICES=(not set), mlx5_0/1, mlx5_1/1, mlx5_10/1");
    use("what our own plugin has set is the node's", "NCCL_IB_HCA==mlx5_0",
        "LOCKSTEP_SET=NCCL_IB_HCA==mlx5_0",
        "F all\nNCCL: " ALL "; UCX: " ALL "\nNCCL_IB_HCA=(not set), mlx5_0/1, mlx5_1/1, mlx5_10/1; "
        "UCX_NET_DEVICES=(not set), mlx5_0/1, mlx5_1/1, mlx5_10/1");
    use("a beginning", "NCCL_IB_HCA=mlx5_1", "UCX_NET_DEVICES=mlx5_1:1",
        "F named\nNCCL: 2 ports of 400 Gbit/s, InfiniBand; UCX: " ONE
        "\nNCCL_IB_HCA=mlx5_1, mlx5_1/1, mlx5_10/1; UCX_NET_DEVICES=mlx5_1:1, mlx5_1/1");
    use("exactly, with a port", "NCCL_IB_HCA==mlx5_1:1,mlx5_0:2", "UCX_NET_DEVICES=all",
        "F named\nNCCL: " ONE "; UCX: " ALL "\nNCCL_IB_HCA==mlx5_1:1,mlx5_0:2, mlx5_1/1; "
        "UCX_NET_DEVICES=(not set), mlx5_0/1, mlx5_1/1, mlx5_10/1");
    use("some are left out", "NCCL_IB_HCA=^=mlx5_1,mlx5_2", "UCX_NET_DEVICES=^mlx5_2:1,mlx5_0:1",
        "F named\nNCCL: 2 ports of 400 Gbit/s, InfiniBand; UCX: 2 ports of 400 Gbit/s, InfiniBand"
        "\nNCCL_IB_HCA=^=mlx5_1,mlx5_2, mlx5_0/1, mlx5_10/1; "
        "UCX_NET_DEVICES=^mlx5_2:1,mlx5_0:1, mlx5_1/1, mlx5_10/1");
}

static void test_bad_ports(void)
{
    make_node();
    set(0, "NCCL_IB_HCA=mlx5_2");
    tap_ok(!strncmp(run("ib.use"),
                    "fail: mlx5_2 NCCL_IB_HCA=mlx5_2 names it, and none of its GIDs is | F named",
                    70),
           "a RoCE port without a GID: %s", run("ib.use"));
    node->nic[3].port[0].ngid = 1; /* ::ffff:10.0.0.1, version 2 */
    node->nic[3].port[0].gid[0] = (struct ls_topo_gid){.index = 3, .version = 2};
    memcpy(node->nic[3].port[0].gid[0].raw + 10, "\xff\xff\x0a\0\0\1", 6);
    tap_ok(!strncmp(run("ib.use"), "F named\nNCCL: 1 port of 100 Gbit/s, RoCE; ", 42),
           "and with one: %s", run("ib.use"));
    set(0, "NCCL_IB_HCA=mlx5_3");
    tap_ok(!strncmp(run("ib.use"), "warn: NCCL_IB_HCA=mlx5_3 leaves no active port | F ", 50),
           "a port that is down: %s", run("ib.use"));
    set(0, "NCCL_IB_HCA=^mlx5");
    tap_ok(!strncmp(run("ib.use"), "warn: NCCL_IB_HCA=^mlx5 leaves no active port | F ", 49),
           "all are left out: %s", run("ib.use"));
    make_node();
    set(0, "UCX_NET_DEVICES=eth0");
    tap_ok(!strncmp(run("ib.use"), "F named\nNCCL: " ALL "; UCX: no port\n", 60),
           "UCX may be given TCP: %s", run("ib.use"));
    struct ls_topo_site site = ls_topo_site_default;
    make_node();
    strcpy(site.nic, "mlx5_0");
    context.site = &site;
    context.nodes = 2;
    tap_ok(!strncmp(run("ib.use"), "F named\nNCCL: " ONE "; ", 40), "the site names one: %s",
           run("ib.use"));
}

static void compare(const char *what, const char *const *facts, const char *want)
{
    static const char *const host[] = {"n0", "n0", "n1", "n1"};
    static const int number[] = {0, 0, 1, 1};
    const char *fact[4];
    const struct ls_check *check = ls_check_find("ib.use");
    struct ls_check_list list = {0};
    char got[1024] = "";
    memcpy(fact, facts, sizeof fact);
    struct ls_check_world w = {4, host, number, fact};
    check->compare(check, &w, &list);
    for (int i = 0; i < list.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s %d %s", i ? " | " : "",
                 ls_check_status_names[list.result[i].status], list.result[i].rank,
                 list.result[i].measured);
    tap_ok(!strcmp(got, want), "%s: %s", what, got);
    ls_check_list_free(&list);
}

static void test_compare(void)
{
#define ALIKE "NCCL: " ONE "; UCX: " ALL
#define OTHER "NCCL: 1 port of 100 Gbit/s, RoCE; UCX: " ALL
    compare("nobody names any",
            (const char *[]){"all\n" ALIKE "\nA", "all\n" ALIKE "\nB", "all\n" OTHER "\nC", NULL},
            "skip -1 no task and no site names ports: see ib.port");
    compare("each task has its own, all alike",
            (const char *[]){"named\n" ALIKE "\nA", "named\n" ALIKE "\nB", "named\n" ALIKE "\nA",
                             "named\n" ALIKE "\nB"},
            "pass 0 " ALIKE " | pass 1 " ALIKE " | pass 2 " ALIKE " | pass 3 " ALIKE);
    compare("one is of another kind",
            (const char *[]){"named\n" ALIKE "\nA", "named\n" ALIKE "\nB", "named\n" ALIKE "\nA",
                             "named\n" OTHER "\nNCCL_IB_HCA=mlx5_9, mlx5_9/1"},
            "fail 3 " OTHER ", by NCCL_IB_HCA=mlx5_9, mlx5_9/1");
    compare("one names less than all have",
            (const char *[]){"all\nNCCL: " ALL "\nA", "all\nNCCL: " ALL "\nA",
                             "named\nNCCL: " ONE "\nB", "all\nNCCL: " ALL "\nA"},
            "fail 2 NCCL: " ONE ", by B");
    compare("one names what all have",
            (const char *[]){"all\nNCCL: " ONE "\nA", "all\nNCCL: " ONE "\nA",
                             "named\nNCCL: " ONE "\nB", NULL},
            "pass 0 NCCL: " ONE " | pass 1 NCCL: " ONE " | pass 2 NCCL: " ONE);
    compare("nobody says anything", (const char *[]){NULL, NULL, NULL, NULL}, "");
}

/* net.if compares the interface that the task names: here "lo", which has a subnet on every machine. */
static void test_interface(void)
{
    reset();
    context.environ = environment;
    context.nodes = 2;
    node->niface = 2;
    node->iface[0] =
        (struct ls_topo_iface){.name = "nowhere0", .up = true, .ipv4 = true, .default_route = true};
    node->iface[1] = (struct ls_topo_iface){.name = "lo", .up = true, .ipv4 = true};
    const char *got = run("net.if");
    tap_ok(!strcmp(got, "fail: nowhere0 it has no address"), "by the rules: %s", got);
    set(0, "NCCL_SOCKET_IFNAME==lo");
    got = run("net.if");
    tap_ok(!strcmp(got, "F subnet 127.0.0.0/8"), "the one that is named: %s", got);
    set(0, "NCCL_SOCKET_IFNAME=l,e");
    got = run("net.if");
    tap_ok(!strcmp(got, "F subnet 127.0.0.0/8"), "by its beginning: %s", got);
    set(0, "NCCL_SOCKET_IFNAME=^lo");
    got = run("net.if");
    tap_ok(!strcmp(got, "fail: nowhere0 it has no address"), "what is only left out names none: %s",
           got);
    set(0, "NCCL_SOCKET_IFNAME=ib");
    got = run("net.if");
    tap_ok(!strcmp(got, "fail: nowhere0 it has no address"), "one that is not there: %s", got);
}

int main(void)
{
    open_world();
    test_ports();
    test_bad_ports();
    test_compare();
    test_interface();
    return close_world();
}
