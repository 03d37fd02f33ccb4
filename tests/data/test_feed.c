/* The feed against a plain reference: every batch, however it is cut and wherever it starts, holds
 * the samples of its positions, moved and normalised as their positions say. */
#include "data/data.h"
#include "tests/tap.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* ---- a set made of noise, and the reference ---------------------------------------------------- */

static const float means[] = {0.1f, 0.5f, 0.3f, 0.9f}, stds[] = {0.2f, 0.7f, 1.0f, 0.35f};

static void make_set(struct ls_dataset *set, int64_t n, int64_t h, int64_t w, int64_t c)
{
    int64_t size = n * h * w * c;
    uint8_t *pixels = malloc((size_t)size), *labels = malloc((size_t)n);
    if (!pixels || !labels)
        abort();
    for (int64_t i = 0; i < size; i++)
        pixels[i] = (uint8_t)(ls_mix64(1, (uint64_t)i) >> 16);
    for (int64_t i = 0; i < n; i++)
        labels[i] = (uint8_t)(ls_mix64(2, (uint64_t)i) % 10);
    *set = (struct ls_dataset){.n = n,
                               .height = h,
                               .width = w,
                               .channels = c,
                               .pixels = pixels,
                               .labels = labels,
                               .classes = 10};
}

static void free_set(struct ls_dataset *set)
{
    free((void *)(uintptr_t)set->pixels);
    free((void *)(uintptr_t)set->labels);
}

/* The image at a position, in double and pixel by pixel; returns its label. */
static int reference(const struct ls_feed_config *k, int64_t position, double *out)
{
    const struct ls_dataset *set = k->set;
    int64_t id = k->shuffle ? ls_order_sample(k->seed, set->n, position) : position;
    int64_t h = set->height, w = set->width, c = set->channels, span = 2 * k->shift + 1;
    uint32_t word[4];
    ls_philox(k->seed, 0x6175676D656E74, (uint64_t)position, word);
    int64_t dx = (int64_t)((double)word[0] / 4294967296.0 * (double)span) - k->shift;
    int64_t dy = (int64_t)((double)word[1] / 4294967296.0 * (double)span) - k->shift;
    bool flip = k->flip && word[2] >= 0x80000000u;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++)
            for (int64_t ch = 0; ch < c; ch++) {
                int64_t sy = y - dy, sx = x - dx;
                bool in = sy >= 0 && sy < h && sx >= 0 && sx < w;
                if (flip)
                    sx = w - 1 - sx;
                double raw = in ? set->pixels[((id * h + sy) * w + sx) * c + ch] : 0;
                out[(y * w + x) * c + ch] = (raw / 255 - (double)k->mean[ch]) / (double)k->std[ch];
            }
    return set->labels[id];
}

static bool batch_matches(const struct ls_feed_config *k, const struct ls_batch *b)
{
    int64_t row = k->set->height * k->set->width * k->set->channels;
    double *want = malloc((size_t)row * sizeof *want);
    bool good = want && (uintptr_t)b->images % 64 == 0;
    for (int64_t i = 0; good && i < b->rows; i++) {
        good = b->labels[i] == reference(k, b->position + i, want);
        for (int64_t j = 0; good && j < row; j++)
            good = fabs((double)b->images[i * row + j] - want[j]) <= 2e-6;
    }
    free(want);
    return good;
}

static struct ls_feed *open_feed(const struct ls_feed_config *k)
{
    struct ls_feed *feed = NULL;
    struct ls_error err = {0};
    if (ls_feed_open(k, &feed, &err) != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(99);
    }
    return feed;
}

/* `count` batches in a row; NULL entries of `rows` are not kept. Returns how many were right. */
static int take(struct ls_feed *feed, const struct ls_feed_config *k, int64_t position, int count)
{
    int right = 0;
    for (int i = 0; i < count; i++, position += k->micro_batch) {
        struct ls_batch b;
        double waited = 0;
        if (ls_feed_next(feed, &b, &waited, NULL) != LS_OK)
            break;
        right += b.position == position && b.rows == k->micro_batch && waited >= 0 &&
                 batch_matches(k, &b);
    }
    return right;
}

