/* The resolved description: as a job file with the origin of each line, as JSON, and as a hash.
 * A string of a job holds no control characters and is UTF-8, so libconfig and JSON quote it the
 * same way, and both write numbers the same way: one writer serves both. */
#include "job/parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT ((size_t)16 << 20)
#define COLUMN   48 /* where the comments begin */

enum style { CONFIG, JSON };

const char *ls_job_format_double(double value, char out[static 32])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    if (!strpbrk(out, ".en"))
        strcat(out, ".0");
    return out;
}

/* ---- one value ---------------------------------------------------------------------------------- */

/* Quotes text of any origin: what is not printable UTF-8 (only file names can be) becomes '?'. */
static void add_quoted(struct ls_buf *out, const char *s)
{
    ls_buf_add(out, "\"", 1);
    for (size_t left = strlen(s), n; left; left -= n, s += n) {
        n = ls_job_utf8(s, left);
        if (*s == '"' || *s == '\\')
            ls_buf_add(out, "\\", 1);
        bool good = n && ((unsigned char)*s >= 0x20 && *s != 0x7F);
        n = n ? n : 1;
        ls_buf_add(out, good ? s : "?", good ? n : 1);
    }
    ls_buf_add(out, "\"", 1);
}

static void add_double(struct ls_buf *out, double value)
{
    char text[32];
    ls_buf_printf(out, "%s", ls_job_format_double(value, text));
}

static void add_quantity(struct ls_buf *out, enum ls_job_kind kind, double value, enum style style)
{
    char text[32];
    if (style == JSON || value == 0) {
        ls_buf_printf(out, "%.17g", value);
        return;
    }
    ls_job_format_quantity(kind, value, text);
    bool unit = strpbrk(text, "BiMGTKsminhd") && !strchr(text, 'e');
    ls_buf_printf(out, unit ? "\"%s\"" : "%s", text);
}

static void add_numbers(const struct ls_job_key *key, const void *base, struct ls_buf *out)
{
    const char *field = (const char *)base + key->offset;
    int n;
    memcpy(&n, (const char *)base + key->count, sizeof n);
    if (key->kind == LS_JOB_FLOATS && n == 1) {
        add_double(out, *(const double *)(const void *)field);
        return;
    }
    ls_buf_printf(out, "[");
    for (int i = 0; i < n; i++) {
        ls_buf_printf(out, "%s", i ? ", " : "");
        if (key->kind == LS_JOB_INTS)
            ls_buf_printf(out, "%lld", (long long)(*(int64_t *const *)(const void *)field)[i]);
        else
            add_double(out, ((const double *)(const void *)field)[i]);
    }
    ls_buf_printf(out, "]");
}

