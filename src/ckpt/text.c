/* Text that came from a file: made fit for messages, bounded before a parser sees it; sums as hex.
 */
#include "ckpt/internal.h"

#include <stdio.h>
#include <string.h>

struct ls_quoted ls_ckpt_quote(const char *name)
{
    struct ls_quoted q;
    size_t n = strnlen(name, sizeof q.text), room = sizeof q.text - 8;
    bool cut = n > room;
    if (cut) {
        n = room;
        while (n && ((unsigned char)name[n] & 0xc0) == 0x80)
            n--; /* not in the middle of a character */
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        q.text[i] = c < 0x20 || c == 0x7f ? '?' : name[i];
    }
    memcpy(q.text + n, cut ? "..." : "", cut ? 4 : 1);
    return q;
}

const char *ls_ckpt_shape(const int64_t *shape, int ndim, char out[static 192])
{
    size_t used = 1;
    out[0] = '[';
    for (int d = 0; d < ndim && used < 160; d++)
        used +=
            (size_t)snprintf(out + used, 192 - used, d ? ", %lld" : "%lld", (long long)shape[d]);
    memcpy(out + used, "]", 2);
    return out;
}

/* One walk over the text outside strings, so that nothing is allocated for nonsense. */
static enum ls_status walk(const char *what, const char *text, size_t size, int max_depth,
                           bool negatives, struct ls_error *err)
{
    bool string = false;
    int depth = 0;
    int64_t commas = 0;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
            continue;
        }
        if (c == '"')
            string = true;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        else if (c == ',')
            commas++;
        else if (c == '-' && !negatives)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: negative number at byte %zu, expected counts and offsets",
                                what, i);
        if (depth > max_depth)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: nested %d deep at byte %zu, at most %d is expected", what,
                                depth, i, max_depth);
        if (commas > LS_CKPT_MAX_COMMAS)
            return ls_error_set(err, LS_ERR_FORMAT, "%s: more than %d values are not accepted",
                                what, LS_CKPT_MAX_COMMAS);
    }
    return LS_OK;
}

enum ls_status ls_ckpt_json(const char *what, const char *text, size_t size, int max_depth,
                            bool negatives, json_t **root, struct ls_error *err)
{
    LS_TRY(walk(what, text, size, max_depth, negatives, err));
    json_error_t e;
    json_t *j = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    if (!j) {
        enum json_error_code code = json_error_code(&e);
        if (code == json_error_out_of_memory)
            return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", what);
        struct ls_quoted why = ls_ckpt_quote(e.text);
        return ls_error_set(err, LS_ERR_FORMAT, "%s: %s at byte %d: %s", what,
                            code == json_error_invalid_utf8    ? "bad UTF-8"
                            : code == json_error_duplicate_key ? "the same key twice"
                                                               : "bad JSON",
                            e.position, why.text);
    }
    if (!json_is_object(j)) {
        json_decref(j);
        return ls_error_set(err, LS_ERR_FORMAT, "%s: bad JSON: expected an object, '{'", what);
    }
    *root = j;
    return LS_OK;
}

void ls_sum_set(struct ls_sum *sum, XXH128_hash_t hash)
{
    static const char digit[] = "0123456789abcdef";
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, hash);
    for (size_t i = 0; i < sizeof c.digest; i++) {
        sum->hex[2 * i] = digit[c.digest[i] >> 4];
        sum->hex[2 * i + 1] = digit[c.digest[i] & 15];
    }
    sum->hex[32] = '\0';
}

bool ls_sum_parse(const char *hex, struct ls_sum *sum)
{
    if (strnlen(hex, 33) != 32 || strspn(hex, "0123456789abcdef") != 32)
        return false;
    memcpy(sum->hex, hex, sizeof sum->hex);
    return true;
}
