/* gpu.bw: bytes to and from the GPUs of this task, and their arithmetic, by CUDA's driver library. Measured in the
 * late half: no check sends anything then, and gpu.mode has counted the processes on the GPUs. Whoever claims a GPU
 * first measures it, so it does not matter whether tasks of a node see the same ones; tasks take turns at copying,
 * since GPUs may share a way to the host's memory. All ranks compare the figures (gpu_compare.c). */
#include "check/cuda_api.h"
#include "check/gpu_kernel.h"
#include "check/internal.h"
#include "topo/nvml_api.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FAST_BYTES = 64 << 20,
    FULL_BYTES = 256 << 20,
    BLOCKS = 8, /* of each multiprocessor: enough to fill it */
    THREADS = 256,
    TURNS = 1 << 16, /* long for the clock of events, short for a person */
    TIMES = 4,       /* the first one warms up; of the others, the best */
    MOST = LS_TOPO_GPUS + LS_TOPO_MIGS
};
static const char drain[] = "have the node drained: its results cannot be trusted";
static const char log_tells[] = "have the node drained; its kernel log tells more";

struct bench {
    struct ls_check_out *out;
    const struct ls_check_context *context;
    struct ls_cuda cuda;
    int n;
    uint32_t right;   /* what every thread must compute */
    int claim[MOST];  /* sockets; -1 */
    int mine, others; /* GPUs claimed here, and by other tasks */
    struct ls_buf fact;
};
struct gpu {
    int device;
    char model[64],
        name[48]; /* name: as the other checks call it, its PCI address; of an instance, its UUID */
    char bdf[16], uuid[48];
    void *stream, *begin, *end;
    uint64_t memory; /* `bytes` of them */
    uint64_t *host;  /* likewise, pinned */
    size_t bytes;
    double up, down, flops; /* per second; 0: not measured */
};

/* ---- what fails ---- */

static const char *error_text(const struct ls_cuda *cuda, int code, char text[static 128])
{
    const char *said = NULL;
    if (cuda->cuGetErrorString(code, &said) != LS_CUDA_SUCCESS || !said)
        said = "an error that it does not know";
    ls_nvml_copy(text, 128, said);
    return text;
}

/* False, and said, if the call failed. Memory that is short says nothing against the GPU. */
static bool works(const struct bench *b, const struct gpu *g, int code, const char *call)
{
    char text[128];
    if (code == LS_CUDA_SUCCESS)
        return true;
    error_text(&b->cuda, code, text);
    if (code == LS_CUDA_OUT_OF_MEMORY)
        ls_check_say(b->out, LS_CHECK_SKIP, g->name, "", "", "not measured: %s: %s", call, text);
    else
        ls_check_say(b->out, LS_CHECK_FAIL, g->name, "a GPU that works", log_tells, "%s: %s (%d)",
                     call, text, code);
    return false;
}
#define CALL(b, g, name, ...) works(b, g, (b)->cuda.name(__VA_ARGS__), #name)

/* Of the library as a whole. */
static void refused(struct bench *b, int code, const char *call)
{
    const struct {
        int code;
        enum ls_check_status status;
        const char *advice;
    } rows[] = {
        {LS_CUDA_NO_DEVICE, LS_CHECK_SKIP, ""},
        {LS_CUDA_NOT_READY, LS_CHECK_FAIL, "have nvidia-fabricmanager looked at"},
        {LS_CUDA_MISMATCH, LS_CHECK_FAIL,
         "load the driver that belongs to its library, or start the node again"},
        {code, LS_CHECK_FAIL, log_tells},
    };
    char text[128];
    size_t i = 0;
    while (rows[i].code != code)
        i++;
    error_text(&b->cuda, code, text);
    if (rows[i].status == LS_CHECK_SKIP)
        ls_check_say(b->out, LS_CHECK_SKIP, "", "", "", "CUDA sees no GPU of this task");
    else
        ls_check_say(b->out, rows[i].status, "", "a driver that works", rows[i].advice,
                     "%s: %s (%d)", call, text, code);
}

/* ---- whose GPU, and whose turn ---- */

/* A name of the kernel's that one process at a time can have, and that goes with it. -1: another has it, errno
 * EADDRINUSE, or it cannot be had. */
