/* The feed: one thread prepares micro-batches into a ring of slots, ahead of the one that takes
 * them. What is in a batch depends on (seed, position) alone, never on timing. */
#include "data/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POSITION ((int64_t)1 << 62)
/* Longest spin before a wait sleeps, in pauses of roughly 40 to 140 cycles: about 20 us, the order
 * of what falling asleep and being woken costs. More would take the core from the thread that it
 * waits for. */
#define MAX_SPIN   512
#define LOOK_AHEAD 4    /* samples whose first lines are fetched early: their order is random */
#define FETCH      1024 /* bytes of them; behind that the hardware sees the stream */

/*     released <= taken <= made <= released + slots
 *
 * Batch number i lives in slot i % slots. [released, taken) is the one that the consumer holds, if
 * any; [taken, made) are ready. */
struct ls_feed {
    struct ls_feed_config config;
    int64_t row;              /* bytes of one image */
    float *minus, *times;     /* see ls_data_normalise */
    uint8_t *moved;           /* one augmented image */
    int64_t *ids;             /* samples of the batch being made */
    int64_t stride, memory;   /* floats from slot to slot; bytes of all slots */
    uint8_t *slots;           /* images of all slots, then labels of all slots */
    struct ls_batch *batches; /* [slots], what each slot holds */
    int spin;                 /* consumer's: grows while spinning pays, shrinks when it does not */
    int64_t taken;            /* consumer's */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ready, room;
    _Atomic int64_t made;    /* written under the lock; the consumer spins on it without */
    _Atomic unsigned era;    /* counts seeks; a batch begun before the last one is thrown away */
    int64_t released, start; /* under the lock; start: first position of this era */
    bool stop, ended;        /* under the lock */
    bool full;               /* under the lock: the producer waits for room */
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void fetch(const uint8_t *image, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && i < FETCH; i += 64)
        __builtin_prefetch(image + i);
}

/* Fills `batch` from `position` on; false when a seek or close made it pointless. */
static bool fill(struct ls_feed *feed, struct ls_batch *batch, int64_t position, unsigned era)
{
    const struct ls_feed_config *config = &feed->config;
    const struct ls_dataset *set = config->set;
    float *images = (float *)(uintptr_t)batch->images; /* our own slot, const to the consumer */
    int32_t *labels = (int32_t *)(uintptr_t)batch->labels;
    int64_t rows = config->micro_batch;
    if (!config->shuffle && rows > set->n - position)
        rows = set->n - position;
    for (int64_t i = 0; i < rows; i++)
        feed->ids[i] =
            config->shuffle ? ls_order_sample(config->seed, set->n, position + i) : position + i;
    bool augment = config->shift || config->flip;
    for (int64_t i = 0; i < rows; i++) {
        if (atomic_load_explicit(&feed->era, memory_order_relaxed) != era)
            return false;
        if (i + LOOK_AHEAD < rows)
            fetch(set->pixels + feed->ids[i + LOOK_AHEAD] * feed->row, feed->row);
        const uint8_t *image = set->pixels + feed->ids[i] * feed->row;
        if (augment) {
            struct ls_data_draw draw =
                ls_data_draw(config->seed, position + i, config->shift, config->flip);
            ls_data_move(image, feed->moved, set->height, set->width, set->channels, &draw);
            image = feed->moved;
        }
        ls_data_normalise(image, images + i * feed->row, feed->row, set->channels, feed->minus,
                          feed->times);
        labels[i] = set->labels[feed->ids[i]];
    }
    for (int64_t i = rows; i < config->micro_batch; i++)
        labels[i] = -1;
    memset(images + rows * feed->row, 0,
           (size_t)((config->micro_batch - rows) * feed->row) * sizeof(float));
    batch->position = position;
    batch->rows = rows;
    return true;
}

static int64_t free_slots(const struct ls_feed *feed)
{
    return feed->config.slots -
           (atomic_load_explicit(&feed->made, memory_order_relaxed) - feed->released);
}

/* Position of batch number `made` of this era: runs of `run` batches start `stride` samples apart. */
static int64_t position_of(const struct ls_feed *feed, int64_t made)
{
    const struct ls_feed_config *c = &feed->config;
    if (c->run == 0)
        return feed->start + made * c->micro_batch;
    return feed->start + made / c->run * c->stride + made % c->run * c->micro_batch;
}

static bool at_end(const struct ls_feed *feed, int64_t position)
{
    return !feed->config.shuffle && position >= feed->config.set->n;
}

/* Sleeps, with the lock held, while there is nothing to do in this era. Once full, it sleeps until
 * half of the ring is free: one wake-up then serves several batches, and a wake-up takes a core
 * from the step. It comes at multiples of half a ring, so that ranks in step are held up in the same
 * step, and not each in another one while its peers wait. */