/* ---- content ----------------------------------------------------------------------------------- */

static void test_reference(void)
{
    static const int64_t shapes[][3] = {{28, 28, 1}, {5, 7, 1}, {8, 8, 3}, {3, 17, 4}, {4, 1, 2}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct ls_dataset set;
        int64_t h = shapes[s][0], w = shapes[s][1], c = shapes[s][2];
        int64_t least = h < w ? h : w;
        make_set(&set, 37, h, w, c);
        for (int mode = 0; mode < 4; mode++)
            for (int64_t shift = 0; shift < least; shift += 1 + shift) {
                struct ls_feed_config k = {.set = &set,
                                           .micro_batch = 8,
                                           .seed = 11,
                                           .shuffle = true,
                                           .position = 3,
                                           .shift = shift,
                                           .flip = mode & 1,
                                           .mean = means,
                                           .std = stds,
                                           .slots = mode & 2 ? 2 : 5};
                struct ls_feed *feed = open_feed(&k);
                int right = take(feed, &k, 3, 14);
                ls_feed_close(feed);
                tap_ok(right == 14,
                       "%lld x %lld x %lld, shift %lld, flip %d, %d slots: equal to the reference",
                       (long long)h, (long long)w, (long long)c, (long long)shift, k.flip, k.slots);
            }
        free_set(&set);
    }
}

/* Draws over many positions: each shift equally often, half of the samples mirrored. */
static void test_draws(void)
{
    enum { N = 20000, SHIFT = 2, SIDE = 2 * SHIFT + 1 };
    struct ls_dataset set;
    uint8_t pixels[25] = {0}, label = 0;
    float zero = 0, one = 1.0f / 255;
    int cells[SIDE][SIDE] = {{0}}, worst = 0, flips = 0;
    pixels[2 * 5 + 2] = 255; /* the middle shows where it was moved */
    set = (struct ls_dataset){.n = 1, .height = 5, .width = 5, .channels = 1, .classes = 1};
    set.pixels = pixels;
    set.labels = &label;
    struct ls_feed_config k = {.set = &set,
                               .micro_batch = N,
                               .seed = 5,
                               .shuffle = true,
                               .shift = SHIFT,
                               .mean = &zero,
                               .std = &one,
                               .slots = 2};
    struct ls_batch b;
    struct ls_feed *feed = open_feed(&k);
    ls_feed_next(feed, &b, NULL, NULL);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < 25; j++)
            cells[j / 5][j % 5] += b.images[i * 25 + j] > 1;
    for (int i = 0; i < SIDE * SIDE; i++) {
        int off = abs(cells[i / SIDE][i % SIDE] - N / (SIDE * SIDE));
        worst = off > worst ? off : worst;
    }
    ls_feed_close(feed);
    tap_ok(worst < 4 * 28, "25 shifts, each in a 25th of %d samples (at most %d off)", N, worst);
    k.shift = 0;
    k.flip = true;
    memset(pixels, 0, sizeof pixels);
    pixels[0] = 255;
    feed = open_feed(&k);
    ls_feed_next(feed, &b, NULL, NULL);
    for (int64_t i = 0; i < N; i++)
        flips += b.images[i * 25 + 4] > 1;
    ls_feed_close(feed);
    tap_ok(abs(flips - N / 2) < 4 * 71, "half of %d samples are mirrored (%d)", N, flips);
}

/* ---- the ledger -------------------------------------------------------------------------------- */

