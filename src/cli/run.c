/* `lockstep run`: finds out where it is (a laptop, an allocation, a step), starts the ranks, and ends
 * with the exit code that follows from their records. Trains nothing itself. */
#include "cli/cli.h"
#include "cli/run_options.h"
#include "keep/keep.h"
#include "topo/topo.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The write end of the pipe through which signals reach the keeper's loop; set once. */
static int signal_pipe = -1;

static void on_signal(int sig)
{
    unsigned char byte = (unsigned char)sig;
    int keep = errno;
    if (write(signal_pipe, &byte, 1) < 0) {
        /* The pipe is full of signals already: nothing is lost. */
    }
    errno = keep;
}

static int open_signals(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    signal_pipe = fds[1];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return fds[0];
}

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

struct launch {
    struct ls_run_options options;
    struct ls_slurm slurm;
    char **argv; /* of the worker: our own command line under its name */
    char *worker;
};

/* ---- one rank: become the worker ---- */

static int become_worker(const struct launch *l)
{
    execv(l->worker, l->argv);
    ls_cli_error("cannot execute the worker %s: %s; is the installation complete?", l->worker,
                 strerror(errno));
    return LS_EXIT_ENV;
}

/* ---- ranks of this task ---- */

/* A keeper with `config`, which only lacks what all keepers have alike. */
static int keep(const struct launch *l, struct ls_keep_config config)
{
    struct ls_error err = {0};
    int code = LS_EXIT_FAILED, signals = open_signals();
    const char *tmpdir = getenv("TMPDIR");
    if (signals < 0) {
        ls_cli_error("cannot watch for signals: %s", strerror(errno));
        return LS_EXIT_FAILED;
    }
    config.program = l->worker;
    config.argv = l->argv;
    config.bind = l->options.bind;
    config.host = l->slurm.node_name;
    config.tmpdir = tmpdir && *tmpdir ? tmpdir : "/tmp";
    config.out = stderr;
    config.quiet = l->options.quiet;
    enum ls_status status = ls_keep_run(&config, signals, &code, &err);
    if (status != LS_OK) {
        if (err.message[0])
            ls_cli_error("%s", err.message);
        code = ls_cli_exit_code(status);
    }
    return code;
}

/* Are there other tasks of a step that may wait for this one? A name with another job in it is inherited. */
static bool others_wait(void)
{
    static const char head[] = "slurm.pmix.";
    const char *nspace = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID");
    size_t n = sizeof head - 1;
    if (!nspace || strncmp(nspace, head, n) != 0)
        return false;
    return !job || (!strncmp(nspace + n, job, strlen(job)) && nspace[n + strlen(job)] == '.');
}

/* This task cannot start. Others hear why, and one of them tells. */
static int give_up(struct launch *l, const struct ls_error *why)
{
    if (!others_wait()) {
        ls_cli_error("%s", why->message);
        return ls_cli_exit_code(why->status);
    }
    l->slurm.node_name = getenv("SLURMD_NODENAME");
    return keep(l, (struct ls_keep_config){.refusal = why, .step = &l->slurm});
}

/* ---- in a step: PMIx must know the other tasks ---- */

/* First line of what `srun --mpi=list` says, for the message; NULL if there is no srun. */
static char *mpi_list(void)
{
    static char text[1024];
    FILE *f = popen("srun --mpi=list 2>&1", "re");
    if (!f)
        return NULL;
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    return pclose(f) == 0 && n ? text : NULL;
}

static int run_in_step(struct launch *l)
{
    const struct ls_run_options *o = &l->options;
    bool pmix = getenv("PMIX_NAMESPACE") != NULL;
    if (o->ranks) {
        ls_cli_error(
            "run: -n starts ranks outside Slurm; in a step, the number follows from its tasks: "
            "use --workers-per-task");
        return LS_EXIT_USAGE;
    }
    if (!pmix && l->slurm.ntasks > 1) {
        struct ls_error err = {0};
        struct ls_pmix_view none = {.found = false};
        ls_slurm_check_pmix(&l->slurm, &none, l->slurm.proc_id == 0 ? mpi_list() : NULL, &err);
        if (l->slurm.proc_id == 0)
            ls_cli_error("%s", err.message);
        return LS_EXIT_ENV;
    }
    return keep(l, (struct ls_keep_config){.workers = o->per_task ? o->per_task : 1,
                                           .step = pmix && l->slurm.ntasks > 1 ? &l->slurm : NULL});
}

/* ---- in an allocation: start our own step ---- */

