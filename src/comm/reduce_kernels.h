/* The kernels of reduce.c, included once per instruction set: TARGET is the attribute of every
 * function, NAME(x) its name. Vectors of 64 bytes; the compiler splits them where registers are
 * narrower. Vector operators are used rather than intrinsics, so that one text serves them all. */

/* A block is four vectors per operand, kept in registers from the first source to the last
 * destination: each byte is read and written once, however many ranks take part. */
#define LS_FOLD(EXPR)                                            \
    for (int k = 1; k < ns; k++) {                               \
        const VEC *p = (const VEC *)((const LOOSE *)src[k] + i); \
        VAL b;                                                   \
        b = p[0], a0 = EXPR(a0, b), b = p[1], a1 = EXPR(a1, b);  \
        b = p[2], a2 = EXPR(a2, b), b = p[3], a3 = EXPR(a3, b);  \
    }
#define LS_FOLD_TAIL(EXPR)                   \
    for (int k = 1; k < ns; k++) {           \
        ELEM b = ((const LOOSE *)src[k])[i]; \
        a = EXPR(a, b);                      \
    }
#define LS_ADD(a, b) ((a) + (b))
/* Vector selects by mask; a NaN in `a` stays, a NaN in `b` makes the comparison false and is taken. */
#define LS_PICK(m, a, b)  ((VAL)(((MASK)(a) & (m)) | ((MASK)(b) & ~(m))))
#define LS_MAX(a, b)      LS_PICK((MASK)((a) > (b)) | (MASK)((a) != (a)), a, b)
#define LS_MIN(a, b)      LS_PICK((MASK)((a) < (b)) | (MASK)((a) != (a)), a, b)
#define LS_MAX_TAIL(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define LS_MIN_TAIL(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
/* Division by a power of two is multiplication by its inverse, bit for bit, and faster. */
#define LS_SHARE_FLOAT(x)   (exact ? (x)*inverse : (x) / divisor)
#define LS_SHARE_INTEGER(x) ((x) / divisor)

#define LS_LOOP(FOLD, TAIL, SHARE)                                          \
    for (; i + 4 * lanes <= n; i += 4 * lanes) {                            \
        const VEC *q = (const VEC *)((const LOOSE *)src[0] + i);            \
        VAL a0 = q[0], a1 = q[1], a2 = q[2], a3 = q[3];                     \
        LS_FOLD(FOLD)                                                       \
        if (share)                                                          \
            a0 = SHARE(a0), a1 = SHARE(a1), a2 = SHARE(a2), a3 = SHARE(a3); \
        for (int k = 0; k < nd; k++) {                                      \
            VEC *p = (VEC *)((LOOSE *)dst[k] + i);                          \
            p[0] = a0, p[1] = a1, p[2] = a2, p[3] = a3;                     \
        }                                                                   \
    }                                                                       \
    for (; i < n; i++) {                                                    \
        ELEM a = ((const LOOSE *)src[0])[i];                                \
        LS_FOLD_TAIL(TAIL)                                                  \
        if (share)                                                          \
            a = SHARE(a);                                                   \
        for (int k = 0; k < nd; k++)                                        \
            ((LOOSE *)dst[k])[i] = a;                                       \
    }

#define LS_KERNEL(FN, SHARE, EXACT)                                                        \
    TARGET static void FN(enum ls_comm_op op, int members, const void *const *src, int ns, \
                          void *const *dst, int nd, int64_t n)                             \
    {                                                                                      \
        typedef ELEM VAL __attribute__((vector_size(64)));                                 \
        typedef ELEM VEC __attribute__((vector_size(64), aligned(1), may_alias));          \
        typedef IELEM MASK __attribute__((vector_size(64)));                               \
        typedef ELEM LOOSE __attribute__((aligned(1), may_alias));                         \
        const int64_t lanes = 64 / (int64_t)sizeof(ELEM);                                  \
        const bool share = op == LS_COMM_AVG && members > 1;                               \
        const ELEM divisor = (ELEM)(members > 1 ? members : 1);                            \
        const ELEM inverse = (ELEM)1 / divisor;                                            \
        const bool exact = EXACT && (members & (members - 1)) == 0;                        \
        (void)exact, (void)inverse;                                                        \
        int64_t i = 0;                                                                     \
        if (op == LS_COMM_MAX) {                                                           \
            LS_LOOP(LS_MAX, LS_MAX_TAIL, SHARE)                                            \
        } else if (op == LS_COMM_MIN) {                                                    \
            LS_LOOP(LS_MIN, LS_MIN_TAIL, SHARE)                                            \
        } else {                                                                           \
            LS_LOOP(LS_ADD, LS_ADD, SHARE)                                                 \
        }                                                                                  \
    }

