/* Accumulation and update kinds of the reference. Included with `real` defined; see kernels.h. */

static bool run_accum(const struct call *c)
{
    const real *acc = c->in[0], *x = c->in[1];
    const double *control = c->in[2];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[1]);
    for (int64_t i = 0; i < n; i++)
        y[i] = control[LS_C_MICRO] > 0 ? (real)(acc[i] + x[i]) : x[i];
    return true;
}

static bool run_sumsq(const struct call *c)
{
    const real *x = c->in[0];
    int64_t n = numel(&c->op->in[0]);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    *(real *)c->out[0] = (real)sum;
    return true;
}

static bool run_concat(const struct call *c)
{
    real *y = c->out[0];
    for (int k = 0; k < c->op->nin; k++) {
        int64_t n = numel(&c->op->in[k]);
        memmove(y, c->in[k], (size_t)n * sizeof *y);
        y += n;
    }
    return true;
}

static bool run_commit(const struct call *c)
{
    const real *v = c->in[0];
    double *control = c->out[0], sum = 0;
    int64_t n = numel(&c->op->in[0]);
    if (control != c->in[1])
        memcpy(control, c->in[1], LS_CONTROL_WORDS * sizeof *control);
    int64_t wishes = c->attr->wishes;
    for (int64_t i = 2; i < n - wishes; i++)
        sum += v[i];
    for (int64_t i = 0; i < wishes; i++)
        control[LS_C_WISH + i] = v[n - wishes + i];
    double count = v[1], norm = sqrt(sum) / count;
    bool skip = !isfinite(norm) || !isfinite((double)v[0]) || count <= 0;
    double clip = c->attr->max_norm > 0 ? fmin(1, c->attr->max_norm / norm) : 1;
    control[LS_C_LOSS] = v[0];
    control[LS_C_COUNT] = count;
    control[LS_C_NORM] = norm;
    control[LS_C_SCALE] = clip / count;
    control[LS_C_SKIP] = skip;
    control[skip ? LS_C_SKIPPED : LS_C_UPDATES] += 1;
    return true;
}

static bool run_sgd(const struct call *c)
{
    const struct ls_attr *a = c->attr;
    const real *p = c->in[0], *v = c->in[1], *g = c->in[2];
    const double *control = c->in[3];
    real *p1 = c->out[0], *v1 = c->out[1];
    int64_t n = numel(&c->op->in[0]);
    for (int64_t i = 0; i < n && control[LS_C_SKIP] <= 0; i++) {
        double d = control[LS_C_SCALE] * g[i] + a->decay * p[i];
        double u = a->momentum * v[i] + d;
        v1[i] = (real)u;
        p1[i] = (real)(p[i] - control[LS_C_LR] * (a->nesterov ? d + a->momentum * u : u));
    }
    return true;
}

static bool run_adamw(const struct call *c)
{
    const struct ls_attr *a = c->attr;
    const real *p = c->in[0], *m = c->in[1], *v = c->in[2], *g = c->in[3];
    const double *control = c->in[4];
    real *p1 = c->out[0], *m1 = c->out[1], *v1 = c->out[2];
    int64_t n = numel(&c->op->in[0]);
    double t = control[LS_C_UPDATES];
    for (int64_t i = 0; i < n && control[LS_C_SKIP] <= 0; i++) {
        double e = control[LS_C_SCALE] * g[i];
        double me = a->beta1 * m[i] + (1 - a->beta1) * e;
        double ve = a->beta2 * v[i] + (1 - a->beta2) * e * e;
        double step = me / (1 - pow(a->beta1, t)) / (sqrt(ve / (1 - pow(a->beta2, t))) + a->eps);
        m1[i] = (real)me;
        v1[i] = (real)ve;
        p1[i] = (real)(p[i] - control[LS_C_LR] * (step + a->decay * p[i]));
    }
    return true;
}

static bool run_ema(const struct call *c)
{
    const real *s = c->in[0], *sum = c->in[1];
    const double *control = c->in[2];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]);
    for (int64_t i = 0; i < n && control[LS_C_SKIP] <= 0; i++)
        y[i] = (real)(s[i] + (1 - c->attr->momentum) * (sum[i] / control[LS_C_MICROS] - s[i]));
    return true;
}
