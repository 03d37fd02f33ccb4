/* The keeper: starts the workers of one task, keeps their records, ends them together. It knows no model,
 * no device and opens no communicator; it speaks PMIx upwards (to find the other keepers) and downwards (as the
 * server of its workers), and the control channel sideways.
 *
 *   plan (who am I, how many workers) --> spawn --> events: exit, record, failure, stop --> exit code
 */
#ifndef LS_KEEP_H
#define LS_KEEP_H

#include "base/base.h"
#include "topo/rules.h"
#include "topo/topo.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>

/* ---- completion records ---- */

/* What a worker leaves behind when it ends; without one it did not succeed, whatever its exit status. */
struct ls_record {
    enum ls_status status;
    int code;           /* exit code of the job as this worker sees it */
    int64_t steps;      /* finished */
    int suspect;        /* 1 + the rank for which it waited in vain; 0: none */
    char message[1024]; /* of the error; empty on success */
};
/* The code of a rank that has saved, and wants to be started again. */
enum { LS_KEEP_REQUEUE = 75 };
/* Text of a record, at most LS_RECORD_MAX bytes with its NUL; returns the length without it. */
#define LS_RECORD_MAX 1400
size_t ls_record_write(const struct ls_record *record, char text[static LS_RECORD_MAX]);
/* False: not a record, or not a whole one. Never trusts `text` (it need not end with NUL). */
bool ls_record_read(const char *text, size_t n, struct ls_record *record);
/* How a keeper passes a signal on to its workers: this one, with the number as its value. */
#define LS_KEEP_SIGNAL SIGRTMIN
/* The descriptor for the record, by number, in the worker's environment. */
#define LS_RECORD_FD_VARIABLE "LOCKSTEP_RECORD_FD"
/* The descriptor of the memory in which it shows what it does (struct ls_comm_window). */
#define LS_KEEP_WINDOW_VARIABLE "LOCKSTEP_WINDOW_FD"
/* When its keeper began to look for the others: seconds of the monotonic clock. */
#define LS_KEEP_BEGAN_VARIABLE "LOCKSTEP_BEGAN"

/* ---- signals ---- */

/* What was asked for until now; zero at first. */
struct ls_stop {
    int sig;     /* 0: nothing */
    double time; /* when, in monotonic seconds */
};
enum ls_stop_meaning {
    LS_STOP_KNOWN,   /* nothing new */
    LS_STOP_WISH,    /* save and end, with this signal */
    LS_STOP_AT_ONCE, /* do not even save */
};
/* The meaning of `sig`, which came at `now`: SIGUSR1 asks to save and to come back, every other signal to save and
 * to end for good. That outweighs SIGUSR1, before and behind it; a second one of those means at once. A handler
 * may call it. */
enum ls_stop_meaning ls_stop_hear(struct ls_stop *stop, int sig, double now);

/* ---- which CPUs for which worker ---- */

/* Where a CPU is; package and core number as the kernel gives them. */
struct ls_keep_cpu {
    int cpu, package, core;
};
/* Reads `<root>/sys/devices/system/cpu/cpuN/topology` for every CPU of `mask`; a CPU that has no such
 * files is a core of its own. *cpus is malloc'd, sorted by package, core, number. */
enum ls_status ls_keep_cpus(const char *root, const cpu_set_t *mask, struct ls_keep_cpu **cpus,
                            int *n, struct ls_error *err);
/* Splits sorted CPUs into `workers` runs of whole cores that differ by at most one core. Fewer cores than
 * workers: every worker gets all CPUs, and the return value is false: they are not bound. */
bool ls_keep_split(const struct ls_keep_cpu *cpus, int n, int workers, int worker, cpu_set_t *mask);
/* How many cores of the sorted CPUs are in `mask`, in whole or in part. */
int ls_keep_cores(const struct ls_keep_cpu *cpus, int n, const cpu_set_t *mask);
/* "0-3,8" */
const char *ls_keep_format_cpus(const cpu_set_t *mask, char out[static 128]);

/* ---- where a rank is ---- */

struct ls_keep_place {
    int rank, size, local_rank, local_size, node, n_nodes; /* local: among the ranks of its node */
    const char *host, *job;
};

