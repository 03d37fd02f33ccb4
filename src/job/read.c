/* Reads a job description: source -> libconfig tree -> given values (file, then --set) -> filled
 * struct -> rules across keys. Every step reports into one list and goes on. */
#include "job/parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROWS   64
#define MAX_GROUPS 16

/* A text and libconfig's tree of it; a --set value is one too. */
struct tree {
    struct ls_job_source source;
    config_t config;
};

struct read {
    struct ls_job *job;
    struct ls_job_problems *problems;
    struct ls_job_given given[MAX_ROWS];
    struct ls_job_place groups[MAX_GROUPS]; /* where each group begins; file NULL: not there */
    bool bad_group[MAX_GROUPS];             /* reported, so its keys are not missed */
    struct tree *trees;                     /* the file's, then one per --set */
};

/* libconfig sees only text that ls_job_source_* has made; it has nothing to add unless the two
 * disagree about the format. */
static bool parse(struct tree *tree)
{
    config_init(&tree->config);
    const char *text = tree->source.text.data ? tree->source.text.data : "";
    if (config_read_string(&tree->config, text) == CONFIG_TRUE)
        return true;
    return ls_job_problem(
        tree->source.problems, ls_job_source_place(&tree->source, config_error_line(&tree->config)),
        "found text that libconfig does not take: %s",
        config_error_text(&tree->config) ? config_error_text(&tree->config) : "unknown error");
}

static int group_index(const char *path)
{
    for (int i = 0; i < ls_job_ngroups; i++)
        if (!strcmp(ls_job_groups[i].path, path))
            return i;
    return -1;
}

/* ---- unknown keys ------------------------------------------------------------------------------- */

/* Keys and groups that lie directly in a group, by their last name. */
static int names_in(const char *group, const char *names[static MAX_ROWS])
{
    int n = 0;
    for (int i = 0; i < ls_job_keys.nkeys; i = ls_job_key_end(&ls_job_keys, i))
        if (ls_job_in_group(ls_job_keys.keys[i].path, group))
            names[n++] = ls_job_leaf(ls_job_keys.keys[i].path);
    for (int i = 1; i < ls_job_ngroups; i++)
        if (ls_job_in_group(ls_job_groups[i].path, group))
            names[n++] = ls_job_leaf(ls_job_groups[i].path);
    return n;
}

/* The full path of a key that has this last name, wherever it is. */
static const char *elsewhere(const char *name)
{
    for (int i = 0; i < ls_job_keys.nkeys; i++)
        if (!strcmp(ls_job_leaf(ls_job_keys.keys[i].path), name))
            return ls_job_keys.keys[i].path;
    return NULL;
}

static void unknown_key(struct ls_job_problems *problems, const char *group, const char *name,
                        struct ls_job_place place)
{
    const char *names[MAX_ROWS];
    int n = names_in(group, names);
    const char *near = ls_job_nearest(name, names, n);
    struct ls_buf text;
    ls_buf_init(&text, 900);
    ls_buf_printf(&text, "found the unknown key %s%s%.60s, expected ", group, *group ? "." : "",
                  name);
    if (near || elsewhere(name)) {
        ls_buf_printf(&text, "a key of %s; did you mean %s?", *group ? group : "the top level",
                      near ? near : elsewhere(name));
    } else {
        for (int i = 0; i < n; i++)
            ls_buf_printf(&text, "%s%s", i ? ", " : n > 1 ? "one of " : "", names[i]);
    }
    ls_job_problem(problems, place, "%s", text.data ? text.data : "found an unknown key");
    ls_buf_free(&text);
}

/* ---- the file ------------------------------------------------------------------------------------ */

static void walk(struct read *read, const struct ls_job_source *source,
                 const config_setting_t *node, const char *group)
{
    for (int i = 0; i < config_setting_length(node); i++) {
        const config_setting_t *child = config_setting_get_elem(node, (unsigned)i);
        const char *name = config_setting_name(child);
        char path[128], found[128];
        if (!strncmp(name, LS_JOB_SKIP_KEY, strlen(LS_JOB_SKIP_KEY)))
            continue;
        snprintf(path, sizeof path, "%s%s%.60s", group, *group ? "." : "", name);
        struct ls_job_value v = ls_job_value_of(source, child);
        int key = ls_job_key_find(&ls_job_keys, path), inner = group_index(path);
        if (strlen(name) > 60)
            key = inner = -1;
        if (inner > 0) {
            read->groups[inner] = v.place;
            if (v.type == LS_VALUE_GROUP) {
                walk(read, source, child, path);
            } else {
                read->bad_group[inner] = true;
                if (v.type != LS_VALUE_BAD)
                    ls_job_problem(read->problems, v.place,
                                   "%s: found %s, expected a group { ... }", path,
                                   ls_job_value_found(&v, found));
            }
        } else if (key >= 0) {
            read->given[key] = (struct ls_job_given){true, v};
        } else {
            unknown_key(read->problems, group, name, v.place);
        }
    }
}

