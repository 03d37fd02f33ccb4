/* Manifests: to text, from text, and from a directory. See manifest.h for the form. */
#include "ckpt/internal.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define MAX_SIZE  ((int64_t)64 << 20) /* about 250 bytes per tensor */
#define MAX_FILES 1024

/* The text ends with TAIL, 32 digits, END; everything before TAIL is hashed as it stands, so that
 * no rule about canonical JSON is needed. */
#define TAIL ",\n  \"xxh128\": \""
#define END  "\"\n}\n"

/* ---- to text
 * --------------------------------------------------------------------------------------------- */

static json_t *print_tensor(const struct ls_manifest_tensor *t)
{
    json_t *shape = json_array();
    for (int d = 0; d < t->ndim; d++)
        if (json_array_append_new(shape, json_integer(t->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:o, s:s}", "name", t->name, "dtype", ls_st_dtype_name(t->dtype),
                     "shape", shape, "xxh128", t->sum.hex);
}

static json_t *print_file(const struct ls_manifest_file *f)
{
    json_t *tensors = json_array();
    for (int i = 0; i < f->ntensors; i++)
        if (json_array_append_new(tensors, print_tensor(&f->tensors[i])) != 0) {
            json_decref(tensors);
            return NULL;
        }
    return json_pack("{s:s, s:I, s:s, s:o}", "name", f->name, "bytes", (json_int_t)f->bytes,
                     "xxh128", f->sum.hex, "tensors", tensors);
}

static json_t *print_root(const struct ls_manifest *m)
{
    json_t *files = json_array();
    for (int i = 0; i < m->nfiles; i++)
        if (json_array_append_new(files, print_file(&m->files[i])) != 0) {
            json_decref(files);
            return NULL;
        }
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, m->job_hash);
    /* JSON has no NaN */
    json_t *loss = isfinite(m->train_loss) ? json_real(m->train_loss) : json_null();
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:f, s:s, s:o}", "format",
                     LS_CKPT_FORMAT, "step", (json_int_t)m->step, "position",
                     (json_int_t)m->position, "updates", (json_int_t)m->updates, "seed",
                     (json_int_t)m->seed, "job_hash", hash, "seconds", m->seconds, "train_loss",
                     loss, "created", m->created, "lockstep", PACKAGE_VERSION, "files", files);
}

enum ls_status ls_manifest_print(const struct ls_manifest *m, char **text, size_t *size,
                                 struct ls_error *err)
{
    if (!isfinite(m->seconds) || !isfinite(m->created))
        return ls_error_set(err, LS_ERR_INTERNAL, "a time in the manifest is not finite");
    json_t *root = print_root(m);
    char *body = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!body)
        return ls_error_set(err, LS_ERR_NOMEM, "writing a manifest: out of memory");
    struct ls_buf buf;
    ls_buf_init(&buf, (size_t)MAX_SIZE);
    ls_buf_add(&buf, body, strlen(body) - strlen("\n}"));
    free(body);
    struct ls_sum sum;
    ls_sum_set(&sum, XXH3_128bits(buf.data, buf.len));
    ls_buf_printf(&buf, TAIL "%s" END, sum.hex);
    if (buf.failed) {
        ls_buf_free(&buf);
        return ls_error_set(err, LS_ERR_OVERFLOW,
                            "the manifest is too large (out of memory, or more than %lld bytes)",
                            (long long)MAX_SIZE);
    }
    *text = buf.data;
    *size = buf.len;
    return LS_OK;
}

/* ---- from text
 * ------------------------------------------------------------------------------------------- */

/* What is being parsed; every getter returns false after recording an error. */
struct parser {
    const char *name;
    struct ls_arena *arena;
    struct ls_error *err;
    enum ls_status status;
};

static bool fail(struct parser *p, enum ls_status status, const char *text, const char *key)
{
    struct ls_quoted q = ls_ckpt_quote(key);
    p->status = ls_error_set(p->err, status, "%s: %s '%s'", p->name, text, q.text);
    return false;
}

static bool get_count(struct parser *p, json_t *o, const char *key, int64_t *out)
{
    json_t *j = json_object_get(o, key);
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return fail(p, LS_ERR_FORMAT, "expected a whole number as", key);
    *out = json_integer_value(j);
    return true;
}

static bool get_number(struct parser *p, json_t *o, const char *key, double *out)
{
    json_t *j = json_object_get(o, key);
    if (!json_is_number(j))
        return fail(p, LS_ERR_FORMAT, "expected a number as", key);
    *out = json_number_value(j);
    return true;
}

