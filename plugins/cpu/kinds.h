/* The kernel files' common head. Each of them is compiled three times, with LS_CPU_LEVEL set to the
 * x86-64 level (4: AVX-512, 3: AVX2 and FMA) or to 0 for what the compiler takes by default. LS_V
 * puts the level behind every name that is not static.
 */
#ifndef LS_CPU_KINDS_H
#define LS_CPU_KINDS_H

#include "plugins/cpu/cpu.h"

/* Target and vector width by pragma, not by compiler flags: the build needs no case per machine.
 * Vectors of 512 bits are measured to be faster for all kernels here; GCC would take 256. */
#if defined(__x86_64__) && LS_CPU_LEVEL == 4
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#elif defined(__x86_64__) && LS_CPU_LEVEL == 3
#pragma GCC target("arch=x86-64-v3")
#endif

#define LS_PASTE_(a, b) a##_v##b
#define LS_PASTE(a, b)  LS_PASTE_(a, b)
#define LS_V(name)      LS_PASTE(name, LS_CPU_LEVEL)

/* Threads for an op that moves `bytes`: below this size the fork and join cost more than they save
 * (measured with benchmarks/cpu_ops.c). */
#define LS_PARALLEL_BYTES 65536
static inline int ls_cpu_threads(const struct ls_device *dev, int64_t bytes)
{
    return bytes < LS_PARALLEL_BYTES ? 1 : dev->threads;
}

void LS_V(ls_cpu_relu)(const float *x, float *y, int64_t n);

/* One prepare function for a group of kinds; each file says which. */
ls_cpu_prepare LS_V(ls_cpu_elementwise);
ls_cpu_prepare LS_V(ls_cpu_dropout);
ls_cpu_prepare LS_V(ls_cpu_matmul);
ls_cpu_prepare LS_V(ls_cpu_sum_rows);
ls_cpu_prepare LS_V(ls_cpu_pool);
ls_cpu_prepare LS_V(ls_cpu_norm);
ls_cpu_prepare LS_V(ls_cpu_norm_grad);
ls_cpu_prepare LS_V(ls_cpu_loss);
ls_cpu_prepare LS_V(ls_cpu_reduce);
ls_cpu_prepare LS_V(ls_cpu_optim);

#endif
