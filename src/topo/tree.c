/* Unpacks the text of a tree, and reads machines from it. */
#include "topo/tree.h"

#include "topo/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "lockstep-tree 1"
enum { PATH_BYTES = 1024, LINE_BYTES = 8192 };

struct unpack {
    const char *name, *dir;
    char real[4096];                      /* of dir */
    char last[2 * 4096], last_real[4096]; /* the directory that the last entry went into */
    int line;
    struct ls_error *err;
};

static enum ls_status bad(const struct unpack *u, const char *what, const char *line)
{
    char shown[84];
    return ls_error_set(u->err, LS_ERR_FORMAT, "%s:%d: found '%s', expected %s", u->name, u->line,
                        ls_topo_show(line, shown), what);
}

/* sys/..., proc/..., dev/..., no empty part and none of "." or ".." */
static bool is_path(const char *path)
{
    if (strlen(path) >= PATH_BYTES - 16)
        return false;
    if (strncmp(path, "sys/", 4) && strncmp(path, "proc/", 5) && strncmp(path, "dev/", 4))
        return false;
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        if (n == 0 || n > 255 || (n == 1 && at[0] == '.') || (n == 2 && !strncmp(at, "..", 2)))
            return false;
        at += n;
        if (*at == '/' && !*++at)
            return false;
    }
    return true;
}

static enum ls_status make_dirs(const struct unpack *u, const char *path)
{
    struct ls_error why = {0};
    if (ls_dir_make(path, &why) != LS_OK)
        return ls_error_set(u->err, why.status, "%s:%d: %s", u->name, u->line, why.message);
    return LS_OK;
}

/* The directory of `full` is made, and its true place found: it must be in the tree. */
static enum ls_status enter(struct unpack *u, const char *full, char real[static 4096])
{
    char parent[PATH_BYTES + 4096];
    snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = '\0';
    if (!strcmp(parent, u->last)) {
        strcpy(real, u->last_real);
        return LS_OK;
    }
    LS_TRY(make_dirs(u, parent));
    size_t n = strlen(u->real);
    if (!realpath(parent, real))
        return ls_error_errno(u->err, errno, "%s:%d: %s", u->name, u->line, parent);
    if (strncmp(real, u->real, n) != 0 || (real[n] && real[n] != '/'))
        return bad(u, "a path inside the tree", full + strlen(u->dir) + 1);
    strcpy(u->last, parent);
    strcpy(u->last_real, real);
    return LS_OK;
}

static enum ls_status add_link(struct unpack *u, const char *path, const char *target)
{
    char full[PATH_BYTES + 4096], real[4096], dest[2 * 4096];
    int depth = 0, up = 0;
    const char *at = target;
    snprintf(full, sizeof full, "%s/%s", u->dir, path);
    LS_TRY(enter(u, full, real));
    for (const char *p = real + strlen(u->real); *p; p++)
        depth += *p == '/';
    for (; !strncmp(at, "../", 3); at += 3)
        up++;
    /* Upwards first and then only downwards: so what it leads to is in the tree, whatever else is linked. */
    char probe[PATH_BYTES];
    bool whole = snprintf(probe, sizeof probe, "sys/%s", at) < (int)sizeof probe;
    if (!whole || up >= depth || !*at || !is_path(probe))
        return bad(u, "a link to a directory of the tree: ../ parts first, and names after them",
                   target);
    if (symlink(target, full) != 0)
        return ls_error_errno(u->err, errno, "%s:%d: cannot link %s", u->name, u->line, path);
    snprintf(dest, sizeof dest, "%.4000s/%s", real, target);
    return make_dirs(u, dest);
}

static enum ls_status add_file(struct unpack *u, const char *path, const char *text, size_t n)
{
    char full[PATH_BYTES + 4096], real[4096];
    snprintf(full, sizeof full, "%s/%s", u->dir, path);
    LS_TRY(enter(u, full, real));
    int fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return ls_error_errno(u->err, errno, "%s:%d: %s", u->name, u->line, path);
    enum ls_status status = ls_file_write_all(fd, text, n, full, u->err);
    close(fd);
    return status;
}

/* The lines after `at` that begin with "| ", without that; *at moves behind them. */
static enum ls_status add_lines(struct unpack *u, const char *path, const char **at)
{
    struct ls_buf text;
    int lines = 0;
    ls_buf_init(&text, LS_TREE_MAX);
    while (**at == '|') {
        const char *line = *at + 1 + ((*at)[1] == ' ');
        size_t n = strcspn(line, "\n");
        ls_buf_add(&text, line, n);
        ls_buf_add(&text, "\n", 1);
        *at = line + n + (line[n] == '\n');
        lines++;
    }
    enum ls_status status = text.failed
                                ? ls_error_set(u->err, LS_ERR_NOMEM, "no memory for the tree")
                                : add_file(u, path, text.data ? text.data : "", text.len);
    u->line += lines;
    ls_buf_free(&text);
    return status;
}

