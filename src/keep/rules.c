/* Applies the rules of src/topo to the ranks of this keeper, as Slurm's plugin does for tasks. */
#include "keep/rules.h"
#include "keep/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- one rank ---- */

/* The environment as one rank of a task is to see it. */
struct view {
    const struct ls_topo_request *rules;
    bool several; /* this task has other ranks */
    bool sole;    /* its ranks are all of this node */
};

/* Slurm binds tasks and counts their CPUs: with several ranks in a task, --cpu-bind=none leaves binding to us,
 * and a mask smaller than the node's CPUs is the one that these ranks share. */
static const char *of_rank(void *user, const char *name)
{
    const struct view *v = user;
    const char *value = v->rules->get ? v->rules->get(v->rules->user, name) : NULL;
    if (!value || !v->several)
        return value;
    if (!strcmp(name, "SLURM_CPU_BIND_TYPE") || !strcmp(name, "SLURM_CPUS_PER_TASK"))
        return NULL;
    if (v->sole && !strcmp(name, "SLURM_CPUS_ON_NODE") &&
        CPU_COUNT(&v->rules->machine->allowed) < atoi(value))
        return NULL;
    return value;
}

enum ls_status ls_keep_decide(const struct ls_topo_request *rules, const struct ls_wire_map *map,
                              int rank, struct ls_arena *arena, struct ls_topo_decision *decision,
                              struct ls_error *err)
{
    const struct ls_wire_place *at = &map->rank[rank];
    int local_size = 0, workers = map->first[at->keeper + 1] - map->first[at->keeper];
    for (int r = 0; r < map->size; r++)
        local_size += map->rank[r].node == at->node;
    struct view view = {.rules = rules, .several = workers > 1, .sole = workers == local_size};
    struct ls_topo_request request = *rules;
    request.get = of_rank;
    request.user = &view;
    request.local_rank = at->local_rank;
    request.local_size = local_size;
    request.ranks = map->size;
    request.nodes = map->n_nodes;
    return ls_topo_decide(&request, arena, decision, err);
}

/* ---- its environment ---- */

static bool is_named(const char *variable, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(variable, name, n) && variable[n] == '=';
}

static bool is_decided(const struct ls_topo_decision *d, const char *variable)
{
    for (int i = 0; i < d->nvariable; i++)
        if (is_named(variable, d->variable[i].name))
            return true;
    return false;
}

bool ls_keep_set_decided(const struct ls_topo_decision *decision, struct ls_arena *arena,
                         char **env, int *n)
{
    static const char name[] = LS_TOPO_SET_VARIABLE;
    const char *before = NULL;
    int left = 0;
    bool whole = true;
    struct ls_buf set;
    for (int i = 0; i < *n; i++)
        if (is_named(env[i], name))
            before = env[i] + sizeof name;
    for (int i = 0; i < *n; i++)
        if (!is_named(env[i], name) &&
            !(is_decided(decision, env[i]) && ls_topo_is_set_by_us(before, env[i])))
            env[left++] = env[i];
    ls_buf_init(&set, (size_t)1 << 16);
    ls_buf_printf(&set, "%s=", name);
    for (int i = 0; i < decision->nvariable && whole; i++) {
        const struct ls_topo_variable *v = &decision->variable[i];
        if (!v->value)
            continue;
        whole = (env[left++] = ls_arena_printf(arena, "%s=%s", v->name, v->value)) != NULL;
        ls_buf_printf(&set, "%s%s=%s", set.len > sizeof name ? ";" : "", v->name, v->value);
    }
    whole = whole && !set.failed && (env[left++] = ls_arena_strdup(arena, set.data)) != NULL;
    ls_buf_free(&set);
    *n = left;
    return whole;
}

/* ---- all ranks here ---- */

static bool is_noted(const struct ls_topo_decision *d, const char *text)
{
    for (int i = 0; i < d->nnote; i++)
        if (!strcmp(d->note[i].text, text))
            return true;
    return false;
}

static bool is_repeated(const struct ls_keeper *k, int worker, const char *text)
{
    for (int w = 0; w < worker; w++)
        if (is_noted(&k->decision[w], text))
            return true;
    return false;
}

