/* Two small job descriptions by hand. See jobs.h. */
#include "tests/graph/jobs.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

void small_mlp(struct small_job *s)
{
    static int64_t hidden[] = {16, 12};
    *s = (struct small_job){.name = "mlp", .input = {6, 5, 1, 1}};
    s->job = (struct ls_job){
        .path = "mlp.cfg",
        .name = "mlp",
        .model = {.type = LS_MODEL_MLP,
                  .classes = 4,
                  .hidden = hidden,
                  .nhidden = COUNT(hidden),
                  .activation = LS_ACT_GELU,
                  .dropout = 0.25,
                  .init = LS_INIT_HE},
        .train = {.global_batch = 8, .micro_batch = LS_JOB_AUTO},
        .optimizer = {.type = LS_OPT_ADAMW,
                      .lr = 0.001,
                      .weight_decay = 0.1,
                      .clip = 1,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8},
        .parallel = {.bucket = 2048},
    };
}

#define CONV(f, k, s, p)                                                         \
    {                                                                            \
        .type = LS_LAYER_CONV, .filters = f, .kernel = k, .stride = s, .pad = p, \
        .init = LS_INIT_HE, .bias = false                                        \
    }
#define NORM                                                      \
    {                                                             \
        .type = LS_LAYER_BATCH_NORM, .momentum = 0.9, .eps = 1e-5 \
    }
#define PLAIN(t)  \
    {             \
        .type = t \
    }

void small_convnet(struct small_job *s)
{
    static struct ls_layer project[] = {CONV(6, 3, 2, 1), NORM, PLAIN(LS_LAYER_RELU),
                                        CONV(6, 3, 1, 1), NORM};
    static struct ls_layer side[] = {CONV(6, 1, 2, 0), NORM};
    static struct ls_layer again[] = {CONV(6, 3, 1, 1), NORM, PLAIN(LS_LAYER_GELU)};
    static struct ls_layer layers[] = {
        {.type = LS_LAYER_CONV,
         .filters = 4,
         .kernel = 3,
         .stride = 1,
         .pad = 1,
         .init = LS_INIT_HE,
         .bias = true},
        PLAIN(LS_LAYER_RELU),
        {.type = LS_LAYER_MAX_POOL, .kernel = 2},
        {.type = LS_LAYER_RESIDUAL,
         .repeat = 1,
         .layers = project,
         .nlayers = COUNT(project),
         .shortcut = side,
         .nshortcut = COUNT(side)},
        PLAIN(LS_LAYER_RELU),
        {.type = LS_LAYER_RESIDUAL, .repeat = 2, .layers = again, .nlayers = COUNT(again)},
        {.type = LS_LAYER_AVG_POOL, .kernel = 2, .stride = 1, .pad = 1},
        {.type = LS_LAYER_DROPOUT, .rate = 0.25},
        CONV(5, 2, 1, 0),
        PLAIN(LS_LAYER_GLOBAL_POOL),
        {.type = LS_LAYER_LINEAR, .units = 6, .bias = false, .init = LS_INIT_GLOROT},
        NORM,
        PLAIN(LS_LAYER_RELU),
        {.type = LS_LAYER_LINEAR,
         .units = 4,
         .bias = true,
         .init = LS_INIT_NORMAL,
         .init_std = 0.5},
    };
    *s = (struct small_job){.name = "convnet", .input = {8, 8, 2, 1}};
    s->job = (struct ls_job){
        .path = "convnet.cfg",
        .name = "convnet",
        .model = {.type = LS_MODEL_LAYERS,
                  .classes = 4,
                  .layers = layers,
                  .nlayers = COUNT(layers)},
        .train = {.global_batch = 12, .micro_batch = 6},
        .optimizer = {.type = LS_OPT_SGD,
                      .lr = 0.05,
                      .weight_decay = 0.0005,
                      .momentum = 0.9,
                      .nesterov = true},
        .parallel = {.bucket = 25 << 20},
    };
}
