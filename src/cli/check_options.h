/* The command line that `lockstep check` and its program between the nodes share. */
#ifndef LS_CLI_CHECK_OPTIONS_H
#define LS_CLI_CHECK_OPTIONS_H

#include <stdbool.h>

struct ls_check_options {
    const char **sets; /* [argc]; owned */
    int nsets;
    const char *path; /* of the job description; NULL: only the machine */
    int workers;      /* ranks in each task, for the job's memory */
    bool full, json, nagios, strict, quiet;
};
/* Returns -1 to go on, or an exit code; prints help and usage errors. Call ls_check_options_free in any
 * case. */
int ls_check_options_parse(int argc, char **argv, struct ls_check_options *options);
void ls_check_options_free(struct ls_check_options *options);

#endif
