/* The command table: names each command of src/cli and hands over. */
#include "config.h"

#include "cli/cli.h"

#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "train a job description", ls_cli_run},
    {"exec", "start any program as ranks, with the variables that frameworks expect", ls_cli_exec},
    {"env", "print these variables, for eval in a task of srun", ls_cli_env},
    {"check", "what is wrong with nodes, network or job, in seconds", ls_cli_check},
    {"plan", "parameters, FLOPs and memory of a job, and its program", ls_cli_plan},
    {"config", "the resolved job description, with the origin of every value", ls_cli_config},
    {"init", "write a commented template", ls_cli_init},
    {"ckpt", "list, show and verify checkpoints", ls_cli_ckpt},
    {"hosts", "expand, count and fold lists of hosts", ls_cli_hosts},
    {"plugin", "is Slurm's plugin there on every node of an allocation?", ls_cli_plugin},
    {"topo", "this machine, and how its GPUs, NICs and CPUs are used", ls_cli_topo},
};
#define COUNT (sizeof commands / sizeof *commands)

static void print_help(FILE *out)
{
    fputs("Usage: lockstep COMMAND [ARGUMENT]...\n"
          "Train what a job description says; see lockstep(1).\n\n",
          out);
    for (size_t i = 0; i < COUNT; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs("\n'lockstep COMMAND --help' says more about each; 'lockstep --version' prints the "
          "version.\n"
          "A start: 'lockstep init mlp my.cfg', then 'lockstep run my.cfg'.\n",
          out);
}

static int unknown(const char *name)
{
    size_t best = 0;
    for (size_t i = 1; i < COUNT; i++)
        if (ls_edit_distance(name, commands[i].name) < ls_edit_distance(name, commands[best].name))
            best = i;
    ls_cli_error("'%s' is not a command; did you mean '%s'? Try 'lockstep --help'", name,
                 commands[best].name);
    return LS_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return LS_EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return LS_EXIT_OK;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        printf("lockstep %s\n", PACKAGE_VERSION);
        return LS_EXIT_OK;
    }
    for (size_t i = 0; i < COUNT; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    return unknown(argv[1]);
}
