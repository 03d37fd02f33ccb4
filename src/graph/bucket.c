/* Groups parameters and their gradients into padded one-dimensional tensors: what an optimizer sweep,
 * a norm and a collective work on. Members become views. */
#include "graph/graph.h"

#include <stdlib.h>

/* Members start at a cache line, so that vectors and threads do not share one at the seams. */
#define MEMBER_ALIGN 16
/* A multiple of every sensible rank count's slice and of the norm's blocks; never stored or counted. */
#define BUCKET_ALIGN 256

/* Parameters in the order in which the backward program completes their gradients. */
static int *completion_order(struct ls_prog *p)
{
    int *order = malloc((size_t)p->nparam * sizeof *order);
    int *when = malloc((size_t)p->nparam * sizeof *when);
    int *def = malloc((size_t)p->ntensor * sizeof *def);
    if (!order || !when || !def) {
        free(order);
        order = NULL;
        goto out;
    }
    for (int i = 0; i < p->nop; i++)
        for (int k = 0; k < p->op[i].nout; k++)
            def[p->op[i].out[k]] = i;
    for (int i = 0; i < p->nparam; i++) {
        when[i] = def[p->param[i].grad];
        int j = i;
        for (; j > 0 && when[order[j - 1]] > when[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
out:
    free(when);
    free(def);
    return order;
}

/* On every axis but data, which is not divided yet. Or the norm would count what every rank has once
 * per rank. */
static bool same_places(const struct ls_prog *p, int a, int b)
{
    const struct ls_place *x = p->tensor[a].place, *y = p->tensor[b].place;
    return ls_graph_same_place(x[LS_AXIS_PIPELINE], y[LS_AXIS_PIPELINE]) &&
           ls_graph_same_place(x[LS_AXIS_TENSOR], y[LS_AXIS_TENSOR]);
}

static bool alike(const struct ls_prog *p, int a, int b)
{
    return p->param[a].rule == p->param[b].rule && p->param[a].momentum == p->param[b].momentum &&
           p->tensor[p->param[a].tensor].dtype == p->tensor[p->param[b].tensor].dtype &&
           same_places(p, p->param[a].tensor, p->param[b].tensor) &&
           same_places(p, p->param[a].grad, p->param[b].grad);
}

/* A bucket is where its members are; S(d) becomes S(0) of a flat tensor that is the concatenation of
 * the ranks' buckets. */
static void take_places(struct ls_prog *p, int bucket, int member)
{
    for (int axis = LS_AXIS_PIPELINE; axis <= LS_AXIS_TENSOR; axis++) {
        struct ls_place place = p->tensor[member].place[axis];
        if (place.kind == LS_PLACE_S)
            place.dim = 0;
        p->tensor[bucket].place[axis] = place;
        p->tensor[bucket].placed |= (uint8_t)(1u << axis);
    }
}

static void become_view(struct ls_prog *p, int t, int base, int64_t offset)
{
    p->tensor[t].storage = LS_STORE_VIEW;
    p->tensor[t].base = base;
    p->tensor[t].offset = offset;
    p->tensor[t].role = p->tensor[base].role;
}

static void make_bucket(struct ls_prog *p, const int *member, int n)
{
    if (!ls_grow(&p->bucket, &p->capbucket, p->nbucket + 1, sizeof *p->bucket)) {
        ls_error_set(&p->error, LS_ERR_NOMEM, "bucket: out of memory");
        return;
    }
    const struct ls_param *first = &p->param[member[0]];
    struct ls_bucket b = {
        .acc = -1, .m = -1, .v = -1, .rule = first->rule, .momentum = first->momentum};
    for (int k = 0; k < n; k++)
        b.n += ls_round_up(ls_graph_numel(p, p->param[member[k]].tensor), MEMBER_ALIGN);
    b.n = ls_round_up(b.n, BUCKET_ALIGN);
    while (b.n % ls_graph_mesh(p, LS_AXIS_DATA)) /* any number of data ranks can slice it */
        b.n += BUCKET_ALIGN;
    enum ls_dtype dtype = p->tensor[first->tensor].dtype;
    b.param = ls_graph_tensor(p, LS_ROLE_PARAM, true, dtype, 1, &b.n, "bucket%d.param", p->nbucket);
    b.grad = ls_graph_tensor(p, LS_ROLE_GRAD, false, dtype, 1, &b.n, "bucket%d.grad", p->nbucket);
    int *grads = ls_arena_alloc(&p->arena, (size_t)n * sizeof *grads);
    if (p->error.status != LS_OK || !grads) {
        ls_error_set(&p->error, LS_ERR_NOMEM, "bucket: out of memory");
        return;
    }
    take_places(p, b.param, first->tensor);
    take_places(p, b.grad, first->grad);
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        const struct ls_param *m = &p->param[member[k]];
        if (p->tensor[m->tensor].storage != LS_STORE_OWN ||
            p->tensor[m->grad].storage != LS_STORE_OWN)
            ls_error_set(&p->error, LS_ERR_INTERNAL,
                         "bucket: %s or its gradient shares bytes with another tensor",
                         p->tensor[m->tensor].name);
        become_view(p, m->tensor, b.param, at);
        become_view(p, m->grad, b.grad, at);
        grads[k] = m->grad;
        at += ls_round_up(ls_graph_numel(p, m->tensor), MEMBER_ALIGN);
    }
    struct ls_op join = {.kind = LS_K_JOIN,
                         .nin = n,
                         .nout = 1,
                         .in = grads,
                         .out = &b.grad,
                         .segs = LS_SEG_MICRO | LS_SEG_LAST,
                         .phase = LS_PHASE_BACKWARD,
                         .id = p->next_id++,
                         .seq = -1,
                         .wait = -1,
                         .pack_op = -1};
    ls_graph_push(p, &join);
    p->bucket[p->nbucket++] = b;
}

enum ls_status ls_graph_bucket(struct ls_prog *p, struct ls_error *err)
{
    int *order = completion_order(p);
    int *member = malloc((size_t)p->nparam * sizeof *member);
    bool *done = calloc((size_t)p->nparam, sizeof *done);
    if (!order || !member || !done)
        ls_error_set(&p->error, LS_ERR_NOMEM, "bucket: out of memory");
    int nforward = 0;
    while (nforward < p->nop && !(p->op[nforward].segs & LS_SEG_EVAL))
        nforward++;
    /* Joins belong behind the backward ops, before the evaluation's. */
    int n, nold;
    struct ls_op *old = ls_graph_take_ops(p, &nold);
    for (int i = 0; i < nforward && i < nold; i++)
        ls_graph_push(p, &old[i]);
    for (int i = 0; i < p->nparam && p->error.status == LS_OK; i++) {
        if (done[order[i]])
            continue;
        int64_t bytes = 0;
        n = 0;
        for (int j = i; j < p->nparam; j++) {
            int64_t more = ls_graph_bytes(p, p->param[order[j]].tensor);
            if (done[order[j]] || !alike(p, order[i], order[j]) ||
                (n && bytes + more > p->options.bucket_bytes))
                continue;
            member[n++] = order[j];
            bytes += more;
            done[order[j]] = true;
        }
        make_bucket(p, member, n);
    }
    for (int i = nforward; i < nold; i++)
        ls_graph_push(p, &old[i]);
    free(old);
    free(order);
    free(member);
    free(done);
    return ls_graph_check(p, "bucket", err);
}