static void wait_for_room(struct ls_feed *feed, unsigned era)
{
    feed->full = free_slots(feed) == 0;
    while (!feed->stop && atomic_load(&feed->era) == era && (feed->ended || feed->full))
        pthread_cond_wait(&feed->room, &feed->lock);
}

static void *produce(void *arg)
{
    struct ls_feed *feed = arg;
    pthread_mutex_lock(&feed->lock);
    unsigned era = atomic_load(&feed->era);
    for (;;) {
        int64_t position = position_of(feed, atomic_load(&feed->made));
        if (!feed->ended && at_end(feed, position) && era == atomic_load(&feed->era)) {
            feed->ended = true;
            pthread_cond_signal(&feed->ready);
        }
        wait_for_room(feed, era);
        if (feed->stop)
            break;
        if (era != atomic_load(&feed->era)) {
            era = atomic_load(&feed->era);
            continue;
        }
        int64_t made = atomic_load(&feed->made);
        struct ls_batch *batch = &feed->batches[made % feed->config.slots];
        pthread_mutex_unlock(&feed->lock);
        bool whole = fill(feed, batch, position, era);
        pthread_mutex_lock(&feed->lock);
        if (whole && era == atomic_load(&feed->era)) {
            atomic_store(&feed->made, made + 1);
            pthread_cond_signal(&feed->ready);
        }
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static enum ls_status check_position(int64_t position, struct ls_error *err)
{
    if (position < 0 || position > MAX_POSITION)
        return ls_error_set(err, LS_ERR_USAGE,
                            "found data position %" PRId64 ", expected 0 to 2^62", position);
    return LS_OK;
}

static enum ls_status check_config(const struct ls_feed_config *config, struct ls_error *err)
{
    const struct ls_dataset *set = config->set;
    int64_t least = set->height < set->width ? set->height : set->width;
    LS_TRY(check_position(config->position, err));
    if (config->micro_batch < 1 || config->micro_batch > INT32_MAX)
        return ls_error_set(err, LS_ERR_USAGE,
                            "found a micro-batch of %" PRId64 " rows, expected 1 to 2^31 - 1",
                            config->micro_batch);
    if (config->slots < 2)
        return ls_error_set(err, LS_ERR_USAGE, "found %d slots of a feed, expected at least 2",
                            config->slots);
    if (config->shift < 0 || config->shift >= least)
        return ls_error_set(err, LS_ERR_USAGE,
                            "found an augmentation shift of %" PRId64
                            " pixels, expected 0 to %" PRId64 " (images are %" PRId64 " x %" PRId64
                            "); set data.augment.shift lower",
                            config->shift, least - 1, set->height, set->width);
    for (int64_t k = 0; k < set->channels; k++)
        if (!isfinite(config->mean[k]) || !isfinite(config->std[k]) || config->std[k] <= 0)
            return ls_error_set(err, LS_ERR_USAGE,
                                "found mean %g and standard deviation %g of channel %" PRId64
                                ", expected finite numbers and a deviation above 0; correct "
                                "data.mean and data.std",
                                (double)config->mean[k], (double)config->std[k], k);
    return LS_OK;
}

static enum ls_status allocate(struct ls_feed *feed, struct ls_error *err)
{
    const struct ls_feed_config *config = &feed->config;
    int64_t pixels, slot, images, labels, slots = config->slots, rows = config->micro_batch;
    int64_t table = LS_DATA_BLOCK * config->set->channels;
    if (!ls_mul_i64(rows, feed->row, &pixels) || !ls_mul_i64(pixels, 4, &slot) ||
        !ls_add_i64(slot, 64, &slot) || !ls_mul_i64(slot & ~(int64_t)63, slots, &images) ||
        !ls_mul_i64(slots * 4, rows, &labels) || !ls_add_i64(images, labels, &feed->memory))
        return ls_error_set(err, LS_ERR_OVERFLOW,
                            "%" PRId64 " batches of %" PRId64 " images do not fit in memory; set a "
                            "smaller micro-batch",
                            slots, rows);
    feed->stride = (slot & ~(int64_t)63) / 4;
    feed->slots = ls_data_map(feed->memory);
    feed->minus = malloc((size_t)table * sizeof(float));
    feed->times = malloc((size_t)table * sizeof(float));
    feed->moved = malloc((size_t)feed->row);
    feed->ids = malloc((size_t)rows * sizeof(int64_t));
    feed->batches = calloc((size_t)slots, sizeof *feed->batches);
    if (!feed->slots || !feed->minus || !feed->times || !feed->moved || !feed->ids ||
        !feed->batches)
        return ls_error_set(err, LS_ERR_NOMEM,
                            "no memory for %" PRId64 " batches of %" PRId64 " images (%" PRId64
                            " bytes); set a smaller micro-batch",
                            slots, rows, feed->memory);
    for (int64_t i = 0; i < slots; i++) {
        feed->batches[i].images = (const float *)(const void *)feed->slots + i * feed->stride;
        feed->batches[i].labels = (const int32_t *)(const void *)(feed->slots + images) + i * rows;
    }
    for (int64_t i = 0; i < table; i++) {
        int64_t k = i % config->set->channels;
        feed->minus[i] = (float)(255.0 * (double)config->mean[k]);
        feed->times[i] = (float)(1 / (255.0 * (double)config->std[k]));
    }
    return LS_OK;
}

static void release(struct ls_feed *feed)
{
    ls_data_unmap(feed->slots, feed->memory);
    free(feed->minus);
    free(feed->times);
    free(feed->moved);
    free(feed->ids);
    free(feed->batches);
    pthread_cond_destroy(&feed->room);
    pthread_cond_destroy(&feed->ready);
    pthread_mutex_destroy(&feed->lock);
    free(feed);
}

enum ls_status ls_feed_open(const struct ls_feed_config *config, struct ls_feed **out,
                            struct ls_error *err)
{
    LS_TRY(check_config(config, err));
    struct ls_feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the data feed");
    const struct ls_dataset *set = config->set;
    feed->config = *config;
    feed->row = set->height * set->width * set->channels;
    feed->start = config->position;
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->ready, NULL);
    pthread_cond_init(&feed->room, NULL);
    enum ls_status status = allocate(feed, err);
    feed->config.mean = feed->config.std = NULL; /* the caller's, no longer needed */
    int bad =
        status == LS_OK ? ls_data_thread(&feed->thread, "ls-feed", config->cpus, produce, feed) : 0;
    if (bad)
        status = ls_error_errno(err, bad, "starting the data thread");
    if (status == LS_OK)
        *out = feed;
    else
        release(feed);
    return status;
}

void ls_feed_close(struct ls_feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->lock);
    feed->stop = true;
    atomic_fetch_add(&feed->era, 1); /* ends a batch that is being made */
    pthread_cond_signal(&feed->room);
    pthread_mutex_unlock(&feed->lock);
    pthread_join(feed->thread, NULL);
    release(feed);
}

