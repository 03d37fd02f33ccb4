/* The program's state by name: parameters are views of buckets, a parameter's moments lie at the same
 * place of the bucket's moments. Padding is never stored.
 *
 * Checkpoints know nothing of ranks. Rank 0 has every tensor as a whole, on the host; where ranks have
 * slices (ZeRO), these are dealt out behind a load and collected before a save. */
#include "ckpt/ckpt.h"
#include "model/model.h"
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

struct copy { /* of a bucket's tensor, on the host */
    int tensor;
    int64_t part;  /* bytes that every rank has */
    int64_t whole; /* bytes of the tensor over all ranks; part, where each has all of it */
    char *bytes;   /* rank 0: whole, its own part first; the others: part */
};
struct ls_state {
    const struct ls_prog *prog;
    struct ls_exec *exec;
    struct ls_ranks *ranks;
    struct ls_arena arena;
    struct copy *copy; /* param, m, v of every bucket */
    int ncopy;
    struct ls_st_tensor *model, *optimizer;
    int nmodel, noptimizer;
};

static char *host_of(const struct ls_state *s, int tensor)
{
    for (int i = 0; i < s->ncopy; i++)
        if (s->copy[i].tensor == tensor)
            return s->copy[i].bytes;
    return NULL;
}

static const struct ls_bucket *bucket_of(const struct ls_prog *p, int param_base)
{
    for (int b = 0; b < p->nbucket; b++)
        if (p->bucket[b].param == param_base)
            return &p->bucket[b];
    return NULL;
}

/* One stored tensor: parameter `t` as it lies in bucket tensor `base`. */
static bool add(struct ls_state *s, struct ls_st_tensor *to, const struct ls_tensor *t, int base,
                const char *suffix)
{
    char *name = ls_arena_printf(&s->arena, "%s%s", t->name, suffix);
    *to = (struct ls_st_tensor){
        .name = name,
        .dtype = t->dtype,
        .ndim = t->ndim,
        .data = host_of(s, base) + t->offset * ls_dtype_size(t->dtype),
    };
    memcpy(to->shape, t->shape, sizeof t->shape);
    return name != NULL;
}

static bool fill_tables(struct ls_state *s)
{
    const struct ls_prog *p = s->prog;
    for (int i = 0; i < p->nparam; i++) {
        const struct ls_tensor *t = &p->tensor[p->param[i].tensor];
        const struct ls_bucket *b = bucket_of(p, t->base);
        if (!b || !add(s, &s->model[s->nmodel++], t, b->param, ""))
            return false;
        if (b->m >= 0 && !add(s, &s->optimizer[s->noptimizer++], t, b->m, "/m"))
            return false;
        if (b->v >= 0 && !add(s, &s->optimizer[s->noptimizer++], t, b->v, "/v"))
            return false;
    }
    return true;
}

static bool add_copy(struct ls_state *s, const struct ls_bucket *b, int tensor)
{
    const struct ls_tensor *t = &s->prog->tensor[tensor];
    int64_t part = ls_graph_bytes(s->prog, tensor), whole = b->n * ls_dtype_size(t->dtype);
    struct copy *c = &s->copy[s->ncopy++];
    *c = (struct copy){.tensor = tensor, .part = part, .whole = whole};
    c->bytes = calloc(1, (size_t)(s->ranks->rank == 0 ? whole : part));
    return c->bytes != NULL;
}

enum ls_status ls_state_open(const struct ls_prog *p, struct ls_exec *exec, struct ls_ranks *ranks,
                             struct ls_state **state, struct ls_error *err)
{
    struct ls_state *s = calloc(1, sizeof *s);
    if (!s)
        return ls_error_set(err, LS_ERR_NOMEM, "preparing the state");
    *s = (struct ls_state){.prog = p, .exec = exec, .ranks = ranks};
    s->copy = calloc((size_t)p->nbucket * 3 + 1, sizeof *s->copy);
    s->model = calloc((size_t)p->nparam + 1, sizeof *s->model);
    s->optimizer = calloc((size_t)p->nparam * 2 + 1, sizeof *s->optimizer);
    bool ok = s->copy && s->model && s->optimizer;
    for (int b = 0; b < p->nbucket && ok; b++)
        for (int k = 0; k < 3 && ok; k++) {
            int t = (const int[]){p->bucket[b].param, p->bucket[b].m, p->bucket[b].v}[k];
            ok = t < 0 || add_copy(s, &p->bucket[b], t);
        }
    if (!ok || (ranks->rank == 0 && !fill_tables(s))) {
        ls_state_close(s);
        return ls_error_set(err, LS_ERR_NOMEM,
                            "no memory for a copy of the parameters and moments");
    }
    *state = s;
    return LS_OK;
}

void ls_state_close(struct ls_state *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->ncopy; i++)
        free(s->copy[i].bytes);
    free(s->copy);
    free(s->model);
    free(s->optimizer);
    ls_arena_free(&s->arena);
    free(s);
}

void ls_state_initialise(struct ls_state *s, uint64_t seed)
{
    for (int i = 0; i < s->ncopy; i++)
        memset(s->copy[i].bytes, 0, (size_t)s->copy[i].whole);
    for (int i = 0; i < s->nmodel; i++)
        ls_model_initial(s->prog, i, seed, s->model[i].data);
}

void ls_state_tables(struct ls_state *s, struct ls_ckpt_state *ckpt)
{
    ckpt->model = s->model;
    ckpt->nmodel = s->nmodel;
    ckpt->optimizer = s->optimizer;
    ckpt->noptimizer = s->noptimizer;
}

static bool sliced(const struct copy *c)
{
    return c->part < c->whole;
}

enum ls_status ls_state_collect(struct ls_state *s, struct ls_error *err)
{
    for (int i = 0; i < s->ncopy; i++) {
        struct copy *c = &s->copy[i];
        if (s->ranks->rank == 0 || sliced(c))
            LS_TRY(ls_exec_read(s->exec, c->tensor, c->bytes, err));
        if (sliced(c))
            LS_TRY(ls_ranks_deal(s->ranks, c->bytes, c->part, true, err));
    }
    return LS_OK;
}

enum ls_status ls_state_deal(struct ls_state *s, struct ls_error *err)
{
    for (int i = 0; i < s->ncopy; i++) {
        struct copy *c = &s->copy[i];
        if (sliced(c))
            LS_TRY(ls_ranks_deal(s->ranks, c->bytes, c->part, false, err));
        else
            LS_TRY(ls_ranks_broadcast(s->ranks, c->bytes, c->whole, 0, err));
        LS_TRY(ls_exec_write(s->exec, c->tensor, c->bytes, err));
    }
    return LS_OK;
}
