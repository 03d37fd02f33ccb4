/* Every kind of broken job description, and every line that must be said about it. */
#include "files.h"

/* A description: the text, or if `find` is set, base_text in which `find` became `text`. */
struct broken {
    const char *title, *find, *text;
    const char *problems; /* all of them */
};

static const struct broken cases[] = {
#include "broken_rules.h"
#include "broken_syntax.h"
#include "broken_values.h"
};

static char *repeat(const char *front, const char *what, int times, const char *back)
{
    size_t size = strlen(front) + strlen(what) * (size_t)times + strlen(back) + 1;
    char *out = malloc(size), *at = out;
    if (!out)
        exit(1);
    at = stpcpy(at, front);
    for (int i = 0; i < times; i++)
        at = stpcpy(at, what);
    strcpy(at, back);
    return out;
}

static void check(const char *title, char *text, const char *expect)
{
    test_problems(title, text, NULL, 0, expect);
    free(text);
}

/* As `check`, for base_text in which `find` became a repetition. */
static void check_in(const char *title, const char *find, char *with, const char *expect)
{
    check(title, test_replace(base_text, find, with), expect);
    free(with);
}

static void sizes(void)
{
    check("100000 brackets", repeat("a = ", "(", 100000, ""),
          "job.cfg:1: found more than 64 brackets inside each other, expected fewer\n");
    check("100000 groups", repeat("", "a : {\n", 100000, ""),
          "job.cfg:65: found more than 64 brackets inside each other, expected fewer\n");
    check("100000 values", repeat("a = [", "1,", 100000, "];"),
          "job.cfg:1: found more than 65536 values, expected fewer\n");
    char *keys = malloc(300 * 8 + 1), *at = keys;
    for (int i = 0; i < 300; i++)
        at += sprintf(at, "k%d=1\n", i);
    check("300 keys", keys, "job.cfg:257: found more than 256 keys in one group, expected fewer\n");
    check_in("a path of 5000 bytes", "\"a\"", repeat("\"", "n", 5000, "\""),
             "job.cfg:3: found a string of 5000 bytes, expected at most 4095\n");
    check_in(
        "a path of 6000 bytes in two strings", "\"a\"", repeat("", "\"nnnnnnnnn\" ", 600, ""),
        "job.cfg:3: data.train.images: found the string "
        "\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"..., expected a path in "
        "quotes; it has 5400 bytes, at most 4095 fit\n");
    check_in(
        "a name of 201 bytes", "\"t\"", repeat("\"", "n", 201, "\""),
        "job.cfg:1: name: found the string "
        "\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"..., expected a name in "
        "quotes, without / and not starting with a dot; it has 201 bytes, at most 200 fit\n");
    check_in("65 hidden layers", "[8]", repeat("[1", ",1", 64, "]"),
             "job.cfg:2: model.hidden: found a list of 65 elements, expected a list of at most 64 "
             "integers from 1 to 1048576, such as [512, 256]\n");
    check_in(
        "a key of 100 bytes", "name =", repeat("", "k", 100, " = 1; name ="),
        "job.cfg:1: found the unknown key "
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk, expected one of format, "
        "name, seed, model, data, train, optimizer, parallel, checkpoint, recover, resources\n");
}

#define MLP "type = \"mlp\"; classes = 10; hidden = [8];"

