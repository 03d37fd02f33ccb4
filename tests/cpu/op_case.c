/* The harness of op_case.h. */
#include "tests/cpu/op_case.h"

#include "tests/reference/ref.h"
#include "tests/tap.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

const char *op_plugin_dir(void)
{
    static char dir[4096];
    const char *build = getenv("builddir");
    snprintf(dir, sizeof dir, "%s/plugins", build ? build : ".");
    return dir;
}

const struct ls_device_api *op_api(void)
{
    static const struct ls_device_api *api;
    struct ls_error err = {0};
    if (!api && ls_device_load(op_plugin_dir(), "cpu", &api, &err) != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(1);
    }
    return api;
}

struct ls_device *op_device(int threads)
{
    static struct ls_device *dev[3];
    struct ls_device_config config = {.threads = threads, .deterministic = true};
    struct ls_error err = {0};
    if (!dev[threads] && op_api()->open(&config, &dev[threads], &err) != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(1);
    }
    return dev[threads];
}

/* ---- describing a case ----------------------------------------------------------------------- */

static void add(struct op_case *c, int at, enum ls_dtype dtype, int ndim, va_list ap)
{
    struct ls_operand *o = &c->io[at];
    *o = (struct ls_operand){.dtype = dtype, .ndim = ndim};
    for (int d = 0; d < ndim; d++)
        o->shape[d] = va_arg(ap, int);
}

void op_in(struct op_case *c, enum ls_dtype dtype, int ndim, ...)
{
    va_list ap;
    va_start(ap, ndim);
    add(c, c->nin, dtype, ndim, ap);
    va_end(ap);
    c->fill[c->nin++] = dtype == LS_I32 ? OP_LABELS : dtype == LS_U8 ? OP_PLACES : OP_NORMAL;
}

void op_out(struct op_case *c, enum ls_dtype dtype, int ndim, ...)
{
    va_list ap;
    va_start(ap, ndim);
    add(c, c->nin + c->nout++, dtype, ndim, ap);
    va_end(ap);
}

void op_control(struct op_case *c)
{
    op_in(c, LS_F64, 1, (int)LS_CONTROL_WORDS);
    c->fill[c->nin - 1] = OP_CONTROL;
}

void op_accumulate(struct op_case *c, int first)
{
    struct ls_operand out[LS_OP_MAX_OUT];
    memcpy(out, c->io + c->nin, sizeof out);
    c->attr.accumulate = true;
    for (int o = first; o < c->nout; o++) {
        c->io[c->nin] = out[o];
        c->fill[c->nin++] = OP_NORMAL;
        c->state[o] = c->nin;
    }
    op_control(c);
    memcpy(c->io + c->nin, out, sizeof out);
}

/* ---- memory with guards ---------------------------------------------------------------------- */

struct block {
    char *base;
    int64_t bytes;
};

static void *block_at(const struct block *b)
{
    return b->base + GUARD;
}

static void block_make(struct block *b, int64_t bytes, int fill)
{
    b->bytes = bytes;
    int64_t all = ls_round_up(bytes, 64) + 2 * GUARD;
    b->base = aligned_alloc(64, (size_t)all);
    if (!b->base)
        abort();
    memset(b->base, GUARD_BYTE, (size_t)all);
    memset(block_at(b), fill, (size_t)bytes);
}

static bool block_intact(const struct block *b)
{
    int64_t all = ls_round_up(b->bytes, 64) + 2 * GUARD;
    for (int64_t i = 0; i < all; i++)
        if ((i < GUARD || i >= GUARD + b->bytes) && (uint8_t)b->base[i] != GUARD_BYTE)
            return false;
    return true;
}

static int64_t numel(const struct ls_operand *o)
{
    int64_t n = 1;
    for (int d = 0; d < o->ndim; d++)
        n *= o->shape[d];
    return n;
}

/* ---- values ---------------------------------------------------------------------------------- */

static double value(const struct op_case *c, int k, int64_t i)
{
    const struct ls_operand *first = &c->io[0];
    double u = ls_uniform(7, (uint64_t)k, (uint64_t)i);
    if (c->poison == k + 1 && i == numel(&c->io[k]) / 2)
        return c->poison_value;
    switch (c->fill[k]) {
    case OP_NORMAL:
        return ls_normal(11, (uint64_t)k, (uint64_t)i) * (c->scale > 0 ? c->scale : 1);
    case OP_POSITIVE:
        return 0.5 + u;
    case OP_LABELS:
        return floor(u * (double)(first->shape[first->ndim - 1] + 1)) - 1;
    case OP_PLACES:
        return floor(u * c->attr.kernel * c->attr.kernel);
    case OP_CONTROL:
        break;
    }
    return c->control[i];
}

