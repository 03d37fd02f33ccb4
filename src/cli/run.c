/* `lockstep run`: trains a job description in this process. */
#include "cli/cli.h"
#include "train/train.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char help[] =
    "Usage: lockstep run [OPTION]... JOB.cfg\n"
    "Train the model that JOB.cfg describes; see lockstep.cfg(5).\n"
    "\n"
    "  -s, --set KEY=VALUE  override one value, for example train.steps=10\n"
    "      --resume HOW     auto: from the newest checkpoint that verifies, if there is one\n"
    "                       (default); never: start new, refused where checkpoints are;\n"
    "                       PATH: from this checkpoint\n"
    "      --json           end with one JSON record on the last line of standard output\n"
    "  -q, --quiet          no progress, only the result and errors\n"
    "  -h, --help           show this help\n"
    "\n"
    "SIGTERM and Ctrl-C finish the step, save a checkpoint and end with 143 and 130; SIGUSR1 ends\n"
    "with 75 (start me again). A second signal ends at once. See lockstep-run(1).\n";

/* Signals only set this word; the loop looks at it between steps. The one global of the program. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int sig)
{
    if (stop_signal && sig != SIGUSR1)
        _exit(128 + sig); /* the second one: at once, checkpoints stay as they are */
    stop_signal = sig;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe on stdout must not lose a checkpoint */
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write, with a message */
}

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

static bool print_json(const char *status, const struct ls_train_result *r, const char *message)
{
    json_t *o = json_object();
    json_object_set_new(o, "status", json_string(status));
    if (message)
        json_object_set_new(o, "message", json_string(message));
    json_object_set_new(o, "steps", json_integer(r->steps));
    json_object_set_new(o, "seconds", number(r->seconds));
    json_object_set_new(o, "train_loss", number(r->train_loss));
    json_object_set_new(o, "test_loss", number(r->test_loss));
    json_object_set_new(o, "test_accuracy", number(r->test_accuracy));
    json_object_set_new(o, "samples_per_second", number(r->samples_per_second));
    json_object_set_new(o, "first_step_seconds", number(r->first_step));
    json_object_set_new(o, "skipped_steps", json_integer(r->skipped));
    json_object_set_new(o, "planned_memory_bytes", json_integer(r->planned_bytes));
    json_object_set_new(o, "peak_memory_bytes", json_integer(peak_memory()));
    json_object_set_new(o, "checkpoint", r->checkpoint ? json_string(r->checkpoint) : json_null());
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(o);
    bool ok = text && puts(text) >= 0 && fflush(stdout) == 0;
    free(text);
    return ok;
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

struct options {
    const char **sets;
    int nsets;
    const char *resume, *path;
    bool json, quiet;
};

static int run_job(const struct options *o, const struct ls_job *job)
{
    struct ls_error err = {0};
    struct ls_train_result result;
    struct ls_progress progress = {.out = o->quiet ? NULL : stderr,
                                   .terminal = isatty(STDERR_FILENO) == 1};
    struct ls_train_config config = {.job = job, .stop = &stop_signal, .progress = &progress};
    config.resume = !strcmp(o->resume, "auto")    ? LS_RESUME_AUTO
                    : !strcmp(o->resume, "never") ? LS_RESUME_NEVER
                                                  : LS_RESUME_PATH;
    config.resume_path = o->resume;
    char *plugins = ls_cli_plugin_dir();
    if (!plugins) {
        ls_cli_error("out of memory");
        return LS_EXIT_FAILED;
    }
    config.plugin_dir = plugins;
    ls_cli_prepare_threads(job);
    catch_signals();
    enum ls_status status = ls_train(&config, &result, &err);
    if (progress.open_line)
        fputc('\n', stderr);
    int code = ls_cli_exit_code(status);
    if (status != LS_OK)
        ls_cli_error("%s", err.message);
    else if (result.stopped)
        code = stop_signal == SIGUSR1 ? LS_EXIT_REQUEUE : 128 + (int)stop_signal;
    if (o->json) {
        if (!print_json(status != LS_OK  ? "failed"
                        : result.stopped ? "stopped"
                                         : "done",
                        &result, status != LS_OK ? err.message : NULL) &&
            code == LS_EXIT_OK)
            code = LS_EXIT_FAILED;
    } else if (status == LS_OK)
        print_summary(&result);
    ls_train_result_free(&result);
    free(plugins);
    return code;
}

static int usage(const char *what)
{
    if (what)
        ls_cli_error("run: %s", what);
    fputs("Try 'lockstep run --help'.\n", stderr);
    return LS_EXIT_USAGE;
}

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"set", required_argument, NULL, 's'}, {"resume", required_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},      {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},      {0}};
    for (int c; (c = getopt_long(argc, argv, "s:qh", longs, NULL)) != -1;)
        switch (c) {
        case 's':
            o->sets[o->nsets++] = optarg;
            break;
        case 'r':
            o->resume = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case 'q':
            o->quiet = true;
            break;
        case 'h':
            fputs(help, stdout);
            return LS_EXIT_OK;
        default:
            return usage(NULL);
        }
    if (argc - optind != 1)
        return usage(argc == optind ? "expected a job description"
                                    : "expected one job description");
    o->path = argv[optind];
    return -1;
}

int ls_cli_run(int argc, char **argv)
{
    struct options o = {.resume = "auto", .sets = calloc((size_t)argc + 1, sizeof *o.sets)};
    struct ls_job *job = NULL;
    if (!o.sets) {
        ls_cli_error("out of memory");
        return LS_EXIT_FAILED;
    }
    int code = parse(argc, argv, &o);
    if (code < 0)
        code = ls_cli_read_job(o.path, o.sets, o.nsets, &job);
    if (code == LS_EXIT_OK && job)
        code = run_job(&o, job);
    ls_job_free(job);
    free(o.sets);
    return code;
}
