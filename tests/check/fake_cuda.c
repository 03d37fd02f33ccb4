/* A libcuda of GPUs that exist nowhere, for tests. They copy memory of this process, run kernels on its CPU (ptx.c),
 * and have a clock that goes by what they were given to do. FAKE_CUDA in the environment says what they are like:
 *
 *   FAKE_CUDA="NODE:WHAT:ARGUMENT[;...]"     NODE is SLURMD_NODENAME, or * for all
 *
 *   gpus:N              so many; otherwise 2. The first has number 0, and another address and UUID on each node
 *   first:N             numbers begin there
 *   code:FUNCTION=CODE  that function returns that
 *   hang:FUNCTION       that function never returns
 *   up:N=X, down:N=X    GPU N copies so many GB/s; otherwise 50 and 40
 *   flops:N=X           and does so many TFLOP/s; otherwise 60
 *   free:N=X            MiB of memory that are free
 *   model:N=TEXT        its name
 *   flip:N              copies one bit wrong, from it
 *   wrong:N             computes one bit wrong, in its last thread
 *   stopped:N           its clock does not go
 *   busless:N           it has no address
 *
 * FAKE_CUDA_RUN is a number for their UUIDs, so that two runs of a test do not take each other's GPUs for their own.
 * FAKE_CUDA_LOG names a file that gets a line, with the process's number, for each copy of memory.
 * Compiled with FAKE_OLD it lacks what old drivers lack. */
#include "tests/check/ptx.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPUS = 8, PIECES = 8, EVENTS = 8, PROCESSORS = 4 };

static int current = -1;          /* GPU whose context is the current one */
static bool retained[GPUS];       /* contexts */
static void *piece[PIECES];       /* memory, until the context goes */
static double now, event[EVENTS]; /* milliseconds */
static int events;
static const char *module_text, *kernel_name;
static char kernel_text[64];

/* ---- what the test wants ---- */

/* The argument of the first item of that kind; for `key` "N=..." what is behind it. NULL: there is none. */
static const char *wish(const char *what, const char *key, char argument[static 128])
{
    const char *at = getenv("FAKE_CUDA"), *node = getenv("SLURMD_NODENAME");
    for (size_t n; at && *at; at += n + (at[n] == ';')) {
        char where[64], kind[32];
        n = strcspn(at, ";");
        if (sscanf(at, "%63[^:]:%31[^:]:%127[^;]", where, kind, argument) != 3 ||
            (strcmp(where, "*") != 0 && (!node || strcmp(where, node) != 0)) ||
            strcmp(kind, what) != 0)
            continue;
        if (!key)
            return argument;
        size_t k = strlen(key);
        if (!strncmp(argument, key, k) && (argument[k] == '=' || !argument[k]))
            return argument + k + (argument[k] == '=');
    }
    return NULL;
}

static const char *of_gpu(const char *what, int gpu, char argument[static 128])
{
    char key[16];
    snprintf(key, sizeof key, "%d", gpu);
    return wish(what, key, argument);
}

static double rate(const char *what, double usual)
{
    char argument[128];
    const char *value = of_gpu(what, current, argument);
    return value ? atof(value) : usual;
}

static int number(const char *what, int usual)
{
    char argument[128];
    const char *value = wish(what, NULL, argument);
    return value ? atoi(value) : usual;
}

/* At the beginning of every function. */
static int code(const char *function)
{
    char argument[128];
    while (wish("hang", function, argument))
        pause();
    const char *value = wish("code", function, argument);
    return value ? atoi(value) : 0;
}
#define BEGIN                        \
    do {                             \
        int wanted = code(__func__); \
        if (wanted)                  \
            return wanted;           \
    } while (0)
