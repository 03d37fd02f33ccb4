/* `lockstep exec`: starts any program as ranks under the keeper. Its exit codes are those of the program, as
 * with env(1) and timeout(1), so that nothing of our own is taken for them. */
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/rules.h"
#include "keep/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of our own failures; 124, 126 and 127 come from the keeper. */
#define EXIT_LAUNCHER 125

static const char help[] =
    "Usage: lockstep exec [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
    "Start PROGRAM as ranks that find each other: PyTorch, TensorFlow, JAX, MPI, or any other.\n"
    "\n"
    "  -n, --ranks N        start N ranks on this machine (outside Slurm)\n"
    "      --workers-per-task K\n"
    "                       start K ranks in every task of a Slurm step (default: one for each of "
    "its\n"
    "                       GPUs, or 1 where it sees none)\n"
    "      --bind HOW       auto: bind ranks to CPUs (default); none: leave them as they are\n"
    "      --label          put [rank@host] in front of every line that ranks print\n"
    "  -o, --output PATTERN write what each rank prints into a file of its own: %r is the rank,\n"
    "                       %h the host, %l the local rank, %j the job, %s out or err\n"
    "      --timeout S      end everyone after S seconds, with 124\n"
    "      --evaluator      make the last rank TensorFlow's evaluator\n"
    "      --ompi-env       set OMPI_COMM_WORLD_RANK and its like, too\n"
    "  -v, --verbose        say which rank runs where\n"
    "  -h, --help           show this help\n"
    "\n"
    "Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, TF_CONFIG, JAX_... and PMIX_...; "
    "see\n"
    "lockstep-exec(1). In a Slurm allocation it starts its own srun and prints the line; or write "
    "it\n"
    "yourself: srun --mpi=pmix --ntasks-per-node=1 lockstep exec --workers-per-task=8 -- PROGRAM\n"
    "The first rank that fails ends the others and is named last. Exit status: that rank's, or 124 "
    "after\n"
    "the timeout, 125 for a failure of this program, 126 or 127 for a PROGRAM that does not "
    "start.\n";

struct options {
    int ranks, per_task;
    bool bind, label, evaluator, ompi, verbose;
    const char *output;
    double timeout;
    char **program;
};

static int usage(const char *what, const char *detail)
{
    ls_cli_usage("exec", what, detail);
    return EXIT_LAUNCHER;
}

static bool read_seconds(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value) && *value > 0 && *value < 1e9;
}

/* -1 to go on, or an exit code. Option `c` of getopt_long. */
static int take_option(int c, struct options *o)
{
    struct ls_error err = {0};
    switch (c) {
    case 'n':
        return ls_cli_number(optarg, &o->ranks)
                   ? -1
                   : usage("-n expects a number of ranks from 1 to 65536, found ", optarg);
    case 'k':
        return ls_cli_number(optarg, &o->per_task)
                   ? -1
                   : usage("--workers-per-task expects a number from 1 to 65536, found ", optarg);
    case 'b':
        o->bind = !strcmp(optarg, "auto");
        return o->bind || !strcmp(optarg, "none")
                   ? -1
                   : usage("--bind expects auto or none, found ", optarg);
    case 't':
        return read_seconds(optarg, &o->timeout)
                   ? -1
                   : usage("--timeout expects a number of seconds, found ", optarg);
    case 'o':
        o->output = optarg;
        return ls_keep_output_check(optarg, &err) == LS_OK ? -1 : usage(err.message, "");
    case 'l':
        o->label = true;
        return -1;
    case 'e':
        o->evaluator = true;
        return -1;
    case 'm':
        o->ompi = true;
        return -1;
    case 'v':
        o->verbose = true;
        return -1;
    case 'h':
        fputs(help, stdout);
        return LS_EXIT_OK;
    default:
        return usage(NULL, "");
    }
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"workers-per-task", required_argument, NULL, 'k'},
                                          {"bind", required_argument, NULL, 'b'},
                                          {"label", no_argument, NULL, 'l'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"timeout", required_argument, NULL, 't'},
                                          {"evaluator", no_argument, NULL, 'e'},
                                          {"ompi-env", no_argument, NULL, 'm'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    *o = (struct options){.bind = true};
    int code = -1;
    /* The program's own options are not ours: "+" stops at the first word that is none. */
    for (int c; code < 0 && (c = getopt_long(argc, argv, "+n:o:vh", longs, NULL)) != -1;)
        code = take_option(c, o);
    if (code < 0 && optind == argc)
        code = usage("expected a program", "");
    if (code < 0 && !*argv[optind])
        code = usage("expected a program, found an empty word", "");
    o->program = argv + optind;
    return code;
}

