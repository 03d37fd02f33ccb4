/* Our own single-precision matrix product: c = op(a) op(b) with what follows it, on the shapes of
 * training with small batches. Big square products would run as fast in oneDNN; these are faster
 * here, because nothing is copied that is used once, and no pass over the result follows.
 */
#ifndef LS_CPU_GEMM_H
#define LS_CPU_GEMM_H

#include "plugins/cpu/kinds.h"

struct ls_gemm {
    bool ta, tb;
    int64_t m, n, k; /* c is [m, n], k is summed over; all row-major and dense */
    enum ls_act act; /* behind the bias */
};
struct ls_gemm_data {
    const float *a, *b;
    const float *bias; /* [n], or NULL */
    float *c, *pre;    /* pre: c before the activation, or NULL */
    bool add;          /* add to c instead of overwriting it; goes with no bias or activation */
};

/* Threads that pay for this product, and bytes of workspace of all of them together. */
int LS_V(ls_gemm_threads)(const struct ls_gemm *g, int threads);
int64_t LS_V(ls_gemm_workspace)(int threads);
/* One thread's share. The sums over k do not depend on the number of threads. */
void LS_V(ls_gemm_part)(const struct ls_gemm *g, const struct ls_gemm_data *d, void *workspace,
                        int part, int parts);

#endif
