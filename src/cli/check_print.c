/* A report as text, as JSON, and as a line for Nagios. */
#include "cli/check_print.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 1 << 20 };

/* ---- nodes of a group of results ---- */

struct nodes {
    struct ls_buf names; /* folded: "n[0-3]" */
    int count;
};

/* The nodes of all results of `group` number `g`; of the whole job: none. */
static void collect(const struct ls_check_report *report, const int *group, int g,
                    struct nodes *nodes)
{
    const struct ls_check_list *list = &report->list;
    const char **name = calloc((size_t)report->nodes + 1, sizeof *name);
    *nodes = (struct nodes){.count = 0};
    ls_buf_init(&nodes->names, MOST_NAMES);
    for (int i = 0; name && i < list->n; i++) {
        int rank = list->result[i].rank;
        if (group[i] == g && rank >= 0 && report->node[rank] < report->nodes)
            name[report->node[rank]] = report->host[rank];
    }
    for (int i = 0; name && i < report->nodes; i++)
        if (name[i])
            name[nodes->count++] = name[i];
    if (nodes->count && ls_hostlist_fold(name, nodes->count, &nodes->names, NULL) != LS_OK) {
        nodes->names.len = 0; /* names that no host list can hold */
        for (int i = 0; i < nodes->count; i++)
            ls_buf_printf(&nodes->names, "%s%s", i ? "," : "", name[i]);
    }
    free(name);
}

/* ---- text ---- */

static void print_result(const struct ls_check_report *report, const int *group, int g, FILE *out)
{
    const struct ls_check_result *r = &report->list.result[g];
    struct nodes nodes;
    collect(report, group, g, &nodes);
    fprintf(out, "%-7s  %-12s  ", ls_check_status_names[r->status], r->check->id);
    if (nodes.count && report->nodes > 1) {
        if (nodes.count == report->nodes)
            fprintf(out, "all nodes");
        else
            fputs(nodes.names.data ? nodes.names.data : "", out);
        fprintf(out, *r->device ? " " : ": ");
    }
    if (*r->device)
        fprintf(out, "%s: ", r->device);
    fputs(r->measured, out);
    if (*r->expected)
        fprintf(out, "; expected %s", r->expected);
    if (*r->advice)
        fprintf(out, "; %s", r->advice);
    if (r->status >= LS_CHECK_WARN && nodes.count && nodes.count < report->nodes)
        fprintf(out, "; or leave out: --exclude=%s", nodes.names.data ? nodes.names.data : "");
    fputc('\n', out);
    ls_buf_free(&nodes.names);
}

/* The nodes of a group where they are not all of them, "n[0-1]"; else "". malloc'd; NULL: no memory. */
static char *some_nodes(const struct ls_check_report *report, const int *group, int g)
{
    struct nodes nodes;
    collect(report, group, g, &nodes);
    bool some = nodes.count && nodes.count < report->nodes && nodes.names.data;
    char *text = strdup(some ? nodes.names.data : "");
    ls_buf_free(&nodes.names);
    return text;
}

/* Checks that were skipped for the same reason on the same nodes share a line. */
static void print_skipped(const struct ls_check_report *report, const int *group, FILE *out)
{
    const struct ls_check_list *list = &report->list;
    char **where = calloc((size_t)list->n + 1, sizeof *where);
    for (int i = 0; where && i < list->n; i++)
        if (list->result[i].status == LS_CHECK_SKIP && group[i] == i)
            where[i] = some_nodes(report, group, i);
    for (int i = 0; where && i < list->n; i++) {
        const char *why = list->result[i].measured, *before = ": ";
        if (!where[i])
            continue;
        fprintf(out, "skip     %s%s%s", where[i], *where[i] ? ": " : "", why);
        for (int j = i; j < list->n; j++) {
            if (!where[j] || strcmp(list->result[j].measured, why) != 0 ||
                strcmp(where[j], where[i]) != 0)
                continue;
            fprintf(out, "%s%s", before, list->result[j].check->id);
            before = ", ";
            if (j > i) {
                free(where[j]);
                where[j] = NULL;
            }
        }
        fputc('\n', out);
        free(where[i]);
    }
    if (!where)
        fputs("out of memory\n", out);
    free(where);
}

void ls_check_print_text(const struct ls_check_report *report, bool quiet, FILE *out)
{
    const struct ls_check_list *list = &report->list;
    struct ls_check_verdict v;
    struct ls_arena arena = {0};
    int *group = malloc(((size_t)list->n + 1) * sizeof *group);
    if (!group) {
        fputs("out of memory\n", out);
        return;
    }
    ls_check_group(list, group);
    ls_check_judge(list, &v);
    for (int c = 0; c < ls_nchecks; c++)
        for (int i = 0; i < list->n; i++)
            if (list->result[i].check == &ls_checks[c] && group[i] == i &&
                list->result[i].status != LS_CHECK_SKIP &&
                (!quiet || list->result[i].status > LS_CHECK_SKIP))
                print_result(report, group, i, out);
    if (!quiet)
        print_skipped(report, group, out);
    if (!quiet || v.worst > LS_CHECK_SKIP) {
        fprintf(out, "%d %s in %.1f s: %d passed, %d skipped, %d warned, %d timed out, %d failed\n",
                report->nodes, report->nodes == 1 ? "node" : "nodes", report->seconds,
                v.count[LS_CHECK_PASS], v.count[LS_CHECK_SKIP], v.count[LS_CHECK_WARN],
                v.count[LS_CHECK_TIMEOUT], v.count[LS_CHECK_FAIL]);
        const char *exclude = ls_check_exclude(report, &arena);
        if (*exclude)
            fprintf(out, "to go on without the nodes that failed: --exclude=%s\n", exclude);
    }
    ls_arena_free(&arena);
    free(group);
}

