/* `lockstep ckpt` as a user meets it: output, JSON, exit codes. */
#include "cli/cli.h"
#include "tests/ckpt/common.h"

#include <jansson.h>
#include <sys/wait.h>

/* The two functions of the room that this command needs; its other files need the whole program. */
int ls_cli_exit_code(enum ls_status status)
{
    return status == LS_OK ? LS_EXIT_OK : LS_EXIT_FAILED;
}
void ls_cli_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

static char out[65536], errors[65536];

static void slurp(const char *path, char *text)
{
    size_t size;
    uint8_t *data = read_file(path, &size);
    snprintf(text, 65536, "%s", (char *)data);
    free(data);
}

/* Runs the command in a child with its output in files; returns the exit code. */
__attribute__((sentinel)) static int ckpt(const char *first, ...)
{
    char *argv[16] = {(char[]){"ckpt"}};
    int argc = 1, status;
    va_list ap;
    va_start(ap, first);
    for (const char *s = first; s && argc < 15; s = va_arg(ap, const char *))
        argv[argc++] = strdup(s);
    va_end(ap);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(in_scratch("out").s, "w", stdout) ||
            !freopen(in_scratch("err").s, "w", stderr))
            _exit(99);
        int code = ls_cli_ckpt(argc, argv);
        fflush(NULL);
        _exit(code);
    }
    for (int i = 1; i < argc; i++)
        free(argv[i]);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    slurp(in_scratch("out").s, out);
    slurp(in_scratch("err").s, errors);
    return WEXITSTATUS(status);
}

