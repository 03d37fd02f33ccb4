/* One keeper's state, shared by the files of this folder. */
#ifndef LS_KEEP_INTERNAL_H
#define LS_KEEP_INTERNAL_H

#include "keep/keep.h"
#include "wire/wire.h"

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
};
struct ls_keeper {
    const struct ls_keep_config *config;
    struct ls_wire_client *client; /* of the PMIx server above; closed before the workers start */
    struct ls_wire_control *control;
    struct ls_wire_server *server;
    struct ls_wire_map map;
    double began;             /* monotonic seconds */
    int me;                   /* number of this keeper */
    bool common;              /* the error with which it cannot start is that of all keepers */
    char **host;              /* [n_keepers] */
    struct ls_worker *worker; /* [config->workers] */
    int running;
    bool finished;    /* said so to the others */
    bool stopping;    /* a stop signal came to this keeper */
    bool told;        /* the workers were told to stop */
    double stop_time; /* when the first came, in monotonic seconds */
    bool killed;      /* the workers were told to die */
    /* keeper 0: what is known of the ranks */
    struct ls_record *records;
    bool *has_record;
    bool failed;
    int failed_rank, failed_keeper, failed_code;
    char failed_text[4200];
    bool done;
    int code;
};

/* start.c: finds the other keepers and starts the workers. */
enum ls_status ls_keeper_start(struct ls_keeper *k, struct ls_error *err);
/* events.c: until all keepers agree on an exit code. */
enum ls_status ls_keeper_loop(struct ls_keeper *k, int signals, struct ls_error *err);
void ls_keeper_kill(struct ls_keeper *k, int sig);

#endif
