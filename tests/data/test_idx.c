/* IDX files: what is read, and every kind of file that must be refused. */
#include "data/internal.h"
#include "tests/data/files.h"

#include <errno.h>
#include <sys/syscall.h>

/* ---- a pread that misbehaves on demand ------------------------------------------------------- */

static enum { PREAD_WELL, PREAD_SHORT, PREAD_EINTR, PREAD_EIO, PREAD_SHRUNK } pread_mode;
static int pread_calls;

ssize_t pread(int fd, void *out, size_t size, off_t at)
{
    pread_calls++;
    if (pread_mode == PREAD_EINTR && pread_calls % 2) {
        errno = EINTR;
        return -1;
    }
    if (pread_mode == PREAD_EIO && at > 0) {
        errno = EIO;
        return -1;
    }
    if (pread_mode == PREAD_SHRUNK && at >= 30)
        return 0;
    if (pread_mode != PREAD_WELL && size > 7)
        size = 7;
    return (ssize_t)syscall(SYS_pread64, fd, out, size, at);
}

/* ---- helpers --------------------------------------------------------------------------------- */

static struct bytes plain, packed;
static const uint32_t cube[4] = {5, 4, 3, 2};

static bool same_data(const struct ls_idx *idx, const struct bytes *b, size_t header)
{
    return idx->bytes == (int64_t)(b->size - header) &&
           memcmp(idx->data, b->data + header, b->size - header) == 0;
}

/* Parses from memory and expects a refusal whose message names the file and holds `part`. */
static bool refused(const void *bytes, size_t size, enum ls_status status, const char *part)
{
    struct ls_error err = {0};
    struct ls_idx idx = {.ndim = -7};
    enum ls_status got = ls_idx_parse("file.idx", bytes, size, &idx, &err);
    bool good = got == status && err.status == status && strstr(err.message, "file.idx") &&
                strstr(err.message, part) && idx.ndim == -7 && !idx.data;
    if (!good)
        tap_note("got %s: %s", ls_status_name(got), err.message);
    return good;
}

static bool refused_file(const char *path, enum ls_status status, const char *part)
{
    struct ls_error err = {0};
    struct ls_idx idx = {0};
    enum ls_status got = ls_idx_open(path, &idx, &err);
    bool good =
        got == status && strstr(err.message, path) && strstr(err.message, part) && !idx.data;
    if (!good)
        tap_note("got %s: %s", ls_status_name(got), err.message);
    ls_idx_close(&idx);
    return good;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void test_good(void)
{
    for (int ndim = 1; ndim <= 4; ndim++) {
        struct ls_idx idx = {0};
        struct ls_error err = {0};
        size_t header = 4 + 4 * (size_t)ndim;
        make_idx(&plain, ndim, cube, 1, 256);
        bool good = ls_idx_parse("x", plain.data, plain.size, &idx, &err) == LS_OK &&
                    idx.ndim == ndim && same_data(&idx, &plain, header) &&
                    (uintptr_t)idx.data % 64 == 0;
        for (int i = 0; i < ndim; i++)
            good = good && idx.shape[i] == cube[i];
        ls_idx_close(&idx);
        tap_ok(good && !idx.data, "%d dimensions, plain, from memory", ndim);
        ls_idx_close(&idx);

        const char *path = put("plain", plain.data, plain.size);
        good = ls_idx_open(path, &idx, &err) == LS_OK && same_data(&idx, &plain, header);
        tap_ok(good, "%d dimensions, plain, from a file", ndim);
        ls_idx_close(&idx);
        unlink(path);

        for (int level = 0; level <= 12; level += 4) {
            packed.size = 0;
            add_gzip(&packed, plain.data, plain.size, level);
            path = put("any-name", packed.data, packed.size);
            good = ls_idx_open(path, &idx, &err) == LS_OK && same_data(&idx, &plain, header) &&
                   (uintptr_t)idx.data % 64 == 0;
            tap_ok(good, "%d dimensions, gzip level %d, by content and not by name", ndim, level);
            ls_idx_close(&idx);
            unlink(path);
        }
    }
    struct ls_idx idx = {0};
    uint32_t none = 0;
    make_idx(&plain, 1, &none, 1, 256);
    tap_ok(ls_idx_parse("x", plain.data, plain.size, &idx, NULL) == LS_OK && idx.bytes == 0,
           "an empty array is an IDX file");
    ls_idx_close(&idx);
}

static void test_members(void)
{
    struct ls_idx idx = {0};
    make_idx(&plain, 3, cube, 2, 256);
    packed.size = 0;
    add_gzip(&packed, plain.data, 30, 6);
    add_gzip(&packed, plain.data + 30, plain.size - 30, 6);
    add_gzip(&packed, plain.data, 0, 6);
    tap_ok(ls_idx_parse("x", packed.data, packed.size, &idx, NULL) == LS_OK &&
               same_data(&idx, &plain, 16),
           "gzip of three members, the last one empty");
    ls_idx_close(&idx);
    packed.size = 0;
    add_gzip(&packed, plain.data, 30, 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "truncated at byte 30 of 76"),
           "the first of two members alone");
    packed.size = 0;
    add_gzip(&packed, plain.data, plain.size, 6);
    add_gzip(&packed, "x", 1, 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "more than the 76 bytes"),
           "a member too many");
    packed.size = 0;
    add_gzip(&packed, plain.data, 6, 6);
    add_gzip(&packed, plain.data + 6, plain.size - 6, 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "inside its header"),
           "a member that ends inside the header");
}

