/* The preflight: what can be wrong with a node, a network or a job, found before a GPU hour is lost.
 *
 *   task of a step (no PMIx, no thread: it can always end and print)
 *     |-- one child for each check of this task or node; killed at its deadline
 *     `-- one child that meets the other tasks by PMIx and does the checks between nodes
 *   local answers ---> everyone has everyone's ---> compared by the same pure functions ---> verdict
 *
 * A check says what it measured, what it expected and what to do; one that did not run is never a pass.
 * Nothing here prints. */
#ifndef LS_CHECK_H
#define LS_CHECK_H

#include "base/base.h"
#include "job/job.h"
#include "topo/machine.h"
#include "topo/rules.h"
#include "topo/topo.h"

enum ls_check_status {
    LS_CHECK_PASS,
    LS_CHECK_SKIP,    /* could not run, or has no meaning here; `measured` is the reason */
    LS_CHECK_WARN,    /* the job will run, perhaps slowly, or something else may trip over it */
    LS_CHECK_TIMEOUT, /* no answer before its deadline */
    LS_CHECK_FAIL
};
extern const char *const ls_check_status_names[]; /* "pass", ... */

/* ---- results ---- */

struct ls_check_result {
    const struct ls_check *check;
    enum ls_check_status status;
    int rank; /* of the task that says so; -1: of the whole job */
    /* Never NULL; in the arena of the list. `device` names a part of the node ("mlx5_0"), or is "". */
    const char *device, *measured, *expected, *advice;
};
struct ls_check_list {
    struct ls_check_result *result;
    int n, cap;
    bool failed; /* memory was short: the list is not complete, and no verdict can be given */
    struct ls_arena arena;
};
void ls_check_list_free(struct ls_check_list *list);
/* Adds one; the texts are copied. */
void ls_check_add(struct ls_check_list *list, const struct ls_check *check,
                  enum ls_check_status status, int rank, const char *device, const char *measured,
                  const char *expected, const char *advice);

/* ---- what a check sees ---- */

struct ls_check_context {
    bool full;         /* --full: also what takes longer */
    const char *root;  /* in front of /sys and /proc: "" */
    const char *nvml;  /* path of NVIDIA's management library; NULL: the one of the system */
    const char *verbs; /* likewise of libibverbs */
    const char *cuda;  /* likewise of CUDA's driver */
    ls_topo_getenv *get;
    void *user;
    char *const *environ;
    const struct ls_slurm *slurm;          /* place NONE where it could not be read: */
    const char *slurm_problem;             /* why, or NULL */
    const struct ls_topo_machine *machine; /* NULL: could not be read: */
    const char *machine_problem;           /* why */
    bool machine_late;                     /* it gave no answer in time */
    const struct ls_topo_site *site;       /* NULL: the site says nothing, or cannot be read: */
    const char *site_problem;              /* why, or NULL */
    const char *job_path;                  /* NULL: only the machine is checked */
    const struct ls_job *job;              /* NULL also where it could not be read: */
    const char *job_problem;               /* why */
    bool job_late;                         /* its file system gave no answer in time */
    int workers;                           /* ranks that `lockstep run` will start in each task */
    const char *plugin_dir;
    const char *const *program; /* files that must be the same on all nodes; NULL-terminated */
    const char *out_dir;        /* where output goes: the job's checkpoint directory, or "." */
    const char *host;           /* this node's name, for messages */
    bool pmix;                  /* a PMIx server started this task */
    int rank, size, local_rank, local_size, nodes; /* as Slurm says; 0, 1, 0, 1, 1 alone */
};

