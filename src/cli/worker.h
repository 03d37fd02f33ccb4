/* A worker's parts, private to the worker program. */
#ifndef LS_CLI_WORKER_H
#define LS_CLI_WORKER_H

#include "train/train.h"

/* The worker program's main: the command line of `lockstep run`. */
int ls_cli_worker(int argc, char **argv);

struct ls_wire_client;
/* Meets the other ranks if something started this process among several; else ranks->size is 1. Errors
 * leave `ranks` fit for ls_worker_leave, and *client, which must be NULL before, open for ls_worker_give_up where it
 * got so far: whoever cannot go on says so before the others are ended. */
enum ls_status ls_worker_meet(const struct ls_job *job, const char *plugin_dir,
                              struct ls_ranks *ranks, struct ls_wire_client **client,
                              struct ls_error *err);
/* Ends all ranks, where no keeper does that, and closes `client`. NULL is fine. */
void ls_worker_give_up(struct ls_wire_client *client, int code, const char *message);
/* fingerprint.c: what must be the same on all ranks, one "key=value" a line: versions, `device` being that
 * of the backend; the program's build id; the job; settings in the environment. */
enum ls_status ls_worker_fingerprint(const struct ls_job *job, const char *device,
                                     struct ls_buf *text, struct ls_error *err);
/* Tells this node's peers, so that their waits end at once. */
void ls_worker_abort(struct ls_ranks *ranks, const char *reason);
/* `together`: all ranks leave in good order. */
void ls_worker_leave(struct ls_ranks *ranks, bool together);

#endif
