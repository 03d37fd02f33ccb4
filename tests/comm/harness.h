/* Runs a function in N processes that form a world, with any layout of ranks on nodes: one machine
 * acts as several nodes, which talk over UCX by TCP on the loopback device. */
#ifndef LS_TESTS_COMM_HARNESS_H
#define LS_TESTS_COMM_HARNESS_H

#include "comm/comm.h"

#include <sys/types.h>

enum { HARNESS_RANKS = 32, HARNESS_CARD = 4096 };

struct harness; /* memory that all processes share */

struct rank {
    struct harness *shared;
    int rank, size;
    struct ls_comm_world *world;
    struct ls_error err;
    void *arg;
};

/* Layout: a digit per rank, its node: "0011" is two nodes of two ranks. */
/* False for a layout of several nodes where Lockstep was built without UCX; says so in the log. */
bool harness_can(const char *layout);
struct harness *harness_new(const char *layout);
void harness_free(struct harness *h);
/* Forks, opens a world in every process, calls fn, closes. fn returns 0 or the code that the process
 * ends with. Returns how many processes did not end with 0. */
int harness_run(struct harness *h, double deadline, int (*fn)(struct rank *), void *arg);
/* Every node meets every other one when the world opens; and how long a connection may take. */
void harness_meet_all(struct harness *h);
void harness_connect(struct harness *h, double deadline);
/* The process of this rank ends in the middle of opening its world: after the exchange. */
void harness_doom(struct harness *h, int rank);
/* The same in two halves, for tests that kill and stop processes. */
void harness_start(struct harness *h, double deadline, int (*fn)(struct rank *), void *arg);
int harness_wait(struct harness *h);
pid_t harness_pid(const struct harness *h, int rank);
int harness_status(const struct harness *h, int rank); /* as waitpid gives it */

/* In a process: records what went wrong (the first of every rank is kept), returns 1. */
int harness_fail(struct rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *harness_message(const struct harness *h, int rank);
/* Waits until all processes are here; aborts the process after 30 s. */
void harness_barrier(struct rank *r);
/* A word for the test: what a rank has to tell, and a signal to go on. */
void harness_tell(struct rank *r, int value);
int harness_told(const struct harness *h, int rank);

/* Group of all ranks. */
int harness_group(struct rank *r, const char *name, struct ls_comm **comm);

#endif
