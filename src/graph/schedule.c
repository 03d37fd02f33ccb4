/* The one static order of ops inside each region (micro-batch, update, evaluation): program order, but
 * what ends a gradient's life runs as soon as its operands are there. Program order is kept between
 * accesses to the same bytes of which one is a write. */
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

static bool eager(const struct ls_op *op)
{
    return op->kind == LS_K_JOIN || op->kind == LS_K_ACCUM;
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

/* Records one access and adds an edge from every earlier one that it must follow. */
static bool note(const struct ls_prog *p, struct edges *e, int op, int t, bool write)
{
    int root = ls_graph_root(p, t);
    int64_t begin = ls_graph_offset(p, t), end = begin + ls_graph_bytes(p, t);
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
        if (op[i].kind ==
            LS_K_RESHAPE) { /* moves nothing: its readers depend on its base's maker */
            continue;
        }
        for (int k = 0; k < op[i].nin; k++)
            if (!note(p, e, i, op[i].in[k], false))
                return false;
        for (int k = 0; k < op[i].nout; k++)
            if (!note(p, e, i, op[i].out[k], true))
                return false;
    }
    return true;
}

static int pick(const struct ls_op *op, int n, const bool *done, const int *npred, int reg)
{
    int first = -1;
    for (int i = 0; i < n; i++) {
        if (done[i] || npred[i] || region(&op[i]) != reg)
            continue;
        if (eager(&op[i]))
            return i;
        if (first < 0)
            first = i;
    }
    return first;
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
    if (!e.first || !e.npred || !e.last || !done || !find_edges(p, old, n, &e))
        ls_error_set(&p->error, LS_ERR_NOMEM, "schedule: out of memory");
    for (int reg = 0; reg < 3 && p->error.status == LS_OK; reg++)
        for (int i; (i = pick(old, n, done, e.npred, reg)) >= 0; placed++) {
            done[i] = true;
            for (int k = e.first[i]; k >= 0; k = e.next[k])
                e.npred[e.to[k]]--;
            ls_graph_push(p, &old[i]);
        }
    if (p->error.status == LS_OK && placed < n)
        ls_error_set(&p->error, LS_ERR_INTERNAL, "%d of %d ops never became ready", n - placed, n);
    free(e.to);
    free(e.next);
    free(e.first);
    free(e.npred);
    free(e.access);
    free(e.last);
    free(done);
    free(old);
    return ls_graph_check(p, "schedule", err);
}
