/* In slurmstepd. init_post_opt reads files while this is still the node's own view of them: afterwards a
 * container plugin may have joined another one. task_init decides, from memory, since only there the
 * GPUs and CPUs of the task are known. Nothing forks, waits, opens a library or looks up a name. */
#include "config.h"

#include "spank/gpus.h"
#include "spank/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 20)
#define SET      "LOCKSTEP_SET"

/* Where this process is. */
struct place {
    char **env;
    uint32_t job, step, nnodes, node, ntasks, local_ntasks, rank;
    int local;
};

/* What Slurm does not say stays 0. */
static struct place find_place(spank_t sp)
{
    struct place p = {.step = SLURM_MAX_NORMAL_STEP_ID};
    if (spank_get_item(sp, S_JOB_ENV, &p.env) != ESPANK_SUCCESS)
        p.env = NULL;
    const struct {
        spank_item_t item;
        void *at;
    } items[] = {{S_JOB_ID, &p.job},
                 {S_JOB_STEPID, &p.step},
                 {S_JOB_NNODES, &p.nnodes},
                 {S_JOB_NODEID, &p.node},
                 {S_JOB_TOTAL_TASK_COUNT, &p.ntasks},
                 {S_TASK_GLOBAL_ID, &p.rank},
                 {S_JOB_LOCAL_TASK_COUNT, &p.local_ntasks},
                 {S_TASK_ID, &p.local}};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (spank_get_item(sp, items[i].item, items[i].at) != ESPANK_SUCCESS)
            slurm_debug("lockstep: item %d is not available", (int)items[i].item);
    return p;
}

/* Not the batch script, the shell of salloc or the step that adopts processes of ssh: what they set would
 * be taken for the user's wish by the steps below them. */
static bool ordinary(const struct place *p)
{
    return p->step < SLURM_MAX_NORMAL_STEP_ID;
}

