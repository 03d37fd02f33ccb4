/* The checks of GPUs and NICs on the stored machines of tests/topo/trees, and on a libnvidia-ml of three GPUs that
 * exist nowhere (tests/topo/fake_nvml.c). */
#include "comm/comm.h"
#include "tests/check/local.h"
#include "tests/topo/machines.h"

#include <dlfcn.h>
#include <fcntl.h>

#include "config.h"

/* ---- stored machines ---- */

static void see_tree(const char *name)
{
    struct ls_topo_machine *stored = load(name);
    reset();
    *node = *stored;
    free(stored);
    slurm.gpus_on_node = node->ngpu;
}

static void see(int count, int *index)
{
    slurm.visible = (struct ls_visible){.set = true, .count = count, .index = index};
}

/* The same for every tree: what each device check says of it. */
static void test_trees(void)
{
    static const struct {
        const char *tree, *id, *want;
    } rows[] = {
        {"dgx", "gpu.visible",
         "pass: 8 x NVIDIA H100 80GB HBM3 | F GPU-00000000-0000-4000-8000-000000000000"},
        {"dgx", "gdr.mod", "pass: nvidia_peermem is loaded"},
        {"dgx", "ib.port",
         "F 8 active ports of 400 Gbit/s, InfiniBand: mlx5_0/1, mlx5_3/1, mlx5_4/1, mlx5_5/1, "
         "mlx5_6/1, mlx5_9/1, mlx5_10/1, mlx5_11/1"},
        {"dgx", "ib.gid", "skip: no RoCE port among the compute NICs"},
        {"dgx", "ib.open", "pass: 10 devices"},
        {"dgx", "pci.acs", "skip: the configuration of PCI bridges cannot be read"},
        {"roce-bond", "gdr.mod", "pass: by dma-buf"},
        {"roce-bond", "ib.port",
         "F 2 active ports of 200 Gbit/s, RoCE, MTU 9000: mlx5_bond_0/1, mlx5_bond_1/1"},
        {"roce-bond", "ib.gid", "F mlx5_bond_0 GID 3, mlx5_bond_1 GID 3"},
        {"roce-v6", "ib.gid", "F rocep37s0 GID 3, rocep69s0 GID 3"},
        {"mixed", "gdr.mod", "warn: nvidia_peermem is not loaded"},
        {"mixed", "ib.port", "F 2 active ports of 100 Gbit/s, InfiniBand: mlx5_0/1, mlx5_2/1"},
        {"mixed", "pci.acs",
         "warn: 0000:23:00.0 its DMA goes through the IOMMU | skip: the configuration of PCI "
         "bridges cannot be read"},
        {"many", "ib.port",
         "F 11 active ports of 200 Gbit/s, InfiniBand: mlx5_0/1, mlx5_2/1, mlx5_3/1, mlx5_4/1, "
         "mlx5_5/1, mlx5_6/1, mlx5_7/1, mlx5_8/1, mlx5_9/1, mlx5_10/1, mlx5_11/1"},
        {"troubled", "ib.port",
         "fail: mlx5_0/1 active, but its SM lid is 0 | warn: mlx5_2 no port is active"},
        {"mig", "gpu.visible", "pass: 2 x NVIDIA A100-PCIE-40GB, MIG"},
        {"cgroup", "ib.port", "F 1 active port of 200 Gbit/s, InfiniBand: mlx5_1/1"},
        {"cgroup", "ib.open", "fail: mlx5_0 its device node cannot be opened"},
        {"cloud-vm", "gpu.visible",
         "pass: 4 x NVIDIA A100-SXM4-40GB | F GPU-00000000-0000-4000-8000-000000000000"},
        {"cloud-vm", "ib.gid", "F mlx5_0 GID 3, mlx5_1 GID 3"},
        {"cloud-vm", "pci.acs", "skip: a virtual machine: its host decides"},
        {"tcp", "gpu.visible", "pass: 1 x NVIDIA A10 | F GPU-00000000-0000-4000-8000-000000000000"},
        {"tcp", "gdr.mod", "warn: nvidia_peermem is not loaded"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        see_tree(rows[i].tree);
        expect(rows[i].tree, rows[i].id, rows[i].want);
    }
}

/* What a cgroup hides does not count: device 0 of the task is the third GPU. */
static void test_cgroup(void)
{
    int zero[] = {0}, two[] = {2};
    see_tree("cgroup");
    slurm.gpus_on_node = 1;
    see(1, zero);
    expect("device 0 is the one that can be opened", "gpu.visible",
           "pass: 1 x NVIDIA A100-SXM4-40GB | F GPU-00000000-0000-4000-8000-000000000002");
    see(1, two);
    expect("a number of the node, where those of the cgroup count", "gpu.visible",
           "fail: CUDA_VISIBLE_DEVICES names GPU 2, and 1 are here");
}

/* Faults in machines that are fine otherwise. */
static void test_tree_faults(void)
{
    see_tree("dgx");
    slurm.gpus_on_node = 9;
    expect("one of nine has fallen off", "gpu.visible", "fail: 8 GPUs, 9 granted");
    node->nic[0].port[0].gbit = 200;
    expect("a port that came up at half its rate", "ib.port", "fail: mlx5_0/1 200 Gbit/s");
    see_tree("roce-bond");
    for (int i = 0; i < node->nnic; i++)
        node->nic[i].port[0].ngid = 0;
    expect("no address is left", "ib.gid",
           "fail: mlx5_bond_0 none of its 0 GIDs is | fail: mlx5_bond_1 none of its 0 GIDs is");
}

/* Two nodes as the check sees them, one after the other, and what comes of comparing them. */
static void see_both(struct ls_check_list *list, const char **fact, int rank)
{
    const struct ls_check *check = ls_check_find("ib.port");
    const char *unmet = ls_check_unmet(check, &context);
    fact[rank] = NULL;
    if (unmet) {
        ls_check_add(list, check, LS_CHECK_SKIP, rank, "", unmet, "", "");
        return;
    }
    const char *said = run("ib.port");
    if (!strncmp(said, "F ", 2))
        fact[rank] = ls_arena_strdup(&list->arena, said + 2);
}

static void compare_both(const char *what, struct ls_check_list *list, const char **fact,
                         const char *want)
{
    static const char *const host[] = {"n0", "n1"};
    static const int number[] = {0, 1};
    const struct ls_check *check = ls_check_find("ib.port");
    struct ls_check_world w = {2, host, number, fact};
    char got[1024] = "";
    check->compare(check, &w, list);
    for (int i = 0; i < list->n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s %d", i ? " | " : "",
                 ls_check_status_names[list->result[i].status], list->result[i].rank);
    tap_ok(!strcmp(got, want), "ib.port: %s: %s", what, got);
    ls_check_list_free(list);
}

/* NVIDIA/nccl issues 234 and 2428: InfiniBand on one node only, and other devices to be opened on one node; both
 * hang where NCCL starts. */
static void test_two_trees(void)
{
    struct ls_check_list list = {0};
    const char *fact[2];
    see_tree("dgx");
    see_both(&list, fact, 0);
    see_both(&list, fact, 1);
    compare_both("two equal nodes", &list, fact, "pass 0 | pass 1");
    see_tree("dgx");
    see_both(&list, fact, 0);
    see_tree("tcp");
    see_both(&list, fact, 1);
    compare_both("InfiniBand on one node only", &list, fact, "fail 1");
    see_tree("dgx");
    see_both(&list, fact, 0);
    for (int i = 0; i < node->nnic; i++)
        if (!strcmp(node->nic[i].name, "mlx5_3"))
            node->nic[i].class = LS_TOPO_NIC_CLOSED;
    see_both(&list, fact, 1);
    compare_both("a device that one node may not open", &list, fact, "fail 1");
    see_tree("roce-bond");
    see_both(&list, fact, 0);
    for (int i = 0; i < node->niface; i++)
        node->iface[i].mtu = 1500;
    see_both(&list, fact, 1);
    compare_both("another MTU", &list, fact, "fail 1");
    see_tree("dgx");
    see_both(&list, fact, 0);
    see_tree("roce-bond");
    see_both(&list, fact, 1);
    compare_both("InfiniBand here, RoCE there", &list, fact, "fail 1");
    see_tree("dgx");
    see_both(&list, fact, 0);
    strcpy(node->nic[0].name, "mlx5_7");
    see_both(&list, fact, 1);
    compare_both("as many devices, and one of them another", &list, fact, "warn 1");
}

static void test_ucx_module(void)
{
    static const char *const trees[] = {"dgx", "tcp"};
    for (int i = 0; i < 2; i++)
        for (int ucx = LS_TOPO_UCX_UNKNOWN; ucx <= LS_TOPO_UCX_IB; ucx++) {
            char want[128];
            see_tree(trees[i]);
            node->ucx = (enum ls_topo_ucx)ucx;
            snprintf(want, sizeof want, "%sF %s",
                     i == 0 && ucx == LS_TOPO_UCX_NO_IB
                         ? "warn: mlx5_0 UCX will use TCP beside this active port | "
                         : "",
                     ls_comm_ucx_version());
            expect("UCX and its InfiniBand module", "ver.ucx", want);
        }
}

/* ---- NVML ---- */

static void use_nvml(const char *name, const char *fault)
{
    reset();
    node->ngpu = 3;
    slurm.gpus_on_node = 3;
    context.nvml = built("topo", name);
    setenv("FAKE_NVML", fault, 1);
}

static void test_nvml(void)
{
    static const struct {
        const char *fault, *id, *want;
    } rows[] = {
        {"", "gpu.mode", "pass: compute mode Default, nobody else on it"},
        {"", "gpu.ecc", "pass: no uncorrected error"},
        {"", "gpu.clocks", "pass: nothing holds clocks down, idle"},
        {"", "gpu.nvlink", "F 12 active links of each GPU"},
        {"dead", "gpu.nvlink", "F 0 active links of each GPU"},
        {"switches", "gpu.nvlink", "F 12 active links of each GPU"},
        {"prohibited", "gpu.mode", "fail: 0000:ca:00.0 compute mode Prohibited"},
        {"exclusive", "gpu.mode", "warn: 0000:ca:00.0 compute mode Exclusive"},
        {"sleepy", "gpu.mode", "warn: 0000:ca:00.0 persistence mode is off"},
        {"used", "gpu.mode", "warn: 0000:ca:00.0 2 processes compute on it"},
        {"lost", "gpu.mode", "fail: GPU 0 Unknown Error"},
        {"lost", "gpu.ecc", "pass: no uncorrected error"},
        {"mismatch", "gpu.mode", "fail: NVML refuses to start: Driver/library version mismatch"},
        {"mismatch", "gpu.ecc", "skip: NVML refuses to start: Driver/library version mismatch"},
        {"count", "gpu.mode", "fail: NVML does not count GPUs: Unknown Error"},
        {"ecc", "gpu.ecc",
         "fail: 0000:ca:00.0 3 uncorrected memory errors since the driver was loaded"},
        {"oldecc", "gpu.ecc", "warn: 0000:ca:00.0 7 uncorrected memory errors in its life"},
        {"remap", "gpu.ecc", "fail: 0000:ca:00.0 row remapping awaits a reset"},
        {"norows", "gpu.ecc", "fail: 0000:ca:00.0 row remapping has failed"},
        {"noecc", "gpu.ecc", "skip: ECC is off, so errors are not seen"},
        {"hot", "gpu.clocks",
         "warn: 0000:ca:00.0 clocks are held down by heat | warn: 0000:ca:00.0 92 C, and clocks "
         "fall at 90 C"},
        {"brake", "gpu.clocks", "warn: 0000:ca:00.0 clocks are held down by the power brake"},
        {"capped", "gpu.clocks", "warn: 0000:ca:00.0 its power is limited to 300 W"},
        {"narrow", "gpu.clocks", "warn: 0000:ca:00.0 4 lanes of PCIe"},
        {"linkdown", "gpu.nvlink", "fail: 0000:ca:00.0 11 active NVLinks, 7 inactive"},
        {"fabric", "gpu.nvlink", "fail: 0000:ca:00.0 the NVLink fabric is not ready"},
        /* What the driver does not answer was not checked. */
        {"silent", "gpu.mode", "skip: the driver does not say"},
        {"silent", "gpu.ecc", "skip: the driver does not say"},
        {"silent", "gpu.clocks", "skip: the driver does not say"},
        {"silent", "gpu.nvlink",
         "skip: the error counters of NVLinks are not known | F 12 active links of each GPU"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        use_nvml("libfakenvml.so", rows[i].fault);
        expect(*rows[i].fault ? rows[i].fault : "all well", rows[i].id, rows[i].want);
    }
    static const char *const ids[] = {"gpu.mode", "gpu.ecc", "gpu.clocks", "gpu.nvlink"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        use_nvml("libfakenvml_bare.so", "");
        expect("a library without these functions", ids[i], "skip: the driver does not say");
        use_nvml("libnowhere.so", "");
        tap_ok(!strncmp(run(ids[i]), "skip: NVML cannot be loaded: ", 29), "%s: no library",
               ids[i]);
        use_nvml("libfakenvml_old.so", "");
        tap_ok(strstr(run(ids[i]), "skip: ") && strstr(run(ids[i]), "too old"),
               "%s: a library that is too old", ids[i]);
    }
}

/* Only GPUs of this task are looked at: what others have on theirs is theirs. */
static void test_own(void)
{
    int own[] = {0, 1}, other[] = {2};
    char name[] = "GPU-00000003", first[] = "GPU-00000001-aaaa", mig[] = "MIG-00000002-aaaa";
    char *uuid[] = {name};
    use_nvml("libfakenvml.so", "used");
    see(2, own);
    expect("a process on a GPU of another job", "gpu.mode",
           "pass: compute mode Default, nobody else on it");
    see(1, other);
    expect("a process on our own", "gpu.mode", "warn: 0000:ca:00.0 2 processes compute on it");
    slurm.visible = (struct ls_visible){.set = true, .count = 1, .uuid = uuid};
    expect("by a name that is shortened", "gpu.mode",
           "warn: 0000:ca:00.0 2 processes compute on it");
    uuid[0] = first;
    expect("by another name", "gpu.mode", "pass: compute mode Default, nobody else on it");
    uuid[0] = mig;
    expect("an instance: all are looked at", "gpu.mode",
           "warn: 0000:ca:00.0 2 processes compute on it");
    see(0, own);
    expect("none of them ours", "gpu.mode", "skip: NVML sees no GPU of this task");
    use_nvml("libfakenvml.so", "lost");
    see(1, own);
    expect("ours is lost", "gpu.ecc", "skip: no GPU of this task answers");
}

/* Errors that are added while the other checks run. */
static void test_link_errors(void)
{
    const struct ls_check *check = ls_check_find("gpu.nvlink");
    struct ls_check_out out = {.check = check};
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0 || write(fds[1], "g", 1) != 1)
        exit(2);
    use_nvml("libfakenvml.so", "linkerror");
    out.fd = fds[0];
    ls_buf_init(&out.text, 1 << 16);
    check->local(&out, &context);
    tap_ok(out.text.data && strstr(out.text.data, "NVLink errors rose by 1") &&
               strstr(out.text.data, "0000:ca:00.0"),
           "gpu.nvlink: errors that were added are told");
    ls_buf_free(&out.text);
    close(fds[0]);
    close(fds[1]);
}

/* ---- pci.acs ---- */

/* Configuration space with an ACS capability at 0x140, behind another one; `length` bytes of it can be read. */
static void write_config(const char *bdf, unsigned control, size_t length)
{
    unsigned char config[4096] = {0};
    char path[256];
    config[0x100] = 1; /* AER, version 1, the next one at 0x140 */
    config[0x102] = 1;
    config[0x103] = 0x14;
    config[0x140] = 0x0d; /* ACS, version 1, the last one */
    config[0x142] = 1;
    config[0x146] = (unsigned char)control;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/config", bdf);
    write_file(path, "");
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", root, bdf);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(config, 1, length, f) != length || fclose(f) != 0)
        exit(2);
}

static void test_acs(void)
{
    see_tree("dgx");
    node->ngpu = 1;
    struct ls_topo_pci *pci = &node->gpu[0].pci;
    tap_ok(pci->depth >= 2, "the tree has bridges above its GPU");
    for (int b = 0; b < pci->depth; b++)
        write_config(pci->above[b], 0x11, 4096); /* validation and forwarding only */
    expect("no redirection", "pci.acs", "pass: no redirection above GPUs");
    write_config(pci->above[1], 0x1d, 4096);
    char want[128];
    snprintf(want, sizeof want, "warn: %s ACS sends traffic between devices by way of the CPU",
             pci->above[1]);
    expect("redirection", "pci.acs", want);
    write_config(pci->above[1], 0x1d, 64);
    expect("what users may read of it", "pci.acs",
           "skip: needs root: users cannot read the configuration of PCI bridges");
    write_config(pci->above[1], 0x1d, 256);
    expect("a bridge of old PCI has no such capability", "pci.acs",
           "pass: no redirection above GPUs");
    /* A chain that leads back to itself. */
    unsigned char ring[4096] = {0};
    ring[0x100] = 1;
    ring[0x103] = 0x10;
    char path[256];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", root, pci->above[1]);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(ring, 1, sizeof ring, f) != sizeof ring || fclose(f) != 0)
        exit(2);
    expect("a ring of capabilities ends", "pci.acs", "pass: no redirection above GPUs");
    pci->depth = 0;
    expect("no bridge", "pci.acs", "skip: no PCI bridge is to be seen above a GPU");
}

/* ---- machines that are made up ---- */

static void make_gpus(int n)
{
    reset();
    node->ngpu = n;
    for (int i = 0; i < n; i++) {
        struct ls_topo_gpu *g = &node->gpu[i];
        snprintf(g->uuid, sizeof g->uuid, "GPU-%d", i);
        snprintf(g->pci.bdf, sizeof g->pci.bdf, "0000:%02x:00.0", i);
        strcpy(g->model, "H100");
        g->minor = i;
        g->open = true;
    }
    slurm.gpus_on_node = n;
}

static void test_gpus(void)
{
    int one[] = {0}, two[] = {2, 3}, far[] = {9};
    make_gpus(4);
    expect("four", "gpu.visible", "pass: 4 x H100 | F GPU-0");
    context.local_rank = 3;
    context.local_size = 4;
    expect("local rank 3 takes its own", "gpu.visible", "pass: 4 x H100 | F GPU-3");
    see(1, one);
    expect("local rank 3 that sees one takes it", "gpu.visible", "pass: 4 x H100 | F GPU-0");
    see(2, two);
    tap_ok(!strncmp(run("gpu.visible"), "fail: ", 6), "gpu.visible: four ranks that see two");
    context.local_rank = 1;
    context.local_size = 2;
    expect("the second of two visible", "gpu.visible", "pass: 4 x H100 | F GPU-3");
    see(0, one);
    tap_ok(!strncmp(run("gpu.visible"), "fail: ", 6), "gpu.visible: none visible");
    see(1, far);
    expect("a GPU that is not there", "gpu.visible",
           "fail: CUDA_VISIBLE_DEVICES names GPU 9, and 4 are here");
    make_gpus(3);
    slurm.gpus_on_node = 4;
    expect("one has fallen off the bus", "gpu.visible", "fail: 3 GPUs, 4 granted");
    make_gpus(0);
    slurm.gpus_on_node = 2;
    expect("granted, and none here", "gpu.visible", "fail: 2 granted, none in /proc/driver/nvidia");
    make_gpus(2);
    strcpy(node->gpu[1].model, "A100");
    expect("two models", "gpu.visible", "warn: 0000:01:00.0 A100");
    make_gpus(2);
    node->gpu[0].open = false;
    slurm.gpus_on_node = 1;
    expect("what is closed does not count: the other one is device 0", "gpu.visible",
           "pass: 1 x H100 | F GPU-1");
    slurm.gpus_on_node = 2;
    expect("two granted, and one of them is closed", "gpu.visible", "fail: 1 GPUs, 2 granted");
    node->gpu[1].open = false;
    expect("closed devices", "gpu.visible", "fail: 0000:00:00.0 /dev/nvidia0 cannot be opened");

    tap_ok(!strncmp(run("gpu.xid"), "skip: the kernel's log is closed", 32), "gpu.xid: no log");
    write_file("/dev/kmsg", "");
    expect("an empty log, as in containers", "gpu.xid", "skip: the kernel's log is empty here");
    write_file("/dev/kmsg", "6,1,1,-;NVRM: loading\n");
    expect("a clean log", "gpu.xid", "pass: no Xid");
    write_file("/dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=7, Graphics Exception\n");
    expect("a program's error", "gpu.xid", "warn: Xid 13 in the kernel's log");
    write_file("/dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, fallen off the bus\n"
                            "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 45, pid=7, x\n");
    expect("an error of the hardware", "gpu.xid", "fail: Xid 79 in the kernel's log");
    expect("no peer memory", "gdr.mod", "warn: nvidia_peermem is not loaded");
    node->dmabuf = true;
    expect("dma-buf", "gdr.mod", "pass: by dma-buf");
    expect("no driver", "ver.driver", "skip: no /proc/driver/nvidia/version");
    write_file("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\nGCC\n");
    expect("a driver", "ver.driver", "F 550.54.15");
}

/* ---- NICs ---- */

static struct ls_topo_port port(enum ls_topo_link link, double gbit, int sm_lid)
{
    return (struct ls_topo_port){.number = 1,
                                 .active = true,
                                 .up = true,
                                 .link = link,
                                 .gbit = gbit,
                                 .lid = 3,
                                 .sm_lid = sm_lid};
}

static void make_nics(enum ls_topo_link link)
{
    reset();
    node->nnic = 2;
    for (int i = 0; i < 2; i++) {
        struct ls_topo_nic *n = &node->nic[i];
        snprintf(n->name, sizeof n->name, "mlx5_%d", i);
        n->class = LS_TOPO_NIC_COMPUTE;
        n->open = true;
        n->nport = 1;
        n->port[0] = port(link, 400, 1);
    }
}

static void test_nics(void)
{
    make_nics(LS_TOPO_LINK_IB);
    expect("two ports", "ib.port",
           "F 2 active ports of 400 Gbit/s, InfiniBand: mlx5_0/1, mlx5_1/1");
    node->nic[1].port[0].gbit = 100;
    expect("one came up slowly", "ib.port", "fail: mlx5_1/1 100 Gbit/s");
    make_nics(LS_TOPO_LINK_IB);
    node->nic[0].port[0].sm_lid = 0;
    expect("no subnet manager", "ib.port", "fail: mlx5_0/1 active, but its SM lid is 0");
    make_nics(LS_TOPO_LINK_ETHERNET);
    node->nic[0].port[0].sm_lid = node->nic[1].port[0].sm_lid = 0;
    expect("RoCE needs none", "ib.port",
           "F 2 active ports of 400 Gbit/s, RoCE: mlx5_0/1, mlx5_1/1");
    node->nic[0].class = LS_TOPO_NIC_DOWN;
    node->nic[0].why = "its port is down";
    expect("a NIC that is down", "ib.port",
           "warn: mlx5_0 its port is down | F 1 active port of 400 Gbit/s, RoCE: mlx5_1/1");
    node->nic[1].class = LS_TOPO_NIC_STORAGE;
    expect("nothing left", "ib.port",
           "warn: mlx5_0 its port is down | fail: none of 2 NICs is up and free");

    make_nics(LS_TOPO_LINK_IB);
    expect("InfiniBand needs no GID", "ib.gid", "skip: no RoCE port among the compute NICs");
    make_nics(LS_TOPO_LINK_ETHERNET);
    expect("no GID at all", "ib.gid",
           "fail: mlx5_0 none of its 0 GIDs is | fail: mlx5_1 none of its 0 GIDs is");
    for (int i = 0; i < 2; i++) { /* ::ffff:10.0.0.x, version 2, at index 3 */
        struct ls_topo_port *p = &node->nic[i].port[0];
        p->ngid = 1;
        p->gid[0] = (struct ls_topo_gid){.index = 3, .version = 2};
        p->gid[0].raw[10] = p->gid[0].raw[11] = 0xff;
        p->gid[0].raw[12] = 10;
        p->gid[0].raw[15] = (uint8_t)(i + 1);
    }
    expect("GIDs", "ib.gid", "F mlx5_0 GID 3, mlx5_1 GID 3");
    expect("open", "ib.open", "pass: 2 devices");
    node->nic[1].open = false;
    node->nic[1].class = LS_TOPO_NIC_CLOSED;
    expect("one is closed", "ib.open", "fail: mlx5_1 its device node cannot be opened");
    expect("no firmware said", "ver.firmware", "skip: no compute NIC says its firmware");
    write_file("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n");
    expect("firmware of the compute NICs", "ver.firmware", "F mlx5_0 28.39.1002");
    expect("the kernel's driver", "ver.ofed", "F mlx5_core of the kernel");
    write_file("/sys/module/mlx5_core/version", "24.01-0.3.3\n");
    expect("OFED", "ver.ofed", "F mlx5_core 24.01-0.3.3");
}

/* ---- ib.ctr ---- */

static const char *rises;

static void raise_one(void)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_1/ports/1/%s", rises);
    write_file(path, "7\n");
}

