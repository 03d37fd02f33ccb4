/* The command line that `lockstep run` and its workers share. */
#ifndef LS_CLI_RUN_OPTIONS_H
#define LS_CLI_RUN_OPTIONS_H

#include <stdbool.h>

struct ls_run_options {
    const char **sets; /* [argc]; owned */
    int nsets;
    const char *resume; /* auto, never, or a path */
    const char *path;   /* of the job description */
    int ranks;          /* -n; 0: not given */
    int per_task;       /* --workers-per-task; 0: not given */
    bool bind, json, quiet;
};
/* Returns -1 to go on, or an exit code; prints help and usage errors. Frees nothing on the way: call
 * ls_run_options_free in any case. */
int ls_run_options_parse(int argc, char **argv, struct ls_run_options *options);
void ls_run_options_free(struct ls_run_options *options);

#endif
