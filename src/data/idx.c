/* IDX files, plain or gzip, into memory. The header decides the size of everything: it is judged
 * first, then exactly that many bytes are taken, then nothing may be left over. */
#include "data/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DIMS   4
#define MAX_HEADER (4 + 4 * MAX_DIMS)
/* Data starts this far into its mapping, so that a header of any length fits in front of it and
 * the data itself stays aligned. */
#define FRONT 64
/* Deflate needs at least 2 bits for 258 bytes of output (RFC 1951, 3.2.5). */
#define DEFLATE_MAX_RATIO 1032

static bool is_gzip(const uint8_t *bytes, size_t size)
{
    return size >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

static const char *shape_text(const struct ls_idx *idx, char out[static 64])
{
    int n = 0;
    for (int i = 0; i < idx->ndim; i++)
        n += snprintf(out + n, 64 - (size_t)n, "%s%" PRId64, i ? " x " : "", idx->shape[i]);
    return out;
}

/* Judges the header in `head`, of which `have` bytes are there; sets all of *idx but data. */
static enum ls_status read_header(const char *name, const uint8_t *head, size_t have,
                                  struct ls_idx *idx, size_t *size, struct ls_error *err)
{
    static const char *const types[] = {[0x09] = "signed byte",
                                        [0x0B] = "16-bit integer",
                                        [0x0C] = "32-bit integer",
                                        [0x0D] = "float",
                                        [0x0E] = "double"};
    if (have < 4)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: truncated at byte %zu, an IDX header has at least 8; copy the "
                            "file again",
                            name, have);
    const char *type =
        head[2] < sizeof types / sizeof *types && !head[0] && !head[1] ? types[head[2]] : NULL;
    if (type)
        return ls_error_set(err, LS_ERR_UNSUPPORTED,
                            "%s: found elements of type %s (0x%02x), only unsigned bytes (0x08) "
                            "are supported; convert the file",
                            name, type, head[2]);
    if (head[0] || head[1] || head[2] != 0x08 || head[3] == 0)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: wrong magic %02x %02x %02x %02x, an IDX file of unsigned bytes "
                            "starts with 00 00 08 and the number of dimensions; is it the right "
                            "file?",
                            name, head[0], head[1], head[2], head[3]);
    if (head[3] > MAX_DIMS)
        return ls_error_set(err, LS_ERR_UNSUPPORTED,
                            "%s: found %d dimensions, at most %d are supported", name, head[3],
                            MAX_DIMS);
    *size = 4 + 4 * (size_t)head[3];
    if (have < *size)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: truncated at byte %zu, inside its header of %zu bytes; copy the "
                            "file again",
                            name, have, *size);
    idx->ndim = head[3];
    for (int i = 0; i < idx->ndim; i++) {
        const uint8_t *b = head + 4 + 4 * i;
        idx->shape[i] = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
    }
    char shape[64];
    int64_t whole;
    if (!ls_shape_numel(idx->shape, idx->ndim, &idx->bytes) ||
        !ls_add_i64(idx->bytes, MAX_HEADER, &whole))
        return ls_error_set(err, LS_ERR_OVERFLOW,
                            "%s: its header announces %s bytes, more than fit in memory; the file "
                            "is damaged",
                            name, shape_text(idx, shape));
    return LS_OK;
}

/* Compares the size of the (inflated) file with what its header announces. */
static enum ls_status check_size(const char *name, const struct ls_idx *idx, size_t header,
                                 int64_t found, struct ls_error *err)
{
    int64_t whole = (int64_t)header + idx->bytes;
    char shape[64];
    if (found < whole)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: truncated at byte %" PRId64 " of %" PRId64
                            " (its header announces %s); copy the file again",
                            name, found, whole, shape_text(idx, shape));
    if (found > whole)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: %" PRId64 " bytes too long, expected %" PRId64
                            " (its header announces %s); copy the file again",
                            name, found - whole, whole, shape_text(idx, shape));
    return LS_OK;
}

static enum ls_status allocate(const char *name, struct ls_idx *idx, struct ls_error *err)
{
    uint8_t *memory = ls_data_map(FRONT + idx->bytes);
    if (!memory)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: no memory for %" PRId64 " bytes", name,
                            idx->bytes);
    idx->data = memory + FRONT;
    return LS_OK;
}

/* Inflates all members of `bytes` into exactly `whole` bytes at `out`. */
static enum ls_status inflate(const char *name, const uint8_t *bytes, size_t size, uint8_t *out,
                              const struct ls_idx *idx, size_t header, struct ls_error *err)
{
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: no memory to inflate it", name);
    size_t at = 0, done = 0, whole = header + (size_t)idx->bytes;
    enum libdeflate_result result = LIBDEFLATE_SUCCESS;
    enum ls_status status = LS_OK;
    while (at < size && is_gzip(bytes + at, size - at)) {
        size_t used, made;
        result = libdeflate_gzip_decompress_ex(inflater, bytes + at, size - at, out + done,
                                               whole - done, &used, &made);
        if (result != LIBDEFLATE_SUCCESS)
            break;
        at += used;
        done += made;
    }
    libdeflate_free_decompressor(inflater);
    char shape[64];
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
        status = ls_error_set(
            err, LS_ERR_FORMAT,
            "%s: corrupt or truncated gzip data: it inflates to more than the %zu bytes that "
            "its header announces (%s); copy the file again",
            name, whole, shape_text(idx, shape));
    else if (result != LIBDEFLATE_SUCCESS)
        status = ls_error_set(err, LS_ERR_FORMAT,
                              "%s: corrupt or truncated gzip data (member at byte %zu of %zu); "
                              "copy the file again",
                              name, at, size);
    else if (at < size)
        status = ls_error_set(err, LS_ERR_FORMAT,
                              "%s: %zu bytes too long: what follows the gzip data at byte %zu is "
                              "not gzip; copy the file again",
                              name, size - at, at);
    else
        status = check_size(name, idx, header, (int64_t)done, err);
    return status;
}

