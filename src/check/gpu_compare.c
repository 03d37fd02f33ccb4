/* From the figures of all GPUs of a job to those that are slow. */
#include "check/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVIDIA's and Azure's own limits are figures of one model; that 5 % below what is usual is worth a look is
 * SuperBench's rule. Below 80 % the whole job waits for this GPU. */
#define SPEED_WARN 0.95
#define SPEED_FAIL 0.80
#define MOST       1e18 /* what is more has come from elsewhere */

enum { TO, FROM, ARITHMETIC, FIGURES };
static const struct {
    double unit;
    const char *measured, *expected; /* printf's, of the figure in that unit */
    const char *advice;
} figures[FIGURES] = {
    {1e9, "%.1f GB/s to it", "%.1f GB/s",
     "its PCIe slot, or a busy host: see gpu.clocks, and have it looked at"},
    {1e9, "%.1f GB/s from it", "%.1f GB/s",
     "its PCIe slot, or a busy host: see gpu.clocks, and have it looked at"},
    {1e12, "%.1f TFLOP/s", "%.1f TFLOP/s", "heat or power: see gpu.clocks, and have it looked at"},
};

struct speed {
    int rank;
    const char *device, *model; /* in a fact: up to a blank; up to the end of its line */
    int ndevice, nmodel;
    double figure[FIGURES]; /* 0: not measured */
};
struct speeds {
    struct speed *speed;
    int n, cap;
};

/* Of the line at `p`, `n` bytes long. */
static bool read_speed(const char *p, size_t n, struct speed *s)
{
    const char *end = p + n;
    s->device = p;
    while (p < end && *p != ' ')
        p++;
    s->ndevice = (int)(p - s->device);
    for (int f = 0; f < FIGURES; f++) {
        char *after;
        if (p + 1 >= end || *p != ' ' || p[1] < '0' || p[1] > '9')
            return false;
        s->figure[f] = strtod(p + 1, &after);
        if (after > end || !(s->figure[f] >= 0 && s->figure[f] <= MOST))
            return false;
        p = after;
    }
    if (p + 1 >= end || *p != ' ' || s->ndevice == 0)
        return false;
    s->model = p + 1;
    s->nmodel = (int)(end - s->model);
    return true;
}

static void read_all(const struct ls_check *check, const struct ls_check_world *w,
                     struct ls_check_list *list, struct speeds *all)
{
    for (int r = 0; r < w->size; r++) {
        bool told = false;
        for (const char *p = w->fact[r]; p && *p;) {
            size_t n = strcspn(p, "\n");
            struct speed s = {.rank = r};
            if (read_speed(p, n, &s)) {
                if (!ls_grow(&all->speed, &all->cap, all->n + 1, sizeof *all->speed)) {
                    list->failed = true;
                    return;
                }
                all->speed[all->n++] = s;
            } else if (!told) {
                told = true;
                ls_check_add(list, check, LS_CHECK_SKIP, r, "", "its figures are not understood",
                             "", "");
            }
            p += n + (p[n] != '\0');
        }
    }
}

static int by_model(const void *a, const void *b)
{
    const struct speed *x = a, *y = b;
    int n = x->nmodel < y->nmodel ? x->nmodel : y->nmodel;
    int order = memcmp(x->model, y->model, (size_t)n);
    order = order ? order : x->nmodel - y->nmodel;
    order = order ? order : x->rank - y->rank;
    return order ? order : (x->device > y->device) - (x->device < y->device);
}

static bool same_model(const struct speed *a, const struct speed *b)
{
    return a->nmodel == b->nmodel && !memcmp(a->model, b->model, (size_t)a->nmodel);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a figure of `n` GPUs; of an even number, the upper one in the middle, so that of two the slower one
 * is compared with the faster. 0: not measured. `room` is for `n`. */
static double middle(const struct speed *s, int n, int figure, double *room)
{
    int known = 0;
    for (int i = 0; i < n; i++)
        if (s[i].figure[figure] > 0)
            room[known++] = s[i].figure[figure];
    qsort(room, (size_t)known, sizeof *room, ascending);
    return known ? room[known / 2] : 0;
}

static void judge(const struct ls_check *check, const struct speed *s, int n, int figure,
                  double usual, struct ls_check_list *list)
{
    char device[64], measured[128], expected[160];
    double found = s->figure[figure], unit = figures[figure].unit;
    if (!(found > 0) || found >= SPEED_WARN * usual)
        return;
    snprintf(device, sizeof device, "%.*s", s->ndevice < 63 ? s->ndevice : 63, s->device);
    int at = snprintf(measured, sizeof measured, figures[figure].measured, found / unit);
    snprintf(measured + at, sizeof measured - (size_t)at, ", %.0f %% below the median",
             100 * (1 - found / usual));
    at = snprintf(expected, sizeof expected, figures[figure].expected, usual / unit);
    snprintf(expected + at, sizeof expected - (size_t)at, ", of %d x %.*s", n,
             s->nmodel < 64 ? s->nmodel : 64, s->model);
    ls_check_add(list, check, found < SPEED_FAIL * usual ? LS_CHECK_FAIL : LS_CHECK_WARN, s->rank,
                 device, measured, expected, figures[figure].advice);
}

/* Of `n` GPUs of one model. */
static void say_usual(const struct ls_check *check, const struct speed *s, int n,
                      const double usual[FIGURES], struct ls_check_list *list)
{
    char text[256];
    int at = snprintf(text, sizeof text, "%d x %.*s", n, s->nmodel < 64 ? s->nmodel : 64, s->model);
    for (int f = 0; f < FIGURES; f++)
        if (usual[f] > 0) {
            text[at++] = f ? ',' : ':';
            text[at++] = ' ';
            at += snprintf(text + at, sizeof text - (size_t)at, figures[f].measured,
                           usual[f] / figures[f].unit);
        }
    snprintf(text + at, sizeof text - (size_t)at, "%s",
             n > 1 ? " in the middle" : "; there is no other to compare it with");
    ls_check_add(list, check, LS_CHECK_PASS, -1, "", text, "", "");
}

void ls_check_gpu_speeds(const struct ls_check *check, const struct ls_check_world *w,
                         struct ls_check_list *list)
{
    struct speeds all = {.n = 0};
    read_all(check, w, list, &all);
    double(*usual)[FIGURES] = malloc(((size_t)all.n + 1) * sizeof *usual);
    double *room = malloc(((size_t)all.n + 1) * sizeof *room);
    list->failed |= !usual || !room;
    if (all.n > 0 && !list->failed) {
        ls_check_blame_skips(check, w, list, LS_CHECK_WARN, "a measurement, as on other nodes");
        qsort(all.speed, (size_t)all.n, sizeof *all.speed, by_model);
    }
    int n;
    for (int i = 0; i < all.n && !list->failed; i += n) {
        for (n = 1; i + n < all.n && same_model(&all.speed[i], &all.speed[i + n]);)
            n++;
        for (int f = 0; f < FIGURES; f++) {
            usual[i][f] = middle(&all.speed[i], n, f, room);
            for (int k = i; k < i + n; k++)
                judge(check, &all.speed[k], n, f, usual[i][f], list);
        }
    }
    bool found = ls_check_found(list, check);
    for (int i = 0; i < all.n && !found && !list->failed; i += n) {
        for (n = 1; i + n < all.n && same_model(&all.speed[i], &all.speed[i + n]);)
            n++;
        say_usual(check, &all.speed[i], n, usual[i], list);
    }
    free(usual);
    free(room);
    free(all.speed);
}
