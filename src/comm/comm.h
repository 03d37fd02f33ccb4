/* Communicators over groups of ranks, on host memory: shared memory inside a node, UCX between nodes.
 *
 *   config --> world --+-- group "data" [0 2 4 6] --> all-reduce, all-gather, ... started in one static
 *                      +-- group "..."                order, progressed between ops, waited for later
 *              world --+-- alloc: memory that the ranks of a node share, for communicated arenas
 *
 * There is no progress thread: ls_comm_progress is called between ops, and by every wait. Every wait
 * polls the abort word and has a deadline that ends in a named error. The same layout of ranks on
 * nodes gives bit-equal sums, and all ranks of a group get the same bits. */
#ifndef LS_COMM_H
#define LS_COMM_H

#include "base/base.h"

#include <stdatomic.h>

/* ---- the world ---- */

/* All-gathers small blobs (a few KiB at most) between all ranks: PMIx in real life, pipes in tests.
 * Sets *all to `size` pointers into memory that stays valid until the next call, *bytes to their
 * lengths. */
typedef enum ls_status ls_comm_exchange_fn(void *arg, const void *mine, size_t n,
                                           const void *const **all, const size_t **bytes,
                                           struct ls_error *err);

struct ls_comm_window;
struct ls_comm_config {
    int rank, size;
    const int *node;         /* [size]: node number of every rank; ranks of one node share memory */
    const char *const *host; /* [size]: node name of every rank, for messages */
    ls_comm_exchange_fn *exchange;
    void *arg;
    double deadline;         /* seconds that a wait may last; > 0 */
    double connect_deadline; /* seconds for a connection between nodes; 3 is usual */
    /* Every node meets every other one when the world opens, as "exchange" needs it (ls_comm_choose). False: beyond 8
     * nodes only those meet that the other algorithms need. */
    bool all_meet;
    /* Has the user set this environment variable? UCX_* settings that he made are left alone. May be
     * NULL: none. */
    bool (*is_set)(const char *name);
    struct ls_comm_window *window; /* kept up to date until close; NULL: nobody looks */
};
struct ls_comm_world;
/* Collective. Creates and passes the node's shared memory (memfd over Unix sockets: nothing is left
 * behind by SIGKILL), connects nodes by UCX (only where there are several). Errors: ENV, naming the
 * rank and host that cannot be reached; TIMEOUT. */
enum ls_status ls_comm_open(const struct ls_comm_config *config, struct ls_comm_world **world,
                            struct ls_error *err);
void ls_comm_close(struct ls_comm_world *world); /* local: never waits for a peer that is gone */

/* Memory shared with the ranks of this node, for buffers that collectives read out of each other:
 * collective over the node's ranks, same sizes in the same order; zeroed, 64-byte aligned (2 MiB from
 * 2 MiB on), page-touched by its owner. Buffers outside work too, at the price of a copy. */
enum ls_status ls_comm_alloc(struct ls_comm_world *world, int64_t bytes, void **mem,
                             struct ls_error *err);

/* What a rank does, readable by its node's peers: the text of a named error. */
enum ls_comm_activity {
    LS_COMM_STARTING,
    LS_COMM_COMPUTE,
    LS_COMM_DATA_WAIT,
    LS_COMM_SAVING,
    LS_COMM_COLLECTIVE,
    LS_COMM_DONE
};
void ls_comm_activity(struct ls_comm_world *world, enum ls_comm_activity activity);

/* The same for a process that is no rank and shares this memory with one, such as its keeper: written by the rank,
 * never trusted by the reader. Zeroed memory says "starting". */
struct ls_comm_window {
    _Atomic uint64_t sequence; /* the collective started last ... */
    _Atomic uint32_t activity; /* enum ls_comm_activity */
    char group[48];            /* ... of this group */
};
/* "it is in data wait", "it is in collective 817 of group data"; "" for a number that is no activity. Returns `out`.
 * Links only choose.c's library. */
const char *ls_comm_activity_text(uint32_t activity, uint64_t sequence, const char *group,
                                  char out[static 128]);
/* The rank that a wait has named because its time was over; -1: none has. How its process is, its keeper knows, and what
 * it does, where it is on another node. */
int ls_comm_suspect(const struct ls_comm_world *world);
/* Sets the abort word of this node's ranks: every wait of theirs ends at once with `reason`. The
 * nodes that this rank talks to are told, too, as far as that goes without waiting. */
void ls_comm_abort(struct ls_comm_world *world, const char *reason);

/* ---- groups and collectives ---- */

enum ls_comm_type { LS_COMM_F32, LS_COMM_BF16, LS_COMM_F16, LS_COMM_I32, LS_COMM_U64, LS_COMM_F64 };
enum ls_comm_op { LS_COMM_SUM, LS_COMM_MAX, LS_COMM_MIN, LS_COMM_AVG };
enum ls_comm_kind {
    LS_COMM_ALL_REDUCE,
    LS_COMM_REDUCE_SCATTER,
    LS_COMM_ALL_GATHER,
    LS_COMM_BROADCAST,
    LS_COMM_SEND,
    LS_COMM_RECV,
};

