/* Scalar functions that gcc turns into vector code: branch-free, no tables, NaN stays NaN. */
#ifndef LS_CPU_VEC_H
#define LS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

static inline float ls_bits_float(int32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}
static inline int32_t ls_float_bits(float f)
{
    int32_t i;
    memcpy(&i, &f, sizeof i);
    return i;
}

/* e^x, relative error below 2e-7; 0 below -87.3, inf above 88.7. x = n ln2 + r, |r| <= ln2 / 2, and
 * a polynomial for e^r (Taylor to x^7, error 5e-9). n is split in two so that neither power of two
 * leaves the range of normal numbers. */
static inline float ls_expf(float x)
{
    float c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;           /* both comparisons are false for NaN */
    float t = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum is rounded to an integer */
    float n = t - 12582912.0f;
    float r = c - n * 0.693359375f; /* ln2 in two parts: the first product is exact */
    r = r + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t e = ls_float_bits(t) - 0x4B400000;
    e = e > 130 ? 130 : e; /* NaN gives any e: keep the shifts defined */
    e = e < -160 ? -160 : e;
    int32_t h = ((e + 256) >> 1) - 128; /* e / 2, rounded down */
    return p * ls_bits_float((h + 127) << 23) * ls_bits_float((e - h + 127) << 23);
}

/* Phi(-z) for z >= 0 is e * t * P(t) with e = exp(-z^2 / 2) and t = 1 / (1 + 0.35 z); P is our own
 * least-maximum fit of degree 8 for z in [0, 14], relative error 3e-8 before rounding. */
static inline float ls_normal_tail(float z, float e)
{
    float t = 1.0f / (1.0f + 0.35f * z);
    float p = -0.02914596162736416f;
    p = p * t + 0.14397184550762177f;
    p = p * t - 0.2557145357131958f;
    p = p * t + 0.15917447209358215f;
    p = p * t - 0.0231100395321846f;
    p = p * t + 0.10550808161497116f;
    p = p * t + 0.1198328509926796f;
    p = p * t + 0.13986186683177948f;
    p = p * t + 0.13962140679359436f;
    return e * t * p;
}

/* x Phi(x), and its derivative Phi(x) + x phi(x). Far out x is cut so that 0 * inf does not occur:
 * Phi(-14) is 0 in float. */
static inline float ls_geluf(float x)
{
    float z = __builtin_fabsf(x);
    float c = z > 14.0f ? 14.0f : z;
    float q = ls_normal_tail(c, ls_expf(-0.5f * c * c));
    float low = z > 14.0f ? 0.0f : x * q;
    return x < 0 ? low : x - x * q; /* NaN takes the second way and stays NaN */
}
static inline float ls_gelu_gradf(float x)
{
    float z = __builtin_fabsf(x);
    float c = z > 14.0f ? 14.0f : z;
    float e = ls_expf(-0.5f * c * c);
    float q = ls_normal_tail(c, e);
    float s = x < 0 ? -c : c;
    return (x < 0 ? q : 1.0f - q) + s * (e * 0.3989422804f);
}

#endif
