/* What all ranks said, compared: the majority is taken to be right, since one stale node among many is
 * the usual case; at a tie, those with the lowest rank. */
#include "check/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same(const char *a, const char *b)
{
    return !strcmp(a, b);
}

/* Index of the fact that most ranks share, or -1; *most: how many do. */
static int majority(const struct ls_check_world *w, int *most)
{
    int best = -1;
    *most = 0;
    for (int r = 0; r < w->size; r++) {
        if (!w->fact[r])
            continue;
        int count = 0;
        bool first = true;
        for (int s = 0; s < w->size; s++)
            if (w->fact[s] && same(w->fact[s], w->fact[r])) {
                first &= s >= r;
                count++;
            }
        if (first && count > *most) {
            *most = count;
            best = r;
        }
        if (2 * *most > w->size)
            break; /* nothing can beat it */
    }
    return best;
}

bool ls_check_found(const struct ls_check_list *list, const struct ls_check *check)
{
    for (int i = 0; i < list->n; i++)
        if (list->result[i].check == check && list->result[i].status > LS_CHECK_SKIP)
            return true;
    return false;
}

/* Does this result of another check already say what `check` lacks? */
static bool tells_for(const struct ls_check_result *r, const struct ls_check *check)
{
    return (check->needs & LS_CHECK_NEEDS_GPU && r->check->local == ls_check_gpu_visible &&
            r->status == LS_CHECK_SKIP) ||
           (check->needs & LS_CHECK_NEEDS_JOB && r->check->local == ls_check_job &&
            r->status >= LS_CHECK_TIMEOUT) ||
           (!(check->needs & LS_CHECK_NEEDS_JOB) && r->check->local == ls_check_machine &&
            r->status >= LS_CHECK_TIMEOUT);
}

/* Ranks that have nothing to compare, and say why: to have none where others have one is a difference, too.
 * Whoever has failed is told already. */
struct nothing {
    int *skip; /* [size] the result in which a rank says so; < 0: it does not */
    int n, first;
};

static bool find_nothing(const struct ls_check *check, const struct ls_check_world *w,
                         struct ls_check_list *list, struct nothing *no)
{
    enum { NO = -1, NEVER = -2 };
    *no = (struct nothing){.skip = malloc(((size_t)w->size + 1) * sizeof *no->skip), .first = -1};
    if (!no->skip) {
        list->failed = true;
        return false;
    }
    for (int r = 0; r < w->size; r++)
        no->skip[r] = w->fact[r] ? NEVER : NO;
    for (int i = 0; i < list->n; i++) {
        const struct ls_check_result *r = &list->result[i];
        if (r->rank < 0 || r->rank >= w->size)
            continue;
        int *skip = &no->skip[r->rank];
        if (r->check == check && *skip != NEVER)
            *skip = r->status == LS_CHECK_SKIP ? i : NEVER;
        else if (tells_for(r, check))
            *skip = NEVER;
    }
    for (int r = w->size - 1; r >= 0; r--)
        if (no->skip[r] >= 0) {
            no->n++;
            no->first = no->skip[r];
        }
    return true;
}

/* The skips were none: others have what is missing there. */
static void blame_nothing(const struct ls_check *check, const struct ls_check_world *w,
                          struct ls_check_list *list, const struct nothing *no,
                          enum ls_check_status status, const char *expected)
{
    const char *kept = ls_arena_strdup(&list->arena, expected);
    list->failed |= !kept;
    for (int r = 0; kept && r < w->size; r++)
        if (no->skip[r] >= 0) {
            struct ls_check_result *result = &list->result[no->skip[r]];
            result->status = status;
            result->expected = kept;
            result->advice = check->remedy ? check->remedy : "";
        }
}

void ls_check_blame_skips(const struct ls_check *check, const struct ls_check_world *w,
                          struct ls_check_list *list, enum ls_check_status status,
                          const char *expected)
{
    struct nothing no;
    if (!find_nothing(check, w, list, &no))
        return;
    blame_nothing(check, w, list, &no, status, expected);
    free(no.skip);
}

/* Up to the text `soft` two facts must be equal, or it is as bad as `status`; what differs after it is only a
 * warning. */
static enum ls_check_status difference(const char *a, const char *b, enum ls_check_status status,
                                       const char *soft)
{
    const char *end = soft ? strstr(a, soft) : NULL;
    size_t n = end ? (size_t)(end - a) + strlen(soft) : 0;
    return end && !strncmp(a, b, n) ? LS_CHECK_WARN : status;
}

/* lost: a rank that has nothing to compare differs, too. */
static void equal(const struct ls_check *check, const struct ls_check_world *w,
                  struct ls_check_list *list, enum ls_check_status status, const char *soft,
                  bool lost)
{
    struct nothing no = {.n = 0};
    int most, usual = majority(w, &most), odd = 0;
    const char *remedy = check->remedy ? check->remedy : "";
    if (usual < 0 || (lost && !find_nothing(check, w, list, &no)))
        return; /* every rank has said on its own why there is nothing */
    const char *expected = no.n > most ? list->result[no.first].measured : w->fact[usual];
    if (no.n > 0 && no.n <= most)
        blame_nothing(check, w, list, &no, status, expected);
    for (int r = 0; r < w->size; r++)
        if (w->fact[r] && (no.n > most || !same(w->fact[r], expected))) {
            ls_check_add(list, check, difference(w->fact[r], expected, status, soft), r, "",
                         w->fact[r], expected, remedy);
            odd++;
        }
    free(no.skip);
    odd += ls_check_found(list, check);
    for (int r = 0; !odd && r < w->size; r++)
        if (w->fact[r])
            ls_check_add(list, check, LS_CHECK_PASS, r, "", w->fact[r], "", "");
}

