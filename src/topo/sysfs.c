/* Small bounded reads below a root prefix. No static buffer, no stdio stream, no thread: this runs inside
 * Slurm's daemons. */
#include "topo/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, READS = 64 };

/* False: too long, or the budget is spent. */
static bool make_path(struct ls_sys *sys, char path[static PATH_BYTES], const char *fmt, va_list ap)
{
    if (sys->left <= 0)
        return false;
    sys->left--;
    int n = snprintf(path, PATH_BYTES, "%s/", sys->root);
    if (n < 0 || n >= PATH_BYTES)
        return false;
    int m = vsnprintf(path + n, PATH_BYTES - (size_t)n, fmt, ap);
    return m >= 0 && m < PATH_BYTES - n;
}

static void record(const struct ls_sys *sys, enum ls_sys_kind kind, const char *path,
                   const char *text)
{
    if (sys->record)
        sys->record(sys->user, kind, path + strlen(sys->root) + 1, text);
}

static size_t read_file(const char *path, char *out, size_t size)
{
    struct stat st;
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        for (int i = 0; i < READS && got < size - 1; i++) {
            ssize_t n = read(fd, out + got, size - 1 - got);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                break;
            got += (size_t)n;
        }
    close(fd);
    return got;
}

static bool read_text(struct ls_sys *sys, char *out, size_t size, const char *fmt, va_list ap)
{
    char path[PATH_BYTES];
    size_t n = make_path(sys, path, fmt, ap) ? read_file(path, out, size) : 0;
    while (n > 0 && isspace((unsigned char)out[n - 1]))
        n--;
    out[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (out[i] != '\n' && out[i] != '\t' && (out[i] < ' ' || out[i] > '~'))
            out[i] = '?';
    if (n > 0)
        record(sys, LS_SYS_FILE, path, out);
    return n > 0;
}

bool ls_sys_read(struct ls_sys *sys, char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool is = read_text(sys, out, size, fmt, ap);
    va_end(ap);
    return is;
}

int64_t ls_sys_number(struct ls_sys *sys, int64_t otherwise, const char *fmt, ...)
{
    char text[32], *end;
    va_list ap;
    va_start(ap, fmt);
    bool is = read_text(sys, text, sizeof text, fmt, ap);
    va_end(ap);
    errno = 0;
    long long value = is ? strtoll(text, &end, 0) : 0;
    return is && end != text && !errno ? value : otherwise;
}

bool ls_sys_link(struct ls_sys *sys, char *out, size_t size, const char *fmt, ...)
{
    char path[PATH_BYTES];
    va_list ap;
    va_start(ap, fmt);
    ssize_t n = make_path(sys, path, fmt, ap) ? readlink(path, out, size - 1) : -1;
    va_end(ap);
    bool whole = n > 0 && (size_t)n < size - 1;
    out[whole ? n : 0] = '\0';
    if (whole)
        record(sys, LS_SYS_LINK, path, out);
    return whole;
}

bool ls_sys_exists(struct ls_sys *sys, const char *fmt, ...)
{
    char path[PATH_BYTES];
    va_list ap;
    va_start(ap, fmt);
    bool is = make_path(sys, path, fmt, ap) && access(path, F_OK) == 0;
    va_end(ap);
    if (is)
        record(sys, LS_SYS_DIR, path, "");
    return is;
}

bool ls_sys_openable(struct ls_sys *sys, const char *fmt, ...)
{
    char path[PATH_BYTES];
    va_list ap;
    va_start(ap, fmt);
    bool is = make_path(sys, path, fmt, ap);
    va_end(ap);
    if (is && sys->dev)
        is = faccessat(*sys->dev, path + strlen(sys->root) + strlen("/dev/"), R_OK | W_OK, 0) == 0;
    else
        is = is && access(path, R_OK | W_OK) == 0;
    if (is)
        record(sys, LS_SYS_NODE, path, "");
    return is;
}

/* Compares names with the numbers in them as numbers. */
static int by_name(const void *a, const void *b)
{
    const char *x = a, *y = b;
    while (*x && *y) {
        if (!isdigit((unsigned char)*x) || !isdigit((unsigned char)*y)) {
            if (*x != *y)
                return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
            x++, y++;
            continue;
        }
        size_t zx = strspn(x, "0"), zy = strspn(y, "0");
        size_t nx = strspn(x + zx, "0123456789"), ny = strspn(y + zy, "0123456789");
        int order = nx != ny ? (nx < ny ? -1 : 1) : strncmp(x + zx, y + zy, nx);
        if (order || zx != zy)
            return order ? order : zx < zy ? -1 : 1;
        x += zx + nx;
        y += zy + ny;
    }
    return *x ? 1 : *y ? -1 : 0;
}

static bool is_plain(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
            return false;
    return n > 0 && n < LS_SYS_NAME && name[0] != '.';
}

int ls_sys_list(struct ls_sys *sys, const char *fmt, ...)
{
    char path[PATH_BYTES];
    va_list ap;
    va_start(ap, fmt);
    DIR *dir = make_path(sys, path, fmt, ap) ? opendir(path) : NULL;
    va_end(ap);
    int n = 0;
    for (struct dirent *e; dir && n < LS_SYS_NAMES && (e = readdir(dir));)
        if (is_plain(e->d_name))
            strcpy(sys->names[n++], e->d_name);
    if (dir)
        closedir(dir);
    qsort(sys->names, (size_t)n, LS_SYS_NAME, by_name);
    for (int i = 0; i < n && sys->record; i++) {
        char child[PATH_BYTES + LS_SYS_NAME];
        snprintf(child, sizeof child, "%s/%s", path, sys->names[i]);
        record(sys, LS_SYS_DIR, child, "");
    }
    return n;
}
