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
    int mesh[LS_AXES]; /* all 0: one rank */
    int zero;
    bool tied; /* program_wide */
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

/* images [n, 4, 3, 2]: a residual block of two linear layers between a first one and a head, in three
 * model layers, with pins for the tensor axis: the block's weights by columns, then by rows; the head's
 * classes (8; 24 where the head is the first weight transposed, `tied`); the residual stream whole. */
void program_wide(struct ls_prog *p, const struct program_options *o);

typedef void program_maker(struct ls_prog *p, const struct program_options *o);

#endif
