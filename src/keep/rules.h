/* What the rules of src/topo say for the ranks of one keeper. Pure, apart from the keeper's own state. */
#ifndef LS_KEEP_RULES_H
#define LS_KEEP_RULES_H

#include "topo/rules.h"
#include "wire/wire.h"

/* The decision for `rank`, as ls_topo_decide makes it with rank and sizes by `map`. What Slurm says of a task's
 * CPUs is not taken for that of one rank where a task has several. */
enum ls_status ls_keep_decide(const struct ls_topo_request *rules, const struct ls_wire_map *map,
                              int rank, struct ls_arena *arena, struct ls_topo_decision *decision,
                              struct ls_error *err);
/* Puts what was decided into `env`, "NAME=VALUE" each, *n of them, with room for decision->nvariable + 1 more;
 * what LOCKSTEP_SET lists there is ours, and goes; everything else stays. LOCKSTEP_SET then lists what is set
 * now. False: no memory. */
bool ls_keep_set_decided(const struct ls_topo_decision *decision, struct ls_arena *arena,
                         char **env, int *n);

#endif