#define MOST_FLAGS 16

static int start_step(const struct launch *l)
{
    struct ls_arena arena = {0};
    int argc = 0, n = 0;
    char exe[4096];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    while (l->argv[argc])
        argc++;
    char **line = ls_arena_alloc(&arena, ((size_t)argc + MOST_FLAGS) * sizeof *line);
    if (!line || len <= 0) {
        ls_arena_free(&arena);
        ls_cli_error("cannot start a step");
        return LS_EXIT_FAILED;
    }
    exe[len] = '\0';
    line[n++] = (char *)"srun";
    line[n++] = (char *)"--mpi=pmix";
    line[n++] = ls_arena_printf(&arena, "--nodes=%d", l->slurm.nodes.count);
    line[n++] = (char *)"--ntasks-per-node=1";
    /* srun does not inherit it, and one CPU per task is what it then gives. */
    int cpus = l->slurm.cpus_on_node > 0 ? l->slurm.cpus_on_node : l->slurm.cpus_per_task;
    if (cpus > 0)
        line[n++] = ls_arena_printf(&arena, "--cpus-per-task=%d", cpus);
    line[n++] = (char *)"--cpu-bind=none";
    line[n++] = (char *)"--kill-on-bad-exit=0";
    line[n++] = exe;
    line[n++] = (char *)"run";
    for (int i = 1; i < argc; i++)
        line[n++] = l->argv[i];
    fputs("in an allocation, starting:", stderr);
    for (int i = 0; i < n; i++)
        fprintf(stderr, " %s", line[i]);
    fputc('\n', stderr);
    /* Settings of an earlier step must not leak into the new one. */
    static const char *const leaked[] = {"SLURM_CPU_BIND",      "SLURM_CPU_BIND_LIST",
                                         "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE",
                                         "SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK"};
    for (size_t i = 0; i < sizeof leaked / sizeof *leaked; i++)
        unsetenv(leaked[i]);
    execvp("srun", line);
    ls_cli_error("cannot execute srun: %s", strerror(errno));
    ls_arena_free(&arena);
    return LS_EXIT_ENV;
}

static int launch(struct launch *l)
{
    const struct ls_run_options *o = &l->options;
    struct ls_error err = {0};
    enum ls_status status = ls_slurm_read(read_env, NULL, &l->slurm, &err);
    if (status != LS_OK)
        return give_up(l, &err);
    for (int i = 0; i < l->slurm.nwarnings && l->slurm.proc_id <= 0; i++)
        ls_cli_error("warning: %s", l->slurm.warnings[i]);
    if (l->slurm.place == LS_SLURM_STEP)
        return run_in_step(l);
    if (l->slurm.place == LS_SLURM_ALLOCATION && !o->ranks)
        return start_step(l);
    int ranks = o->ranks ? o->ranks : o->per_task ? o->per_task : 1;
    return ranks == 1 ? become_worker(l) : keep(l, (struct ls_keep_config){.workers = ranks});
}

/* Reads the job without a word: the first problems go with the error, to whoever tells it. USAGE. */
static enum ls_status read_job(const struct ls_run_options *o, struct ls_job **job,
                               struct ls_error *err)
{
    struct ls_buf problems;
    struct ls_error why = {0};
    ls_buf_init(&problems, (size_t)1 << 20);
    enum ls_status status = ls_job_read(o->path, o->sets, o->nsets, job, &problems, &why);
    if (status != LS_OK)
        status = ls_error_set(err, LS_ERR_USAGE, "%.*s%.200s", 800,
                              problems.data ? problems.data : "", why.message);
    ls_buf_free(&problems);
    return status;
}

int ls_cli_run(int argc, char **argv)
{
    struct launch l = {.argv = argv};
    struct ls_job *job = NULL;
    struct ls_error err = {0};
    int code = ls_run_options_parse(argc, argv, &l.options);
    /* Mistakes in the job are told once, here, before anything is started. */
    if (code < 0 && !others_wait())
        code = ls_cli_read_job(l.options.path, l.options.sets, l.options.nsets, &job);
    else if (code < 0 && read_job(&l.options, &job, &err) != LS_OK)
        code = give_up(&l, &err);
    if (job) {
        l.worker = ls_cli_worker_path();
        code = l.worker ? launch(&l) : LS_EXIT_FAILED;
    }
    ls_job_free(job);
    ls_slurm_free(&l.slurm);
    free(l.worker);
    ls_run_options_free(&l.options);
    return code;
}