/* The file for a rank's output. In `pattern` %r is the rank, %l the local rank, %h the host, %j the job, %s
 * `stream` ("out" or "err"), %% a percent sign. False: something else behind a percent sign, or too long. */
enum { LS_KEEP_PATH = 4096 };
bool ls_keep_output_path(const char *pattern, const struct ls_keep_place *place, const char *stream,
                         char out[static LS_KEEP_PATH]);
/* Is it a pattern that gives every rank a file of its own? LS_ERR_USAGE. */
enum ls_status ls_keep_output_check(const char *pattern, struct ls_error *err);

/* ---- the run ---- */

/* Ranks that are programs of any kind, and not our workers: they leave no records, so that success is exit
 * status 0 of every rank; they find each other by variables (variables.h); what they print is read by us. */
struct ls_keep_programs {
    const char *job;    /* names the run */
    int restarts;       /* of the job */
    bool evaluator;     /* the last rank is TensorFlow's evaluator */
    bool ompi;          /* set Open MPI's variables, too */
    bool label;         /* put "[rank@host] " in front of lines */
    const char *output; /* pattern of files; NULL: our own standard output and error */
    double timeout;     /* seconds until everyone is ended; 0: none */
    const struct ls_visible *visible; /* GPUs; NULL: not known */
    const struct ls_slurm *slurm;     /* the step that the ranks are in; NULL: none */
};

/* What `signals` yields: the signal's number, and what is known of who has it already. */
enum {
    LS_KEEP_SIGNAL_MASK = 63,
    LS_KEEP_AT_TERMINAL = 64, /* everyone in the terminal's foreground group */
    LS_KEEP_AT_RANKS = 128,   /* all ranks */
};

struct ls_keep_config {
    const char *program;                     /* of the worker; looked up in PATH for programs */
    char *const *argv;                       /* its arguments, NULL-terminated */
    const struct ls_keep_programs *programs; /* NULL: ranks are our workers */
    int workers;                             /* of this keeper, at least 1; 0 with a refusal */
    /* This task cannot take part: its keeper only tells the others why, so that all end at once with
     * this error instead of waiting for it. NULL: it can. */
    const struct ls_error *refusal;
    /* The check before: "off", "fast" or "full", which all tasks must have alike; "" in a refusal from before that was
     * known. A refusal because of its result (`unfit`) counts last: what another task says is then the cause. */
    const char *check;
    bool unfit;
    /* What ls_topo_decide is to be asked for each rank, but for ranks and sizes, which the keeper knows: its CPUs
     * and variables. NULL: not asked; Slurm's plugin has done it. `get` must not yield what LOCKSTEP_SET lists. */
    const struct ls_topo_request *rules;
    /* The machine as Slurm's plugin saw it, which has decided for this task and printed what there is to warn of;
     * NULL: nobody has. */
    const struct ls_topo_machine *told;
    bool explain;     /* print what was decided for the ranks of the first node, and why */
    bool bind;        /* bind workers to CPUs */
    const char *host; /* name of this node for messages; NULL: gethostname */
    /* The step whose PMIx server knows the other keepers; NULL: this keeper is alone. */
    const struct ls_slurm *step;
    bool follows; /* another program was PMIx client of this task before: the check */
    /* Set to 1 once the keepers have met. Until then nothing has to be ended or cleaned up, nobody looks at
     * signals, and whoever receives one may end this process; where that is a task, Slurm ends the step. */
    volatile sig_atomic_t *begun; /* may be NULL */
    const char *tmpdir;
    FILE *out;  /* layout, and the failure that ended the run, named last */
    bool quiet; /* no layout */
};
/* Runs the job to its end; *code is the exit code that all keepers agree on: for programs the status of the
 * first rank that failed, 128 + N for a signal, 124 after the timeout, 125 if a keeper failed, 126 or 127 for
 * a program that cannot be started. `signals` is a descriptor that yields one byte for each signal. Errors
 * (before anything was started, or of the keeper itself) leave *code alone; the message is empty where keeper
 * 0 has the same error, and tells it. */
enum ls_status ls_keep_run(const struct ls_keep_config *config, int signals, int *code,
                           struct ls_error *err);

#endif