/* What the local half of a check says, on its way to the parent. */
struct ls_check_out {
    const struct ls_check *check;
    struct ls_buf text;
    int fd; /* to the parent; -1: the text is only kept (unit tests) */
};
/* One result; `measured` (the reason, of a skip) may be printf's. A check may say several. */
void ls_check_say(struct ls_check_out *out, enum ls_check_status status, const char *device,
                  const char *expected, const char *advice, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* What other nodes are to compare, at most one text per task and check. */
void ls_check_fact(struct ls_check_out *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The first half is done: sends what was said, and waits until all nodes have got there. The second
 * time it waits until all second halves are done. False: do not go on, only clean up. */
bool ls_check_next(struct ls_check_out *out);

/* What the comparing half sees: facts[r] of rank r, NULL where it gave none. */
struct ls_check_world {
    int size;
    const char *const *host; /* [size] */
    const int *node;         /* [size] node number of every rank */
    const char **fact;       /* [size] of the check at hand */
};

/* ---- the table ---- */

enum ls_check_need { /* where one is not met, the check is skipped, and says so */
                     LS_CHECK_NEEDS_SLURM = 1,
                     LS_CHECK_NEEDS_GPU = 2,   /* a GPU here, or one that Slurm granted */
                     LS_CHECK_NEEDS_RDMA = 4,  /* a verbs device */
                     LS_CHECK_NEEDS_NODES = 8, /* more than one */
                     LS_CHECK_NEEDS_JOB = 16   /* a job description; without one it is not listed */
};
struct ls_check {
    const char *id, *summary;
    unsigned needs;
    bool every_task; /* local half in every task, otherwise in the first one of each node */
    bool halves;     /* goes on, after ls_check_next, once all nodes have finished the first half */
    bool late;       /* and, in its second half, sees what the checks between the nodes did */
    double deadline; /* seconds for each half */
    const char *remedy; /* what to do where nodes differ; NULL: the comparison knows */
    void (*local)(struct ls_check_out *out, const struct ls_check_context *context);
    /* Pure; every rank comes to the same list. After a comparison that finds nothing, it adds the pass. */
    void (*compare)(const struct ls_check *check, const struct ls_check_world *world,
                    struct ls_check_list *list);
    /* Neither: done between the nodes, by meet.c. */
};
extern const struct ls_check ls_checks[];
extern const int ls_nchecks;
const struct ls_check *ls_check_find(const char *id);
/* Why the check does not run here, or NULL. */
const char *ls_check_unmet(const struct ls_check *check, const struct ls_check_context *context);

/* ---- running them ---- */

struct ls_check_report {
    struct ls_check_list list;
    int size, nodes;
    const char **host; /* [size], in the list's arena: the node of every rank */
    int *node;         /* [size], likewise: its number */
    double seconds;
    /* What kept this task until its deadline, between the nodes: "coll.smoke: opening UCX"; NULL: nothing did. The
     * result of that check says so, too. */
    const char *stuck;
    int first; /* the lowest rank that is not missing: 0, unless its task has not come to the others */
    int meet; /* process id of the child between the nodes; 0: it has ended */
};
/* Runs all checks of the table; in a step with PMIx this is collective, and every rank gets the same
 * report unless something between the nodes hangs. Ends within `deadline` seconds, whatever the checks
 * do. Forks: not while other threads run; ignore SIGPIPE. Errors: of this process itself (fork,
 * memory). */
enum ls_status ls_check_run(const struct ls_check_context *context, double deadline,
                            struct ls_check_report *report, struct ls_error *err);
/* Ends what still runs between the nodes, and frees. After the report was printed: under Slurm, a PMIx client that is
 * killed takes its step with it. */
void ls_check_report_free(struct ls_check_report *report);

/* Worst status, and how often each was found. */
struct ls_check_verdict {
    int count[LS_CHECK_FAIL + 1];
    enum ls_check_status worst;
    bool environment; /* what failed makes any run impossible: env.pmix, env.slurm */
};
void ls_check_judge(const struct ls_check_list *list, struct ls_check_verdict *verdict);
/* The nodes to leave out, as a host list for --exclude: those with a failure or timeout of their own, if
 * they are not all. "" if none. Owned by `arena`. */
const char *ls_check_exclude(const struct ls_check_report *report, struct ls_arena *arena);
/* Results that differ only in their rank belong together: group[i] is the index of the first one. */
void ls_check_group(const struct ls_check_list *list, int *group);

#endif
