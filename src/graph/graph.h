/* The program: arrays of tensors and ops, built once, the same for every step, and printable.
 *
 *   build -> differentiate -> evaluate -> (shard tensor, shard pipeline) -> bucket -> optimize
 *         -> shard (every axis) -> fuse -> layout -> schedule -> plan
 *
 * Every pass rewrites one program in place, in a file of its own, and leaves one that
 * ls_graph_verify accepts and ls_graph_dump prints. Passes know no device, file or clock.
 *
 *   struct ls_prog
 *     tensor[]  --- base ---> tensor[]      a view or the next version of another tensor
 *     op[]      --- in, out -> tensor[]     in program order; segs says in which segments it runs
 *     param[]   --- tensor, grad            what is trained, and how it is initialised
 *     bucket[]  --- param, acc, m, v        padded 1-D tensors; params and gradients are views
 */
#ifndef LS_GRAPH_H
#define LS_GRAPH_H

#include "base/base.h"
#include "device/device.h"
#include "device/op.h"

#include <stdio.h>

/* ---- tensors ---- */

enum ls_role {
    LS_ROLE_INPUT,   /* written by the data pipeline before a segment runs */
    LS_ROLE_PARAM,   /* master weights and running statistics: row-major, stored */
    LS_ROLE_GRAD,    /* gradients and their accumulators: never stored */
    LS_ROLE_STATE,   /* optimizer moments (stored) and evaluation sums (not stored) */
    LS_ROLE_DERIVED, /* compute copies of parameters in the backend's layout: never stored */
    LS_ROLE_CONTROL,
    LS_ROLE_ACT,  /* transients of forward and backward */
    LS_ROLE_WORK, /* transients of update */
    LS_ROLES
};
enum ls_storage {
    LS_STORE_OWN,  /* has bytes of its own */
    LS_STORE_VIEW, /* base + offset elements, contiguous: reads see base, writes fill a part of it
                    */
    LS_STORE_NEXT, /* the next version of base, in the same bytes: result of a state op */
};
/* Where the elements of a tensor are, along ONE mesh axis.
 *   R     every coordinate holds the same whole value, bit for bit
 *   S(d)  coordinate c holds the c-th equal slice of dimension d
 *   P     every coordinate holds a term; the value is the sum over the axis. PMAX: the maximum
 *   O     "own": every coordinate holds the value of its own micro-batch; there is no global tensor of
 *         which this is a part, and shapes are not divided. O becomes P only in an accumulation
 *   A(c)  only coordinate c has it (a pipeline stage), and only c runs the ops that make it */
enum ls_place_kind { LS_PLACE_R, LS_PLACE_S, LS_PLACE_P, LS_PLACE_PMAX, LS_PLACE_O, LS_PLACE_A };
struct ls_place {
    uint8_t kind, dim; /* dim: of S, or the coordinate of A */
};
#define LS_DIM_FLAT 255 /* S(FLAT): a view of a bucket that is itself sharded; no op can read it */

struct ls_tensor {
    const char *name; /* in the program's arena; unique among persistent tensors */
    enum ls_dtype dtype;
    enum ls_role role;
    bool persistent; /* keeps its value between runs of a segment */
    int ndim;
    int64_t shape[LS_MAX_DIMS];
    int primal; /* this is the gradient of that tensor; -1 */
    enum ls_storage storage;
    int base;       /* VIEW, NEXT; else -1 */
    int64_t offset; /* VIEW: elements of the base */
    int slice_axis; /* VIEW: + coordinate * numel on this axis; -1: the offset is the whole of it */
    struct ls_place place[LS_AXES];
    struct ls_place pin[LS_AXES]; /* annotation: the placement that shard must deliver */
    uint8_t pinned, placed;       /* bit per axis: has a pin; was placed by shard */
    int packed; /* DERIVED: the parameter of which this is a copy in the backend's layout; -1 */
    int64_t at; /* OWN: bytes from the start of its role's arena, set by plan; -1 */
    bool comm;  /* OWN: a collective reads or writes it, set by plan */
};

/* ---- ops ---- */

