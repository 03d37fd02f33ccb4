/* The safetensors writer: header, data and their sums in one pass over the bytes. Order and form
 * are those of the reference writer, but the data starts at a multiple of 64. */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_ALIGN 64 /* a cache line, and the widest vector of any CPU that we know */
#define MAX_HEADER 100000000
#define STAGE      ((size_t)256 << 10) /* small tensors are gathered into one write */

struct sink {
    int fd;
    const char *path;
    XXH3_state_t *file, *tensor;
    uint8_t *stage;
    size_t used;
};

static enum ls_status flush(struct sink *s, struct ls_error *err)
{
    enum ls_status status = ls_file_write_all(s->fd, s->stage, s->used, s->path, err);
    s->used = 0;
    return status;
}

/* Hashes and writes. A chunk goes through both sums and the kernel while it is in the cache. */
static enum ls_status put(struct sink *s, const void *data, int64_t size, bool tensor,
                          struct ls_error *err)
{
    const uint8_t *p = data;
    while (size > 0) {
        bool direct = s->used == 0 && (uint64_t)size >= STAGE;
        size_t n = direct ? LS_CKPT_CHUNK : STAGE - s->used;
        if ((uint64_t)size < n)
            n = (size_t)size;
        XXH3_128bits_update(s->file, p, n);
        if (tensor)
            XXH3_128bits_update(s->tensor, p, n);
        if (direct) {
            LS_TRY(ls_file_write_all(s->fd, p, n, s->path, err));
        } else {
            memcpy(s->stage + s->used, p, n);
            s->used += n;
            if (s->used == STAGE)
                LS_TRY(flush(s, err));
        }
        p += n;
        size -= (int64_t)n;
    }
    return LS_OK;
}

struct layout {
    const struct ls_st_tensor *tensors;
    int n;
    int *order;     /* tensors in the order of the file */
    int64_t *bytes; /* of each tensor, in the caller's order */
    char *header;   /* length field, JSON, padding */
    int64_t data_start, total;
};

static int by_alignment_and_name(const void *a, const void *b, void *arg)
{
    const struct ls_st_tensor *x = (const struct ls_st_tensor *)arg + *(const int *)a;
    const struct ls_st_tensor *y = (const struct ls_st_tensor *)arg + *(const int *)b;
    int64_t sx = ls_dtype_size(x->dtype), sy = ls_dtype_size(y->dtype);
    return sx != sy ? (sx > sy ? -1 : 1) : strcmp(x->name, y->name);
}

static enum ls_status measure(struct layout *l, const char *path, struct ls_error *err)
{
    for (int i = 0; i < l->n; i++) {
        const struct ls_st_tensor *t = &l->tensors[i];
        struct ls_quoted q = ls_ckpt_quote(t->name ? t->name : "(null)");
        int64_t numel;
        if (!t->name || strcmp(t->name, "__metadata__") == 0 || strlen(t->name) > LS_CKPT_MAX_NAME)
            return ls_error_set(err, LS_ERR_INTERNAL, "%s: '%s' is not a legal tensor name", path,
                                q.text);
        if ((unsigned)t->dtype >= LS_DTYPES || t->ndim < 0 || t->ndim > 8)
            return ls_error_set(err, LS_ERR_INTERNAL, "%s: tensor '%s': bad dtype or rank", path,
                                q.text);
        if (!ls_shape_numel(t->shape, t->ndim, &numel) ||
            !ls_mul_i64(numel, ls_dtype_size(t->dtype), &l->bytes[i]) ||
            !ls_add_i64(l->total, l->bytes[i], &l->total) || l->total > INT64_MAX / 2)
            return ls_error_set(err, LS_ERR_OVERFLOW, "%s: tensor '%s': its size overflows", path,
                                q.text);
        if (!t->data && l->bytes[i])
            return ls_error_set(err, LS_ERR_INTERNAL, "%s: tensor '%s' has no data", path, q.text);
        l->order[i] = i;
    }
    if (l->n)
        qsort_r(l->order, (size_t)l->n, sizeof *l->order, by_alignment_and_name,
                (void *)(uintptr_t)l->tensors);
    return LS_OK;
}

