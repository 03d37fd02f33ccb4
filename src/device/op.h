/* The vocabulary of programs: element types, op kinds with their exact meaning, attributes, the
 * words of the control tensor. Shared by the graph, which builds ops, and the device backends,
 * which run them. Knows no tensor, no memory, no vendor. */
#ifndef LS_DEVICE_OP_H
#define LS_DEVICE_OP_H

#include <stdbool.h>
#include <stdint.h>

/* ---- elements ---- */

enum ls_dtype { LS_F32, LS_F64, LS_I32, LS_U8, LS_DTYPES };
static inline int64_t ls_dtype_size(enum ls_dtype t)
{
    return t == LS_F64 ? 8 : t == LS_U8 ? 1 : 4;
}

#define LS_MAX_DIMS 4

/* ---- the control tensor: per-step values are data ---- */

/* One F64 tensor of LS_CONTROL_WORDS words. The host writes the first group before a segment runs;
 * the program writes the second. Integers are exact up to 2^53. */
enum ls_control {
    LS_C_STEP,   /* number of this step, from 0 */
    LS_C_LR,     /* learning rate of this step */
    LS_C_MICRO,  /* index of this micro-batch among those of this rank in the step (or of the batch
                    in an evaluation), from 0 */
    LS_C_MICROS, /* micro-batches in the whole step, over all ranks */
    LS_C_SAMPLE, /* global position of the first sample of this micro-batch in the sample order */
    LS_C_SEED,   /* seed of the job */
    /* written by commit */
    LS_C_LOSS,    /* sum of the losses of the step's samples */
    LS_C_COUNT,   /* number of samples with a label */
    LS_C_NORM,    /* L2 norm of the mean gradient, before clipping */
    LS_C_SCALE,   /* what the optimizer multiplies the gradient sum with: clip factor / count */
    LS_C_SKIP,    /* 1: norm or loss is not finite, or count is 0; state ops of update do nothing */
    LS_C_UPDATES, /* applied updates, this one included; persistent, stored in checkpoints */
    LS_C_SKIPPED, /* steps skipped since the start of the process */
    LS_C_WISH,    /* and the next words: how many ranks wish what, see LS_WISHES */
    LS_C_WISH_END = LS_C_WISH + 3,
    LS_CONTROL_WORDS
};

/* ---- the mesh: ranks have a coordinate on each of four named axes, the last varies fastest ---- */

enum ls_axis { LS_AXIS_REPLICA, LS_AXIS_DATA, LS_AXIS_PIPELINE, LS_AXIS_TENSOR, LS_AXES };

/* ---- kinds ---- */

