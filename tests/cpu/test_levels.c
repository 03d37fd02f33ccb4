/* What every rank does for itself on the same numbers has the same bits on every machine that one run may have: AVX2
 * beside AVX-512, and any number of threads. Without fused multiply-adds it has not, so ranks compare that first. */
#include "plugins/cpu/cpu.h"
#include "tests/tap.h"

#include <string.h>

enum { MOST = 50021, STATES = 3, STEPS = 12 };

const struct ls_device_api *ls_device_entry(void);

struct trial {
    const char *name;
    enum ls_kind kind;
    struct ls_attr attr;
    int states; /* persistent tensors, which come before the gradient and are its results */
};

static const struct trial trials[] = {
    {"sgd", LS_K_SGD, {.momentum = 0.9}, 2},
    {"sgd with decay", LS_K_SGD, {.momentum = 0.9, .decay = 0.01}, 2},
    {"sgd, Nesterov", LS_K_SGD, {.momentum = 0.9, .decay = 0.01, .nesterov = true}, 2},
    {"adamw", LS_K_ADAMW, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.1}, 3},
    {"ema", LS_K_EMA, {.momentum = 0.9}, 1},
    {"sumsq", LS_K_SUMSQ, {.momentum = 0}, 0},
};

/* Some are large, some so small that their squares are denormal. */
static float number(uint64_t key, int64_t i)
{
    static const float scale[] = {1, 1e-3f, 30, 1e-20f};
    uint64_t x = ls_mix64(key, (uint64_t)i);
    return ((float)(x >> 40) / 8388608.0f - 1) * scale[x % 4];
}

/* `steps` updates of n numbers; the results stay in `state`. */
static bool run(const struct trial *t, const struct ls_cpu_table *table, int threads, int64_t n,
                float *state[STATES])
{
    const struct ls_device_api *api = ls_device_entry();
    struct ls_device_config config = {.threads = threads, .deterministic = true};
    struct ls_operand vector = {.dtype = LS_F32, .ndim = 1, .shape = {n}},
                      scalar = {.dtype = LS_F32};
    struct ls_operand words = {.dtype = LS_F64, .ndim = 1, .shape = {LS_CONTROL_WORDS}};
    struct ls_operand in[STATES + 2], out[STATES];
    double control[LS_CONTROL_WORDS] = {0};
    float *gradient = malloc((size_t)n * sizeof *gradient);
    void *io[2 * STATES + 2];
    int nin = 0, nout = 0;
    struct ls_device *dev = NULL;
    struct ls_kernel *kernel = NULL;
    struct ls_error err = {0};
    int64_t workspace = 0;
    for (int k = 0; k < t->states; k++) {
        io[nin] = state[k];
        in[nin++] = vector;
        for (int64_t i = 0; i < n; i++)
            state[k][i] = k == 2 ? 0.0f : number((uint64_t)k, i);
    }
    io[nin] = gradient;
    in[nin++] = vector;
    if (t->states) {
        io[nin] = control;
        in[nin++] = words;
    }
    for (int k = 0; k < t->states; k++) {
        io[nin + nout] = state[k];
        out[nout++] = vector;
    }
    if (!t->states) {
        io[nin + nout] = state[0];
        out[nout++] = scalar;
    }
    struct ls_op_desc op = {
        .kind = t->kind, .attr = &t->attr, .nin = nin, .nout = nout, .in = in, .out = out};
    bool good = gradient && api->open(&config, &dev, &err) == LS_OK;
    if (good)
        dev->table = table;
    good = good && api->prepare(dev, &op, &kernel, &workspace, &err) == LS_OK;
    void *scratch = malloc((size_t)workspace + 1);
    for (int step = 0; good && step < STEPS; step++) {
        for (int64_t i = 0; i < n; i++)
            gradient[i] = number(100 + (uint64_t)step, i);
        control[LS_C_LR] = 0.01 / (1 + step);
        control[LS_C_SCALE] = 1.0 / 128;
        control[LS_C_UPDATES] = step + 1;
        control[LS_C_MICROS] = 4;
        good = api->launch(dev, kernel, io, scratch, &err) == LS_OK;
    }
    if (!good)
        tap_note("%s: %s", t->name, err.message);
    free(scratch);
    free(gradient);
    if (kernel)
        api->release(dev, kernel);
    if (dev)
        api->close(dev);
    return good;
}

static bool same(const struct trial *t, int64_t n, float *a[STATES], float *b[STATES])
{
    bool equal = t->states || memcmp(a[0], b[0], sizeof(float)) == 0;
    for (int k = 0; k < t->states; k++)
        equal = equal && memcmp(a[k], b[k], (size_t)n * sizeof(float)) == 0;
    return equal;
}

struct way {
    const struct ls_cpu_table *table;
    int threads;
};

/* Does a trial come to the same bits in both ways, at every length? */
static bool agree(const struct trial *t, struct way a, struct way b)
{
    static const int64_t lengths[] = {1, 15, 33, 1000, MOST};
    float *x[STATES], *y[STATES];
    bool equal = true;
    for (int k = 0; k < STATES; k++) {
        x[k] = calloc(MOST, sizeof(float));
        y[k] = calloc(MOST, sizeof(float));
        if (!x[k] || !y[k])
            abort();
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (!run(t, a.table, a.threads, lengths[i], x) ||
            !run(t, b.table, b.threads, lengths[i], y))
            exit(1);
        equal = equal && same(t, lengths[i], x, y);
    }
    for (int k = 0; k < STATES; k++) {
        free(x[k]);
        free(y[k]);
    }
    return equal;
}

int main(void)
{
    struct way base = {&ls_cpu_table_v0, 1};
    int ntrials = (int)(sizeof trials / sizeof *trials);
    for (int i = 0; i < ntrials; i++) {
        struct way more = base;
        more.threads = 3;
        tap_ok(agree(&trials[i], base, more), "%s: one and three threads come to the same bits",
               trials[i].name);
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool has3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool has4 = has3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    struct way avx2 = {&ls_cpu_table_v3, 1}, avx512 = {&ls_cpu_table_v4, 2};
    tap_ok(ls_cpu_table_v3.fused && ls_cpu_table_v4.fused, "AVX2 and AVX-512 say that they fuse");
    if (!has4)
        tap_ok(true, "AVX2 against AVX-512 # SKIP this machine has no AVX-512");
    for (int i = 0; i < ntrials && has4; i++)
        tap_ok(agree(&trials[i], avx2, avx512), "%s: AVX2 and AVX-512 come to the same bits",
               trials[i].name);
    if (!has3)
        tap_ok(true, "the baseline against AVX2 # SKIP this machine has no AVX2");
    else if (!ls_cpu_table_v0.fused)
        tap_ok(!agree(&trials[3], base, avx2),
               "adamw: the baseline, which does not fuse, comes to others");
#endif
    return tap_done();
}
