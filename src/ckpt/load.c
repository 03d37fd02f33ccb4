/* Finding the newest checkpoint that verifies, and loading one. */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- find
 * ------------------------------------------------------------------------------------------------ */

static enum ls_status verify_entry(int dirfd, const char *dir, const char *name, char **path,
                                   struct ls_error *err)
{
    char *full = malloc(strlen(dir) + strlen(name) + 2);
    if (!full)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", dir);
    sprintf(full, "%s/%s", dir, name);
    int fd;
    struct ls_manifest m;
    enum ls_status status = ls_ckpt_enter(dirfd, name, full, &fd, err);
    if (status == LS_OK) {
        status = ls_ckpt_full(fd, full, &m, err);
        close(fd);
    }
    if (status == LS_OK) {
        ls_manifest_free(&m);
        *path = full;
    } else {
        free(full);
    }
    return status;
}

static enum ls_status find_in(int dirfd, const char *dir, char **path, ls_ckpt_warn_fn *warn,
                              void *arg, struct ls_error *err)
{
    struct ls_ckpt_entry *e = NULL;
    int n = 0, bad = 0;
    LS_TRY(ls_ckpt_scan(dirfd, dir, &e, &n, err));
    enum ls_status status = LS_OK;
    struct ls_error first = {0};
    char *found = NULL;
    for (int i = 0; i < n && !found && status == LS_OK; i++) {
        if (e[i].kind == LS_CKPT_TEMP)
            continue;
        struct ls_error why = {0};
        enum ls_status s = verify_entry(dirfd, dir, e[i].name, &found, &why);
        if (s == LS_ERR_NOMEM)
            status = ls_error_set(err, s, "%s", why.message);
        else if (s != LS_OK) {
            if (!bad++)
                first = why;
            ls_error_context(&why, "passing over a checkpoint that does not verify");
            if (warn)
                warn(arg, why.message);
        }
    }
    free(e);
    if (status == LS_OK && !found && bad)
        status =
            ls_error_set(err, LS_ERR_FORMAT,
                         "%s: %d checkpoint%s and none verifies; the newest: %s. To start from "
                         "zero, choose another directory",
                         dir, bad, bad == 1 ? "" : "s", first.message);
    *path = found;
    return status;
}

enum ls_status ls_ckpt_find(const char *dir, char **path, ls_ckpt_warn_fn *warn, void *arg,
                            struct ls_error *err)
{
    *path = NULL;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return LS_OK;
    if (fd < 0)
        return ls_error_errno(err, errno, "opening checkpoint directory %s", dir);
    enum ls_status status = find_in(fd, dir, path, warn, arg, err);
    close(fd);
    return status;
}

/* ---- load
 * ------------------------------------------------------------------------------------------------ */

/* Collects what differs: the first few in words, the rest as a number. */
#define MAX_LISTED 4
struct differences {
    struct ls_buf text;
    int count;
};

