/* Ranks as threads. See ranks.h. */
#include "tests/graph/ranks.h"
#include "tests/graph/drive.h"
#include "tests/reference/ref.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t weight_seed = 3;
static const int64_t held_out = 1000; /* where the samples of evaluations begin */

enum { PARTS = 3 }; /* value, m, v */

/* One rank, on either executor. */
struct member {
    const struct ls_prog *p;
    const struct ranks_run *run;
    struct ls_world *world;
    int rank, coord[LS_AXES];
    struct ls_naive *naive;
    struct ls_exec *exec;
    struct ls_world_rank link;
    struct ls_exec_comm comm;
    struct ls_device *dev;
    struct ranks_part *part;
    struct ls_error err;
};

static void *allocate(int64_t n, size_t size)
{
    void *mem = calloc((size_t)n + 1, size);
    if (!mem)
        abort();
    return mem;
}

/* ---- where an element of the whole lies ------------------------------------------------------- */

typedef void visit(struct member *m, int row, int64_t global, int tensor, int64_t local,
                   double *slot);

static const struct ls_bucket *bucket_of(const struct ls_prog *p, int row)
{
    for (int b = 0; b < p->nbucket; b++)
        if (p->bucket[b].param == p->tensor[p->param[row].tensor].base)
            return &p->bucket[b];
    abort();
}

/* How many ranks share dimension d of a member. */
static int slices(const struct ls_prog *p, const struct ls_tensor *t, int d)
{
    struct ls_place w = t->place[LS_AXIS_TENSOR];
    return w.kind == LS_PLACE_S && w.dim == d ? ls_graph_mesh(p, LS_AXIS_TENSOR) : 1;
}

static int64_t whole_numel(const struct ls_prog *p, int row)
{
    const struct ls_tensor *t = &p->tensor[p->param[row].tensor];
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d] * slices(p, t, d);
    return n;
}

/* Visits all elements of a row's part that this rank holds. All resharding rests on this mapping. */
static void each_element(struct member *m, int row, int part, double *slot, visit *fn)
{
    const struct ls_prog *p = m->p;
    const struct ls_tensor *t = &p->tensor[p->param[row].tensor];
    const struct ls_bucket *b = bucket_of(p, row);
    int base = part == 0 ? b->param : part == 1 ? b->m : b->v;
    if (base < 0)
        return;
    struct ls_place stage = p->tensor[base].place[LS_AXIS_PIPELINE];
    if (stage.kind == LS_PLACE_A && stage.dim != m->coord[LS_AXIS_PIPELINE])
        return;
    int64_t n = ls_graph_numel(p, p->param[row].tensor), room = ls_graph_numel(p, base);
    bool sliced = p->tensor[base].place[LS_AXIS_DATA].kind == LS_PLACE_S;
    for (int64_t e = 0; e < n; e++) {
        int64_t global = 0, rest = e, stride = 1;
        for (int d = t->ndim - 1; d >= 0; d--) {
            int64_t i = rest % t->shape[d];
            rest /= t->shape[d];
            if (slices(p, t, d) > 1)
                i += m->coord[LS_AXIS_TENSOR] * t->shape[d];
            global += i * stride;
            stride *= t->shape[d] * slices(p, t, d);
        }
        int64_t at = t->offset + e;
        if (sliced) {
            if (at / room != m->coord[LS_AXIS_DATA])
                continue;
            at %= room;
        }
        fn(m, row, global, base, at, &slot[global]);
    }
}

static void each_row(struct member *m, double *values, visit *fn)
{
    for (int row = 0; row < m->p->nparam; row++)
        for (int part = 0; part < (values ? PARTS : 1); part++) {
            each_element(m, row, part, values, fn);
            if (values)
                values += whole_numel(m->p, row);
        }
}

/* ---- one rank --------------------------------------------------------------------------------- */

