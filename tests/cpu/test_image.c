/* Kinds on images, forward and backward: convolutions (plain and packed filters), pooling, batch
 * norm. */
#include "tests/cpu/op_case.h"

#include <math.h>
#include <stdio.h>

/* ---- convolutions ---------------------------------------------------------------------------- */

struct conv {
    int n, h, w, c, o, ky, kx, stride, pad;
};

static int extent(int in, int kernel, int stride, int pad)
{
    return (in + 2 * pad - kernel) / stride + 1;
}

static struct op_case conv_case(const struct conv *v, enum ls_kind kind)
{
    int p = extent(v->h, v->ky, v->stride, v->pad), q = extent(v->w, v->kx, v->stride, v->pad);
    struct op_case c = {.kind = kind, .attr = {.stride = v->stride, .pad = v->pad}};
    if (kind == LS_K_CONV2D) {
        op_in(&c, LS_F32, 4, v->n, v->h, v->w, v->c);
        op_in(&c, LS_F32, 4, v->o, v->c, v->ky, v->kx);
        op_out(&c, LS_F32, 4, v->n, p, q, v->o);
    } else if (kind == LS_K_CONV2D_GRAD_DATA) {
        c.attr.height = v->h, c.attr.width = v->w;
        op_in(&c, LS_F32, 4, v->o, v->c, v->ky, v->kx);
        op_in(&c, LS_F32, 4, v->n, p, q, v->o);
        op_out(&c, LS_F32, 4, v->n, v->h, v->w, v->c);
    } else {
        c.attr.height = v->ky, c.attr.width = v->kx;
        op_in(&c, LS_F32, 4, v->n, v->h, v->w, v->c);
        op_in(&c, LS_F32, 4, v->n, p, q, v->o);
        op_out(&c, LS_F32, 4, v->o, v->c, v->ky, v->kx);
    }
    return c;
}

static void add_bias(struct op_case *c, int o)
{
    struct ls_operand y = c->io[2];
    c->attr.bias = true;
    c->nout = 0;
    op_in(c, LS_F32, 1, o);
    c->io[c->nin] = y;
    c->nout = 1;
}

static void check_conv(void)
{
    static const struct conv all[] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 0},   {2, 5, 7, 3, 4, 3, 3, 1, 1},
        {3, 28, 28, 1, 8, 3, 3, 1, 1}, {2, 14, 14, 16, 32, 3, 3, 1, 1},
        {2, 9, 9, 8, 16, 3, 3, 2, 1},  {2, 8, 8, 32, 17, 1, 1, 1, 0},
        {2, 8, 8, 16, 32, 1, 1, 2, 0}, {1, 12, 10, 5, 7, 5, 3, 2, 2},
        {4, 7, 7, 64, 64, 3, 3, 1, 1}, {1, 16, 16, 3, 16, 7, 7, 2, 3},
        {5, 6, 6, 2, 33, 3, 3, 3, 0},  {9, 10, 10, 8, 8, 3, 3, 1, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct conv *v = &all[i];
        char name[96];
        snprintf(name, sizeof name, "%dx%dx%dx%d * %dx%dx%d, stride %d, pad %d", v->n, v->h, v->w,
                 v->c, v->o, v->ky, v->kx, v->stride, v->pad);
        struct op_case c = conv_case(v, LS_K_CONV2D);
        op_check(&c, "conv2d %s", name);
        c.attr.act = LS_OP_ACT_RELU;
        op_check(&c, "conv2d %s, ReLU", name);
        c.poison = 1, c.poison_value = NAN;
        op_check(&c, "conv2d %s, ReLU, a NaN in the image", name);
        c = conv_case(v, LS_K_CONV2D);
        add_bias(&c, v->o);
        op_check(&c, "conv2d %s, bias", name);
        c.attr.act = LS_OP_ACT_RELU;
        op_check(&c, "conv2d %s, bias, ReLU", name);
        c = conv_case(v, LS_K_CONV2D_GRAD_DATA);
        op_check(&c, "conv2d_grad_data %s", name);
        c = conv_case(v, LS_K_CONV2D_GRAD_WEIGHT);
        op_check(&c, "conv2d_grad_weight %s", name);
        op_accumulate(&c, 0);
        for (int micro = 0; micro < 2; micro++) {
            c.control[LS_C_MICRO] = micro;
            op_check(&c, "conv2d_grad_weight %s, micro-batch %d", name, micro);
        }
    }
    struct op_case c = conv_case(&all[1], LS_K_CONV2D);
    c.attr.act = LS_OP_ACT_GELU;
    op_refused(&c, "GELU", "conv2d with GELU");
    c = conv_case(&all[1], LS_K_CONV2D);
    c.io[2].shape[1]++;
    op_refused(&c, "conv2d on f32[2,5,7,3]", "conv2d with a result of the wrong size");
    c = conv_case(&all[1], LS_K_CONV2D);
    c.attr.stride = 0;
    op_refused(&c, "stride", "conv2d with stride 0");
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* A NaN wins its window, wherever it stands (the reference drops it unless it comes first). */
static bool nan_wins(int kernel, int channels, int at)
{
    const struct ls_device_api *api = op_api();
    struct op_case c = {.kind = LS_K_MAX_POOL, .attr = {.kernel = kernel, .stride = kernel}};
    op_in(&c, LS_F32, 4, 1, kernel, kernel, channels);
    op_out(&c, LS_F32, 4, 1, 1, 1, channels);
    op_out(&c, LS_U8, 4, 1, 1, 1, channels);
    float x[9 * 64], y[64];
    uint8_t place[64];
    for (int i = 0; i < kernel * kernel * channels; i++)
        x[i] = (float)i;
    x[at * channels + 1] = NAN;
    void *io[] = {x, y, place};
    struct ls_op_desc desc = {c.kind, &c.attr, 1, 2, c.io, c.io + 1};
    struct ls_kernel *kernel_made = NULL;
    struct ls_error err = {0};
    int64_t bytes;
    if (api->prepare(op_device(1), &desc, &kernel_made, &bytes, &err) != LS_OK)
        return false;
    api->launch(op_device(1), kernel_made, io, NULL, &err);
    api->release(op_device(1), kernel_made);
    int last = kernel * kernel - 1;
    return isnan(y[1]) && place[1] == at && y[0] == x[last * channels] && place[0] == last;
}

