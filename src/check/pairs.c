/* Pairing rounds, and what their figures say. Three rounds instead of the N - 1 of a full sweep: every
 * node is then in three pairs with different partners, which tells a slow node from a slow link. */
#include "check/pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOW   0.8    /* of the reference: a fifth below the rest is worth a word */
#define BROKEN 0.6    /* of the reference: what is below says nothing of the usual spread */
#define SPREAD 5.0    /* times the standard deviation that the spread of the figures suggests */
#define WOBBLE 3.0    /* times what the median measurement of a pair is below its best */
#define SIGMA  1.4826 /* of a normal distribution, in units of its MAD */
#define BUSY   0.1    /* share of the time waited for a CPU */
#define TRIES  64

/* ---- rounds ---- */

static int fixed_partner(int n, int round, int i)
{
    int half = n / 2;
    /* The second round turns the ring by one, so that with n odd another node sits out. */
    int j = round ? (i + 1) % n : i;
    if (j >= 2 * half)
        return -1;
    int other = round == 0 ? j ^ 1 : j < half ? j + half : j - half;
    return round ? (other + n - 1) % n : other;
}

static void shuffle(int n, uint64_t seed, int *order)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(ls_uniform(seed, 0, (uint64_t)i) * (i + 1));
        int keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

static int repeats(int n, const int *partner)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        for (int round = 0; round < LS_CHECK_ROUNDS - 1; round++)
            count += partner[i] == fixed_partner(n, round, i);
    return count;
}

void ls_check_round(int n, int round, uint64_t seed, int *partner, int *scratch)
{
    if (round < LS_CHECK_ROUNDS - 1) {
        for (int i = 0; i < n; i++)
            partner[i] = n > 1 ? fixed_partner(n, round, i) : -1;
        return;
    }
    for (int t = 0; t < TRIES; t++) {
        shuffle(n, ls_mix64(seed, (uint64_t)t), scratch);
        for (int i = 0; i + 1 < n; i += 2) {
            partner[scratch[i]] = scratch[i + 1];
            partner[scratch[i + 1]] = scratch[i];
        }
        if (n % 2)
            partner[scratch[n - 1]] = -1;
        /* Among many nodes a repeated pair is rare and does no harm. */
        if (n > 16 || repeats(n, partner) == 0)
            return;
    }
}

/* ---- finding ---- */

/* All measurements of a pair. */
struct figure {
    int a, b;
    double value;  /* the best */
    double wobble; /* share that the median one is below it */
    double waited; /* for a CPU; median of both ends */
};
struct finder {
    int nodes, n;
    struct figure *pair;
    double *best; /* [nodes]; NAN: not measured */
    double *sorted;
    int *parent;  /* [nodes] union-find over fast pairs */
    int *members; /* [nodes] of each root */
    double reference, noise, limit;
    struct ls_check_finding *found;
    int count, cap;
    bool failed;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    if (n == 0)
        return NAN;
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int root(struct finder *f, int i)
{
    while (f->parent[i] != i)
        i = f->parent[i] = f->parent[f->parent[i]];
    return i;
}

static void add(struct finder *f, struct ls_check_finding finding)
{
    for (int i = 0; i < f->count; i++) {
        struct ls_check_finding *old = &f->found[i];
        if (old->cause == finding.cause && old->a == finding.a && old->b == finding.b)
            return;
    }
    if (ls_grow(&f->found, &f->cap, f->count + 1, sizeof *f->found))
        f->found[f->count++] = finding;
    else
        f->failed = true;
}

/* ---- measurements to figures ---- */

static int by_pair(const void *x, const void *y)
{
    const struct ls_check_pair *p = x, *q = y;
    int d = p->a != q->a ? p->a - q->a : p->b - q->b;
    return d ? d : (p->value > q->value) - (p->value < q->value);
}

/* Of the measurements p[0] to p[n - 1] of one pair, the best one last. */
static struct figure figure_of(struct finder *f, const struct ls_check_pair *p, int n)
{
    struct figure result = {.a = p->a, .b = p->b, .value = p[n - 1].value};
    for (int i = 0; i < n; i++)
        f->sorted[i] = p[i].value;
    result.wobble = 1 - median(f->sorted, n) / result.value;
    for (int i = 0; i < n; i++)
        f->sorted[i] = p[i].waited;
    result.waited = median(f->sorted, n);
    return result;
}

/* `all` is [n] and sorted in place; the results are fewer. */
static void fold(struct finder *f, struct ls_check_pair *all, const struct ls_check_pair *pair,
                 int n)
{
    int measured = 0;
    for (int i = 0; i < n; i++)
        if (pair[i].value > 0) /* false for NAN */
            all[measured++] = pair[i];
    qsort(all, (size_t)measured, sizeof *all, by_pair);
    for (int i = 0, end; i < measured; i = end) {
        for (end = i + 1; end < measured && all[end].a == all[i].a && all[end].b == all[i].b;)
            end++;
        f->pair[f->n++] = figure_of(f, all + i, end - i);
    }
}

/* ---- judging ---- */

/* Reference, noise and limit. */
static void set_limit(struct finder *f)
{
    int n = 0;
    for (int i = 0; i < f->nodes; i++)
        f->best[i] = NAN;
    for (int i = 0; i < f->n; i++) {
        const struct figure *p = &f->pair[i];
        f->best[p->a] = fmax(f->best[p->a], p->value);
        f->best[p->b] = fmax(f->best[p->b], p->value);
    }
    for (int i = 0; i < f->nodes; i++)
        if (!isnan(f->best[i]))
            f->sorted[n++] = f->best[i];
    f->reference = median(f->sorted, n);
    for (int i = 0; i < f->n; i++)
        f->sorted[i] = f->pair[i].wobble;
    f->noise = WOBBLE * median(f->sorted, f->n);
    /* The spread of what is not plainly broken. */
    n = 0;
    for (int i = 0; i < f->n; i++)
        if (f->pair[i].value >= BROKEN * f->reference)
            f->sorted[n++] = f->pair[i].value;
    double middle = median(f->sorted, n);
    for (int i = 0; i < n; i++)
        f->sorted[i] = fabs(f->sorted[i] - middle);
    f->noise = fmax(f->noise, SPREAD * SIGMA * median(f->sorted, n) / f->reference);
    f->limit = f->reference * fmin(SLOW, 1 - f->noise);
}

static bool slow(const struct finder *f, const struct figure *p)
{
    return p->value < fmin(f->limit, f->reference * (1 - WOBBLE * p->wobble));
}

static double node_score(struct finder *f, int node, int *partners)
{
    int n = 0;
    *partners = 0;
    for (int i = 0; i < f->n; i++) {
        const struct figure *p = &f->pair[i];
        if (p->a != node && p->b != node)
            continue;
        ++*partners;
        f->sorted[n++] = p->value;
    }
    return median(f->sorted, n) / f->reference;
}

static void judge_pair(struct finder *f, const struct figure *p)
{
    int a = root(f, p->a), b = root(f, p->b), partners;
    bool told = false;
    for (int end = 0; end < 2 && a != b; end++) {
        int node = end ? p->b : p->a;
        if (f->members[end ? b : a] > 1)
            continue;
        double score = node_score(f, node, &partners);
        if (partners < 2)
            continue; /* one pair only: node or link, who knows */
        add(f, (struct ls_check_finding){LS_CHECK_SLOW_NODE, node, -1, score, 0});
        told = true;
    }
    if (told)
        return;
    double score = p->value / f->reference;
    if (a == b || f->members[a] == 1 || f->members[b] == 1)
        add(f, (struct ls_check_finding){LS_CHECK_SLOW_LINK, p->a, p->b, score, 0});
    else
        add(f,
            (struct ls_check_finding){LS_CHECK_SLOW_GROUP, a < b ? a : b, a < b ? b : a, score, 0});
}

static void judge_all(struct finder *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->pair[i].value >= SLOW * f->reference)
            f->parent[root(f, f->pair[i].a)] = root(f, f->pair[i].b);
    for (int i = 0; i < f->nodes; i++)
        f->members[root(f, i)]++;
    for (int i = 0; i < f->n; i++)
        if (slow(f, &f->pair[i]))
            judge_pair(f, &f->pair[i]);
}

