/* Limits of a task. Slurm sets the soft ones last, after task_init and just before exec: to those of the shell
 * in which the job was submitted (PropagateResourceLimits in slurm.conf(5), by default all of them), which
 * come along as SLURM_RLIMIT_<NAME>, with a U in front where the user has said --propagate. So what is raised
 * here would be gone again unless that variable goes, too; and what the task will have is not what it has now. */
#include "spank/plugin.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct limit {
    const char *word, *variable;
    int resource;
};
static const struct limit memlock = {"memlock", "SLURM_RLIMIT_MEMLOCK", RLIMIT_MEMLOCK};
static const struct limit nofile = {"nofile", "SLURM_RLIMIT_NOFILE", RLIMIT_NOFILE};
static const struct limit stack = {"stack", "SLURM_RLIMIT_STACK", RLIMIT_STACK};
static const struct limit nproc = {"nproc", "SLURM_RLIMIT_NPROC", RLIMIT_NPROC};

/* The soft limit that comes along; false: none, or no number. */
static bool comes_along(spank_t sp, const struct limit *limit, rlim_t *soft, bool *asked)
{
    char text[32], *end;
    if (spank_getenv(sp, limit->variable, text, sizeof text) != ESPANK_SUCCESS)
        return false;
    *asked = *text == 'U';
    const char *digits = text + *asked;
    errno = 0;
    unsigned long long n = *digits >= '0' && *digits <= '9' ? strtoull(digits, &end, 10) : 0;
    if (*digits < '0' || *digits > '9' || *end || errno)
        return false;
    *soft = (rlim_t)n; /* RLIM_INFINITY is written as the largest number, which it is */
    return true;
}

/* ---- raised, as root ---- */

static void raise_limit(spank_t sp, const struct limit *limit, const struct ls_spank_limit *want)
{
    struct rlimit old, new;
    rlim_t soft;
    bool asked;
    if (want->kind == LS_SPANK_KEEP || getrlimit(limit->resource, &old) != 0)
        return;
    new = old;
    if (want->kind == LS_SPANK_HARD)
        new.rlim_cur = old.rlim_max;
    else if (want->kind == LS_SPANK_UNLIMITED)
        new.rlim_cur = new.rlim_max = RLIM_INFINITY;
    else if (old.rlim_cur < want->value)
        new = (struct rlimit){want->value, old.rlim_max < want->value ? want->value : old.rlim_max};
    if ((new.rlim_cur != old.rlim_cur || new.rlim_max != old.rlim_max) &&
        setrlimit(limit->resource, &new) != 0) {
        slurm_error("lockstep: plugstack.conf: cannot raise %s: %s; does slurmstepd run with "
                    "CAP_SYS_RESOURCE, and is it below what the kernel allows?",
                    limit->word, strerror(errno));
        return;
    }
    rlim_t least = want->kind == LS_SPANK_AT_LEAST ? want->value : new.rlim_cur;
    if (comes_along(sp, limit, &soft, &asked) && !asked && soft < least)
        spank_unsetenv(sp, limit->variable);
}

void ls_spank_remote_limits(struct ls_spank *self, spank_t sp)
{
    if (self->err.message[0] || !ls_spank_on(self))
        return;
    raise_limit(sp, &memlock, &self->args.memlock);
    raise_limit(sp, &nofile, &self->args.nofile);
}

/* ---- foreseen ---- */

static void foresee(spank_t sp, const struct limit *limit, int64_t *value)
{
    struct rlimit now;
    rlim_t soft;
    bool asked;
    /* Slurm raises no hard limit: what is above stays undone. */
    if (comes_along(sp, limit, &soft, &asked) && getrlimit(limit->resource, &now) == 0 &&
        soft <= now.rlim_max)
        *value = soft > INT64_MAX ? -1 : (int64_t)soft;
}

void ls_spank_foresee_limits(spank_t sp, struct ls_topo_limits *limits)
{
    foresee(sp, &memlock, &limits->memlock);
    foresee(sp, &nofile, &limits->nofile);
    foresee(sp, &stack, &limits->stack);
    foresee(sp, &nproc, &limits->nproc);
}
