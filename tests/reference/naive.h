/* The naive executor: runs a program after any pass, op by op, with the reference kernels. It
 * shares nothing with ls_exec: it finds storage, operands and lives by itself.
 *
 *   not planned   every root tensor has memory of its own
 *   planned       arenas with the offsets of the plan. In the double build all offsets and sizes are
 *                 doubled, so that what overlaps in the plan overlaps here
 *
 * Bytes of a transient are NaN before its first write and after its last use in the order of the
 * ops, of which the plan must know nothing better; so is every gradient accumulator between steps.
 * A program that reads what it should not turns into NaN, or differs between the two forms.
 *
 * One rank of many runs its part: views that depend on its coordinates, ops of its stage, collectives
 * through a hook. `late` runs each of these as late as its wait allows, the worst that a communication
 * stream can do; the result must not change by a bit.
 *
 * This is test code: a program that cannot be run ends the process with a message. */
#ifndef LS_TESTS_NAIVE_H
#define LS_TESTS_NAIVE_H

#include "graph/graph.h"

struct ls_naive;

/* `prog` must outlive it. Parameters, moments, control are zero: see ls_naive_init. */
struct ls_naive *ls_naive_open(const struct ls_prog *prog, bool f64, bool planned);
struct ls_naive_rank {
    int coord[LS_AXES];
    bool late;
    void (*collective)(void *arg, const int *coord, const struct ls_collective *c); /* blocks */
    void *arg;
};
struct ls_naive *ls_naive_open_rank(const struct ls_prog *prog, bool f64, bool planned,
                                    const struct ls_naive_rank *rank);
const struct ls_prog *ls_naive_prog(const struct ls_naive *n);
void ls_naive_close(struct ls_naive *n);
void ls_naive_run(struct ls_naive *n, enum ls_segment segment);

/* One element of a tensor, whatever its dtype; `i` counts row-major. */
double ls_naive_get(const struct ls_naive *n, int tensor, int64_t i);
void ls_naive_set(struct ls_naive *n, int tensor, int64_t i, double value);
double ls_naive_control(const struct ls_naive *n, enum ls_control word);
/* Copies a whole tensor; `values` has ls_graph_numel elements. */
void ls_naive_read(const struct ls_naive *n, int tensor, double *values);

/* Element `i` of a parameter row, of one rank alone: its value, accumulated gradient or statistic, moments (0 where the
 * optimizer has none). From the bucket pass on. */
enum ls_naive_part { LS_NAIVE_VALUE, LS_NAIVE_GRADIENT, LS_NAIVE_M, LS_NAIVE_V };
double ls_naive_member(const struct ls_naive *n, int row, enum ls_naive_part part, int64_t i);
/* Sum of losses accumulated over the micro-batches that were run, and the number of labels. */
double ls_naive_loss(const struct ls_naive *n, int64_t *count);

/* ---- made-up data and weights: values exact in float, so that every executor starts alike ----- */

/* Element `i` of parameter row `row`, from its fill. */
float ls_naive_fill(const struct ls_prog *prog, int row, uint64_t seed, int64_t i);
/* Fills all parameters by row; then runs LOAD. */
void ls_naive_init(struct ls_naive *n, uint64_t seed);

struct ls_naive_data {
    uint64_t seed;  /* of images, labels and of the job */
    double ignored; /* fraction of training samples without a label */
    int micros;     /* micro-batches per step */
    double lr;
};
/* The batch whose first sample stands at `first`; rows from `valid` on are padding (label -1).
 * images: one micro-batch of floats; labels: its int32. */
void ls_naive_sample(const struct ls_prog *prog, const struct ls_naive_data *data, int64_t first,
                     int64_t valid, float *images, int32_t *labels);
/* Sets the words of control that the host writes. */
void ls_naive_words(const struct ls_naive_data *data, int64_t step, int micro, int64_t first,
                    double *control);
/* Writes images and labels for the batch at `first` and the host's words of control. */
void ls_naive_load(struct ls_naive *n, const struct ls_naive_data *data, int64_t step, int micro,
                   int64_t first, int64_t valid);
/* All micro-batches of a step, up to the last one; the update is not run. */
void ls_naive_micros(struct ls_naive *n, const struct ls_naive_data *data, int64_t step);
void ls_naive_step(struct ls_naive *n, const struct ls_naive_data *data, int64_t step);

#endif
