/* Many ranks against one: every setting of the mesh trains the same global program, in double and in
 * float, with each collective at its launch and as late as its wait allows. */
#include "tests/graph/drive.h"
#include "tests/graph/ranks.h"
#include "tests/reference/ref.h"
#include "tests/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

static struct program_options options(void)
{
    return (struct program_options){.micro_batch = 4,
                                    .dropout = 0.2,
                                    .update = LS_UPDATE_ADAMW,
                                    .bucket_bytes = 600,
                                    .optimizer = {.momentum = 0.9,
                                                  .beta1 = 0.9,
                                                  .beta2 = 0.95,
                                                  .eps = 1e-6,
                                                  .decay = 0.1,
                                                  .max_norm = 0.5}};
}

struct setting {
    const char *name;
    program_maker *make;
    int data, pipeline, tensor, zero, micros;
    int skip; /* step + 1 */
    bool tied, sgd;
};

static void compile(struct ls_prog *p, const struct setting *s, bool many, const char *pass)
{
    struct program_options o = options();
    o.update = s->sgd ? LS_UPDATE_SGD : LS_UPDATE_ADAMW;
    o.tied = s->tied;
    if (many) {
        o.zero = s->zero;
        o.mesh[LS_AXIS_DATA] = s->data;
        o.mesh[LS_AXIS_PIPELINE] = s->pipeline;
        o.mesh[LS_AXIS_TENSOR] = s->tensor;
    }
    struct ls_error err = {0};
    s->make(p, &o);
    drive_need(ls_graph_compile(p, NULL, NULL, pass, &err), &err);
}

static void check_setting(const struct setting *s)
{
    struct ls_naive_data data = {.seed = 7, .ignored = 0.15, .micros = s->micros, .lr = 0.02};
    struct ls_prog one, many;
    compile(&one, s, false, NULL);
    compile(&many, s, true, NULL);
    for (int f64 = 1; f64 >= 0; f64--) {
        struct ranks_run run = {.data = &data, .steps = STEPS, .skip = s->skip - 1, .f64 = f64};
        struct ranks_outcome want = ranks_naive(&one, &run), got = ranks_naive(&many, &run);
        run.late = true;
        struct ranks_outcome late = ranks_naive(&many, &run);
        struct ranks_error e = ranks_compare(&many, &got, &want);
        double tolerance = f64 ? 1e-11 : 2e-3;
        bool close = e.values <= tolerance && e.loss <= tolerance && e.norm <= tolerance &&
                     e.eval <= tolerance && e.missing == 0;
        tap_ok(close, "%s, %s: weights and moments %.1e, loss %.1e, norm %.1e, evaluation %.1e",
               s->name, f64 ? "double" : "float", e.values, e.loss, e.norm, e.eval);
        if (e.missing)
            tap_note("%lld elements are on no rank", (long long)e.missing);
        tap_ok(ranks_same(&got, &late), "%s, %s: the same bits with late collectives", s->name,
               f64 ? "double" : "float");
        /* data ranks run different numbers of micro-batches, stages different ops */
        bool alike = s->pipeline <= 1 && (s->tensor <= 1 || s->micros % (s->data + !s->data) == 0);
        bool order = true;
        for (int r = 0; r < got.n; r++)
            order &= got.rank[r].trace == late.rank[r].trace &&
                     (!alike || got.rank[r].trace == got.rank[0].trace);
        tap_ok(order, "%s: one order of collectives on all ranks", s->name);
        bool skipped = got.rank[0].control[LS_C_SKIPPED] == (s->skip > 0);
        tap_ok(skipped, "%s: %g steps skipped", s->name, got.rank[0].control[LS_C_SKIPPED]);
        ranks_free(&want);
        ranks_free(&got);
        ranks_free(&late);
    }
    bool quiet = s->zero > 1 || !ls_graph_micro_meets(&many);
    tap_ok(quiet, "%s: gradients travel once per step", s->name);
    ls_graph_free(&one);
    ls_graph_free(&many);
}

