/* Runs a fuzz target without a fuzzer, as an ordinary test: every file of its corpus as it is, cut
 * short at many places, and with single bits flipped. Deterministic; finds nothing new, but keeps
 * what was once found from coming back. `fuzz_NAME FILE...` runs only those files, as they are. */
#include "base/base.h"
#include "tests/tap.h"

#include <dirent.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exact-size copy, so that AddressSanitizer sees the first byte that is read too far. */
static void run_one(const char *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_cuts(const char *data, size_t size)
{
    size_t step = size / 256 + 1;
    for (size_t n = 0; n < size; n += step)
        run_one(data, n);
}

static void run_flips(char *data, size_t size)
{
    for (uint64_t i = 0; size && i < 512; i++) {
        uint64_t r = ls_mix64(i, size);
        size_t at = (size_t)(r >> 3) % size;
        /* Headers are where the decisions are: half of the flips go there. */
        if (i % 2 && size > 64)
            at %= 64;
        char old = data[at];
        data[at] = (char)(data[at] ^ (1 << (r & 7)));
        run_one(data, size);
        data[at] = old;
    }
}

static bool run_file(const char *path, bool mutate)
{
    char *data = NULL;
    size_t size = 0;
    struct ls_error err = {0};
    if (ls_file_read(path, 1 << 24, &data, &size, &err) != LS_OK) {
        tap_note("%s", err.message);
        return false;
    }
    run_one(data, size);
    if (mutate) {
        run_cuts(data, size);
        run_flips(data, size);
    }
    free(data);
    return true;
}

static int keep_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        tap_ok(run_file(argv[i], false), "%s", argv[i]);
    if (argc > 1)
        return tap_done();

    const char *name = strstr(argv[0], "fuzz_") ? strrchr(argv[0], '_') + 1 : argv[0];
    const char *srcdir = getenv("srcdir");
    char dir[4096], path[8192];
    snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name);
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, keep_visible, alphasort);
    tap_ok(n > 0, "%s has files", dir);
    run_one("", 0);
    tap_ok(true, "the empty input");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        tap_ok(run_file(path, true), "%s, cut short and with flipped bits", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return tap_done();
}
