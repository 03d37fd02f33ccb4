/* Derived compute tensors: where the backend prefers a layout of its own for a parameter, a pack op
 * makes it once per step after the update, and once after loading; masters stay plain. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

struct packed {
    int param, tensor; /* the copy of which parameter */
    int op;            /* index of the first op that reads it */
    int operand;
};

/* Do two ops ask for the same layout of operand k? The answer may depend on every shape. */
static bool same_need(const struct ls_prog *p, const struct ls_op *a, const struct ls_op *b, int k)
{
    if (a->kind != b->kind || a->nin != b->nin || a->in[k] != b->in[k])
        return false;
    if (a->attr.ta != b->attr.ta || a->attr.tb != b->attr.tb || a->attr.stride != b->attr.stride ||
        a->attr.pad != b->attr.pad)
        return false;
    for (int i = 0; i < a->nin; i++) {
        const struct ls_tensor *x = &p->tensor[a->in[i]], *y = &p->tensor[b->in[i]];
        if (x->ndim != y->ndim || memcmp(x->shape, y->shape, sizeof x->shape) != 0)
            return false;
    }
    return true;
}

static int add_pack(struct ls_prog *p, const struct ls_op *user, int operand, int64_t bytes)
{
    int plain = user->in[operand];
    int t = ls_graph_tensor(p, LS_ROLE_DERIVED, true, LS_U8, 1, &bytes, "%s.%s.%d.packed",
                            p->tensor[plain].name, ls_graph_kind(user->kind)->name, user->id);
    p->tensor[t].packed = plain;
    return t;
}

/* The pack op itself goes behind all updates: it reads the newest version of the parameter. */
static void push_pack(struct ls_prog *p, const struct packed *k, int user_id)
{
    int out = ls_graph_tensor(p, LS_ROLE_DERIVED, false, LS_U8, 1, p->tensor[k->tensor].shape,
                              "%s.new", p->tensor[k->tensor].name);
    p->tensor[out].storage = LS_STORE_NEXT;
    p->tensor[out].base = k->tensor;
    int in[2] = {k->param, k->tensor};
    struct ls_op op = {.kind = LS_K_PACK,
                       .nin = 2,
                       .nout = 1,
                       .in = in,
                       .out = &out,
                       .segs = LS_SEG_UPDATE | LS_SEG_LOAD,
                       .phase = LS_PHASE_UPDATE,
                       .id = p->next_id++,
                       .seq = -1,
                       .wait = -1,
                       .pack_op = user_id,
                       .pack_operand = k->operand};
    ls_graph_push(p, &op);
}

enum ls_status ls_graph_layout(struct ls_prog *p, ls_pack_size_fn *pack_size, void *arg,
                               struct ls_error *err)
{
    if (!pack_size)
        return LS_OK;
    int n = 0, cap = 0, nop = p->nop;
    struct packed *packed = NULL;
    for (int i = 0; i < nop && p->error.status == LS_OK; i++) {
        struct ls_op *op = &p->op[i];
        if (op->segs & LS_SEG_UPDATE || op->nin > LS_OP_MAX_IN || ls_graph_is_collective(op->kind))
            continue;
        for (int k = 0; k < op->nin; k++) {
            struct ls_operand io[LS_OP_MAX_IN + LS_OP_MAX_OUT];
            struct ls_op_desc desc;
            if (!p->tensor[op->in[k]].persistent || p->tensor[op->in[k]].role != LS_ROLE_PARAM)
                continue;
            ls_graph_describe(p, op, io, &desc);
            int64_t bytes = pack_size(arg, &desc, k);
            if (bytes <= 0)
                continue;
            int found = -1;
            for (int q = 0; q < n && found < 0; q++) {
                struct ls_op first = p->op[packed[q].op];
                int in[LS_OP_MAX_IN];
                memcpy(in, first.in, (size_t)first.nin * sizeof *in);
                first.in = in;
                if (packed[q].operand == k && packed[q].param == op->in[k]) {
                    in[k] = packed[q].param;
                    found = same_need(p, &first, op, k) ? packed[q].tensor : -1;
                }
            }
            if (found < 0 && ls_grow(&packed, &cap, n + 1, sizeof *packed)) {
                found = add_pack(p, op, k, bytes);
                packed[n++] = (struct packed){op->in[k], found, i, k};
            }
            if (found < 0)
                ls_error_set(&p->error, LS_ERR_NOMEM, "layout: out of memory");
            else
                op->in[k] = found;
        }
    }
    /* Behind the update's ops, before the evaluation's. */
    int nold, split = 0;
    struct ls_op *old = ls_graph_take_ops(p, &nold);
    while (split < nold && !(old[split].segs & LS_SEG_EVAL))
        split++;
    for (int i = 0; i < split; i++)
        ls_graph_push(p, &old[i]);
    for (int q = 0; q < n; q++)
        push_pack(p, &packed[q], old[packed[q].op].id);
    for (int i = split; i < nold; i++)
        ls_graph_push(p, &old[i]);
    free(old);
    free(packed);
    return ls_graph_check(p, "layout", err);
}