static void nothing(void)
{
}

static void test_counters(void)
{
    static const struct {
        const char *counter, *want;
    } rows[] = {
        {"counters/link_downed", "fail: mlx5_1 link_downed rose by 2"},
        {"counters/symbol_error", "fail: mlx5_1 symbol_error rose by 2"},
        {"counters/port_rcv_errors", "fail: mlx5_1 port_rcv_errors rose by 2"},
        {"hw_counters/local_ack_timeout_err", "fail: mlx5_1 local_ack_timeout_err rose by 2"},
        {"hw_counters/packet_seq_err", "warn: mlx5_1 packet_seq_err rose by 2"},
        {"hw_counters/roce_adp_retrans", "warn: mlx5_1 roce_adp_retrans rose by 2"},
        {"counters/port_rcv_data", "pass: no errors were added"}, /* bytes, and no error */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[128];
        make_nics(LS_TOPO_LINK_IB);
        if (i == 0) {
            const char *got = run_second("ib.ctr", nothing);
            tap_ok(!strcmp(got, "skip: no counters here"), "ib.ctr: no counters: %s", got);
        }
        snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_1/ports/1/%s", rows[i].counter);
        write_file(path, "5\n");
        write_file("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "3\n");
        rises = rows[i].counter;
        const char *got = run_second("ib.ctr", raise_one);
        tap_ok(!strcmp(got, rows[i].want), "ib.ctr: %s: %s", rows[i].counter, got);
        got = run_second("ib.ctr", nothing);
        tap_ok(!strcmp(got, "pass: no errors were added"), "ib.ctr: what was there before: %s",
               got);
        node->nic[1].class = LS_TOPO_NIC_STORAGE;
        write_file(path, "5\n");
        got = run_second("ib.ctr", raise_one);
        tap_ok(!strcmp(got, "pass: no errors were added"), "ib.ctr: a NIC for storage: %s", got);
    }
}

/* ---- versions ---- */

/* A library of that name which is loaded already is what dlopen finds. Returns where its version is. */
static int *load_fake(const char *name, void **loaded)
{
    *loaded = dlopen(built("check", name), RTLD_NOW | RTLD_LOCAL);
    int *version = *loaded ? dlsym(*loaded, "fake_version") : NULL;
    tap_ok(version != NULL, "the library that plays %s is there", name);
    return version;
}

static void test_versions(void)
{
    void *nccl, *cuda;
    reset();
    expect("this one", "ver.lockstep", "F " PACKAGE_VERSION);
    const char *verbs = run("ver.verbs");
    tap_ok(!strncmp(verbs, "F libibverbs.so.1", 17) ||
               !strcmp(verbs, "skip: no libibverbs.so.1 on the library path"),
           "ver.verbs: %s", verbs);
    int *version = load_fake("libnccl.so.2", &nccl);
    if (version) {
        expect("since 2.9", "ver.nccl", "F 2.21.5");
        *version = 2804;
        expect("before 2.9", "ver.nccl", "F 2.8.4");
        *version = -1;
        expect("a library that does not say", "ver.nccl",
               "skip: no libnccl.so.2 on the library path; programs may bring their own");
        dlclose(nccl);
    }
    if (load_fake("libcudart.so.13", &cuda)) {
        expect("a runtime", "ver.cuda", "F 13.1");
        dlclose(cuda);
    }
}

int main(void)
{
    open_world();
    test_trees();
    test_cgroup();
    test_tree_faults();
    test_two_trees();
    test_ucx_module();
    test_nvml();
    test_own();
    test_link_errors();
    test_acs();
    test_gpus();
    test_nics();
    test_counters();
    test_versions();
    return close_world();
}
