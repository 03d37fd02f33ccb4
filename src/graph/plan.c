/* An offset for every byte before the first allocation: persistent tensors and inputs lie one behind
 * the other, transients share the bytes of those that are dead. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64 /* a cache line, and the widest vector */

struct life {
    int tensor, first, last; /* ops between which the root's bytes are in use */
    int64_t bytes;
};

/* Largest first: what is placed early gets the low offsets, and small ones fill the holes. */
static int by_size(const void *a, const void *b)
{
    const struct life *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->tensor - y->tensor;
}

static int by_offset(const void *a, const void *b)
{
    const struct ls_tensor *const *x = a, *const *y = b;
    return (*x)->at < (*y)->at ? -1 : (*x)->at > (*y)->at;
}

/* The lowest gap of the arena, behind its `fixed` bytes, in which a transient fits beside those that
 * live at the same time. */
static int64_t find_gap(const struct ls_prog *p, const struct life *lives, int placed,
                        const struct life *want, int64_t fixed, const struct ls_tensor **busy)
{
    int n = 0;
    for (int i = 0; i < placed; i++)
        if (p->tensor[lives[i].tensor].role == p->tensor[want->tensor].role &&
            lives[i].first <= want->last && want->first <= lives[i].last)
            busy[n++] = &p->tensor[lives[i].tensor];
    qsort(busy, (size_t)n, sizeof *busy, by_offset);
    int64_t at = fixed;
    for (int i = 0; i < n; i++) {
        if (busy[i]->at - at >= want->bytes)
            return at;
        int64_t end =
            busy[i]->at + ls_round_up(ls_graph_bytes(p, (int)(busy[i] - p->tensor)), ALIGN);
        if (end > at)
            at = end;
    }
    return at;
}

/* An op's operands are in use until it ends, a collective's until somebody waits for it. */
static int end_of(const struct ls_prog *p, int i)
{
    if (!ls_graph_is_collective(p->op[i].kind) || p->op[i].wait < i)
        return i;
    return p->op[i].wait < p->nop ? p->op[i].wait : p->nop - 1;
}

static int collect(struct ls_prog *p, struct life *lives)
{
    int n = 0;
    int *at = malloc((size_t)p->ntensor * sizeof *at);
    if (!at)
        return -1;
    for (int t = 0; t < p->ntensor; t++) {
        at[t] = -1;
        struct ls_tensor *x = &p->tensor[t];
        if (x->storage != LS_STORE_OWN)
            continue;
        int64_t bytes = ls_round_up(ls_graph_bytes(p, t), ALIGN);
        if (x->persistent || x->role == LS_ROLE_INPUT) {
            x->at = p->arena_bytes[x->role];
            p->arena_bytes[x->role] += bytes;
        }
    }
    for (int i = 0; i < p->nop; i++)
        for (int k = 0; k < p->op[i].nin + p->op[i].nout; k++) {
            int t = k < p->op[i].nin ? p->op[i].in[k] : p->op[i].out[k - p->op[i].nin];
            int root = ls_graph_root(p, t);
            struct ls_tensor *x = &p->tensor[root];
            x->comm |= ls_graph_is_collective(p->op[i].kind);
            if (x->persistent || x->role == LS_ROLE_INPUT)
                continue;
            if (at[root] < 0) {
                at[root] = n;
                lives[n++] = (struct life){root, i, i, ls_round_up(ls_graph_bytes(p, root), ALIGN)};
            }
            if (lives[at[root]].last < end_of(p, i))
                lives[at[root]].last = end_of(p, i);
        }
    free(at);
    return n;
}

enum ls_status ls_graph_plan(struct ls_prog *p, struct ls_error *err)
{
    struct life *lives = malloc((size_t)p->ntensor * sizeof *lives);
    const struct ls_tensor **busy = malloc((size_t)p->ntensor * sizeof *busy);
    int n = lives && busy ? collect(p, lives) : -1;
    int64_t fixed[LS_ROLES]; /* what is persistent comes first */
    memcpy(fixed, p->arena_bytes, sizeof fixed);
    if (n < 0)
        ls_error_set(&p->error, LS_ERR_NOMEM, "plan: out of memory");
    else
        qsort(lives, (size_t)n, sizeof *lives, by_size);
    for (int i = 0; i < n; i++) {
        struct ls_tensor *t = &p->tensor[lives[i].tensor];
        t->at = find_gap(p, lives, i, &lives[i], fixed[t->role], busy);
        if (t->at + lives[i].bytes > p->arena_bytes[t->role])
            p->arena_bytes[t->role] = t->at + lives[i].bytes;
    }
    free(lives);
    free(busy);
    return ls_graph_check(p, "plan", err);
}
