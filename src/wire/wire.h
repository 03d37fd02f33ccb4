/* Everything that talks PMIx, and the channel between keepers.
 *
 *   Slurm's PMIx server            (or none: one keeper alone)
 *        ^ client: rank, nodes, exchange; closed before training starts
 *   keeper 0 ===control=== keeper 1 ...     a tree of TCP connections, root is keeper 0
 *        | server               | server    PMIx server of its own workers
 *     worker 0, 1 ...        worker 2, 3    client: the same code as a keeper's, one level lower
 *
 * A worker is a plain PMIx program: it needs no keeper and also runs under `srun --mpi=pmix` or
 * mpirun. A keeper is first a client of Slurm and then, in the same process, the server of its
 * workers. */
#ifndef LS_WIRE_H
#define LS_WIRE_H

#include "base/base.h"
#include "topo/topo.h"

/* All-gathers small blobs between all ranks. Sets *all to one pointer per rank and *bytes to their
 * lengths; both stay valid until the next call. The same type as ls_comm_exchange_fn. */
typedef enum ls_status ls_wire_exchange_fn(void *arg, const void *mine, size_t n,
                                           const void *const **all, const size_t **bytes,
                                           struct ls_error *err);

/* ---- client: a worker, or a keeper under Slurm ---- */

/* What PMIx says about this process and its peers. Nodes are numbered 0, 1, ... in the order of
 * their lowest rank; who shares a node comes from PMIx, never from host names. */
struct ls_wire_client {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node, over all its keepers */
    int n_nodes;
    const int *node;         /* [size]: node number of every rank */
    const char *const *host; /* [size]: the name that every rank gave itself; for messages only */
    const char *job;         /* PMIx namespace; differs between jobs and between generations */
    struct ls_wire_client_state *state;
};

/* The same for ls_slurm_check_pmix. */
static inline struct ls_pmix_view ls_wire_view(const struct ls_wire_client *c)
{
    return (struct ls_pmix_view){.found = true,
                                 .nspace = c->job,
                                 .rank = c->rank,
                                 .size = c->size,
                                 .local_rank = c->local_rank,
                                 .local_size = c->local_size};
}

/* PMIx_Init and one exchange (collective). `host` is the name that peers shall use in messages, for
 * instance SLURMD_NODENAME; NULL takes gethostname(). `deadline`, in seconds, holds for every later
 * exchange, too. One client at a time and process; opening again after a close works, with the
 * variables of ls_wire_env_take. Errors: NOTFOUND, no PMIx server started this process (at once,
 * and the only one on which a caller may go on alone, or become a server); ENV, PMIx is there but
 * unusable, or this build has none; TIMEOUT; ABORTED, another rank is gone. */
enum ls_status ls_wire_client_open(const char *host, double deadline,
                                   struct ls_wire_client **client, struct ls_error *err);
/* The same for a step of which one process is to speak for all. Rank 0 says after five seconds of an exchange that
 * it waits. If not everyone arrives, the lowest rank that did says so and ends all of them with `code` (PMIx_Abort):
 * the others wait some seconds longer, and so die before it is their turn. On that TIMEOUT the message is empty. At the
 * first exchange of a job of Slurm's with at most 1024 tasks rank 0 names those that it waits for. */
struct ls_wire_teller {
    void (*say)(void *arg, const char *text);
    void *arg;
    int code;
};
/* `teller` must outlive the client; NULL: as ls_wire_client_open. */
enum ls_status ls_wire_client_open_telling(const char *host, double deadline,
                                           const struct ls_wire_teller *teller,
                                           struct ls_wire_client **client, struct ls_error *err);
/* Seconds for all processes of a step to arrive. After about so many Slurm's PMIx itself gives up to send to a node
 * whose slurmstepd does not answer, so that more would help nobody. */
#define LS_WIRE_ARRIVAL 30.0
/* Before ls_wire_client_open, collective: has everyone come, and for the same? Calls, on every rank that came, `absent`
 * for each one that has not, in order, `differs` for each that is about to do something else than rank 0, or that is
 * rank 0 and declines, or `silent` for rank 0, if it does not say whether all came: it hangs, or waits itself. `node` is
 * Slurm's name of the rank's node, "" where it is not known. Only Slurm's PMIx is asked. Errors: ENV, if there was one
 * that differs; TIMEOUT; others only ls_wire_client_open tells. In any case ls_wire_roll_end is to be called, after
 * ls_wire_client_close. */
