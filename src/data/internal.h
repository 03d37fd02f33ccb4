/* What the files of this room share: big anonymous memory, a quiet thread, the head of a gzip
 * member. */
#ifndef LS_DATA_INTERNAL_H
#define LS_DATA_INTERNAL_H

#include "data/data.h"

#include <pthread.h>
#include <sched.h>

/* Zeroed memory, page aligned. NULL when memory is short. */
uint8_t *ls_data_map(int64_t bytes);
void ls_data_unmap(void *memory, int64_t bytes); /* the same size; NULL is fine */

/* Starts a thread on `cpus` (NULL: those of the caller) that takes no signals (they belong to the main thread), named as ps shows it.
 * Returns 0 or an errno. */
int ls_data_thread(pthread_t *thread, const char *name, const cpu_set_t *cpus, void *(*run)(void *),
                   void *arg);

/* Inflates at most `want` <= 32 bytes from the start of the gzip member at `in` (RFC 1951, 1952),
 * so that a header can be judged before memory is given to the rest. *got is less than `want` only
 * where the member ends earlier. False: not a gzip member, corrupt, or cut. */
bool ls_data_gzip_head(const uint8_t *in, size_t size, uint8_t *out, size_t want, size_t *got);

/* ---- pixels.c ------------------------------------------------------------------------------ */

/* How one sample is moved: to the right by dx and down by dy, mirrored first. */
struct ls_data_draw {
    int64_t dx, dy;
    bool flip;
};
/* Drawn by (seed, position) alone: dx and dy uniform in [-shift, shift], flip for half of them. */
struct ls_data_draw ls_data_draw(uint64_t seed, int64_t position, int64_t shift, bool flip);
/* out(y, x) = in(y - dy, x - dx), or 0 outside; in mirrored left to right where `flip`. Images of
 * [h, w, c] bytes; |dx| < w, |dy| < h. */
void ls_data_move(const uint8_t *in, uint8_t *out, int64_t h, int64_t w, int64_t c,
                  const struct ls_data_draw *draw);

/* out = (in - minus) * times for n bytes of c channels, which is (in / 255 - mean) / std. The two
 * tables hold LS_DATA_BLOCK * c floats, a whole number of pixels, so that a vector of any channel
 * count finds its constants in order. The same bits on every instruction set. */
#define LS_DATA_BLOCK 16
void ls_data_normalise(const uint8_t *restrict in, float *restrict out, int64_t n, int64_t c,
                       const float *restrict minus, const float *restrict times);

#endif
