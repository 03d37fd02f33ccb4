/* Pooling over windows of channels-last images, and its gradients: MAX_POOL, AVG_POOL, GLOBAL_POOL.
 * Forward kinds go window by window, gradients pixel by pixel (which windows hold it), so that no
 * two threads write one place.
 */
#include "plugins/cpu/kinds.h"
#include "plugins/cpu/tile.h"

#include <string.h>

struct pool {
    struct ls_kernel head;
    enum ls_kind kind;
    int64_t n, h, w, c, p, q; /* image [n,h,w,c], windows [n,p,q,c] */
    int64_t kernel, stride, pad;
};

#define CHANNELS 64 /* of one pass: the running maxima stay in registers or the first-level cache */

/* The part of window `i` inside an image of extent n: [lo, hi). */
static void window(const struct pool *k, int64_t i, int64_t n, int64_t *lo, int64_t *hi)
{
    int64_t from = i * k->stride - k->pad, to = from + k->kernel;
    *lo = from < 0 ? 0 : from;
    *hi = to > n ? n : to;
}

/* The windows [lo, hi), of `count`, that hold pixel i. */
static void windows_of(const struct pool *k, int64_t i, int64_t count, int64_t *lo, int64_t *hi)
{
    int64_t at = i + k->pad;
    *lo = at < k->kernel ? 0 : (at - k->kernel) / k->stride + 1;
    int64_t end = at / k->stride + 1;
    *hi = end > count ? count : end;
}

static void max_step(const float *x, float *best, int32_t *place, int32_t here, int64_t c)
{
#pragma omp simd
    for (int64_t j = 0; j < c; j++) {
        float v = x[j];
        float b = best[j];
        bool take = (v > b) | ((v != v) & (b == b)); /* a NaN wins, the first one */
        best[j] = take ? v : b;
        place[j] = take ? here : place[j];
    }
}

static void max_row(const struct pool *k, const float *image, int64_t p, float *y, uint8_t *place)
{
    float best[CHANNELS];
    int32_t where[CHANNELS];
    int64_t h0, h1, w0, w1;
    window(k, p, k->h, &h0, &h1);
    for (int64_t q = 0; q < k->q; q++) {
        window(k, q, k->w, &w0, &w1);
        int64_t top = p * k->stride - k->pad, left = q * k->stride - k->pad;
        for (int64_t j = 0; j < k->c; j += CHANNELS) {
            int64_t c = k->c - j < CHANNELS ? k->c - j : CHANNELS;
            int32_t first = (int32_t)((h0 - top) * k->kernel + (w0 - left));
            memcpy(best, image + (h0 * k->w + w0) * k->c + j, (size_t)c * sizeof *best);
            for (int64_t i = 0; i < c; i++)
                where[i] = first;
            for (int64_t h = h0; h < h1; h++)
                for (int64_t w = w0; w < w1; w++)
                    max_step(image + (h * k->w + w) * k->c + j, best, where,
                             (int32_t)((h - top) * k->kernel + (w - left)), c);
            memcpy(y + q * k->c + j, best, (size_t)c * sizeof *best);
            for (int64_t i = 0; i < c; i++)
                place[q * k->c + j + i] = (uint8_t)where[i];
        }
    }
}

/* The common case, 2 x 2 windows that tile the image: no loop over the window, no running maxima in
 * memory. Vector types, since GCC 12 does not vectorise the plain loop. */
typedef uint8_t byte_vec __attribute__((vector_size(LS_VL), aligned(1), may_alias));

static inline ls_vec select_vec(ls_ivec take, ls_vec yes, ls_vec no)
{
    return (ls_vec)((take & (ls_ivec)yes) | (~take & (ls_ivec)no));
}

static inline void better(ls_vec *best, ls_ivec *at, ls_vec v, int32_t here)
{
    ls_ivec take = (v > *best) | ((v != v) & (*best == *best)); /* a NaN wins, the first one */
    *best = select_vec(take, v, *best);
    *at = (take & here) | (~take & *at);
}

