/* The table of kinds of one instruction set. JOIN and RESHAPE move nothing and have no kernel. */
#include "plugins/cpu/kinds.h"
#include "plugins/cpu/onednn.h"

#if defined(__AVX512F__)
#define LS_CPU_ISA_NAME "AVX-512"
#elif defined(__AVX2__)
#define LS_CPU_ISA_NAME "AVX2"
#else
#define LS_CPU_ISA_NAME "baseline vectors"
#endif

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define LS_CPU_FUSED true
#else
#define LS_CPU_FUSED false
#endif

const struct ls_cpu_table LS_V(ls_cpu_table) = {
    .name = LS_CPU_ISA_NAME,
    .fused = LS_CPU_FUSED,
    .relu = LS_V(ls_cpu_relu),
    .prepare =
        {
            [LS_K_MATMUL] = LS_V(ls_cpu_matmul),
            [LS_K_BIAS] = LS_V(ls_cpu_elementwise),
            [LS_K_RELU] = LS_V(ls_cpu_elementwise),
            [LS_K_GELU] = LS_V(ls_cpu_elementwise),
            [LS_K_ADD] = LS_V(ls_cpu_elementwise),
            [LS_K_CONV2D] = ls_dnn_conv,
            [LS_K_MAX_POOL] = LS_V(ls_cpu_pool),
            [LS_K_AVG_POOL] = LS_V(ls_cpu_pool),
            [LS_K_GLOBAL_POOL] = LS_V(ls_cpu_pool),
            [LS_K_BATCH_NORM] = LS_V(ls_cpu_norm),
            [LS_K_BATCH_NORM_EVAL] = LS_V(ls_cpu_norm),
            [LS_K_DROPOUT] = LS_V(ls_cpu_dropout),
            [LS_K_XENT] = LS_V(ls_cpu_loss),
            [LS_K_TOP1] = LS_V(ls_cpu_loss),
            [LS_K_RELU_GRAD] = LS_V(ls_cpu_elementwise),
            [LS_K_GELU_GRAD] = LS_V(ls_cpu_elementwise),
            [LS_K_CONV2D_GRAD_DATA] = ls_dnn_conv,
            [LS_K_CONV2D_GRAD_WEIGHT] = ls_dnn_conv,
            [LS_K_MAX_POOL_GRAD] = LS_V(ls_cpu_pool),
            [LS_K_AVG_POOL_GRAD] = LS_V(ls_cpu_pool),
            [LS_K_GLOBAL_POOL_GRAD] = LS_V(ls_cpu_pool),
            [LS_K_BATCH_NORM_GRAD] = LS_V(ls_cpu_norm_grad),
            [LS_K_XENT_GRAD] = LS_V(ls_cpu_loss),
            [LS_K_SUM_ROWS] = LS_V(ls_cpu_sum_rows),
            [LS_K_ACCUM] = LS_V(ls_cpu_elementwise),
            [LS_K_SUMSQ] = LS_V(ls_cpu_reduce),
            [LS_K_CONCAT] = LS_V(ls_cpu_reduce),
            [LS_K_COMMIT] = LS_V(ls_cpu_reduce),
            [LS_K_SGD] = LS_V(ls_cpu_optim),
            [LS_K_ADAMW] = LS_V(ls_cpu_optim),
            [LS_K_EMA] = LS_V(ls_cpu_optim),
        },
};
