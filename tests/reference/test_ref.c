/* The reference's forward kinds against numbers worked out by hand. What is computed from them, the
 * derivatives and the update, is judged by tests/graph/test_grad.c. */
#include "tests/reference/ref.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

/* An operand of up to four dimensions; shape ends at the first 0. */
static struct ls_operand operand(enum ls_dtype dtype, const int64_t shape[4])
{
    struct ls_operand o = {.dtype = dtype};
    while (o.ndim < 4 && shape[o.ndim] > 0) {
        o.shape[o.ndim] = shape[o.ndim];
        o.ndim++;
    }
    return o;
}
#define F32(...) operand(LS_F32, (const int64_t[4]){__VA_ARGS__})

static bool close_to(const double *got, const double *want, int n)
{
    bool ok = true;
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-15 * fmax(1, fabs(want[i])))) {
            tap_note("element %d is %.17g, expected %.17g", i, got[i], want[i]);
            ok = false;
        }
    return ok;
}

static bool run(enum ls_kind kind, const struct ls_attr *attr, int nin, int nout,
                const struct ls_operand *io, void *const *operands)
{
    struct ls_op_desc op = {
        .kind = kind, .attr = attr, .nin = nin, .nout = nout, .in = io, .out = io + nin};
    return ls_ref_run_f64(&op, operands);
}

static double square[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}; /* a 3 x 3 image */

static void check_conv(void)
{
    double w[4] = {1, 2, 3, 4}, bias[1] = {-50}, y[4];
    struct ls_attr attr = {.stride = 1};
    run(LS_K_CONV2D, &attr, 2, 1,
        (struct ls_operand[]){F32(1, 3, 3, 1), F32(1, 1, 2, 2), F32(1, 2, 2, 1)},
        (void *[]){square, w, y});
    tap_ok(close_to(y, (double[]){37, 47, 67, 77}, 4), "conv2d correlates, it does not flip");
    attr = (struct ls_attr){.stride = 2, .pad = 1};
    run(LS_K_CONV2D, &attr, 2, 1,
        (struct ls_operand[]){F32(1, 3, 3, 1), F32(1, 1, 2, 2), F32(1, 2, 2, 1)},
        (void *[]){square, w, y});
    tap_ok(close_to(y, (double[]){4, 18, 36, 77}, 4), "conv2d: stride 2, padding 1");
    attr = (struct ls_attr){.stride = 1, .bias = true, .act = LS_OP_ACT_RELU};
    run(LS_K_CONV2D, &attr, 3, 1,
        (struct ls_operand[]){F32(1, 3, 3, 1), F32(1, 1, 2, 2), F32(1), F32(1, 2, 2, 1)},
        (void *[]){square, w, bias, y});
    tap_ok(close_to(y, (double[]){0, 0, 17, 27}, 4), "conv2d: bias, then ReLU");
    double x[2] = {3, 5}, mix[4] = {1, 10, 100, 1000};
    attr = (struct ls_attr){.stride = 1};
    run(LS_K_CONV2D, &attr, 2, 1,
        (struct ls_operand[]){F32(1, 1, 1, 2), F32(2, 2, 1, 1), F32(1, 1, 1, 2)},
        (void *[]){x, mix, y});
    tap_ok(close_to(y, (double[]){53, 5300}, 2), "conv2d: filters first, then channels");
}

