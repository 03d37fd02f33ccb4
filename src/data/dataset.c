/* A labelled image set: two IDX files that must fit together. */
#include "data/internal.h"

#include <inttypes.h>
#include <string.h>

struct labels_job {
    const char *path;
    struct ls_idx *idx;
    enum ls_status status;
    struct ls_error err;
};

static void *read_labels(void *arg)
{
    struct labels_job *job = arg;
    job->status = ls_idx_open(job->path, job->idx, &job->err);
    return NULL;
}

/* Reads both files at once. Where both fail, the images' error is the one that counts. */
static enum ls_status read_both(const char *images, const char *labels, struct ls_dataset *set,
                                struct ls_error *err)
{
    struct labels_job job = {.path = labels, .idx = &set->labels_file};
    pthread_t thread;
    bool threaded = ls_data_thread(&thread, "ls-labels", NULL, read_labels, &job) == 0;
    enum ls_status status = ls_idx_open(images, &set->images_file, err);
    if (threaded)
        pthread_join(thread, NULL);
    else
        read_labels(&job); /* no thread to be had: one after the other */
    if (status == LS_OK && job.status != LS_OK)
        status = ls_error_set(err, job.status, "%s", job.err.message);
    return status;
}

static enum ls_status check_shapes(const char *images, const char *labels, struct ls_dataset *set,
                                   struct ls_error *err)
{
    const struct ls_idx *im = &set->images_file, *la = &set->labels_file;
    if (im->ndim != 3 && im->ndim != 4)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: found %d dimensions, images have 3 (count, height, width) or 4 "
                            "(and channels); are images and labels swapped?",
                            images, im->ndim);
    if (la->ndim != 1)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: found %d dimensions, labels have 1 (count); are images and labels "
                            "swapped?",
                            labels, la->ndim);
    set->n = im->shape[0];
    set->height = im->shape[1];
    set->width = im->shape[2];
    set->channels = im->ndim == 4 ? im->shape[3] : 1;
    if (set->n == 0 || set->height == 0 || set->width == 0 || set->channels == 0)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s: found %" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64
                            " pixels and channels, none of them may be 0",
                            images, set->n, set->height, set->width, set->channels);
    if (la->shape[0] != set->n)
        return ls_error_set(err, LS_ERR_FORMAT,
                            "%s has %" PRId64 " images, but %s has %" PRId64
                            " labels; give the two files of one set",
                            images, set->n, labels, la->shape[0]);
    return LS_OK;
}

static enum ls_status check_labels(const char *labels, const struct ls_dataset *set,
                                   struct ls_error *err)
{
    for (int64_t i = 0; i < set->n; i++)
        if (set->labels[i] >= set->classes)
            return ls_error_set(err, LS_ERR_FORMAT,
                                "%s: label %" PRId64 " is %d, expected 0 to %" PRId64
                                " (the model has %" PRId64 " classes); raise model.classes or give "
                                "the right file",
                                labels, i, set->labels[i], set->classes - 1, set->classes);
    return LS_OK;
}

enum ls_status ls_dataset_open(const char *images, const char *labels, int64_t classes,
                               struct ls_dataset *set, struct ls_error *err)
{
    struct ls_dataset found = {.classes = classes};
    if (classes < 1)
        return ls_error_set(err, LS_ERR_USAGE, "found %" PRId64 " classes, expected at least 1",
                            classes);
    enum ls_status status = read_both(images, labels, &found, err);
    if (status == LS_OK)
        status = check_shapes(images, labels, &found, err);
    found.pixels = found.images_file.data;
    found.labels = found.labels_file.data;
    if (status == LS_OK)
        status = check_labels(labels, &found, err);
    if (status == LS_OK)
        *set = found;
    else
        ls_dataset_close(&found);
    return status;
}

void ls_dataset_close(struct ls_dataset *set)
{
    ls_idx_close(&set->images_file);
    ls_idx_close(&set->labels_file);
    memset(set, 0, sizeof *set);
}
