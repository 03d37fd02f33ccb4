/* The job description as plain values: what a libconfig file (format version 1) says after
 * defaults, units and --set overrides. One schema table (schema.c) drives parsing, messages,
 * `lockstep config` and lockstep.cfg(5). Strings and arrays live in the job's arena. Knows no
 * library type. */
#ifndef LS_JOB_H
#define LS_JOB_H

#include "base/base.h"

#include <stdio.h>

#define LS_JOB_FORMAT   1    /* `format = 1;`, the default, and the only one there is */
#define LS_JOB_CHANNELS 4    /* most values of data.mean and data.std */
#define LS_JOB_AUTO     (-1) /* an integer or time that the user left to us */

enum ls_model_type { LS_MODEL_MLP, LS_MODEL_LAYERS };
enum ls_activation { LS_ACT_NONE, LS_ACT_RELU, LS_ACT_GELU };
/* he: normal, variance 2 / fan_in; glorot: uniform, +-sqrt(6 / (fan_in + fan_out));
 * normal: normal, standard deviation init_std; zeros. */
enum ls_init { LS_INIT_HE, LS_INIT_GLOROT, LS_INIT_NORMAL, LS_INIT_ZEROS };
enum ls_layer_type {
    LS_LAYER_CONV,        /* filters, kernel, stride, pad, bias, init, init_std */
    LS_LAYER_BATCH_NORM,  /* momentum, eps */
    LS_LAYER_RELU,        /* */
    LS_LAYER_GELU,        /* */
    LS_LAYER_MAX_POOL,    /* kernel, stride (default: kernel), pad */
    LS_LAYER_AVG_POOL,    /* kernel, stride (default: kernel), pad */
    LS_LAYER_GLOBAL_POOL, /* mean over height and width */
    LS_LAYER_FLATTEN,     /* [n, h, w, c] -> [n, h * w * c] */
    LS_LAYER_LINEAR,      /* units, bias, init, init_std */
    LS_LAYER_DROPOUT,     /* rate */
    LS_LAYER_RESIDUAL,    /* layers (the branch), shortcut (layers; empty: identity), repeat */
};
struct ls_layer {
    enum ls_layer_type type;
    int64_t filters, units, kernel, stride, pad, repeat;
    bool bias;
    enum ls_init init;
    double init_std, momentum, eps, rate;
    struct ls_layer *layers, *shortcut; /* of a residual block */
    int nlayers, nshortcut;
    const char *file; /* where it was written, for messages of the model builder */
    int line;
};

enum ls_optimizer_type { LS_OPT_SGD, LS_OPT_ADAMW };
enum ls_schedule_type { LS_SCHED_CONSTANT, LS_SCHED_STEP, LS_SCHED_COSINE, LS_SCHED_LINEAR };
/* How gradients are summed: left to size and layout; inside a node through staging buffers; between nodes
 * by exchange with everyone, recursive halving, or a ring. */
enum ls_all_reduce {
    LS_REDUCE_AUTO,
    LS_REDUCE_STAGED,
    LS_REDUCE_EXCHANGE,
    LS_REDUCE_HALVING,
    LS_REDUCE_RING
};
enum ls_device_type { LS_DEVICE_CPU };

struct ls_job {
    struct ls_arena arena;
    const char *path; /* the file it came from */

    int64_t format;   /* version of the file format */
    const char *name; /* required; a file name without '/', not starting with '.' */
    int64_t seed;     /* 0 .. 2^53 - 1 */

    struct {
        enum ls_model_type type;
        int64_t classes; /* required */
        /* type = "mlp" */
        int64_t *hidden; /* widths of the hidden layers */
        int nhidden;
        enum ls_activation activation; /* relu or gelu */
        double dropout;                /* after each hidden activation; [0, 1) */
        enum ls_init init;
        double init_std; /* for init = "normal" */
        /* type = "layers" */
        struct ls_layer *layers;
        int nlayers;
    } model;

    struct {
        const char *train_images, *train_labels; /* data.train.images, data.train.labels: IDX */
        const char *test_images, *test_labels;   /* both NULL: no evaluation */
        double mean[LS_JOB_CHANNELS], std[LS_JOB_CHANNELS]; /* of values scaled to 0..1 */
        int nmean, nstd;                                    /* 1, or one per channel */
        int64_t shift; /* data.augment.shift: up to this many pixels each way; 0 off */
        bool flip;     /* data.augment.flip: mirror half of the samples left to right */
    } data;

    struct {
        int64_t steps, epochs;             /* exactly one is given; the other is LS_JOB_AUTO */
        int64_t global_batch, micro_batch; /* micro_batch LS_JOB_AUTO: the global batch */
        int64_t eval_every; /* steps; LS_JOB_AUTO: once per epoch; 0: only at the end */
    } train;

    struct {
        enum ls_optimizer_type type;
        double lr, weight_decay, clip; /* clip 0: off */
        double momentum;               /* sgd */
        bool nesterov;                 /* sgd */
        double beta1, beta2, eps;      /* adamw */
        struct {
            enum ls_schedule_type type;
            int64_t warmup; /* steps of linear rise from 0 */
            double final;   /* cosine, linear: last value as a fraction of lr */
            int64_t every;  /* step: multiply by gamma each `every` steps */
            double gamma;
        } schedule;
    } optimizer;

    struct {
        int64_t bucket; /* bytes */
        enum ls_all_reduce all_reduce;
        int64_t zero; /* stage of ZeRO: 0 or 1 */
    } parallel;

    struct {
        const char *dir;     /* default: "<name>.ckpt" */
        int64_t every_steps; /* 0: off */
        double every;        /* seconds; 0: off */
        int64_t keep;        /* newest complete ones to keep, at least 1 */
    } checkpoint;

    struct {
        double hang_kill; /* seconds that others wait for a rank in one collective */
    } recover;

    struct {
        enum ls_device_type device;
        int64_t threads; /* LS_JOB_AUTO: as many as this process may use */
    } resources;

    struct ls_job_origin *origin; /* per schema key; private to src/job */
};

/* Reads `path` and applies `sets` (each "train.steps=10"). Reports *all* problems: each is one line
 * "file:line: found ..., expected ...; did you mean ...?" in `problems` (caller inits it, and
 * prints it); err then holds a one-line summary with LS_ERR_USAGE. On success *job is the caller's,
 * to be freed with ls_job_free. `problems` may also hold nothing but be non-empty only on failure.
 */
enum ls_status ls_job_read(const char *path, const char *const *sets, int nsets,
                           struct ls_job **job, struct ls_buf *problems, struct ls_error *err);
void ls_job_free(struct ls_job *job);

/* The resolved description as a valid job file, each line with its origin as a comment. */
enum ls_status ls_job_print(const struct ls_job *job, FILE *out, struct ls_error *err);
/* The same as JSON: {"format": 1, "values": {"train.steps": {"value": .., "origin": ".."}, ..}} */
enum ls_status ls_job_print_json(const struct ls_job *job, FILE *out, struct ls_error *err);
/* Hash of every resolved value that shapes the run's numbers (not paths, checkpoint, resources). */
uint64_t ls_job_hash(const struct ls_job *job);

/* Adds every resolved value as a line "train.steps=10", layers included, without origins: two jobs that
 * give the same text are the same job. */
void ls_job_lines(const struct ls_job *job, struct ls_buf *text);

/* The schema as a mdoc list for lockstep.cfg(5); used by the build, not at run time. */
void ls_job_print_man(FILE *out);

#endif
