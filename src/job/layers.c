/* The recursive list model.layers: a group per layer, residual blocks with lists of their own. */
#include "job/parts.h"

#include <string.h>

#define MAX_LAYER_ROWS 32

static struct ls_job_place layer_place(const void *context, const char *path)
{
    (void)path;
    return *(const struct ls_job_place *)context;
}

static void unknown_key(struct ls_job_reader *reader, const char *label, const char *name,
                        struct ls_job_place place)
{
    const char *names[MAX_LAYER_ROWS];
    for (int i = 0; i < ls_layer_keys.nkeys; i++)
        names[i] = ls_layer_keys.keys[i].path;
    const char *near = ls_job_nearest(name, names, ls_layer_keys.nkeys);
    ls_job_problem(reader->problems, place,
                   "%s: found the unknown key %.60s, expected a key of a layer%s%s%s", label, name,
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* One element of the list. */
static bool layer(struct ls_job_reader *reader, const char *label, const struct ls_job_value *v,
                  int depth, struct ls_layer *out)
{
    struct ls_job_given given[MAX_LAYER_ROWS] = {0};
    bool good = true;
    char found[128];
    if (v->type == LS_VALUE_BAD)
        return false;
    if (v->type != LS_VALUE_GROUP)
        return ls_job_problem(reader->problems, v->place,
                              "%s: found %s, expected a layer such as { type = \"relu\"; }", label,
                              ls_job_value_found(v, found));
    for (int i = 0; i < config_setting_length(v->node); i++) {
        const config_setting_t *node = config_setting_get_elem(v->node, (unsigned)i);
        const char *name = config_setting_name(node);
        if (!strncmp(name, LS_JOB_SKIP_KEY, strlen(LS_JOB_SKIP_KEY))) {
            good = false;
            continue;
        }
        struct ls_job_value value = ls_job_value_of(v->source, node);
        int row = ls_job_key_find(&ls_layer_keys, name);
        if (row >= 0) {
            given[row] = (struct ls_job_given){true, value};
        } else {
            unknown_key(reader, label, name, value.place);
            good = false;
        }
    }
    out->file = v->place.file;
    out->line = v->place.line;
    struct ls_job_where where = {layer_place, &v->place};
    good &= ls_job_resolve(reader, &ls_layer_keys, given, label, where, depth + 1, out, NULL);
    /* A window that lies in the padding alone would have nothing to take the maximum of. */
    if (good && (out->type == LS_LAYER_MAX_POOL || out->type == LS_LAYER_AVG_POOL) &&
        out->pad >= out->kernel)
        good = ls_job_problem(reader->problems, v->place,
                              "%s: found pad = %lld, expected less than kernel = %lld", label,
                              (long long)out->pad, (long long)out->kernel);
    return good;
}

bool ls_job_layers(struct ls_job_reader *reader, const char *label, const struct ls_job_value *v,
                   int depth, struct ls_layer **layers, int *nlayers)
{
    int n = config_setting_length(v->node);
    bool good = true;
    if (depth >= LS_JOB_MAX_LAYER_DEPTH)
        return ls_job_problem(reader->problems, v->place,
                              "%s: found layers inside each other %d deep, expected at most %d",
                              label, depth + 1, LS_JOB_MAX_LAYER_DEPTH);
    if (n > LS_JOB_MAX_LAYERS - reader->layers)
        return ls_job_problem(reader->problems, v->place,
                              "%s: found too many layers, expected at most %d in all", label,
                              LS_JOB_MAX_LAYERS);
    if (n == 0) {
        bool may = !strcmp(ls_job_leaf(label), "shortcut");
        return may || ls_job_problem(reader->problems, v->place,
                                     "%s: found an empty list, expected at least one layer", label);
    }
    reader->layers += n;
    struct ls_layer *list = ls_arena_alloc(reader->arena, sizeof *list * (size_t)n);
    if (!list) {
        reader->problems->nomem = true;
        return false;
    }
    for (int i = 0; i < n; i++) {
        char name[128];
        struct ls_job_value element =
            ls_job_value_of(v->source, config_setting_get_elem(v->node, (unsigned)i));
        snprintf(name, sizeof name, "%.110s[%d]", label, i);
        good &= layer(reader, name, &element, depth, &list[i]);
    }
    *layers = list;
    *nlayers = n;
    return good;
}
