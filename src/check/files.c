/* The file system under output and data. Each of these functions may hang: it runs in a child. */
#include "check/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, FILE_SIZE = PATH_SIZE + 96 };
#define MIB (INT64_C(1) << 20)
/* Below this not even a small checkpoint finds room. */
#define LEAST_FREE (64 * MIB)

/* ---- fs.out ---- */

/* The nearest folder above `path` that exists: nothing is created here. */
static bool existing(const char *path, char out[static PATH_SIZE])
{
    struct stat st;
    if (snprintf(out, PATH_SIZE, "%s", *path ? path : ".") >= PATH_SIZE)
        return false;
    while (stat(out, &st) != 0) {
        if (errno != ENOENT)
            return false;
        char *slash = strrchr(out, '/');
        if (slash == out)
            strcpy(out, "/");
        else if (slash)
            *slash = '\0';
        else
            strcpy(out, ".");
    }
    errno = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    return S_ISDIR(st.st_mode);
}

static int node_of(const struct ls_check_context *context)
{
    return context->slurm->place == LS_SLURM_STEP && context->slurm->node_id >= 0
               ? context->slurm->node_id
               : 0;
}

static void name_file(const struct ls_check_context *context, const char *dir, int node,
                      char out[static FILE_SIZE])
{
    /* The id of the step keeps two checks in one folder apart; alone, the process does. */
    long long job = context->slurm->job_id, step = context->slurm->step_id;
    if (context->slurm->place != LS_SLURM_STEP)
        job = getppid();
    snprintf(out, FILE_SIZE, "%s/.lockstep-check-%lld-%lld-%d", dir, job, step, node);
}

static void content(const struct ls_check_context *context, int node, const char *version,
                    char out[static 128])
{
    snprintf(out, 128, "lockstep check: node %d of job %lld, %s\n", node,
             (long long)context->slurm->job_id, version);
}

static void bad_folder(struct ls_check_out *out, const char *what, const char *path, int cause)
{
    ls_check_say(out, LS_CHECK_FAIL, "", "a folder where files can be written, locked and renamed",
                 cause == ENOSPC || cause == EDQUOT
                     ? "make room, or choose another checkpoint.dir"
                     : "choose another checkpoint.dir, or have the file system looked at",
                 "%s %s: %s", what, path, strerror(cause));
}

/* First version, then the second one over it, as every checkpoint is saved. */
static bool write_own(struct ls_check_out *out, const struct ls_check_context *context,
                      const char *dir, const char *path)
{
    char text[128];
    struct ls_error err = {0};
    content(context, node_of(context), "first", text);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        bad_folder(out, "cannot create a file in", dir, errno);
        return false;
    }
    bool ok = ls_file_write_all(fd, text, strlen(text), path, &err) == LS_OK;
    int cause = errno;
    if (ok && fsync(fd) != 0) {
        ok = false;
        cause = errno;
    }
    if (ok && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        cause = errno;
        close(fd);
        bad_folder(out, "cannot lock a file in", dir, cause);
        return false;
    }
    close(fd);
    content(context, node_of(context), "second", text);
    if (ok && ls_file_replace(path, text, strlen(text), &err) != LS_OK) {
        ok = false;
        cause = errno;
    }
    if (!ok)
        bad_folder(out, "cannot write, sync and rename in", dir, cause);
    return ok;
}

/* What the next node wrote; alone, or where nobody has met, what this one wrote. */
static void read_other(struct ls_check_out *out, const struct ls_check_context *context,
                       const char *dir)
{
    int node = context->pmix ? (node_of(context) + 1) % context->nodes : node_of(context);
    char path[FILE_SIZE], want[128], *found = NULL;
    size_t n = 0;
    struct ls_error err = {0};
    content(context, node, "second", want);
    name_file(context, dir, node, path);
    enum ls_status status = ls_file_read(path, 4096, &found, &n, &err);
    if (status != LS_OK)
        ls_check_fact(out, "unseen %d %s", node, err.message);
    else if (strcmp(found, want) != 0)
        ls_check_fact(out, "unseen %d %s holds old data: %.60s", node, path, found);
    else
        ls_check_fact(out, "seen %d %s: write, sync, lock, rename, read%s", node, dir,
                      node != node_of(context) ? " from another node" : "");
    free(found);
}

