/* The worker program: one rank of a run. Started by `lockstep run`, or directly by `srun --mpi=pmix` or
 * another launcher that speaks PMIx. */
#include "cli/worker.h"

int main(int argc, char **argv)
{
    return ls_cli_worker(argc, argv);
}
