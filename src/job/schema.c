/* The rows of the schema and the look-ups in them. Limits without a comment are only there to turn
 * a slip of the finger into a message. */
#include "job/schema.h"

#include <string.h>

#define MAX_COUNT  1e12               /* steps */
#define MAX_EXACT  9007199254740991.0 /* 2^53 - 1: exact as a double, so JSON readers agree */
#define BIT(value) (1u << (value))

static const char *const model_types[] = {"mlp", "layers", NULL};
static const char *const activations[] = {"none", "relu", "gelu", NULL};
static const char *const inits[] = {"he", "glorot", "normal", "zeros", NULL};
static const char *const data_formats[] = {"idx", NULL};
static const char *const optimizers[] = {"sgd", "adamw", NULL};
static const char *const reductions[] = {"auto", "staged", "exchange", "halving", "ring", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", "linear", NULL};
static const char *const devices[] = {"cpu", NULL};
static const char *const layer_types[] = {"conv",     "batch_norm", "relu",        "gelu",
                                          "max_pool", "avg_pool",   "global_pool", "flatten",
                                          "linear",   "dropout",    "residual",    NULL};

#define HASHED   LS_JOB_HASHED
#define REQUIRED LS_JOB_REQUIRED
#define ABOVE    LS_JOB_ABOVE
#define BELOW    LS_JOB_BELOW

#define AT(k, member)      .kind = LS_JOB_##k, .offset = offsetof(struct ls_job, member)
#define LIST(k, member, n) AT(k, member), .count = offsetof(struct ls_job, n)
#define WHEN(row, bits)    .when = (row), .mask = (bits)
#define MLP                WHEN("model.type", BIT(LS_MODEL_MLP))
#define SGD                WHEN("optimizer.type", BIT(LS_OPT_SGD))
#define ADAMW              WHEN("optimizer.type", BIT(LS_OPT_ADAMW))

static const struct ls_job_key job_rows[] = {
    /* clang-format off */
    {"format", AT(INT, format), .min = LS_JOB_FORMAT, .max = LS_JOB_FORMAT, .fallback = "1",
     .doc = "Version of the file format."},
    {"name", AT(STRING, name), .flags = REQUIRED | LS_JOB_FILE_NAME,
     .doc = "Name of the job: what reports call it, and the start of the name of its checkpoint "
            "directory."},
    {"seed", AT(INT, seed), .flags = HASHED, .max = MAX_EXACT, .fallback = "1",
     .doc = "Every random number of the run follows from it: initial weights, order of the "
            "samples, dropout, augmentation."},

    {"model.type", AT(ENUM, model.type), .flags = REQUIRED | HASHED, .words = model_types,
     .doc = "Family of the model: fully connected layers, or a list of layers of your own."},
    {"model.classes", AT(INT, model.classes), .flags = REQUIRED | HASHED, .min = 2, .max = 1e6,
     .doc = "Number of classes; labels count from 0."},
    {"model.hidden", LIST(INTS, model.hidden, model.nhidden), .flags = HASHED, .min = 1,
     .max = 1048576, .fallback = "[]", MLP,
     .doc = "Widths of the hidden layers, input side first. Without any, the model is a linear "
            "classifier."},
    {"model.activation", AT(ENUM, model.activation), .flags = HASHED, .min = LS_ACT_RELU,
     .words = activations, .fallback = "relu", MLP,
     .doc = "Activation behind each hidden layer."},
    {"model.dropout", AT(FLOAT, model.dropout), .flags = HASHED | BELOW, .max = 1,
     .fallback = "0", MLP,
     .doc = "Probability with which dropout zeroes an element behind each hidden activation."},
    {"model.init", AT(ENUM, model.init), .flags = HASHED, .words = inits, .fallback = "he", MLP,
     .doc = "Initial weights: he is normal with variance 2 / fan_in, glorot is uniform within "
            "sqrt(6 / (fan_in + fan_out)), normal has the standard deviation init_std. Biases "
            "start at 0."},
    {"model.init_std", AT(FLOAT, model.init_std), .flags = REQUIRED | HASHED | ABOVE, .max = 100,
     WHEN("model.init", BIT(LS_INIT_NORMAL)),
     .doc = "Standard deviation of the initial weights."},
    {"model.layers", LIST(LAYERS, model.layers, model.nlayers), .flags = REQUIRED | HASHED,
     WHEN("model.type", BIT(LS_MODEL_LAYERS)),
     .doc = "The layers, input side first: a list of groups in round brackets, separated by "
            "commas. Their keys are described under LAYERS."},

    {"data.format", .kind = LS_JOB_ENUM, .offset = LS_JOB_NOWHERE, .flags = REQUIRED, .words = data_formats,
     .doc = "Format of the data files: idx is the format of MNIST and its relatives, plain or "
            "compressed with gzip."},
    {"data.train.images", AT(STRING, data.train_images), .flags = REQUIRED,
     .doc = "Images to train on. Relative paths start at the working directory."},
    {"data.train.labels", AT(STRING, data.train_labels), .flags = REQUIRED,
     .doc = "Their labels."},
    {"data.test.images", AT(STRING, data.test_images),
     .doc = "Images to evaluate on. Without them, nothing is evaluated."},
    {"data.test.labels", AT(STRING, data.test_labels),
     .doc = "Their labels."},
    {"data.mean", LIST(FLOATS, data.mean, data.nmean), .flags = HASHED, .min = -1000, .max = 1000,
     .fallback = "0.0",
     .doc = "Subtracted from the pixels after they are scaled to 0..1: one number, or one per "
            "channel."},
    {"data.std", LIST(FLOATS, data.std, data.nstd), .flags = HASHED | ABOVE, .max = 1000,
     .fallback = "1.0",
     .doc = "Divides the pixels after the mean is subtracted: one number, or one per channel."},
    {"data.augment.shift", AT(INT, data.shift), .flags = HASHED, .max = 64, .fallback = "0",
     .doc = "Training images are moved by up to this many pixels each way; 0 is off."},
    {"data.augment.flip", AT(BOOL, data.flip), .flags = HASHED, .fallback = "false",
     .doc = "Half of the training images are mirrored left to right."},

    {"train.steps", AT(INT, train.steps), .min = 1, .max = MAX_COUNT,
     .doc = "Length of the run in optimizer steps. Give either steps or epochs."},
    {"train.epochs", AT(INT, train.epochs), .min = 1, .max = 1e6,
     .doc = "Length of the run in passes over the training data. Give either steps or epochs."},
    {"train.global_batch", AT(INT, train.global_batch), .flags = REQUIRED | HASHED, .min = 1,
     .max = 1048576,
     .doc = "Samples in one optimizer step, over all ranks."},
    {"train.micro_batch", AT(INT, train.micro_batch), .flags = HASHED, .min = 1, .max = 1048576,
     .word = "auto", .fallback = "auto",
     .doc = "Samples that go through the model at once; it divides global_batch, and the "
            "gradients of the parts add up. Batch norm normalises over a micro-batch. auto is "
            "the whole global_batch."},
    {"train.eval_every", AT(INT, train.eval_every), .max = MAX_COUNT, .word = "epoch",
     .fallback = "epoch",
     .doc = "Steps between evaluations; epoch (or auto) is once per epoch, 0 only at the end."},

    {"optimizer.type", AT(ENUM, optimizer.type), .flags = REQUIRED | HASHED, .words = optimizers,
     .doc = "Stochastic gradient descent with momentum, or AdamW."},
    {"optimizer.lr", AT(FLOAT, optimizer.lr), .flags = REQUIRED | HASHED | ABOVE, .max = 1000,
     .doc = "Learning rate, before the schedule."},
    {"optimizer.weight_decay", AT(FLOAT, optimizer.weight_decay), .flags = HASHED, .max = 1000,
     .fallback = "0.01", ADAMW,
     .doc = "Weight decay, decoupled from the gradient and scaled by the learning rate."},
    {"optimizer.weight_decay", AT(FLOAT, optimizer.weight_decay), .flags = HASHED, .max = 1000,
     .fallback = "0.0", SGD,
     .doc = "Weight decay, added to the gradient."},
    {"optimizer.clip", AT(FLOAT, optimizer.clip), .flags = HASHED, .max = 1e9, .fallback = "0.0",
     .doc = "The gradient is scaled down when its norm exceeds this; 0 is off."},
    {"optimizer.momentum", AT(FLOAT, optimizer.momentum), .flags = HASHED | BELOW, .max = 1,
     .fallback = "0.9", SGD,
     .doc = "Share of the last update that is kept."},
    {"optimizer.nesterov", AT(BOOL, optimizer.nesterov), .flags = HASHED, .fallback = "false", SGD,
     .doc = "Nesterov's form of momentum."},
    {"optimizer.beta1", AT(FLOAT, optimizer.beta1), .flags = HASHED | BELOW, .max = 1,
     .fallback = "0.9", ADAMW,
     .doc = "Decay of the mean of the gradients."},
    {"optimizer.beta2", AT(FLOAT, optimizer.beta2), .flags = HASHED | BELOW, .max = 1,
     .fallback = "0.999", ADAMW,
     .doc = "Decay of the mean of their squares."},
    {"optimizer.eps", AT(FLOAT, optimizer.eps), .flags = HASHED | ABOVE, .max = 1,
     .fallback = "1e-8", ADAMW,
     .doc = "Added to the divisor, against division by zero."},
    {"optimizer.schedule.type", AT(ENUM, optimizer.schedule.type), .flags = HASHED,
     .words = schedules, .fallback = "constant",
     .doc = "How the learning rate changes behind the warm-up: not at all, by a factor every so "
            "many steps, along half a cosine wave, or along a straight line."},
    {"optimizer.schedule.warmup", AT(INT, optimizer.schedule.warmup), .flags = HASHED,
     .max = MAX_COUNT, .fallback = "0",
     .doc = "Steps in which the learning rate rises from 0 to lr."},
    {"optimizer.schedule.final", AT(FLOAT, optimizer.schedule.final), .flags = HASHED, .max = 1,
     .fallback = "0.0",
     WHEN("optimizer.schedule.type", BIT(LS_SCHED_COSINE) | BIT(LS_SCHED_LINEAR)),
     .doc = "The last learning rate, as a fraction of lr."},
    {"optimizer.schedule.every", AT(INT, optimizer.schedule.every), .flags = REQUIRED | HASHED,
     .min = 1, .max = MAX_COUNT, WHEN("optimizer.schedule.type", BIT(LS_SCHED_STEP)),
     .doc = "Steps between two changes."},
    {"optimizer.schedule.gamma", AT(FLOAT, optimizer.schedule.gamma), .flags = HASHED | ABOVE,
     .max = 1, .fallback = "0.1", WHEN("optimizer.schedule.type", BIT(LS_SCHED_STEP)),
     .doc = "Factor of each change."},

    {"parallel.bucket", AT(BYTES, parallel.bucket), .min = 1024, .max = 17179869184.0,
     .fallback = "25MiB",
     .doc = "Gradients are gathered into buckets of about this size."},
    {"parallel.all_reduce", AT(ENUM, parallel.all_reduce), .words = reductions, .fallback = "auto",
     .doc = "How ranks sum gradients: by size and layout; inside a node through staging buffers; "
            "between nodes by exchange with everyone, recursive halving, or a ring."},
    {"parallel.zero", AT(INT, parallel.zero), .max = 3, .fallback = "0",
     .doc = "Stage of ZeRO. With 0 every rank updates all parameters. With 1 each updates its slice "
            "of them, keeps only that slice's moments, and takes the rest from the others: less "
            "memory and less work per rank for as much communication. Checkpoints are the same, and "
            "a run may resume with another stage. Stages 2 and 3 (slices of gradients and "
            "parameters) do not work yet and are refused."},

    {"checkpoint.dir", AT(STRING, checkpoint.dir), .fallback = "<name>.ckpt",
     .doc = "Directory for the checkpoints. Relative paths start at the working directory."},
    {"checkpoint.every_steps", AT(INT, checkpoint.every_steps), .max = MAX_COUNT, .fallback = "0",
     .doc = "Steps between checkpoints; 0 is off. The end of the run always writes one."},
    {"checkpoint.every", AT(TIME, checkpoint.every), .max = 31536000, .fallback = "0",
     .doc = "Time between checkpoints; 0 is off."},
    {"checkpoint.keep", AT(INT, checkpoint.keep), .min = 1, .max = 1e6, .fallback = "3",
     .doc = "Newest complete checkpoints to keep."},

    {"recover.hang_kill", AT(TIME, recover.hang_kill), .min = 1, .max = 604800, .fallback = "5min",
     .doc = "A rank for which the others have waited this long in one collective ends the run, "
            "with an error that names it. It has to outlast the slowest checkpoint."},

    {"resources.device", AT(ENUM, resources.device), .words = devices, .fallback = "cpu",
     .doc = "What the program runs on."},
    {"resources.threads", AT(INT, resources.threads), .min = 1, .max = 4096, .word = "auto",
     .fallback = "auto",
     .doc = "Threads of the backend; auto is as many as the process may use."},
    /* clang-format on */
};

#undef AT
#undef LIST
#define AT(k, member)      .kind = LS_JOB_##k, .offset = offsetof(struct ls_layer, member)
#define LIST(k, member, n) AT(k, member), .count = offsetof(struct ls_layer, n)
#define IN(bits)           WHEN("type", bits)
#define CONV               BIT(LS_LAYER_CONV)
#define LINEAR             BIT(LS_LAYER_LINEAR)
#define POOL               (BIT(LS_LAYER_MAX_POOL) | BIT(LS_LAYER_AVG_POOL))

static const struct ls_job_key layer_rows[] = {
    /* clang-format off */
    {"type", AT(ENUM, type), .flags = REQUIRED | HASHED, .words = layer_types,
     .doc = "Kind of the layer."},
    {"filters", AT(INT, filters), .flags = REQUIRED | HASHED, .min = 1, .max = 65536, IN(CONV),
     .doc = "Number of filters: the channels of the result."},
    {"units", AT(INT, units), .flags = REQUIRED | HASHED, .min = 1, .max = 1048576, IN(LINEAR),
     .doc = "Width of the result."},
    {"kernel", AT(INT, kernel), .flags = REQUIRED | HASHED, .min = 1, .max = 255, IN(CONV | POOL),
     .doc = "Height and width of the window, in pixels."},
    {"stride", AT(INT, stride), .flags = HASHED, .min = 1, .max = 255, .fallback = "1", IN(CONV),
     .doc = "Pixels from one window to the next."},
    {"stride", AT(INT, stride), .flags = HASHED, .min = 1, .max = 255, .fallback = "<kernel>",
     IN(POOL),
     .doc = "Pixels from one window to the next."},
    {"pad", AT(INT, pad), .flags = HASHED, .max = 255, .fallback = "0", IN(CONV | POOL),
     .doc = "Rows and columns of padding on each side."},
    {"bias", AT(BOOL, bias), .flags = HASHED, .fallback = "true", IN(CONV | LINEAR),
     .doc = "Adds a bias; switch it off in front of a batch_norm layer."},
    {"init", AT(ENUM, init), .flags = HASHED, .words = inits, .fallback = "he", IN(CONV | LINEAR),
     .doc = "Initial weights, as in model.init."},
    {"init_std", AT(FLOAT, init_std), .flags = REQUIRED | HASHED | ABOVE, .max = 100,
     WHEN("init", BIT(LS_INIT_NORMAL)),
     .doc = "Standard deviation of the initial weights."},
    {"momentum", AT(FLOAT, momentum), .flags = HASHED | BELOW, .max = 1, .fallback = "0.9",
     IN(BIT(LS_LAYER_BATCH_NORM)),
     .doc = "Share of the old running statistics that each step keeps."},
    {"eps", AT(FLOAT, eps), .flags = HASHED | ABOVE, .max = 1, .fallback = "1e-5",
     IN(BIT(LS_LAYER_BATCH_NORM)),
     .doc = "Added to the variance, against division by zero."},
    {"rate", AT(FLOAT, rate), .flags = REQUIRED | HASHED | BELOW, .max = 1,
     IN(BIT(LS_LAYER_DROPOUT)),
     .doc = "Probability with which an element is zeroed."},
    {"repeat", AT(INT, repeat), .flags = HASHED, .min = 1, .max = LS_JOB_MAX_LAYERS,
     .fallback = "1", IN(BIT(LS_LAYER_RESIDUAL)),
     .doc = "How often the block is built, one behind the other, each with weights of its own."},
    {"layers", LIST(LAYERS, layers, nlayers), .flags = REQUIRED | HASHED,
     IN(BIT(LS_LAYER_RESIDUAL)),
     .doc = "The branch: a list of layers whose result is added to the block's input."},
    {"shortcut", LIST(LAYERS, shortcut, nshortcut), .flags = HASHED, .fallback = "[]",
     IN(BIT(LS_LAYER_RESIDUAL)),
     .doc = "Layers that the block's input passes before the addition, where the branch changes "
            "its shape. Without any, it is added as it is."},
    /* clang-format on */
};

const struct ls_job_table ls_job_keys = {job_rows, (int)(sizeof job_rows / sizeof *job_rows)};
const struct ls_job_table ls_layer_keys = {layer_rows,
                                           (int)(sizeof layer_rows / sizeof *layer_rows)};

const struct ls_job_group ls_job_groups[] = {
    {"", "Keys outside of any group."},
    {"model", "What is trained."},
    {"data", "What it is trained on."},
    {"data.train", "The training split."},
    {"data.test", "The held-out split; images and labels are given together or not at all."},
    {"data.augment", "Random changes of the training images, keyed by seed and sample."},
    {"train", "How long, and in which portions."},
    {"optimizer", "How the weights follow from the gradients."},
    {"optimizer.schedule", "How the learning rate changes during the run."},
    {"parallel", "How the work is divided."},
    {"checkpoint", "When the state is saved, and where."},
    {"recover", "What is done about ranks that fail."},
    {"resources", "What the job runs on."},
};
const int ls_job_ngroups = (int)(sizeof ls_job_groups / sizeof *ls_job_groups);

int ls_job_key_find(const struct ls_job_table *table, const char *path)
{
    for (int i = 0; i < table->nkeys; i++)
        if (!strcmp(table->keys[i].path, path))
            return i;
    return -1;
}

int ls_job_key_end(const struct ls_job_table *table, int i)
{
    int end = i + 1;
    while (end < table->nkeys && !strcmp(table->keys[end].path, table->keys[i].path))
        end++;
    return end;
}

bool ls_job_group_find(const char *path)
{
    for (int i = 0; i < ls_job_ngroups; i++)
        if (!strcmp(ls_job_groups[i].path, path))
            return true;
    return false;
}

unsigned ls_job_enum_get(const struct ls_job_key *key, const void *base)
{
    unsigned value;
    if (key->offset == LS_JOB_NOWHERE)
        return 0;
    memcpy(&value, (const char *)base + key->offset, sizeof value);
    return value;
}

bool ls_job_key_applies(const struct ls_job_table *table, const struct ls_job_key *key,
                        const void *base)
{
    while (key->when) {
        const struct ls_job_key *on = &table->keys[ls_job_key_find(table, key->when)];
        if (!(key->mask >> ls_job_enum_get(on, base) & 1))
            return false;
        key = on;
    }
    return true;
}

const char *ls_job_leaf(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

bool ls_job_in_group(const char *path, const char *group)
{
    size_t n = strlen(group);
    if (n == 0)
        return !strchr(path, '.');
    return !strncmp(path, group, n) && path[n] == '.' && !strchr(path + n + 1, '.');
}
