/* `lockstep run`: finds out where it is (a laptop, an allocation, a step), starts the ranks, and ends
 * with the exit code that follows from their records. Trains nothing itself. */
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/rules.h"
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

static const int heard[] = {SIGTERM, SIGINT, SIGUSR1, 0};

static int give_up(const struct ls_error *why)
{
    return ls_cli_exit_code(ls_cli_give_up(why, heard));
}

/* A keeper of `workers` ranks; the other keepers are those of `step`, or none. */
static int keep(const struct launch *l, int workers, const struct ls_slurm *step)
{
    struct ls_cli_rules rules = {0};
    struct ls_error err = {0};
    struct ls_keep_config config = {.program = l->worker,
                                    .argv = l->argv,
                                    .workers = workers,
                                    .bind = l->options.bind,
                                    .host = l->slurm.node_name,
                                    .step = step,
                                    .quiet = l->options.quiet};
    int code = LS_EXIT_FAILED;
    if (ls_cli_read_rules(&l->slurm, &rules, &config, &err) != LS_OK) {
        code = give_up(&err);
    } else {
        enum ls_status status = ls_cli_keep(config, heard, NULL, &code);
        if (status != LS_OK)
            code = ls_cli_exit_code(status);
    }
    ls_cli_free_rules(&rules);
    return code;
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
    return keep(l, o->per_task ? o->per_task : 1, l->slurm.ntasks > 1 ? &l->slurm : NULL);
}

static int launch(struct launch *l)
{
    const struct ls_run_options *o = &l->options;
    struct ls_error err = {0};
    if (ls_cli_read_slurm(&l->slurm, &err) != LS_OK)
        return give_up(&err);
    int code = ls_cli_check_first(o->path, o->sets, o->nsets, o->per_task, heard);
    if (code != LS_EXIT_OK)
        return code;
    /* Once is enough: not again in our own step, where the Slurm plugin sets LOCKSTEP_CHECK anew. */
    setenv("LOCKSTEP_CHECKED", "1", 1);
    if (l->slurm.place == LS_SLURM_STEP)
        return run_in_step(l);
    if (l->slurm.place == LS_SLURM_ALLOCATION && !o->ranks)
        return ls_cli_start_step(&l->slurm, "run", l->argv);
    int ranks = o->ranks ? o->ranks : o->per_task ? o->per_task : 1;
    return ranks == 1 ? become_worker(l) : keep(l, ranks, NULL);
}

/* What a file that is not there may mean on one node of several. */
static void explain_absence(enum ls_status why, const char *path, char out[static 400])
{
    char folder[200];
    out[0] = '\0';
    if (why != LS_ERR_NOTFOUND)
        return;
    bool relative = path[0] != '/' && getcwd(folder, sizeof folder);
    snprintf(out, 400,
             "; every node reads it for itself%s%s: put it on a file system that all of them share",
             relative ? ", this one in " : "", relative ? folder : "");
}

/* Reads the job without a word: the first problems go with the error, to whoever tells it. USAGE. */
static enum ls_status read_job(const struct ls_run_options *o, struct ls_job **job,
                               struct ls_error *err)
{
    struct ls_buf problems;
    struct ls_error why = {0};
    ls_buf_init(&problems, (size_t)1 << 20);
    enum ls_status status = ls_job_read(o->path, o->sets, o->nsets, job, &problems, &why);
    if (status != LS_OK) {
        char more[400];
        explain_absence(why.status, o->path, more);
        status = ls_error_set(err, LS_ERR_USAGE, "%.*s%.200s%s", 800,
                              problems.data ? problems.data : "", why.message, more);
    }
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
    if (code < 0 && !ls_cli_others_wait())
        code = ls_cli_read_job(l.options.path, l.options.sets, l.options.nsets, &job);
    else if (code < 0 && read_job(&l.options, &job, &err) != LS_OK)
        code = give_up(&err);
    else if (code < 0 && ls_cli_is_first_task())
        ls_cli_warn_of_writers(l.options.path);
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
