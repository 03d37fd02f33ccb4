/* Reductions over a sharded dimension: statistics, collective, finish. */
#include "graph/shard.h"

#define IN(...)                                                \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

/* Cross-entropy over a sharded vocabulary. The finish yields the tensors that xent yielded. */
static void decompose_xent(struct ls_shard *s, const struct ls_op *op)
{
    struct ls_prog *p = s->p;
    int first = p->nop, logits = op->in[0], labels = op->in[1];
    unsigned segs = p->segs;
    p->segs = op->segs;
    p->phase = op->phase;
    p->layer = op->layer;
    int max = *ls_graph_emit(p, LS_K_XENT_MAX, NULL, IN(logits));
    const int *sums = ls_graph_emit(p, LS_K_XENT_SUM, NULL, IN(logits, labels, max));
    int sum = sums[0], hit = sums[1];
    ls_graph_emit(p, LS_K_XENT_FINISH, NULL, IN(max, sum, hit, labels));
    p->segs = segs;
    if (p->error.status != LS_OK)
        return;
    ls_shard_grow(s);
    struct ls_op part[3];
    for (int i = 0; i < 3; i++)
        part[i] = p->op[first + i];
    part[2].out = op->out;
    p->nop = first;
    for (int i = 0; i < 3; i++)
        ls_shard_place(s, &part[i]);
}

bool ls_shard_decompose(struct ls_shard *s, const struct ls_op *op)
{
    struct ls_place h = op->nin ? ls_shard_have(s, op->in[0]) : (struct ls_place){0};
    if (op->kind != LS_K_XENT || h.kind != LS_PLACE_S || h.dim != 1)
        return false;
    decompose_xent(s, op);
    return true;
}
