/* The local halves on machines and environments that are made up here, and on stored files. */
#include "check/internal.h"
#include "tests/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a world to check ---- */

static struct ls_topo_machine *machine;
static struct ls_slurm slurm;
static struct ls_check_context context;
static char *environment[16];
static char root[] = "/tmp/lockstep-check-XXXXXX";

static const char *get(void *user, const char *name)
{
    size_t n = strlen(name);
    (void)user;
    for (int i = 0; environment[i]; i++)
        if (!strncmp(environment[i], name, n) && environment[i][n] == '=')
            return environment[i] + n + 1;
    return NULL;
}

static void reset(void)
{
    memset(machine, 0, sizeof *machine);
    memset(environment, 0, sizeof environment);
    slurm = (struct ls_slurm){.place = LS_SLURM_NONE};
    machine->ncpu = 4;
    machine->limits =
        (struct ls_topo_limits){-1, 1 << 20, 8 << 20, -1, 1 << 30, 1 << 30, 8LL << 30};
    context = (struct ls_check_context){.root = root,
                                        .get = get,
                                        .environ = environment,
                                        .slurm = &slurm,
                                        .machine = machine,
                                        .workers = 1,
                                        .size = 1,
                                        .local_size = 1,
                                        .nodes = 1,
                                        .host = "n0",
                                        .out_dir = root};
}

static void write_file(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0777);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        exit(2);
}

/* What the local half of a check says: "fail: measured | F fact". */
static const char *run(const char *id)
{
    static char text[4096];
    const struct ls_check *check = ls_check_find(id);
    struct ls_check_out out = {.check = check, .fd = -1};
    struct ls_check_list list = {0};
    const char *facts[64] = {0};
    struct ls_error err = {0};
    ls_buf_init(&out.text, 1 << 20);
    check->local(&out, &context);
    /* An empty line ends a half; there is nobody to go on for. */
    while (out.text.len && out.text.data[out.text.len - 1] == '\n' &&
           (out.text.len == 1 || out.text.data[out.text.len - 2] == '\n'))
        out.text.len--;
    text[0] = '\0';
    if (ls_check_unpack(out.text.data, out.text.len, 0, &list, facts, &err) != LS_OK)
        snprintf(text, sizeof text, "error: %s", err.message);
    for (int i = 0; i < list.n; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s: %s%s%s", n ? " | " : "",
                 ls_check_status_names[list.result[i].status], list.result[i].device,
                 *list.result[i].device ? " " : "", list.result[i].measured);
    }
    if (facts[check - ls_checks]) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%sF %s", n ? " | " : "", facts[check - ls_checks]);
    }
    ls_check_list_free(&list);
    ls_buf_free(&out.text);
    return text;
}

static void expect(const char *what, const char *id, const char *want)
{
    const char *got = run(id);
    bool ok = !strcmp(got, want);
    tap_ok(ok, "%s: %s", id, what);
    if (!ok)
        tap_note("got  %s", got), tap_note("want %s", want);
}

static void unmet(const char *what, const char *id, const char *want)
{
    const char *got = ls_check_unmet(ls_check_find(id), &context);
    tap_ok(want ? got && strstr(got, want) : !got, "%s: %s", id, what);
}

/* ---- needs ---- */

static void test_needs(void)
{
    reset();
    unmet("no GPU", "gpu.visible", "no GPU here");
    unmet("no NIC", "ib.port", "no InfiniBand");
    unmet("no job", "env.slurm", "not in a Slurm job");
    unmet("alone", "net.port", "one task");
    unmet("no job description", "job.data", "no job description");
    unmet("always", "sys.cpu", NULL);
    slurm.gpus_on_node = 2;
    unmet("GPUs were granted, but none is here: that is for the check to say", "gpu.visible", NULL);
    context.size = 4;
    unmet("several tasks without PMIx", "net.port", "not met");
    unmet("which is never a skip", "env.pmix", NULL);
    context.pmix = true;
    unmet("with PMIx", "net.port", NULL);
    context.machine = NULL;
    unmet("the machine is not readable", "ib.port", "could not be read");
    context.slurm_problem = "contradiction";
    unmet("contradictory variables are not no job", "env.slurm", NULL);
    expect("and are told", "env.slurm", "fail: contradiction");
    context.job_path = "job.cfg";
    context.job_problem = "job.cfg:3: found x";
    unmet("a job that cannot be read", "job.data", "cannot be read");
    expect("is told once", "job.cfg", "fail: job.cfg:3: found x");
}

