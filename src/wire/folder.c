/* The PMIx server's folder. Its name carries user and boot, its lock says whether the owner lives:
 * flock ends with the process, however it ends, and is not inherited past exec. */
#include "wire/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// PMIx nests two or three deep; a foreign tree that is deeper is not ours to follow.
enum { MAX_DEPTH = 8 };

static void remove_entries(int dir, int depth)
{
    DIR *d = fdopendir(dir); // takes over `dir`
    if (!d) {
        close(dir);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) == 0)
            continue;
        int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub < 0)
            continue;
        if (depth < MAX_DEPTH)
            remove_entries(sub, depth + 1);
        else
            close(sub);
        unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    }
    closedir(d);
}

// "lockstep-pmix-UID-BOOT-": another boot's locks say nothing, and $TMPDIR may be on a shared file
// system, where only this machine's locks can be trusted.
static void make_prefix(char *out, size_t size)
{
    char boot[16] = "0";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, 8);
        boot[n > 0 ? n : 0] = '\0';
        close(fd);
    }
    snprintf(out, size, "lockstep-pmix-%u-%s-", (unsigned)geteuid(), boot);
}

// Opens and locks; -1 if the owner lives, or if the folder is not ours.
static int take(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

static void sweep(int parent, const char *prefix)
{
    int again = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d) {
        if (again >= 0)
            close(again);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        int fd = take(parent, e->d_name);
        int copy = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (copy >= 0) {
            remove_entries(copy, 0);
            unlinkat(parent, e->d_name, AT_REMOVEDIR);
        }
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
}

// Between mkdir and flock another keeper's sweep may win; then the folder is gone, and we try
// again.
static int create(int parent, const char *prefix, char *name, size_t size)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(name, size, "%s%d.%d", prefix, (int)getpid(), attempt);
        if (mkdirat(parent, name, 0700)) {
            if (errno == EEXIST)
                continue;
            return -1;
        }
        int fd = take(parent, name);
        struct stat a, b;
        if (fd >= 0 && fstat(fd, &a) == 0 && fstatat(parent, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
            a.st_ino == b.st_ino && a.st_dev == b.st_dev)
            return fd;
        if (fd >= 0)
            close(fd);
    }
    errno = EEXIST;
    return -1;
}

enum ls_status ls_wire_folder_make(const char *parent, struct ls_wire_folder *folder,
                                   struct ls_error *err)
{
    folder->fd = -1;
    char prefix[96], name[128];
    make_prefix(prefix, sizeof prefix);
    int dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return ls_error_errno(err, errno, "cannot open the temporary folder %s; set TMPDIR",
                              parent);
    sweep(dir, prefix);
    int fd = create(dir, prefix, name, sizeof name);
    int why = errno;
    close(dir);
    if (fd < 0)
        return ls_error_errno(err, why, "cannot make a folder in %s; set TMPDIR", parent);
    int n = snprintf(folder->path, sizeof folder->path, "%s/%s", parent, name);
    folder->fd = fd;
    if (n < 0 || (size_t)n >= sizeof folder->path) {
        folder->path[0] = '\0';
        close(fd); // an empty folder without an owner: the next sweep takes it
        folder->fd = -1;
        return ls_error_set(err, LS_ERR_USAGE, "the temporary folder's path is too long: %.200s",
                            parent);
    }
    return LS_OK;
}

void ls_wire_folder_remove(struct ls_wire_folder *folder)
{
    if (folder->fd < 0)
        return;
    int copy = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy >= 0)
        remove_entries(copy, 0);
    rmdir(folder->path);
    close(folder->fd);
    folder->fd = -1;
}
