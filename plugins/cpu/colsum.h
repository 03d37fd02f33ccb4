/* Per-channel statistics of [rows, c]: how rows are folded and cut among threads, and how float sums
 * stay accurate over many rows.
 *
 * Fold: where c is narrow, `fold` rows count as one of c * fold columns, so that vectors are full;
 * the columns of one channel are put together at the end, and so are the last rows % fold rows.
 * Threads take runs of folded rows and leave their sums in the workspace; they are added in the
 * order of threads. Blocks of 64 folded rows are summed in float, blocks in double.
 */
#ifndef LS_CPU_COLSUM_H
#define LS_CPU_COLSUM_H

#include "plugins/cpu/kinds.h"

#define LS_FOLD_COLS  64  /* a folded row has at least so many columns, if there are rows enough */
#define LS_FOLD_BLOCK 64  /* rows that are summed in float */
#define LS_FOLD_WIDE  256 /* columns of one pass: their float sums stay in the first-level cache */

struct ls_fold {
    int64_t c, fold, cols, rows, tail; /* cols = c * fold; rows * fold + tail rows in all */
};

static inline struct ls_fold ls_fold_make(int64_t rows, int64_t c)
{
    int64_t fold = 1;
    while (c * fold < LS_FOLD_COLS && fold * 2 <= rows)
        fold *= 2;
    return (struct ls_fold){c, fold, c * fold, rows / fold, rows % fold};
}

static inline void ls_fold_slice(const struct ls_fold *f, int part, int parts, int64_t *lo,
                                 int64_t *hi)
{
    ls_cpu_slice(f->rows, f->rows >= LS_FOLD_BLOCK * (int64_t)parts ? LS_FOLD_BLOCK : 1, part,
                 parts, lo, hi);
}

/* Repeats c values `fold` times, so that a folded row can be worked on in one loop. */
static inline void ls_fold_spread(const struct ls_fold *f, const float *value, float *wide)
{
    for (int64_t g = 0; g < f->fold; g++)
        for (int64_t j = 0; j < f->c; j++)
            wide[g * f->c + j] = value[j];
}

#endif
