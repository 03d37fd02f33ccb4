/* Taking and giving back a checkpoint directory: the lock, and what a crash left behind. */
#include "ckpt/dir.h"
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0, or an errno; EAGAIN: someone else holds it. An open-file-description lock belongs to the
 * descriptor, so a second open in the same process conflicts, and a close elsewhere drops nothing.
 */
static int try_lock(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &all) == 0)
        return 0;
    if (errno == EACCES)
        return EAGAIN;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* Kernel or file system without them. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return errno;
}

/* BUSY, naming the holder as far as the lock file tells. */
static enum ls_status busy(const char *dir, int fd, struct ls_error *err)
{
    char text[300], host[256];
    long pid;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%255s %ld", host, &pid) == 2) {
        struct ls_quoted q = ls_ckpt_quote(host);
        return ls_error_set(err, LS_ERR_BUSY,
                            "%s: in use by process %ld on host %s: let it end, or choose another "
                            "checkpoint directory",
                            dir, pid, q.text);
    }
    return ls_error_set(err, LS_ERR_BUSY,
                        "%s: in use by another process: let it end, or choose another checkpoint "
                        "directory",
                        dir);
}

static enum ls_status take_lock(struct ls_ckpt_dir *c, struct ls_error *err)
{
    c->lock = openat(c->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (c->lock < 0)
        return ls_error_errno(
            err, errno, "creating %s/lock (a checkpoint directory must be writable)", c->path);
    int bad = try_lock(c->lock);
    if (bad == EAGAIN) /* EWOULDBLOCK is the same number */
        return busy(c->path, c->lock, err);
    if (bad)
        return ls_error_errno(
            err, bad, "locking %s/lock: choose a directory on a file system with locks", c->path);
    /* For the message of a second writer; the lock does not depend on it. */
    char host[256] = "?", text[300];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%s %ld\n", host, (long)getpid());
    if (ftruncate(c->lock, 0) != 0 || pwrite(c->lock, text, (size_t)n, 0) != n)
        snprintf(c->warning, sizeof c->warning, "%s/lock: cannot record who holds it", c->path);
    return LS_OK;
}

/* Removes temporary entries; puts back a version whose successor never took its name. */
static enum ls_status clean_up(struct ls_ckpt_dir *c, struct ls_error *err)
{
    struct ls_ckpt_entry *e = NULL;
    int n = 0;
    LS_TRY(ls_ckpt_scan(c->fd, c->path, &e, &n, err));
    enum ls_status status = LS_OK;
    for (int i = 0; i < n && status == LS_OK; i++) {
        char name[LS_CKPT_NAME_SIZE];
        if (e[i].kind == LS_CKPT_TEMP)
            status = ls_ckpt_remove(c->fd, c->path, e[i].name, err);
        if (e[i].kind != LS_CKPT_OLD)
            continue;
        ls_ckpt_step_name(e[i].step, name);
        if (faccessat(c->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            status = ls_ckpt_remove(c->fd, c->path, e[i].name, err);
        else if (errno != ENOENT || renameat(c->fd, e[i].name, c->fd, name) != 0)
            status = ls_error_errno(err, errno, "renaming %s/%s to %s", c->path, e[i].name, name);
    }
    free(e);
    return status;
}

/* The lock file may be older than a lost write permission: ask now, not after the first hour. */
static enum ls_status probe(struct ls_ckpt_dir *c, struct ls_error *err)
{
    char name[LS_CKPT_NAME_SIZE];
    ls_ckpt_aside_name("step-00000000", "tmp", name);
    if (mkdirat(c->fd, name, 0777) != 0)
        return ls_error_errno(
            err, errno, "creating a directory in %s (a checkpoint directory must be writable)",
            c->path);
    if (unlinkat(c->fd, name, AT_REMOVEDIR) != 0) {
        int bad = errno;
        unlinkat(c->fd, name, AT_REMOVEDIR); /* what a transient failure left */
        return ls_error_errno(err, bad, "removing a directory in %s", c->path);
    }
    return LS_OK;
}

static enum ls_status open_dir(struct ls_ckpt_dir *c, struct ls_error *err)
{
    LS_TRY(ls_dir_make(c->path, err));
    c->fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->fd < 0)
        return ls_error_errno(err, errno, "opening directory %s", c->path);
    LS_TRY(take_lock(c, err));
    LS_TRY(clean_up(c, err));
    return probe(c, err);
}

enum ls_status ls_ckpt_open(const char *dir, struct ls_ckpt_dir **ckpt, struct ls_error *err)
{
    struct ls_ckpt_dir *c = calloc(1, sizeof *c);
    if (!c)
        return ls_error_set(err, LS_ERR_NOMEM, "opening %s: out of memory", dir);
    c->fd = c->lock = -1;
    c->path = strdup(dir);
    enum ls_status status = c->path
                                ? open_dir(c, err)
                                : ls_error_set(err, LS_ERR_NOMEM, "opening %s: out of memory", dir);
    if (status == LS_OK) {
        *ckpt = c;
        return LS_OK;
    }
    ls_ckpt_close(c);
    if (status != LS_ERR_BUSY && err)
        ls_error_context(err, "checkpoint directory");
    return status;
}

void ls_ckpt_close(struct ls_ckpt_dir *c)
{
    if (!c)
        return;
    if (c->lock >= 0)
        close(c->lock);
    if (c->fd >= 0)
        close(c->fd);
    free(c->saved);
    free(c->path);
    free(c);
}

const char *ls_ckpt_warning(const struct ls_ckpt_dir *c)
{
    return c->warning[0] ? c->warning : NULL;
}
