/* Gradients against finite differences of the loss, and the update against the textbook, in double.
 * This is what judges the reference kernels, the derivatives and the optimize pass at once. */
#include "tests/graph/programs.h"
#include "tests/reference/naive.h"
#include "tests/tap.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_naive_data data = {.seed = 7, .ignored = 0.15, .micros = 2, .lr = 0.05};

static const struct program_options sgd = {
    .micro_batch = 3, .dropout = 0.3, .update = LS_UPDATE_SGD, .bucket_bytes = 600};

static void compile(struct ls_prog *p, const char *pass)
{
    struct ls_error err = {0};
    if (ls_graph_compile(p, NULL, NULL, pass, &err) != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(1);
    }
}

static struct ls_naive *start(struct ls_prog *p, uint64_t seed)
{
    struct ls_naive *n = ls_naive_open(p, true, false);
    ls_naive_init(n, seed);
    return n;
}

static double loss_at(struct ls_naive *n, int row, int64_t i, double value)
{
    ls_naive_set(n, ls_naive_prog(n)->param[row].tensor, i, value);
    ls_naive_micros(n, &data, 0);
    return ls_naive_loss(n, NULL);
}

/* Central differences of fourth order: error h^4 |f'''''| / 30 plus rounding of about eps |f| / h. */
static double slope(struct ls_naive *n, int row, int64_t i, double h)
{
    double x = ls_naive_member(n, row, LS_NAIVE_VALUE, i);
    double near = loss_at(n, row, i, x + h) - loss_at(n, row, i, x - h);
    double far = loss_at(n, row, i, x + 2 * h) - loss_at(n, row, i, x - 2 * h);
    ls_naive_set(n, ls_naive_prog(n)->param[row].tensor, i, x);
    return (8 * near - far) / (12 * h);
}

static void check_slopes(const char *what, program_maker *make, const char *pass)
{
    struct ls_prog p;
    make(&p, &sgd);
    compile(&p, pass);
    struct ls_naive *n = start(&p, 11);
    for (int row = 0; row < p.nparam; row++) {
        int64_t size = ls_graph_numel(&p, p.param[row].tensor), tried = 0;
        double worst = 0, largest = 0;
        if (p.param[row].rule == LS_RULE_EMA)
            continue;
        double *gradient = calloc((size_t)size, sizeof *gradient);
        if (!gradient)
            abort();
        ls_naive_micros(n, &data, 0);
        for (int64_t i = 0; i < size; i++)
            gradient[i] = ls_naive_member(n, row, LS_NAIVE_GRADIENT, i);
        for (int64_t i = 0; i<size; i += size> 24 ? 5 : 1, tried++) {
            double error =
                INFINITY; /* a kink of ReLU or a maximum inside the step: a smaller one */
            for (double h = 2e-4; !(error < 1e-9) && h > 1e-6; h /= 10)
                error = fmin(error, fabs(slope(n, row, i, h) - gradient[i]));
            worst = fmax(worst, error);
            largest = fmax(largest, fabs(gradient[i]));
        }
        free(gradient);
        /* Losses are of the order of 10: rounding gives 10 * 2^-53 / 2e-4 = 6e-12, or 6e-10 with the
         * smallest step; a decade of room. A gradient that is wrong is wrong in its first digits. */
        tap_ok(worst < 1e-8, "%s after %s: gradient of %s, %d of %d elements", what, pass,
               p.tensor[p.param[row].tensor].name, (int)tried, (int)size);
        tap_note("worst error %.1e, largest gradient %.1e", worst, largest);
    }
    ls_naive_close(n);
    ls_graph_free(&p);
}

/* ---- the update ------------------------------------------------------------------------------- */

/* One scalar of the textbook: what the state of an element should be. */
struct element {
    double value, m, v;
};

static void textbook_sgd(struct element *e, const struct ls_attr *a, double g, double decay)
{
    double d = g + decay * e->value;
    e->v = a->momentum * e->v + d;
    e->value -= data.lr * (a->nesterov ? d + a->momentum * e->v : e->v);
}

static void textbook_adamw(struct element *e, const struct ls_attr *a, double g, double decay,
                           int t)
{
    e->m = a->beta1 * e->m + (1 - a->beta1) * g;
    e->v = a->beta2 * e->v + (1 - a->beta2) * g * g;
    double m = e->m / (1 - pow(a->beta1, t)), v = e->v / (1 - pow(a->beta2, t));
    e->value -= data.lr * (m / (sqrt(v) + a->eps) + decay * e->value);
}

