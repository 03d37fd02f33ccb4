/* The pipeline axis: an op of a micro-batch runs on the stage of its layer, one of the update where its
 * operands are. Only what joins stages (a tied gradient, the commit) becomes a sum over them. */
#include "graph/shard.h"

#include <stdlib.h>

int ls_graph_stage(const struct ls_prog *p, int layer)
{
    int n = ls_graph_mesh(p, LS_AXIS_PIPELINE), layers = p->options.stages_of;
    if (layers <= 0 || layer >= layers)
        return n - 1;
    return (int)((int64_t)layer * n / layers);
}

void ls_shard_pin_stages(struct ls_shard *s)
{
    struct ls_prog *p = s->p;
    enum { NONE = -1, SHARED = -2 };
    int *stage = malloc(((size_t)p->ntensor + 1) * sizeof *stage);
    if (!stage) {
        ls_error_set(&p->error, LS_ERR_NOMEM, "shard: out of memory");
        return;
    }
    int layers = 0;
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].segs & LS_SEG_LAST && p->op[i].layer >= layers)
            layers = p->op[i].layer + 1;
    if (p->options.stages_of <= 0)
        p->options.stages_of = layers;
    for (int t = 0; t < p->ntensor; t++)
        stage[t] = NONE;
    for (int i = 0; i < p->nop; i++)
        for (int k = 0; k < p->op[i].nin; k++) {
            int *at = &stage[p->op[i].in[k]], here = ls_graph_stage(p, p->op[i].layer);
            *at = *at == NONE || *at == here ? here : SHARED;
        }
    for (int i = 0; i < p->nparam; i++) {
        int t = p->param[i].tensor;
        if (stage[t] >= 0 && !(p->tensor[t].placed >> s->axis & 1) && !ls_shard_pinned(s, t))
            ls_graph_pin(p, t, s->axis, (struct ls_place){LS_PLACE_A, (uint8_t)stage[t]});
    }
    free(stage);
}

void ls_shard_pipeline(const struct ls_shard *s, const struct ls_op *op, struct ls_shard_choice *c)
{
    const struct ls_place whole = {LS_PLACE_R, 0};
    struct ls_place at = whole;
    bool differ = false;
    bool micro = op->segs & (LS_SEG_MICRO | LS_SEG_EVAL) && op->kind != LS_K_ACCUM &&
                 op->kind != LS_K_CONCAT;
    for (int k = 0; k < op->nin; k++) {
        struct ls_place h = ls_shard_have(s, op->in[k]);
        if (op->kind == LS_K_CONCAT && k && !ls_graph_same_place(h, at))
            differ = true;
        if (h.kind != LS_PLACE_R || k == 0)
            at = h;
    }
    /* the commit's vector is a sum over stages even where one stage has all of its entries */
    if (op->kind == LS_K_CONCAT && op->phase == LS_PHASE_UPDATE && at.kind == LS_PLACE_A)
        differ = true;
    if (op->kind == LS_K_ADD && ls_shard_target(s, op->out[0]).kind == LS_PLACE_R)
        differ = true;
    else if (micro)
        at = (struct ls_place){LS_PLACE_A, (uint8_t)ls_graph_stage(s->p, op->layer)};
    if (differ)
        at = (struct ls_place){LS_PLACE_P, 0};
    if (op->kind == LS_K_COMMIT)
        at = whole;
    for (int k = 0; k < op->nin; k++)
        c->in[k] = ls_shard_have(s, op->in[k]).kind == LS_PLACE_R && !differ ? whole : at;
    for (int k = 0; k < op->nout; k++)
        c->out[k] = at;
}
