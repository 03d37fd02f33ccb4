/* In slurmd, once as it starts: says in its log what is wrong with the configuration, long before a job
 * meets it. */
#include "spank/plugin.h"

void ls_spank_slurmd_init(struct ls_spank *self)
{
    if (self->loaded)
        ls_spank_read_site(self, &self->err);
    if (self->err.message[0])
        slurm_error(
            "lockstep: %s; tasks will fail if plugstack.conf says required, and run without "
            "this plugin if it says optional",
            self->err.message);
}
