/* The manifest of a checkpoint: what was saved, and the sum of every byte of it.
 *
 *   { "format": 1, "step": 500, "position": 64000, "updates": 500, "seed": 1,
 *     "job_hash": "00c0ffee00c0ffee", "seconds": 12.5, "train_loss": 0.31, "created": 1.7e9,
 *     "lockstep": "0.1.0",
 *     "files": [ { "name": "model.safetensors", "bytes": 2048, "xxh128": "...",
 *                  "tensors": [ { "name": "fc1.weight", "dtype": "F32", "shape": [16, 8],
 *                                 "xxh128": "..." } ] } ],
 *     "xxh128": "..." }        always the last line: the sum of all bytes before it
 */
#ifndef LS_CKPT_MANIFEST_H
#define LS_CKPT_MANIFEST_H

#include "base/base.h"
#include "ckpt/ckpt.h"

/* XXH3, 128 bits, as 32 hexadecimal digits, most significant first (what xxhsum -H2 prints). It
 * finds accidents, not forgers. */
struct ls_sum {
    char hex[33];
};

struct ls_manifest_tensor {
    const char *name;
    enum ls_dtype dtype;
    int ndim;
    int64_t shape[8];
    struct ls_sum sum; /* of its bytes in the file */
};
struct ls_manifest_file {
    const char *name; /* a plain name inside the checkpoint: no '/', no leading '.' */
    int64_t bytes;
    struct ls_sum sum;
    struct ls_manifest_tensor *tensors; /* parsed: sorted by name */
    int ntensors;
};
struct ls_manifest {
    struct ls_arena arena; /* owns all strings and arrays */
    int64_t step, position, updates, seed;
    uint64_t job_hash;
    double seconds, train_loss, created; /* train_loss NaN: none, stored as null */
    const char *lockstep;                /* version that wrote it */
    struct ls_manifest_file *files;
    int nfiles;
};

/* The text of a manifest, its own sum included. *text is malloc'd. */
enum ls_status ls_manifest_print(const struct ls_manifest *manifest, char **text, size_t *size,
                                 struct ls_error *err);
/* Checks the sum and every field. FORMAT; UNSUPPORTED for a later format version. On failure
 * nothing has to be freed. `name` is for messages. */
enum ls_status ls_manifest_parse(const char *name, const char *text, size_t size,
                                 struct ls_manifest *manifest, struct ls_error *err);
/* Reads manifest.json in the open directory `dirfd`; `path` is its name, for messages. */
enum ls_status ls_manifest_read(int dirfd, const char *path, struct ls_manifest *manifest,
                                struct ls_error *err);
void ls_manifest_free(struct ls_manifest *manifest);

#endif
