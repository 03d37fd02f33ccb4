/* `lockstep check`: in an allocation, starts a step on all its nodes; in a step, or alone, becomes the
 * program that checks. (That one links UCX; this one does not.) */
#include "cli/apart.h"
#include "cli/check_options.h"
#include "cli/cli.h"
#include "cli/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int become_checker(char **argv)
{
    char *path = ls_cli_program_path("lockstep-check");
    if (!path)
        return LS_EXIT_ENV;
    execv(path, argv);
    ls_cli_error("cannot execute %s: %s; is the installation complete?", path, strerror(errno));
    free(path);
    return LS_EXIT_ENV;
}

static int read_job(void *arg)
{
    const struct ls_check_options *options = arg;
    struct ls_job *job = NULL;
    int code = ls_cli_read_job(options->path, options->sets, options->nsets, &job);
    ls_job_free(job);
    return code;
}

/* Are there mistakes in the job? In a child: a dead file server must not keep this one. */
static int try_job(struct ls_check_options *options)
{
    struct ls_cli_apart child;
    char text[4096];
    ls_cli_apart_start(&child, read_job, options);
    int code = ls_cli_apart_end(&child, ls_time_monotonic() + LS_CLI_READ_DEADLINE);
    if (code == LS_CLI_APART_LATE) {
        ls_cli_error("check: %s: no answer after %.0f s; its file system hangs on this machine",
                     options->path, LS_CLI_READ_DEADLINE);
        code = LS_EXIT_TIMEOUT;
    } else if (code == LS_CLI_APART_DIED) {
        ls_cli_error("check: the process that reads %s has died", options->path);
        code = LS_EXIT_FAILED;
    } else
        for (ssize_t n; (n = read(child.out, text, sizeof text)) > 0;)
            fwrite(text, 1, (size_t)n, stderr);
    close(child.out);
    return code;
}

int ls_cli_check(int argc, char **argv)
{
    struct ls_check_options options;
    struct ls_slurm slurm = {0};
    struct ls_error err = {0};
    int code = ls_check_options_parse(argc, argv, &options);
    /* Variables that contradict each other are for the checks to tell; they are no step to start. */
    if (code < 0 && ls_cli_ask_slurm(&slurm, &err) != LS_OK)
        slurm.place = LS_SLURM_STEP;
    /* A mistake in the job is told once, before a step is started; in a step, nodes may differ. */
    if (code < 0 && options.path && slurm.place != LS_SLURM_STEP) {
        code = try_job(&options);
        code = code == LS_EXIT_OK ? -1 : code;
    }
    if (code < 0)
        code = slurm.place == LS_SLURM_ALLOCATION ? ls_cli_start_step(&slurm, "check", argv)
                                                  : become_checker(argv);
    ls_slurm_free(&slurm);
    ls_check_options_free(&options);
    return code;
}

/* ---- LOCKSTEP_CHECK, for run and exec ---- */

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return LS_EXIT_FAILED;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static const char *check_word = "";
static bool has_checked, is_unfit;

void ls_cli_tell_check(struct ls_keep_config *config)
{
    config->check = check_word;
    config->follows = has_checked;
    config->unfit = is_unfit;
}

/* Runs `lockstep check`; returns its exit code, or an error. */
static enum ls_status start_check(const char *how, const char *job, const char *const *sets,
                                  int nsets, int workers, int *code, struct ls_error *err)
{
    char exe[4096], count[16];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char **argv = calloc((size_t)nsets * 2 + 8, sizeof *argv);
    if (!argv || len <= 0) {
        free(argv);
        return ls_error_set(err, LS_ERR_NOMEM, "cannot start the check: no memory, or no /proc");
    }
    exe[len] = '\0';
    int n = 0;
    argv[n++] = exe;
    argv[n++] = "check";
    argv[n++] = "-q";
    argv[n++] = !strcmp(how, "full") ? "--full" : "--fast";
    argv[n++] = "--workers-per-task";
    snprintf(count, sizeof count, "%d", workers > 0 ? workers : 1);
    argv[n++] = count;
    for (int i = 0; i < nsets; i++) {
        argv[n++] = "-s";
        argv[n++] = sets[i];
    }
    argv[n++] = job;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* standard output is the run's own */
        execv(exe, (char *const *)argv);
        _exit(LS_EXIT_ENV);
    }
    int cause = errno;
    free(argv);
    if (pid < 0)
        return ls_error_errno(err, cause, "starting the check");
    has_checked = true;
    *code = wait_for(pid);
    return LS_OK;
}

/* Tasks that have met in the check come to the same result, unless one of them could not print it, or was killed; and
 * those that have not met may have found one that does not check, and waits. So they meet once more, and hear of each
 * other; not where some have not come within the check's deadline. */
static int end_unfit(int code, const int *signals)
{
    struct ls_error err = {0};
    ls_error_set(&err, code == LS_EXIT_ENV ? LS_ERR_ENV : LS_ERR_INTERNAL,
                 "the check ended with %d, so nothing is started; LOCKSTEP_CHECK=off starts "
                 "without it",
                 code);
    if (code != LS_EXIT_TIMEOUT && ls_cli_others_wait()) {
        is_unfit = true;
        return ls_cli_exit_code(ls_cli_give_up(&err, signals));
    }
    if (ls_cli_is_first_task())
        ls_cli_error("%s", err.message);
    return code;
}

int ls_cli_check_first(const char *job, const char *const *sets, int nsets, int workers,
                       const int *signals)
{
    static const char *const words[] = {"off", "fast", "full"};
    const char *how = getenv("LOCKSTEP_CHECK");
    struct ls_error err = {0};
    int code = LS_EXIT_OK, word = 0;
    if (!how || !*how || getenv("LOCKSTEP_CHECKED"))
        how = "off";
    while (word < 3 && strcmp(how, words[word]) != 0)
        word++;
    if (word == 3) {
        ls_error_set(&err, LS_ERR_USAGE,
                     "LOCKSTEP_CHECK: found '%.40s', expected off, fast or full", how);
        return ls_cli_exit_code(ls_cli_give_up(&err, signals));
    }
    check_word = words[word];
    if (word == 0)
        return LS_EXIT_OK;
    if (start_check(how, job, sets, nsets, workers, &code, &err) != LS_OK)
        return ls_cli_exit_code(ls_cli_give_up(&err, signals));
    return code == LS_EXIT_OK ? code : end_unfit(code, signals);
}
