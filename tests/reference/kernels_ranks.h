/* What a rank of many computes on its slice, and the table of all kinds. Included with `real` defined;
 * see kernels.h. */

/* attr from: which slice of dimension attr dim. */
static bool run_slice(const struct call *c)
{
    const struct ls_operand *x = &c->op->in[0], *y = &c->op->out[0];
    const real *from = c->in[0];
    real *to = c->out[0];
    int64_t outer = 1, inner = 1, dim = c->attr->dim;
    for (int d = 0; d < x->ndim; d++) {
        outer *= d < dim ? x->shape[d] : 1;
        inner *= d > dim ? x->shape[d] : 1;
    }
    int64_t mine = y->shape[dim] * inner, row = x->shape[dim] * inner;
    for (int64_t i = 0; i < outer; i++)
        memcpy(to + i * mine, from + i * row + c->attr->from * mine, (size_t)mine * sizeof *to);
    return true;
}

static bool run_xent_max(const struct call *c)
{
    const real *x = c->in[0];
    int64_t rows = c->op->in[0].shape[0], width = c->op->in[0].shape[1];
    for (int64_t i = 0; i < rows; i++) {
        double max = -INFINITY;
        for (int64_t j = 0; j < width; j++)
            max = fmax(max, x[i * width + j]);
        ((real *)c->out[0])[i] = (real)max;
    }
    return true;
}

static bool run_xent_sum(const struct call *c)
{
    const real *x = c->in[0], *max = c->in[2];
    const int32_t *label = c->in[1];
    int64_t rows = c->op->in[0].shape[0], width = c->op->in[0].shape[1];
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < width; j++)
            sum += exp((double)x[i * width + j] - max[i]);
        int64_t j = label[i] - c->attr->first;
        bool here = label[i] >= 0 && j >= 0 && j < width;
        ((real *)c->out[0])[i] = (real)sum;
        ((real *)c->out[1])[i] = here ? x[i * width + j] : 0;
    }
    return true;
}

static bool run_xent_finish(const struct call *c)
{
    const real *max = c->in[0], *sum = c->in[1], *hit = c->in[2];
    const int32_t *label = c->in[3];
    double loss = 0, count = 0;
    for (int64_t i = 0; i < c->op->in[0].shape[0]; i++) {
        double lse = max[i] + log((double)sum[i]);
        ((real *)c->out[2])[i] = (real)lse;
        if (label[i] < 0)
            continue;
        loss += lse - hit[i];
        count += 1;
    }
    *(real *)c->out[0] = (real)loss;
    *(real *)c->out[1] = (real)count;
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
    case LS_K_SLICE:
        return run_slice(c);
    case LS_K_XENT_MAX:
        return run_xent_max(c);
    case LS_K_XENT_SUM:
        return run_xent_sum(c);
    case LS_K_XENT_FINISH:
        return run_xent_finish(c);
    case LS_K_JOIN: /* moves nothing: what it zeroes depends on where the members lie */
    case LS_K_PACK:
    case LS_K_ALL_REDUCE: /* what ranks do together, and what depends on which rank it is */
    case LS_K_REDUCE_SCATTER:
    case LS_K_ALL_GATHER:
    case LS_K_KEEP:
    case LS_K_SEND:
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
