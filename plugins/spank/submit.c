/* In srun, sbatch and salloc: options are read and their values checked, where a person sees the message
 * and nothing was started yet. No file is opened, and nothing decided: that is for the nodes. */
#include "spank/plugin.h"

#include <stdlib.h>

static const char *from_process(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int ls_spank_submit_init(struct ls_spank *self, spank_t sp)
{
    bool step = spank_context() == S_CTX_LOCAL;
    self->in_job = step && getenv("SLURM_JOB_ID") != NULL;
    self->inherited = step && ls_spank_gpus_inherited(from_process, NULL);
    if (!step && getenv("SLURM_JOB_ID"))
        ls_spank_outer_unset();
    ls_spank_options_register(sp);
    ls_spank_twins_set(self);
    if (self->loaded)
        return 0;
    slurm_error("lockstep: %s", self->err.message);
    return -1;
}
