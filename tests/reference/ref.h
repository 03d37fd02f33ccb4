/* The reference: every op kind exactly as src/device/op.h defines it, in naive loops. It judges the
 * backends, and finite differences (tests/graph/test_grad.c) judge it. Nothing here is fast.
 *
 * One source, two builds. In both, sums are taken in double and each result is rounded once:
 *   f64   elements of LS_F32 operands are stored as double: the yardstick
 *   f32   they are stored as float: what a perfect float32 backend would give
 * Operands of the other dtypes have their own type in both. An epilogue, and the addition of an
 * accumulating form, round between its steps as separate ops would: fused and unfused programs give
 * the same bits. */
#ifndef LS_TESTS_REF_H
#define LS_TESTS_REF_H

#include "device/device.h"

/* Runs one op. `operands`: nin pointers, then nout pointers. False: the kind, or this form of it, is
 * unknown. No operand may be packed. PACK and JOIN are not run here: see ls_ref_pack_* and
 * naive.c. */
bool ls_ref_run_f32(const struct ls_op_desc *op, void *const *operands);
bool ls_ref_run_f64(const struct ls_op_desc *op, void *const *operands);

/* Bytes of one stored element: LS_F32 as float (f64 false) or double. */
int64_t ls_ref_size(enum ls_dtype dtype, bool f64);

/* A made-up packed form for tests of the layout pass: a header of LS_REF_PACK_HEAD elements of NaN,
 * then the elements backwards, rotated by a distance that depends on the op that will read them. Wrong
 * sizes, plain reads of packed bytes and copies made for another op show at once. */
#define LS_REF_PACK_HEAD 16
int64_t ls_ref_pack_size(void *arg, const struct ls_op_desc *op, int operand);
/* `user`: kind and attributes of the op that reads the packed operand of `numel` elements. */
void ls_ref_pack(enum ls_kind user, const struct ls_attr *attr, const void *plain, void *packed,
                 int64_t numel, bool f64);
void ls_ref_unpack(enum ls_kind user, const struct ls_attr *attr, const void *packed, void *plain,
                   int64_t numel, bool f64);

/* The f32 build as a device backend, for tests of ls_exec. */
const struct ls_device_api *ls_ref_device(void);

#endif