/* An op belongs to a set of segments. micro and last are one op list filtered by bit. */
enum ls_segment {
    LS_SEG_MICRO = 1,  /* every micro-batch of a step but the last */
    LS_SEG_LAST = 2,   /* the last micro-batch of a step */
    LS_SEG_UPDATE = 4, /* once per step, after it */
    LS_SEG_EVAL = 8,   /* one batch of the held-out split */
    LS_SEG_LOAD = 16,  /* once after parameters were set from outside */
};
#define LS_SEGMENTS 5
enum ls_phase { LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_UPDATE };
struct ls_op {
    enum ls_kind kind;
    struct ls_attr attr;
    int nin, nout;
    int *in, *out; /* tensor indices, in the program's arena; ls_graph_push copies them */
    unsigned segs; /* set of enum ls_segment */
    enum ls_phase phase;
    int layer; /* index of the model's layer, for messages and later for stages */
    int id;    /* stable while passes move ops */
    int seq;   /* collectives: place in their one total order; -1 */
    int wait;  /* collectives: index of the first op that must not start before it ended; nop: the
                  end of its segment */
    int pack_op, pack_operand; /* PACK: the id of the op and the operand that it serves */
};

/* ---- parameters and buckets ---- */

enum ls_rule {
    LS_RULE_DECAY,
    LS_RULE_PLAIN,
    LS_RULE_EMA
}; /* with, without weight decay; averages */
enum ls_fill_kind { LS_FILL_CONSTANT, LS_FILL_NORMAL, LS_FILL_UNIFORM };
struct ls_fill {
    enum ls_fill_kind kind;
    double a; /* the constant, the standard deviation, or the bound of [-a, a] */
};
struct ls_param {
    int tensor, grad; /* grad: -1 before differentiate. For EMA: the batch statistic */
    enum ls_rule rule;
    double momentum; /* EMA */
    struct ls_fill fill;
};
struct ls_bucket {
    int param, grad, acc, m, v; /* m, v: -1 where the rule has none; grad: -1 after fuse */
    int64_t n;                  /* padded length in elements */
    enum ls_rule rule;
    double momentum;
};

/* ---- the program ---- */

enum ls_update_kind { LS_UPDATE_SGD, LS_UPDATE_ADAMW };
struct ls_graph_options {
    int64_t micro_batch; /* rows of one micro-batch */
    enum ls_update_kind update;
    struct ls_attr optimizer; /* momentum, nesterov, beta1, beta2, eps, decay, max_norm */
    int64_t bucket_bytes;
    int mesh[LS_AXES]; /* ranks along each axis; 0 is taken as 1 */
    /* What every data rank keeps only a slice of (Rajbhandari et al., SC 2020): 1: reduced gradients and
     * moments, 2: accumulators too, 3: and parameters; 0: nothing. */
    int zero;
    int stages_of; /* layers of the model that the pipeline divides; 0: all that have an op */
};
struct ls_prog {
    struct ls_graph_options options;
    struct ls_arena arena;
    struct ls_tensor *tensor;
    int ntensor, captensor;
    struct ls_op *op;
    int nop, capop;
    struct ls_param *param;
    int nparam, capparam;
    struct ls_bucket *bucket;
    int nbucket, capbucket;
    int images, labels, control; /* tensors; images f32 [n,h,w,c], labels i32 [n] */
    int logits;
    int loss[2]; /* sum and count of one micro-batch */
    int wishes;  /* f32 [LS_WISHES], this rank's; written by the host before update; -1 */
    int eval;    /* f32 [3]: loss sum, count, correct; accumulated; -1 */
    int next_id;
    int64_t arena_bytes[LS_ROLES]; /* set by plan */
    /* stamped on ops by ls_graph_emit */
    int layer;
    enum ls_phase phase;
    unsigned segs;
    /* The first failure of a building block; ls_graph_check hands it over at the end of a pass. */
    struct ls_error error;
    int zeros[LS_OP_MAX_OUT]; /* what emission returns after a failure */
};

/* What the graph knows of a kind (kinds.c). */
struct ls_kind_info {
    const char *name, *dims;
    int8_t state[LS_OP_MAX_OUT]; /* result o is the next version of operand state[o] - 1; 0: not */
    uint8_t accumulates;         /* bit o: result o is a gradient that has an accumulating form */
    double flops;                /* times the product of the extents of all letters */
    uint32_t linear[2];          /* operand sets in which it is jointly linear: all P in, P out */
    bool max;                    /* results that lack the sharded letter are PMAX, not P */
};
const struct ls_kind_info *ls_graph_kind(enum ls_kind kind);

/* prog.c: building blocks. One that fails (no memory, shapes that do not fit) records the error in
 * prog->error and returns index 0; all later ones do nothing. ls_graph_check ends a sequence. */
void ls_graph_init(struct ls_prog *p, const struct ls_graph_options *options);
void ls_graph_free(struct ls_prog *p);
int ls_graph_tensor(struct ls_prog *p, enum ls_role role, bool persistent, enum ls_dtype dtype,
                    int ndim, const int64_t *shape, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));
/* Adds an op, infers its results from the dims string, and returns their tensor indices (valid as
 * long as the program). Kinds without dims have their own makers. */
