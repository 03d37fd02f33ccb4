/* Slurm's environment: read, understood, and its parts held against each other. Which variables
 * are there when was observed on Slurm 22.05; srun(1), sbatch(1) and salloc(1) describe them. */
#include "topo/internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Slurm's own limit on the components of a heterogeneous job. */
#define COMPONENTS_MAX 128
/* Step ids from here on are not steps of srun: interactive, batch, extern, pending. */
#define STEP_SPECIAL INT64_C(0xfffffff0)
#define ID_MAX       UINT32_MAX

struct reader {
    ls_topo_getenv *get;
    void *user;
    struct ls_slurm *slurm;
    struct ls_error *err;
};

static const char *look(const struct reader *r, const char *name)
{
    const char *value = r->get(r->user, name);
    return value && *value ? value : NULL;
}

/* The first of the names that is set; *found is that name. Names end with NULL. */
static const char *look_first(const struct reader *r, const char *const *names, const char **found)
{
    for (; *names; names++) {
        const char *value = look(r, *names);
        if (value) {
            *found = *names;
            return value;
        }
    }
    return NULL;
}

static enum ls_status no_memory(struct ls_error *err)
{
    return ls_error_set(err, LS_ERR_NOMEM, "no memory for Slurm's environment");
}

__attribute__((format(printf, 2, 3))) static enum ls_status warn(struct reader *r, const char *fmt,
                                                                 ...)
{
    struct ls_slurm *s = r->slurm;
    struct ls_buf buf;
    va_list ap;
    ls_buf_init(&buf, 1000);
    va_start(ap, fmt);
    ls_buf_vprintf(&buf, fmt, ap);
    va_end(ap);
    char *line = buf.failed || !buf.data ? NULL : ls_arena_strdup(&s->arena, buf.data);
    ls_buf_free(&buf);
    if (!line || !ls_grow(&s->warnings, &s->warnings_cap, s->nwarnings + 1, sizeof *s->warnings))
        return no_memory(r->err);
    s->warnings[s->nwarnings++] = line;
    return LS_OK;
}

/* ---- single values ------------------------------------------------------------------------------ */

static enum ls_status copy_text(struct reader *r, const char *name, const char **out)
{
    const char *value = look(r, name);
    *out = value ? ls_arena_strdup(&r->slurm->arena, value) : NULL;
    return value && !*out ? no_memory(r->err) : LS_OK;
}

/* The first of the names that is set, as a number from `least` to `most`; all that are set must agree.
 * *out is left alone where none is set. */
static enum ls_status read_number(struct reader *r, const char *const *names, int64_t least,
                                  int64_t most, int64_t *out)
{
    const char *first = NULL;
    int64_t before = 0;
    char shown[84];
    for (; *names; names++) {
        const char *value = look(r, *names);
        uint64_t number;
        size_t at = 0;
        if (!value)
            continue;
        if (!ls_topo_digits(value, &at, (uint64_t)most, &number) || value[at] ||
            (int64_t)number < least)
            return ls_error_set(r->err, LS_ERR_ENV,
                                "found %s=%s, expected a number from %lld to %lld; unset it if it "
                                "does not come from Slurm",
                                *names, ls_topo_show(value, shown), (long long)least,
                                (long long)most);
        if (first && (int64_t)number != before)
            return ls_error_set(
                r->err, LS_ERR_ENV,
                "%s=%lld contradicts %s=%lld; one of them is left over from another "
                "job: unset it",
                first, (long long)before, *names, (long long)number);
        before = (int64_t)number;
        first = *names;
    }
    if (first)
        *out = before;
    return LS_OK;
}

static enum ls_status read_int(struct reader *r, const char *name, int least, int *out)
{
    int64_t value = *out;
    LS_TRY(read_number(r, (const char *const[]){name, NULL}, least, INT_MAX, &value));
    *out = (int)value;
    return LS_OK;
}

/* What another parser said becomes LS_ERR_ENV with the name of the variable in front. */
static enum ls_status blame(struct reader *r, const char *name, const struct ls_error *why)
{
    return ls_error_set(r->err, why->status == LS_ERR_NOMEM ? LS_ERR_NOMEM : LS_ERR_ENV, "%s: %s",
                        name, why->message);
}

