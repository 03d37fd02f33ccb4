/* Two small job descriptions by hand, for the golden dumps and for whole steps on a backend. */
#ifndef LS_TESTS_JOBS_H
#define LS_TESTS_JOBS_H

#include "model/model.h"

struct small_job {
    const char *name;
    struct ls_job job;
    struct ls_model_input input;
};
/* AdamW, clipping, GELU, dropout, two hidden layers: images 6 x 5 x 1, 4 classes. */
void small_mlp(struct small_job *s);
/* SGD with Nesterov momentum; every type of layer, a residual block repeated twice behind one with a
 * projection: images 8 x 8 x 2, 4 classes. */
void small_convnet(struct small_job *s);

#endif
