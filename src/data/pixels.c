/* The work on pixels: where a sample is moved to, moving it, and bytes to normalised floats. */
#include "data/internal.h"

#include <string.h>

struct ls_data_draw ls_data_draw(uint64_t seed, int64_t position, int64_t shift, bool flip)
{
    const uint64_t stream = 0x6175676D656E74; /* "augment" */
    uint32_t word[4];
    uint64_t span = 2 * (uint64_t)shift + 1;
    ls_philox(seed, stream, (uint64_t)position, word);
    return (struct ls_data_draw){.dx = (int64_t)(word[0] * span >> 32) - shift,
                                 .dy = (int64_t)(word[1] * span >> 32) - shift,
                                 .flip = flip && word[2] >> 31};
}

/* Copies n pixels in the opposite order; 8 at once where a pixel is a byte. */
static void mirror(const uint8_t *in, uint8_t *out, int64_t n, int64_t c)
{
    int64_t i = 0;
    for (; c == 1 && i + 8 <= n; i += 8) {
        uint64_t eight;
        memcpy(&eight, in + n - i - 8, 8);
        eight = __builtin_bswap64(eight);
        memcpy(out + i, &eight, 8);
    }
    for (; i < n; i++)
        for (int64_t k = 0; k < c; k++)
            out[i * c + k] = in[(n - 1 - i) * c + k];
}

void ls_data_move(const uint8_t *in, uint8_t *out, int64_t h, int64_t w, int64_t c,
                  const struct ls_data_draw *draw)
{
    int64_t dx = draw->dx, dy = draw->dy;
    int64_t wide = w - (dx < 0 ? -dx : dx), high = h - (dy < 0 ? -dy : dy); /* that stay in sight */
    int64_t to = dx > 0 ? dx : 0, top = dy > 0 ? dy : 0;
    int64_t from = draw->flip ? w - wide - (to - dx) : to - dx;
    memset(out, 0, (size_t)(h * w * c));
    for (int64_t y = top; y < top + high; y++) {
        const uint8_t *row = in + ((y - dy) * w + from) * c;
        if (draw->flip)
            mirror(row, out + (y * w + to) * c, wide, c);
        else
            memcpy(out + (y * w + to) * c, row, (size_t)(wide * c));
    }
}

/* A subtraction and a product, not a multiply-add: a compiler could fuse that on one machine and
 * not on another, and the bits would differ. Plain code is enough: gcc -O2 vectorises the inner loop
 * for the baseline, which reading the samples keeps from going faster (measured: AVX2 and AVX-512
 * builds of it win 5 %). */
void ls_data_normalise(const uint8_t *restrict in, float *restrict out, int64_t n, int64_t c,
                       const float *restrict minus, const float *restrict times)
{
    int64_t i = 0, k = 0, period = LS_DATA_BLOCK * c;
    for (; i + LS_DATA_BLOCK <= n; i += LS_DATA_BLOCK) {
        for (int j = 0; j < LS_DATA_BLOCK; j++)
            out[i + j] = ((float)in[i + j] - minus[k + j]) * times[k + j];
        k = k + LS_DATA_BLOCK == period ? 0 : k + LS_DATA_BLOCK;
    }
    for (; i < n; i++, k++)
        out[i] = ((float)in[i] - minus[k]) * times[k];
}