#define EXPECT(truth)                                                     \
    do {                                                                  \
        if (!(truth)) {                                                   \
            fprintf(stderr, "fake CUDA: %s: not " #truth "\n", __func__); \
            return 1; /* CUDA_ERROR_INVALID_VALUE */                      \
        }                                                                 \
    } while (0)

/* ---- devices ---- */

int cuInit(unsigned flags);
int cuGetErrorString(int error, const char **text);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int index);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device);
int cuDeviceGetPCIBusId(char *bdf, int size, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuMemGetInfo_v2(size_t *available, size_t *total);
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes);
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream);
int cuStreamCreate(void **stream, unsigned flags);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventSynchronize(void *event);
int cuEventElapsedTime(float *milliseconds, void *begin, void *end);
int cuModuleLoadData(void **module, const void *text);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void *stream, void **parameters, void **extra);

int cuInit(unsigned flags)
{
    BEGIN;
    EXPECT(flags == 0 && getenv("CUDA_CACHE_DISABLE"));
    return 0;
}

int cuGetErrorString(int error, const char **text)
{
    static const struct {
        int code;
        const char *text;
    } rows[] = {{1, "invalid argument"},          {2, "out of memory"},
                {100, "no device is detected"},   {802, "system not yet initialized"},
                {803, "driver version mismatch"}, {999, "unknown error"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == error) {
            *text = rows[i].text;
            return 0;
        }
    *text = NULL;
    return 1;
}

int cuDeviceGetCount(int *n)
{
    BEGIN;
    *n = number("gpus", 2);
    return 0;
}

int cuDeviceGet(int *device, int index)
{
    BEGIN;
    EXPECT(index >= 0 && index < number("gpus", 2));
    *device = index + number("first", 0);
    return *device < GPUS ? 0 : 101;
}

int cuDeviceGetName(char *name, int size, int device)
{
    char argument[128];
    BEGIN;
    const char *model = of_gpu("model", device, argument);
    snprintf(name, (size_t)size, "%s", model ? model : "NVIDIA Test GPU");
    return 0;
}

#ifndef FAKE_OLD
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    const char *node = getenv("SLURMD_NODENAME"), *run = getenv("FAKE_CUDA_RUN");
    BEGIN;
    memset(uuid, 0, 16);
    snprintf((char *)uuid, 8, "%s", node ? node : "");
    for (unsigned i = 0, seed = run ? (unsigned)atoi(run) : 0; i < 4; i++)
        uuid[8 + i] = (unsigned char)(seed >> (24 - 8 * i));
    uuid[15] = (unsigned char)device;
    return 0;
}
#endif

int cuDeviceGetPCIBusId(char *bdf, int size, int device)
{
    char argument[128];
    BEGIN;
    snprintf(bdf, (size_t)size, of_gpu("busless", device, argument) ? "-" : "0000:%02X:00.0",
             0xa0 + device);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    BEGIN;
    EXPECT(attribute == 16 && device == current);
    *value = PROCESSORS;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    BEGIN;
    EXPECT(device >= 0 && device < GPUS && !retained[device]);
    retained[device] = true;
    *context = &retained[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN;
    EXPECT(device >= 0 && device < GPUS && retained[device]);
    retained[device] = false;
    for (int i = 0; i < PIECES; i++) {
        free(piece[i]);
        piece[i] = NULL;
    }
    events = 0;
    module_text = kernel_name = NULL;
    current = -1;
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    BEGIN;
    current = (int)((bool *)context - retained);
    return 0;
}

/* ---- memory ---- */

static int allocate(void **memory, size_t bytes)
{
    for (int i = 0; i < PIECES; i++)
        if (!piece[i]) {
            *memory = piece[i] = malloc(bytes);
            return piece[i] ? 0 : 2;
        }
    return 2;
}

int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    BEGIN;
    EXPECT(current >= 0);
    *total = (size_t)80000 << 20;
    *available = (size_t)rate("free", 79000) << 20;
    return 0;
}