/* ---- the form of programs --------------------------------------------------------------------- */

static int count(const struct ls_prog *p, enum ls_kind kind, unsigned segs)
{
    int n = 0;
    for (int i = 0; i < p->nop; i++)
        n += p->op[i].kind == kind && p->op[i].segs & segs;
    return n;
}

static char *dump(const struct ls_prog *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        abort();
    ls_graph_dump(p, out);
    fclose(out);
    return text;
}

/* A second call of the pass, on any axis, changes nothing. */
static void check_idempotent(const struct setting *s)
{
    struct ls_prog p;
    struct ls_error err = {0};
    compile(&p, s, true, "shard");
    char *before = dump(&p);
    for (enum ls_axis a = 0; a < LS_AXES; a++)
        drive_need(ls_graph_shard(&p, a, &err), &err);
    char *after = dump(&p);
    tap_ok(!strcmp(before, after), "%s: shard is idempotent", s->name);
    free(before);
    free(after);
    ls_graph_free(&p);
}

/* One all-reduce per bucket, in the last micro-batch, overlapped with the backward that is left; one in
 * the update. */
static void check_data_form(void)
{
    struct setting s = {"mlp", program_mlp, .data = 2, .micros = 2};
    struct ls_prog p;
    compile(&p, &s, true, NULL);
    tap_ok(count(&p, LS_K_ALL_REDUCE, LS_SEG_LAST) == p.nbucket && p.nbucket > 2,
           "data: one all-reduce for each of %d buckets", p.nbucket);
    tap_ok(count(&p, LS_K_ALL_REDUCE, LS_SEG_MICRO | LS_SEG_EVAL | LS_SEG_LOAD) == 0,
           "data: none before the last micro-batch, none in evaluations");
    tap_ok(count(&p, LS_K_ALL_REDUCE, LS_SEG_UPDATE) == 1,
           "data: one all-reduce agrees on the step");
    int early = 0, busy = 0, seq = 0, ordered = 1;
    for (int i = 0; i < p.nop; i++) {
        const struct ls_op *op = &p.op[i];
        if (!ls_graph_is_collective(op->kind))
            continue;
        ordered &= op->seq == seq++ && op->wait > i;
        if (op->segs & LS_SEG_UPDATE)
            continue;
        early += p.op[i - 1].kind == LS_K_JOIN;
        for (int j = i + 1; j < op->wait; j++)
            busy += p.op[j].phase == LS_PHASE_BACKWARD && p.op[j].kind == LS_K_MATMUL;
    }
    tap_ok(early == p.nbucket,
           "data: every all-reduce starts right behind its bucket's last gradient");
    tap_ok(busy > 0, "data: %d products run while all-reduces are under way", busy);
    tap_ok(ordered, "collectives are numbered in the order in which they start");
    bool grads = true;
    for (int b = 0; b < p.nbucket; b++)
        grads &= p.tensor[p.bucket[b].acc].comm && p.tensor[p.bucket[b].acc].role == LS_ROLE_GRAD;
    tap_ok(grads && !p.tensor[p.bucket[0].param].comm, "data: accumulators are communicated");
    ls_graph_free(&p);
}

/* ZeRO 1: what is summed is scattered into the accumulator itself, moments are slices, and parameters
 * come together behind their update; averages stay whole. */