enum { LS_WIRE_ROLL_WORD = 512 };
struct ls_wire_roll {
    const char *word; /* what this rank is about to do; shorter than LS_WIRE_ROLL_WORD */
    void (*absent)(void *arg, int rank, const char *node);
    /* `word` is its own; "" where only rank 0 knows. */
    void (*differs)(void *arg, int rank, const char *node, const char *word);
    void (*silent)(void *arg, int rank, const char *node);
    void *arg;
};
enum ls_status ls_wire_roll_call(double deadline, const struct ls_wire_roll *roll,
                                 struct ls_error *err);
/* For a rank that goes straight to ls_wire_client_open: whoever calls the roll hears `word`, which is nobody's word
 * there, and need not wait until its deadline. Local. Then ls_wire_roll_end, as above. */
void ls_wire_roll_decline(const char *word);
/* The same call for a process that follows another one as PMIx client of the same task: waits until all tasks of this node
 * have come so far. Slurm's PMIx takes a client that leaves while another task of the node is in a fence for one that was in
 * it, too, and passes the fence on without data (UNPACK-PAST-END; libpmix 4.2.2). Errors: TIMEOUT. */
enum ls_status ls_wire_roll_again(double deadline, struct ls_error *err);
/* PMIx_Abort, for a process that can only end all tasks: between a roll call and ls_wire_client_open. */
void ls_wire_roll_abort(int code, const char *text);
void ls_wire_roll_end(void);
/* An ls_wire_exchange_fn; `client` is a struct ls_wire_client. Blobs may be empty and may differ in
 * length between ranks; 1 MiB at most. PMIx keeps and carries along what earlier exchanges
 * published, so it is for a dozen small exchanges at start. Errors: TIMEOUT, not everyone arrived
 * before the deadline; ABORTED, a rank or the server is gone (then only close); OVERFLOW; NOMEM. */
enum ls_status ls_wire_exchange(void *client, const void *mine, size_t n, const void *const **all,
                                const size_t **bytes, struct ls_error *err);
/* PMIx_Finalize and free. Local: waits for no peer. To be done before training: a process that dies
 * unfinalized takes a whole Slurm step with it. NULL is fine. */
void ls_wire_client_close(struct ls_wire_client *client);
/* PMIx_Abort: asks whoever started the ranks to end them all. For a worker with no keeper above it;
 * the caller exits next. */
void ls_wire_client_abort(struct ls_wire_client *client, int code, const char *text);

/* Removes every variable by which a PMIx or PMI server above announced itself (PMIX_*, PMI_*,
 * PMI2_*, but not the settings PMIX_MCA_*) from the process environment, and adds `env`
 * ("NAME=value", NULL at its end; may be NULL). A keeper calls it with NULL between
 * ls_wire_client_close and ls_wire_server_open; a surviving worker with the strings of its next
 * generation. Not while other threads run. */
enum ls_status ls_wire_env_take(char *const *env, struct ls_error *err);

/* ---- fingerprint: compare before connect ---- */

/* Compares `n` texts of lines "key=value". LS_OK if they are the same. Otherwise ENV: the message
 * names the ranks that differ from the largest group (at a tie from that of rank 0), with their
 * hosts, and shows keys and values that differ. Pure; bytes may be anything. */
enum ls_status ls_wire_compare(const void *const *text, const size_t *bytes,
                               const char *const *host, int n, struct ls_error *err);
/* Compares the texts of all ranks, by their hashes first, so that only ranks that differ pay for the
 * exchange of whole texts: all ranks come to the same verdict. Collective. */
enum ls_status ls_wire_fingerprint(ls_wire_exchange_fn *exchange, void *arg, const char *text,
                                   const char *const *host, int n, struct ls_error *err);

/* ---- map: which rank runs where ---- */

struct ls_wire_place {
    int keeper, node, local_rank;
};
/* The workers of a keeper are first[keeper] .. first[keeper + 1] - 1. */
enum { LS_WIRE_MOST_RANKS = 1 << 20 };
struct ls_wire_map {
    int size, n_keepers, n_nodes;
    int *first;                 /* [n_keepers + 1] */
    struct ls_wire_place *rank; /* [size] */
};
/* From the node number and the number of workers (at least 1) of every keeper. Errors: USAGE,
 * OVERFLOW, NOMEM; `map` can be freed in any case. */
enum ls_status ls_wire_map_init(struct ls_wire_map *map, int n_keepers, const int *node,
                                const int *workers, struct ls_error *err);
void ls_wire_map_free(struct ls_wire_map *map);

/* ---- server: the PMIx server of a keeper's own workers ---- */

struct ls_wire_server;
/* PMIx_server_init. Its files go into a fresh folder in `tmpdir` (an absolute path) that
 * ls_wire_server_close removes. If the keeper dies by a signal, the next server opened in `tmpdir`
 * by the same user removes them (an advisory lock tells dead owners from living ones). One server
 * in the life of a process: recovery begins a new generation, as PMIx cannot start twice. PMIx's
 * own threads run from here on, so a child may only call what is safe after fork until it execs.
 * Touches the environment for a moment: not while other threads run. PMIx writes to workers that
 * may be dead: ignore SIGPIPE, here and in workers. Errors: IO, NOTFOUND, the folder; ENV, PMIx
 * refuses, or this build has none. */
