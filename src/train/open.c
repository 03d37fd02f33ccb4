/* Brings up the parts of a run: the data is read beside the loading of the backend. */
#include "model/model.h"
#include "train/run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FEED_SLOTS 4 /* batches ahead: one in use, one ready, two for a hiccup of the thread */

/* ---- data, on a thread of its own ---- */

struct load {
    struct ls_run *run;
    enum ls_status status;
    struct ls_error err;
};

static void *load_data(void *arg)
{
    struct load *l = arg;
    const struct ls_job *job = l->run->job;
    l->status = ls_dataset_open(job->data.train_images, job->data.train_labels, job->model.classes,
                                &l->run->train, &l->err);
    if (l->status == LS_OK && job->data.test_images) {
        l->status = ls_dataset_open(job->data.test_images, job->data.test_labels,
                                    job->model.classes, &l->run->test, &l->err);
        l->run->has_test = l->status == LS_OK;
    }
    return NULL;
}

static enum ls_status check_data(const struct ls_run *run, struct ls_error *err)
{
    const struct ls_job *job = run->job;
    const struct ls_dataset *a = &run->train, *b = &run->test;
    if (run->has_test &&
        (a->height != b->height || a->width != b->width || a->channels != b->channels))
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s has images of %lld x %lld x %lld, but %s of %lld x %lld x %lld",
                            job->data.test_images, (long long)b->height, (long long)b->width,
                            (long long)b->channels, job->data.train_images, (long long)a->height,
                            (long long)a->width, (long long)a->channels);
    if (job->data.nmean > 1 && job->data.nmean != a->channels)
        return ls_error_set(err, LS_ERR_USAGE,
                            "%s: data.mean and data.std have %d values, but the images have %lld "
                            "channels; give one value, or one per channel",
                            job->path, job->data.nmean, (long long)a->channels);
    return LS_OK;
}

/* ---- backend and program ---- */

const char *ls_train_device(const struct ls_job *job)
{
    static const char *const names[] = {[LS_DEVICE_CPU] = "cpu"};
    return names[job->resources.device];
}

static enum ls_status open_device(struct ls_run *run, struct ls_error *err)
{
    struct ls_device_config config = {.threads = run->config->threads, .deterministic = true};
    LS_TRY(ls_device_load(run->config->plugin_dir, ls_train_device(run->job), &run->api, err));
    return run->api->open(&config, &run->dev, err);
}

static int64_t pack_size(void *arg, const struct ls_op_desc *op, int operand)
{
    struct ls_run *run = arg;
    return run->api->pack_size(run->dev, op, operand);
}

/* Ranks take contiguous runs of micro-batches whose numbers differ by at most one. */
static enum ls_status check_ranks(struct ls_run *run, struct ls_error *err)
{
    int64_t rank = run->ranks->rank, size = run->ranks->size;
    run->micros = run->job->train.global_batch / run->prog.options.micro_batch;
    run->first_micro = run->micros * rank / size;
    run->own_micros = run->micros * (rank + 1) / size - run->first_micro;
    if (run->micros >= size)
        return LS_OK;
    for (int b = 0; b < run->prog.nbucket; b++)
        if (run->prog.bucket[b].rule == LS_RULE_EMA)
            return ls_error_set(
                err, LS_ERR_USAGE,
                "%s: a step has %lld micro-batches for %lld ranks, and batch norm cannot "
                "take the statistics of a rank that has none; use a smaller "
                "train.micro_batch or fewer ranks",
                run->job->path, (long long)run->micros, (long long)size);
    return LS_OK;
}

static enum ls_status compile(struct ls_run *run, struct ls_error *err)
{
    const struct ls_dataset *d = &run->train;
    struct ls_model_input input = {d->height, d->width, d->channels, run->ranks->size};
    LS_TRY(ls_model_build(run->job, &input, &run->prog, err));
    LS_TRY(ls_graph_compile(&run->prog, pack_size, run, NULL, err));
    return check_ranks(run, err);
}

/* Takes communicated memory, and so waits for the other ranks of this node. */
static enum ls_status open_program(struct ls_run *run, struct ls_error *err)
{
    ls_ranks_exec_comm(run->ranks, &run->comm);
    LS_TRY(ls_exec_open(&run->prog, run->api, run->dev, run->ranks->size > 1 ? &run->comm : NULL,
                        &run->exec, err));
    run->result->planned_bytes = ls_exec_bytes(run->exec);
    return ls_state_open(&run->prog, run->exec, run->ranks, &run->state, err);
}

/* ---- feeds ---- */

static enum ls_status open_feed(struct ls_run *r, const struct ls_dataset *set, bool train,
                                struct ls_feed **feed, struct ls_error *err)
{
    const struct ls_job *job = r->job;
    int64_t rows = r->prog.options.micro_batch;
    /* Training: this rank's run of micro-batches of every step. Evaluation: every n-th batch. */
    int64_t run = train ? r->own_micros : 1;
    int64_t stride = train ? job->train.global_batch : rows * r->ranks->size;
    int64_t position = train ? r->step * stride + r->first_micro * rows : r->ranks->rank * rows;
    int64_t channels = set->channels;
    float *norm = malloc((size_t)channels * 2 * sizeof *norm);
    if (!norm)
        return ls_error_set(err, LS_ERR_NOMEM, "opening the data feed");
    for (int64_t c = 0; c < channels; c++) {
        norm[c] = (float)job->data.mean[job->data.nmean > 1 ? c : 0];
        norm[channels + c] = (float)job->data.std[job->data.nstd > 1 ? c : 0];
    }
    struct ls_feed_config config = {.set = set,
                                    .micro_batch = rows,
                                    .seed = (uint64_t)job->seed,
                                    .shuffle = train,
                                    .position = position,
                                    .run = run,
                                    .stride = stride,
                                    .shift = train ? job->data.shift : 0,
                                    .flip = train && job->data.flip,
                                    .mean = norm,
                                    .std = norm + channels,
                                    .slots = FEED_SLOTS,
                                    .cpus = &r->cpus};
    enum ls_status status = ls_feed_open(&config, feed, err);
    free(norm);
    return status;
}

