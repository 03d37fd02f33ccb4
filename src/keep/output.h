/* What ranks print: read by pipe, passed on in whole lines, remembered for the message about a failure.
 *
 *   rank 0 out --pipe--> lines --+--> sink: our standard output, or the file of that rank
 *   rank 1 out --pipe--> lines --+
 *
 * Lines of several ranks are never mixed. A rank that prints faster than the sink takes waits in its own
 * write, so memory is bounded; the keeper itself never waits for a reader. */
#ifndef LS_KEEP_OUTPUT_H
#define LS_KEEP_OUTPUT_H

#include "keep/keep.h"

#include <poll.h>

struct ls_output;
struct ls_output_config {
    int workers;
    const struct ls_keep_place *place; /* [workers]; must stay */
    bool label;                        /* put "[rank@host] " in front of every line */
    const char *pattern; /* of the files, see ls_keep_output_path; NULL: our own streams */
    int out, err;        /* our own streams: 1 and 2 */
};
/* Opens the files, which are made new, and the folders above them. Errors: USAGE, the pattern; IO. */
enum ls_status ls_output_open(const struct ls_output_config *config, struct ls_output **output,
                              struct ls_error *err);
/* The write ends for one rank's standard output and error, close-on-exec; the caller closes both. */
enum ls_status ls_output_pipes(struct ls_output *output, int worker, int fds[static 2],
                               struct ls_error *err);
/* How many entries ls_output_poll fills. */
int ls_output_count(const struct ls_output *output);
void ls_output_poll(const struct ls_output *output, struct pollfd *fds);
/* Milliseconds until ls_output_work has something to do without any event; -1: never. */
int ls_output_timeout(const struct ls_output *output);
/* Reads and writes what can be, without waiting. `fds` as ls_output_poll filled them, and poll() then. */
void ls_output_work(struct ls_output *output, const struct pollfd *fds);
/* The rank has ended: takes what its pipes still hold, and closes them. */
void ls_output_ended(struct ls_output *output, int worker);
/* All ranks have ended, and everything is written. */
bool ls_output_idle(const struct ls_output *output);
/* The last lines that it printed, at most ten and 3000 bytes, each ending with a newline: those of standard
 * error, or of standard output if there are none. Control characters become '?'. Returns `out`. */
#define LS_OUTPUT_TAIL 3100
const char *ls_output_tail(const struct ls_output *output, int worker,
                           char out[static LS_OUTPUT_TAIL]);
/* Closes; what is not written and would have to wait is lost. NULL is fine. */
void ls_output_close(struct ls_output *output);

#endif
