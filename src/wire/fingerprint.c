/* Compare before connect: one text of "key=value" lines per rank, and a message that says which
 * ranks differ in what. Majority is right, as one stale node among many is the usual case. */
#include "wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The message has to fit into struct ls_error: the first few of everything, then a count.
enum { MAX_GROUPS = 3, MAX_KEYS = 4, MAX_RUNS = 6, MAX_VALUE = 60 };

struct span {
    const char *p;
    size_t n;
};
struct line {
    struct span key, value;
};

static bool same(struct span a, struct span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

// Takes the next non-empty line off `rest`.
static bool next_line(struct span *rest, struct line *line)
{
    while (rest->n) {
        const char *end = memchr(rest->p, '\n', rest->n);
        size_t n = end ? (size_t)(end - rest->p) : rest->n;
        struct span whole = {rest->p, n};
        rest->n -= n + (end != NULL);
        rest->p += n + (end != NULL);
        if (!n)
            continue;
        const char *eq = memchr(whole.p, '=', n);
        size_t k = eq ? (size_t)(eq - whole.p) : n;
        line->key = (struct span){whole.p, k};
        line->value = eq ? (struct span){eq + 1, n - k - 1} : (struct span){whole.p + n, 0};
        return true;
    }
    return false;
}

static bool find(struct span text, struct span key, struct span *value)
{
    struct line line;
    while (next_line(&text, &line))
        if (same(line.key, key)) {
            *value = line.value;
            return true;
        }
    return false;
}

static void add_clean(struct ls_buf *out, struct span s)
{
    size_t n = s.n > MAX_VALUE ? MAX_VALUE : s.n;
    for (size_t i = 0; i < n; i++) {
        char c = s.p[i] >= ' ' && s.p[i] <= '~' ? s.p[i] : '?';
        ls_buf_add(out, &c, 1);
    }
    if (n < s.n)
        ls_buf_printf(out, "...");
}

static void add_value(struct ls_buf *out, bool there, struct span value)
{
    if (!there) {
        ls_buf_printf(out, "not set");
        return;
    }
    ls_buf_printf(out, "\"");
    add_clean(out, value);
    ls_buf_printf(out, "\"");
}

// One key, if it differs: "ucx is "1.15.0", elsewhere "1.13.1"".
static void add_key(struct ls_buf *out, int *count, struct span key, bool odd_has, struct span odd,
                    bool usual_has, struct span usual)
{
    if (odd_has == usual_has && (!odd_has || same(odd, usual)))
        return;
    if ((*count)++ >= MAX_KEYS)
        return;
    ls_buf_printf(out, *count > 1 ? "; " : "");
    add_clean(out, key);
    ls_buf_printf(out, " is ");
    add_value(out, odd_has, odd);
    ls_buf_printf(out, ", elsewhere ");
    add_value(out, usual_has, usual);
}

static void add_differences(struct ls_buf *out, struct span odd, struct span usual)
{
    int count = 0;
    struct line line;
    struct span other = {0}, rest = odd;
    while (next_line(&rest, &line)) {
        bool there = find(usual, line.key, &other);
        add_key(out, &count, line.key, true, line.value, there, other);
    }
    for (rest = usual; next_line(&rest, &line);)
        if (!find(odd, line.key, &other))
            add_key(out, &count, line.key, false, other, true, line.value);
    if (count == 0)
        ls_buf_printf(out, "same lines in another order or number");
    if (count > MAX_KEYS)
        ls_buf_printf(out, "; and %d more", count - MAX_KEYS);
}

// "rank 3 on n1", "ranks 2-3 on n1, 7 on n4": runs of neighbours on one host.
static void add_ranks(struct ls_buf *out, const int *group, int g, int n, const char *const *host)
{
    int members = 0, runs = 0, shown = 0;
    for (int r = 0; r < n; r++)
        members += group[r] == g;
    ls_buf_printf(out, members > 1 ? "ranks " : "rank ");
    for (int r = 0; r < n; r++) {
        if (group[r] != g)
            continue;
        int end = r;
        while (end + 1 < n && group[end + 1] == g && strcmp(host[end + 1], host[r]) == 0)
            end++;
        if (runs++ < MAX_RUNS) {
            ls_buf_printf(out, runs > 1 ? ", %d" : "%d", r);
            if (end > r)
                ls_buf_printf(out, "-%d", end);
            ls_buf_printf(out, " on %.40s", host[r]);
            shown += end - r + 1;
        }
        r = end;
    }
    if (shown < members)
        ls_buf_printf(out, " and %d more", members - shown);
    ls_buf_printf(out, members > 1 ? " differ" : " differs");
}

// Gives every rank the number of its group, in the order of their lowest rank.
static int make_groups(const void *const *text, const size_t *bytes, int n, int *group, int *first,
                       int *members)
{
    int groups = 0;
    for (int r = 0; r < n; r++) {
        struct span mine = {text[r], bytes[r]};
        int g = 0;
        while (g < groups && !same(mine, (struct span){text[first[g]], bytes[first[g]]}))
            g++;
        if (g == groups)
            first[groups++] = r;
        group[r] = g;
        members[g]++;
    }
    return groups;
}

static enum ls_status report(const void *const *text, const size_t *bytes, const char *const *host,
                             int n, const int *group, const int *first, const int *members,
                             int groups, struct ls_error *err)
{
    int usual = 0;
    for (int g = 1; g < groups; g++)
        if (members[g] > members[usual])
            usual = g;
    struct ls_buf out;
    ls_buf_init(&out, 64 << 10);
    for (int g = 0, shown = 0; g < groups; g++) {
        if (g == usual)
            continue;
        if (shown++ == MAX_GROUPS) {
            ls_buf_printf(&out, "; and %d more groups of ranks", groups - 1 - MAX_GROUPS);
            break;
        }
        ls_buf_printf(&out, shown > 1 ? ". " : "");
        add_ranks(&out, group, g, n, host);
        if (members[usual] == 1)
            ls_buf_printf(&out, " from rank %d on %.40s: ", first[usual], host[first[usual]]);
        else
            ls_buf_printf(&out, " from %d others: ", members[usual]);
        add_differences(&out, (struct span){text[first[g]], bytes[first[g]]},
                        (struct span){text[first[usual]], bytes[first[usual]]});
    }
    // The advice must survive the cut at the end of a long list.
    const char *advice = "give all ranks the same build, job description and environment";
    int room = (int)(sizeof err->message - strlen(advice) - 8);
    enum ls_status st = out.failed ? ls_error_set(err, LS_ERR_ENV,
                                                  "the ranks do not run the same thing; %s", advice)
                        : out.len > (size_t)room
                            ? ls_error_set(err, LS_ERR_ENV, "%.*s...; %s", room, out.data, advice)
                            : ls_error_set(err, LS_ERR_ENV, "%s; %s", out.data, advice);
    ls_buf_free(&out);
    return st;
}

enum ls_status ls_wire_compare(const void *const *text, const size_t *bytes,
                               const char *const *host, int n, struct ls_error *err)
{
    int *group = calloc((size_t)n * 3 + 1, sizeof *group);
    if (!group)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory to compare %d ranks", n);
    int *first = group + n, *members = group + 2 * n;
    int groups = make_groups(text, bytes, n, group, first, members);
    enum ls_status st = LS_OK;
    if (groups > 1)
        st = report(text, bytes, host, n, group, first, members, groups, err);
    free(group);
    return st;
}

enum ls_status ls_wire_fingerprint(ls_wire_exchange_fn *exchange, void *arg, const char *text,
                                   const char *const *host, int n, struct ls_error *err)
{
    const void *const *all;
    const size_t *bytes;
    uint64_t hash = ls_hash64(text);
    bool equal = true;
    LS_TRY(exchange(arg, &hash, sizeof hash, &all, &bytes, err));
    for (int r = 0; r < n; r++)
        equal &= bytes[r] == sizeof hash && memcmp(all[r], &hash, sizeof hash) == 0;
    // The same question on all ranks, so all go on together or none does.
    if (equal)
        return LS_OK;
    LS_TRY(exchange(arg, text, strlen(text), &all, &bytes, err));
    return ls_wire_compare(all, bytes, host, n, err);
}
