/* Matrix product: how the work is cut into tiles and threads, and what happens at the edges.
 *
 * d(i,j) = sum x(i,k) y(k,j), where y is read by vectors along j. Without tb, d is c, x is op(a)
 * and y is b as it lies. With tb, b has no vectors along n. Either they are made while strips of b
 * are copied, or, where a and c are small, d is c transposed: x is b as it lies, y is a transposed,
 * and tiles of d are transposed on their way out. (a holds a batch, b the weights.)
 *
 *   for a strip of up to NR columns j
 *     for a block of rows i                      a share of the work: one thread does all of it
 *       for a block of KC values of k            the strip of y: 64 KiB, copied if rows are many
 *         for up to 12 rows i                    a tile: sums in registers
 */
#include "plugins/cpu/gemm.h"
#include "plugins/cpu/tile.h"
#include "plugins/cpu/vec.h"

enum {
    KC = 512,       /* values of k per block: 64 KiB of y stream from the second-level cache */
    COPY_ROWS = 24, /* with fewer rows of d than that, y is used from where it lies */
    OUT_ROWS = LS_VL > 8 ? LS_VL : 8 /* rows of the buffer for tiles that do not go out directly */
};

/* ---- all tiles ------------------------------------------------------------------------------- */

typedef void tile_fn(const struct ls_tile *t);

#define TILE(mr, nv)                                        \
    static void tile_r_##mr##_##nv(const struct ls_tile *t) \
    {                                                       \
        ls_tile(t, mr, nv, false, false);                   \
    }                                                       \
    static void tile_c_##mr##_##nv(const struct ls_tile *t) \
    {                                                       \
        ls_tile(t, mr, nv, true, false);                    \
    }
#define COPYING(nv)                                  \
    static void copy_r_##nv(const struct ls_tile *t) \
    {                                                \
        ls_tile(t, LS_TILE_MR, nv, false, true);     \
    }                                                \
    static void copy_c_##nv(const struct ls_tile *t) \
    {                                                \
        ls_tile(t, LS_TILE_MR, nv, true, true);      \
    }
#define FIRST(f, nv)    f##_1_##nv, f##_2_##nv, f##_3_##nv, f##_4_##nv, f##_5_##nv, f##_6_##nv
#define SECOND(f, nv)   f##_7_##nv, f##_8_##nv, f##_9_##nv, f##_10_##nv, f##_11_##nv, f##_12_##nv
#define TILES_TO_6(nv)  TILE(1, nv) TILE(2, nv) TILE(3, nv) TILE(4, nv) TILE(5, nv) TILE(6, nv)
#define TILES_TO_12(nv) TILE(7, nv) TILE(8, nv) TILE(9, nv) TILE(10, nv) TILE(11, nv) TILE(12, nv)
TILES_TO_6(1)
TILES_TO_6(2)
#if LS_TILE_MR == 12
TILES_TO_12(1)
TILES_TO_12(2)
#define ALL(f, nv)                  \
    {                               \
        FIRST(f, nv), SECOND(f, nv) \
    }
#else
#define ALL(f, nv)   \
    {                \
        FIRST(f, nv) \
    }
#endif
static tile_fn *const tiles[2][LS_TILE_NV][LS_TILE_MR] = {{ALL(tile_r, 1), ALL(tile_r, 2)},
                                                          {ALL(tile_c, 1), ALL(tile_c, 2)}};

COPYING(1)
COPYING(2)
static tile_fn *const copying[2][LS_TILE_NV] = {{copy_r_1, copy_r_2}, {copy_c_1, copy_c_2}};

/* ---- the problem in terms of d, x and y ------------------------------------------------------ */

struct strip {
    const struct ls_gemm *g;
    const struct ls_gemm_data *d;
    const float *x, *y, *y_end;
    int64_t xs, ys; /* strides of x and y; y(k,j) = y[k * ys + j], or y[j * ys + k] if y_turned */
    bool x_columns, y_turned, d_turned;
    float *copy, *out; /* buffers: [KC][NR], [OUT_ROWS][NR] */
};

/* Which costs less to transpose: b, or a and c? */
static bool turned(const struct ls_gemm *g)
{
    return g->tb && g->m * (g->k + g->n) < g->n * g->k;
}

static void make_strip(struct strip *s, const struct ls_gemm *g, const struct ls_gemm_data *d,
                       float *buffers)
{
    bool turn = turned(g);
    *s = (struct strip){.g = g, .d = d, .d_turned = turn};
    s->x = turn ? d->b : d->a;
    s->y = turn ? d->a : d->b;
    s->x_columns = !turn && g->ta;
    s->xs = s->x_columns ? g->m : g->k;
    s->y_turned = turn ? !g->ta : g->tb;
    s->ys = s->y_turned ? g->k : turn ? g->m : g->n;
    s->y_end = s->y + (turn ? g->m : g->n) * g->k;
    s->copy = buffers;
    s->out = buffers + KC * LS_TILE_NR;
}

