/* Forward kinds of the reference. Included with `real` defined; see kernels.h. */

static double gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2.0));
}

static double activate(enum ls_act act, double x)
{
    if (act == LS_OP_ACT_RELU)
        return x <= 0 ? 0 : x; /* NaN stays NaN */
    return act == LS_OP_ACT_GELU ? gelu(x) : x;
}

/* Adds the bias, keeps the value before the activation where asked to, activates. `j` is the place
 * in the last dimension. */
static void epilogue(const struct call *c, int64_t i, int64_t j, double sum)
{
    real v = (real)sum;
    if (c->attr->bias)
        v = (real)(v + ((const real *)c->in[2])[j]);
    if (c->attr->keep_pre)
        ((real *)c->out[1])[i] = v;
    ((real *)c->out[0])[i] = (real)activate(c->attr->act, v);
}

static bool run_matmul(const struct call *c)
{
    const struct ls_attr *a = c->attr;
    const struct ls_op_desc *op = c->op;
    const real *x = c->in[0], *w = c->in[1];
    int64_t m = op->out[0].shape[0], n = op->out[0].shape[1];
    int64_t q = op->in[0].shape[a->ta ? 0 : 1];
    if (a->accumulate && (a->bias || a->act != LS_OP_ACT_NONE))
        return false;
    double *sum = temporary(m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < q; k++)
                sum[i * n + j] += (double)(a->ta ? x[k * m + i] : x[i * q + k]) *
                                  (a->tb ? w[j * q + k] : w[k * n + j]);
    if (a->accumulate)
        store_gradient(c, 0, 0, sum);
    for (int64_t i = 0; i < m * n && !a->accumulate; i++)
        epilogue(c, i, i % n, sum[i]);
    free(sum);
    return true;
}

static bool run_bias(const struct call *c)
{
    const real *x = c->in[0], *b = c->in[1];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]), j = last_dim(&c->op->in[0]);
    for (int64_t i = 0; i < n; i++)
        y[i] = (real)(x[i] + b[i % j]);
    return true;
}

static bool run_activation(const struct call *c)
{
    enum ls_act act = c->op->kind == LS_K_RELU ? LS_OP_ACT_RELU : LS_OP_ACT_GELU;
    const real *x = c->in[0];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]);
    for (int64_t i = 0; i < n; i++)
        y[i] = (real)activate(act, x[i]);
    return true;
}

static bool run_add(const struct call *c)
{
    const real *a = c->in[0], *b = c->in[1];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]);
    for (int64_t i = 0; i < n; i++)
        y[i] = (real)(a[i] + b[i]);
    return true;
}

static bool run_conv2d(const struct call *c)
{
    const int64_t *xs = c->op->in[0].shape, *ws = c->op->in[1].shape, *ys = c->op->out[0].shape;
    const real *x = c->in[0], *w = c->in[1];
    if (c->attr->act == LS_OP_ACT_GELU)
        return false;
    int64_t at = 0;
    for (int64_t n = 0; n < ys[0]; n++)
        for (int64_t p = 0; p < ys[1]; p++)
            for (int64_t q = 0; q < ys[2]; q++)
                for (int64_t o = 0; o < ys[3]; o++, at++) {
                    double sum = 0;
                    for (int64_t i = 0; i < ws[2]; i++)
                        for (int64_t j = 0; j < ws[3]; j++) {
                            int64_t h = p * c->attr->stride + i - c->attr->pad;
                            int64_t v = q * c->attr->stride + j - c->attr->pad;
                            if (h < 0 || h >= xs[1] || v < 0 || v >= xs[2])
                                continue;
                            for (int64_t k = 0; k < xs[3]; k++)
                                sum += (double)x[((n * xs[1] + h) * xs[2] + v) * xs[3] + k] *
                                       w[((o * ws[1] + k) * ws[2] + i) * ws[3] + j];
                        }
                    epilogue(c, at, o, sum);
                }
    return true;
}

/* Both pools of windows: y[at] from the window of x that (n, p, q, k) sees. */
static bool run_window_pool(const struct call *c)
{
    const int64_t *xs = c->op->in[0].shape, *ys = c->op->out[0].shape;
    const real *x = c->in[0];
    real *y = c->out[0];
    bool max = c->op->kind == LS_K_MAX_POOL;
    uint8_t *place = max ? c->out[1] : NULL;
    int64_t size = c->attr->kernel, at = 0;
    for (int64_t n = 0; n < ys[0]; n++)
        for (int64_t p = 0; p < ys[1]; p++)
            for (int64_t q = 0; q < ys[2]; q++)
                for (int64_t k = 0; k < ys[3]; k++, at++) {
                    double best = -INFINITY, sum = 0;
                    int64_t where = -1;
                    for (int64_t i = 0; i < size; i++)
                        for (int64_t j = 0; j < size; j++) {
                            int64_t h = p * c->attr->stride + i - c->attr->pad;
                            int64_t v = q * c->attr->stride + j - c->attr->pad;
                            if (h < 0 || h >= xs[1] || v < 0 || v >= xs[2])
                                continue;
                            double e = x[((n * xs[1] + h) * xs[2] + v) * xs[3] + k];
                            sum += e;
                            if (where < 0 || e > best || (isnan(e) && !isnan(best))) {
                                best = e;
                                where = i * size + j;
                            }
                        }
                    y[at] = (real)(max ? best : sum / (double)(size * size));
                    if (max)
                        place[at] = (uint8_t)where;
                }
    return true;
}

