/* Server side of --lockstep-gpus: in slurmctld, turns the option of a job into a request for GPUs, exactly
 * as --gpus-per-node would have, and refuses what contradicts it. A job without the option is not
 * touched. Slurm takes this plugin only in the very version that it was built for: a mismatch stops
 * slurmctld, so see job_submit_lockstep(8) first. */
#include "spank/gpus.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What Slurm's loader looks for; it has no public header for it. */
extern const char plugin_name[], plugin_type[];
extern const uint32_t plugin_version;
int init(void);
int fini(void);
int job_submit(struct job_descriptor *job, uint32_t uid, char **message);
int job_modify(struct job_descriptor *job, void *record, uint32_t uid, char **message);
/* What slurmctld gets from us must be made and freed by its own functions, which no public header has. */
extern char *slurm_xstrdup(const char *text);
extern void slurm_xfree(void **text);

const char plugin_name[] = "Lockstep: --lockstep-gpus becomes a request for GPUs";
const char plugin_type[] = "job_submit/lockstep";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* The SPANK plugin's option, as Slurm itself hands it to the controller. */
static const char option[] = "_SLURM_SPANK_OPTION_lockstep_lockstep_gpus=";

/* More GPUs than any request that can be met, and far from an overflow. */
#define MOST 1000000

/* GPUs in a list of Slurm's, "gres:gpu:a100:4,license:x:1"; false if none are mentioned. */
static bool gpus_in(const char *list, struct ls_gpus *gpus)
{
    bool found = false;
    *gpus = (struct ls_gpus){0};
    for (const char *at = list; at && *at;) {
        size_t len = strcspn(at, ",");
        char item[160];
        snprintf(item, sizeof item, "%.*s", (int)(len < sizeof item ? len : sizeof item - 1), at);
        at += len + (at[len] == ',');
        const char *p = item;
        if (!strncmp(p, "gres:", 5) || !strncmp(p, "gres/", 5))
            p += 5;
        if (strncmp(p, "gpu", 3) != 0 || (p[3] && p[3] != ':' && p[3] != '='))
            continue;
        const char *last = strrchr(p, ':') ? strrchr(p, ':') : strchr(p, '=');
        bool counted =
            last && last[1] >= '0' && last[1] <= '9' && !last[1 + strspn(last + 1, "0123456789")];
        const char *type = p[3] ? p + 4 : "", *end = counted ? last : p + strlen(p);
        long count = counted ? strtol(last + 1, NULL, 10) : 1;
        gpus->count = count > MOST || gpus->count > MOST ? MOST : gpus->count + (int)count;
        if (end > type)
            snprintf(gpus->type, sizeof gpus->type, "%.*s", (int)(end - type), type);
        found = true;
    }
    return found;
}

static bool known(uint32_t n)
{
    return n != 0 && n != NO_VAL && n != INFINITE && n != NO_VAL16 && n != INFINITE16;
}

/* Does the rest of the request contradict N GPUs per node? Only what cannot be meant; all else is for
 * Slurm's own checks. */
static enum ls_status check(const struct job_descriptor *job, const struct ls_gpus *want,
                            struct ls_error *err)
{
    struct ls_gpus other;
    if (gpus_in(job->tres_per_node, &other) &&
        (other.count != want->count || strcmp(other.type, want->type) != 0))
        return ls_error_set(
            err, LS_ERR_USAGE,
            "--lockstep-gpus asks for %s%s%d GPUs on each node, and another option for "
            "%.100s: say it once",
            want->type, *want->type ? ":" : "", want->count, job->tres_per_node);
    if (gpus_in(job->tres_per_job, &other) && known(job->min_nodes) &&
        job->min_nodes == job->max_nodes && other.count != (int64_t)want->count * job->min_nodes)
        return ls_error_set(
            err, LS_ERR_USAGE,
            "--lockstep-gpus asks for %d GPUs on each of %u nodes, and --gpus for %d in "
            "all: leave one of them out",
            want->count, job->min_nodes, other.count);
    uint32_t sockets = job->sockets_per_node;
    if (gpus_in(job->tres_per_socket, &other) &&
        (other.count > want->count ||
         (known(sockets) && (int64_t)other.count * sockets != want->count)))
        return ls_error_set(
            err, LS_ERR_USAGE,
            "--lockstep-gpus asks for %d GPUs on each node, and --gpus-per-socket for %d of "
            "each socket: leave one of them out",
            want->count, other.count);
    if (gpus_in(job->tres_per_task, &other) && known(job->ntasks_per_node) &&
        (int64_t)other.count * job->ntasks_per_node > want->count)
        return ls_error_set(
            err, LS_ERR_USAGE,
            "--lockstep-gpus asks for %d GPUs on each node, where %d tasks with %d each "
            "need %lld: raise it, or leave --gpus-per-task out",
            want->count, (int)job->ntasks_per_node, other.count,
            (long long)other.count * job->ntasks_per_node);
    return LS_OK;
}

static void request(struct job_descriptor *job, const struct ls_gpus *want)
{
    struct ls_gpus there;
    struct ls_buf list;
    if (gpus_in(job->tres_per_node, &there))
        return;
    ls_buf_init(&list, 65536);
    if (job->tres_per_node && *job->tres_per_node)
        ls_buf_printf(&list, "%s,", job->tres_per_node);
    ls_buf_printf(&list, "gres:gpu:%s%s%d", want->type, *want->type ? ":" : "", want->count);
    if (!list.failed) {
        slurm_xfree((void **)&job->tres_per_node);
        job->tres_per_node = slurm_xstrdup(list.data);
    }
    ls_buf_free(&list);
}

int init(void)
{
    return SLURM_SUCCESS;
}

int fini(void)
{
    return SLURM_SUCCESS;
}

int job_submit(struct job_descriptor *job, uint32_t uid, char **message)
{
    (void)uid;
    const char *asked = NULL;
    for (uint32_t i = 0; job->spank_job_env && i < job->spank_job_env_size; i++)
        if (job->spank_job_env[i] && !strncmp(job->spank_job_env[i], option, sizeof option - 1))
            asked = job->spank_job_env[i] + sizeof option - 1;
    if (!asked)
        return SLURM_SUCCESS;
    struct ls_gpus want;
    struct ls_error err = {0};
    if (ls_gpus_parse(asked, &want, &err) != LS_OK)
        ls_error_context(&err, "--lockstep-gpus");
    else if (check(job, &want, &err) == LS_OK)
        request(job, &want);
    if (!err.message[0])
        return SLURM_SUCCESS;
    if (message)
        *message = slurm_xstrdup(err.message);
    return ESLURM_INVALID_GRES;
}

/* The option belongs to the submission; what an administrator changes later is not ours. */
int job_modify(struct job_descriptor *job, void *record, uint32_t uid, char **message)
{
    (void)job;
    (void)record;
    (void)uid;
    (void)message;
    return SLURM_SUCCESS;
}
