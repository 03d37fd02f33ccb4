/* Saving a checkpoint. What is there stays there until the new one is durable:
 *
 *   step-N.tmp-<nonce>/   files, each synced; manifest, synced; the directory, synced
 *   rename to step-N      an existing step-N changes places with it
 *   sync the parent       from here on the save has succeeded
 *   latest, retention     rename to .tmp first, so that no half of a checkpoint ever looks whole
 */
#include "ckpt/dir.h"
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_STEP INT64_C(999999999999999999) /* 18 digits: what a name is read back from */

/* ---- the temporary directory
 * ----------------------------------------------------------------------------- */

static void describe(struct ls_manifest_file *f, const struct ls_st_tensor *tensors, int n,
                     const struct ls_sum *sums)
{
    f->ntensors = n;
    for (int i = 0; i < n; i++) {
        struct ls_manifest_tensor *t = &f->tensors[i];
        t->name = tensors[i].name;
        t->dtype = tensors[i].dtype;
        t->ndim = tensors[i].ndim;
        memcpy(t->shape, tensors[i].shape, sizeof t->shape);
        t->sum = sums[i];
    }
}

static enum ls_status write_tensors(int dirfd, const char *path, const char *name,
                                    const struct ls_ckpt_state *state,
                                    const struct ls_st_tensor *tensors, int n,
                                    struct ls_manifest *m, struct ls_error *err)
{
    struct ls_manifest_file *f = &m->files[m->nfiles++];
    size_t count = n > 0 ? (size_t)n : 1;
    struct ls_sum *sums = ls_arena_alloc(&m->arena, count * sizeof *sums);
    f->tensors = ls_arena_alloc(&m->arena, count * sizeof *f->tensors);
    char *full = ls_arena_printf(&m->arena, "%s/%s", path, name);
    char *step = ls_arena_printf(&m->arena, "%lld", (long long)state->step);
    if (!sums || !f->tensors || !full || !step)
        return ls_error_set(err, LS_ERR_NOMEM, "%s/%s: out of memory", path, name);
    f->name = name;
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return ls_error_errno(err, errno, "creating %s", full);
    const char *const metadata[] = {"format", "lockstep", "step", step, NULL};
    enum ls_status status =
        ls_st_write_sums(fd, full, tensors, n, metadata, &f->sum, sums, &f->bytes, err);
    if (close(fd) != 0 && status == LS_OK)
        status = ls_error_errno(err, errno, "closing %s", full);
    if (status == LS_OK)
        describe(f, tensors, n, sums);
    return status;
}

static enum ls_status write_files(int dirfd, const char *path, const struct ls_ckpt_state *state,
                                  struct ls_manifest *m, struct ls_error *err)
{
    LS_TRY(write_tensors(dirfd, path, LS_CKPT_MODEL, state, state->model, state->nmodel, m, err));
    LS_TRY(write_tensors(dirfd, path, LS_CKPT_OPTIMIZER, state, state->optimizer, state->noptimizer,
                         m, err));
    char *text = NULL;
    size_t size = 0;
    LS_TRY(ls_manifest_print(m, &text, &size, err));
    enum ls_status status = ls_ckpt_write_at(dirfd, path, LS_CKPT_MANIFEST, text, size, err);
    free(text);
    if (status == LS_OK)
        status = ls_ckpt_sync_dir(dirfd, path, err);
    return status;
}

static enum ls_status write_temp(struct ls_ckpt_dir *c, const struct ls_ckpt_state *state,
                                 const char *temp, struct ls_error *err)
{
    if (mkdirat(c->fd, temp, 0777) != 0)
        return ls_error_errno(err, errno, "creating directory %s/%s", c->path, temp);
    int dirfd = openat(c->fd, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dirfd < 0)
        return ls_error_errno(err, errno, "opening directory %s/%s", c->path, temp);
    struct ls_manifest_file files[2] = {0};
    struct ls_manifest m = {.step = state->step,
                            .position = state->position,
                            .updates = state->updates,
                            .seed = state->seed,
                            .job_hash = state->job_hash,
                            .seconds = state->seconds,
                            .train_loss = state->train_loss,
                            .created = ls_time_wall(),
                            .files = files};
    char *path = ls_arena_printf(&m.arena, "%s/%s", c->path, temp);
    enum ls_status status = path ? write_files(dirfd, path, state, &m, err)
                                 : ls_error_set(err, LS_ERR_NOMEM, "out of memory");
    ls_manifest_free(&m);
    if (close(dirfd) != 0 && status == LS_OK)
        status = ls_error_errno(err, errno, "closing directory %s/%s", c->path, temp);
    return status;
}

