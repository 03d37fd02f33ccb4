/* The command line of `lockstep check`. */
#include "cli/check_options.h"
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>

static const char help[] =
    "Usage: lockstep check [OPTION]... [JOB.cfg]\n"
    "Find what is wrong with the nodes, the network or the job, before GPU hours are lost.\n"
    "\n"
    "      --fast           only what takes a few seconds (default)\n"
    "      --full           also what takes longer: more bytes, over the network and to GPUs\n"
    "  -s, --set KEY=VALUE  override one value of JOB.cfg\n"
    "      --workers-per-task K\n"
    "                       ranks that 'lockstep run' will start in each task (default 1)\n"
    "      --json           print one JSON document\n"
    "      --nagios         print one line, and end with 0 ok, 1 warning, 2 critical, 3 unknown\n"
    "      --strict         end with 3 if there are only warnings\n"
    "  -q, --quiet          print only what is not fine\n"
    "  -h, --help           show this help\n"
    "\n"
    "In a Slurm allocation it starts its own srun on all nodes; alone it checks this machine.\n"
    "Ends with 0 (all passed or were skipped, or there are only warnings), 1 (a check failed),\n"
    "4 (no run could start here) or 5 (a check did not answer). See lockstep-check(1).\n";

int ls_check_options_parse(int argc, char **argv, struct ls_check_options *o)
{
    static const struct option longs[] = {
        {"fast", no_argument, NULL, 'a'},      {"full", no_argument, NULL, 'u'},
        {"set", required_argument, NULL, 's'}, {"workers-per-task", required_argument, NULL, 'k'},
        {"json", no_argument, NULL, 'j'},      {"nagios", no_argument, NULL, 'n'},
        {"strict", no_argument, NULL, 't'},    {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},      {0}};
    *o = (struct ls_check_options){.workers = 1};
    o->sets = calloc((size_t)argc + 1, sizeof *o->sets);
    if (!o->sets) {
        ls_cli_error("out of memory");
        return LS_EXIT_FAILED;
    }
    for (int c; (c = getopt_long(argc, argv, "s:qh", longs, NULL)) != -1;)
        switch (c) {
        case 'a':
            o->full = false;
            break;
        case 'u':
            o->full = true;
            break;
        case 's':
            o->sets[o->nsets++] = optarg;
            break;
        case 'k':
            if (!ls_cli_number(optarg, &o->workers))
                return ls_cli_usage(
                    "check", "--workers-per-task expects a number from 1 to 65536, found ", optarg);
            break;
        case 'j':
            o->json = true;
            break;
        case 'n':
            o->nagios = true;
            break;
        case 't':
            o->strict = true;
            break;
        case 'q':
            o->quiet = true;
            break;
        case 'h':
            fputs(help, stdout);
            return LS_EXIT_OK;
        default:
            return ls_cli_usage("check", NULL, "");
        }
    if (o->json && o->nagios)
        return ls_cli_usage("check", "--json and --nagios exclude each other", "");
    if (argc - optind > 1)
        return ls_cli_usage("check", "expected one job description, found also ", argv[optind + 1]);
    o->path = argv[optind];
    if (!o->path && o->nsets)
        return ls_cli_usage("check", "--set needs a job description", "");
    return -1;
}

void ls_check_options_free(struct ls_check_options *o)
{
    free(o->sets);
    o->sets = NULL;
}