/* The one table of what every kind means. X(ENUM, name, dims)
 *
 * dims: "operands->results". A letter is a dimension; the same letter has the same extent everywhere.
 *   lower case  may be sharded: operands and results that have it are slices, operands that lack it
 *               are whole, and a result that lacks it is a term of a sum (a contraction)
 *   UPPER CASE  must stay whole
 *   *  any number of dimensions, lower case; #  the same, upper case: the same ones everywhere
 *   C  alone: the control tensor
 *   ?  operands or results that an attribute adds (see the comment of the kind)
 * A NULL dims: shapes are set by the maker. Activations of images are [n, h, w, c], channels last.
 * Sums run in a fixed order for a fixed shape and thread count: the same program, the same bits.
 *
 * --- forward
 * matmul      c = op(a) op(b); op transposes if ta / tb (a is then "ki", b is "jk"). Epilogue, in
 *             this order: + bias (attr bias: third operand, "j"), activation (attr act). With act =
 *             GELU and attr keep_pre a second result, "ij", holds the value before the activation.
 *             Attr accumulate: see below; never together with an epilogue.
 * bias        y = x + b, b along the last dimension
 * relu        y = max(x, 0), NaN stays NaN
 * gelu        y = x * Phi(x), exact (erf), not the tanh form
 * add         y = a + b
 * conv2d      y[n,p,q,o] = sum_{y,x,c} x[n, p*stride+y-pad, q*stride+x-pad, c] * w[o,c,y,x]; zero
 *             padding; w is [o, c, y, x] (filters, channels, height, width). Epilogue as matmul's:
 *             bias "o", act RELU (no GELU)
 * max_pool    over kernel x kernel windows, padding never wins, NaN always does; the second result
 *             (U8) is the place of the first maximum (or NaN) in its window, y * kernel + x
 * avg_pool    divides by kernel * kernel, padding counts as zeros
 * global_pool mean over h and w
 * reshape     a view of the operand with another shape; moves nothing, has no kernel
 * batch_norm  y = (x - mean) * rstd * gain + bias per channel (the last dimension), mean and rstd =
 *             1 / sqrt(var + eps) over all other dimensions, var biased. Operands x, gain, bias;
 *             results y, mean, rstd, unbiased var (for the running statistics). Epilogue act RELU
 * batch_norm_eval  the same with given mean and var: operands x, gain, bias, mean, var. act RELU
 * dropout     y = u >= rate ? x / (1 - rate) : 0, u = ls_uniform(ls_mix64(seed, path), step, index),
 *             index = (control.SAMPLE + i) * inner + j for row i (first dimension) and element j of
 *             the inner = numel / rows in it. Where attr whole > 0, the last dimension is a slice, and
 *             j counts in the whole one. Linear and self-adjoint: its own derivative
 * xent        softmax cross-entropy. Operands logits, labels (I32, < 0: ignored, weight 0). Results:
 *             sum of losses, number of labels that count (both scalars), log-sum-exp of every row
 * top1        number of rows whose label (>= 0) is the first largest logit
 *
 * --- backward (operands: what they need of the forward, then dy)
 * relu_grad   dx = y > 0 ? dy : 0, from the result y
 * gelu_grad   from the operand x
 * conv2d_grad_data    operands w, dy; the image's size is an attribute. Result dx
 * conv2d_grad_weight  operands x, dy; the filter's size is an attribute. Result dw, [o, c, y, x]
 * max_pool_grad       operands place, dy. avg_pool_grad, global_pool_grad: operand dy
 * batch_norm_grad     operands x, gain, mean, rstd, dy. Results dx, dgain, dbias
 * xent_grad   operands logits, labels, log-sum-exp: softmax - onehot, 0 for ignored rows. The first
 *             logit is that of class attr first
 * sum_rows    sum over all dimensions but the last
 *
 * --- accumulation and update
 * join        operands: all members of a bucket (views of it). Moves nothing, yields the bucket (its
 *             next version where it is an accumulator), and zeroes the gaps between and behind them.
 *             No kernel: gaps of a persistent bucket are zero from its allocation on
 * accum       acc' = control.MICRO > 0 ? acc + x : x (state op on operand 0). matmul,
 *             conv2d_grad_weight, sum_rows, batch_norm_grad have an accumulating form (attr
 *             accumulate): their gradient results are state ops with the same meaning; the operands
 *             are followed by the accumulators, one per gradient result, and by control
 * sumsq       sum of squares, kept in float64, rounded to float32 once
 * concat      the operands one behind the other, flattened
 * commit      operand 0 is the vector (loss sum, count, squared norms...). State op on control: sets
 *             LOSS, COUNT, NORM = sqrt(sum of squared norms) / COUNT, SKIP = NORM or LOSS not finite
 *             or COUNT = 0, SCALE = (max_norm > 0 ? min(1, max_norm / NORM) : 1) / COUNT; adds 1 to
 *             UPDATES, or to SKIPPED where SKIP. Every state op of update does nothing where SKIP. The
 *             last attr wishes numbers of the vector are no norms: they go to control.WISH
 * sgd         operands p, v, g, control. d = SCALE * g + decay * p; v' = momentum * v + d;
 *             p' = p - LR * (nesterov ? d + momentum * v' : v'). State op on p and v
 * adamw       operands p, m, v, g, control. g' = SCALE * g; m' = b1 m + (1 - b1) g';
 *             v' = b2 v + (1 - b2) g'^2; t = UPDATES (this one counted);
 *             p' = p - LR * (m' / (1 - b1^t) / (sqrt(v' / (1 - b2^t)) + eps) + decay * p).
 *             State op on p, m and v. (Loshchilov & Hutter, ICLR 2019; the schedule scales both)
 * ema         operands s, sum, control: s' = s + (1 - momentum) * (sum / MICROS - s), running
 *             statistics. State op on s. A micro-batch without labels has statistics all the same: a
 *             rank that only fills up with one spoils the average
 *
 * --- between ranks; a group is the ranks that differ only in the coordinates of attr axes
 * all_reduce  sum (attr max: maximum) over the group, in place: state op; all members get the same
 *             bits. reduce_scatter: the sum, of which coordinate c keeps the c-th slice of dimension 0.
 *             all_gather: the slices of dimension attr dim, joined; with a second operand a state op
 *             on it, in place (the first is this rank's slice of it)
 * slice       this coordinate's slice of dimension attr dim. keep: the operand where the coordinate is
 *             attr from, zero elsewhere. send: from coordinate attr from to attr to
 * xent_max, xent_sum, xent_finish  cross-entropy over a sharded vocabulary: maximum of the row; sum of
 *             exp(logit - max) and the label's logit (0 where another coordinate has it; the first
 *             logit is that of class attr first); loss sum,
 *             count and log-sum-exp from max, sum, the label's logit and the labels
 *
 * pack        derives a compute copy of a parameter in the backend's own layout (opaque bytes), after
 *             every update and after loading
 */
