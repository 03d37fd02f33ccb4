/* Runs a program for a few steps and collects what is left behind. See drive.h. */
#include "tests/graph/drive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t weight_seed = 3;
static const int64_t held_out = 1000; /* where the samples of evaluations begin */

void drive_need(enum ls_status status, const struct ls_error *err)
{
    if (status == LS_OK)
        return;
    printf("Bail out! %s\n", err->message);
    exit(1);
}

static void *allocate(int64_t n, size_t size)
{
    void *mem = calloc((size_t)n + 1, size);
    if (!mem)
        abort();
    return mem;
}

static struct drive_outcome outcome_new(const struct ls_prog *p)
{
    struct drive_outcome o = {.n = LS_CONTROL_WORDS + 3};
    for (int row = 0; row < p->nparam; row++)
        o.n += 3 * ls_graph_numel(p, p->param[row].tensor);
    o.values = allocate(o.n, sizeof *o.values);
    return o;
}

bool drive_same(const struct drive_outcome *a, const struct drive_outcome *b)
{
    if (a->n != b->n)
        return false;
    for (int64_t i = 0; i < a->n; i++)
        if (!isfinite(a->values[i]) || memcmp(&a->values[i], &b->values[i], sizeof *a->values)) {
            printf("# element %lld of %lld: %.17g and %.17g\n", (long long)i, (long long)a->n,
                   a->values[i], b->values[i]);
            return false;
        }
    return true;
}

/* ---- naive ------------------------------------------------------------------------------------ */

static struct drive_outcome naive_outcome(const struct ls_naive *n)
{
    const struct ls_prog *p = ls_naive_prog(n);
    struct drive_outcome o = outcome_new(p);
    double *to = o.values;
    for (int row = 0; row < p->nparam; row++)
        for (int64_t i = 0; i < ls_graph_numel(p, p->param[row].tensor); i++) {
            *to++ = ls_naive_member(n, row, LS_NAIVE_VALUE, i);
            *to++ = ls_naive_member(n, row, LS_NAIVE_M, i);
            *to++ = ls_naive_member(n, row, LS_NAIVE_V, i);
        }
    ls_naive_read(n, p->control, to);
    ls_naive_read(n, p->eval, to + LS_CONTROL_WORDS);
    return o;
}

struct drive_outcome drive_naive(const struct ls_prog *p, const struct drive_run *run, bool f64,
                                 bool planned)
{
    struct ls_naive *n = ls_naive_open(p, f64, planned);
    int64_t rows = p->tensor[p->images].shape[0];
    ls_naive_init(n, weight_seed);
    for (int step = 0; step < run->steps; step++) {
        ls_naive_step(n, run->data, step);
        for (int k = 0; k < 2 && step >= run->steps - run->evaluations; k++) {
            ls_naive_load(n, run->data, step, k, held_out + k * rows, k ? rows - 1 : rows);
            ls_naive_run(n, LS_SEG_EVAL);
        }
    }
    struct drive_outcome o = naive_outcome(n);
    ls_naive_close(n);
    return o;
}

/* ---- ls_exec ---------------------------------------------------------------------------------- */

struct exec {
    struct ls_exec *e;
    const struct ls_prog *p;
    const struct drive_run *run;
    struct ls_error err;
};

static void feed(struct exec *x, int64_t step, int micro, int64_t first, int64_t valid)
{
    const struct ls_prog *p = x->p;
    double control[LS_CONTROL_WORDS];
    float *images = allocate(ls_graph_bytes(p, p->images), 1);
    int32_t *labels = allocate(ls_graph_bytes(p, p->labels), 1);
    ls_naive_sample(p, x->run->data, first, valid, images, labels);
    drive_need(ls_exec_write(x->e, p->images, images, &x->err), &x->err);
    drive_need(ls_exec_write(x->e, p->labels, labels, &x->err), &x->err);
    drive_need(ls_exec_read(x->e, p->control, control, &x->err), &x->err);
    ls_naive_words(x->run->data, step, micro, first, control);
    drive_need(ls_exec_write(x->e, p->control, control, &x->err), &x->err);
    free(images);
    free(labels);
}

static void segment(struct exec *x, enum ls_segment s)
{
    drive_need(ls_exec_run(x->e, s, &x->err), &x->err);
}

static void init(struct exec *x)
{
    const struct ls_prog *p = x->p;
    for (int row = 0; row < p->nparam; row++) {
        int64_t n = ls_graph_numel(p, p->param[row].tensor);
        float *values = allocate(n, sizeof *values);
        for (int64_t i = 0; i < n; i++)
            values[i] = ls_naive_fill(p, row, weight_seed, i);
        drive_need(ls_exec_write(x->e, p->param[row].tensor, values, &x->err), &x->err);
        free(values);
    }
    segment(x, LS_SEG_LOAD);
}

static void train(struct exec *x)
{
    int64_t rows = x->p->tensor[x->p->images].shape[0];
    int micros = x->run->data->micros;
    for (int step = 0; step < x->run->steps; step++) {
        for (int m = 0; m < micros; m++) {
            feed(x, step, m, (step * micros + m) * rows, rows);
            segment(x, m == micros - 1 ? LS_SEG_LAST : LS_SEG_MICRO);
        }
        segment(x, LS_SEG_UPDATE);
        for (int k = 0; k < 2 && step >= x->run->steps - x->run->evaluations; k++) {
            feed(x, step, k, held_out + k * rows, k ? rows - 1 : rows);
            segment(x, LS_SEG_EVAL);
        }
    }
}

/* A float tensor; zeros where there is none. The caller frees. */
static float *fetch(struct exec *x, int t, int64_t n)
{
    float *values = allocate(n, sizeof *values);
    if (t >= 0)
        drive_need(ls_exec_read(x->e, t, values, &x->err), &x->err);
    return values;
}

static struct drive_outcome exec_outcome(struct exec *x)
{
    const struct ls_prog *p = x->p;
    struct drive_outcome o = outcome_new(p);
    double *to = o.values;
    for (int row = 0; row < p->nparam; row++) {
        const struct ls_tensor *t = &p->tensor[p->param[row].tensor];
        const struct ls_bucket *b = p->bucket;
        while (b->param != t->base)
            b++;
        int64_t n = ls_graph_numel(p, p->param[row].tensor);
        float *value = fetch(x, p->param[row].tensor, n), *m = fetch(x, b->m, b->n),
              *v = fetch(x, b->v, b->n);
        for (int64_t i = 0; i < n; i++) {
            *to++ = value[i];
            *to++ = m[t->offset + i];
            *to++ = v[t->offset + i];
        }
        free(value);
        free(m);
        free(v);
    }
    drive_need(ls_exec_read(x->e, p->control, to, &x->err), &x->err);
    float *sums = fetch(x, p->eval, 3);
    for (int i = 0; i < 3; i++)
        to[LS_CONTROL_WORDS + i] = sums[i];
    free(sums);
    return o;
}

struct drive_outcome drive_exec(const struct ls_prog *p, const struct drive_run *run,
                                const struct ls_device_api *api, int threads, int64_t *bytes)
{
    struct exec x = {.p = p, .run = run};
    struct ls_device *dev;
    struct ls_device_config config = {.threads = threads, .deterministic = true};
    drive_need(api->open(&config, &dev, &x.err), &x.err);
    drive_need(ls_exec_open(p, api, dev, NULL, &x.e, &x.err), &x.err);
    if (bytes)
        *bytes = ls_exec_bytes(x.e);
    init(&x);
    train(&x);
    struct drive_outcome o = exec_outcome(&x);
    ls_exec_close(x.e);
    api->close(dev);
    return o;
}