static void max_row_2x2(const struct pool *k, const float *image, int64_t p, float *y,
                        uint8_t *place)
{
    int64_t c = k->c;
    const float *a = image + 2 * p * k->w * c, *b = a + k->w * c;
    for (int64_t q = 0; q < k->q; q++, a += 2 * c, b += 2 * c, y += c, place += c)
        for (int64_t j = 0; j < c; j += LS_VL) {
            ls_vec best = *(const ls_vec_u *)(a + j);
            ls_ivec at = {0};
            better(&best, &at, *(const ls_vec_u *)(a + c + j), 1);
            better(&best, &at, *(const ls_vec_u *)(b + j), 2);
            better(&best, &at, *(const ls_vec_u *)(b + c + j), 3);
            *(ls_vec_u *)(y + j) = best;
            *(byte_vec *)(place + j) = __builtin_convertvector(at, byte_vec);
        }
}

static void max_grad_row_2x2(const struct pool *k, const uint8_t *place, const float *dy, int64_t h,
                             float *dx)
{
    if (h / 2 >= k->p) {
        memset(dx, 0, (size_t)(k->w * k->c) * sizeof *dx);
        return;
    }
    int32_t left = (int32_t)(h % 2 * 2);
    place += h / 2 * k->q * k->c, dy += h / 2 * k->q * k->c;
    for (int64_t q = 0; q < k->q; q++, place += k->c, dy += k->c, dx += 2 * k->c)
        for (int64_t j = 0; j < k->c; j += LS_VL) {
            /* by hand: gcc takes as many channels at a time as bytes fit, and 16 are then a rest */
            ls_ivec here = __builtin_convertvector(*(const byte_vec *)(place + j), ls_ivec);
            ls_ivec d = (ls_ivec) * (const ls_vec_u *)(dy + j);
            *(ls_vec_u *)(dx + j) = (ls_vec)(d & (here == left));
            *(ls_vec_u *)(dx + k->c + j) = (ls_vec)(d & (here == left + 1));
        }
    if (k->w > 2 * k->q)
        memset(dx, 0, (size_t)((k->w - 2 * k->q) * k->c) * sizeof *dx);
}

static bool tiles_2x2(const struct pool *k)
{
    return k->kernel == 2 && k->stride == 2 && k->pad == 0 && k->c % LS_VL == 0;
}

static void max_grad_row(const struct pool *k, const uint8_t *place, const float *dy, int64_t h,
                         float *dx)
{
    int64_t p0, p1, q0, q1;
    windows_of(k, h, k->p, &p0, &p1);
    memset(dx, 0, (size_t)(k->w * k->c) * sizeof *dx);
    for (int64_t w = 0; w < k->w; w++) {
        float *d = dx + w * k->c;
        windows_of(k, w, k->q, &q0, &q1);
        for (int64_t p = p0; p < p1; p++)
            for (int64_t q = q0; q < q1; q++) {
                int64_t y = h - (p * k->stride - k->pad), x = w - (q * k->stride - k->pad);
                int64_t at = (p * k->q + q) * k->c;
                uint8_t here = (uint8_t)(y * k->kernel + x);
#pragma omp simd
                for (int64_t j = 0; j < k->c; j++)
                    d[j] += place[at + j] == here ? dy[at + j] : 0;
            }
    }
}

static void avg_row(const struct pool *k, const float *image, int64_t p, float *y)
{
    float share = 1.0f / (float)(k->kernel * k->kernel);
    int64_t h0, h1, w0, w1;
    window(k, p, k->h, &h0, &h1);
    memset(y, 0, (size_t)(k->q * k->c) * sizeof *y);
    for (int64_t q = 0; q < k->q; q++) {
        float *d = y + q * k->c;
        window(k, q, k->w, &w0, &w1);
        for (int64_t h = h0; h < h1; h++)
            for (int64_t w = w0; w < w1; w++)
#pragma omp simd
                for (int64_t j = 0; j < k->c; j++)
                    d[j] += image[(h * k->w + w) * k->c + j];
        for (int64_t j = 0; j < k->c; j++)
            d[j] *= share;
    }
}

