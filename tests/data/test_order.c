/* The keyed order: a permutation for every n, well mixed, different in every epoch, and for ever the
 * same for one seed. Everything here is deterministic, so no bound can fail by bad luck. */
#include "data/data.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

/* ---- it is a permutation ---------------------------------------------------------------------- */

static bool is_permutation(uint64_t seed, int64_t n, int64_t epoch, uint8_t *seen)
{
    memset(seen, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ls_order_sample(seed, n, epoch * n + i);
        if (id < 0 || id >= n || seen[id]++)
            return false;
    }
    return true;
}

static void test_permutation(void)
{
    uint8_t *seen = malloc(1 << 20);
    int bad = 0;
    if (!seen)
        abort();
    for (int64_t n = 1; n <= 300; n++)
        for (int64_t epoch = 0; epoch < 5; epoch++)
            for (uint64_t seed = 0; seed < 4; seed++)
                bad += !is_permutation(seed, n, epoch, seen);
    tap_ok(bad == 0, "every n from 1 to 300");
    static const int64_t sizes[] = {1000, 1023,  1024,  1025,  4095,  4096,    4097,
                                    9999, 10000, 60000, 65535, 65536, 1000003, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tap_ok(is_permutation(1, sizes[i], 0, seen) && is_permutation(2, sizes[i], 7, seen),
               "n = %lld", (long long)sizes[i]);
    free(seen);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void test_large(void)
{
    enum { N = 20000 };
    static int64_t ids[N];
    static const int64_t sizes[] = {((int64_t)1 << 32) + 1, ((int64_t)1 << 40) - 3,
                                    ((int64_t)1 << 62) - 1, (int64_t)1 << 62};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k];
        bool good = true;
        for (int i = 0; i < N; i++) {
            ids[i] = ls_order_sample(5, n, i % 2 ? i : n - 1 - i);
            good = good && ids[i] >= 0 && ids[i] < n;
        }
        qsort(ids, N, sizeof *ids, compare);
        for (int i = 1; i < N; i++)
            good = good && ids[i] != ids[i - 1];
        tap_ok(good, "n = %lld: in range, nothing twice", (long long)n);
    }
    tap_ok(ls_order_sample(5, 3, INT64_MAX) >= 0 && ls_order_sample(5, 3, INT64_MAX) < 3,
           "the last position there is");
}

/* ---- it is well mixed -------------------------------------------------------------------------- */

/* How far chi-square of `cells` counts lies from its mean, in standard deviations. */
static double chi_score(const int *count, int cells, double expect, int skip)
{
    double chi = 0, freedom = cells - skip - 1;
    for (int i = 0; i < cells; i++)
        if (count[i] >= 0)
            chi += (count[i] - expect) * (count[i] - expect) / expect;
    return (chi - freedom) / sqrt(2 * freedom);
}

static void test_whole_permutations(void)
{
    for (int n = 2; n <= 7; n++) {
        int cells = 1, each = 100;
        for (int i = 2; i <= n; i++)
            cells *= i;
        int *count = calloc((size_t)cells, sizeof *count);
        if (!count)
            abort();
        for (int64_t epoch = 0; epoch < (int64_t)cells * each; epoch++) {
            int64_t id[8];
            int rank = 0; /* Lehmer code: the number of this permutation */
            for (int i = 0; i < n; i++)
                id[i] = ls_order_sample(7, n, epoch * n + i);
            for (int i = 0; i < n; i++) {
                int smaller = 0;
                for (int j = i + 1; j < n; j++)
                    smaller += id[j] < id[i];
                rank = rank * (n - i) + smaller;
            }
            count[rank]++;
        }
        double score = chi_score(count, cells, each, 0);
        tap_ok(fabs(score) < 4, "n = %d: all %d orders are equally likely (%.1f sigma)", n, cells,
               score);
        free(count);
    }
}

/* Pairs of places `gap` apart take all ordered pairs of samples equally often. */
static void test_pairs(int n, int gap)
{
    int *count = calloc((size_t)n * (size_t)n, sizeof *count);
    int64_t epochs = (int64_t)n * (n - 1) * 30;
    if (!count)
        abort();
    for (int64_t e = 0; e < epochs; e++)
        count[ls_order_sample(3, n, e * n) * n + ls_order_sample(3, n, e * n + gap)]++;
    for (int i = 0; i < n; i++)
        count[i * n + i] = count[i * n + i] ? count[i * n + i] : -1; /* impossible cells */
    double score = chi_score(count, n * n, 30, n);
    tap_ok(fabs(score) < 4, "n = %d: pairs %d apart (%.1f sigma)", n, gap, score);
    free(count);
}

static void test_mixed(int64_t n)
{
    double square = 1 / sqrt((double)n), displaced = 0, product = 0, mean = (double)(n - 1) / 2;
    int64_t fixed = 0, again = 0, runs = 0, last = ls_order_sample(1, n, n - 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ls_order_sample(1, n, i), other = ls_order_sample(1, n, n + i);
        displaced += fabs((double)(id - i));
        product += ((double)id - mean) * ((double)last - mean);
        fixed += id == i;
        again += id == other;
        runs += id == last + 1;
        last = id;
    }
    double variance = ((double)n * (double)n - 1) / 12,
           correlation = product / variance / (double)n;
    displaced /= (double)n * (double)n / 3;
    tap_ok(fabs(displaced - 1) < 4 * square, "n = %lld: moved by n / 3 on average (%.4f of it)",
           (long long)n, displaced);
    tap_ok(fabs(correlation) < 4 * square, "n = %lld: neighbours do not correlate (%.4f)",
           (long long)n, correlation);
    tap_ok(
        fixed < 8 && again < 8 && runs < 8,
        "n = %lld: few fixed points (%lld), places kept in the next epoch (%lld), neighbours kept "
        "(%lld)",
        (long long)n, (long long)fixed, (long long)again, (long long)runs);
}

static void test_seeds(void)
{
    int64_t n = 10000, same = 0;
    for (int64_t i = 0; i < n; i++)
        same += ls_order_sample(0, n, i) == ls_order_sample(1, n, i);
    tap_ok(same < 8, "seeds 0 and 1 have nothing in common (%lld places)", (long long)same);
}

/* A resumed run of a later version must see the order that the first part saw. */
static void test_golden(void)
{
    static const struct {
        uint64_t seed;
        int64_t n, position, id;
    } golden[] = {
        {0, 1, 0, 0},
        {1, 60000, 0, 20089},
        {1, 60000, 59999, 57590},
        {1, 60000, 60000, 19172},
        {42, 1000, 123, 437},
        {7, 50000, 12345678, 45472},
        {3, (int64_t)1 << 62, 99, 3401684101292511291},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        int64_t id = ls_order_sample(golden[i].seed, golden[i].n, golden[i].position);
        if (id != golden[i].id)
            tap_note("{%llu, %lld, %lld, %lld},", (unsigned long long)golden[i].seed,
                     (long long)golden[i].n, (long long)golden[i].position, (long long)id);
        bad += id != golden[i].id;
    }
    tap_ok(bad == 0, "the order of earlier versions");
}

int main(void)
{
    test_permutation();
    test_large();
    test_whole_permutations();
    static const int sizes[] = {9, 12, 16, 25, 30, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        test_pairs(sizes[i], 1);
        test_pairs(sizes[i], sizes[i] / 2);
    }
    test_mixed(10000);
    test_mixed(60000);
    test_seeds();
    test_golden();
    return tap_done();
}
