/* Forward kinds of the CPU backend: dense layers, activations, dropout, loss. */
#include "tests/cpu/op_case.h"

#include <math.h>

static struct op_case matmul(int m, int n, int k, bool ta, bool tb)
{
    struct op_case c = {.kind = LS_K_MATMUL, .attr = {.ta = ta, .tb = tb}};
    op_in(&c, LS_F32, 2, ta ? k : m, ta ? m : k);
    op_in(&c, LS_F32, 2, tb ? n : k, tb ? k : n);
    op_out(&c, LS_F32, 2, m, n);
    return c;
}

static struct op_case matmul_bias(int m, int n, int k, enum ls_act act, bool keep_pre)
{
    struct op_case c = {.kind = LS_K_MATMUL,
                        .attr = {.bias = true, .act = act, .keep_pre = keep_pre}};
    op_in(&c, LS_F32, 2, m, k);
    op_in(&c, LS_F32, 2, k, n);
    op_in(&c, LS_F32, 1, n);
    op_out(&c, LS_F32, 2, m, n);
    if (keep_pre)
        op_out(&c, LS_F32, 2, m, n);
    return c;
}

static void check_matmul(void)
{
    static const int size[][3] = {{1, 1, 1},      {1, 17, 5},     {3, 2, 300},    {16, 512, 784},
                                  {128, 10, 512}, {128, 512, 64}, {784, 512, 16}, {129, 67, 131},
                                  {33, 1, 40},    {5, 48, 1},     {200, 31, 513}, {1, 700, 90}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int t = 0; t < 4; t++) {
            const int *d = size[s];
            struct op_case c = matmul(d[0], d[1], d[2], t & 1, t & 2);
            op_check(&c, "matmul %dx%dx%d%s%s", d[0], d[1], d[2], t & 1 ? " ta" : "",
                     t & 2 ? " tb" : "");
            op_accumulate(&c, 0);
            for (int micro = 0; micro < 2; micro++) {
                c.control[LS_C_MICRO] = micro;
                op_check(&c, "matmul %dx%dx%d%s%s, accumulating, micro-batch %d", d[0], d[1], d[2],
                         t & 1 ? " ta" : "", t & 2 ? " tb" : "", micro);
            }
        }
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        const int *d = size[s];
        for (int act = LS_OP_ACT_NONE; act <= LS_OP_ACT_GELU; act++)
            for (int pre = 0; pre <= (act == LS_OP_ACT_GELU); pre++) {
                struct op_case c = matmul_bias(d[0], d[1], d[2], (enum ls_act)act, pre);
                op_check(&c, "matmul %dx%dx%d with bias, activation %d%s", d[0], d[1], d[2], act,
                         pre ? ", value before it" : "");
            }
    }
    struct op_case c = matmul(20, 40, 30, false, false);
    c.attr.act = LS_OP_ACT_RELU;
    op_check(&c, "matmul with activation and no bias");
    for (int poison = 1; poison <= 3; poison++) {
        struct op_case p = matmul_bias(37, 50, 24, LS_OP_ACT_RELU, false);
        p.poison = poison, p.poison_value = NAN;
        op_check(&p, "matmul with bias and ReLU, NaN in operand %d", poison - 1);
    }
    c = matmul(37, 50, 24, true, false);
    c.poison = 2, c.poison_value = INFINITY;
    op_check(&c, "matmul ta, an infinity in operand 1");
}

static const int sizes[] = {1, 7, 64, 1000, 40001};

static void check_elementwise(void)
{
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        static const enum ls_kind unary[] = {LS_K_RELU, LS_K_GELU};
        static const enum ls_kind binary[] = {LS_K_ADD, LS_K_RELU_GRAD, LS_K_GELU_GRAD};
        for (int k = 0; k < 2; k++)
            for (int nan = 0; nan < 2; nan++) {
                struct op_case c = {.kind = unary[k], .scale = 3};
                op_in(&c, LS_F32, 1, n);
                op_out(&c, LS_F32, 1, n);
                c.poison = nan, c.poison_value = NAN;
                op_check(&c, "%s of %d%s", k ? "gelu" : "relu", n, nan ? ", with a NaN" : "");
            }
        for (int k = 0; k < 3; k++) {
            struct op_case c = {.kind = binary[k], .scale = 3};
            op_in(&c, LS_F32, 2, 1, n);
            op_in(&c, LS_F32, 2, 1, n);
            op_out(&c, LS_F32, 2, 1, n);
            op_check(&c, "%s of %d", k == 0 ? "add" : k == 1 ? "relu_grad" : "gelu_grad", n);
        }
        for (int micro = 0; micro < 2; micro++) {
            struct op_case c = {.kind = LS_K_ACCUM, .state = {1}};
            op_in(&c, LS_F32, 1, n);
            op_in(&c, LS_F32, 1, n);
            op_control(&c);
            op_out(&c, LS_F32, 1, n);
            c.control[LS_C_MICRO] = micro;
            op_check(&c, "accum of %d, micro-batch %d", n, micro);
        }
    }
    static const int rows[][2] = {{1, 1}, {3, 5}, {300, 130}, {1, 4000}, {5000, 10}};
    for (size_t s = 0; s < sizeof rows / sizeof *rows; s++) {
        struct op_case c = {.kind = LS_K_BIAS};
        op_in(&c, LS_F32, 2, rows[s][0], rows[s][1]);
        op_in(&c, LS_F32, 1, rows[s][1]);
        op_out(&c, LS_F32, 2, rows[s][0], rows[s][1]);
        op_check(&c, "bias %dx%d", rows[s][0], rows[s][1]);
    }
    static const double far[] = {INFINITY, -INFINITY, 20, -20, -9, 1e30, -1e30};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        for (int grad = 0; grad < 2; grad++) {
            struct op_case c = {.kind = grad ? LS_K_GELU_GRAD : LS_K_GELU, .poison = 1};
            op_in(&c, LS_F32, 1, 40);
            if (grad)
                op_in(&c, LS_F32, 1, 40);
            op_out(&c, LS_F32, 1, 40);
            c.poison_value = far[i];
            if (isfinite(far[i])) /* the reference gives inf * 0 = NaN for -inf */
                op_check(&c, "gelu%s at %g", grad ? "_grad" : "", far[i]);
        }
}

