/* The command line that `lockstep run` and its workers share. */
#include "cli/run_options.h"
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lockstep run [OPTION]... JOB.cfg\n"
    "Train the model that JOB.cfg describes; see lockstep.cfg(5).\n"
    "\n"
    "  -n, --ranks N        start N ranks on this machine (outside Slurm)\n"
    "      --workers-per-task K\n"
    "                       start K ranks in every task of a Slurm step (default 1)\n"
    "      --bind HOW       auto: bind ranks to CPUs (default); none: leave them as they are\n"
    "  -s, --set KEY=VALUE  override one value, for example train.steps=10\n"
    "      --resume HOW     auto: from the newest checkpoint that verifies, if there is one\n"
    "                       (default); never: start new, refused where checkpoints are;\n"
    "                       PATH: from this checkpoint\n"
    "      --json           end with one JSON record on the last line of standard output\n"
    "  -q, --quiet          no progress, only the result and errors\n"
    "  -h, --help           show this help\n"
    "\n"
    "In a Slurm allocation, 'lockstep run JOB.cfg' starts its own srun and prints the line; or "
    "write it\n"
    "yourself: srun --mpi=pmix --ntasks-per-node=1 lockstep run JOB.cfg\n"
    "SIGTERM and Ctrl-C finish the step, save a checkpoint and end with 143 and 130; SIGUSR1 ends\n"
    "with 75 (start me again). A second signal ends at once. See lockstep-run(1).\n";

int ls_run_options_parse(int argc, char **argv, struct ls_run_options *o)
{
    static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"workers-per-task", required_argument, NULL, 'k'},
                                          {"bind", required_argument, NULL, 'b'},
                                          {"set", required_argument, NULL, 's'},
                                          {"resume", required_argument, NULL, 'r'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    *o = (struct ls_run_options){.resume = "auto", .bind = true};
    o->sets = calloc((size_t)argc + 1, sizeof *o->sets);
    if (!o->sets) {
        ls_cli_error("out of memory");
        return LS_EXIT_FAILED;
    }
    for (int c; (c = getopt_long(argc, argv, "n:s:qh", longs, NULL)) != -1;)
        switch (c) {
        case 'n':
            if (!ls_cli_number(optarg, &o->ranks))
                return ls_cli_usage("run", "-n expects a number of ranks from 1 to 65536, found ",
                                    optarg);
            break;
        case 'k':
            if (!ls_cli_number(optarg, &o->per_task))
                return ls_cli_usage(
                    "run", "--workers-per-task expects a number from 1 to 65536, found ", optarg);
            break;
        case 'b':
            if (strcmp(optarg, "auto") != 0 && strcmp(optarg, "none") != 0)
                return ls_cli_usage("run", "--bind expects auto or none, found ", optarg);
            o->bind = !strcmp(optarg, "auto");
            break;
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
            return ls_cli_usage("run", NULL, "");
        }
    if (argc - optind != 1)
        return ls_cli_usage(
            "run", argc == optind ? "expected a job description" : "expected one job description",
            "");
    o->path = argv[optind];
    return -1;
}

void ls_run_options_free(struct ls_run_options *o)
{
    free(o->sets);
    o->sets = NULL;
}
