/* From the values that were given to a filled struct, row by row of a table: which keys mean
 * something, which are missing, which take their default. Layers are groups inside lists, so the
 * same code fills them. */
#include "job/parts.h"

#include <string.h>

#define MAX_ROWS 64

enum applies { NO, YES, UNKNOWN };

/* UNKNOWN when the enumeration that decides is itself missing or wrong: then its dependents are
 * neither asked for nor turned away. */
static enum applies applies(const struct ls_job_table *table, const bool *bad, int row,
                            const void *base)
{
    const struct ls_job_key *key = &table->keys[row];
    while (key->when) {
        int on = ls_job_key_find(table, key->when);
        if (bad[on])
            return UNKNOWN;
        key = &table->keys[on];
    }
    return ls_job_key_applies(table, &table->keys[row], base) ? YES : NO;
}

static const char *label_of(const char *prefix, const char *path, char out[static 160])
{
    if (!*prefix)
        return path;
    snprintf(out, 160, "%.110s.%.40s", prefix, path);
    return out;
}

/* ` with type = "conv"`: the value on which a row depends. */
static void add_condition(const struct ls_job_table *table, const struct ls_job_key *key,
                          const void *base, struct ls_buf *out)
{
    const struct ls_job_key *on = &table->keys[ls_job_key_find(table, key->when)];
    ls_buf_printf(out, "%s = \"%s\"", on->path, on->words[ls_job_enum_get(on, base)]);
}

/* A key that is known, but not here. */
static void misplaced(struct ls_job_reader *reader, const struct ls_job_table *table, int row,
                      const char *label, const void *base, struct ls_job_place place)
{
    const struct ls_job_key *key = &table->keys[row], *on;
    struct ls_buf text;
    ls_buf_init(&text, 800);
    for (;;) { /* the first condition of the chain that does not hold is the one to name */
        on = &table->keys[ls_job_key_find(table, key->when)];
        if (!on->when || ls_job_key_applies(table, on, base))
            break;
        key = on;
    }
    ls_buf_printf(&text, "%s: found with ", label);
    add_condition(table, key, base, &text);
    ls_buf_printf(&text, ", expected only with ");
    const char *comma = "";
    unsigned mask = key->mask;
    if (key == &table->keys[row])
        for (int i = row; i < ls_job_key_end(table, row); i++)
            mask |= table->keys[i].mask;
    for (unsigned w = 0; on->words[w]; w++)
        if (mask >> w & 1) {
            ls_buf_printf(&text, "%s\"%s\"", comma, on->words[w]);
            comma = ", ";
        }
    if (table == &ls_layer_keys && on == &table->keys[0]) {
        ls_buf_printf(&text, "; a %s layer takes ",
                      ls_layer_keys.keys[0].words[ls_job_enum_get(&ls_layer_keys.keys[0], base)]);
        comma = "";
        for (int i = 1; i < table->nkeys; i++)
            if (ls_job_key_applies(table, &table->keys[i], base)) {
                ls_buf_printf(&text, "%s%s", comma, table->keys[i].path);
                comma = ", ";
            }
        if (!*comma)
            ls_buf_printf(&text, "no other keys");
    }
    ls_job_problem(reader->problems, place, "%s", text.data ? text.data : label);
    ls_buf_free(&text);
}

static void missing(struct ls_job_reader *reader, const struct ls_job_table *table,
                    const struct ls_job_key *key, const char *label, const void *base,
                    struct ls_job_place place)
{
    struct ls_buf text;
    if (!place.file) /* its whole group is wrong, and was reported */
        return;
    ls_buf_init(&text, 800);
    ls_buf_printf(&text, "%s: found nothing, expected ", label);
    ls_job_key_expected(key, &text);
    if (key->when) {
        ls_buf_printf(&text, " because ");
        add_condition(table, key, base, &text);
    }
    ls_job_problem(reader->problems, place, "%s", text.data ? text.data : label);
    ls_buf_free(&text);
}

bool ls_job_resolve(struct ls_job_reader *reader, const struct ls_job_table *table,
                    const struct ls_job_given *given, const char *prefix, struct ls_job_where where,
                    int depth, void *base, struct ls_job_origin *origin)
{
    bool bad[MAX_ROWS] = {0}, good = true;
    for (int i = 0, end; i < table->nkeys; i = end) {
        end = ls_job_key_end(table, i);
        int row = i;
        enum applies is = NO;
        for (int r = i; r < end && is != YES; r++) {
            enum applies this = applies(table, bad, r, base);
            if (this != NO) {
                is = this;
                row = r;
            }
        }
        const struct ls_job_key *key = &table->keys[row];
        struct ls_job_origin from = {0};
        char text[160];
        const char *label = label_of(prefix, key->path, text);
        bool fine = true;
        if (given[i].is && is == NO) {
            misplaced(reader, table, i, label, base, given[i].value.place);
            fine = false;
        } else if (given[i].is) {
            fine = ls_job_store(reader, key, label, &given[i].value, depth, base);
            from = (struct ls_job_origin){LS_ORIGIN_FILE, given[i].value.place};
        } else if (is == YES && key->flags & LS_JOB_REQUIRED) {
            missing(reader, table, key, label, base, where.find(where.context, key->path));
            fine = false;
        } else {
            fine = ls_job_store_default(reader, table, key, base);
            if (is == YES && key->fallback)
                from.kind = LS_ORIGIN_DEFAULT;
        }
        for (int r = i; r < end; r++)
            bad[r] = !fine;
        if (origin)
            origin[row] = from;
        good &= fine;
    }
    return good;
}
