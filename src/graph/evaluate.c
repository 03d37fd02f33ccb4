/* The evaluation program: the forward ops once more in a segment of their own, without dropout, with
 * running statistics, and with counts of what was right. Shares the persistent tensors. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

/* The running statistic that averages tensor `statistic`. */
static int running(const struct ls_prog *p, int statistic)
{
    for (int i = 0; i < p->nparam; i++)
        if (p->param[i].rule == LS_RULE_EMA && p->param[i].grad == statistic)
            return p->param[i].tensor;
    return -1;
}

static void evaluate_op(struct ls_prog *p, const struct ls_op *op, int *now, struct ls_error *err)
{
    int in[LS_OP_MAX_IN], statistics[2];
    for (int k = 0; k < op->nin; k++)
        in[k] = now[op->in[k]];
    const int *out = NULL;
    int view;
    p->layer = op->layer;
    switch (op->kind) {
    case LS_K_DROPOUT:
        out = in;
        break;
    case LS_K_RESHAPE:
        view = ls_graph_reshape(p, in[0], p->tensor[op->out[0]].ndim, p->tensor[op->out[0]].shape);
        out = &view;
        break;
    case LS_K_BATCH_NORM:
        statistics[0] = running(p, op->out[1]);
        statistics[1] = running(p, op->out[3]);
        if (statistics[0] < 0 || statistics[1] < 0) {
            ls_error_set(err, LS_ERR_INTERNAL, "batch norm %d has no running statistics", op->id);
            return;
        }
        out = ls_graph_emit(p, LS_K_BATCH_NORM_EVAL, &op->attr,
                            IN(in[0], in[1], in[2], statistics[0], statistics[1]));
        break;
    default:
        out = ls_graph_emit(p, op->kind, &op->attr, op->nin, in);
    }
    bool one = op->kind == LS_K_DROPOUT || op->kind == LS_K_BATCH_NORM;
    for (int k = 0; k < (one ? 1 : op->nout) && p->error.status == LS_OK; k++) {
        now[op->out[k]] = out[k];
        if (op->kind == LS_K_DROPOUT)
            continue; /* its operand has pins of its own */
        memcpy(p->tensor[out[k]].pin, p->tensor[op->out[k]].pin, sizeof p->tensor[0].pin);
        p->tensor[out[k]].pinned = p->tensor[op->out[k]].pinned;
    }
}

enum ls_status ls_graph_evaluate(struct ls_prog *p, struct ls_error *err)
{
    int n = p->ntensor, nop = p->nop;
    int *now = malloc((size_t)n * sizeof *now);
    if (!now)
        return ls_error_set(err, LS_ERR_NOMEM, "evaluate: out of memory");
    for (int t = 0; t < n; t++)
        now[t] = t;
    p->phase = LS_PHASE_FORWARD;
    p->segs = LS_SEG_EVAL;
    for (int i = 0; i < nop && p->error.status == LS_OK; i++) {
        struct ls_op op = p->op[i];
        if (op.phase == LS_PHASE_FORWARD)
            evaluate_op(p, &op, now, &p->error);
    }
    int right = *ls_graph_emit(p, LS_K_TOP1, NULL, IN(now[p->logits], p->labels));
    int sums = ls_graph_concat(p, IN(now[p->loss[0]], now[p->loss[1]], right));
    p->eval = ls_graph_tensor(p, LS_ROLE_STATE, true, LS_F32, 1, (const int64_t[]){3}, "eval");
    /* Each data rank sums its own batches; the last stage has the loss. */
    int last = ls_graph_mesh(p, LS_AXIS_PIPELINE) - 1;
    ls_graph_pin(p, p->eval, LS_AXIS_DATA, (struct ls_place){LS_PLACE_P, 0});
    ls_graph_pin(p, p->eval, LS_AXIS_PIPELINE, (struct ls_place){LS_PLACE_A, (uint8_t)last});
    ls_graph_emit(p, LS_K_ACCUM, NULL, IN(p->eval, sums, p->control));
    free(now);
    return ls_graph_check(p, "evaluate", err);
}
