/* The text of the templates: written for someone who sees the format for the first time. */
#include "cli/templates.h"

#define HEAD(name, what)                                                                         \
    "# " what "\n"                                                                               \
    "#\n"                                                                                        \
    "# Train it:                 lockstep run " name ".cfg\n"                                    \
    "# ...with a value changed:  lockstep run --set train.epochs=1 " name ".cfg\n"               \
    "# Show every value:         lockstep config " name ".cfg\n"                                 \
    "# What each key means:      man lockstep.cfg\n"                                             \
    "#\n"                                                                                        \
    "# The format: key = value; and group: { ... }; with comments behind #. Text stands in\n"    \
    "# quotes. [ 1, 2 ] is a list of numbers, ( { ... }, { ... } ) a list of groups. A value\n"  \
    "# with a unit is text: \"25MiB\", \"30min\". @include \"other.cfg\" on a line of its own\n" \
    "# puts another file in its place. What is left out has a default; what is misspelled is\n"  \
    "# an error that names the line.\n"                                                          \
    "\n"                                                                                         \
    "# What reports call the job; its checkpoints go to " name ".ckpt.\n"                        \
    "name = \"" name "\";\n"                                                                     \
    "# Every random number follows from it: the same seed gives the same weights.\n"             \
    "seed = 1;\n"                                                                                \
    "\n"

#define DATA                                                                                   \
    "data: {\n"                                                                                \
    "    format = \"idx\";        # the format of MNIST and its relatives, plain or gzip\n"    \
    "    # Fashion-MNIST from the Debian package dataset-fashion-mnist: 28 x 28 pixels, ten\n" \
    "    # classes. Relative paths start where lockstep is run.\n"                             \
    "    train: {\n"                                                                           \
    "        images = \"/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz\";\n"     \
    "        labels = \"/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz\";\n"     \
    "    };\n"                                                                                 \
    "    test: {                # leave this group out to train without evaluation\n"          \
    "        images = \"/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz\";\n"      \
    "        labels = \"/usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz\";\n"      \
    "    };\n"                                                                                 \
    "    mean = 0.286;          # of the training pixels, scaled to 0..1; they are shifted\n"  \
    "    std = 0.353;           # and scaled to mean 0 and standard deviation 1\n"

#define TAIL                                                                                   \
    "checkpoint: {              # the state of the run, to go on from after an interruption\n" \
    "    every = \"10min\";       # also: every_steps = 1000; the end always writes one\n"     \
    "    keep = 3;              # the newest ones; older ones are removed\n"                   \
    "};\n"                                                                                     \
    "\n"                                                                                       \
    "resources: {\n"                                                                           \
    "    threads = \"auto\";      # as many as the process may use\n"                          \
    "};\n"

static const char mlp[] = HEAD("mlp", "A multilayer perceptron on Fashion-MNIST: the smallest real "
                                      "run.") "model: {\n"
                                              "    type = \"mlp\";          # fully connected "
                                              "layers\n"
                                              "    classes = 10;          # labels are 0..9\n"
                                              "    hidden = [ 512, 512 ]; # widths of the hidden "
                                              "layers, input side first\n"
                                              "    activation = \"relu\";   # or \"gelu\"\n"
                                              "    dropout = 0.0;         # share of activations "
                                              "to drop while training\n"
                                              "};\n"
                                              "\n" DATA "};\n"
                                              "\n"
                                              "train: {\n"
                                              "    epochs = 6;            # passes over the "
                                              "training data; or: steps = 2800;\n"
                                              "    global_batch = 128;    # samples per step\n"
                                              "};\n"
                                              "\n"
                                              "optimizer: {\n"
                                              "    type = \"adamw\";        # or \"sgd\", with "
                                              "momentum and nesterov\n"
                                              "    lr = 1.5e-3;           # learning rate\n"
                                              "    weight_decay = 0.05;\n"
                                              "    schedule: {            # rise for 100 steps, "
                                              "then fall along a cosine\n"
                                              "        type = \"cosine\";   # or \"constant\", "
                                              "\"step\", \"linear\"\n"
                                              "        warmup = 100;\n"
                                              "        final = 0.01;      # of lr, at the end\n"
                                              "    };\n"
                                              "};\n"
                                              "\n" TAIL;

static const char convnet[] =
    HEAD("convnet",
         "A small convolutional network on Fashion-MNIST, written layer "
         "by layer.") "model: {\n"
                      "    type = \"layers\";       # the layers stand "
                      "below, input side first\n"
                      "    classes = 10;          # labels are 0..9; the "
                      "last layer has as many units\n"
                      "    layers = (             # comments: height x "
                      "width x channels behind the layer\n"
                      "        { type = \"conv\"; filters = 32; kernel = "
                      "3; pad = 1; bias = false; },\n"
                      "        { type = \"batch_norm\"; },\n"
                      "        { type = \"relu\"; },\n"
                      "        { type = \"max_pool\"; kernel = 2; },     "
                      "                # 14 x 14 x 32\n"
                      "        { type = \"residual\"; repeat = 1; # its "
                      "input is added to what its layers yield\n"
                      "          layers = (\n"
                      "              { type = \"conv\"; filters = 32; "
                      "kernel = 3; pad = 1; bias = false; },\n"
                      "              { type = \"batch_norm\"; },\n"
                      "              { type = \"relu\"; }\n"
                      "          ); },                                   "
                      "              # 14 x 14 x 32\n"
                      "        { type = \"conv\"; filters = 64; kernel = "
                      "3; stride = 2; pad = 1; bias = false; },\n"
                      "        { type = \"batch_norm\"; },\n"
                      "        { type = \"relu\"; },                     "
                      "                # 7 x 7 x 64\n"
                      "        { type = \"flatten\"; },                  "
                      "                # 3136\n"
                      "        { type = \"dropout\"; rate = 0.3; },\n"
                      "        { type = \"linear\"; units = 10; }\n"
                      "    );\n"
                      "};\n"
                      "\n" DATA "    augment: {\n"
                      "        shift = 0;         # move training images "
                      "by up to so many pixels\n"
                      "        flip = true;       # mirror half of them "
                      "left to right\n"
                      "    };\n"
                      "};\n"
                      "\n"
                      "train: {\n"
                      "    epochs = 6;            # passes over the "
                      "training data; or: steps = 2800;\n"
                      "    global_batch = 128;    # samples per step\n"
                      "};\n"
                      "\n"
                      "optimizer: {\n"
                      "    type = \"adamw\";        # or \"sgd\", with momentum and nesterov\n"
                      "    lr = 3.0e-3;           # learning rate\n"
                      "    weight_decay = 0.02;\n"
                      "    schedule: {            # rise for 200 steps, "
                      "then fall along a cosine\n"
                      "        type = \"cosine\";   # or \"constant\", "
                      "\"step\", \"linear\"\n"
                      "        warmup = 200;\n"
                      "        final = 0.01;      # of lr, at the end\n"
                      "    };\n"
                      "};\n"
                      "\n" TAIL;

const struct ls_cli_template ls_cli_templates[] = {
    {"mlp", "fully connected layers, Fashion-MNIST", mlp},
    {"convnet", "a list of layers: convolutions, batch norm, a residual block; Fashion-MNIST",
     convnet},
};
const int ls_cli_ntemplates = (int)(sizeof ls_cli_templates / sizeof *ls_cli_templates);