static double grad_norm(const struct ls_naive *n)
{
    const struct ls_prog *p = ls_naive_prog(n);
    double sum = 0;
    for (int row = 0; row < p->nparam; row++)
        for (int64_t i = 0;
             p->param[row].rule != LS_RULE_EMA && i < ls_graph_numel(p, p->param[row].tensor); i++)
            sum += pow(ls_naive_member(n, row, LS_NAIVE_GRADIENT, i), 2);
    return sqrt(sum);
}

static int64_t elements(const struct ls_prog *p)
{
    int64_t n = 0;
    for (int row = 0; row < p->nparam; row++)
        n += ls_graph_numel(p, p->param[row].tensor);
    return n;
}

static double off(double got, double want)
{
    double error = fabs(got - want) / (1 + fabs(want));
    return error >= 0 ? error : INFINITY;
}

static void check_update(const char *what, program_maker *make, struct program_options o)
{
    struct ls_prog p;
    make(&p, &o);
    compile(&p, NULL);
    struct ls_naive *n = start(&p, 3);
    struct element *all = calloc((size_t)elements(&p), sizeof *all);
    double worst = 0, worst_control = 0;
    bool clipped = true;
    for (int step = 0; step < 3; step++) {
        int64_t count, at = 0;
        ls_naive_micros(n, &data, step);
        double loss = ls_naive_loss(n, &count), norm = grad_norm(n) / (double)count;
        double max = o.optimizer.max_norm, scale = max > 0 && norm > max ? max / norm : 1;
        clipped = clipped && scale < 1;
        for (int row = 0; row < p.nparam; row++)
            for (int64_t i = 0; i < ls_graph_numel(&p, p.param[row].tensor); i++, at++) {
                double g = ls_naive_member(n, row, LS_NAIVE_GRADIENT, i);
                double decay = p.param[row].rule == LS_RULE_DECAY ? o.optimizer.decay : 0;
                if (step == 0)
                    all[at].value = ls_naive_member(n, row, LS_NAIVE_VALUE, i);
                if (p.param[row].rule == LS_RULE_EMA)
                    all[at].value +=
                        (1 - p.param[row].momentum) * (g / data.micros - all[at].value);
                else if (o.update == LS_UPDATE_SGD)
                    textbook_sgd(&all[at], &o.optimizer, g / (double)count * scale, decay);
                else
                    textbook_adamw(&all[at], &o.optimizer, g / (double)count * scale, decay,
                                   step + 1);
            }
        ls_naive_run(n, LS_SEG_UPDATE);
        const double want[][2] = {{LS_C_LOSS, loss}, {LS_C_COUNT, (double)count},
                                  {LS_C_NORM, norm}, {LS_C_SCALE, scale / (double)count},
                                  {LS_C_SKIP, 0},    {LS_C_UPDATES, step + 1},
                                  {LS_C_SKIPPED, 0}};
        for (size_t k = 0; k < sizeof want / sizeof *want; k++)
            worst_control = fmax(worst_control,
                                 off(ls_naive_get(n, p.control, (int64_t)want[k][0]), want[k][1]));
        at = 0;
        for (int row = 0; row < p.nparam; row++)
            for (int64_t i = 0; i < ls_graph_numel(&p, p.param[row].tensor); i++, at++) {
                worst = fmax(worst, off(ls_naive_member(n, row, LS_NAIVE_VALUE, i), all[at].value));
                worst = fmax(worst, off(ls_naive_member(n, row, LS_NAIVE_M, i), all[at].m));
                worst = fmax(worst, off(ls_naive_member(n, row, LS_NAIVE_V, i), all[at].v));
            }
    }
    /* The same formulas in the same precision: only the order of a few operations differs. */
    tap_ok(worst < 1e-13, "%s: three updates as in the textbook (worst %.1e)", what, worst);
    tap_ok(worst_control < 1e-13, "%s: words of the commit (worst %.1e)", what, worst_control);
    if (o.optimizer.max_norm > 0)
        tap_ok(clipped, "%s: the case does clip", what);
    free(all);
    ls_naive_close(n);
    ls_graph_free(&p);
}

