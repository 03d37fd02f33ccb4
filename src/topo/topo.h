/* The machine as data, first half: what Slurm says about job, nodes and tasks, as lists and numbers
 * that were checked against each other. Pure functions: the environment comes through a callback,
 * messages go out as data. What is not understood is an error, never "localhost". */
#ifndef LS_TOPO_H
#define LS_TOPO_H

#include "base/base.h"

/* ---- hostlists: "n[001-003,7],login" -------------------------------------------------------------
 *
 *   list  = entry { separator entry }     separators: comma, space, tab, newline; several count as one
 *   entry = { text | "[" range { "," range } "]" }
 *   range = digits [ "-" digits ]         as many digits as the first number has: [098-101], [8-11]
 *   text  = letters, digits, '.', '_', '-', but no '-' in front
 *
 * Names come in the order of `scontrol show hostnames`, since Slurm numbers nodes by it: of several
 * brackets the last one runs fastest, then the first, the second, and so on:
 * a[1-2]b[3-4] = a1b3 a1b4 a2b3 a2b4. Text after the last bracket is taken as new versions of Slurm do.
 * Repeated names stay. Refused although some versions of Slurm read them: a bracket that is not
 * closed, "[1-]", "[+1]", boxes of multi-dimensional systems such as bgl[000x133]. */

/* Slurm itself takes at most 64 Ki numbers in a range, and no system has more nodes. */
#define LS_HOSTLIST_MAX 65536
/* Longest name in bytes; DNS allows 253. */
#define LS_HOSTLIST_NAME_MAX 255

struct ls_hostlist {
    int count; /* names */
    /* The rest belongs to hostlist.c: entries are made of parts (text, then a bracket), parts of
     * ranges. Memory grows with the text, not with the number of names. */
    char *text;
    struct ls_host_entry *entries;
    struct ls_host_part *parts;
    struct ls_host_range *ranges;
    int nentries, nparts, nranges, entries_cap, parts_cap, ranges_cap;
};

/* LS_ERR_FORMAT (position and what was expected; no names at all), LS_ERR_OVERFLOW (more than
 * LS_HOSTLIST_MAX names, or one longer than LS_HOSTLIST_NAME_MAX), LS_ERR_NOMEM. *list is empty
 * after an error. */
enum ls_status ls_hostlist_parse(const char *text, struct ls_hostlist *list, struct ls_error *err);
void ls_hostlist_free(struct ls_hostlist *list);
/* Name `index`, from 0, in `name`; returns `name`, or NULL when there is no such name. */
const char *ls_hostlist_nth(const struct ls_hostlist *list, int index,
                            char name[static LS_HOSTLIST_NAME_MAX + 1]);
/* Index of the first entry of that name, or -1. A short and a fully qualified name match when their
 * first labels do and one of them has no other. */
int ls_hostlist_find(const struct ls_hostlist *list, const char *name);
/* Adds the names, each followed by `end`. */
void ls_hostlist_expand(const struct ls_hostlist *list, char end, struct ls_buf *buf);

/* The reverse: adds the shortest list that every version of Slurm reads and that expands to exactly
 * these names in this order. Numbers at the end of neighbouring names fold, n[1-2,7], and then those
 * of one place before it, r[1-2]n[1-8]. LS_ERR_FORMAT or LS_ERR_OVERFLOW for what no list can hold. */
enum ls_status ls_hostlist_fold(const char *const *names, int count, struct ls_buf *buf,
                                struct ls_error *err);

/* ---- run lengths: "2(x3),1" is 2 2 2 1 ----------------------------------------------------------- */

/* *values is malloc'd and the caller's. LS_ERR_FORMAT with the position, LS_ERR_OVERFLOW beyond
 * LS_HOSTLIST_MAX values; each value is 1 to 65535, as in Slurm. */
enum ls_status ls_runs_parse(const char *text, int **values, int *count, struct ls_error *err);

/* ---- visible GPUs ------------------------------------------------------------------------------- */

/* CUDA_VISIBLE_DEVICES as CUDA reads it: devices after the first one that is not valid are hidden. */
struct ls_visible {
    bool set;       /* false: nothing is hidden */
    int count;      /* devices that it names; meaningless unless set */
    int *index;     /* count indices, or NULL where it holds UUIDs ("GPU-...", "MIG-...") */
    char **uuid;    /* count UUIDs, or NULL */
    char note[160]; /* what a person should know about it; empty mostly */
};
/* `text` may be NULL (unset). LS_ERR_FORMAT: not understood, or a device twice. */
enum ls_status ls_visible_parse(const char *text, struct ls_arena *arena,
                                struct ls_visible *visible, struct ls_error *err);
