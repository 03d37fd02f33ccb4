/* What a job prints as: a job file that reads back to the same job, JSON, and the hash. */
#include "files.h"

#include <jansson.h>

#define MLP "type = \"mlp\"; classes = 10; hidden = [8];"
#define LAYERS                                                                                  \
    "type = \"layers\"; classes = 10; layers = (\n"                                             \
    "{ type = \"conv\"; filters = 4; kernel = 3; init = \"normal\"; init_std = 0.1; },\n"       \
    "{ type = \"batch_norm\"; }, { type = \"relu\"; }, { type = \"max_pool\"; kernel = 2; },\n" \
    "{ type = \"residual\"; repeat = 2; layers = ( { type = \"residual\";\n"                    \
    "  layers = ( { type = \"gelu\"; } ); } ); shortcut = ( { type = \"relu\"; } ); },\n"       \
    "{ type = \"dropout\"; rate = 0.1; }, { type = \"flatten\"; },\n"                           \
    "{ type = \"linear\"; units = 10; bias = false; } );"

/* base_text in which up to one part is replaced, read; must be good. */
static struct test_result read_good(const char *find, const char *text, const char *const *sets,
                                    int nsets)
{
    char *whole = find ? test_replace(base_text, find, text) : strdup(base_text);
    test_write("job.cfg", whole);
    free(whole);
    struct test_result r = test_read("job.cfg", sets, nsets);
    if (r.status != LS_OK) {
        tap_ok(false, "%s", text);
        tap_note("%s", r.problems);
        exit(1);
    }
    return r;
}

/* Without comments, and without the blanks in front of them. */
static void strip_comments(char *text)
{
    char *out = text;
    for (char *p = text; *p; p++) {
        if (p[0] == ' ' && p[strspn(p, " ")] == '#') {
            p += strcspn(p, "\n") - 1;
            continue;
        }
        *out++ = *p;
    }
    *out = '\0';
}

static void same_again(const char *title, const char *find, const char *text)
{
    struct test_result r = read_good(find, text, NULL, 0);
    char *first = test_print(r.job, false), *json = test_print(r.job, true);
    uint64_t hash = ls_job_hash(r.job);
    test_free(&r);
    test_write("again.cfg", first);
    r = test_read("again.cfg", NULL, 0);
    if (!tap_ok(r.status == LS_OK, "%s: what is printed can be read", title)) {
        tap_note("%s", r.problems);
    } else {
        char *second = test_print(r.job, false);
        strip_comments(first);
        strip_comments(second);
        if (!tap_ok(!strcmp(first, second) && ls_job_hash(r.job) == hash, "%s: and is the same job",
                    title))
            tap_note("first:\n%s\nsecond:\n%s", first, second);
        free(second);
    }
    json_error_t error;
    json_t *root = json_loads(json, 0, &error);
    if (!tap_ok(root && json_integer_value(json_object_get(root, "format")) == 1,
                "%s: and the JSON is valid", title))
        tap_note("line %d: %s", error.line, error.text);
    json_decref(root);
    test_free(&r);
    free(first);
    free(json);
}

static void round_trips(void)
{
    same_again("base", NULL, "");
    same_again("layers", MLP, LAYERS);
    same_again("sgd", "\"adamw\"; lr = 0.1;",
               "\"sgd\"; lr = 0.30000000000000004; nesterov = true; schedule: { type = \"step\"; "
               "every = 3; gamma = 0.3333333333333333; };");
    same_again("a schedule", "lr = 0.1;",
               "lr = 1e-300; eps = 1e-8; schedule: { type = \"linear\"; warmup = 1000000000000; "
               "final = 0.1; };");
    same_again("an exponent", "lr = 0.1;", "lr = 1e2; clip = 1e9;");
    same_again("strings", "\"a\"", "\"/a \\\"b\\\"\\\\c\xC3\xA4#//{\"");
    same_again("a normal start", "hidden = [8];",
               "hidden = [1, 2, 3]; init = \"normal\"; init_std = 1e-3; dropout = 0.5;");
    same_again("channels", "format = \"idx\";",
               "format = \"idx\"; mean = [0.1, 0.2, 0.3]; augment: { shift = 1; flip = true; }; "
               "test: { images = \"c\"; labels = \"d\"; };");
    same_again("a fraction of a second", "name = \"t\";",
               "name = \"t\"; checkpoint: { every = 0.25; }; parallel: { bucket = 1025; };");
    same_again("units", "name = \"t\";",
               "name = \"t\"; checkpoint: { every = \"2d\"; dir = \"x\"; }; parallel: { bucket = "
               "\"1.5KiB\"; };");
    same_again("epochs", "steps = 5;", "epochs = 5; micro_batch = 4; eval_every = 3;");
}