static enum ls_status add_entry(struct unpack *u, char *line, bool links, const char **at)
{
    char full[PATH_BYTES + 4096];
    char *arrow = strstr(line, " -> "), *equals = strstr(line, " =");
    size_t n = strlen(line);
    if (arrow) {
        *arrow = '\0';
        if (!is_path(line))
            return bad(u, "a path below sys, proc or dev", line);
        return links ? add_link(u, line, arrow + 4) : LS_OK;
    }
    if (equals && (equals[2] == ' ' || !equals[2])) {
        bool more = !equals[2];
        *equals = '\0';
        if (!is_path(line))
            return bad(u, "a path below sys, proc or dev", line);
        if (links)
            return LS_OK;
        if (more)
            return add_lines(u, line, at);
        char *value = equals + 3;
        size_t len = strlen(value);
        value[len] = '\n'; /* in place of its NUL */
        return add_file(u, line, value, len + 1);
    }
    if (n > 1 && line[n - 1] == '/') {
        line[n - 1] = '\0';
        if (!is_path(line))
            return bad(u, "a path below sys, proc or dev", line);
        char real[4096];
        snprintf(full, sizeof full, "%s/%s/.", u->dir, line);
        return links ? LS_OK : enter(u, full, real);
    }
    return bad(u, "'path = text', 'path -> link' or 'path/'", line);
}

static enum ls_status pass(struct unpack *u, const char *text, bool links)
{
    char line[LINE_BYTES];
    u->line = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        u->line++;
        if (n >= LINE_BYTES)
            return ls_error_set(u->err, LS_ERR_FORMAT,
                                "%s:%d: a line of %zu characters, expected at most %d", u->name,
                                u->line, n, LINE_BYTES - 1);
        if (u->line > LS_TREE_ENTRIES)
            return ls_error_set(u->err, LS_ERR_OVERFLOW, "%s: more than %d lines", u->name,
                                LS_TREE_ENTRIES);
        memcpy(line, at, n);
        line[n] = '\0';
        at += n + (at[n] == '\n');
        if (n > 0 && line[n - 1] == '\r')
            line[n - 1] = '\0';
        if (u->line == 1) {
            if (strcmp(line, HEADER) != 0)
                return bad(u, "'" HEADER "' in the first line", line);
        } else if (links && line[0] == '|') {
            continue;
        } else if (line[0] && line[0] != '#') {
            LS_TRY(add_entry(u, line, links, &at));
        }
    }
    return u->line ? LS_OK : bad(u, "'" HEADER "' in the first line", "");
}

enum ls_status ls_topo_tree_unpack(const char *name, const char *text, const char *dir,
                                   struct ls_error *err)
{
    struct unpack u = {.name = name, .dir = dir, .err = err};
    if (strlen(dir) > 3000 || !realpath(dir, u.real))
        return ls_error_errno(err, strlen(dir) > 3000 ? ENAMETOOLONG : errno, "%s", dir);
    /* Links first: files are named by way of them. */
    LS_TRY(pass(&u, text, true));
    return pass(&u, text, false);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static enum ls_status read_file(const char *path, const char *tmpdir,
                                struct ls_topo_machine *machine, struct ls_error *err)
{
    char *text = NULL, dir[4096];
    size_t size;
    LS_TRY(ls_file_read(path, LS_TREE_MAX, &text, &size, err));
    snprintf(dir, sizeof dir, "%.3000s/lockstep-tree-XXXXXX", tmpdir);
    if (!mkdtemp(dir)) {
        free(text);
        return ls_error_errno(err, errno, "cannot make a directory in %s", tmpdir);
    }
    enum ls_status status = LS_OK;
    if (strlen(text) != size)
        status = ls_error_set(err, LS_ERR_FORMAT, "%s: found a byte 0x00, expected text", path);
    if (status == LS_OK)
        status = ls_topo_tree_unpack(path, text, dir, err);
    if (status == LS_OK)
        status = ls_topo_read(dir, machine, err);
    free(text);
    if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && status == LS_OK)
        status = ls_error_errno(err, errno, "cannot remove %s", dir);
    return status;
}

enum ls_status ls_topo_tree_read(const char *path, const char *tmpdir,
                                 struct ls_topo_machine *machine, struct ls_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return ls_error_errno(err, errno, "%s", path);
    if (!S_ISDIR(st.st_mode))
        return read_file(path, tmpdir, machine, err);
    LS_TRY(ls_topo_read(path, machine, err));
    return LS_OK;
}
