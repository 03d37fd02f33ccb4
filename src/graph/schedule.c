/* The one static order of ops inside each region (micro-batch, update, evaluation): program order, but
 * what ends a gradient's life and starts its journey runs as soon as its operands are there. Program
 * order is kept between accesses to the same bytes of which one is a write. Collectives get their one
 * total order here, and the op before which each must have ended. */
#include "graph/graph.h"

#include <stdlib.h>

struct access {
    int op, root, next; /* next: earlier access of the same root, or -1 */
    int64_t begin, end; /* bytes of the root */
    bool write;
};
struct edges {
    int *to, *next, *first, *npred; /* first: per op; a list of successors */
    int n, cap, capnext;
    struct access *access;
    int naccess, capaccess;
    int *last; /* per root: its newest access */
};

/* Gathers of persistent tensors wait for their reader, or all of them would run at once. */
static bool eager(const struct ls_prog *p, const struct ls_op *op)
{
    if (op->kind == LS_K_ALL_GATHER)
        return !p->tensor[ls_graph_root(p, op->in[0])].persistent;
    return op->kind == LS_K_JOIN || op->kind == LS_K_ACCUM || ls_graph_is_collective(op->kind);
}

static int region(const struct ls_op *op)
{
    return op->segs & LS_SEG_EVAL ? 2 : op->segs & LS_SEG_UPDATE ? 1 : 0;
}

static bool add_edge(struct edges *e, int from, int to)
{
    if (!ls_grow(&e->to, &e->cap, e->n + 1, sizeof *e->to) ||
        !ls_grow(&e->next, &e->capnext, e->n + 1, sizeof *e->next))
        return false;
    e->to[e->n] = to;
    e->next[e->n] = e->first[from];
    e->first[from] = e->n++;
    e->npred[to]++;
    return true;
}

/* The bytes of its root that a tensor covers, on whatever rank. */
static void range(const struct ls_prog *p, int t, int64_t *begin, int64_t *end)
{
    int64_t n = ls_graph_bytes(p, t);
    for (*begin = 0; p->tensor[t].storage != LS_STORE_OWN; t = p->tensor[t].base) {
        const struct ls_tensor *x = &p->tensor[t];
        if (x->storage == LS_STORE_VIEW && x->slice_axis < 0)
            *begin += x->offset * ls_dtype_size(x->dtype);
        if (x->storage == LS_STORE_VIEW && x->slice_axis >= 0) {
            *begin = 0;
            n = ls_graph_bytes(p, x->base);
        }
    }
    *end = *begin + n;
}

/* Records one access and adds an edge from every earlier one that it must follow. */
static bool note(const struct ls_prog *p, struct edges *e, int op, int t, bool write)
{
    int root = ls_graph_root(p, t);
    int64_t begin, end;
    range(p, t, &begin, &end);
    for (int a = e->last[root]; a >= 0; a = e->access[a].next) {
        const struct access *old = &e->access[a];
        if (old->op != op && (old->write || write) && old->begin < end && begin < old->end &&
            !add_edge(e, old->op, op))
            return false;
    }
    if (!ls_grow(&e->access, &e->capaccess, e->naccess + 1, sizeof *e->access))
        return false;
    e->access[e->naccess] = (struct access){op, root, e->last[root], begin, end, write};
    e->last[root] = e->naccess++;
    return true;
}

static bool find_edges(const struct ls_prog *p, const struct ls_op *op, int n, struct edges *e)
{
    for (int i = 0; i < n; i++)
        e->first[i] = -1;
    for (int t = 0; t < p->ntensor; t++)
        e->last[t] = -1;
    for (int i = 0; i < n; i++) {
        bool view = op[i].kind == LS_K_RESHAPE || op[i].kind == LS_K_SLICE;
        if (view && p->tensor[op[i].out[0]].storage == LS_STORE_VIEW)
            continue; /* moves nothing: its readers depend on its base's maker */
        for (int k = 0; k < op[i].nin; k++)
            if (!note(p, e, i, op[i].in[k], false))
                return false;
        for (int k = 0; k < op[i].nout; k++)
            if (!note(p, e, i, op[i].out[k], true))
                return false;
    }
    return true;
}

static int pick(const struct ls_prog *p, const struct ls_op *op, int n, const bool *done,
                const int *npred, int reg)
{
    int first = -1;
    for (int i = 0; i < n; i++) {
        if (done[i] || npred[i] || region(&op[i]) != reg)
            continue;
        if (eager(p, &op[i]))
            return i;
        if (first < 0)
            first = i;
    }
    return first;
}

/* Where the collective that was op `i` must have ended: before the first op that depends on it and runs
 * behind it. An op that depends on it in a later run of the program need not wait again: only the last
 * micro-batch hands over collectives that are under way, and only to the update. `place`: the new place
 * of every op. */
static int wait_place(const struct ls_op *old, int n, const struct edges *e, int i,
                      const int *place)
{
    int wait = n;
    for (int k = e->first[i]; k >= 0; k = e->next[k]) {
        const struct ls_op *to = &old[e->to[k]];
        bool behind =
            to->segs & old[i].segs || (old[i].segs & LS_SEG_LAST && to->segs & LS_SEG_UPDATE);
        if (behind && place[e->to[k]] < wait)
            wait = place[e->to[k]];
    }
    return wait;
}

static void order_collectives(struct ls_prog *p, const struct ls_op *old, int n,
                              const struct edges *e, const int *place, const int *origin)
{
    for (int i = 0, seq = 0; i < n; i++)
        if (ls_graph_is_collective(p->op[i].kind)) {
            p->op[i].seq = seq++;
            p->op[i].wait = wait_place(old, n, e, origin[i], place);
        }
}

enum ls_status ls_graph_schedule(struct ls_prog *p, struct ls_error *err)
{
    int n, placed = 0;
    struct ls_op *old = ls_graph_take_ops(p, &n);
    size_t ops = (size_t)n + 1;
    struct edges e = {.first = malloc(ops * sizeof(int)),
                      .npred = calloc(ops, sizeof(int)),
                      .last = malloc(((size_t)p->ntensor + 1) * sizeof(int))};
    bool *done = calloc(ops, sizeof *done);
    int *place = malloc(ops * sizeof *place), *origin = malloc(ops * sizeof *origin);
    if (!e.first || !e.npred || !e.last || !done || !place || !origin || !find_edges(p, old, n, &e))
        ls_error_set(&p->error, LS_ERR_NOMEM, "schedule: out of memory");
    for (int reg = 0; reg < 3 && p->error.status == LS_OK; reg++)
        for (int i; (i = pick(p, old, n, done, e.npred, reg)) >= 0; placed++) {
            done[i] = true;
            place[i] = placed;
            origin[placed] = i;
            for (int k = e.first[i]; k >= 0; k = e.next[k])
                e.npred[e.to[k]]--;
            ls_graph_push(p, &old[i]);
        }
    if (p->error.status == LS_OK && placed < n)
        ls_error_set(&p->error, LS_ERR_INTERNAL, "%d of %d ops never became ready", n - placed, n);
    if (p->error.status == LS_OK)
        order_collectives(p, old, n, &e, place, origin);
    free(e.to);
    free(e.next);
    free(e.first);
    free(e.npred);
    free(e.access);
    free(e.last);
    free(done);
    free(place);
    free(origin);
    free(old);
    return ls_graph_check(p, "schedule", err);
}
