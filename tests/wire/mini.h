/* The smallest keeper and the smallest worker: how the room's parts are meant to be put together,
 * without a training run. Used by test_server (keepers forked here) and by mini_keeper (keepers
 * under srun). */
#ifndef TESTS_WIRE_MINI_H
#define TESTS_WIRE_MINI_H

#include "wire/wire.h"

enum { MINI_MAX = 64 };

/* What a worker does after it has opened its client; MINI_MODE in its environment.
 *   exchange  a few exchanges, checked
 *   kill      the victim dies by SIGKILL while the others wait in an exchange
 *   abort     the victim calls ls_wire_client_abort
 *   early     the victim dies before it opens
 *   absent    asks for what nobody has published
 *   hang      the victim stands still until it is killed
 *   twice     exchange; the victim dies, a new process takes its rank; all boot into generation 2
 */
struct mini_report {
    int exit[MINI_MAX]; /* by rank: exit code, or 128 + signal */
    int ready[MINI_MAX], left[MINI_MAX], lost[MINI_MAX], aborted[MINI_MAX]; /* events counted */
    int records;                                                            /* at keeper 0 */
    int failures, fail_rank;
    char text[1024];
    double boot; /* seconds from opening the server to the last worker's exit, newest generation */
};

struct mini_config {
    int keeper, n_keepers;
    const int *node;         /* [n_keepers] */
    const int *workers;      /* [n_keepers] */
    const char *const *host; /* [n_keepers] */
    /* Already open, and then there is one generation; or NULL and a way to open one for each. */
    struct ls_wire_control *control;
    ls_wire_exchange_fn *exchange;
    void *arg;
    const char *tmpdir, *mode, *program; /* program: run with the argument "worker" */
    int victim;                          /* a rank, or -1 */
    int generations;
    struct mini_report *report;
};
/* Returns the exit code on which the keepers agree, or 100 + a status. */
int mini_keep(const struct mini_config *config);
/* 0; 3: an exchange was given up, as it should be; 5: something is wrong, said on stderr. */
int mini_work(void);

#endif
