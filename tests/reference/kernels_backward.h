/* Backward kinds of the reference. Included with `real` defined; see kernels.h. */

static double gelu_slope(double x)
{
    const double inv_sqrt_2pi = 0.39894228040143267794;
    return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) * inv_sqrt_2pi;
}

static bool run_activation_grad(const struct call *c)
{
    const real *x = c->in[0], *dy = c->in[1];
    real *dx = c->out[0];
    int64_t n = numel(&c->op->in[0]);
    for (int64_t i = 0; i < n; i++)
        dx[i] = c->op->kind == LS_K_RELU_GRAD ? (x[i] > 0 ? dy[i] : 0)
                                              : (real)(gelu_slope(x[i]) * dy[i]);
    return true;
}

/* Visits every (output, filter tap) pair of a convolution: y index, x index, tap index. */
static bool run_conv2d_grad(const struct call *c)
{
    bool data = c->op->kind == LS_K_CONV2D_GRAD_DATA;
    const int64_t *xs = data ? c->op->out[0].shape : c->op->in[0].shape;
    const int64_t *ws = data ? c->op->in[0].shape : c->op->out[0].shape;
    const int64_t *ys = c->op->in[1].shape;
    const real *w = data ? c->in[0] : NULL, *x = data ? NULL : c->in[0], *dy = c->in[1];
    double *sum = temporary(numel(&c->op->out[0]));
    int64_t at = 0;
    for (int64_t n = 0; n < ys[0]; n++)
        for (int64_t p = 0; p < ys[1]; p++)
            for (int64_t q = 0; q < ys[2]; q++)
                for (int64_t o = 0; o < ys[3]; o++, at++)
                    for (int64_t i = 0; i < ws[2]; i++)
                        for (int64_t j = 0; j < ws[3]; j++) {
                            int64_t h = p * c->attr->stride + i - c->attr->pad;
                            int64_t v = q * c->attr->stride + j - c->attr->pad;
                            if (h < 0 || h >= xs[1] || v < 0 || v >= xs[2])
                                continue;
                            for (int64_t k = 0; k < xs[3]; k++) {
                                int64_t xi = ((n * xs[1] + h) * xs[2] + v) * xs[3] + k;
                                int64_t wi = ((o * ws[1] + k) * ws[2] + i) * ws[3] + j;
                                sum[data ? xi : wi] += (double)dy[at] * (data ? w[wi] : x[xi]);
                            }
                        }
    if (data) {
        for (int64_t i = 0; i < numel(&c->op->out[0]); i++)
            ((real *)c->out[0])[i] = (real)sum[i];
    } else {
        store_gradient(c, 0, 0, sum);
    }
    free(sum);
    return true;
}

static bool run_window_pool_grad(const struct call *c)
{
    bool max = c->op->kind == LS_K_MAX_POOL_GRAD;
    const uint8_t *place = max ? c->in[0] : NULL;
    const real *dy = c->in[max ? 1 : 0];
    const int64_t *ys = c->op->in[max ? 1 : 0].shape, *xs = c->op->out[0].shape;
    int64_t size = c->attr->kernel, at = 0;
    double *sum = temporary(numel(&c->op->out[0]));
    for (int64_t n = 0; n < ys[0]; n++)
        for (int64_t p = 0; p < ys[1]; p++)
            for (int64_t q = 0; q < ys[2]; q++)
                for (int64_t k = 0; k < ys[3]; k++, at++)
                    for (int64_t i = 0; i < size; i++)
                        for (int64_t j = 0; j < size; j++) {
                            int64_t h = p * c->attr->stride + i - c->attr->pad;
                            int64_t v = q * c->attr->stride + j - c->attr->pad;
                            if (h < 0 || h >= xs[1] || v < 0 || v >= xs[2])
                                continue;
                            if (max && place[at] != i * size + j)
                                continue;
                            sum[((n * xs[1] + h) * xs[2] + v) * xs[3] + k] +=
                                max ? dy[at] : dy[at] / (double)(size * size);
                        }
    for (int64_t i = 0; i < numel(&c->op->out[0]); i++)
        ((real *)c->out[0])[i] = (real)sum[i];
    free(sum);
    return true;
}

static bool run_global_pool_grad(const struct call *c)
{
    const real *dy = c->in[0];
    real *dx = c->out[0];
    const int64_t *xs = c->op->out[0].shape;
    int64_t area = xs[1] * xs[2], n = numel(&c->op->out[0]);
    for (int64_t i = 0; i < n; i++)
        dx[i] = (real)(dy[i / (area * xs[3]) * xs[3] + i % xs[3]] / (double)area);
    return true;
}

static bool run_batch_norm_grad(const struct call *c)
{
    const real *x = c->in[0], *gain = c->in[1], *mean = c->in[2], *rstd = c->in[3], *dy = c->in[4];
    real *dx = c->out[0];
    int64_t n = numel(&c->op->in[0]), channels = last_dim(&c->op->in[0]), rows = n / channels;
    double *dgain = temporary(channels), *dbias = temporary(channels);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % channels;
        dbias[k] += dy[i];
        dgain[k] += (double)dy[i] * (((double)x[i] - mean[k]) * rstd[k]);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % channels;
        double h = ((double)x[i] - mean[k]) * rstd[k];
        double d = dy[i] - (dbias[k] + h * dgain[k]) / (double)rows;
        dx[i] = (real)(d * gain[k] * rstd[k]);
    }
    store_gradient(c, 1, 1, dgain);
    store_gradient(c, 2, 1, dbias);
    free(dgain);
    free(dbias);
    return true;
}

static bool run_xent_grad(const struct call *c)
{
    const real *x = c->in[0], *lse = c->in[2];
    const int32_t *label = c->in[1];
    real *dx = c->out[0];
    int64_t rows = c->op->in[0].shape[0], width = c->op->in[0].shape[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            dx[i * width + j] = label[i] < 0 ? 0
                                             : (real)(exp((double)x[i * width + j] - lse[i]) -
                                                      (c->attr->first + j == label[i]));
    return true;
}

static bool run_sum_rows(const struct call *c)
{
    const real *x = c->in[0];
    int64_t n = numel(&c->op->in[0]), width = last_dim(&c->op->in[0]);
    double *sum = temporary(width);
    for (int64_t i = 0; i < n; i++)
        sum[i % width] += x[i];
    store_gradient(c, 0, 0, sum);
    free(sum);
    return true;
}
