/* Data: a labelled image set in memory, the keyed order of its samples, and a feed that prepares
 * micro-batches on a thread of its own so that the step never waits for decoding.
 *
 *   IDX files --> struct ls_dataset --> struct ls_feed (order, augment, normalise) --> batch
 */
#ifndef LS_DATA_H
#define LS_DATA_H

#include "base/base.h"

#include <sched.h>

/* ---- IDX (idx.c) ---- */

/* 00 00 <type> <ndim>, then ndim big-endian u32, then row-major data; plain or gzip (by its magic,
 * not by its name). Only type 08 (unsigned byte) is supported. The size of the file must match the
 * header exactly. Source: the MNIST page of LeCun, Cortes and Burges. */
struct ls_idx {
    int ndim;
    int64_t shape[4];
    uint8_t *data; /* owned: free with ls_idx_close */
    int64_t bytes;
};
/* Errors name the file and what was found: NOTFOUND, IO, FORMAT (wrong magic, truncated at byte N
 * of M, N bytes too long, corrupt gzip), UNSUPPORTED (another element type), OVERFLOW, NOMEM.
 * Memory and time stay bounded by the size of the file (a gzip member may expand at most 1032
 * times). */
enum ls_status ls_idx_open(const char *path, struct ls_idx *idx, struct ls_error *err);
void ls_idx_close(struct ls_idx *idx);
/* The same from memory; used by ls_idx_open and by the fuzzer. `name` is for messages. */
enum ls_status ls_idx_parse(const char *name, const uint8_t *bytes, size_t size, struct ls_idx *idx,
                            struct ls_error *err);

/* ---- a set of labelled images (dataset.c) ---- */

struct ls_dataset {
    int64_t n, height, width, channels; /* images of 3 dimensions have 1 channel; 4: [n, h, w, c] */
    const uint8_t *pixels;              /* [n, h, w, c] */
    const uint8_t *labels;              /* [n], all < classes */
    int64_t classes;
    struct ls_idx images_file, labels_file;
};
/* Reads both files at once. Errors also name a label out of range with its
 * index, and counts that differ. */
enum ls_status ls_dataset_open(const char *images, const char *labels, int64_t classes,
                               struct ls_dataset *set, struct ls_error *err);
void ls_dataset_close(struct ls_dataset *set);

/* ---- order (order.c) ---- */

/* The id of the sample at global position p: epoch p / n, permutation(seed, epoch)(p mod n), a
 * Feistel network with cycle walking: O(1) memory, random access, no state. 0 < n <= 2^62, p >= 0.
 */
int64_t ls_order_sample(uint64_t seed, int64_t n, int64_t position);

/* ---- feed (feed.c) ---- */

struct ls_feed_config {
    const struct ls_dataset *set;
    int64_t micro_batch; /* rows of a batch */
    uint64_t seed;
    bool shuffle;     /* false: position p is sample p, and the feed ends after n (evaluation) */
    int64_t position; /* of the first batch */
    /* One of several ranks: runs of `run` batches start `stride` samples apart. run 0: one long run. */
    int64_t run, stride;
    /* Augmentation, keyed by (seed, position): half of the samples mirrored left to right, then moved
     * by up to `shift` pixels (0: off; less than height and width) each way, with 0 behind. */
    int64_t shift;
    bool flip;
    const float *mean, *std; /* per channel, of values scaled to 0..1; [channels] */
    int slots;               /* batches prepared ahead, at least 2 */
    const cpu_set_t *cpus;   /* where the feed's thread may run; NULL: where the caller may */
};
struct ls_batch {
    /* [micro_batch, h, w, c], (value / 255 - mean) / std, aligned to 64 bytes; and [micro_batch].
     * Rows behind the end of an evaluation hold 0 and label -1. */
    const float *images;
    const int32_t *labels;
    int64_t position; /* of the first row */
    int64_t rows;     /* that hold a sample */
};
struct ls_feed;
/* `set` must outlive the feed; mean and std are copied. USAGE names a value that makes no sense. */
enum ls_status ls_feed_open(const struct ls_feed_config *config, struct ls_feed **feed,
                            struct ls_error *err);
/* The next batch, in order; it stays valid until the next call. Returns LS_ERR_NOTFOUND without a
 * message at the end of an evaluation. Adds the seconds it had to wait to *waited (may be NULL). */
enum ls_status ls_feed_next(struct ls_feed *feed, struct ls_batch *batch, double *waited,
                            struct ls_error *err);
/* Starts again at `position`, also after an end; the last batch is no longer valid. Only by the
 * thread that calls next. */
enum ls_status ls_feed_seek(struct ls_feed *feed, int64_t position, struct ls_error *err);
void ls_feed_close(struct ls_feed *feed); /* stops the thread */

#endif