const int *ls_graph_emit(struct ls_prog *p, enum ls_kind kind, const struct ls_attr *attr, int nin,
                         const int *in);
/* A one-dimensional concatenation of the operands, flattened. */
int ls_graph_concat(struct ls_prog *p, int nin, const int *in);
enum ls_status ls_graph_check(const struct ls_prog *p, const char *pass, struct ls_error *err);
void ls_graph_push(struct ls_prog *p, const struct ls_op *op); /* copies operands and results */
/* Hands the op array to the caller (who frees it) and leaves an empty one: start of a rewrite. */
struct ls_op *ls_graph_take_ops(struct ls_prog *p, int *n);
int ls_graph_param(struct ls_prog *p, int ndim, const int64_t *shape, enum ls_rule rule,
                   struct ls_fill fill, const char *name); /* a tensor; its param row is the last */
int ls_graph_reshape(struct ls_prog *p, int t, int ndim, const int64_t *shape);
int64_t ls_graph_numel(const struct ls_prog *p, int t);
int64_t ls_graph_bytes(const struct ls_prog *p, int t);
int ls_graph_root(const struct ls_prog *p, int t); /* follows base to the owner of the bytes */
/* Bytes from the root's start, on coordinate 0 of every axis. */
int64_t ls_graph_offset(const struct ls_prog *p, int t);
/* The operand of which result `k` is the next version, or -1: attributes count (accumulate). */
int ls_graph_state_of(const struct ls_op *op, int k);
/* FLOPs of one launch (a multiply-add is 2); bytes read and written, at least. */
double ls_graph_flops(const struct ls_prog *p, const struct ls_op *op);

/* dims.c: the dims string of an op after attributes, '*' and '#' expanded to letters. */
#define LS_DIMS_MAX 256
struct ls_dims {
    char text[LS_DIMS_MAX];
    char in[LS_OP_MAX_IN][LS_MAX_DIMS + 1], out[LS_OP_MAX_OUT][LS_MAX_DIMS + 1];
    int nin, nout;
    int64_t extent[128]; /* by letter; 0 where unknown */
};
/* Checks all operands against the string, and computes the extents of all letters of results.
 * Errors: INTERNAL, naming kind, operand and both extents. Kinds without dims: LS_OK, nin = 0. */
enum ls_status ls_graph_dims(const struct ls_prog *p, const struct ls_op *op, struct ls_dims *dims,
                             struct ls_error *err);
/* The labels alone: shapes may still disagree, as they do while shard brings operands into place. */
enum ls_status ls_graph_labels(const struct ls_prog *p, const struct ls_op *op,
                               struct ls_dims *dims, struct ls_error *err);

/* dump.c, verify.c */
void ls_graph_dump(const struct ls_prog *p, FILE *out);
enum ls_status ls_graph_verify(const struct ls_prog *p, const char *after, struct ls_error *err);

/* The passes, in order. src/model does the build. */
enum ls_status ls_graph_differentiate(struct ls_prog *p, struct ls_error *err);
enum ls_status ls_graph_evaluate(struct ls_prog *p, struct ls_error *err);
enum ls_status ls_graph_bucket(struct ls_prog *p, struct ls_error *err);
enum ls_status ls_graph_optimize(struct ls_prog *p, struct ls_error *err);
/* One axis at a time; a second call changes nothing. The replica axis is invisible to a step. */
enum ls_status ls_graph_shard(struct ls_prog *p, enum ls_axis axis, struct ls_error *err);
enum ls_status ls_graph_fuse(struct ls_prog *p, struct ls_error *err);
/* `pack_size` answers as ls_device_api.pack_size; NULL: no derived layouts. */
typedef int64_t ls_pack_size_fn(void *arg, const struct ls_op_desc *op, int operand);
enum ls_status ls_graph_layout(struct ls_prog *p, ls_pack_size_fn *pack_size, void *arg,
                               struct ls_error *err);
enum ls_status ls_graph_schedule(struct ls_prog *p, struct ls_error *err);
enum ls_status ls_graph_plan(struct ls_prog *p, struct ls_error *err);

/* Runs all passes after the build, verifying after each. When `stop_after` names a pass, stops
 * there. ls_graph_passes lists the names, NULL-terminated, "build" first. */
extern const char *const ls_graph_passes[];
enum ls_status ls_graph_compile(struct ls_prog *p, ls_pack_size_fn *pack_size, void *arg,
                                const char *stop_after, struct ls_error *err);

