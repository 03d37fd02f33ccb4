/* From what every node saw of some others to what is wrong with whom. Facts have a line for each other
 * node: its number, a blank, what was seen. */
#include "check/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_WARN 0.05 /* logs of the nodes can no longer be merged by time */
#define CLOCK_FAIL 60.0 /* munge credentials live for minutes */

struct link {
    int from, to;     /* nodes */
    const char *text; /* up to the end of its line */
    int n;
};
struct links {
    struct link *link;
    int n, cap, nodes;
    int *leader; /* [nodes] the rank that spoke for a node; -1 */
    bool failed;
};

static int count_nodes(const struct ls_check_world *w)
{
    int n = 0;
    for (int r = 0; r < w->size; r++)
        n = w->node[r] >= n ? w->node[r] + 1 : n;
    return n;
}

static void take(struct links *l, int from, const char *fact)
{
    for (const char *p = fact; *p;) {
        char *after;
        long to = strtol(p, &after, 10);
        size_t n = strcspn(p, "\n");
        if (after > p && *after == ' ' && to >= 0 && to < l->nodes && to != from) {
            if (!ls_grow(&l->link, &l->cap, l->n + 1, sizeof *l->link)) {
                l->failed = true;
                return;
            }
            after++;
            l->link[l->n++] = (struct link){from, (int)to, after, (int)(p + n - after)};
        }
        p += n + (p[n] != '\0');
    }
}

/* False: no memory (told in the list), or nobody measured. */
static bool open_links(struct links *l, const struct ls_check_world *w, struct ls_check_list *list)
{
    *l = (struct links){.nodes = count_nodes(w)};
    l->leader = malloc(((size_t)l->nodes + 1) * sizeof *l->leader);
    l->failed = !l->leader;
    for (int i = 0; l->leader && i < l->nodes; i++)
        l->leader[i] = -1;
    for (int r = w->size - 1; r >= 0 && !l->failed; r--) {
        if (l->leader[w->node[r]] < 0 || !w->fact[l->leader[w->node[r]]] || w->fact[r])
            l->leader[w->node[r]] = r;
    }
    for (int r = 0; r < w->size && !l->failed; r++)
        if (w->fact[r])
            take(l, w->node[r], w->fact[r]);
    list->failed |= l->failed;
    if (!l->failed && l->n > 0)
        return true;
    free(l->link);
    free(l->leader);
    return false;
}

static void close_links(struct links *l)
{
    free(l->link);
    free(l->leader);
}

static bool good(const struct link *k)
{
    return k->n == 2 && !strncmp(k->text, "ok", 2);
}

/* ---- net.port ---- */

static const char firewall[] =
    "a firewall, perhaps: nodes of a job need all ports between each other";

void ls_check_links(const struct ls_check *check, const struct ls_check_world *w,
                    struct ls_check_list *list)
{
    struct links l;
    if (!open_links(&l, w, list))
        return;
    int *all = calloc((size_t)l.nodes * 3, sizeof *all), bad = 0;
    if (!all) {
        list->failed = true;
        close_links(&l);
        return;
    }
    int *wrong = all + l.nodes, *told = all + 2 * l.nodes;
    for (int i = 0; i < l.n; i++)
        for (int end = 0; end < 2; end++) {
            int node = end ? l.link[i].to : l.link[i].from;
            all[node]++;
            wrong[node] += !good(&l.link[i]);
        }
    for (int i = 0; i < l.n; i++) {
        const struct link *k = &l.link[i];
        if (good(k))
            continue;
        /* Who fails with everyone is at fault; otherwise it is something between the two. */
        bool to = wrong[k->to] == all[k->to] && all[k->to] > 1;
        bool from = wrong[k->from] == all[k->from] && all[k->from] > 1;
        int who = to && !from ? k->to : from && !to ? k->from : -1;
        char text[512];
        bad++;
        if (who >= 0 && told[who]++)
            continue;
        snprintf(text, sizeof text, "no connection from %s to %s: %.*s", w->host[l.leader[k->from]],
                 w->host[l.leader[k->to]], k->n, k->text);
        ls_check_add(list, check, LS_CHECK_FAIL, who >= 0 ? l.leader[who] : -1, "", text,
                     "TCP on a port that the kernel chose", firewall);
    }
    if (!bad) {
        char text[64];
        snprintf(text, sizeof text, "%d connections between nodes", l.n);
        ls_check_add(list, check, LS_CHECK_PASS, -1, "", text, "", "");
    }
    free(all);
    close_links(&l);
}

/* ---- sys.clock ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Offsets of all nodes against node `start`, along the links; NAN where none leads. */
static void spread(const struct links *l, double *offset)
{
    for (int i = 0; i < l->nodes; i++)
        offset[i] = NAN;
    offset[l->link[0].from] = 0;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < l->n; i++) {
            const struct link *k = &l->link[i];
            double d = strtod(k->text, NULL);
            if (!isfinite(d))
                continue;
            if (!isnan(offset[k->from]) && isnan(offset[k->to])) {
                offset[k->to] = offset[k->from] + d;
                more = true;
            } else if (!isnan(offset[k->to]) && isnan(offset[k->from])) {
                offset[k->from] = offset[k->to] - d;
                more = true;
            }
        }
    }
}

