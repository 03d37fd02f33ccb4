/* Fuses what one kernel can do in one pass over memory: bias and activation into the op before them,
 * and the accumulation of a gradient into the op that yields it, so that gradients exist once; and what
 * one collective can do: the sum over two axes. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

struct fuse {
    struct ls_prog *p;
    struct ls_op *op;
    int nop;
    int *readers; /* of every tensor: how many ops read it */
    bool *gone;   /* of every op: it was fused into another */
};

static void count_readers(struct fuse *f)
{
    memset(f->readers, 0, (size_t)f->p->ntensor * sizeof *f->readers);
    for (int i = 0; i < f->nop; i++)
        for (int k = 0; !f->gone[i] && k < f->op[i].nin; k++)
            f->readers[f->op[i].in[k]]++;
}

/* The op of that kind which reads tensor t first among ops of the same segments; -1. */
static int follower(const struct fuse *f, int i, int t, enum ls_kind kind)
{
    for (int j = i + 1; j < f->nop; j++)
        if (!f->gone[j] && f->op[j].kind == kind && f->op[j].in[0] == t &&
            f->op[j].segs == f->op[i].segs && f->op[j].phase == f->op[i].phase)
            return j;
    return -1;
}

static int *append(struct ls_prog *p, const int *in, int n, int more)
{
    int *longer = ls_arena_alloc(&p->arena, (size_t)(n + 1) * sizeof *longer);
    if (!longer) {
        ls_error_set(&p->error, LS_ERR_NOMEM, "fuse: out of memory");
        return NULL;
    }
    memcpy(longer, in, (size_t)n * sizeof *longer);
    longer[n] = more;
    return longer;
}

/* Does an op between two others write bytes of t? (A parameter is gathered just before its reader.) */
static bool written_between(const struct fuse *f, int i, int j, int t)
{
    for (int q = i + 1; q < j; q++)
        for (int k = 0; k < f->op[q].nout; k++)
            if (!f->gone[q] && ls_graph_root(f->p, f->op[q].out[k]) == ls_graph_root(f->p, t))
                return true;
    return false;
}

static void fuse_bias(struct fuse *f, int i)
{
    struct ls_op *op = &f->op[i];
    int j = f->readers[op->out[0]] == 1 ? follower(f, i, op->out[0], LS_K_BIAS) : -1;
    if (j < 0 || written_between(f, i, j, f->op[j].in[1]))
        return;
    int *in = append(f->p, op->in, op->nin, f->op[j].in[1]);
    if (!in)
        return;
    op->in = in;
    op->nin++;
    op->attr.bias = true;
    op->out = f->op[j].out;
    f->gone[j] = true;
}

static void fuse_activation(struct fuse *f, int i)
{
    struct ls_op *op = &f->op[i];
    bool relu_only = op->kind != LS_K_MATMUL;
    int pre = op->out[0], j = follower(f, i, pre, LS_K_RELU);
    if (j >= 0 && f->readers[pre] == 1) {
        op->attr.act = LS_OP_ACT_RELU;
    } else if ((j = follower(f, i, pre, LS_K_GELU)) >= 0 && !relu_only) {
        op->attr.act = LS_OP_ACT_GELU;
        op->attr.keep_pre = f->readers[pre] > 1; /* the backward reads it, evaluation does not */
    } else
        return;
    int *out = append(f->p, f->op[j].out, 1, pre);
    if (!out)
        return;
    if (op->kind == LS_K_BATCH_NORM) { /* mean, rstd and variance stay results */
        out = append(f->p, op->out, op->nout, 0);
        if (!out)
            return;
        out[0] = f->op[j].out[0];
    } else
        op->nout = op->attr.keep_pre ? 2 : 1;
    op->out = out;
    f->gone[j] = true;
}

static void fuse_epilogues(struct fuse *f)
{
    for (int i = 0; i < f->nop && f->p->error.status == LS_OK; i++) {
        enum ls_kind kind = f->op[i].kind;
        bool product = kind == LS_K_MATMUL || kind == LS_K_CONV2D;
        if (f->gone[i] || f->op[i].phase != LS_PHASE_FORWARD)
            continue;
        if (product)
            fuse_bias(f, i);
        if (product || kind == LS_K_BATCH_NORM || kind == LS_K_BATCH_NORM_EVAL)
            fuse_activation(f, i);
    }
}

