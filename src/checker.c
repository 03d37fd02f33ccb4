/* The check program: one task of a preflight. Started by `lockstep check`, or directly by
 * `srun --mpi=pmix`. */
#include "cli/checker.h"

int main(int argc, char **argv)
{
    return ls_cli_checker(argc, argv);
}
