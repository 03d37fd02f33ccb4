/* Small programs for the tests of the graph, built by hand so that they depend on no model code.
 * Together they hold every kind that can be differentiated, in more than one shape. */
#ifndef LS_TESTS_PROGRAMS_H
#define LS_TESTS_PROGRAMS_H

#include "graph/graph.h"

struct program_options {
    int64_t micro_batch;
    double dropout; /* 0: no dropout ops at all */
    enum ls_update_kind update;
    struct ls_attr optimizer;
    int64_t bucket_bytes;
};

/* images [n, 4, 3, 2], 5 classes: linear layers with ReLU and GELU, dropout, a tied weight used as it
 * is and transposed, weights that are products of weights (every form of matmul's transposes). */
void program_mlp(struct ls_prog *p, const struct program_options *o);
/* images [n, 7, 6, 3], 5 classes: convolutions with stride, padding, bias; batch norm; all pools; a
 * residual block with a projection; dropout on images. */
void program_convnet(struct ls_prog *p, const struct program_options *o);
/* images [n, 3, 2, 4], 3 classes: batch norm (unless `plain`) of the images, then one linear layer:
 * small enough to be computed by hand. */
void program_tiny(struct ls_prog *p, const struct program_options *o, bool plain);

typedef void program_maker(struct ls_prog *p, const struct program_options *o);

#endif
