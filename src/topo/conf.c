/* Which variables nccl.conf and ucx.conf set. Both have lines NAME=VALUE and '#' comments; ucx.conf has
 * sections in brackets, too, whose settings hold for some machines only and count here just the same. */
#include "topo/rules.h"

#include <string.h>

static bool is_word(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Length of the name that a line sets; 0: none. */
static size_t name_length(const char *line, size_t n, const char **name)
{
    size_t first = 0;
    while (first < n && (line[first] == ' ' || line[first] == '\t'))
        first++;
    size_t end = first;
    while (end < n && is_word(line[end]))
        end++;
    size_t after = end;
    while (after < n && (line[after] == ' ' || line[after] == '\t'))
        after++;
    *name = line + first;
    return after < n && line[after] == '=' && end - first < 128 ? end - first : 0;
}

enum ls_status ls_topo_conf_keys(const char *text, struct ls_arena *arena, const char ***names,
                                 struct ls_error *err)
{
    enum { MOST = 4096 }; /* NCCL and UCX together have some 700 variables */
    size_t lines = 1, count = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    if (lines > MOST)
        lines = MOST;
    const char **list = ls_arena_alloc(arena, (lines + 1) * sizeof *list);
    if (!list)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the keys of a configuration file");
    for (const char *at = text; *at && count < lines;) {
        const char *name;
        size_t n = strcspn(at, "\n"), len = name_length(at, n, &name);
        if (len > 0) {
            char *copy = ls_arena_alloc(arena, len + 1);
            if (!copy)
                return ls_error_set(err, LS_ERR_NOMEM,
                                    "no memory for the keys of a configuration file");
            memcpy(copy, name, len);
            list[count++] = copy;
        }
        at += n + (at[n] == '\n');
    }
    *names = list;
    return LS_OK;
}