static bool run_global_pool(const struct call *c)
{
    const int64_t *xs = c->op->in[0].shape;
    const real *x = c->in[0];
    real *y = c->out[0];
    int64_t area = xs[1] * xs[2];
    for (int64_t n = 0; n < xs[0]; n++)
        for (int64_t k = 0; k < xs[3]; k++) {
            double sum = 0;
            for (int64_t i = 0; i < area; i++)
                sum += x[(n * area + i) * xs[3] + k];
            y[n * xs[3] + k] = (real)(sum / (double)area);
        }
    return true;
}

static bool run_batch_norm(const struct call *c)
{
    const real *x = c->in[0], *gain = c->in[1], *bias = c->in[2];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]), channels = last_dim(&c->op->in[0]), rows = n / channels;
    for (int64_t k = 0; k < channels; k++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < rows; i++)
            mean += x[i * channels + k];
        mean /= (double)rows;
        for (int64_t i = 0; i < rows; i++)
            var += (x[i * channels + k] - mean) * (x[i * channels + k] - mean);
        double rstd = 1 / sqrt(var / (double)rows + c->attr->eps);
        ((real *)c->out[1])[k] = (real)mean;
        ((real *)c->out[2])[k] = (real)rstd;
        /* one row has no unbiased variance: 0, not 0 / 0 */
        ((real *)c->out[3])[k] = (real)(var / (double)(rows > 1 ? rows - 1 : 1));
        for (int64_t i = 0; i < rows; i++) {
            double v = (x[i * channels + k] - mean) * rstd * gain[k] + bias[k];
            y[i * channels + k] = (real)activate(c->attr->act, (real)v);
        }
    }
    return true;
}

static bool run_batch_norm_eval(const struct call *c)
{
    const real *x = c->in[0], *gain = c->in[1], *bias = c->in[2], *mean = c->in[3], *var = c->in[4];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]), channels = last_dim(&c->op->in[0]);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % channels;
        double v = ((double)x[i] - mean[k]) / sqrt((double)var[k] + c->attr->eps) * gain[k];
        y[i] = (real)activate(c->attr->act, (real)(v + bias[k]));
    }
    return true;
}

static bool run_dropout(const struct call *c)
{
    const real *x = c->in[0];
    const double *control = c->in[1];
    real *y = c->out[0];
    int64_t n = numel(&c->op->in[0]), rows = c->op->in[0].shape[0];
    int64_t inner = rows > 0 ? n / rows : 0;
    int64_t mine = last_dim(&c->op->in[0]), whole = c->attr->whole ? c->attr->whole : mine;
    uint64_t key = ls_mix64((uint64_t)control[LS_C_SEED], c->attr->path);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (int64_t)control[LS_C_SAMPLE] + i / inner, at = i % inner;
        int64_t place = at / mine * whole + c->attr->first + at % mine;
        uint64_t index = (uint64_t)(row * (inner / mine * whole) + place);
        bool keep = ls_uniform(key, (uint64_t)control[LS_C_STEP], index) >= c->attr->rate;
        y[i] = keep ? (real)(x[i] / (1 - c->attr->rate)) : 0;
    }
    return true;
}

static bool run_xent(const struct call *c)
{
    const real *x = c->in[0];
    const int32_t *label = c->in[1];
    int64_t rows = c->op->in[0].shape[0], width = c->op->in[0].shape[1];
    double loss = 0, count = 0;
    for (int64_t i = 0; i < rows; i++) {
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < width; j++)
            max = fmax(max, x[i * width + j]);
        for (int64_t j = 0; j < width; j++)
            sum += exp(x[i * width + j] - max);
        ((real *)c->out[2])[i] = (real)(max + log(sum));
        if (label[i] < 0)
            continue;
        loss += max + log(sum) - x[i * width + label[i]];
        count += 1;
    }
    *(real *)c->out[0] = (real)loss;
    *(real *)c->out[1] = (real)count;
    return true;
}

static bool run_top1(const struct call *c)
{
    const real *x = c->in[0];
    const int32_t *label = c->in[1];
    int64_t rows = c->op->in[0].shape[0], width = c->op->in[0].shape[1];
    double right = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t best = 0;
        for (int64_t j = 1; j < width; j++)
            if (x[i * width + j] > x[i * width + best])
                best = j;
        right += label[i] >= 0 && label[i] == best;
    }
    *(real *)c->out[0] = (real)right;
    return true;
}
