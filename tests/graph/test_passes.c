/* What passes may not change: fused, packed, scheduled and planned programs give the same bits as the
 * plain one, in float and in double; ls_exec gives the bits of the naive executor. And what the
 * evaluation segment computes, from first principles. */
#include "tests/graph/drive.h"
#include "tests/graph/programs.h"
#include "tests/reference/ref.h"
#include "tests/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_naive_data data = {.seed = 7, .ignored = 0.15, .micros = 3, .lr = 0.05};
static const struct drive_run three = {.data = &data, .steps = 3, .evaluations = 3};
static const struct drive_run quiet_three = {.data = &data, .steps = 3, .evaluations = 1};

static struct program_options options(enum ls_update_kind update)
{
    return (struct program_options){.micro_batch = 3,
                                    .dropout = 0.3,
                                    .update = update,
                                    .bucket_bytes = 600,
                                    .optimizer = {.momentum = 0.9,
                                                  .beta1 = 0.8,
                                                  .beta2 = 0.95,
                                                  .eps = 1e-8,
                                                  .decay = 0.1,
                                                  .max_norm = 1}};
}

static void compile(struct ls_prog *p, const char *pass, bool pack)
{
    struct ls_error err = {0};
    drive_need(ls_graph_compile(p, pack ? ls_ref_pack_size : NULL, NULL, pass, &err), &err);
}

/* ---- passes ----------------------------------------------------------------------------------- */

static const struct variant {
    const char *name, *pass;
    bool pack, planned;
} variants[] = {
    {"fused", "fuse", false, false},         {"packed", "layout", true, false},
    {"scheduled", "schedule", false, false}, {"planned, own memory", "plan", false, false},
    {"planned", "plan", false, true},        {"packed and planned", "plan", true, true},
};

static int count_kind(const struct ls_prog *p, enum ls_kind kind)
{
    int n = 0;
    for (int i = 0; i < p->nop; i++)
        n += p->op[i].kind == kind;
    return n;
}

static void check_passes(const char *what, program_maker *make, enum ls_update_kind update)
{
    struct program_options o = options(update);
    for (int f64 = 0; f64 < 2; f64++) {
        const char *type = f64 ? "double" : "float";
        struct ls_prog plain;
        make(&plain, &o);
        compile(&plain, "optimize", false);
        struct drive_outcome want = drive_naive(&plain, &three, f64, false);
        struct drive_outcome quiet = drive_naive(&plain, &quiet_three, f64, false);
        tap_ok(drive_same(&want, &quiet), "%s, %s: evaluations between steps change nothing", what,
               type);
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            const struct variant *v = &variants[i];
            struct ls_prog p;
            make(&p, &o);
            compile(&p, v->pass, v->pack);
            struct drive_outcome got = drive_naive(&p, &three, f64, v->planned);
            tap_ok(drive_same(&want, &got), "%s, %s: %s gives the same bits", what, type, v->name);
            if (v->pack)
                tap_ok(count_kind(&p, LS_K_PACK) > 1, "%s, %s: weights are packed", what, type);
            free(got.values);
            ls_graph_free(&p);
        }
        free(want.values);
        free(quiet.values);
        ls_graph_free(&plain);
    }
}

/* Fusing leaves no transient gradient, no lone bias behind a product, no lone activation. */
static void check_fused_form(void)
{
    struct program_options o = options(LS_UPDATE_SGD);
    struct ls_prog p;
    program_mlp(&p, &o);
    compile(&p, NULL, false);
    /* low.bias follows an add, and what low.bias_b reads is read elsewhere too: in both segments */
    tap_ok(count_kind(&p, LS_K_BIAS) == 4 && count_kind(&p, LS_K_GELU) == 0,
           "biases and GELUs are epilogues: %d and %d are left", count_kind(&p, LS_K_BIAS),
           count_kind(&p, LS_K_GELU));
    int64_t transient = 0;
    for (int t = 0; t < p.ntensor; t++)
        if (p.tensor[t].at >= 0 && p.tensor[t].role == LS_ROLE_ACT)
            transient += ls_graph_bytes(&p, t);
    tap_ok(p.arena_bytes[LS_ROLE_ACT] < transient / 2,
           "transients share memory: %lld bytes for %lld", (long long)p.arena_bytes[LS_ROLE_ACT],
           (long long)transient);
    int lone = 0;
    for (int i = 0; i < p.nop; i++)
        lone += p.op[i].kind == LS_K_ACCUM && p.op[i].segs & LS_SEG_LAST;
    /* the tied weight, and P of the products, have two contributions; and the loss */
    tap_ok(lone <= 3, "gradients accumulate where they are made: %d accum ops are left", lone);
    for (int b = 0; b < p.nbucket; b++)
        lone += p.bucket[b].grad >= 0;
    tap_ok(lone <= 3, "no bucket keeps a transient gradient");
    ls_graph_free(&p);
}

/* ---- ls_exec ---------------------------------------------------------------------------------- */

static void check_exec(const char *what, program_maker *make, enum ls_update_kind update, bool pack)
{
    struct program_options o = options(update);
    struct ls_prog p;
    make(&p, &o);
    compile(&p, NULL, pack);
    int64_t bytes, arenas = 0;
    for (int r = 0; r < LS_ROLES; r++)
        arenas += p.arena_bytes[r];
    struct drive_outcome got = drive_exec(&p, &three, ls_ref_device(), 1, &bytes);
    struct drive_outcome want = drive_naive(&p, &three, false, true);
    tap_ok(bytes == arenas, "%s: the planned memory is what is used", what);
    tap_ok(drive_same(&want, &got), "%s%s: ls_exec gives the bits of the naive executor", what,
           pack ? ", packed" : "");
    free(got.values);
    free(want.values);
    ls_graph_free(&p);
}