static void test_ledger(int64_t n, int64_t micro, int64_t epochs)
{
    struct ls_dataset set = {.n = n, .height = 1, .width = 2, .channels = 1, .classes = 1};
    uint8_t *pixels = malloc((size_t)n * 2), *labels = calloc(1, (size_t)n);
    int *seen = calloc((size_t)(n * epochs), sizeof *seen);
    float zero = 0, unit = 1.0f / 255; /* so that a pixel keeps its value */
    if (!pixels || !labels || !seen)
        abort();
    for (int64_t i = 0; i < n; i++) {
        pixels[2 * i] = (uint8_t)i;
        pixels[2 * i + 1] = (uint8_t)(i >> 8);
    }
    set.pixels = pixels;
    set.labels = labels;
    struct ls_feed_config k = {.set = &set,
                               .micro_batch = micro,
                               .seed = 9,
                               .shuffle = true,
                               .mean = &zero,
                               .std = &unit,
                               .slots = 3};
    struct ls_feed *feed = open_feed(&k);
    for (int64_t position = 0; position < n * epochs;) {
        struct ls_batch b;
        if (ls_feed_next(feed, &b, NULL, NULL) != LS_OK)
            break;
        for (int64_t i = 0; i < b.rows && position < n * epochs; i++, position++) {
            int64_t id = lrintf(b.images[2 * i]) + 256 * lrintf(b.images[2 * i + 1]);
            if (id >= 0 && id < n)
                seen[position / n * n + id]++;
        }
    }
    ls_feed_close(feed);
    int64_t once = 0;
    for (int64_t i = 0; i < n * epochs; i++)
        once += seen[i] == 1;
    tap_ok(once == n * epochs, "%lld samples in batches of %lld: each once in each of %lld epochs",
           (long long)n, (long long)micro, (long long)epochs);
    free(seen);
    free(labels);
    free(pixels);
}

/* A feed per rank, as a run of `size` ranks opens them: rank r takes the micro-batches from micros * r / size on
 * of every global batch. Counts how often each sample of each epoch came; steps need not divide an epoch. */
static void test_shared_ledger(int64_t n, int64_t micro, int64_t micros, int size)
{
    enum { EPOCHS = 2 };
    int64_t global = micro * micros, total = n * EPOCHS, once = 0, misplaced = 0;
    struct ls_dataset set = {.n = n, .height = 1, .width = 2, .channels = 1, .classes = 1};
    uint8_t *pixels = malloc((size_t)n * 2), *labels = calloc(1, (size_t)n);
    int *seen = calloc((size_t)total, sizeof *seen);
    float zero = 0, unit = 1.0f / 255;
    if (!pixels || !labels || !seen)
        abort();
    for (int64_t i = 0; i < n; i++) {
        pixels[2 * i] = (uint8_t)i;
        pixels[2 * i + 1] = (uint8_t)(i >> 8);
    }
    set.pixels = pixels;
    set.labels = labels;
    for (int rank = 0; rank < size; rank++) {
        int64_t first = micros * rank / size, own = micros * (rank + 1) / size - first;
        if (own == 0)
            continue; /* such a rank opens no feed */
        struct ls_feed_config k = {.set = &set,
                                   .micro_batch = micro,
                                   .seed = 9,
                                   .shuffle = true,
                                   .position = first * micro,
                                   .run = own,
                                   .stride = global,
                                   .mean = &zero,
                                   .std = &unit,
                                   .slots = 4};
        struct ls_feed *feed = open_feed(&k);
        for (int64_t step = 0; step * global < total; step++)
            for (int64_t m = 0; m < own; m++) {
                struct ls_batch b;
                int64_t want = step * global + (first + m) * micro;
                if (ls_feed_next(feed, &b, NULL, NULL) != LS_OK || b.position != want ||
                    b.rows != micro) {
                    misplaced++;
                    continue;
                }
                for (int64_t i = 0; i < micro && want + i < total; i++) {
                    int64_t id = lrintf(b.images[2 * i]) + 256 * lrintf(b.images[2 * i + 1]);
                    if (id >= 0 && id < n)
                        seen[(want + i) / n * n + id]++;
                }
            }
        ls_feed_close(feed);
    }
    for (int64_t i = 0; i < total; i++)
        once += seen[i] == 1;
    tap_ok(once == total && misplaced == 0,
           "%lld samples, %d ranks, steps of %lld micro-batches of %lld: each once in each of %d "
           "epochs",
           (long long)n, size, (long long)micros, (long long)micro, EPOCHS);
    free(seen);
    free(labels);
    free(pixels);
}

static void test_shared_ledgers(void)
{
    for (int size = 1; size <= 4; size++) {
        test_shared_ledger(1000, 8, 5, size); /* 25 steps an epoch */
        test_shared_ledger(1000, 7, 6, size); /* a step lies across the border of the epochs */
        test_shared_ledger(613, 5, 3, size);  /* with 4 ranks one has nothing to do */
        test_shared_ledger(37, 16, 7, size);  /* a step is longer than three epochs */
    }
}