static void check_zero_form(void)
{
    struct setting s = {"convnet", program_convnet, .data = 2, .micros = 2, .zero = 1};
    struct ls_prog p;
    compile(&p, &s, true, NULL);
    int sliced = 0, averages = 0, moments = 0, inside = 0;
    for (int b = 0; b < p.nbucket; b++) {
        const struct ls_bucket *x = &p.bucket[b];
        averages += x->rule == LS_RULE_EMA;
        sliced += x->rule != LS_RULE_EMA;
        moments += x->rule != LS_RULE_EMA && ls_graph_numel(&p, x->m) * 2 == x->n &&
                   ls_graph_numel(&p, x->v) * 2 == x->n && ls_graph_numel(&p, x->param) == x->n;
    }
    for (int i = 0; i < p.nop; i++)
        inside += p.op[i].kind == LS_K_REDUCE_SCATTER &&
                  ls_graph_root(&p, p.op[i].in[0]) == ls_graph_root(&p, p.op[i].out[0]);
    tap_ok(sliced > 1 && averages > 0 && moments == sliced, "ZeRO 1: moments are slices");
    tap_ok(count(&p, LS_K_REDUCE_SCATTER, LS_SEG_LAST) == sliced && inside == sliced,
           "ZeRO 1: each of %d gradient buckets is scattered once, in place", sliced);
    tap_ok(count(&p, LS_K_ALL_REDUCE, LS_SEG_LAST) == averages,
           "ZeRO 1: each of %d buckets of averages is summed as a whole", averages);
    tap_ok(count(&p, LS_K_ALL_GATHER, LS_SEG_UPDATE) == sliced &&
               count(&p, LS_K_ALL_GATHER, ~(unsigned)LS_SEG_UPDATE) == 0,
           "ZeRO 1: parameters are gathered behind the update, once");
    tap_ok(count(&p, LS_K_ALL_REDUCE, LS_SEG_UPDATE) == 1,
           "ZeRO 1: one all-reduce agrees on the step");
    ls_graph_free(&p);
}

static void check_mesh_form(void)
{
    struct setting s = {"wide", program_wide, .data = 2, .tensor = 2, .micros = 2};
    struct ls_prog p;
    compile(&p, &s, true, NULL);
    unsigned both = 1u << LS_AXIS_DATA | 1u << LS_AXIS_TENSOR;
    int commit = 0;
    for (int i = 0; i < p.nop; i++)
        commit += p.op[i].kind == LS_K_ALL_REDUCE && p.op[i].segs & LS_SEG_UPDATE &&
                  p.op[i].attr.axes == both;
    tap_ok(commit == 1 && count(&p, LS_K_ALL_REDUCE, LS_SEG_UPDATE) == 1,
           "data x tensor: one all-reduce over both axes agrees on the step");
    /* forward: the block, three statistics; backward: the operands of the head and of the block */
    int n = count(&p, LS_K_ALL_REDUCE, LS_SEG_MICRO);
    tap_ok(n == 6, "tensor: %d all-reduces per micro-batch", n);
    n = count(&p, LS_K_ALL_GATHER, LS_SEG_MICRO) + count(&p, LS_K_REDUCE_SCATTER, LS_SEG_MICRO);
    tap_ok(n == 0, "tensor: %d gathers and scatters", n);
    n = count(&p, LS_K_ALL_REDUCE, LS_SEG_EVAL);
    tap_ok(n == 4, "tensor: evaluation is divided as training is (%d all-reduces)", n);
    ls_graph_free(&p);
}

/* What cannot be is said, not done. */
static void check_errors(void)
{
    struct program_options o = options();
    struct ls_prog p;
    struct ls_error err = {0};
    o.mesh[LS_AXIS_TENSOR] = 3;
    program_wide(&p, &o);
    enum ls_status status = ls_graph_compile(&p, NULL, NULL, NULL, &err);
    tap_ok(status == LS_ERR_INTERNAL && strstr(err.message, "not a multiple of 3"), "%s",
           err.message);
    ls_graph_free(&p);
    o.mesh[LS_AXIS_TENSOR] = 1;
    o.mesh[LS_AXIS_REPLICA] = 2;
    err = (struct ls_error){0};
    program_wide(&p, &o);
    status = ls_graph_compile(&p, NULL, NULL, NULL, &err);
    tap_ok(status == LS_ERR_UNSUPPORTED, "%s", err.message);
    ls_graph_free(&p);
}

