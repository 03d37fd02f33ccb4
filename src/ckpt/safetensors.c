/* The safetensors reader: parses a header and checks it against the size of the file. Reads no
 * tensor data, allocates nothing that the bytes at hand do not justify.
 *
 *   u64 LE N | N bytes of JSON, maybe padded with white space | data, without a hole
 *
 * The rules are those of the format's reference implementation, with what it leaves to parsers
 * (duplicate keys, unknown members) refused. Leading white space is taken, as there. */
#include "ckpt/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_HEADER 100000000 /* the format's own bound */
#define MAX_DIMS   8

static const char *const dtype_names[LS_DTYPES] = {
    [LS_F32] = "F32", [LS_F64] = "F64", [LS_I32] = "I32", [LS_U8] = "U8"};

/* Legal in the format, but nothing in Lockstep computes with them yet. */
static const char *const other_dtypes[] = {
    "BOOL",    "F4",      "F6_E2M3",     "F6_E3M2",     "I8",  "F8_E5M2",
    "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16",
    "F16",     "BF16",    "U32",         "C64",         "I64", "U64",
};

const char *ls_st_dtype_name(enum ls_dtype dtype)
{
    return (unsigned)dtype < LS_DTYPES ? dtype_names[dtype] : "?";
}

bool ls_st_dtype_parse(const char *name, enum ls_dtype *dtype)
{
    for (int t = 0; t < LS_DTYPES; t++)
        if (strcmp(name, dtype_names[t]) == 0) {
            *dtype = (enum ls_dtype)t;
            return true;
        }
    return false;
}

static enum ls_status parse_dtype(const char *file, const char *tensor, const json_t *j,
                                  enum ls_dtype *dtype, struct ls_error *err)
{
    const char *s = json_string_value(j);
    if (!s)
        return ls_error_set(err, LS_ERR_FORMAT, "%s: tensor '%s': dtype is missing or no string",
                            file, tensor);
    if (ls_st_dtype_parse(s, dtype))
        return LS_OK;
    for (size_t i = 0; i < sizeof other_dtypes / sizeof *other_dtypes; i++)
        if (strcmp(s, other_dtypes[i]) == 0)
            return ls_error_set(
                err, LS_ERR_UNSUPPORTED,
                "%s: tensor '%s' is %s; Lockstep reads F32, F64, I32 and U8: convert the file",
                file, tensor, s);
    struct ls_quoted q = ls_ckpt_quote(s);
    return ls_error_set(err, LS_ERR_FORMAT, "%s: tensor '%s': unknown dtype '%s'", file, tensor,
                        q.text);
}

/* Shape and offsets of one tensor, each checked alone; offsets are relative to the data. */
static enum ls_status parse_entry(const char *file, const char *key, json_t *entry,
                                  struct ls_st_tensor *t, struct ls_error *err)
{
    struct ls_quoted q = ls_ckpt_quote(key);
    if (!json_is_object(entry))
        return ls_error_set(err, LS_ERR_FORMAT, "%s: tensor '%s': expected an object", file,
                            q.text);
    const char *member;
    json_t *value;
    json_object_foreach(entry, member, value)
    {
        if (strcmp(member, "dtype") != 0 && strcmp(member, "shape") != 0 &&
            strcmp(member, "data_offsets") != 0) {
            struct ls_quoted m = ls_ckpt_quote(member);
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: tensor '%s': unknown member '%s'; there are dtype, shape and "
                                "data_offsets",
                                file, q.text, m.text);
        }
    }
    LS_TRY(parse_dtype(file, q.text, json_object_get(entry, "dtype"), &t->dtype, err));

    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return ls_error_set(err, LS_ERR_FORMAT, "%s: tensor '%s': shape is missing or no array",
                            file, q.text);
    if (json_array_size(shape) > MAX_DIMS)
        return ls_error_set(err, LS_ERR_UNSUPPORTED,
                            "%s: tensor '%s' has %zu dimensions, Lockstep reads at most %d", file,
                            q.text, json_array_size(shape), MAX_DIMS);
    t->ndim = (int)json_array_size(shape);
    for (int d = 0; d < t->ndim; d++) {
        const json_t *extent = json_array_get(shape, (size_t)d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: tensor '%s': dimension %d of its shape is no whole number",
                                file, q.text, d);
        t->shape[d] = json_integer_value(extent);
    }

    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < 0)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: tensor '%s': data_offsets must be two whole numbers", file,
                            q.text);
    t->begin = json_integer_value(begin);
    t->end = json_integer_value(end);
    if (t->end < t->begin)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: tensor '%s': invalid offsets, it ends at %lld before it begins at "
                            "%lld",
                            file, q.text, (long long)t->end, (long long)t->begin);
    int64_t numel, bytes;
    char text[192];
    if (!ls_shape_numel(t->shape, t->ndim, &numel) ||
        !ls_mul_i64(numel, ls_dtype_size(t->dtype), &bytes))
        return ls_error_set(err, LS_ERR_OVERFLOW, "%s: tensor '%s': shape %s of %s overflows", file,
                            q.text, ls_ckpt_shape(t->shape, t->ndim, text), dtype_names[t->dtype]);
    if (bytes != t->end - t->begin)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: tensor '%s': %s of shape %s takes %lld bytes, but its offsets "
                            "[%lld, %lld) hold %lld",
                            file, q.text, dtype_names[t->dtype],
                            ls_ckpt_shape(t->shape, t->ndim, text), (long long)bytes,
                            (long long)t->begin, (long long)t->end, (long long)(t->end - t->begin));
    return LS_OK;
}