static void check_pools(void)
{
    double y[4], minus[9];
    uint8_t place[4];
    struct ls_operand io[] = {F32(1, 3, 3, 1), F32(1, 2, 2, 1), F32(1, 2, 2, 1)};
    struct ls_attr attr = {.kernel = 2, .stride = 2, .pad = 1};
    run(LS_K_MAX_POOL, &attr, 1, 2, io, (void *[]){square, y, place});
    tap_ok(close_to(y, (double[]){1, 3, 7, 9}, 4) && !memcmp(place, (uint8_t[]){3, 3, 3, 3}, 4),
           "max_pool and its places");
    for (int i = 0; i < 9; i++)
        minus[i] = -1;
    run(LS_K_MAX_POOL, &attr, 1, 2, io, (void *[]){minus, y, place});
    tap_ok(close_to(y, (double[]){-1, -1, -1, -1}, 4) && !memcmp(place, (uint8_t[]){3, 2, 1, 0}, 4),
           "max_pool: padding never wins, the first of equals does");
    run(LS_K_AVG_POOL, &attr, 1, 1, io, (void *[]){square, y});
    tap_ok(close_to(y, (double[]){0.25, 1.25, 2.75, 7}, 4), "avg_pool: padding counts as zeros");
    run(LS_K_GLOBAL_POOL, &attr, 1, 1, (struct ls_operand[]){F32(1, 3, 3, 1), F32(1, 1)},
        (void *[]){square, y});
    tap_ok(close_to(y, (double[]){5}, 1), "global_pool");
}

static void check_matmul(void)
{
    double a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 2, -1}, y[9], pre[9], bias[2] = {-9, 1};
    const double want[4] = {7, -1, 16, -1}; /* [[1 2 3] [4 5 6]] [[1 0] [0 1] [2 -1]] */
    struct ls_attr attr = {0};
    run(LS_K_MATMUL, &attr, 2, 1, (struct ls_operand[]){F32(2, 3), F32(3, 2), F32(2, 2)},
        (void *[]){a, b, y});
    tap_ok(close_to(y, want, 4), "matmul");
    double at[6] = {1, 4, 2, 5, 3, 6}, bt[6] = {1, 0, 2, 0, 1, -1};
    attr = (struct ls_attr){.ta = true, .tb = true};
    run(LS_K_MATMUL, &attr, 2, 1, (struct ls_operand[]){F32(3, 2), F32(2, 3), F32(2, 2)},
        (void *[]){at, bt, y});
    tap_ok(close_to(y, want, 4), "matmul of transposed operands");
    attr = (struct ls_attr){.bias = true, .act = LS_OP_ACT_GELU, .keep_pre = true};
    run(LS_K_MATMUL, &attr, 3, 2,
        (struct ls_operand[]){F32(2, 3), F32(3, 2), F32(2), F32(2, 2), F32(2, 2)},
        (void *[]){a, b, bias, y, pre});
    /* Phi(-2) and Phi(7) from tables of the normal distribution */
    tap_ok(close_to(pre, (double[]){-2, 0, 7, 0}, 4) &&
               fabs(y[0] + 2 * 0.022750131948179) < 1e-14 && y[1] == 0 && fabs(y[2] - 7) < 1e-10,
           "matmul: bias, GELU, and the value before it");
    double acc[4] = {1, 1, 1, 1}, control[LS_CONTROL_WORDS] = {[LS_C_MICRO] = 1};
    struct ls_operand io[] = {F32(2, 3), F32(3, 2), F32(2, 2), F32(1), F32(2, 2)};
    attr = (struct ls_attr){.accumulate = true};
    run(LS_K_MATMUL, &attr, 4, 1, io, (void *[]){a, b, acc, control, acc});
    tap_ok(close_to(acc, (double[]){8, 0, 17, 0}, 4), "matmul adds to its accumulator");
    control[LS_C_MICRO] = 0;
    run(LS_K_MATMUL, &attr, 4, 1, io, (void *[]){a, b, acc, control, acc});
    tap_ok(close_to(acc, want, 4), "and overwrites it in the first micro-batch");
}

