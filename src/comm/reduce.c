/* Compiles the kernels of reduce_kernels.h for three instruction sets, and picks by the CPU at hand.
 * The results do not depend on the choice: no operation here is contracted or reassociated. */
#include "comm/reduce.h"

#include <string.h>

typedef uint32_t vu32 __attribute__((vector_size(64)));
typedef int32_t vi32 __attribute__((vector_size(64)));
typedef float vf32 __attribute__((vector_size(64)));
typedef uint16_t vu16 __attribute__((vector_size(32)));
typedef double vf64 __attribute__((vector_size(64)));
typedef float vf32_8 __attribute__((vector_size(32)));

struct kernels {
    void (*f32)(enum ls_comm_op, int, const void *const *, int, void *const *, int, int64_t);
    void (*f64)(enum ls_comm_op, int, const void *const *, int, void *const *, int, int64_t);
    void (*i32)(enum ls_comm_op, int, const void *const *, int, void *const *, int, int64_t);
    void (*u64)(enum ls_comm_op, int, const void *const *, int, void *const *, int, int64_t);
    void (*bf16)(enum ls_comm_op, int, const float *, const void *const *, int, float *,
                 void *const *, int, int64_t);
    void (*f16)(enum ls_comm_op, int, const float *, const void *const *, int, float *,
                void *const *, int, int64_t);
    double (*squares)(const void *const *, int, float *, int64_t);
};

#define TARGET
#define NAME(x) x##_base
#include "comm/reduce_kernels.h"
#undef TARGET
#undef NAME

#if defined __x86_64__
#define TARGET  __attribute__((target("avx2")))
#define NAME(x) x##_avx2
#include "comm/reduce_kernels.h"
#undef TARGET
#undef NAME

#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define NAME(x) x##_avx512
#include "comm/reduce_kernels.h"
#undef TARGET
#undef NAME
#endif

static const struct kernels *kernels(void)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &kernels_avx2;
#endif
    return &kernels_base;
}

int64_t ls_comm_size(enum ls_comm_type type)
{
    static const int8_t size[] = {[LS_COMM_F32] = 4, [LS_COMM_BF16] = 2, [LS_COMM_F16] = 2,
                                  [LS_COMM_I32] = 4, [LS_COMM_U64] = 8,  [LS_COMM_F64] = 8};
    return size[type];
}

const char *ls_comm_type_name(enum ls_comm_type type)
{
    static const char *const name[] = {
        [LS_COMM_F32] = "f32", [LS_COMM_BF16] = "bf16", [LS_COMM_F16] = "f16",
        [LS_COMM_I32] = "i32", [LS_COMM_U64] = "u64",   [LS_COMM_F64] = "f64"};
    return name[type];
}

bool ls_comm_is_half(enum ls_comm_type type)
{
    return type == LS_COMM_BF16 || type == LS_COMM_F16;
}

void ls_comm_reduce(enum ls_comm_type type, enum ls_comm_op op, int members, const void *const *src,
                    int ns, void *const *dst, int nd, int64_t n)
{
    const struct kernels *k = kernels();
    switch (type) {
    case LS_COMM_F32:
        k->f32(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_F64:
        k->f64(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_I32:
        k->i32(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_U64:
        k->u64(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_BF16:
        k->bf16(op, members, NULL, src, ns, NULL, dst, nd, n);
        break;
    case LS_COMM_F16:
        k->f16(op, members, NULL, src, ns, NULL, dst, nd, n);
        break;
    }
}

void ls_comm_reduce_half(enum ls_comm_type type, enum ls_comm_op op, int members,
                         const float *first, const void *const *src, int ns, float *total,
                         void *const *dst, int nd, int64_t n)
{
    const struct kernels *k = kernels();
    if (type == LS_COMM_BF16)
        k->bf16(op, members, first, src, ns, total, dst, nd, n);
    else
        k->f16(op, members, first, src, ns, total, dst, nd, n);
}

double ls_comm_sum_squares(const void *const *src, int ns, float *dst, int64_t n)
{
    return kernels()->squares(src, ns, dst, n);
}

double ls_comm_squares(const float *x, int64_t n)
{
    return kernels()->squares((const void *[]){x}, 1, NULL, n);
}
