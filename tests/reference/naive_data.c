/* Made-up weights, images and labels for the naive executor, and the order of a training step. */
#include "tests/reference/naive.h"

#include <math.h>
#include <stdlib.h>

/* Independent streams under one seed. */
enum { STREAM_IMAGE = 1, STREAM_LABEL, STREAM_IGNORED, STREAM_WEIGHT };

float ls_naive_fill(const struct ls_prog *p, int row, uint64_t seed, int64_t i)
{
    const struct ls_fill *fill = &p->param[row].fill;
    uint64_t key = ls_mix64(seed, ls_hash64(p->tensor[p->param[row].tensor].name));
    double u = 0;
    switch (fill->kind) {
    case LS_FILL_CONSTANT:
        u = 1;
        break;
    case LS_FILL_NORMAL:
        u = ls_normal(key, STREAM_WEIGHT, (uint64_t)i);
        break;
    case LS_FILL_UNIFORM:
        u = 2 * ls_uniform(key, STREAM_WEIGHT, (uint64_t)i) - 1;
        break;
    }
    return (float)(fill->a * u);
}

void ls_naive_init(struct ls_naive *n, uint64_t seed)
{
    const struct ls_prog *p = ls_naive_prog(n);
    for (int row = 0; row < p->nparam; row++)
        for (int64_t i = 0; i < ls_graph_numel(p, p->param[row].tensor); i++)
            ls_naive_set(n, p->param[row].tensor, i, ls_naive_fill(p, row, seed, i));
    ls_naive_run(n, LS_SEG_LOAD);
}

void ls_naive_sample(const struct ls_prog *p, const struct ls_naive_data *data, int64_t first,
                     int64_t valid, float *images, int32_t *labels)
{
    const int64_t *shape = p->tensor[p->images].shape;
    int64_t rows = shape[0], size = ls_graph_numel(p, p->images) / rows;
    const struct ls_tensor *logits = &p->tensor[p->logits];
    int64_t classes = logits->shape[1];
    if (logits->place[LS_AXIS_TENSOR].kind == LS_PLACE_S && logits->place[LS_AXIS_TENSOR].dim == 1)
        classes *= p->options.mesh[LS_AXIS_TENSOR];
    for (int64_t r = 0; r < rows; r++) {
        uint64_t pos = (uint64_t)(first + r);
        double u = ls_uniform(data->seed, STREAM_LABEL, pos);
        bool ignored = ls_uniform(data->seed, STREAM_IGNORED, pos) < data->ignored || r >= valid;
        labels[r] = ignored ? -1 : (int32_t)floor(u * (double)classes);
        for (int64_t i = 0; i < size; i++)
            images[r * size + i] =
                (float)ls_normal(data->seed, STREAM_IMAGE, pos * (uint64_t)size + (uint64_t)i);
    }
}

void ls_naive_words(const struct ls_naive_data *data, int64_t step, int micro, int64_t first,
                    double *control)
{
    control[LS_C_STEP] = (double)step;
    control[LS_C_LR] = data->lr;
    control[LS_C_MICRO] = micro;
    control[LS_C_MICROS] = data->micros;
    control[LS_C_SAMPLE] = (double)first;
    control[LS_C_SEED] = (double)data->seed;
}

void ls_naive_load(struct ls_naive *n, const struct ls_naive_data *data, int64_t step, int micro,
                   int64_t first, int64_t valid)
{
    const struct ls_prog *p = ls_naive_prog(n);
    int64_t rows = p->tensor[p->images].shape[0], size = ls_graph_numel(p, p->images);
    float *images = malloc((size_t)size * sizeof *images);
    int32_t *labels = malloc((size_t)rows * sizeof *labels);
    if (!images || !labels)
        abort();
    ls_naive_sample(p, data, first, valid, images, labels);
    for (int64_t i = 0; i < size; i++)
        ls_naive_set(n, p->images, i, images[i]);
    for (int64_t i = 0; i < rows; i++)
        ls_naive_set(n, p->labels, i, labels[i]);
    double control[LS_CONTROL_WORDS];
    ls_naive_read(n, p->control, control);
    ls_naive_words(data, step, micro, first, control);
    for (int k = 0; k < LS_CONTROL_WORDS; k++)
        ls_naive_set(n, p->control, k, control[k]);
    free(images);
    free(labels);
}

void ls_naive_micros(struct ls_naive *n, const struct ls_naive_data *data, int64_t step)
{
    const struct ls_prog *p = ls_naive_prog(n);
    int64_t rows = p->tensor[p->images].shape[0];
    for (int m = 0; m < data->micros; m++) {
        ls_naive_load(n, data, step, m, (step * data->micros + m) * rows, rows);
        ls_naive_run(n, m == data->micros - 1 ? LS_SEG_LAST : LS_SEG_MICRO);
    }
}

void ls_naive_step(struct ls_naive *n, const struct ls_naive_data *data, int64_t step)
{
    ls_naive_micros(n, data, step);
    ls_naive_run(n, LS_SEG_UPDATE);
}
