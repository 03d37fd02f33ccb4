/* Good job descriptions: every default, every unit, every spelling that the format allows. */
#include "files.h"

#include <math.h>

#define LAYERS_HEAD "type = \"layers\"; classes = 10; layers = "
#define MLP         "type = \"mlp\"; classes = 10; hidden = [8];"

/* base_text with one part replaced; must be good. */
static struct test_result good(const char *find, const char *with)
{
    char *text = test_replace(base_text, find, with);
    test_write("job.cfg", text);
    struct test_result r = test_read("job.cfg", NULL, 0);
    if (r.status != LS_OK) {
        tap_ok(false, "%s", with);
        tap_note("%s%s", r.problems, r.err.message);
        exit(1);
    }
    free(text);
    return r;
}

static void defaults(void)
{
    struct test_result r = good("hidden = [8];", "");
    const struct ls_job *j = r.job;
    tap_ok(j->format == 1 && !strcmp(j->name, "t") && j->seed == 1, "top level");
    tap_ok(strstr(j->path, "job.cfg") != NULL, "path");
    tap_ok(j->model.type == LS_MODEL_MLP && j->model.classes == 10 && j->model.nhidden == 0 &&
               j->model.activation == LS_ACT_RELU && j->model.dropout == 0 &&
               j->model.init == LS_INIT_HE && j->model.nlayers == 0,
           "model");
    tap_ok(!strcmp(j->data.train_images, "a") && !strcmp(j->data.train_labels, "b") &&
               !j->data.test_images && !j->data.test_labels && j->data.nmean == 1 &&
               j->data.mean[0] == 0 && j->data.nstd == 1 && j->data.std[0] == 1 &&
               j->data.shift == 0 && !j->data.flip,
           "data");
    tap_ok(j->train.steps == 5 && j->train.epochs == LS_JOB_AUTO && j->train.global_batch == 8 &&
               j->train.micro_batch == LS_JOB_AUTO && j->train.eval_every == LS_JOB_AUTO,
           "train");
    tap_ok(j->optimizer.type == LS_OPT_ADAMW && j->optimizer.lr == 0.1 &&
               j->optimizer.weight_decay == 0.01 && j->optimizer.clip == 0 &&
               j->optimizer.beta1 == 0.9 && j->optimizer.beta2 == 0.999 && j->optimizer.eps == 1e-8,
           "adamw");
    tap_ok(j->optimizer.schedule.type == LS_SCHED_CONSTANT && j->optimizer.schedule.warmup == 0,
           "schedule");
    tap_ok(j->parallel.bucket == 25 * 1048576, "parallel");
    tap_ok(!strcmp(j->checkpoint.dir, "t.ckpt") && j->checkpoint.every_steps == 0 &&
               j->checkpoint.every == 0 && j->checkpoint.keep == 3,
           "checkpoint");
    tap_ok(j->recover.hang_kill == 300, "recover");
    tap_ok(j->resources.device == LS_DEVICE_CPU && j->resources.threads == LS_JOB_AUTO,
           "resources");
    test_free(&r);

    r = good("adamw", "sgd");
    tap_ok(r.job->optimizer.type == LS_OPT_SGD && r.job->optimizer.momentum == 0.9 &&
               !r.job->optimizer.nesterov && r.job->optimizer.weight_decay == 0,
           "sgd");
    test_free(&r);
    r = good("lr = 0.1;", "lr = 0.1; schedule: { type = \"step\"; every = 7; };");
    tap_ok(r.job->optimizer.schedule.type == LS_SCHED_STEP &&
               r.job->optimizer.schedule.every == 7 && r.job->optimizer.schedule.gamma == 0.1,
           "step schedule");
    test_free(&r);
    r = good("lr = 0.1;", "lr = 0.1; schedule: { type = \"cosine\"; warmup = 3; };");
    tap_ok(r.job->optimizer.schedule.type == LS_SCHED_COSINE &&
               r.job->optimizer.schedule.warmup == 3 && r.job->optimizer.schedule.final == 0,
           "cosine schedule");
    test_free(&r);
}