static void check_updates(void)
{
    struct program_options o = sgd;
    check_update("plain SGD", program_mlp, o);
    o.optimizer = (struct ls_attr){.momentum = 0.9, .decay = 0.02};
    check_update("SGD, momentum, decay", program_mlp, o);
    o.optimizer.nesterov = true;
    o.optimizer.max_norm = 0.1;
    check_update("SGD, Nesterov, clipping", program_convnet, o);
    o.update = LS_UPDATE_ADAMW;
    o.optimizer = (struct ls_attr){.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    check_update("AdamW", program_mlp, o);
    o.optimizer.max_norm = 0.1;
    check_update("AdamW, clipping", program_convnet, o);
}

/* The running statistics of a batch norm right on the images, from the images themselves. */
static void tiny_normed(struct ls_prog *p, const struct program_options *o)
{
    program_tiny(p, o, false);
}

static int row_of(const struct ls_prog *p, const char *name)
{
    for (int row = 0; row < p->nparam; row++)
        if (!strcmp(p->tensor[p->param[row].tensor].name, name))
            return row;
    printf("Bail out! no parameter %s\n", name);
    exit(1);
}

static void check_running(void)
{
    struct ls_prog p;
    tiny_normed(&p, &sgd);
    compile(&p, NULL);
    struct ls_naive *n = start(&p, 3);
    enum { channels = 4 };
    double mean[channels] = {0}, var[channels] = {0}, worst = 0;
    int64_t size = ls_graph_numel(&p, p.images);
    for (int m = 0; m < data.micros; m++) {
        ls_naive_load(n, &data, 0, m, m * sgd.micro_batch, sgd.micro_batch);
        for (int k = 0; k < channels; k++) {
            double sum = 0, square = 0, rows = (double)(size / channels);
            for (int64_t i = k; i < size; i += channels)
                sum += ls_naive_get(n, p.images, i);
            for (int64_t i = k; i < size; i += channels)
                square += pow(ls_naive_get(n, p.images, i) - sum / rows, 2);
            mean[k] += sum / rows / data.micros;
            var[k] += square / (rows - 1) / data.micros;
        }
    }
    ls_naive_step(n, &data, 0);
    for (int k = 0; k < channels; k++) { /* momentum 0.75, from 0 and 1 */
        double got = ls_naive_member(n, row_of(&p, "norm.running_mean"), LS_NAIVE_VALUE, k);
        worst = fmax(worst, off(got, 0.25 * mean[k]));
        got = ls_naive_member(n, row_of(&p, "norm.running_var"), LS_NAIVE_VALUE, k);
        worst = fmax(worst, off(got, 0.75 + 0.25 * var[k]));
    }
    tap_ok(worst < 1e-13, "running statistics are averages of the micro-batches' (%.1e)", worst);
    ls_naive_close(n);
    ls_graph_free(&p);
}

/* ---- steps that are special ------------------------------------------------------------------- */

/* Every value, moment and statistic of all parameters, one behind the other; the caller frees. */
static double *snapshot(const struct ls_naive *n)
{
    const struct ls_prog *p = ls_naive_prog(n);
    double *all = calloc((size_t)(3 * elements(p)), sizeof *all), *to = all;
    if (!all)
        abort();
    for (int row = 0; row < p->nparam; row++)
        for (int64_t i = 0; i < ls_graph_numel(p, p->param[row].tensor); i++) {
            *to++ = ls_naive_member(n, row, LS_NAIVE_VALUE, i);
            *to++ = ls_naive_member(n, row, LS_NAIVE_M, i);
            *to++ = ls_naive_member(n, row, LS_NAIVE_V, i);
        }
    return all;
}

static bool same_bits(const double *a, const double *b, const struct ls_prog *p)
{
    return memcmp(a, b, (size_t)(3 * elements(p)) * sizeof *a) == 0;
}

static void check_skip(enum ls_update_kind update)
{
    const char *name = update == LS_UPDATE_SGD ? "SGD" : "AdamW";
    struct program_options o = sgd;
    struct ls_prog p;
    o.update = update;
    o.optimizer = (struct ls_attr){
        .momentum = 0.9, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .max_norm = 1};
    program_convnet(&p, &o);
    compile(&p, NULL);
    struct ls_naive *n = start(&p, 3), *other = start(&p, 3);
    ls_naive_step(n, &data, 0);
    ls_naive_step(other, &data, 0);
    double *before = snapshot(n);
    /* one infinite pixel in the first of two micro-batches */
    ls_naive_load(n, &data, 1, 0, 6, 3);
    ls_naive_set(n, p.images, 5, INFINITY);
    ls_naive_run(n, LS_SEG_MICRO);
    ls_naive_load(n, &data, 1, 1, 9, 3);
    ls_naive_run(n, LS_SEG_LAST);
    ls_naive_run(n, LS_SEG_UPDATE);
    double *after = snapshot(n);
    tap_ok(ls_naive_control(n, LS_C_SKIP) > 0 && ls_naive_control(n, LS_C_SKIPPED) == 1 &&
               ls_naive_control(n, LS_C_UPDATES) == 1,
           "%s: a step that is not finite is counted as skipped", name);
    tap_ok(same_bits(before, after, &p), "%s: it changes no value, moment or statistic", name);
    ls_naive_step(n, &data, 2);
    ls_naive_step(other, &data, 2);
    double *a = snapshot(n), *b = snapshot(other);
    tap_ok(same_bits(a, b, &p) && ls_naive_control(n, LS_C_SKIP) <= 0 &&
               ls_naive_control(n, LS_C_UPDATES) == 2,
           "%s: the next step goes on as if it had not been", name);
    free(before);
    free(after);
    free(a);
    free(b);
    ls_naive_close(n);
    ls_naive_close(other);
    ls_graph_free(&p);
}

static void check_ignored(void)
{
    struct ls_prog p;
    program_mlp(&p, &sgd); /* no batch norm: rows are independent */
    compile(&p, NULL);
    struct ls_naive *n = start(&p, 3), *other = start(&p, 3);
    struct ls_naive_data one = data;
    one.micros = 1;
    one.ignored = 0;
    int64_t count, size = ls_graph_numel(&p, p.images) / sgd.micro_batch;
    for (int k = 0; k < 2; k++) {
        struct ls_naive *e = k ? other : n;
        ls_naive_load(e, &one, 0, 0, 0, sgd.micro_batch);
        ls_naive_set(e, p.labels, 1, -1);
        for (int64_t i = size; k && i < 2 * size; i++) /* what an ignored row shows is no matter */
            ls_naive_set(e, p.images, i, 3 + (double)i);
        ls_naive_run(e, LS_SEG_LAST);
    }
    double a = ls_naive_loss(n, &count), b = ls_naive_loss(other, NULL);
    tap_ok(count == sgd.micro_batch - 1 && a == b, "an ignored row is not counted: %d labels",
           (int)count);
    ls_naive_run(n, LS_SEG_UPDATE);
    ls_naive_run(other, LS_SEG_UPDATE);
    double *x = snapshot(n), *y = snapshot(other);
    tap_ok(same_bits(x, y, &p), "and does not move the weights");
    free(x);
    x = snapshot(n);
    one.ignored = 1.1;
    ls_naive_step(n, &one, 1);
    free(y);
    y = snapshot(n);
    tap_ok(ls_naive_control(n, LS_C_SKIP) > 0 && same_bits(x, y, &p),
           "a step without any label is skipped");
    free(x);
    free(y);
    ls_naive_close(n);
    ls_naive_close(other);
    ls_graph_free(&p);
}

/* V micro-batches of B are one of V * B, dropout included: its numbers belong to samples. */
static void check_accumulation(void)
{
    struct ls_prog p, q;
    struct program_options o = sgd;
    o.optimizer = (struct ls_attr){.momentum = 0.9, .decay = 0.01, .max_norm = 0.5};
    program_mlp(&p, &o);
    o.micro_batch *= 4;
    program_mlp(&q, &o);
    compile(&p, NULL);
    compile(&q, NULL);
    struct ls_naive *n = start(&p, 3), *whole = start(&q, 3);
    struct ls_naive_data many = data, one = data;
    many.micros = 4;
    one.micros = 1;
    double worst = 0;
    for (int step = 0; step < 3; step++) {
        ls_naive_step(n, &many, step);
        ls_naive_step(whole, &one, step);
    }
    double *a = snapshot(n), *b = snapshot(whole);
    for (int64_t i = 0; i < 3 * elements(&p); i++)
        worst = fmax(worst, off(a[i], b[i]));
    tap_ok(worst < 1e-12, "4 micro-batches of 3 are one of 12 after three steps (%.1e)", worst);
    free(a);
    free(b);
    ls_naive_close(n);
    ls_naive_close(whole);
    ls_graph_free(&p);
    ls_graph_free(&q);
}

int main(void)
{
    check_slopes("mlp", program_mlp, "optimize");
    check_slopes("convnet", program_convnet, "optimize");
    check_slopes("tiny", tiny_normed, "fuse");
    check_updates();
    check_running();
    check_skip(LS_UPDATE_SGD);
    check_skip(LS_UPDATE_ADAMW);
    check_ignored();
    check_accumulation();
    return tap_done();
}