/* Copies y(k0.., j0..) of kc by cols to rows of `width` >= cols floats, the rest zero. */
static void copy_rows(const struct strip *s, int64_t k0, int64_t kc, int64_t j0, int64_t cols,
                      int64_t width)
{
    const float *from = s->y + k0 * s->ys + j0;
    float *to = s->copy;
    ls_ivec keep;
    for (int i = 0; i < LS_VL; i++)
        keep[i] = i < cols % LS_VL ? -1 : 0;
    for (int64_t k = 0; k < kc; k++, from += s->ys, to += width) {
        int64_t v = 0;
        for (; v + LS_VL <= cols; v += LS_VL)
            *(ls_vec_u *)(to + v) = *(const ls_vec_u *)(from + v);
        if (v < width && s->y_end - (from + v) >= LS_VL) /* what follows in memory is cut off */
            *(ls_vec_u *)(to + v) = (ls_vec)((ls_ivec) * (const ls_vec_u *)(from + v) & keep);
        else
            for (; v < width; v++)
                to[v] = v < cols ? from[v] : 0;
    }
}

static void copy_y(const struct strip *s, int64_t k0, int64_t kc, int64_t j0, int64_t cols,
                   int64_t width)
{
    float *to = s->copy;
    if (!s->y_turned) {
        copy_rows(s, k0, kc, j0, cols, width);
        return;
    }
    for (int64_t j = 0; j < width; j += LS_VL) {
        const float *from = s->y + (j0 + j) * s->ys + k0;
        int64_t k = 0, rows = cols - j < LS_VL ? cols - j : LS_VL;
        if (rows == LS_VL)
            for (; k + LS_VL <= kc; k += LS_VL)
                ls_transpose(from + k, s->ys, to + k * width + j, width);
        for (; k < kc; k++)
            for (int64_t i = 0; i < LS_VL; i++)
                to[k * width + j + i] = i < rows ? from[i * s->ys + k] : 0;
    }
}

/* Bias and activation on rows [r0, r1), columns [c0, c1) of the finished c. */
static void finish(const struct strip *s, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    const struct ls_gemm_data *d = s->d;
    enum ls_act act = s->g->act;
    int64_t n = s->g->n;
    if (!d->bias && act == LS_OP_ACT_NONE)
        return;
    for (int64_t r = r0; r < r1; r++) {
        float *c = d->c + r * n;
        if (d->bias)
#pragma omp simd
            for (int64_t j = c0; j < c1; j++)
                c[j] += d->bias[j];
        if (d->pre)
            memcpy(d->pre + r * n + c0, c + c0, (size_t)(c1 - c0) * sizeof *c);
        if (act == LS_OP_ACT_RELU)
#pragma omp simd
            for (int64_t j = c0; j < c1; j++)
                c[j] = c[j] < 0 ? 0 : c[j];
        else if (act == LS_OP_ACT_GELU)
#pragma omp simd
            for (int64_t j = c0; j < c1; j++)
                c[j] = ls_geluf(c[j]);
    }
}

/* Moves d's rows [i, i + rows), columns [j, j + cols) from the buffer into c. */
static void put_out(const struct strip *s, int64_t i, int64_t rows, int64_t j, int64_t cols,
                    int64_t width, bool add)
{
    const float *from = s->out;
    int64_t n = s->g->n;
    if (!s->d_turned) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t q = 0; q < cols; q++) {
                float *c = s->d->c + (i + r) * n + j + q;
                *c = add ? *c + from[r * width + q] : from[r * width + q];
            }
        return;
    }
    float *to = s->d->c + j * n + i;
    if (rows == LS_VL && cols % LS_VL == 0 && !add) {
        for (int64_t q = 0; q < cols; q += LS_VL)
            ls_transpose(from + q, width, to + q * n, n);
        return;
    }
    for (int64_t q = 0; q < cols; q++)
        for (int64_t r = 0; r < rows; r++) {
            float *c = to + q * n + r;
            *c = add ? *c + from[r * width + q] : from[r * width + q];
        }
}

/* ---- one block of k in one strip --------------------------------------------------------------*/

/* Rows of tiles; the first one copies y where t.copy is set, and all others use the copy. */
static void block_rows(const struct strip *s, struct ls_tile t, int64_t rows, int nv)
{
    tile_fn *const *tile = tiles[s->x_columns][nv - 1];
    const int64_t x_step = s->x_columns ? 1 : s->xs;
    if (t.copy) {
        copying[s->x_columns][nv - 1](&t);
        t.x += LS_TILE_MR * x_step;
        t.d += LS_TILE_MR * t.ds;
        t.y = t.copy;
        t.ys = nv * LS_VL;
        rows -= LS_TILE_MR;
    }
    int64_t blocks = (rows + LS_TILE_MR - 1) / LS_TILE_MR, done = 0;
    const float *x = t.x;
    float *d = t.d;
    for (int64_t b = 1; b <= blocks; b++) {
        int64_t mr = rows * b / blocks - done; /* 12 and 11 rather than 12 and 4 */
        t.x = x + done * x_step;
        t.d = d + done * t.ds;
        tile[mr - 1](&t);
        done += mr;
    }
}