/* What Slurm's plugin has said: its decision for this task, for which tasks are ranks. What it could not decide it
 * has not said either, and *task is empty. */
static void decide_task(struct ls_keeper *k, struct ls_topo_decision *task)
{
    const struct ls_wire_map *map = &k->map;
    struct ls_topo_request request = *k->config->rules;
    struct ls_error err = {0};
    request.machine = k->config->told;
    request.local_rank = request.local_size = 0;
    request.ranks = map->n_keepers;
    request.nodes = map->n_nodes;
    for (int i = 0; i < map->n_keepers; i++)
        if (map->rank[map->first[i]].node == map->rank[map->first[k->me]].node) {
            request.local_rank += i < k->me;
            request.local_size++;
        }
    if (ls_topo_decide(&request, &k->arena, task, &err) != LS_OK)
        *task = (struct ls_topo_decision){0};
}

/* Warnings from the first node, since nodes are mostly alike, problems from every one; what is of a node and not of
 * a rank from its first keeper. Outside a job nobody has asked for GPUs or a network: only problems, and none
 * where there are no such devices. */
static void say_notes(struct ls_keeper *k)
{
    const struct ls_keep_config *c = k->config;
    const struct ls_topo_request *r = c->rules;
    const struct ls_wire_place *first = &k->map.rank[k->map.first[k->me]];
    bool job = r->get && r->get(r->user, "SLURM_JOB_ID");
    enum ls_topo_level least = job && first->node == 0 ? LS_TOPO_WARN : LS_TOPO_PROBLEM;
    struct ls_topo_decision task = {0};
    if (!job && r->machine->ngpu == 0 && r->machine->nnic == 0)
        return;
    if (c->told)
        decide_task(k, &task);
    for (int w = 0; w < c->workers; w++)
        for (int i = 0; i < k->decision[w].nnote; i++) {
            const struct ls_topo_note *note = &k->decision[w].note[i];
            if (note->level >= least && (note->own || first->local_rank == 0) &&
                !is_repeated(k, w, note->text) && !is_noted(&task, note->text))
                fprintf(c->out, "lockstep: warning: %s: %s\n", k->host[k->me], note->text);
        }
}

enum ls_status ls_keep_apply_rules(struct ls_keeper *k, struct ls_error *err)
{
    const struct ls_keep_config *c = k->config;
    if (!c->rules)
        return LS_OK;
    k->decision = calloc((size_t)c->workers, sizeof *k->decision);
    if (!k->decision)
        return ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
    for (int i = 0; i < c->workers; i++)
        LS_TRY(
            ls_keep_decide(c->rules, &k->map, k->worker[i].rank, &k->arena, &k->decision[i], err));
    return LS_OK;
}

bool ls_keep_limit_threads(struct ls_keeper *k, const struct ls_worker *w)
{
    struct ls_topo_decision *d = k->decision ? &k->decision[w - k->worker] : NULL;
    for (int i = 0; d && i < d->nvariable; i++) {
        struct ls_topo_variable *v = &d->variable[i];
        if (strcmp(v->name, "OMP_NUM_THREADS") == 0 && v->value && atoi(v->value) > w->cores &&
            !(v->value = ls_arena_printf(&k->arena, "%d", w->cores)))
            return false;
    }
    return true;
}

/* ---- what is printed ---- */

struct speaker {
    FILE *out;
    int rank;
};

static void say_line(void *user, const char *line)
{
    const struct speaker *s = user;
    fprintf(s->out, "lockstep: rank %d: %s\n", s->rank, line);
}

void ls_keep_say_rules(struct ls_keeper *k)
{
    const struct ls_keep_config *c = k->config;
    if (!k->decision)
        return;
    if (!c->explain || k->map.rank[k->map.first[k->me]].node != 0) {
        say_notes(k);
        return;
    }
    for (int w = 0; w < c->workers; w++) {
        struct speaker s = {.out = c->out, .rank = k->worker[w].rank};
        struct ls_topo_decision d = k->decision[w];
        d.bound = k->worker[w].bound;
        d.cpus = k->worker[w].cpus;
        ls_topo_explain(c->rules->machine, &d, say_line, &s);
    }
}
