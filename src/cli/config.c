/* `lockstep config`: checks a job description and prints what it resolves to. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>

static const char help[] =
    "Usage: lockstep config [OPTION]... JOB.cfg\n"
    "Check JOB.cfg and print it with every default filled in. The comment on each line\n"
    "says where the value comes from: file and line, default, or --set.\n"
    "\n"
    "  -s, --set KEY=VALUE  override one value, such as train.epochs=3; the last one counts\n"
    "      --json           print one JSON document instead of a job description\n"
    "  -h, --help           show this help\n"
    "\n"
    "The keys are described in lockstep.cfg(5).\n";

int ls_cli_config(int argc, char **argv)
{
    static const struct option longs[] = {{"set", required_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct ls_job *job = NULL;
    struct ls_error err = {0};
    bool json = false;
    const char **sets = calloc((size_t)argc + 1, sizeof *sets);
    int nsets = 0, code = sets ? -1 : LS_EXIT_FAILED;
    for (int c; code < 0 && (c = getopt_long(argc, argv, "s:h", longs, NULL)) != -1;)
        switch (c) {
        case 's':
            sets[nsets++] = optarg;
            break;
        case 'j':
            json = true;
            break;
        case 'h':
            fputs(help, stdout);
            code = LS_EXIT_OK;
            break;
        default:
            code = ls_cli_usage("config", NULL, NULL);
        }
    if (code < 0 && argc - optind != 1)
        code = ls_cli_usage("config",
                            argc == optind ? "found no job description, expected one"
                                           : "found more than one job description, expected one",
                            "");
    if (code < 0)
        code = ls_cli_read_job(argv[optind], sets, nsets, &job);
    if (job) {
        enum ls_status status =
            json ? ls_job_print_json(job, stdout, &err) : ls_job_print(job, stdout, &err);
        if (status != LS_OK)
            ls_cli_error("config: %s", err.message);
        code = ls_cli_exit_code(status);
    }
    ls_job_free(job);
    free(sets);
    return code;
}
