/* What the results add up to. */
#include "check/internal.h"

#include <stdlib.h>
#include <string.h>

void ls_check_judge(const struct ls_check_list *list, struct ls_check_verdict *verdict)
{
    *verdict = (struct ls_check_verdict){.worst = LS_CHECK_PASS};
    int *group = malloc(((size_t)list->n + 1) * sizeof *group);
    if (group)
        ls_check_group(list, group);
    for (int i = 0; i < list->n; i++) {
        const struct ls_check_result *r = &list->result[i];
        if (!group || group[i] == i)
            verdict->count[r->status]++;
        /* A skip is no better and no worse than a pass. */
        if (r->status > verdict->worst && r->status != LS_CHECK_SKIP)
            verdict->worst = r->status;
        if (r->status == LS_CHECK_FAIL && !strncmp(r->check->id, "env.", 4) &&
            (!strcmp(r->check->id, "env.pmix") || !strcmp(r->check->id, "env.slurm")))
            verdict->environment = true;
    }
    free(group);
}

static bool alike(const struct ls_check_result *a, const struct ls_check_result *b)
{
    return a->check == b->check && a->status == b->status && !strcmp(a->device, b->device) &&
           !strcmp(a->measured, b->measured) && !strcmp(a->expected, b->expected) &&
           !strcmp(a->advice, b->advice);
}

static uint64_t hash(const struct ls_check_result *r)
{
    uint64_t h = ls_mix64((uint64_t)(r->check - ls_checks), (uint64_t)r->status);
    h = ls_mix64(h, ls_hash64(r->device));
    h = ls_mix64(h, ls_hash64(r->measured));
    return ls_mix64(h, ls_hash64(r->expected));
}

void ls_check_group(const struct ls_check_list *list, int *group)
{
    size_t slots = 16;
    while (slots < 2 * (size_t)list->n)
        slots *= 2;
    int *table =
        malloc(slots * sizeof *table); /* first results by hash; without memory: each alone */
    for (size_t i = 0; table && i < slots; i++)
        table[i] = -1;
    for (int i = 0; i < list->n; i++) {
        size_t at = (size_t)hash(&list->result[i]) & (slots - 1);
        group[i] = i;
        while (table && table[at] >= 0 && !alike(&list->result[table[at]], &list->result[i]))
            at = (at + 1) & (slots - 1);
        if (table && table[at] >= 0)
            group[i] = table[at];
        else if (table)
            table[at] = i;
    }
    free(table);
}

const char *ls_check_exclude(const struct ls_check_report *report, struct ls_arena *arena)
{
    const struct ls_check_list *list = &report->list;
    bool *bad = calloc((size_t)report->nodes + 1, sizeof *bad);
    const char **name = calloc((size_t)report->nodes + 1, sizeof *name);
    char *text = NULL;
    int n = 0;
    for (int i = 0; bad && i < list->n; i++) {
        const struct ls_check_result *r = &list->result[i];
        /* Between the nodes, who says so is not who is at fault; but who has not come does not say so. */
        if (!r->check->local && !r->check->compare &&
            (strcmp(r->check->id, "env.pmix") != 0 || r->status != LS_CHECK_TIMEOUT))
            continue;
        if (r->status >= LS_CHECK_TIMEOUT && r->rank >= 0 && report->node[r->rank] < report->nodes)
            bad[report->node[r->rank]] = true;
    }
    for (int r = 0; bad && name && r < report->size; r++) {
        int node = report->node[r];
        if (node < report->nodes && bad[node]) {
            name[n++] = report->host[r];
            bad[node] = false;
        }
    }
    struct ls_buf out;
    ls_buf_init(&out, (size_t)1 << 20);
    if (n > 0 && n < report->nodes && ls_hostlist_fold(name, n, &out, NULL) == LS_OK && out.data)
        text = ls_arena_strdup(arena, out.data);
    ls_buf_free(&out);
    free(bad);
    free(name);
    return text ? text : "";
}