/* ---- collectives ---- */

/* A sum over one axis whose only reader sums it over another becomes a sum over both. */
static void fuse_reductions(struct fuse *f)
{
    struct ls_prog *p = f->p;
    for (int i = 0; i < f->nop; i++) {
        struct ls_op *first = &f->op[i];
        for (int j = i + 1; j < f->nop && !f->gone[i] && first->kind == LS_K_ALL_REDUCE; j++) {
            struct ls_op *next = &f->op[j];
            if (f->gone[j] || next->kind != LS_K_ALL_REDUCE || next->in[0] != first->out[0])
                continue;
            if (f->readers[first->out[0]] != 1 || next->segs != first->segs ||
                next->attr.max != first->attr.max)
                break;
            first->attr.axes |= next->attr.axes;
            p->tensor[next->out[0]].base = first->in[0];
            first->out = next->out;
            f->gone[j] = true;
        }
    }
}

/* ---- accumulation ---- */

/* Where the gradient of every bucket member goes. */
struct place {
    int bucket; /* -1: not a member */
    int view;   /* of the accumulator */
    bool added; /* an op adds to it already */
};

/* The op that adds bucket b's gradient to its accumulator as it is; NULL where ranks exchange it first
 * (ZeRO 2 and 3): that bucket stays a transient. */
static struct ls_op *plain_accum(const struct fuse *f, int b)
{
    const struct ls_bucket *bucket = &f->p->bucket[b];
    for (int i = 0; i < f->nop; i++)
        if (f->op[i].kind == LS_K_ACCUM && f->op[i].in[0] == bucket->acc &&
            f->op[i].in[1] == bucket->grad)
            return &f->op[i];
    return NULL;
}

/* From now on a sum over micro-batches; elsewhere where the gradient is. */
static void place_sum(struct ls_prog *p, int t, int grad, int acc)
{
    memcpy(p->tensor[t].place, p->tensor[grad].place, sizeof p->tensor[t].place);
    p->tensor[t].place[LS_AXIS_DATA] = p->tensor[acc].place[LS_AXIS_DATA];
    p->tensor[t].placed = p->tensor[acc].placed;
}

static struct place *find_places(struct fuse *f, struct ls_op *const *accum)
{
    struct ls_prog *p = f->p;
    int n = p->ntensor;
    struct place *place = malloc((size_t)n * sizeof *place);
    if (!place) {
        ls_error_set(&p->error, LS_ERR_NOMEM, "fuse: out of memory");
        return NULL;
    }
    for (int t = 0; t < n; t++)
        place[t].bucket = -1;
    for (int i = 0; i < p->nparam && p->error.status == LS_OK; i++) {
        struct ls_tensor grad = p->tensor[p->param[i].grad];
        for (int b = 0; b < p->nbucket; b++) {
            if (p->bucket[b].grad != grad.base || !accum[b])
                continue;
            int v = ls_graph_tensor(p, LS_ROLE_GRAD, true, grad.dtype, grad.ndim, grad.shape,
                                    "%s.acc", p->tensor[p->param[i].tensor].name);
            p->tensor[v].storage = LS_STORE_VIEW;
            p->tensor[v].base = p->bucket[b].acc;
            p->tensor[v].offset = grad.offset;
            place_sum(p, v, p->param[i].grad, p->bucket[b].acc);
            place[p->param[i].grad] = (struct place){.bucket = b, .view = v};
        }
    }
    return place;
}

