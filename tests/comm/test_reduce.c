/* The kernels themselves: every instruction set of this CPU gives the same bits; all 65,536 half
 * numbers widen exactly, and rounding to half is to nearest, ties to even, in every binade. */
#include "src/comm/reduce.c"
#include "tests/comm/numbers.h"
#include "tests/tap.h"

#include <math.h>

static const struct {
    const char *name;
    const struct kernels *k;
} sets[] = {
    {"base", &kernels_base},
#if defined __x86_64__
    {"avx2", &kernels_avx2},
    {"avx512", &kernels_avx512},
#endif
};

static bool usable(int i)
{
#if defined __x86_64__
    if (i == 1)
        return __builtin_cpu_supports("avx2");
    if (i == 2)
        return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    return i == 0;
}

static void run(const struct kernels *k, enum ls_comm_type t, enum ls_comm_op op, int members,
                const void *const *src, int ns, void *const *dst, int nd, int64_t n)
{
    switch (t) {
    case LS_COMM_F32:
        k->f32(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_F64:
        k->f64(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_I32:
        k->i32(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_U64:
        k->u64(op, members, src, ns, dst, nd, n);
        break;
    case LS_COMM_BF16:
        k->bf16(op, members, NULL, src, ns, NULL, dst, nd, n);
        break;
    case LS_COMM_F16:
        k->f16(op, members, NULL, src, ns, NULL, dst, nd, n);
        break;
    }
}

/* Every type, op, number of members and tail, at odd addresses too. */
static void against_reference(int set)
{
    enum { MOST = 300, MEMBERS = 5 };
    static char memory[MEMBERS + 2][MOST * 8 + 8];
    double want[MOST];
    int bad = 0;
    for (int t = LS_COMM_F32; t <= LS_COMM_F64; t++)
        for (int op = LS_COMM_SUM; op <= LS_COMM_AVG; op++)
            for (int m = 1; m <= MEMBERS; m++)
                for (int64_t n = 0; n < MOST; n += n < 70 ? 1 : 23) {
                    const void *src[MEMBERS];
                    int odd = (int)(n % 3) * (int)number_size(t) / 2;
                    for (int i = 0; i < m; i++) {
                        numbers_fill(memory[i] + odd, n, t, i, 7);
                        src[i] = memory[i] + odd;
                    }
                    void *dst[] = {memory[MEMBERS], memory[0] + odd};
                    memset(memory[MEMBERS], 0xee, MOST * 8);
                    run(sets[set].k, t, op, m, src, m, dst, 2, n);
                    numbers_reduce(want, n, t, op, m, 0, 7);
                    bad += numbers_compare(memory[MEMBERS], want, n, t, op, m) >= 0;
                    bad += memcmp(dst[0], dst[1], (size_t)(n * number_size(t))) != 0;
                    bad += (unsigned char)memory[MEMBERS][n * number_size(t)] != 0xee;
                }
    tap_ok(bad == 0, "%s: all types, operations and tails agree with double (%d do not)",
           sets[set].name, bad);
}

static void same_bits(int set)
{
    enum { N = 1 << 14, MEMBERS = 3 };
    static char memory[MEMBERS + 2][N * 8];
    int bad = 0;
    for (int t = LS_COMM_F32; t <= LS_COMM_F64; t++)
        for (int op = LS_COMM_SUM; op <= LS_COMM_AVG; op++) {
            const void *src[MEMBERS];
            for (int i = 0; i < MEMBERS; i++) {
                numbers_fill(memory[i], N, t, i, 9);
                src[i] = memory[i];
            }
            void *a = memory[MEMBERS], *b = memory[MEMBERS + 1];
            run(&kernels_base, t, op, MEMBERS, src, MEMBERS, &a, 1, N);
            run(sets[set].k, t, op, MEMBERS, src, MEMBERS, &b, 1, N);
            bad += memcmp(a, b, (size_t)(N * number_size(t))) != 0;
        }
    tap_ok(bad == 0, "%s: the same bits as base (%d differ)", sets[set].name, bad);
}

/* Every tail, and the same bits as base. */
static void squares(int set)
{
    enum { N = 5003 };
    static float x[N], y[N], z[N], to[N];
    int bad = 0;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 97 - 40) * 0.37f, y[i] = (float)(i % 31), z[i] = 1e-3f * (float)i;
    for (int64_t n = 0; n < N; n += n < 100 ? 1 : 613) {
        const void *src[] = {x, y, z};
        double one = 0, all = 0, got = sets[set].k->squares(src, 1, NULL, n);
        for (int64_t i = 0; i < n; i++)
            one += (double)x[i] * x[i];
        bad += !(fabs(got - one) <= 1e-12 * one) || got != kernels_base.squares(src, 1, NULL, n);
        to[n] = -1;
        got = sets[set].k->squares(src, 3, to, n);
        for (int64_t i = 0; i < n; i++) {
            float sum = x[i] + y[i] + z[i];
            all += (double)sum * sum;
            bad += to[i] != sum;
        }
        bad += !(fabs(got - all) <= 1e-12 * all) || to[n] != -1;
        bad += got != kernels_base.squares(src, 3, to, n);
    }
    tap_ok(bad == 0, "%s: sums of squares agree with double, bit for bit with base (%d do not)",
           sets[set].name, bad);
}

static void halves(int set)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int t = LS_COMM_BF16; t <= LS_COMM_F16; t++) {
        const void *src = all;
        void *dst = back;
        int bad = 0;
        if (t == LS_COMM_BF16)
            sets[set].k->bf16(LS_COMM_SUM, 0, NULL, &src, 1, wide, &dst, 1, 65536);
        else
            sets[set].k->f16(LS_COMM_SUM, 0, NULL, &src, 1, wide, &dst, 1, 65536);
        for (int i = 0; i < 65536; i++) {
            double want = number_at(all, i, t);
            bad += isnan(want) ? !isnan(wide[i]) : (double)wide[i] != want;
            bad += isnan(want) ? !isnan(number_at(back, i, t)) : back[i] != all[i];
        }
        tap_ok(bad == 0, "%s: every %s number widens exactly and comes back", sets[set].name,
               ls_comm_type_name(t));
        /* Between any two neighbours: below, at and above the middle. */
        static float mid[3 * 65536];
        static uint16_t got[3 * 65536], want[3 * 65536];
        int n = 0;
        int top = t == LS_COMM_BF16 ? 0x7f7f : 0x7bff;
        for (int i = 0; i < top; i++) {
            float a = wide[i], b = wide[i + 1], m = a + (b - a) / 2;
            uint16_t even = (uint16_t)(i % 2 ? i + 1 : i);
            mid[n] = nextafterf(m, a), want[n++] = (uint16_t)i;
            mid[n] = m, want[n++] = even;
            mid[n] = nextafterf(m, b), want[n++] = (uint16_t)(i + 1);
        }
        dst = got;
        if (t == LS_COMM_BF16)
            sets[set].k->bf16(LS_COMM_SUM, 0, mid, NULL, 0, NULL, &dst, 1, n);
        else
            sets[set].k->f16(LS_COMM_SUM, 0, mid, NULL, 0, NULL, &dst, 1, n);
        bad = 0;
        for (int i = 0; i < n; i++)
            bad += got[i] != want[i];
        tap_ok(bad == 0, "%s: rounding to %s is to nearest even (%d wrong)", sets[set].name,
               ls_comm_type_name(t), bad);
        float over[16] = {65520, 65519.99f, 1e30f, -1e30f, INFINITY, -INFINITY};
        dst = got;
        if (t == LS_COMM_F16) {
            sets[set].k->f16(LS_COMM_SUM, 0, over, NULL, 0, NULL, &dst, 1, 6);
            tap_ok(got[0] == 0x7c00 && got[1] == 0x7bff && got[2] == 0x7c00 && got[3] == 0xfc00 &&
                       got[4] == 0x7c00 && got[5] == 0xfc00,
                   "%s: f16 overflows to infinity at 65520", sets[set].name);
        }
    }
}

int main(void)
{
    for (int i = 0; i < (int)(sizeof sets / sizeof *sets); i++) {
        if (!usable(i)) {
            tap_note("this CPU has no %s", sets[i].name);
            continue;
        }
        against_reference(i);
        same_bits(i);
        squares(i);
        halves(i);
    }
    return tap_done();
}