enum ls_status ls_wire_server_open(const char *tmpdir, struct ls_wire_server **server,
                                   struct ls_error *err);
/* Registers one generation of workers: the whole world of `map`, with those of `keeper` as clients.
 * `job` names it (shorter than 200 characters, the same on all keepers). Generations count up;
 * several may live at a time. ENV: this PMIx is one that crashes with more than one keeper. */
enum ls_status ls_wire_server_begin(struct ls_wire_server *server, const char *job, int generation,
                                    const struct ls_wire_map *map, int keeper,
                                    struct ls_error *err);
/* The environment for worker `rank`: `base` without what a server above left there (see
 * ls_wire_env_take), then, from index *first on (NULL: not wanted), the variables of this server.
 * *env is one block, the caller's to free(). */
enum ls_status ls_wire_server_env(struct ls_wire_server *server, int generation, int rank,
                                  char *const *base, char ***env, int *first, struct ls_error *err);
/* Deregisters a generation; exchanges that its workers still wait in end with an error. */
void ls_wire_server_end(struct ls_wire_server *server, int generation);
/* Ends what is left, PMIx_server_finalize, removes the folder. NULL is fine. */
void ls_wire_server_close(struct ls_wire_server *server);
/* Readable when ls_wire_poll has something to do. */
int ls_wire_server_fd(const struct ls_wire_server *server);

/* ---- rendezvous: an address and free ports where the ranks' own programs can meet ---- */

enum { LS_WIRE_ADDRESS_TEXT = 64 };
struct ls_wire_rendezvous {
    int n_keepers;
    /* [n_keepers]: where the others reach that keeper's ranks, as "10.0.0.1" or "fd00::1". Keeper 0's was
     * tried by every keeper; another one's is where its connection to keeper 0 came from. */
    char (*address)[LS_WIRE_ADDRESS_TEXT];
    int *first;     /* [n_keepers + 1] */
    uint16_t *port; /* ports of keeper k: port[first[k]] .. port[first[k + 1] - 1] */
    int *held;      /* sockets that hold this keeper's ports; -1: released */
    int n_held;
};
/* Collective over the keepers, through two exchanges. Binds `ports` ports (1 to 65535) of this machine, outside
 * of the kernel's range for connections where there is room, and holds them. `exchange` may be NULL with one keeper, which gets the loopback address.
 * So do keepers that all reach keeper 0 by loopback, as those of one machine do. Errors: ENV, no address of
 * keeper 0 is reached by all, naming a keeper that reaches none; IO; NOMEM; what `exchange` returned. */
enum ls_status ls_wire_rendezvous_open(int rank, int size, const char *const *host, int ports,
                                       ls_wire_exchange_fn *exchange, void *arg,
                                       struct ls_wire_rendezvous **rendezvous,
                                       struct ls_error *err);
/* Lets go of this keeper's port number `i`, for a program that will bind it now. */
void ls_wire_rendezvous_release(struct ls_wire_rendezvous *rendezvous, int i);
/* Lets go of all that is held, and frees. NULL is fine. */
void ls_wire_rendezvous_close(struct ls_wire_rendezvous *rendezvous);

/* ---- control: the channel between keepers ---- */

struct ls_wire_control_config {
    int rank, size;          /* of this keeper; 1 keeper needs no socket and no exchange */
    const char *const *host; /* [size]; copied */
    ls_wire_exchange_fn *exchange;
    void *arg;
    double connect_deadline; /* seconds for a TCP connection; 0 means 3 */
    double deadline;         /* seconds for the whole of open; 0 means 30 */
    double silence; /* a keeper that says nothing for so many seconds is lost; 0 means 15 */
    int fanout;     /* children in the tree, at most 32; 0 means 16 */
};
struct ls_wire_control;
/* Collective. Listens on a port that the kernel chooses, exchanges addresses and random tokens,
 * connects the tree; a connection counts when both sides have shown the other's token. All
 * addresses of a node are tried (loopback only within one machine). Errors: ENV, naming the keeper
 * that cannot be reached and each address tried; TIMEOUT, naming who has not arrived; IO; what
 * `exchange` returned. */
enum ls_status ls_wire_control_open(const struct ls_wire_control_config *config,
                                    struct ls_wire_control **control, struct ls_error *err);