/* ---- evaluation ------------------------------------------------------------------------------- */

static void tiny_plain(struct ls_prog *p, const struct program_options *o)
{
    program_tiny(p, o, true);
}

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

/* Loss, count and hits of the batch that is loaded, in the open: softmax of w x + b, x normalised with
 * the running statistics where there are any. */
static void by_hand(const struct ls_naive *n, bool normed, double sums[3])
{
    const struct ls_prog *p = ls_naive_prog(n);
    enum { inputs = 24, classes = 3 };
    int w = row_of(p, "head.weight"), b = row_of(p, "head.bias");
    for (int64_t r = 0; r < p->tensor[p->images].shape[0]; r++) {
        double z[classes], total = 0;
        int label = (int)ls_naive_get(n, p->labels, r), best = 0;
        for (int c = 0; c < classes; c++) {
            z[c] = ls_naive_member(n, b, LS_NAIVE_VALUE, c);
            for (int k = 0; k < inputs; k++) {
                double x = ls_naive_get(n, p->images, r * inputs + k);
                int ch = k % 4;
                if (normed) {
                    double mean = ls_naive_member(n, row_of(p, "norm.running_mean"), 0, ch);
                    double var = ls_naive_member(n, row_of(p, "norm.running_var"), 0, ch);
                    x = (x - mean) / sqrt(var + 1e-3) *
                            ls_naive_member(n, row_of(p, "norm.gain"), 0, ch) +
                        ls_naive_member(n, row_of(p, "norm.bias"), 0, ch);
                }
                z[c] += x * ls_naive_member(n, w, LS_NAIVE_VALUE, c * inputs + k);
            }
            total += exp(z[c]);
            best = z[c] > z[best] ? c : best;
        }
        if (label < 0)
            continue;
        sums[0] += log(total) - z[label];
        sums[1] += 1;
        sums[2] += best == label;
    }
}

static void check_evaluation(const char *what, bool normed, const char *pass)
{
    struct program_options o = options(LS_UPDATE_SGD);
    struct ls_prog p;
    o.micro_batch = 7;
    (normed ? tiny_normed : tiny_plain)(&p, &o);
    compile(&p, pass, false);
    struct ls_naive *n = ls_naive_open(&p, true, false);
    ls_naive_init(n, 3);
    ls_naive_step(n, &data, 0); /* so that the running statistics are something */
    for (int round = 0; round < 2; round++) {
        double want[3] = {0}, worst = 0;
        for (int k = 0; k < 3; k++) { /* 7 + 7 + 2 samples */
            ls_naive_load(n, &data, 5, k, 500 + 7 * k, k == 2 ? 2 : 7);
            ls_naive_run(n, LS_SEG_EVAL);
            by_hand(n, normed, want);
        }
        for (int k = 0; k < 3; k++)
            worst = fmax(worst, fabs(ls_naive_get(n, p.eval, k) - want[k]));
        tap_ok(worst < 1e-12 && want[1] > 7 && want[1] <= 16,
               "%s after %s: evaluation %d: %.0f labels, %.0f right (%.1e)", what, pass, round + 1,
               want[1], want[2], worst);
    }
    ls_naive_close(n);
    ls_graph_free(&p);
}

/* With dropout in the program, evaluation is the training loss of the program without it. */
static void check_no_dropout(void)
{
    struct program_options o = options(LS_UPDATE_SGD);
    struct ls_prog p, q;
    program_mlp(&p, &o);
    o.dropout = 0;
    program_mlp(&q, &o);
    compile(&p, NULL, false);
    compile(&q, NULL, false);
    struct ls_naive *n = ls_naive_open(&p, true, true), *dry = ls_naive_open(&q, true, true);
    ls_naive_init(n, 3);
    ls_naive_init(dry, 3);
    ls_naive_load(n, &data, 0, 0, 40, 3);
    ls_naive_load(dry, &data, 0, 0, 40, 3);
    ls_naive_run(n, LS_SEG_EVAL);
    ls_naive_run(n, LS_SEG_LAST);
    ls_naive_run(dry, LS_SEG_LAST);
    double a = ls_naive_get(n, p.eval, 0), b = ls_naive_loss(dry, NULL);
    tap_ok(a == b && ls_naive_loss(n, NULL) != b, "no dropout in an evaluation: %.6f and %.6f", a,
           b);
    ls_naive_close(n);
    ls_naive_close(dry);
    ls_graph_free(&p);
    ls_graph_free(&q);
}

int main(void)
{
    check_passes("mlp, AdamW", program_mlp, LS_UPDATE_ADAMW);
    check_passes("convnet, AdamW", program_convnet, LS_UPDATE_ADAMW);
    check_passes("convnet, SGD", program_convnet, LS_UPDATE_SGD);
    check_fused_form();
    check_exec("mlp, SGD", program_mlp, LS_UPDATE_SGD, false);
    check_exec("mlp, SGD", program_mlp, LS_UPDATE_SGD, true);
    check_exec("convnet, AdamW", program_convnet, LS_UPDATE_ADAMW, false);
    check_exec("convnet, AdamW", program_convnet, LS_UPDATE_ADAMW, true);
    check_evaluation("linear", false, "plan");
    check_evaluation("batch norm, linear", true, "optimize");
    check_evaluation("batch norm, linear", true, "plan");
    check_no_dropout();
    return tap_done();
}