static enum ls_status read_nodes(struct reader *r, const char *const *names,
                                 struct ls_hostlist *nodes, const char **found)
{
    struct ls_error why = {0};
    const char *value = look_first(r, names, found);
    if (value && ls_hostlist_parse(value, nodes, &why) != LS_OK)
        return blame(r, *found, &why);
    return LS_OK;
}

/* ---- where are we? ------------------------------------------------------------------------------ */

static const char *const job_names[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL};
static const char *const step_names[] = {"SLURM_STEP_ID", "SLURM_STEPID", NULL};

/* Only Slurm sets these, and only within a job. */
static enum ls_status check_no_job(struct reader *r)
{
    static const char *const proof[] = {
        "SLURM_STEP_ID",      "SLURM_STEPID",   "SLURM_PROCID",
        "SLURM_LOCALID",      "SLURM_NODEID",   "SLURM_STEP_NODELIST",
        "SLURM_JOB_NODELIST", "SLURM_NODELIST", NULL};
    const char *name;
    char shown[84];
    const char *value = look_first(r, proof, &name);
    if (!value)
        return LS_OK;
    return ls_error_set(
        r->err, LS_ERR_ENV,
        "found %s=%s but no SLURM_JOB_ID, expected both or neither; unset the SLURM_ "
        "variables to run without Slurm, or start through srun",
        name, ls_topo_show(value, shown));
}

/* The job of "slurm.pmix.<job>.<step>", or -1. */
static int64_t job_of_namespace(const char *nspace)
{
    static const char head[] = "slurm.pmix.";
    uint64_t job;
    size_t at = sizeof head - 1;
    if (!nspace || strncmp(nspace, head, at) != 0 || !ls_topo_digits(nspace, &at, ID_MAX, &job) ||
        nspace[at] != '.')
        return -1;
    return (int64_t)job;
}

/* A batch script submitted from inside a step inherits that step's variables (--export=ALL), and Slurm
 * overwrites only those of a job. Proof is a node that is not in the step, or another job's PMIx. */
static enum ls_status step_is_inherited(struct reader *r, bool *inherited)
{
    struct ls_slurm *s = r->slurm;
    struct ls_hostlist nodes = {0};
    const char *node = look(r, "SLURMD_NODENAME"), *name = NULL;
    int64_t job = job_of_namespace(look(r, "PMIX_NAMESPACE"));
    *inherited = job >= 0 && job != s->job_id;
    LS_TRY(read_nodes(r, (const char *const[]){"SLURM_STEP_NODELIST", NULL}, &nodes, &name));
    if (node && nodes.count && ls_hostlist_find(&nodes, node) < 0)
        *inherited = true;
    ls_hostlist_free(&nodes);
    return LS_OK;
}

static enum ls_status read_place(struct reader *r)
{
    struct ls_slurm *s = r->slurm;
    bool inherited = false;
    LS_TRY(read_number(r, job_names, 1, ID_MAX, &s->job_id));
    if (s->job_id < 0)
        return check_no_job(r);
    s->place = LS_SLURM_ALLOCATION;
    LS_TRY(read_number(r, step_names, 0, ID_MAX, &s->step_id));
    if (s->step_id >= STEP_SPECIAL)
        s->step_id = -1; /* the shell of salloc, where sites run it on the first node */
    if (s->step_id < 0)
        return LS_OK;
    LS_TRY(step_is_inherited(r, &inherited));
    if (inherited) {
        s->step_id = -1;
        return warn(r, "this job was submitted from inside a step of another one and inherited its "
                       "SLURM_STEP_*, SLURM_NTASKS and PMIX_* variables, which are ignored; submit "
                       "with 'sbatch --export=NIL', or unset them first");
    }
    s->place = LS_SLURM_STEP;
    return LS_OK;
}

/* ---- nodes and tasks ---------------------------------------------------------------------------- */

static enum ls_status contradiction(struct reader *r, const char *a, const char *b)
{
    char x[84], y[84];
    return ls_error_set(
        r->err, LS_ERR_ENV,
        "%s=%s contradicts %s=%s: some of it is left over from another job or step; "
        "start through a fresh 'srun --mpi=pmix', or unset the SLURM_STEP_ variables",
        a, ls_topo_show(look(r, a), x), b, ls_topo_show(look(r, b), y));
}

