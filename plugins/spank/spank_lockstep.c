/* Slurm's entry points, and nothing else: each hands over to the file of the process that it is in. What a
 * node's hooks return is decided here, where one can see it: 0, except from task_init. */
#include "config.h"

#include "spank/plugin.h"

#include <stdlib.h>
#include <unistd.h>

SPANK_PLUGIN(lockstep, 1)

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
/* Should the plugin fail to start on a node all the same, the job fails and the node stays. */
extern const int slurm_spank_init_failure_mode;
const int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
#endif

struct ls_spank ls_spank_self = {.dev = -1};

int slurm_spank_init(spank_t sp, int argc, char **argv)
{
    ls_spank_load(&ls_spank_self, argc, argv);
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        return ls_spank_submit_init(&ls_spank_self, sp);
    case S_CTX_REMOTE:
        ls_spank_remote_init(&ls_spank_self, sp);
        return 0;
    case S_CTX_SLURMD:
        ls_spank_slurmd_init(&ls_spank_self);
        return 0;
    default:
        return 0;
    }
}

int slurm_spank_init_post_opt(spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        ls_spank_twins_unset(&ls_spank_self);
        return 0;
    case S_CTX_REMOTE:
        ls_spank_remote_post_opt(&ls_spank_self, sp);
        return 0;
    default:
        return 0;
    }
}

int slurm_spank_task_init_privileged(spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (spank_context() == S_CTX_REMOTE)
        ls_spank_remote_limits(&ls_spank_self, sp);
    return 0;
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return spank_context() == S_CTX_REMOTE ? ls_spank_remote_task(&ls_spank_self, sp) : 0;
}

int slurm_spank_exit(spank_t sp, int argc, char **argv)
{
    (void)sp;
    (void)argc;
    (void)argv;
    ls_spank_free(&ls_spank_self);
    return 0;
}

/* ---- what every process does ---- */

void ls_spank_load(struct ls_spank *self, int argc, char **argv)
{
    ls_spank_free(self);
    *self =
        (struct ls_spank){.args = ls_spank_args_default, .site = ls_topo_site_default, .dev = -1};
    self->loaded = ls_spank_args_parse(argc, argv, &self->args, &self->err) == LS_OK;
}

enum ls_status ls_spank_read_site(struct ls_spank *self, struct ls_error *err)
{
    char *text = NULL;
    size_t size;
    struct ls_error cause = {0};
    enum ls_status status = ls_file_read(self->args.site, (size_t)1 << 20, &text, &size, &cause);
    if (status == LS_ERR_NOTFOUND && !self->args.site_given)
        return LS_OK;
    if (status != LS_OK)
        return ls_error_set(err, status, "site file: %s", cause.message);
    status = ls_topo_site_parse(self->args.site, text, &self->site, NULL, err);
    free(text);
    return status;
}

void ls_spank_free(struct ls_spank *self)
{
    free(self->machine);
    self->machine = NULL;
    if (self->dev >= 0)
        close(self->dev);
    self->dev = -1;
    self->site_keys = NULL;
    ls_arena_free(&self->arena);
}
