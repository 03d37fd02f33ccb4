/* Updates of persistent tensors: SGD, ADAMW, EMA. All of them do nothing when control.SKIP is set.
 */
#include "plugins/cpu/kinds.h"

#include <math.h>

struct optim {
    struct ls_kernel head;
    struct ls_attr attr;
    int64_t n;
};

/* The factors of one AdamW step, from the control tensor in double precision. */
struct adamw {
    float scale, b1, b2, eps;
    float c1, c2; /* lr / (1 - b1^t), 1 / (1 - b2^t) */
    float keep;   /* 1 - lr * decay */
};

static void adamw_slice(const struct adamw *s, float *p, float *m, float *v, const float *g,
                        int64_t n)
{
    float scale = s->scale, b1 = s->b1, b2 = s->b2, a1 = 1 - b1, a2 = 1 - b2;
    float c1 = s->c1, c2 = s->c2, eps = s->eps, keep = s->keep;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = scale * g[i];
        float m1 = b1 * m[i] + a1 * d;
        float v1 = b2 * v[i] + a2 * (d * d);
        m[i] = m1;
        v[i] = v1;
        p[i] = keep * p[i] - c1 * m1 / (__builtin_sqrtf(c2 * v1) + eps);
    }
}

static void adamw(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct optim *o = (const struct optim *)head;
    const double *control = io[4];
    if (control[LS_C_SKIP] != 0)
        return;
    double t = control[LS_C_UPDATES], lr = control[LS_C_LR];
    struct adamw s = {.scale = (float)control[LS_C_SCALE],
                      .b1 = (float)o->attr.beta1,
                      .b2 = (float)o->attr.beta2,
                      .c1 = (float)(lr / (1 - pow(o->attr.beta1, t))),
                      .c2 = (float)(1 / (1 - pow(o->attr.beta2, t))),
                      .eps = (float)o->attr.eps,
                      .keep = (float)(1 - lr * o->attr.decay)};
    float *p = io[5], *m = io[6], *v = io[7];
    const float *g = io[3];
    int64_t lo, hi;
    ls_cpu_slice(o->n, 16, part, parts, &lo, &hi);
    adamw_slice(&s, p + lo, m + lo, v + lo, g + lo, hi - lo);
}

struct sgd {
    float scale, lr, momentum, decay;
};

static void sgd_slice(const struct sgd *s, float *p, float *v, const float *g, int64_t n,
                      bool nesterov)
{
    float scale = s->scale, lr = s->lr, decay = s->decay, momentum = s->momentum;
    float a = nesterov ? 1 : 0, b = nesterov ? momentum : 1; /* p' = p - lr (a d + b v') */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = scale * g[i] + decay * p[i];
        float v1 = momentum * v[i] + d;
        v[i] = v1;
        p[i] -= lr * (a * d + b * v1);
    }
}

static void sgd(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct optim *o = (const struct optim *)head;
    const double *control = io[3];
    if (control[LS_C_SKIP] != 0)
        return;
    struct sgd s = {.scale = (float)control[LS_C_SCALE],
                    .lr = (float)control[LS_C_LR],
                    .momentum = (float)o->attr.momentum,
                    .decay = (float)o->attr.decay};
    const float *g = io[2];
    float *p = io[4], *v = io[5];
    int64_t lo, hi;
    ls_cpu_slice(o->n, 16, part, parts, &lo, &hi);
    sgd_slice(&s, p + lo, v + lo, g + lo, hi - lo, o->attr.nesterov);
}

static void ema_slice(float *s, const float *sum, float keep, float share, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        s[i] = keep * s[i] + share * sum[i];
}

static void ema(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct optim *o = (const struct optim *)head;
    const double *control = io[2];
    if (control[LS_C_SKIP] != 0)
        return;
    double share = (1 - o->attr.momentum) / control[LS_C_MICROS];
    int64_t lo, hi;
    ls_cpu_slice(o->n, 16, part, parts, &lo, &hi);
    ema_slice((float *)io[3] + lo, (const float *)io[1] + lo, (float)o->attr.momentum, (float)share,
              hi - lo);
}

enum ls_status LS_V(ls_cpu_optim)(struct ls_device *dev, const struct ls_op_desc *op,
                                  struct ls_kernel **kernel, int64_t *workspace,
                                  struct ls_error *err)
{
    bool adamw_op = op->kind == LS_K_ADAMW, ema_op = op->kind == LS_K_EMA;
    int tensors = adamw_op ? 4 : ema_op ? 2 : 3; /* F32; the control tensor follows them */
    LS_TRY(adamw_op ? ls_cpu_check(op, 5, 3, "ffffdfff", err)
           : ema_op ? ls_cpu_check(op, 3, 1, "ffdf", err)
                    : ls_cpu_check(op, 4, 2, "fffdff", err));
    bool fits = ls_cpu_numel(&op->in[tensors]) == LS_CONTROL_WORDS;
    for (int i = 0; i < tensors; i++)
        fits = fits && ls_cpu_same_shape(&op->in[0], &op->in[i]);
    for (int i = 0; i < op->nout; i++)
        fits = fits && ls_cpu_same_shape(&op->in[0], &op->out[i]);
    if (!fits)
        return ls_cpu_unsupported(op, "the shapes do not fit each other", err);
    struct optim *o = ls_cpu_kernel(sizeof *o, err);
    if (!o)
        return LS_ERR_NOMEM;
    o->n = ls_cpu_numel(&op->in[0]);
    o->attr = *op->attr;
    o->head.work = adamw_op ? adamw : ema_op ? ema : sgd;
    o->head.threads = ls_cpu_threads(dev, o->n * 4 * tensors);
    *workspace = 0;
    *kernel = &o->head;
    return LS_OK;
}