static enum ls_status open_metrics(struct ls_run *run, struct ls_error *err)
{
    struct ls_arena arena = {0};
    char *path = ls_arena_printf(&arena, "%s/metrics.jsonl", run->job->checkpoint.dir);
    enum ls_status status = path ? ls_metrics_open(path, run->step, &run->metrics, err)
                                 : ls_error_set(err, LS_ERR_NOMEM, "opening metrics.jsonl");
    ls_arena_free(&arena);
    return status;
}

/* What a step sends, and how. */
static void say_collectives(const struct ls_run *run)
{
    int64_t most = 0, sum = 0, n = 0;
    for (int i = 0; i < run->prog.nop; i++)
        if (ls_graph_is_collective(run->prog.op[i].kind)) {
            int64_t bytes = ls_graph_bytes(&run->prog, run->prog.op[i].in[0]);
            if (run->prog.op[i].kind == LS_K_ALL_GATHER)
                bytes *= run->ranks->size;
            most = bytes > most ? bytes : most;
            sum += bytes;
            n++;
        }
    char how[96], total[24], size[24];
    ls_progress_line(run->config->progress,
                     "%d ranks: %lld collectives of %s a step; the largest, %s: %s",
                     run->ranks->size, (long long)n, ls_format_bytes(sum, total),
                     ls_format_bytes(most, size), ls_comm_describe(run->ranks->data, most, how));
}

static void say_what_runs(const struct ls_run *run)
{
    const struct ls_job *job = run->job;
    struct ls_progress *out = run->config->progress;
    char params[32], train[32], test[32], plan[24];
    ls_progress_line(out, "%s: %s parameters on %s", job->name,
                     ls_format_count(ls_model_count(&run->prog), params),
                     run->api->describe(run->dev));
    ls_progress_line(out, "data: %s training samples, %s test samples; %s planned memory",
                     ls_format_count(run->train.n, train),
                     ls_format_count(run->has_test ? run->test.n : 0, test),
                     ls_format_bytes(run->result->planned_bytes, plan));
    if (run->ranks->size > 1)
        say_collectives(run);
}

/* All that a rank can do by itself, and so all that can go wrong with one rank alone. */
static enum ls_status open_parts(struct ls_run *run, struct ls_error *err)
{
    struct load load = {.run = run};
    pthread_t thread;
    if (sched_getaffinity(0, sizeof run->cpus, &run->cpus) != 0)
        return ls_error_errno(err, errno, "reading the CPU mask");
    bool beside = pthread_create(&thread, NULL, load_data, &load) == 0;
    if (!beside)
        load_data(&load);
    enum ls_status status = open_device(run, err);
    /* Cheap checks of the checkpoint directory come before the program is built. */
    if (status == LS_OK && run->leads)
        status = ls_ckpt_open(run->job->checkpoint.dir, &run->ckpt, err);
    if (beside)
        pthread_join(thread, NULL);
    LS_TRY(status);
    if (load.status != LS_OK)
        return ls_error_set(err, load.status, "%s", load.err.message);
    LS_TRY(check_data(run, err));
    run->steps = ls_train_steps(run->job, run->train.n);
    return compile(run, err);
}

/* The micro-batch of a rank that has none: no sample in it counts. */
static enum ls_status make_nothing(struct ls_run *run, struct ls_error *err)
{
    int64_t rows = run->prog.options.micro_batch;
    size_t bytes = (size_t)ls_round_up(ls_graph_bytes(&run->prog, run->prog.images), 64);
    run->no_images = aligned_alloc(64, bytes);
    run->no_labels = malloc((size_t)rows * sizeof *run->no_labels);
    if (!run->no_images || !run->no_labels)
        return ls_error_set(err, LS_ERR_NOMEM, "opening the data feed");
    memset(run->no_images, 0, bytes);
    for (int64_t i = 0; i < rows; i++)
        run->no_labels[i] = -1;
    return LS_OK;
}

enum ls_status ls_run_open(struct ls_run *run, struct ls_error *err)
{
    /* Everyone hears of a rank that cannot start before anyone waits for it. From here on the caller aborts the
     * ranks' world on an error, which ends the waits of the others. */
    LS_TRY(ls_ranks_agree(run->ranks, open_parts(run, err), err));
    LS_TRY(ls_run_compare_data(run, err));
    LS_TRY(open_program(run, err));
    say_what_runs(run);
    LS_TRY(ls_run_restore(run, err));
    if (run->leads)
        LS_TRY(open_metrics(run, err));
    LS_TRY(ls_exec_run(run->exec, LS_SEG_LOAD, err));
    if (run->own_micros > 0)
        LS_TRY(open_feed(run, &run->train, true, &run->feed, err));
    else
        LS_TRY(make_nothing(run, err));
    if (run->has_test)
        LS_TRY(open_feed(run, &run->test, false, &run->test_feed, err));
    return LS_OK;
}

void ls_run_close(struct ls_run *run)
{
    ls_feed_close(run->feed);
    ls_feed_close(run->test_feed);
    free(run->no_images);
    free(run->no_labels);
    ls_state_close(run->state);
    ls_exec_close(run->exec);
    if (run->dev)
        run->api->close(run->dev);
    ls_graph_free(&run->prog);
    ls_ckpt_close(run->ckpt);
    ls_dataset_close(&run->train);
    ls_dataset_close(&run->test);
}