/* The device of a task: its own number among the tasks of its node, or device 0 where it sees just
 * one, as with --gpus-per-task. LS_ERR_ENV: none, or fewer than tasks. */
enum ls_status ls_visible_choose(int visible, int local_rank, int local_size, int *device,
                                 struct ls_error *err);

/* ---- Slurm's environment ------------------------------------------------------------------------ */

enum ls_slurm_place {
    LS_SLURM_NONE,       /* no job: a laptop, a login node */
    LS_SLURM_ALLOCATION, /* in a batch script or under salloc: nodes, but one process */
    LS_SLURM_STEP,       /* a task that srun started */
};

/* One component of a heterogeneous job. */
struct ls_slurm_component {
    int64_t job_id; /* -1: not known */
    struct ls_hostlist nodes;
    int ntasks; /* 0: not known */
};

/* Owns what it points to; ls_slurm_free. In STEP everything up to `local_id` is known and was
 * checked; in ALLOCATION the ids are -1 and ntasks may be 0 (not asked for: the launcher decides). The shell
 * of a heterogeneous salloc has no nodes but those of its components. */
struct ls_slurm {
    enum ls_slurm_place place;
    int64_t job_id, step_id;             /* -1: none */
    struct ls_hostlist nodes;            /* of the step; of the allocation outside of one */
    const char *node_name;               /* of this node; NULL on a host that is no node */
    int node_id, proc_id, local_id;      /* among nodes; among all tasks; among those of the node */
    int ntasks;                          /* of the step, over all components */
    int *tasks_per_node;                 /* nodes.count numbers; NULL: not known */
    const char *job_name;                /* NULL: unknown */
    int64_t array_job_id, array_task_id; /* -1: no array */
    int restart_count;                   /* times that the job was requeued */
    int cpus_per_task, cpus_on_node;     /* 0: not said */
    int cpus_per_node; /* ALLOCATION: the job's on every node; 0: not said, or nodes have different numbers */
    int gpus_on_node;     /* 0: none, or not said */
    const char *mpi_type; /* srun --mpi=..., "pmix" or "none"; NULL: not said */
    struct ls_visible visible;
    int ncomponents; /* 0: not heterogeneous */
    struct ls_slurm_component *components;
    int nwarnings, warnings_cap;
    char *
        *warnings; /* what is strange but harmless enough to go on: one line each, to be printed */
    struct ls_arena arena;
};

/* getenv without the global: the value of `name`, or NULL. */
typedef const char *ls_topo_getenv(void *user, const char *name);

/* What Lockstep itself (Slurm's plugin, the launcher, the worker) has set for one task, and not its user:
 * "NAME=VALUE;NAME=VALUE". */
#define LS_TOPO_SET_VARIABLE "LOCKSTEP_SET"
/* Is `variable`, "NAME=VALUE", in such a list? `set` may be NULL. */
bool ls_topo_is_set_by_us(const char *set, const char *variable);

/* Reads and cross-checks all of it. A variable that is set but empty counts as unset, except
 * CUDA_VISIBLE_DEVICES. LS_ERR_ENV: missing, not understood or contradictory, with the variables and
 * values at fault; LS_ERR_NOMEM. *slurm is empty after an error. */
enum ls_status ls_slurm_read(ls_topo_getenv *get, void *user, struct ls_slurm *slurm,
                             struct ls_error *err);
void ls_slurm_free(struct ls_slurm *slurm);

/* What PMIx says to this process; found is false where PMIx_Init had no server. */
struct ls_pmix_view {
    bool found;
    const char *nspace; /* NULL: not known */
    int rank, size, local_rank, local_size;
};
/* Do Slurm and PMIx talk of the same tasks? LS_ERR_ENV with what to type. `mpi_list` is the output of
 * `srun --mpi=list`, or NULL: with it the message can say that the site lacks the plugin. */
enum ls_status ls_slurm_check_pmix(const struct ls_slurm *slurm, const struct ls_pmix_view *pmix,
                                   const char *mpi_list, struct ls_error *err);
/* Adds a warning if the task may use fewer CPUs (its affinity mask) than were asked for. NOMEM. */
enum ls_status ls_slurm_check_cpus(struct ls_slurm *slurm, int allowed, struct ls_error *err);

#endif