int cuMemAlloc_v2(unsigned long long *memory, size_t bytes)
{
    void *host = NULL;
    BEGIN;
    EXPECT(current >= 0);
    int status = allocate(&host, bytes);
    *memory = (unsigned long long)(size_t)host;
    return status;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN;
    EXPECT(current >= 0 && flags == 0);
    return allocate(memory, bytes);
}

static void pass(double milliseconds)
{
    char argument[128];
    if (!of_gpu("stopped", current, argument))
        now += milliseconds;
}

static void copy(void *to, const void *from, size_t bytes, double gigabytes)
{
    char line[32];
    const char *log = getenv("FAKE_CUDA_LOG");
    memcpy(to, from, bytes);
    pass((double)bytes / (gigabytes * 1e6));
    int fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    int n = snprintf(line, sizeof line, "%d\n", (int)getpid());
    if (fd >= 0 && (write(fd, line, (size_t)n) != n || close(fd) != 0))
        abort();
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream)
{
    BEGIN;
    EXPECT(stream && current >= 0);
    copy((void *)(size_t)to, from, bytes, rate("up", 50));
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream)
{
    char argument[128];
    BEGIN;
    EXPECT(stream && current >= 0);
    copy(to, (void *)(size_t)from, bytes, rate("down", 40));
    if (of_gpu("flip", current, argument))
        ((char *)to)[bytes / 2] ^= 1;
    return 0;
}

/* ---- time ---- */

int cuStreamCreate(void **stream, unsigned flags)
{
    BEGIN;
    EXPECT(current >= 0 && flags == 0);
    *stream = &now;
    return 0;
}

int cuEventCreate(void **out, unsigned flags)
{
    BEGIN;
    EXPECT(current >= 0 && flags == 0 && events < EVENTS);
    *out = &event[events++];
    return 0;
}

int cuEventRecord(void *at, void *stream)
{
    BEGIN;
    EXPECT(stream == &now);
    *(double *)at = now;
    return 0;
}

int cuEventSynchronize(void *at)
{
    BEGIN;
    EXPECT(at);
    return 0;
}

int cuEventElapsedTime(float *milliseconds, void *begin, void *end)
{
    BEGIN;
    *milliseconds = (float)(*(double *)end - *(double *)begin);
    return 0;
}

/* ---- arithmetic ---- */

int cuModuleLoadData(void **module, const void *text)
{
    BEGIN;
    EXPECT(current >= 0);
    module_text = text;
    *module = &module_text;
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    BEGIN;
    EXPECT(module == &module_text);
    snprintf(kernel_text, sizeof kernel_text, "%s", name);
    kernel_name = kernel_text;
    *function = &kernel_name;
    return 0;
}

/* All threads compute the same: the first and the last one are run, once in a process. Each for itself finds where its
 * result belongs. */
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void *stream, void **parameters, void **extra)
{
    static unsigned known[2], known_last;
    char argument[128];
    BEGIN;
    EXPECT(function == &kernel_name && stream == &now && !extra && !shared && grid_y == 1 &&
           grid_z == 1 && block_y == 1 && block_z == 1);
    unsigned *out = (unsigned *)(size_t) * (unsigned long long *)parameters[0];
    unsigned turns = *(unsigned *)parameters[1], last = grid_x * block_x - 1;
    if (known_last != last) {
        const char *why = ptx_run(module_text, kernel_name, parameters, 0, block_x, 0);
        why = why ? why
                  : ptx_run(module_text, kernel_name, parameters, grid_x - 1, block_x, block_x - 1);
        if (why) {
            fprintf(stderr, "fake CUDA: %s\n", why);
            return 218; /* CUDA_ERROR_INVALID_PTX */
        }
        known[0] = out[0];
        known[1] = out[last];
        known_last = last;
    }
    for (unsigned i = 0; i < last; i++)
        out[i] = known[0];
    out[last] = known[1] ^ (of_gpu("wrong", current, argument) ? 1 : 0);
    pass(2.0 * 8 * 4 * turns * (last + 1.0) / (rate("flops", 60) * 1e9));
    return 0;
}
