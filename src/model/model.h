/* Model families: from a job description to the forward program and the initial parameters. Adding a
 * family is one function that emits ops; everything behind it (gradients, update, evaluation) is the
 * graph's business. */
#ifndef LS_MODEL_H
#define LS_MODEL_H

#include "base/base.h"
#include "graph/graph.h"
#include "job/job.h"

/* Shape of one sample, from the data set, and how many ranks share the work. */
struct ls_model_input {
    int64_t height, width, channels;
    int ranks; /* along the data axis; at least 1 */
};

/* Initialises `prog` and builds the forward program up to the loss: images f32 [micro_batch, h, w, c]
 * and labels i32 [micro_batch] in; logits, (sum, count) loss out. Parameters are named by their
 * place: "fc1.weight", "3.conv.weight", "4.residual.0.1.batch_norm.gain". Linear weights are
 * [inputs, outputs], convolution weights [filters, channels, height, width].
 * Errors: USAGE, with the file and line of the layer that does not fit. The caller frees `prog` with
 * ls_graph_free in any case. */
enum ls_status ls_model_build(const struct ls_job *job, const struct ls_model_input *input,
                              struct ls_prog *prog, struct ls_error *err);

/* Writes the initial value of parameter row `param` (an index into prog->param): ls_graph_numel
 * floats, a pure function of (seed, name, element). */
void ls_model_initial(const struct ls_prog *prog, int param, uint64_t seed, float *values);

/* Trained parameters, running statistics not counted. */
int64_t ls_model_count(const struct ls_prog *prog);

/* ---- shared by the families, private to this folder ---- */
struct ls_builder {
    const struct ls_job *job;
    struct ls_prog *prog;
    struct ls_error *err;
};
struct ls_init_choice {
    enum ls_init init;
    double std;
};
/* A parameter called "<path>.<what>". */
int ls_model_param(struct ls_builder *b, int ndim, const int64_t *shape, enum ls_rule rule,
                   struct ls_fill fill, const char *path, const char *what);
/* y = x w (+ b); x must be [n, inputs]. Names: "<path>.weight", "<path>.bias". */
int ls_model_linear(struct ls_builder *b, int x, int64_t units, bool bias,
                    struct ls_init_choice init, const char *path);
struct ls_fill ls_model_fill(struct ls_init_choice init, double fan_in, double fan_out);
int ls_model_flatten(struct ls_builder *b, int x);
int ls_model_dropout(struct ls_builder *b, int x, double rate, const char *path);
enum ls_status ls_model_layers(struct ls_builder *b, int *x);

#endif
