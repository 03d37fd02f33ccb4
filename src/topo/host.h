/* What only the launcher does: reads the configuration files of NCCL and UCX from where these libraries
 * look for them. The plugins get such files' text in their own way. */
#ifndef LS_TOPO_HOST_H
#define LS_TOPO_HOST_H

#include "topo/rules.h"

enum { LS_TOPO_HOST_FILES = 5 };
/* Where NCCL and UCX look for their files, in the order of ls_topo_host_keys: returns how many paths there are
 * (those in a home folder need to know it). */
int ls_topo_host_files(ls_topo_getenv *get, void *user, char path[LS_TOPO_HOST_FILES][4096]);

/* Keys set in $NCCL_CONF_FILE or ~/.nccl.conf, /etc/nccl.conf, /etc/ucx/ucx.conf, ~/ucx.conf and ./ucx.conf:
 * a NULL-terminated list in `arena`. A file that is missing or cannot be read counts as empty, as it does for
 * the libraries. LS_ERR_NOMEM. */
enum ls_status ls_topo_host_keys(ls_topo_getenv *get, void *user, struct ls_arena *arena,
                                 const char ***names, struct ls_error *err);
/* Has UCX, as this build found it, its InfiniBand module? Looks into $UCX_MODULE_DIR, or else beside that
 * UCX's libraries, and opens nothing. UNKNOWN without such a folder. */
enum ls_topo_ucx ls_topo_host_ucx(ls_topo_getenv *get, void *user);

#endif
