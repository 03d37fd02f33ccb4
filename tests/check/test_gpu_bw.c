/* gpu.bw: on a libcuda of GPUs that exist nowhere (fake_cuda.c), and the comparison of figures. */
#include "check/cuda_api.h"
#include "check/gpu_kernel.h"
#include "tests/check/local.h"

#include <math.h>

static void use(const char *name, const char *wish)
{
    reset();
    node->ngpu = 2;
    context.cuda = built("check", name);
    setenv("FAKE_CUDA", wish, 1);
}

static void nothing(void)
{
}

/* NVIDIA's toolkit: CUDA_HOME, else where its installer puts it. */
static const char *toolkit(void)
{
    const char *home = getenv("CUDA_HOME");
    return home && *home ? home : "/usr/local/cuda";
}

/* "50 40 60.0" for the figures of a fact's line, in GB/s and TFLOP/s. */
static void shorten(const char *text, char out[static 4096])
{
    const char *fact = strstr(text, "F ");
    fact = fact && (fact == text || fact[-1] == ' ') ? fact : NULL;
    int at = snprintf(out, 4096, "%.*s", fact ? (int)(fact - text) + 1 : 4000, text);
    for (const char *p = fact ? fact + 2 : NULL; p && *p;) {
        char device[64], model[64];
        double up, down, flops;
        if (sscanf(p, "%63s %lf %lf %lf %63[^\n]", device, &up, &down, &flops, model) != 5)
            break;
        at += snprintf(out + at, (size_t)(4096 - at), " <%s %.0f %.0f %.1f %s>", device, up / 1e9,
                       down / 1e9, flops / 1e12, model);
        p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL;
    }
}

static void second(const char *what, const char *want)
{
    char got[4096];
    shorten(run_second("gpu.bw", nothing), got);
    bool ok = !strcmp(got, want);
    tap_ok(ok, "%s", what);
    if (!ok)
        tap_note("got  %s", got), tap_note("want %s", want);
}

#define FIRST  " <0000:a0:00.0 50 40 60.0 NVIDIA Test GPU>"
#define SECOND " <0000:a1:00.0 50 40 60.0 NVIDIA Test GPU>"

