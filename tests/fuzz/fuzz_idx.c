/* The IDX reader, plain and gzip: no crash, no unbounded memory, and what it accepts is consistent.
 * Its two inflaters must agree, too: the reader itself reports an internal error if they do not, and
 * the bytes as a bare deflate stream, without a CRC to guess, are tried on both. */
#include "data/internal.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare_inflaters(const uint8_t *data, size_t size)
{
    static const uint8_t header[10] = {0x1F, 0x8B, 8};
    size_t whole, head, room = 1 << 16;
    uint8_t *gzip = malloc(size + sizeof header), *out = malloc(room), first[32];
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!gzip || !out || !inflater)
        abort();
    memcpy(gzip, header, sizeof header);
    if (size)
        memcpy(gzip + sizeof header, data, size);
    bool got = ls_data_gzip_head(gzip, size + sizeof header, first, sizeof first, &head);
    /* libdeflate takes the two length symbols that RFC 1951 forbids; the head refuses them. */
    if (got && libdeflate_deflate_decompress(inflater, data, size, out, room, &whole) ==
                   LIBDEFLATE_SUCCESS) {
        size_t least = whole < sizeof first ? whole : sizeof first;
        if (head != least || memcmp(first, out, least) != 0)
            abort();
    }
    libdeflate_free_decompressor(inflater);
    free(out);
    free(gzip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    compare_inflaters(data, size);
    struct ls_idx idx = {0};
    struct ls_error err = {0};
    enum ls_status status = ls_idx_parse("fuzz", data, size, &idx, &err);
    if (status == LS_ERR_INTERNAL || (status == LS_OK) != (err.message[0] == '\0'))
        abort();
    if (status == LS_OK) {
        int64_t bytes;
        volatile uint8_t sum = 0;
        if (!ls_shape_numel(idx.shape, idx.ndim, &bytes) || bytes != idx.bytes)
            abort();
        for (int64_t i = 0; i < idx.bytes; i++)
            sum = (uint8_t)(sum + idx.data[i]);
    }
    ls_idx_close(&idx);
    return 0;
}