/* ---- JSON ---- */

static const char *verdict_name(const struct ls_check_verdict *v)
{
    return ls_check_status_names[v->worst];
}

static json_t *json_nodes(const struct ls_check_report *report)
{
    json_t *nodes = json_array();
    for (int n = 0; n < report->nodes; n++)
        for (int r = 0; r < report->size; r++)
            if (report->node[r] == n && *report->host[r]) {
                json_array_append_new(nodes, json_string(report->host[r]));
                break;
            }
    return nodes;
}

static json_t *json_result(const struct ls_check_report *report, const struct ls_check_result *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(r->check->id));
    json_object_set_new(o, "status", json_string(ls_check_status_names[r->status]));
    json_object_set_new(o, "node", r->rank >= 0 ? json_string(report->host[r->rank]) : json_null());
    json_object_set_new(o, "rank", r->rank >= 0 ? json_integer(r->rank) : json_null());
    json_object_set_new(o, "device", *r->device ? json_string(r->device) : json_null());
    json_object_set_new(o, "measured", json_string(r->measured));
    json_object_set_new(o, "expected", json_string(r->expected));
    json_object_set_new(o, "advice", json_string(r->advice));
    return o;
}

bool ls_check_print_json(const struct ls_check_report *report, int exit_code, FILE *out)
{
    struct ls_check_verdict v;
    struct ls_arena arena = {0};
    ls_check_judge(&report->list, &v);
    json_t *o = json_object(), *counts = json_object(), *checks = json_array();
    for (int s = 0; ls_check_status_names[s]; s++)
        json_object_set_new(counts, ls_check_status_names[s], json_integer(v.count[s]));
    for (int i = 0; i < report->list.n; i++)
        json_array_append_new(checks, json_result(report, &report->list.result[i]));
    json_object_set_new(o, "schema", json_integer(1));
    json_object_set_new(o, "verdict", json_string(verdict_name(&v)));
    json_object_set_new(o, "exit_code", json_integer(exit_code));
    json_object_set_new(o, "seconds", json_real(report->seconds));
    json_object_set_new(o, "ranks", json_integer(report->size));
    json_object_set_new(o, "nodes", json_nodes(report));
    json_object_set_new(o, "stuck", report->stuck ? json_string(report->stuck) : json_null());
    json_object_set_new(o, "exclude", json_string(ls_check_exclude(report, &arena)));
    json_object_set_new(o, "counts", counts);
    json_object_set_new(o, "checks", checks);
    bool ok = json_dumpf(o, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
              fputc('\n', out) != EOF && fflush(out) == 0;
    json_decref(o);
    ls_arena_free(&arena);
    return ok;
}

/* ---- Nagios ---- */

/* A bar would begin the numbers, and so may not be in the words. */
static void print_first(const struct ls_check_report *report, const int *group, int first,
                        FILE *out)
{
    const struct ls_check_result *r = &report->list.result[first];
    struct nodes nodes;
    collect(report, group, first, &nodes);
    fputs(r->check->id, out);
    if (nodes.count)
        fprintf(out, " on %s", nodes.names.data ? nodes.names.data : "");
    fprintf(out, ": %s%s", r->device, *r->device ? ": " : "");
    for (const char *c = r->measured; *c; c++)
        fputc(*c == '|' ? '/' : *c, out);
    ls_buf_free(&nodes.names);
}

int ls_check_print_nagios(const struct ls_check_report *report, FILE *out)
{
    static const struct {
        const char *word;
        int code;
    } of[] = {[LS_CHECK_PASS] = {"OK", 0},
              [LS_CHECK_SKIP] = {"OK", 0},
              [LS_CHECK_WARN] = {"WARNING", 1},
              [LS_CHECK_TIMEOUT] = {"UNKNOWN", 3},
              [LS_CHECK_FAIL] = {"CRITICAL", 2}};
    struct ls_check_verdict v;
    const struct ls_check_list *list = &report->list;
    int *group = malloc(((size_t)list->n + 1) * sizeof *group), first = 0;
    if (!group) {
        fputs("LOCKSTEP UNKNOWN - out of memory\n", out);
        return of[LS_CHECK_TIMEOUT].code;
    }
    ls_check_group(list, group);
    ls_check_judge(list, &v);
    fprintf(out, "LOCKSTEP %s - ", of[v.worst].word);
    while (first < list->n && list->result[first].status != v.worst)
        first++;
    if (v.worst == LS_CHECK_PASS || first == list->n)
        fprintf(out, "%d checks passed, %d skipped", v.count[LS_CHECK_PASS],
                v.count[LS_CHECK_SKIP]);
    else
        print_first(report, group, first, out);
    free(group);
    int others = v.count[LS_CHECK_WARN] + v.count[LS_CHECK_TIMEOUT] + v.count[LS_CHECK_FAIL] - 1;
    if (others > 0)
        fprintf(out, ", and %d more", others);
    fprintf(out, " | seconds=%.2f nodes=%d failed=%d timedout=%d warned=%d skipped=%d\n",
            report->seconds, report->nodes, v.count[LS_CHECK_FAIL], v.count[LS_CHECK_TIMEOUT],
            v.count[LS_CHECK_WARN], v.count[LS_CHECK_SKIP]);
    return of[v.worst].code;
}
