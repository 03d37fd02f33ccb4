/* What Slurm's environment is made of: hostlists, run lengths, visible devices. No crash, bounded memory,
 * a message for every refusal, and what is accepted is consistent: names in order are as many as the
 * count says, and fold back into a list of the same names. */
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(truth)  \
    do {              \
        if (!(truth)) \
            abort();  \
    } while (0)

static bool said(enum ls_status status, const struct ls_error *err)
{
    return (status == LS_OK) == (err->message[0] == '\0') && err->status == status;
}

/* Expands and folds; only small lists, so that many are tried. */
static void check_names(const struct ls_hostlist *list)
{
    struct ls_hostlist again;
    struct ls_error err = {0};
    struct ls_buf names, folded, second;
    char name[LS_HOSTLIST_NAME_MAX + 1];
    const char **lines = calloc((size_t)list->count, sizeof *lines);
    ls_buf_init(&names, (size_t)1 << 24);
    ls_buf_init(&folded, (size_t)1 << 24);
    ls_buf_init(&second, (size_t)1 << 24);
    ls_hostlist_expand(list, '\0', &names);
    HOLDS(lines && !names.failed);
    const char *at = names.data;
    for (int i = 0; i < list->count; i++, at += strlen(at) + 1) {
        HOLDS(strlen(at) > 0 && strlen(at) <= LS_HOSTLIST_NAME_MAX);
        HOLDS(!strcmp(ls_hostlist_nth(list, i, name), at));
        lines[i] = at;
    }
    HOLDS(at == names.data + names.len);
    HOLDS(ls_hostlist_find(list, lines[list->count - 1]) >= 0);
    /* What a bracket in front makes, such as "[1]-x", may begin with anything but '-'. */
    HOLDS(ls_hostlist_fold(lines, list->count, &folded, &err) == LS_OK);
    HOLDS(ls_hostlist_parse(folded.data, &again, &err) == LS_OK && again.count == list->count);
    ls_hostlist_expand(&again, '\0', &second);
    HOLDS(second.len == names.len && !memcmp(second.data, names.data, names.len));
    ls_hostlist_free(&again);
    ls_buf_free(&names);
    ls_buf_free(&folded);
    ls_buf_free(&second);
    free(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), name[LS_HOSTLIST_NAME_MAX + 1];
    HOLDS(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';

    struct ls_hostlist list;
    struct ls_error err = {0};
    HOLDS(said(ls_hostlist_parse(text, &list, &err), &err));
    HOLDS(list.count >= 0 && list.count <= LS_HOSTLIST_MAX);
    if (list.count) {
        HOLDS(ls_hostlist_nth(&list, list.count - 1, name) && name[0]);
        HOLDS(!ls_hostlist_nth(&list, list.count, name));
        if (list.count <= 300)
            check_names(&list);
    }
    ls_hostlist_free(&list);

    int *values, count;
    err = (struct ls_error){0};
    HOLDS(said(ls_runs_parse(text, &values, &count, &err), &err));
    for (int i = 0; i < count; i++)
        HOLDS(values[i] >= 1 && values[i] <= 65535);
    free(values);

    struct ls_arena arena = {0};
    struct ls_visible visible;
    err = (struct ls_error){0};
    HOLDS(said(ls_visible_parse(text, &arena, &visible, &err), &err));
    for (int i = 0; i < visible.count; i++)
        HOLDS(visible.uuid ? visible.uuid[i][0] != '\0' : visible.index[i] >= 0);
    ls_arena_free(&arena);
    free(text);
    return 0;
}
