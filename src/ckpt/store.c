/* Names and small file operations in a checkpoint directory. All work relative to an open
 * directory, and none follows a symbolic link. */
#include "ckpt/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names
 * ----------------------------------------------------------------------------------------------- */

void ls_ckpt_step_name(int64_t step, char out[static LS_CKPT_NAME_SIZE])
{
    snprintf(out, LS_CKPT_NAME_SIZE, "step-%08lld", (long long)step);
}

void ls_ckpt_aside_name(const char *base, const char *tag, char out[static LS_CKPT_NAME_SIZE])
{
    uint64_t nonce;
    /* The lock makes us the only writer, so time and process id are enough in a pinch. */
    if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != (ssize_t)sizeof nonce)
        nonce = ls_mix64((uint64_t)(ls_time_wall() * 1e9), (uint64_t)getpid());
    snprintf(out, LS_CKPT_NAME_SIZE, "%.40s.%.8s-%016llx", base, tag, (unsigned long long)nonce);
}

/* `tag`, a nonce of 16 digits, and nothing behind it. */
static bool is_aside(const char *s, const char *tag)
{
    size_t n = strlen(tag);
    return strncmp(s, tag, n) == 0 && strspn(s + n, "0123456789abcdef") == 16 && s[n + 16] == '\0';
}

enum ls_ckpt_kind ls_ckpt_kind_of(const char *name, int64_t *step)
{
    *step = -1;
    if (is_aside(name, "latest.tmp-"))
        return LS_CKPT_TEMP;
    size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    if (digits < 8 || digits > 18 || (digits > 8 && name[5] == '0'))
        return LS_CKPT_OTHER;
    *step = strtoll(name + 5, NULL, 10);
    const char *rest = name + 5 + digits;
    if (*rest == '\0')
        return LS_CKPT_STEP;
    if (is_aside(rest, ".tmp-"))
        return LS_CKPT_TEMP;
    if (is_aside(rest, ".old-"))
        return LS_CKPT_OLD;
    return LS_CKPT_OTHER;
}

static int newest_first(const void *a, const void *b)
{
    const struct ls_ckpt_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : strcmp(x->name, y->name);
}

/* A fresh stream over an open directory, so that its position is nobody else's. */
static DIR *open_stream(int dirfd, const char *name, int flags)
{
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0)
        return NULL;
    DIR *d = fdopendir(fd);
    if (!d) {
        int bad = errno;
        close(fd);
        errno = bad;
    }
    return d;
}

enum ls_status ls_ckpt_scan(int dirfd, const char *path, struct ls_ckpt_entry **entries, int *n,
                            struct ls_error *err)
{
    DIR *d = open_stream(dirfd, ".", 0);
    if (!d)
        return ls_error_errno(err, errno, "reading directory %s", path);
    struct ls_ckpt_entry *list = NULL;
    int count = 0, cap = 0;
    enum ls_status status = LS_OK;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                status = ls_error_errno(err, errno, "reading directory %s", path);
            break;
        }
        struct ls_ckpt_entry entry;
        entry.kind = ls_ckpt_kind_of(e->d_name, &entry.step);
        if (entry.kind == LS_CKPT_OTHER)
            continue;
        if (!ls_grow(&list, &cap, count + 1, sizeof *list)) {
            status = ls_error_set(err, LS_ERR_NOMEM, "reading directory %s: out of memory", path);
            break;
        }
        snprintf(entry.name, sizeof entry.name, "%.*s", (int)sizeof entry.name - 1, e->d_name);
        list[count++] = entry;
    }
    closedir(d);
    if (status != LS_OK) {
        free(list);
        return status;
    }
    if (count)
        qsort(list, (size_t)count, sizeof *list, newest_first);
    *entries = list;
    *n = count;
    return LS_OK;
}

/* ---- files
 * ----------------------------------------------------------------------------------------------- */

/* Unlinks what the directory holds; returns 0 or an errno. */
static int empty_directory(DIR *d)
{
    int bad = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e)
            return errno ? errno : bad;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) != 0 && errno != ENOENT)
            bad = errno;
    }
}

enum ls_status ls_ckpt_remove(int dirfd, const char *path, const char *name, struct ls_error *err)
{
    DIR *d = open_stream(dirfd, name, O_NOFOLLOW);
    int bad = 0;
    if (!d && (errno == ENOTDIR || errno == ELOOP)) {
        bad = unlinkat(dirfd, name, 0) != 0 ? errno : 0;
    } else if (!d) {
        bad = errno;
    } else {
        bad = empty_directory(d);
        closedir(d);
        if (unlinkat(dirfd, name, AT_REMOVEDIR) != 0 && !bad)
            bad = errno;
    }
    return bad && bad != ENOENT ? ls_error_errno(err, bad, "removing %s/%s", path, name) : LS_OK;
}

enum ls_status ls_ckpt_sync_dir(int fd, const char *path, struct ls_error *err)
{
    /* Some network file systems cannot sync a directory and say EINVAL. */
    if (fsync(fd) != 0 && errno != EINVAL)
        return ls_error_errno(err, errno, "syncing directory %s", path);
    return LS_OK;
}

enum ls_status ls_ckpt_write_at(int dirfd, const char *path, const char *name, const void *data,
                                size_t size, struct ls_error *err)
{
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return ls_error_errno(err, errno, "creating %s/%s", path, name);
    enum ls_status status = ls_file_write_all(fd, data, size, name, err);
    if (status == LS_OK && fsync(fd) != 0)
        status = ls_error_errno(err, errno, "syncing %s/%s", path, name);
    if (close(fd) != 0 && status == LS_OK)
        status = ls_error_errno(err, errno, "closing %s/%s", path, name);
    return status;
}

enum ls_status ls_ckpt_open_at(int dirfd, const char *path, const char *name, int *fd,
                               int64_t *size, struct ls_error *err)
{
    /* O_NONBLOCK: a FIFO put in the place of a file must not block us. */
    int f = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (f < 0 && errno == ENOENT)
        return ls_error_set(err, LS_ERR_NOTFOUND, "%s: has no %s: incomplete or not a checkpoint",
                            path, name);
    if (f < 0 && errno == ELOOP)
        return ls_error_set(err, LS_ERR_FORMAT, "%s/%s: a symbolic link, expected a regular file",
                            path, name);
    if (f < 0)
        return ls_error_errno(err, errno, "opening %s/%s", path, name);
    enum ls_status status = LS_OK;
    if (fstat(f, &st) != 0)
        status = ls_error_errno(err, errno, "%s/%s", path, name);
    else if (!S_ISREG(st.st_mode))
        status = ls_error_set(err, LS_ERR_FORMAT, "%s/%s: not a regular file", path, name);
    if (status != LS_OK) {
        close(f);
        return status;
    }
    *fd = f;
    *size = st.st_size;
    return LS_OK;
}

enum ls_status ls_ckpt_pread(int fd, void *data, size_t size, int64_t offset, const char *path,
                             struct ls_error *err)
{
    char *p = data;
    while (size) {
        ssize_t n = pread(fd, p, size, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_error_errno(err, errno, "reading %s", path);
        if (n == 0)
            return ls_error_set(err, LS_ERR_FORMAT, "%s: truncated while it was read, at byte %lld",
                                path, (long long)offset);
        p += n;
        offset += n;
        size -= (size_t)n;
    }
    return LS_OK;
}