struct ls_comm;
/* Collective over the world's ranks listed in `rank` [n], ascending; the others do not call. */
enum ls_status ls_comm_group(struct ls_comm_world *world, const char *name, const int *rank, int n,
                             struct ls_comm **comm, struct ls_error *err);
void ls_comm_group_close(struct ls_comm *comm);

/* Start a collective and return; `in` and `out` may be the same for all-reduce and for broadcast, and
 * `in` of all-gather may be its own place in `out`, `out` of reduce-scatter its own place in `in`. They belong to the collective until it was waited
 * for. Requests of a group run in the order in which they were started; every rank starts the same
 * ones. Sums of bf16 and f16 are kept in f32 and rounded once; those of i32 and u64 wrap around; avg of
 * integers rounds towards 0; max and min give NaN where one operand is NaN. A count of 0 is fine.
 *
 *   all_reduce      in, out [count]
 *   reduce_scatter  in [count * n], out [count]: slice i goes to member i; f32: *squares (may be NULL)
 *                   becomes the sum of the squares of `out`, made on the way
 *   all_gather      in [count], out [count * n]
 *   broadcast       buf [count] of member `root` (an index into the group)
 *   send, recv      buf [count]; the k-th send to a member meets its k-th recv from there, whatever
 *                   collectives run beside them; `to` and `from` are indices into the group
 *
 * Errors of a start: USAGE (counts, roots), NOMEM, or the error after which the world is closed. */
struct ls_comm_request; /* owned by the group; valid until waited for */
enum ls_status ls_comm_all_reduce(struct ls_comm *c, const void *in, void *out, int64_t count,
                                  enum ls_comm_type type, enum ls_comm_op op,
                                  struct ls_comm_request **req, struct ls_error *err);
enum ls_status ls_comm_reduce_scatter(struct ls_comm *c, const void *in, void *out, int64_t count,
                                      enum ls_comm_type type, enum ls_comm_op op, double *squares,
                                      struct ls_comm_request **req, struct ls_error *err);
enum ls_status ls_comm_all_gather(struct ls_comm *c, const void *in, void *out, int64_t count,
                                  enum ls_comm_type type, struct ls_comm_request **req,
                                  struct ls_error *err);
enum ls_status ls_comm_broadcast(struct ls_comm *c, void *buf, int64_t count,
                                 enum ls_comm_type type, int root, struct ls_comm_request **req,
                                 struct ls_error *err);
enum ls_status ls_comm_send(struct ls_comm *c, const void *buf, int64_t count,
                            enum ls_comm_type type, int to, struct ls_comm_request **req,
                            struct ls_error *err);
enum ls_status ls_comm_recv(struct ls_comm *c, void *buf, int64_t count, enum ls_comm_type type,
                            int from, struct ls_comm_request **req, struct ls_error *err);
/* Waits until all members have entered; no request. */
enum ls_status ls_comm_barrier(struct ls_comm *c, struct ls_error *err);

/* Moves what can be moved without waiting; cheap when nothing is under way. */
void ls_comm_progress(struct ls_comm_world *world);
/* Errors: TIMEOUT ("all-reduce 817 of group data: rank 2 on n1 has not arrived after 30 s; it is in
 * data wait": nothing has moved for that long), ABORTED (the reason of ls_comm_abort, or the error of
 * the rank that failed first), IO (a process has ended, a connection broke), INTERNAL (ranks started
 * different collectives), NOMEM. An error sets the abort word, so that the others end with the same
 * cause; the world can then only be closed. */
enum ls_status ls_comm_wait(struct ls_comm_request *req, struct ls_error *err);

/* How an all-reduce of that size runs here: "shared memory, direct", "ucx ring over 2 nodes, 1 lane of
 * 4 segments of 120 KiB", ... Returns `out`. */
const char *ls_comm_describe(const struct ls_comm *c, int64_t bytes, char out[static 96]);
/* The same answer without a group, and so without a network, for `lockstep plan`: a collective over
 * `n` ranks that fill `nodes` nodes evenly. `bytes` are those of the whole vector (of reduce-scatter
 * and all-gather: of all members' slices), `algorithm` is as for ls_comm_choose. Links only choose.c.
 * Errors: USAGE. */
enum ls_status ls_comm_explain(enum ls_comm_kind kind, int n, int nodes, const char *algorithm,
                               int64_t bytes, char out[static 96], struct ls_error *err);
/* A setting of the job, the same on all members: "auto"; "staged" (inside a node, through staging
 * buffers); "exchange", "halving" or "ring" (between nodes). Errors: USAGE. Nodes that have not met when the world was
 * opened do so in their first collective, which then waits at least `connect_deadline` for them. */
enum ls_status ls_comm_choose(struct ls_comm *c, const char *algorithm, struct ls_error *err);

/* The UCX library that is loaded, for the fingerprint; "none". */
const char *ls_comm_ucx_version(void);

#endif
