/* The words after the plugin's name in plugstack.conf: strict key=value, no blank and no '#', which Slurm
 * would cut at. */
#include "spank/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ls_spank_switch_words[] = {"no", "yes", NULL};
const char *const ls_spank_bind_words[] = {"auto", "none", NULL};
const char *const ls_spank_check_words[] = {"off", "fast", "full", NULL};

const struct ls_spank_args ls_spank_args_default = {.enabled = LS_SPANK_YES,
                                                    .site = LS_SYSCONFDIR "/lockstep-site.conf"};

int ls_spank_word(const char *text, const char *const *words, struct ls_error *err)
{
    char list[128] = "";
    for (int i = 0; words[i]; i++) {
        if (!strcmp(text, words[i]))
            return i;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s",
                 i == 0         ? ""
                 : words[i + 1] ? ", "
                                : " or ",
                 words[i]);
    }
    ls_error_set(err, LS_ERR_USAGE, "found '%.80s', expected %s", text, list);
    return -1;
}

/* ---- one reader per kind of value ---- */

typedef bool reader(const char *text, struct ls_spank_args *args, struct ls_error *err);

static bool read_word(const char *text, const char *const *words, int *word, struct ls_error *err)
{
    int found = ls_spank_word(text, words, err);
    if (found >= 0)
        *word = found;
    return found >= 0;
}

static bool read_path(const char *text, char path[static 1024], struct ls_error *err)
{
    if (*text != '/' || strlen(text) >= 1024)
        return ls_error_set(err, LS_ERR_USAGE, "found '%.80s', expected a path that begins with /",
                            text) == LS_OK;
    strcpy(path, text);
    return true;
}

/* "unlimited", "hard", or a number with an optional KiB, MiB or GiB. */
static bool read_limit(const char *text, bool sizes, struct ls_spank_limit *limit,
                       struct ls_error *err)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    if (!strcmp(text, "hard") || (sizes && !strcmp(text, "unlimited"))) {
        *limit = (struct ls_spank_limit){*text == 'h' ? LS_SPANK_HARD : LS_SPANK_UNLIMITED, 0};
        return true;
    }
    char *end;
    errno = 0;
    unsigned long long n = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    for (size_t i = 0; n > 0 && !errno && i < (sizes ? sizeof units / sizeof *units : 1); i++)
        if (!strcmp(end, units[i].name) && n <= (UINT64_MAX >> 1) >> units[i].shift) {
            *limit = (struct ls_spank_limit){LS_SPANK_AT_LEAST, (rlim_t)n << units[i].shift};
            return true;
        }
    ls_error_set(err, LS_ERR_USAGE, "found '%.80s', expected %s", text,
                 sizes ? "unlimited, hard, or a size such as 64GiB" : "hard, or a number");
    return false;
}

static bool read_enabled(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_word(text, ls_spank_switch_words, &a->enabled, err);
}
static bool read_transport(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_word(text, ls_topo_transport_names, &a->transport, err);
}
static bool read_bind(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_word(text, ls_spank_bind_words, &a->bind, err);
}
static bool read_check(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_word(text, ls_spank_check_words, &a->check, err);
}
static bool read_site(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    a->site_given = true;
    return read_path(text, a->site, err);
}
static bool read_root(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_path(text, a->root, err);
}
static bool read_memlock(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_limit(text, true, &a->memlock, err);
}
/* The kernel refuses an unlimited number of files. */
static bool read_nofile(const char *text, struct ls_spank_args *a, struct ls_error *err)
{
    return read_limit(text, false, &a->nofile, err);
}

static const struct {
    const char *key;
    reader *read;
} keys[] = {{"enabled", read_enabled},     {"site", read_site},
            {"memlock", read_memlock},     {"nofile", read_nofile},
            {"transport", read_transport}, {"bind", read_bind},
            {"check", read_check},         {"root", read_root}};
#define KEYS (sizeof keys / sizeof *keys)

static const char *nearest(const char *key)
{
    size_t best = 0;
    for (size_t i = 1; i < KEYS; i++)
        if (ls_edit_distance(key, keys[i].key) < ls_edit_distance(key, keys[best].key))
            best = i;
    return keys[best].key;
}

enum ls_status ls_spank_args_parse(int argc, char **argv, struct ls_spank_args *args,
                                   struct ls_error *err)
{
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        char key[64];
        snprintf(key, sizeof key, "%.*s", equals ? (int)(equals - argv[i]) : 60, argv[i]);
        size_t k = 0;
        while (k < KEYS && strcmp(keys[k].key, key) != 0)
            k++;
        if (k == KEYS || !equals)
            return ls_error_set(
                err, LS_ERR_USAGE,
                "plugstack.conf: found '%.80s', expected key=value; the nearest key is "
                "'%s', all are in spank_lockstep(8)",
                argv[i], nearest(key));
        if (!keys[k].read(equals + 1, args, err))
            return ls_error_context(err, "plugstack.conf: %s", key);
    }
    return LS_OK;
}
