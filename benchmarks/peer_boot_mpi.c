/* What a program of Open MPI waits for before its ranks can talk: MPI_Init and a first barrier. Rank 0
 * prints the seconds as JSON. Started by srun --mpi=pmix, as Lockstep is. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    double start = now();
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = now() - start;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("{\"ranks\": %d, \"seconds\": %.6f}\n", size, seconds);
    MPI_Finalize();
    return 0;
}
