/* What the files of this room share: sums, names in a checkpoint directory, small file helpers.
 * Nobody else includes it. */
#ifndef LS_CKPT_INTERNAL_H
#define LS_CKPT_INTERNAL_H

#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"

#include <jansson.h>
#include <xxhash.h>

/* Files are hashed and moved in pieces of this size: large enough for any disk, small enough that
 * the bytes are still in the cache when they are written. */
#define LS_CKPT_CHUNK ((size_t)4 << 20)

/* Bounds on what a hostile header or manifest can make us allocate: a parsed JSON value costs up to
 * 200 bytes, and the text counts one comma per value. */
#define LS_CKPT_MAX_TENSORS (1 << 18)
#define LS_CKPT_MAX_COMMAS  (1 << 21)
#define LS_CKPT_MAX_NAME    4096

/* ---- text.c: untrusted text
 * ------------------------------------------------------------------------------ */

/* A name from a file, made fit for one line of a message: no control bytes, at most 80 bytes. */
struct ls_quoted {
    char text[88];
};
struct ls_quoted ls_ckpt_quote(const char *name);
/* "[2, 3]" */
const char *ls_ckpt_shape(const int64_t *shape, int ndim, char out[static 192]);
/* Parses JSON after a first walk that bounds depth, values and sign; `what` is for messages. The
 * root is an object. */
enum ls_status ls_ckpt_json(const char *what, const char *text, size_t size, int max_depth,
                            bool negatives, json_t **root, struct ls_error *err);
void ls_sum_set(struct ls_sum *sum, XXH128_hash_t hash);
bool ls_sum_parse(const char *hex, struct ls_sum *sum);

/* ---- safetensors_write.c
 * --------------------------------------------------------------------------------- */

/* ls_st_write, and the sums of the file and of every tensor (in the order of `tensors`). */
enum ls_status ls_st_write_sums(int fd, const char *path, const struct ls_st_tensor *tensors, int n,
                                const char *const *metadata, struct ls_sum *file_sum,
                                struct ls_sum *tensor_sums, int64_t *bytes, struct ls_error *err);

/* ---- store.c: names and files in a checkpoint directory
 * -------------------------------------------------- */

#define LS_CKPT_MANIFEST  "manifest.json"
#define LS_CKPT_MODEL     "model.safetensors"
#define LS_CKPT_OPTIMIZER "optimizer.safetensors"
#define LS_CKPT_NAME_SIZE 96

enum ls_ckpt_kind {
    LS_CKPT_STEP, /* step-00000500 */
    LS_CKPT_OLD,  /* step-00000500.old-<nonce>: set aside while its successor takes the name */
    LS_CKPT_TEMP, /* step-00000500.tmp-<nonce>, latest.tmp-<nonce>: never read */
    LS_CKPT_OTHER,
};
struct ls_ckpt_entry {
    char name[LS_CKPT_NAME_SIZE];
    enum ls_ckpt_kind kind;
    int64_t step;
};
enum ls_ckpt_kind ls_ckpt_kind_of(const char *name, int64_t *step);
void ls_ckpt_step_name(int64_t step, char out[static LS_CKPT_NAME_SIZE]);
/* "<base>.<tag>-<16 hex digits>" */
void ls_ckpt_aside_name(const char *base, const char *tag, char out[static LS_CKPT_NAME_SIZE]);
/* Everything of ours in the directory, newest first, a step before its old version. malloc'd. */
enum ls_status ls_ckpt_scan(int dirfd, const char *path, struct ls_ckpt_entry **entries, int *n,
                            struct ls_error *err);
/* Removes a file, or a directory of files; symbolic links are removed, never followed. */
enum ls_status ls_ckpt_remove(int dirfd, const char *path, const char *name, struct ls_error *err);
/* Creates `name` (which must not exist), writes, syncs, closes. */
enum ls_status ls_ckpt_write_at(int dirfd, const char *path, const char *name, const void *data,
                                size_t size, struct ls_error *err);
enum ls_status ls_ckpt_sync_dir(int fd, const char *path, struct ls_error *err);
/* Opens a regular file inside a checkpoint, never through a link. */
enum ls_status ls_ckpt_open_at(int dirfd, const char *path, const char *name, int *fd,
                               int64_t *size, struct ls_error *err);
/* Reads exactly `size` bytes. */
enum ls_status ls_ckpt_pread(int fd, void *data, size_t size, int64_t offset, const char *path,
                             struct ls_error *err);

/* ---- verify.c
 * -------------------------------------------------------------------------------------------- */

/* Opens a checkpoint directory. `name` is relative to dirfd (AT_FDCWD and a path: links allowed). */
enum ls_status ls_ckpt_enter(int dirfd, const char *name, const char *path, int *fd,
                             struct ls_error *err);
/* The manifest, and every file there with the size that it says. */
enum ls_status ls_ckpt_quick(int fd, const char *path, struct ls_manifest *manifest,
                             struct ls_error *err);
/* ls_ckpt_quick, and every byte against the hashes. */
enum ls_status ls_ckpt_full(int fd, const char *path, struct ls_manifest *manifest,
                            struct ls_error *err);

#endif