static void put(void *at, enum ls_dtype dtype, bool f64, int64_t i, double v)
{
    if (dtype == LS_F32 && !f64)
        ((float *)at)[i] = (float)v;
    else if (dtype == LS_F32)
        ((double *)at)[i] = (float)v; /* the same number as the backend's */
    else if (dtype == LS_F64)
        ((double *)at)[i] = v;
    else if (dtype == LS_I32)
        ((int32_t *)at)[i] = (int32_t)v;
    else
        ((uint8_t *)at)[i] = (uint8_t)v;
}

static double get(const void *at, enum ls_dtype dtype, bool f64, int64_t i)
{
    if (dtype == LS_F32 && !f64)
        return ((const float *)at)[i];
    if (dtype == LS_I32)
        return ((const int32_t *)at)[i];
    if (dtype == LS_U8)
        return ((const uint8_t *)at)[i];
    return ((const double *)at)[i];
}

/* ---- one run --------------------------------------------------------------------------------- */

struct run {
    struct block block[LS_OP_MAX_IN + LS_OP_MAX_OUT];
    void *at[LS_OP_MAX_IN + LS_OP_MAX_OUT];
    int n;
};

static void run_make(struct run *r, const struct op_case *c, bool f64)
{
    *r = (struct run){.n = c->nin + c->nout};
    for (int k = 0; k < r->n; k++) {
        int state = k < c->nin ? 0 : c->state[k - c->nin];
        if (state) {
            r->at[k] = r->at[state - 1];
            continue;
        }
        const struct ls_operand *o = &c->io[k];
        block_make(&r->block[k], numel(o) * ls_ref_size(o->dtype, f64), 0xFF);
        r->at[k] = block_at(&r->block[k]);
        for (int64_t i = 0; k < c->nin && i < numel(o); i++)
            put(r->at[k], o->dtype, f64, i, value(c, k, i));
    }
}

static void run_free(struct run *r)
{
    for (int k = 0; k < r->n; k++)
        free(r->block[k].base);
}

static struct ls_op_desc describe(const struct op_case *c)
{
    return (struct ls_op_desc){c->kind, &c->attr, c->nin, c->nout, c->io, c->io + c->nin};
}

/* Replaces plain operands by packed ones, where the backend wants that. How many? */
static int pack_operands(struct op_case *c, struct run *r, struct ls_device *dev,
                         struct ls_error *err)
{
    const struct ls_device_api *api = op_api();
    int packed = 0;
    for (int k = 0; k < c->nin; k++) {
        struct ls_op_desc desc = describe(c);
        int64_t bytes = api->pack_size(dev, &desc, k);
        if (bytes <= 0)
            continue;
        struct ls_kernel *kernel = NULL;
        struct block b;
        block_make(&b, bytes, 0xFF);
        void *io[2] = {r->at[k], block_at(&b)};
        if (api->prepare_pack(dev, &desc, k, &kernel, err) != LS_OK ||
            api->launch(dev, kernel, io, NULL, err) != LS_OK)
            return -1;
        api->release(dev, kernel);
        free(r->block[k].base);
        r->block[k] = b;
        r->at[k] = io[1];
        c->io[k].packed = true;
        packed++;
    }
    return packed;
}

/* Runs the case on the backend. Returns NULL, or what went wrong. */
static const char *run_backend(const struct op_case *plain, struct run *r, int threads, bool pack,
                               int *packed, struct ls_error *err)
{
    const struct ls_device_api *api = op_api();
    struct ls_device *dev = op_device(threads);
    struct op_case c = *plain;
    struct ls_kernel *kernel = NULL;
    int64_t bytes = 0;
    run_make(r, &c, false);
    *packed = pack ? pack_operands(&c, r, dev, err) : 0;
    if (*packed < 0)
        return err->message;
    struct ls_op_desc desc = describe(&c);
    if (api->prepare(dev, &desc, &kernel, &bytes, err) != LS_OK)
        return err->message;
    struct block ws;
    block_make(&ws, bytes, 0xFF);
    enum ls_status status = api->launch(dev, kernel, r->at, bytes ? block_at(&ws) : NULL, err);
    if (status == LS_OK)
        status = api->sync(dev, err);
    api->release(dev, kernel);
    bool intact = block_intact(&ws);
    free(ws.base);
    if (status != LS_OK)
        return err->message;
    if (!intact)
        return "wrote outside its workspace";
    for (int k = 0; k < r->n; k++)
        if (r->block[k].base && !block_intact(&r->block[k]))
            return "wrote outside an operand";
    return NULL;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool same_result(const struct op_case *c, const struct run *got, const struct run *want,
                        char *why, size_t size)
{
    for (int k = c->nin; k < c->nin + c->nout; k++) {
        const struct ls_operand *o = &c->io[k];
        double top = 0, tolerance = c->tolerance > 0 ? c->tolerance : 2e-5;
        for (int64_t i = 0; i < numel(o); i++) {
            double v = fabs(get(want->at[k], o->dtype, true, i));
            top = isfinite(v) && v > top ? v : top;
        }
        if (o->dtype == LS_U8)
            tolerance = 0;
        for (int64_t i = 0; i < numel(o); i++) {
            double a = get(got->at[k], o->dtype, false, i), b = get(want->at[k], o->dtype, true, i);
            if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * top)
                continue;
            snprintf(why, size, "result %d, element %lld: got %.9g, expected %.9g", k - c->nin,
                     (long long)i, a, b);
            return false;
        }
    }
    return true;
}