static void test_reads(void)
{
    struct ls_idx idx = {0};
    make_idx(&plain, 3, cube, 3, 256);
    packed.size = 0;
    add_gzip(&packed, plain.data, plain.size, 6);
    const char *path = put("plain", plain.data, plain.size);
    const char *gz = put("gz", packed.data, packed.size);
    static const char *const names[] = {"whole", "short", "interrupted"};
    for (pread_mode = PREAD_WELL; pread_mode <= PREAD_EINTR; pread_mode++) {
        tap_ok(ls_idx_open(path, &idx, NULL) == LS_OK && same_data(&idx, &plain, 16),
               "%s reads, plain", names[pread_mode]);
        ls_idx_close(&idx);
        tap_ok(ls_idx_open(gz, &idx, NULL) == LS_OK && same_data(&idx, &plain, 16),
               "%s reads, gzip", names[pread_mode]);
        ls_idx_close(&idx);
    }
    tap_ok(pread_calls > 10, "the reads above were the test's own");
    pread_mode = PREAD_EIO;
    tap_ok(refused_file(path, LS_ERR_IO, "Input/output error"), "a read error, plain");
    tap_ok(refused_file(gz, LS_ERR_IO, "Input/output error"), "a read error, gzip");
    pread_mode = PREAD_SHRUNK;
    tap_ok(refused_file(path, LS_ERR_IO, "shrank to 3"), "a file that shrinks, plain");
    tap_ok(refused_file(gz, LS_ERR_IO, "shrank to 3"), "a file that shrinks, gzip");
    pread_mode = PREAD_WELL;
    unlink(path);
    unlink(gz);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_not_a_file(void)
{
    tap_ok(refused_file(temp_path("absent"), LS_ERR_NOTFOUND, "No such file"), "a missing file");
    tap_ok(refused_file(temp_dir, LS_ERR_IO, "directory"), "a directory");
    tap_ok(refused_file("/dev/null", LS_ERR_IO, "device"), "a device");
    const char *fifo = temp_path("fifo");
    if (mkfifo(fifo, 0600) == 0)
        tap_ok(refused_file(fifo, LS_ERR_IO, "FIFO"), "a FIFO, without waiting for a writer");
    unlink(fifo);
    const char *empty = put("empty", "", 0);
    tap_ok(refused_file(empty, LS_ERR_FORMAT, "truncated at byte 0"), "an empty file");
    unlink(empty);
}

static void test_plain_refused(void)
{
    make_idx(&plain, 3, cube, 4, 256);
    int bad = 0;
    for (size_t n = 0; n < plain.size; n++)
        bad += !refused(plain.data, n, LS_ERR_FORMAT, "truncated at byte");
    tap_ok(bad == 0, "every cut of a plain file");
    tap_ok(refused(plain.data, plain.size - 1, LS_ERR_FORMAT, "byte 75 of 76"), "a byte missing");
    add(&plain, "12345", 5);
    tap_ok(refused(plain.data, plain.size, LS_ERR_FORMAT, "5 bytes too long"), "5 bytes too many");
    const char *path = put("long", plain.data, plain.size);
    tap_ok(refused_file(path, LS_ERR_FORMAT,
                        "5 bytes too long, expected 76 (its header announces "
                        "5 x 4 x 3)"),
           "5 bytes too many, in a file");
    unlink(path);
    path = put("cut", plain.data, 40);
    tap_ok(refused_file(path, LS_ERR_FORMAT, "truncated at byte 40 of 76"), "cut, in a file");
    unlink(path);

    static const uint8_t png[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};
    tap_ok(refused(png, sizeof png, LS_ERR_FORMAT, "wrong magic 89 50 4e 47"), "a PNG file");
    static const uint8_t types[] = {0x09, 0x0B, 0x0C, 0x0D, 0x0E};
    static const char *const names[] = {"signed byte", "16-bit", "32-bit", "float", "double"};
    for (int i = 0; i < 5; i++) {
        plain.size = 0;
        add_header(&plain, types[i], 1, (uint32_t[]){4});
        add(&plain, "0123456789abcdef0123456789abcdef", 32);
        tap_ok(refused(plain.data, plain.size, LS_ERR_UNSUPPORTED, names[i]), "elements of type %s",
               names[i]);
    }
    plain.size = 0;
    add_header(&plain, 0x0A, 1, (uint32_t[]){4});
    tap_ok(refused(plain.data, plain.size, LS_ERR_FORMAT, "wrong magic"), "an unknown type");
    plain.size = 0;
    add_header(&plain, 8, 0, NULL);
    tap_ok(refused(plain.data, plain.size, LS_ERR_FORMAT, "wrong magic"), "no dimensions");
    plain.size = 0;
    add_header(&plain, 8, 5, (uint32_t[]){1, 1, 1, 1, 1});
    add(&plain, "x", 1);
    tap_ok(refused(plain.data, plain.size, LS_ERR_UNSUPPORTED, "5 dimensions"), "5 dimensions");
    plain.size = 0;
    add_header(&plain, 8, 4, (uint32_t[]){~0u, ~0u, ~0u, ~0u});
    tap_ok(refused(plain.data, plain.size, LS_ERR_OVERFLOW, "4294967295 x 4294967295"),
           "a size that overflows");
    plain.size = 0;
    add_header(&plain, 8, 2, (uint32_t[]){~0u, 0x7FFFFFFF});
    tap_ok(refused(plain.data, plain.size, LS_ERR_FORMAT, "truncated at byte 12"),
           "a huge size in a small file takes no memory");
}

static void test_gzip_refused(void)
{
    make_idx(&plain, 3, cube, 5, 64);
    packed.size = 0;
    add_gzip(&packed, plain.data, plain.size, 6);
    int bad = 0;
    for (size_t n = 2; n < packed.size; n++)
        bad += !refused(packed.data, n, LS_ERR_FORMAT, "corrupt or truncated gzip");
    tap_ok(bad == 0, "every cut of a gzip file");

    /* A flipped bit may hit a field that carries no data (time, system): then nothing changes. */
    int passed = 0, changed = 0;
    for (size_t i = 2; i < packed.size; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct ls_idx idx = {0};
            packed.data[i] ^= (uint8_t)(1 << bit);
            if (ls_idx_parse("x", packed.data, packed.size, &idx, NULL) == LS_OK) {
                passed++;
                changed += !same_data(&idx, &plain, 16);
            }
            ls_idx_close(&idx);
            packed.data[i] ^= (uint8_t)(1 << bit);
        }
    tap_ok(changed == 0, "no flipped bit changes the data unseen");
    tap_ok(passed <= 8 * 7, "flipped bits outside of time, flags and system are refused (%d pass)",
           passed);

    size_t size = packed.size;
    add(&packed, "junk", 4);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "4 bytes too long"), "4 bytes behind");
    packed.size = size;
    add(&packed, "\x1f\x8bjunk", 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "corrupt or truncated"),
           "something like a member behind");
    packed.size = 0;
    add_gzip(&packed, plain.data, plain.size - 1, 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "truncated at byte 75 of 76"),
           "a good gzip file of a cut IDX file");
    packed.size = 0;
    add_gzip(&packed, "", 0, 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "truncated at byte 0"),
           "gzip of nothing");
}