static void test_measuring(void)
{
    static const struct {
        const char *what, *wish, *want;
    } rows[] = {
        {"two GPUs", "", "F" FIRST SECOND},
        {"each has its own speed", "*:up:1=12.3;*:down:0=7;*:flops:1=3.5",
         "F <0000:a0:00.0 50 7 60.0 NVIDIA Test GPU> <0000:a1:00.0 12 40 3.5 NVIDIA Test GPU>"},
        {"no GPU", "*:gpus:0", "skip: CUDA sees no GPU of this task"},
        {"no device, says CUDA", "*:code:cuInit=100", "skip: CUDA sees no GPU of this task"},
        {"switches that are not set up", "*:code:cuInit=802",
         "fail: cuInit: system not yet initialized (802)"},
        {"a library of another driver", "*:code:cuInit=803",
         "fail: cuInit: driver version mismatch (803)"},
        {"an error without a name", "*:code:cuInit=77",
         "fail: cuInit: an error that it does not know (77)"},
        {"no count", "*:code:cuDeviceGetCount=999", "fail: cuDeviceGetCount: unknown error (999)"},
        {"memory that others have taken", "*:free:0=63",
         "skip: 0000:a0:00.0 not measured: 63 MiB of its memory are free, and it takes 64 | "
         "F" SECOND},
        {"memory that is taken meanwhile", "*:code:cuMemAlloc_v2=2;*:gpus:1",
         "skip: 0000:a0:00.0 not measured: cuMemAlloc_v2: out of memory | F"},
        {"no memory even for a context", "*:code:cuDevicePrimaryCtxRetain=2;*:gpus:1",
         "skip: 0000:a0:00.0 not measured: cuDevicePrimaryCtxRetain: out of memory | F"},
        {"no pinned memory", "*:code:cuMemHostAlloc=2;*:gpus:1",
         "skip: 0000:a0:00.0 not measured: cuMemHostAlloc: out of memory | F"},
        {"a bit that flips on the way", "*:flip:1",
         "fail: 0000:a1:00.0 1 of 8388608 words came back otherwise | F" FIRST},
        {"a bit that is computed wrong", "*:wrong:1",
         "fail: 0000:a1:00.0 1 of 8192 threads computed wrong results | F" FIRST},
        {"a clock that stands still", "*:stopped:0;*:gpus:1",
         "fail: 0000:a0:00.0 its clock says that no time has passed | F"},
        {"no compiler: only its arithmetic is left out", "*:code:cuModuleLoadData=221;*:gpus:1",
         "skip: 0000:a0:00.0 its arithmetic is not measured: no libnvidia-ptxjitcompiler.so.1 "
         "here | F <0000:a0:00.0 50 40 0.0 NVIDIA Test GPU>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        use("libcuda.so.1", rows[i].wish);
        second(rows[i].what, rows[i].want);
    }
    use("libcuda.so.1", "*:free:0=255;*:gpus:1");
    context.full = true;
    second("--full takes more",
           "skip: 0000:a0:00.0 not measured: 255 MiB of its memory are free, and it takes 256 | F");
    use("libcuda.so.1", "*:gpus:1");
    context.full = true;
    second("and copies it", "F" FIRST);
}

/* What has no address of its own is called by its UUID. */
static void test_names(void)
{
    char want[128], run[16];
    snprintf(run, sizeof run, "%08x", (unsigned)getpid());
    use("libcuda.so.1", "*:gpus:1;*:model:0=NVIDIA A100 MIG 3g.20gb");
    snprintf(want, sizeof want,
             "F <MIG-00000000-0000-0000-%.4s-%s00000000 50 40 60.0 NVIDIA A100 MIG 3g.20gb>", run,
             run + 4);
    second("an instance has the name that CUDA_VISIBLE_DEVICES knows", want);
    use("libcuda.so.1", "*:gpus:1;*:first:3;*:busless:3");
    snprintf(want, sizeof want,
             "F <GPU-00000000-0000-0000-%.4s-%s00000003 50 40 60.0 NVIDIA Test GPU>", run, run + 4);
    second("a GPU without an address", want);
}

/* Whatever fails is named, and is a failure of that GPU. */
static void test_calls(void)
{
    static const char *const identifying[] = {"cuDeviceGet", "cuDeviceGetName",
                                              "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId"};
    static const char *const working[] = {"cuDevicePrimaryCtxRetain",
                                          "cuCtxSetCurrent",
                                          "cuMemGetInfo_v2",
                                          "cuMemAlloc_v2",
                                          "cuMemHostAlloc",
                                          "cuStreamCreate",
                                          "cuEventCreate",
                                          "cuEventRecord",
                                          "cuMemcpyHtoDAsync_v2",
                                          "cuMemcpyDtoHAsync_v2",
                                          "cuEventSynchronize",
                                          "cuEventElapsedTime",
                                          "cuModuleLoadData",
                                          "cuModuleGetFunction",
                                          "cuDeviceGetAttribute",
                                          "cuLaunchKernel"};
    enum { IDENTIFYING = sizeof identifying / sizeof *identifying };
    for (size_t i = 0; i < IDENTIFYING + sizeof working / sizeof *working; i++) {
        char wish[96], want[128];
        const char *name = i < IDENTIFYING ? identifying[i] : working[i - IDENTIFYING];
        snprintf(wish, sizeof wish, "*:gpus:1;*:code:%s=999", name);
        snprintf(want, sizeof want, "fail: %s %s: unknown error (999) | F",
                 i < IDENTIFYING ? "GPU 0" : "0000:a0:00.0", name);
        use("libcuda.so.1", wish);
        second(name, want);
    }
    use("libcuda.so.1", "*:gpus:1;*:code:cuDevicePrimaryCtxRelease_v2=999");
    second("what fails when all is measured says nothing", "F" FIRST);
}

static void test_libraries(void)
{
    use("libnowhere.so", "");
    tap_ok(!strncmp(run("gpu.bw"), "skip: CUDA's driver library cannot be loaded: ", 46),
           "no library: %s", run("gpu.bw"));
    use("libfakecuda_old.so", "");
    tap_ok(strstr(run("gpu.bw"), "skip: ") && strstr(run("gpu.bw"), "no cuDeviceGetUuid_v2: found"),
           "a library that is too old: %s", run("gpu.bw"));
    reset();
    unmet("nothing to measure", "gpu.bw", "no GPU here");
    /* What NVIDIA's toolkit links against has the names of the real one. */
    char linked[4200];
    struct ls_cuda cuda;
    struct ls_error err = {0};
    snprintf(linked, sizeof linked, "%s/lib64/stubs/libcuda.so", toolkit());
    if (access(linked, R_OK) != 0)
        tap_ok(true, "the names of functions # SKIP no CUDA toolkit: found no %s", linked);
    else
        tap_ok(ls_cuda_load(linked, &cuda, &err) == LS_OK, "the toolkit has all functions: %s",
               err.message);
}

/* ---- several tasks on a node ---- */

/* A task that has measured, and waits for the others; *fd: what it waits on. */
static pid_t begin_task(int *fd)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        struct ls_check_out out = {.check = ls_check_find("gpu.bw"), .fd = fds[1]};
        close(fds[0]);
        ls_buf_init(&out.text, 1 << 20);
        out.check->local(&out, &context);
        ls_buf_free(&out.text);
        _exit(0);
    }
    close(fds[1]);
    *fd = fds[0];
    return pid;
}

