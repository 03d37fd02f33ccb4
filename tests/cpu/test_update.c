/* What follows the backward pass: sums, norms, commit, the optimizers and running statistics. */
#include "tests/cpu/op_case.h"

#include <math.h>

static void check_sums(void)
{
    static const int shape[][2] = {{1, 1},     {1, 300},   {128, 10}, {128, 512},
                                   {16, 512},  {1000, 3},  {4097, 8}, {63, 64},
                                   {65, 1000}, {3000, 33}, {2, 1}};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        struct op_case c = {.kind = LS_K_SUM_ROWS};
        op_in(&c, LS_F32, 2, shape[s][0], shape[s][1]);
        op_out(&c, LS_F32, 1, shape[s][1]);
        op_check(&c, "sum_rows %dx%d", shape[s][0], shape[s][1]);
        op_accumulate(&c, 0);
        for (int micro = 0; micro < 2; micro++) {
            c.control[LS_C_MICRO] = micro;
            op_check(&c, "sum_rows %dx%d, micro-batch %d", shape[s][0], shape[s][1], micro);
        }
    }
    struct op_case c = {.kind = LS_K_SUM_ROWS};
    op_in(&c, LS_F32, 4, 3, 7, 5, 6);
    op_out(&c, LS_F32, 1, 6);
    op_check(&c, "sum_rows of images");
    static const int length[] = {1, 5, 1000, 100003};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++)
        for (int nan = 0; nan < 2; nan++) {
            c = (struct op_case){.kind = LS_K_SUMSQ, .tolerance = 1e-7};
            op_in(&c, LS_F32, 1, length[i]);
            op_out(&c, LS_F32, 0);
            c.poison = nan, c.poison_value = NAN;
            op_check(&c, "sumsq of %d%s", length[i], nan ? ", with a NaN" : "");
        }
    c = (struct op_case){.kind = LS_K_CONCAT, .tolerance = 1e-30};
    op_in(&c, LS_F32, 0);
    op_in(&c, LS_F32, 2, 3, 4);
    op_in(&c, LS_F32, 1, 1);
    op_out(&c, LS_F32, 1, 14);
    op_check(&c, "concat of a scalar, a matrix and a vector");
    c.io[3].shape[0] = 13;
    op_refused(&c, "length", "concat into too little room");
}

/* The vector of commit: loss sum, count, one squared norm; set through the poison element. */
static struct op_case commit(int n, double max_norm)
{
    struct op_case c = {.kind = LS_K_COMMIT, .attr = {.max_norm = max_norm}, .state = {2}};
    op_in(&c, LS_F32, 1, n);
    c.fill[0] = OP_POSITIVE;
    op_control(&c);
    op_out(&c, LS_F64, 1, (int)LS_CONTROL_WORDS);
    c.control[LS_C_UPDATES] = 5, c.control[LS_C_SKIPPED] = 2, c.control[LS_C_STEP] = 9;
    c.control[LS_C_LR] = 0.25;
    c.tolerance = 1e-12;
    return c;
}

static void check_commit(void)
{
    struct op_case c = commit(2, 0);
    op_check(&c, "commit without norms");
    c = commit(3, 0);
    op_check(&c, "commit without clipping");
    c = commit(5, 1e-3);
    op_check(&c, "commit that clips");
    c = commit(5, 1e3);
    op_check(&c, "commit that need not clip");
    c = commit(4 + LS_WISHES, 1e-3);
    c.attr.wishes = LS_WISHES;
    op_check(&c, "commit with wishes behind the norms");
    c = commit(3, 1);
    c.poison = 1, c.poison_value = 0;
    op_check(&c, "commit of count 0 skips");
    c = commit(3, 1);
    c.poison = 1, c.poison_value = NAN;
    op_check(&c, "commit of a count that is NaN skips");
    c = commit(4, 1);
    c.poison = 1, c.poison_value = INFINITY;
    op_check(&c, "commit of an infinite norm skips");
    c = commit(1, 1);
    op_refused(&c, "loss, count", "commit of one number");
}

