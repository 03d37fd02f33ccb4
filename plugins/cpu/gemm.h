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
    int row_blocks;  /* set by ls_gemm_plan */
};
struct ls_gemm_data {
    const float *a, *b;
    const float *bias; /* [n], or NULL */
    float *c, *pre;    /* pre: c before the activation, or NULL */
    bool add;          /* add to c instead of overwriting it; goes with no bias or activation */
};

/* Plans the product for up to `threads` threads: how many of them pay, in how many shares the work
 * is cut (sets g->row_blocks), and bytes of workspace. */
struct ls_gemm_plan {
    int threads, shares;
    int64_t workspace;
};
struct ls_gemm_plan LS_V(ls_gemm_plan)(struct ls_gemm *g, int threads);
/* Part `part` of `parts` of the work, with the buffers of thread `thread`. The sums over k depend
 * on none of them. */
void LS_V(ls_gemm_part)(const struct ls_gemm *g, const struct ls_gemm_data *d, void *workspace,
                        int part, int parts, int thread);

#endif