/* Gives the op its accumulating form if all its gradient results are members that only a join reads. */
static void accumulate_in_op(struct fuse *f, struct ls_op *op, struct place *place)
{
    struct ls_prog *p = f->p;
    unsigned bits = ls_graph_kind(op->kind)->accumulates;
    bool all = bits != 0 && op->phase == LS_PHASE_BACKWARD;
    for (int k = 0; k < op->nout && all; k++)
        if (bits >> k & 1)
            all = place[op->out[k]].bucket >= 0 && f->readers[op->out[k]] == 1;
    if (!all)
        return;
    for (int k = 0; k < op->nout; k++) {
        if (!(bits >> k & 1))
            continue;
        struct place *to = &place[op->out[k]];
        struct ls_tensor *grad = &p->tensor[op->out[k]];
        grad->storage = LS_STORE_NEXT;
        grad->base = to->view;
        grad->offset = 0;
        place_sum(p, op->out[k], op->out[k], p->bucket[to->bucket].acc);
        to->added = true;
        op->in = append(p, op->in, op->nin++, to->view);
        if (!op->in)
            return;
    }
    op->in = append(p, op->in, op->nin++, p->control);
    op->attr.accumulate = true;
}

/* The join now yields the next version of the accumulator; members whose ops have no accumulating form
 * become ordinary transients, added by an op of their own. */
static void join_accumulator(struct fuse *f, struct ls_op *join, const struct place *place,
                             const struct ls_op *accum)
{
    struct ls_prog *p = f->p;
    struct ls_bucket *b = &p->bucket[place[join->in[0]].bucket];
    p->phase = LS_PHASE_BACKWARD;
    p->segs = LS_SEG_MICRO | LS_SEG_LAST;
    for (int m = 0; m < join->nin && p->error.status == LS_OK; m++) {
        int grad = join->in[m];
        if (place[grad].added)
            continue;
        p->tensor[grad].storage = LS_STORE_OWN;
        p->tensor[grad].base = -1;
        p->tensor[grad].offset = 0;
        p->tensor[grad].role = LS_ROLE_ACT;
        join->in[m] = *ls_graph_emit(p, LS_K_ACCUM, NULL, IN(place[grad].view, grad, p->control));
        place_sum(p, join->in[m], grad, b->acc);
    }
    join->out = append(p, accum->out, 1, 0);
    b->grad = -1;
}

/* Replaces every transient gradient bucket by its accumulator. */
static void fuse_accumulation(struct fuse *f)
{
    struct ls_prog *p = f->p;
    struct ls_op **accum = calloc((size_t)p->nbucket + 1, sizeof *accum);
    struct place *place = NULL;
    for (int b = 0; b < p->nbucket && accum; b++)
        accum[b] = plain_accum(f, b);
    if (accum)
        place = find_places(f, accum);
    if (!place) {
        ls_error_set(&p->error, LS_ERR_NOMEM, "fuse: out of memory");
        goto out;
    }
    /* The accum op of a bucket dissolves; what it yielded, the join yields. */
    for (int b = 0; b < p->nbucket; b++)
        if (accum[b])
            f->gone[accum[b] - f->op] = true;
    for (int i = 0; i < f->nop && p->error.status == LS_OK; i++) {
        if (f->gone[i])
            continue;
        struct ls_op op = f->op[i];
        accumulate_in_op(f, &op, place);
        if (op.kind == LS_K_JOIN && place[op.in[0]].bucket >= 0)
            join_accumulator(f, &op, place, accum[place[op.in[0]].bucket]);
        if (p->error.status == LS_OK)
            ls_graph_push(p, &op);
    }
out:
    free(place);
    free(accum);
}

enum ls_status ls_graph_fuse(struct ls_prog *p, struct ls_error *err)
{
    struct fuse f = {.p = p};
    f.op = ls_graph_take_ops(p, &f.nop);
    f.readers = malloc((size_t)p->ntensor * sizeof *f.readers);
    f.gone = calloc((size_t)f.nop + 1, sizeof *f.gone);
    if (!f.readers || !f.gone)
        ls_error_set(&p->error, LS_ERR_NOMEM, "fuse: out of memory");
    else {
        count_readers(&f);
        fuse_epilogues(&f);
        fuse_reductions(&f);
        count_readers(&f);
        fuse_accumulation(&f);
    }
    free(f.op);
    free(f.readers);
    free(f.gone);
    return ls_graph_check(p, "fuse", err);
}
