/* The naive executor: storage, the run of a segment, poison. Made-up data is in naive_data.c. */
#include "tests/reference/naive.h"
#include "tests/reference/ref.h"

#include <stdlib.h>
#include <string.h>

struct ls_naive {
    const struct ls_prog *p;
    bool f64, planned;
    int64_t scale;         /* stored bytes of a planned byte */
    char *arena[LS_ROLES]; /* planned */
    char **own;            /* not planned: per root tensor */
    struct ls_naive_rank rank;
    const struct ls_op **pending; /* collectives not run yet, in program order */
    int npending;
};

#define POISON 0xff /* a NaN of either width, an ignored label, a place in no window */

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("# naive executor: ", stdout);
    vprintf(fmt, ap);
    puts("\nBail out!");
    fflush(stdout);
    va_end(ap);
    exit(1);
}

static void *allocate(size_t n)
{
    void *mem = calloc(n ? n : 1, 1);
    if (!mem)
        die("no memory");
    return mem;
}

static int root_of(const struct ls_prog *p, int t)
{
    for (int hops = 0; p->tensor[t].storage != LS_STORE_OWN; hops++) {
        t = p->tensor[t].base;
        if (t < 0 || t >= p->ntensor || hops > p->ntensor)
            die("tensor %d has no owner of its bytes", t);
    }
    return t;
}

static int64_t numel_of(const struct ls_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

/* Elements from the root's first element. */
static int64_t place_of(const struct ls_naive *n, int t)
{
    const struct ls_tensor *x = &n->p->tensor[t];
    int64_t at = 0;
    for (; x->storage != LS_STORE_OWN; x = &n->p->tensor[x->base])
        if (x->storage == LS_STORE_VIEW)
            at += x->offset + (x->slice_axis < 0 ? 0 : n->rank.coord[x->slice_axis] * numel_of(x));
    return at;
}

static int64_t root_bytes(const struct ls_naive *n, int root)
{
    const struct ls_tensor *t = &n->p->tensor[root];
    return n->scale * numel_of(t) * ls_dtype_size(t->dtype);
}

static char *root_at(const struct ls_naive *n, int root)
{
    const struct ls_tensor *t = &n->p->tensor[root];
    if (!n->planned)
        return n->own[root];
    if (t->at < 0)
        die("%s has no place in the plan", t->name);
    return n->arena[t->role] + n->scale * t->at;
}

static void *at(const struct ls_naive *n, int tensor)
{
    int root = root_of(n->p, tensor);
    int64_t size = ls_ref_size(n->p->tensor[tensor].dtype, n->f64);
    return root_at(n, root) + size * place_of(n, tensor);
}

static bool transient(const struct ls_prog *p, int root)
{
    const struct ls_tensor *t = &p->tensor[root];
    return t->storage == LS_STORE_OWN && !t->persistent && t->role != LS_ROLE_INPUT;
}

static bool op_touches(const struct ls_prog *p, const struct ls_op *o, int root)
{
    for (int k = 0; k < o->nin + o->nout; k++)
        if (root_of(p, k < o->nin ? o->in[k] : o->out[k - o->nin]) == root)
            return true;
    return false;
}

static bool segment_touches(const struct ls_prog *p, int root, unsigned segment)
{
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].segs & segment && op_touches(p, &p->op[i], root))
            return true;
    return false;
}

static void poison(struct ls_naive *n, int root)
{
    memset(root_at(n, root), POISON, (size_t)root_bytes(n, root));
}

struct ls_naive *ls_naive_open(const struct ls_prog *p, bool f64, bool planned)
{
    return ls_naive_open_rank(p, f64, planned, &(struct ls_naive_rank){0});
}