/* ---- ls_exec ---------------------------------------------------------------------------------- */

static void check_exec(const struct setting *s, bool pack)
{
    struct ls_naive_data data = {.seed = 7, .ignored = 0.15, .micros = s->micros, .lr = 0.02};
    struct ls_prog p;
    struct ls_error err = {0};
    compile(&p, s, true, "fuse");
    if (pack)
        drive_need(ls_graph_layout(&p, ls_ref_pack_size, NULL, &err), &err);
    drive_need(ls_graph_schedule(&p, &err), &err);
    drive_need(ls_graph_plan(&p, &err), &err);
    struct ranks_run run = {.data = &data, .steps = STEPS, .skip = s->skip - 1};
    struct ranks_outcome want = ranks_naive(&p, &run);
    for (int late = 0; late < 2; late++) {
        run.late = late;
        struct ranks_outcome got = ranks_exec(&p, &run);
        const struct ranks_part *r = &got.rank[0];
        tap_ok(ranks_same(&want, &got), "%s%s: ls_exec gives the bits of the naive executor%s",
               s->name, pack ? ", packed" : "", late ? ", late collectives" : "");
        tap_ok(r->started > 0 && r->progressed > 0 && r->lent > 0,
               "%s: %d collectives, progressed %d times, %d bytes of the communicator", s->name,
               r->started, r->progressed, r->lent);
        ranks_free(&got);
    }
    struct ls_device *dev;
    struct ls_exec *e;
    struct ls_device_config config = {.threads = 1, .deterministic = true};
    drive_need(ls_ref_device()->open(&config, &dev, &err), &err);
    enum ls_status status = ls_exec_open(&p, ls_ref_device(), dev, NULL, &e, &err);
    tap_ok(status == LS_ERR_INTERNAL, "%s: %s", s->name, err.message);
    struct ls_exec_comm nobody = {.arg = NULL}; /* as `lockstep plan` does, to see what it takes */
    err = (struct ls_error){0};
    drive_need(ls_exec_open(&p, ls_ref_device(), dev, &nobody, &e, &err), &err);
    status = ls_exec_run(e, LS_SEG_LAST, &err);
    tap_ok(status == LS_ERR_INTERNAL, "%s: %s", s->name, err.message);
    ls_exec_close(e);
    ls_ref_device()->close(dev);
    ranks_free(&want);
    ls_graph_free(&p);
}

