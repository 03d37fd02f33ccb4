/* Safetensors files, good and bad, as bytes: each with our verdict and that of the reference
 * reader. Used by the reader's own test and by the comparison with the reference. */
#ifndef LS_TEST_CKPT_SAMPLES_H
#define LS_TEST_CKPT_SAMPLES_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum verdict { ACCEPTS, REJECTS, EITHER };
struct st_sample {
    const char *name;
    const char *header; /* NULL: `make` builds the bytes */
    int data;           /* bytes of data behind it */
    enum ls_status status;
    const char *message; /* a part of our message */
    enum verdict reference;
    void (*make)(struct ls_buf *buf);
};

static void put_header(struct ls_buf *b, uint64_t n, const char *text, size_t size, int data)
{
    for (int i = 0; i < 8; i++) {
        char c = (char)(n >> (8 * i) & 0xff);
        ls_buf_add(b, &c, 1);
    }
    ls_buf_add(b, text, size);
    for (int i = 0; i < data; i++)
        ls_buf_add(b, "\x01", 1);
}
static void put_json(struct ls_buf *b, struct ls_buf *json, int data)
{
    put_header(b, json->len, json->data, json->len, data);
    ls_buf_free(json);
}

static void make_empty(struct ls_buf *b)
{
    (void)b;
}
static void make_short(struct ls_buf *b)
{
    ls_buf_add(b, "\2\0\0\0\0\0\0", 7);
}
static void make_beyond(struct ls_buf *b)
{
    put_header(b, 60, "{}", 2, 0);
}
static void make_ff(struct ls_buf *b)
{
    put_header(b, UINT64_C(0xff00000000000002), "{}", 2, 0);
}
static void make_over_limit(struct ls_buf *b)
{
    put_header(b, 100000001, "{}", 2, 0);
}
static void make_nul_padding(struct ls_buf *b)
{
    put_header(b, 4, "{}\0\0", 4, 0);
}
static void make_same_range(struct ls_buf *b)
{
    struct ls_buf j;
    ls_buf_init(&j, (size_t)64 << 20);
    for (int i = 0; i < 100000; i++)
        ls_buf_printf(
            &j, "%c\"t%d\":{\"dtype\":\"F32\",\"shape\":[200,200],\"data_offsets\":[0,160000]}",
            i ? ',' : '{', i);
    ls_buf_printf(&j, "}");
    put_json(b, &j, 160000);
}
static void make_many(struct ls_buf *b)
{
    struct ls_buf j;
    ls_buf_init(&j, (size_t)64 << 20);
    for (int i = 0; i < 300000; i++)
        ls_buf_printf(&j, "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                      i ? ',' : '{', i);
    ls_buf_printf(&j, "}");
    put_json(b, &j, 0);
}
static void make_commas(struct ls_buf *b)
{
    struct ls_buf j;
    ls_buf_init(&j, (size_t)64 << 20);
    ls_buf_printf(&j, "{\"a\":[{}");
    for (int i = 0; i < 3000000; i++)
        ls_buf_add(&j, ",{}", 3);
    ls_buf_printf(&j, "]}");
    put_json(b, &j, 0);
}
static void make_deep(struct ls_buf *b)
{
    struct ls_buf j;
    ls_buf_init(&j, (size_t)64 << 20);
    ls_buf_printf(&j, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        ls_buf_add(&j, "[", 1);
    put_json(b, &j, 0);
}
static void make_long_name(struct ls_buf *b)
{
    struct ls_buf j;
    ls_buf_init(&j, (size_t)64 << 20);
    ls_buf_printf(&j, "{\"%05000d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
    put_json(b, &j, 0);
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct st_sample st_samples[] = {
    {"no-tensors", "{}", 0, LS_OK, NULL, ACCEPTS, NULL},
    {"plain", "{\"a\":" T("F32", "[2,3]", "0", "24") "}", 24, LS_OK, NULL, ACCEPTS, NULL},
    {"scalar", "{\"a\":" T("F64", "[]", "0", "8") "}", 8, LS_OK, NULL, ACCEPTS, NULL},
    {"zero-dimension", "{\"a\":" T("F32", "[2,0]", "0", "0") ",\"b\":" T("U8", "[3]", "0", "3") "}",
     3, LS_OK, NULL, ACCEPTS, NULL},
    {"not-in-order", "{\"b\":" T("U8", "[3]", "4", "7") ",\"a\":" T("I32", "[1]", "0", "4") "}", 7,
     LS_OK, NULL, ACCEPTS, NULL},
    {"metadata", "{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("U8", "[1]", "0", "1") "}", 1, LS_OK,
     NULL, ACCEPTS, NULL},
    {"trailing-spaces", "{\"a\":" T("U8", "[1]", "0", "1") "}     ", 1, LS_OK, NULL, ACCEPTS, NULL},
    {"leading-space", "\n\t {\"a\":" T("U8", "[1]", "0", "1") "}", 1, LS_OK, NULL, EITHER, NULL},
    {"escaped-name", "{\"\\u00e9\\\"\":" T("U8", "[1]", "0", "1") "}", 1, LS_OK, NULL, ACCEPTS,
     NULL},

    {"empty-file", NULL, 0, LS_ERR_FORMAT, "header too small: 0 bytes", REJECTS, make_empty},
    {"seven-bytes", NULL, 0, LS_ERR_FORMAT, "header too small: 7 bytes", REJECTS, make_short},
    {"header-beyond-file", NULL, 0, LS_ERR_FORMAT,
     "bad header length: 60 bytes, but the file has only 2 more", REJECTS, make_beyond},
    {"header-top-byte", NULL, 0, LS_ERR_FORMAT, "header too large", REJECTS, make_ff},
    {"header-over-limit", NULL, 0, LS_ERR_FORMAT, "says 100000001 bytes", REJECTS, make_over_limit},
    {"header-brace", "{", 0, LS_ERR_FORMAT, "bad JSON", REJECTS, NULL},
    {"header-ff", "\xff", 0, LS_ERR_FORMAT, "bad UTF-8", REJECTS, NULL},
    {"header-array", "[]", 0, LS_ERR_FORMAT, "expected an object", REJECTS, NULL},
    {"header-text-behind", "{} x", 0, LS_ERR_FORMAT, "bad JSON", REJECTS, NULL},
    {"header-two-objects", "{}{}", 0, LS_ERR_FORMAT, "bad JSON", REJECTS, NULL},
    {"header-nul-padding", NULL, 0, LS_ERR_FORMAT, "bad JSON", REJECTS, make_nul_padding},
    {"name-bad-utf8", "{\"\xc3(\":" T("U8", "[1]", "0", "1") "}", 1, LS_ERR_FORMAT, "bad UTF-8",
     REJECTS, NULL},
    {"name-nul", "{\"a\\u0000b\":" T("U8", "[1]", "0", "1") "}", 1, LS_ERR_FORMAT, "bad JSON",
     EITHER, NULL},
    {"name-long", NULL, 0, LS_ERR_FORMAT, "a tensor name of 5000 bytes", EITHER, make_long_name},
    {"two-bytes-short", "{\"a\":" T("F32", "[2,3]", "0", "24") "}", 22, LS_ERR_FORMAT,
     "truncated: tensor 'a' ends at 24, but only 22 bytes", REJECTS, NULL},
    {"two-bytes-long", "{\"a\":" T("F32", "[2,3]", "0", "24") "}", 26, LS_ERR_FORMAT,
     "2 bytes behind the last tensor", REJECTS, NULL},
    {"data-without-tensors", "{}", 1, LS_ERR_FORMAT, "1 bytes behind", REJECTS, NULL},
    {"hole", "{\"a\":" T("U8", "[1]", "0", "1") ",\"b\":" T("U8", "[1]", "2", "3") "}", 3,
     LS_ERR_FORMAT, "tensor 'b' begins at 2, but the one before it ends at 1: a hole", REJECTS,
     NULL},
    {"hole-at-start", "{\"a\":" T("U8", "[1]", "1", "2") "}", 2, LS_ERR_FORMAT, "a hole", REJECTS,
     NULL},
    {"overlap", "{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "1", "3") "}", 3,
     LS_ERR_FORMAT, "tensor 'b' begins at 1, but the one before it ends at 2: an overlap", REJECTS,
     NULL},
    {"same-range", "{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "0", "2") "}", 2,
     LS_ERR_FORMAT, "an overlap", REJECTS, NULL},
    {"end-before-begin", "{\"a\":" T("U8", "[1]", "4", "3") "}", 4, LS_ERR_FORMAT,
     "invalid offsets, it ends at 3 before it begins at 4", REJECTS, NULL},
    {"wrong-size", "{\"a\":" T("F32", "[2,2]", "0", "24") "}", 24, LS_ERR_FORMAT,
     "F32 of shape [2, 2] takes 16 bytes, but its offsets [0, 24) hold 24", REJECTS, NULL},
    {"shape-u64", "{\"a\":" T("U8", "[2,18446744073709551614]", "0", "16") "}", 16, LS_ERR_FORMAT,
     "too big integer", REJECTS, NULL},
    {"shape-i64", "{\"a\":" T("F32", "[2,9223372036854775807]", "0", "16") "}", 16, LS_ERR_OVERFLOW,
     "tensor 'a': shape [2, 9223372036854775807] of F32 overflows", REJECTS, NULL},
    {"shape-wraps", "{\"a\":" T("F32", "[4294967296,4294967297]", "0", "16") "}", 16,
     LS_ERR_OVERFLOW, "overflows", REJECTS, NULL},
    {"shape-wraps-to-zero", "{\"a\":" T("F32", "[4294967296,4294967296]", "0", "0") "}", 0,
     LS_ERR_OVERFLOW, "overflows", REJECTS, NULL},
    {"offset-huge", "{\"a\":" T("U8", "[9223372036854775807]", "0", "9223372036854775807") "}", 3,
     LS_ERR_FORMAT, "truncated", REJECTS, NULL},
    {"shape-negative", "{\"a\":" T("U8", "[-1]", "0", "1") "}", 1, LS_ERR_FORMAT, "negative number",
     REJECTS, NULL},
    {"shape-minus-zero", "{\"a\":" T("U8", "[-0]", "0", "0") "}", 0, LS_ERR_FORMAT,
     "negative number", EITHER, NULL},
    {"shape-real", "{\"a\":" T("U8", "[1.0]", "0", "1") "}", 1, LS_ERR_FORMAT, "no whole number",
     REJECTS, NULL},
    {"shape-exponent", "{\"a\":" T("U8", "[1e0]", "0", "1") "}", 1, LS_ERR_FORMAT,
     "no whole number", REJECTS, NULL},
    {"shape-leading-zero", "{\"a\":" T("U8", "[01]", "0", "1") "}", 1, LS_ERR_FORMAT, "bad JSON",
     REJECTS, NULL},
    {"shape-string", "{\"a\":" T("U8", "[\"1\"]", "0", "1") "}", 1, LS_ERR_FORMAT,
     "no whole number", REJECTS, NULL},
    {"shape-number", "{\"a\":" T("U8", "1", "0", "1") "}", 1, LS_ERR_FORMAT, "no array", REJECTS,
     NULL},
    {"shape-nine", "{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, LS_ERR_UNSUPPORTED,
     "has 9 dimensions", ACCEPTS, NULL},
    {"name-twice", "{\"a\":" T("U8", "[1]", "0", "1") ",\"a\":" T("U8", "[1]", "0", "1") "}", 1,
     LS_ERR_FORMAT, "the same key twice", EITHER, NULL},
    {"member-twice",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     LS_ERR_FORMAT, "the same key twice", EITHER, NULL},
    {"member-unknown",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":\"y\"}}", 1,
     LS_ERR_FORMAT, "unknown member 'x'", EITHER, NULL},
    {"member-missing-dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, LS_ERR_FORMAT,
     "dtype is missing", REJECTS, NULL},
    {"member-missing-shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, LS_ERR_FORMAT,
     "shape is missing", REJECTS, NULL},
    {"member-missing-offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, LS_ERR_FORMAT,
     "data_offsets must be two", REJECTS, NULL},
    {"offsets-three", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     LS_ERR_FORMAT, "data_offsets must be two", REJECTS, NULL},
    {"offsets-one", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
     LS_ERR_FORMAT, "data_offsets must be two", REJECTS, NULL},
    {"entry-string", "{\"a\":\"b\"}", 0, LS_ERR_FORMAT, "expected an object", REJECTS, NULL},
    {"dtype-unknown", "{\"a\":" T("F33", "[1]", "0", "4") "}", 4, LS_ERR_FORMAT,
     "unknown dtype 'F33'", REJECTS, NULL},
    {"dtype-lower-case", "{\"a\":" T("f32", "[1]", "0", "4") "}", 4, LS_ERR_FORMAT,
     "unknown dtype 'f32'", REJECTS, NULL},
    {"dtype-number", "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, LS_ERR_FORMAT,
     "no string", REJECTS, NULL},
    {"dtype-bf16", "{\"a\":" T("BF16", "[1]", "0", "2") "}", 2, LS_ERR_UNSUPPORTED, "is BF16",
     ACCEPTS, NULL},
    {"metadata-number", "{\"__metadata__\":{\"k\":1}}", 0, LS_ERR_FORMAT, "must be a string",
     REJECTS, NULL},
    {"metadata-array", "{\"__metadata__\":[]}", 0, LS_ERR_FORMAT, "must be an object", EITHER,
     NULL},
    {"control-bytes-in-message", "{\"\x1b[2J\":" T("U8", "[2]", "0", "1") "}", 1, LS_ERR_FORMAT,
     "bad JSON", REJECTS, NULL},
    {"escaped-control-bytes", "{\"\\u001b[2J\":" T("U8", "[2]", "0", "1") "}", 1, LS_ERR_FORMAT,
     "tensor '?[2J'", REJECTS, NULL},
    {"hundred-thousand-on-one-range", NULL, 0, LS_ERR_FORMAT, "an overlap", REJECTS,
     make_same_range},
    {"too-many-tensors", NULL, 0, LS_ERR_FORMAT, "300000 tensors, at most", EITHER, make_many},
    {"too-many-values", NULL, 0, LS_ERR_FORMAT, "more than 2097152 values", REJECTS, make_commas},
    {"too-deep", NULL, 0, LS_ERR_FORMAT, "nested 4 deep", REJECTS, make_deep},
};
#define ST_SAMPLES ((int)(sizeof st_samples / sizeof *st_samples))

/* The bytes of a sample; malloc'd inside `buf`. */
static void st_sample_bytes(const struct st_sample *s, struct ls_buf *buf)
{
    ls_buf_init(buf, (size_t)128 << 20);
    if (s->make)
        s->make(buf);
    else
        put_header(buf, strlen(s->header), s->header, strlen(s->header), s->data);
    if (buf->failed) {
        fprintf(stderr, "no memory for sample %s\n", s->name);
        exit(99);
    }
}

#endif