struct ls_naive *ls_naive_open_rank(const struct ls_prog *p, bool f64, bool planned,
                                    const struct ls_naive_rank *rank)
{
    struct ls_naive *n = allocate(sizeof *n);
    *n = (struct ls_naive){.p = p, .f64 = f64, .planned = planned, .scale = f64 ? 2 : 1};
    n->rank = *rank;
    n->pending = allocate((size_t)p->nop * sizeof *n->pending);
    n->own = allocate((size_t)p->ntensor * sizeof *n->own);
    for (int r = 0; r < LS_ROLES && planned; r++)
        n->arena[r] = allocate((size_t)(n->scale * p->arena_bytes[r]));
    for (int t = 0; t < p->ntensor; t++) {
        const struct ls_tensor *x = &p->tensor[t];
        if (x->storage != LS_STORE_OWN || (planned && x->at < 0))
            continue;
        int64_t bytes = root_bytes(n, t);
        if (!planned)
            n->own[t] = allocate((size_t)bytes);
        else if (x->at + bytes / n->scale > p->arena_bytes[x->role] ||
                 x->at % ls_dtype_size(x->dtype))
            die("%s: bytes %lld to %lld do not fit its arena of %lld", x->name, (long long)x->at,
                (long long)(x->at + bytes / n->scale), (long long)p->arena_bytes[x->role]);
        if (transient(p, t) || x->role == LS_ROLE_DERIVED)
            poison(n, t);
    }
    return n;
}

const struct ls_prog *ls_naive_prog(const struct ls_naive *n)
{
    return n->p;
}

void ls_naive_close(struct ls_naive *n)
{
    for (int t = 0; t < n->p->ntensor; t++)
        free(n->own[t]);
    for (int r = 0; r < LS_ROLES; r++)
        free(n->arena[r]);
    free(n->own);
    free(n->pending);
    free(n);
}

/* Zeroes what no member of the bucket covers. In a persistent bucket that must be zero already: a
 * device has no kernel for it. */
static void join(const struct ls_naive *n, const struct ls_op *o)
{
    const struct ls_prog *p = n->p;
    int64_t size = numel_of(&p->tensor[o->out[0]]);
    int root = root_of(p, o->out[0]);
    bool *covered = allocate((size_t)size);
    for (int k = 0; k < o->nin; k++) {
        int64_t first = place_of(n, o->in[k]) - place_of(n, o->out[0]);
        int64_t last = first + numel_of(&p->tensor[o->in[k]]);
        if (root_of(p, o->in[k]) != root || first < 0 || last > size)
            die("join of %s: operand %d is no part of it", p->tensor[root].name, k);
        for (int64_t i = first; i < last; i++) {
            if (covered[i])
                die("join of %s: operand %d lies on another", p->tensor[root].name, k);
            covered[i] = true;
        }
    }
    for (int64_t i = 0; i < size; i++) {
        if (covered[i])
            continue;
        if (p->tensor[root].persistent && ls_naive_get(n, o->out[0], i) != 0)
            die("join of %s: element %lld of a gap is not zero", p->tensor[root].name,
                (long long)i);
        if (!p->tensor[root].persistent)
            ls_naive_set((struct ls_naive *)n, o->out[0], i, 0);
    }
    free(covered);
}

static struct ls_operand describe(const struct ls_prog *p, int t)
{
    const struct ls_tensor *x = &p->tensor[p->tensor[t].packed >= 0 ? p->tensor[t].packed : t];
    struct ls_operand o = {.dtype = x->dtype, .ndim = x->ndim};
    memcpy(o.shape, x->shape, sizeof o.shape);
    return o;
}

/* The op that an own layout is made for says what it looks like. */
static void pack(const struct ls_naive *n, const struct ls_op *o, const void *plain, void *packed)
{
    const struct ls_prog *p = n->p;
    int64_t numel = numel_of(&p->tensor[o->in[0]]);
    const struct ls_op *user = NULL;
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].id == o->pack_op)
            user = &p->op[i];
    if (!user || root_of(p, user->in[o->pack_operand]) != root_of(p, o->out[0]))
        die("pack op %d serves no op", o->id);
    if (root_bytes(n, root_of(p, o->out[0])) < n->scale * 4 * (numel + LS_REF_PACK_HEAD))
        die("pack op %d: the packed tensor is too small", o->id);
    ls_ref_pack(user->kind, &user->attr, plain, packed, numel, n->f64);
}