static json_t *header_entry(const struct ls_st_tensor *t, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    for (int d = 0; d < t->ndim; d++)
        if (json_array_append_new(shape, json_integer(t->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ls_st_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static enum ls_status fill_header(struct layout *l, json_t *root, const char *path,
                                  const char *const *metadata, struct ls_error *err)
{
    if (metadata) {
        json_t *m = json_object();
        bool bad = false;
        for (; metadata[0] && metadata[1]; metadata += 2)
            bad |= json_object_set_new(m, metadata[0], json_string(metadata[1])) != 0;
        if (json_object_set_new(root, "__metadata__", m) != 0 || bad)
            return ls_error_set(err, LS_ERR_INTERNAL,
                                "%s: metadata: out of memory, or text that is not UTF-8", path);
    }
    int64_t at = 0;
    for (int i = 0; i < l->n; i++) {
        const struct ls_st_tensor *t = &l->tensors[l->order[i]];
        int64_t end = at + l->bytes[l->order[i]];
        struct ls_quoted q = ls_ckpt_quote(t->name);
        if (json_object_get(root, t->name))
            return ls_error_set(err, LS_ERR_INTERNAL, "%s: two tensors are called '%s'", path,
                                q.text);
        if (json_object_set_new(root, t->name, header_entry(t, at, end)) != 0)
            return ls_error_set(err, LS_ERR_INTERNAL,
                                "%s: tensor '%s': out of memory, or a name that is not UTF-8", path,
                                q.text);
        at = end;
    }
    return LS_OK;
}

static enum ls_status make_header(struct layout *l, const char *path, const char *const *metadata,
                                  struct ls_error *err)
{
    json_t *root = json_object();
    if (!root)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    enum ls_status status = fill_header(l, root, path, metadata, err);
    char *text = NULL;
    if (status == LS_OK && !(text = json_dumps(root, JSON_COMPACT)))
        status = ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    json_decref(root);
    if (status != LS_OK)
        return status;

    size_t len = strlen(text);
    l->data_start = ls_round_up(8 + (int64_t)len, DATA_ALIGN);
    uint64_t n = (uint64_t)l->data_start - 8;
    if (n > MAX_HEADER)
        status = ls_error_set(err, LS_ERR_OVERFLOW,
                              "%s: a header of %zu bytes, the format allows %d: fewer tensors or "
                              "shorter names",
                              path, len, MAX_HEADER);
    else if (!(l->header = malloc((size_t)l->data_start)))
        status = ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    else {
        for (int i = 0; i < 8; i++)
            l->header[i] = (char)(n >> (8 * i) & 0xff);
        memcpy(l->header + 8, text, len);
        memset(l->header + 8 + len, ' ', (size_t)n - len);
        l->total += l->data_start;
    }
    free(text);
    return status;
}

/* Takes the space before anything is written, so that a full disk is noticed at once. fallocate(2)
 * rather than posix_fallocate: where the file system has none, libc would write every block. */
static enum ls_status reserve(int fd, int64_t size, const char *path, struct ls_error *err)
{
    int rc;
    do
        rc = fallocate(fd, 0, 0, size);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS)
        return LS_OK;
    int bad = errno;
    char text[24];
    return ls_error_errno(err, bad, "reserving %s for %s", ls_format_bytes(size, text), path);
}

static enum ls_status write_all(struct layout *l, struct sink *s, struct ls_sum *file_sum,
                                struct ls_sum *tensor_sums, struct ls_error *err)
{
    LS_TRY(reserve(s->fd, l->total, s->path, err));
    XXH3_128bits_reset(s->file);
    LS_TRY(put(s, l->header, l->data_start, false, err));
    for (int i = 0; i < l->n; i++) {
        int k = l->order[i];
        XXH3_128bits_reset(s->tensor);
        LS_TRY(put(s, l->tensors[k].data, l->bytes[k], true, err));
        if (tensor_sums)
            ls_sum_set(&tensor_sums[k], XXH3_128bits_digest(s->tensor));
    }
    LS_TRY(flush(s, err));
    if (file_sum)
        ls_sum_set(file_sum, XXH3_128bits_digest(s->file));
    /* A failed fsync is final: the kernel may have dropped the pages, a second try would lie. */
    if (fsync(s->fd) != 0)
        return ls_error_errno(err, errno, "syncing %s", s->path);
    return LS_OK;
}

enum ls_status ls_st_write_sums(int fd, const char *path, const struct ls_st_tensor *tensors, int n,
                                const char *const *metadata, struct ls_sum *file_sum,
                                struct ls_sum *tensor_sums, int64_t *bytes, struct ls_error *err)
{
    if (n < 0 || n > LS_CKPT_MAX_TENSORS)
        return ls_error_set(err, LS_ERR_UNSUPPORTED, "%s: %d tensors, at most %d are written", path,
                            n, LS_CKPT_MAX_TENSORS);
    struct layout l = {.tensors = tensors, .n = n};
    struct sink s = {.fd = fd, .path = path};
    l.order = calloc((size_t)n + 1, sizeof *l.order);
    l.bytes = calloc((size_t)n + 1, sizeof *l.bytes);
    s.stage = malloc(STAGE);
    s.file = XXH3_createState();
    s.tensor = XXH3_createState();
    enum ls_status status = LS_OK;
    if (!l.order || !l.bytes || !s.stage || !s.file || !s.tensor)
        status = ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    if (status == LS_OK)
        status = measure(&l, path, err);
    if (status == LS_OK)
        status = make_header(&l, path, metadata, err);
    if (status == LS_OK)
        status = write_all(&l, &s, file_sum, tensor_sums, err);
    if (status == LS_OK && bytes)
        *bytes = l.total;
    XXH3_freeState(s.tensor);
    XXH3_freeState(s.file);
    free(s.stage);
    free(l.header);
    free(l.bytes);
    free(l.order);
    return status;
}

enum ls_status ls_st_write(int fd, const char *path, const struct ls_st_tensor *tensors, int n,
                           const char *const *metadata, struct ls_error *err)
{
    return ls_st_write_sums(fd, path, tensors, n, metadata, NULL, NULL, NULL, err);
}
