/* The variables by which frameworks find their ranks: PyTorch, TensorFlow, JAX, and Open MPI's on request. */
#ifndef LS_KEEP_VARIABLES_H
#define LS_KEEP_VARIABLES_H

#include "keep/keep.h"
#include "wire/wire.h"

struct ls_keep_world {
    const struct ls_wire_map *map;
    /* Every keeper holds one port for each of its ranks, in order; keeper 0 two more, see below. */
    const struct ls_wire_rendezvous *meet;
    const char *const *host;      /* [map->n_keepers] */
    const struct ls_slurm *slurm; /* the step that the ranks are in; NULL: none */
    const char *job;
    int restarts;
    bool evaluator, ompi;
};
/* So many ports a keeper with `workers` ranks asks ls_wire_rendezvous_open for: keeper 0's ranks meet at the
 * last two, MASTER_PORT and JAX's coordinator. */
int ls_keep_ports(int keeper, int workers);
void ls_keep_place(const struct ls_keep_world *world, int rank, struct ls_keep_place *place);
/* "NAME=value" strings for `rank`, in `arena`, NULL-terminated. TF_CONFIG is left out where it would be larger
 * than the kernel takes (128 KiB): *left_out then says so. Slurm's SLURM_NTASKS, SLURM_PROCID and their like
 * are in it where a task of the step has several ranks: what counts tasks in them then counts ranks. Errors:
 * NOMEM. */
enum ls_status ls_keep_variables(const struct ls_keep_world *world, int rank,
                                 struct ls_arena *arena, char ***list, bool *left_out,
                                 struct ls_error *err);
/* Is this "NAME=value" one that ls_keep_variables sets in any case, or one of another launcher that would
 * contradict it? */
bool ls_keep_is_ours(const char *variable);
/* The names of such variables in `env`, "RANK, LOCAL_RANK"; "" if there are none. Returns `out`. */
const char *ls_keep_leftovers(char *const *env, char out[static 512]);
/* Does `list`, NULL-terminated, set the name of this "NAME=value"? */
bool ls_keep_has(char *const *list, const char *variable);

#endif
