/* Learning-rate schedules: a pure function of the step, so that resuming needs no state. */
#include "train/train.h"

#include <math.h>

double ls_schedule_lr(const struct ls_job *job, int64_t step, int64_t steps)
{
    const double pi = 3.141592653589793, lr = job->optimizer.lr;
    int64_t warmup = job->optimizer.schedule.warmup;
    if (step < warmup)
        return lr * (double)(step + 1) / (double)warmup;
    double last = job->optimizer.schedule.final;
    double t = steps > warmup ? (double)(step - warmup) / (double)(steps - warmup) : 1;
    t = t < 1 ? t : 1;
    switch (job->optimizer.schedule.type) {
    case LS_SCHED_CONSTANT:
        return lr;
    case LS_SCHED_STEP:
        return lr *
               pow(job->optimizer.schedule.gamma, (double)(step / job->optimizer.schedule.every));
    case LS_SCHED_COSINE: /* Loshchilov & Hutter, ICLR 2017, one period */
        return lr * (last + (1 - last) * 0.5 * (1 + cos(pi * t)));
    case LS_SCHED_LINEAR:
        return lr * (1 + (last - 1) * t);
    }
    return lr;
}
