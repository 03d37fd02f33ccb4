/* The real Fashion-MNIST of the Debian package dataset-fashion-mnist, through reader and feed. */
#include "data/data.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define DIR "/usr/share/datasets/fashion-mnist/"

static void test_set(const char *name, int64_t n, const char *first_labels)
{
    char images[256], labels[256];
    struct ls_error err = {0};
    struct ls_dataset set = {0};
    snprintf(images, sizeof images, DIR "%s-images-idx3-ubyte.gz", name);
    snprintf(labels, sizeof labels, DIR "%s-labels-idx1-ubyte.gz", name);
    if (!tap_ok(ls_dataset_open(images, labels, 10, &set, &err) == LS_OK, "%s opens", name)) {
        tap_note("%s", err.message);
        return;
    }
    tap_ok(set.n == n && set.height == 28 && set.width == 28 && set.channels == 1,
           "%s: %lld images of 28 x 28", name, (long long)n);
    int64_t count[10] = {0}, sum = 0, squares = 0, pixels = n * 784;
    bool first = true, even = true;
    for (int64_t i = 0; i < n; i++)
        count[set.labels[i]]++;
    for (int i = 0; first_labels[i]; i++)
        first = first && set.labels[i] == first_labels[i] - '0';
    for (int i = 0; i < 10; i++)
        even = even && count[i] == n / 10;
    for (int64_t i = 0; i < pixels; i++) {
        sum += set.pixels[i];
        squares += set.pixels[i] * set.pixels[i];
    }
    double mean = (double)sum / (double)pixels / 255;
    double std = sqrt((double)squares / (double)pixels / 255 / 255 - mean * mean);
    tap_ok(first, "%s: the first labels are %s", name, first_labels);
    tap_ok(even, "%s: every class equally often", name);
    if (n == 60000)
        tap_ok(fabs(mean - 0.2860) < 5e-5 && fabs(std - 0.3530) < 5e-5,
               "%s: mean %.4f, standard deviation %.4f", name, mean, std);

    /* One epoch through the feed is the whole set, normalised. */
    struct ls_feed_config k = {.set = &set, .micro_batch = 100, .seed = 1, .shuffle = true};
    float m = (float)mean, s = (float)std;
    k.mean = &m;
    k.std = &s;
    k.slots = 4;
    struct ls_feed *feed;
    double total = 0, total_squares = 0;
    if (!tap_ok(ls_feed_open(&k, &feed, &err) == LS_OK, "%s: the feed opens", name))
        return;
    for (int64_t i = 0; i < n; i += 100) {
        struct ls_batch b;
        ls_feed_next(feed, &b, NULL, NULL);
        for (int64_t j = 0; j < 78400; j++) {
            total += (double)b.images[j];
            total_squares += (double)b.images[j] * (double)b.images[j];
        }
    }
    ls_feed_close(feed);
    tap_ok(fabs(total / (double)pixels) < 1e-5 && fabs(total_squares / (double)pixels - 1) < 1e-5,
           "%s: an epoch of the feed has mean 0 and variance 1", name);
    ls_dataset_close(&set);
}

int main(void)
{
    if (access(DIR, F_OK) != 0)
        tap_skip_all("%s is absent: install the package dataset-fashion-mnist", DIR);
    test_set("train", 60000, "9003027255");
    test_set("t10k", 10000, "9211614657");
    return tap_done();
}
