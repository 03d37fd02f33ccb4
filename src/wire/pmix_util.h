/* What client.c and server.c share: waiting with a deadline for an operation that PMIx's own thread
 * completes. Only for files that are built with PMIx. */
#ifndef LS_WIRE_PMIX_UTIL_H
#define LS_WIRE_PMIX_UTIL_H

#include "wire/wire.h"

#include <pmix.h>

/* PMIx_Init and PMIx_Finalize, but neither is called where a PMIx_Init has failed: libpmix 4.2.2 crashes then. The first
 * gives the same answer once more. */
pmix_status_t ls_wire_pmix_init(pmix_proc_t *me);
void ls_wire_pmix_end(void);

/* One pending operation. Owned by two parties, the waiter and PMIx's callback: whoever comes last
 * frees it, so that a waiter may give up at its deadline. */
struct ls_wire_wait;
struct ls_wire_wait *ls_wire_wait_new(void); /* NULL when memory is short */
/* A pmix_op_cbfunc_t; `arg` is the struct ls_wire_wait. */
void ls_wire_wait_done(pmix_status_t status, void *arg);
/* Takes what the call that started the operation returned, and waits so many seconds at most, without an end to the
 * waiting: ls_wire_wait_end is still to be called. True: it is over. */
bool ls_wire_wait_some(struct ls_wire_wait *wait, pmix_status_t started, double seconds);
/* Takes what the call that started the operation returned, waits if it is under way, gives up the
 * waiter's share. Returns true and sets *status unless the deadline (in seconds from now) passed.
 */
bool ls_wire_wait_end(struct ls_wire_wait *wait, pmix_status_t started, double seconds,
                      pmix_status_t *status);

/* The name under which a program publishes `what` number `number`: one that no earlier program of its task has used,
 * "ls.keeper.0.exchange.3". PMIx keeps what a task publishes as long as its step lives; a question to another node brings
 * all of that along, and libpmix (4.2.2) prefers it to what a fence brings later under the same name. So the second of two
 * programs would take what the first ones exchanged for its own. Under Slurm programs are counted, by marks in the
 * folder of the PMIx server, which goes with the step; all tasks are to run the same ones. Returns `out`. */
enum ls_wire_program {
    LS_WIRE_KEEPER,
    LS_WIRE_OTHER, /* the check; a worker without a keeper */
    LS_WIRE_PROGRAMS
};
enum { LS_WIRE_KEY = 64 };
const char *ls_wire_key(const pmix_proc_t *me, enum ls_wire_program program, const char *what,
                        int number, char out[static LS_WIRE_KEY]);
/* Has no other program of ours been a PMIx client of this task before? Only then may it ask other nodes: a question behind
 * fences of an earlier program now and then leaves Slurm's PMIx (22.05.8, libpmix 4.2.2) with broken data. */
bool ls_wire_is_first(const pmix_proc_t *me);

/* "PMIX_ERR_X (-25)" without allocation. Returns `out`. */
const char *ls_wire_pmix_text(pmix_status_t status, char out[static 80]);

#endif