/* ---- resume, seek, other batch sizes ------------------------------------------------------------ */

enum { STREAM = 160 }; /* rows of the uninterrupted stream that the others are compared with */

struct stream {
    int64_t row; /* floats */
    float *images;
    int32_t labels[STREAM];
};

static void record(const struct ls_feed_config *k, struct stream *s)
{
    struct ls_feed *feed = open_feed(k);
    s->row = k->set->height * k->set->width * k->set->channels;
    s->images = malloc((size_t)(STREAM * s->row) * sizeof(float));
    if (!s->images)
        abort();
    for (int64_t at = 0; at < STREAM; at += k->micro_batch) {
        struct ls_batch b;
        ls_feed_next(feed, &b, NULL, NULL);
        memcpy(s->images + at * s->row, b.images,
               (size_t)(k->micro_batch * s->row) * sizeof(float));
        memcpy(s->labels + at, b.labels, (size_t)k->micro_batch * sizeof(int32_t));
    }
    ls_feed_close(feed);
}

/* The rows of a batch that lie in the recorded stream, bit by bit. */
static bool in_stream(const struct stream *s, const struct ls_batch *b)
{
    for (int64_t i = 0; i < b->rows && b->position + i < STREAM; i++)
        if (b->labels[i] != s->labels[b->position + i] ||
            memcmp(b->images + i * s->row, s->images + (b->position + i) * s->row,
                   (size_t)s->row * sizeof(float)) != 0)
            return false;
    return true;
}

static void test_resume(void)
{
    struct ls_dataset set;
    struct stream s;
    make_set(&set, 37, 6, 6, 3);
    struct ls_feed_config k = {.set = &set,
                               .micro_batch = 8,
                               .seed = 21,
                               .shuffle = true,
                               .shift = 2,
                               .flip = true,
                               .mean = means,
                               .std = stds,
                               .slots = 4};
    record(&k, &s);
    int bad = 0;
    for (k.position = 0; k.position < 80; k.position++) {
        struct ls_feed *feed = open_feed(&k);
        for (int i = 0; i < 6; i++) {
            struct ls_batch b;
            bad += ls_feed_next(feed, &b, NULL, NULL) != LS_OK ||
                   b.position != k.position + 8 * i || !in_stream(&s, &b);
        }
        ls_feed_close(feed);
    }
    tap_ok(bad == 0, "from any position: bit-equal to the uninterrupted stream");

    bad = 0;
    k.position = 0;
    for (k.micro_batch = 1; k.micro_batch <= 50; k.micro_batch++) {
        struct ls_feed *feed = open_feed(&k);
        for (int64_t at = 0; at < STREAM; at += k.micro_batch) {
            struct ls_batch b;
            bad += ls_feed_next(feed, &b, NULL, NULL) != LS_OK || b.position != at ||
                   !in_stream(&s, &b);
        }
        ls_feed_close(feed);
    }
    tap_ok(bad == 0, "micro-batches of 1 to 50 rows: bit-equal to each other");

    bad = 0;
    k.micro_batch = 8;
    struct ls_feed *feed = open_feed(&k);
    for (uint64_t i = 0; i < 500; i++) {
        int64_t at = (int64_t)(ls_mix64(3, i) % 100);
        bad += ls_feed_seek(feed, at, NULL) != LS_OK;
        for (uint64_t j = 0; j < i % 7; j++, at += 8) {
            struct ls_batch b;
            bad += ls_feed_next(feed, &b, NULL, NULL) != LS_OK || b.position != at ||
                   !in_stream(&s, &b);
        }
    }
    ls_feed_close(feed);
    tap_ok(bad == 0, "500 seeks");
    free(s.images);
    free_set(&set);
}

