/* The local halves on machines and environments that are made up here, and on stored files. */
#include "tests/check/local.h"

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

/* NVIDIA/nccl issue 2385: 7 + 8 ranks hang, 8 + 8 do not. */
static void test_uneven(void)
{
    int tasks[] = {8, 7};
    reset();
    slurm.place = LS_SLURM_STEP;
    slurm.job_id = 5;
    slurm.ntasks = 15;
    slurm.nodes.count = 2;
    slurm.tasks_per_node = tasks;
    expect("7 and 8 tasks", "env.slurm", "warn: the nodes have different numbers of tasks");
    tasks[1] = 8;
    slurm.ntasks = 16;
    expect("8 and 8", "env.slurm", "pass: job 5, 16 tasks on 2 nodes");
}

/* ---- limits ---- */

static void test_limits(void)
{
    reset();
    expect("unlimited", "sys.memlock", "pass: unlimited");
    node->limits.memlock = 65536;
    expect("64 KiB, and no RDMA", "sys.memlock",
           "pass: 64.0 KiB may be locked; no RDMA device needs more");
    node->nnic = 1;
    expect("64 KiB, and RDMA", "sys.memlock", "fail: 64.0 KiB may be locked");
    node->limits.nofile = 1024;
    expect("1024 files for one rank", "sys.nofile", "pass: 1024 descriptors");
    context.size = 1000;
    expect("1024 files for 1000 ranks", "sys.nofile", "warn: 1024 descriptors");
    context.workers = 8;
    context.job = (const struct ls_job *)node; /* only that there is one counts */
    expect("1024 files for a job of 8000 ranks", "sys.nofile", "fail: 1024 descriptors");
    node->limits.nofile = -1;
    expect("unlimited files", "sys.nofile", "pass: unlimited");
    expect("8 MiB of stack", "sys.stack", "pass: 8.0 MiB at most");
    node->limits.stack = -1;
    expect("unlimited stack", "sys.stack", "warn: unlimited");
    node->limits.shm_free = 100 << 20;
    expect("100 MiB for 8 ranks", "sys.shm", "warn: 100.0 MiB free in /dev/shm");
    node->ngpu = 1;
    expect("100 MiB for 8 ranks with GPUs", "sys.shm", "fail: 100.0 MiB free in /dev/shm");
    node->limits.shm_free = -2;
    expect("no /dev/shm", "sys.shm", "fail: /dev/shm cannot be asked");
    node->limits.shm_free = 1 << 30;
    expect("a /dev/shm that does not count files", "sys.shm",
           "pass: at least 512.0 MiB free in /dev/shm, as needed");
    node->limits.shm_files = 100;
    expect("few files for 8 ranks", "sys.shm",
           "warn: 100 files can be made in /dev/shm, and 3584 may be needed");
    node->limits.shm_files = 3584;
    expect("enough files", "sys.shm", "pass: at least 512.0 MiB free in /dev/shm, as needed");
    write_file("/run/systemd/sessions/1", "");
    expect("logind's default", "sys.shm", "warn: logind removes files of users in /dev/shm");
    write_file("/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\nKillUserProcesses=no\n");
    expect("a comment", "sys.shm", "warn: logind removes files of users in /dev/shm");
    write_file("/etc/systemd/logind.conf", "[Login]\nRemoveIPC=no\n");
    expect("switched off", "sys.shm", "pass: at least 512.0 MiB free in /dev/shm, as needed");
    write_file("/etc/systemd/logind.conf.d/9.conf", "[Login]\nRemoveIPC=yes\n");
    expect("and on again behind it", "sys.shm", "warn: logind removes files of users in /dev/shm");
    write_file("/etc/systemd/logind.conf.d/9.conf", "[Login]\nRemoveIPC=off\n");
    expect("and off", "sys.shm", "pass: at least 512.0 MiB free in /dev/shm, as needed");
    context.workers = 1;
    node->limits.shm_files = 0;
    expect("one rank needs none", "sys.shm", "pass: at least 64.0 MiB free in /dev/shm, as needed");
    expect("unlimited processes", "sys.nproc", "pass: unlimited");
    node->limits.nproc = 1000;
    expect("1000 processes", "sys.nproc", "warn: 1000 processes and threads");
    node->limits.nproc = 63000;
    expect("enough processes", "sys.nproc", "pass: 63000 processes and threads");
    node->limits.nproc = -2;
    expect("no limit of processes known", "sys.nproc", "skip: not known");
    node->limits.memory_bytes = -2;
    expect("no limit known", "sys.mem", "skip: no limit could be read");
    slurm.cpus_per_task = 100000;
    node->ncpu = 200000;
    tap_ok(!strncmp(run("sys.cpu"), "warn: ", 6), "sys.cpu: fewer CPUs than asked for");
    node->ncpu = 1;
    tap_ok(!strncmp(run("sys.cpu"), "F ", 2), "sys.cpu: all CPUs of a machine that claims more");
}