static void run_collective(const struct ls_naive *n, const struct ls_op *o)
{
    const struct ls_tensor *x = &n->p->tensor[o->in[0]];
    struct ls_collective c = {.kind = o->kind,
                              .axes = o->attr.axes,
                              .in = at(n, o->in[0]),
                              .out = at(n, o->out[0]),
                              .count = numel_of(x),
                              .dtype = x->dtype,
                              .max = o->attr.max,
                              .dim = o->attr.dim,
                              .outer = 1,
                              .from = o->attr.from,
                              .to = o->attr.to,
                              .seq = o->seq};
    for (int d = 0; d < c.dim; d++)
        c.outer *= x->shape[d];
    c.inner = c.count / c.outer;
    if (!n->rank.collective)
        die("op %d (%s): there are no other ranks", o->id, ls_graph_kind(o->kind)->name);
    n->rank.collective(n->rank.arg, n->rank.coord, &c);
}

/* What depends on the coordinates. */
static struct ls_attr resolve(const struct ls_naive *n, const struct ls_op *o)
{
    struct ls_attr attr = o->attr;
    const struct ls_tensor *x = &n->p->tensor[o->nin ? o->in[0] : o->out[0]];
    for (int a = 0; a < LS_AXES; a++) {
        if (!(attr.axes >> a & 1))
            continue;
        if (o->kind == LS_K_SLICE)
            attr.from = (int16_t)n->rank.coord[a];
        else if (x->ndim) {
            attr.first = n->rank.coord[a] * x->shape[x->ndim - 1];
            attr.whole = n->p->options.mesh[a] * x->shape[x->ndim - 1];
        }
    }
    return attr;
}

static void keep(const struct ls_naive *n, const struct ls_op *o)
{
    for (int64_t i = 0; i < numel_of(&n->p->tensor[o->out[0]]); i++) {
        bool kept = n->rank.coord[__builtin_ctz(o->attr.axes)] == o->attr.from;
        ls_naive_set((struct ls_naive *)n, o->out[0], i, kept ? ls_naive_get(n, o->in[0], i) : 0);
    }
}

/* Does this rank's stage run the op? */
static bool is_here(const struct ls_naive *n, const struct ls_op *o)
{
    int stage = n->rank.coord[LS_AXIS_PIPELINE];
    struct ls_place place = n->p->tensor[o->out[0]].place[LS_AXIS_PIPELINE];
    if (o->kind == LS_K_SEND)
        return stage == o->attr.from || stage == o->attr.to;
    return place.kind != LS_PLACE_A || place.dim == stage;
}

static void run_op(struct ls_naive *n, const struct ls_op *o)
{
    const struct ls_prog *p = n->p;
    if (ls_graph_is_collective(o->kind)) {
        run_collective(n, o);
        return;
    }
    struct ls_attr attr = resolve(n, o);
    int count = o->nin + o->nout;
    void **operand = allocate((size_t)count * sizeof *operand);
    void **unpacked = allocate((size_t)count * sizeof *unpacked);
    struct ls_operand *io = allocate((size_t)count * sizeof *io);
    for (int k = 0; k < count; k++) {
        int t = k < o->nin ? o->in[k] : o->out[k - o->nin];
        operand[k] = at(n, t);
        io[k] = describe(p, t);
        if (k < o->nin && p->tensor[t].packed >= 0 && o->kind != LS_K_PACK) {
            int64_t numel = numel_of(&p->tensor[p->tensor[t].packed]);
            unpacked[k] = allocate((size_t)numel * sizeof(double));
            ls_ref_unpack(o->kind, &o->attr, operand[k], unpacked[k], numel, n->f64);
            operand[k] = unpacked[k];
        }
    }
    struct ls_op_desc desc = {.kind = o->kind,
                              .attr = &attr,
                              .nin = o->nin,
                              .nout = o->nout,
                              .in = io,
                              .out = io + o->nin};
    bool known = true;
    if (o->kind == LS_K_JOIN)
        join(n, o);
    else if (o->kind == LS_K_KEEP)
        keep(n, o);
    else if (o->kind == LS_K_SLICE && p->tensor[o->out[0]].storage == LS_STORE_VIEW)
        known = true;
    else if (o->kind == LS_K_PACK)
        pack(n, o, operand[0], operand[o->nin]);
    else
        known = (n->f64 ? ls_ref_run_f64 : ls_ref_run_f32)(&desc, operand);
    if (!known)
        die("no reference for %s (op %d)", ls_graph_kind(o->kind)->name, o->id);
    for (int k = 0; k < count; k++)
        free(unpacked[k]);
    /* Types that are not doubled leave a tail that the plan gave them: what is there must be dead. */
    for (int k = 0; k < o->nout && n->scale > 1; k++) {
        const struct ls_tensor *t = &p->tensor[o->out[k]];
        int64_t bytes = numel_of(t) * ls_dtype_size(t->dtype);
        if (t->storage == LS_STORE_OWN && t->dtype != LS_F32 && o->kind != LS_K_PACK)
            memset((char *)at(n, o->out[k]) + bytes, POISON, (size_t)((n->scale - 1) * bytes));
    }
    free(operand);
    free(unpacked);
    free(io);
}