#define ELEM  float
#define IELEM int32_t
LS_KERNEL(NAME(f32), LS_SHARE_FLOAT, true)
#undef ELEM
#undef IELEM
#define ELEM  double
#define IELEM int64_t
LS_KERNEL(NAME(f64), LS_SHARE_FLOAT, true)
#undef ELEM
#undef IELEM
#define ELEM  uint64_t
#define IELEM int64_t
LS_KERNEL(NAME(u64), LS_SHARE_INTEGER, false)
#undef ELEM
#undef IELEM
#define ELEM  int32_t
#define IELEM int32_t
LS_KERNEL(NAME(i32_signed), LS_SHARE_INTEGER, false)
#undef ELEM
#undef IELEM
/* Sums wrap around, which only unsigned numbers may. */
#define ELEM  uint32_t
#define IELEM int32_t
LS_KERNEL(NAME(i32_wrap), LS_SHARE_INTEGER, false)
#undef ELEM
#undef IELEM

TARGET static void NAME(i32)(enum ls_comm_op op, int members, const void *const *src, int ns,
                             void *const *dst, int nd, int64_t n)
{
    if (op == LS_COMM_MAX || op == LS_COMM_MIN) {
        NAME(i32_signed)(op, members, src, ns, dst, nd, n);
        return;
    }
    NAME(i32_wrap)(LS_COMM_SUM, 0, src, ns, dst, nd, n);
    if (op == LS_COMM_AVG && members > 1)
        for (int k = 0; k < nd; k++) {
            typedef int32_t LOOSE __attribute__((aligned(1), may_alias));
            LOOSE *p = dst[k];
            for (int64_t i = 0; i < n; i++)
                p[i] /= members;
        }
}

/* Four chains of eight: with one, every addition waits for the one before it. The squares are exact in
 * f64, so that it does not matter whether they are fused with the additions. */
TARGET static double NAME(squares)(const void *const *src, int ns, float *dst, int64_t n)
{
    typedef float LOOSE __attribute__((aligned(1), may_alias));
    vf64 sum[4] = {{0}};
    double total = 0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int c = 0; c < 4; c++) {
            int64_t at = i + 8 * c;
            vf32_8 a, b;
            memcpy(&a, (const LOOSE *)src[0] + at, sizeof a);
            for (int k = 1; k < ns; k++) {
                memcpy(&b, (const LOOSE *)src[k] + at, sizeof b);
                a += b;
            }
            if (dst)
                memcpy(dst + at, &a, sizeof a);
            vf64 v = __builtin_convertvector(a, vf64);
            sum[c] += v * v;
        }
    for (; i < n; i++) {
        float a = ((const LOOSE *)src[0])[i];
        for (int k = 1; k < ns; k++)
            a += ((const LOOSE *)src[k])[i];
        if (dst)
            dst[i] = a;
        total += (double)a * a;
    }
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < 8; k++)
            total += sum[c][k];
    return total;
}

/* ---- half types: sixteen at a time, widened to f32 ---- */

TARGET static inline __attribute__((always_inline)) void NAME(widen)(bool f16, const uint16_t *p,
                                                                     vf32 *x)
{
    vu16 h;
    memcpy(&h, p, sizeof h);
    vu32 u = __builtin_convertvector(h, vu32);
    if (!f16) {
        *x = (vf32)(u << 16);
        return;
    }
    vu32 o = (u & 0x7fff) << 13, exponent = o & (0x1fu << 23);
    vu32 top = (vu32)(exponent == (0x1fu << 23)), low = (vu32)(exponent == 0);
    o += (127 - 15) << 23;
    o += top & ((128 - 16) << 23);
    /* Subnormals: as if normal, minus the implied one. */
    vu32 sub = (vu32)((vf32)(o + (1 << 23)) - (vf32)((vu32){0} + (113u << 23)));
    o = (o & ~low) | (sub & low);
    *x = (vf32)(o | ((u & 0x8000) << 16));
}

