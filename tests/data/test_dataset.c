/* Image and label files that fit together, and those that do not. */
#include "tests/data/files.h"

static struct bytes file;

static const char *put_idx(const char *name, int ndim, const uint32_t *shape, int limit, bool gzip)
{
    static struct bytes packed;
    make_idx(&file, ndim, shape, 7, limit);
    packed.size = 0;
    if (!gzip)
        return put(name, file.data, file.size);
    add_gzip(&packed, file.data, file.size, 6);
    return put(name, packed.data, packed.size);
}

static bool refused(const char *images, const char *labels, int64_t classes, enum ls_status status,
                    const char *part1, const char *part2)
{
    struct ls_error err = {0};
    struct ls_dataset set = {.n = -7};
    enum ls_status got = ls_dataset_open(images, labels, classes, &set, &err);
    bool good = got == status && err.status == status && strstr(err.message, part1) &&
                strstr(err.message, part2) && set.n == -7;
    if (!good)
        tap_note("got %s: %s", ls_status_name(got), err.message);
    return good;
}

static void test_good(void)
{
    struct ls_dataset set = {0};
    struct ls_error err = {0};
    const char *labels = put_idx("labels", 1, (uint32_t[]){6}, 10, false);
    const char *images = put_idx("images", 3, (uint32_t[]){6, 4, 5}, 256, false);
    bool good = ls_dataset_open(images, labels, 10, &set, &err) == LS_OK && set.n == 6 &&
                set.height == 4 && set.width == 5 && set.channels == 1 && set.classes == 10;
    for (uint64_t i = 0; good && i < 120; i++)
        good = set.pixels[i] == noise(7, i);
    for (uint64_t i = 0; good && i < 6; i++)
        good = set.labels[i] == noise(7, i) % 10;
    tap_ok(good, "images of 3 dimensions have one channel");
    ls_dataset_close(&set);
    tap_ok(!set.pixels && !set.labels && set.n == 0, "close leaves nothing behind");
    ls_dataset_close(&set);

    images = put_idx("images", 4, (uint32_t[]){6, 4, 5, 3}, 256, true);
    good = ls_dataset_open(images, labels, 256, &set, &err) == LS_OK && set.channels == 3 &&
           set.pixels[359] == noise(7, 359);
    tap_ok(good, "gzip images of 4 dimensions beside plain labels");
    ls_dataset_close(&set);
    unlink(images);
    unlink(labels);
}

static void test_labels(void)
{
    char part[64];
    uint32_t n = 200;
    const char *images = put_idx("images", 3, (uint32_t[]){n, 2, 2}, 256, false);
    file.size = 0;
    add_header(&file, 8, 1, &n);
    for (uint32_t i = 0; i < n; i++)
        add(&file, &(uint8_t){(uint8_t)(i % 10)}, 1);
    file.data[8 + 137] = 10;
    const char *labels = put("labels", file.data, file.size);
    struct ls_dataset set = {0};
    tap_ok(refused(images, labels, 10, LS_ERR_FORMAT, labels,
                   "label 137 is 10, expected 0 to 9 (the model has 10 classes)"),
           "a label out of range: file, index, value, number of classes");
    tap_ok(ls_dataset_open(images, labels, 11, &set, NULL) == LS_OK, "in range with a class more");
    ls_dataset_close(&set);
    snprintf(part, sizeof part, "found %d classes", 0);
    tap_ok(refused(images, labels, 0, LS_ERR_USAGE, part, ""), "no classes");
    unlink(labels);
    unlink(images);
}

static void test_shapes(void)
{
    const char *labels = put_idx("labels", 1, (uint32_t[]){6}, 10, false);
    const char *images = put_idx("images", 3, (uint32_t[]){7, 2, 2}, 256, false);
    tap_ok(refused(images, labels, 10, LS_ERR_FORMAT, "7 images", "6 labels") &&
               refused(images, labels, 10, LS_ERR_FORMAT, images, labels),
           "counts that differ: both counts, both files");
    tap_ok(refused(labels, images, 10, LS_ERR_FORMAT, labels, "swapped?"), "swapped files");
    tap_ok(refused(images, images, 256, LS_ERR_FORMAT, images, "labels have 1"),
           "labels of 3 dimensions");
    unlink(images);
    images = put_idx("images", 2, (uint32_t[]){6, 4}, 256, false);
    tap_ok(refused(images, labels, 10, LS_ERR_FORMAT, "found 2 dimensions", images),
           "images of 2 dimensions");
    unlink(images);
    uint32_t shape[4] = {6, 2, 2, 3};
    for (int i = 0; i < 4; i++) {
        uint32_t keep = shape[i];
        shape[i] = 0;
        images = put_idx("images", 4, shape, 256, false);
        tap_ok(refused(images, labels, 10, LS_ERR_FORMAT, "none of them may be 0", images),
               "dimension %d is 0", i);
        unlink(images);
        shape[i] = keep;
    }
    unlink(labels);
}

static void test_files(void)
{
    const char *labels = put_idx("labels", 1, (uint32_t[]){6}, 10, false);
    const char *images = put_idx("images", 3, (uint32_t[]){6, 2, 2}, 256, false);
    const char *absent = temp_path("absent"), *gone = temp_path("gone");
    tap_ok(refused(absent, labels, 10, LS_ERR_NOTFOUND, absent, ""), "no images");
    tap_ok(refused(images, absent, 10, LS_ERR_NOTFOUND, absent, ""), "no labels");
    tap_ok(refused(absent, gone, 10, LS_ERR_NOTFOUND, absent, ""), "neither: images are named");
    unlink(labels);
    labels = put("labels", file.data, 12);
    tap_ok(refused(images, labels, 10, LS_ERR_FORMAT, labels, "truncated"), "cut labels");
    unlink(images);
    unlink(labels);
}

int main(void)
{
    temp_make();
    test_good();
    test_labels();
    test_shapes();
    test_files();
    temp_remove();
    return tap_done();
}
