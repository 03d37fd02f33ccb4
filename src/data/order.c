/* The order of samples: a keyed permutation of [0, n) for any n, with no state and no memory.
 *
 * The Generalized-Feistel construction of Black and Rogaway, "Ciphers with arbitrary finite
 * domains" (CT-RSA 2002): n <= a * b with a and b near sqrt(n), x = l * b + r, and rounds that add
 * a keyed function of one half to the other, modulo a and b in turn. Every round can be undone, so
 * this is a permutation of [0, a * b); values of n and above are sent through again (cycle walking)
 * until one falls below n, which keeps it a permutation. Fewer than a values are outside, so a second
 * walk is rare for large n. Rounds are even permutations (for a, b > 2), so a keyed swap at the end
 * makes the odd ones as likely. */
#include "data/data.h"

/* Four rounds already look random for large n (Luby and Rackoff, 1988). A small n has short halves
 * and needs more: by the frequencies of whole permutations (n = 2 to 8) and of pairs, 8 rounds fall
 * short below n = 25 and 16 below n = 7. tests/data/test_order.c repeats that judgement. */
#define ROUNDS       8
#define ROUNDS_SMALL 24
#define SMALL        1024

static uint64_t scale(uint64_t word, uint64_t limit) /* to [0, limit), without a division */
{
    return (uint64_t)(((unsigned __int128)word * limit) >> 64);
}

/* The least s with s * s >= n, for n <= 2^62. The hardware root is exact to the last bit of a
 * double, not of an integer: the loops move by one at most. */
static uint64_t root_up(uint64_t n)
{
    uint64_t s = (uint64_t)__builtin_sqrt((double)n);
    while (s * s < n)
        s++;
    while (s > 1 && (s - 1) * (s - 1) >= n)
        s--;
    return s;
}

int64_t ls_order_sample(uint64_t seed, int64_t n, int64_t position)
{
    const uint64_t tag = 0x6F72646572; /* "order": other uses of the seed draw other numbers */
    uint64_t count = (uint64_t)n, epoch = (uint64_t)position / count;
    uint64_t x = (uint64_t)position - epoch * count;
    uint64_t a = root_up(count), b = (count + a - 1) / a;
    unsigned rounds = count < SMALL ? ROUNDS_SMALL : ROUNDS;
    uint64_t key = ls_mix64(ls_mix64(seed, tag), epoch);
    do {
        uint64_t left = x / b, right = x - left * b;
        for (unsigned round = 0; round < rounds; round += 2) {
            left += scale(ls_mix64(key + round, right), a);
            left -= left >= a ? a : 0;
            right += scale(ls_mix64(key + round + 1, left), b);
            right -= right >= b ? b : 0;
        }
        x = left * b + right;
    } while (x >= count);
    if (x < 2 && count > 1)
        x ^= key >> 63;
    return (int64_t)x;
}
