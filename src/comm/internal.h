/* What the files of this room share: the world, a node's shared memory, groups, requests, and the
 * schedule of a collective between nodes. No other room includes this.
 *
 *   world --+-- control     one per node: abort word, what every rank does        (world.c)
 *           +-- sock[]      one Unix socket per rank of the node: passes memory, shows a death
 *           +-- arena[]     communicated memory, every rank's part mapped here    (shm.c)
 *           +-- net         UCX, only where there are several nodes               (ucx.c)
 *           +-- groups --+-- shared   arrival slots, staging buffers              (group.c)
 *                        +-- active   requests in the order of their start        (request.c)
 *                                       inside a node: node.c; between: schedule.c, wire.c
 */
#ifndef LS_COMM_INTERNAL_H
#define LS_COMM_INTERNAL_H

#include "comm/comm.h"
#include "comm/reduce.h"

#include <stdatomic.h>

#define LS_CACHE_LINE 64

/* ---- a node's shared memory ---- */

/* One cache line per rank: written by its rank, read by whoever waits for it. */
struct ls_comm_status {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t sequence; /* the collective started last ... */
    _Atomic uint32_t group;                            /* ... of this group */
    _Atomic uint32_t activity;                         /* enum ls_comm_activity */
};

#define LS_COMM_CPU_WORDS 16 /* 1024 CPUs; those beyond do not count */

struct ls_comm_control {
    /* 0: all is well; 1: someone writes the reason; 2: aborted. */
    _Alignas(LS_CACHE_LINE) _Atomic uint32_t abort;
    _Alignas(LS_CACHE_LINE) char reason[768];
    _Alignas(
        LS_CACHE_LINE) _Atomic uint32_t ready; /* ranks that have finished their part of open */
    _Atomic uint64_t cpus[LS_COMM_CPU_WORDS];  /* union of the ranks' affinity masks */
    struct ls_comm_status rank[];
};

/* ---- a group's shared memory ---- */

enum {
    LS_COMM_RING = 8,          /* collectives of a group that may be under way */
    LS_COMM_SMALL = 8 << 10,   /* bytes that travel with the arrival, in one hop */
    LS_COMM_STAGE = 4 << 20,   /* bytes of each of the two staging buffers of a member */
    LS_COMM_PIECE = 256 << 10, /* staged inside a node: a piece stays in the L2 cache */
    LS_COMM_PIPE = 64 << 10,   /* send/recv inside a node: each of two halves */
};

/* A member announces collective `arrive`: where its buffers lie, and which collective it means. */
struct ls_comm_slot {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t arrive;
    uint64_t in, out; /* LS_COMM_SHARED | arena << 40 | offset; 0 where not in an arena */
    uint64_t what;    /* kind, type, op, root and count, mixed: all members must agree */
    uint64_t count;
};
#define LS_COMM_SHARED (UINT64_C(1) << 63)

/* Messages of one member to one other, inside a node. */
struct ls_comm_pipe {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t posted; /* entries, by the sender */
    struct {
        uint64_t at; /* as in a slot; 0: in the half of the pipe that belongs to it */
        uint64_t bytes, total;
    } entry[2];
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t taken; /* entries, by the receiver */
};

struct ls_comm_member {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t staged; /* pieces copied into the staging buffer */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t worked; /* pieces whose part of the work is done */
    struct ls_comm_slot slot[LS_COMM_RING];
    /* done[i]: the last collective of slot i that this member needs nothing of any more. */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t done[LS_COMM_RING];
    _Alignas(LS_CACHE_LINE) char small[LS_COMM_RING][LS_COMM_SMALL];
};

/* ---- world ---- */

struct ls_comm_arena {
    int64_t bytes;
    char **base; /* [locals]: where every rank's part is mapped here */
};

/* A message that came before anyone wanted it. */
struct ls_comm_letter {
    struct ls_comm_letter *next;
    size_t header_bytes, bytes;
    char data[]; /* header, then payload */
};

struct ls_comm_world {
    int rank, size;
    int *node;   /* [size] */
    char **host; /* [size] */
    double deadline, connect_deadline;

    int me, locals;  /* my place among, and number of, the ranks of my node */
    int *local_rank; /* [locals]: their ranks, ascending */
    int nodes;

    int *sock; /* [locals]; -1 for myself and for those who are gone */
    struct ls_comm_control *control;
    size_t control_bytes;
    struct ls_comm_arena *arena;
    int arenas, arenas_cap;
    struct ls_comm *groups;
    bool crowded; /* more ranks than CPUs: who waits must let others run */

