/* The options of srun, sbatch and salloc, and their twins in the environment. Slurm calls back for the
 * environment first and for the command line afterwards, in srun and again, perhaps twice, in slurmstepd:
 * so the last call counts, and none may mind the one before. */
#include "spank/gpus.h"
#include "spank/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *argument, *usage, *twin;
    const char *const *words; /* NULL: see ls_spank_option_read */
} table[LS_SPANK_OPTIONS] = {
    [LS_SPANK_GPUS] = {"lockstep-gpus", "[type:]N",
                       "[lockstep] GPUs of each node, such as 8 or a100:4", "LOCKSTEP_GPUS", NULL},
    [LS_SPANK_TRANSPORT] = {"lockstep-transport", "auto|ib|roce|tcp|shm|keep",
                            "[lockstep] network of NCCL and UCX; keep: leave their variables alone",
                            "LOCKSTEP_TRANSPORT", ls_topo_transport_names},
    [LS_SPANK_BIND] = {"lockstep-bind", "auto|none",
                       "[lockstep] bind tasks to the CPUs near their GPU", "LOCKSTEP_BIND",
                       ls_spank_bind_words},
    [LS_SPANK_CHECK] = {"lockstep-check", "off|fast|full",
                        "[lockstep] checks that 'lockstep run' and 'exec' do before they start",
                        "LOCKSTEP_CHECK", ls_spank_check_words},
    [LS_SPANK_EXPLAIN] =
        {"lockstep-explain", NULL,
         "[lockstep] say what was decided for the tasks of the first node, and why",
         "LOCKSTEP_EXPLAIN", ls_spank_switch_words},
    [LS_SPANK_PLUGIN] = {"lockstep-plugin", "yes|no",
                         "[lockstep] no: the plugin does nothing for this job", "LOCKSTEP_PLUGIN",
                         ls_spank_switch_words},
};

const char *ls_spank_twin(enum ls_spank_option which)
{
    return table[which].twin;
}

bool ls_spank_option_read(enum ls_spank_option which, const char *text,
                          struct ls_spank_choice *choice, struct ls_error *err)
{
    struct ls_gpus gpus;
    if (!table[which].argument && (!text || !*text))
        text = "yes";
    if (!table[which].words) {
        if (ls_gpus_parse(text, &gpus, err) != LS_OK)
            return false;
    } else if ((choice->word = ls_spank_word(text, table[which].words, err)) < 0) {
        return false;
    }
    snprintf(choice->text, sizeof choice->text, "%s", text);
    return true;
}

/* Inside a job the nodes are given, and with them their GPUs. Slurm hands an option of sbatch or salloc on
 * to every srun below, which is no request; one more call is srun's own command line. */
static bool gpus_of_a_step(const struct ls_spank *self)
{
    return !self->remote && self->in_job &&
           self->option[LS_SPANK_GPUS].calls > (self->inherited ? 1 : 0);
}

static int callback(int which, const char *text, int remote)
{
    (void)remote;
    struct ls_spank *self = &ls_spank_self;
    struct ls_error err = {0};
    struct ls_spank_choice read = {0};
    if (which < 0 || which >= LS_SPANK_OPTIONS)
        return 0;
    struct ls_spank_choice *choice = &self->option[which];
    if (!ls_spank_option_read(which, text, &read, &err)) {
        ls_error_context(&err, "--%s or %s", table[which].name, table[which].twin);
    } else {
        choice->calls++;
        memcpy(choice->text, read.text, sizeof choice->text);
        choice->word = read.word;
        if (which == LS_SPANK_GPUS && gpus_of_a_step(self))
            ls_error_set(
                &err, LS_ERR_USAGE,
                "--lockstep-gpus asks for an allocation, and this srun is a step inside of job "
                "%s, whose GPUs are given: say it to sbatch or salloc; a step takes a part of "
                "them with --gpus-per-node",
                getenv("SLURM_JOB_ID"));
    }
    if (!err.message[0])
        return 0;
    /* On a node an error here would end the step and drain the node; and what arrives there was checked
     * before, unless somebody made it by hand. */
    if (self->remote) {
        ls_error_set(&self->err, err.status, "%s", err.message);
        return 0;
    }
    slurm_error("lockstep: %s", err.message);
    return -1;
}

void ls_spank_options_register(spank_t sp)
{
    struct spank_option *options = ls_spank_self.slurm_option;
    for (int i = 0; i < LS_SPANK_OPTIONS; i++) {
        options[i] = (struct spank_option){.name = (char *)table[i].name,
                                           .arginfo = (char *)table[i].argument,
                                           .usage = (char *)table[i].usage,
                                           .has_arg = table[i].argument != NULL,
                                           .val = i,
                                           .cb = callback};
        if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
            slurm_verbose("lockstep: --%s is taken by another plugin, or not wanted here",
                          table[i].name);
    }
}

/* ---- the environment ---- */

/* The name under which Slurm itself reads an option, and hands it on to what runs inside a job. */
static void slurm_form(enum ls_spank_option which, char name[static 128])
{
    snprintf(name, 128, "SLURM_SPANK__SLURM_SPANK_OPTION_lockstep_%s", table[which].name);
    for (char *c = name; *c; c++)
        if (*c == '-')
            *c = '_';
}

bool ls_spank_gpus_inherited(ls_topo_getenv *get, void *user)
{
    char name[128];
    slurm_form(LS_SPANK_GPUS, name);
    return get(user, name) != NULL;
}

void ls_spank_outer_unset(void)
{
    char name[128];
    for (int i = 0; i < LS_SPANK_OPTIONS; i++) {
        slurm_form(i, name);
        unsetenv(name);
    }
}

void ls_spank_twins_set(struct ls_spank *self)
{
    char name[128];
    for (int i = 0; i < LS_SPANK_OPTIONS; i++) {
        const char *value = getenv(table[i].twin);
        slurm_form(i, name);
        /* Inside a job LOCKSTEP_GPUS has done its work. */
        if (!value || !*value || getenv(name) || (i == LS_SPANK_GPUS && self->in_job))
            continue;
        if (!table[i].argument && !strcmp(value, "no"))
            continue;
        if (setenv(name, value, 0) == 0)
            self->twins |= 1u << i;
    }
}

void ls_spank_twins_unset(struct ls_spank *self)
{
    char name[128];
    for (int i = 0; i < LS_SPANK_OPTIONS; i++)
        if (self->twins & 1u << i) {
            slurm_form(i, name);
            unsetenv(name);
        }
    self->twins = 0;
}

/* ---- what counts in the end ---- */

int ls_spank_chosen(const struct ls_spank *self, enum ls_spank_option which)
{
    const struct ls_spank_args *a = &self->args;
    const int site[LS_SPANK_OPTIONS] = {[LS_SPANK_TRANSPORT] = a->transport,
                                        [LS_SPANK_BIND] = a->bind,
                                        [LS_SPANK_CHECK] = a->check,
                                        [LS_SPANK_PLUGIN] = LS_SPANK_YES};
    return self->option[which].calls ? self->option[which].word : site[which];
}

bool ls_spank_on(const struct ls_spank *self)
{
    return self->args.enabled == LS_SPANK_YES && self->site.enabled &&
           ls_spank_chosen(self, LS_SPANK_PLUGIN) == LS_SPANK_YES;
}
