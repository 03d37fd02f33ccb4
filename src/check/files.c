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
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, FILE_SIZE = PATH_SIZE + 96 };
#define MIB (INT64_C(1) << 20)
/* Below this not even a small checkpoint finds room. */
#define LEAST_FREE (64 * MIB)
/* A neighbour's rename takes no longer than this: less than the deadline of the half, so that this is told and no
 * timeout. Caches of names that live longer fail, such as those of NFS with actimeo or nocto. */
#define SEEN_WITHIN 3.5

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

/* The node `step` further in the ring of all nodes; alone, or where nobody has met, this one. */
static int neighbour(const struct ls_check_context *context, int step)
{
    int nodes = context->nodes;
    return context->pmix ? (node_of(context) + step + nodes) % nodes : node_of(context);
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

/* What is in the file of node `owner` once node `writer` has written it. */
static void content(const struct ls_check_context *context, int owner, int writer,
                    const char *version, char out[static 128])
{
    snprintf(out, 128, "lockstep check: file of node %d of job %lld, %s version by node %d\n",
             owner, (long long)context->slurm->job_id, version, writer);
}

static void bad_folder(struct ls_check_out *out, const char *what, const char *path, int cause)
{
    ls_check_say(out, LS_CHECK_FAIL, "", "a folder where files can be written, locked and renamed",
                 cause == ENOSPC || cause == EDQUOT
                     ? "make room, or choose another checkpoint.dir"
                     : "choose another checkpoint.dir, or have the file system looked at",
                 "%s %s: %s", what, path, strerror(cause));
}

static bool write_own(struct ls_check_out *out, const struct ls_check_context *context,
                      const char *dir, const char *path)
{
    char text[128];
    struct ls_error err = {0};
    content(context, node_of(context), node_of(context), "first", text);
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
    if (!ok)
        bad_folder(out, "cannot write and sync in", dir, cause);
    return ok;
}

/* False: `why` says what is there instead. */
static bool holds(const char *path, const char *want, struct ls_error *why)
{
    char *found = NULL;
    size_t n = 0;
    bool same = ls_file_read(path, 4096, &found, &n, why) == LS_OK && !strcmp(found, want);
    if (found && !same)
        ls_error_set(why, LS_ERR_FORMAT, "%s holds old data: %.90s", path, found);
    free(found);
    return same;
}

/* Reads what the next node has written, and renames a new version over it, as every checkpoint is saved. */
static bool replace_next(struct ls_check_out *out, const struct ls_check_context *context,
                         const char *dir, const char *path)
{
    int me = node_of(context), next = neighbour(context, 1);
    char text[128];
    struct ls_error err = {0};
    content(context, next, next, "first", text);
    if (!holds(path, text, &err)) {
        ls_check_fact(out, "unseen %d %s", next, err.message);
        return false;
    }
    content(context, next, me, "second", text);
    if (ls_file_replace(path, text, strlen(text), &err) == LS_OK)
        return true;
    bad_folder(out, "cannot rename over a file in", dir, errno);
    return false;
}

/* This node knows its own file as it was, and maybe from a cache; now the node before it has renamed another one over
 * it, or will in a moment. */
static void await_replaced(struct ls_check_out *out, const struct ls_check_context *context,
                           const char *dir, const char *path)
{
    int me = node_of(context), before = neighbour(context, -1);
    char text[128];
    struct ls_error err = {0};
    struct timespec moment = {.tv_nsec = 10000000};
    double until = ls_time_monotonic() + SEEN_WITHIN;
    content(context, me, before, "second", text);
    while (!holds(path, text, &err) && ls_time_monotonic() < until)
        nanosleep(&moment, NULL);
    if (!holds(path, text, &err))
        ls_check_fact(out, "stale %d after %.1f s %s", before, SEEN_WITHIN, err.message);
    else
        ls_check_fact(out,
                      "seen %d %s: a file was written, synced, locked, read and renamed over%s",
                      before, dir, before != me ? ", and another node saw it" : "");
}

/* Node `node` has done nothing, and has said why. */
static bool failed_itself(const struct ls_check *check, const struct ls_check_world *w,
                          const struct ls_check_list *list, long node)
{
    for (int i = 0; i < list->n; i++) {
        const struct ls_check_result *r = &list->result[i];
        if (r->check == check && (r->status >= LS_CHECK_TIMEOUT || r->status == LS_CHECK_SKIP) &&
            r->rank >= 0 && w->node[r->rank] == node)
            return true;
    }
    return false;
}

/* Node `node` did not see the file of its next one: then it has not renamed either. */
static bool saw_nothing(const struct ls_check_world *w, long node)
{
    for (int r = 0; r < w->size; r++)
        if (w->node[r] == node && w->fact[r] && !strncmp(w->fact[r], "unseen ", 7))
            return true;
    return false;
}

void ls_check_output_seen(const struct ls_check *check, const struct ls_check_world *w,
                          struct ls_check_list *list)
{
    int first = list->n; /* what is added here blames nobody else */
    for (int r = 0; r < w->size; r++) {
        char *why;
        const char *fact = w->fact[r], *at = fact ? strchr(fact, ' ') : NULL;
        if (!at)
            continue;
        long node = strtol(at, &why, 10);
        why += *why == ' ';
        struct ls_check_list before = *list;
        before.n = first;
        if (!strncmp(fact, "seen ", 5))
            ls_check_add(list, check, LS_CHECK_PASS, r, "", why, "", "");
        else if (failed_itself(check, w, &before, node) ||
                 (!strncmp(fact, "stale ", 6) && saw_nothing(w, node)))
            ls_check_add(list, check, LS_CHECK_SKIP, r, "",
                         "the node that should write what it reads wrote nothing", "", "");
        else
            ls_check_add(
                list, check, LS_CHECK_FAIL, r, "", why, "what another node wrote there last",
                "put checkpoint.dir on a file system that all nodes share, and that caches "
                "no old names");
    }
}

/* First half: a file of its own. Second half: its neighbours rename over each other's files. */
void ls_check_output(struct ls_check_out *out, const struct ls_check_context *context)
{
    char dir[PATH_SIZE], path[FILE_SIZE], next[FILE_SIZE];
    struct statvfs fs;
    if (context->job_path && !context->job) { /* the others are in its checkpoint.dir */
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the job description cannot be read");
        return;
    }
    if (!existing(context->out_dir, dir)) {
        bad_folder(out, "cannot use", context->out_dir, errno);
        return;
    }
    name_file(context, dir, node_of(context), path);
    name_file(context, dir, neighbour(context, 1), next);
    if (!write_own(out, context, dir, path)) {
        unlink(path);
        return;
    }
    char text[24];
    int64_t room = statvfs(dir, &fs) == 0 ? (int64_t)(fs.f_bavail * fs.f_frsize) : INT64_MAX;
    if (room < LEAST_FREE)
        ls_check_say(out, LS_CHECK_WARN, "", "room for checkpoints", "make room there",
                     "%s has %s free", dir, ls_format_bytes(room, text));
    if (ls_check_next(out)) {
        if (replace_next(out, context, dir, next))
            await_replaced(out, context, dir, path);
        ls_check_next(out); /* until the others have read, too */
        unlink(next);       /* where its own node came too early to remove what was put there */
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
