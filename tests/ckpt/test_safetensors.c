/* The safetensors reader and writer: round trips, an independent reader, every bad file. */
#include "tests/ckpt/common.h"
#include "tests/ckpt/samples.h"

#include <signal.h>
#include <sys/resource.h>

/* A reader of its own: finds one tensor in the compact text that writers produce. */
struct found {
    char dtype[16], shape[64];
    const uint8_t *data;
    size_t bytes;
};
static bool own_find(const uint8_t *file, size_t size, const char *escaped, struct found *f)
{
    uint64_t n;
    memcpy(&n, file, 8); /* the tests run on little-endian machines */
    char *text = strndup((const char *)file + 8, n), key[256];
    snprintf(key, sizeof key, "\"%s\":{", escaped);
    char *p = strstr(text, key);
    size_t begin = 0, end = 0;
    bool ok = p && sscanf(p + strlen(key),
                          "\"dtype\":\"%15[^\"]\",\"shape\":[%63[^]]],\"data_offsets\":[%zu,%zu]}",
                          f->dtype, f->shape, &begin, &end) == 4;
    if (p && !ok) { /* %[ does not match the nothing of a scalar's shape */
        f->shape[0] = '\0';
        ok = sscanf(p + strlen(key),
                    "\"dtype\":\"%15[^\"]\",\"shape\":[],\"data_offsets\":[%zu,%zu]}", f->dtype,
                    &begin, &end) == 3;
    }
    free(text);
    f->data = file + 8 + n + begin;
    f->bytes = end - begin;
    return ok && 8 + n + end <= size;
}

static enum ls_status write_st(const char *path, const struct ls_st_tensor *t, int n,
                               const char *const *metadata, struct ls_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    enum ls_status status = ls_st_write(fd, path, t, n, metadata, err);
    close(fd);
    return status;
}

static void test_write(void)
{
    struct sample s;
    struct ls_error err = {0};
    struct path p = in_scratch("a.safetensors");
    const char *const metadata[] = {"format", "lockstep", "q", "\"\\", NULL};
    sample_init(&s, 7);
    tap_ok(write_st(p.s, s.model, SAMPLE_MODEL, metadata, &err) == LS_OK, "write: %s", err.message);

    size_t size;
    uint8_t *file = read_file(p.s, &size);
    uint64_t n;
    memcpy(&n, file, 8);
    tap_ok((8 + n) % 64 == 0, "data starts at a multiple of 64 (%llu)", (unsigned long long)n + 8);
    tap_ok(file[8] == '{', "the header begins with '{'");
    tap_ok(size == 8 + n + 48 + 16 + 16 + 4 + 3, "size: header and data, nothing else");
    struct found f;
    tap_ok(own_find(file, size, "fc1.weight", &f) && strcmp(f.dtype, "F32") == 0 &&
               strcmp(f.shape, "4,3") == 0 && f.bytes == 48 && memcmp(f.data, s.weight, 48) == 0,
           "own reader: F32 matrix");
    tap_ok(own_find(file, size, "bn.mean", &f) && strcmp(f.dtype, "F64") == 0 &&
               f.data == file + 8 + n && memcmp(f.data, s.mean, 16) == 0,
           "own reader: F64 comes first");
    tap_ok(own_find(file, size, "count", &f) && strcmp(f.dtype, "I32") == 0 && f.shape[0] == '\0' &&
               memcmp(f.data, &s.count, 4) == 0,
           "own reader: scalar");
    tap_ok(own_find(file, size, "tag \\\"\xc3\xa9\\\\", &f) && strcmp(f.dtype, "U8") == 0 &&
               f.data + 3 == file + size && memcmp(f.data, s.tag, 3) == 0,
           "own reader: U8 comes last, escaped name");
    tap_ok(own_find(file, size, "empty", &f) && f.bytes == 0, "own reader: empty tensor");

    struct ls_st_file st;
    tap_ok(ls_st_parse("a", file, size, (int64_t)size, &st, &err) == LS_OK, "parse: %s",
           err.message);
    tap_ok(st.ntensors == SAMPLE_MODEL && st.data_start == (int64_t)n + 8 &&
               strcmp(st.tensors[0].name, "bn.mean") == 0 &&
               strcmp(st.tensors[5].name, s.model[1].name) == 0,
           "parse: sorted by offset");
    bool same = true;
    for (int i = 0; i < st.ntensors; i++)
        for (int k = 0; k < SAMPLE_MODEL; k++)
            if (strcmp(st.tensors[i].name, s.model[k].name) == 0)
                same &=
                    st.tensors[i].dtype == s.model[k].dtype &&
                    st.tensors[i].ndim == s.model[k].ndim &&
                    memcmp(st.tensors[i].shape, s.model[k].shape, sizeof s.model[k].shape) == 0 &&
                    (st.tensors[i].end == st.tensors[i].begin ||
                     memcmp(file + st.tensors[i].begin, s.model[k].data,
                            (size_t)(st.tensors[i].end - st.tensors[i].begin)) == 0);
    tap_ok(same, "parse: dtypes, shapes and data are what was written");
    ls_st_free(&st);

    /* Every shorter file, and every file with one more byte, is refused without a crash. */
    int refused = 0;
    uint8_t *exact = NULL;
    for (size_t cut = 0; cut < size; cut++) {
        struct ls_error e = {0};
        exact = malloc(cut + 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, file, cut);
        refused += ls_st_parse("cut", exact, cut, (int64_t)cut, &st, &e) == LS_ERR_FORMAT;
        free(exact);
    }
    tap_ok(refused == (int)size, "every truncation is refused (%d of %zu)", refused, size);
    free(file);

    struct path again = in_scratch("b.safetensors");
    struct ls_st_tensor turned[SAMPLE_MODEL];
    for (int i = 0; i < SAMPLE_MODEL; i++)
        turned[i] = s.model[SAMPLE_MODEL - 1 - i];
    write_st(again.s, turned, SAMPLE_MODEL, metadata, &err);
    size_t size2;
    file = read_file(p.s, &size);
    uint8_t *file2 = read_file(again.s, &size2);
    tap_ok(size == size2 && memcmp(file, file2, size) == 0,
           "the bytes do not depend on the order of the tensors given");
    free(file);
    free(file2);
}