static void everything(void)
{
    test_write(
        "job.cfg",
        "format = 1; name = \"full\"; seed = 9007199254740991;\n"
        "model: { type = \"mlp\"; classes = 3; hidden = [5, 6, 7]; activation = \"gelu\";\n"
        "  dropout = 0.25; init = \"normal\"; init_std = 0.02; };\n"
        "data: { format = \"idx\"; train: { images = \"ti\"; labels = \"tl\"; };\n"
        "  test: { images = \"ei\"; labels = \"el\"; }; mean = [0, 0.5, 1]; std = [1, 2, 3.5];\n"
        "  augment: { shift = 2; flip = true; }; };\n"
        "train: { epochs = 4; global_batch = 12; micro_batch = 4; eval_every = 0; };\n"
        "optimizer: { type = \"sgd\"; lr = 1; weight_decay = 1e-4; clip = 2; momentum = 0.5;\n"
        "  nesterov = true; schedule: { type = \"linear\"; warmup = 5; final = 0.5; }; };\n"
        "parallel: { bucket = 4096; };\n"
        "checkpoint: { dir = \"d/e\"; every_steps = 8; every = 90; keep = 1; };\n"
        "recover: { hang_kill = \"7s\"; };\n"
        "resources: { device = \"cpu\"; threads = 2; };\n");
    struct test_result r = test_read("job.cfg", NULL, 0);
    if (!tap_ok(r.status == LS_OK, "every key at once")) {
        tap_note("%s", r.problems);
        return;
    }
    const struct ls_job *j = r.job;
    tap_ok(j->seed == 9007199254740991 && j->model.nhidden == 3 && j->model.hidden[0] == 5 &&
               j->model.hidden[2] == 7 && j->model.activation == LS_ACT_GELU &&
               j->model.dropout == 0.25 && j->model.init == LS_INIT_NORMAL &&
               j->model.init_std == 0.02,
           "model");
    tap_ok(!strcmp(j->data.test_images, "ei") && !strcmp(j->data.test_labels, "el") &&
               j->data.nmean == 3 && j->data.mean[1] == 0.5 && j->data.mean[2] == 1 &&
               j->data.nstd == 3 && j->data.std[0] == 1 && j->data.std[2] == 3.5 &&
               j->data.shift == 2 && j->data.flip,
           "data: a list may mix 1 and 0.5");
    tap_ok(j->train.steps == LS_JOB_AUTO && j->train.epochs == 4 && j->train.micro_batch == 4 &&
               j->train.eval_every == 0,
           "train");
    tap_ok(j->optimizer.lr == 1 && j->optimizer.weight_decay == 1e-4 && j->optimizer.clip == 2 &&
               j->optimizer.momentum == 0.5 && j->optimizer.nesterov &&
               j->optimizer.schedule.type == LS_SCHED_LINEAR && j->optimizer.schedule.final == 0.5,
           "optimizer: 1 and 2 are taken where a number is wanted");
    tap_ok(j->parallel.bucket == 4096 && !strcmp(j->checkpoint.dir, "d/e") &&
               j->checkpoint.every_steps == 8 && j->checkpoint.every == 90 &&
               j->checkpoint.keep == 1 && j->recover.hang_kill == 7 && j->resources.threads == 2,
           "the rest");
    test_free(&r);
}

static void units(void)
{
    static const struct {
        const char *text;
        double value;
    } times[] = {{"90", 90},          {"0.5", 0.5},     {"\"0\"", 0},        {"\"90s\"", 90},
                 {"\"30min\"", 1800}, {"\"2h\"", 7200}, {"\"1.5 h\"", 5400}, {"\"7d\"", 604800},
                 {"0x10", 16},        {"\"12\"", 12}},
      sizes[] = {{"2048", 2048},          {"2048L", 2048},
                 {"\"2048\"", 2048},      {"\"2048B\"", 2048},
                 {"\"64KiB\"", 65536},    {"\"25 MiB\"", 26214400},
                 {"\"1.5MiB\"", 1572864}, {"\"16GiB\"", 17179869184.0}};
    char text[128];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        snprintf(text, sizeof text, "name = \"t\"; checkpoint: { every = %s; };", times[i].text);
        struct test_result r = good("name = \"t\";", text);
        tap_ok(r.job->checkpoint.every == times[i].value, "time %s", times[i].text);
        test_free(&r);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(text, sizeof text, "name = \"t\"; parallel: { bucket = %s; };", sizes[i].text);
        struct test_result r = good("name = \"t\";", text);
        tap_ok((double)r.job->parallel.bucket == sizes[i].value, "size %s", sizes[i].text);
        test_free(&r);
    }
}

