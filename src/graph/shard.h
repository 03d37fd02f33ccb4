/* The shard pass's own view of a program, shared by its files; private to this folder.
 *
 *   shard.c    the pass: one op after the other, on one axis
 *   choose.c   which placements an op takes and yields
 *   convert.c  how a tensor gets from one placement to another
 *   pipeline.c, decompose.c  what the pipeline axis and some kinds need instead */
#ifndef LS_GRAPH_SHARD_H
#define LS_GRAPH_SHARD_H

#include "graph/graph.h"

#define LS_SHARD_NEVER 1e18
/* What starting a collective costs, in elements: a few microseconds of a link. */
#define LS_SHARD_START 1000.0

struct ls_shard_made { /* a conversion that was made and may be read again */
    int from, to;
    struct ls_place want;
    enum ls_phase phase;
    unsigned segs; /* where it runs */
};
struct ls_shard_choice { /* where an op takes its operands and yields its results */
    struct ls_place *in, out[LS_OP_MAX_OUT];
};
struct ls_shard {
    struct ls_prog *p;
    enum ls_axis axis;
    int n;                  /* ranks along the axis */
    int *now, nnow, capnow; /* tensor -> the tensor to read instead (a mended P, a delivered pin) */
    struct ls_shard_made *made;
    int nmade, capmade;
    struct ls_place *scratch, *choice; /* room for the operands of one op */
};

/* convert.c */
struct ls_place ls_shard_have(const struct ls_shard *s, int t);
bool ls_shard_pinned(const struct ls_shard *s, int t);
void ls_shard_set(struct ls_shard *s, int t, struct ls_place place);
void ls_shard_grow(struct ls_shard *s); /* follows the growth of the tensor array */
/* Elements that cross the axis to bring t where `op` wants it, or NEVER. */
double ls_shard_cost(const struct ls_shard *s, int t, struct ls_place want, const struct ls_op *op);
/* A transient shaped and annotated like t, placed otherwise, named "t/tag". */
int ls_shard_new(struct ls_shard *s, int t, struct ls_place place, const char *tag);
void ls_shard_become(struct ls_shard *s, int t, enum ls_storage storage, int base);
/* A tensor that holds the value of t placed as wanted; pushes the op that makes it. */
int ls_shard_convert(struct ls_shard *s, int t, struct ls_place want, const struct ls_op *user,
                     unsigned segs);

/* choose.c */
void ls_shard_choose(struct ls_shard *s, const struct ls_op *op, struct ls_shard_choice *best);
/* Where a result should end up: its pin, or where the tensor is of which it is the gradient; P stands
 * for anywhere. */
struct ls_place ls_shard_target(const struct ls_shard *s, int t);

/* shard.c */
void ls_shard_place(struct ls_shard *s, const struct ls_op *op);

/* pipeline.c: an op of a micro-batch runs on the stage of its layer, one of the update where its
 * operands are. */
void ls_shard_pipeline(const struct ls_shard *s, const struct ls_op *op, struct ls_shard_choice *c);
/* Pins every parameter to the stage that reads it; one that several stages read stays whole. */
void ls_shard_pin_stages(struct ls_shard *s);
/* decompose.c: statistics, collective and finish of a reduction over a dimension that must be whole but
 * is sharded; false where nothing of the kind is needed. */
bool ls_shard_decompose(struct ls_shard *s, const struct ls_op *op);

#endif
