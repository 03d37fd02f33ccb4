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
    for (int64_t i = 2; i < n; i++)
        sum += v[i];
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

static bool run_kind(const struct call *c)
{
    switch (c->op->kind) {
    case LS_K_MATMUL:
        return run_matmul(c);
    case LS_K_BIAS:
        return run_bias(c);
    case LS_K_RELU:
    case LS_K_GELU:
        return run_activation(c);
    case LS_K_ADD:
        return run_add(c);
    case LS_K_CONV2D:
        return run_conv2d(c);
    case LS_K_MAX_POOL:
    case LS_K_AVG_POOL:
        return run_window_pool(c);
    case LS_K_GLOBAL_POOL:
        return run_global_pool(c);
    case LS_K_RESHAPE:
        return true;
    case LS_K_BATCH_NORM:
        return run_batch_norm(c);
    case LS_K_BATCH_NORM_EVAL:
        return run_batch_norm_eval(c);
    case LS_K_DROPOUT:
        return run_dropout(c);
    case LS_K_XENT:
        return run_xent(c);
    case LS_K_TOP1:
        return run_top1(c);
    case LS_K_RELU_GRAD:
    case LS_K_GELU_GRAD:
        return run_activation_grad(c);
    case LS_K_CONV2D_GRAD_DATA:
    case LS_K_CONV2D_GRAD_WEIGHT:
        return run_conv2d_grad(c);
    case LS_K_MAX_POOL_GRAD:
    case LS_K_AVG_POOL_GRAD:
        return run_window_pool_grad(c);
    case LS_K_GLOBAL_POOL_GRAD:
        return run_global_pool_grad(c);
    case LS_K_BATCH_NORM_GRAD:
        return run_batch_norm_grad(c);
    case LS_K_XENT_GRAD:
        return run_xent_grad(c);
    case LS_K_SUM_ROWS:
        return run_sum_rows(c);
    case LS_K_ACCUM:
        return run_accum(c);
    case LS_K_SUMSQ:
        return run_sumsq(c);
    case LS_K_CONCAT:
        return run_concat(c);
    case LS_K_COMMIT:
        return run_commit(c);
    case LS_K_SGD:
        return run_sgd(c);
    case LS_K_ADAMW:
        return run_adamw(c);
    case LS_K_EMA:
        return run_ema(c);
    case LS_K_JOIN: /* moves nothing: what it zeroes depends on where the members lie */
    case LS_K_PACK:
    case LS_KIND_COUNT:
        break;
    }
    return false;
}

static bool run_op(const struct ls_op_desc *op, void *const *operands)
{
    struct call c = {op, op->attr, operands, operands + op->nin};
    return run_kind(&c);
}