/* ---- the consumer's side --------------------------------------------------------------------- */

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits, with the lock held, for a batch or the end. */
static void wait_for_batch(struct ls_feed *feed)
{
    pthread_mutex_unlock(&feed->lock);
    int spins = 0;
    while (spins < feed->spin && atomic_load(&feed->made) == feed->taken) {
        pause_cpu();
        spins++;
    }
    bool paid = atomic_load(&feed->made) != feed->taken;
    feed->spin = paid ? 2 * feed->spin + 16 : feed->spin / 2;
    if (feed->spin > MAX_SPIN)
        feed->spin = MAX_SPIN;
    pthread_mutex_lock(&feed->lock);
    while (atomic_load(&feed->made) == feed->taken && !feed->ended)
        pthread_cond_wait(&feed->ready, &feed->lock);
}

enum ls_status ls_feed_next(struct ls_feed *feed, struct ls_batch *batch, double *waited,
                            struct ls_error *err)
{
    (void)err; /* nothing can fail yet; a feed that reads while it runs can */
    pthread_mutex_lock(&feed->lock);
    feed->released = feed->taken;
    int64_t half = feed->config.slots / 2;
    if (feed->full && free_slots(feed) >= half && feed->released % half == 0) {
        feed->full = false;
        pthread_cond_signal(&feed->room);
    }
    if (atomic_load(&feed->made) == feed->taken && !feed->ended) {
        double begin = ls_time_monotonic();
        wait_for_batch(feed);
        if (waited)
            *waited += ls_time_monotonic() - begin;
    }
    bool some = atomic_load(&feed->made) != feed->taken;
    if (some)
        *batch = feed->batches[feed->taken++ % feed->config.slots];
    pthread_mutex_unlock(&feed->lock);
    return some ? LS_OK : LS_ERR_NOTFOUND;
}

enum ls_status ls_feed_seek(struct ls_feed *feed, int64_t position, struct ls_error *err)
{
    LS_TRY(check_position(position, err));
    pthread_mutex_lock(&feed->lock);
    atomic_fetch_add(&feed->era, 1);
    atomic_store(&feed->made, 0);
    feed->taken = feed->released = 0;
    feed->start = position;
    feed->ended = false;
    pthread_cond_signal(&feed->room);
    pthread_mutex_unlock(&feed->lock);
    return LS_OK;
}
