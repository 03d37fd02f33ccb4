/* One run's parts, shared by the files of this folder. */
#ifndef LS_TRAIN_RUN_H
#define LS_TRAIN_RUN_H

#include "ckpt/ckpt.h"
#include "data/data.h"
#include "train/train.h"

#include <sched.h>

struct ls_run {
    const struct ls_train_config *config;
    const struct ls_job *job;
    struct ls_train_result *result;
    struct ls_dataset train, test;
    bool has_test;
    struct ls_ranks *ranks;
    bool leads; /* rank 0: it alone touches checkpoints and metrics, and prints */
    struct ls_exec_comm comm;
    cpu_set_t cpus; /* of the process, before the backend bound this thread to one of them */
    const struct ls_device_api *api;
    struct ls_device *dev;
    struct ls_prog prog;
    struct ls_exec *exec;
    struct ls_state *state;
    struct ls_feed *feed, *test_feed;
    struct ls_ckpt_dir *ckpt;
    struct ls_metrics *metrics;
    int64_t steps;                   /* of the whole job */
    int64_t micros;                  /* micro-batches per step, over all ranks */
    int64_t first_micro, own_micros; /* this rank's run of them; may be none */
    int64_t step, first;             /* finished; finished when this run began */
    int64_t saved_step;              /* of the newest checkpoint of this run; -1 */
    int64_t tested_step;             /* of the newest evaluation; -1 */
    double earlier;                  /* training seconds of earlier runs */
    double control[LS_CONTROL_WORDS];
    float *no_images; /* for the micro-batch of a rank that has none; else NULL */
    int32_t *no_labels;
};

/* open.c */
enum ls_status ls_run_open(struct ls_run *run, struct ls_error *err);
void ls_run_close(struct ls_run *run);

/* compare.c: ENV where this rank has other data than rank 0, ABORTED where another one has. For all ranks at once. */
enum ls_status ls_run_compare_data(struct ls_run *run, struct ls_error *err);

/* loop.c */
enum ls_status ls_run_loop(struct ls_run *run, struct ls_error *err);

/* eval.c: evaluates on the whole test set; fills result->test_loss and test_accuracy. */
enum ls_status ls_run_evaluate(struct ls_run *run, struct ls_error *err);

/* save.c */
enum ls_status ls_run_restore(struct ls_run *run, struct ls_error *err);
enum ls_status ls_run_save(struct ls_run *run, struct ls_error *err);

#endif
