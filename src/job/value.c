/* A single value: from libconfig or plain text to a checked field, and how messages speak of it. */
#include "job/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- where values come from ------------------------------------------------------------------- */

struct ls_job_value ls_job_value_of(const struct ls_job_source *source,
                                    const config_setting_t *node)
{
    struct ls_job_value v = {.source = source, .node = node};
    v.place = ls_job_source_place(source, (int)config_setting_source_line(node));
    switch (config_setting_type(node)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        v.type = LS_VALUE_INT;
        v.i = config_setting_get_int64(node);
        break;
    case CONFIG_TYPE_FLOAT:
        v.type = LS_VALUE_FLOAT;
        v.f = config_setting_get_float(node);
        break;
    case CONFIG_TYPE_BOOL:
        v.type = LS_VALUE_BOOL;
        v.i = config_setting_get_bool(node) != 0;
        break;
    case CONFIG_TYPE_STRING:
        v.s = config_setting_get_string(node);
        v.type = v.s[0] == LS_JOB_BAD_MARK    ? LS_VALUE_BAD
                 : v.s[0] == LS_JOB_WORD_MARK ? LS_VALUE_WORD
                                              : LS_VALUE_TEXT;
        v.s += v.type != LS_VALUE_TEXT;
        break;
    case CONFIG_TYPE_GROUP:
        v.type = LS_VALUE_GROUP;
        break;
    default:
        v.type = LS_VALUE_LIST;
        break;
    }
    return v;
}

struct ls_job_value ls_job_value_plain(const char *text, struct ls_job_place place)
{
    struct ls_job_value v = {.s = text, .place = place};
    switch (ls_job_number(text, strlen(text), &v.i, &v.f)) {
    case LS_TOK_INT:
        v.type = LS_VALUE_INT;
        break;
    case LS_TOK_FLOAT:
        v.type = LS_VALUE_FLOAT;
        break;
    default:
        v.type = LS_VALUE_TEXT;
        break;
    }
    if (!strcmp(text, "true") || !strcmp(text, "false")) {
        v.type = LS_VALUE_BOOL;
        v.i = text[0] == 't';
    } else if (!strcmp(text, "[]")) {
        v.type = LS_VALUE_LIST;
    }
    return v;
}

/* ---- how messages speak of them --------------------------------------------------------------- */

const char *ls_job_value_found(const struct ls_job_value *v, char out[static 128])
{
    char number[32];
    int n;
    switch (v->type) {
    case LS_VALUE_INT:
        snprintf(out, 128, "the integer %lld", (long long)v->i);
        break;
    case LS_VALUE_FLOAT:
        snprintf(out, 128, "the number %s", ls_job_format_double(v->f, number));
        break;
    case LS_VALUE_BOOL:
        snprintf(out, 128, "%s", v->i ? "true" : "false");
        break;
    case LS_VALUE_TEXT:
        snprintf(out, 128, "the string \"%.*s\"%s", 60, v->s, strlen(v->s) > 60 ? "..." : "");
        break;
    case LS_VALUE_WORD:
        snprintf(out, 128, "%.60s without quotes", v->s);
        break;
    case LS_VALUE_LIST:
        n = v->node ? config_setting_length(v->node) : 0;
        snprintf(out, 128, "a list of %d element%s", n, n == 1 ? "" : "s");
        break;
    case LS_VALUE_GROUP:
        snprintf(out, 128, "a group { ... }");
        break;
    case LS_VALUE_BAD:
        snprintf(out, 128, "a value that cannot be taken");
        break;
    }
    return out;
}