static void words(void)
{
    struct test_result r = good("steps = 5;", "steps = 5; micro_batch = \"auto\"; eval_every = "
                                              "\"epoch\";");
    tap_ok(r.job->train.micro_batch == LS_JOB_AUTO && r.job->train.eval_every == LS_JOB_AUTO,
           "auto and epoch");
    test_free(&r);
    r = good("steps = 5;", "steps = 5; eval_every = \"auto\";");
    tap_ok(r.job->train.eval_every == LS_JOB_AUTO, "auto for epoch");
    test_free(&r);
    r = good("format = \"idx\";", "format = \"idx\"; mean = 0.5; std = [2];");
    tap_ok(r.job->data.nmean == 1 && r.job->data.mean[0] == 0.5 && r.job->data.nstd == 1 &&
               r.job->data.std[0] == 2,
           "a number or a list of one");
    test_free(&r);
    r = good("format = \"idx\";", "format = \"idx\"; mean = [0.1, 0.2, 0.3];");
    tap_ok(r.job->data.nstd == 3 && r.job->data.std[2] == 1, "std follows the channels of mean");
    test_free(&r);
    r = good("format = \"idx\";", "format = \"idx\"; std = [0.1, 0.2];");
    tap_ok(r.job->data.nmean == 2 && r.job->data.mean[1] == 0, "mean follows the channels of std");
    test_free(&r);
    r = good("hidden = [8];", "hidden = ( 8, 9 );");
    tap_ok(r.job->model.nhidden == 2 && r.job->model.hidden[1] == 9, "round brackets for numbers");
    test_free(&r);
    r = good("lr = 0.1", "lr = +1.e-2");
    tap_ok(r.job->optimizer.lr == 0.01, "+1.e-2");
    test_free(&r);
    r = good("lr = 0.1", "lr = .5");
    tap_ok(r.job->optimizer.lr == 0.5, ".5");
    test_free(&r);
    r = good("lr = 0.1;", "lr = 0.1; clip = -0.0;");
    tap_ok(r.job->optimizer.clip == 0 && !signbit(r.job->optimizer.clip), "no -0");
    test_free(&r);
}

static void syntax(void)
{
    static const struct {
        const char *title, *text;
    } same[] = {
        {"without semicolons",
         "name = \"t\"\nmodel = { type = \"mlp\" classes = 10 hidden = [8] }\ndata = { format = "
         "\"idx\" train = { images = \"a\" labels = \"b\" } }\ntrain = { steps = 5 global_batch = "
         "8 "
         "}\noptimizer = { type = \"adamw\" lr = 0.1 }"},
        {"commas, colons and = change nothing",
         "name : \"t\", model = { type : \"mlp\", classes : 10, hidden = [8,], }, data: { format = "
         "\"idx\", train: { images = \"a\", labels = \"b\", }, }, train: { steps = 5, global_batch "
         "= 8, }, optimizer: { type = \"adamw\", lr = 0.1 },"},
        {"comments, hexadecimal, 64-bit marks, joined strings",
         "# one\n// two\n/* three\n * four **/ name = \"t\" /**/ \"\"; model: { type = \"m\"\n"
         "\"lp\"; classes = 0xA; hidden = [0x8]; } // end\ndata: { format = \"idx\"; train: { "
         "images = \"\\x61\"; labels = \"b\" # c\n; }; };\ntrain: { steps = 5L; global_batch = "
         "8LL/**/; };\noptimizer: { type = \"adamw\"; lr = 1e-1/* */; };"},
    };
    struct test_result r = good(MLP, MLP);
    uint64_t hash = ls_job_hash(r.job);
    test_free(&r);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        test_write("job.cfg", same[i].text);
        r = test_read("job.cfg", NULL, 0);
        bool is = r.status == LS_OK && ls_job_hash(r.job) == hash && !strcmp(r.job->name, "t") &&
                  !strcmp(r.job->data.train_images, "a");
        if (!tap_ok(is, "%s", same[i].title))
            tap_note("%s", r.problems);
        test_free(&r);
    }
    char text[1024] = "\xEF\xBB\xBF", *at = text + 3;
    for (const char *p = base_text; *p; p++) {
        if (*p == '\n')
            *at++ = '\r';
        *at++ = *p;
    }
    *at = '\0';
    test_write("job.cfg", text);
    r = test_read("job.cfg", NULL, 0);
    tap_ok(r.status == LS_OK && ls_job_hash(r.job) == hash, "a byte order mark and CRLF");
    test_free(&r);
    r = good("\"a\"", "\"/d\xC3\xA4ta/\\\"q\\\"\\\\x\"");
    tap_ok(!strcmp(r.job->data.train_images, "/d\xC3\xA4ta/\"q\"\\x"), "UTF-8 and escapes");
    test_free(&r);
}