static void test_bombs(void)
{
    size_t size = (size_t)32 << 20;
    uint8_t *zeros = calloc(1, size);
    uint8_t head[] = {0, 0, 8, 1, 0, 0, 0, 16};
    packed.size = 0;
    if (!zeros)
        abort();
    add_gzip(&packed, zeros, size, 9);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "wrong magic 00 00 00 00"),
           "a bomb of zeros is refused by its first bytes");
    memcpy(zeros, head, sizeof head);
    packed.size = 0;
    add_gzip(&packed, zeros, size, 9);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "more than the 24 bytes"),
           "a bomb behind a small header gets no more than the header says");
    free(zeros);
    plain.size = packed.size = 0;
    add_header(&plain, 8, 2, (uint32_t[]){1 << 20, 1 << 20});
    add_gzip(&packed, plain.data, plain.size, 6);
    tap_ok(refused(packed.data, packed.size, LS_ERR_FORMAT, "cannot hold more than 1032 times"),
           "a header that announces more than the file can hold takes no memory");
}

static void test_random(void)
{
    int parsed = 0;
    for (uint64_t k = 0; k < 4000; k++) {
        uint8_t bytes[96];
        struct ls_idx idx = {0};
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = noise(k, i);
        if (k % 4 == 1)
            memcpy(bytes, "\x1f\x8b\x08\x00", 4);
        if (k % 4 == 2)
            memcpy(bytes, "\x00\x00\x08", 3);
        parsed += ls_idx_parse("x", bytes, k % sizeof bytes, &idx, NULL) == LS_OK;
        ls_idx_close(&idx);
    }
    tap_ok(parsed == 0, "random bytes, some behind a gzip or IDX magic");
}

