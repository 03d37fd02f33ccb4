/* --set: what it takes, what it replaces, and what it says when it cannot. */
#include "files.h"

static void one(const char *title, const char *set, const char *expect)
{
    test_problems(title, base_text, &set, 1, expect);
}

/* Reads base_text with sets that must be good. */
static struct test_result with(const char *const *sets, int nsets)
{
    test_write("job.cfg", base_text);
    struct test_result r = test_read("job.cfg", sets, nsets);
    if (r.status != LS_OK) {
        tap_ok(false, "--set %s", sets[0]);
        tap_note("%s%s", r.problems, r.err.message);
        exit(1);
    }
    return r;
}
#define WITH(...)                            \
    with((const char *const[]){__VA_ARGS__}, \
         (int)(sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *)))

static void good(void)
{
    struct test_result r =
        WITH("train.steps=7", "optimizer.lr=1", "seed= 3", "name=other", "model.hidden=[1, 2,3]",
             "data.augment.flip=true", "checkpoint.every=90min", "parallel.bucket=\"1MiB\"",
             "data.mean=0.5", "model.activation=gelu");
    const struct ls_job *j = r.job;
    tap_ok(j->train.steps == 7 && j->optimizer.lr == 1 && j->seed == 3 &&
               !strcmp(j->name, "other") && j->model.nhidden == 3 && j->model.hidden[2] == 3 &&
               j->data.flip && j->checkpoint.every == 5400 && j->parallel.bucket == 1048576 &&
               j->data.mean[0] == 0.5 && j->model.activation == LS_ACT_GELU,
           "every type, with and without quotes");
    tap_ok(!strcmp(j->checkpoint.dir, "other.ckpt"), "defaults follow the new value");
    test_free(&r);

    r = WITH("train.steps=1", "train.steps=2");
    tap_ok(r.job->train.steps == 2, "the last one counts");
    test_free(&r);
    r = WITH("train.epochs=2");
    tap_ok(r.job->train.epochs == 2 && r.job->train.steps == LS_JOB_AUTO,
           "epochs replace the steps of the file");
    test_free(&r);
    r = WITH("checkpoint.dir=/a b//c#d\\e\"f");
    tap_ok(!strcmp(r.job->checkpoint.dir, "/a b//c#d\\e\"f"), "a path is taken as it is");
    test_free(&r);
}

static void whole_lists(void)
{
    const char *sets[] = {"model.type=layers", "model.layers=({type=\"relu\"}, {type=\"gelu\"})"};
    char *text = test_replace(base_text, "hidden = [8];", "");
    test_write("job.cfg", text);
    struct test_result r = test_read("job.cfg", sets, 2);
    tap_ok(r.status == LS_OK && r.job->model.nlayers == 2 &&
               r.job->model.layers[1].type == LS_LAYER_GELU &&
               !strcmp(r.job->model.layers[1].file, "--set") && r.job->model.layers[1].line == 0,
           "the whole list of layers");
    test_free(&r);
    free(text);
}

static void repairs(void)
{
    const char *set = "optimizer.lr=0.5";
    char *text = test_replace(base_text, "lr = 0.1", "lr = \"x\"");
    test_write("job.cfg", text);
    struct test_result r = test_read("job.cfg", &set, 1);
    tap_ok(r.status == LS_OK && r.job->optimizer.lr == 0.5, "a value of the file that is not used "
                                                            "need not be good");
    test_free(&r);
    free(text);
    text = test_replace(base_text, "lr = 0.1;", "");
    test_write("job.cfg", text);
    r = test_read("job.cfg", &set, 1);
    tap_ok(r.status == LS_OK, "a required key may come from the command line");
    test_free(&r);
    free(text);
}

static void broken(void)
{
    one("no =", "train.steps", "--set: found train.steps, expected key=value\n");
    one("no key", "=5", "--set: found =5, expected key=value\n");
    one("no value",
        "train.steps=", "--set: found train.steps without a value, expected key=value\n");
    one("unknown key", "train.stepz=5",
        "--set: found the unknown key train.stepz, expected a key of lockstep.cfg(5); did you mean "
        "train.steps?\n");
    one("last name only", "lr=5",
        "--set: found the unknown key lr, expected a key of lockstep.cfg(5); did you mean "
        "optimizer.lr?\n");
    one("far from any key", "zebra=5",
        "--set: found the unknown key zebra, expected a key of lockstep.cfg(5)\n");
    one("a group", "optimizer=5",
        "--set: found the group optimizer, expected one of its keys, such as optimizer.type=...\n");
    one("one layer", "model.layers.0.filters=5",
        "--set: found model.layers.0.filters, expected a key outside of model.layers: single "
        "layers "
        "cannot be set from the command line, edit the file\n");
    one("one layer in brackets", "model.layers[0].filters=5",
        "--set: found model.layers[0].filters, expected a key outside of model.layers: single "
        "layers cannot be set from the command line, edit the file\n");
    one("wrong type", "train.steps=many",
        "--set: train.steps: found the string \"many\", expected an integer from 1 to 1e12\n");
    one("out of range", "train.steps=0",
        "--set: train.steps: found the integer 0, expected an integer from 1 to 1e12\n");
    one("too large", "train.steps=99999999999999999999",
        "--set: found the number 99999999999999999999, which does not fit 64 bits\n");
    one("float for an integer", "train.steps=1e3",
        "--set: train.steps: found the number 1000.0, expected an integer from 1 to 1e12\n");
    one("a word near", "optimizer.type=adam",
        "--set: optimizer.type: found the string \"adam\", expected \"sgd\" or \"adamw\"; did you "
        "mean \"adamw\"?\n");
    one("two values", "seed=\"1\" b = 2", "--set: found seed=\"1\" b = 2, expected one value\n");
    one("an unclosed list", "model.hidden=[1, 2",
        "--set: found the end of the value, expected ] for the bracket\n");
    one("a key of the other optimizer", "optimizer.momentum=0.5",
        "--set: optimizer.momentum: found with optimizer.type = \"adamw\", expected only with "
        "\"sgd\"\n");
    one("in contradiction with the file", "train.micro_batch=3",
        "--set: train.micro_batch: found 3, expected a divisor of global_batch = 8; write "
        "micro_batch = 2; or 4\n");
    one("a control character", "name=a\tb",
        "--set: found a control character in a string, expected printable text\n");
    one("bytes that are not UTF-8", "name=a\xff",
        "--set: found bytes that are not UTF-8 in a string, expected UTF-8 text\n");
    one("an include", "seed=[\n@include \"x\"\n]", "--set: found @include, expected a value\n");
    const char *both[] = {"train.steps=1", "train.epochs=1"};
    test_problems("both lengths", base_text, both, 2,
                  "--set: train: found both steps and epochs, expected one of them; remove the "
                  "other\n");
    const char *several[] = {"zebra=1", "train.steps=0", "seed=-1"};
    char *text = test_replace(base_text, "lr = 0.1", "lr = 0");
    test_problems(
        "problems of the file come first, then those of each --set in turn", text, several, 3,
        "job.cfg:5: optimizer.lr: found the integer 0, expected a number above 0 and up to "
        "1000\n"
        "--set: found the unknown key zebra, expected a key of lockstep.cfg(5)\n"
        "--set: train.steps: found the integer 0, expected an integer from 1 to 1e12\n"
        "--set: seed: found the integer -1, expected an integer from 0 to "
        "9007199254740991\n");
    free(text);
}

int main(void)
{
    test_dir_make();
    good();
    whole_lists();
    repairs();
    broken();
    test_dir_remove();
    return tap_done();
}
