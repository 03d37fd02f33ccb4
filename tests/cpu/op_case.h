/* One op on the CPU backend against the float64 reference: made-up operands, guard bytes around
 * every one of them and around the workspace, one and two threads, two runs bit by bit.
 *
 *   struct op_case c = {.kind = LS_K_ADD};
 *   op_in(&c, LS_F32, 2, 3, 5); ... op_out(&c, LS_F32, 2, 3, 5);
 *   op_check(&c, "add 3x5");
 */
#ifndef LS_TESTS_OP_CASE_H
#define LS_TESTS_OP_CASE_H

#include "device/device.h"

enum op_fill {
    OP_NORMAL,   /* standard normal */
    OP_POSITIVE, /* in (0.5, 1.5): variances, second moments, reciprocal deviations */
    OP_LABELS,   /* in [-1, last dimension of operand 0) */
    OP_PLACES,   /* in [0, kernel * kernel) */
    OP_CONTROL,
};
struct op_case {
    enum ls_kind kind;
    struct ls_attr attr;
    int nin, nout;
    struct ls_operand io[LS_OP_MAX_IN + LS_OP_MAX_OUT]; /* operands, then results */
    enum op_fill fill[LS_OP_MAX_IN];
    int state[LS_OP_MAX_OUT]; /* the operand of which result o is the next version, + 1; 0: none */
    double control[LS_CONTROL_WORDS];
    double tolerance; /* relative to the largest value of a result; 0: 2e-5 */
    double scale;     /* of OP_NORMAL operands; 0: 1 */
    int poison;       /* 1 + operand whose middle element becomes `poison_value` */
    double poison_value;
};

void op_in(struct op_case *c, enum ls_dtype dtype, int ndim, ...); /* extents as int */
void op_out(struct op_case *c, enum ls_dtype dtype, int ndim, ...);
void op_control(struct op_case *c); /* the control operand */
/* Operands for the accumulating form: one accumulator per gradient result from `first` on, control;
 * sets the attribute and the state pairs. */
void op_accumulate(struct op_case *c, int first);

/* One TAP line: everything above, plain and, where the backend has one, with packed operands. */
bool op_check(const struct op_case *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One TAP line: prepare refuses with UNSUPPORTED and a message that contains `part`. */
bool op_refused(const struct op_case *c, const char *part, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool op_ok(bool pass, const char *name); /* a line for a check of the test's own */
/* The plan at the end; to be returned from main (tap.h counts per source file: do not mix). */
int op_done(void);

const struct ls_device_api *op_api(void); /* loads the plugin; ends the test where there is none */
struct ls_device *op_device(int threads); /* 1 or 2, opened once */
const char *op_plugin_dir(void);

#endif