/* ---- limits ---- */

static void test_limits(void)
{
    reset();
    expect("unlimited", "sys.memlock", "pass: unlimited");
    machine->limits.memlock = 65536;
    expect("64 KiB, and no RDMA", "sys.memlock", "pass: 64.0 KiB; no RDMA device needs more");
    machine->nnic = 1;
    expect("64 KiB, and RDMA", "sys.memlock", "fail: 64.0 KiB");
    machine->limits.nofile = 1024;
    expect("1024 files for one rank", "sys.nofile", "pass: 1024");
    context.size = 1000;
    expect("1024 files for 1000 ranks", "sys.nofile", "warn: 1024");
    context.workers = 8;
    context.job = (const struct ls_job *)machine; /* only that there is one counts */
    expect("1024 files for a job of 8000 ranks", "sys.nofile", "fail: 1024");
    machine->limits.nofile = -1;
    expect("unlimited files", "sys.nofile", "pass: -1");
    expect("8 MiB of stack", "sys.stack", "pass: 8.0 MiB");
    machine->limits.stack = -1;
    expect("unlimited stack", "sys.stack", "warn: unlimited");
    machine->limits.shm_free = 100 << 20;
    expect("100 MiB for 8 ranks", "sys.shm", "warn: 100.0 MiB free in /dev/shm");
    machine->ngpu = 1;
    expect("100 MiB for 8 ranks with GPUs", "sys.shm", "fail: 100.0 MiB free in /dev/shm");
    machine->limits.shm_free = -2;
    expect("no /dev/shm", "sys.shm", "fail: /dev/shm cannot be asked");
    machine->limits.memory_bytes = -2;
    expect("no limit known", "sys.mem", "skip: no limit could be read");
    slurm.cpus_per_task = 100000;
    machine->ncpu = 200000;
    tap_ok(!strncmp(run("sys.cpu"), "warn: ", 6), "sys.cpu: fewer CPUs than asked for");
    machine->ncpu = 1;
    tap_ok(!strncmp(run("sys.cpu"), "pass: ", 6),
           "sys.cpu: all CPUs of a machine that claims more");
}

/* ---- settings ---- */

static void settings(const char *what, const char *want, char *a, char *b)
{
    reset();
    machine->nnic = 2;
    strcpy(machine->nic[0].name, "mlx5_1");
    strcpy(machine->nic[1].name, "mlx5_10");
    environment[0] = a;
    environment[1] = b;
    expect(what, "env.nccl", want);
}

static void test_settings(void)
{
    settings("none", "F ", NULL, NULL);
    settings("sorted, and only those", "F NCCL_DEBUG=WARN\nUCX_TLS=self,sm,tcp",
             (char *)"UCX_TLS=self,sm,tcp", (char *)"NCCL_DEBUG=WARN");
    settings("others do not count", "F ", (char *)"PATH=/bin", (char *)"XNCCL_DEBUG=1");
    settings("a typing mistake",
             "warn: NCCL_SOCKET_IFNAMES; did you mean NCCL_SOCKET_IFNAME? | F "
             "NCCL_SOCKET_IFNAMES=eth0",
             (char *)"NCCL_SOCKET_IFNAMES=eth0", NULL);
    settings("a plugin's own name", "F NCCL_OFI_SOMETHING_LONG=1",
             (char *)"NCCL_OFI_SOMETHING_LONG=1", NULL);
    settings("a level as a number", "warn: NCCL_P2P_LEVEL=3 | F NCCL_P2P_LEVEL=3",
             (char *)"NCCL_P2P_LEVEL=3", NULL);
    settings("a level as a word", "F NCCL_P2P_LEVEL=SYS", (char *)"NCCL_P2P_LEVEL=SYS", NULL);
    settings("left over", "warn: NCCL_IB_DISABLE=1 | F NCCL_IB_DISABLE=1",
             (char *)"NCCL_IB_DISABLE=1", NULL);
    settings("^docker0 takes lo in",
             "warn: NCCL_SOCKET_IFNAME=^docker0 makes the loopback interface eligible | F ",
             (char *)"NCCL_SOCKET_IFNAME=^docker0", NULL);
    settings("a prefix takes mlx5_10, too",
             "warn: mlx5_1 NCCL_IB_HCA is a prefix, and takes mlx5_10, too | F ",
             (char *)"NCCL_IB_HCA=mlx5_1:1", NULL);
    settings("an exact name does not", "F ", (char *)"NCCL_IB_HCA==mlx5_1", NULL);
    settings("the longer name is exact enough", "F ", (char *)"NCCL_IB_HCA=mlx5_10", NULL);
    settings("UCX_TLS without self", "warn: UCX_TLS=rc | F UCX_TLS=rc", (char *)"UCX_TLS=rc", NULL);
    settings("UCX_TLS that denies", "F UCX_TLS=^ud", (char *)"UCX_TLS=^ud", NULL);
}