/* ---- commit
 * ---------------------------------------------------------------------------------------------- */

/* How the new directory got its name, so that it can be undone. */
enum how { PLAIN, EXCHANGED, SET_ASIDE };
struct commit {
    const char *temp, *name;
    char old[LS_CKPT_NAME_SIZE]; /* SET_ASIDE: where the previous version is */
    enum how how;
};

/* 0 or an errno. */
static int take_name(struct ls_ckpt_dir *c, struct commit *k)
{
    if (renameat(c->fd, k->temp, c->fd, k->name) == 0) {
        k->how = PLAIN;
        return 0;
    }
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return errno;
    if (renameat2(c->fd, k->temp, c->fd, k->name, RENAME_EXCHANGE) == 0) {
        k->how = EXCHANGED;
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return errno;
    /* NFS cannot exchange. Between the two renames a reader finds the old version by its .old name,
     * and the next writer would put it back. */
    ls_ckpt_aside_name(k->name, "old", k->old);
    if (renameat(c->fd, k->name, c->fd, k->old) != 0)
        return errno;
    if (renameat(c->fd, k->temp, c->fd, k->name) != 0) {
        int bad = errno;
        renameat(c->fd, k->old, c->fd, k->name);
        return bad;
    }
    k->how = SET_ASIDE;
    return 0;
}

static void undo(struct ls_ckpt_dir *c, const struct commit *k)
{
    if (k->how == EXCHANGED) {
        renameat2(c->fd, k->temp, c->fd, k->name, RENAME_EXCHANGE);
        return;
    }
    renameat(c->fd, k->name, c->fd, k->temp);
    if (k->how == SET_ASIDE)
        renameat(c->fd, k->old, c->fd, k->name);
}

static enum ls_status commit(struct ls_ckpt_dir *c, struct commit *k, struct ls_error *err)
{
    int bad = take_name(c, k);
    if (bad)
        return ls_error_errno(err, bad, "renaming %s/%s to %s", c->path, k->temp, k->name);
    enum ls_status status = ls_ckpt_sync_dir(c->fd, c->path, err);
    if (status != LS_OK)
        undo(c, k);
    return status;
}

/* ---- after the commit: nothing here may make the save fail
 * ----------------------------------------------- */

static void warn(struct ls_ckpt_dir *c, const struct ls_error *err)
{
    if (!c->warning[0])
        memcpy(c->warning, err->message, sizeof c->warning);
}

static void write_latest(struct ls_ckpt_dir *c, const char *name)
{
    struct ls_error err = {0};
    char temp[LS_CKPT_NAME_SIZE], line[LS_CKPT_NAME_SIZE + 1];
    ls_ckpt_aside_name("latest", "tmp", temp);
    int n = snprintf(line, sizeof line, "%s\n", name);
    enum ls_status status = ls_ckpt_write_at(c->fd, c->path, temp, line, (size_t)n, &err);
    if (status == LS_OK && renameat(c->fd, temp, c->fd, "latest") != 0)
        status = ls_error_errno(&err, errno, "renaming %s/%s to latest", c->path, temp);
    if (status != LS_OK) {
        unlinkat(c->fd, temp, 0);
        warn(c, &err);
    }
}

static bool is_complete(struct ls_ckpt_dir *c, const char *name)
{
    struct ls_manifest m;
    int fd;
    if (ls_ckpt_enter(c->fd, name, name, &fd, NULL) != LS_OK)
        return false;
    enum ls_status status = ls_ckpt_quick(fd, name, &m, NULL);
    if (status == LS_OK)
        ls_manifest_free(&m);
    close(fd);
    return status == LS_OK;
}

/* Gives surplus entries temporary names, syncs, and only then removes: after a power cut a
 * checkpoint is whole, or has a name that nobody reads. Damaged ones are left for a person. */
static void retain(struct ls_ckpt_dir *c, const char *saved, int64_t keep)
{
    struct ls_error err = {0};
    struct ls_ckpt_entry *e = NULL;
    int n = 0;
    if (ls_ckpt_scan(c->fd, c->path, &e, &n, &err) != LS_OK) {
        warn(c, &err);
        return;
    }
    int64_t kept = 1; /* the one just saved, whatever its number */
    bool renamed = false;
    for (int i = 0; i < n; i++) {
        char temp[LS_CKPT_NAME_SIZE], base[LS_CKPT_NAME_SIZE];
        if (e[i].kind == LS_CKPT_TEMP || strcmp(e[i].name, saved) == 0)
            continue;
        if (e[i].kind == LS_CKPT_STEP && (!is_complete(c, e[i].name) || kept++ < keep))
            continue;
        ls_ckpt_step_name(e[i].step, base);
        ls_ckpt_aside_name(base, "tmp", temp);
        if (renameat(c->fd, e[i].name, c->fd, temp) != 0) {
            ls_error_errno(&err, errno, "renaming %s/%s", c->path, e[i].name);
            continue;
        }
        memcpy(e[i].name, temp, sizeof temp);
        e[i].kind = LS_CKPT_TEMP;
        renamed = true;
    }
    bool synced = !renamed || ls_ckpt_sync_dir(c->fd, c->path, &err) == LS_OK;
    for (int i = 0; i < n && synced; i++)
        if (e[i].kind == LS_CKPT_TEMP)
            ls_ckpt_remove(c->fd, c->path, e[i].name, &err);
    if (err.status != LS_OK)
        warn(c, &err);
    free(e);
}

/* ---- the whole
 * ------------------------------------------------------------------------------------------- */

static enum ls_status check(const struct ls_ckpt_state *s, int64_t keep, struct ls_error *err)
{
    if (s->step < 0 || s->step > MAX_STEP || s->position < 0 || s->updates < 0 || keep < 1)
        return ls_error_set(err, LS_ERR_INTERNAL,
                            "step %lld, position %lld, updates %lld, keep %lld: one of them is out "
                            "of range",
                            (long long)s->step, (long long)s->position, (long long)s->updates,
                            (long long)keep);
    return LS_OK;
}

enum ls_status ls_ckpt_save(struct ls_ckpt_dir *c, const struct ls_ckpt_state *state, int64_t keep,
                            const char **path, struct ls_error *err)
{
    char name[LS_CKPT_NAME_SIZE], temp[LS_CKPT_NAME_SIZE];
    LS_TRY(check(state, keep, err));
    ls_ckpt_step_name(state->step, name);
    ls_ckpt_aside_name(name, "tmp", temp);
    char *saved = malloc(strlen(c->path) + 1 + sizeof name);
    if (!saved)
        return ls_error_set(err, LS_ERR_NOMEM, "saving step %lld: out of memory",
                            (long long)state->step);
    sprintf(saved, "%s/%s", c->path, name);

    struct commit k = {.temp = temp, .name = name};
    enum ls_status status = write_temp(c, state, temp, err);
    if (status == LS_OK)
        status = commit(c, &k, err);
    if (status != LS_OK) {
        free(saved);
        ls_ckpt_remove(c->fd, c->path, temp, NULL);
        if (err)
            ls_error_context(err, "saving the checkpoint of step %lld", (long long)state->step);
        return status;
    }
    free(c->saved);
    c->saved = saved;
    c->warning[0] = '\0';
    write_latest(c, name);
    retain(c, name, keep);
    if (path)
        *path = c->saved;
    return LS_OK;
}
