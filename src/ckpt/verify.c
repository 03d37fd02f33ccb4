/* Is a checkpoint what its manifest says? Quickly by names and sizes, or fully by every byte. */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum ls_status ls_ckpt_enter(int dirfd, const char *name, const char *path, int *fd,
                             struct ls_error *err)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (dirfd == AT_FDCWD ? 0 : O_NOFOLLOW);
    *fd = openat(dirfd, name, flags);
    if (*fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return ls_error_set(err, LS_ERR_FORMAT, "%s: not a directory", path);
    return *fd < 0 ? ls_error_errno(err, errno, "opening checkpoint %s", path) : LS_OK;
}

static enum ls_status open_sized(int dirfd, const char *path, const struct ls_manifest_file *f,
                                 int *fd, struct ls_error *err)
{
    int64_t size;
    LS_TRY(ls_ckpt_open_at(dirfd, path, f->name, fd, &size, err));
    if (size == f->bytes)
        return LS_OK;
    close(*fd);
    return ls_error_set(err, LS_ERR_FORMAT,
                        "%s/%s: %lld bytes, the manifest says %lld: truncated or replaced", path,
                        f->name, (long long)size, (long long)f->bytes);
}

enum ls_status ls_ckpt_quick(int dirfd, const char *path, struct ls_manifest *manifest,
                             struct ls_error *err)
{
    struct ls_manifest m;
    LS_TRY(ls_manifest_read(dirfd, path, &m, err));
    enum ls_status status = LS_OK;
    for (int i = 0; i < m.nfiles && status == LS_OK; i++) {
        int fd;
        status = open_sized(dirfd, path, &m.files[i], &fd, err);
        if (status == LS_OK)
            close(fd);
    }
    if (status == LS_OK)
        *manifest = m;
    else
        ls_manifest_free(&m);
    return status;
}

static int find_by_name(const void *key, const void *element)
{
    return strcmp(key, ((const struct ls_manifest_tensor *)element)->name);
}

/* Pairs each tensor of the header with its line in the manifest. */
static enum ls_status match(const char *path, const struct ls_st_file *st,
                            const struct ls_manifest_file *f, const struct ls_manifest_tensor **of,
                            struct ls_error *err)
{
    if (st->ntensors != f->ntensors)
        return ls_error_set(err, LS_ERR_FORMAT, "%s/%s: %d tensors, the manifest lists %d", path,
                            f->name, st->ntensors, f->ntensors);
    for (int i = 0; i < st->ntensors; i++) {
        const struct ls_st_tensor *t = &st->tensors[i];
        struct ls_quoted q = ls_ckpt_quote(t->name);
        of[i] = bsearch(t->name, f->tensors, (size_t)f->ntensors, sizeof *f->tensors, find_by_name);
        if (!of[i])
            return ls_error_set(err, LS_ERR_FORMAT, "%s/%s: tensor '%s' is not in the manifest",
                                path, f->name, q.text);
        if (of[i]->dtype != t->dtype || of[i]->ndim != t->ndim ||
            memcmp(of[i]->shape, t->shape, sizeof t->shape) != 0)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s/%s: tensor '%s' has another dtype or shape in the manifest",
                                path, f->name, q.text);
    }
    return LS_OK;
}

/* One pass over a file: the sum of all of it, and the sum of each tensor in it. */
struct pass {
    const char *path, *name;
    const struct ls_st_file *st;
    const struct ls_manifest_tensor **of; /* per tensor of st */
    XXH3_state_t *file, *tensor;
    int at; /* the tensor that is being hashed; ntensors: behind the last */
};

static enum ls_status finish_tensors(struct pass *p, int64_t offset, struct ls_error *err)
{
    for (; p->at < p->st->ntensors && p->st->tensors[p->at].end <= offset; p->at++) {
        struct ls_sum sum;
        ls_sum_set(&sum, XXH3_128bits_digest(p->tensor));
        XXH3_128bits_reset(p->tensor);
        const struct ls_manifest_tensor *t = p->of[p->at];
        if (strcmp(sum.hex, t->sum.hex) != 0) {
            struct ls_quoted q = ls_ckpt_quote(t->name);
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s/%s: tensor '%s' has the sum %s, the manifest says %s: it was "
                                "changed or damaged",
                                p->path, p->name, q.text, sum.hex, t->sum.hex);
        }
    }
    return LS_OK;
}