struct unit {
    const char *name;
    double factor;
};
static const struct unit byte_units[] = {
    {"B", 1},  {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {NULL, 0},
};
static const struct unit time_units[] = {
    {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0},
};

const char *ls_job_format_quantity(enum ls_job_kind kind, double x, char out[static 32])
{
    const struct unit *unit = kind == LS_JOB_BYTES  ? byte_units
                              : kind == LS_JOB_TIME ? time_units
                                                    : NULL;
    const char *name = NULL;
    double factor = 1;
    for (; x > 0 && unit && unit->name; unit++)
        if (fmod(x, unit->factor) == 0) {
            name = unit->name;
            factor = unit->factor;
        }
    if (!name && x != floor(x))
        return ls_job_format_double(x, out);
    x /= factor;
    int zeros = 0;
    if (x >= 1e9) /* 1e12 is easier to read than 1000000000000 */
        for (; fmod(x, 10) == 0; x /= 10)
            zeros++;
    int n = snprintf(out, 24, "%.16g", x);
    if (zeros)
        snprintf(out + n, (size_t)(32 - n), "e%d", zeros);
    else
        snprintf(out + n, (size_t)(32 - n), "%s", name ? name : "");
    return out;
}

static void add_range(const struct ls_job_key *key, struct ls_buf *out)
{
    char low[32], high[32];
    ls_job_format_quantity(key->kind, key->min, low);
    ls_job_format_quantity(key->kind, key->max, high);
    if (key->min == key->max)
        ls_buf_printf(out, " %s", low);
    else
        ls_buf_printf(out, " %s %s %s %s", key->flags & LS_JOB_ABOVE ? "above" : "from", low,
                      key->flags & LS_JOB_BELOW   ? "to below"
                      : key->flags & LS_JOB_ABOVE ? "and up to"
                                                  : "to",
                      high);
}

void ls_job_key_expected(const struct ls_job_key *key, struct ls_buf *out)
{
    int first = (int)key->min;
    switch (key->kind) {
    case LS_JOB_INT:
        ls_buf_printf(out, key->min == key->max ? "the integer" : "an integer");
        add_range(key, out);
        if (key->word)
            ls_buf_printf(out, " or \"%s\"", key->word);
        break;
    case LS_JOB_FLOAT:
        ls_buf_printf(out, "a number");
        add_range(key, out);
        break;
    case LS_JOB_BOOL:
        ls_buf_printf(out, "true or false");
        break;
    case LS_JOB_STRING:
        ls_buf_printf(out, key->flags & LS_JOB_FILE_NAME
                               ? "a name in quotes, without / and not starting with a dot"
                               : "a path in quotes");
        break;
    case LS_JOB_ENUM:
        if (key->words[first + 1])
            ls_buf_printf(out, key->words[first + 2] ? "one of " : "");
        for (int i = first; key->words[i]; i++)
            ls_buf_printf(out, "%s\"%s\"",
                          i == first          ? ""
                          : key->words[i + 1] ? ", "
                          : i - first > 1     ? " and "
                                              : " or ",
                          key->words[i]);
        break;
    case LS_JOB_BYTES:
        ls_buf_printf(out, "a size such as \"25MiB\" or \"64KiB\",");
        add_range(key, out);
        break;
    case LS_JOB_TIME:
        ls_buf_printf(out, "a time such as \"90s\", \"30min\" or \"2h\",");
        add_range(key, out);
        break;
    case LS_JOB_INTS:
        ls_buf_printf(out, "a list of at most %d integers", LS_JOB_MAX_INTS);
        add_range(key, out);
        ls_buf_printf(out, ", such as [512, 256]");
        break;
    case LS_JOB_FLOATS:
        ls_buf_printf(out, "a number, or a list of 1 to %d numbers,", LS_JOB_CHANNELS);
        add_range(key, out);
        break;
    case LS_JOB_LAYERS:
        ls_buf_printf(out, "a list of layers such as ( { type = \"relu\"; }, ... )");
        break;
    }
}

/* Reports a value that does not fit; always false. `hint` is one more thing to say, or "". */
static bool refuse(struct ls_job_reader *reader, const struct ls_job_key *key, const char *label,
                   const struct ls_job_value *v, const char *hint)
{
    char found[128];
    struct ls_buf expected;
    if (v->type == LS_VALUE_BAD)
        return false;
    ls_buf_init(&expected, 512);
    ls_job_key_expected(key, &expected);
    ls_job_value_found(v, found);
    bool quotes = key->word || key->kind == LS_JOB_STRING || key->kind == LS_JOB_ENUM ||
                  key->kind == LS_JOB_BYTES || key->kind == LS_JOB_TIME;
    if (v->type == LS_VALUE_WORD && !quotes)
        snprintf(found, sizeof found, "the word %.60s", v->s);
    ls_job_problem(reader->problems, v->place, "%s: found %s, expected %s%s", label, found,
                   expected.data ? expected.data : "something else", hint);
    ls_buf_free(&expected);
    return false;
}

/* ---- checks ------------------------------------------------------------------------------------- */

static bool in_range(const struct ls_job_key *key, double x)
{
    return isfinite(x) && x >= key->min && x <= key->max &&
           !(key->flags & LS_JOB_ABOVE && x == key->min) &&
           !(key->flags & LS_JOB_BELOW && x == key->max);
}

static bool number(const struct ls_job_value *v, double *out)
{
    if (v->type != LS_VALUE_INT && v->type != LS_VALUE_FLOAT)
        return false;
    *out = v->type == LS_VALUE_INT ? (double)v->i : v->f;
    return true;
}

static bool quoted_number(const struct ls_job_value *v)
{
    double x;
    if (v->type != LS_VALUE_TEXT)
        return false;
    struct ls_job_value inner = ls_job_value_plain(v->s, v->place);
    return number(&inner, &x);
}

/* "30min" with the units of a kind; the number has no sign and no exponent. */
static bool with_unit(const char *s, const struct unit *units, double *out)
{
    size_t n = strspn(s, "0123456789.");
    char digits[32];
    if (n == 0 || n >= sizeof digits || memchr(s, '.', n) != memrchr(s, '.', n) || s[0] == '.')
        return false;
    memcpy(digits, s, n);
    digits[n] = '\0';
    *out = strtod(digits, NULL);
    s += n + strspn(s + n, " ");
    for (; *s && units->name; units++)
        if (!strcmp(s, units->name)) {
            *out *= units->factor;
            return true;
        }
    return !*s;
}

static bool store_int(struct ls_job_reader *reader, const struct ls_job_key *key, const char *label,
                      const struct ls_job_value *v, int64_t *out)
{
    if (key->word && (v->type == LS_VALUE_TEXT || v->type == LS_VALUE_WORD)) {
        if (!strcmp(v->s, key->word) || !strcmp(v->s, "auto")) {
            if (v->type == LS_VALUE_WORD)
                return refuse(reader, key, label, v, "");
            *out = LS_JOB_AUTO;
            return true;
        }
    }
    if (v->type == LS_VALUE_INT && in_range(key, (double)v->i)) {
        *out = v->i;
        return true;
    }
    return refuse(reader, key, label, v,
                  quoted_number(v) ? "; numbers are written without quotes" : "");
}

static bool store_float(struct ls_job_reader *reader, const struct ls_job_key *key,
                        const char *label, const struct ls_job_value *v, double *out)
{
    double x;
    if (number(v, &x) && in_range(key, x)) {
        *out = x == 0 ? 0 : x; /* no -0, which would print and hash differently */
        return true;
    }
    return refuse(reader, key, label, v,
                  quoted_number(v) ? "; numbers are written without quotes" : "");
}

static bool store_enum(struct ls_job_reader *reader, const struct ls_job_key *key,
                       const char *label, const struct ls_job_value *v, void *base)
{
    char hint[96] = "";
    int n = 0, first = (int)key->min;
    while (key->words[n])
        n++;
    if (v->type == LS_VALUE_TEXT) {
        for (unsigned i = (unsigned)first; key->words[i]; i++)
            if (!strcmp(v->s, key->words[i])) {
                if (key->offset != LS_JOB_NOWHERE)
                    memcpy((char *)base + key->offset, &i, sizeof i);
                return true;
            }
    }
    if (n - first > 1 && (v->type == LS_VALUE_TEXT || v->type == LS_VALUE_WORD)) {
        const char *near = ls_job_nearest(v->s, key->words + first, n - first);
        if (near)
            snprintf(hint, sizeof hint, "; did you mean \"%s\"?", near);
    }
    return refuse(reader, key, label, v, hint);
}

static bool store_string(struct ls_job_reader *reader, const struct ls_job_key *key,
                         const char *label, const struct ls_job_value *v, const char **out)
{
    char hint[96] = "";
    size_t n = v->type == LS_VALUE_TEXT ? strlen(v->s) : 0;
    bool name = key->flags & LS_JOB_FILE_NAME;
    if (n > (name ? 200u : LS_JOB_MAX_TEXT)) /* a file name has 255 bytes, and endings follow */
        snprintf(hint, sizeof hint, "; it has %zu bytes, at most %d fit", n,
                 name ? 200 : LS_JOB_MAX_TEXT);
    else if (n && !(name && (v->s[0] == '.' || strchr(v->s, '/')))) {
        *out = ls_arena_strdup(reader->arena, v->s);
        reader->problems->nomem |= !*out;
        return *out;
    }
    return refuse(reader, key, label, v, hint);
}

static bool store_quantity(struct ls_job_reader *reader, const struct ls_job_key *key,
                           const char *label, const struct ls_job_value *v, void *out)
{
    bool bytes = key->kind == LS_JOB_BYTES;
    const struct unit *units = bytes ? byte_units : time_units;
    const char *hint = "";
    double x = -1;
    bool good = bytes ? v->type == LS_VALUE_INT && number(v, &x) : number(v, &x);
    if (v->type == LS_VALUE_TEXT) {
        good = with_unit(v->s, units, &x);
        hint = good    ? ""
               : bytes ? "; the units are B, KiB, MiB, GiB, TiB"
                       : "; the units are s, min, h, d";
    } else if (v->type == LS_VALUE_WORD && with_unit(v->s, units, &x)) {
        hint = "; put it in quotes";
    }
    if (!good || !in_range(key, x) || (bytes && x != floor(x)))
        return refuse(reader, key, label, v, hint);
    if (bytes)
        *(int64_t *)out = (int64_t)x;
    else
        *(double *)out = x == 0 ? 0 : x;
    return true;
}

/* Element `i` of a list, or the value itself where one number stands for a list of one. */
static struct ls_job_value element(const struct ls_job_value *v, int i)
{
    if (v->type != LS_VALUE_LIST)
        return *v;
    return ls_job_value_of(v->source, config_setting_get_elem(v->node, (unsigned)i));
}

static bool store_numbers(struct ls_job_reader *reader, const struct ls_job_key *key,
                          const char *label, const struct ls_job_value *v, void *base)
{
    bool ints = key->kind == LS_JOB_INTS, good = true;
    int least = ints ? 0 : 1, most = ints ? LS_JOB_MAX_INTS : LS_JOB_CHANNELS;
    int n = v->type != LS_VALUE_LIST ? 1 : v->node ? config_setting_length(v->node) : 0;
    if (v->type != LS_VALUE_LIST && v->type != LS_VALUE_INT &&
        !(v->type == LS_VALUE_FLOAT && !ints))
        return refuse(reader, key, label, v, "");
    if (n < least || n > most)
        return refuse(reader, key, label, v, "");
    void *out = (char *)base + key->offset;
    if (ints) {
        *(int64_t **)out = ls_arena_alloc(reader->arena, sizeof(int64_t) * (size_t)(n ? n : 1));
        out = *(int64_t **)out;
        if (!out) {
            reader->problems->nomem = true;
            return false;
        }
    }
    struct ls_job_key one = *key; /* the same limits, for an element */
    one.kind = ints ? LS_JOB_INT : LS_JOB_FLOAT;
    for (int i = 0; i < n; i++) {
        struct ls_job_value e = element(v, i);
        char numbered[128];
        snprintf(numbered, sizeof numbered, "%.100s[%d]", label, i);
        const char *name = v->type == LS_VALUE_LIST ? numbered : label;
        good &= ints ? store_int(reader, &one, name, &e, (int64_t *)out + i)
                     : store_float(reader, &one, name, &e, (double *)out + i);
    }
    memcpy((char *)base + key->count, &n, sizeof n);
    return good;
}

bool ls_job_store(struct ls_job_reader *reader, const struct ls_job_key *key, const char *label,
                  const struct ls_job_value *v, int depth, void *base)
{
    void *field = key->offset == LS_JOB_NOWHERE ? NULL : (char *)base + key->offset;
    if (v->type == LS_VALUE_BAD)
        return false;
    switch (key->kind) {
    case LS_JOB_INT:
        return store_int(reader, key, label, v, field);
    case LS_JOB_FLOAT:
        return store_float(reader, key, label, v, field);
    case LS_JOB_BOOL:
        if (v->type != LS_VALUE_BOOL)
            return refuse(reader, key, label, v, "");
        *(bool *)field = v->i;
        return true;
    case LS_JOB_STRING:
        return store_string(reader, key, label, v, field);
    case LS_JOB_ENUM:
        return store_enum(reader, key, label, v, base);
    case LS_JOB_BYTES:
    case LS_JOB_TIME:
        return store_quantity(reader, key, label, v, field);
    case LS_JOB_INTS:
    case LS_JOB_FLOATS:
        return store_numbers(reader, key, label, v, base);
    case LS_JOB_LAYERS:
        if (v->type != LS_VALUE_LIST || !v->node)
            return v->type == LS_VALUE_LIST || refuse(reader, key, label, v, "");
        return ls_job_layers(reader, label, v, depth, field, (int *)((char *)base + key->count));
    }
    return false;
}

bool ls_job_store_default(struct ls_job_reader *reader, const struct ls_job_table *table,
                          const struct ls_job_key *key, void *base)
{
    char *field = (char *)base + key->offset;
    const char *text = key->fallback;
    if (!text) {
        if (key->kind == LS_JOB_INT)
            *(int64_t *)field = LS_JOB_AUTO;
        return true; /* the struct is zero, so text and lists are unset */
    }
    const char *end = text[0] == '<' ? strchr(text, '>') : NULL;
    if (!end) {
        struct ls_job_value v = ls_job_value_plain(text, (struct ls_job_place){0});
        return ls_job_store(reader, key, key->path, &v, 0, base);
    }
    char other[64];
    snprintf(other, sizeof other, "%.*s", (int)(end - text - 1), text + 1);
    const struct ls_job_key *from = &table->keys[ls_job_key_find(table, other)];
    const char *source = (const char *)base + from->offset;
    if (key->kind == LS_JOB_INT) {
        memcpy(field, source, sizeof(int64_t));
        return true;
    }
    const char *start = *(const char *const *)source;
    *(const char **)field = ls_arena_printf(reader->arena, "%s%s", start ? start : "", end + 1);
    reader->problems->nomem |= !*(const char **)field;
    return *(const char **)field;
}
