/* The peer of allreduce.c: MPI_Allreduce, into a second buffer and in place, the faster of the two per
 * size. mpicc -O2; mpirun -n 2 [--mca ...] peer_allreduce_mpi [BYTES...]. Prints the same lines. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SAMPLES = 400 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static float *memory(size_t bytes)
{
    size_t huge = 2 << 20, all = (bytes + huge - 1) / huge * huge;
    float *x = aligned_alloc(huge, all);
    if (!x)
        MPI_Abort(MPI_COMM_WORLD, 1);
    madvise(x, all, MADV_HUGEPAGE);
    for (size_t i = 0; i < all / sizeof *x; i++)
        x[i] = 0;
    return x;
}

int main(int argc, char **argv)
{
    static const size_t usual[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                   1 << 20, 4 << 20,  16 << 20, 64 << 20};
    static double sample[SAMPLES];
    size_t given[32], most = 0;
    int n = 0, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc && n < 32; i++)
        if (atol(argv[i]) >= 4)
            given[n++] = (size_t)atol(argv[i]);
    const size_t *bytes = n ? given : usual;
    n = n ? n : 8;
    for (int i = 0; i < n; i++)
        most = bytes[i] > most ? bytes[i] : most;
    float *x = memory(most), *y = memory(most);
    for (int s = 0; s < n; s++) {
        double best_median = 0, best = 0;
        for (int in_place = 0; in_place < 2; in_place++) {
            double guess = (double)bytes[s] / 2e9 + 2e-5;
            int count = (int)(0.2 / guess), warm = 5;
            size_t elements = bytes[s] / sizeof *x;
            count = count > SAMPLES ? SAMPLES : count < 7 ? 7 : count;
            for (int i = -warm; i < count; i++) {
                for (size_t k = 0; k < elements; k++)
                    x[k] = 1;
                MPI_Barrier(MPI_COMM_WORLD);
                double start = MPI_Wtime();
                MPI_Allreduce(in_place ? MPI_IN_PLACE : x, in_place ? x : y, (int)elements,
                              MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                if (i >= 0)
                    sample[i] = MPI_Wtime() - start;
            }
            qsort(sample, (size_t)count, sizeof *sample, compare);
            if (!in_place || sample[count / 2] < best_median) {
                best_median = sample[count / 2];
                best = sample[0];
            }
        }
        if (rank == 0) {
            printf("%zu %.2f %.2f %.3f\n", bytes[s], best_median * 1e6, best * 1e6,
                   (double)bytes[s] / best_median / 1e9);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