static void avg_grad_row(const struct pool *k, const float *dy, int64_t h, float *dx)
{
    float share = 1.0f / (float)(k->kernel * k->kernel);
    int64_t p0, p1, q0, q1;
    windows_of(k, h, k->p, &p0, &p1);
    memset(dx, 0, (size_t)(k->w * k->c) * sizeof *dx);
    for (int64_t w = 0; w < k->w; w++) {
        float *d = dx + w * k->c;
        windows_of(k, w, k->q, &q0, &q1);
        for (int64_t p = p0; p < p1; p++)
            for (int64_t q = q0; q < q1; q++)
#pragma omp simd
                for (int64_t j = 0; j < k->c; j++)
                    d[j] += share * dy[(p * k->q + q) * k->c + j];
    }
}

/* One image's mean, in blocks of 64 pixels so that the sums stay accurate. */
static void global_mean(const struct pool *k, const float *image, float *y)
{
    int64_t pixels = k->h * k->w;
    for (int64_t j = 0; j < k->c; j += CHANNELS) {
        int64_t c = k->c - j < CHANNELS ? k->c - j : CHANNELS;
        float total[CHANNELS] = {0};
        for (int64_t i = 0; i < pixels; i += 64) {
            float sum[CHANNELS] = {0};
            int64_t end = i + 64 < pixels ? i + 64 : pixels;
            for (int64_t q = i; q < end; q++)
#pragma omp simd
                for (int64_t m = 0; m < c; m++)
                    sum[m] += image[q * k->c + j + m];
            for (int64_t m = 0; m < c; m++)
                total[m] += sum[m];
        }
        for (int64_t m = 0; m < c; m++)
            y[j + m] = total[m] / (float)pixels;
    }
}

static void global_grad(const struct pool *k, const float *dy, float *dx)
{
    float share = 1.0f / (float)(k->h * k->w);
    for (int64_t i = 0; i < k->h * k->w; i++)
        for (int64_t j = 0; j < k->c; j++)
            dx[i * k->c + j] = dy[j] * share;
}

/* Work item i: a row of windows (forward), a row of pixels (gradients), an image (GLOBAL). */
static void item(const struct pool *k, void *const *io, int64_t i)
{
    int64_t image = k->h * k->w * k->c, windows = k->p * k->q * k->c;
    int64_t n, row;
    switch (k->kind) {
    case LS_K_MAX_POOL:
        n = i / k->p, row = i % k->p;
        (tiles_2x2(k) ? max_row_2x2 : max_row)(k, (const float *)io[0] + n * image, row,
                                               (float *)io[1] + i * k->q * k->c,
                                               (uint8_t *)io[2] + i * k->q * k->c);
        break;
    case LS_K_AVG_POOL:
        n = i / k->p, row = i % k->p;
        avg_row(k, (const float *)io[0] + n * image, row, (float *)io[1] + i * k->q * k->c);
        break;
    case LS_K_MAX_POOL_GRAD:
        n = i / k->h, row = i % k->h;
        (tiles_2x2(k) ? max_grad_row_2x2 : max_grad_row)(k, (const uint8_t *)io[0] + n * windows,
                                                         (const float *)io[1] + n * windows, row,
                                                         (float *)io[2] + i * k->w * k->c);
        break;
    case LS_K_AVG_POOL_GRAD:
        n = i / k->h, row = i % k->h;
        avg_grad_row(k, (const float *)io[0] + n * windows, row, (float *)io[1] + i * k->w * k->c);
        break;
    case LS_K_GLOBAL_POOL:
        global_mean(k, (const float *)io[0] + i * image, (float *)io[1] + i * k->c);
        break;
    default:
        global_grad(k, (const float *)io[0] + i * k->c, (float *)io[1] + i * image);
    }
}