static void find(struct finder *f)
{
    bool several = false;
    const struct figure *slowest = f->pair;
    for (int i = 0; i < f->n; i++) {
        const struct figure *p = &f->pair[i];
        several |= p->a != f->pair[0].a || p->b != f->pair[0].b;
        slowest = p->value < slowest->value ? p : slowest;
        f->sorted[i] = p->waited;
    }
    double busy = f->n ? median(f->sorted, f->n) : 0;
    set_limit(f);
    if (!several) {
        add(f, (struct ls_check_finding){LS_CHECK_NO_BASIS, -1, -1, 1, 0});
        return;
    }
    if (slowest->value >= SLOW * f->reference)
        return;
    struct ls_check_finding unclear = {LS_CHECK_TOO_BUSY, slowest->a, slowest->b,
                                       slowest->value / f->reference, busy};
    if (busy < BUSY)
        judge_all(f);
    if (f->count > 0)
        return;
    if (busy < BUSY) {
        unclear.cause = LS_CHECK_TOO_NOISY;
        unclear.noise = fmax(f->noise / WOBBLE, slowest->wobble);
    }
    add(f, unclear);
}

enum ls_status ls_check_find_slow(int nodes, const struct ls_check_pair *pair, int n, int *group,
                                  double *reference, struct ls_check_finding **findings, int *count,
                                  struct ls_error *err)
{
    struct finder f = {.nodes = nodes};
    size_t most = (size_t)(n > nodes ? n : nodes) + 1;
    struct ls_check_pair *all = calloc(most, sizeof *all);
    f.pair = calloc(most, sizeof *f.pair);
    f.best = calloc(most, sizeof *f.best);
    f.sorted = calloc(most, sizeof *f.sorted);
    f.parent = calloc(most, sizeof *f.parent);
    f.members = calloc(most, sizeof *f.members);
    f.failed = !all || !f.pair || !f.best || !f.sorted || !f.parent || !f.members;
    for (int i = 0; !f.failed && i < nodes; i++)
        f.parent[i] = i;
    if (!f.failed) {
        fold(&f, all, pair, n);
        find(&f);
    }
    for (int i = 0; !f.failed && group && i < nodes; i++)
        group[i] = root(&f, i);
    *reference = f.reference;
    free(all);
    free(f.pair);
    free(f.best);
    free(f.sorted);
    free(f.parent);
    free(f.members);
    *findings = f.failed ? NULL : f.found;
    *count = f.failed ? 0 : f.count;
    if (f.failed) {
        free(f.found);
        return ls_error_set(err, LS_ERR_NOMEM, "comparing %d measurements of pairs of nodes", n);
    }
    return LS_OK;
}
