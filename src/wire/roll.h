/* For client.c: which tasks have not come, asked by rank 0 before its first fence. The others only say that they are here,
 * and may be in theirs. */
#ifndef LS_WIRE_ROLL_H
#define LS_WIRE_ROLL_H

#include "wire/pmix_util.h"

enum { LS_WIRE_ROLL_TEXT = 640 };

/* This task is here. False: PMIx does not take it. */
bool ls_wire_roll_come(void);
/* Asks every other task of the job, once and without a wait. NULL: out of memory. */
struct ls_wire_roll_questions *ls_wire_roll_ask(const pmix_proc_t *me, int size);
/* Have all come, after so many seconds more? May be called again. */
bool ls_wire_roll_wait(struct ls_wire_roll_questions *questions, double seconds);
/* How many have not, and who: "task 1 on n1, task 3 on n3", with at most eight names. */
int ls_wire_roll_absent(const struct ls_wire_roll_questions *questions,
                        char out[static LS_WIRE_ROLL_TEXT]);
/* PMIx of this node answers nothing, since it tries to reach a node whose tasks have all ended: then some of those that
 * are absent may have come. */
bool ls_wire_roll_blocked(const struct ls_wire_roll_questions *questions);
void ls_wire_roll_forget(struct ls_wire_roll_questions *questions);
/* Slurm's name of the node of a rank; "" where it is not known. Returns `out`. */
const char *ls_wire_roll_node(const pmix_proc_t *me, int rank, char out[static 256]);

#endif
