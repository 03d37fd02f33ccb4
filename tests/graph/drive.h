/* Runs a program for a few steps, with evaluations, through the naive executor or through ls_exec on
 * a backend, on the same made-up data, and collects everything that is left behind. */
#ifndef LS_TESTS_DRIVE_H
#define LS_TESTS_DRIVE_H

#include "tests/reference/naive.h"

struct drive_run {
    const struct ls_naive_data *data;
    int steps;
    int evaluations; /* after how many of the last steps: two batches, the second one short */
};

/* Per parameter row and element: value, m, v; then the words of control; then loss sum, count and hits
 * of the last evaluation. */
struct drive_outcome {
    double *values; /* the caller frees */
    int64_t n;
};

void drive_need(enum ls_status status, const struct ls_error *err); /* or the test bails out */
struct drive_outcome drive_naive(const struct ls_prog *p, const struct drive_run *run, bool f64,
                                 bool planned);
/* `bytes`: what ls_exec_bytes says; may be NULL. */
struct drive_outcome drive_exec(const struct ls_prog *p, const struct drive_run *run,
                                const struct ls_device_api *api, int threads, int64_t *bytes);
/* Bit for bit, and finite. Notes the first difference. */
bool drive_same(const struct drive_outcome *a, const struct drive_outcome *b);

#endif