/* ---- GPUs ---- */

static void make_gpus(int n)
{
    reset();
    machine->ngpu = n;
    for (int i = 0; i < n; i++) {
        struct ls_topo_gpu *g = &machine->gpu[i];
        snprintf(g->uuid, sizeof g->uuid, "GPU-%d", i);
        snprintf(g->pci.bdf, sizeof g->pci.bdf, "0000:%02x:00.0", i);
        strcpy(g->model, "H100");
        g->minor = i;
        g->open = true;
    }
    slurm.gpus_on_node = n;
}

static void see(int count, int *index)
{
    slurm.visible = (struct ls_visible){.set = true, .count = count, .index = index};
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
    strcpy(machine->gpu[1].model, "A100");
    expect("two models", "gpu.visible", "warn: 0000:01:00.0 A100");
    make_gpus(2);
    machine->gpu[0].open = false;
    expect("a closed device", "gpu.visible", "fail: 0000:00:00.0 /dev/nvidia0 cannot be opened");

    tap_ok(!strncmp(run("gpu.xid"), "skip: the kernel's log is closed", 32), "gpu.xid: no log");
    write_file("/dev/kmsg", "6,1,1,-;NVRM: loading\n");
    expect("a clean log", "gpu.xid", "pass: no Xid");
    write_file("/dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=7, Graphics Exception\n");
    expect("a program's error", "gpu.xid", "warn: Xid 13 in the kernel's log");
    write_file("/dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, fallen off the bus\n"
                            "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 45, pid=7, x\n");
    expect("an error of the hardware", "gpu.xid", "fail: Xid 79 in the kernel's log");
    expect("no peer memory", "gdr.mod", "warn: nvidia_peermem is not loaded");
    machine->dmabuf = true;
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
    machine->nnic = 2;
    for (int i = 0; i < 2; i++) {
        struct ls_topo_nic *n = &machine->nic[i];
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
    expect("two ports", "ib.port", "F 2 active ports of 400 Gbit/s, InfiniBand");
    machine->nic[1].port[0].gbit = 100;
    expect("one came up slowly", "ib.port", "fail: mlx5_1/1 100 Gbit/s");
    make_nics(LS_TOPO_LINK_IB);
    machine->nic[0].port[0].sm_lid = 0;
    expect("no subnet manager", "ib.port", "fail: mlx5_0/1 active, but its SM lid is 0");
    make_nics(LS_TOPO_LINK_ETHERNET);
    machine->nic[0].port[0].sm_lid = machine->nic[1].port[0].sm_lid = 0;
    expect("RoCE needs none", "ib.port", "F 2 active ports of 400 Gbit/s, RoCE");
    machine->nic[0].class = LS_TOPO_NIC_DOWN;
    machine->nic[0].why = "its port is down";
    expect("a NIC that is down", "ib.port",
           "warn: mlx5_0 its port is down | F 1 active ports of 400 Gbit/s, RoCE");
    machine->nic[1].class = LS_TOPO_NIC_STORAGE;
    expect("nothing left", "ib.port",
           "warn: mlx5_0 its port is down | fail: none of 2 NICs is up and free");

    make_nics(LS_TOPO_LINK_IB);
    expect("InfiniBand needs no GID", "ib.gid", "skip: no RoCE port among the compute NICs");
    make_nics(LS_TOPO_LINK_ETHERNET);
    expect("no GID at all", "ib.gid",
           "fail: mlx5_0 none of its 0 GIDs is | fail: mlx5_1 none of its 0 GIDs is");
    for (int i = 0; i < 2; i++) { /* ::ffff:10.0.0.x, version 2, at index 3 */
        struct ls_topo_port *p = &machine->nic[i].port[0];
        p->ngid = 1;
        p->gid[0] = (struct ls_topo_gid){.index = 3, .version = 2};
        p->gid[0].raw[10] = p->gid[0].raw[11] = 0xff;
        p->gid[0].raw[12] = 10;
        p->gid[0].raw[15] = (uint8_t)(i + 1);
    }
    expect("GIDs", "ib.gid", "F mlx5_0 GID 3, mlx5_1 GID 3");
    expect("open", "ib.open", "pass: 2 devices");
    machine->nic[1].open = false;
    machine->nic[1].class = LS_TOPO_NIC_CLOSED;
    expect("one is closed", "ib.open", "fail: mlx5_1 its device node cannot be opened");
    expect("no firmware said", "ver.firmware", "skip: no compute NIC says its firmware");
    write_file("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n");
    expect("firmware of the compute NICs", "ver.firmware", "F mlx5_0 28.39.1002");
    expect("the kernel's driver", "ver.ofed", "F mlx5_core of the kernel");
    write_file("/sys/module/mlx5_core/version", "24.01-0.3.3\n");
    expect("OFED", "ver.ofed", "F mlx5_core 24.01-0.3.3");
}

/* ---- files ---- */

static void test_files(void)
{
    char path[600], fifo[600];
    const char *program[] = {path, NULL};
    reset();
    context.program = program;
    snprintf(path, sizeof path, "%s/prog", root);
    tap_ok(!strncmp(run("fs.bin"), "fail: ", 6), "fs.bin: a program that is not there");
    write_file("/prog", "one");
    char first[128];
    snprintf(first, sizeof first, "%s", run("fs.bin"));
    write_file("/prog", "two");
    tap_ok(!strncmp(first, "F prog ", 7) && strcmp(first, run("fs.bin")) != 0,
           "fs.bin: other bytes, another fact");

    expect("write, sync, lock, rename: the first half has nothing to tell", "fs.out", "");
    snprintf(path, sizeof path, "%s/prog/below", root);
    context.out_dir = path;
    tap_ok(strstr(run("fs.out"), "fail: cannot use") != NULL, "fs.out: a file is no folder");
    snprintf(path, sizeof path, "%s/a/b/c", root);
    expect("a folder that is yet to be made counts as the one above", "fs.out", "");
    tap_ok(access(path, F_OK) != 0, "fs.out: and nothing was made");
    snprintf(path, sizeof path, "/proc");
    tap_ok(strstr(run("fs.out"), "fail: cannot create a file in /proc") != NULL,
           "fs.out: where nobody can write");

    struct ls_job job = {.path = "job.cfg"};
    context.job = &job;
    snprintf(path, sizeof path, "%s/data", root);
    snprintf(fifo, sizeof fifo, "%s/fifo", root);
    job.data.train_images = job.data.train_labels = path;
    tap_ok(strstr(run("job.data"), "No such file") != NULL, "job.data: a missing file");
    write_file("/data", "");
    tap_ok(strstr(run("job.data"), "the file is empty") != NULL, "job.data: an empty file");
    write_file("/data", "abc");
    snprintf(first, sizeof first, "%s", run("job.data") + 2);
    tap_ok(strstr(run("job.data"), "3 bytes, begins with") != NULL, "job.data: a file");
    write_file("/data", "abd");
    tap_ok(strcmp(first, run("job.data") + 2) != 0, "job.data: another file, another fact");
    mkfifo(fifo, 0600);
    job.data.test_images = job.data.test_labels = fifo;
    tap_ok(strstr(run("job.data"), "not a regular file") != NULL,
           "job.data: a pipe does not hold us");
}

int main(void)
{
    machine = calloc(1, sizeof *machine);
    if (!machine || !mkdtemp(root))
        return 2;
    test_needs();
    test_limits();
    test_settings();
    test_gpus();
    test_nics();
    test_files();
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    if (system(command) != 0)
        tap_note("left %s", root);
    free(machine);
    return tap_done();
}