static enum ls_status parse_gzip(const char *name, const uint8_t *bytes, size_t size,
                                 struct ls_idx *idx, struct ls_error *err)
{
    uint8_t head[MAX_HEADER];
    size_t have, header;
    struct ls_idx found = {0};
    if (!ls_data_gzip_head(bytes, size, head, sizeof head, &have))
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: corrupt or truncated gzip data (at its very start, %zu bytes in "
                            "all); copy the file again",
                            name, size);
    LS_TRY(read_header(name, head, have, &found, &header, err));
    if (found.bytes / DEFLATE_MAX_RATIO > (int64_t)size) {
        char shape[64];
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: its header announces %s bytes, but %zu bytes of gzip data cannot "
                            "hold more than %d times their size; copy the file again",
                            name, shape_text(&found, shape), size, DEFLATE_MAX_RATIO);
    }
    LS_TRY(allocate(name, &found, err));
    uint8_t *start = found.data - header;
    enum ls_status status = inflate(name, bytes, size, start, &found, header, err);
    /* Both inflaters must agree; the CRC has been checked by now, so this would be our bug. */
    if (status == LS_OK && memcmp(start, head, header) != 0)
        status = ls_error_set(err, LS_ERR_INTERNAL, "%s: inflated its header in two ways", name);
    if (status == LS_OK)
        *idx = found;
    else
        ls_idx_close(&found);
    return status;
}

enum ls_status ls_idx_parse(const char *name, const uint8_t *bytes, size_t size, struct ls_idx *idx,
                            struct ls_error *err)
{
    if (is_gzip(bytes, size))
        return parse_gzip(name, bytes, size, idx, err);
    size_t header;
    struct ls_idx found = {0};
    LS_TRY(read_header(name, bytes, size, &found, &header, err));
    LS_TRY(check_size(name, &found, header, (int64_t)size, err));
    LS_TRY(allocate(name, &found, err));
    memcpy(found.data, bytes + header, (size_t)found.bytes);
    *idx = found;
    return LS_OK;
}

/* Reads exactly `size` bytes from offset `at`. */
static enum ls_status read_exactly(int fd, const char *path, uint8_t *out, size_t size, size_t at,
                                   struct ls_error *err)
{
    size_t got = 0;
    while (got < size) {
        ssize_t n = pread(fd, out + got, size - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_error_errno(err, errno, "reading %s", path);
        if (n == 0)
            return ls_error_set(err, LS_ERR_IO,
                                "%s: shrank to %zu bytes while it was read, expected %zu; is it "
                                "still being copied?",
                                path, at + got, at + size);
        got += (size_t)n;
    }
    return LS_OK;
}

static enum ls_status read_gzip(int fd, const char *path, int64_t size, struct ls_idx *idx,
                                struct ls_error *err)
{
    uint8_t *bytes = ls_data_map(size);
    if (!bytes)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: no memory for %" PRId64 " bytes", path, size);
    enum ls_status status = read_exactly(fd, path, bytes, (size_t)size, 0, err);
    if (status == LS_OK)
        status = ls_idx_parse(path, bytes, (size_t)size, idx, err);
    ls_data_unmap(bytes, size);
    return status;
}

/* Read, not mapped: a file that is cut while it is mapped would kill the process with SIGBUS. */
static enum ls_status read_file(int fd, const char *path, struct ls_idx *idx, struct ls_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ls_error_errno(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return ls_error_set(err, LS_ERR_IO, "%s: expected a regular file, found a %s", path,
                            S_ISDIR(st.st_mode)    ? "directory"
                            : S_ISFIFO(st.st_mode) ? "FIFO"
                                                   : "device");
    uint8_t head[MAX_HEADER];
    size_t header, have = st.st_size < MAX_HEADER ? (size_t)st.st_size : MAX_HEADER;
    LS_TRY(read_exactly(fd, path, head, have, 0, err));
    if (is_gzip(head, have))
        return read_gzip(fd, path, st.st_size, idx, err);
    struct ls_idx found = {0};
    LS_TRY(read_header(path, head, have, &found, &header, err));
    LS_TRY(check_size(path, &found, header, st.st_size, err));
    LS_TRY(allocate(path, &found, err));
    enum ls_status status = read_exactly(fd, path, found.data, (size_t)found.bytes, header, err);
    if (status == LS_OK)
        *idx = found;
    else
        ls_idx_close(&found);
    return status;
}

enum ls_status ls_idx_open(const char *path, struct ls_idx *idx, struct ls_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block us */
    if (fd < 0)
        return ls_error_errno(err, errno, "opening %s", path);
    enum ls_status status = read_file(fd, path, idx, err);
    close(fd);
    return status;
}

void ls_idx_close(struct ls_idx *idx)
{
    if (idx->data)
        ls_data_unmap(idx->data - FRONT, FRONT + idx->bytes);
    memset(idx, 0, sizeof *idx);
}