/* Sends what is queued, at most for 2 s, and closes. NULL is fine. */
void ls_wire_control_close(struct ls_wire_control *control);
/* An epoll descriptor: readable when ls_wire_poll has something to do. -1 with one keeper. */
int ls_wire_control_fd(const struct ls_wire_control *control);
/* Milliseconds until ls_wire_poll wants to be called even if nothing is readable; -1: never. */
int ls_wire_control_timeout(const struct ls_wire_control *control);

/* What a keeper says. None of these blocks or fails: if the channel breaks, ls_wire_poll tells. */

/* The completion record of a worker, any bytes up to 64 KiB: keeper 0 gets LS_WIRE_RECORD. */
void ls_wire_control_record(struct ls_wire_control *control, int rank, const void *data, size_t n);
/* A worker (or this keeper itself: rank -1) failed. Keeper 0 chooses the first one and everyone
 * gets it as LS_WIRE_FAILURE, once. `echo`: this looks like the consequence of another failure (a
 * broken connection, an abort); it only counts if nothing better arrives within half a second.
 * `text` is cut at 4000 bytes. */
void ls_wire_control_fail(struct ls_wire_control *control, int rank, int code, bool echo,
                          const char *text);
/* The same for a rank that waited in vain for `suspect`: an echo, which waits for up to 2 s until the keeper of
 * `suspect` has said what that one does. The answer, or that there is none, is added to the first line of `text`. */
void ls_wire_control_suspect(struct ls_wire_control *control, int rank, int code, int suspect,
                             const char *text);
/* The answer to LS_WIRE_ASKED: what that rank does, a few words ("it is in data wait"); several things as lines. What
 * `text` has said already is not said again. */
void ls_wire_control_answer(struct ls_wire_control *control, int rank, const char *text);
/* Everyone, this keeper included, gets LS_WIRE_STOP with `signal`, a number of the keepers' own making. */
void ls_wire_control_stop(struct ls_wire_control *control, int signal);
/* This keeper's workers have all ended and all their records are sent. */
void ls_wire_control_finished(struct ls_wire_control *control);
/* Keeper 0 only, after LS_WIRE_ALL_FINISHED: everyone gets LS_WIRE_DONE with this exit code. */
void ls_wire_control_done(struct ls_wire_control *control, int code, const char *text);
/* Who keeps an exchange of the workers from ending, as seen from here: "exchange 2: keeper 1 on n1
 * has not arrived", or "" when none is open. For the message of a timeout. Returns `out`. */
const char *ls_wire_control_missing(const struct ls_wire_control *control, char out[static 256]);

/* ---- events: what a keeper hears ---- */

enum ls_wire_event_kind {
    /* about own workers, from the server; `rank`, and the generation in `code` */
    LS_WIRE_WORKER_READY, /* has finished PMIx_Init */
    LS_WIRE_WORKER_LEFT,  /* has called PMIx_Finalize */
    LS_WIRE_WORKER_LOST,  /* its connection broke before PMIx_Finalize; wait() knows more */
    LS_WIRE_WORKER_ABORT, /* called PMIx_Abort: `code` is its status, `text` what it said */
    /* from the keepers */
    LS_WIRE_RECORD,       /* keeper 0: `rank` of `keeper`; `data`, `n` */
    LS_WIRE_FAILURE,      /* all, once: `rank` or -1, `keeper`, `code`, `text`; end the workers */
    LS_WIRE_ASKED,        /* all: whoever has `rank` is to say what that one does */
    LS_WIRE_STOP,         /* all: signal number in `code`; may come more than once */
    LS_WIRE_ALL_FINISHED, /* keeper 0: nobody is left to wait for; decide and say done */
    LS_WIRE_DONE,         /* all: leave with exit code `code`; nothing follows */
};
struct ls_wire_event {
    enum ls_wire_event_kind kind;
    int rank, keeper, code;
    const char *text; /* never NULL; this and `data` are valid until the next ls_wire_poll */
    const void *data;
    size_t n;
};
/* Does everything that can be done without waiting: carries the workers' exchanges from server to
 * keepers and back, reads, writes, keeps connections alive. Returns true with one event, false when
 * there is nothing more; to be called until then. `server` may be NULL. A lost keeper shows as
 * LS_WIRE_FAILURE with rank -1; if it was the one that leads to keeper 0, LS_WIRE_DONE (code 1)
 * follows as soon as this keeper has said finished. After LS_WIRE_FAILURE the workers' exchanges
 * fail at once. */
bool ls_wire_poll(struct ls_wire_server *server, struct ls_wire_control *control,
                  struct ls_wire_event *event);

/* ---- versions, for the fingerprint ---- */

/* The PMIx library that is loaded ("4.2.2"), or "none". */
const char *ls_wire_pmix_version(char out[static 64]);

#endif
