/* What every pass must leave behind: single assignment, definitions before uses, state ops in place,
 * views inside their base, shapes that the dims strings agree with. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status check_tensor(const struct ls_prog *p, int t, const char *after,
                                   struct ls_error *err)
{
    const struct ls_tensor *x = &p->tensor[t];
    if (x->storage == LS_STORE_OWN)
        return LS_OK;
    if (x->base < 0 || x->base >= p->ntensor)
        return ls_error_set(err, LS_ERR_INTERNAL, "after %s: %s has no base", after, x->name);
    int64_t room = ls_graph_numel(p, x->base), n = ls_graph_numel(p, t);
    int64_t at = x->storage == LS_STORE_VIEW ? x->offset : 0;
    if (x->storage == LS_STORE_VIEW && x->slice_axis >= 0) /* the slice of the last coordinate */
        at += (ls_graph_mesh(p, (enum ls_axis)x->slice_axis) - 1) * n;
    for (enum ls_axis a = 0; a < LS_AXES;
         a++) /* a member of a sliced bucket counts in the whole one */
        if (x->place[a].kind == LS_PLACE_S && x->place[a].dim == LS_DIM_FLAT &&
            p->tensor[x->base].place[a].dim != LS_DIM_FLAT)
            room *= ls_graph_mesh(p, a);
    if (x->storage == LS_STORE_NEXT ? n != room : at < 0 || at > room - n)
        return ls_error_set(err, LS_ERR_INTERNAL, "after %s: %s leaves its base %s", after, x->name,
                            p->tensor[x->base].name);
    return LS_OK;
}

/* Is the value of t there before op i? A view's is where its base's is, or where an op wrote it. */
static bool is_defined(const struct ls_prog *p, const int *def, int t)
{
    while (def[t] < 0 && p->tensor[t].storage == LS_STORE_VIEW)
        t = p->tensor[t].base;
    return def[t] >= 0 || p->tensor[t].persistent || p->tensor[t].role == LS_ROLE_INPUT;
}

/* Does every coordinate of the axis end up with what the kind promises? */
static bool moves_right(const struct ls_prog *p, const struct ls_op *op, enum ls_axis axis)
{
    const struct ls_tensor *x = &p->tensor[op->in[0]], *y = &p->tensor[op->out[0]];
    struct ls_place from = x->place[axis], to = y->place[axis];
    int64_t n = ls_graph_mesh(p, axis), in = ls_graph_numel(p, op->in[0]),
            out = ls_graph_numel(p, op->out[0]);
    switch (op->kind) {
    case LS_K_ALL_REDUCE:
        return from.kind == (op->attr.max ? LS_PLACE_PMAX : LS_PLACE_P) && to.kind == LS_PLACE_R &&
               in == out;
    case LS_K_REDUCE_SCATTER:
        return (from.kind == LS_PLACE_P || from.kind == LS_PLACE_O) && to.kind == LS_PLACE_S &&
               to.dim == 0 && in == out * n;
    case LS_K_ALL_GATHER:
        return from.kind == LS_PLACE_S && from.dim == op->attr.dim && to.kind == LS_PLACE_R &&
               out == in * n;
    case LS_K_SLICE:
        return from.kind == LS_PLACE_R && to.kind == LS_PLACE_S && to.dim == op->attr.dim &&
               in == out * n;
    case LS_K_KEEP:
        return (from.kind == LS_PLACE_R || from.kind == LS_PLACE_A) && to.kind == LS_PLACE_P;
    case LS_K_SEND:
        return from.kind == LS_PLACE_A && from.dim == op->attr.from && to.kind == LS_PLACE_A &&
               to.dim == op->attr.to && in == out;
    default:
        return true;
    }
}

static enum ls_status check_ranks(const struct ls_prog *p, int i, const char *after,
                                  struct ls_error *err)
{
    const struct ls_op *op = &p->op[i];
    bool moves =
        ls_graph_is_collective(op->kind) || op->kind == LS_K_SLICE || op->kind == LS_K_KEEP;
    bool right = !moves || op->attr.axes;
    for (enum ls_axis a = 0; a < LS_AXES && moves; a++)
        right &= !(op->attr.axes >> a & 1) || (ls_graph_mesh(p, a) > 1 && moves_right(p, op, a));
    if (!right)
        return ls_error_set(err, LS_ERR_INTERNAL,
                            "after %s: op %d (%s) does not bring %s to where %s should be", after,
                            op->id, ls_graph_kind(op->kind)->name, p->tensor[op->in[0]].name,
                            p->tensor[op->out[0]].name);
    if (op->seq >= 0 && (op->wait <= i || op->wait > p->nop))
        return ls_error_set(err, LS_ERR_INTERNAL, "after %s: op %d (%s) waits at a wrong place",
                            after, op->id, ls_graph_kind(op->kind)->name);
    return LS_OK;
}

static enum ls_status check_op(const struct ls_prog *p, int i, int *def, const char *after,
                               struct ls_error *err)
{
    const struct ls_op *op = &p->op[i];
    const char *name = ls_graph_kind(op->kind)->name;
    for (int k = 0; k < op->nin; k++)
        if (!is_defined(p, def, op->in[k]))
            return ls_error_set(err, LS_ERR_INTERNAL, "after %s: op %d (%s) reads undefined %s",
                                after, op->id, name, p->tensor[op->in[k]].name);
    for (int k = 0; k < op->nout; k++) {
        int t = op->out[k], state = ls_graph_state_of(op, k);
        if (def[t] >= 0)
            return ls_error_set(err, LS_ERR_INTERNAL, "after %s: %s is assigned twice", after,
                                p->tensor[t].name);
        def[t] = i;
        if (state >= 0 && (ls_graph_root(p, t) != ls_graph_root(p, op->in[state]) ||
                           ls_graph_offset(p, t) != ls_graph_offset(p, op->in[state])))
            return ls_error_set(err, LS_ERR_INTERNAL, "after %s: %s is not updated in place by %s",
                                after, p->tensor[t].name, name);
    }
    LS_TRY(check_ranks(p, i, after, err));
    struct ls_dims dims;
    if (!ls_graph_kind(op->kind)->dims)
        return LS_OK;
    if (ls_graph_dims(p, op, &dims, err) != LS_OK)
        return ls_error_context(err, "after %s: op %d", after, op->id);
    for (int k = 0; k < op->nout; k++) {
        const struct ls_tensor *t = &p->tensor[op->out[k]];
        bool same = dims.nout == op->nout && t->ndim == (int)strlen(dims.out[k]);
        for (int d = 0; same && d < t->ndim; d++)
            same = t->shape[d] == dims.extent[(unsigned char)dims.out[k][d]];
        if (!same)
            return ls_error_set(err, LS_ERR_INTERNAL,
                                "after %s: result %s of %s has another shape "
                                "than the operands say",
                                after, t->name, name);
    }
    return LS_OK;
}

enum ls_status ls_graph_verify(const struct ls_prog *p, const char *after, struct ls_error *err)
{
    LS_TRY(ls_graph_check(p, after, err));
    int *def = malloc(((size_t)p->ntensor + 1) * sizeof *def);
    if (!def)
        return ls_error_set(err, LS_ERR_NOMEM, "verifying the program after %s", after);
    enum ls_status status = LS_OK;
    for (int t = 0; t < p->ntensor && status == LS_OK; t++) {
        def[t] = -1;
        status = check_tensor(p, t, after, err);
    }
    for (int i = 0; i < p->nop && status == LS_OK; i++)
        status = check_op(p, i, def, after, err);
    free(def);
    return status;
}
