/* Whole programs on the CPU backend through ls_exec, several steps with evaluations, against the naive
 * executor in double; and twice, bit for bit. Single kernels are tested elsewhere in this folder. */
#include "tests/graph/drive.h"
#include "tests/graph/jobs.h"
#include "tests/graph/programs.h"
#include "tests/tap.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_naive_data data = {.seed = 7, .ignored = 0.15, .micros = 2, .lr = 0.02};
static const struct drive_run run = {.data = &data, .steps = 4, .evaluations = 2};

/* The backend may sum in another order and in float, the float build of the reference sums in double
 * and rounds results once. So the reference's own distance from double is what float storage costs, and
 * a backend may take this many times as much: sums here have up to about 3000 terms (batch norm over
 * 37 * 7 * 6 rows, filters' gradients), and the error of a plain float sum grows like sqrt(3000) = 55
 * roundings. A wrong term would be off by whole per cents, 1e5 roundings. */
#define ROOM 64

struct backend {
    const struct ls_device_api *api;
    struct ls_device *dev;
    int threads;
};

static int64_t pack_size(void *arg, const struct ls_op_desc *op, int operand)
{
    const struct backend *b = arg;
    return b->api->pack_size ? b->api->pack_size(b->dev, op, operand) : 0;
}

/* Largest error of `n` values that stand `stride` apart, in float roundings of the largest value. */
static double roundings(const double *got, const double *want, int64_t n, int stride)
{
    double worst = 0, scale = FLT_MIN;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(got[i * stride] - want[i * stride]);
        worst = error <= worst ? worst : error; /* NaN counts */
        scale = fmax(scale, fabs(want[i * stride]));
    }
    return worst / (scale * FLT_EPSILON / 2);
}

/* How far is `got` from `want`, and how far is the float reference? */
static void check_close(const char *what, const struct ls_prog *p, const struct drive_outcome *got,
                        const struct drive_outcome *f32, const struct drive_outcome *f64)
{
    static const char *const part[] = {"value", "m", "v"};
    int64_t at = 0;
    double worst = 0;
    bool all = true;
    for (int row = 0; row < p->nparam; row++) {
        int64_t n = ls_graph_numel(p, p->param[row].tensor);
        for (int k = 0; k < 3; k++) {
            const double *want = f64->values + at + k;
            double mine = roundings(got->values + at + k, want, n, 3);
            double ideal = fmax(roundings(f32->values + at + k, want, n, 3), 1);
            bool ok = mine <= ROOM * ideal;
            worst = mine / ideal <= worst ? worst : mine / ideal;
            if (!ok)
                tap_note("%s, %s: %.1f roundings, the float reference has %.1f",
                         p->tensor[p->param[row].tensor].name, part[k], mine, ideal);
            all = all && ok;
        }
        at += 3 * n;
    }
    tap_ok(all, "%s: parameters and moments (at most %.1f times the reference's error)", what,
           worst);
    const double *c = got->values + at, *w = f64->values + at, *f = f32->values + at;
    static const enum ls_control rounded[] = {LS_C_LOSS, LS_C_NORM, LS_C_SCALE};
    static const enum ls_control exact[] = {LS_C_STEP,    LS_C_MICRO,  LS_C_MICROS, LS_C_SAMPLE,
                                            LS_C_COUNT,   LS_C_SKIP,   LS_C_SEED,   LS_C_LR,
                                            LS_C_UPDATES, LS_C_SKIPPED};
    for (size_t k = 0; k < sizeof rounded / sizeof *rounded; k++) {
        double mine = roundings(c + rounded[k], w + rounded[k], 1, 1);
        double ideal = fmax(roundings(f + rounded[k], w + rounded[k], 1, 1), 1);
        tap_ok(mine <= ROOM * ideal, "%s: control word %d: %.9g, expected %.9g", what,
               (int)rounded[k], c[rounded[k]], w[rounded[k]]);
    }
    all = true;
    for (size_t k = 0; k < sizeof exact / sizeof *exact; k++)
        all = all && memcmp(c + exact[k], w + exact[k], sizeof *c) == 0;
    tap_ok(all && w[LS_C_UPDATES] >= 1, "%s: counters of the control tensor are exact", what);
    c += LS_CONTROL_WORDS;
    w += LS_CONTROL_WORDS;
    f += LS_CONTROL_WORDS;
    double ideal = fmax(roundings(f, w, 1, 1), 1);
    tap_ok(roundings(c, w, 1, 1) <= ROOM * ideal, "%s: evaluation loss %.9g, expected %.9g", what,
           c[0], w[0]);
    tap_ok(memcmp(c + 1, w + 1, 2 * sizeof *c) == 0, "%s: evaluation counts: %g of %g", what, c[2],
           c[1]);
}