/* The mask of this process is what it is; what the kernel says of it is the other way to know it. */
static void test_cpus(void)
{
    char line[4096] = "", want[4200];
    FILE *f = fopen("/proc/self/status", "re");
    reset();
    slurm.cpus_on_node = 3;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "Cpus_allowed_list: %4095s", line) != 1)
        ;
    if (f)
        fclose(f);
    snprintf(want, sizeof want, "F %s of 3", line);
    expect("the mask, and what Slurm gave of 4 CPUs", "sys.cpu", want);
    slurm.cpus_on_node = 64;
    snprintf(want, sizeof want, "F %s of 4", line);
    expect("more than there are", "sys.cpu", want);
    node->ngpu = 1;
    node->gpu[0].open = true;
    CPU_SET(CPU_SETSIZE - 1, &node->gpu[0].pci.cpus);
    CPU_SET(0, &node->allowed);
    slurm.gpus_on_node = 1;
    tap_ok(strstr(run("sys.cpu"), "warn: no CPU of this task (0) is near its GPU") != NULL,
           "sys.cpu: all CPUs are far from the GPU: %s", run("sys.cpu"));
}

/* ---- settings ---- */

static void settings(const char *what, const char *want, char *a, char *b)
{
    reset();
    node->nnic = 2;
    strcpy(node->nic[0].name, "mlx5_1");
    strcpy(node->nic[1].name, "mlx5_10");
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
             "warn: NCCL_SOCKET_IFNAMES (did you mean NCCL_SOCKET_IFNAME?) | F "
             "NCCL_SOCKET_IFNAMES=eth0",
             (char *)"NCCL_SOCKET_IFNAMES=eth0", NULL);
    settings("a plugin's own name", "F NCCL_OFI_SOMETHING_LONG=1",
             (char *)"NCCL_OFI_SOMETHING_LONG=1", NULL);
    settings("left over", "warn: NCCL_IB_DISABLE=1 | F NCCL_IB_DISABLE=1",
             (char *)"NCCL_IB_DISABLE=1", NULL);
    settings("a level as a word", "F NCCL_P2P_LEVEL=SYS", (char *)"NCCL_P2P_LEVEL=SYS", NULL);
    settings("an exact name does not", "F ", (char *)"NCCL_IB_HCA==mlx5_1", NULL);
    settings("the longer name is exact enough", "F ", (char *)"NCCL_IB_HCA=mlx5_10", NULL);
    settings("UCX_TLS that denies", "F UCX_TLS=^ud", (char *)"UCX_TLS=^ud", NULL);
    settings("what the plugin has set may differ from task to task", "F ", (char *)"UCX_NUM_PPN=2",
             (char *)"LOCKSTEP_SET=UCX_NUM_EPS=3;UCX_NUM_PPN=2");
    settings("and so may what it says of families", "F ", (char *)"NCCL_SOCKET_FAMILY=AF_INET6",
             (char *)"LOCKSTEP_SET=NCCL_SOCKET_FAMILY=AF_INET6");
    settings("what the user has put in its place may not", "F UCX_NUM_PPN=7",
             (char *)"UCX_NUM_PPN=7", (char *)"LOCKSTEP_SET=UCX_NUM_PPN=2");
}