static const int heard[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, 0};

static int keep(const struct options *o, const struct ls_slurm *slurm, int workers)
{
    struct ls_cli_rules rules = {0};
    struct ls_error err = {0};
    char job[64];
    ls_cli_name_run(slurm, job);
    struct ls_keep_programs programs = {.job = job,
                                        .restarts =
                                            slurm->restart_count > 0 ? slurm->restart_count : 0,
                                        .evaluator = o->evaluator,
                                        .ompi = o->ompi,
                                        .label = o->label,
                                        .output = o->output,
                                        .timeout = o->timeout,
                                        .visible = &slurm->visible,
                                        .slurm = slurm->place == LS_SLURM_STEP ? slurm : NULL};
    struct ls_keep_config config = {
        .program = o->program[0],
        .argv = o->program,
        .programs = &programs,
        .workers = workers,
        .bind = o->bind,
        .host = slurm->node_name,
        .step = slurm->place == LS_SLURM_STEP && slurm->ntasks > 1 ? slurm : NULL,
        .quiet = !o->verbose};
    int code = EXIT_LAUNCHER;
    if (ls_cli_read_rules(slurm, &rules, &config, &err) == LS_OK)
        ls_cli_keep(config, heard, slurm, &code);
    else
        ls_cli_give_up(&err, heard);
    ls_cli_free_rules(&rules);
    return code;
}

/* One rank for each GPU that Slurm gave to this task; 1 where it gave none. Tasks of a node share the GPUs that they
 * see, unless they were dealt out (--gpus-per-task): then all that a task sees are its own. */
static int default_workers(const struct ls_slurm *slurm)
{
    if (slurm->place != LS_SLURM_STEP)
        return 1;
    int tasks = slurm->tasks_per_node[slurm->node_id], on_node = slurm->gpus_on_node;
    int visible = slurm->visible.set ? slurm->visible.count : on_node;
    bool dealt = on_node > 0 && visible * tasks <= on_node;
    int workers = dealt ? visible : visible / tasks;
    if (workers <= 1)
        return 1;
    if (slurm->proc_id == 0)
        ls_cli_error("exec: %d ranks in a task, one for each of its GPUs; --workers-per-task says "
                     "otherwise",
                     workers);
    return workers;
}

static int launch(const struct options *o, const struct ls_slurm *slurm, char **argv)
{
    bool step = slurm->place == LS_SLURM_STEP;
    if (step && o->ranks)
        return usage(
            "-n starts ranks outside Slurm; in a step, the number follows from its tasks: use "
            "--workers-per-task",
            "");
    if (ls_cli_check_first(NULL, NULL, 0, o->per_task, heard) != LS_EXIT_OK)
        return EXIT_LAUNCHER;
    /* Once is enough: not again in our own step, where the Slurm plugin sets LOCKSTEP_CHECK anew. */
    setenv("LOCKSTEP_CHECKED", "1", 1);
    if (step && !ls_cli_step_has_pmix(slurm))
        return EXIT_LAUNCHER;
    if (slurm->place == LS_SLURM_ALLOCATION && !o->ranks) {
        ls_cli_start_step(slurm, "exec", argv);
        return EXIT_LAUNCHER;
    }
    int workers = o->ranks ? o->ranks : o->per_task ? o->per_task : default_workers(slurm);
    return keep(o, slurm, workers);
}

/* Whoever starts us may have closed them; our own descriptors must not take their places. */
static void open_standard_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd > STDERR_FILENO)
        close(fd);
}

int ls_cli_exec(int argc, char **argv)
{
    struct options options;
    struct ls_slurm slurm = {0};
    int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    open_standard_streams();
    struct ls_error err = {0};
    if (ls_cli_read_slurm(&slurm, &err) == LS_OK) {
        code = launch(&options, &slurm, argv);
    } else {
        ls_cli_give_up(&err, heard);
        code = EXIT_LAUNCHER;
    }
    ls_slurm_free(&slurm);
    return code;
}
