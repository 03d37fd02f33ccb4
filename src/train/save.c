/* Between the run and its checkpoints: what is stored, and where a run starts. */
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void warn(void *arg, const char *message)
{
    ls_progress_line(arg, "warning: %s", message);
}

/* A new run must not write behind the back of an older one's newer checkpoints: retention and the
 * next resume would take the wrong ones. */
static enum ls_status refuse_newer(const struct ls_run *run, struct ls_error *err)
{
    struct ls_ckpt_info *infos = NULL;
    int n = 0;
    LS_TRY(ls_ckpt_list(run->job->checkpoint.dir, &infos, &n, err));
    int64_t newest = -1;
    for (int i = 0; i < n; i++)
        if (infos[i].step > newest)
            newest = infos[i].step;
    ls_ckpt_infos_free(infos, n);
    if (newest <= run->step)
        return LS_OK;
    return ls_error_set(
        err, LS_ERR_USAGE,
        "%s already holds a checkpoint of step %lld, and this run would start at step "
        "%lld; use --resume auto to go on from there, or another checkpoint.dir, or "
        "remove the old ones",
        run->job->checkpoint.dir, (long long)newest, (long long)run->step);
}

static enum ls_status load(struct ls_run *run, const char *path, struct ls_error *err)
{
    struct ls_ckpt_state ckpt = {0};
    ls_state_tables(run->state, &ckpt);
    LS_TRY(ls_ckpt_load(path, &ckpt, err));
    if (ckpt.seed != run->job->seed)
        return ls_error_set(
            err, LS_ERR_USAGE,
            "%s was written with seed %lld, the job description says %lld: the order "
            "of samples would change; set seed = %lld",
            path, (long long)ckpt.seed, (long long)run->job->seed, (long long)ckpt.seed);
    if (ckpt.job_hash != ls_job_hash(run->job))
        ls_progress_line(run->config->progress,
                         "warning: the job description differs from the one that wrote %s", path);
    if (ckpt.position != ckpt.step * run->job->train.global_batch)
        return ls_error_set(err, LS_ERR_USAGE,
                            "%s stands at sample %lld after %lld steps; with train.global_batch = "
                            "%lld samples would be skipped or repeated: use the old value",
                            path, (long long)ckpt.position, (long long)ckpt.step,
                            (long long)run->job->train.global_batch);
    run->step = ckpt.step;
    run->saved_step = ckpt.step;
    run->earlier = ckpt.seconds;
    run->control[LS_C_UPDATES] = (double)ckpt.updates;
    run->result->train_loss = ckpt.train_loss;
    free(run->result->checkpoint);
    run->result->checkpoint = strdup(path);
    ls_progress_line(run->config->progress, "resumed from %s at step %lld", path,
                     (long long)run->step);
    return LS_OK;
}

/* On rank 0: from a checkpoint, or new; into the host copies. */
static enum ls_status restore(struct ls_run *run, struct ls_error *err)
{
    const struct ls_train_config *config = run->config;
    char *found = NULL;
    enum ls_status status = LS_OK;
    if (config->resume == LS_RESUME_AUTO)
        LS_TRY(ls_ckpt_find(run->job->checkpoint.dir, &found, warn, config->progress, err));
    const char *path = config->resume == LS_RESUME_PATH ? config->resume_path : found;
    if (path)
        status = load(run, path, err);
    else
        ls_state_initialise(run->state, (uint64_t)run->job->seed);
    free(found);
    LS_TRY(status);
    return config->resume == LS_RESUME_AUTO ? LS_OK : refuse_newer(run, err);
}

enum ls_status ls_run_restore(struct ls_run *run, struct ls_error *err)
{
    run->saved_step = -1;
    LS_TRY(ls_ranks_agree(run->ranks, run->leads ? restore(run, err) : LS_OK, err));
    struct {
        int64_t step, saved_step;
        double earlier, updates, train_loss;
    } start = {run->step, run->saved_step, run->earlier, run->control[LS_C_UPDATES],
               run->result->train_loss};
    LS_TRY(ls_ranks_broadcast(run->ranks, &start, sizeof start, 0, err));
    run->step = start.step;
    run->saved_step = start.saved_step;
    run->earlier = start.earlier;
    run->control[LS_C_UPDATES] = start.updates;
    run->result->train_loss = start.train_loss;
    LS_TRY(ls_state_deal(run->state, err));
    run->control[LS_C_SEED] = (double)run->job->seed;
    return ls_exec_write(run->exec, run->prog.control, run->control, err);
}

static enum ls_status save(struct ls_run *run, double start, struct ls_error *err)
{
    struct ls_ckpt_state ckpt = {.step = run->step,
                                 .position = run->step * run->job->train.global_batch,
                                 .updates = (int64_t)run->control[LS_C_UPDATES],
                                 .seed = run->job->seed,
                                 .job_hash = ls_job_hash(run->job),
                                 .seconds = run->earlier + run->result->seconds,
                                 .train_loss = run->result->train_loss};
    const char *path = NULL;
    ls_state_tables(run->state, &ckpt);
    LS_TRY(ls_ckpt_save(run->ckpt, &ckpt, run->job->checkpoint.keep, &path, err));
    if (ls_ckpt_warning(run->ckpt))
        warn(run->config->progress, ls_ckpt_warning(run->ckpt));
    char *copy = strdup(path);
    if (!copy)
        return ls_error_set(err, LS_ERR_NOMEM, "saving %s", path);
    free(run->result->checkpoint);
    run->result->checkpoint = copy;
    ls_metrics_checkpoint(run->metrics, run->step, path, ls_time_monotonic() - start);
    return LS_OK;
}

enum ls_status ls_run_save(struct ls_run *run, struct ls_error *err)
{
    if (run->saved_step == run->step)
        return LS_OK;
    ls_ranks_activity(run->ranks, LS_COMM_SAVING);
    double start = ls_time_monotonic();
    LS_TRY(ls_state_collect(run->state, err));
    LS_TRY(ls_ranks_agree(run->ranks, run->leads ? save(run, start, err) : LS_OK, err));
    run->saved_step = run->step;
    return LS_OK;
}
