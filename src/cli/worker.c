/* The worker: one rank. Meets the others through PMIx if something started it so, checks that all are
 * alike, trains, and leaves a completion record. */
#include "cli/worker.h"
#include "cli/cli.h"
#include "cli/run_options.h"
#include "keep/keep.h"
#include "topo/topo.h"
#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Signals only set this word; the loop looks at it between steps. */
static volatile sig_atomic_t stop_signal;
/* The ranks have met, or a keeper watches over that. Before it nothing is there to save, and nobody looks. */
static volatile sig_atomic_t begun;

/* Never interrupted by another signal of ours. */
static void on_signal(int sig)
{
    static struct ls_stop stop;
    if (!begun)
        _exit(sig == SIGUSR1 ? LS_EXIT_REQUEUE : 128 + sig);
    if (ls_stop_hear(&stop, sig, ls_time_monotonic()) == LS_STOP_AT_ONCE)
        _exit(128 + sig); /* checkpoints stay as they are */
    stop_signal = stop.sig;
}

static void on_keeper(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    on_signal(info->si_value.sival_int);
}

/* Under a keeper only its word counts: a terminal and Slurm send their signals to keeper and workers
 * alike, and the keeper passes each on once. */
static void catch_signals(bool kept)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction word = {.sa_sigaction = on_keeper, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&word.sa_mask);
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGUSR1);
    if (kept) {
        action.sa_handler = SIG_IGN;
        sigset_t waiting;
        sigemptyset(&waiting);
        sigaddset(&waiting, LS_KEEP_SIGNAL);
        sigaction(LS_KEEP_SIGNAL, &word, NULL);
        pthread_sigmask(SIG_UNBLOCK, &waiting, NULL);
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe on stdout must not lose a checkpoint */
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write, with a message */
}

/* ---- what rank 0 prints at the end ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static int64_t peak_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

static enum ls_status print_json(const char *status, const struct ls_train_result *r,
                                 const struct ls_ranks *ranks, const char *message,
                                 struct ls_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "status", json_string(status));
    if (message)
        json_object_set_new(o, "message", json_string(message));
    json_object_set_new(o, "ranks", json_integer(ranks->size));
    json_object_set_new(o, "steps", json_integer(r->steps));
    json_object_set_new(o, "seconds", number(r->seconds));
    json_object_set_new(o, "train_loss", number(r->train_loss));
    json_object_set_new(o, "test_loss", number(r->test_loss));
    json_object_set_new(o, "test_accuracy", number(r->test_accuracy));
    json_object_set_new(o, "samples_per_second", number(r->samples_per_second));
    json_object_set_new(o, "step_seconds", number(r->step_seconds));
    json_object_set_new(o, "comm_seconds", number(r->comm_seconds));
    json_object_set_new(o, "bootstrap_seconds", number(ranks->size > 1 ? ranks->bootstrap : NAN));
    json_object_set_new(o, "first_step_seconds", number(r->first_step));
    json_object_set_new(o, "skipped_steps", json_integer(r->skipped));
    json_object_set_new(o, "planned_memory_bytes", json_integer(r->planned_bytes));
    json_object_set_new(o, "peak_memory_bytes", json_integer(peak_memory()));
    json_object_set_new(o, "checkpoint", r->checkpoint ? json_string(r->checkpoint) : json_null());
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (!text)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the JSON record");
    bool ok = puts(text) >= 0 && fflush(stdout) == 0;
    int why = errno;
    free(text);
    return ok ? LS_OK : ls_error_errno(err, why, "writing the JSON record to standard output");
}

static void print_summary(const struct ls_train_result *r)
{
    char rate[32], plan[24], peak[24];
    printf("%s after %lld steps, %.1f s, %s samples/s\n", r->stopped ? "stopped" : "done",
           (long long)r->steps, r->seconds, ls_format_count((int64_t)r->samples_per_second, rate));
    printf("train loss %.4f", r->train_loss);
    if (isfinite(r->test_accuracy))
        printf(", test loss %.4f, test accuracy %.2f %%", r->test_loss, 100 * r->test_accuracy);
    printf("\nmemory: %s planned, %s peak of the process\n",
           ls_format_bytes(r->planned_bytes, plan), ls_format_bytes(peak_memory(), peak));
    if (r->skipped)
        printf("%lld steps were skipped: loss or gradient not finite\n", (long long)r->skipped);
    if (r->checkpoint)
        printf("checkpoint: %s\n", r->checkpoint);
    fflush(stdout);
}

/* ---- the record ---- */

/* Goes to the keeper above, if there is one. */
static void leave_record(enum ls_status status, int code, int64_t steps, int suspect,
                         const char *message)
{
    const char *fd_text = getenv(LS_RECORD_FD_VARIABLE);
    if (!fd_text)
        return;
    struct ls_record record = {.status = status, .code = code, .steps = steps, .suspect = suspect};
    char text[LS_RECORD_MAX];
    snprintf(record.message, sizeof record.message, "%s", message);
    size_t n = ls_record_write(&record, text);
    int fd = (int)strtol(fd_text, NULL, 10);
    ls_file_write_all(fd, text, n, "record", NULL);
    close(fd);
}