/* A batch must not change while it is held, however far ahead the thread could get. */
static void test_held(void)
{
    struct ls_dataset set;
    struct stream s;
    make_set(&set, 37, 6, 6, 1);
    struct ls_feed_config k = {
        .set = &set, .micro_batch = 4, .seed = 2, .shuffle = true, .mean = means, .std = stds};
    k.slots = 2;
    record(&k, &s);
    for (k.slots = 2; k.slots <= 9; k.slots++) {
        struct ls_feed *feed = open_feed(&k);
        int bad = 0;
        for (int i = 0; i < STREAM / 4; i++) {
            struct ls_batch b;
            ls_feed_next(feed, &b, NULL, NULL);
            for (int j = 0; j < 30; j++)
                sched_yield();
            bad += b.position != 4 * i || !in_stream(&s, &b);
        }
        ls_feed_close(feed);
        tap_ok(bad == 0, "a held batch stays, %d slots", k.slots);
    }
    free(s.images);
    free_set(&set);
}

/* The ring is refilled at multiples of half of it. Whatever the number of slots, and wherever seeks have left
 * it, the next batch comes: a feed that waits for room that never opens would end this test by its alarm. The
 * producer is given the time to fill the ring, or not. */
static void test_refill(void)
{
    struct ls_dataset set;
    struct stream s;
    make_set(&set, 37, 4, 4, 1);
    struct ls_feed_config k = {
        .set = &set, .micro_batch = 4, .seed = 3, .shuffle = true, .mean = means, .std = stds};
    k.slots = 2;
    record(&k, &s);
    alarm(120);
    for (k.slots = 2; k.slots <= 7; k.slots++) {
        struct ls_feed *feed = open_feed(&k);
        int bad = 0;
        for (uint64_t seek = 0; seek < 200; seek++) {
            int64_t at = (int64_t)(ls_mix64(5, seek) % 60);
            int64_t take = (int64_t)(seek % (3 * (uint64_t)k.slots));
            bad += seek && ls_feed_seek(feed, at, NULL) != LS_OK;
            at = seek ? at : 0;
            for (int64_t j = 0; j < take; j++, at += k.micro_batch) {
                struct ls_batch b;
                for (uint64_t y = ls_mix64(seek, (uint64_t)j) % 2 * 40; y > 0; y--)
                    sched_yield();
                bad += ls_feed_next(feed, &b, NULL, NULL) != LS_OK || b.position != at ||
                       !in_stream(&s, &b);
            }
        }
        ls_feed_close(feed);
        tap_ok(bad == 0, "%d slots: 200 seeks, and between them up to three rounds of the ring",
               k.slots);
    }
    alarm(0);
    free(s.images);
    free_set(&set);
}

/* ---- evaluation --------------------------------------------------------------------------------- */

static bool padded(const struct ls_feed_config *k, const struct ls_batch *b)
{
    int64_t row = k->set->height * k->set->width * k->set->channels;
    bool good = true;
    for (int64_t i = b->rows; i < k->micro_batch; i++) {
        good = good && b->labels[i] == -1;
        for (int64_t j = 0; j < row; j++)
            good = good && b->images[i * row + j] == 0;
    }
    return good;
}

/* Counts the samples of an evaluation up to its end; -1 if a batch is wrong. */
static int64_t evaluate(struct ls_feed *feed, const struct ls_feed_config *k, int64_t position)
{
    struct ls_batch b;
    struct ls_error err = {0};
    enum ls_status status;
    int64_t rows = 0;
    while ((status = ls_feed_next(feed, &b, NULL, &err)) == LS_OK) {
        if (b.position != position || !batch_matches(k, &b) || !padded(k, &b))
            return -1;
        rows += b.rows;
        position += k->micro_batch;
    }
    bool again = ls_feed_next(feed, &b, NULL, &err) == LS_ERR_NOTFOUND;
    return status == LS_ERR_NOTFOUND && again && err.message[0] == '\0' ? rows : -1;
}

