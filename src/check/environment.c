/* What Slurm says about this task, and whether its machine could be read. */
#include "check/internal.h"

#include <stdio.h>
#include <string.h>

/* NCCL 2.31.2 hangs in 7 + 8 ranks where 8 + 8 is fine (NVIDIA/nccl issue 2385). */
static bool uneven(const struct ls_slurm *s)
{
    for (int i = 1; s->tasks_per_node && i < s->nodes.count; i++)
        if (s->tasks_per_node[i] != s->tasks_per_node[0])
            return true;
    return false;
}

void ls_check_slurm(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_slurm *s = context->slurm;
    if (context->slurm_problem) {
        ls_check_say(out, LS_CHECK_FAIL, "", "variables that agree with each other",
                     "start in a fresh shell: variables of another job may have come along", "%s",
                     context->slurm_problem);
        return;
    }
    for (int i = 0; i < s->nwarnings; i++)
        ls_check_say(out, LS_CHECK_WARN, "", "", "", "%s", s->warnings[i]);
    if (uneven(s))
        ls_check_say(out, LS_CHECK_WARN, "", "the same number on every node",
                     "say --ntasks-per-node: some versions of NCCL hang with uneven numbers",
                     "the nodes have different numbers of tasks");
    else if (s->nwarnings == 0)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "job %lld, %d tasks on %d nodes",
                     (long long)s->job_id, s->ntasks > 0 ? s->ntasks : 1, s->nodes.count);
}

/* All that asks for devices depends on it, and is skipped without. */
void ls_check_machine(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    if (m)
        ls_check_say(out, LS_CHECK_PASS, "", "", "",
                     "%d CPUs, %d GPUs, %d InfiniBand or RoCE devices", m->ncpu, m->ngpu, m->nnic);
    else if (context->machine_late)
        ls_check_say(out, LS_CHECK_TIMEOUT, "", "/sys, /proc and devices that can be opened",
                     "a device hangs, perhaps a GPU: look at the kernel's log, and reset or reboot",
                     "%s", context->machine_problem);
    else
        ls_check_say(out, LS_CHECK_FAIL, "", "/sys and /proc that can be read",
                     "mount them, in a container too", "%s", context->machine_problem);
}
