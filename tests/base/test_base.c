/* The ground floor: errors, checked sizes, buffers, strings, files, random numbers. */
#include "base/base.h"
#include "tests/tap.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_error(void)
{
    struct ls_error err = {0};
    tap_ok(ls_error_set(&err, LS_ERR_FORMAT, "found %d", 7) == LS_ERR_FORMAT,
           "error_set returns its status");
    ls_error_set(&err, LS_ERR_IO, "later");
    tap_ok(err.status == LS_ERR_FORMAT && !strcmp(err.message, "found 7"), "the first error wins");
    tap_ok(ls_error_context(&err, "file %s", "a.idx") == LS_ERR_FORMAT &&
               !strcmp(err.message, "file a.idx: found 7"),
           "context goes in front: %s", err.message);

    err = (struct ls_error){0};
    tap_ok(ls_error_errno(&err, ENOENT, "cannot open x") == LS_ERR_NOTFOUND &&
               strstr(err.message, strerror(ENOENT)),
           "ENOENT: %s", err.message);
    err = (struct ls_error){0};
    tap_ok(ls_error_errno(&err, ENOMEM, "x") == LS_ERR_NOMEM, "ENOMEM chooses its status");
    err = (struct ls_error){0};
    tap_ok(ls_error_errno(&err, EACCES, "x") == LS_ERR_IO, "anything else is an I/O error");
    tap_ok(ls_error_set(NULL, LS_ERR_IO, "nobody listens") == LS_ERR_IO, "err may be NULL");

    char big[2000];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    err = (struct ls_error){0};
    ls_error_set(&err, LS_ERR_IO, "%s", big);
    ls_error_context(&err, "%s", big);
    tap_ok(strlen(err.message) < sizeof(err.message), "messages that are too long are cut");
}

static void test_sizes(void)
{
    int64_t out = 42;
    tap_ok(ls_mul_i64(1 << 20, 1 << 20, &out) && out == (int64_t)1 << 40, "a product that fits");
    out = 42;
    tap_ok(!ls_mul_i64(INT64_MAX, 2, &out) && out == 42, "one that does not leaves *out alone");
    tap_ok(!ls_mul_i64(-1, 2, &out) && !ls_add_i64(-1, 2, &out) && out == 42,
           "negative operands are refused");
    tap_ok(ls_mul_i64(INT64_MAX, 0, &out) && out == 0, "zero times anything");
    out = 42;
    tap_ok(!ls_add_i64(INT64_MAX, 1, &out) && out == 42, "a sum that does not fit");
    tap_ok(ls_add_i64(INT64_MAX - 1, 1, &out) && out == INT64_MAX, "a sum that just fits");

    const int64_t shape[] = {2, 3, 4}, huge[] = {INT64_MAX, INT64_MAX};
    tap_ok(ls_shape_numel(shape, 3, &out) && out == 24, "2 x 3 x 4");
    tap_ok(ls_shape_numel(NULL, 0, &out) && out == 1, "a scalar has one element");
    tap_ok(!ls_shape_numel(huge, 2, &out), "a shape that overflows");
    tap_ok(ls_round_up(0, 64) == 0 && ls_round_up(1, 64) == 64 && ls_round_up(64, 64) == 64 &&
               ls_round_up(65, 64) == 128,
           "round up");
}

