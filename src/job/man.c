/* The schema as mdoc, for lockstep.cfg(5): the page cannot forget a key. */
#include "job/parts.h"

#include <string.h>

/* Text lines of mdoc: escapes what roff would take for its own. */
static void text(FILE *out, const char *s)
{
    const char *start = s;
    if (*s == '.' || *s == '\'')
        fputs("\\&", out);
    for (; *s; s++)
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else if (*s == '"')
            fputs("\\(dq", out);
        else if (*s == ' ' && s > start && s[-1] == '.' && s[1] >= 'A' && s[1] <= 'Z')
            fputc('\n', out); /* mdoc wants each sentence on a line */
        else
            fputc(*s, out);
}

static const char *kind_name(enum ls_job_kind kind)
{
    static const char *const names[] = {
        [LS_JOB_INT] = "integer",   [LS_JOB_FLOAT] = "number",  [LS_JOB_BOOL] = "boolean",
        [LS_JOB_STRING] = "text",   [LS_JOB_ENUM] = "word",     [LS_JOB_BYTES] = "size",
        [LS_JOB_TIME] = "time",     [LS_JOB_INTS] = "integers", [LS_JOB_FLOATS] = "numbers",
        [LS_JOB_LAYERS] = "layers",
    };
    return names[kind];
}

static void condition(FILE *out, const struct ls_job_table *table, const struct ls_job_key *key,
                      bool layer)
{
    if (!key->when || (layer && !strcmp(key->when, "type")))
        return; /* layers are listed by type already */
    const struct ls_job_key *on = &table->keys[ls_job_key_find(table, key->when)];
    const char *comma = "";
    fprintf(out, "Only with %s ", on->path);
    for (unsigned w = 0; on->words[w]; w++)
        if (key->mask >> w & 1) {
            fprintf(out, "%s\\(dq%s\\(dq", comma, on->words[w]);
            comma = ", ";
        }
    fputs(".\n", out);
}

/* Type, range and default of a row, then its meaning. */
static void item(FILE *out, const struct ls_job_table *table, const struct ls_job_key *key,
                 bool layer)
{
    struct ls_buf expected;
    ls_buf_init(&expected, 1024);
    ls_job_key_expected(key, &expected);
    fprintf(out, ".It Ic %s Pq Em %s", ls_job_leaf(key->path), kind_name(key->kind));
    fputc('\n', out);
    text(out, key->doc);
    fputc('\n', out);
    condition(out, table, key, layer);
    fputs("Expected: ", out);
    text(out, expected.data ? expected.data : "");
    fputs(".\n", out);
    if (key->flags & LS_JOB_REQUIRED)
        fputs("Required.\n", out);
    else if (!key->fallback)
        fputs("Not set by default.\n", out);
    else if (key->fallback[0] == '<') {
        const char *end = strchr(key->fallback, '>');
        fprintf(out, "Default: the value of\n.Ic %.*s", (int)(end - key->fallback - 1),
                key->fallback + 1);
        fprintf(out, end[1] ? " ,\nfollowed by %s.\n" : " .\n", end + 1);
    } else {
        fputs("Default: ", out);
        text(out, key->fallback);
        fputs(".\n", out);
    }
    ls_buf_free(&expected);
}

static void layer_types(FILE *out)
{
    const struct ls_job_table *table = &ls_layer_keys;
    fputs(".Sh LAYERS\n"
          "Each element of\n.Ic model.layers\nis a group with the key\n.Ic type\n"
          "and the keys of that type.\n",
          out);
    for (unsigned type = 0; table->keys[0].words[type]; type++) {
        bool any = false;
        fprintf(out, ".Ss %s\n", table->keys[0].words[type]);
        for (int i = 1; i < table->nkeys; i++) {
            const struct ls_job_key *key = &table->keys[i], *on = key;
            while (on->when && strcmp(on->when, "type") != 0)
                on = &table->keys[ls_job_key_find(table, on->when)];
            if (!(on->mask >> type & 1))
                continue;
            if (!any)
                fputs(".Bl -tag -width Ds\n", out);
            any = true;
            item(out, table, key, true);
        }
        fputs(any ? ".El\n" : "No keys besides\n.Ic type .\n", out);
    }
}

void ls_job_print_man(FILE *out)
{
    fputs(".Sh KEYS\n", out);
    for (int g = 0; g < ls_job_ngroups; g++) {
        const struct ls_job_group *group = &ls_job_groups[g];
        bool any = false;
        fprintf(out, ".Ss %s\n", *group->path ? group->path : "Top level");
        text(out, group->doc);
        fputc('\n', out);
        for (int i = 0; i < ls_job_keys.nkeys; i++) {
            if (!ls_job_in_group(ls_job_keys.keys[i].path, group->path))
                continue;
            if (!any)
                fputs(".Bl -tag -width Ds\n", out);
            any = true;
            item(out, &ls_job_keys, &ls_job_keys.keys[i], false);
        }
        if (any)
            fputs(".El\n", out);
    }
    layer_types(out);
}
