/* The first bytes of a gzip member, by a small bit-at-a-time inflater. It exists because the whole
 * inflater (libdeflate) works on whole members only: with it a header is judged, and the size that
 * it announces is bounded, before any memory is given to the data. It does not check the CRC.
 * Sources: RFC 1951 (deflate), RFC 1952 (gzip). */
#include "data/internal.h"

#include <string.h>

#define MAX_BITS    15
#define MAX_LITERAL 288 /* symbols of the literal/length alphabet, two of them never used */
#define MAX_OUT     32

struct reader {
    const uint8_t *in;
    size_t size, at; /* bytes; `at` is the next one to load */
    unsigned bits, left;
    bool bad; /* ran past the end: checked once a symbol */
};

/* A canonical code: how many codes each length has, and the symbols in code order. */
struct code {
    uint16_t count[MAX_BITS + 1];
    uint16_t symbol[MAX_LITERAL];
};

static unsigned take(struct reader *r, unsigned n)
{
    unsigned value = 0;
    for (unsigned i = 0; i < n; i++) {
        if (r->left == 0) {
            if (r->at == r->size) {
                r->bad = true;
                return 0;
            }
            r->bits = r->in[r->at++];
            r->left = 8;
        }
        value |= (r->bits & 1) << i;
        r->bits >>= 1;
        r->left--;
    }
    return value;
}

static void code_build(struct code *code, const uint8_t *lengths, unsigned n)
{
    uint16_t next[MAX_BITS + 1] = {0};
    memset(code->count, 0, sizeof code->count);
    for (unsigned i = 0; i < n; i++)
        code->count[lengths[i]]++;
    code->count[0] = 0;
    for (unsigned bits = 1; bits < MAX_BITS; bits++)
        next[bits + 1] = (uint16_t)(next[bits] + code->count[bits]);
    for (unsigned i = 0; i < n; i++)
        if (lengths[i])
            code->symbol[next[lengths[i]]++] = (uint16_t)i;
}

/* The next symbol, or -1. Codes of one length are consecutive numbers, so a code belongs to a
 * length when it lies in that length's range. */
static int code_read(struct reader *r, const struct code *code)
{
    int value = 0, first = 0, index = 0;
    for (unsigned bits = 1; bits <= MAX_BITS; bits++) {
        value |= (int)take(r, 1);
        int count = code->count[bits];
        if (r->bad)
            return -1;
        if (value >= first && value - first < count)
            return code->symbol[index + value - first];
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return -1;
}

static void fixed_codes(struct code *literal, struct code *distance)
{
    uint8_t lengths[MAX_LITERAL];
    for (int i = 0; i < MAX_LITERAL; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    code_build(literal, lengths, MAX_LITERAL);
    memset(lengths, 5, 30);
    code_build(distance, lengths, 30);
}

static bool dynamic_codes(struct reader *r, struct code *literal, struct code *distance)
{
    static const uint8_t place[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    unsigned nliteral = take(r, 5) + 257, ndistance = take(r, 5) + 1, ncode = take(r, 4) + 4;
    uint8_t lengths[MAX_LITERAL + 32] = {0};
    if (nliteral > 286 || ndistance > 30)
        return false;
    for (unsigned i = 0; i < ncode; i++)
        lengths[place[i]] = (uint8_t)take(r, 3);
    code_build(literal, lengths, 19);
    memset(lengths, 0, 19);
    for (unsigned i = 0; i < nliteral + ndistance;) {
        int symbol = code_read(r, literal);
        unsigned repeat = 1;
        uint8_t length = (uint8_t)symbol;
        if (symbol < 0 || (symbol == 16 && i == 0))
            return false;
        if (symbol == 16) {
            length = lengths[i - 1];
            repeat = take(r, 2) + 3;
        } else if (symbol > 16) {
            length = 0;
            repeat = symbol == 17 ? take(r, 3) + 3 : take(r, 7) + 11;
        }
        if (r->bad || i + repeat > nliteral + ndistance)
            return false;
        while (repeat--)
            lengths[i++] = length;
    }
    code_build(literal, lengths, nliteral);
    code_build(distance, lengths + nliteral, ndistance);
    return true;
}

/* One compressed block, or as much of it as `want` needs. */
static bool inflate_codes(struct reader *r, const struct code *literal, const struct code *distance,
                          uint8_t *out, size_t want, size_t *n)
{
    while (*n < want) {
        int symbol = code_read(r, literal);
        if (symbol < 0 || symbol > 285)
            return false;
        if (symbol < 256) {
            out[(*n)++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 256)
            return true;
        /* Length symbols come in groups of 4 that share a number of extra bits; distances of 2. */
        unsigned group = (unsigned)symbol - 257, extra = group < 8 ? 0 : (group - 4) / 4;
        unsigned length = 258; /* symbol 285, the last group's only one, without extra bits */
        if (symbol < 285)
            length = group < 8 ? group + 3 : ((4 + group % 4) << extra) + 3 + take(r, extra);
        int far = code_read(r, distance);
        if (far < 0 || far > 29)
            return false;
        unsigned bits = far < 4 ? 0 : ((unsigned)far - 2) / 2;
        size_t back = far < 4 ? (size_t)far + 1 : ((size_t)(2 + far % 2) << bits) + 1;
        back += take(r, bits);
        if (r->bad || back > *n)
            return false;
        for (; length && *n < want; length--, (*n)++)
            out[*n] = out[*n - back];
    }
    return true;
}

static bool inflate_stored(struct reader *r, uint8_t *out, size_t want, size_t *n)
{
    r->left = 0;
    unsigned length = take(r, 16), check = take(r, 16);
    if (r->bad || length != (check ^ 0xFFFF))
        return false;
    for (; length && *n < want && !r->bad; length--)
        out[(*n)++] = (uint8_t)take(r, 8);
    return !r->bad;
}

/* The gzip header; false when it is not one, or cut. */
static bool skip_header(struct reader *r)
{
    if (r->size < 10 || r->in[0] != 0x1F || r->in[1] != 0x8B || r->in[2] != 8)
        return false;
    unsigned flags = r->in[3];
    if (flags & 0xE0)
        return false;
    r->at = 10;
    if (flags & 4)
        for (unsigned extra = take(r, 16); extra && !r->bad; extra--)
            take(r, 8);
    for (unsigned text = flags >> 3 & 3; text; text &= text - 1) /* a name, a comment */
        while (!r->bad && take(r, 8) != 0)
            continue;
    if (flags & 2)
        take(r, 16);
    return !r->bad;
}

bool ls_data_gzip_head(const uint8_t *in, size_t size, uint8_t *out, size_t want, size_t *got)
{
    struct reader r = {.in = in, .size = size};
    struct code literal, distance;
    size_t n = 0;
    bool last = false;
    if (want > MAX_OUT || !skip_header(&r))
        return false;
    while (!last && n < want) {
        last = take(&r, 1) != 0;
        unsigned type = take(&r, 2);
        bool good = !r.bad && type != 3;
        if (good && type == 0)
            good = inflate_stored(&r, out, want, &n);
        else if (good && type == 1)
            fixed_codes(&literal, &distance);
        else if (good)
            good = dynamic_codes(&r, &literal, &distance);
        if (good && type != 0)
            good = inflate_codes(&r, &literal, &distance, out, want, &n);
        if (!good)
            return false;
    }
    *got = n;
    return true;
}