static bool failed_itself(const struct ls_check *check, const struct ls_check_world *w,
                          const struct ls_check_list *list, long node)
{
    for (int i = 0; i < list->n; i++) {
        const struct ls_check_result *r = &list->result[i];
        if (r->check == check && r->status >= LS_CHECK_TIMEOUT && r->rank >= 0 &&
            w->node[r->rank] == node)
            return true;
    }
    return false;
}

void ls_check_output_seen(const struct ls_check *check, const struct ls_check_world *w,
                          struct ls_check_list *list)
{
    for (int r = 0; r < w->size; r++) {
        char *why;
        const char *fact = w->fact[r], *at = fact ? strchr(fact, ' ') : NULL;
        if (!at)
            continue;
        long node = strtol(at, &why, 10);
        why += *why == ' ';
        if (!strncmp(fact, "seen ", 5))
            ls_check_add(list, check, LS_CHECK_PASS, r, "", why, "", "");
        else if (failed_itself(check, w, list, node))
            ls_check_add(list, check, LS_CHECK_SKIP, r, "",
                         "the node whose file it should read wrote none", "", "");
        else
            ls_check_add(list, check, LS_CHECK_FAIL, r, "", why, "what the next node wrote there",
                         "put checkpoint.dir on a file system that all nodes share");
    }
}

void ls_check_output(struct ls_check_out *out, const struct ls_check_context *context)
{
    char dir[PATH_SIZE], path[FILE_SIZE];
    struct statvfs fs;
    if (!existing(context->out_dir, dir)) {
        bad_folder(out, "cannot use", context->out_dir, errno);
        return;
    }
    name_file(context, dir, node_of(context), path);
    if (write_own(out, context, dir, path)) {
        char text[24];
        int64_t room = statvfs(dir, &fs) == 0 ? (int64_t)(fs.f_bavail * fs.f_frsize) : INT64_MAX;
        if (room < LEAST_FREE)
            ls_check_say(out, LS_CHECK_WARN, "", "room for checkpoints", "make room there",
                         "%s has %s free", dir, ls_format_bytes(room, text));
        if (ls_check_next(out)) {
            read_other(out, context, dir);
            ls_check_next(out); /* until the others have read, too */
        }
    }
    unlink(path);
}

/* ---- job.data ---- */

/* The size and the hash of the first bytes are enough to tell another file, and cheap for 16 TB. */
static bool look(struct ls_check_out *out, const char *path, struct ls_buf *fact)
{
    char head[65536];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us */
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        ls_check_say(out, LS_CHECK_FAIL, "", "a data file that can be read",
                     "copy it to every node, or to a file system that all nodes share", "%s: %s",
                     path, fd < 0 ? strerror(errno) : "not a regular file");
        if (fd >= 0)
            close(fd);
        return false;
    }
    ssize_t n = read(fd, head, sizeof head);
    int cause = errno;
    close(fd);
    if (n <= 0) {
        ls_check_say(out, LS_CHECK_FAIL, "", "a data file that can be read",
                     "copy it again, and have the file system looked at", "%s: %s", path,
                     n < 0 ? strerror(cause) : "the file is empty");
        return false;
    }
    uint64_t hash = 0;
    for (ssize_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)head[i]) * UINT64_C(0x100000001b3);
    ls_buf_printf(fact, "%s%s %lld bytes, begins with %08x", fact->len ? ", " : "", path,
                  (long long)st.st_size, (unsigned)(hash >> 32 ^ hash));
    return true;
}

void ls_check_data(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_job *job = context->job;
    const char *files[] = {job->data.train_images, job->data.train_labels, job->data.test_images,
                           job->data.test_labels};
    struct ls_buf fact;
    bool good = true;
    ls_buf_init(&fact, 1 << 16);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i])
            good &= look(out, files[i], &fact);
    if (good)
        ls_check_fact(out, "%s", fact.data ? fact.data : "");
    ls_buf_free(&fact);
}
