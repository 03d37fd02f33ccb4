/* The program behind `lockstep check`. */
#ifndef LS_CLI_CHECKER_H
#define LS_CLI_CHECKER_H

/* Its main: the command line of `lockstep check`. */
int ls_cli_checker(int argc, char **argv);

#endif
