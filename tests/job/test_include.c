/* @include: relative to the including file, with the right file and line in every message. */
#include "files.h"

static void mkdirs(void)
{
    static const char *const names[] = {"one", "one/two", "three"};
    char path[1024];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mkdir(test_path(names[i], path), 0700) != 0)
            exit(1);
}

/* Problems of job.cfg as it lies there. */
static void problems(const char *title, const char *expect)
{
    struct test_result r = test_read("job.cfg", NULL, 0);
    if (!tap_ok(r.status == LS_ERR_USAGE && !strcmp(r.problems, expect), "%s", title))
        tap_note("found:\n%s", r.problems);
    test_free(&r);
}

static void good(void)
{
    test_write("job.cfg", "name = \"t\";\n"
                          "  @include \"one/model.cfg\"\n"
                          "data: { format = \"idx\";\n"
                          "@include \"three/data.cfg\"\n"
                          "};\n"
                          "train: { steps = 5; global_batch = 8; };\n"
                          "optimizer: { type = \"adamw\"; lr = 0.1; };\n");
    test_write("one/model.cfg", "# where it is included from does not matter\n"
                                "@include \"two/layers.cfg\"\n");
    test_write("one/two/layers.cfg", "model: { type = \"layers\"; classes = 10; layers = (\n"
                                     "@include \"../../three/stem.cfg\"\n"
                                     ", { type = \"flatten\"; }\n"
                                     "); };\n");
    test_write("three/stem.cfg", "\n{ type = \"relu\"; },\n{ type = \"gelu\"; }");
    test_write("three/data.cfg", "train: { images = \"a\"; labels = \"b\"; };");
    struct test_result r = test_read("job.cfg", NULL, 0);
    if (!tap_ok(r.status == LS_OK, "includes in directories beside and below each other"))
        tap_note("%s%s", r.problems, r.err.message);
    const struct ls_job *j = r.job;
    if (j) {
        tap_ok(j->model.nlayers == 3 && j->model.layers[1].type == LS_LAYER_GELU &&
                   j->model.layers[2].type == LS_LAYER_FLATTEN,
               "an include inside a list");
        tap_ok(!strcmp(j->data.train_images, "a"), "an include inside a group");
        tap_ok(strstr(j->model.layers[1].file, "/one/two/../../three/stem.cfg") &&
                   j->model.layers[1].line == 3,
               "a layer knows the included file and line");
        tap_ok(j->model.layers[2].line == 3 && strstr(j->model.layers[2].file, "two/layers.cfg"),
               "and the including one behind it");
        char *text = test_print(j, false);
        tap_ok(strstr(text, "# three/data.cfg:1") && strstr(text, "# job.cfg:6") &&
                   strstr(text, "# one/two/layers.cfg:1"),
               "origins name the files");
        free(text);
    }
    test_free(&r);
    char cwd[1024];
    if (getcwd(cwd, sizeof cwd) && chdir(test_dir) == 0) {
        struct ls_buf out;
        struct ls_job *job = NULL;
        ls_buf_init(&out, 4096);
        tap_ok(ls_job_read("job.cfg", NULL, 0, &job, &out, NULL) == LS_OK &&
                   !strcmp(job->model.layers[0].file, "one/two/../../three/stem.cfg"),
               "from the directory itself, without a path in front");
        ls_job_free(job);
        ls_buf_free(&out);
        if (chdir("/") == 0) {
            r = test_read("job.cfg", NULL, 0);
            tap_ok(r.status == LS_OK, "and from elsewhere");
            test_free(&r);
        }
        if (chdir(cwd) != 0)
            exit(1);
    }
    char path[1024], text[3000];
    snprintf(text, sizeof text, "@include \"%s\"\n", test_path("whole.cfg", path));
    test_write("whole.cfg", base_text);
    test_write("job.cfg", text);
    r = test_read("job.cfg", NULL, 0);
    tap_ok(r.status == LS_OK, "an absolute path");
    test_free(&r);
}

