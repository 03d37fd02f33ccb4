/* Reading machines: stored ones of many kinds, damaged ones, hostile ones; PCI distances; lists of CPUs. */
#include "tests/topo/machines.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- distances ---- */

static struct ls_topo_pci device(const char *bdf, int numa, const char *const *above)
{
    struct ls_topo_pci pci = {.numa = numa};
    strcpy(pci.bdf, bdf);
    for (; above && *above; above++)
        strcpy(pci.above[pci.depth++], *above);
    return pci;
}

static void test_distance(void)
{
#define ABOVE(...) ((const char *const[]){__VA_ARGS__, NULL})
    const struct {
        const char *what;
        struct ls_topo_pci a, b;
        enum ls_topo_distance want;
    } cases[] = {
        {"the same device", device("0000:01:00.0", 0, NULL), device("0000:01:00.0", 0, NULL),
         LS_TOPO_SAME},
        {"two functions of a card", device("0000:01:00.0", 0, ABOVE("0000:00:01.0")),
         device("0000:01:00.1", 0, ABOVE("0000:00:01.0")), LS_TOPO_PIX},
        {"one switch",
         device("0000:04:00.0", 0, ABOVE("0000:00:01.0", "0000:01:00.0", "0000:02:00.0")),
         device("0000:05:00.0", 0, ABOVE("0000:00:01.0", "0000:01:00.0", "0000:02:01.0")),
         LS_TOPO_PIX},
        {"one switch, of which nothing says the node",
         device("0000:04:00.0", -1, ABOVE("0000:00:01.0", "0000:01:00.0", "0000:02:00.0")),
         device("0000:05:00.0", -1, ABOVE("0000:00:01.0", "0000:01:00.0", "0000:02:01.0")),
         LS_TOPO_PIX},
        {"a switch below a switch",
         device(
             "0000:06:00.0", 0,
             ABOVE("0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0")),
         device("0000:07:00.0", 0, ABOVE("0000:00:01.0", "0000:01:00.0", "0000:02:01.0")),
         LS_TOPO_PXB},
        {"two ports of one root", device("0000:01:00.0", 0, ABOVE("0000:00:01.0")),
         device("0000:02:00.0", 0, ABOVE("0000:00:02.0")), LS_TOPO_PHB},
        {"two roots of one node", device("0000:11:00.0", 1, ABOVE("0000:10:01.0")),
         device("0000:21:00.0", 1, ABOVE("0000:20:01.0")), LS_TOPO_PHB},
        {"two nodes", device("0000:11:00.0", 0, ABOVE("0000:10:01.0")),
         device("0000:81:00.0", 1, ABOVE("0000:80:01.0")), LS_TOPO_SYS},
        {"two domains with the same bus", device("0000:01:00.0", 0, ABOVE("0000:00:01.0")),
         device("0001:01:00.0", 1, ABOVE("0001:00:01.0")), LS_TOPO_SYS},
        {"node -1 is not node 0", device("0000:11:00.0", -1, ABOVE("0000:10:01.0")),
         device("0000:81:00.0", 0, ABOVE("0000:80:01.0")), LS_TOPO_UNKNOWN},
        {"node -1 is not node -1", device("0000:11:00.0", -1, ABOVE("0000:10:01.0")),
         device("0000:81:00.0", -1, ABOVE("0000:80:01.0")), LS_TOPO_UNKNOWN},
        {"a virtual machine's one bus", device("0000:00:1b.0", -1, NULL),
         device("0000:00:0a.0", -1, NULL), LS_TOPO_UNKNOWN},
        {"no PCI device", device("", 0, NULL), device("0000:01:00.0", 0, NULL), LS_TOPO_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum ls_topo_distance there = ls_topo_distance(&cases[i].a, &cases[i].b);
        enum ls_topo_distance back = ls_topo_distance(&cases[i].b, &cases[i].a);
        tap_ok(there == cases[i].want && back == there, "%s: %s", cases[i].what,
               ls_topo_distance_name(there));
    }
}

static void test_cpus(void)
{
    const struct {
        const char *text, *want; /* NULL: refused */
    } cases[] = {{"0-3,8", "0-3,8"},
                 {"", ""},
                 {"7", "7"},
                 {"0,1,2", "0-2"},
                 {"3-1", NULL},
                 {"a", NULL},
                 {"1-", NULL},
                 {"-1", NULL},
                 {"1;2", NULL},
                 {"0-99999999999999999999", NULL},
                 {"1023-1030", "1023"},
                 {"4096", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cpu_set_t set;
        char out[128];
        bool is = ls_topo_parse_cpus(cases[i].text, &set);
        tap_ok(is == (cases[i].want != NULL) &&
                   !strcmp(ls_topo_format_cpus(&set, out), is ? cases[i].want : ""),
               "CPUs '%s': '%s'", cases[i].text, out);
    }
    cpu_set_t odd;
    char out[128];
    CPU_ZERO(&odd);
    for (int c = 0; c < CPU_SETSIZE; c += 2)
        CPU_SET(c, &odd);
    ls_topo_format_cpus(&odd, out);
    tap_ok(strlen(out) < 128 && strstr(out, ",...") && !out[strlen(out)], "a long list is cut: %s",
           out);
}

/* ---- stored machines ---- */

/* "mlx5_0:compute,..." for all of them */
static void test_classes(void)
{
    static const char *const names[] = {"compute", "storage", "phantom", "down", "closed"};
    const struct {
        const char *tree, *want;
    } cases[] = {
        {"dgx", "mlx5_0:compute mlx5_1:storage mlx5_3:compute mlx5_4:compute mlx5_5:compute "
                "mlx5_6:compute mlx5_7:storage mlx5_9:compute mlx5_10:compute mlx5_11:compute "},
        {"roce-bond", "mlx5_2:storage mlx5_bond_0:compute mlx5_bond_1:compute "},
        {"roce-v6", "rocep37s0:compute rocep69s0:compute "},
        {"cloud-vm", "mlx5_0:compute mlx5_1:compute "},
        {"tcp", ""},
        {"mixed", "mlx5_0:compute mlx5_1:storage mlx5_2:compute mlx5_3:storage mlx5_4:storage "},
        {"many", "mlx5_0:compute mlx5_1:storage mlx5_2:compute mlx5_3:compute mlx5_4:compute "
                 "mlx5_5:compute mlx5_6:compute mlx5_7:compute mlx5_8:compute mlx5_9:compute "
                 "mlx5_10:compute mlx5_11:compute "},
        {"mig", "mlx5_0:compute "},
        {"cgroup", "mlx5_0:closed mlx5_1:compute "},
        {"troubled", "mlx5_0:compute mlx5_1:phantom mlx5_2:down mlx5_3:storage rdmap6s0:storage "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_topo_machine *m = load(cases[i].tree);
        char text[1024] = "";
        size_t at = 0;
        bool why = true;
        for (int n = 0; n < m->nnic; n++) {
            at += (size_t)snprintf(text + at, sizeof text - at, "%s:%s ", m->nic[n].name,
                                   names[m->nic[n].class]);
            why &= m->nic[n].why && *m->nic[n].why;
        }
        tap_ok(!strcmp(text, cases[i].want) && why, "NICs of %s: %s", cases[i].tree, text);
        free(m);
    }
}

/* Storage cards of a DGX H100 are InfiniBand of the compute cards' speed; only their place tells them. */
static void test_fast_storage(void)
{
    struct ls_topo_machine *m = load("dgx");
    struct ls_topo_nic *near = &m->nic[0], *far = &m->nic[1];
    far->port[0].link = LS_TOPO_LINK_IB;
    far->port[0].gbit = near->port[0].gbit;
    ls_topo_classify(m);
    tap_ok(far->class == LS_TOPO_NIC_STORAGE && strstr(far->why, "below no GPU's switch") &&
               near->class == LS_TOPO_NIC_COMPUTE,
           "as fast as the compute NICs, but far: %s is storage", far->name);
    struct ls_topo_gpu last = m->gpu[m->ngpu - 1];
    m->gpu[m->ngpu - 1].pci = device("0000:fe:00.0", last.pci.numa, ABOVE("0000:fd:01.0"));
    ls_topo_classify(m);
    tap_ok(far->class == LS_TOPO_NIC_COMPUTE, "a GPU without a NIC of its own needs it");
    m->gpu[m->ngpu - 1] = last;
    for (int i = 0; i < m->nnic; i++)
        if (m->nic[i].class == LS_TOPO_NIC_COMPUTE && i != 1)
            m->nic[i].port[0].gbit = far->port[0].gbit / 2;
    ls_topo_classify(m);
    tap_ok(near->class == LS_TOPO_NIC_COMPUTE && far->class == LS_TOPO_NIC_STORAGE,
           "and being faster than the near ones does not make it compute");
    m->ngpu = 0;
    ls_topo_classify(m);
    tap_ok(far->class == LS_TOPO_NIC_COMPUTE, "without GPUs the fastest are compute");
    free(m);
}

static void test_details(void)
{
    struct ls_topo_machine *m = load("dgx");
    tap_ok(m->ncpu == 224 && m->nnuma == 2 && ls_topo_cores(m, &m->allowed) == 112 &&
               m->core[0] == 0 && m->core[112] == 0 && m->core[300] == -1 && !m->virtual_machine,
           "dgx: CPUs and cores");
    tap_ok(m->ngpu == 8 && !strcmp(m->gpu[0].pci.bdf, "0000:1b:00.0") && m->gpu[0].pci.depth == 3 &&
               !strcmp(m->gpu[0].pci.above[0], "0000:15:01.0") && m->gpu[7].pci.numa == 1 &&
               m->gpu[3].minor == 3 && m->gpu[3].open && !m->gpu[3].mig,
           "dgx: places of GPUs");
    tap_ok(!strcmp(m->gpu[2].uuid, "GPU-00000000-0000-4000-8000-000000000002") &&
               !strcmp(m->gpu[2].model, "NVIDIA H100 80GB HBM3") && m->gpu[2].nvlink_gbit == 3600 &&
               m->peermem && !m->dmabuf,
           "dgx: what GPUs are called");
    tap_ok(m->nic[0].port[0].active && m->nic[0].port[0].up && m->nic[0].port[0].gbit == 400 &&
               m->nic[0].port[0].link == LS_TOPO_LINK_IB && m->nic[0].port[0].lid == 0x100 &&
               m->nic[0].port[0].sm_lid == 1 && m->nic[0].port[0].ngid == 1 &&
               !strcmp(m->nic[0].driver, "mlx5_core") && !strcmp(m->nic[0].netdev, "ib0"),
           "dgx: a port");
    tap_ok(m->limits.memlock == -1 && m->limits.stack == 8 << 20 && m->limits.nofile == 1048576 &&
               m->limits.shm_bytes == 1056000000LL * 512 && m->limits.shm_free == -2 &&
               m->limits.memory_bytes == 1056000000LL * 1024,
           "dgx: limits");
    free(m);

    m = load("roce-bond");
    const struct ls_topo_nic *bond = &m->nic[1];
    tap_ok(!strcmp(bond->netdev, "bond0") && ls_topo_choose_gid(&bond->port[0]) == 3,
           "the table of GIDs names the bond; the v2 IPv4 entry is chosen");
    tap_ok(m->limits.shm_bytes == 64 << 20 && m->dmabuf && !m->peermem, "64 MiB of /dev/shm");
    const char *const classes[] = {"bond0", "docker0", "eno1", "lo"};
    const enum ls_topo_iface_class want[] = {LS_TOPO_IFACE_BOND, LS_TOPO_IFACE_VIRTUAL,
                                             LS_TOPO_IFACE_ETHERNET, LS_TOPO_IFACE_LOOPBACK};
    for (int i = 0; i < m->niface; i++)
        for (int k = 0; k < 4; k++)
            if (!strcmp(m->iface[i].name, classes[k]))
                tap_ok(m->iface[i].class == want[k] &&
                           m->iface[i].default_route == !strcmp(classes[k], "eno1"),
                       "%s is what it is", classes[k]);
    free(m);

    m = load("roce-v6");
    tap_ok(ls_topo_choose_gid(&m->nic[0].port[0]) == 3 && m->iface[2].default_route &&
               !strcmp(m->iface[2].name, "eth0") && m->iface[2].ipv6 && !m->iface[2].ipv4,
           "IPv6 only: GID 3, default route, addresses");
    free(m);

    m = load("cloud-vm");
    tap_ok(m->virtual_machine && m->gpu[0].pci.numa == -1 && CPU_COUNT(&m->gpu[0].pci.cpus) == 0 &&
               m->limits.memlock == 65536,
           "a virtual machine: node and CPUs of a GPU are not known");
    free(m);

    m = load("cgroup");
    cpu_set_t own;
    ls_topo_parse_cpus("16-23", &own);
    tap_ok(CPU_EQUAL(&own, &m->allowed) && !m->gpu[0].open && m->gpu[2].open &&
               m->limits.memory_bytes == 64LL << 30,
           "a cgroup: CPUs, GPUs, memory of a level above");
    free(m);

    m = load("mig");
    tap_ok(m->gpu[0].mig && !m->gpu[1].mig, "MIG instances are seen");
    free(m);

    m = load("troubled");
    tap_ok(ls_topo_choose_gid(&m->nic[3].port[0]) == -1, "link-local addresses are not routable");
    free(m);
}

/* RoCE tables that differ in one thing each. */
static void test_gids(void)
{
    static const uint8_t v4[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};
    static const uint8_t apipa[16] = {[10] = 0xff, [11] = 0xff, 169, 254, 0, 1};
    static const uint8_t local[16] = {0xfe, 0x80, [15] = 1},
                         global[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
    const struct {
        const char *what;
        struct {
            const uint8_t *raw;
            int version;
        } entry[3];
        int want;
    } cases[] = {{"empty", {{0}}, -1},
                 {"link-local only", {{local, 2}}, -1},
                 {"v1 only", {{v4, 1}}, -1},
                 {"169.254 is link-local", {{apipa, 2}}, -1},
                 {"IPv4 before IPv6", {{global, 2}, {v4, 2}}, 1},
                 {"v2 before v1", {{v4, 1}, {v4, 2}}, 1},
                 {"IPv6 if there is no other", {{local, 2}, {v4, 1}, {global, 2}}, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_topo_port port = {.link = LS_TOPO_LINK_ETHERNET};
        for (int k = 0; k < 3 && cases[i].entry[k].raw; k++) {
            port.gid[k] = (struct ls_topo_gid){.index = k, .version = cases[i].entry[k].version};
            memcpy(port.gid[k].raw, cases[i].entry[k].raw, 16);
            port.ngid++;
        }
        tap_ok(ls_topo_choose_gid(&port) == cases[i].want, "GIDs: %s", cases[i].what);
    }
}

/* ---- hostile trees ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static char dir[4096];

static void make(const char *text)
{
    struct ls_error err = {0};
    snprintf(dir, sizeof dir, "%s/lockstep-test-XXXXXX", tmp_dir());
    if (!mkdtemp(dir) || ls_topo_tree_unpack("test", text, dir, &err) != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(1);
    }
}

static void clear(void)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *in(const char *path)
{
    static char full[8192];
    snprintf(full, sizeof full, "%s/%s", dir, path);
    return full;
}

static void put(const char *path, const char *bytes, size_t n)
{
    int fd = open(in(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        tap_ok(false, "cannot write %s: %s", path, strerror(errno));
    close(fd);
}

/* Everything in its bounds, and every text printable: what is shown or put into variables. */
static bool is_sane(const struct ls_topo_machine *m)
{
    bool sane = m->ngpu >= 0 && m->ngpu <= LS_TOPO_GPUS && m->nnic >= 0 &&
                m->nnic <= LS_TOPO_NICS && m->niface >= 0 && m->niface <= LS_TOPO_IFACES &&
                m->left_out >= 0 && m->nmig == 0;
    for (int i = 0; sane && i < m->nnic; i++) {
        const struct ls_topo_nic *n = &m->nic[i];
        sane = n->nport >= 0 && n->nport <= LS_TOPO_PORTS && n->why && n->name[0] &&
               n->pci.depth <= LS_TOPO_BRIDGES && n->pci.numa >= -1;
        for (int p = 0; sane && p < n->nport; p++)
            sane = n->port[p].ngid >= 0 && n->port[p].ngid <= LS_TOPO_GIDS && n->port[p].gbit >= 0;
        for (const char *c = n->netdev; sane && *c; c++)
            sane = *c > ' ' && *c <= '~';
    }
    for (int i = 0; sane && i < m->ngpu; i++)
        for (const char *c = m->gpu[i].model; sane && *c; c++)
            sane = *c >= ' ' && *c <= '~';
    return sane && m->limits.memory_bytes >= -2 && m->limits.memlock >= -2;
}

static bool read_sane(struct ls_topo_machine *m)
{
    struct ls_error err = {0};
    struct ls_arena arena = {0};
    struct ls_topo_decision d;
    if (ls_topo_read(dir, m, &err) != LS_OK || !is_sane(m))
        return false;
    struct ls_topo_request request = {
        .machine = m, .bind = true, .local_size = 2, .local_rank = 1, .ranks = 1000, .nodes = 500};
    enum ls_status status = ls_topo_decide(&request, &arena, &d, &err);
    ls_arena_free(&arena);
    return status == LS_OK || (status == LS_ERR_ENV && err.message[0]);
}

static void test_hostile(void)
{
    struct ls_topo_machine *m = malloc(sizeof *m);
    struct ls_error err = {0};
    if (!m)
        exit(1);
    make("lockstep-tree 1\nsys/class/net/\nproc/net/\n");
    tap_ok(read_sane(m) && m->ncpu == 0 && m->ngpu == 0 && m->limits.memlock == -2,
           "an empty tree is a machine of which nothing is known");
    if (symlink("eth0", in("sys/class/net/eth0")) || symlink("../net", in("sys/class/net/eth1")) ||
        symlink("/nowhere", in("sys/class/net/eth2")) || mkfifo(in("proc/net/route"), 0600))
        tap_ok(false, "%s", strerror(errno));
    mkdir(in("sys/class/infiniband"), 0700);
    mkdir(in("sys/class/infiniband/x"), 0700);
    mkdir(in("sys/class/infiniband/x/ports"), 0700);
    for (int i = 0; i < 40; i++) {
        char path[256];
        snprintf(path, sizeof path, "sys/class/infiniband/x/ports/%d", i);
        if (symlink("../../x", in(path)))
            tap_ok(false, "%s", strerror(errno));
    }
    tap_ok(read_sane(m) && m->niface == 3 && m->nnic == 1 && m->nic[0].nport == 0,
           "links in circles, a FIFO for a file");
    clear();

    make("lockstep-tree 1\nsys/devices/system/cpu/online/\nproc/driver/nvidia/gpus/0000:01:00.0/\n"
         "sys/class/net/eth0/\n");
    put("proc/meminfo", "x", 1);
    /* 1 TiB of zeros, of which no byte is on disk */
    if (truncate(in("proc/meminfo"), 1LL << 40) && truncate(in("proc/meminfo"), 1LL << 36))
        tap_note("no large files here: %s", strerror(errno));
    put("sys/class/net/eth0/mtu", "99999999999999999999999", 23);
    put("sys/class/net/eth0/speed", "-5", 2);
    tap_ok(read_sane(m) && m->ngpu == 1 && m->gpu[0].minor == -1 && !m->gpu[0].open &&
               m->iface[0].mtu == 0 && m->iface[0].mbit == -1,
           "a directory for a file, a file without an end, numbers without one");
    clear();

    make("lockstep-tree 1\nproc/driver/nvidia/gpus/\nsys/class/net/\nsys/class/infiniband/\n");
    for (int i = 0; i < 1500; i++) {
        char path[256];
        snprintf(path, sizeof path, "sys/class/net/eth%d", i);
        mkdir(in(path), 0700);
        snprintf(path, sizeof path, "sys/class/infiniband/mlx5_%d", i);
        mkdir(in(path), 0700);
        snprintf(path, sizeof path, "proc/driver/nvidia/gpus/0000:%02x:%02x.%d", i / 256,
                 i / 8 % 32, i % 8);
        mkdir(in(path), 0700);
    }
    tap_ok(read_sane(m) && m->nnic == LS_TOPO_NICS && m->niface == LS_TOPO_IFACES &&
               m->ngpu == LS_TOPO_GPUS && m->left_out > 0,
           "more of everything than there is room for: %d left out", m->left_out);
    put("sys/class/net/bad\x01name", "", 0);
    put("sys/class/net/bad\"name", "", 0);
    tap_ok(read_sane(m), "names that no device has");
    clear();
    tap_ok(ls_topo_read("/nonexistent", m, &err) == LS_ERR_IO &&
               strstr(err.message, "/nonexistent"),
           "no tree at all: %s", err.message);
    free(m);
}

/* Every file of a good tree replaced by garbage, or gone, one after the other. */
static struct ls_topo_machine *damaged;
static int damaged_bad, damaged_files, damage;

static int damage_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    char saved[8192], garbage[3000];
    (void)st;
    (void)ftw;
    if (type != FTW_F)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, saved, sizeof saved);
    if (n < 0)
        return 1;
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (char)(ls_mix64((uint64_t)damaged_files, i) >> 8);
    if (damage == 0)
        memset(garbage, 'f', sizeof garbage);
    bool done =
        ftruncate(fd, 0) == 0 && pwrite(fd, garbage, damage == 2 ? 0 : sizeof garbage, 0) >= 0;
    damaged_bad += !done || !read_sane(damaged);
    done = ftruncate(fd, 0) == 0 && pwrite(fd, saved, (size_t)n, 0) == n;
    close(fd);
    damaged_files++;
    return !done;
}

static void test_damage(void)
{
    const char *srcdir = getenv("srcdir");
    char path[4096], *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/tests/topo/trees/roce-v6.tree", srcdir ? srcdir : ".");
    damaged = malloc(sizeof *damaged);
    if (!damaged || ls_file_read(path, LS_TREE_MAX, &text, &size, NULL) != LS_OK)
        exit(1);
    make(text);
    for (damage = 0; damage < 3; damage++) {
        damaged_files = damaged_bad = 0;
        int walked = nftw(dir, damage_one, 16, FTW_PHYS);
        tap_ok(walked == 0 && damaged_files > 80 && damaged_bad == 0,
               "each of %d files full of letters, of noise, or empty (%d): %d bad", damaged_files,
               damage, damaged_bad);
    }
    clear();
    free(text);
    free(damaged);
}

/* ---- trees as text ---- */

static void test_unpack(void)
{
    const struct {
        const char *text, *part; /* of the message; NULL: good */
    } cases[] = {
        {"", "expected 'lockstep-tree 1' in the first line"},
        {"lockstep-tree 2\n", "found 'lockstep-tree 2'"},
        {"lockstep-tree 1\nsys/a = 1\nsys/b/c/ \n", ":3: found 'sys/b/c/ '"},
        {"lockstep-tree 1\nsys/a = 1\n\n# x\r\nsys/b =\n| 1\n|2\nsys/c/\nsys/d -> c/e\n", NULL},
        {"lockstep-tree 1\netc/passwd = 1\n", ":2: found 'etc/passwd', expected a path"},
        {"lockstep-tree 1\nsys/../../x = 1\n", "expected a path"},
        {"lockstep-tree 1\n/sys/x = 1\n", "expected a path"},
        {"lockstep-tree 1\nsys//x = 1\n", "expected a path"},
        {"lockstep-tree 1\nsys/./x = 1\n", "expected a path"},
        {"lockstep-tree 1\nsys/x -> /etc\n", "expected a link"},
        {"lockstep-tree 1\nsys/x -> ../../etc\n", "expected a link"},
        {"lockstep-tree 1\nsys/x -> ..\n", "expected a link"},
        {"lockstep-tree 1\nsys/x -> a/../../b\n", "expected a link"},
        {"lockstep-tree 1\nsys/x -> \n", "expected a link"},
        /* a link by way of a link, which is higher up than it looks */
        {"lockstep-tree 1\nsys/a/b/c -> ../../x\nsys/a/b/c/d -> ../../../y\n", "expected a link"},
        {"lockstep-tree 1\nsys/a = 1\nsys/a = 2\n", ":3: sys/a"},
        {"lockstep-tree 1\nsys/a = 1\nsys/a/b = 2\n", ":3: "},
        {"lockstep-tree 1\n| 1\n", ":2: found '| 1'"},
        {"lockstep-tree 1\nsys/a\n", "expected 'path = text'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error err = {0};
        snprintf(dir, sizeof dir, "%s/lockstep-test-XXXXXX", tmp_dir());
        if (!mkdtemp(dir))
            exit(1);
        enum ls_status status = ls_topo_tree_unpack("t", cases[i].text, dir, &err);
        tap_ok((status == LS_OK) == !cases[i].part &&
                   (!cases[i].part || strstr(err.message, cases[i].part)),
               "tree %zu: %s", i, status == LS_OK ? "good" : err.message);
        clear();
    }
}

/* A saved tree is the same machine, as far as anyone may know it. */
static void test_save(void)
{
    static const char *const trees[] = {"dgx",   "roce-bond", "roce-v6", "cloud-vm", "tcp",
                                        "mixed", "many",      "mig",     "cgroup",   "troubled"};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        const char *srcdir = getenv("srcdir");
        char path[4096], *text = NULL;
        size_t size;
        struct ls_error err = {0};
        struct ls_buf saved, again;
        struct ls_topo_machine *a = load(trees[i]), *b = malloc(sizeof *b);
        snprintf(path, sizeof path, "%s/tests/topo/trees/%s.tree", srcdir ? srcdir : ".", trees[i]);
        if (!b || ls_file_read(path, LS_TREE_MAX, &text, &size, NULL) != LS_OK)
            exit(1);
        ls_buf_init(&saved, LS_TREE_MAX);
        ls_buf_init(&again, LS_TREE_MAX);
        make(text);
        enum ls_status status = ls_topo_tree_save(dir, &saved, &err);
        clear();
        bool same = false;
        if (status == LS_OK) {
            make(saved.data);
            status = ls_topo_read(dir, b, &err);
            ls_topo_tree_save(dir, &again, &err);
            clear();
            same = a->ngpu == b->ngpu && a->nnic == b->nnic && a->niface == b->niface &&
                   a->ncpu == b->ncpu && CPU_EQUAL(&a->allowed, &b->allowed) &&
                   !memcmp(&a->limits, &b->limits, sizeof a->limits) && a->peermem == b->peermem &&
                   a->dmabuf == b->dmabuf && a->virtual_machine == b->virtual_machine;
            for (int g = 0; same && g < a->ngpu; g++)
                same = !memcmp(&a->gpu[g].pci, &b->gpu[g].pci, sizeof a->gpu[g].pci) &&
                       a->gpu[g].open == b->gpu[g].open && a->gpu[g].mig == b->gpu[g].mig &&
                       a->gpu[g].translated == b->gpu[g].translated;
            for (int n = 0; same && n < a->nnic; n++)
                same = a->nic[n].class == b->nic[n].class && a->nic[n].nport == b->nic[n].nport &&
                       !strcmp(a->nic[n].netdev, b->nic[n].netdev) &&
                       !strcmp(a->nic[n].driver, b->nic[n].driver) &&
                       !memcmp(&a->nic[n].pci, &b->nic[n].pci, sizeof a->nic[n].pci) &&
                       ls_topo_choose_gid(&a->nic[n].port[0]) ==
                           ls_topo_choose_gid(&b->nic[n].port[0]);
            for (int n = 0; same && n < a->niface; n++)
                same = !memcmp(&a->iface[n], &b->iface[n], sizeof a->iface[n]);
        }
        tap_ok(status == LS_OK && same, "%s, saved and read: %s", trees[i], err.message);
        tap_ok(again.data && saved.data && !strcmp(again.data, saved.data),
               "%s, saved again: the same text", trees[i]);
        ls_buf_free(&saved);
        ls_buf_free(&again);
        free(text);
        free(a);
        free(b);
    }
}

/* What identifies a machine or a person, wherever it stands, must not be in what is saved. */
static void test_private(void)
{
    static const char secret[] =
        "lockstep-tree 1\n"
        "proc/driver/nvidia/gpus/0000:01:00.0/information =\n"
        "| Model: \t NVIDIA A10\n| GPU UUID: \t GPU-deadbeef-1234-5678-9abc-def012345678\n"
        "| Video BIOS: \t 94.02.5c.00.42\n| Board Serial: 1320921047281\n| Device Minor: \t 0\n"
        "sys/class/net/enx3cecef112233 -> "
        "../../devices/pci0000:00/0000:00:02.0/net/enx3cecef112233\n"
        "sys/class/net/enx3cecef112233/operstate = up\n"
        "sys/class/net/enx3cecef112233/address = 3c:ec:ef:11:22:33\n"
        "sys/class/net/enx3cecef112233/uevent =\n| INTERFACE=enx3cecef112233\n| DEVTYPE=vlan\n"
        "sys/class/infiniband/ibx9803fa0300aabbcc/node_guid = 9803:fa03:00aa:bbcc\n"
        "sys/class/infiniband/ibx9803fa0300aabbcc/ports/1/state = 4: ACTIVE\n"
        "sys/class/infiniband/ibx9803fa0300aabbcc/ports/1/link_layer = Ethernet\n"
        "sys/class/infiniband/ibx9803fa0300aabbcc/ports/1/gids/0 = "
        "fe80:0000:0000:0000:9a03:faff:fe11:2233\n"
        "sys/class/infiniband/ibx9803fa0300aabbcc/ports/1/gids/1 = "
        "0000:0000:0000:0000:0000:ffff:8102:0347\n"
        "sys/class/infiniband/ibx9803fa0300aabbcc/ports/1/gid_attrs/ndevs/1 = enx3cecef112233\n"
        "sys/class/dmi/id/product_name = SecretServer 9000\n"
        "proc/net/route =\n| Iface Destination\n"
        "| enx3cecef112233 00000000 FE030281 0003 0 0 0 00000000\n"
        "| enx3cecef112233 00030281 00000000 0001 0 0 0 00FFFFFF\n"
        "proc/net/if_inet6 = 20010638abcd00000000000000000007 02 40 00 80 enx3cecef112233\n"
        "proc/self/cgroup = 0::/slurm/uid_31337/job_424242\n"
        "sys/fs/cgroup/slurm/uid_31337/memory.max = 1000000\n"
        "proc/self/status =\n| Name:\tsecretname\n| Cpus_allowed_list:\t0\n"
        "proc/self/mounts =\n| nas7.example.org:/home /home nfs rw 0 0\n"
        "| tmpfs /dev/shm tmpfs rw,size=1024k,uid=31337 0 0\n"
        "proc/cpuinfo =\n| processor\t: 0\n| model name\t: Secret CPU\n| flags\t\t: fpu sse "
        "hypervisor x\n";
    static const char *const never[] = {
        "deadbeef", "94.02",  "1320921047281", "3cecef",  "3c:ec",    "9803fa",   "9803:fa",
        "9a03",     "8102",   "FE030281",      "0281",    "20010638", "31337",    "424242",
        "secret",   "Secret", "nas7",          "example", "sse",      "INTERFACE"};
    static const char *const kept[] = {"GPU-00000000-0000-0000-0000-0000000000",
                                       "NVIDIA A10",
                                       "DEVTYPE=vlan",
                                       "memory.max = 1000000",
                                       "size=1024k",
                                       "hypervisor"};
    struct ls_error err = {0};
    struct ls_buf saved;
    struct ls_topo_machine *m = malloc(sizeof *m);
    ls_buf_init(&saved, LS_TREE_MAX);
    make(secret);
    enum ls_status status = ls_topo_tree_save(dir, &saved, &err);
    clear();
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        tap_ok(status == LS_OK && !strstr(saved.data, never[i]), "not saved: %s", never[i]);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        tap_ok(status == LS_OK && strstr(saved.data, kept[i]), "saved: %s", kept[i]);
    make(saved.data);
    tap_ok(m && ls_topo_read(dir, m, &err) == LS_OK && m->niface == 1 &&
               m->iface[0].default_route && m->iface[0].ipv6 &&
               !strcmp(m->nic[0].netdev, m->iface[0].name) && m->nic[0].port[0].ngid == 2 &&
               m->limits.memory_bytes == 1000000,
           "what belongs together still does");
    clear();
    if (tap_failed)
        tap_note("%s", saved.data);
    ls_buf_free(&saved);
    free(m);
}

/* A task looks at a machine that the daemon above it has read, which may open everything. */
static void test_refresh(void)
{
    struct ls_topo_machine *m = malloc(sizeof *m), *seen = load("cgroup");
    make("lockstep-tree 1\ndev/nvidia1 =\ndev/infiniband/uverbs0 =\n");
    if (!m)
        exit(1);
    *m = *seen;
    for (int g = 0; g < m->ngpu; g++)
        m->gpu[g].open = true;
    char path[4200];
    snprintf(path, sizeof path, "%s/dev", dir);
    int dev = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    ls_topo_refresh(dev, m);
    close(dev);
    tap_ok(!m->gpu[0].open && m->gpu[1].open && !m->gpu[2].open && !m->gpu[3].open &&
               m->nic[0].open && m->nic[0].class == LS_TOPO_NIC_COMPUTE &&
               m->nic[1].class == LS_TOPO_NIC_CLOSED,
           "which devices may be opened is looked at again");
    clear();
    cpu_set_t mine;
    struct rlimit files;
    ls_topo_refresh(-1, m);
    tap_ok(!m->gpu[1].open && !m->nic[0].open, "without a folder of devices none is the task's");
    tap_ok(sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_EQUAL(&mine, &m->allowed) &&
               getrlimit(RLIMIT_NOFILE, &files) == 0 &&
               (files.rlim_cur == RLIM_INFINITY || m->limits.nofile == (int64_t)files.rlim_cur) &&
               m->limits.shm_free == seen->limits.shm_free &&
               m->limits.shm_bytes == seen->limits.shm_bytes &&
               m->limits.memory_bytes == seen->limits.memory_bytes,
           "and so are CPUs and limits, but not what is the node's");
    free(m);
    free(seen);
}

/* This machine, whatever it is. */
static void test_here(void)
{
    struct ls_topo_machine *m = malloc(sizeof *m);
    struct ls_error err = {0};
    cpu_set_t mine;
    enum ls_status status = m ? ls_topo_read("", m, &err) : LS_ERR_NOMEM;
    tap_ok(status == LS_OK && is_sane(m) && m->ncpu >= 1 &&
               sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_EQUAL(&mine, &m->allowed) &&
               m->limits.memory_bytes > 0 && m->limits.nofile != -2,
           "this machine: %d CPUs, %d GPUs, %d NICs, %d interfaces", m ? m->ncpu : 0,
           m ? m->ngpu : 0, m ? m->nnic : 0, m ? m->niface : 0);
    free(m);
}

int main(void)
{
    test_distance();
    test_cpus();
    test_classes();
    test_fast_storage();
    test_details();
    test_gids();
    test_hostile();
    test_damage();
    test_unpack();
    test_save();
    test_private();
    test_refresh();
    test_here();
    return tap_done();
}