    struct ls_comm_net *net; /* NULL on a single node */
    void **address;          /* [size]: UCX worker addresses */
    size_t *address_bytes;
    bool all_meet;
    bool *greeted, *answered; /* [size]: said hello to me; answered my hello */
    bool *heard;              /* [size]: anything has come from it, so the connection works */
    bool *owed, owing;        /* [size]: I have not answered theirs; any of them */
    int greetings, farewells; /* of these, what the network has not sent yet */
    struct ls_comm_letter *letters, **letters_end;

    uint64_t moves;
    struct ls_comm_window *window; /* NULL: none */
    int suspect;                   /* see ls_comm_suspect */
    double broken_since;    /* a connection was seen broken; its reason may still be on its way */
    bool failed, forwarded; /* after an error; told the other nodes */
    struct ls_error error;
};

bool ls_comm_aborted(struct ls_comm_world *w); /* fills w->error once the abort word is set */
/* Records the first error, sets the abort word, and tells the other nodes. Returns `status`. */
enum ls_status ls_comm_fail(struct ls_comm_world *w, enum ls_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Has the process of local rank index `local` ended? */
bool ls_comm_gone(struct ls_comm_world *w, int local);
void ls_comm_set_abort(struct ls_comm_world *w, const char *reason);
void ls_comm_tell_abort(struct ls_comm_world *w, const char *reason);

/* A wait loop: spins, yields, and after a while sleeps a little; looks at a clock now and then. */
struct ls_comm_patience {
    double start, peer_check;
    unsigned idle;
};
void ls_comm_patience_start(struct ls_comm_patience *p);
/* After a round in which nothing moved. True about every millisecond: time to look around. */
bool ls_comm_patience_pause(struct ls_comm_patience *p, bool crowded);

/* ---- shm.c, socket.c ---- */

/* A new memory file, mapped, zeroed; *fd is the caller's. */
enum ls_status ls_comm_shm_create(const char *name, size_t bytes, int *fd, void **map,
                                  struct ls_error *err);
enum ls_status ls_comm_shm_map(int fd, size_t bytes, void **map, struct ls_error *err);
void ls_comm_shm_unmap(void *map, size_t bytes);
/* Where my pointer lies in an arena, in the form of a slot; 0 if [p, p + bytes) is in none. */
uint64_t ls_comm_shm_locate(const struct ls_comm_world *w, const void *p, int64_t bytes);
char *ls_comm_shm_at(const struct ls_comm_world *w, int local, uint64_t where);

struct ls_comm_socket_name {
    uint64_t nonce[2];
};
enum ls_status ls_comm_socket_listen(const struct ls_comm_socket_name *name, int backlog, int *fd,
                                     struct ls_error *err);
/* Connects all ranks of the node with one another; names [locals]. Fills w->sock. */
enum ls_status ls_comm_socket_mesh(struct ls_comm_world *w, int listener,
                                   const struct ls_comm_socket_name *names, struct ls_error *err);
/* Passes a memory file to, or takes it from, local rank index `local`. `tag` must be the same. */
enum ls_status ls_comm_socket_send(struct ls_comm_world *w, int local, uint64_t tag, uint64_t bytes,
                                   int fd, struct ls_error *err);
enum ls_status ls_comm_socket_recv(struct ls_comm_world *w, int local, uint64_t tag, uint64_t bytes,
                                   const char *what, int *fd, struct ls_error *err);

/* ---- group ---- */

enum ls_comm_algorithm {
    LS_COMM_AUTO,
    LS_COMM_STAGED,   /* inside a node: through staging buffers even where memory is shared */
    LS_COMM_EXCHANGE, /* between nodes: each sends to each */
    LS_COMM_HALVING,  /* recursive halving, then doubling (Rabenseifner) */
    LS_COMM_RINGS,
};

struct ls_comm {
    struct ls_comm_world *world;
    struct ls_comm *next;
    char name[48];
    uint32_t id; /* the same on all members, and different from that of any other group */
    int n, me;   /* members, and my index */
    int *rank;   /* [n] */
    int *where;  /* [n]: position of the member's node in this group */
    enum ls_comm_algorithm algorithm;

    int nodes, my_node;  /* nodes of the group, in the order of their first members */
    int *first, *member; /* members of node k: member[first[k] .. first[k + 1]) */
    int lanes_max;       /* fewest members on a node: rings that can run side by side */

    int locals, local;  /* members on my node, and my place among them */
    const int *members; /* [locals]: their indices */
    int *local_index;   /* [locals]: their places in w->local_rank */
    void *shared;
    size_t shared_bytes;
    struct ls_comm_member **line; /* [locals] */
    char **stage_in, **stage_out; /* [locals] */
    struct ls_comm_pipe *pipes;   /* [locals][locals], from, to */
    char *pipe_data;

    uint64_t sequence, pieces;
    uint64_t *sent, *received; /* [n]: messages of send and recv with each member */
    struct ls_comm_request *active, **active_end, *spare;
};

/* ---- a collective between nodes ---- */

/* A tile is what one message carries: elements [at, at + n) of a block of the buffer. */
struct ls_comm_tile {
    int block, n;
    int64_t at;
    int64_t place; /* elements of the lane before it */
    bool begun;    /* its partial result exists */
};

enum ls_comm_how {
    LS_COMM_REDUCE, /* fold into the partial result */
    LS_COMM_FINISH, /* the same, and it is the result: write to all members of the node */
    LS_COMM_STORE,  /* it is a result */
    LS_COMM_KEEP,   /* keep beside the others until all are there */
};

/* One exchange of a schedule: tiles [send_from, send_to) go to a node, others come from one. */
struct ls_comm_step {
    int to, from; /* world ranks; -1 none */
    int send_from, send_to, recv_from, recv_to;
    bool final; /* what is sent is a result, not a partial one */
    enum ls_comm_how how;
    int keep; /* KEEP: node position of the sender */
    /* A tile may be sent, and folded, once it has come in step `after` (-1: at any time); with
     * `after_all`, sent once everything before has come. */
    int after;
    bool after_all;
    int sent, got;             /* tiles */
    int out_number, in_number; /* among the steps to, or from, that rank: what messages carry */
};

/* Credit: tiles beyond the first LS_COMM_EAGER bytes wait until the receiver has arrived. */
struct ls_comm_credit {
    int rank;
    int64_t to_send, sent, to_recv;
    int steps_to, steps_from;
    bool open;
    bool heard; /* something has come from it: it has arrived */
};

struct ls_comm_schedule {
    bool active;
    uint32_t round;
    struct ls_comm_tile *tile;
    int tiles, tiles_cap;
    int *chunk; /* [chunks + 1]: tile borders of chunks */
    int chunks, chunks_cap;
    struct ls_comm_step *step;
    int steps, steps_cap, first_open;
    struct ls_comm_credit *credit;
    int credits, credits_cap;
    bool half_wire; /* partial results travel as they are stored, else as f32 */
    int64_t wire_size;
    bool in_place; /* partial results lie in the own `out`, else in: */
    char *partial;
    size_t partial_bytes;
    int64_t lane_elements;
    bool combine; /* KEEP: to be combined once all are there */
    int pending;  /* sends that the network has not finished */
};

/* ---- request ---- */

enum ls_comm_phase {
    LS_COMM_POST,   /* waits for its slot */
    LS_COMM_ARRIVE, /* waits for the members of the node */
    LS_COMM_QUEUE,  /* waits until it is the oldest of its group */
    LS_COMM_GATHER, /* a piece is staged; waits until all have staged theirs */
    LS_COMM_RUN,    /* between nodes */
    LS_COMM_SETTLE, /* waits until the others have worked on the piece */
    LS_COMM_LEAVE,  /* waits until the others need nothing of it any more */
    LS_COMM_END,
};

struct ls_comm_request {
    struct ls_comm *comm;
    struct ls_comm_request *next;
    enum ls_comm_kind kind;
    enum ls_comm_type type;
    enum ls_comm_op op;
    int root;        /* member: of broadcast; the peer of send and recv */
    double *squares; /* reduce-scatter: where the sum of the squares of `out` goes; may be NULL */
    const void *in;
    void *out;
    int64_t count, bytes;
    uint64_t sequence;
    bool barrier;

    enum ls_comm_phase phase;
    bool small, direct;
    int64_t begin, length; /* the piece under way: elements of every block */
    uint64_t pieces;       /* of send and recv: entries posted or taken */
    int64_t moved;         /* of send and recv: bytes */

    /* Where the piece lies for every local member; blocks are `stride` elements apart. */
    const char **src;
    char **dst;
    int64_t src_stride, dst_stride;
    const void **gather; /* [n + 2 * locals + 4]: operands of a reduction */
    struct ls_comm_schedule net;
};

static inline int64_t ls_comm_slot_of(uint64_t sequence)
{
    return (int64_t)(sequence % LS_COMM_RING);
}

enum ls_status ls_comm_start(struct ls_comm *c, const struct ls_comm_request *model,
                             struct ls_comm_request **req, struct ls_error *err);
bool ls_comm_step(struct ls_comm_request *r); /* true if something moved */
/* In the world's window, if it has one. */
void ls_comm_show_collective(const struct ls_comm *c, uint64_t sequence);
/* Does local member k hold the request up, in the phase in which it is? */
bool ls_comm_late(const struct ls_comm_request *r, int k);
/* Does this member carry data of its node over the network? */
bool ls_comm_carries(const struct ls_comm_request *r);
uint64_t ls_comm_advance_all(struct ls_comm_world *w); /* a number that changes with every move */
void ls_comm_finish(struct ls_comm_request *r);        /* takes it out of the active ones */
bool ls_comm_step_pair(struct ls_comm_request *r);
enum ls_status ls_comm_pair_start(struct ls_comm_request *r);
/* "all-reduce 817 of group data" */
const char *ls_comm_request_text(const struct ls_comm_request *r, char out[static 128]);
/* Ranks that the request waits for, at most `max`; *doing says what they have not done. */
int ls_comm_missing(const struct ls_comm_request *r, int *rank, int max, const char **doing);
/* An error of the wait for `r`: TIMEOUT after `seconds`, or IO if one of the ranks is gone. */
enum ls_status ls_comm_blame(struct ls_comm_request *r, double seconds);
bool ls_comm_blame_gone(struct ls_comm_request *r);

/* ---- node.c: work inside a node on one piece ---- */

/* Points src and dst at the piece [begin, begin + length), in the users' buffers or in staging. */
void ls_comm_node_place(struct ls_comm_request *r, bool staged);
/* This member's share: reads its peers' buffers, writes results. */
void ls_comm_node_work(struct ls_comm_request *r);
void ls_comm_node_stage_in(struct ls_comm_request *r);
void ls_comm_node_stage_out(struct ls_comm_request *r);
void ls_comm_node_small_in(struct ls_comm_request *r);
void ls_comm_node_small_out(struct ls_comm_request *r);
int64_t ls_comm_node_piece(const struct ls_comm_request *r); /* elements of a staged piece */
bool ls_comm_node_is_small(const struct ls_comm_request *r);

/* ---- choose.c, schedule.c, wire.c: between nodes ---- */

enum {
    LS_COMM_TILE = 120 << 10,
    LS_COMM_EAGER = 256 << 10,
    LS_COMM_EXCHANGE_NODES =
        8, /* with more, nobody sends to everyone in one step, unless the job says so */
};

struct ls_comm_plan {
    enum ls_comm_algorithm algorithm;
    int lanes;      /* rings side by side, one per member of a node */
    int64_t round;  /* elements of each block that go at a time */
    bool half_wire; /* see struct ls_comm_schedule */
};
void ls_comm_plan(const struct ls_comm *c, enum ls_comm_kind kind, enum ls_comm_type type,
                  enum ls_comm_op op, int64_t count, struct ls_comm_plan *plan);
/* Builds the schedule of the piece under way, of a lane; false: out of memory. */
bool ls_comm_schedule_build(struct ls_comm_request *r, int lane);
/* The node (counted from 0, as all here) with which `node` halves at distance d, a power of two; -1: none. */
int ls_comm_halving_partner(int nodes, int node, int d);
/* That of send or recv to or from another node. */
bool ls_comm_schedule_pair(struct ls_comm_request *r);
void ls_comm_schedule_free(struct ls_comm_schedule *s);
/* Sends what can be sent; true when the piece is through. */
bool ls_comm_wire_run(struct ls_comm_request *r);
void ls_comm_wire_open(struct ls_comm_request *r);
void ls_comm_wire_progress(struct ls_comm_world *w);
void ls_comm_wire_receive(struct ls_comm_world *w, const void *header, size_t header_bytes,
                          const void *data, size_t bytes);
enum ls_status ls_comm_wire_greet(struct ls_comm_world *w, const int *to, int nto, const int *from,
                                  int nfrom, double deadline, bool opening, const char *what,
                                  struct ls_error *err);
void ls_comm_wire_abort(struct ls_comm_world *w, const char *reason);

/* ---- ucx.c, or no_ucx.c: the network ---- */

struct ls_comm_net;
enum ls_status ls_comm_net_open(struct ls_comm_world *w, const struct ls_comm_config *config,
                                struct ls_comm_net **net, struct ls_error *err);
/* The blob by which others reach me; valid until close. */
const void *ls_comm_net_address(const struct ls_comm_net *net, size_t *bytes);
enum ls_status ls_comm_net_connect(struct ls_comm_net *net, int rank, struct ls_error *err);
/* Sends header and payload; both must stay until *pending, which this raises, falls again. A small
 * header is copied. False: the connection is broken. */
bool ls_comm_net_send(struct ls_comm_net *net, int rank, const void *header, size_t header_bytes,
                      const void *data, size_t bytes, int *pending);
bool ls_comm_net_progress(struct ls_comm_net *net);
bool ls_comm_net_connected(const struct ls_comm_net *net, int rank);
const char *ls_comm_net_broken(const struct ls_comm_net *net,
                               int rank); /* why; NULL while it works */
void ls_comm_net_close(struct ls_comm_net *net, bool flush);

#endif