static void pool(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct pool *k = (const struct pool *)head;
    bool global = k->kind == LS_K_GLOBAL_POOL || k->kind == LS_K_GLOBAL_POOL_GRAD;
    bool forward = k->kind == LS_K_MAX_POOL || k->kind == LS_K_AVG_POOL;
    int64_t items = k->n * (global ? 1 : forward ? k->p : k->h), lo, hi;
    ls_cpu_slice(items, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        item(k, io, i);
}

static enum ls_status shapes(const struct ls_op_desc *op, const struct ls_operand **image,
                             const struct ls_operand **windows, struct ls_error *err)
{
    switch (op->kind) {
    case LS_K_MAX_POOL:
        LS_TRY(ls_cpu_check(op, 1, 2, "ffu", err));
        if (!ls_cpu_same_shape(&op->out[0], &op->out[1]))
            return ls_cpu_unsupported(op, "both results have one shape", err);
        *image = &op->in[0], *windows = &op->out[0];
        return LS_OK;
    case LS_K_MAX_POOL_GRAD:
        LS_TRY(ls_cpu_check(op, 2, 1, "uff", err));
        if (!ls_cpu_same_shape(&op->in[0], &op->in[1]))
            return ls_cpu_unsupported(op, "both operands have one shape", err);
        *image = &op->out[0], *windows = &op->in[1];
        return LS_OK;
    case LS_K_AVG_POOL:
    case LS_K_GLOBAL_POOL:
        LS_TRY(ls_cpu_check(op, 1, 1, "ff", err));
        *image = &op->in[0], *windows = &op->out[0];
        return LS_OK;
    default:
        LS_TRY(ls_cpu_check(op, 1, 1, "ff", err));
        *image = &op->out[0], *windows = &op->in[0];
        return LS_OK;
    }
}

enum ls_status LS_V(ls_cpu_pool)(struct ls_device *dev, const struct ls_op_desc *op,
                                 struct ls_kernel **kernel, int64_t *workspace,
                                 struct ls_error *err)
{
    const struct ls_operand *image = NULL, *windows = NULL;
    LS_TRY(shapes(op, &image, &windows, err));
    bool global = op->kind == LS_K_GLOBAL_POOL || op->kind == LS_K_GLOBAL_POOL_GRAD;
    const struct ls_attr *at = op->attr;
    if (image->ndim != 4 || windows->ndim != (global ? 2 : 4))
        return ls_cpu_unsupported(op, "expected images [n,h,w,c]", err);
    bool fits =
        image->shape[0] == windows->shape[0] && image->shape[3] == windows->shape[global ? 1 : 3];
    if (!global && (at->kernel < 1 || at->kernel > 16 || at->stride < 1 || at->pad < 0 ||
                    at->pad >= at->kernel))
        return ls_cpu_unsupported(op, "expected kernel 1 to 16, stride >= 1, 0 <= pad < kernel",
                                  err);
    for (int d = 1; d <= 2 && !global; d++) {
        int64_t room = image->shape[d] + 2 * (int64_t)at->pad - at->kernel;
        fits = fits && room >= 0 && room / at->stride + 1 == windows->shape[d];
    }
    if (!fits)
        return ls_cpu_unsupported(op, "the shapes do not fit each other", err);
    struct pool *k = ls_cpu_kernel(sizeof *k, err);
    if (!k)
        return LS_ERR_NOMEM;
    k->kind = op->kind;
    k->n = image->shape[0], k->h = image->shape[1], k->w = image->shape[2], k->c = image->shape[3];
    if (!global)
        k->p = windows->shape[1], k->q = windows->shape[2];
    k->kernel = at->kernel, k->stride = at->stride, k->pad = at->pad;
    k->head.work = pool;
    k->head.threads = ls_cpu_threads(dev, ls_cpu_numel(image) * 8);
    *workspace = 0;
    *kernel = &k->head;
    return LS_OK;
}
