/* Checkpoints: directories of safetensors files plus a manifest with hashes, committed by rename.
 *
 *   <dir>/                      checkpoint.dir of the job; one writer at a time (lock file)
 *     step-00000500/            complete: it appeared by rename, after everything was synced
 *       manifest.json           format version, step, position, updates, job hash, files, hashes
 *       model.safetensors       parameters and running statistics, by name
 *       optimizer.safetensors   moments: "<parameter>/m", "<parameter>/v"
 *     step-00000600.tmp-.../    being written, or left by a crash: never read, removed by the next
 *     latest                    text: name of the newest; only a hint for people
 *
 * The newest *verified* one counts. */
#ifndef LS_CKPT_H
#define LS_CKPT_H

#include "base/base.h"
#include "device/op.h"

#include <stdio.h>

#define LS_CKPT_FORMAT 1

/* ---- safetensors (safetensors.c) ---- */

struct ls_st_tensor {
    const char *name;
    enum ls_dtype dtype; /* F32, F64, I32, U8 */
    int ndim;
    int64_t shape[8];
    void *data;         /* writer: borrowed; reader: NULL until read */
    int64_t begin, end; /* reader: bytes from the start of the file */
};
struct ls_st_file {
    struct ls_arena arena;
    struct ls_st_tensor *tensors; /* reader: sorted by offset */
    int ntensors;
    int64_t data_start, size;
};
/* Parses and checks the header by the rules of the format (no hole, no overlap, no duplicate key,
 * exact file size, header <= 100,000,000 bytes; nothing allocated from a declared size before it is
 * checked against bytes that are there). dtypes that Lockstep does not use are UNSUPPORTED. */
enum ls_status ls_st_parse(const char *name, const uint8_t *bytes, size_t size, int64_t file_size,
                           struct ls_st_file *file, struct ls_error *err);
void ls_st_free(struct ls_st_file *file);
/* Reads and parses the header of an open file of any length. */
enum ls_status ls_st_read_header(int fd, const char *path, struct ls_st_file *file,
                                 struct ls_error *err);
const char *ls_st_dtype_name(enum ls_dtype dtype); /* "F32" */
bool ls_st_dtype_parse(const char *name, enum ls_dtype *dtype);
/* Writes header and data to an empty file; the data start is padded to 64 bytes. `metadata` is NULL
 * or pairs of strings, NULL-terminated. Syncs. */
enum ls_status ls_st_write(int fd, const char *path, const struct ls_st_tensor *tensors, int n,
                           const char *const *metadata, struct ls_error *err);

/* ---- a checkpoint (ckpt.c) ---- */

struct ls_ckpt_state {
    int64_t step;     /* finished steps: the next one to run */
    int64_t position; /* global sample position of the next step */
    int64_t updates;  /* applied updates (bias correction) */
    int64_t seed;
    uint64_t job_hash;
    double seconds;                         /* training time so far, all runs together */
    double train_loss;                      /* of the last step; NaN: none yet */
    struct ls_st_tensor *model, *optimizer; /* save: data set; load: buffers to fill, by name */
    int nmodel, noptimizer;
};
/* A writer's hold on a checkpoint directory. */
struct ls_ckpt_dir;
/* Creates the directory, takes the lock (BUSY names host and pid of the holder), removes what a
 * crashed save left, checks that files can be created there. */
enum ls_status ls_ckpt_open(const char *dir, struct ls_ckpt_dir **ckpt, struct ls_error *err);
void ls_ckpt_close(struct ls_ckpt_dir *ckpt);
/* Writes, syncs, renames; then removes all but the newest `keep` complete ones. A failure leaves
 * all earlier checkpoints as they were, and no temporary files. A complete checkpoint of the same
 * step is replaced. *path (may be NULL) is in `ckpt` until the next save or close. */
enum ls_status ls_ckpt_save(struct ls_ckpt_dir *ckpt, const struct ls_ckpt_state *state,
                            int64_t keep, const char **path, struct ls_error *err);
/* What went wrong after the last save had been committed (`latest` or an old checkpoint): worth a
 * warning, but the new checkpoint is safe. NULL: nothing. */
const char *ls_ckpt_warning(const struct ls_ckpt_dir *ckpt);
/* Finds the newest checkpoint in `dir` that verifies, warning through `warn` (may be NULL) about
 * each that does not. *path is malloc'd; NULL when there is none at all. FORMAT when there are some
 * and none verifies: never a silent start from zero. */
typedef void ls_ckpt_warn_fn(void *arg, const char *message);
enum ls_status ls_ckpt_find(const char *dir, char **path, ls_ckpt_warn_fn *warn, void *arg,
                            struct ls_error *err);
/* Verifies all hashes, then fills `state`: every tensor asked for must be there with that dtype and
 * shape, and every tensor there must be asked for; errors list the first few that differ. Buffers
 * are written only after everything was verified. */
enum ls_status ls_ckpt_load(const char *path, struct ls_ckpt_state *state, struct ls_error *err);

/* ---- looking at checkpoints (inspect.c) ---- */

struct ls_ckpt_info {
    char *path;
    int64_t step, position, updates, bytes;
    double created; /* seconds since 1970 */
    double train_loss;
    bool complete;     /* has a manifest that parses and files of the right size */
    char problem[256]; /* why not */
};
/* Newest first. `infos` is malloc'd, paths too: ls_ckpt_infos_free. */
enum ls_status ls_ckpt_list(const char *dir, struct ls_ckpt_info **infos, int *n,
                            struct ls_error *err);
void ls_ckpt_infos_free(struct ls_ckpt_info *infos, int n);
/* Reads everything and checks every hash. info (may be NULL) is filled either way; info->path is
 * malloc'd and the caller's. */
enum ls_status ls_ckpt_verify(const char *path, struct ls_ckpt_info *info, struct ls_error *err);

#endif