/* Operands that are not state must be as they were. */
static bool operands_kept(const struct op_case *c, const struct run *r)
{
    for (int k = 0; k < c->nin; k++) {
        bool state = c->kind == LS_K_PACK;
        for (int o = 0; o < c->nout; o++)
            state |= c->state[o] == k + 1;
        for (int64_t i = 0; !state && i < numel(&c->io[k]); i++) {
            double a = get(r->at[k], c->io[k].dtype, false, i), b = value(c, k, i);
            if (c->io[k].dtype == LS_F32)
                b = (float)b;
            if (a != b && !(isnan(a) && isnan(b)))
                return false;
        }
    }
    return true;
}

static bool check_threads(const struct op_case *c, const struct run *want, int threads, bool pack,
                          char *why, size_t size)
{
    struct run a = {0}, b = {0};
    struct ls_error err = {0};
    int packed = 0;
    const char *problem = run_backend(c, &a, threads, pack, &packed, &err);
    if (!problem && pack && packed == 0) {
        run_free(&a);
        return true; /* nothing to pack: this was the plain run again */
    }
    if (!problem)
        problem = run_backend(c, &b, threads, pack, &packed, &err);
    if (problem) {
        snprintf(why, size, "%s", problem);
        return false;
    }
    bool ok = same_result(c, &a, want, why, size);
    if (ok && !pack && !operands_kept(c, &a)) {
        snprintf(why, size, "an operand was changed");
        ok = false;
    }
    for (int k = c->nin; k < a.n && ok; k++)
        if (memcmp(a.at[k], b.at[k], (size_t)(numel(&c->io[k]) * ls_dtype_size(c->io[k].dtype))) !=
            0) {
            snprintf(why, size, "two runs differ in result %d", k - c->nin);
            ok = false;
        }
    run_free(&a);
    run_free(&b);
    return ok;
}

bool op_check(const struct op_case *c, const char *fmt, ...)
{
    char name[160], why[1200] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    struct run want;
    run_make(&want, c, true);
    struct ls_op_desc desc = describe(c);
    bool ok = ls_ref_run_f64(&desc, want.at);
    if (!ok)
        snprintf(why, sizeof why, "the reference does not know this op");
    for (int pack = 0; pack < 2 && ok; pack++)
        for (int threads = 1; threads <= 2 && ok; threads++) {
            ok = check_threads(c, &want, threads, pack, why, sizeof why);
            if (!ok)
                tap_note("%d thread(s)%s: %s", threads, pack ? ", packed" : "", why);
        }
    run_free(&want);
    return tap_ok(ok, "%s", name);
}

bool op_refused(const struct op_case *c, const char *part, const char *fmt, ...)
{
    char name[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    struct ls_op_desc desc = describe(c);
    struct ls_kernel *kernel = NULL;
    struct ls_error err = {0};
    int64_t bytes = 0;
    enum ls_status status = op_api()->prepare(op_device(2), &desc, &kernel, &bytes, &err);
    if (status == LS_OK)
        op_api()->release(op_device(2), kernel);
    bool ok = status == LS_ERR_UNSUPPORTED && strstr(err.message, part);
    if (!ok)
        tap_note("status %s, message \"%s\", expected \"%s\" in it", ls_status_name(status),
                 err.message, part);
    return tap_ok(ok, "refused: %s", name);
}

bool op_ok(bool pass, const char *name)
{
    return tap_ok(pass, "%s", name);
}

int op_done(void)
{
    return tap_done();
}