void ls_check_equal_fail(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list)
{
    equal(check, world, list, LS_CHECK_FAIL, NULL, true);
}

void ls_check_equal_warn(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list)
{
    equal(check, world, list, LS_CHECK_WARN, NULL, true);
}

void ls_check_equal_ports(const struct ls_check *check, const struct ls_check_world *world,
                          struct ls_check_list *list)
{
    equal(check, world, list, LS_CHECK_FAIL, ": ", true);
}

void ls_check_equal_mtu(const struct ls_check *check, const struct ls_check_world *world,
                        struct ls_check_list *list)
{
    equal(check, world, list, LS_CHECK_FAIL, ": ", false);
}

/* ---- settings ---- */

/* The line of `text` that begins with the key of `line`; NULL if none. */
static const char *same_key(const char *text, const char *line)
{
    size_t key = strcspn(line, "=\n");
    for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (!strncmp(p, line, key) && p[key] == '=')
            return p;
    return NULL;
}

static bool same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && !memcmp(a, b, n);
}

/* Adds lines of `a` that `b` has otherwise ("K=1") or not at all ("K=1"; in `other`, "K " and `absent`). */
static void add_difference(const char *a, const char *b, bool missing_only, const char *absent,
                           struct ls_buf *mine, struct ls_buf *other)
{
    for (const char *p = a; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        const char *q = same_key(b, p);
        if (q && (missing_only || same_line(p, q)))
            continue;
        const char *comma = mine->len ? ", " : "";
        ls_buf_printf(mine, "%s%.*s", comma, (int)strcspn(p, "\n"), p);
        if (q)
            ls_buf_printf(other, "%s%.*s", comma, (int)strcspn(q, "\n"), q);
        else
            ls_buf_printf(other, "%s%.*s %s", comma, (int)strcspn(p, "=\n"), p, absent);
    }
}

static void same_lines(const struct ls_check *check, const struct ls_check_world *w,
                       struct ls_check_list *list, const char *noun, const char *absent)
{
    int most, usual = majority(w, &most), odd = 0;
    for (int r = 0; usual >= 0 && r < w->size; r++) {
        if (!w->fact[r] || same(w->fact[r], w->fact[usual]))
            continue;
        struct ls_buf found, expected;
        ls_buf_init(&found, 4096);
        ls_buf_init(&expected, 4096);
        add_difference(w->fact[r], w->fact[usual], false, absent, &found, &expected);
        add_difference(w->fact[usual], w->fact[r], true, absent, &expected, &found);
        ls_check_add(list, check, LS_CHECK_FAIL, r, "", found.data ? found.data : "",
                     expected.data ? expected.data : "", check->remedy ? check->remedy : "");
        ls_buf_free(&found);
        ls_buf_free(&expected);
        odd++;
    }
    odd += ls_check_found(list, check);
    for (int r = 0; usual >= 0 && !odd && r < w->size; r++)
        if (w->fact[r]) {
            int n = *w->fact[r] != '\0';
            for (const char *p = w->fact[r]; *p; p++)
                n += *p == '\n';
            char text[64];
            if (n)
                snprintf(text, sizeof text, n == 1 ? "%d %s" : "%d %ss", n, noun);
            else
                snprintf(text, sizeof text, "no %ss", noun);
            ls_check_add(list, check, LS_CHECK_PASS, r, "", text, "", "");
        }
}

void ls_check_same_settings(const struct ls_check *check, const struct ls_check_world *world,
                            struct ls_check_list *list)
{
    same_lines(check, world, list, "setting", "not set");
}

void ls_check_same_files(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list)
{
    same_lines(check, world, list, "file", "not there");
}

/* ---- GPUs ---- */

/* Is the GPU at `p` (up to the end of its line) also in `text`? */
static bool has_line(const char *text, const char *p)
{
    for (; text && *text; text = strchr(text, '\n'), text = text ? text + 1 : NULL)
        if (same_line(text, p))
            return true;
    return false;
}

/* A node that was promised no GPU may have lost its driver, or may be of another kind: only a warning. */
static void find_without(const struct ls_check *check, const struct ls_check_world *w,
                         struct ls_check_list *list)
{
    int with = 0;
    for (int i = 0; i < list->n; i++)
        with += list->result[i].check == check && list->result[i].status != LS_CHECK_SKIP;
    if (with)
        ls_check_blame_skips(check, w, list, LS_CHECK_WARN, "GPUs, as on other nodes");
}

void ls_check_distinct_gpus(const struct ls_check *check, const struct ls_check_world *w,
                            struct ls_check_list *list)
{
    find_without(check, w, list);
    for (int r = 0; r < w->size; r++)
        for (int s = 0; s < r && w->fact[r]; s++)
            for (const char *p = w->node[s] == w->node[r] ? w->fact[r] : NULL; p && *p;
                 p = strchr(p, '\n'), p = p ? p + 1 : NULL)
                if (w->fact[s] && has_line(w->fact[s], p)) {
                    char measured[128], expected[64];
                    snprintf(measured, sizeof measured, "shared with rank %d: %.*s", s,
                             (int)strcspn(p, "\n"), p);
                    snprintf(expected, sizeof expected, "GPUs of its own for each rank");
                    ls_check_add(list, check, LS_CHECK_FAIL, r, "", measured, expected,
                                 "ask for as many GPUs as tasks on each node, with --gpu-bind=none "
                                 "or --gpus-per-task=1");
                    return;
                }
}