static const char *raw(const struct place *p, const char *name)
{
    size_t len = strlen(name);
    for (char **e = p->env; e && *e; e++)
        if (!strncmp(*e, name, len) && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}

/* Is this variable as the plugin left it in the step around this one, such as that of `srun --pty bash`? */
static bool is_ours(const struct place *p, const char *name)
{
    const char *value = raw(p, name);
    return value && ls_topo_is_set_by_us(raw(p, SET), value - strlen(name) - 1);
}

/* The environment of the task as its user made it; `user` is a struct place. */
static const char *from_task(void *user, const char *name)
{
    return is_ours(user, name) ? NULL : raw(user, name);
}

/* ---- before the tasks: files ---- */

static void add_file(const char *root, const char *name, struct ls_buf *text)
{
    char path[1200], *data;
    size_t size;
    struct ls_error err = {0};
    snprintf(path, sizeof path, "%s%s", root, name);
    enum ls_status status = ls_file_read(path, FILE_MAX, &data, &size, &err);
    if (status == LS_OK) {
        ls_buf_add(text, data, size);
        ls_buf_add(text, "\n", 1);
        free(data);
    } else if (status != LS_ERR_NOTFOUND) {
        slurm_verbose("lockstep: %s", err.message);
    }
}

/* What the site has set for NCCL and UCX is not ours to set. */
static enum ls_status read_site_keys(struct ls_spank *self, struct ls_error *err)
{
    struct ls_buf text;
    ls_buf_init(&text, 3 * FILE_MAX);
    add_file(self->args.root, "/etc/nccl.conf", &text);
    add_file(self->args.root, "/etc/ucx/ucx.conf", &text);
    enum ls_status status = text.failed ? ls_error_set(err, LS_ERR_NOMEM, "no memory for nccl.conf")
                                        : ls_topo_conf_keys(text.data ? text.data : "",
                                                            &self->arena, &self->site_keys, err);
    ls_buf_free(&text);
    return status;
}

static enum ls_status read_machine(struct ls_spank *self, struct ls_error *err)
{
    self->machine = calloc(1, sizeof *self->machine);
    if (!self->machine)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the description of this node");
    LS_TRY(ls_topo_read(self->args.root, self->machine, err));
    char path[1200];
    snprintf(path, sizeof path, "%s/dev", self->args.root);
    self->dev = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* a stored tree may have none */
    return read_site_keys(self, err);
}

void ls_spank_remote_init(struct ls_spank *self, spank_t sp)
{
    self->remote = true;
    ls_spank_options_register(sp);
}

void ls_spank_remote_post_opt(struct ls_spank *self, spank_t sp)
{
    struct place p = find_place(sp);
    if (self->err.message[0] || ls_spank_read_site(self, &self->err) != LS_OK)
        return;
    if (ls_spank_on(self) && ordinary(&p))
        read_machine(self, &self->err);
}

/* ---- the request against what was granted ---- */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static enum ls_status check_gpus(const struct ls_spank *self, struct place *p, struct ls_error *err)
{
    struct ls_gpus asked;
    const char *text = self->option[LS_SPANK_GPUS].text;
    bool batch = p->step == SLURM_BATCH_SCRIPT;
    if (!*text || ls_gpus_parse(text, &asked, NULL) != LS_OK)
        return LS_OK;
    const char *count = from_task(p, "SLURM_GPUS_ON_NODE");
    int granted = larger(ls_gpus_listed(from_task(p, batch ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS")),
                         count ? atoi(count) : 0);
    if (!batch && ls_spank_gpus_inherited(from_task, p)) {
        /* A part of the job's GPUs, or none, is the good right of a step; the batch script was checked.
         * Only under salloc nobody has looked yet. */
        if (granted == 0 && !from_task(p, "SLURM_JOB_GPUS") && p->local == 0 && p->node == 0)
            slurm_spank_log(
                "lockstep: the job asked for GPUs by --lockstep-gpus=%s, and this step has "
                "none; if that is not meant, ask with --gpus-per-node=%s",
                text, text);
        return LS_OK;
    }
    if (granted >= asked.count)
        return LS_OK;
    return ls_error_set(
        err, LS_ERR_ENV,
        "--lockstep-gpus=%s asked for %d GPUs on each node, and Slurm granted %d here: "
        "%s; say --gpus-per-node=%s instead",
        text, asked.count, granted,
        granted ? "another option or a site's rule asked for fewer"
                : "this site has nothing installed that turns the option into a request "
                  "(cli_filter.lua or job_submit_lockstep, see spank_lockstep(8)), or this is "
                  "a step of a job that has none",
        text);
}

/* ---- the task ---- */

static enum ls_status decide(struct ls_spank *self, spank_t sp, struct place *p,
                             struct ls_arena *arena, struct ls_topo_decision *decision,
                             struct ls_error *err)
{
    struct ls_topo_machine *m = self->machine;
    /* The machine was read by slurmstepd, whose devices, CPUs and limits are not the task's. */
    ls_topo_refresh(self->dev, m);
    ls_spank_foresee_limits(sp, &m->limits);
    struct ls_topo_request request = {
        .machine = m,
        .get = from_task,
        .user = p,
        .site = &self->site,
        .site_keys = (const char *const *)self->site_keys,
        .transport = (enum ls_topo_transport)ls_spank_chosen(self, LS_SPANK_TRANSPORT),
        .bind = ls_spank_chosen(self, LS_SPANK_BIND) == LS_SPANK_BIND_AUTO,
        .local_rank = p->local,
        .local_size = (int)p->local_ntasks,
        .ranks = p->ntasks,
        .nodes = (int)p->nnodes};
    return ls_topo_decide(&request, arena, decision, err);
}

static void say_line(void *user, const char *line)
{
    const struct place *p = user;
    slurm_spank_log("lockstep: rank %u: %s", p->rank, line);
}

/* Problems from every node, warnings from the first; what is of the node itself from one task. All of it is in
 * ls_topo_explain. */
static void say_notes(struct place *p, const struct ls_topo_decision *d)
{
    enum ls_topo_level least = p->node == 0 ? LS_TOPO_WARN : LS_TOPO_PROBLEM;
    for (int i = 0; i < d->nnote; i++) {
        if (d->note[i].level < least)
            continue;
        if (d->note[i].own)
            say_line(p, d->note[i].text);
        else if (p->local == 0)
            slurm_spank_log("lockstep: %s", d->note[i].text);
    }
}

/* What `run` and `exec` shall do as well; and the proof for `lockstep plugin check`. */
static void set_options(const struct ls_spank *self, spank_t sp, const struct place *p)
{
    char proof[128];
    const struct {
        enum ls_spank_option which;
        const char *const *words;
    } handed[] = {{LS_SPANK_TRANSPORT, ls_topo_transport_names},
                  {LS_SPANK_BIND, ls_spank_bind_words},
                  {LS_SPANK_CHECK, ls_spank_check_words},
                  {LS_SPANK_EXPLAIN, ls_spank_switch_words}};
    for (size_t i = 0; i < sizeof handed / sizeof *handed; i++) {
        enum ls_spank_option o = handed[i].which;
        if (!self->option[o].calls && ls_spank_chosen(self, o) == 0)
            continue; /* as it is without a plugin */
        /* A choice of the site gives way to the user's variable, which an option overrides. */
        spank_setenv(sp, ls_spank_twin(o), handed[i].words[ls_spank_chosen(self, o)],
                     self->option[o].calls > 0);
    }
    /* With the step, since variables are handed on to steps inside, and to nodes without the plugin; the
     * same on all nodes, since `lockstep run` compares them. */
    snprintf(proof, sizeof proof, "%s/%u.%u", PACKAGE_VERSION, p->job, p->step);
    spank_setenv(sp, "LOCKSTEP_SPANK", proof, 1);
}

static enum ls_status set_variables(spank_t sp, const struct place *p,
                                    const struct ls_topo_decision *d, struct ls_arena *arena,
                                    struct ls_error *err)
{
    bool *ours = ls_arena_alloc(arena, (size_t)d->nvariable + 1);
    struct ls_buf set;
    if (!ours)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d variables", d->nvariable);
    for (int i = 0; i < d->nvariable; i++)
        ours[i] = is_ours(p, d->variable[i].name);
    /* From here on p->env may point to what is no more. */
    ls_buf_init(&set, 16384);
    ls_buf_add(&set, "", 0);
    for (int i = 0; i < d->nvariable; i++) {
        const struct ls_topo_variable *v = &d->variable[i];
        if (!v->value && ours[i])
            spank_unsetenv(sp, v->name);
        if (v->value && spank_setenv(sp, v->name, v->value, ours[i]) == ESPANK_SUCCESS)
            ls_buf_printf(&set, "%s%s=%s", set.len ? ";" : "", v->name, v->value);
    }
    if (!set.failed && set.data)
        spank_setenv(sp, SET, set.data, 1);
    ls_buf_free(&set);
    return LS_OK;
}

static enum ls_status prepare(struct ls_spank *self, spank_t sp, struct place *p,
                              struct ls_arena *arena, struct ls_error *err)
{
    struct ls_topo_decision d = {0};
    LS_TRY(check_gpus(self, p, err));
    if (!self->machine)
        return LS_OK; /* no ordinary step */
    LS_TRY(decide(self, sp, p, arena, &d, err));
    if (d.bound && sched_setaffinity(0, sizeof d.cpus, &d.cpus) != 0)
        return ls_error_errno(err, errno, "cannot bind the task to its CPUs");
    if (ls_spank_chosen(self, LS_SPANK_EXPLAIN) && p->node == 0)
        ls_topo_explain(self->machine, &d, say_line, p);
    else
        say_notes(p, &d);
    LS_TRY(set_variables(sp, p, &d, arena, err));
    set_options(self, sp, p);
    return LS_OK;
}

/* The launcher and `lockstep topo` go by the same file, also where it says that nothing is to be done. */
static void hand_on_site(const struct ls_spank *self, spank_t sp, const struct place *p)
{
    if (self->args.site_given && self->args.enabled == LS_SPANK_YES && ordinary(p) &&
        ls_spank_chosen(self, LS_SPANK_PLUGIN) == LS_SPANK_YES)
        spank_setenv(sp, LS_TOPO_SITE_VARIABLE, self->args.site, 1);
}

int ls_spank_remote_task(struct ls_spank *self, spank_t sp)
{
    struct place p = find_place(sp);
    struct ls_arena arena = {0};
    struct ls_error err = {0};
    hand_on_site(self, sp, &p);
    p = find_place(sp); /* the environment has moved */
    if (!ls_spank_on(self))
        return 0;
    if (self->err.message[0]) {
        /* Of the whole node: one task says it. */
        if (p.local == 0)
            slurm_error("lockstep: %s", self->err.message);
        return -1;
    }
    enum ls_status status = prepare(self, sp, &p, &arena, &err);
    if (status != LS_OK)
        slurm_error("lockstep: rank %u: %s", p.rank, err.message);
    ls_arena_free(&arena);
    return status == LS_OK ? 0 : -1;
}