static void test_evaluation(void)
{
    struct ls_dataset set;
    make_set(&set, 37, 5, 5, 2);
    struct ls_feed_config k = {.set = &set, .mean = means, .std = stds, .slots = 3};
    for (k.micro_batch = 1; k.micro_batch <= 64; k.micro_batch += k.micro_batch) {
        struct ls_feed *feed = open_feed(&k);
        bool good = true;
        for (int pass = 0; pass < 5; pass++) {
            good = good && evaluate(feed, &k, 0) == 37;
            ls_feed_seek(feed, 0, NULL);
        }
        ls_feed_seek(feed, 30, NULL);
        good = good && evaluate(feed, &k, 30) == 7;
        ls_feed_seek(feed, 37, NULL);
        good = good && evaluate(feed, &k, 37) == 0;
        ls_feed_close(feed);
        tap_ok(good, "evaluation in batches of %lld: 37 samples, five times; 7 from 30 on",
               (long long)k.micro_batch);
    }
    free_set(&set);
}

/* ---- start, stop, refusals ---------------------------------------------------------------------- */

static void test_close(void)
{
    struct ls_dataset set;
    make_set(&set, 37, 6, 6, 1);
    struct ls_feed_config k = {.set = &set, .micro_batch = 16, .mean = means, .std = stds};
    int bad = 0;
    for (int i = 0; i < 300; i++) {
        k.shuffle = i % 2;
        k.slots = 2 + i % 3;
        struct ls_feed *feed = open_feed(&k);
        for (int j = 0; j < i % 5; j++) {
            struct ls_batch b;
            bad += ls_feed_next(feed, &b, NULL, NULL) != LS_OK && (k.shuffle || j < 3);
        }
        if (i % 7 == 0)
            sched_yield();
        ls_feed_close(feed);
    }
    ls_feed_close(NULL);
    tap_ok(bad == 0, "300 feeds closed at any time");
    free_set(&set);
}

static bool refused(const struct ls_feed_config *k, enum ls_status status, const char *part)
{
    struct ls_feed *feed = NULL;
    struct ls_error err = {0};
    enum ls_status got = ls_feed_open(k, &feed, &err);
    bool good = got == status && strstr(err.message, part) && !feed;
    if (!good)
        tap_note("got %s: %s", ls_status_name(got), err.message);
    ls_feed_close(feed);
    return good;
}

static void test_refused(void)
{
    struct ls_dataset set;
    float zero = 0, not_finite = INFINITY;
    make_set(&set, 5, 6, 4, 1);
    const struct ls_feed_config fine = {
        .set = &set, .micro_batch = 2, .shuffle = true, .mean = means, .std = stds, .slots = 2};
    struct ls_feed_config k = fine;
    k.micro_batch = 0;
    tap_ok(refused(&k, LS_ERR_USAGE, "micro-batch of 0"), "no rows");
    k = fine;
    k.slots = 1;
    tap_ok(refused(&k, LS_ERR_USAGE, "1 slots"), "one slot");
    k = fine;
    k.position = -1;
    tap_ok(refused(&k, LS_ERR_USAGE, "position -1"), "a negative position");
    k = fine;
    k.shift = 4;
    tap_ok(refused(&k, LS_ERR_USAGE, "expected 0 to 3"), "a shift as wide as the image");
    k = fine;
    k.std = &zero;
    tap_ok(refused(&k, LS_ERR_USAGE, "deviation above 0"), "a deviation of 0");
    k = fine;
    k.mean = &not_finite;
    tap_ok(refused(&k, LS_ERR_USAGE, "finite"), "an infinite mean");
    k = fine;
    k.micro_batch = INT32_MAX;
    k.slots = INT32_MAX;
    tap_ok(refused(&k, LS_ERR_OVERFLOW, "do not fit"), "batches that fit in no memory");
    struct ls_feed *feed = open_feed(&fine);
    struct ls_error err = {0};
    struct ls_batch b;
    tap_ok(ls_feed_seek(feed, -1, &err) == LS_ERR_USAGE && strstr(err.message, "-1") &&
               ls_feed_next(feed, &b, NULL, NULL) == LS_OK && b.position == 0,
           "a seek to nowhere changes nothing");
    ls_feed_close(feed);
    free_set(&set);
}

int main(void)
{
    test_reference();
    test_draws();
    test_ledger(1000, 96, 4);
    test_ledger(37, 64, 9);
    test_ledger(1, 3, 9);
    test_ledger(60000, 128, 2);
    test_shared_ledgers();
    test_resume();
    test_held();
    test_refill();
    test_evaluation();
    test_close();
    test_refused();
    return tap_done();
}