static void messages(void)
{
    test_write("job.cfg", "name = \"t\";\nseed = -1;\n@include \"one/rest.cfg\"\nzebra = 1;\n");
    char *text = test_replace(base_text, "name = \"t\";", "");
    char *rest = test_replace(text, "lr = 0.1;", "lr = \"x\";\n lrr = 1;");
    test_write("one/rest.cfg", rest);
    problems(
        "problems of both files, in the order of reading",
        "job.cfg:2: seed: found the integer -1, expected an integer from 0 to "
        "9007199254740991\n"
        "one/rest.cfg:5: optimizer.lr: found the string \"x\", expected a number above 0 and up "
        "to 1000\n"
        "one/rest.cfg:6: found the unknown key optimizer.lrr, expected a key of optimizer; did "
        "you mean lr?\n"
        "job.cfg:4: found the unknown key zebra, expected one of format, name, seed, model, "
        "data, train, optimizer, parallel, checkpoint, recover, resources\n");
    free(rest);
    rest = test_replace(text, "steps = 5;", "steps = ;");
    test_write("one/rest.cfg", rest);
    problems("a syntax error in the included file",
             "one/rest.cfg:4: found ;, expected a value for steps\n");
    free(rest);
    test_write("one/rest.cfg", text);
    test_write("job.cfg", "name = \"t\";\n@include \"one/rest.cfg\"\ntrain: { };\nname = \"u\";\n");
    problems("a key that both files give",
             "job.cfg:3: found the duplicate key train, expected it once; the first is at "
             "one/rest.cfg:4\n"
             "job.cfg:4: found the duplicate key name, expected it once; the first is at "
             "job.cfg:1\n");
    free(text);
}

static void broken(void)
{
    char *text = test_replace(base_text, "\ntrain: {", "\n@include \"one/a.cfg\"\ntrain: {");
    test_write("job.cfg", text);
    free(text);
    test_write("one/a.cfg", "# a\n@include \"two/b.cfg\"\n");
    test_write("one/two/b.cfg", "\n\n@include \"../../job.cfg\"\n");
    problems(
        "a cycle of three files",
        "one/two/b.cfg:3: found @include \"../../job.cfg\" inside that file itself, expected no "
        "cycle\n");
    test_write("one/two/b.cfg", "parallel: {\n");
    problems("a bracket left open at the end of an include",
             "one/two/b.cfg:2: found the end of the file, expected } for the bracket of line 1\n");
    test_write("one/two/b.cfg", "parallel: { bucket = 2048; }; }\n");
    problems("a bracket too many", "one/two/b.cfg:1: found }, which closes nothing, expected key = "
                                   "value\n");
    test_write("one/two/b.cfg", "seed = ");
    problems("a setting cut by the end of the file",
             "one/two/b.cfg:1: found the end of the file, expected a value\n");
    test_write("one/two/b.cfg", "@include \"nowhere.cfg\"\n@include \"\"\nseed = 0;\nzebra = 0;\n");
    problems("files that are not there, with the rest of the problems",
             "one/two/b.cfg:1: @include \"nowhere.cfg\": one/two/nowhere.cfg: No such file or "
             "directory\n"
             "one/two/b.cfg:2: @include \"\": one/two/: not a regular file\n"
             "one/two/b.cfg:4: found the unknown key zebra, expected one of format, name, seed, "
             "model, data, train, optimizer, parallel, checkpoint, recover, resources\n");
    test_write("one/two/b.cfg", "seed = 0;");
    struct test_result r = test_read("job.cfg", NULL, 0);
    tap_ok(r.status == LS_OK && r.job->seed == 0, "put right, it is read");
    test_free(&r);
}

static void bounds(void)
{
    char name[64], text[256];
    for (int i = 1; i <= 9; i++) {
        snprintf(name, sizeof name, "d%d.cfg", i);
        snprintf(text, sizeof text, "@include \"d%d.cfg\"\n", i + 1);
        test_write(name, i < 9 ? text : "seed = 5;\n");
    }
    char *job = test_replace(base_text, "\ntrain: {", "\n@include \"d1.cfg\"\ntrain: {");
    test_write("job.cfg", job);
    struct test_result r = test_read("job.cfg", NULL, 0);
    tap_ok(r.status == LS_OK && r.job->seed == 5, "ten files inside each other");
    test_free(&r);
    test_write("d9.cfg", "@include \"d10.cfg\"\n");
    test_write("d10.cfg", "seed = 5;\n");
    problems("eleven", "d9.cfg:1: found @include at depth 10, expected at most 9 files inside each "
                       "other\n");
    /* Each file includes the next one ten times: 10^9 files, if nobody counted. */
    for (int i = 1; i <= 9; i++) {
        char *at = text;
        for (int k = 0; k < 10; k++)
            at += sprintf(at, "@include \"d%d.cfg\"\n", i + 1);
        snprintf(name, sizeof name, "d%d.cfg", i);
        test_write(name, i < 9 ? text : "# nothing\n");
    }
    problems("includes that multiply",
             "d8.cfg:2: found too many included files, expected at most 64 "
             "and 4 MiB in all\n");
    free(job);
}

int main(void)
{
    test_dir_make();
    mkdirs();
    good();
    messages();
    broken();
    bounds();
    test_dir_remove();
    return tap_done();
}
