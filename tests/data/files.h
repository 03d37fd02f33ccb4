/* Helpers of the data tests: files in a temporary directory that is removed at the end, IDX bytes,
 * gzip, and numbers that are the same in every run. */
#ifndef LS_TEST_DATA_FILES_H
#define LS_TEST_DATA_FILES_H

#include "data/data.h"
#include "tests/tap.h"

#include <libdeflate.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static char temp_dir[512];

UNUSED static void temp_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(temp_dir, sizeof temp_dir, "%s/ls-data-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(temp_dir)) {
        perror(temp_dir);
        exit(99);
    }
}

/* A path in the temporary directory; good until 8 calls later. */
UNUSED static const char *temp_path(const char *name)
{
    static char paths[8][768];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir, name);
    return path;
}

/* Every test removes the files it made by name; what is left makes rmdir fail, loudly. */
UNUSED static void temp_remove(void)
{
    if (rmdir(temp_dir) != 0)
        perror(temp_dir);
}

UNUSED static const char *put(const char *name, const void *bytes, size_t size)
{
    const char *path = temp_path(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(99);
    }
    return path;
}

struct bytes {
    size_t size;
    uint8_t data[1 << 16];
};

/* Appends to `b`, which must have room. */
UNUSED static void add(struct bytes *b, const void *data, size_t size)
{
    if (size > sizeof b->data - b->size)
        abort();
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

UNUSED static void add_header(struct bytes *b, int type, int ndim, const uint32_t *shape)
{
    uint8_t magic[4] = {0, 0, (uint8_t)type, (uint8_t)ndim};
    add(b, magic, 4);
    for (int i = 0; i < ndim; i++) {
        uint8_t big[4] = {(uint8_t)(shape[i] >> 24), (uint8_t)(shape[i] >> 16),
                          (uint8_t)(shape[i] >> 8), (uint8_t)shape[i]};
        add(b, big, 4);
    }
}

UNUSED static uint8_t noise(uint64_t seed, uint64_t i)
{
    return (uint8_t)(ls_mix64(seed, i) >> 32);
}

/* A whole IDX file of unsigned bytes whose value i is noise(seed, i) % limit. */
UNUSED static void make_idx(struct bytes *b, int ndim, const uint32_t *shape, uint64_t seed,
                            int limit)
{
    size_t n = 1;
    b->size = 0;
    add_header(b, 8, ndim, shape);
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    for (size_t i = 0; i < n; i++) {
        uint8_t value = (uint8_t)(noise(seed, i) % limit);
        add(b, &value, 1);
    }
}

UNUSED static void add_gzip(struct bytes *out, const void *data, size_t size, int level)
{
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(level);
    size_t n = libdeflate_gzip_compress(c, data, size, out->data + out->size,
                                        sizeof out->data - out->size);
    libdeflate_free_compressor(c);
    if (n == 0)
        abort();
    out->size += n;
}

#endif
