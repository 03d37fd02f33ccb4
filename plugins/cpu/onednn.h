/* All that the backend asks of oneDNN, in its own words: the one place that knows the library and
 * the differences between its versions 2.6 and 3.x.
 */
#ifndef LS_CPU_ONEDNN_H
#define LS_CPU_ONEDNN_H

#include "plugins/cpu/cpu.h"

const char *ls_dnn_version(void); /* "oneDNN 2.6.3" */
enum ls_status ls_dnn_open(struct ls_dnn **dnn, struct ls_error *err);
void ls_dnn_close(struct ls_dnn *dnn);

/* As the functions of the device's table. */
int64_t ls_dnn_pack_size(struct ls_device *dev, const struct ls_op_desc *op, int operand);
enum ls_status ls_dnn_prepare_pack(struct ls_device *dev, const struct ls_op_desc *op, int operand,
                                   struct ls_kernel **kernel, struct ls_error *err);
/* CONV2D, CONV2D_GRAD_DATA, CONV2D_GRAD_WEIGHT. */
ls_cpu_prepare ls_dnn_conv;

#endif
