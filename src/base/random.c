/* Counter-based random numbers: no state, so any rank can draw any element in any order. */
#include "base/base.h"

#include <math.h>

uint64_t ls_hash64(const char *s)
{
    uint64_t h = 14695981039346656037u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 1099511628211u;
    return h;
}

uint64_t ls_mix64(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9E3779B97F4A7C15u + b;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void ls_philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[static 4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)b;
        c2 = n2;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double ls_uniform(uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    ls_philox(key, stream, index / 4, w);
    return (w[index % 4] + 0.5) / 4294967296.0;
}

double ls_normal(uint64_t key, uint64_t stream, uint64_t index)
{
    double u = ls_uniform(key, stream, 2 * index), v = ls_uniform(key, stream, 2 * index + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
