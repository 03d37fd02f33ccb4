/* Learning-rate schedules against values worked out by hand. */
#include "tests/tap.h"
#include "train/train.h"

#include <math.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(1, fabs(b));
}

int main(void)
{
    struct ls_job job = {0};
    job.optimizer.lr = 0.8;
    job.optimizer.schedule.type = LS_SCHED_CONSTANT;
    tap_ok(near(ls_schedule_lr(&job, 0, 10), 0.8), "constant: first step");
    tap_ok(near(ls_schedule_lr(&job, 9, 10), 0.8), "constant: last step");

    job.optimizer.schedule.warmup = 4;
    tap_ok(near(ls_schedule_lr(&job, 0, 10), 0.2), "warm-up: first of four steps is a quarter");
    tap_ok(near(ls_schedule_lr(&job, 3, 10), 0.8), "warm-up: the fourth has it all");

    job.optimizer.schedule.type = LS_SCHED_LINEAR;
    job.optimizer.schedule.final = 0.5;
    tap_ok(near(ls_schedule_lr(&job, 4, 12), 0.8), "linear: starts at lr behind the warm-up");
    tap_ok(near(ls_schedule_lr(&job, 8, 12), 0.6), "linear: half way");
    tap_ok(near(ls_schedule_lr(&job, 12, 12), 0.4), "linear: ends at final * lr");
    tap_ok(near(ls_schedule_lr(&job, 99, 12), 0.4), "linear: stays there");

    job.optimizer.schedule.type = LS_SCHED_COSINE;
    job.optimizer.schedule.final = 0;
    tap_ok(near(ls_schedule_lr(&job, 8, 12), 0.4), "cosine: half way is half");
    tap_ok(near(ls_schedule_lr(&job, 6, 12), 0.8 * 0.5 * (1 + sqrt(0.5))), "cosine: a quarter");

    job.optimizer.schedule.type = LS_SCHED_STEP;
    job.optimizer.schedule.every = 5;
    job.optimizer.schedule.gamma = 0.1;
    job.optimizer.schedule.warmup = 0;
    tap_ok(near(ls_schedule_lr(&job, 4, 12), 0.8), "step: before the first");
    tap_ok(near(ls_schedule_lr(&job, 5, 12), 0.08), "step: at the first");
    tap_ok(near(ls_schedule_lr(&job, 11, 12), 0.008), "step: at the second");

    job.train.steps = LS_JOB_AUTO;
    job.train.epochs = 3;
    job.train.global_batch = 32;
    tap_ok(ls_train_steps(&job, 100) == 10, "3 epochs of 100 samples in steps of 32: 9.4, so 10");
    job.train.steps = 7;
    tap_ok(ls_train_steps(&job, 100) == 7, "steps as given");
    return tap_done();
}
