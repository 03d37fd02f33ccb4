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

/* Index of the fact that most ranks share, or -1; *given: how many gave one. */
static int majority(const struct ls_check_world *w, int *given)
{
    int best = -1, most = 0;
    *given = 0;
    for (int r = 0; r < w->size; r++) {
        if (!w->fact[r])
            continue;
        ++*given;
        int count = 0;
        bool first = true;
        for (int s = 0; s < w->size; s++)
            if (w->fact[s] && same(w->fact[s], w->fact[r])) {
                first &= s >= r;
                count++;
            }
        if (first && count > most) {
            most = count;
            best = r;
        }
        if (2 * most > w->size)
            break; /* nothing can beat it; but count the rest */
    }
    for (int r = *given = 0; r < w->size; r++)
        *given += w->fact[r] != NULL;
    return best;
}

/* Has this check something to say already? Then there is no pass. */
static bool said(const struct ls_check_list *list, const struct ls_check *check)
{
    for (int i = 0; i < list->n; i++)
        if (list->result[i].check == check && list->result[i].status > LS_CHECK_SKIP)
            return true;
    return false;
}

static const char advice[] = "install the same on all nodes";

static void equal(const struct ls_check *check, const struct ls_check_world *w,
                  struct ls_check_list *list, enum ls_check_status status)
{
    int given, usual = majority(w, &given), odd = 0;
    if (usual < 0)
        return; /* every rank has said on its own why there is nothing */
    for (int r = 0; r < w->size; r++)
        if (w->fact[r] && !same(w->fact[r], w->fact[usual])) {
            ls_check_add(list, check, status, r, "", w->fact[r], w->fact[usual], advice);
            odd++;
        }
    odd += said(list, check);
    for (int r = 0; !odd && r < w->size; r++)
        if (w->fact[r])
            ls_check_add(list, check, LS_CHECK_PASS, r, "", w->fact[r], "", "");
}

void ls_check_equal_fail(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list)
{
    equal(check, world, list, LS_CHECK_FAIL);
}

void ls_check_equal_warn(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list)
{
    equal(check, world, list, LS_CHECK_WARN);
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

/* Adds lines of `a` that `b` has otherwise ("K=1") or not at all ("K=1"; in `other`, "K not set"). */
static void add_difference(const char *a, const char *b, bool missing_only, struct ls_buf *mine,
                           struct ls_buf *other)
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
            ls_buf_printf(other, "%s%.*s not set", comma, (int)strcspn(p, "=\n"), p);
    }
}

void ls_check_same_settings(const struct ls_check *check, const struct ls_check_world *w,
                            struct ls_check_list *list)
{
    int given, usual = majority(w, &given), odd = 0;
    for (int r = 0; usual >= 0 && r < w->size; r++) {
        if (!w->fact[r] || same(w->fact[r], w->fact[usual]))
            continue;
        struct ls_buf found, expected;
        ls_buf_init(&found, 4096);
        ls_buf_init(&expected, 4096);
        add_difference(w->fact[r], w->fact[usual], false, &found, &expected);
        add_difference(w->fact[usual], w->fact[r], true, &expected, &found);
        ls_check_add(
            list, check, LS_CHECK_FAIL, r, "", found.data ? found.data : "",
            expected.data ? expected.data : "",
            "give all ranks the same settings: ranks that differ wait for each other for ever");
        ls_buf_free(&found);
        ls_buf_free(&expected);
        odd++;
    }
    odd += said(list, check);
    for (int r = 0; usual >= 0 && !odd && r < w->size; r++)
        if (w->fact[r]) {
            int n = *w->fact[r] != '\0';
            for (const char *p = w->fact[r]; *p; p++)
                n += *p == '\n';
            char text[64];
            snprintf(text, sizeof text, n == 1 ? "%d setting" : "%d settings", n);
            ls_check_add(list, check, LS_CHECK_PASS, r, "", text, "", "");
        }
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

void ls_check_distinct_gpus(const struct ls_check *check, const struct ls_check_world *w,
                            struct ls_check_list *list)
{
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