static void check_pools(void)
{
    static const int all[][7] = {
        /* n h w c kernel stride pad */
        {1, 1, 1, 1, 1, 1, 0},  {2, 4, 4, 3, 2, 2, 0},    {2, 7, 9, 33, 2, 2, 0},
        {2, 7, 9, 48, 2, 2, 0}, {3, 28, 28, 8, 2, 2, 0},  {2, 7, 9, 70, 3, 2, 1},
        {2, 8, 8, 64, 3, 1, 1}, {1, 11, 5, 130, 4, 3, 2}, {1, 20, 20, 2, 16, 1, 3}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int *v = all[i];
        int p = extent(v[1], v[4], v[5], v[6]), q = extent(v[2], v[4], v[5], v[6]);
        char name[96];
        snprintf(name, sizeof name, "%dx%dx%dx%d, kernel %d, stride %d, pad %d", v[0], v[1], v[2],
                 v[3], v[4], v[5], v[6]);
        for (int max = 0; max < 2; max++) {
            struct op_case c = {.kind = max ? LS_K_MAX_POOL : LS_K_AVG_POOL,
                                .attr = {.kernel = v[4], .stride = v[5], .pad = v[6]}};
            op_in(&c, LS_F32, 4, v[0], v[1], v[2], v[3]);
            op_out(&c, LS_F32, 4, v[0], p, q, v[3]);
            if (max)
                op_out(&c, LS_U8, 4, v[0], p, q, v[3]);
            op_check(&c, "%s_pool %s", max ? "max" : "avg", name);
            c.poison = 1, c.poison_value = NAN;
            op_check(&c, "%s_pool %s, with a NaN", max ? "max" : "avg", name);
            struct op_case g = {
                .kind = max ? LS_K_MAX_POOL_GRAD : LS_K_AVG_POOL_GRAD,
                .attr = {
                    .kernel = v[4], .stride = v[5], .pad = v[6], .height = v[1], .width = v[2]}};
            if (max)
                op_in(&g, LS_U8, 4, v[0], p, q, v[3]);
            op_in(&g, LS_F32, 4, v[0], p, q, v[3]);
            op_out(&g, LS_F32, 4, v[0], v[1], v[2], v[3]);
            if (!max || v[6] == 0) /* made-up places may lie in the padding */
                op_check(&g, "%s_pool_grad %s", max ? "max" : "avg", name);
        }
        for (int grad = 0; grad < 2; grad++) {
            struct op_case c = {.kind = grad ? LS_K_GLOBAL_POOL_GRAD : LS_K_GLOBAL_POOL,
                                .attr = {.height = v[1], .width = v[2]}};
            if (grad)
                op_in(&c, LS_F32, 2, v[0], v[3]), op_out(&c, LS_F32, 4, v[0], v[1], v[2], v[3]);
            else
                op_in(&c, LS_F32, 4, v[0], v[1], v[2], v[3]), op_out(&c, LS_F32, 2, v[0], v[3]);
            op_check(&c, "global_pool%s %s", grad ? "_grad" : "", name);
        }
    }
    struct op_case c = {.kind = LS_K_MAX_POOL, .attr = {.kernel = 2, .stride = 2, .pad = 2}};
    op_in(&c, LS_F32, 4, 1, 4, 4, 1);
    op_out(&c, LS_F32, 4, 1, 4, 4, 1);
    op_out(&c, LS_U8, 4, 1, 4, 4, 1);
    op_refused(&c, "pad < kernel", "max_pool with windows in the padding alone");
    bool ok = true;
    for (int at = 0; at < 9; at++)
        ok = ok && nan_wins(3, 5, at) && (at > 3 || nan_wins(2, 64, at));
    op_ok(ok, "max_pool: a NaN wins");
}