static void await_half(int fd)
{
    char said[4096];
    size_t n = 0;
    for (ssize_t got; (got = read(fd, said + n, sizeof said - n)) > 0;) {
        n += (size_t)got;
        if (said[n - 1] == '\n' && (n == 1 || said[n - 2] == '\n'))
            return;
    }
    tap_ok(false, "a task ends its half");
}

static void end_task(int fd, pid_t pid)
{
    int status = -1;
    shutdown(fd, SHUT_RDWR); /* tasks that began later have inherited it */
    close(fd);
    waitpid(pid, &status, 0);
    tap_ok(status == 0, "and ends");
}

static void test_claims(void)
{
    int fd;
    use("libcuda.so.1", "");
    pid_t pid = begin_task(&fd);
    await_half(fd);
    if (write(fd, "g", 1) != 1)
        exit(2);
    await_half(fd);
    second("a task that sees the same GPUs leaves them to the first one",
           "skip: other tasks of this node measure its GPUs | F");
    use("libcuda.so.1", "*:first:1");
    second("and measures what that one does not see",
           "F <0000:a2:00.0 50 40 60.0 NVIDIA Test GPU>");
    end_task(fd, pid);
    use("libcuda.so.1", "");
    second("afterwards they can be measured again", "F" FIRST SECOND);
}

/* The numbers of processes in the log of copies; how often they change. */
static int changes(const char *path, int *copies)
{
    FILE *f = fopen(path, "r");
    int before = 0, n = 0, pid;
    *copies = 0;
    while (f && fscanf(f, "%d", &pid) == 1) {
        n += *copies > 0 && pid != before;
        before = pid;
        (*copies)++;
    }
    if (f)
        fclose(f);
    return n;
}

static void test_turns(void)
{
    enum { TASKS = 4 };
    int fd[TASKS], copies;
    pid_t pid[TASKS];
    char log[128];
    snprintf(log, sizeof log, "%s/copies", root);
    use("libcuda.so.1", "*:gpus:1");
    context.local_size = TASKS;
    tap_ok(strstr(run_second("gpu.bw", nothing), "skip: 0000:a0:00.0 not measured: tasks of a node "
                                                 "take turns by locking "),
           "tasks that cannot take turns do not measure");
    write_file("/dev/nvidiactl", "");
    setenv("FAKE_CUDA_LOG", log, 1);
    for (int i = 0; i < TASKS; i++) {
        char wish[64];
        snprintf(wish, sizeof wish, "*:gpus:1;*:first:%d", i);
        setenv("FAKE_CUDA", wish, 1);
        pid[i] = begin_task(&fd[i]);
        await_half(fd[i]);
    }
    for (int i = 0; i < TASKS; i++)
        if (write(fd[i], "g", 1) != 1)
            exit(2);
    for (int i = 0; i < TASKS; i++)
        await_half(fd[i]);
    for (int i = 0; i < TASKS; i++)
        end_task(fd[i], pid[i]);
    int n = changes(log, &copies);
    /* Eight copies for the bandwidth, in a turn; one for the results of the arithmetic, outside. */
    tap_ok(copies == 9 * TASKS, "all tasks have copied: %d", copies);
    tap_ok(n <= 3 * TASKS, "one after the other: %d changes", n);
    unsetenv("FAKE_CUDA_LOG");
}