/* Says so where both are set and differ. */
static enum ls_status same_text(struct reader *r, const char *a, const char *b)
{
    const char *x = look(r, a), *y = look(r, b);
    return x && y && strcmp(x, y) != 0 ? contradiction(r, a, b) : LS_OK;
}

static enum ls_status read_tasks_per_node(struct reader *r, const char *const *names,
                                          const char *nodes_name, int64_t *sum)
{
    struct ls_slurm *s = r->slurm;
    struct ls_error why = {0};
    const char *name;
    const char *value = look_first(r, names, &name);
    int count;
    *sum = 0;
    if (!value)
        return LS_OK;
    if (ls_runs_parse(value, &s->tasks_per_node, &count, &why) != LS_OK)
        return blame(r, name, &why);
    if (count != s->nodes.count)
        return contradiction(r, name, nodes_name);
    for (int i = 0; i < count; i++)
        *sum += s->tasks_per_node[i];
    return LS_OK;
}

static enum ls_status need(struct reader *r, bool there, const char *name)
{
    if (there)
        return LS_OK;
    return ls_error_set(r->err, LS_ERR_ENV,
                        "%s is not set within step %lld of job %lld, expected it from srun; do not "
                        "unset it, or start through 'srun --mpi=pmix'",
                        name, (long long)r->slurm->step_id, (long long)r->slurm->job_id);
}

/* This task is where Slurm says that it is. */
static enum ls_status check_task(struct reader *r)
{
    struct ls_slurm *s = r->slurm;
    char name[LS_HOSTLIST_NAME_MAX + 1];
    if (s->node_id >= s->nodes.count)
        return ls_error_set(
            r->err, LS_ERR_ENV,
            "found SLURM_NODEID=%d, but the step has %d nodes, so expected 0 to %d; "
            "start through a fresh 'srun --mpi=pmix'",
            s->node_id, s->nodes.count, s->nodes.count - 1);
    if (s->proc_id >= s->ntasks)
        return ls_error_set(
            r->err, LS_ERR_ENV,
            "found SLURM_PROCID=%d, but the step has %d tasks, so expected 0 to %d; "
            "start through a fresh 'srun --mpi=pmix'",
            s->proc_id, s->ntasks, s->ntasks - 1);
    if (s->local_id >= s->tasks_per_node[s->node_id])
        return ls_error_set(
            r->err, LS_ERR_ENV,
            "found SLURM_LOCALID=%d, but node %d has %d tasks, so expected 0 to %d; "
            "start through a fresh 'srun --mpi=pmix'",
            s->local_id, s->node_id, s->tasks_per_node[s->node_id],
            s->tasks_per_node[s->node_id] - 1);
    if (s->node_name && ls_hostlist_find(&s->nodes, s->node_name) != s->node_id)
        return ls_error_set(
            r->err, LS_ERR_ENV,
            "SLURMD_NODENAME=%.80s is not node %d of the step, which is %.80s; start "
            "through a fresh 'srun --mpi=pmix'",
            s->node_name, s->node_id, ls_hostlist_nth(&s->nodes, s->node_id, name));
    return LS_OK;
}

static enum ls_status read_step(struct reader *r)
{
    static const char *const node_lists[] = {"SLURM_STEP_NODELIST", "SLURM_NODELIST",
                                             "SLURM_JOB_NODELIST", NULL};
    static const char *const node_counts[] = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", NULL};
    static const char *const tasks[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL};
    static const char *const totals[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS",
                                         NULL};
    struct ls_slurm *s = r->slurm;
    int64_t sum, ntasks = 0, nnodes = 0;
    const char *nodes_name = node_lists[0], *name;
    LS_TRY(read_nodes(r, node_lists, &s->nodes, &nodes_name));
    LS_TRY(need(r, s->nodes.count > 0, node_lists[0]));
    LS_TRY(read_number(r, node_counts, 1, LS_HOSTLIST_MAX, &nnodes));
    if (nnodes && nnodes != s->nodes.count) {
        look_first(r, node_counts, &name);
        return contradiction(r, name, nodes_name);
    }
    LS_TRY(same_text(r, tasks[0], tasks[1]));
    LS_TRY(read_tasks_per_node(r, tasks, nodes_name, &sum));
    LS_TRY(need(r, s->tasks_per_node != NULL, tasks[0]));
    LS_TRY(read_number(r, totals, 1, INT_MAX, &ntasks));
    LS_TRY(need(r, ntasks > 0, totals[0]));
    if (ntasks != sum) {
        look_first(r, totals, &name);
        look_first(r, tasks, &nodes_name);
        return contradiction(r, name, nodes_name);
    }
    s->ntasks = (int)ntasks;
    LS_TRY(read_int(r, "SLURM_NODEID", 0, &s->node_id));
    LS_TRY(need(r, s->node_id >= 0, "SLURM_NODEID"));
    LS_TRY(read_int(r, "SLURM_PROCID", 0, &s->proc_id));
    LS_TRY(need(r, s->proc_id >= 0, "SLURM_PROCID"));
    LS_TRY(read_int(r, "SLURM_LOCALID", 0, &s->local_id));
    LS_TRY(need(r, s->local_id >= 0, "SLURM_LOCALID"));
    return check_task(r);
}