static void add_value(const struct ls_job_key *key, const void *base, enum style style,
                      struct ls_buf *out)
{
    const void *field = (const char *)base + (key->offset == LS_JOB_NOWHERE ? 0 : key->offset);
    switch (key->kind) {
    case LS_JOB_INT:
        if (*(const int64_t *)field == LS_JOB_AUTO && key->word)
            ls_buf_printf(out, "\"%s\"", key->word);
        else
            ls_buf_printf(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case LS_JOB_FLOAT:
        add_double(out, *(const double *)field);
        break;
    case LS_JOB_BOOL:
        ls_buf_printf(out, *(const bool *)field ? "true" : "false");
        break;
    case LS_JOB_STRING:
        add_quoted(out, *(const char *const *)field);
        break;
    case LS_JOB_ENUM:
        ls_buf_printf(out, "\"%s\"", key->words[ls_job_enum_get(key, base)]);
        break;
    case LS_JOB_BYTES:
        add_quantity(out, key->kind, (double)*(const int64_t *)field, style);
        break;
    case LS_JOB_TIME:
        add_quantity(out, key->kind, *(const double *)field, style);
        break;
    case LS_JOB_INTS:
    case LS_JOB_FLOATS:
        add_numbers(key, base, out);
        break;
    case LS_JOB_LAYERS:
        break; /* lists of groups: add_layers */
    }
}

/* ---- layers ------------------------------------------------------------------------------------- */

static void add_place(struct ls_buf *out, const char *file, int line)
{
    for (size_t left = strlen(file), n; left; left -= n, file += n) {
        n = ls_job_utf8(file, left);
        bool good = n && (unsigned char)*file >= 0x20 && *file != 0x7F;
        n = n ? n : 1;
        ls_buf_add(out, good ? file : "?", good ? n : 1);
    }
    if (line > 0)
        ls_buf_printf(out, ":%d", line);
}

static void add_layers(const struct ls_layer *layers, int n, int indent, enum style style,
                       struct ls_buf *out);

/* A layer on one line; the lists of a residual block follow on lines of their own. */
static void add_layer(const struct ls_layer *layer, int indent, enum style style, bool last,
                      struct ls_buf *out)
{
    const char *is = style == JSON ? ": " : " = ", *quote = style == JSON ? "\"" : "";
    const char *comma = "";
    bool block = false;
    ls_buf_printf(out, "%*s{", indent, "");
    for (int i = 0; i < ls_layer_keys.nkeys; i++) {
        const struct ls_job_key *key = &ls_layer_keys.keys[i];
        if (!ls_job_key_applies(&ls_layer_keys, key, layer))
            continue;
        ls_buf_printf(out, "%s", comma);
        comma = style == JSON ? "," : ";";
        if (key->kind == LS_JOB_LAYERS) {
            int count;
            memcpy(&count, (const char *)layer + key->count, sizeof count);
            ls_buf_printf(out, "\n%*s%s%s%s%s", indent + 4, "", quote, key->path, quote, is);
            add_layers(*(struct ls_layer *const *)(const void *)((const char *)layer + key->offset),
                       count, indent + 4, style, out);
            block = true;
        } else {
            ls_buf_printf(out, " %s%s%s%s", quote, key->path, quote, is);
            add_value(key, layer, style, out);
        }
    }
    if (style == CONFIG)
        ls_buf_printf(out, ";");
    if (block)
        ls_buf_printf(out, "\n%*s}", indent, "");
    else
        ls_buf_printf(out, " }");
    ls_buf_printf(out, "%s", last ? "" : ",");
    if (style == CONFIG) {
        ls_buf_printf(out, " # ");
        add_place(out, layer->file, layer->line);
    }
    ls_buf_printf(out, "\n");
}

static void add_layers(const struct ls_layer *layers, int n, int indent, enum style style,
                       struct ls_buf *out)
{
    ls_buf_printf(out, style == JSON ? "[" : "(");
    for (int i = 0; i < n; i++) {
        ls_buf_printf(out, "%s", i ? "" : "\n");
        add_layer(&layers[i], indent + 4, style, i == n - 1, out);
    }
    ls_buf_printf(out, "%*s%s", n ? indent : 0, "", style == JSON ? "]" : ")");
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static bool is_set(const struct ls_job *job, int row)
{
    return job->origin[row].kind != LS_ORIGIN_NONE &&
           ls_job_key_applies(&ls_job_keys, &ls_job_keys.keys[row], job);
}

static void add_origin(const struct ls_job_origin *origin, struct ls_buf *out)
{
    if (origin->kind == LS_ORIGIN_DEFAULT)
        ls_buf_printf(out, "default");
    else
        add_place(out, origin->place.file, origin->place.line);
}

static int depth_of(const char *group)
{
    int n = *group != '\0';
    for (; *group; group++)
        n += *group == '.';
    return n;
}

/* Closes and opens braces on the way from one group to another. */
static void move(struct ls_buf *out, char group[static 64], const char *path)
{
    char to[64];
    const char *dot = strrchr(path, '.');
    snprintf(to, sizeof to, "%.*s", dot ? (int)(dot - path) : 0, path);
    size_t n = strlen(group);
    while (n && (strncmp(to, group, n) != 0 || (to[n] && to[n] != '.'))) {
        char *last = strrchr(group, '.');
        ls_buf_printf(out, "%*s};\n", 4 * (depth_of(group) - 1), "");
        *(last ? last : group) = '\0';
        n = strlen(group);
    }
    while (strcmp(group, to) != 0) {
        const char *name = to + n + (n > 0);
        size_t len = strcspn(name, ".");
        ls_buf_printf(out, "%s%*s%.*s: {\n", n ? "" : "\n", 4 * depth_of(group), "", (int)len,
                      name);
        n = (size_t)(name - to) + len;
        memcpy(group, to, n);
        group[n] = '\0';
    }
}

static enum ls_status flush(struct ls_buf *text, FILE *out, struct ls_error *err)
{
    enum ls_status status = LS_OK;
    if (text->failed)
        status = ls_error_set(err, LS_ERR_NOMEM, "printing the job description: out of memory");
    else if (fwrite(text->data, 1, text->len, out) != text->len || fflush(out) != 0)
        status = ls_error_set(err, LS_ERR_IO, "printing the job description: write failed");
    ls_buf_free(text);
    return status;
}

enum ls_status ls_job_print(const struct ls_job *job, FILE *out, struct ls_error *err)
{
    struct ls_buf text;
    char group[64] = "";
    ls_buf_init(&text, MAX_TEXT);
    for (int i = 0; i < ls_job_keys.nkeys; i++) {
        const struct ls_job_key *key = &ls_job_keys.keys[i];
        if (!is_set(job, i))
            continue;
        move(&text, group, key->path);
        size_t start = text.len;
        int indent = 4 * depth_of(group);
        ls_buf_printf(&text, "%*s%s = ", indent, "", ls_job_leaf(key->path));
        if (key->kind == LS_JOB_LAYERS)
            add_layers(job->model.layers, job->model.nlayers, indent, CONFIG, &text);
        else
            add_value(key, job, CONFIG, &text);
        ls_buf_printf(&text, ";");
        size_t wide = text.len - start;
        ls_buf_printf(&text, "%*s # ", wide < COLUMN ? (int)(COLUMN - wide) : 0, "");
        add_origin(&job->origin[i], &text);
        ls_buf_printf(&text, "\n");
    }
    move(&text, group, "");
    return flush(&text, out, err);
}

enum ls_status ls_job_print_json(const struct ls_job *job, FILE *out, struct ls_error *err)
{
    struct ls_buf text, origin;
    const char *comma = "";
    ls_buf_init(&text, MAX_TEXT);
    ls_buf_printf(&text, "{\n  \"format\": %lld,\n  \"values\": {", (long long)job->format);
    for (int i = 0; i < ls_job_keys.nkeys; i++) {
        const struct ls_job_key *key = &ls_job_keys.keys[i];
        if (!is_set(job, i))
            continue;
        ls_buf_printf(&text, "%s\n    \"%s\": {\"value\": ", comma, key->path);
        comma = ",";
        if (key->kind == LS_JOB_LAYERS)
            add_layers(job->model.layers, job->model.nlayers, 4, JSON, &text);
        else
            add_value(key, job, JSON, &text);
        ls_buf_init(&origin, MAX_TEXT);
        add_origin(&job->origin[i], &origin);
        ls_buf_printf(&text, ", \"origin\": ");
        add_quoted(&text, origin.data ? origin.data : "");
        ls_buf_printf(&text, "}");
        ls_buf_free(&origin);
    }
    ls_buf_printf(&text, "\n  }\n}\n");
    return flush(&text, out, err);
}

/* One value as the file would say it. A micro-batch left to us counts as what it stands for. */
static void add_line(const struct ls_job *job, const struct ls_job_key *key, struct ls_buf *text)
{
    ls_buf_printf(text, "%s=", key->path);
    if (key->kind == LS_JOB_LAYERS)
        add_layers(job->model.layers, job->model.nlayers, 0, JSON, text);
    else if (key->offset == offsetof(struct ls_job, train.micro_batch) &&
             job->train.micro_batch == LS_JOB_AUTO)
        ls_buf_printf(text, "%lld", (long long)job->train.global_batch);
    else
        add_value(key, job, JSON, text);
    ls_buf_printf(text, "\n");
}

void ls_job_lines(const struct ls_job *job, struct ls_buf *text)
{
    for (int i = 0; i < ls_job_keys.nkeys; i++) {
        size_t start = text->len;
        if (!is_set(job, i))
            continue;
        add_line(job, &ls_job_keys.keys[i], text);
        /* A list of layers becomes one line, too. */
        for (size_t k = start; !text->failed && k + 1 < text->len; k++)
            if (text->data[k] == '\n')
                text->data[k] = ' ';
    }
}

/* Part of the hash: the rows marked LS_JOB_HASHED where they mean something, one per line as the
 * file would say them, layers included. The length of the run shapes numbers only through a schedule
 * that ends with it. Not part of it: names and paths, evaluation, buckets (they move rounding, not
 * meaning), checkpoints, resources. */
uint64_t ls_job_hash(const struct ls_job *job)
{
    struct ls_buf text;
    bool ends = job->optimizer.schedule.type == LS_SCHED_COSINE ||
                job->optimizer.schedule.type == LS_SCHED_LINEAR;
    ls_buf_init(&text, MAX_TEXT);
    for (int i = 0; i < ls_job_keys.nkeys; i++) {
        const struct ls_job_key *key = &ls_job_keys.keys[i];
        bool length = key->offset == offsetof(struct ls_job, train.steps) ||
                      key->offset == offsetof(struct ls_job, train.epochs);
        if (is_set(job, i) && (key->flags & LS_JOB_HASHED || (length && ends)))
            add_line(job, key, &text);
    }
    uint64_t hash = text.failed ? 0 : ls_hash64(text.data ? text.data : "");
    ls_buf_free(&text);
    return hash;
}