void ls_check_clocks(const struct ls_check *check, const struct ls_check_world *w,
                     struct ls_check_list *list)
{
    struct links l;
    if (!open_links(&l, w, list))
        return;
    double *offset = malloc((size_t)l.nodes * 2 * sizeof *offset), worst = 0;
    int n = 0;
    if (!offset) {
        list->failed = true;
        close_links(&l);
        return;
    }
    spread(&l, offset);
    double *sorted = offset + l.nodes;
    for (int i = 0; i < l.nodes; i++)
        if (!isnan(offset[i]))
            sorted[n++] = offset[i];
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double middle = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    if (n == 2)
        middle = sorted[0]; /* who of two is wrong cannot be known: say the whole difference */
    for (int i = 0; i < l.nodes; i++) {
        char text[96];
        double off = offset[i] - middle;
        if (isnan(off)) {
            ls_check_add(list, check, LS_CHECK_SKIP, l.leader[i], "", "no connection to it", "",
                         "");
            continue;
        }
        worst = fmax(worst, fabs(off));
        if (fabs(off) <= CLOCK_WARN)
            continue;
        snprintf(text, sizeof text, "%.3f s %s the other nodes", fabs(off),
                 off > 0 ? "ahead of" : "behind");
        ls_check_add(list, check, fabs(off) > CLOCK_FAIL ? LS_CHECK_FAIL : LS_CHECK_WARN,
                     l.leader[i], "", text, "at most 0.05 s",
                     "start chrony or ntpd there; munge refuses credentials from the future");
    }
    if (worst <= CLOCK_WARN) {
        char text[64];
        snprintf(text, sizeof text, "%d nodes within %.2g ms", n, 1e3 * worst);
        ls_check_add(list, check, LS_CHECK_PASS, -1, "", text, "", "");
    }
    free(offset);
    close_links(&l);
}

/* ---- net.pair ---- */

/* Neither a warning nor a pass: what was measured tells nothing of nodes or links. */
static void say_unclear(const struct ls_check *check, const char *a, const char *b,
                        const struct ls_check_finding *f, struct ls_check_list *list)
{
    char text[512];
    int n = f->cause == LS_CHECK_TOO_BUSY
                ? snprintf(text, sizeof text, "the tasks waited for a CPU for %.0f %% of the time",
                           100 * f->noise)
                : snprintf(text, sizeof text, "measurements differ by %.0f %% among themselves",
                           100 * f->noise);
    snprintf(text + n, sizeof text - (size_t)n,
             ", so the slowest pair, %s and %s at %.0f %% of the others, says nothing", a, b,
             100 * f->score);
    ls_check_add(list, check, LS_CHECK_SKIP, -1, "", text, "", "");
}

static void say_finding(const struct ls_check *check, const struct ls_check_world *w,
                        const struct links *l, const struct ls_check_finding *f,
                        struct ls_check_list *list)
{
    const char *a = f->a >= 0 ? w->host[l->leader[f->a]] : "";
    const char *b = f->b >= 0 ? w->host[l->leader[f->b]] : "";
    char text[512];
    int rank = -1;
    const char *advice = "";
    switch (f->cause) {
    case LS_CHECK_SLOW_NODE:
        rank = l->leader[f->a];
        snprintf(text, sizeof text, "%.0f %% of the bandwidth of the others, with every partner",
                 100 * f->score);
        advice = "leave it out, or have its NIC, cable and CPU load looked at";
        break;
    case LS_CHECK_SLOW_LINK:
        snprintf(text, sizeof text, "%s to %s: %.0f %% of the bandwidth of other pairs", a, b,
                 100 * f->score);
        advice = "both are fine with other nodes: a link between them";
        break;
    case LS_CHECK_TOO_NOISY:
    case LS_CHECK_TOO_BUSY:
        say_unclear(check, a, b, f, list);
        return;
    default:
        snprintf(
            text, sizeof text,
            "two groups of nodes, that of %s and that of %s: %.0f %% of the bandwidth in between",
            a, b, 100 * f->score);
        advice = "a switch between them; --switches=1 asks Slurm for nodes of one";
    }
    ls_check_add(list, check, LS_CHECK_WARN, rank, "", text, "at least 80 % of the others", advice);
}

void ls_check_pairs(const struct ls_check *check, const struct ls_check_world *w,
                    struct ls_check_list *list)
{
    struct links l;
    struct ls_check_finding *found = NULL;
    double reference = NAN;
    int n = 0;
    if (!open_links(&l, w, list))
        return;
    struct ls_check_pair *pair = malloc((size_t)l.n * sizeof *pair);
    for (int i = 0; pair && i < l.n; i++) {
        int a = l.link[i].from, b = l.link[i].to;
        char *rest; /* "BYTES_PER_SECOND SHARE_WAITED"; of a line's end strtod makes 0 */
        double value = strtod(l.link[i].text, &rest);
        double waited = *rest == ' ' ? strtod(rest, NULL) : 0;
        pair[i] = (struct ls_check_pair){.a = a < b ? a : b,
                                         .b = a < b ? b : a,
                                         .value = isfinite(value) ? value : (double)NAN,
                                         .waited = isfinite(waited) ? waited : 0};
    }
    if (!pair ||
        ls_check_find_slow(l.nodes, pair, l.n, NULL, &reference, &found, &n, NULL) != LS_OK)
        list->failed = true;
    char text[128];
    for (int i = 0; i < n; i++)
        if (found[i].cause != LS_CHECK_NO_BASIS)
            say_finding(check, w, &l, &found[i], list);
        else if (isnan(reference))
            ls_check_add(list, check, LS_CHECK_SKIP, -1, "", "no pair was measured", "", "");
        else {
            snprintf(text, sizeof text,
                     "%.2f GB/s each way; with one pair, there is nothing to "
                     "compare it with",
                     reference / 1e9);
            ls_check_add(list, check, LS_CHECK_SKIP, -1, "", text, "", "");
        }
    if (n == 0 && !list->failed) {
        snprintf(text, sizeof text, "%d measurements of pairs, %.2f GB/s each way in the middle",
                 l.n, reference / 1e9);
        ls_check_add(list, check, LS_CHECK_PASS, -1, "", text, "", "");
    }
    free(pair);
    free(found);
    close_links(&l);
}
