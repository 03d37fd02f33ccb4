/* Checked arithmetic on sizes and the growth of arrays. */
#include "base/base.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool ls_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool ls_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool ls_shape_numel(const int64_t *shape, int ndim, int64_t *out)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        if (!ls_mul_i64(n, shape[d], &n))
            return false;
    *out = n;
    return true;
}

int64_t ls_round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

bool ls_grow(void *array, int *cap, int need, size_t size)
{
    if (need <= *cap)
        return true;
    int64_t want = *cap > INT_MAX / 2 ? need : *cap * 2;
    if (want < need)
        want = need;
    if (want < 16)
        want = 16;
    int64_t bytes;
    if (!ls_mul_i64(want, (int64_t)size, &bytes))
        return false;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (size_t)bytes);
    if (!grown)
        return false;
    memset((char *)grown + (size_t)*cap * size, 0, (size_t)(want - *cap) * size);
    memcpy(array, &grown, sizeof grown);
    *cap = (int)want;
    return true;
}