static void layers(void)
{
    struct test_result r =
        good(MLP, LAYERS_HEAD
             "(\n"
             "{ type = \"conv\"; filters = 3; kernel = 5; },\n"
             "{ type = \"conv\"; filters = 4; kernel = 3; stride = 2; pad = 1;\n"
             "  bias = false; init = \"normal\"; init_std = 0.5; },\n"
             "{ type = \"batch_norm\"; }, { type = \"batch_norm\"; momentum = 0.5; eps = "
             "1e-3; },\n"
             "{ type = \"max_pool\"; kernel = 3; }, { type = \"avg_pool\"; kernel = 2;\n"
             "  stride = 1; pad = 1; },\n"
             "{ type = \"residual\"; repeat = 3; layers = ( { type = \"relu\"; }, { type "
             "= \"gelu\"; } );\n"
             "  shortcut = ( { type = \"conv\"; filters = 1; kernel = 1; } ); },\n"
             "{ type = \"residual\"; layers = (\n"
             "  { type = \"residual\"; layers = ( { type = \"relu\"; } ); } ); },\n"
             "{ type = \"global_pool\"; }, { type = \"flatten\"; },\n"
             "{ type = \"dropout\"; rate = 0.5; },\n"
             "{ type = \"linear\"; units = 10; init = \"zeros\"; } );");
    const struct ls_layer *l = r.job->model.layers;
    tap_ok(r.job->model.type == LS_MODEL_LAYERS && r.job->model.nlayers == 12, "12 layers");
    tap_ok(l[0].type == LS_LAYER_CONV && l[0].filters == 3 && l[0].kernel == 5 &&
               l[0].stride == 1 && l[0].pad == 0 && l[0].bias && l[0].init == LS_INIT_HE,
           "conv, defaults");
    tap_ok(l[1].stride == 2 && l[1].pad == 1 && !l[1].bias && l[1].init == LS_INIT_NORMAL &&
               l[1].init_std == 0.5,
           "conv, all keys");
    tap_ok(l[2].type == LS_LAYER_BATCH_NORM && l[2].momentum == 0.9 && l[2].eps == 1e-5 &&
               l[3].momentum == 0.5 && l[3].eps == 1e-3,
           "batch_norm");
    tap_ok(l[4].type == LS_LAYER_MAX_POOL && l[4].kernel == 3 && l[4].stride == 3 && l[4].pad == 0,
           "max_pool: the stride is the kernel");
    tap_ok(l[5].type == LS_LAYER_AVG_POOL && l[5].stride == 1 && l[5].pad == 1, "avg_pool");
    tap_ok(l[6].type == LS_LAYER_RESIDUAL && l[6].repeat == 3 && l[6].nlayers == 2 &&
               l[6].layers[1].type == LS_LAYER_GELU && l[6].nshortcut == 1 &&
               l[6].shortcut[0].type == LS_LAYER_CONV,
           "residual");
    tap_ok(l[7].repeat == 1 && l[7].nshortcut == 0 && !l[7].shortcut &&
               l[7].layers[0].layers[0].type == LS_LAYER_RELU,
           "residual in a residual");
    tap_ok(l[8].type == LS_LAYER_GLOBAL_POOL && l[9].type == LS_LAYER_FLATTEN &&
               l[10].type == LS_LAYER_DROPOUT && l[10].rate == 0.5 &&
               l[11].type == LS_LAYER_LINEAR && l[11].units == 10 && l[11].bias &&
               l[11].init == LS_INIT_ZEROS,
           "the rest");
    tap_ok(strstr(l[0].file, "job.cfg") && l[0].line == 3 && l[6].line == 9 &&
               l[6].shortcut[0].line == 10,
           "each layer knows its line");
    test_free(&r);
}

int main(void)
{
    test_dir_make();
    defaults();
    everything();
    units();
    words();
    syntax();
    layers();
    test_dir_remove();
    return tap_done();
}