static void layers(void)
{
    check_in("4097 layers", MLP,
             repeat("type = \"layers\"; classes = 10; layers = (", "{type=\"relu\"},", 4097, ");"),
             "job.cfg:2: model.layers: found too many layers, expected at most 4096 in all\n");
    char *front =
        repeat("type = \"layers\"; classes = 10; layers = ", "({type=\"residual\";layers=", 16,
               "({type=\"relu\"})");
    check_in(
        "residual blocks 17 deep", MLP, repeat(front, "})", 16, ";"),
        "job.cfg:2: model.layers[0].layers[0].layers[0].layers[0].layers[0].layers[0].layers[0]."
        "layers[0].layers[0].layers[0].laye.layers: found layers inside each other 17 deep, "
        "expected at most 16\n");
    free(front);
    front = repeat("type = \"layers\"; classes = 10; layers = ", "({type=\"residual\";layers=", 15,
                   "({type=\"relu\"})");
    char *inner = repeat(front, "})", 15, ";"), *text = test_replace(base_text, MLP, inner);
    test_write("job.cfg", text);
    struct test_result r = test_read("job.cfg", NULL, 0);
    tap_ok(r.status == LS_OK, "residual blocks 16 deep are read");
    test_free(&r);
    free(front);
    free(inner);
    free(text);
}

static void many(void)
{
    char text[4000] = "", *at = text;
    for (int i = 0; i < 100; i++)
        at += sprintf(at, "zebra%d = 1;\n", i);
    strcpy(at, base_text);
    test_write("job.cfg", text);
    struct test_result r = test_read("job.cfg", NULL, 0);
    int lines = 0;
    for (const char *p = r.problems; *p; p++)
        lines += *p == '\n';
    tap_ok(lines == 51 && strstr(r.problems, "job.cfg: and 50 more problems\n"),
           "of 100 problems, 50 are said and 50 counted");
    tap_ok(strstr(r.err.message, "job.cfg: 100 problems in the job description") != NULL,
           "the summary counts them all");
    test_free(&r);
}

static void not_text(void)
{
    static const char nul[] = "name = \"a\0b\";";
    test_write_bytes("job.cfg", nul, sizeof nul - 1);
    struct test_result r = test_read("job.cfg", NULL, 0);
    tap_ok(!strncmp(r.problems, "job.cfg:1: found a control character in a string", 48),
           "a NUL in a string");
    test_free(&r);
    static const char outside[] = "seed = 1;\n\0";
    test_write_bytes("job.cfg", outside, sizeof outside);
    r = test_read("job.cfg", NULL, 0);
    tap_ok(!strcmp(r.problems, "job.cfg:2: found a NUL byte, expected a text file\n"),
           "a NUL outside of one");
    test_free(&r);
}

static void unreadable(void)
{
    char path[1024];
    struct test_result r = test_read("none.cfg", NULL, 0);
    tap_ok(r.status == LS_ERR_NOTFOUND && !*r.problems && !r.job &&
               strstr(r.err.message, "none.cfg: No such file or directory"),
           "a file that is not there");
    test_free(&r);
    r = test_read(".", NULL, 0);
    tap_ok(r.status == LS_ERR_IO && !*r.problems && strstr(r.err.message, "not a regular file"),
           "a directory");
    test_free(&r);
    if (mkfifo(test_path("fifo", path), 0600) != 0)
        tap_note("no fifo");
    r = test_read("fifo", NULL, 0);
    tap_ok(r.status == LS_ERR_IO && strstr(r.err.message, "not a regular file"),
           "a fifo, which must not block");
    test_free(&r);
    char *large = repeat("", "#\n", 1000000, "");
    test_write("large.cfg", large);
    r = test_read("large.cfg", NULL, 0);
    tap_ok(r.status == LS_ERR_OVERFLOW && !*r.problems, "a file of 2 MB");
    test_free(&r);
    free(large);
}

int main(void)
{
    test_dir_make();
    test_write("job.cfg", base_text);
    struct test_result r = test_read("job.cfg", NULL, 0);
    tap_ok(r.status == LS_OK && r.job && !*r.problems, "the description they all derive from");
    test_free(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct broken *c = &cases[i];
        char *text = c->find ? test_replace(base_text, c->find, c->text) : strdup(c->text);
        check(c->title, text, c->problems);
    }
    sizes();
    layers();
    many();
    not_text();
    unreadable();
    test_dir_remove();
    return tap_done();
}