/* Accumulators are overwritten by the first micro-batch of the next step: until then nobody may read
 * them. Gaps between members stay zero. */
static void poison_accumulators(struct ls_naive *n)
{
    const struct ls_prog *p = n->p;
    for (int b = 0; b < p->nbucket; b++)
        for (int i = 0; i < p->nparam; i++) {
            const struct ls_tensor *t = &p->tensor[p->param[i].tensor];
            if (t->base != p->bucket[b].param || p->bucket[b].acc < 0)
                continue;
            int64_t size = ls_ref_size(t->dtype, n->f64),
                    room = numel_of(&p->tensor[p->bucket[b].acc]);
            int64_t first = t->offset, last = t->offset + numel_of(t);
            if (room < p->bucket[b].n) { /* a slice of it */
                first -= n->rank.coord[LS_AXIS_DATA] * room;
                last -= n->rank.coord[LS_AXIS_DATA] * room;
            }
            first = first < 0 ? 0 : first;
            last = last > room ? room : last;
            if (first < last)
                memset((char *)at(n, p->bucket[b].acc) + size * first, POISON,
                       (size_t)(size * (last - first)));
        }
}

/* Runs pending collectives, oldest first, up to the last one for which op i has to wait. */
static void flush(struct ls_naive *n, int i)
{
    int count = 0;
    for (int k = 0; k < n->npending; k++)
        if (n->pending[k]->wait <= i)
            count = k + 1;
    for (int k = 0; k < count; k++)
        run_op(n, n->pending[k]);
    n->npending -= count;
    memmove(n->pending, n->pending + count, (size_t)n->npending * sizeof *n->pending);
}

/* Where an op is done with its operands. */
static int end_of(const struct ls_prog *p, int i)
{
    return ls_graph_is_collective(p->op[i].kind) && p->op[i].wait > i ? p->op[i].wait : i;
}

void ls_naive_run(struct ls_naive *n, enum ls_segment segment)
{
    const struct ls_prog *p = n->p;
    bool *mine = allocate((size_t)p->ntensor); /* transients that end in this segment */
    int *last = allocate((size_t)p->ntensor * sizeof *last);
    for (int t = 0; t < p->ntensor; t++) {
        mine[t] = transient(p, t) && (!n->planned || p->tensor[t].at >= 0) &&
                  !(segment == LS_SEG_LAST && segment_touches(p, t, LS_SEG_UPDATE));
        last[t] = -1;
        /* what the last micro-batch left for the update must survive until then */
        if (mine[t] && segment != LS_SEG_UPDATE)
            poison(n, t);
    }
    for (int i = 0; i < p->nop; i++)
        for (int k = 0; k < p->op[i].nin + p->op[i].nout && p->op[i].segs & segment; k++) {
            const struct ls_op *o = &p->op[i];
            int root = root_of(p, k < o->nin ? o->in[k] : o->out[k - o->nin]);
            last[root] = last[root] > end_of(p, i) ? last[root] : end_of(p, i);
        }
    for (int i = 0; i < p->nop; i++) {
        if (!(p->op[i].segs & segment))
            continue;
        flush(n, i);
        if (is_here(n, &p->op[i])) {
            if (n->rank.late && ls_graph_is_collective(p->op[i].kind))
                n->pending[n->npending++] = &p->op[i];
            else
                run_op(n, &p->op[i]);
        }
        for (int t = 0; t < p->ntensor; t++)
            if (mine[t] && last[t] >= 0 && last[t] <= i) {
                poison(n, t);
                last[t] = -1;
            }
    }
    if (segment != LS_SEG_LAST)
        flush(n, p->nop);
    if (segment == LS_SEG_UPDATE)
        poison_accumulators(n);
    free(mine);
    free(last);
}