typedef void maker(struct ls_prog *p, int64_t micro_batch);

static void check(struct backend *b, const char *what, maker *make, int64_t micro_batch)
{
    struct ls_error err = {0};
    struct ls_prog plain, p;
    make(&plain, micro_batch); /* the backend's packed form means nothing to the reference */
    make(&p, micro_batch);
    drive_need(ls_graph_compile(&plain, NULL, NULL, "optimize", &err), &err);
    drive_need(ls_graph_compile(&p, pack_size, b, NULL, &err), &err);
    struct drive_outcome f32 = drive_naive(&plain, &run, false, false);
    struct drive_outcome f64 = drive_naive(&plain, &run, true, false);
    struct drive_outcome got = drive_exec(&p, &run, b->api, b->threads, NULL);
    struct drive_outcome again = drive_exec(&p, &run, b->api, b->threads, NULL);
    check_close(what, &p, &got, &f32, &f64);
    tap_ok(drive_same(&got, &again), "%s: two runs give the same bits", what);
    free(f32.values);
    free(f64.values);
    free(got.values);
    free(again.values);
    ls_graph_free(&plain);
    ls_graph_free(&p);
}

static struct program_options options(int64_t micro_batch, enum ls_update_kind update)
{
    /* eps: without it AdamW turns the rounding of a gradient near zero into a whole step */
    struct ls_attr optimizer = {
        .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-2, .decay = 0.1, .max_norm = 0.5};
    if (update == LS_UPDATE_SGD)
        optimizer = (struct ls_attr){.momentum = 0.9, .nesterov = true, .decay = 0.01};
    return (struct program_options){.micro_batch = micro_batch,
                                    .dropout = 0.3,
                                    .update = update,
                                    .bucket_bytes = 2000,
                                    .optimizer = optimizer};
}

static void mlp_adamw(struct ls_prog *p, int64_t micro_batch)
{
    struct program_options o = options(micro_batch, LS_UPDATE_ADAMW);
    program_mlp(p, &o);
}

static void mlp_sgd(struct ls_prog *p, int64_t micro_batch)
{
    struct program_options o = options(micro_batch, LS_UPDATE_SGD);
    program_mlp(p, &o);
}

static void convnet_sgd(struct ls_prog *p, int64_t micro_batch)
{
    struct program_options o = options(micro_batch, LS_UPDATE_SGD);
    program_convnet(p, &o);
}

static void convnet_adamw(struct ls_prog *p, int64_t micro_batch)
{
    struct program_options o = options(micro_batch, LS_UPDATE_ADAMW);
    program_convnet(p, &o);
}

static void from_job(struct ls_prog *p, struct small_job *s, int64_t micro_batch)
{
    struct ls_error err = {0};
    s->job.train.micro_batch = micro_batch;
    s->job.optimizer.eps = 1e-2;
    drive_need(ls_model_build(&s->job, &s->input, p, &err), &err);
}

static void job_mlp(struct ls_prog *p, int64_t micro_batch)
{
    struct small_job s;
    small_mlp(&s);
    from_job(p, &s, micro_batch);
}

static void job_convnet(struct ls_prog *p, int64_t micro_batch)
{
    struct small_job s;
    small_convnet(&s);
    from_job(p, &s, micro_batch);
}

int main(void)
{
    struct backend b = {.threads = 2};
    struct ls_error err = {0};
    const char *dir = getenv("LS_PLUGIN_DIR");
    drive_need(ls_device_load(dir ? dir : "plugins", "cpu", &b.api, &err), &err);
    struct ls_device_config config = {.threads = b.threads, .deterministic = true};
    drive_need(b.api->open(&config, &b.dev, &err), &err);
    tap_note("%s", b.api->describe(b.dev));
    check(&b, "mlp, AdamW, 3 rows", mlp_adamw, 3);
    check(&b, "mlp, SGD, 37 rows", mlp_sgd, 37);
    check(&b, "job mlp, 19 rows", job_mlp, 19);
    check(&b, "convnet, SGD, 3 rows", convnet_sgd, 3);
    check(&b, "convnet, AdamW, 37 rows", convnet_adamw, 37);
    check(&b, "job convnet, 19 rows", job_convnet, 19);
    b.api->close(b.dev);
    return tap_done();
}
