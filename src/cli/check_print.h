/* How `lockstep check` shows a report. */
#ifndef LS_CLI_CHECK_PRINT_H
#define LS_CLI_CHECK_PRINT_H

#include "check/check.h"

#include <stdio.h>

/* `quiet`: only what is not fine. */
void ls_check_print_text(const struct ls_check_report *report, bool quiet, FILE *out);
/* One document; false: memory was short, or it could not be written. */
bool ls_check_print_json(const struct ls_check_report *report, int exit_code, FILE *out);
/* One line; returns Nagios' exit code: 0 ok, 1 warning, 2 critical, 3 unknown. */
int ls_check_print_nagios(const struct ls_check_report *report, FILE *out);

#endif