static void test_large(void)
{
    /* Around the sizes where buffering changes: 256 KiB and 4 MiB. */
    static const size_t sizes[] = {262143, 262144, 262145, 4194303, 4194304, 4194305, 9000001, 5};
    enum { N = sizeof sizes / sizeof *sizes };
    struct ls_st_tensor t[N];
    char names[N][8];
    for (int i = 0; i < N; i++) {
        uint8_t *data = malloc(sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            data[k] = (uint8_t)((k * 2654435761u + (size_t)i) >> 13);
        snprintf(names[i], sizeof names[i], "t%d", i);
        t[i] = (struct ls_st_tensor){names[i], LS_U8, 1, {(int64_t)sizes[i]}, data, 0, 0};
    }
    struct ls_error err = {0};
    struct path p = in_scratch("large.safetensors");
    tap_ok(write_st(p.s, t, N, NULL, &err) == LS_OK, "large: %s", err.message);
    size_t size;
    uint8_t *file = read_file(p.s, &size);
    int same = 0;
    struct found f;
    for (int i = 0; i < N; i++) {
        same += own_find(file, size, names[i], &f) && f.bytes == sizes[i] &&
                memcmp(f.data, t[i].data, sizes[i]) == 0;
        free(t[i].data);
    }
    tap_ok(same == N, "large: own reader finds all bytes (%d of %d)", same, (int)N);
    free(file);
    unlink(p.s);
}

static void test_samples(void)
{
    for (int i = 0; i < ST_SAMPLES; i++) {
        const struct st_sample *s = &st_samples[i];
        struct ls_buf buf;
        struct ls_error err = {0};
        struct ls_st_file st;
        st_sample_bytes(s, &buf);
        uint8_t *exact = malloc(buf.len + !buf.len);
        if (buf.len)
            memcpy(exact, buf.data, buf.len);
        enum ls_status got = ls_st_parse(s->name, exact, buf.len, (int64_t)buf.len, &st, &err);
        bool pass = got == s->status && (!s->message || strstr(err.message, s->message)) &&
                    (got == LS_OK || strncmp(err.message, s->name, strlen(s->name)) == 0);
        tap_ok(pass, "sample %s: %s", s->name, got == LS_OK ? "ok" : err.message);
        if (got == LS_OK)
            ls_st_free(&st);
        /* The same through a file, where only the header is read. */
        struct path p = in_scratch("sample");
        write_file(p.s, buf.data ? buf.data : "", buf.len);
        int fd = open(p.s, O_RDONLY | O_CLOEXEC);
        struct ls_error err2 = {0};
        if (ls_st_read_header(fd, s->name, &st, &err2) == LS_OK)
            ls_st_free(&st);
        close(fd);
        if (err2.status != err.status || strcmp(err.message, err2.message) != 0)
            tap_ok(false, "sample %s through a file: %s", s->name, err2.message);
        free(exact);
        ls_buf_free(&buf);
    }
}

static void refuse(const char *what, const struct ls_st_tensor *t, int n, enum ls_status want,
                   const char *message)
{
    struct ls_error err = {0};
    struct path p = in_scratch("refused.safetensors");
    enum ls_status got = write_st(p.s, t, n, NULL, &err);
    tap_ok(got == want && strstr(err.message, message), "writer, %s: %s", what, err.message);
}

static void test_refusals(void)
{
    float x = 1;
    struct ls_st_tensor two[2] = {{"a", LS_F32, 1, {1}, &x, 0, 0}, {"a", LS_F32, 1, {1}, &x, 0, 0}};
    refuse("same name", two, 2, LS_ERR_INTERNAL, "two tensors are called 'a'");
    struct ls_st_tensor bad = {"\xff", LS_F32, 1, {1}, &x, 0, 0};
    refuse("name that is not UTF-8", &bad, 1, LS_ERR_INTERNAL, "not UTF-8");
    bad.name = "__metadata__";
    refuse("reserved name", &bad, 1, LS_ERR_INTERNAL, "not a legal tensor name");
    bad = (struct ls_st_tensor){"a", LS_F32, 2, {INT64_MAX, 2}, &x, 0, 0};
    refuse("overflow", &bad, 1, LS_ERR_OVERFLOW, "tensor 'a': its size overflows");
    bad = (struct ls_st_tensor){"a", LS_F32, 1, {-1}, &x, 0, 0};
    refuse("negative extent", &bad, 1, LS_ERR_OVERFLOW, "tensor 'a'");
    bad = (struct ls_st_tensor){"a", LS_F32, 1, {1}, NULL, 0, 0};
    refuse("no data", &bad, 1, LS_ERR_INTERNAL, "tensor 'a' has no data");

    /* A file size limit is a full disk that needs no privilege. */
    struct rlimit old, small = {4096, 0};
    uint8_t *data = calloc(1, 1 << 20);
    struct ls_st_tensor big = {"big", LS_U8, 1, {1 << 20}, data, 0, 0};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    refuse("file size limit", &big, 1, LS_ERR_IO, "File too large");
    setrlimit(RLIMIT_FSIZE, &old);
    free(data);

    struct ls_error err = {0};
    int fd = open(in_scratch("refused.safetensors").s, O_RDONLY | O_CLOEXEC);
    two[1].name = "b";
    tap_ok(ls_st_write(fd, "read-only", two, 2, NULL, &err) == LS_ERR_IO &&
               strstr(err.message, "read-only"),
           "writer, descriptor not open for writing: %s", err.message);
    close(fd);
    struct ls_st_file st;
    struct ls_error err2 = {0};
    fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tap_ok(ls_st_read_header(fd, "directory", &st, &err2) == LS_ERR_FORMAT, "reader, directory: %s",
           err2.message);
    close(fd);
}

int main(void)
{
    scratch_make();
    test_write();
    test_large();
    test_samples();
    test_refusals();
    remove_tree(scratch);
    return tap_done();
}