static void differ(struct differences *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void differ(struct differences *d, const char *fmt, ...)
{
    if (d->count++ >= MAX_LISTED)
        return;
    va_list ap;
    va_start(ap, fmt);
    ls_buf_printf(&d->text, d->count == 1 ? "" : "; ");
    ls_buf_vprintf(&d->text, fmt, ap);
    va_end(ap);
}

struct wanted {
    const struct ls_st_tensor *tensor;
    bool seen;
};

static int by_wanted_name(const void *a, const void *b)
{
    return strcmp(((const struct wanted *)a)->tensor->name,
                  ((const struct wanted *)b)->tensor->name);
}

static int find_wanted(const void *key, const void *element)
{
    return strcmp(key, ((const struct wanted *)element)->tensor->name);
}

static void compare(const char *name, const struct ls_manifest_file *f, struct wanted *w, int n,
                    struct differences *d)
{
    char here[192], there[192];
    for (int i = 0; f && i < f->ntensors; i++) {
        const struct ls_manifest_tensor *t = &f->tensors[i];
        struct ls_quoted q = ls_ckpt_quote(t->name);
        struct wanted *x = n ? bsearch(t->name, w, (size_t)n, sizeof *w, find_wanted) : NULL;
        if (!x) {
            differ(d, "%s has tensor '%s', which the job has not", name, q.text);
            continue;
        }
        x->seen = true;
        if (x->tensor->dtype != t->dtype || x->tensor->ndim != t->ndim ||
            memcmp(x->tensor->shape, t->shape, (size_t)t->ndim * sizeof *t->shape) != 0)
            differ(d, "tensor '%s' is %s %s in %s, the job wants %s %s", q.text,
                   ls_st_dtype_name(t->dtype), ls_ckpt_shape(t->shape, t->ndim, there), name,
                   ls_st_dtype_name(x->tensor->dtype),
                   ls_ckpt_shape(x->tensor->shape, x->tensor->ndim, here));
    }
    for (int i = 0; i < n; i++)
        if (!w[i].seen) {
            struct ls_quoted q = ls_ckpt_quote(w[i].tensor->name);
            differ(d, "%s lacks tensor '%s'", name, q.text);
        }
}

static const struct ls_manifest_file *file_of(const struct ls_manifest *m, const char *name)
{
    for (int i = 0; i < m->nfiles; i++)
        if (strcmp(m->files[i].name, name) == 0)
            return &m->files[i];
    return NULL;
}

/* The wanted tensors, sorted by name; malloc'd. */
static struct wanted *sort_wanted(const struct ls_st_tensor *tensors, int n)
{
    struct wanted *w = calloc((size_t)n + 1, sizeof *w);
    for (int i = 0; w && i < n; i++)
        w[i].tensor = &tensors[i];
    if (w && n)
        qsort(w, (size_t)n, sizeof *w, by_wanted_name);
    return w;
}

static bool compare_part(const struct ls_manifest *m, const char *name,
                         const struct ls_st_tensor *tensors, int n, struct differences *d)
{
    struct wanted *w = sort_wanted(tensors, n);
    if (!w)
        return false;
    compare(name, file_of(m, name), w, n, d);
    free(w);
    return true;
}

static enum ls_status check_wanted(const char *path, const struct ls_manifest *m,
                                   const struct ls_ckpt_state *state, struct ls_error *err)
{
    struct differences d = {0};
    ls_buf_init(&d.text, 4096);
    enum ls_status status = LS_OK;
    if (!compare_part(m, LS_CKPT_MODEL, state->model, state->nmodel, &d) ||
        !compare_part(m, LS_CKPT_OPTIMIZER, state->optimizer, state->noptimizer, &d))
        status = ls_error_set(err, LS_ERR_NOMEM, "loading %s: out of memory", path);
    else if (d.count) {
        char more[32] = "";
        if (d.count > MAX_LISTED)
            snprintf(more, sizeof more, "; and %d more", d.count - MAX_LISTED);
        status = ls_error_set(err, LS_ERR_FORMAT, "%s does not fit this job: %s%s", path,
                              d.text.data ? d.text.data : "", more);
    }
    ls_buf_free(&d.text);
    return status;
}

static int find_in_manifest(const void *key, const void *element)
{
    return strcmp(key, ((const struct ls_manifest_tensor *)element)->name);
}

/* One tensor into the buffer of that name. Its sum is checked again: the file may have changed
 * since it was verified. */
static enum ls_status read_tensor(int fd, const char *path, const struct ls_st_tensor *in,
                                  const struct ls_manifest_file *f, const struct wanted *w, int n,
                                  struct ls_error *err)
{
    const struct wanted *x = n ? bsearch(in->name, w, (size_t)n, sizeof *w, find_wanted) : NULL;
    const struct ls_manifest_tensor *t =
        bsearch(in->name, f->tensors, (size_t)f->ntensors, sizeof *f->tensors, find_in_manifest);
    size_t bytes = (size_t)(in->end - in->begin);
    struct ls_sum sum = {""};
    if (x && t && in->dtype == x->tensor->dtype && in->ndim == x->tensor->ndim &&
        memcmp(in->shape, x->tensor->shape, (size_t)in->ndim * sizeof *in->shape) == 0) {
        LS_TRY(ls_ckpt_pread(fd, x->tensor->data, bytes, in->begin, path, err));
        ls_sum_set(&sum, XXH3_128bits(x->tensor->data, bytes));
        if (strcmp(sum.hex, t->sum.hex) == 0)
            return LS_OK;
    }
    struct ls_quoted q = ls_ckpt_quote(in->name);
    return ls_error_set(err, LS_ERR_FORMAT, "%s: tensor '%s' changed while the file was read", path,
                        q.text);
}

static enum ls_status read_part(int dirfd, const char *path, const struct ls_manifest *m,
                                const char *name, const struct ls_st_tensor *tensors, int n,
                                struct ls_error *err)
{
    const struct ls_manifest_file *f = file_of(m, name);
    if (!f)
        return LS_OK; /* nothing was wanted, or check_wanted would have said so */
    struct ls_st_file st = {0};
    int fd;
    int64_t size;
    LS_TRY(ls_ckpt_open_at(dirfd, path, name, &fd, &size, err));
    struct wanted *w = sort_wanted(tensors, n);
    enum ls_status status = w ? ls_st_read_header(fd, name, &st, err)
                              : ls_error_set(err, LS_ERR_NOMEM, "loading %s: out of memory", path);
    if (status == LS_OK && st.ntensors != n)
        status = ls_error_set(err, LS_ERR_FORMAT, "%s/%s: changed while it was read", path, name);
    for (int i = 0; i < st.ntensors && status == LS_OK; i++)
        status = read_tensor(fd, name, &st.tensors[i], f, w, n, err);
    ls_st_free(&st);
    free(w);
    close(fd);
    return status;
}

static enum ls_status load_from(int dirfd, const char *path, struct ls_ckpt_state *state,
                                struct ls_error *err)
{
    struct ls_manifest m;
    LS_TRY(ls_ckpt_full(dirfd, path, &m, err));
    enum ls_status status = check_wanted(path, &m, state, err);
    if (status == LS_OK)
        status = read_part(dirfd, path, &m, LS_CKPT_MODEL, state->model, state->nmodel, err);
    if (status == LS_OK)
        status =
            read_part(dirfd, path, &m, LS_CKPT_OPTIMIZER, state->optimizer, state->noptimizer, err);
    if (status == LS_OK) {
        state->step = m.step;
        state->position = m.position;
        state->updates = m.updates;
        state->seed = m.seed;
        state->job_hash = m.job_hash;
        state->seconds = m.seconds;
        state->train_loss = m.train_loss;
    }
    ls_manifest_free(&m);
    return status;
}

enum ls_status ls_ckpt_load(const char *path, struct ls_ckpt_state *state, struct ls_error *err)
{
    int fd;
    LS_TRY(ls_ckpt_enter(AT_FDCWD, path, path, &fd, err));
    enum ls_status status = load_from(fd, path, state, err);
    close(fd);
    return status;
}