/* "4(x2),2": the job's CPUs on each node. */
static enum ls_status read_cpus_per_node(struct reader *r)
{
    static const char name[] = "SLURM_JOB_CPUS_PER_NODE";
    const char *value = look(r, name);
    struct ls_error why = {0};
    int *cpus = NULL, count = 0;
    if (!value)
        return LS_OK;
    if (ls_runs_parse(value, &cpus, &count, &why) != LS_OK)
        return blame(r, name, &why);
    r->slurm->cpus_per_node = cpus[0];
    for (int i = 1; i < count; i++)
        if (cpus[i] != cpus[0])
            r->slurm->cpus_per_node = 0;
    free(cpus);
    return LS_OK;
}

/* Outside of a step the numbers of tasks are wishes, and SLURM_TASKS_PER_NODE counts CPUs where an
 * exclusive job did not say how many tasks it wants. They count only together. */
static enum ls_status read_allocation(struct reader *r)
{
    static const char *const node_lists[] = {"SLURM_JOB_NODELIST", "SLURM_NODELIST", NULL};
    static const char *const node_counts[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", NULL};
    static const char *const tasks[] = {"SLURM_TASKS_PER_NODE", NULL};
    static const char *const totals[] = {"SLURM_NTASKS", "SLURM_NPROCS", NULL};
    struct ls_slurm *s = r->slurm;
    int64_t sum, ntasks = 0, nnodes = 0;
    int per_node = 0;
    const char *nodes_name = node_lists[0], *name;
    LS_TRY(read_nodes(r, node_lists, &s->nodes, &nodes_name));
    /* salloc of a heterogeneous job names the nodes of its components only. */
    if (!s->nodes.count && s->ncomponents > 1)
        return LS_OK;
    if (!s->nodes.count)
        return ls_error_set(r->err, LS_ERR_ENV,
                            "job %lld has no SLURM_JOB_NODELIST, expected the names of its nodes; "
                            "start from inside of the job, by sbatch, salloc or srun",
                            (long long)s->job_id);
    LS_TRY(read_number(r, node_counts, 1, LS_HOSTLIST_MAX, &nnodes));
    if (nnodes && nnodes != s->nodes.count) {
        look_first(r, node_counts, &name);
        return contradiction(r, name, nodes_name);
    }
    LS_TRY(read_cpus_per_node(r));
    LS_TRY(read_tasks_per_node(r, tasks, nodes_name, &sum));
    LS_TRY(read_number(r, totals, 1, INT_MAX, &ntasks));
    LS_TRY(read_int(r, "SLURM_NTASKS_PER_NODE", 1, &per_node));
    if (!ntasks && per_node && (!sum || sum == (int64_t)per_node * s->nodes.count))
        ntasks = (int64_t)per_node * s->nodes.count;
    if (ntasks > INT_MAX)
        return contradiction(r, "SLURM_NTASKS_PER_NODE", nodes_name);
    if (ntasks && sum && ntasks != sum) {
        LS_TRY(warn(r,
                    "SLURM_NTASKS asks for %lld tasks, but Slurm gave this job room for %lld "
                    "(SLURM_TASKS_PER_NODE); if the number is inherited from another job, unset it",
                    (long long)ntasks, (long long)sum));
        ntasks = 0;
    }
    s->ntasks = (int)ntasks;
    if (!ntasks) {
        free(s->tasks_per_node);
        s->tasks_per_node = NULL;
    }
    return LS_OK;
}

/* ---- heterogeneous jobs, arrays, devices -------------------------------------------------------- */

/* Steps have the variables of PACK_GROUP (until 20.02 the name), batch scripts both. */
static const char *look_component(struct reader *r, const char *stem, int i, char name[static 64])
{
    static const char *const kinds[] = {"HET", "PACK"};
    for (int k = 0; k < 2; k++) {
        struct ls_buf buf;
        ls_buf_init(&buf, 63);
        ls_buf_printf(&buf, "%s_%s_GROUP_%d", stem, kinds[k], i);
        strcpy(name, buf.data && !buf.failed ? buf.data : "");
        ls_buf_free(&buf);
        if (look(r, name))
            return name;
    }
    return NULL;
}

static enum ls_status read_components(struct reader *r)
{
    static const char *const sizes[] = {"SLURM_HET_SIZE", "SLURM_PACK_SIZE", NULL};
    struct ls_slurm *s = r->slurm;
    int64_t size = 0;
    char name[64];
    LS_TRY(read_number(r, sizes, 1, COMPONENTS_MAX, &size));
    if (!size)
        return LS_OK;
    s->components = ls_arena_alloc(&s->arena, (size_t)size * sizeof *s->components);
    if (!s->components)
        return no_memory(r->err);
    for (int i = 0; i < size; i++, s->ncomponents++) {
        struct ls_slurm_component *c = &s->components[i];
        struct ls_error why = {0};
        int64_t ntasks = 0;
        c->job_id = -1;
        if (look_component(r, "SLURM_JOB_ID", i, name))
            LS_TRY(read_number(r, (const char *const[]){name, NULL}, 1, ID_MAX, &c->job_id));
        if (look_component(r, "SLURM_NTASKS", i, name))
            LS_TRY(read_number(r, (const char *const[]){name, NULL}, 1, INT_MAX, &ntasks));
        c->ntasks = (int)ntasks;
        if (!look_component(r, "SLURM_JOB_NODELIST", i, name))
            return ls_error_set(r->err, LS_ERR_ENV,
                                "the job has %d components, but component %d has no "
                                "SLURM_JOB_NODELIST_HET_GROUP_%d; do not unset it",
                                (int)size, i, i);
        if (ls_hostlist_parse(look(r, name), &c->nodes, &why) != LS_OK)
            return blame(r, name, &why);
    }
    return LS_OK;
}

static enum ls_status read_rest(struct reader *r)
{
    struct ls_slurm *s = r->slurm;
    struct ls_error why = {0};
    LS_TRY(copy_text(r, "SLURM_JOB_NAME", &s->job_name));
    LS_TRY(copy_text(r, "SLURM_MPI_TYPE", &s->mpi_type));
    LS_TRY(read_number(r, (const char *const[]){"SLURM_ARRAY_JOB_ID", NULL}, 1, ID_MAX,
                       &s->array_job_id));
    LS_TRY(read_number(r, (const char *const[]){"SLURM_ARRAY_TASK_ID", NULL}, 0, ID_MAX,
                       &s->array_task_id));
    if ((s->array_job_id < 0) != (s->array_task_id < 0))
        return ls_error_set(r->err, LS_ERR_ENV,
                            "found %s without %s, expected both or neither; unset it if it is left "
                            "over from another job",
                            s->array_job_id < 0 ? "SLURM_ARRAY_TASK_ID" : "SLURM_ARRAY_JOB_ID",
                            s->array_job_id < 0 ? "SLURM_ARRAY_JOB_ID" : "SLURM_ARRAY_TASK_ID");
    LS_TRY(read_int(r, "SLURM_RESTART_COUNT", 0, &s->restart_count));
    LS_TRY(read_int(r, "SLURM_CPUS_PER_TASK", 1, &s->cpus_per_task));
    LS_TRY(read_int(r, "SLURM_CPUS_ON_NODE", 1, &s->cpus_on_node));
    LS_TRY(read_int(r, "SLURM_GPUS_ON_NODE", 0, &s->gpus_on_node));
    if (ls_visible_parse(r->get(r->user, "CUDA_VISIBLE_DEVICES"), &s->arena, &s->visible, &why) !=
        LS_OK)
        return ls_error_set(r->err, why.status == LS_ERR_NOMEM ? LS_ERR_NOMEM : LS_ERR_ENV, "%s",
                            why.message);
    return s->visible.note[0] ? warn(r, "%s", s->visible.note) : LS_OK;
}

/* ---- variables that leaked ---------------------------------------------------------------------- */

static bool pins(const char *bind)
{
    return bind && (strstr(bind, "mask") || strstr(bind, "map_"));
}

/* Number behind "cpu=" or "cpu:", or -1. */
static int64_t cpus_of_tres(const char *tres)
{
    uint64_t value;
    size_t at = 4;
    if (!tres || strncmp(tres, "cpu", 3) != 0 || (tres[3] != '=' && tres[3] != ':') ||
        !ls_topo_digits(tres, &at, INT_MAX, &value))
        return -1;
    return (int64_t)value;
}

static enum ls_status warn_leaks(struct reader *r)
{
    static const char *const binds[] = {"SLURM_CPU_BIND", "SLURM_MEM_BIND"};
    struct ls_slurm *s = r->slurm;
    char shown[84], other[84];
    /* Within a step srun sets these itself; outside they are an order to the next srun. */
    for (int i = 0; i < 2 && s->place == LS_SLURM_ALLOCATION; i++) {
        const char *bind = look(r, binds[i]);
        if (pins(bind))
            LS_TRY(warn(r,
                        "%s=%s is inherited from another step: every srun of this job will pin its "
                        "tasks to the CPUs of that one; unset it",
                        binds[i], ls_topo_show(bind, shown)));
    }
    const char *nspace = look(r, "PMIX_NAMESPACE");
    int64_t job = job_of_namespace(nspace);
    if (s->place != LS_SLURM_STEP && job >= 0 && job != s->job_id)
        LS_TRY(warn(
            r, "PMIX_NAMESPACE=%s is inherited from a step of job %lld; unset the PMIX_ variables",
            ls_topo_show(nspace, shown), (long long)job));
    const char *cpus = look(r, "SLURM_CPUS_PER_TASK"), *srun = look(r, "SRUN_CPUS_PER_TASK"),
               *tres = look(r, "SLURM_TRES_PER_TASK");
    if (cpus && srun && strcmp(cpus, srun) != 0)
        LS_TRY(
            warn(r,
                 "SRUN_CPUS_PER_TASK=%s differs from SLURM_CPUS_PER_TASK=%s; srun takes the first, "
                 "or refuses",
                 ls_topo_show(srun, shown), ls_topo_show(cpus, other)));
    if (s->cpus_per_task && cpus_of_tres(tres) >= 0 && cpus_of_tres(tres) != s->cpus_per_task)
        LS_TRY(
            warn(r,
                 "SLURM_TRES_PER_TASK=%s differs from SLURM_CPUS_PER_TASK=%s, which srun refuses "
                 "as set by two variables; unset the one that is inherited",
                 ls_topo_show(tres, shown), ls_topo_show(cpus, other)));
    return LS_OK;
}

static enum ls_status read_all(struct reader *r)
{
    struct ls_slurm *s = r->slurm;
    LS_TRY(read_place(r));
    if (s->place != LS_SLURM_NONE) {
        LS_TRY(copy_text(r, "SLURMD_NODENAME", &s->node_name));
        LS_TRY(read_components(r));
        LS_TRY(s->place == LS_SLURM_STEP ? read_step(r) : read_allocation(r));
    }
    LS_TRY(read_rest(r));
    return warn_leaks(r);
}

enum ls_status ls_slurm_read(ls_topo_getenv *get, void *user, struct ls_slurm *slurm,
                             struct ls_error *err)
{
    *slurm = (struct ls_slurm){.job_id = -1,
                               .step_id = -1,
                               .node_id = -1,
                               .proc_id = -1,
                               .local_id = -1,
                               .array_job_id = -1,
                               .array_task_id = -1};
    enum ls_status status =
        read_all(&(struct reader){.get = get, .user = user, .slurm = slurm, .err = err});
    if (status != LS_OK)
        ls_slurm_free(slurm);
    return status;
}

void ls_slurm_free(struct ls_slurm *slurm)
{
    ls_hostlist_free(&slurm->nodes);
    /* A component whose list was refused is not counted and owns nothing. */
    for (int i = 0; i < slurm->ncomponents; i++)
        ls_hostlist_free(&slurm->components[i].nodes);
    free(slurm->tasks_per_node);
    free(slurm->warnings);
    ls_arena_free(&slurm->arena);
    *slurm = (struct ls_slurm){0};
}
