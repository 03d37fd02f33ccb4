/* What this machine can do at best, to read the other figures against: fused multiply-add in
 * registers, oneDNN's sgemm, and the memory triad. Prints one JSON object; argument: threads. */
#include "base/base.h"

#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { REPEATS = 7, CHAINS = 12 };

/* Twelve independent chains of multiply-adds hide the latency of four to five cycles on two ports;
 * the vectors are GCC's own, so that one body serves every instruction set. The empty assembly
 * keeps every step and every chain in a register. */
#define STEP(c)    \
    c = c * a + b; \
    __asm__("" : "+v"(c))
#define FMA_LOOP(vec)                                             \
    vec a = {0}, b = {0};                                         \
    a += 0.999f;                                                  \
    b += 1e-3f;                                                   \
    vec c0 = b, c1 = b, c2 = b, c3 = b, c4 = b, c5 = b;           \
    vec c6 = b, c7 = b, c8 = b, c9 = b, c10 = b, c11 = b;         \
    for (int64_t i = 0; i < n; i++) {                             \
        STEP(c0);                                                 \
        STEP(c1);                                                 \
        STEP(c2);                                                 \
        STEP(c3);                                                 \
        STEP(c4);                                                 \
        STEP(c5);                                                 \
        STEP(c6);                                                 \
        STEP(c7);                                                 \
        STEP(c8);                                                 \
        STEP(c9);                                                 \
        STEP(c10);                                                \
        STEP(c11);                                                \
    }                                                             \
    c0 += c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11; \
    return c0[0]

#if defined(__x86_64__)
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec16 __attribute__((vector_size(64)));

__attribute__((target("avx512f"))) static float fma_avx512(int64_t n)
{
    FMA_LOOP(vec16);
}
__attribute__((target("avx2,fma"))) static float fma_avx2(int64_t n)
{
    FMA_LOOP(vec8);
}
#endif
static float fma_plain(int64_t n)
{
    float acc[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        acc[c] = (float)c;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < CHAINS; c++)
            acc[c] = acc[c] * 0.999f + 1e-3f;
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += acc[c];
    return sum;
}

static volatile float sink;

/* Gflop/s of `threads` threads; the best of some short runs, since only disturbance slows one. */
static double fma_peak(int threads)
{
    float (*loop)(int64_t) = fma_plain;
    int lanes = 1;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        loop = fma_avx512;
        lanes = 16;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        loop = fma_avx2;
        lanes = 8;
    }
#endif
    const int64_t n = 20000000;
    double best = INFINITY;
    for (int r = 0; r < REPEATS; r++) {
        double start = ls_time_monotonic();
#pragma omp parallel num_threads(threads)
        {
            float result = loop(n);
#pragma omp critical
            sink = result;
        }
        best = fmin(best, ls_time_monotonic() - start);
    }
    return 2.0 * lanes * CHAINS * (double)n * threads / best / 1e9;
}

/* Huge pages where there are some, touched once by the threads that use them. */
static float *pages(int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    float *p = aligned_alloc(1 << 21, (bytes + (1 << 21) - 1) >> 21 << 21);
    if (!p) {
        fprintf(stderr, "peak: %zu bytes of memory are needed\n", bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        p[i] = 1.0f + (float)(i & 7) * 1e-3f;
    return p;
}

static double sgemm_peak(int threads)
{
    omp_set_num_threads(threads);
    const int64_t n = 1536;
    float *a = pages(n * n), *b = pages(n * n), *c = pages(n * n);
    double best = INFINITY;
    for (int r = 0; r < REPEATS + 1; r++) {
        double start = ls_time_monotonic();
        if (dnnl_sgemm('N', 'N', n, n, n, 1.0f, a, n, b, n, 0.0f, c, n) != dnnl_success)
            return NAN;
        if (r > 0) /* the first one generates code */
            best = fmin(best, ls_time_monotonic() - start);
    }
    sink = c[0];
    free(a);
    free(b);
    free(c);
    return 2.0 * (double)n * (double)n * (double)n / best / 1e9;
}

/* a = b + s * c over arrays far larger than the caches; three streams count, as in STREAM. */
static double triad(int threads)
{
    omp_set_num_threads(threads);
    const int64_t n = (int64_t)1 << 26;
    float *a = pages(n), *b = pages(n), *c = pages(n);
    double best = INFINITY;
    for (int r = 0; r < REPEATS; r++) {
        double start = ls_time_monotonic();
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < n; i++)
            a[i] = b[i] + 3.0f * c[i];
        best = fmin(best, ls_time_monotonic() - start);
    }
    sink = a[n / 2];
    free(a);
    free(b);
    free(c);
    return 3.0 * (double)n * sizeof(float) / best / 1e9;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
    if (threads < 1)
        threads = 1;
    printf("{\"threads\": %d, \"fma_1\": %.1f, \"fma\": %.1f, ", threads, fma_peak(1),
           fma_peak(threads));
    printf("\"sgemm_1\": %.1f, \"sgemm\": %.1f, ", sgemm_peak(1), sgemm_peak(threads));
    printf("\"triad_1\": %.1f, \"triad\": %.1f}\n", triad(1), triad(threads));
    return 0;
}
