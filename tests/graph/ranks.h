/* Trains a program on ranks that are threads, by the naive executor or by ls_exec, and compares what
 * every rank holds with one rank that runs the same global program. */
#ifndef LS_TESTS_RANKS_H
#define LS_TESTS_RANKS_H

#include "tests/graph/programs.h"
#include "tests/reference/naive.h"
#include "tests/reference/world.h"

struct ranks_run {
    const struct ls_naive_data *data; /* micros: of the whole step */
    int steps;
    int skip;  /* the step without a label, whose update is skipped; -1 */
    bool f64;  /* naive executor */
    bool late; /* collectives as late as their wait allows */
};

/* What a rank holds: a value for some of the elements of all parameters and moments, in the order of
 * the whole program's rows, parts and elements. */
struct ranks_part {
    double *values; /* NAN: not held */
    double loss[16], norm[16], eval[3], control[LS_CONTROL_WORDS];
    uint64_t trace;
    int started, progressed, lent; /* ls_exec: collectives, calls between ops, bytes */
};
struct ranks_outcome {
    int n, steps;
    int64_t count; /* elements of the whole */
    struct ranks_part *rank;
};

/* `p` is compiled for the mesh in its options. `held`: where evaluations begin. */
struct ranks_outcome ranks_naive(const struct ls_prog *p, const struct ranks_run *run);
struct ranks_outcome ranks_exec(const struct ls_prog *p, const struct ranks_run *run);
void ranks_free(struct ranks_outcome *o);

/* Bit for bit: everything that the ranks hold. */
bool ranks_same(const struct ranks_outcome *a, const struct ranks_outcome *b);
struct ranks_error {
    double values, loss, norm, eval; /* worst, relative to the largest */
    int64_t missing;                 /* elements that no rank holds */
};
/* Of `got` against the one rank of `want`. */
struct ranks_error ranks_compare(const struct ls_prog *p, const struct ranks_outcome *got,
                                 const struct ranks_outcome *want);

#endif