static void text(void)
{
    const char *sets[] = {"train.global_batch=16"};
    struct test_result r =
        read_good("lr = 0.1;", "\n  lr = 0.1;\n  schedule: { warmup = 7; };", sets, 1);
    char *found = test_print(r.job, false);
    static const char *const lines[] = {
        "format = 1;                                      # default\n",
        "name = \"t\";                                      # job.cfg:1\n",
        "\nmodel: {\n    type = \"mlp\";                                # job.cfg:2\n",
        "    hidden = [8];                                # job.cfg:2\n",
        "    train: {\n        images = \"a\";                            # job.cfg:3\n",
        "    global_batch = 16;                           # --set\n",
        "    micro_batch = \"auto\";                        # default\n",
        "    lr = 0.1;                                    # job.cfg:6\n",
        "    schedule: {\n        type = \"constant\";                       # default\n",
        "        warmup = 7;                              # job.cfg:7\n    };\n};\n",
        "    bucket = \"25MiB\";                            # default\n",
        "    dir = \"t.ckpt\";                              # default\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        tap_ok(strstr(found, lines[i]) != NULL, "line %zu of what it prints", i + 1);
    static const char *const absent[] = {"epochs", "momentum", "gamma", "test:", "layers"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        tap_ok(!strstr(found, absent[i]), "and no %s", absent[i]);
    free(found);
    test_free(&r);
    char name[] = "new\nline\xff.cfg";
    test_write(name, base_text);
    r = test_read(name, NULL, 0);
    found = test_print(r.job, false);
    tap_ok(found && strstr(found, "# new?line?.cfg:1\n"),
           "a strange file name stays in its comment");
    free(found);
    found = test_print(r.job, true);
    json_t *root = found ? json_loads(found, 0, NULL) : NULL;
    tap_ok(root != NULL, "and in its string");
    json_decref(root);
    free(found);
    test_free(&r);
    r = read_good(NULL, "", NULL, 0);
    FILE *full = fopen("/dev/full", "w");
    struct ls_error err = {0};
    tap_ok(full && ls_job_print(r.job, full, &err) == LS_ERR_IO, "a full disk is reported");
    if (full)
        fclose(full);
    test_free(&r);
}

static json_t *value(json_t *root, const char *key, const char *origin)
{
    json_t *entry = json_object_get(json_object_get(root, "values"), key);
    const char *from = json_string_value(json_object_get(entry, "origin"));
    tap_ok(from && !strcmp(from, origin), "origin of %s", key);
    return json_object_get(entry, "value");
}

static void json(void)
{
    const char *sets[] = {"checkpoint.every=2min"};
    struct test_result r = read_good(MLP, LAYERS, sets, 1);
    char *found = test_print(r.job, true);
    json_t *root = json_loads(found, JSON_REJECT_DUPLICATES, NULL);
    tap_ok(json_real_value(value(root, "optimizer.lr", "job.cfg:11")) == 0.1, "a number");
    tap_ok(json_integer_value(value(root, "parallel.bucket", "default")) == 26214400, "bytes");
    tap_ok(json_number_value(value(root, "checkpoint.every", "--set")) == 120, "seconds");
    tap_ok(!strcmp(json_string_value(value(root, "train.micro_batch", "default")), "auto"), "auto");
    json_t *layers = value(root, "model.layers", "job.cfg:2"), *block = json_array_get(layers, 4);
    tap_ok(json_array_size(layers) == 8 &&
               json_integer_value(json_object_get(json_array_get(layers, 3), "stride")) == 2 &&
               json_array_size(json_object_get(block, "layers")) == 1 &&
               json_array_size(json_object_get(block, "shortcut")) == 1,
           "layers");
    tap_ok(!json_object_get(json_object_get(root, "values"), "train.epochs"),
           "nothing that is unset");
    json_decref(root);
    free(found);
    test_free(&r);
}

static uint64_t hash_of(const char *find, const char *text, const char *set)
{
    struct test_result r = read_good(find, text, &set, set != NULL);
    uint64_t hash = ls_job_hash(r.job);
    test_free(&r);
    return hash;
}

static void hash(void)
{
    /* Checkpoints carry it: when this number changes, older ones no longer match their jobs. */
    uint64_t base = hash_of(NULL, "", NULL);
    if (!tap_ok(base == 0x4400d586a93872fd, "the hash of the base text"))
        tap_note("found 0x%016llx", (unsigned long long)base);
    static const char *const same[] = {"name=u",
                                       "data.train.images=x",
                                       "train.steps=6",
                                       "train.micro_batch=8",
                                       "checkpoint.keep=9",
                                       "resources.threads=1",
                                       "parallel.bucket=2048",
                                       "train.eval_every=1",
                                       "optimizer.lr=1e-1",
                                       "optimizer.weight_decay=0.01"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        tap_ok(hash_of(NULL, "", same[i]) == base, "the same with %s", same[i]);
    static const char *const other[] = {"seed=2",
                                        "model.classes=11",
                                        "model.hidden=[9]",
                                        "model.hidden=[8, 8]",
                                        "model.init=zeros",
                                        "data.mean=0.1",
                                        "data.mean=[0, 0]",
                                        "data.augment.flip=true",
                                        "train.global_batch=16",
                                        "train.micro_batch=4",
                                        "optimizer.lr=0.1000000000000001",
                                        "optimizer.beta1=0.8",
                                        "optimizer.schedule.type=cosine",
                                        "optimizer.schedule.warmup=1"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        tap_ok(hash_of(NULL, "", other[i]) != base, "another with %s", other[i]);
    const char *cosine = "lr = 0.1; schedule: { type = \"cosine\"; };";
    tap_ok(hash_of("lr = 0.1;", cosine, NULL) != hash_of("lr = 0.1;", cosine, "train.steps=6"),
           "the length counts where the schedule ends with it");
    tap_ok(hash_of(MLP, LAYERS, NULL) != base, "layers");
    char *deeper = test_replace(LAYERS, "repeat = 2", "repeat = 3");
    tap_ok(hash_of(MLP, LAYERS, NULL) != hash_of(MLP, deeper, NULL), "every key of a layer counts");
    free(deeper);
}

static bool same_lines(const char *model, const char *set, const char *line)
{
    struct test_result a = read_good(MLP, model, NULL, 0),
                       b = read_good(MLP, model, &set, set != NULL);
    struct ls_buf x, y;
    ls_buf_init(&x, 1 << 16);
    ls_buf_init(&y, 1 << 16);
    ls_job_lines(a.job, &x);
    ls_job_lines(b.job, &y);
    bool same = !strcmp(x.data, y.data);
    if (line && !strstr(y.data, line))
        tap_note("no line %s in\n%s", line, y.data);
    tap_ok(!line || strstr(y.data, line), "lines with %s", set ? set : "layers");
    ls_buf_free(&x);
    ls_buf_free(&y);
    test_free(&a);
    test_free(&b);
    return same;
}

/* What ranks compare: also what the hash of a checkpoint leaves out. */
static void lines(void)
{
    tap_ok(same_lines(MLP, NULL, NULL), "the same job has the same lines");
    tap_ok(!same_lines(MLP, "train.steps=6", "\ntrain.steps=6\n"), "the length counts");
    tap_ok(!same_lines(MLP, "parallel.bucket=2KiB", "\nparallel.bucket=2048\n"),
           "the bucket counts");
    tap_ok(!same_lines(MLP, "data.train.images=x", "\ndata.train.images=\"x\"\n"), "a path counts");
    tap_ok(same_lines(LAYERS, NULL, "\nmodel.layers=[ "), "a list of layers is one line");
}

static void man(void)
{
    char *page = NULL;
    size_t size;
    FILE *out = open_memstream(&page, &size);
    ls_job_print_man(out);
    fclose(out);
    tap_ok(strstr(page, ".Ss optimizer.schedule\n") &&
               strstr(page, ".It Ic global_batch Pq Em integer") &&
               strstr(page, "Default: 25MiB.\n") && strstr(page, ".Ss max_pool\n"),
           "the manual page lists groups, keys, defaults and layers");
    free(page);
}

int main(void)
{
    test_dir_make();
    round_trips();
    text();
    json();
    hash();
    lines();
    man();
    test_dir_remove();
    return tap_done();
}