/* ---- --set ---------------------------------------------------------------------------------------- */

static bool set_key(struct read *read, const char *path, struct ls_job_place place, int *key)
{
    struct ls_job_problems *problems = read->problems;
    const char *names[MAX_ROWS];
    int n = 0;
    *key = ls_job_key_find(&ls_job_keys, path);
    if (*key >= 0)
        return true;
    if (!strncmp(path, "model.layers", 12) && path[12] && strchr(".[", path[12]))
        return ls_job_problem(problems, place,
                              "found %.80s, expected a key outside of model.layers: single layers "
                              "cannot be set from the command line, edit the file",
                              path);
    if (*path && group_index(path) >= 0)
        return ls_job_problem(problems, place,
                              "found the group %s, expected one of its keys, such as %s.%s=...",
                              path, path, names_in(path, names) ? names[0] : "key");
    for (int i = 0; i < ls_job_keys.nkeys; i = ls_job_key_end(&ls_job_keys, i))
        names[n++] = ls_job_keys.keys[i].path;
    const char *near = elsewhere(path) ? elsewhere(path) : ls_job_nearest(path, names, n);
    return ls_job_problem(problems, place,
                          "found the unknown key %.80s, expected a key of lockstep.cfg(5)%s%s%s",
                          path, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* What stands behind the = is libconfig syntax if it begins like it, and a string otherwise. */
static char *set_text(struct ls_arena *arena, const char *value)
{
    int64_t integer;
    double real;
    if (strchr("\"[({", value[0]) || !strcmp(value, "true") || !strcmp(value, "false") ||
        ls_job_number(value, strlen(value), &integer, &real) != LS_TOK_WORD)
        return ls_arena_printf(arena, "v = %s", value);
    size_t n = strlen(value), o = 0;
    char *text = ls_arena_alloc(arena, 2 * n + 8);
    if (!text)
        return NULL;
    o = (size_t)sprintf(text, "v = \"");
    for (size_t i = 0; i < n; i++) {
        if (value[i] == '"' || value[i] == '\\')
            text[o++] = '\\';
        text[o++] = value[i];
    }
    text[o++] = '"';
    text[o] = '\0';
    return text;
}

static void set(struct read *read, struct tree *tree, const char *spec, int index)
{
    struct ls_arena *arena = &read->job->arena;
    const char *equals = strchr(spec, '=');
    char *path = ls_arena_strdup(arena, spec);
    struct ls_job_place place = {"--set", 0, LS_JOB_ORDER_LAST + index};
    int key;
    if (!path) {
        read->problems->nomem = true;
        return;
    }
    if (!equals || equals == spec) {
        ls_job_problem(read->problems, place, "found %.80s, expected key=value", spec);
        return;
    }
    path[equals - spec] = '\0';
    char *label = ls_arena_printf(arena, "--set %.100s", path);
    if (!set_key(read, path, place, &key))
        return;
    const char *value = equals + 1 + strspn(equals + 1, " \t");
    char *text = *value ? set_text(arena, value) : NULL;
    if (!text || !label) {
        if (*value)
            read->problems->nomem = true;
        else
            ls_job_problem(read->problems, place, "found %s without a value, expected key=value",
                           path);
        return;
    }
    if (!ls_job_source_text(&tree->source, "--set", place.order, text)) {
        read->given[key].is = true;
        read->given[key].value = (struct ls_job_value){.type = LS_VALUE_BAD, .place = place};
        return;
    }
    if (!parse(tree))
        return;
    const config_setting_t *root = config_root_setting(&tree->config);
    if (config_setting_length(root) != 1) {
        ls_job_problem(read->problems, place, "found %.80s, expected one value", spec);
        return;
    }
    read->given[key].is = true;
    read->given[key].value = ls_job_value_of(&tree->source, config_setting_get_elem(root, 0));
    read->given[key].value.place = place;
}

/* `--set train.epochs=1` on a file with steps means "instead of". */
static void set_length(struct read *read)
{
    struct ls_job_given *steps = &read->given[ls_job_key_find(&ls_job_keys, "train.steps")];
    struct ls_job_given *epochs = &read->given[ls_job_key_find(&ls_job_keys, "train.epochs")];
    bool set_steps = steps->is && steps->value.place.line == 0;
    bool set_epochs = epochs->is && epochs->value.place.line == 0;
    if (set_steps && !set_epochs)
        epochs->is = false;
    if (set_epochs && !set_steps)
        steps->is = false;
}

/* ---- the whole ------------------------------------------------------------------------------------ */

/* Where something is missing: the innermost group that is there, or the file;
 * no place at all where that group was reported. */
static struct ls_job_place missing_place(const void *context, const char *path)
{
    const struct read *read = context;
    char group[64];
    snprintf(group, sizeof group, "%s", path);
    for (char *dot; (dot = strrchr(group, '.'));) {
        *dot = '\0';
        int i = group_index(group);
        if (i >= 0 && read->bad_group[i])
            return (struct ls_job_place){0};
        if (i >= 0 && read->groups[i].file)
            return read->groups[i];
    }
    return (struct ls_job_place){read->job->path, 0, LS_JOB_ORDER_LAST - 1};
}

/* A mean for three channels with no std (or the other way round): the default is for each. */
static void match_channels(struct ls_job *job)
{
    int mean = ls_job_key_find(&ls_job_keys, "data.mean");
    int std = ls_job_key_find(&ls_job_keys, "data.std");
    if (job->origin[std].kind == LS_ORIGIN_DEFAULT)
        while (job->data.nstd < job->data.nmean)
            job->data.std[job->data.nstd++] = job->data.std[0];
    if (job->origin[mean].kind == LS_ORIGIN_DEFAULT)
        while (job->data.nmean < job->data.nstd)
            job->data.mean[job->data.nmean++] = job->data.mean[0];
}

static void fill(struct read *read)
{
    struct ls_job *job = read->job;
    struct ls_job_reader reader = {&job->arena, read->problems, 0};
    struct ls_job_where where = {missing_place, read};
    size_t n = (size_t)ls_job_keys.nkeys;
    job->origin = ls_arena_alloc(&job->arena, n * sizeof *job->origin);
    if (!job->origin) {
        read->problems->nomem = true;
        return;
    }
    ls_job_resolve(&reader, &ls_job_keys, read->given, "", where, 0, job, job->origin);
    match_channels(job);
    ls_job_check(job, missing_place(read, "train.steps"), read->problems);
}

static enum ls_status verdict(struct ls_job_problems *problems, const char *path,
                              struct ls_error *err)
{
    if (problems->nomem)
        return ls_error_set(err, LS_ERR_NOMEM, "%s: out of memory", path);
    if (problems->total)
        return ls_error_set(err, LS_ERR_USAGE, "%s: %d %s in the job description", path,
                            problems->total, problems->total == 1 ? "problem" : "problems");
    return LS_OK;
}

enum ls_status ls_job_read(const char *path, const char *const *sets, int nsets,
                           struct ls_job **job, struct ls_buf *out, struct ls_error *err)
{
    struct ls_arena messages = {0};
    struct ls_job_problems problems = {.arena = &messages};
    enum ls_status status = LS_OK;
    size_t ntrees = (size_t)(nsets > 0 ? nsets : 0) + 1;
    struct read *read = calloc(1, sizeof *read);
    struct tree *trees = calloc(ntrees, sizeof *trees);
    struct ls_job *own = calloc(1, sizeof *own);
    if (read && trees && own)
        own->path = ls_arena_strdup(&own->arena, path);
    if (!read || !trees || !own || !own->path) {
        problems.nomem = true;
        goto out;
    }
    *read = (struct read){.job = own, .problems = &problems, .trees = trees};
    for (size_t i = 0; i < ntrees; i++) {
        trees[i].source.arena = &own->arena;
        trees[i].source.problems = &problems;
    }
    struct ls_error io = {0};
    bool readable = ls_job_source_file(&trees[0].source, path, &io) && parse(&trees[0]);
    if (io.status != LS_OK) {
        status = ls_error_set(err, io.status, "%s", io.message);
        goto out;
    }
    if (readable) {
        walk(read, &trees[0].source, config_root_setting(&trees[0].config), "");
        for (int i = 0; i < nsets; i++)
            set(read, &trees[i + 1], sets[i], i);
        set_length(read);
        fill(read);
    }
out:
    for (size_t i = 0; trees && i < ntrees; i++) {
        ls_job_source_free(&trees[i].source);
        if (config_root_setting(&trees[i].config))
            config_destroy(&trees[i].config);
    }
    free(trees);
    free(read);
    if (status == LS_OK)
        status = verdict(&problems, path, err);
    ls_job_problems_flush(&problems, out);
    ls_arena_free(&messages);
    if (status == LS_OK)
        *job = own;
    else
        ls_job_free(own);
    return status;
}

void ls_job_free(struct ls_job *job)
{
    if (!job)
        return;
    struct ls_arena arena = job->arena;
    free(job);
    ls_arena_free(&arena);
}