/* What src/topo knows of a value on this machine is told here, too; each row is one of its rules. */
static void test_values(void)
{
    static const struct {
        const char *set, *gpus, *without; /* the beginning of what is said */
    } rows[] = {
        {"NCCL_P2P_LEVEL=3", "warn: NCCL_P2P_LEVEL=3: numbers", "warn: NCCL_P2P_LEVEL=3: numbers"},
        {"NCCL_SOCKET_IFNAME=^docker0", "warn: NCCL_SOCKET_IFNAME=^docker0 replaces",
         "warn: NCCL_SOCKET_IFNAME=^docker0 replaces"},
        {"NCCL_IB_HCA=mlx5_1:1", "warn: NCCL_IB_HCA: mlx5_1 is taken for the beginning",
         "warn: NCCL_IB_HCA: mlx5_1 is taken for the beginning"},
        {"NCCL_IB_HCA=mlx4_0", "fail: NCCL_IB_HCA names mlx4_0, but this node has no such device",
         "warn: NCCL_IB_HCA names mlx4_0, but this node has no such device"},
        {"NCCL_SOCKET_IFNAME=ib0", "fail: NCCL_SOCKET_IFNAME=ib0: no such interface is up",
         "warn: NCCL_SOCKET_IFNAME=ib0: no such interface is up"},
        {"UCX_NET_DEVICES=mlx5_1:1", "fail: UCX_NET_DEVICES names mlx5_1, which is missing or down",
         "fail: UCX_NET_DEVICES names mlx5_1, which is missing or down"},
        {"UCX_TLS=self,sm,tcp", "warn: UCX_TLS=self,sm,tcp lacks cuda", "F UCX_TLS=self,sm,tcp"},
        {"UCX_TLS=rc,cuda", "warn: UCX_TLS=rc,cuda lacks sm", "warn: UCX_TLS=rc,cuda lacks sm"},
        {"CUDA_DEVICE_ORDER=FASTEST_FIRST", "warn: CUDA_DEVICE_ORDER=FASTEST_FIRST numbers", "F "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int gpus = 0; gpus <= 2; gpus += 2) {
            const char *want = gpus ? rows[i].gpus : rows[i].without;
            char set[128];
            reset();
            node->nnic = 2;
            strcpy(node->nic[0].name, "mlx5_1");
            strcpy(node->nic[1].name, "mlx5_10");
            node->niface = 1;
            strcpy(node->iface[0].name, "eth0");
            node->iface[0].up = node->iface[0].ipv4 = true;
            node->ngpu = gpus;
            for (int g = 0; g < gpus; g++)
                node->gpu[g].open = true;
            context.local_size = 2;
            snprintf(set, sizeof set, "%s", rows[i].set);
            environment[0] = set;
            const char *got = run("env.nccl");
            bool ok = !strncmp(got, want, strlen(want));
            tap_ok(ok, "env.nccl: %s with %d GPUs", set, gpus);
            if (!ok)
                tap_note("got  %s", got), tap_note("want %s", want);
        }
    reset();
    context.site_problem = "site.conf:1: found x";
    expect("a site file that stops every run", "env.nccl", "fail: site.conf:1: found x | F ");
    reset();
    context.machine = NULL;
    expect("without a machine values are not judged", "env.nccl",
           "skip: values were not judged: the machine could not be read | F ");
}

static const char *conf(const char *text)
{
    static char fact[4][4096];
    static int at;
    write_file("/nccl.conf", text);
    at = (at + 1) % 4;
    snprintf(fact[at], sizeof *fact, "%s", run("env.conf"));
    return fact[at];
}

static void test_conf(void)
{
    char file[600], line[700];
    reset();
    snprintf(file, sizeof file, "%s/nccl.conf", root);
    snprintf(line, sizeof line, "NCCL_CONF_FILE=%s", file);
    environment[0] = line;
    const char *first = conf("NCCL_PROTO=LL\n");
    tap_ok(strstr(first, "F ") && strstr(first, file), "env.conf: a file is a line: %s", first);
    tap_ok(!strcmp(first, conf("# ours\n\n  NCCL_PROTO=LL\r\nNCCL_IB_HCA=mlx5_0\n")),
           "env.conf: comments, blanks and names of devices may differ");
    tap_ok(strcmp(first, conf("NCCL_PROTO=LL\nNCCL_ALGO=RING\n")) != 0,
           "env.conf: not a line more");
    tap_ok(strcmp(first, conf("NCCL_PROTO=SIMPLE\n")) != 0, "env.conf: nor another value");
    unlink(file);
    tap_ok(!strstr(run("env.conf"), file), "env.conf: a file that is absent is no line");
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
    char first[4096];
    snprintf(first, sizeof first, "%s", run("fs.bin"));
    write_file("/prog", "two");
    tap_ok(!strncmp(first, "F prog=", 7) && strncmp(first, run("fs.bin"), 23) != 0,
           "fs.bin: other bytes, another fact");
    const char *libc = strstr(run("fs.bin"), "\nlibc.so.6=/");
    tap_ok(libc && strcspn(libc + 1, "\n") > 12, "fs.bin: and the folders of libraries");

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
    open_world();
    test_needs();
    test_uneven();
    test_limits();
    test_cpus();
    test_settings();
    test_values();
    test_conf();
    test_files();
    return close_world();
}
