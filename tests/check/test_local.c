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

/* ---- limits ---- */

static void test_limits(void)
{
    reset();
    expect("unlimited", "sys.memlock", "pass: unlimited");
    node->limits.memlock = 65536;
    expect("64 KiB, and no RDMA", "sys.memlock", "pass: 64.0 KiB; no RDMA device needs more");
    node->nnic = 1;
    expect("64 KiB, and RDMA", "sys.memlock", "fail: 64.0 KiB");
    node->limits.nofile = 1024;
    expect("1024 files for one rank", "sys.nofile", "pass: 1024");
    context.size = 1000;
    expect("1024 files for 1000 ranks", "sys.nofile", "warn: 1024");
    context.workers = 8;
    context.job = (const struct ls_job *)node; /* only that there is one counts */
    expect("1024 files for a job of 8000 ranks", "sys.nofile", "fail: 1024");
    node->limits.nofile = -1;
    expect("unlimited files", "sys.nofile", "pass: -1");
    expect("8 MiB of stack", "sys.stack", "pass: 8.0 MiB");
    node->limits.stack = -1;
    expect("unlimited stack", "sys.stack", "warn: unlimited");
    node->limits.shm_free = 100 << 20;
    expect("100 MiB for 8 ranks", "sys.shm", "warn: 100.0 MiB free in /dev/shm");
    node->ngpu = 1;
    expect("100 MiB for 8 ranks with GPUs", "sys.shm", "fail: 100.0 MiB free in /dev/shm");
    node->limits.shm_free = -2;
    expect("no /dev/shm", "sys.shm", "fail: /dev/shm cannot be asked");
    node->limits.memory_bytes = -2;
    expect("no limit known", "sys.mem", "skip: no limit could be read");
    slurm.cpus_per_task = 100000;
    node->ncpu = 200000;
    tap_ok(!strncmp(run("sys.cpu"), "warn: ", 6), "sys.cpu: fewer CPUs than asked for");
    node->ncpu = 1;
    tap_ok(!strncmp(run("sys.cpu"), "pass: ", 6),
           "sys.cpu: all CPUs of a machine that claims more");
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
    open_world();
    test_needs();
    test_limits();
    test_settings();
    test_files();
    return close_world();
}
