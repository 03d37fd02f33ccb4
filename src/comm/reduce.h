/* Element-wise reductions of several vectors into several vectors, the arithmetic of every
 * collective. Operands are folded from left to right, so the order of the pointers decides the bits.
 * Loads and stores need no alignment. A destination may be one of the sources (the same address,
 * not an overlap). NaN propagates through max and min. */
#ifndef LS_COMM_REDUCE_H
#define LS_COMM_REDUCE_H

#include "comm/comm.h"

int64_t ls_comm_size(enum ls_comm_type type); /* bytes of an element */
const char *ls_comm_type_name(enum ls_comm_type type);
/* bf16 and f16: their sums are kept in f32, and rounded when they are finished. */
bool ls_comm_is_half(enum ls_comm_type type);

/* dst[0..nd) [n] = src[0] op src[1] op ... src[ns - 1], each [n], ns >= 1. `members` > 0 finishes an
 * average (divides by it); 0 leaves the sum as it is, and other ops do not look at it. */
void ls_comm_reduce(enum ls_comm_type type, enum ls_comm_op op, int members, const void *const *src,
                    int ns, void *const *dst, int nd, int64_t n);

/* Sums of half types on their way through several nodes: *first* is an f32 operand that comes before
 * the sources (NULL: none, then ns >= 1; it may be alone). The unrounded result goes to `total`
 * (f32, may be `first`; NULL: nowhere), the rounded one to dst[0..nd). */
void ls_comm_reduce_half(enum ls_comm_type type, enum ls_comm_op op, int members,
                         const float *first, const void *const *src, int ns, float *total,
                         void *const *dst, int nd, int64_t n);

/* The sum of the squares of x [n], in f64. */
double ls_comm_squares(const float *x, int64_t n);
/* The same of src[0] + src[1] + ... + src[ns - 1], f32, which goes to dst: one pass over memory. */
double ls_comm_sum_squares(const void *const *src, int ns, float *dst, int64_t n);

#endif
