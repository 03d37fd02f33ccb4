/* Looking at checkpoints: what a directory holds, and whether one is whole. */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fill(struct ls_ckpt_info *info, enum ls_status status, struct ls_manifest *m,
                 const struct ls_error *why)
{
    info->train_loss = NAN;
    if (status != LS_OK) {
        snprintf(info->problem, sizeof info->problem, "%.*s", (int)sizeof info->problem - 1,
                 why->message);
        return;
    }
    info->complete = true;
    info->step = m->step;
    info->position = m->position;
    info->updates = m->updates;
    info->created = m->created;
    info->train_loss = m->train_loss;
    for (int i = 0; i < m->nfiles; i++)
        info->bytes += m->files[i].bytes;
    ls_manifest_free(m);
}

static enum ls_status list_in(int dirfd, const char *dir, struct ls_ckpt_info **infos, int *n,
                              struct ls_error *err)
{
    struct ls_ckpt_entry *e = NULL;
    int count = 0, out = 0;
    LS_TRY(ls_ckpt_scan(dirfd, dir, &e, &count, err));
    struct ls_ckpt_info *list = calloc((size_t)count + 1, sizeof *list);
    enum ls_status status = LS_OK;
    if (!list)
        status = ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", dir);
    for (int i = 0; i < count && status == LS_OK; i++) {
        if (e[i].kind == LS_CKPT_TEMP)
            continue;
        struct ls_ckpt_info *info = &list[out];
        info->path = malloc(strlen(dir) + strlen(e[i].name) + 2);
        if (!info->path) {
            status = ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", dir);
            break;
        }
        sprintf(info->path, "%s/%s", dir, e[i].name);
        struct ls_manifest m;
        struct ls_error why = {0};
        int fd;
        enum ls_status s = ls_ckpt_enter(dirfd, e[i].name, info->path, &fd, &why);
        if (s == LS_OK) {
            s = ls_ckpt_quick(fd, info->path, &m, &why);
            close(fd);
        }
        fill(info, s, &m, &why);
        info->step = e[i].step;
        out++;
    }
    free(e);
    if (status != LS_OK) {
        ls_ckpt_infos_free(list, out);
        return status;
    }
    *infos = list;
    *n = out;
    return LS_OK;
}

enum ls_status ls_ckpt_list(const char *dir, struct ls_ckpt_info **infos, int *n,
                            struct ls_error *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ls_error_errno(err, errno, "opening checkpoint directory %s", dir);
    enum ls_status status = list_in(fd, dir, infos, n, err);
    close(fd);
    return status;
}

void ls_ckpt_infos_free(struct ls_ckpt_info *infos, int n)
{
    for (int i = 0; i < n; i++)
        free(infos[i].path);
    free(infos);
}

enum ls_status ls_ckpt_verify(const char *path, struct ls_ckpt_info *info, struct ls_error *err)
{
    struct ls_manifest m = {0};
    struct ls_error why = {0};
    int fd;
    enum ls_status status = ls_ckpt_enter(AT_FDCWD, path, path, &fd, &why);
    if (status == LS_OK) {
        status = ls_ckpt_full(fd, path, &m, &why);
        close(fd);
    }
    if (info) {
        *info = (struct ls_ckpt_info){.path = strdup(path)};
        fill(info, status, &m, &why);
        if (!info->path) {
            *info = (struct ls_ckpt_info){0};
            return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
        }
    } else if (status == LS_OK) {
        ls_manifest_free(&m);
    }
    return status == LS_OK ? LS_OK : ls_error_set(err, status, "%s", why.message);
}
