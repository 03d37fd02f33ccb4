/* Do all ranks read the same data? The job description, which they have compared, only names files: a node with
 * another copy would draw other samples, or have more steps than the others. */
#include "train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#define MOST_IMAGES \
    1024 /* that are looked at; a copy that is another one differs in more than a few */

struct summary {
    int64_t n, height, width, channels; /* all 0: no such set */
    uint64_t sum;                       /* of all labels, and of images at even distances */
};
/* What rank 0 tells the others. */
struct summaries {
    struct summary train, test;
};

static struct summary summarize(const struct ls_dataset *set)
{
    int64_t size = set->height * set->width * set->channels;
    int64_t every = set->n / MOST_IMAGES + 1;
    uint64_t sum = XXH3_64bits(set->labels, (size_t)set->n);
    for (int64_t i = 0; i < set->n; i += every)
        sum = XXH3_64bits_withSeed(set->pixels + i * size, (size_t)size, sum);
    return (struct summary){set->n, set->height, set->width, set->channels, sum};
}

static bool same(const struct summary *a, const struct summary *b)
{
    return a->n == b->n && a->height == b->height && a->width == b->width &&
           a->channels == b->channels && a->sum == b->sum;
}

static const char *describe(const struct summary *s, char out[static 160])
{
    snprintf(out, 160,
             "%" PRId64 " samples of %" PRId64 " x %" PRId64 " x %" PRId64 " (checksum %016" PRIx64
             ")",
             s->n, s->height, s->width, s->channels, s->sum);
    return out;
}

static enum ls_status compare(const struct ls_run *run, const char *path,
                              const struct summary *mine, const struct summary *first,
                              struct ls_error *err)
{
    const struct ls_ranks *r = run->ranks;
    char found[160], expected[160];
    if (same(mine, first))
        return LS_OK;
    return ls_error_set(err, LS_ERR_ENV,
                        "%.200s: rank %d on %.60s found %s, rank 0 on %.60s %s; give all nodes the "
                        "same file",
                        path, r->rank, r->host[r->rank], describe(mine, found), r->host[0],
                        describe(first, expected));
}

enum ls_status ls_run_compare_data(struct ls_run *run, struct ls_error *err)
{
    if (run->ranks->size == 1)
        return LS_OK;
    struct summaries mine = {.train = summarize(&run->train)};
    if (run->has_test)
        mine.test = summarize(&run->test);
    struct summaries first = mine;
    LS_TRY(ls_ranks_broadcast(run->ranks, &first, sizeof first, 0, err));
    enum ls_status status =
        compare(run, run->job->data.train_images, &mine.train, &first.train, err);
    if (status == LS_OK && run->has_test)
        status = compare(run, run->job->data.test_images, &mine.test, &first.test, err);
    return ls_ranks_agree(run->ranks, status, err);
}
