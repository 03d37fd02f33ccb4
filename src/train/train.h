/* The loop: data in, steps, evaluation, checkpoints, until the job is done or asked to stop.
 *
 *   open (data beside the backend) -> build -> restore or initialise -> step* -> last checkpoint
 */
#ifndef LS_TRAIN_H
#define LS_TRAIN_H

#include "base/base.h"
#include "graph/graph.h"
#include "job/job.h"
#include "train/ranks.h"
#include "watch/watch.h"

#include <signal.h>

enum ls_resume { LS_RESUME_AUTO, LS_RESUME_NEVER, LS_RESUME_PATH };

struct ls_train_config {
    const struct ls_job *job;
    int threads;            /* of the CPU backend */
    const char *plugin_dir; /* holds lockstep_<device>.so */
    enum ls_resume resume;
    const char *resume_path;           /* LS_RESUME_PATH: a checkpoint directory */
    const volatile sig_atomic_t *stop; /* a signal number once the run shall save and end */
    struct ls_progress *progress;      /* of rank 0; silent on the others */
    struct ls_ranks *ranks;
};

struct ls_train_result {
    bool stopped;              /* ended early because *stop was set on some rank, after saving */
    int stop_signal;           /* the signal */
    int64_t steps;             /* finished, earlier runs included */
    double seconds;            /* of this run's loop: steps, evaluations, checkpoints */
    double step_seconds;       /* of it, in steps alone */
    double comm_seconds;       /* of these, in collectives: starting, moving, waiting for others */
    double samples_per_second; /* this run's samples / step_seconds; 0 if no step was run */
    double first_step;         /* from the start of the process to the end of the first step */
    double train_loss;         /* of the last step; NaN if none */
    double test_loss, test_accuracy; /* NaN without a test set; accuracy is a fraction */
    int64_t planned_bytes;           /* what the plan allotted, and the arenas use */
    int64_t skipped;                 /* steps of this run whose update was skipped */
    char *checkpoint;                /* the newest, malloc'd; NULL if none was written or resumed */
};

/* Runs the job. Checkpoints that were complete stay so, whatever is returned. */
enum ls_status ls_train(const struct ls_train_config *config, struct ls_train_result *result,
                        struct ls_error *err);
void ls_train_result_free(struct ls_train_result *result);

/* schedule.c: the learning rate of step `step` (from 0) of `steps`. */
double ls_schedule_lr(const struct ls_job *job, int64_t step, int64_t steps);

/* Steps of the whole job on a training set of `samples`: as given, or epochs rounded up. */
int64_t ls_train_steps(const struct ls_job *job, int64_t samples);

/* Threads for this rank: resources.threads, or `share` if it is not 0, or one for each CPU of its mask. */
int ls_train_threads(const struct ls_job *job, int share);

/* Name of the job's device backend: "cpu". */
const char *ls_train_device(const struct ls_job *job);

/* state.c: the program's parameters and moments as checkpoint tensors, whole, on rank 0's host. */
struct ls_state;
/* All ranks. `prog`, `exec` and `ranks` must outlive it. Errors: NOMEM. */
enum ls_status ls_state_open(const struct ls_prog *prog, struct ls_exec *exec,
                             struct ls_ranks *ranks, struct ls_state **state, struct ls_error *err);
void ls_state_close(struct ls_state *state);
/* Rank 0: sets every parameter's host copy to its initial value and every moment's to zero. */
void ls_state_initialise(struct ls_state *state, uint64_t seed);
struct ls_ckpt_state;
/* Rank 0: points `ckpt` at its host copies, to be saved behind a collect or filled before a deal. */
void ls_state_tables(struct ls_state *state, struct ls_ckpt_state *ckpt);
/* All ranks: from the devices to rank 0's host copies. */
enum ls_status ls_state_collect(struct ls_state *state, struct ls_error *err);
/* All ranks: from rank 0's host copies to all devices, to each what it has: everything, or a slice. */
enum ls_status ls_state_deal(struct ls_state *state, struct ls_error *err);

#endif