static void strip_block(const struct strip *s, int64_t i0, int64_t i1, int64_t j, int64_t cols,
                        int64_t k0, int64_t kc)
{
    const struct ls_gemm *g = s->g;
    int nv = (int)((cols + LS_VL - 1) / LS_VL);
    int64_t width = nv * LS_VL;
    bool add = s->d->add || k0 > 0, last = k0 + kc == g->k;
    bool direct = !s->d_turned && cols == width, copied = s->y_turned || cols < width;
    struct ls_tile t = {.xs = s->xs, .k = kc};
    const float *x = s->x + (s->x_columns ? k0 * s->xs : k0);
    if (copied)
        copy_y(s, k0, kc, j, cols, width);
    t.y = copied ? s->copy : s->y + k0 * s->ys + j;
    t.ys = copied ? width : s->ys;
    if (!copied && direct && i1 - i0 >= COPY_ROWS)
        t.copy = s->copy;
    int64_t step = direct ? i1 - i0 : OUT_ROWS;
    for (int64_t i = i0; i < i1; i += step) {
        int64_t rows = i1 - i < step ? i1 - i : step;
        t.x = x + i * (s->x_columns ? 1 : s->xs);
        t.d = direct ? s->d->c + i * g->n + j : s->out;
        t.ds = direct ? g->n : width;
        t.add = direct && add;
        block_rows(s, t, rows, nv);
        if (!direct)
            put_out(s, i, rows, j, cols, width, add);
        if (last && s->d_turned)
            finish(s, j, j + cols, i, i + rows);
        else if (last)
            finish(s, i, i + rows, j, j + cols);
    }
}

/* ---- shares and threads ---------------------------------------------------------------------- */

/* The sides of d, and in how many blocks of rows it is cut beside the strips. */
static void sides(const struct ls_gemm *g, int64_t *rows, int64_t *strips)
{
    *rows = turned(g) ? g->n : g->m;
    *strips = ((turned(g) ? g->m : g->n) + LS_TILE_NR - 1) / LS_TILE_NR;
}

static int64_t thread_floats(void)
{
    return KC * LS_TILE_NR + OUT_ROWS * LS_TILE_NR;
}

struct ls_gemm_plan LS_V(ls_gemm_plan)(struct ls_gemm *g, int threads)
{
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    double most = 1 + flops / 5e5; /* a thread should have some microseconds of work */
    struct ls_gemm_plan plan = {.threads = most < threads ? (int)most : threads};
    int64_t rows, strips, blocks = 1;
    sides(g, &rows, &strips);
    /* Threads share the longer side: then they copy and read least twice. */
    if (rows > strips * LS_TILE_NR)
        blocks = plan.threads;
    while (strips * blocks < plan.threads)
        blocks++;
    while (blocks > 1 && rows < blocks * LS_VL)
        blocks--;
    g->row_blocks = (int)blocks;
    plan.shares = strips * blocks < INT32_MAX ? (int)(strips * blocks) : INT32_MAX;
    plan.workspace = plan.threads * thread_floats() * 4;
    return plan;
}

/* One strip, one block of rows. */
static void share(const struct strip *s, int64_t strip, int block)
{
    const struct ls_gemm *g = s->g;
    int64_t rows = s->d_turned ? g->n : g->m, cols = s->d_turned ? g->m : g->n;
    int64_t j = strip * LS_TILE_NR, i0, i1, k_blocks = (g->k + KC - 1) / KC;
    ls_cpu_slice(rows, LS_VL, block, g->row_blocks, &i0, &i1);
    if (i0 >= i1)
        return;
    cols = cols - j < LS_TILE_NR ? cols - j : LS_TILE_NR;
    for (int64_t b = 0; b < k_blocks; b++) {
        int64_t k0 = g->k * b / k_blocks, k1 = g->k * (b + 1) / k_blocks;
        strip_block(s, i0, i1, j, cols, k0, k1 - k0);
    }
}

void LS_V(ls_gemm_part)(const struct ls_gemm *g, const struct ls_gemm_data *d, void *workspace,
                        int part, int parts, int thread)
{
    struct strip s;
    make_strip(&s, g, d, (float *)workspace + thread * thread_floats());
    int64_t rows, strips;
    sides(g, &rows, &strips);
    int64_t shares = strips * g->row_blocks, end = shares * (part + 1) / parts;
    for (int64_t i = shares * part / parts; i < end; i++)
        share(&s, i % strips, (int)(i / strips));
}