static enum ls_status check_metadata(const char *file, json_t *metadata, struct ls_error *err)
{
    if (!json_is_object(metadata))
        return ls_error_set(err, LS_ERR_FORMAT, "%s: __metadata__ must be an object", file);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            struct ls_quoted q = ls_ckpt_quote(key);
            return ls_error_set(err, LS_ERR_FORMAT, "%s: __metadata__ '%s' must be a string", file,
                                q.text);
        }
    }
    return LS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct ls_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) /* empty tensors first */
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Tensors tile the data: no hole, no overlap, nothing behind the last. */
static enum ls_status check_tiling(const char *name, struct ls_st_file *file, struct ls_error *err)
{
    if (file->ntensors)
        qsort(file->tensors, (size_t)file->ntensors, sizeof *file->tensors, by_offset);
    int64_t at = 0, room = file->size - file->data_start;
    for (int i = 0; i < file->ntensors; i++) {
        struct ls_st_tensor *t = &file->tensors[i];
        struct ls_quoted q = ls_ckpt_quote(t->name);
        if (t->begin != at)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: tensor '%s' begins at %lld, but the one before it ends at "
                                "%lld: %s",
                                name, q.text, (long long)t->begin, (long long)at,
                                t->begin > at ? "a hole" : "an overlap");
        at = t->end;
        if (at > room)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: truncated: tensor '%s' ends at %lld, but only %lld bytes of "
                                "data are there",
                                name, q.text, (long long)at, (long long)room);
        t->begin += file->data_start;
        t->end += file->data_start;
    }
    if (at != room)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: %lld bytes behind the last tensor, expected none", name,
                            (long long)(room - at));
    return LS_OK;
}

static enum ls_status parse_root(const char *name, json_t *root, struct ls_st_file *file,
                                 struct ls_error *err)
{
    size_t n = json_object_size(root);
    if (n > LS_CKPT_MAX_TENSORS)
        return ls_error_set(err, LS_ERR_FORMAT, "%s: %zu tensors, at most %d are accepted", name, n,
                            LS_CKPT_MAX_TENSORS);
    file->tensors = ls_arena_alloc(&file->arena, (n ? n : 1) * sizeof *file->tensors);
    if (!file->tensors)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", name);
    const char *key;
    json_t *entry;
    json_object_foreach(root, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0) {
            LS_TRY(check_metadata(name, entry, err));
            continue;
        }
        if (strlen(key) > LS_CKPT_MAX_NAME)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: a tensor name of %zu bytes, at most %d are accepted", name,
                                strlen(key), LS_CKPT_MAX_NAME);
        struct ls_st_tensor *t = &file->tensors[file->ntensors];
        LS_TRY(parse_entry(name, key, entry, t, err));
        t->name = ls_arena_strdup(&file->arena, key);
        if (!t->name)
            return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", name);
        file->ntensors++;
    }
    return check_tiling(name, file, err);
}

static uint64_t header_length(const uint8_t bytes[static 8])
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | bytes[i];
    return n;
}

enum ls_status ls_st_parse(const char *name, const uint8_t *bytes, size_t size, int64_t file_size,
                           struct ls_st_file *file, struct ls_error *err)
{
    if (file_size < 8 || size < 8)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: header too small: %lld bytes, a safetensors file has at least 8",
                            name, (long long)file_size);
    uint64_t n = header_length(bytes);
    if (n > MAX_HEADER)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: header too large: its length field says %llu bytes, at most %d "
                            "are legal",
                            name, (unsigned long long)n, MAX_HEADER);
    if ((int64_t)n > file_size - 8)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: bad header length: %llu bytes, but the file has only %lld more",
                            name, (unsigned long long)n, (long long)(file_size - 8));
    if (n > size - 8)
        return ls_error_set(err, LS_ERR_INTERNAL, "%s: only %zu bytes of the header were read",
                            name, size);

    struct ls_st_file out = {.data_start = 8 + (int64_t)n, .size = file_size};
    json_t *root = NULL;
    enum ls_status status =
        ls_ckpt_json(name, (const char *)bytes + 8, (size_t)n, 3, false, &root, err);
    if (status == LS_OK)
        status = parse_root(name, root, &out, err);
    json_decref(root);
    if (status != LS_OK)
        ls_st_free(&out);
    else
        *file = out;
    return status;
}

enum ls_status ls_st_read_header(int fd, const char *path, struct ls_st_file *file,
                                 struct ls_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ls_error_errno(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return ls_error_set(err, LS_ERR_FORMAT, "%s: not a regular file", path);
    uint8_t first[8] = {0};
    size_t size = st.st_size < 8 ? (size_t)st.st_size : 8;
    LS_TRY(ls_ckpt_pread(fd, first, size, 0, path, err));
    uint64_t n = header_length(first);
    if (size < 8 || n > MAX_HEADER || (int64_t)n > st.st_size - 8)
        return ls_st_parse(path, first, size, st.st_size, file, err); /* says what is wrong */
    uint8_t *bytes = malloc(8 + (size_t)n);
    if (!bytes)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    enum ls_status status = ls_ckpt_pread(fd, bytes, 8 + (size_t)n, 0, path, err);
    if (status == LS_OK)
        status = ls_st_parse(path, bytes, 8 + (size_t)n, st.st_size, file, err);
    free(bytes);
    return status;
}

void ls_st_free(struct ls_st_file *file)
{
    ls_arena_free(&file->arena);
    *file = (struct ls_st_file){0};
}
