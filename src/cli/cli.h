/* The commands: each reads its own command line, prints, and returns the exit code. argv[0] is the name
 * of the command. This is the only room that prints, reads the environment and handles signals. */
#ifndef LS_CLI_H
#define LS_CLI_H

#include "base/base.h"
#include "job/job.h"

#include <stdio.h>

enum ls_exit {
    LS_EXIT_OK = 0,
    LS_EXIT_FAILED = 1,
    LS_EXIT_USAGE = 2,   /* command line or job description */
    LS_EXIT_WARNED = 3,  /* check --strict: only warnings */
    LS_EXIT_ENV = 4,     /* the environment is unusable: no backend */
    LS_EXIT_TIMEOUT = 5, /* a rank did not answer before the deadline */
    LS_EXIT_REQUEUE = 75 /* saved, and wants to be started again */
};
int ls_cli_exit_code(enum ls_status status);

int ls_cli_run(int argc, char **argv);
int ls_cli_check(int argc, char **argv);
int ls_cli_config(int argc, char **argv);
int ls_cli_plan(int argc, char **argv);
int ls_cli_ckpt(int argc, char **argv);
int ls_cli_hosts(int argc, char **argv);
int ls_cli_init(int argc, char **argv);
int ls_cli_plugin(int argc, char **argv);
int ls_cli_topo(int argc, char **argv);
int ls_cli_exec(int argc, char **argv);
int ls_cli_env(int argc, char **argv);

/* common.c: what several commands share. */
void ls_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A command line that cannot be taken: prints "COMMAND: what" and `detail` behind it (nothing of both where
 * `what` is NULL: it was said), and where help is. Returns LS_EXIT_USAGE. */
int ls_cli_usage(const char *command, const char *what, const char *detail);
/* relocate.c: where `path`, a folder of the installation, is for programs that were to be in its folder `home` and
 * are in `dir`, all absolute: both keep their places relative to each other. False: longer than LS_CLI_PATH. */
enum { LS_CLI_PATH = 4096 };
bool ls_cli_relocate(const char *dir, const char *home, const char *path,
                     char out[static LS_CLI_PATH]);
/* Directory of the device plugins: LOCKSTEP_PLUGIN_DIR, or relative to the program, or as installed.
 * The result is malloc'd; NULL when memory is short. */
char *ls_cli_plugin_dir(void);
/* A program of ours: beside this one, relative to it as in an installation, or where it was installed.
 * malloc'd; NULL, after a message, when there is none. */
char *ls_cli_program_path(const char *name);
/* What LOCKSTEP_CHECK asks for (off, fast, full) before something is started: runs `lockstep check` on
 * these nodes. LS_EXIT_OK, or the exit code to end with. `workers`: ranks in each task; 0: one. `signals`, 0 at the
 * end, are for ls_cli_give_up: in a step, tasks that wait for this one hear why it ends. */
int ls_cli_check_first(const char *job, const char *const *sets, int nsets, int workers,
                       const int *signals);
/* What became of that: for a keeper, and so for the others. */
struct ls_keep_config;
void ls_cli_tell_check(struct ls_keep_config *config);
/* A whole number from 1 to 65536. */
bool ls_cli_number(const char *text, int *value);
/* Reads the job, printing all problems; returns an exit code. */
int ls_cli_read_job(const char *path, const char *const *sets, int nsets, struct ls_job **job);
bool ls_cli_is_first_task(void); /* of its step; true outside Slurm */
/* Says so on standard error if a job description can be written by other users. */
void ls_cli_warn_of_writers(const char *path);
/* The word of parallel.all_reduce: "auto", "staged", ... */
const char *ls_cli_all_reduce(const struct ls_job *job);
/* Sets what the OpenMP runtime of the CPU backend reads when it is loaded; how it waits is the user's to
 * overrule. */
void ls_cli_prepare_threads(int count);

#endif