static void read_tensor(struct member *m, int t, double *to)
{
    const struct ls_prog *p = m->p;
    int64_t n = ls_graph_numel(p, t);
    if (m->naive) {
        ls_naive_read(m->naive, t, to);
        return;
    }
    float *values = allocate(n, sizeof(double));
    drive_need(ls_exec_read(m->exec, t, values, &m->err), &m->err);
    for (int64_t i = 0; i < n; i++)
        to[i] = p->tensor[t].dtype == LS_F64 ? ((double *)(void *)values)[i] : values[i];
    free(values);
}

/* ls_exec: whole tensors only. One buffer is enough: visits come bucket by bucket and row by row. */
static void set_element(struct member *m, int row, int64_t global, int t, int64_t at, double *slot)
{
    (void)slot;
    float v = ls_naive_fill(m->p, row, weight_seed, global);
    if (m->naive) {
        ls_naive_set(m->naive, t, at, v);
        return;
    }
    int64_t n = ls_graph_numel(m->p, t);
    float *values = allocate(n, sizeof *values);
    drive_need(ls_exec_read(m->exec, t, values, &m->err), &m->err);
    values[at] = v;
    drive_need(ls_exec_write(m->exec, t, values, &m->err), &m->err);
    free(values);
}

static void get_element(struct member *m, int row, int64_t global, int t, int64_t at, double *slot)
{
    (void)row;
    (void)global;
    if (m->naive) {
        *slot = ls_naive_get(m->naive, t, at);
        return;
    }
    double *values = allocate(ls_graph_numel(m->p, t), sizeof *values);
    read_tensor(m, t, values);
    *slot = values[at];
    free(values);
}

static void load(struct member *m, int64_t step, int micro, int64_t first, int64_t valid)
{
    if (m->naive) {
        ls_naive_load(m->naive, m->run->data, step, micro, first, valid);
        return;
    }
    const struct ls_prog *p = m->p;
    double control[LS_CONTROL_WORDS];
    float *images = allocate(ls_graph_bytes(p, p->images), 1);
    int32_t *labels = allocate(ls_graph_bytes(p, p->labels), 1);
    ls_naive_sample(p, m->run->data, first, valid, images, labels);
    drive_need(ls_exec_write(m->exec, p->images, images, &m->err), &m->err);
    drive_need(ls_exec_write(m->exec, p->labels, labels, &m->err), &m->err);
    drive_need(ls_exec_read(m->exec, p->control, control, &m->err), &m->err);
    ls_naive_words(m->run->data, step, micro, first, control);
    drive_need(ls_exec_write(m->exec, p->control, control, &m->err), &m->err);
    free(images);
    free(labels);
}

static void segment(struct member *m, enum ls_segment s)
{
    if (m->naive)
        ls_naive_run(m->naive, s);
    else
        drive_need(ls_exec_run(m->exec, s, &m->err), &m->err);
}

/* Contiguous runs of micro-batches; a rank with none, and a short rank where all must meet, runs one
 * without a label. */
static void run_micros(struct member *m, int64_t step)
{
    const struct ls_prog *p = m->p;
    int micros = m->run->data->micros, ranks = ls_graph_mesh(p, LS_AXIS_DATA);
    int me = m->coord[LS_AXIS_DATA];
    int lo = micros * me / ranks, hi = micros * (me + 1) / ranks;
    int runs = ls_graph_micro_meets(p) ? (micros + ranks - 1) / ranks : hi - lo;
    int64_t rows = p->tensor[p->images].shape[0];
    runs = runs < 1 ? 1 : runs;
    for (int k = 0; k < runs; k++) {
        bool empty = lo + k >= hi || step == m->run->skip;
        load(m, step, k, (step * micros + lo + k) * rows, empty ? 0 : rows);
        segment(m, k == runs - 1 ? LS_SEG_LAST : LS_SEG_MICRO);
    }
}

