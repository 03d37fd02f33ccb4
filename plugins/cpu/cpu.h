/* Inside of the CPU backend: the device, the head of every kernel, and how the kinds are found.
 * Two halves: cpu.c and onednn.c are built once; the kernel files (kinds.h) are built once per
 * instruction set, and the device picks one table of them when it is opened.
 */
#ifndef LS_CPU_H
#define LS_CPU_H

#include "device/device.h"

#include <stdlib.h>

struct ls_dnn; /* onednn.h */

/* One thread's share of a launch: part `part` of `parts`. */
typedef void ls_cpu_work(struct ls_kernel *k, void *const *io, void *workspace, int part,
                         int parts);

/* A kernel starts with this head; every kind puts its own fields behind it. A launch calls `run`,
 * or, where that is NULL, `work` on `threads` threads. `destroy` frees what the kernel owns, itself
 * included (NULL: free). */
struct ls_kernel {
    enum ls_status (*run)(struct ls_kernel *k, void *const *io, void *workspace,
                          struct ls_error *err);
    ls_cpu_work *work;
    void (*destroy)(struct ls_kernel *k);
    int threads; /* 1 where a parallel region costs more than it saves */
    int shares;  /* 0: one part per thread, which may meet at barriers. More than `threads`: that
                    many parts; a thread that is done takes those of others, so that one that is
                    slow for a while (another program, a busy sibling) does not keep all waiting */
};

typedef enum ls_status ls_cpu_prepare(struct ls_device *dev, const struct ls_op_desc *op,
                                      struct ls_kernel **kernel, int64_t *workspace,
                                      struct ls_error *err);

/* All kinds, built for one instruction set. */
struct ls_cpu_table {
    const char *name; /* "AVX-512" */
    bool fused;       /* a * b + c is rounded once, not twice: results have other bits */
    ls_cpu_prepare *prepare[LS_KIND_COUNT];
    void (*relu)(const float *x, float *y, int64_t n); /* for results that the library made */
};
extern const struct ls_cpu_table ls_cpu_table_v4, ls_cpu_table_v3, ls_cpu_table_v0;

struct ls_device {
    int threads;
    const struct ls_cpu_table *table;
    struct ls_dnn *dnn;
    char describe[128];
};

/* ---- helpers of prepare functions (cpu.c) ---------------------------------------------------- */

/* UNSUPPORTED: the kind, the shapes of its operands, and why. */
enum ls_status ls_cpu_unsupported(const struct ls_op_desc *op, const char *why,
                                  struct ls_error *err);
/* Checks the numbers of operands and results; `types` has one letter per operand, then results:
 * f F32, d F64 (control), i I32, u U8. A packed operand is refused unless its letter is 'p' (F32). */
enum ls_status ls_cpu_check(const struct ls_op_desc *op, int nin, int nout, const char *types,
                            struct ls_error *err);
/* A zeroed kernel of `size` bytes; NULL (with the error set) when memory is short. */
void *ls_cpu_kernel(size_t size, struct ls_error *err);

int64_t ls_cpu_numel(const struct ls_operand *t);
/* All dimensions but the last, multiplied; 1 for a vector or scalar. */
int64_t ls_cpu_rows(const struct ls_operand *t);
bool ls_cpu_same_shape(const struct ls_operand *a, const struct ls_operand *b);

/* ---- helpers of kernels ---------------------------------------------------------------------- */

/* Calls `work` on k->threads threads, for every part, and returns when all are done. */
void ls_cpu_parallel(struct ls_kernel *k, ls_cpu_work *work, void *const *io, void *workspace);
/* All threads of the running ls_cpu_parallel meet here. */
void ls_cpu_barrier(void);
/* The calling thread's number in the running ls_cpu_parallel, for buffers of its own. */
int ls_cpu_thread(void);

/* Part `part` of `parts` of [0, n), cut at multiples of `grain`. Depends on nothing but its
 * arguments: the same thread meets the same elements in every op of the same length. */
static inline void ls_cpu_slice(int64_t n, int64_t grain, int part, int parts, int64_t *lo,
                                int64_t *hi)
{
    int64_t blocks = (n + grain - 1) / grain;
    int64_t a = blocks * part / parts * grain, b = blocks * (part + 1) / parts * grain;
    *lo = a < n ? a : n;
    *hi = b < n ? b : n;
}

#endif
