/* The program behind `lockstep check`: one for each task of a step, or one alone. */
#include "cli/checker.h"
#include "check/check.h"
#include "cli/apart.h"
#include "cli/check_options.h"
#include "cli/check_print.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/rules.h"
#include "topo/host.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the design promises for the whole; Slurm's own start and end come on top. */
#define DEADLINE 30.0
/* The others wait a moment longer for task 0, which has to print before its step may end. */
#define GRACE 1.0

extern char **environ;

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

struct checker {
    struct ls_check_options options;
    struct ls_check_context context;
    struct ls_slurm slurm;
    struct ls_topo_machine *machine; /* shared with the child that reads it */
    struct ls_job *job;
    struct ls_topo_site site;
    struct ls_error problem, machine_problem, job_problem, site_problem;
    struct ls_arena arena;
    char host[256];
};

/* ---- what may hang: done by children ---- */

static int read_machine(void *arg)
{
    struct checker *c = arg;
    struct ls_error err = {0};
    enum ls_status status = ls_topo_read("", c->machine, &err);
    if (status == LS_OK)
        c->machine->ucx = ls_topo_host_ucx(read_env, NULL);
    fputs(err.message, stdout);
    return status != LS_OK;
}

/* Prints the resolved job, or the first problem, which says more than the summary. */
static int read_job(void *arg)
{
    struct checker *c = arg;
    struct ls_error err = {0};
    struct ls_buf problems;
    ls_buf_init(&problems, (size_t)1 << 20);
    enum ls_status status =
        ls_job_read(c->options.path, c->options.sets, c->options.nsets, &c->job, &problems, &err);
    if (status == LS_OK)
        status = ls_job_print(c->job, stdout, &err);
    if (status != LS_OK) {
        const char *why = problems.len ? problems.data : err.message;
        fwrite(why, 1, strcspn(why, "\n"), stdout);
    }
    return status != LS_OK;
}

/* Says in `why` what became of the child that gave no result. */
static void explain(const struct ls_cli_apart *child, int code, struct ls_error *why, bool *late)
{
    ssize_t n = code > 0 ? read(child->out, why->message, sizeof why->message - 1) : 0;
    why->message[n > 0 ? n : 0] = '\0';
    *late = code == LS_CLI_APART_LATE;
    if (*late)
        snprintf(why->message, sizeof why->message, "no answer after %.0f s", LS_CLI_READ_DEADLINE);
    else if (n <= 0)
        snprintf(why->message, sizeof why->message, "the process that reads it has died");
}

static void take_machine(struct checker *c, struct ls_cli_apart *child, double until)
{
    int code = ls_cli_apart_end(child, until);
    if (code == 0)
        c->context.machine = c->machine;
    else {
        explain(child, code, &c->machine_problem, &c->context.machine_late);
        c->context.machine_problem = c->machine_problem.message;
    }
    close(child->out);
}

/* What the child has printed is read again, from memory. */
static void take_job(struct checker *c, struct ls_cli_apart *child, double until)
{
    struct ls_check_context *x = &c->context;
    int code = ls_cli_apart_end(child, until);
    if (code == 0) {
        char path[64];
        struct ls_buf problems;
        ls_buf_init(&problems, (size_t)1 << 20);
        snprintf(path, sizeof path, "/proc/self/fd/%d", child->out);
        if (ls_job_read(path, NULL, 0, &c->job, &problems, &c->job_problem) == LS_OK)
            c->job->path = c->options.path; /* for messages */
        ls_buf_free(&problems);
    } else
        explain(child, code, &c->job_problem, &x->job_late);
    x->job_path = c->options.path;
    x->job = c->job;
    x->job_problem = c->job ? NULL : c->job_problem.message;
    close(child->out);
}