/* ---- the small inflater against the whole one ------------------------------------------------- */

static bool head_agrees(const struct bytes *gz, const uint8_t *data, size_t size)
{
    for (size_t want = 0; want <= 32; want++) {
        uint8_t out[32];
        size_t got = 99, least = want < size ? want : size;
        if (!ls_data_gzip_head(gz->data, gz->size, out, want, &got) || got != least ||
            memcmp(out, data, got) != 0)
            return false;
    }
    return true;
}

static void test_head(void)
{
    static uint8_t data[4096];
    int bad = 0;
    for (uint64_t k = 0; k < 300; k++) {
        /* Few different values make matches, and matches that overlap themselves. */
        size_t size = k < 40 ? k : 64 * (k % 60);
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)(noise(k, i / (1 + k % 5)) % (1 + k % 9 * 31));
        packed.size = 0;
        add_gzip(&packed, data, size, (int)(k % 13));
        if (!head_agrees(&packed, data, size)) {
            tap_note("case %d, %zu bytes", (int)k, size);
            bad++;
        }
    }
    tap_ok(bad == 0, "the head of stored, fixed and dynamic blocks");

    packed.size = plain.size = 0;
    add_gzip(&packed, data, 200, 6);
    add(&plain, packed.data, 10);
    plain.data[3] = 0x1F; /* text, header CRC, extra field, name, comment */
    add(&plain,
        "\x03\x00"
        "abc"
        "name\0"
        "comment\0"
        "\xAA\xBB",
        20);
    add(&plain, packed.data + 10, packed.size - 10);
    tap_ok(head_agrees(&plain, data, 200), "the head behind every optional field");
}

int main(void)
{
    temp_make();
    test_good();
    test_members();
    test_reads();
    test_not_a_file();
    test_plain_refused();
    test_gzip_refused();
    test_bombs();
    test_random();
    test_head();
    temp_remove();
    return tap_done();
}