/* ---- the kernel ---- */

static void test_kernel(void)
{
    char command[8600], assembler[4200];
    write_file("/chains.ptx", ls_check_kernel_ptx);
    static const char *const gpus[] = {"sm_75", "sm_80", "sm_90"};
    snprintf(assembler, sizeof assembler, "%s/bin/ptxas", toolkit());
    bool have = access(assembler, X_OK) == 0;
    if (!have)
        tap_ok(true, "NVIDIA's assembler takes the kernel # SKIP no CUDA toolkit: found no %s",
               assembler);
    for (size_t i = 0; have && i < sizeof gpus / sizeof *gpus; i++) {
        snprintf(command, sizeof command, "'%s' -arch=%s -o %s/chains.o %s/chains.ptx", assembler,
                 gpus[i], root, root);
        tap_ok(system(command) == 0, "ptxas takes the kernel for %s", gpus[i]);
    }
    tap_ok(ls_check_kernel_result(1) != ls_check_kernel_result(2) &&
               ls_check_kernel_result(65535) != ls_check_kernel_result(65536),
           "every turn changes the result");
}

/* ---- comparing ---- */

enum { RANKS = 8 };

/* `facts`: of rank 0 and up, two ranks on each node; NULL: none; "skip": it could not load the library. */
static void compare(const char *what, int n, const char *const *facts, const char *want)
{
    static const char *const host[] = {"n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"};
    static const int number[] = {0, 0, 1, 1, 2, 2, 3, 3};
    const struct ls_check *check = ls_check_find("gpu.bw");
    const char *fact[RANKS];
    struct ls_check_world w = {n, host, number, fact};
    struct ls_check_list list = {0};
    char got[4096] = "";
    for (int r = 0; r < n; r++) {
        bool skip = facts[r] && !strcmp(facts[r], "skip");
        fact[r] = skip ? NULL : facts[r];
        if (skip)
            ls_check_add(&list, check, LS_CHECK_SKIP, r, "", "no library", "", "");
    }
    check->compare(check, &w, &list);
    for (int i = 0; i < list.n; i++) {
        const struct ls_check_result *r = &list.result[i];
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s %d%s%s %s%s%s", i ? " | " : "",
                 ls_check_status_names[r->status], r->rank, *r->device ? " " : "", r->device,
                 r->measured, *r->expected ? "; " : "", r->expected);
        if (r->status > LS_CHECK_SKIP && !*r->advice)
            tap_ok(false, "%s: has advice", what);
    }
    bool ok = !strcmp(got, want) && !list.failed;
    tap_ok(ok, "%s", what);
    if (!ok)
        tap_note("got  %s", got), tap_note("want %s", want);
    ls_check_list_free(&list);
}
#define FACTS(...) ((const char *const[]){__VA_ARGS__})

