/* For client.c: which tasks have not come, asked by rank 0 before its first fence. The others only say that they are here,
 * and may be in theirs. */
#ifndef LS_WIRE_ROLL_H
#define LS_WIRE_ROLL_H

#include "wire/pmix_util.h"

enum { LS_WIRE_ROLL_TEXT = 640 };

/* This task is here: said once, however often this is called. False: PMIx does not take it. */
bool ls_wire_roll_come(const pmix_proc_t *me);
/* Of all tasks of the job; none is asked yet. NULL: out of memory. */
struct ls_wire_roll_questions *ls_wire_roll_new(const pmix_proc_t *me, int size);
/* Asks, and waits so many seconds at most. Have all come? May be called again. */
bool ls_wire_roll_wait(struct ls_wire_roll_questions *questions, double seconds);
/* How many of those that were asked have not, and who: "task 1 on n1, task 3 on n3", with at most eight names. *blocked:
 * PMIx of this node tries to reach that of another one, on which all tasks have ended, and answers nothing: it is one of
 * these, and others were not asked. */
int ls_wire_roll_absent(const struct ls_wire_roll_questions *questions, bool *blocked,
                        char out[static LS_WIRE_ROLL_TEXT]);
void ls_wire_roll_forget(struct ls_wire_roll_questions *questions);
/* Slurm's name of the node of a rank; "" where it is not known. Returns `out`. */
const char *ls_wire_roll_node(const pmix_proc_t *me, int rank, char out[static 256]);

#endif
