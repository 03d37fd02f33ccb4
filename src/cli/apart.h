/* Work that may never return, such as reading from a dead file server or opening a dead device: a child does it, and
 * is left behind at a deadline. */
#ifndef LS_CLI_APART_H
#define LS_CLI_APART_H

/* Seconds that commands give to reading a file or a machine; what is healthy takes milliseconds. */
#define LS_CLI_READ_DEADLINE 5.0

enum { LS_CLI_APART_DIED = -1, LS_CLI_APART_LATE = -2 };
struct ls_cli_apart {
    int pid, pipe; /* private */
    int out; /* a file in memory, with what the work wrote to standard output and standard error */
};
/* Forks a child that calls work(arg), which returns an exit code from 0 to 255; nothing else of the child is seen here
 * but what lies in shared memory. Not while other threads run. Always to be ended. */
void ls_cli_apart_start(struct ls_cli_apart *apart, int (*work)(void *arg), void *arg);
/* Waits for the exit code, at most until `until` (ls_time_monotonic). LS_CLI_APART_DIED: the child ended without one,
 * or could not be started; LATE: it was killed, or left to the kernel where not even that ends it. `out` is at its
 * beginning then, and the caller's to close (-1: there is none). */
int ls_cli_apart_end(struct ls_cli_apart *apart, double until);

#endif