static void evaluate(struct member *m, int64_t step, int batches)
{
    const struct ls_prog *p = m->p;
    int64_t rows = p->tensor[p->images].shape[0];
    int ranks = ls_graph_mesh(p, LS_AXIS_DATA), micro = 0;
    for (int k = m->coord[LS_AXIS_DATA]; k < batches; k += ranks, micro++) {
        load(m, step, micro, held_out + k * rows, rows);
        segment(m, LS_SEG_EVAL);
    }
    read_tensor(m, p->eval, m->part->eval);
}

enum { EVALUATED = 24 }; /* batches; a multiple of every number of data ranks */

static void *train(void *arg)
{
    struct member *m = arg;
    const struct ls_prog *p = m->p;
    each_row(m, NULL, set_element);
    segment(m, LS_SEG_LOAD);
    for (int step = 0; step < m->run->steps; step++) {
        run_micros(m, step);
        segment(m, LS_SEG_UPDATE);
        read_tensor(m, p->control, m->part->control);
        m->part->loss[step] = m->part->control[LS_C_LOSS];
        m->part->norm[step] = m->part->control[LS_C_NORM];
    }
    evaluate(m, m->run->steps, EVALUATED);
    each_row(m, m->part->values, get_element);
    return NULL;
}

static void open_member(struct member *m, bool exec)
{
    ls_world_coord(m->world, m->rank, m->coord);
    if (!exec) {
        struct ls_naive_rank rank = {
            .late = m->run->late, .collective = ls_world_collective, .arg = m->world};
        memcpy(rank.coord, m->coord, sizeof rank.coord);
        m->naive = ls_naive_open_rank(m->p, m->run->f64, true, &rank);
        return;
    }
    const struct ls_device_api *api = ls_ref_device();
    struct ls_device_config config = {.threads = 1, .deterministic = true};
    drive_need(api->open(&config, &m->dev, &m->err), &m->err);
    ls_world_exec_open(m->world, m->rank, m->run->late, &m->link, &m->comm);
    drive_need(ls_exec_open(m->p, api, m->dev, &m->comm, &m->exec, &m->err), &m->err);
}

static void close_member(struct member *m)
{
    m->part->trace = ls_world_trace(m->world, m->rank);
    if (m->naive) {
        ls_naive_close(m->naive);
        return;
    }
    m->part->started = m->link.started;
    m->part->progressed = m->link.progressed;
    m->part->lent = m->link.lent;
    ls_exec_close(m->exec);
    ls_world_exec_close(&m->link);
    ls_ref_device()->close(m->dev);
}

static struct ranks_outcome train_all(const struct ls_prog *p, const struct ranks_run *run,
                                      bool exec)
{
    struct ls_world *world = ls_world_open(p->options.mesh, run->f64 && !exec);
    struct ranks_outcome o = {.n = ls_world_size(world), .steps = run->steps};
    for (int row = 0; row < p->nparam; row++)
        o.count += PARTS * whole_numel(p, row);
    o.rank = allocate(o.n, sizeof *o.rank);
    struct member *m = allocate(o.n, sizeof *m);
    pthread_t *thread = allocate(o.n, sizeof *thread);
    for (int r = 0; r < o.n; r++) {
        o.rank[r].values = allocate(o.count, sizeof(double));
        for (int64_t i = 0; i < o.count; i++)
            o.rank[r].values[i] = NAN;
        m[r] = (struct member){.p = p, .run = run, .world = world, .rank = r, .part = &o.rank[r]};
        open_member(&m[r], exec);
    }
    for (int r = 0; r < o.n; r++)
        if (pthread_create(&thread[r], NULL, train, &m[r]))
            abort();
    for (int r = 0; r < o.n; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < o.n; r++)
        close_member(&m[r]);
    free(m);
    free(thread);
    ls_world_close(world);
    return o;
}

struct ranks_outcome ranks_naive(const struct ls_prog *p, const struct ranks_run *run)
{
    return train_all(p, run, false);
}

