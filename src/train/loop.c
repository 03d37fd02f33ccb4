/* The loop itself: micro-batches, update, figures; and when to evaluate, save and end. */
#include "train/run.h"

#include <math.h>
#include <stdlib.h>

/* Steps in a row whose update was skipped before the run gives up: a single bad batch passes, a
 * diverged run does not go on for hours. */
#define MOST_SKIPS 10

static enum ls_status run_step(struct ls_run *run, const float *wishes, double *waited,
                               struct ls_error *err)
{
    const struct ls_prog *p = &run->prog;
    double *c = run->control;
    c[LS_C_STEP] = (double)run->step;
    c[LS_C_LR] = ls_schedule_lr(run->job, run->step, run->steps);
    c[LS_C_MICROS] = (double)run->micros;
    /* A rank without a micro-batch runs one with weight 0, for the collectives. */
    int64_t n = run->own_micros > 0 ? run->own_micros : 1;
    for (int64_t m = 0; m < n; m++) {
        struct ls_batch batch = {.images = run->no_images, .labels = run->no_labels};
        ls_ranks_activity(run->ranks, LS_COMM_DATA_WAIT);
        if (run->own_micros > 0)
            LS_TRY(ls_feed_next(run->feed, &batch, waited, err));
        ls_ranks_activity(run->ranks, LS_COMM_COMPUTE);
        c[LS_C_MICRO] = (double)m;
        c[LS_C_SAMPLE] = (double)batch.position;
        LS_TRY(ls_exec_lend(run->exec, p->images, batch.images, err));
        LS_TRY(ls_exec_write(run->exec, p->labels, batch.labels, err));
        LS_TRY(ls_exec_write(run->exec, p->control, c, err));
        LS_TRY(ls_exec_run(run->exec, m + 1 < n ? LS_SEG_MICRO : LS_SEG_LAST, err));
    }
    LS_TRY(ls_exec_write(run->exec, p->wishes, wishes, err));
    LS_TRY(ls_exec_run(run->exec, LS_SEG_UPDATE, err));
    LS_TRY(ls_exec_read(run->exec, p->control, c, err));
    run->step++;
    return LS_OK;
}

static enum ls_status note_step(struct ls_run *run, double seconds, double waited, double comm,
                                int *skips, struct ls_error *err)
{
    struct ls_train_result *r = run->result;
    double batch = (double)run->job->train.global_batch;
    bool skipped = run->control[LS_C_SKIP] != 0;
    r->steps = run->step;
    r->train_loss = run->control[LS_C_LOSS] / run->control[LS_C_COUNT];
    r->step_seconds += seconds;
    r->samples_per_second = (double)(run->step - run->first) * batch / r->step_seconds;
    r->skipped += skipped;
    r->comm_seconds += comm;
    *skips = skipped ? *skips + 1 : 0;
    struct ls_step_figures f = {
        .step = run->step,
        .steps = run->steps,
        .epoch = (double)run->step * batch / (double)run->train.n,
        .loss = r->train_loss,
        .lr = run->control[LS_C_LR],
        .grad_norm = run->control[LS_C_NORM],
        .seconds = seconds,
        .samples_per_second = batch / seconds,
        .data_wait = waited,
        .comm = comm,
        .eta = (double)(run->steps - run->step) * batch / r->samples_per_second,
        .rate = r->samples_per_second,
        .skipped = skipped,
    };
    if (run->leads)
        ls_metrics_step(run->metrics, &f);
    ls_progress_step(run->config->progress, &f, run->step == run->steps);
    if (*skips < MOST_SKIPS)
        return LS_OK;
    return ls_error_set(
        err, LS_ERR_NUMERIC,
        "step %lld: loss or gradient norm was not finite for %d steps in a row; lower "
        "optimizer.lr, set optimizer.clip, or look at the data",
        (long long)run->step, MOST_SKIPS);
}

/* Did the step that just ended cross into another epoch? */
static bool ends_epoch(const struct ls_run *run)
{
    int64_t b = run->job->train.global_batch, n = run->train.n;
    return run->step * b / n != (run->step - 1) * b / n;
}

static bool wants_evaluation(const struct ls_run *run)
{
    int64_t every = run->job->train.eval_every;
    if (!run->has_test)
        return false;
    return every == LS_JOB_AUTO ? ends_epoch(run) : every > 0 && run->step % every == 0;
}