static bool get_string(struct parser *p, json_t *o, const char *key, const char **out)
{
    json_t *j = json_object_get(o, key);
    if (!json_is_string(j) || json_string_length(j) > LS_CKPT_MAX_NAME)
        return fail(p, LS_ERR_FORMAT, "expected a short string as", key);
    *out = ls_arena_strdup(p->arena, json_string_value(j));
    return *out ? true : fail(p, LS_ERR_NOMEM, "out of memory at", key);
}

static bool get_sum(struct parser *p, json_t *o, struct ls_sum *out)
{
    const char *s = json_string_value(json_object_get(o, "xxh128"));
    return s && ls_sum_parse(s, out)
               ? true
               : fail(p, LS_ERR_FORMAT, "expected 32 hexadecimal digits as", "xxh128");
}

/* Files are opened by these names: nothing but plain names, and none of ours. */
static bool plain_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= 255 && s[0] != '.' && strcmp(s, LS_CKPT_MANIFEST) != 0 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool parse_tensor(struct parser *p, json_t *o, struct ls_manifest_tensor *t)
{
    const char *dtype;
    if (!get_string(p, o, "name", &t->name) || !get_string(p, o, "dtype", &dtype))
        return false;
    if (!ls_st_dtype_parse(dtype, &t->dtype))
        return fail(p, LS_ERR_UNSUPPORTED, "not a dtype of Lockstep:", dtype);
    json_t *shape = json_object_get(o, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > 8)
        return fail(p, LS_ERR_FORMAT, "expected at most 8 dimensions in the shape of", t->name);
    t->ndim = (int)json_array_size(shape);
    for (int d = 0; d < t->ndim; d++) {
        json_t *extent = json_array_get(shape, (size_t)d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return fail(p, LS_ERR_FORMAT, "expected whole numbers in the shape of", t->name);
        t->shape[d] = json_integer_value(extent);
    }
    return get_sum(p, o, &t->sum);
}

static int by_name(const void *a, const void *b)
{
    const struct ls_manifest_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool parse_file(struct parser *p, json_t *o, struct ls_manifest_file *f)
{
    if (!get_string(p, o, "name", &f->name))
        return false;
    if (!plain_name(f->name))
        return fail(p, LS_ERR_FORMAT, "not a plain file name:", f->name);
    if (!get_count(p, o, "bytes", &f->bytes) || !get_sum(p, o, &f->sum))
        return false;
    json_t *tensors = json_object_get(o, "tensors");
    size_t n = json_array_size(tensors);
    if (!json_is_array(tensors) || n > LS_CKPT_MAX_TENSORS)
        return fail(p, LS_ERR_FORMAT, "expected an array of not too many tensors in", f->name);
    f->tensors = ls_arena_alloc(p->arena, (n ? n : 1) * sizeof *f->tensors);
    if (!f->tensors)
        return fail(p, LS_ERR_NOMEM, "out of memory at", f->name);
    f->ntensors = (int)n;
    for (size_t i = 0; i < n; i++)
        if (!parse_tensor(p, json_array_get(tensors, i), &f->tensors[i]))
            return false;
    if (n)
        qsort(f->tensors, n, sizeof *f->tensors, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(f->tensors[i - 1].name, f->tensors[i].name) == 0)
            return fail(p, LS_ERR_FORMAT, "the same tensor twice:", f->tensors[i].name);
    return true;
}

static bool parse_files(struct parser *p, json_t *files, struct ls_manifest *m)
{
    size_t n = json_array_size(files);
    if (!json_is_array(files) || n > MAX_FILES)
        return fail(p, LS_ERR_FORMAT, "expected an array of not too many", "files");
    m->files = ls_arena_alloc(p->arena, (n ? n : 1) * sizeof *m->files);
    if (!m->files)
        return fail(p, LS_ERR_NOMEM, "out of memory at", "files");
    m->nfiles = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (!parse_file(p, json_array_get(files, i), &m->files[i]))
            return false;
        for (size_t k = 0; k < i; k++)
            if (strcmp(m->files[k].name, m->files[i].name) == 0)
                return fail(p, LS_ERR_FORMAT, "the same file twice:", m->files[i].name);
    }
    return true;
}

static bool parse_root(struct parser *p, json_t *root, struct ls_manifest *m)
{
    int64_t format;
    if (!get_count(p, root, "format", &format))
        return false;
    if (format != LS_CKPT_FORMAT) {
        p->status = ls_error_set(p->err, LS_ERR_UNSUPPORTED,
                                 "%s: format %lld, this version of Lockstep reads format %d: a "
                                 "newer version wrote it",
                                 p->name, (long long)format, LS_CKPT_FORMAT);
        return false;
    }
    json_t *seed = json_object_get(root, "seed");
    const char *hash;
    if (!get_count(p, root, "step", &m->step) || !get_count(p, root, "position", &m->position) ||
        !get_count(p, root, "updates", &m->updates) || !get_string(p, root, "job_hash", &hash) ||
        !get_number(p, root, "seconds", &m->seconds) ||
        !get_number(p, root, "created", &m->created) ||
        !get_string(p, root, "lockstep", &m->lockstep))
        return false;
    if (!json_is_integer(seed))
        return fail(p, LS_ERR_FORMAT, "expected a whole number as", "seed");
    m->seed = json_integer_value(seed);
    if (strlen(hash) != 16 || strspn(hash, "0123456789abcdef") != 16)
        return fail(p, LS_ERR_FORMAT, "expected 16 hexadecimal digits as", "job_hash");
    m->job_hash = strtoull(hash, NULL, 16);
    if (json_is_null(json_object_get(root, "train_loss")))
        m->train_loss = NAN;
    else if (!get_number(p, root, "train_loss", &m->train_loss))
        return false;
    return parse_files(p, json_object_get(root, "files"), m);
}

/* The last line against everything before it, first: accidents end here, before the parser. */
static enum ls_status check_sum(const char *name, const char *text, size_t size,
                                struct ls_error *err)
{
    const size_t tail = strlen(TAIL), end = strlen(END), last = tail + 32 + end;
    if (size <= last || memcmp(text + size - last, TAIL, tail) != 0 ||
        memcmp(text + size - end, END, end) != 0)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: its last line is not \"xxh128\": \"...\": truncated, or not a "
                            "manifest of Lockstep",
                            name);
    struct ls_sum sum;
    char said[33] = "";
    memcpy(said, text + size - end - 32, 32);
    ls_sum_set(&sum, XXH3_128bits(text, size - last));
    if (memcmp(sum.hex, said, 32) == 0)
        return LS_OK;
    struct ls_quoted q = ls_ckpt_quote(said);
    return ls_error_set(err, LS_ERR_FORMAT,
                        "%s: its text has the sum %s, its last line says %s: it was changed or "
                        "damaged",
                        name, sum.hex, q.text);
}

