/* The CPU backend's device: memory, the choice of the instruction set, and the way from an op to
 * its kernel. Kernels live in the files of kinds.h; oneDNN behind onednn.h.
 */
#include "plugins/cpu/cpu.h"
#include "plugins/cpu/onednn.h"

#include <errno.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE (INT64_C(2) << 20) /* bytes of a huge page; smaller blocks do not ask for any */

static const char *const kind_names[LS_KIND_COUNT] = {
#define X(e, n, d) [LS_K_##e] = n,
    LS_KINDS(X)
#undef X
};

/* ---- helpers of prepare functions ------------------------------------------------------------ */

static const char *kind_name(enum ls_kind kind)
{
    return (unsigned)kind < LS_KIND_COUNT ? kind_names[kind] : "unknown kind";
}

static void add_shape(struct ls_buf *buf, const struct ls_operand *t)
{
    static const char *const dtype[LS_DTYPES] = {"f32", "f64", "i32", "u8"};
    ls_buf_printf(buf, " %s%s[", t->packed ? "packed " : "",
                  (unsigned)t->dtype < LS_DTYPES ? dtype[t->dtype] : "?");
    for (int d = 0; d < t->ndim && d < LS_MAX_DIMS; d++)
        ls_buf_printf(buf, "%s%lld", d ? "," : "", (long long)t->shape[d]);
    ls_buf_printf(buf, "]");
}

enum ls_status ls_cpu_unsupported(const struct ls_op_desc *op, const char *why,
                                  struct ls_error *err)
{
    struct ls_buf buf;
    ls_buf_init(&buf, 700);
    for (int i = 0; i < op->nin; i++)
        add_shape(&buf, &op->in[i]);
    ls_buf_printf(&buf, " ->");
    for (int i = 0; i < op->nout; i++)
        add_shape(&buf, &op->out[i]);
    enum ls_status status =
        ls_error_set(err, LS_ERR_UNSUPPORTED, "the cpu backend cannot run %s on%s: %s",
                     kind_name(op->kind), buf.data ? buf.data : " ?", why);
    ls_buf_free(&buf);
    return status;
}

enum ls_status ls_cpu_check(const struct ls_op_desc *op, int nin, int nout, const char *types,
                            struct ls_error *err)
{
    char why[96];
    if (op->nin != nin || op->nout != nout) {
        snprintf(why, sizeof why, "expected %d operands and %d results", nin, nout);
        return ls_cpu_unsupported(op, why, err);
    }
    for (int i = 0; i < nin + nout; i++) {
        const struct ls_operand *t = i < nin ? &op->in[i] : &op->out[i - nin];
        enum ls_dtype want = types[i] == 'd'   ? LS_F64
                             : types[i] == 'i' ? LS_I32
                             : types[i] == 'u' ? LS_U8
                                               : LS_F32;
        bool shape = t->ndim >= 0 && t->ndim <= LS_MAX_DIMS;
        for (int d = 0; shape && d < t->ndim; d++)
            shape = t->shape[d] > 0;
        if (t->dtype == want && shape && (!t->packed || types[i] == 'p'))
            continue;
        snprintf(why, sizeof why, "%s %d has %s", i < nin ? "operand" : "result",
                 i < nin ? i : i - nin,
                 t->dtype != want ? "an unexpected element type"
                 : !shape         ? "an empty or too deep shape"
                                  : "a packed layout, which this operand cannot take");
        return ls_cpu_unsupported(op, why, err);
    }
    return LS_OK;
}

void *ls_cpu_kernel(size_t size, struct ls_error *err)
{
    void *k = calloc(1, size);
    if (!k)
        ls_error_set(err, LS_ERR_NOMEM, "no memory for a kernel of %zu bytes", size);
    return k;
}

