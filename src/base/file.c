/* Files: whole reads with a bound, writes that survive short counts, atomic replacement. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum ls_status ls_file_read(const char *path, size_t max, char **data, size_t *size,
                            struct ls_error *err)
{
    enum ls_status status = LS_OK;
    char *bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block us */
    if (fd < 0)
        return ls_error_errno(err, errno, "%s", path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        status = ls_error_errno(err, errno, "%s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        status = ls_error_set(err, LS_ERR_IO, "%s: not a regular file", path);
        goto out;
    }
    if ((uintmax_t)st.st_size > max) {
        status = ls_error_set(err, LS_ERR_OVERFLOW, "%s: %lld bytes, at most %zu are accepted",
                              path, (long long)st.st_size, max);
        goto out;
    }
    size_t want = (size_t)st.st_size, got = 0;
    bytes = malloc(want + 1);
    if (!bytes) {
        status = ls_error_set(err, LS_ERR_NOMEM, "%s: no memory for %zu bytes", path, want);
        goto out;
    }
    while (got < want) {
        ssize_t n = read(fd, bytes + got, want - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = ls_error_errno(err, errno, "%s", path);
            goto out;
        }
        if (n == 0)
            break; /* it shrank while we read: what is there counts */
        got += (size_t)n;
    }
    bytes[got] = '\0';
    *data = bytes;
    *size = got;
    bytes = NULL;
out:
    free(bytes);
    close(fd);
    return status;
}

enum ls_status ls_file_write_all(int fd, const void *data, size_t size, const char *path,
                                 struct ls_error *err)
{
    const char *p = data;
    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_error_errno(err, errno, "writing %s", path);
        p += n;
        size -= (size_t)n;
    }
    return LS_OK;
}

enum ls_status ls_dir_sync(const char *path, struct ls_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ls_error_errno(err, errno, "opening directory %s", path);
    /* Some network file systems cannot sync a directory and say EINVAL: nothing more can be done.
     */
    int bad = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return bad ? ls_error_errno(err, bad, "syncing directory %s", path) : LS_OK;
}

enum ls_status ls_dir_make(const char *path, struct ls_error *err)
{
    char *copy = strdup(path);
    if (!copy)
        return ls_error_set(err, LS_ERR_NOMEM, "creating %s: out of memory", path);
    enum ls_status status = LS_OK;
    for (char *p = copy + 1; status == LS_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char keep = *p;
        *p = '\0';
        struct stat st;
        if (mkdir(copy, 0777) != 0) {
            int bad = errno;
            if (bad != EEXIST && (stat(copy, &st) != 0 || !S_ISDIR(st.st_mode)))
                status = ls_error_errno(err, bad, "creating directory %s", copy);
            else if (bad == EEXIST && stat(copy, &st) == 0 && !S_ISDIR(st.st_mode))
                status = ls_error_errno(err, ENOTDIR, "creating directory %s", copy);
        }
        *p = keep;
        if (keep == '\0')
            break;
    }
    free(copy);
    return status;
}

enum ls_status ls_file_replace(const char *path, const void *data, size_t size,
                               struct ls_error *err)
{
    struct ls_arena arena = {0};
    enum ls_status status = LS_OK;
    char *temp = ls_arena_printf(&arena, "%s.tmp-%ld", path, (long)getpid());
    char *dir = ls_arena_strdup(&arena, path);
    if (!temp || !dir) {
        ls_arena_free(&arena);
        return ls_error_set(err, LS_ERR_NOMEM, "writing %s: out of memory", path);
    }
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = ls_error_errno(err, errno, "creating %s", temp);
        ls_arena_free(&arena);
        return status;
    }
    status = ls_file_write_all(fd, data, size, temp, err);
    if (status == LS_OK && fsync(fd) != 0)
        status = ls_error_errno(err, errno, "syncing %s", temp);
    if (close(fd) != 0 && status == LS_OK)
        status = ls_error_errno(err, errno, "closing %s", temp);
    if (status == LS_OK && rename(temp, path) != 0)
        status = ls_error_errno(err, errno, "renaming %s to %s", temp, path);
    if (status != LS_OK)
        unlink(temp);
    else {
        char *slash = strrchr(dir, '/');
        if (slash)
            slash[slash == dir] = '\0';
        status = ls_dir_sync(slash ? dir : ".", err);
    }
    ls_arena_free(&arena);
    return status;
}