static json_t *document(void)
{
    json_error_t e;
    json_t *j = json_loads(out, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        tap_note("no JSON: %s in %s", e.text, out);
    return j;
}

static void test_usage(void)
{
    tap_ok(ckpt("--help", NULL) == 0 && strncmp(out, "Usage: lockstep ckpt list", 25) == 0 &&
               !errors[0],
           "--help goes to stdout");
    tap_ok(ckpt("verify", "--help", NULL) == 0 && out[0] && !errors[0], "also behind the verb");
    tap_ok(ckpt("--json", NULL) == 2 && !out[0] && strstr(errors, "expected list, show or verify"),
           "no verb: 2");
    tap_ok(ckpt("prune", "x", NULL) == 2 && strstr(errors, "found: prune"), "unknown verb: 2");
    tap_ok(ckpt("list", NULL) == 2 && strstr(errors, "expected a path after: list"), "no path: 2");
    tap_ok(ckpt("list", "a", "b", NULL) == 2 && strstr(errors, "second: b"), "two paths: 2");
    tap_ok(ckpt("list", "--jsn", "a", NULL) == 2 && errors[0] && !out[0], "unknown option: 2");
}

static void test_list(const char *dir)
{
    tap_ok(ckpt("list", dir, NULL) == 0 && strstr(out, "STEP") && strstr(out, "step-00000002") &&
               strstr(out, "step-00000001") > strstr(out, "step-00000002"),
           "list: newest first");
    tap_ok(ckpt("list", "--json", dir, NULL) == 0, "list --json");
    json_t *j = document(), *all = json_object_get(j, "checkpoints");
    tap_ok(json_array_size(all) == 2 &&
               json_integer_value(json_object_get(json_array_get(all, 0), "step")) == 2 &&
               json_integer_value(json_object_get(json_array_get(all, 0), "position")) ==
                   256 + ((int64_t)1 << 60) &&
               json_is_null(json_object_get(json_array_get(all, 1), "train_loss")) &&
               json_is_true(json_object_get(json_array_get(all, 1), "complete")),
           "its document: exact integers, NaN as null");
    json_decref(j);
    tap_ok(ckpt("list", scratch, NULL) == 0 && strstr(out, "no checkpoints"), "list: none");
    tap_ok(ckpt("list", in_scratch("absent").s, NULL) == 1 && strstr(errors, "absent") && !out[0],
           "list: no directory is an error");
}

static void test_show(const char *dir)
{
    struct path one = in_scratch("dir/step-00000001");
    struct path file = in_scratch("dir/step-00000001/model.safetensors");
    tap_ok(ckpt("show", dir, NULL) == 0 && strstr(out, "dir/step-00000002\n") &&
               strstr(out, "fc1.weight ") && strstr(out, "[4, 3]") &&
               strstr(out, "job hash    fedcba9876543210") && strstr(out, "fc1.weight/m") &&
               strstr(out, "6 tensors, 22 elements, 87 B"),
           "show a directory: the newest");
    tap_ok(ckpt("show", one.s, NULL) == 0 && strstr(out, "step        1\n") &&
               strstr(out, "train loss  -\n"),
           "show a checkpoint");
    tap_ok(ckpt("show", file.s, NULL) == 0 && strstr(out, "bn.mean") &&
               !strstr(out, "fc1.weight/m"),
           "show a file");
    tap_ok(ckpt("show", "--json", one.s, NULL) == 0, "show --json");
    json_t *j = document(), *files = json_object_get(j, "files");
    tap_ok(json_array_size(files) == 2 &&
               json_array_size(json_object_get(json_array_get(files, 1), "tensors")) == 2 &&
               json_integer_value(json_object_get(j, "seed")) == ((int64_t)1 << 53) - 1,
           "its document");
    json_decref(j);
    tap_ok(ckpt("show", "--json", file.s, NULL) == 0, "show --json of a file");
    j = document();
    tap_ok(json_array_size(json_object_get(j, "tensors")) == 6, "its document");
    json_decref(j);
    tap_ok(ckpt("show", in_scratch("absent").s, NULL) == 1 && strstr(errors, "absent"),
           "show: nothing there");
    tap_ok(ckpt("show", scratch, NULL) == 1 && strstr(errors, "no manifest.json"),
           "show: not a checkpoint");
    write_file(in_scratch("text").s, "hello, this is text", 19);
    tap_ok(ckpt("show", in_scratch("text").s, NULL) == 1 && strstr(errors, "header too large"),
           "show: not a safetensors file");
}

static void test_verify(const char *dir)
{
    struct path one = in_scratch("dir/step-00000001");
    tap_ok(ckpt("verify", dir, NULL) == 0 && strncmp(out, "ok   ", 5) == 0 &&
               strstr(out, "step-00000002  ") && strstr(out, "\nok   "),
           "verify a directory: all of them");
    tap_ok(ckpt("verify", one.s, dir, NULL) == 0 && strlen(out) > 0, "verify several");
    struct path file = in_scratch("dir/step-00000002/model.safetensors");
    size_t size;
    uint8_t *data = read_file(file.s, &size);
    data[size - 1] ^= 1;
    write_file(file.s, data, size);
    free(data);
    tap_ok(ckpt("verify", dir, NULL) == 1 && strncmp(out, "bad  ", 5) == 0 &&
               strstr(out, "tensor 'tag ") && strstr(out, "\nok   "),
           "a damaged one: 1, and the tensor is named");
    tap_ok(ckpt("verify", "--json", dir, NULL) == 1, "verify --json: 1 too");
    json_t *j = document(), *all = json_object_get(j, "checkpoints");
    tap_ok(json_is_false(json_object_get(j, "ok")) && json_array_size(all) == 2 &&
               json_is_string(json_object_get(json_array_get(all, 0), "problem")) &&
               json_is_true(json_object_get(json_array_get(all, 1), "ok")),
           "its document");
    json_decref(j);
    tap_ok(ckpt("verify", one.s, NULL) == 0, "the other one alone: 0");
    tap_ok(ckpt("verify", in_scratch("absent").s, NULL) == 1 && strstr(out, "bad  "),
           "nothing there: 1");
    tap_ok(ckpt("verify", scratch, NULL) == 1 && strstr(out, "no manifest.json"),
           "no checkpoint there: 1");
}

int main(void)
{
    scratch_make();
    struct path dir = in_scratch("dir");
    struct ls_error err = {0};
    tap_ok(save_step(dir.s, 1, 9, &err) == LS_OK && save_step(dir.s, 2, 9, &err) == LS_OK, "%s",
           err.message);
    test_usage();
    test_list(dir.s);
    test_show(dir.s);
    test_verify(dir.s);
    remove_tree(scratch);
    return tap_done();
}