static void check_norm(void)
{
    double x[4] = {1, -5, 3, -5}, gain[2] = {3, 1}, bias[2] = {10, 2}, y[4], mean[2], rstd[2],
           var[2];
    struct ls_attr attr = {.eps = 0.25};
    run(LS_K_BATCH_NORM, &attr, 3, 4,
        (struct ls_operand[]){F32(2, 2), F32(2), F32(2), F32(2, 2), F32(2), F32(2), F32(2)},
        (void *[]){x, gain, bias, y, mean, rstd, var});
    double r = 1 / sqrt(1.25);
    tap_ok(close_to(mean, (double[]){2, -5}, 2) && close_to(rstd, (double[]){r, 2}, 2) &&
               close_to(var, (double[]){2, 0}, 2),
           "batch_norm: mean, 1 / sqrt(biased variance + eps), unbiased variance");
    tap_ok(close_to(y, (double[]){10 - 3 * r, 2, 10 + 3 * r, 2}, 4), "batch_norm");
    double m[2] = {0, -4}, v[2] = {0.75, 3.75};
    attr.act = LS_OP_ACT_RELU;
    run(LS_K_BATCH_NORM_EVAL, &attr, 5, 1,
        (struct ls_operand[]){F32(2, 2), F32(2), F32(2), F32(2), F32(2), F32(2, 2)},
        (void *[]){x, gain, (double[]){-4, 2}, m, v, y});
    tap_ok(close_to(y, (double[]){0, 1.5, 5, 1.5}, 4), "batch_norm_eval with ReLU");
}

static void check_loss(void)
{
    double x[6] = {0, log(3), 2, 2, 5, 7}, loss, count, lse[3], hits;
    int32_t label[3] = {0, 0, -1};
    struct ls_attr attr = {0};
    struct ls_operand labels = operand(LS_I32, (const int64_t[4]){3});
    run(LS_K_XENT, &attr, 2, 3, (struct ls_operand[]){F32(3, 2), labels, F32(0), F32(0), F32(3)},
        (void *[]){x, label, &loss, &count, lse});
    tap_ok(close_to(&loss, (double[]){log(4) + log(2)}, 1) && count == 2 &&
               close_to(lse, (double[]){log(4), 2 + log(2), 7 + log1p(exp(-2))}, 3),
           "xent: sum, number of labels, log-sum-exp");
    run(LS_K_TOP1, &attr, 2, 1, (struct ls_operand[]){F32(3, 2), labels, F32(0)},
        (void *[]){x, label, &hits});
    tap_ok(hits == 1, "top1: the first of equals wins, ignored rows do not count");
    double y[2], z[2] = {NAN, -3};
    run(LS_K_RELU, &attr, 1, 1, (struct ls_operand[]){F32(2), F32(2)}, (void *[]){z, y});
    tap_ok(isnan(y[0]) && y[1] == 0, "relu: NaN stays NaN");
}

static void check_dropout(void)
{
    enum { rows = 40, inner = 50 };
    static double x[rows * inner], y[rows * inner];
    double control[LS_CONTROL_WORDS] = {[LS_C_SEED] = 9, [LS_C_STEP] = 4, [LS_C_SAMPLE] = 120};
    struct ls_attr attr = {.rate = 0.25, .path = ls_hash64("here")};
    for (int i = 0; i < rows * inner; i++)
        x[i] = 3;
    run(LS_K_DROPOUT, &attr, 2, 1,
        (struct ls_operand[]){F32(rows, 5, 10), F32(1), F32(rows, 5, 10)},
        (void *[]){x, control, y});
    int kept = 0, wrong = 0;
    for (int i = 0; i < rows * inner; i++) {
        bool keep = ls_uniform(ls_mix64(9, attr.path), 4, (uint64_t)(120 * inner + i)) >= 0.25;
        kept += keep;
        wrong += y[i] != (keep ? 4 : 0);
    }
    /* 2000 draws: expected 1500, standard deviation 19 */
    tap_ok(wrong == 0 && kept > 1420 && kept < 1580, "dropout keeps %d of %d, scaled", kept,
           rows * inner);
}

int main(void)
{
    check_matmul();
    check_conv();
    check_pools();
    check_norm();
    check_loss();
    check_dropout();
    return tap_done();
}