static void check_dropout(void)
{
    static const int shape[][2] = {{1, 1}, {3, 5}, {7, 513}, {64, 1000}};
    static const double rate[] = {0, 0.1, 0.5, 0.999};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (size_t r = 0; r < sizeof rate / sizeof *rate; r++)
            for (int far = 0; far < 2; far++) {
                struct op_case c = {.kind = LS_K_DROPOUT,
                                    .attr = {.rate = rate[r], .path = ls_hash64("layer.1")}};
                op_in(&c, LS_F32, 2, shape[s][0], shape[s][1]);
                op_control(&c);
                op_out(&c, LS_F32, 2, shape[s][0], shape[s][1]);
                c.control[LS_C_SEED] = 5, c.control[LS_C_STEP] = 1e10 * far + 3;
                c.control[LS_C_SAMPLE] = far ? 5e9 + 1 : 17;
                op_check(&c, "dropout %dx%d at rate %g%s", shape[s][0], shape[s][1], rate[r],
                         far ? ", far out in the sample order" : "");
            }
}

static struct op_case xent(int n, int v, enum ls_kind kind)
{
    struct op_case c = {.kind = kind, .scale = 3};
    op_in(&c, LS_F32, 2, n, v);
    op_in(&c, LS_I32, 1, n);
    if (kind == LS_K_XENT_GRAD) {
        op_in(&c, LS_F32, 1, n);
        op_out(&c, LS_F32, 2, n, v);
        c.tolerance = 1e-5;
    } else {
        op_out(&c, LS_F32, 0);
        if (kind == LS_K_XENT) {
            op_out(&c, LS_F32, 0);
            op_out(&c, LS_F32, 1, n);
        }
    }
    return c;
}

static void check_loss(void)
{
    static const int shape[][2] = {{1, 1},  {1, 10},  {16, 10},   {33, 10}, {128, 10},
                                   {7, 64}, {19, 65}, {40, 1000}, {5, 3},   {2000, 17}};
    static const char *const name[] = {"xent", "xent_grad", "top1"};
    static const enum ls_kind kind[] = {LS_K_XENT, LS_K_XENT_GRAD, LS_K_TOP1};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int k = 0; k < 3; k++) {
            struct op_case c = xent(shape[s][0], shape[s][1], kind[k]);
            op_check(&c, "%s %dx%d", name[k], shape[s][0], shape[s][1]);
        }
    struct op_case c = xent(20, 10, LS_K_XENT);
    c.poison = 2, c.poison_value = -100;
    op_check(&c, "xent with another negative label");
    c = xent(20, 10, LS_K_XENT);
    c.scale = 1e4;
    op_check(&c, "xent of large logits");
    c = xent(37, 10, LS_K_XENT_GRAD);
    c.poison = 1, c.poison_value = NAN;
    op_check(&c, "xent_grad with a NaN");
    for (int fall = 0; fall < 2; fall++) { /* ties: only the first largest counts */
        c = xent(50, 4, LS_K_TOP1);
        c.scale = 1e-300; /* all logits become zero */
        op_check(&c, "top1 of equal logits");
    }
}

static void check_refusals(void)
{
    struct op_case c = matmul(3, 4, 5, false, false);
    c.io[1].shape[0] = 6;
    op_refused(&c, "matmul on f32[3,5] f32[6,4] -> f32[3,4]", "matmul of unlike inner extents");
    c = matmul(3, 4, 5, false, false);
    c.io[0].dtype = LS_F64;
    op_refused(&c, "element type", "matmul on float64");
    c = matmul(3, 4, 5, false, false);
    c.io[1].packed = true;
    op_refused(&c, "packed", "matmul with an operand packed for another op");
    c = matmul_bias(3, 4, 5, LS_OP_ACT_RELU, false);
    c.attr.accumulate = true;
    op_refused(&c, "epilogue", "matmul that accumulates behind an epilogue");
    c = (struct op_case){.kind = LS_K_ADD};
    op_in(&c, LS_F32, 1, 4);
    op_in(&c, LS_F32, 1, 5);
    op_out(&c, LS_F32, 1, 4);
    op_refused(&c, "add on f32[4] f32[5]", "add of unlike shapes");
    c = (struct op_case){.kind = LS_K_RELU};
    op_in(&c, LS_F32, 1, 0);
    op_out(&c, LS_F32, 1, 0);
    op_refused(&c, "empty", "relu of nothing");
    c = (struct op_case){.kind = LS_K_JOIN};
    op_in(&c, LS_F32, 1, 4);
    op_out(&c, LS_F32, 1, 4);
    op_refused(&c, "no kernel", "join");
    c.kind = LS_KIND_COUNT;
    op_refused(&c, "unknown kind", "a kind that does not exist");
    c = (struct op_case){.kind = LS_K_DROPOUT, .attr = {.rate = 1}};
    op_in(&c, LS_F32, 1, 4);
    op_control(&c);
    op_out(&c, LS_F32, 1, 4);
    op_refused(&c, "rate", "dropout of everything");
}

int main(void)
{
    check_matmul();
    check_elementwise();
    check_dropout();
    check_loss();
    check_refusals();
    return op_done();
}
