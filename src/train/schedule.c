/* What follows from the job alone: learning rate, number of steps, threads. The rate is a pure function of
 * the step, so that resuming needs no state. */
#include "train/train.h"

#include <math.h>
#include <sched.h>

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

int64_t ls_train_steps(const struct ls_job *job, int64_t samples)
{
    int64_t batch = job->train.global_batch;
    return job->train.steps != LS_JOB_AUTO ? job->train.steps
                                           : (job->train.epochs * samples + batch - 1) / batch;
}

int ls_train_threads(const struct ls_job *job, int share)
{
    if (job->resources.threads != LS_JOB_AUTO)
        return (int)job->resources.threads;
    if (share > 0)
        return share;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