/* Both at the same time. False: no memory. */
static bool read_all(struct checker *c)
{
    struct ls_cli_apart machine, job;
    double until = ls_time_monotonic() + LS_CLI_READ_DEADLINE;
    void *shared =
        mmap(NULL, sizeof *c->machine, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    c->machine = shared;
    ls_cli_apart_start(&machine, read_machine, c);
    if (c->options.path)
        ls_cli_apart_start(&job, read_job, c);
    take_machine(c, &machine, until);
    if (c->options.path)
        take_job(c, &job, until);
    return true;
}

/* Who and where this task is: from Slurm, or from another launcher that speaks PMIx. */
static void set_place(struct checker *c)
{
    struct ls_check_context *x = &c->context;
    const struct ls_slurm *s = &c->slurm;
    const char *rank = getenv("PMIX_RANK");
    x->pmix = getenv("PMIX_NAMESPACE") != NULL;
    x->size = x->local_size = x->nodes = 1;
    if (x->pmix && rank)
        x->rank = (int)strtol(rank, NULL, 10);
    if (s->place == LS_SLURM_STEP) {
        x->rank = s->proc_id;
        x->size = s->ntasks;
        x->local_rank = s->local_id;
        x->nodes = s->nodes.count;
        x->local_size = s->tasks_per_node && s->node_id >= 0
                            ? s->tasks_per_node[s->node_id]
                            : (s->ntasks + x->nodes - 1) / x->nodes;
    }
    if (s->node_name)
        snprintf(c->host, sizeof c->host, "%s", s->node_name);
    else if (gethostname(c->host, sizeof c->host - 1) != 0)
        strcpy(c->host, "localhost");
    x->host = c->host;
}

static bool set_program(struct checker *c)
{
    static char exe[4096];
    const char **list = ls_arena_alloc(&c->arena, 4 * sizeof *list);
    char *worker = ls_cli_program_path("lockstep-worker"), *plugins = ls_cli_plugin_dir();
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (list && worker && plugins && n > 0) {
        exe[n] = '\0';
        list[0] = exe;
        list[1] = ls_arena_strdup(&c->arena, worker);
        list[2] = ls_arena_printf(&c->arena, "%s/lockstep_cpu.so", plugins);
        c->context.plugin_dir = ls_arena_strdup(&c->arena, plugins);
        c->context.program = list;
    }
    free(worker);
    free(plugins);
    return c->context.program && list[1] && list[2] && c->context.plugin_dir;
}

static bool prepare(struct checker *c)
{
    struct ls_check_context *x = &c->context;
    x->full = c->options.full;
    x->workers = c->options.workers;
    x->root = "";
    x->get = read_env;
    x->environ = environ;
    x->slurm = &c->slurm;
    if (ls_cli_ask_slurm(&c->slurm, &c->problem) != LS_OK)
        x->slurm_problem = c->problem.message;
    const char *site = getenv(LS_TOPO_SITE_VARIABLE);
    if (ls_cli_read_site(site && *site ? site : NULL, &c->site, NULL, &c->site_problem) == LS_OK)
        x->site = &c->site;
    else
        x->site_problem = c->site_problem.message;
    if (!read_all(c))
        return false;
    x->out_dir = c->job ? c->job->checkpoint.dir : ".";
    set_place(c);
    return set_program(c);
}

static int exit_code(const struct checker *c, const struct ls_check_verdict *v)
{
    if (v->environment)
        return LS_EXIT_ENV;
    switch (v->worst) {
    case LS_CHECK_FAIL:
        return LS_EXIT_FAILED;
    case LS_CHECK_TIMEOUT:
        return LS_EXIT_TIMEOUT;
    case LS_CHECK_WARN:
        return c->options.strict ? LS_EXIT_WARNED : LS_EXIT_OK;
    default:
        return LS_EXIT_OK;
    }
}

static int show(const struct checker *c, const struct ls_check_report *report)
{
    struct ls_check_verdict v;
    ls_check_judge(&report->list, &v);
    int code = exit_code(c, &v);
    bool first = c->context.rank == 0;
    FILE *out = first ? stdout : fopen("/dev/null", "w");
    if (!out)
        return LS_EXIT_FAILED;
    if (c->options.json) {
        if (!ls_check_print_json(report, code, out))
            code = LS_EXIT_FAILED;
    } else if (c->options.nagios)
        code = ls_check_print_nagios(report, out);
    else
        ls_check_print_text(report, c->options.quiet, out);
    if (fflush(out) != 0)
        code = LS_EXIT_FAILED;
    if (!first)
        fclose(out);
    /* In a node's place that has not come, and so may print nothing. */
    if (!first && report->first == c->context.rank)
        ls_check_print_text(report, true, stderr);
    /* Whoever prints the report has it there. */
    if (report->stuck && report->first != c->context.rank)
        ls_cli_error("check: rank %d on %s was still at %s", c->context.rank, c->host,
                     report->stuck);
    return code;
}

static int check(struct checker *c)
{
    struct ls_check_report report;
    struct ls_error err = {0};
    signal(SIGPIPE, SIG_IGN);
    if (!prepare(c)) {
        ls_cli_error("check: the installation is not complete, or memory is short");
        return LS_EXIT_ENV;
    }
    double deadline = DEADLINE - ls_time_since_exec() + (c->context.rank ? GRACE : 0);
    enum ls_status status = ls_check_run(&c->context, deadline, &report, &err);
    int code = status == LS_OK ? show(c, &report) : ls_cli_exit_code(status);
    if (status != LS_OK)
        ls_cli_error("check: %s", err.message);
    ls_check_report_free(&report);
    return code;
}

int ls_cli_checker(int argc, char **argv)
{
    struct checker *c = calloc(1, sizeof *c);
    if (!c)
        return LS_EXIT_FAILED;
    int code = ls_check_options_parse(argc, argv, &c->options);
    if (code < 0)
        code = check(c);
    ls_slurm_free(&c->slurm);
    ls_job_free(c->job);
    ls_arena_free(&c->arena);
    ls_check_options_free(&c->options);
    if (c->machine)
        munmap(c->machine, sizeof *c->machine);
    free(c);
    return code;
}
