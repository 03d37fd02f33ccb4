/* See numbers.h. */
#include "tests/comm/numbers.h"

#include <math.h>
#include <string.h>

int64_t number_size(enum ls_comm_type type)
{
    return type == LS_COMM_U64 || type == LS_COMM_F64    ? 8
           : type == LS_COMM_BF16 || type == LS_COMM_F16 ? 2
                                                         : 4;
}

const char *number_name(enum ls_comm_type type)
{
    static const char *const name[] = {"f32", "bf16", "f16", "i32", "u64", "f64"};
    return name[type];
}

static double half_value(uint16_t h, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int e = (h & 0x7fff) >> mantissa_bits, m = h & ((1 << mantissa_bits) - 1);
    double v = e == (1 << exponent_bits) - 1 ? (m ? NAN : INFINITY)
               : e == 0                      ? ldexp(m, 1 - bias - mantissa_bits)
                        : ldexp(m + (1 << mantissa_bits), e - bias - mantissa_bits);
    return h & 0x8000 ? -v : v;
}

double number_at(const void *p, int64_t i, enum ls_comm_type type)
{
    switch (type) {
    case LS_COMM_F32:
        return ((const float *)p)[i];
    case LS_COMM_F64:
        return ((const double *)p)[i];
    case LS_COMM_I32:
        return ((const int32_t *)p)[i];
    case LS_COMM_U64:
        return (double)((const uint64_t *)p)[i];
    case LS_COMM_BF16:
        return half_value(((const uint16_t *)p)[i], 8);
    case LS_COMM_F16:
        return half_value(((const uint16_t *)p)[i], 5);
    }
    return 0;
}

static uint64_t noise(int64_t i, int member, int salt)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15ULL + (uint64_t)member * 0xd1342543de82ef95ULL +
                 (uint64_t)salt;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9ULL;
    return x ^ x >> 29;
}

/* Bits of element i. A few of the half and float numbers are subnormal, infinite or NaN. */
static uint64_t bits_of(int64_t i, enum ls_comm_type type, int member, int salt)
{
    uint64_t x = noise(i, member, salt);
    bool odd = x >> 40 % 64 == 0;
    float f = (float)((double)(x >> 40) / (1 << 23) - 1);
    double d = (double)(x >> 12) / 4503599627370496.0 - 0.5;
    uint32_t u;
    uint64_t w;
    switch (type) {
    case LS_COMM_F32:
        if (x % 4001 == 0)
            f = x % 2 ? NAN : 1e-41f;
        memcpy(&u, &f, 4);
        return u;
    case LS_COMM_F64:
        if (x % 4001 == 0)
            d = NAN;
        memcpy(&w, &d, 8);
        return w;
    case LS_COMM_I32:
        return (uint32_t)(int32_t)((int64_t)(x % 200000001) - 100000000);
    case LS_COMM_U64:
        return x >> 16;
    case LS_COMM_BF16:
        if (x % 997 == 0)
            return x % 2 ? 0x7fc1 : 0x0013;
        memcpy(&u, &f, 4);
        return u >> 16;
    case LS_COMM_F16:
        if (x % 997 == 0)
            return odd || x % 2 ? 0x7e01 : 0x0211; /* NaN, subnormal */
        return (x & 0x83ff) | ((x >> 20) % 18 + 1) << 10;
    }
    return 0;
}

void numbers_fill(void *p, int64_t n, enum ls_comm_type type, int member, int salt)
{
    int64_t size = number_size(type);
    for (int64_t i = 0; i < n; i++) {
        uint64_t b = bits_of(i, type, member, salt);
        memcpy((char *)p + i * size, &b, (size_t)size);
    }
}

void numbers_reduce(double *want, int64_t n, enum ls_comm_type type, enum ls_comm_op op,
                    int members, int64_t from, int salt)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        uint64_t whole = 0; /* integers exactly */
        for (int m = 0; m < members; m++) {
            uint64_t b = bits_of(from + i, type, m, salt);
            double v = number_at(&b, 0, type);
            whole += type == LS_COMM_I32 ? (uint64_t)(int64_t)(int32_t)b : b;
            if (op == LS_COMM_MAX || op == LS_COMM_MIN)
                sum = m == 0 || isnan(v)                        ? (m && isnan(sum) ? sum : v)
                      : isnan(sum)                              ? sum
                      : (op == LS_COMM_MAX ? v > sum : v < sum) ? v
                                                                : sum;
            else
                sum += v;
        }
        if (op == LS_COMM_AVG)
            sum /= members;
        if (op == LS_COMM_SUM || op == LS_COMM_AVG) {
            if (type == LS_COMM_I32) {
                int32_t s = (int32_t)(uint32_t)whole;
                sum = op == LS_COMM_AVG ? s / members : s;
            } else if (type == LS_COMM_U64) {
                sum = (double)(op == LS_COMM_AVG ? whole / (uint64_t)members : whole);
            }
        }
        want[i] = sum;
    }
}

int64_t numbers_compare(const void *p, const double *want, int64_t n, enum ls_comm_type type,
                        enum ls_comm_op op, int members)
{
    /* Unit of the last place, relative; and for the sums in f32, of the largest partial sum. */
    double ulp = type == LS_COMM_F64    ? 0x1p-53
                 : type == LS_COMM_F32  ? 0x1p-24
                 : type == LS_COMM_BF16 ? 0x1p-8
                 : type == LS_COMM_F16  ? 0x1p-11
                                        : 0;
    double carry = type == LS_COMM_F64 ? 0x1p-53 : 0x1p-24;
    double large = type == LS_COMM_F16 ? 40 : 1.01; /* of a summand */
    bool exact = op == LS_COMM_MAX || op == LS_COMM_MIN || ulp == 0;
    for (int64_t i = 0; i < n; i++) {
        double v = number_at(p, i, type), w = want[i];
        if (isnan(w) ? isnan(v) : v == w)
            continue;
        double room =
            fabs(w) * ulp + members * members * large * carry + (type == LS_COMM_F16 ? 0x1p-25 : 0);
        if (exact || isnan(v) || isnan(w) || fabs(v - w) > room)
            return i;
    }
    return -1;
}