struct ranks_outcome ranks_exec(const struct ls_prog *p, const struct ranks_run *run)
{
    return train_all(p, run, true);
}

void ranks_free(struct ranks_outcome *o)
{
    for (int r = 0; r < o->n; r++)
        free(o->rank[r].values);
    free(o->rank);
}

/* ---- comparing -------------------------------------------------------------------------------- */

bool ranks_same(const struct ranks_outcome *a, const struct ranks_outcome *b)
{
    for (int r = 0; r < a->n; r++) {
        const struct ranks_part *x = &a->rank[r], *y = &b->rank[r];
        for (int64_t i = 0; i < a->count; i++)
            if (memcmp(&x->values[i], &y->values[i], sizeof *x->values)) {
                printf("# rank %d, element %lld of %lld: %.17g and %.17g\n", r, (long long)i,
                       (long long)a->count, x->values[i], y->values[i]);
                return false;
            }
        if (memcmp(x->control, y->control, sizeof x->control) ||
            memcmp(x->eval, y->eval, sizeof x->eval)) {
            printf("# rank %d: control or evaluation differ\n", r);
            return false;
        }
    }
    return a->count == b->count;
}

/* Worst difference; huge where one of two is no number. */
static double worst(const double *got, const double *want, int64_t n)
{
    double d = 0;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(want[i]) || !isnan(got[i]))
            d = fmax(d, isfinite(got[i]) && isfinite(want[i]) ? fabs(got[i] - want[i]) : 1e9);
    return d;
}

static double largest(const double *x, int64_t n)
{
    double d = 1e-300;
    for (int64_t i = 0; i < n; i++)
        d = isfinite(x[i]) ? fmax(d, fabs(x[i])) : d;
    return d;
}

static double relative(const double *got, const double *want, int64_t n)
{
    return worst(got, want, n) / largest(want, n);
}

struct ranks_error ranks_compare(const struct ls_prog *p, const struct ranks_outcome *got,
                                 const struct ranks_outcome *want)
{
    struct ranks_error e = {0};
    int64_t at = 0;
    double error[PARTS] = {0}, size[PARTS] = {0};
    int last = ls_graph_mesh(p, LS_AXIS_PIPELINE) - 1, stride = ls_graph_mesh(p, LS_AXIS_TENSOR);
    for (int row = 0; row < p->nparam; row++)
        for (int part = 0; part < PARTS; part++, at += whole_numel(p, row)) {
            int64_t n = whole_numel(p, row);
            const double *whole = want->rank[0].values + at;
            double *held = allocate(n, sizeof *held);
            for (int64_t i = 0; i < n; i++) {
                bool any = isnan(whole[i]);
                for (int r = 0; r < got->n; r++)
                    any |= !isnan(got->rank[r].values[at + i]);
                e.missing += !any;
            }
            for (int r = 0; r < got->n; r++) {
                for (int64_t i = 0; i < n; i++) {
                    double v = got->rank[r].values[at + i];
                    held[i] = isnan(v) ? whole[i] : v;
                }
                error[part] = fmax(error[part], worst(held, whole, n));
            }
            size[part] = fmax(size[part], largest(whole, n));
            free(held);
        }
    for (int part = 0; part < PARTS; part++) /* over all rows: some have no gradient but rounding */
        e.values = fmax(e.values, error[part] / size[part]);
    double sums[3] = {0};
    for (int r = 0; r < got->n; r++) {
        e.loss = fmax(e.loss, relative(got->rank[r].loss, want->rank[0].loss, got->steps));
        e.norm = fmax(e.norm, relative(got->rank[r].norm, want->rank[0].norm, got->steps));
        bool counts = r % stride == 0 && r / stride % (last + 1) == last;
        for (int k = 0; k < 3 && counts; k++)
            sums[k] += got->rank[r].eval[k];
    }
    e.eval = relative(sums, want->rank[0].eval, 3);
    return e;
}