/* Rounds to nearest, ties to even. */
TARGET static inline __attribute__((always_inline)) void NAME(narrow)(bool f16, const vf32 *x,
                                                                      uint16_t *p)
{
    vu32 u = (vu32)*x, nan = (vu32)(*x != *x), o;
    if (!f16) {
        o = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
        o = (o & ~nan) | (((u >> 16) | 0x40) & nan);
    } else {
        vu32 sign = u & 0x80000000u, a = u ^ sign;
        vu32 big = (vu32)((vi32)a >= (143 << 23)), low = (vu32)((vi32)a < (113 << 23));
        o = (a + 0xc8000fffu + ((a >> 13) & 1)) >> 13; /* bias 127 to 15, and half a unit */
        /* The adder of the f32 unit rounds to the subnormal grid. */
        vu32 sub = (vu32)((vf32)(a & low) + (vf32)((vu32){0} + (126u << 23))) - (126u << 23);
        o = (o & ~low) | (sub & low);
        o = (o & ~big) | (0x7c00 & big);
        o = (o & ~nan) | ((0x7e00 | ((a >> 13) & 0x1ff)) & nan);
        o |= sign >> 16;
    }
    vu16 h = __builtin_convertvector(o, vu16);
    memcpy(p, &h, sizeof h);
}

#define VAL  vf32
#define MASK vi32
/* Sixteen elements at `at`. */
TARGET static inline __attribute__((always_inline)) void NAME(block)(
    bool f16, enum ls_comm_op op, int members, const float *first, const uint16_t *const *src,
    int ns, int64_t at, float *total, uint16_t *const *dst, int nd)
{
    int k = 0;
    vf32 a, b;
    if (first)
        memcpy(&a, first + at, sizeof a);
    else
        NAME(widen)(f16, src[k++] + at, &a);
    for (; k < ns; k++) {
        NAME(widen)(f16, src[k] + at, &b);
        if (op == LS_COMM_MAX)
            a = LS_MAX(a, b);
        else if (op == LS_COMM_MIN)
            a = LS_MIN(a, b);
        else
            a += b;
    }
    if (total)
        memcpy(total + at, &a, sizeof a);
    if (op == LS_COMM_AVG && members > 1)
        a = a / (float)members;
    for (int d = 0; d < nd; d++)
        NAME(narrow)(f16, &a, dst[d] + at);
}

TARGET static inline __attribute__((always_inline)) void NAME(half)(bool f16, enum ls_comm_op op,
                                                                    int members, const float *first,
                                                                    const void *const *src, int ns,
                                                                    float *total, void *const *dst,
                                                                    int nd, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        NAME(block)
    (f16, op, members, first, (const uint16_t *const *)src, ns, i, total, (uint16_t *const *)dst,
     nd);
    /* The rest, one source at a time through blocks of sixteen on the stack. */
    size_t rest = (size_t)(n - i);
    if (!rest)
        return;
    float sum[16] = {0};
    uint16_t in[16] = {0};
    const uint16_t *const one = in;
    int k = 0;
    if (first) {
        memcpy(sum, first + i, rest * sizeof *sum);
    } else {
        memcpy(in, (const uint16_t *)src[k++] + i, rest * sizeof *in);
        NAME(block)(f16, LS_COMM_SUM, 0, NULL, &one, 1, 0, sum, NULL, 0);
    }
    for (; k < ns; k++) {
        memcpy(in, (const uint16_t *)src[k] + i, rest * sizeof *in);
        NAME(block)(f16, op, 0, sum, &one, 1, 0, sum, NULL, 0);
    }
    if (total)
        memcpy(total + i, sum, rest * sizeof *sum);
    uint16_t out[16], *to = out;
    NAME(block)(f16, op, members, sum, NULL, 0, 0, NULL, &to, 1);
    for (int d = 0; d < nd; d++)
        memcpy((uint16_t *)dst[d] + i, out, rest * sizeof *out);
}
#undef VAL
#undef MASK

TARGET static void NAME(bf16)(enum ls_comm_op op, int members, const float *first,
                              const void *const *src, int ns, float *total, void *const *dst,
                              int nd, int64_t n)
{
    NAME(half)(false, op, members, first, src, ns, total, dst, nd, n);
}

TARGET static void NAME(f16)(enum ls_comm_op op, int members, const float *first,
                             const void *const *src, int ns, float *total, void *const *dst, int nd,
                             int64_t n)
{
    NAME(half)(true, op, members, first, src, ns, total, dst, nd, n);
}

static const struct kernels NAME(kernels) = {NAME(f32),  NAME(f64), NAME(i32),    NAME(u64),
                                             NAME(bf16), NAME(f16), NAME(squares)};

#undef LS_FOLD
#undef LS_FOLD_TAIL
#undef LS_ADD
#undef LS_PICK
#undef LS_MAX
#undef LS_MIN
#undef LS_MAX_TAIL
#undef LS_MIN_TAIL
#undef LS_SHARE_FLOAT
#undef LS_SHARE_INTEGER
#undef LS_LOOP
#undef LS_KERNEL