static int claim(const char *uuid)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "lockstep-gpu.bw-%s", uuid);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&name,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) != 0) {
        int cause = errno;
        close(fd);
        errno = cause;
        fd = -1;
    }
    return fd;
}

/* Waits until no other task of this node copies. False: said why that is not known. *turn ends with a close; -1 if
 * there is no other. */
static bool take_turn(const struct bench *b, const struct gpu *g, int *turn)
{
    char path[4200];
    *turn = -1;
    if (b->context->local_size <= 1)
        return true;
    snprintf(path, sizeof path, "%s/dev/nvidiactl", b->context->root); /* what all of them open */
    *turn = open(path, O_RDONLY | O_CLOEXEC);
    int got = -1;
    while (*turn >= 0 && (got = flock(*turn, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (got == 0)
        return true;
    ls_check_say(b->out, LS_CHECK_SKIP, g->name, "", "",
                 "not measured: tasks of a node take turns by locking %s: %s", path,
                 strerror(errno));
    if (*turn >= 0)
        close(*turn);
    return false;
}

/* ---- one GPU ---- */

static void format_uuid(const unsigned char raw[16], bool instance, char out[static 48])
{
    int at = snprintf(out, 48, instance ? "MIG" : "GPU");
    for (int i = 0; i < 16; i++)
        at += snprintf(out + at, (size_t)(48 - at), "%s%02x",
                       i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", raw[i]);
}

static bool identify(const struct bench *b, struct gpu *g, int index)
{
    char text[64] = "", bus[32] = "";
    unsigned char uuid[16] = {0};
    unsigned domain = 0, number = 0, slot = 0;
    snprintf(g->name, sizeof g->name, "GPU %d", index);
    if (!CALL(b, g, cuDeviceGet, &g->device, index) ||
        !CALL(b, g, cuDeviceGetName, text, sizeof text - 1, g->device) ||
        !CALL(b, g, cuDeviceGetUuid_v2, uuid, g->device) ||
        !CALL(b, g, cuDeviceGetPCIBusId, bus, sizeof bus - 1, g->device))
        return false;
    ls_nvml_copy(g->model, sizeof g->model, text);
    bool instance = strstr(g->model, " MIG ") != NULL;
    format_uuid(uuid, instance, g->uuid);
    if (sscanf(bus, "%x:%x:%x", &domain, &number, &slot) == 3)
        snprintf(g->bdf, sizeof g->bdf, "%04x:%02x:%02x.0", domain & 0xffffff, number & 0xff,
                 slot & 0x1f);
    snprintf(g->name, sizeof g->name, "%s", instance || !*g->bdf ? g->uuid : g->bdf);
    return true;
}

/* Host memory near the GPU, as far as the kernel lets this process choose: what a task that is placed well has. */
static void prefer_its_node(const struct bench *b, const struct gpu *g)
{
    const struct ls_topo_machine *m = b->context->machine;
    unsigned long nodes = 0;
    for (int i = 0; i < m->ngpu; i++)
        if (!strcmp(m->gpu[i].pci.bdf, g->bdf) && m->gpu[i].pci.numa >= 0 &&
            m->gpu[i].pci.numa < (int)(8 * sizeof nodes))
            nodes = 1UL << m->gpu[i].pci.numa;
    syscall(SYS_set_mempolicy, nodes ? MPOL_PREFERRED : MPOL_DEFAULT, nodes ? &nodes : NULL,
            nodes ? 8 * sizeof nodes + 1 : 0);
}

static uint64_t pattern(size_t i)
{
    return (i + 1) * 0x9e3779b97f4a7c15U;
}

static bool prepare(const struct bench *b, struct gpu *g)
{
    size_t available = 0, total = 0;
    if (!CALL(b, g, cuMemGetInfo_v2, &available, &total))
        return false;
    if (available < g->bytes) {
        ls_check_say(b->out, LS_CHECK_SKIP, g->name, "", "",
                     "not measured: %zu MiB of its memory are free, and it takes %zu",
                     available >> 20, g->bytes >> 20);
        return false;
    }
    void *host = NULL;
    prefer_its_node(b, g);
    if (!CALL(b, g, cuMemAlloc_v2, &g->memory, g->bytes) ||
        !CALL(b, g, cuMemHostAlloc, &host, g->bytes, 0) ||
        !CALL(b, g, cuStreamCreate, &g->stream, 0) || !CALL(b, g, cuEventCreate, &g->begin, 0) ||
        !CALL(b, g, cuEventCreate, &g->end, 0))
        return false;
    g->host = host;
    for (size_t i = 0; i < g->bytes / sizeof *g->host; i++)
        g->host[i] = pattern(i);
    return true;
}

/* Seconds of what was begun since g->begin was recorded; < 0: said what is wrong. */
static double finish(const struct bench *b, const struct gpu *g)
{
    float milliseconds = 0;
    if (!CALL(b, g, cuEventRecord, g->end, g->stream) || !CALL(b, g, cuEventSynchronize, g->end) ||
        !CALL(b, g, cuEventElapsedTime, &milliseconds, g->begin, g->end))
        return -1;
    if (milliseconds > 0) /* no NaN */
        return (double)milliseconds / 1000;
    ls_check_say(b->out, LS_CHECK_FAIL, g->name, "a GPU that works", log_tells,
                 "its clock says that no time has passed");
    return -1;
}

/* To the GPU, or from it. Returns bytes per second; 0: said what is wrong. */
static double copy(const struct bench *b, const struct gpu *g, bool up)
{
    double best = 0;
    for (int i = 0; i < TIMES; i++) {
        if (!CALL(b, g, cuEventRecord, g->begin, g->stream))
            return 0;
        if (up ? !CALL(b, g, cuMemcpyHtoDAsync_v2, g->memory, g->host, g->bytes, g->stream)
               : !CALL(b, g, cuMemcpyDtoHAsync_v2, g->host, g->memory, g->bytes, g->stream))
            return 0;
        double seconds = finish(b, g);
        if (seconds < 0)
            return 0;
        double rate = (double)g->bytes / seconds;
        best = i > 0 && rate > best ? rate : best;
    }
    return best;
}

static bool copy_both(const struct bench *b, struct gpu *g)
{
    int turn;
    if (!take_turn(b, g, &turn))
        return false;
    g->up = copy(b, g, true);
    memset(g->host, 0, g->bytes);
    g->down = g->up > 0 ? copy(b, g, false) : 0;
    if (turn >= 0)
        close(turn);
    if (!(g->up > 0 && g->down > 0))
        return false;
    size_t wrong = 0, all = g->bytes / sizeof *g->host;
    for (size_t i = 0; i < all; i++)
        wrong += g->host[i] != pattern(i);
    if (wrong)
        ls_check_say(b->out, LS_CHECK_FAIL, g->name, "the bytes that were copied to it", drain,
                     "%zu of %zu words came back otherwise", wrong, all);
    return !wrong;
}

/* All results must be right; those of the last time are looked at. */
static bool compute(const struct bench *b, struct gpu *g)
{
    void *module = NULL, *function = NULL;
    int processors = 0;
    uint32_t turns = TURNS;
    float addend = LS_CHECK_KERNEL_ADDEND;
    void *parameters[] = {&g->memory, &turns, &addend};
    int code = b->cuda.cuModuleLoadData(&module, ls_check_kernel_ptx);
    if (code == LS_CUDA_NO_COMPILER) {
        ls_check_say(b->out, LS_CHECK_SKIP, g->name, "", "",
                     "its arithmetic is not measured: no libnvidia-ptxjitcompiler.so.1 here");
        return true;
    }
    if (!works(b, g, code, "cuModuleLoadData") ||
        !CALL(b, g, cuModuleGetFunction, &function, module, LS_CHECK_KERNEL) ||
        !CALL(b, g, cuDeviceGetAttribute, &processors, LS_CUDA_MULTIPROCESSORS, g->device))
        return false;
    size_t most = g->bytes / sizeof(uint32_t) / THREADS;
    size_t blocks = (size_t)(processors > 0 ? processors : 1) * BLOCKS;
    blocks = blocks < most ? blocks : most;
    for (int i = 0; i < TIMES; i++) {
        if (!CALL(b, g, cuEventRecord, g->begin, g->stream) ||
            !CALL(b, g, cuLaunchKernel, function, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0,
                  g->stream, parameters, NULL))
            return false;
        double seconds = finish(b, g);
        if (seconds < 0)
            return false;
        double flops = 2.0 * LS_CHECK_KERNEL_CHAINS * LS_CHECK_KERNEL_STEPS * TURNS *
                       (double)blocks * THREADS / seconds;
        g->flops = i > 0 && flops > g->flops ? flops : g->flops;
    }
    const uint32_t *result = (const uint32_t *)g->host;
    size_t threads = blocks * THREADS, wrong = 0;
    memset(g->host, 0, threads * sizeof *result);
    if (!CALL(b, g, cuEventRecord, g->begin, g->stream) ||
        !CALL(b, g, cuMemcpyDtoHAsync_v2, g->host, g->memory, threads * sizeof *result,
              g->stream) ||
        finish(b, g) < 0)
        return false;
    for (size_t i = 0; i < threads; i++)
        wrong += result[i] != b->right;
    if (wrong)
        ls_check_say(b->out, LS_CHECK_FAIL, g->name, "what a processor computes, to the last bit",
                     drain, "%zu of %zu threads computed wrong results", wrong, threads);
    return !wrong;
}

static void measure(struct bench *b, int index)
{
    struct gpu g = {.bytes = b->context->full ? FULL_BYTES : FAST_BYTES};
    void *context = NULL;
    if (!identify(b, &g, index))
        return;
    b->claim[index] = claim(g.uuid);
    if (b->claim[index] < 0 && errno == EADDRINUSE) {
        b->others++;
        return;
    }
    b->mine++;
    if (b->claim[index] < 0) {
        ls_check_say(b->out, LS_CHECK_SKIP, g.name, "", "",
                     "not measured: whether another task does is not known: %s", strerror(errno));
        return;
    }
    if (!CALL(b, &g, cuDevicePrimaryCtxRetain, &context, g.device))
        return;
    if (CALL(b, &g, cuCtxSetCurrent, context) && prepare(b, &g) && copy_both(b, &g) &&
        compute(b, &g))
        ls_buf_printf(&b->fact, "%s %.0f %.0f %.0f %s\n", g.name, g.up, g.down, g.flops, g.model);
    b->cuda.cuDevicePrimaryCtxRelease_v2(g.device); /* fails where something did before */
}

/* ---- all of this task ---- */

/* False: it has said why there is nothing to measure. */
static bool start(struct bench *b)
{
    /* This is a process of its own. What it compiles is not to be kept in the user's home. */
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    int code = b->cuda.cuInit(0);
    if (code != LS_CUDA_SUCCESS)
        refused(b, code, "cuInit");
    else if ((code = b->cuda.cuDeviceGetCount(&b->n)) != LS_CUDA_SUCCESS)
        refused(b, code, "cuDeviceGetCount");
    else if (b->n <= 0)
        refused(b, LS_CUDA_NO_DEVICE, "cuDeviceGetCount");
    b->n = b->n < MOST ? b->n : MOST;
    return code == LS_CUDA_SUCCESS && b->n > 0;
}

static void measure_all(struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        b->claim[i] = -1;
    ls_buf_init(&b->fact, 1 << 16);
    for (int i = 0; i < b->n; i++)
        measure(b, i);
    if (b->others && !b->mine)
        ls_check_say(b->out, LS_CHECK_SKIP, "", "", "",
                     "other tasks of this node measure its GPUs");
    ls_check_fact(b->out, "%s", b->fact.data ? b->fact.data : "");
    ls_buf_free(&b->fact);
    ls_check_next(b->out); /* claims are kept until all have measured */
    for (int i = 0; i < b->n; i++)
        if (b->claim[i] >= 0)
            close(b->claim[i]);
}

void ls_check_gpu_bw(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct bench b = {.out = out, .context = context};
    struct ls_error err = {0};
    if (ls_cuda_load(context->cuda, &b.cuda, &err) != LS_OK) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "%s", err.message);
        return;
    }
    b.right = ls_check_kernel_result(TURNS);
    if (ls_check_next(out) && start(&b))
        measure_all(&b);
}