enum ls_status ls_manifest_parse(const char *name, const char *text, size_t size,
                                 struct ls_manifest *manifest, struct ls_error *err)
{
    json_t *root = NULL;
    LS_TRY(check_sum(name, text, size, err));
    LS_TRY(ls_ckpt_json(name, text, size, 6, true, &root, err));
    struct ls_manifest m = {0};
    struct parser p = {.name = name, .arena = &m.arena, .err = err};
    bool ok = parse_root(&p, root, &m);
    json_decref(root);
    if (ok)
        *manifest = m;
    else
        ls_manifest_free(&m);
    return ok ? LS_OK : p.status;
}

enum ls_status ls_manifest_read(int dirfd, const char *path, struct ls_manifest *manifest,
                                struct ls_error *err)
{
    int fd;
    int64_t size;
    LS_TRY(ls_ckpt_open_at(dirfd, path, LS_CKPT_MANIFEST, &fd, &size, err));
    struct ls_arena arena = {0};
    char *text = NULL, *name = ls_arena_printf(&arena, "%s/" LS_CKPT_MANIFEST, path);
    enum ls_status status = LS_OK;
    if (size > MAX_SIZE)
        status = ls_error_set(err, LS_ERR_FORMAT,
                              "%s/" LS_CKPT_MANIFEST ": %lld bytes, at most %lld are accepted",
                              path, (long long)size, (long long)MAX_SIZE);
    else if (!name || !(text = malloc((size_t)size + 1)))
        status = ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    if (status == LS_OK)
        status = ls_ckpt_pread(fd, text, (size_t)size, 0, name, err);
    if (status == LS_OK) {
        text[size] = '\0';
        status = ls_manifest_parse(name, text, (size_t)size, manifest, err);
    }
    free(text);
    ls_arena_free(&arena);
    close(fd);
    return status;
}

void ls_manifest_free(struct ls_manifest *manifest)
{
    ls_arena_free(&manifest->arena);
    *manifest = (struct ls_manifest){0};
}