#define LS_KINDS(X)                                                  \
    X(MATMUL, "matmul", "ik,kj,?->ij,?")                             \
    X(BIAS, "bias", "*j,j->*j")                                      \
    X(RELU, "relu", "*->*")                                          \
    X(GELU, "gelu", "*->*")                                          \
    X(ADD, "add", "*,*->*")                                          \
    X(CONV2D, "conv2d", "nHWc,ocYX,?->nPQo")                         \
    X(MAX_POOL, "max_pool", "nHWc->nPQc,nPQc")                       \
    X(AVG_POOL, "avg_pool", "nHWc->nPQc")                            \
    X(GLOBAL_POOL, "global_pool", "nHWc->nc")                        \
    X(RESHAPE, "reshape", NULL)                                      \
    X(BATCH_NORM, "batch_norm", "#c,c,c->#c,c,c,c")                  \
    X(BATCH_NORM_EVAL, "batch_norm_eval", "*c,c,c,c,c->*c")          \
    X(DROPOUT, "dropout", "*,C->*")                                  \
    X(XENT, "xent", "iV,i->,,i")                                     \
    X(TOP1, "top1", "iV,i->")                                        \
    X(RELU_GRAD, "relu_grad", "*,*->*")                              \
    X(GELU_GRAD, "gelu_grad", "*,*->*")                              \
    X(CONV2D_GRAD_DATA, "conv2d_grad_data", "ocYX,nPQo->nHWc")       \
    X(CONV2D_GRAD_WEIGHT, "conv2d_grad_weight", "nHWc,nPQo,?->ocYX") \
    X(MAX_POOL_GRAD, "max_pool_grad", "nPQc,nPQc->nHWc")             \
    X(AVG_POOL_GRAD, "avg_pool_grad", "nPQc->nHWc")                  \
    X(GLOBAL_POOL_GRAD, "global_pool_grad", "nc->nHWc")              \
    X(BATCH_NORM_GRAD, "batch_norm_grad", "#c,c,c,c,#c,?->#c,c,c")   \
    X(XENT_GRAD, "xent_grad", "iv,i,i->iv")                          \
    X(SUM_ROWS, "sum_rows", "*j,?->j")                               \
    X(JOIN, "join", NULL)                                            \
    X(ACCUM, "accum", "*,*,C->*")                                    \
    X(SUMSQ, "sumsq", "n->")                                         \
    X(CONCAT, "concat", NULL)                                        \
    X(COMMIT, "commit", "K,C->C")                                    \
    X(SGD, "sgd", "n,n,n,C->n,n")                                    \
    X(ADAMW, "adamw", "n,n,n,n,C->n,n,n")                            \
    X(EMA, "ema", "n,n,C->n")                                        \
    X(PACK, "pack", NULL)                                            \
    X(ALL_REDUCE, "all_reduce", NULL)                                \
    X(REDUCE_SCATTER, "reduce_scatter", NULL)                        \
    X(ALL_GATHER, "all_gather", NULL)                                \
    X(SLICE, "slice", NULL)                                          \
    X(KEEP, "keep", NULL)                                            \
    X(SEND, "send", NULL)                                            \
    X(XENT_MAX, "xent_max", "iv->i")                                 \
    X(XENT_SUM, "xent_sum", "iv,i,i->i,i")                           \
    X(XENT_FINISH, "xent_finish", "i,i,i,i->,,i")

enum ls_kind {
#define X(e, n, d) LS_K_##e,
    LS_KINDS(X)
#undef X
        LS_KIND_COUNT
};

/* What a rank may wish for after this step: to stop on one of three signals, or to save. */
enum ls_wish { LS_WISH_USR1, LS_WISH_INT, LS_WISH_TERM, LS_WISH_SAVE, LS_WISHES };

enum ls_act { LS_OP_ACT_NONE, LS_OP_ACT_RELU, LS_OP_ACT_GELU };

/* Attributes: they never change after the build. `path` keys random numbers: a hash of the layer
 * path, kept by clones. Only the fields that the kind's comment names mean something. */
struct ls_attr {
    bool ta, tb;     /* matmul */
    bool bias;       /* matmul, conv2d: there is a bias operand */
    bool keep_pre;   /* matmul with GELU: second result */
    bool accumulate; /* gradient results are added to accumulators */
    enum ls_act act; /* epilogue of matmul, conv2d, batch_norm(_eval) */
    int32_t kernel, stride,
        pad;               /* conv2d*, *_pool* (kernel: pools only; convolutions read w's shape) */
    int32_t height, width; /* *_grad_data, *_pool_grad: extent of the image dx;
                              conv2d_grad_weight: extent of the filter */
    double rate;           /* dropout */
    double eps;            /* batch_norm, adamw */
    double momentum;       /* sgd, ema */
    bool nesterov;         /* sgd */
    double beta1, beta2;   /* adamw */
    double decay;          /* sgd, adamw */
    double max_norm;       /* commit; 0: no clipping */
    int wishes;            /* commit: LS_WISHES, or 0 */
    uint64_t path;         /* dropout */
    uint8_t axes;          /* between ranks: set of bits 1 << enum ls_axis; on xent_sum, xent_grad,
                              dropout: the axis that slices the last dimension */
    uint8_t dim;           /* slice, all_gather */
    bool max;              /* all_reduce: maximum, not sum */
    int16_t from, to;      /* keep, send: coordinates. slice: which one, resolved by the executor */
    int64_t first, whole; /* resolved by the executor where the last dimension is a slice: the place
                              of its first element in the whole, and the whole's extent; 0: is whole */
};

#endif