/* What this rank wishes for after the step that begins; all ranks hear of it with the step's commit, so
 * that all do the same after the same step. Time is rank 0's. */
static void make_wishes(const struct ls_run *run, double last_save, float wishes[LS_WISHES])
{
    static const int signals[] = {
        [LS_WISH_USR1] = SIGUSR1, [LS_WISH_INT] = SIGINT, [LS_WISH_TERM] = SIGTERM};
    int stop = *run->config->stop;
    double every = run->job->checkpoint.every;
    for (int i = 0; i < LS_WISHES; i++)
        wishes[i] = i < LS_WISH_SAVE && stop && stop == signals[i];
    wishes[LS_WISH_SAVE] = run->leads && every > 0 && ls_time_monotonic() - last_save >= every;
}

/* The signal on which to stop; a request to end for good outweighs one to come back. */
static int stop_signal(const struct ls_run *run)
{
    const double *wish = run->control + LS_C_WISH;
    return wish[LS_WISH_TERM] > 0   ? SIGTERM
           : wish[LS_WISH_INT] > 0  ? SIGINT
           : wish[LS_WISH_USR1] > 0 ? SIGUSR1
                                    : 0;
}

/* After a step: evaluation, checkpoint, end. */
static enum ls_status after_step(struct ls_run *run, double *last_save, struct ls_error *err)
{
    struct ls_train_result *r = run->result;
    int64_t every = run->job->checkpoint.every_steps;
    bool last = run->step >= run->steps;
    bool save = run->control[LS_C_WISH + LS_WISH_SAVE] > 0 || (every > 0 && run->step % every == 0);
    r->stop_signal = stop_signal(run);
    r->stopped = r->stop_signal && !last;
    if (r->stopped)
        ls_progress_line(run->config->progress,
                         "stopping after step %lld of %lld on signal %d; saving",
                         (long long)run->step, (long long)run->steps, r->stop_signal);
    if (!last && !r->stopped && wants_evaluation(run))
        LS_TRY(ls_run_evaluate(run, err));
    if (save || r->stopped || last) {
        LS_TRY(ls_run_save(run, err));
        *last_save = ls_time_monotonic();
    }
    return LS_OK;
}

enum ls_status ls_run_loop(struct ls_run *run, struct ls_error *err)
{
    struct ls_train_result *r = run->result;
    double start = ls_time_monotonic(), last_save = start;
    int skips = 0;
    run->first = run->step;
    r->steps = run->step;
    if (run->step >= run->steps)
        ls_progress_line(run->config->progress, "all %lld steps are done already",
                         (long long)run->steps);
    while (run->step < run->steps && !r->stopped) {
        double begin = ls_time_monotonic(), waited = 0, comm = run->ranks->seconds;
        float wishes[LS_WISHES];
        make_wishes(run, last_save, wishes);
        LS_TRY(run_step(run, wishes, &waited, err));
        double end = ls_time_monotonic();
        if (run->step == run->first + 1)
            r->first_step = ls_time_since_exec();
        LS_TRY(note_step(run, end - begin, waited, run->ranks->seconds - comm, &skips, err));
        r->seconds = ls_time_monotonic() - start;
        LS_TRY(after_step(run, &last_save, err));
    }
    if (run->has_test && !r->stopped && run->tested_step != run->step)
        LS_TRY(ls_run_evaluate(run, err));
    r->seconds = ls_time_monotonic() - start;
    return LS_OK;
}

enum ls_status ls_train(const struct ls_train_config *config, struct ls_train_result *result,
                        struct ls_error *err)
{
    *result = (struct ls_train_result){.train_loss = NAN, .test_loss = NAN, .test_accuracy = NAN};
    struct ls_run run = {.config = config,
                         .job = config->job,
                         .result = result,
                         .ranks = config->ranks,
                         .leads = config->ranks->rank == 0,
                         .saved_step = -1,
                         .tested_step = -1};
    enum ls_status status = ls_run_open(&run, err);
    if (status == LS_OK)
        status = ls_run_loop(&run, err);
    enum ls_status closing = ls_metrics_close(run.metrics, status == LS_OK ? err : NULL);
    ls_run_close(&run);
    return status == LS_OK ? closing : status;
}

void ls_train_result_free(struct ls_train_result *result)
{
    free(result->checkpoint);
    result->checkpoint = NULL;
}
