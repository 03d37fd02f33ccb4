/* Our files read by the reference implementation, its files read by ours, and the verdicts of both
 * on every sample. Needs a Python ($LS_PYTHON, or python3) that can import safetensors and numpy. */
#include "tests/ckpt/common.h"
#include "tests/ckpt/samples.h"

#include <sys/wait.h>

static void hex(FILE *f, const struct ls_st_tensor *t, const char *name, bool last)
{
    int64_t numel;
    ls_shape_numel(t->shape, t->ndim, &numel);
    const uint8_t *data = t->data;
    fprintf(f, "\"%s\": {\"dtype\": \"%s\", \"shape\": [", name, ls_st_dtype_name(t->dtype));
    for (int d = 0; d < t->ndim; d++)
        fprintf(f, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    fprintf(f, "], \"hex\": \"");
    for (int64_t i = 0; i < numel * ls_dtype_size(t->dtype); i++)
        fprintf(f, "%02x", data[i]);
    fprintf(f, "\"}%s\n", last ? "" : ",");
}

static void write_ours(void)
{
    struct sample s;
    struct ls_error err = {0};
    static const char *const metadata[] = {"step", "3", "\xc3\xa9", "\"", NULL};
    sample_init(&s, 3);
    struct path path = in_scratch("ours.safetensors"), empty = in_scratch("empty.safetensors");
    int fd = open(path.s, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int fd2 = open(empty.s, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    tap_ok(ls_st_write(fd, path.s, s.model, SAMPLE_MODEL, metadata, &err) == LS_OK &&
               ls_st_write(fd2, empty.s, NULL, 0, NULL, &err) == LS_OK,
           "write: %s", err.message);
    close(fd);
    close(fd2);
    FILE *f = fopen(in_scratch("ours.json").s, "we");
    fprintf(f, "{\"ours.safetensors\": {\"metadata\": {\"step\": \"3\", \"\xc3\xa9\": \"\\\"\"}, "
               "\"tensors\": {\n");
    for (int i = 0; i < SAMPLE_MODEL; i++)
        hex(f, &s.model[i], i == 1 ? "tag \\\"\xc3\xa9\\\\" : s.model[i].name,
            i == SAMPLE_MODEL - 1);
    fprintf(f, "}}, \"empty.safetensors\": {\"metadata\": null, \"tensors\": {}}}\n");
    fclose(f);
    for (int i = 0; i < ST_SAMPLES; i++) {
        struct ls_buf buf;
        st_sample_bytes(&st_samples[i], &buf);
        static const char *const verdict[] = {
            [ACCEPTS] = "accepts", [REJECTS] = "rejects", [EITHER] = "either"};
        write_file(in_scratch("%s-%s", verdict[st_samples[i].reference], st_samples[i].name).s,
                   buf.data ? buf.data : "", buf.len);
        ls_buf_free(&buf);
    }
}

/* Runs the script and passes its lines on; returns its exit code. */
static int run_script(void)
{
    const char *python = getenv("LS_PYTHON"), *srcdir = getenv("srcdir");
    char script[4096], line[1024];
    int out[2], status;
    snprintf(script, sizeof script, "%.4000s/tests/ckpt/check_safetensors.py",
             srcdir ? srcdir : ".");
    if (pipe(out) != 0)
        return 99;
    pid_t child = fork();
    if (child == 0) {
        const char *program = python && *python ? python : "python3";
        dup2(out[1], 1);
        close(out[0]);
        close(out[1]);
        unsetenv("LD_PRELOAD"); /* a sanitizer's library is not for Python */
        execlp(program, program, "-B", script, scratch, (char *)NULL);
        perror(program);
        _exit(77);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "ok ", 3) == 0 || strncmp(line, "not ok ", 7) == 0)
            tap_ok(line[0] == 'o', "reference: %s", line + (line[0] == 'o' ? 3 : 7));
        else
            tap_note("%s", line + (line[0] == '#' ? 2 : 0));
    }
    fclose(f);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 99;
    return WEXITSTATUS(status);
}

static const struct ls_st_tensor *by_name(const struct ls_st_file *st, const char *name)
{
    for (int i = 0; i < st->ntensors; i++)
        if (strcmp(st->tensors[i].name, name) == 0)
            return &st->tensors[i];
    return NULL;
}

static void read_theirs(void)
{
    struct ls_st_file st = {0};
    struct ls_error err = {0};
    size_t size;
    uint8_t *bytes = read_file(in_scratch("theirs.safetensors").s, &size);
    tap_ok(ls_st_parse("theirs", bytes, size, (int64_t)size, &st, &err) == LS_OK &&
               st.ntensors == 5,
           "read theirs: %s", err.message);
    const struct ls_st_tensor *w = by_name(&st, "w"), *i = by_name(&st, "i"),
                              *odd = by_name(&st, "odd \"\xc3\xa9\\");
    float f[24];
    int32_t seven = 0;
    bool same = w && w->dtype == LS_F32 && w->ndim == 3 && w->shape[2] == 4 &&
                w->end - w->begin == sizeof f;
    if (same)
        memcpy(f, bytes + w->begin, sizeof f);
    for (int k = 0; k < 24 && same; k++)
        same = f[k] == (float)k;
    tap_ok(same, "theirs: F32 [2, 3, 4]");
    same = i && i->dtype == LS_I32 && i->ndim == 0;
    if (same)
        memcpy(&seven, bytes + i->begin, 4);
    tap_ok(same && seven == -7, "theirs: I32 scalar");
    tap_ok(odd && bytes[odd->begin] == 255, "theirs: odd name");
    ls_st_free(&st);
    free(bytes);
    bytes = read_file(in_scratch("theirs-empty.safetensors").s, &size);
    tap_ok(ls_st_parse("theirs", bytes, size, (int64_t)size, &st, &err) == LS_OK &&
               st.ntensors == 0,
           "theirs: no tensor at all");
    ls_st_free(&st);
    free(bytes);
}

int main(void)
{
    scratch_make();
    write_ours();
    int code = run_script();
    if (code == 77) {
        remove_tree(scratch);
        printf("# SKIPPED: no Python with safetensors and numpy; set LS_PYTHON to one that has "
               "them\n");
        tap_ok(true, "comparison with the reference # SKIP no Python with safetensors and numpy");
        return tap_done();
    }
    tap_ok(code == 0, "the script ends with 0 (%d)", code);
    if (code == 0)
        read_theirs();
    remove_tree(scratch);
    return tap_done();
}
