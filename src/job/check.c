/* The rules that involve more than one key. They look only at keys that are fine by themselves. */
#include "job/parts.h"

#include <string.h>

static const struct ls_job_origin *origin(const struct ls_job *job, const char *path)
{
    return &job->origin[ls_job_key_find(&ls_job_keys, path)];
}

static bool given(const struct ls_job *job, const char *path)
{
    return origin(job, path)->kind == LS_ORIGIN_FILE;
}

static struct ls_job_place place(const struct ls_job *job, const char *path)
{
    return origin(job, path)->place;
}

/* Of two places the later one: that is where the contradiction begins. */
static struct ls_job_place later(struct ls_job_place a, struct ls_job_place b)
{
    return a.order > b.order ? a : b;
}

static void check_length(const struct ls_job *job, struct ls_job_place train,
                         struct ls_job_problems *problems)
{
    bool steps = given(job, "train.steps"), epochs = given(job, "train.epochs");
    if (steps && epochs)
        ls_job_problem(
            problems, later(place(job, "train.steps"), place(job, "train.epochs")),
            "train: found both steps and epochs, expected one of them; remove the other");
    else if (!steps && !epochs && train.file)
        ls_job_problem(problems, train,
                       "train: found neither steps nor epochs, expected one of them; add epochs = "
                       "10;");
}

static void check_batch(const struct ls_job *job, struct ls_job_problems *problems)
{
    int64_t global = job->train.global_batch, micro = job->train.micro_batch;
    struct ls_job_place at = place(job, "train.micro_batch");
    if (global < 1 || micro < 1) /* wrong by themselves, or auto */
        return;
    if (micro > global) {
        ls_job_problem(problems, at,
                       "train.micro_batch: found %lld, expected at most global_batch = %lld; write "
                       "micro_batch = %lld; or \"auto\"",
                       (long long)micro, (long long)global, (long long)global);
    } else if (global % micro != 0) {
        int64_t below = micro, above = micro;
        while (global % below != 0)
            below--;
        while (global % above != 0)
            above++;
        ls_job_problem(problems, at,
                       "train.micro_batch: found %lld, expected a divisor of global_batch = %lld; "
                       "write micro_batch = %lld; or %lld",
                       (long long)micro, (long long)global, (long long)below, (long long)above);
    }
}

/* Layers of the program: a block counts as often as it repeats. Past the limit the count stops. */
static int64_t count_layers(const struct ls_layer *layers, int n)
{
    int64_t total = 0;
    for (int i = 0; i < n && total <= LS_JOB_MAX_LAYERS; i++) {
        const struct ls_layer *l = &layers[i];
        int64_t inner =
            count_layers(l->layers, l->nlayers) + count_layers(l->shortcut, l->nshortcut);
        total += 1 + inner * (l->type == LS_LAYER_RESIDUAL ? l->repeat : 1);
    }
    return total < LS_JOB_MAX_LAYERS + 1 ? total : LS_JOB_MAX_LAYERS + 1;
}

static void check_data(const struct ls_job *job, struct ls_job_problems *problems)
{
    bool images = given(job, "data.test.images"), labels = given(job, "data.test.labels");
    if (images != labels)
        ls_job_problem(problems, place(job, images ? "data.test.images" : "data.test.labels"),
                       "data.test: found %s without %s, expected both or neither; add %s = "
                       "\"...\";",
                       images ? "images" : "labels", images ? "labels" : "images",
                       images ? "labels" : "images");
    int nmean = job->data.nmean, nstd = job->data.nstd;
    if (nmean && nstd && nmean != nstd)
        ls_job_problem(problems, later(place(job, "data.mean"), place(job, "data.std")),
                       "data: found %d values of mean and %d of std, expected as many of one as of "
                       "the other",
                       nmean, nstd);
}

void ls_job_check(const struct ls_job *job, struct ls_job_place train,
                  struct ls_job_problems *problems)
{
    check_length(job, train, problems);
    check_batch(job, problems);
    check_data(job, problems);
    if (job->optimizer.nesterov && given(job, "optimizer.nesterov") &&
        job->optimizer.momentum == 0 && origin(job, "optimizer.momentum")->kind != LS_ORIGIN_NONE)
        ls_job_problem(
            problems, place(job, "optimizer.nesterov"),
            "optimizer.nesterov: found true with momentum = 0, expected a momentum above "
            "0, such as 0.9");
    if (job->parallel.zero > 1)
        ls_job_problem(problems, place(job, "parallel.zero"),
                       "parallel.zero: found %lld, expected 0 or 1; stages 2 and 3 do not work yet",
                       (long long)job->parallel.zero);
    if (count_layers(job->model.layers, job->model.nlayers) > LS_JOB_MAX_LAYERS)
        ls_job_problem(problems, place(job, "model.layers"),
                       "model.layers: found more than %d layers, repeats counted, expected at most "
                       "that",
                       LS_JOB_MAX_LAYERS);
}
