/* For the tests of the job description: files in a directory of their own, and what reading them
 * says, with that directory taken out of the messages. */
#ifndef LS_TESTS_JOB_FILES_H
#define LS_TESTS_JOB_FILES_H

#include "job/job.h"
#include "tests/tap.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char base_text[] = "name = \"t\";\n"
                                "model: { type = \"mlp\"; classes = 10; hidden = [8]; };\n"
                                "data: { format = \"idx\"; train: { images = \"a\"; labels = "
                                "\"b\"; }; };\n"
                                "train: { steps = 5; global_batch = 8; };\n"
                                "optimizer: { type = \"adamw\"; lr = 0.1; };\n";

static char test_dir[512];

__attribute__((unused)) static void test_dir_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(test_dir, sizeof test_dir, "%s/ls-job-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(test_dir)) {
        puts("Bail out! no temporary directory");
        exit(1);
    }
}

static int test_dir_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

__attribute__((unused)) static void test_dir_remove(void)
{
    nftw(test_dir, test_dir_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *test_path(const char *name, char out[static 1024])
{
    snprintf(out, 1024, "%s/%s", test_dir, name);
    return out;
}

__attribute__((unused)) static void test_write_bytes(const char *name, const void *data,
                                                     size_t size)
{
    char path[1024];
    FILE *f = fopen(test_path(name, path), "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) {
        printf("Bail out! cannot write %s\n", path);
        exit(1);
    }
}

__attribute__((unused)) static void test_write(const char *name, const char *text)
{
    test_write_bytes(name, text, strlen(text));
}

/* A copy of `text` in which the first `find` became `with`; malloc'd. */
__attribute__((unused)) static char *test_replace(const char *text, const char *find,
                                                  const char *with)
{
    const char *at = strstr(text, find);
    if (!at) {
        printf("Bail out! the test looks for %s\n", find);
        exit(1);
    }
    size_t room = strlen(text) + strlen(with) + 1;
    char *out = malloc(room);
    if (!out)
        exit(1);
    snprintf(out, room, "%.*s%s%s", (int)(at - text), text, with, at + strlen(find));
    return out;
}

/* Takes every "<test_dir>/" out of a text. */
__attribute__((unused)) static void test_strip(char *text)
{
    char dir[514];
    int n = snprintf(dir, sizeof dir, "%s/", test_dir);
    for (char *at = text; at && (at = strstr(at, dir));)
        memmove(at, at + n, strlen(at + n) + 1);
}

struct test_result {
    enum ls_status status;
    struct ls_job *job;
    struct ls_error err;
    char *problems; /* malloc'd, "" when there are none */
};

__attribute__((unused)) static struct test_result test_read(const char *name,
                                                            const char *const *sets, int nsets)
{
    struct test_result r = {0};
    struct ls_buf problems;
    char path[1024];
    ls_buf_init(&problems, (size_t)1 << 20);
    r.status = ls_job_read(test_path(name, path), sets, nsets, &r.job, &problems, &r.err);
    r.problems = strdup(problems.data ? problems.data : "");
    ls_buf_free(&problems);
    test_strip(r.problems);
    return r;
}

__attribute__((unused)) static void test_free(struct test_result *r)
{
    ls_job_free(r->job);
    free(r->problems);
    *r = (struct test_result){0};
}

/* Checks what reading a text reports, line by line. */
__attribute__((unused)) static void test_problems(const char *title, const char *text,
                                                  const char *const *sets, int nsets,
                                                  const char *expect)
{
    test_write("job.cfg", text);
    struct test_result r = test_read("job.cfg", sets, nsets);
    bool refused = r.status == LS_ERR_USAGE && !r.job && strstr(r.err.message, "problem");
    if (!tap_ok(refused && !strcmp(r.problems, expect), "%s", title)) {
        tap_note("status %s, message: %s", ls_status_name(r.status), r.err.message);
        for (char *line = strtok(r.problems, "\n"); line; line = strtok(NULL, "\n"))
            tap_note("found    %s", line);
        tap_note("expected %s", expect);
    }
    test_free(&r);
}

/* Reads a text that must be good, and what it printed as; malloc'd. */
__attribute__((unused)) static char *test_print(const struct ls_job *job, bool json)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct ls_error err = {0};
    if (!out || (json ? ls_job_print_json(job, out, &err) : ls_job_print(job, out, &err)) != LS_OK)
        tap_note("printing failed: %s", err.message);
    if (out)
        fclose(out);
    if (text)
        test_strip(text);
    return text;
}

#endif