double ls_naive_get(const struct ls_naive *n, int tensor, int64_t i)
{
    const void *x = at(n, tensor);
    switch (n->p->tensor[tensor].dtype) {
    case LS_F32:
        return n->f64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
    case LS_F64:
        return ((const double *)x)[i];
    case LS_I32:
        return ((const int32_t *)x)[i];
    case LS_U8:
        return ((const uint8_t *)x)[i];
    case LS_DTYPES:
        break;
    }
    die("tensor %d has no element type", tensor);
}

void ls_naive_set(struct ls_naive *n, int tensor, int64_t i, double value)
{
    void *x = at(n, tensor);
    switch (n->p->tensor[tensor].dtype) {
    case LS_F32:
        if (n->f64)
            ((double *)x)[i] = value;
        else
            ((float *)x)[i] = (float)value;
        return;
    case LS_F64:
        ((double *)x)[i] = value;
        return;
    case LS_I32:
        ((int32_t *)x)[i] = (int32_t)value;
        return;
    case LS_U8:
        ((uint8_t *)x)[i] = (uint8_t)value;
        return;
    case LS_DTYPES:
        break;
    }
    die("tensor %d has no element type", tensor);
}

double ls_naive_control(const struct ls_naive *n, enum ls_control word)
{
    return ls_naive_get(n, n->p->control, word);
}

void ls_naive_read(const struct ls_naive *n, int tensor, double *values)
{
    int64_t count = numel_of(&n->p->tensor[tensor]);
    for (int64_t i = 0; i < count; i++)
        values[i] = ls_naive_get(n, tensor, i);
}

static const struct ls_bucket *bucket_of(const struct ls_naive *n, int row)
{
    const struct ls_prog *p = n->p;
    for (int b = 0; b < p->nbucket; b++)
        if (p->tensor[p->param[row].tensor].base == p->bucket[b].param)
            return &p->bucket[b];
    die("parameter %d is in no bucket", row);
}

double ls_naive_member(const struct ls_naive *n, int row, enum ls_naive_part part, int64_t i)
{
    const struct ls_tensor *t = &n->p->tensor[n->p->param[row].tensor];
    const struct ls_bucket *b = bucket_of(n, row);
    const int whole[] = {b->param, b->acc, b->m, b->v};
    return whole[part] < 0 ? 0 : ls_naive_get(n, whole[part], t->offset + i);
}

static int maker_of(const struct ls_prog *p, int t)
{
    for (int i = 0; i < p->nop; i++)
        for (int k = 0; k < p->op[i].nout; k++)
            if (p->op[i].out[k] == t)
                return i;
    die("%s is made by no op", p->tensor[t].name);
}

double ls_naive_loss(const struct ls_naive *n, int64_t *count)
{
    const struct ls_prog *p = n->p;
    for (int i = 0; i < p->nop; i++)
        if (p->op[i].kind == LS_K_COMMIT) {
            int sums = p->op[maker_of(p, p->op[i].in[0])].in[0];
            if (count)
                *count = (int64_t)ls_naive_get(n, sums, 1);
            return ls_naive_get(n, sums, 0);
        }
    die("no commit in this program");
}
