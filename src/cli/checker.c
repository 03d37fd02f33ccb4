/* The program behind `lockstep check`: one for each task of a step, or one alone. */
#include "cli/checker.h"
#include "check/check.h"
#include "cli/check_options.h"
#include "cli/check_print.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/rules.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
    struct ls_topo_machine *machine;
    struct ls_job *job;
    struct ls_topo_site site;
    struct ls_error problem, job_problem, site_problem;
    struct ls_arena arena;
    char host[256];
};

static void read_job(struct checker *c)
{
    struct ls_buf problems;
    ls_buf_init(&problems, (size_t)1 << 20);
    if (ls_job_read(c->options.path, c->options.sets, c->options.nsets, &c->job, &problems,
                    &c->job_problem) != LS_OK) {
        char *line = problems.data;
        if (line && *line) { /* the first problem says more than the summary */
            line[strcspn(line, "\n")] = '\0';
            snprintf(c->job_problem.message, sizeof c->job_problem.message, "%s", line);
        }
        c->context.job_problem = c->job_problem.message;
    }
    c->context.job_path = c->options.path;
    c->context.job = c->job;
    ls_buf_free(&problems);
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
    if (ls_cli_read_site(NULL, &c->site, NULL, &c->site_problem) == LS_OK)
        x->site = &c->site;
    else
        x->site_problem = c->site_problem.message;
    c->machine = calloc(1, sizeof *c->machine);
    if (c->machine && ls_topo_read("", c->machine, NULL) == LS_OK)
        x->machine = c->machine;
    if (c->options.path)
        read_job(c);
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
    free(c->machine);
    free(c);
    return code;
}
