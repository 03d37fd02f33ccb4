/* One keeper's state, shared by the files of this folder. */
#ifndef LS_KEEP_INTERNAL_H
#define LS_KEEP_INTERNAL_H

#include "comm/comm.h"
#include "keep/keep.h"
#include "keep/output.h"
#include "keep/variables.h"

#include <sys/types.h>

struct ls_worker {
    int rank;
    pid_t pid;     /* 0: has ended and was reaped */
    int pidfd;     /* readable when it ends; -1 */
    int record_fd; /* -1 once it was read to the end */
    char record[LS_RECORD_MAX];
    size_t nrecord;
    bool bound;
    cpu_set_t cpus;
    int cores;                     /* of `cpus`, this rank's share if it is not bound */
    bool in_group;                 /* a program in a process group of its own */
    struct ls_comm_window *window; /* where our own worker shows what it does; NULL: it does not */
    int window_fd;                 /* until it has started; -1 */
};

struct ls_keeper;
/* What differs between our own workers and programs of any kind. */
struct ls_keep_kind {
    /* The child's environment, in `arena`; `fd` is the descriptor for its record. */
    enum ls_status (*env)(struct ls_keeper *k, struct ls_worker *w, int fd, struct ls_arena *arena,
                          char ***env, struct ls_error *err);
    /* Starts it with these; `fd` is closed by the caller. */
    enum ls_status (*start)(struct ls_keeper *k, struct ls_worker *w, int fd, char **env,
                            struct ls_error *err);
    /* It has ended with `status`, as wait() gives it: makes up a record where none was left. True: this is
     * a failure that ends the others; *echo: but probably the consequence of another one. */
    bool (*judge)(struct ls_keeper *k, struct ls_worker *w, int status, struct ls_record *record,
                  bool *echo);
    /* A signal, to all ranks here; `nth` of its kind that the keeper which asks has heard, from 1. */
    void (*pass_on)(struct ls_keeper *k, int sig, int nth);
    bool (*is_stop)(int sig); /* a second one of these ends everyone at once */
    int broken;               /* exit code where a keeper failed */
    int late;                 /* and where not all of them came */
};
extern const struct ls_keep_kind ls_keep_worker_kind, ls_keep_program_kind;

struct ls_keeper {
    const struct ls_keep_kind *kind;
    const struct ls_keep_config *config;
    struct ls_wire_teller teller;
    struct ls_wire_client *client; /* of the PMIx server above; closed before the workers start */
    bool rolled;                   /* ls_wire_roll_end is to follow */
    struct ls_wire_control *control;
    struct ls_wire_server *server;
    struct ls_wire_map map;
    double began; /* in monotonic seconds; a timeout counts from here */
    int me;       /* number of this keeper */
    bool common;  /* the error with which it cannot start is that of all keepers */
    char **host;  /* [n_keepers] */
    /* Programs only: */
    struct ls_wire_rendezvous *meet;
    struct ls_output *output;
    struct ls_keep_place *place; /* [config->workers] */
    double passed[65];           /* when each signal was last passed on; 0: never */
    int asked[65];               /* how often this keeper asked that each be passed on */
    int answered[65];            /* the largest such number, of any keeper, that was */
    bool ending;                 /* one of them asks to end: ranks may take their time */
    int at_terminal;             /* this signal has reached the terminal's group already */
    double kill_due;             /* ranks that were asked to end are killed then; 0: none were */
    bool hurry;                  /* do not wait for whoever reads what ranks print */
    /* All: */
    struct ls_worker *worker;          /* [config->workers] */
    struct ls_topo_decision *decision; /* [config->workers]; NULL: no rules */
    struct ls_arena arena;             /* of the decisions */
    int running;
    bool finished;       /* said so to the others */
    struct ls_stop stop; /* the stop signals that came to this keeper */
    struct ls_stop told; /* those that our own workers were told of */
    bool killed;         /* the workers were told to die */
    /* keeper 0: what is known of the ranks */
    struct ls_record *records;
    bool *has_record;
    bool failed;
    int failed_rank, failed_keeper, failed_code;
    char failed_text[4200];
    bool done;
    int code;
};

/* Text for a rank that died of a signal. */
void ls_keep_describe_signal(int sig, char out[static 160]);
/* window.c: what a rank of this keeper does, in words, and on a line of its own whether its process does not run. */
enum ls_status ls_keep_open_window(struct ls_worker *w, struct ls_error *err);
void ls_keep_close_window(struct ls_worker *w);
void ls_keep_describe_rank(const struct ls_worker *w, char out[static 200]);
/* start.c: finds the other keepers and starts the workers. */
enum ls_status ls_keeper_start(struct ls_keeper *k, struct ls_error *err);
/* events.c: until all keepers agree on an exit code. */
enum ls_status ls_keeper_loop(struct ls_keeper *k, int signals, struct ls_error *err);
void ls_keeper_kill(struct ls_keeper *k, int sig);
void ls_keeper_leave_slurm(struct ls_keeper *k); /* its PMIx; may be called twice. start.c */
/* rules.c: once the ranks' places are known: what is decided for each; no more threads than its share of the CPUs
 * (false: no memory); and what a person should know of all that. */
enum ls_status ls_keep_apply_rules(struct ls_keeper *k, struct ls_error *err);
bool ls_keep_limit_threads(struct ls_keeper *k, const struct ls_worker *w);
void ls_keep_say_rules(struct ls_keeper *k);
/* program.c: after the ranks' places are known, before they start; and how to end them. */
enum ls_status ls_keep_prepare_programs(struct ls_keeper *k, struct ls_error *err);
void ls_keep_end_programs(struct ls_keeper *k, bool at_once);

#endif