/* ---- the worker ---- */

struct worker {
    struct ls_run_options options;
    struct ls_job *job;
    struct ls_ranks ranks;
    struct ls_wire_client *client; /* still open where the ranks did not meet */
    struct ls_progress progress;
    struct ls_train_result result;
    char *plugins;
    int threads;
    bool kept; /* a keeper is above */
};

static enum ls_status train(struct worker *w, struct ls_error *err)
{
    const char *resume = w->options.resume;
    struct ls_train_config config = {.job = w->job,
                                     .threads = w->threads,
                                     .plugin_dir = w->plugins,
                                     .stop = &stop_signal,
                                     .progress = &w->progress,
                                     .ranks = &w->ranks,
                                     .resume_path = resume};
    config.resume = !strcmp(resume, "auto")    ? LS_RESUME_AUTO
                    : !strcmp(resume, "never") ? LS_RESUME_NEVER
                                               : LS_RESUME_PATH;
    return ls_train(&config, &w->result, err);
}

/* The message of an error, as whoever reads it needs it: a rank says who it is. */
static void tell(const struct worker *w, const char *message)
{
    if (w->kept || !*message)
        return; /* the keeper names the first failure, last; or another rank speaks */
    if (w->ranks.size > 1)
        fprintf(stderr, "[%d@%s] lockstep: %s\n", w->ranks.rank, w->ranks.host[w->ranks.rank],
                message);
    else
        ls_cli_error("%s", message);
}

/* What the loop ended with, or a graver wish that came while it was saving. */
static int code_of_stop(const struct worker *w)
{
    int late = stop_signal, sig = w->result.stop_signal;
    if (sig == SIGUSR1 && late != SIGUSR1)
        sig = late;
    return sig == SIGUSR1 ? LS_EXIT_REQUEUE : 128 + sig;
}

static int finish(struct worker *w, enum ls_status status, struct ls_error *err)
{
    const struct ls_train_result *r = &w->result;
    if (w->progress.open_line)
        fputc('\n', stderr);
    if (w->ranks.rank == 0 && w->options.json) {
        const char *word = status != LS_OK ? "failed" : r->stopped ? "stopped" : "done";
        struct ls_error lost = {0};
        enum ls_status printed =
            print_json(word, r, &w->ranks, status != LS_OK ? err->message : NULL, &lost);
        if (status == LS_OK && printed != LS_OK)
            status = ls_error_set(err, printed, "%s", lost.message);
    } else if (w->ranks.rank == 0 && status == LS_OK)
        print_summary(r);
    int code = status == LS_OK && r->stopped ? code_of_stop(w) : ls_cli_exit_code(status);
    if (status != LS_OK)
        tell(w, err->message);
    int suspect = w->ranks.world ? ls_comm_suspect(w->ranks.world) + 1 : 0;
    leave_record(status, code, r->steps, suspect, err->message);
    return code;
}

/* A launcher that is not ours names the rank that ended first: let that be the one with the cause, and not one that
 * only heard of it. The keepers wait as long for records. */
static const struct timespec echo_wait = {.tv_nsec = 500000000};

static int work(struct worker *w)
{
    struct ls_error err = {0};
    w->plugins = ls_cli_plugin_dir();
    if (!w->plugins) {
        ls_cli_error("out of memory");
        return LS_EXIT_FAILED;
    }
    w->kept = getenv(LS_RECORD_FD_VARIABLE) != NULL;
    w->result.train_loss = w->result.test_loss = w->result.test_accuracy = NAN;
    const char *share = getenv("LOCKSTEP_THREADS"); /* the keeper's word, where it does not bind */
    w->threads = ls_train_threads(w->job, share ? (int)strtol(share, NULL, 10) : 0);
    ls_cli_prepare_threads(w->threads);
    begun = w->kept;
    catch_signals(w->kept);
    enum ls_status status = ls_worker_meet(w->job, w->plugins, &w->ranks, &w->client, &err);
    begun = 1;
    if (status == LS_OK && w->ranks.rank == 0 && !w->options.quiet) {
        w->progress.out = stderr;
        w->progress.terminal = isatty(STDERR_FILENO) == 1;
    }
    if (status == LS_OK)
        status = train(w, &err);
    if (status != LS_OK)
        ls_worker_abort(&w->ranks, err.message);
    int code = finish(w, status, &err);
    ls_worker_give_up(w->client, code, err.message);
    ls_worker_leave(&w->ranks, status == LS_OK);
    if (status == LS_ERR_ABORTED && !w->kept)
        nanosleep(&echo_wait, NULL);
    ls_train_result_free(&w->result);
    free(w->plugins);
    return code;
}

int ls_cli_worker(int argc, char **argv)
{
    struct worker w = {.ranks = {.size = 1}};
    int code = ls_run_options_parse(argc, argv, &w.options);
    if (code < 0)
        code = ls_cli_read_job(w.options.path, w.options.sets, w.options.nsets, &w.job);
    if (w.job)
        code = work(&w);
    ls_job_free(w.job);
    ls_run_options_free(&w.options);
    return code;
}