/* convert.c, pipeline.c: what other passes and executors ask about ranks. */
int ls_graph_mesh(const struct ls_prog *p, enum ls_axis axis); /* ranks along it, at least 1 */
int ls_graph_stage(const struct ls_prog *p, int layer);        /* the pipeline cuts by layer */
/* Asks shard to deliver that placement; nothing on an axis of one rank. */
void ls_graph_pin(struct ls_prog *p, int t, enum ls_axis axis, struct ls_place place);
bool ls_graph_same_place(struct ls_place a, struct ls_place b);
bool ls_graph_is_collective(enum ls_kind kind);
/* Does every run of a micro-batch need all data ranks (ZeRO 2 and 3)? Then all of them run the same
 * number of micro-batches: short ranks add some in which no sample has a label. With ZeRO 3 the same
 * holds for the batches of an evaluation. */
bool ls_graph_micro_meets(const struct ls_prog *p);

/* ---- ranks: what an executor asks of communicators ---- */

/* One collective of this rank. The group: all ranks that differ only in the coordinates of `axes`,
 * ordered by rank. */
struct ls_collective {
    enum ls_kind kind; /* ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, SEND */
    unsigned axes;     /* set of bits 1 << enum ls_axis */
    const void *in;    /* all_reduce: the same as out */
    void *out;
    int64_t count; /* elements of in; send: of the message */
    enum ls_dtype dtype;
    bool max; /* all_reduce: maximum, not sum */
    int dim;  /* all_gather: the dimension that is joined */
    int64_t outer,
        inner;    /* all_gather: in is [outer, inner], out [outer, members, inner]; the outer
                             extent is 1 where dim is 0. Then in may be this rank's slice of out */
    int from, to; /* send: coordinates; only these two ranks take part */
    int seq;      /* place in the one total order of collectives */
    double
        *squares; /* reduce_scatter: where the sum of the squares of out goes; NULL: nobody asks */
};
/* How an executor of one of many ranks reaches the others. Requests are started in one order on all
 * ranks; memory of a collective belongs to it until it was waited for. */
struct ls_exec_comm {
    void *arg;
    int coord[LS_AXES];
    bool
        squares; /* it can sum the squares of what a reduce_scatter yields on the way, in float64 */
    /* Zeroed memory for arenas with communicated tensors; stays the communicator's. The same calls in
     * the same order on all ranks. NULL: the device's memory will do. */
    enum ls_status (*alloc)(void *arg, int64_t bytes, void **mem, struct ls_error *err);
    /* NULL: the program can be opened, to see what it takes, but not run. */
    enum ls_status (*start)(void *arg, const struct ls_collective *c, void **req,
                            struct ls_error *err);
    enum ls_status (*wait)(void *arg, void *req, struct ls_error *err);
    void (*progress)(void *arg); /* called between ops while something is under way; may be NULL */
};

/* exec.c: a planned program on one device. */
struct ls_exec;
/* Allocates the arenas, prepares every kernel. `prog`, `api` and `dev` must outlive it, and `comm` too;
 * NULL: one rank. Errors: INTERNAL for a program with collectives and no comm; UNSUPPORTED for a kind
 * that the device has no kernel for, and for ZeRO 2 and 3 (gradient buckets that are transient). */
enum ls_status ls_exec_open(const struct ls_prog *prog, const struct ls_device_api *api,
                            struct ls_device *dev, const struct ls_exec_comm *comm,
                            struct ls_exec **exec, struct ls_error *err);
void ls_exec_close(struct ls_exec *exec);
/* Launches all ops of the segment in order. Asynchronous where the device is. Collectives of LAST may
 * still be under way when it returns: UPDATE must be the next segment. */
enum ls_status ls_exec_run(struct ls_exec *exec, enum ls_segment segment, struct ls_error *err);
/* Copies a whole tensor (this rank's part); the host buffer has ls_graph_bytes(prog, t) bytes. Waits
 * for the device and for all collectives. */
enum ls_status ls_exec_read(struct ls_exec *exec, int tensor, void *host, struct ls_error *err);
enum ls_status ls_exec_write(struct ls_exec *exec, int tensor, const void *host,
                             struct ls_error *err);
/* As write, for an input tensor; but where the device can, it reads `host` in place, which then stays the
 * caller's to keep until the next lend of that tensor. 64-byte aligned. */
enum ls_status ls_exec_lend(struct ls_exec *exec, int tensor, const void *host,
                            struct ls_error *err);
int64_t ls_exec_bytes(const struct ls_exec *exec); /* what the arenas and the scratch take */
/* Describes an op of the program to a backend. `io` has room for nin + nout operands. */
void ls_graph_describe(const struct ls_prog *p, const struct ls_op *op, struct ls_operand *io,
                       struct ls_op_desc *desc);

#endif