int64_t ls_cpu_numel(const struct ls_operand *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

int64_t ls_cpu_rows(const struct ls_operand *t)
{
    int64_t n = 1;
    for (int d = 0; d + 1 < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

bool ls_cpu_same_shape(const struct ls_operand *a, const struct ls_operand *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

/* ---- denormal numbers ------------------------------------------------------------------------

   Moments of weights that get no gradient shrink until they are denormal, and stay there: 0.9 times
   the smallest number is rounded back to it. Each vector with such a number then costs 150 cycles.
   So kernels run with denormals taken as zero; the caller's setting comes back after a launch.
   Threads that OpenMP starts meanwhile inherit it. */

#if defined(__x86_64__)
static inline unsigned flush_denormals(void)
{
    unsigned was = _mm_getcsr();
    _mm_setcsr(was | 0x8040); /* flush to zero, denormals are zero */
    return was;
}
static inline void restore_denormals(unsigned was)
{
    _mm_setcsr(was);
}
#else
static inline unsigned flush_denormals(void)
{
    return 0;
}
static inline void restore_denormals(unsigned was)
{
    (void)was;
}
#endif

/* ---- threads --------------------------------------------------------------------------------- */

struct queue {
    _Alignas(64) atomic_int next; /* the first of one thread's parts that nobody has taken */
};

/* Thread t starts with parts [shares * t / threads, shares * (t + 1) / threads), always the same
 * ones, and goes on with what others have left. */
static void share_out(struct ls_kernel *k, ls_cpu_work *work, void *const *io, void *workspace)
{
    const int threads = k->threads;
    const int64_t shares = k->shares;
    struct queue queue[threads];
    for (int t = 0; t < threads; t++)
        atomic_init(&queue[t].next, (int)(shares * t / threads));
#pragma omp parallel num_threads(threads)
    for (int n = 0, me = omp_get_thread_num(); n < threads; n++) {
        int t = (me + n) % threads, end = (int)(shares * (t + 1) / threads);
        while (atomic_load_explicit(&queue[t].next, memory_order_relaxed) < end) {
            int part = atomic_fetch_add_explicit(&queue[t].next, 1, memory_order_relaxed);
            if (part >= end)
                break;
            work(k, io, workspace, part, (int)shares);
        }
    }
}

void ls_cpu_parallel(struct ls_kernel *k, ls_cpu_work *work, void *const *io, void *workspace)
{
    int threads = k->threads;
    if (threads <= 1) {
        work(k, io, workspace, 0, 1);
        return;
    }
    if (k->shares > threads) {
        share_out(k, work, io, workspace);
        return;
    }
#pragma omp parallel num_threads(threads)
    work(k, io, workspace, omp_get_thread_num(), threads);
}

void ls_cpu_barrier(void)
{
#pragma omp barrier
}

int ls_cpu_thread(void)
{
    return omp_get_thread_num();
}

/* ---- device ---------------------------------------------------------------------------------- */

/* Build with a lower one to test what other machines would run. */
#ifndef LS_CPU_LEVEL_MAX
#define LS_CPU_LEVEL_MAX 4
#endif

static const struct ls_cpu_table *choose_table(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (LS_CPU_LEVEL_MAX >= 4 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &ls_cpu_table_v4;
    if (LS_CPU_LEVEL_MAX >= 3 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return &ls_cpu_table_v3;
#endif
    return &ls_cpu_table_v0;
}

/* AVX2 and AVX-512 update a parameter to the same bits (tests/cpu/test_levels.c); without fused multiply-adds
 * they are others, and replicas that each update for themselves would part. */
static const char *cpu_version(void)
{
    static char text[64]; /* the same bytes from every caller */
    snprintf(text, sizeof text, "%s, %s", ls_dnn_version(),
             choose_table()->fused ? "fma" : "no fma");
    return text;
}

static void cpu_close(struct ls_device *dev)
{
    if (!dev)
        return;
    ls_dnn_close(dev->dnn);
    free(dev);
}

static enum ls_status cpu_open(const struct ls_device_config *config, struct ls_device **out,
                               struct ls_error *err)
{
    if (config->threads < 1 || config->threads > 1024)
        return ls_error_set(err, LS_ERR_USAGE,
                            "the cpu backend was asked for %d threads; expected 1 to 1024",
                            config->threads);
    struct ls_device *dev = calloc(1, sizeof *dev);
    if (!dev)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the cpu device");
    unsigned was = flush_denormals();
    dev->threads = config->threads;
    dev->table = choose_table();
    omp_set_dynamic(0); /* a region has the threads that it asks for */
    omp_set_num_threads(dev->threads);
#pragma omp parallel num_threads(dev->threads) /* starts the threads, outside the first step */
    flush_denormals();
    restore_denormals(was);
    enum ls_status status = ls_dnn_open(&dev->dnn, err);
    if (status != LS_OK) {
        cpu_close(dev);
        return status;
    }
    snprintf(dev->describe, sizeof dev->describe, "%d thread%s, %s, %s", dev->threads,
             dev->threads == 1 ? "" : "s", dev->table->name, ls_dnn_version());
    *out = dev;
    return LS_OK;
}

static const char *cpu_describe(struct ls_device *dev)
{
    return dev->describe;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What a block of `bytes` takes: whole pages, whole huge pages from the first one on. */
static int64_t mapped_bytes(int64_t bytes)
{
    return ls_round_up(bytes, bytes >= HUGE ? HUGE : 4096);
}

static enum ls_status cpu_alloc(struct ls_device *dev, int64_t bytes, void **mem,
                                struct ls_error *err)
{
    if (bytes < 1 || bytes > INT64_MAX / 2)
        return ls_error_set(err, LS_ERR_OVERFLOW, "cannot allocate %lld bytes", (long long)bytes);
    int64_t size = mapped_bytes(bytes), slack = bytes >= HUGE ? HUGE : 0;
    char *base = mmap(NULL, (size_t)(size + slack), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        char text[24];
        return ls_error_errno(err, errno, "cannot map %s of memory", ls_format_bytes(size, text));
    }
    char *at = base;
    if (slack) {
        at = (char *)(((uintptr_t)base + (uintptr_t)HUGE - 1) & ~((uintptr_t)HUGE - 1));
        if (at > base)
            munmap(base, (size_t)(at - base));
        if (at < base + slack)
            munmap(at + size, (size_t)(base + slack - at));
        madvise(at, (size_t)size, MADV_HUGEPAGE); /* a refusal costs speed only */
    }
    int parts = slack ? dev->threads : 1;
#pragma omp parallel num_threads(parts) if (parts > 1)
    {
        int64_t lo, hi;
        ls_cpu_slice(size, slack ? HUGE : 4096, omp_get_thread_num(), parts, &lo, &hi);
        for (int64_t i = lo; i < hi; i += 4096)
            *(volatile char *)(at + i) = 0;
    }
    *mem = at;
    return LS_OK;
}

static void cpu_free(struct ls_device *dev, void *mem, int64_t bytes)
{
    (void)dev;
    if (mem)
        munmap(mem, (size_t)mapped_bytes(bytes));
}

static enum ls_status cpu_read(struct ls_device *dev, void *host, const void *mem, int64_t bytes,
                               struct ls_error *err)
{
    (void)dev, (void)err;
    memcpy(host, mem, (size_t)bytes);
    return LS_OK;
}

static enum ls_status cpu_write(struct ls_device *dev, void *mem, const void *host, int64_t bytes,
                                struct ls_error *err)
{
    (void)dev, (void)err;
    memcpy(mem, host, (size_t)bytes);
    return LS_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int64_t cpu_pack_size(struct ls_device *dev, const struct ls_op_desc *op, int operand)
{
    return ls_dnn_pack_size(dev, op, operand);
}

static enum ls_status cpu_prepare_pack(struct ls_device *dev, const struct ls_op_desc *op,
                                       int operand, struct ls_kernel **kernel, struct ls_error *err)
{
    omp_set_num_threads(dev->threads);
    return ls_dnn_prepare_pack(dev, op, operand, kernel, err);
}

static enum ls_status cpu_prepare(struct ls_device *dev, const struct ls_op_desc *op,
                                  struct ls_kernel **kernel, int64_t *workspace,
                                  struct ls_error *err)
{
    ls_cpu_prepare *prepare =
        (unsigned)op->kind < LS_KIND_COUNT ? dev->table->prepare[op->kind] : NULL;
    if (!prepare)
        return ls_cpu_unsupported(op, "this kind has no kernel", err);
    omp_set_num_threads(dev->threads);
    *workspace = 0;
    return prepare(dev, op, kernel, workspace, err);
}

static void cpu_release(struct ls_device *dev, struct ls_kernel *kernel)
{
    (void)dev;
    if (!kernel)
        return;
    if (kernel->destroy)
        kernel->destroy(kernel);
    else
        free(kernel);
}

static enum ls_status cpu_launch(struct ls_device *dev, struct ls_kernel *kernel,
                                 void *const *operands, void *workspace, struct ls_error *err)
{
    (void)dev;
    enum ls_status status = LS_OK;
    unsigned was = flush_denormals();
    if (kernel->run)
        status = kernel->run(kernel, operands, workspace, err);
    else
        ls_cpu_parallel(kernel, kernel->work, operands, workspace);
    restore_denormals(was);
    return status;
}

static enum ls_status cpu_sync(struct ls_device *dev, struct ls_error *err)
{
    (void)dev, (void)err; /* launches are over when they return */
    return LS_OK;
}

__attribute__((visibility("default"))) const struct ls_device_api *ls_device_entry(void);
const struct ls_device_api *ls_device_entry(void)
{
    static const struct ls_device_api api = {
        .abi = LS_DEVICE_ABI,
        .name = "cpu",
        .host_memory = true,
        .version = cpu_version,
        .open = cpu_open,
        .close = cpu_close,
        .describe = cpu_describe,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .read = cpu_read,
        .write = cpu_write,
        .pack_size = cpu_pack_size,
        .prepare_pack = cpu_prepare_pack,
        .prepare = cpu_prepare,
        .release = cpu_release,
        .launch = cpu_launch,
        .sync = cpu_sync,
    };
    return &api;
}
