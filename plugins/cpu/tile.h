/* The innermost part of the matrix product: a tile of up to 12 rows by 2 vectors in registers, and
 * the transposition of small squares. GCC's vector types stand for whatever width the level has.
 */
#ifndef LS_CPU_TILE_H
#define LS_CPU_TILE_H

#include "plugins/cpu/kinds.h"

#include <string.h>

#if defined(__AVX512F__)
#define LS_VL      16 /* floats in a vector */
#define LS_TILE_MR 12 /* 24 sums, 2 vectors of y, 1 broadcast: 27 of 32 registers */
#elif defined(__AVX__)
#define LS_VL      8
#define LS_TILE_MR 6 /* 12, 2, 1: 15 of 16 */
#else
#define LS_VL      4
#define LS_TILE_MR 6
#endif
#define LS_TILE_NV 2
#define LS_TILE_NR (LS_TILE_NV * LS_VL)

typedef float ls_vec __attribute__((vector_size(LS_VL * 4)));
typedef int32_t ls_ivec __attribute__((vector_size(LS_VL * 4)));
typedef float ls_vec_u __attribute__((vector_size(LS_VL * 4), aligned(4), may_alias));

/* d(i,j) = sum over k of x(i,k) y(k,j). y is read by vectors along j; x by single numbers, either
 * along rows (x(i,k) = x[i * xs + k]) or along columns (x(i,k) = x[k * xs + i]). */
struct ls_tile {
    const float *x, *y;
    float *d;
    int64_t xs, ys, ds, k;
    bool add; /* d += */
    float
        *copy; /* where the copying form leaves the rows of y that it reads, one behind the other */
};

/* Rows of y ahead of use: with 12 cycles per row, the latency of the third-level cache. */
#define LS_TILE_AHEAD 16

static inline __attribute__((always_inline)) void ls_tile(const struct ls_tile *t, const int mr,
                                                          const int nv, const bool columns,
                                                          const bool copying)
{
    ls_vec sum[LS_TILE_MR][LS_TILE_NV];
    const float *y = t->y, *x[LS_TILE_MR / 3]; /* three rows per pointer: registers are few */
    const int64_t xs = t->xs, ys = t->ys, ds = t->ds;
    float *d = t->d, *copy = t->copy;
    const bool add = t->add;
#pragma GCC unroll 4
    for (int r = 0; r < mr; r += 3)
        x[r / 3] = t->x + r * (columns ? 1 : xs);
#pragma GCC unroll 12
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            sum[r][v] = (ls_vec){0};
    for (int64_t k = t->k; k > 0; k--) {
        ls_vec row[LS_TILE_NV];
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) {
            row[v] = *(const ls_vec_u *)(y + v * LS_VL);
            if (v * LS_VL % 16 == 0) /* once per cache line */
                __builtin_prefetch(y + LS_TILE_AHEAD * ys + v * LS_VL);
            if (copying)
                *(ls_vec_u *)(copy + v * LS_VL) = row[v];
        }
#pragma GCC unroll 12
        for (int r = 0; r < mr; r++) {
            float one = columns ? x[0][r] : x[r / 3][r % 3 * xs];
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                sum[r][v] += one * row[v];
        }
        y += ys;
        copy += nv * LS_VL;
#pragma GCC unroll 4
        for (int r = 0; r < mr; r += 3)
            x[r / 3] += columns ? xs : 1;
    }
    if (add) {
#pragma GCC unroll 12
        for (int r = 0; r < mr; r++, d += ds)
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                *(ls_vec_u *)(d + v * LS_VL) += sum[r][v];
    } else {
#pragma GCC unroll 12
        for (int r = 0; r < mr; r++, d += ds)
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                *(ls_vec_u *)(d + v * LS_VL) = sum[r][v];
    }
}

/* Transposes a square of LS_VL by LS_VL floats: swaps ever larger blocks, log2(LS_VL) rounds. */
static inline __attribute__((always_inline)) void ls_transpose(const float *from, int64_t fs,
                                                               float *to, int64_t ts)
{
    ls_vec row[LS_VL];
#pragma GCC unroll 16
    for (int i = 0; i < LS_VL; i++)
        row[i] = *(const ls_vec_u *)(from + i * fs);
#pragma GCC unroll 4
    for (int d = 1; d < LS_VL; d *= 2) {
        ls_ivec low, high;
        for (int i = 0; i < LS_VL; i++) {
            low[i] = i & d ? LS_VL + i - d : i;
            high[i] = i & d ? LS_VL + i : i + d;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LS_VL; i++) {
            if (i & d)
                continue;
            ls_vec a = row[i], b = row[i | d];
            row[i] = __builtin_shuffle(a, b, low);
            row[i | d] = __builtin_shuffle(a, b, high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < LS_VL; i++)
        *(ls_vec_u *)(to + i * ts) = row[i];
}

#endif
