/* Test numbers of every element type, and the reductions of them in double. The number at index i of
 * member m is a pure function, so that every process can work out what the others have. */
#ifndef LS_TESTS_COMM_NUMBERS_H
#define LS_TESTS_COMM_NUMBERS_H

#include "comm/comm.h"

int64_t number_size(enum ls_comm_type type);
const char *number_name(enum ls_comm_type type);
double number_at(const void *p, int64_t i, enum ls_comm_type type);
void numbers_fill(void *p, int64_t n, enum ls_comm_type type, int member, int salt);
/* want[i] = op over the members of element from + i; NaN where one of them is NaN. */
void numbers_reduce(double *want, int64_t n, enum ls_comm_type type, enum ls_comm_op op,
                    int members, int64_t from, int salt);
/* The first element that is not what it must be; -1: none. Half types: rounded once, so within half
 * a unit of the last place (and the f32 sum's own error). */
int64_t numbers_compare(const void *p, const double *want, int64_t n, enum ls_comm_type type,
                        enum ls_comm_op op, int members);

#endif
