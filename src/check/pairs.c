/* Pairing rounds, and what their figures say. Three rounds instead of the N - 1 of a full sweep: every
 * node is then in three pairs with different partners, which tells a slow node from a slow link. */
#include "check/pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOW   0.8 /* of the reference: a fifth below the rest is worth a word */
#define BROKEN 0.6    /* of the reference: what is below says nothing of the usual spread */
#define SPREAD 5.0 /* times the standard deviation that the spread of the best figures suggests */
#define SIGMA  1.4826 /* of a normal distribution, in units of its MAD */
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

struct finder {
    int nodes, n;
    const struct ls_check_pair *pair;
    double *best; /* [nodes]; NAN: not measured */
    double *sorted;
    int *parent;  /* [nodes] union-find over fast pairs */
    int *members; /* [nodes] of each root */
    double reference, limit;
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

static void add(struct finder *f, enum ls_check_cause cause, int a, int b, int rail, double score)
{
    for (int i = 0; i < f->count; i++) {
        struct ls_check_finding *old = &f->found[i];
        if (old->cause == cause && old->a == a && old->b == b && old->rail == rail)
            return;
    }
    if (!ls_grow(&f->found, &f->cap, f->count + 1, sizeof *f->found)) {
        f->failed = true;
        return;
    }
    f->found[f->count++] = (struct ls_check_finding){cause, a, b, rail, score};
}

/* Reference and limit from every node's best pair. */
static void set_limit(struct finder *f)
{
    int n = 0;
    for (int i = 0; i < f->nodes; i++)
        f->best[i] = NAN;
    for (int i = 0; i < f->n; i++) {
        const struct ls_check_pair *p = &f->pair[i];
        f->best[p->a] = fmax(f->best[p->a], p->value);
        f->best[p->b] = fmax(f->best[p->b], p->value);
    }
    for (int i = 0; i < f->nodes; i++)
        if (!isnan(f->best[i]))
            f->sorted[n++] = f->best[i];
    f->reference = median(f->sorted, n);
    /* The spread of what is not plainly broken. */
    n = 0;
    for (int i = 0; i < f->n; i++)
        if (f->pair[i].value >= BROKEN * f->reference)
            f->sorted[n++] = f->pair[i].value;
    double middle = median(f->sorted, n);
    for (int i = 0; i < n; i++)
        f->sorted[i] = fabs(f->sorted[i] - middle);
    f->limit = fmin(SLOW * f->reference, f->reference - SPREAD * SIGMA * median(f->sorted, n));
}

static bool slow(const struct finder *f, const struct ls_check_pair *p)
{
    return p->value < f->limit; /* false for NAN */
}

static double rail_median(struct finder *f, int rail, bool others)
{
    int n = 0;
    for (int i = 0; i < f->n; i++)
        if (!isnan(f->pair[i].value) && (f->pair[i].rail == rail) != others)
            f->sorted[n++] = f->pair[i].value;
    return median(f->sorted, n);
}

/* A rail whose typical pair is slow while that of the others is not. */
static bool bad_rail(struct finder *f, int rail)
{
    return rail_median(f, rail, false) < f->limit && rail_median(f, rail, true) >= f->limit;
}

/* The best figure of the same two nodes: a link is slow only if it never was fast. */
static double pair_best(const struct finder *f, int a, int b)
{
    double best = NAN;
    for (int i = 0; i < f->n; i++)
        if (f->pair[i].a == a && f->pair[i].b == b)
            best = fmax(best, f->pair[i].value);
    return best;
}

static double node_score(struct finder *f, int node, int *partners)
{
    int n = 0, last = -1;
    *partners = 0;
    for (int i = 0; i < f->n; i++) {
        const struct ls_check_pair *p = &f->pair[i];
        if ((p->a != node && p->b != node) || isnan(p->value))
            continue;
        int other = p->a == node ? p->b : p->a;
        if (other != last)
            ++*partners; /* 0, 1, or "several" is all that counts */
        last = other;
        f->sorted[n++] = p->value;
    }
    return median(f->sorted, n) / f->reference;
}

static void judge_pair(struct finder *f, const struct ls_check_pair *p)
{
    double best = pair_best(f, p->a, p->b);
    if (!(best < f->limit))
        return;
    int a = root(f, p->a), b = root(f, p->b), partners;
    bool told = false;
    for (int end = 0; end < 2 && a != b; end++) {
        int node = end ? p->b : p->a;
        if (f->members[end ? b : a] > 1)
            continue;
        double score = node_score(f, node, &partners);
        if (partners < 2)
            continue; /* one pair only: node or link, who knows */
        add(f, LS_CHECK_SLOW_NODE, node, -1, -1, score);
        told = true;
    }
    if (told)
        return;
    if (a == b || f->members[a] == 1 || f->members[b] == 1)
        add(f, LS_CHECK_SLOW_LINK, p->a, p->b, -1, best / f->reference);
    else
        add(f, LS_CHECK_SLOW_GROUP, a < b ? a : b, a < b ? b : a, -1, best / f->reference);
}

static void find(struct finder *f)
{
    int rails = 0, measured = 0, a = -1, b = -1;
    bool several = false;
    for (int i = 0; i < f->n; i++) {
        const struct ls_check_pair *p = &f->pair[i];
        if (isnan(p->value))
            continue;
        rails = p->rail >= rails ? p->rail + 1 : rails;
        several |= measured++ && (p->a != a || p->b != b);
        a = p->a, b = p->b;
    }
    set_limit(f);
    if (!several && rails < 2) {
        add(f, LS_CHECK_NO_BASIS, -1, -1, -1, 1);
        return;
    }
    for (int i = 0; i < f->n; i++)
        if (!isnan(f->pair[i].value) && !slow(f, &f->pair[i]))
            f->parent[root(f, f->pair[i].a)] = root(f, f->pair[i].b);
    for (int i = 0; i < f->nodes; i++)
        f->members[root(f, i)]++;
    for (int r = 0; r < rails && rails > 1; r++)
        if (bad_rail(f, r))
            add(f, LS_CHECK_SLOW_RAIL, -1, -1, r, rail_median(f, r, false) / f->reference);
    for (int i = 0; i < f->n; i++)
        if (slow(f, &f->pair[i]))
            judge_pair(f, &f->pair[i]);
}

enum ls_status ls_check_find_slow(int nodes, const struct ls_check_pair *pair, int n, int *group,
                                  double *reference, struct ls_check_finding **findings, int *count,
                                  struct ls_error *err)
{
    struct finder f = {.nodes = nodes, .n = n, .pair = pair};
    size_t most = (size_t)(n > nodes ? n : nodes) + 1;
    f.best = calloc(most, sizeof *f.best);
    f.sorted = calloc(most, sizeof *f.sorted);
    f.parent = calloc(most, sizeof *f.parent);
    f.members = calloc(most, sizeof *f.members);
    f.failed = !f.best || !f.sorted || !f.parent || !f.members;
    for (int i = 0; !f.failed && i < nodes; i++)
        f.parent[i] = i;
    if (!f.failed)
        find(&f);
    for (int i = 0; !f.failed && group && i < nodes; i++)
        group[i] = root(&f, i);
    *reference = f.reference;
    free(f.best);
    free(f.sorted);
    free(f.parent);
    free(f.members);
    *findings = f.failed ? NULL : f.found;
    *count = f.failed ? 0 : f.count;
    if (f.failed) {
        free(f.found);
        return ls_error_set(err, LS_ERR_NOMEM, "comparing %d pairs of nodes", n);
    }
    return LS_OK;
}
