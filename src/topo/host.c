/* Configuration files of NCCL and UCX, where these look for them (NCCL: src/misc/param.cc; UCX:
 * src/ucs/config/parser.c). */
#include "config.h"

#include "topo/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 20 };

static enum ls_status add_file(const char *path, struct ls_arena *arena, const char ***names,
                               int *count, struct ls_error *err)
{
    char *text = NULL;
    size_t size;
    const char **more;
    struct ls_error ignored = {0};
    if (ls_file_read(path, FILE_BYTES, &text, &size, &ignored) != LS_OK)
        return LS_OK;
    enum ls_status status = ls_topo_conf_keys(text, arena, &more, err);
    free(text);
    if (status != LS_OK)
        return status;
    int n = 0;
    while (more[n])
        n++;
    const char **joined = ls_arena_alloc(arena, (size_t)(*count + n + 1) * sizeof *joined);
    if (!joined)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the keys of %s", path);
    if (*count)
        memcpy(joined, *names, (size_t)*count * sizeof *joined);
    memcpy(joined + *count, more, (size_t)n * sizeof *joined);
    *names = joined;
    *count += n;
    return LS_OK;
}

int ls_topo_host_files(ls_topo_getenv *get, void *user, char path[LS_TOPO_HOST_FILES][4096])
{
    const char *home = get(user, "HOME"), *nccl = get(user, "NCCL_CONF_FILE");
    int n = 0;
    home = home && *home ? home : NULL;
    if (nccl && *nccl)
        snprintf(path[n++], sizeof path[0], "%s", nccl);
    else if (home)
        snprintf(path[n++], sizeof path[0], "%s/.nccl.conf", home);
    snprintf(path[n++], sizeof path[0], "/etc/nccl.conf");
    snprintf(path[n++], sizeof path[0], "/etc/ucx/ucx.conf");
    if (home)
        snprintf(path[n++], sizeof path[0], "%s/ucx.conf", home);
    snprintf(path[n++], sizeof path[0], "ucx.conf");
    return n;
}

enum ls_status ls_topo_host_keys(ls_topo_getenv *get, void *user, struct ls_arena *arena,
                                 const char ***names, struct ls_error *err)
{
    char path[LS_TOPO_HOST_FILES][4096];
    int count = 0, files = ls_topo_host_files(get, user, path);
    const char **none = ls_arena_alloc(arena, sizeof *none);
    if (!none)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the keys of configuration files");
    *names = none;
    for (int i = 0; i < files; i++)
        LS_TRY(add_file(path[i], arena, names, &count, err));
    return LS_OK;
}

enum ls_topo_ucx ls_topo_host_ucx(ls_topo_getenv *get, void *user)
{
    const char *dir = get(user, "UCX_MODULE_DIR");
    char path[4096];
    if (!dir || !*dir)
        dir = LS_UCX_MODULES;
    if (!*dir || access(dir, X_OK) != 0)
        return LS_TOPO_UCX_UNKNOWN;
    /* UCX takes the name with the number of its interface; who builds it for one place only may have no number. */
    snprintf(path, sizeof path, "%s/libuct_ib.so.0", dir);
    if (access(path, R_OK) == 0)
        return LS_TOPO_UCX_IB;
    snprintf(path, sizeof path, "%s/libuct_ib.so", dir);
    return access(path, R_OK) == 0 ? LS_TOPO_UCX_IB : LS_TOPO_UCX_NO_IB;
}
