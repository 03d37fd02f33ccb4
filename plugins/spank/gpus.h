/* "[type:]N", the GPUs that a job wants on each of its nodes: one reader for the SPANK plugin and for
 * job_submit. */
#ifndef LS_SPANK_GPUS_H
#define LS_SPANK_GPUS_H

#include "base/base.h"

/* More GPUs than any node has; a larger number is a typing error. As LS_TOPO_GPUS. */
#define LS_GPUS_MAX 32

struct ls_gpus {
    char type[64]; /* as in gres.conf, "a100"; "" where any will do */
    int count;     /* 1 to LS_GPUS_MAX */
};

/* LS_ERR_USAGE: what was found, what was expected. *gpus is zero after an error. */
enum ls_status ls_gpus_parse(const char *text, struct ls_gpus *gpus, struct ls_error *err);
/* GPUs that a list of Slurm names, "0,1,3" or "0-3,7" or UUIDs; 0 for NULL, "" and "NoDevFiles", which old
 * versions of Slurm set where there are none. */
int ls_gpus_listed(const char *list);

#endif