static void test_memory(void)
{
    int *array = NULL, cap = 0;
    bool zero = true;
    for (int n = 1; n <= 1000; n++) {
        if (!ls_grow(&array, &cap, n, sizeof(*array)))
            break;
        zero = zero && array[n - 1] == 0;
        array[n - 1] = n;
    }
    tap_ok(cap >= 1000 && array[0] == 1 && array[999] == 1000,
           "a growing array keeps its elements");
    tap_ok(zero, "new elements are zero");
    free(array);

    struct ls_arena arena = {0};
    bool aligned = true, clear = true;
    for (size_t n = 0; n < 300; n++) {
        unsigned char *p = ls_arena_alloc(&arena, n * 37);
        aligned = aligned && p && (uintptr_t)p % _Alignof(max_align_t) == 0;
        for (size_t i = 0; p && i < n * 37; i++) {
            clear = clear && p[i] == 0;
            p[i] = 0xff;
        }
    }
    tap_ok(aligned, "arena memory is aligned for any type");
    tap_ok(clear, "and zeroed, and nobody else's");
    tap_ok(!strcmp(ls_arena_strdup(&arena, "abc"), "abc") &&
               !strcmp(ls_arena_printf(&arena, "%s-%d", "x", 5), "x-5"),
           "strings in an arena");
    ls_arena_free(&arena);
    tap_ok(arena.head == NULL, "an arena is empty after free");
}

static void test_buf(void)
{
    struct ls_buf buf;
    ls_buf_init(&buf, 100);
    for (int i = 0; i < 10; i++)
        ls_buf_printf(&buf, "%d,", i);
    tap_ok(!buf.failed && buf.len == 20 && !strcmp(buf.data, "0,1,2,3,4,5,6,7,8,9,"),
           "text is collected");
    ls_buf_add(&buf, "ab\0c", 4);
    tap_ok(buf.len == 24 && buf.data[24] == 0, "bytes with NUL among them");
    for (int i = 0; i < 100; i++)
        ls_buf_printf(&buf, "%s", "0123456789");
    tap_ok(buf.failed && buf.len <= 100, "the maximum holds, and is noticed");
    ls_buf_free(&buf);
}

static void test_strings(void)
{
    tap_ok(ls_edit_distance("", "") == 0 && ls_edit_distance("steps", "steps") == 0, "no distance");
    tap_ok(ls_edit_distance("", "abc") == 3 && ls_edit_distance("abc", "") == 3, "to nothing");
    tap_ok(ls_edit_distance("stpes", "steps") == 1, "neighbours swapped: 1");
    tap_ok(ls_edit_distance("kitten", "sitting") == 3, "kitten, sitting: 3");
    tap_ok(ls_edit_distance("LR", "lr") == 2, "case counts");

    char bytes[24], count[32];
    tap_ok(!strcmp(ls_format_bytes(1536 * 1024, bytes), "1.5 MiB"), "1.5 MiB: %s", bytes);
    tap_ok(strstr(ls_format_bytes(0, bytes), "0 ") == bytes, "no bytes: %s", bytes);
    tap_ok(strlen(ls_format_bytes(INT64_MAX, bytes)) < 24, "all bytes: %s", bytes);
    tap_ok(!strcmp(ls_format_count(12345678, count), "12,345,678"), "12,345,678: %s", count);
    tap_ok(!strcmp(ls_format_count(999, count), "999"), "999: %s", count);
    tap_ok(!strcmp(ls_format_count(-1000, count), "-1,000"), "-1,000: %s", count);
}

