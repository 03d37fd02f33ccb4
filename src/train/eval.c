/* Evaluation on the held-out split: the last batch is short and padded with ignored labels. */
#include "train/run.h"

enum ls_status ls_run_evaluate(struct ls_run *run, struct ls_error *err)
{
    const struct ls_prog *p = &run->prog;
    double start = ls_time_monotonic(), waited = 0;
    float own[3] = {0};
    int64_t rows = p->options.micro_batch, first = run->ranks->rank * rows;
    struct ls_batch batch;
    LS_TRY(ls_feed_seek(run->test_feed, first, err));
    for (int64_t at = first, i = 0; at < run->test.n; at += rows * run->ranks->size, i++) {
        LS_TRY(ls_feed_next(run->test_feed, &batch, &waited, err));
        LS_TRY(ls_exec_lend(run->exec, p->images, batch.images, err));
        LS_TRY(ls_exec_write(run->exec, p->labels, batch.labels, err));
        run->control[LS_C_MICRO] = (double)i;
        LS_TRY(ls_exec_write(run->exec, p->control, run->control, err));
        LS_TRY(ls_exec_run(run->exec, LS_SEG_EVAL, err));
    }
    if (first < run->test.n) /* a rank without a batch adds nothing */
        LS_TRY(ls_exec_read(run->exec, p->eval, own, err));
    double sums[3] = {(double)own[0], (double)own[1], (double)own[2]};
    LS_TRY(ls_ranks_sum(run->ranks, sums, 3, err));
    if ((int64_t)sums[1] != run->test.n)
        return ls_error_set(err, LS_ERR_INTERNAL, "evaluated %.0f samples of %lld", sums[1],
                            (long long)run->test.n);
    struct ls_train_result *r = run->result;
    r->test_loss = sums[0] / (double)run->test.n;
    r->test_accuracy = sums[2] / (double)run->test.n;
    run->tested_step = run->step;
    if (!run->leads)
        return LS_OK;
    ls_metrics_eval(run->metrics, run->step, r->test_loss, r->test_accuracy, run->test.n,
                    ls_time_monotonic() - start);
    ls_progress_line(run->config->progress, "step %lld: test loss %.4f, test accuracy %.2f %%",
                     (long long)run->step, r->test_loss, 100 * r->test_accuracy);
    return LS_OK;
}
