/* DROPOUT: keeps or drops each element by the random number that its global index names, so the
 * mask depends on no partition and is the same in forward and backward.
 */
#include "plugins/cpu/kinds.h"

#include <math.h>

struct dropout {
    struct ls_kernel head;
    int64_t n, inner;
    uint64_t path;
    double rate;
};

#define COUNTERS 16 /* Philox counters of one block; four words each */
#define WORDS    (4 * COUNTERS)

/* The words of COUNTERS consecutive counters of ls_philox, in order. */
static void philox_block(uint64_t key, uint64_t stream, uint64_t counter, uint32_t out[WORDS])
{
    uint32_t c0[COUNTERS], c1[COUNTERS], c2[COUNTERS], c3[COUNTERS];
    for (int i = 0; i < COUNTERS; i++) {
        c0[i] = (uint32_t)(counter + (uint64_t)i);
        c1[i] = (uint32_t)((counter + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)stream, c3[i] = (uint32_t)(stream >> 32);
    }
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
#pragma omp simd
        for (int i = 0; i < COUNTERS; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * c0[i], b = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)b;
            c3[i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < COUNTERS; i++)
        out[4 * i] = c0[i], out[4 * i + 1] = c1[i], out[4 * i + 2] = c2[i], out[4 * i + 3] = c3[i];
}

/* Elements [0, n) of x, whose first has global index `index`. Kept: word >= threshold. */
static void drop(const float *x, float *y, int64_t n, uint64_t key, uint64_t step, uint64_t index,
                 uint32_t threshold, float scale)
{
    uint32_t word[WORDS];
    for (int64_t i = 0; i < n;) {
        uint64_t at = index + (uint64_t)i;
        int64_t skip = (int64_t)(at % WORDS), len = WORDS - skip;
        if (len > n - i)
            len = n - i;
        philox_block(key, step, (at - (uint64_t)skip) / 4, word);
        const uint32_t *w = word + skip;
        for (int64_t j = 0; j < len; j++)
            y[i + j] = w[j] >= threshold ? x[i + j] * scale : 0;
        i += len;
    }
}

static void dropout(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct dropout *d = (const struct dropout *)head;
    const float *x = io[0];
    const double *control = io[1];
    float *y = io[2];
    uint64_t key = ls_mix64((uint64_t)control[LS_C_SEED], d->path);
    uint64_t step = (uint64_t)control[LS_C_STEP];
    uint64_t index = (uint64_t)control[LS_C_SAMPLE] * (uint64_t)d->inner;
    /* u = (word + 0.5) / 2^32 >= rate, solved for the word; exact, since both sides are doubles */
    uint32_t threshold = (uint32_t)ceil(d->rate * 4294967296.0 - 0.5);
    float scale = (float)(1 / (1 - d->rate));
    int64_t lo, hi;
    ls_cpu_slice(d->n, WORDS, part, parts, &lo, &hi);
    drop(x + lo, y + lo, hi - lo, key, step, index + (uint64_t)lo, threshold, scale);
}

enum ls_status LS_V(ls_cpu_dropout)(struct ls_device *dev, const struct ls_op_desc *op,
                                    struct ls_kernel **kernel, int64_t *workspace,
                                    struct ls_error *err)
{
    LS_TRY(ls_cpu_check(op, 2, 1, "fdf", err));
    if (op->in[0].ndim < 1 || !ls_cpu_same_shape(&op->in[0], &op->out[0]) ||
        ls_cpu_numel(&op->in[1]) != LS_CONTROL_WORDS)
        return ls_cpu_unsupported(op, "expected x [n, ...], the control tensor, and y like x", err);
    if (!(op->attr->rate >= 0 && op->attr->rate < 1))
        return ls_cpu_unsupported(op, "the rate must be at least 0 and below 1", err);
    struct dropout *d = ls_cpu_kernel(sizeof *d, err);
    if (!d)
        return LS_ERR_NOMEM;
    d->n = ls_cpu_numel(&op->in[0]);
    d->inner = d->n / op->in[0].shape[0];
    d->rate = op->attr->rate;
    d->path = op->attr->path;
    d->head.work = dropout;
    d->head.threads = ls_cpu_threads(dev, d->n * 16);
    *workspace = 0;
    *kernel = &d->head;
    return LS_OK;
}