static void test_files(void)
{
    const char *base = getenv("TMPDIR");
    char dir[512], path[600], deep[700];
    snprintf(dir, sizeof(dir), "%s/ls-base-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(dir)) {
        tap_ok(false, "mkdtemp %s", dir);
        return;
    }
    snprintf(path, sizeof(path), "%s/file", dir);
    snprintf(deep, sizeof(deep), "%s/a/b/c", dir);

    struct ls_error err = {0};
    char *data = NULL;
    size_t size = 0;
    tap_ok(ls_file_read(path, 100, &data, &size, &err) == LS_ERR_NOTFOUND &&
               strstr(err.message, path),
           "a missing file is named: %s", err.message);
    tap_ok(ls_file_replace(path, "first", 5, NULL) == LS_OK &&
               ls_file_replace(path, "second", 6, NULL) == LS_OK,
           "a file is written, then replaced");
    tap_ok(ls_file_read(path, 6, &data, &size, NULL) == LS_OK && size == 6 && data &&
               !strcmp(data, "second"),
           "and read, with a NUL behind it");
    free(data);
    err = (struct ls_error){0};
    tap_ok(ls_file_read(path, 5, &data, &size, &err) == LS_ERR_OVERFLOW, "one byte too long: %s",
           err.message);
    err = (struct ls_error){0};
    tap_ok(ls_file_read(dir, 100, &data, &size, &err) != LS_OK, "a directory is no file: %s",
           err.message);

    struct stat st;
    tap_ok(ls_dir_make(deep, NULL) == LS_OK && !stat(deep, &st) && S_ISDIR(st.st_mode) &&
               ls_dir_make(deep, NULL) == LS_OK,
           "directories are made with their parents, and may be there");
    tap_ok(ls_dir_sync(deep, NULL) == LS_OK, "a directory is synced");
    snprintf(deep, sizeof(deep), "%s/file/x", dir);
    err = (struct ls_error){0};
    tap_ok(ls_dir_make(deep, &err) != LS_OK && err.message[0], "below a file: %s", err.message);
    err = (struct ls_error){0};
    tap_ok(ls_file_replace(deep, "x", 1, &err) != LS_OK && err.message[0],
           "a file below a file: %s", err.message);

    unlink(path);
    for (const char *const *sub = (const char *const[]){"a/b/c", "a/b", "a", NULL}; *sub; sub++) {
        snprintf(deep, sizeof(deep), "%s/%s", dir, *sub);
        rmdir(deep);
    }
    tap_ok(rmdir(dir) == 0, "no temporary file is left");
}

static void test_time(void)
{
    double a = ls_time_monotonic(), b = ls_time_monotonic();
    tap_ok(b >= a, "monotonic time does not go back");
    tap_ok(ls_time_wall() > 1.6e9, "the wall clock is past 2020");
    double since = ls_time_since_exec();
    tap_ok(since < 0 || since < 3600, "this test is young");
}

static void test_random(void)
{
    /* The known-answer vectors of the Random123 distribution for philox4x32-10 are keyed by two
     * 32-bit words and four counter words; zero everywhere is one of them. */
    uint32_t out[4];
    ls_philox(0, 0, 0, out);
    tap_ok(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c &&
               out[3] == 0x9b00dbd8,
           "Philox of zero is the published vector: %08x %08x %08x %08x", out[0], out[1], out[2],
           out[3]);
    tap_ok(ls_hash64("") == 0xcbf29ce484222325 && ls_hash64("a") == 0xaf63dc4c8601ec8c,
           "FNV-1a of \"\" and \"a\"");
    tap_ok(ls_mix64(1, 2) != ls_mix64(2, 1), "mixing depends on the order");

    double sum = 0, square = 0, low = 1, high = 0;
    const int n = 100000;
    for (int i = 0; i < n; i++) {
        double u = ls_uniform(7, 3, (uint64_t)i), z = ls_normal(7, 3, (uint64_t)i);
        low = u < low ? u : low;
        high = u > high ? u : high;
        sum += z;
        square += z * z;
    }
    tap_ok(low > 0 && high < 1 && low < 1e-3 && high > 1 - 1e-3, "uniforms fill (0, 1)");
    /* Five standard errors. */
    tap_ok(fabs(sum / n) < 5 / sqrt(n), "normals have mean 0: %g", sum / n);
    tap_ok(fabs(square / n - 1) < 5 * sqrt(2.0 / n), "and variance 1: %g", square / n);
    tap_ok(ls_uniform(7, 3, 12345) == ls_uniform(7, 3, 12345) &&
               ls_uniform(7, 3, 12345) != ls_uniform(8, 3, 12345) &&
               ls_uniform(7, 3, 12345) != ls_uniform(7, 4, 12345),
           "a pure function of key, stream and index");
}

int main(void)
{
    test_error();
    test_sizes();
    test_memory();
    test_buf();
    test_strings();
    test_files();
    test_time();
    test_random();
    return tap_done();
}