static enum ls_status take(struct pass *p, const uint8_t *bytes, size_t n, int64_t offset,
                           struct ls_error *err)
{
    XXH3_128bits_update(p->file, bytes, n);
    int64_t end = offset + (int64_t)n;
    if (offset < p->st->data_start) {
        int64_t skip = (p->st->data_start < end ? p->st->data_start : end) - offset;
        bytes += skip;
        offset += skip;
    }
    while (offset < end) {
        LS_TRY(finish_tensors(p, offset, err));
        int64_t stop = p->st->tensors[p->at].end; /* tensors tile the data: there is one */
        if (stop > end)
            stop = end;
        XXH3_128bits_update(p->tensor, bytes, (size_t)(stop - offset));
        bytes += stop - offset;
        offset = stop;
    }
    return LS_OK;
}

static enum ls_status hash_file(struct pass *p, int fd, uint8_t *chunk,
                                const struct ls_manifest_file *f, struct ls_error *err)
{
    XXH3_128bits_reset(p->file);
    XXH3_128bits_reset(p->tensor);
    for (int64_t offset = 0; offset < f->bytes;) {
        size_t n = LS_CKPT_CHUNK;
        if (f->bytes - offset < (int64_t)n)
            n = (size_t)(f->bytes - offset);
        LS_TRY(ls_ckpt_pread(fd, chunk, n, offset, f->name, err));
        LS_TRY(take(p, chunk, n, offset, err));
        offset += (int64_t)n;
    }
    LS_TRY(finish_tensors(p, f->bytes, err));
    struct ls_sum sum;
    ls_sum_set(&sum, XXH3_128bits_digest(p->file));
    if (strcmp(sum.hex, f->sum.hex) != 0)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s/%s: has the sum %s, the manifest says %s: its header was changed "
                            "or damaged",
                            p->path, f->name, sum.hex, f->sum.hex);
    return LS_OK;
}

static enum ls_status verify_file(int dirfd, const char *path, const struct ls_manifest_file *f,
                                  uint8_t *chunk, struct ls_error *err)
{
    struct ls_arena arena = {0};
    struct ls_st_file st = {0};
    struct pass p = {.path = path, .name = f->name, .st = &st};
    int fd;
    LS_TRY(open_sized(dirfd, path, f, &fd, err));
    p.file = XXH3_createState();
    p.tensor = XXH3_createState();
    p.of = ls_arena_alloc(&arena, ((size_t)f->ntensors + 1) * sizeof *p.of);
    char *full = ls_arena_printf(&arena, "%s/%s", path, f->name);
    enum ls_status status = LS_OK;
    if (!p.file || !p.tensor || !p.of || !full)
        status = ls_error_set(err, LS_ERR_NOMEM, "verifying %s: out of memory", path);
    if (status == LS_OK)
        status = ls_st_read_header(fd, full, &st, err);
    if (status == LS_OK)
        status = match(path, &st, f, p.of, err);
    if (status == LS_OK)
        status = hash_file(&p, fd, chunk, f, err);
    ls_st_free(&st);
    XXH3_freeState(p.tensor);
    XXH3_freeState(p.file);
    ls_arena_free(&arena);
    close(fd);
    return status;
}

enum ls_status ls_ckpt_full(int dirfd, const char *path, struct ls_manifest *manifest,
                            struct ls_error *err)
{
    struct ls_manifest m;
    LS_TRY(ls_ckpt_quick(dirfd, path, &m, err));
    uint8_t *chunk = malloc(LS_CKPT_CHUNK);
    enum ls_status status = LS_OK;
    if (!chunk)
        status = ls_error_set(err, LS_ERR_NOMEM, "verifying %s: out of memory", path);
    for (int i = 0; i < m.nfiles && status == LS_OK; i++)
        status = verify_file(dirfd, path, &m.files[i], chunk, err);
    free(chunk);
    if (status == LS_OK)
        *manifest = m;
    else
        ls_manifest_free(&m);
    return status;
}