static void test_comparison(void)
{
    static const char a[] = "a 50000000000 40000000000 60000000000000 H100",
                      b[] = "b 51000000000 41000000000 61000000000000 H100",
                      ab[] = "a 50000000000 40000000000 60000000000000 H100\n"
                             "b 51000000000 41000000000 61000000000000 H100";
    compare("alike", 3, FACTS(a, b, ab),
            "pass -1 4 x H100: 51.0 GB/s to it, 41.0 GB/s from it, 61.0 TFLOP/s in the middle");
    compare("one GPU", 1, FACTS(a),
            "pass -1 1 x H100: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s; there is no other "
            "to compare it with");
    compare("nothing measured", 3, FACTS(NULL, NULL, NULL), "");
    compare("other tasks have measured", 2, FACTS(ab, ""),
            "pass -1 2 x H100: 51.0 GB/s to it, 41.0 GB/s from it, 61.0 TFLOP/s in the middle");
    compare("slow to it", 4, FACTS(a, a, "c 39900000000 40000000000 60000000000000 H100", a),
            "fail 2 c 39.9 GB/s to it, 20 % below the median; 50.0 GB/s, of 4 x H100");
    compare("a fifth less is the limit", 3, FACTS(a, a, "c 40000000000 4e10 6e13 H100"),
            "warn 2 c 40.0 GB/s to it, 20 % below the median; 50.0 GB/s, of 3 x H100");
    compare("slow from it", 4, FACTS(a, "c 50000000000 1000000000 60000000000000 H100", a, a),
            "fail 1 c 1.0 GB/s from it, 98 % below the median; 40.0 GB/s, of 4 x H100");
    compare("slow arithmetic", 3, FACTS(a, a, "c 50000000000 40000000000 50000000000000 H100"),
            "warn 2 c 50.0 TFLOP/s, 17 % below the median; 60.0 TFLOP/s, of 3 x H100");
    compare("5 % are nothing", 3, FACTS(a, a, "c 47500000000 38000000000 57000000000000 H100"),
            "pass -1 3 x H100: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s in the middle");
    compare("more than 5 % are a warning", 3,
            FACTS(a, a, "c 47400000000 38000000000 57000000000000 H100"),
            "warn 2 c 47.4 GB/s to it, 5 % below the median; 50.0 GB/s, of 3 x H100");
    compare("of two, the slower one", 2, FACTS("c 25000000000 4e10 6e13 H100", a),
            "fail 0 c 25.0 GB/s to it, 50 % below the median; 50.0 GB/s, of 2 x H100");
    compare("a faster one is no fault", 3, FACTS(a, a, "c 90000000000 9e10 9e13 H100"),
            "pass -1 3 x H100: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s in the middle");
    compare("other models are other GPUs", 4,
            FACTS(a, a, "c 1000000000 1000000000 1000000000000 T4",
                  "d 1000000000 1000000000 1000000000000 T4"),
            "pass -1 2 x H100: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s in the middle | "
            "pass -1 2 x T4: 1.0 GB/s to it, 1.0 GB/s from it, 1.0 TFLOP/s in the middle");
    compare("a model whose name begins alike", 2, FACTS(a, "c 1000000000 1 1 H100 NVL"),
            "pass -1 1 x H100: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s; there is no other "
            "to compare it with | pass -1 1 x H100 NVL: 1.0 GB/s to it, 0.0 GB/s from it, 0.0 "
            "TFLOP/s; there is no other to compare it with");
    compare("all that is slow is told", 3, FACTS(a, a, "c 1 1 1 H100"),
            "fail 2 c 0.0 GB/s to it, 100 % below the median; 50.0 GB/s, of 3 x H100 | fail 2 c "
            "0.0 GB/s from it, 100 % below the median; 40.0 GB/s, of 3 x H100 | fail 2 c 0.0 "
            "TFLOP/s, 100 % below the median; 60.0 TFLOP/s, of 3 x H100");
    compare("arithmetic that was not measured", 2, FACTS(a, "c 50000000000 40000000000 0 H100"),
            "pass -1 2 x H100: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s in the middle");
    compare("anywhere", 1, FACTS("c 50000000000 40000000000 0 H100"),
            "pass -1 1 x H100: 50.0 GB/s to it, 40.0 GB/s from it; there is no other to compare it "
            "with");
    compare("no library where others have one", 3, FACTS(a, a, "skip"),
            "warn 2 no library; a measurement, as on other nodes");
    compare("no library anywhere", 2, FACTS("skip", "skip"),
            "skip 0 no library | skip 1 no library");
    static const char *const strange[] = {
        "c",          "c 1 1 1",     "c 1 1 1 ",     "c 1 1 H100",     " 1 1 1 H100",
        "c -1 1 1 H", "c nan 1 1 H", "c 1e19 1 1 H", "c 1 1\nd 1 1 H", "c  1 1 1 H"};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        compare("what is no figure is not taken for one", 2, FACTS(strange[i], a),
                "skip 0 its figures are not understood | pass -1 1 x H100: 50.0 GB/s to it, 40.0 "
                "GB/s from it, 60.0 TFLOP/s; there is no other to compare it with");
}

int main(void)
{
    char run[16];
    open_world();
    snprintf(run, sizeof run, "%d", (int)getpid());
    setenv("FAKE_CUDA_RUN", run, 1);
    test_measuring();
    test_names();
    test_calls();
    test_libraries();
    test_claims();
    test_turns();
    test_kernel();
    test_comparison();
    return close_world();
}
