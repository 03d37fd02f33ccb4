/* The ranks of a run, and what the loop asks of them beyond the program's own collectives. */
#ifndef LS_TRAIN_RANKS_H
#define LS_TRAIN_RANKS_H

#include "base/base.h"
#include "comm/comm.h"
#include "graph/graph.h"

/* One rank has neither world nor group. Owned by who met the others (the worker). */
struct ls_ranks {
    int rank, size;
    char **host;      /* [size]; NULL with one rank */
    double bootstrap; /* seconds from the first PMIx call to communicators that are ready */
    struct ls_comm_world *world;
    struct ls_comm *data; /* all ranks */
    double seconds;       /* spent so far in the program's collectives: starting, moving, waiting */
};

/* How the program's collectives run: on the group `data`. `comm` borrows `ranks`. */
void ls_ranks_exec_comm(struct ls_ranks *ranks, struct ls_exec_comm *comm);
/* Rank `root`'s bytes to everyone. */
enum ls_status ls_ranks_broadcast(struct ls_ranks *ranks, void *data, int64_t bytes, int root,
                                  struct ls_error *err);
/* Slices of `bytes` each, a multiple of 4: rank r's is the r-th of rank 0's `data`, and all of `data` on
 * every other rank. Sends each to its rank, or with `collect` brings them all to rank 0. */
enum ls_status ls_ranks_deal(struct ls_ranks *ranks, void *data, int64_t bytes, bool collect,
                             struct ls_error *err);
/* Sums `n` (at most 8) doubles over all ranks. */
enum ls_status ls_ranks_sum(struct ls_ranks *ranks, double *values, int n, struct ls_error *err);
/* What a communicator's function returned: an IO of its own means that a peer has gone, which makes this rank's error
 * ABORTED: the consequence of another one, that whoever watches over the peer can name. */
enum ls_status ls_ranks_heard(enum ls_status status, struct ls_error *err);
/* Everyone tells how it fared; all return an error if one failed: that one its own (already in err), the
 * others ABORTED. */
enum ls_status ls_ranks_agree(struct ls_ranks *ranks, enum ls_status mine, struct ls_error *err);
/* What this rank does now, for the messages of the others. */
void ls_ranks_activity(struct ls_ranks *ranks, enum ls_comm_activity activity);

#endif
