/* What client.c and server.c share: waiting with a deadline for an operation that PMIx's own thread
 * completes. Only for files that are built with PMIx. */
#ifndef LS_WIRE_PMIX_UTIL_H
#define LS_WIRE_PMIX_UTIL_H

#include "wire/wire.h"

#include <pmix.h>

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

/* "PMIX_ERR_X (-25)" without allocation. Returns `out`. */
const char *ls_wire_pmix_text(pmix_status_t status, char out[static 80]);

#endif
