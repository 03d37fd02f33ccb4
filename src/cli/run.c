/* `lockstep run`: finds out where it is (a laptop, an allocation, a step), starts the ranks, and ends
 * with the exit code that follows from their records. Trains nothing itself. */
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/run_options.h"
#include "keep/keep.h"
#include "topo/topo.h"
#include "wire/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    static const int heard[] = {SIGTERM, SIGINT, SIGUSR1, 0};
    int code = LS_EXIT_FAILED, signals = ls_cli_hear_signals(heard, NULL);
    if (signals < 0) {
        ls_cli_error("cannot watch for signals: %s", strerror(errno));
        return LS_EXIT_FAILED;
    }
    config.program = l->worker;
    config.argv = l->argv;
    config.bind = l->options.bind;
    config.host = l->slurm.node_name;
    config.tmpdir = ls_cli_tmpdir();
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

static int run_in_step(struct launch *l)
{
    const struct ls_run_options *o = &l->options;
    if (o->ranks) {
        ls_cli_error(
            "run: -n starts ranks outside Slurm; in a step, the number follows from its tasks: "
            "use --workers-per-task");
        return LS_EXIT_USAGE;
    }
    if (!ls_cli_step_has_pmix(&l->slurm))
        return LS_EXIT_ENV;
    return keep(l, (struct ls_keep_config){.workers = o->per_task ? o->per_task : 1,
                                           .step = l->slurm.ntasks > 1 ? &l->slurm : NULL});
}

static int launch(struct launch *l)
{
    const struct ls_run_options *o = &l->options;
    struct ls_error err = {0};
    if (ls_cli_read_slurm(&l->slurm, &err) != LS_OK)
        return give_up(l, &err);
    int code = ls_cli_check_first(o->path, o->sets, o->nsets, o->per_task);
    if (code != LS_EXIT_OK)
        return code;
    /* Once is enough: not again in our own step, where the Slurm plugin sets LOCKSTEP_CHECK anew. */
    setenv("LOCKSTEP_CHECKED", "1", 1);
    if (l->slurm.place == LS_SLURM_STEP)
        return run_in_step(l);
    if (l->slurm.place == LS_SLURM_ALLOCATION && !o->ranks)
        return ls_cli_start_step(&l->slurm, "run", l->argv);
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
        l.worker = ls_cli_program_path("lockstep-worker");
        code = l.worker ? launch(&l) : LS_EXIT_FAILED;
    }
    ls_job_free(job);
    ls_slurm_free(&l.slurm);
    free(l.worker);
    ls_run_options_free(&l.options);
    return code;
}