static void check_adamw(void)
{
    static const int length[] = {1, 33, 1000, 50021};
    static const double updates[] = {1, 2, 1000};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++)
        for (size_t u = 0; u < sizeof updates / sizeof *updates; u++)
            for (int skip = 0; skip < 2; skip++) {
                struct op_case c = {
                    .kind = LS_K_ADAMW,
                    .state = {1, 2, 3},
                    .attr = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.1}};
                for (int k = 0; k < 4; k++)
                    op_in(&c, LS_F32, 1, length[i]);
                c.fill[2] = OP_POSITIVE;
                op_control(&c);
                for (int k = 0; k < 3; k++)
                    op_out(&c, LS_F32, 1, length[i]);
                c.control[LS_C_LR] = 0.01, c.control[LS_C_SCALE] = 1.0 / 128;
                c.control[LS_C_UPDATES] = updates[u], c.control[LS_C_SKIP] = skip;
                c.tolerance = 1e-6;
                op_check(&c, "adamw of %d, update %g%s", length[i], updates[u],
                         skip ? ", skipped" : "");
            }
}

/* First update: moments are zero, and so are some gradients. */
static void check_adamw_start(void)
{
    struct op_case c = {.kind = LS_K_ADAMW,
                        .state = {1, 2, 3},
                        .attr = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                        .scale = 1e-300}; /* all operands become zero */
    for (int k = 0; k < 4; k++)
        op_in(&c, LS_F32, 1, 100);
    op_control(&c);
    for (int k = 0; k < 3; k++)
        op_out(&c, LS_F32, 1, 100);
    c.control[LS_C_LR] = 0.01, c.control[LS_C_SCALE] = 1, c.control[LS_C_UPDATES] = 1;
    op_check(&c, "adamw of zeros stays zero");
    c.poison = 4, c.poison_value = 1e-6;
    op_check(&c, "adamw with one small gradient");
    c.poison_value = 1e-15;
    op_check(&c, "adamw with a gradient far below epsilon");
    c.poison_value = 1e15;
    op_check(&c, "adamw with a large gradient");
    c.poison_value = NAN;
    op_check(&c, "adamw with a NaN");
}

static void check_sgd(void)
{
    static const double momentum[] = {0, 0.9};
    for (int n = 1; n < 100000; n = n * 40 + 1)
        for (int m = 0; m < 2; m++)
            for (int form = 0; form < 4; form++) {
                struct op_case c = {.kind = LS_K_SGD,
                                    .state = {1, 2},
                                    .attr = {.momentum = momentum[m],
                                             .nesterov = form & 1,
                                             .decay = form & 2 ? 0.01 : 0}};
                for (int k = 0; k < 3; k++)
                    op_in(&c, LS_F32, 1, n);
                op_control(&c);
                op_out(&c, LS_F32, 1, n);
                op_out(&c, LS_F32, 1, n);
                c.control[LS_C_LR] = 0.1, c.control[LS_C_SCALE] = 0.5;
                c.tolerance = 1e-6;
                op_check(&c, "sgd of %d, momentum %g%s%s", n, momentum[m],
                         form & 1 ? ", Nesterov" : "", form & 2 ? ", decay" : "");
                c.control[LS_C_SKIP] = 1;
                op_check(&c, "sgd of %d, skipped", n);
            }
    for (int skip = 0; skip < 2; skip++) {
        struct op_case c = {.kind = LS_K_EMA, .state = {1}, .attr = {.momentum = 0.9}};
        op_in(&c, LS_F32, 1, 77);
        op_in(&c, LS_F32, 1, 77);
        op_control(&c);
        op_out(&c, LS_F32, 1, 77);
        c.control[LS_C_MICROS] = 4, c.control[LS_C_SKIP] = skip;
        c.tolerance = 1e-6;
        op_check(&c, "ema%s", skip ? ", skipped" : "");
    }
}

int main(void)
{
    check_sums();
    check_commit();
    check_adamw();
    check_adamw_start();
    check_sgd();
    return op_done();
}
