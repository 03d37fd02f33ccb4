/* The reference with elements of LS_F32 operands stored as double. */
typedef double real;

#include "tests/reference/kernels.h"
#include "tests/reference/kernels_backward.h"
#include "tests/reference/kernels_forward.h"
#include "tests/reference/kernels_update.h"

#include "tests/reference/kernels_ranks.h" /* last: the table of kinds */

bool ls_ref_run_f64(const struct ls_op_desc *op, void *const *operands)
{
    return run_op(op, operands);
}