static const struct setting settings[] = {
    {"mlp, data 2", program_mlp, .data = 2, .micros = 4},
    {"mlp, data 3, 8 micro-batches", program_mlp, .data = 3, .micros = 8},
    {"mlp, data 4, SGD", program_mlp, .data = 4, .micros = 8, .sgd = true},
    {"mlp, data 8", program_mlp, .data = 8, .micros = 8},
    {"mlp, data 4, 6 micro-batches", program_mlp, .data = 4, .micros = 6},
    {"mlp, data 4, 3 micro-batches (a rank has none)", program_mlp, .data = 4, .micros = 3},
    {"mlp, data 2, a skipped step", program_mlp, .data = 2, .micros = 4, .skip = 3},
    {"convnet, data 2", program_convnet, .data = 2, .micros = 4, .sgd = true},
    {"convnet, data 4", program_convnet, .data = 4, .micros = 6},
    {"convnet, data 2, ZeRO 1", program_convnet, .data = 2, .micros = 4, .zero = 1},
    {"convnet, data 4, ZeRO 3", program_convnet, .data = 4, .micros = 8, .zero = 3},
    {"mlp, data 3, ZeRO 1", program_mlp, .data = 3, .micros = 6, .zero = 1},
    {"mlp, data 4, ZeRO 1, skip", program_mlp, .data = 4, .micros = 6, .zero = 1, .skip = 3},
    {"mlp, data 3, ZeRO 2", program_mlp, .data = 3, .micros = 8, .zero = 2},
    {"mlp, data 4, ZeRO 2, SGD", program_mlp, .data = 4, .micros = 8, .zero = 2, .sgd = true},
    {"mlp, data 3, ZeRO 3", program_mlp, .data = 3, .micros = 8, .zero = 3, .skip = 3},
    {"mlp, data 4, ZeRO 3", program_mlp, .data = 4, .micros = 8, .zero = 3},
    {"wide, tensor 2", program_wide, .tensor = 2, .micros = 2},
    {"wide, tensor 4", program_wide, .tensor = 4, .micros = 2, .sgd = true},
    {"wide, tensor 2, tied", program_wide, .tensor = 2, .micros = 2, .tied = true},
    {"wide, tensor 4, tied", program_wide, .tensor = 4, .micros = 2, .tied = true},
    {"mlp without pins, tensor 2", program_mlp, .tensor = 2, .micros = 2},
    {"convnet without pins, tensor 2", program_convnet, .tensor = 2, .micros = 2},
    {"wide, data 2 x tensor 2", program_wide, .data = 2, .tensor = 2, .micros = 3},
    {"wide, data 4 x tensor 2, ZeRO 1", program_wide, .data = 4, .tensor = 2, .micros = 4,
     .zero = 1},
    {"wide, data 2 x tensor 4, ZeRO 2", program_wide, .data = 2, .tensor = 4, .micros = 4,
     .zero = 2},
    {"wide, data 2 x tensor 2, ZeRO 3, tied", program_wide, .data = 2, .tensor = 2, .micros = 4,
     .zero = 3, .tied = true},
    {"wide, pipeline 2", program_wide, .pipeline = 2, .micros = 2},
    {"wide, pipeline 3", program_wide, .pipeline = 3, .micros = 2},
    {"wide, pipeline 2, tied", program_wide, .pipeline = 2, .micros = 2, .tied = true},
    {"wide, data 2 x pipeline 2 x tensor 2", program_wide, .data = 2, .pipeline = 2, .tensor = 2,
     .micros = 4},
    {"wide, data 2 x pipeline 2 x tensor 2, ZeRO 3, tied", program_wide, .data = 2, .pipeline = 2,
     .tensor = 2, .micros = 3, .zero = 3, .tied = true},
};

static const struct setting exec_settings[] = {
    {"exec: mlp, data 2", program_mlp, .data = 2, .micros = 3},
    {"exec: convnet, data 3, a skipped step", program_convnet, .data = 3, .micros = 6, .skip = 2},
    {"exec: mlp, data 2, ZeRO 1", program_mlp, .data = 2, .micros = 4, .zero = 1},
    {"exec: wide, data 2 x tensor 2", program_wide, .data = 2, .tensor = 2, .micros = 2},
    {"exec: wide, tensor 2 x pipeline 2, tied", program_wide, .tensor = 2, .pipeline = 2,
     .micros = 2, .tied = true},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* test_shard WORD: the settings whose name has it. test_shard WORD PASS: prints the program. */
static int print_program(const char *word, const char *pass)
{
    for (size_t i = 0; i < COUNT(settings); i++)
        if (strstr(settings[i].name, word)) {
            struct ls_prog p;
            compile(&p, &settings[i], true, pass);
            ls_graph_dump(&p, stdout);
            ls_graph_free(&p);
            return 0;
        }
    return 1;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (argc > 2)
        return print_program(word, argv[2]);
    for (size_t i = 0; i < COUNT(settings); i++)
        if (strstr(settings[i].name, word)) {
            check_setting(&settings[i]);
            check_idempotent(&settings[i]);
        }
    for (size_t i = 0; i < COUNT(exec_settings); i++)
        if (strstr(exec_settings[i].name, word)) {
            check_exec(&exec_settings[i], false);
            check_exec(&exec_settings[i], true);
        }
    if (!*word) {
        check_data_form();
        check_zero_form();
        check_mesh_form();
        check_errors();
    }
    return tap_done();
}