/* ---- batch norm ------------------------------------------------------------------------------ */

static struct op_case norm(int n, int h, int w, int ch, bool relu)
{
    struct op_case c = {.kind = LS_K_BATCH_NORM,
                        .attr = {.eps = 1e-5, .act = relu ? LS_OP_ACT_RELU : LS_OP_ACT_NONE}};
    op_in(&c, LS_F32, 4, n, h, w, ch);
    op_in(&c, LS_F32, 1, ch);
    op_in(&c, LS_F32, 1, ch);
    op_out(&c, LS_F32, 4, n, h, w, ch);
    for (int i = 0; i < 3; i++)
        op_out(&c, LS_F32, 1, ch);
    return c;
}

static struct op_case norm_eval(int n, int h, int w, int ch, bool relu)
{
    struct op_case c = {.kind = LS_K_BATCH_NORM_EVAL,
                        .attr = {.eps = 1e-5, .act = relu ? LS_OP_ACT_RELU : LS_OP_ACT_NONE}};
    op_in(&c, LS_F32, 4, n, h, w, ch);
    for (int i = 0; i < 4; i++)
        op_in(&c, LS_F32, 1, ch);
    c.fill[4] = OP_POSITIVE;
    op_out(&c, LS_F32, 4, n, h, w, ch);
    return c;
}

static struct op_case norm_grad(int n, int h, int w, int ch)
{
    struct op_case c = {.kind = LS_K_BATCH_NORM_GRAD, .tolerance = 1e-4};
    op_in(&c, LS_F32, 4, n, h, w, ch);
    for (int i = 0; i < 3; i++)
        op_in(&c, LS_F32, 1, ch);
    c.fill[3] = OP_POSITIVE;
    op_in(&c, LS_F32, 4, n, h, w, ch);
    op_out(&c, LS_F32, 4, n, h, w, ch);
    op_out(&c, LS_F32, 1, ch);
    op_out(&c, LS_F32, 1, ch);
    return c;
}

static void check_norm(void)
{
    static const int all[][4] = {{1, 1, 1, 1},   {2, 1, 1, 3},     {5, 3, 7, 3},
                                 {4, 28, 28, 8}, {9, 7, 7, 64},    {1, 130, 1, 1},
                                 {3, 5, 5, 300}, {64, 14, 14, 16}, {2, 2, 2, 65}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int *v = all[i];
        char name[64];
        snprintf(name, sizeof name, "%dx%dx%dx%d", v[0], v[1], v[2], v[3]);
        for (int relu = 0; relu < 2; relu++) {
            struct op_case c = norm(v[0], v[1], v[2], v[3], relu);
            op_check(&c, "batch_norm %s%s", name, relu ? ", ReLU" : "");
            c = norm_eval(v[0], v[1], v[2], v[3], relu);
            op_check(&c, "batch_norm_eval %s%s", name, relu ? ", ReLU" : "");
        }
        struct op_case c = norm_grad(v[0], v[1], v[2], v[3]);
        op_check(&c, "batch_norm_grad %s", name);
        op_accumulate(&c, 1);
        for (int micro = 0; micro < 2; micro++) {
            c.control[LS_C_MICRO] = micro;
            op_check(&c, "batch_norm_grad %s, micro-batch %d", name, micro);
        }
    }
    struct op_case c = norm(4, 9, 9, 24, true);
    c.poison = 1, c.poison_value = NAN;
    op_check(&c, "batch_norm with a NaN: its channel is NaN, no other");
    c = norm(16, 20, 20, 4, false);
    c.poison = 1, c.poison_value = 1e4;
    op_check(&c, "batch_norm with one value far out");
    c = norm(2, 3, 3, 5, false);
    c.io[1].shape[0] = 4;
    op_refused(&c, "one value per channel", "batch_norm with a short gain");
}

int main(void)
{
    check_conv();
    check_pools();
    check_norm();
    return op_done();
}
