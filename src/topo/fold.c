/* Folding: from names to the short list that expands to them. Two sweeps over neighbours, so that the
 * order stays: numbers at the end, then one number before it. */
#include "topo/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits that are looked at; those before them count as text. */
#define DIGITS_MAX 18

struct range {
    uint64_t low, high;
    int width;
};

/* Names of the same text before the number; no ranges: one name without a number. */
struct group {
    const char *name; /* the first of its names, not NUL-terminated behind the text */
    int text_len, first_range, nranges;
};

struct folder {
    struct group *groups;
    struct range *ranges;
    int ngroups, nranges, groups_cap, ranges_cap;
    struct ls_buf *buf;
    struct ls_error *err;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static enum ls_status no_memory(struct ls_error *err)
{
    return ls_error_set(err, LS_ERR_NOMEM, "no memory for folding a list of hosts");
}

static int digits_of(uint64_t n)
{
    int digits = 1;
    for (; n >= 10; n /= 10)
        digits++;
    return digits;
}

/* Does the number of `width` digits continue the range: is it what counting on would print? */
static bool continues(const struct range *range, uint64_t number, int width)
{
    int digits = digits_of(number);
    return number == range->high + 1 && width == (digits > range->width ? digits : range->width);
}

/* Adds a number to the ranges that started at `first`. */
static bool add_number(struct folder *f, int first, const char *digits, int width)
{
    uint64_t number = 0;
    for (int i = 0; i < width; i++)
        number = number * 10 + (uint64_t)(digits[i] - '0');
    if (f->nranges > first && continues(&f->ranges[f->nranges - 1], number, width)) {
        f->ranges[f->nranges - 1].high = number;
        return true;
    }
    if (!ls_grow(&f->ranges, &f->ranges_cap, f->nranges + 1, sizeof *f->ranges))
        return false;
    f->ranges[f->nranges++] = (struct range){number, number, width};
    return true;
}

/* ---- first sweep: n1 n2 n7 -> n[1-2,7] ----------------------------------------------------------- */

static bool add_name(struct folder *f, const char *name)
{
    int len = (int)strlen(name), width = 0;
    while (width < len && width < DIGITS_MAX && is_digit(name[len - width - 1]))
        width++;
    int text_len = len - width;
    struct group *last = f->ngroups ? &f->groups[f->ngroups - 1] : NULL;
    if (!last || !width || !last->nranges || last->text_len != text_len ||
        memcmp(last->name, name, (size_t)text_len) != 0) {
        if (!ls_grow(&f->groups, &f->groups_cap, f->ngroups + 1, sizeof *f->groups))
            return false;
        last = &f->groups[f->ngroups++];
        *last = (struct group){.name = name, .text_len = text_len, .first_range = f->nranges};
    }
    if (width && !add_number(f, last->first_range, name + text_len, width))
        return false;
    last->nranges = f->nranges - last->first_range;
    return true;
}

static enum ls_status check_name(const char *name, int index, struct ls_error *err)
{
    struct ls_hostlist list;
    struct ls_error why = {0};
    char shown[84];
    if (ls_hostlist_parse(name, &list, &why) == LS_OK) {
        bool one = list.count == 1 && list.nentries == 1 && !strpbrk(name, "[, \t\r\n");
        ls_hostlist_free(&list);
        if (one)
            return LS_OK;
        why = (struct ls_error){0};
        ls_error_set(&why, LS_ERR_FORMAT, "found '%s', expected one name",
                     ls_topo_show(name, shown));
    }
    return ls_error_set(err, why.status, "name %d: %s", index + 1, why.message);
}

/* ---- second sweep: r1n[1-8] r2n[1-8] -> r[1-2]n[1-8] --------------------------------------------- */

static bool same_numbers(const struct folder *f, const struct group *a, const struct group *b)
{
    if (a->nranges != b->nranges || !a->nranges)
        return false;
    const struct range *x = f->ranges + a->first_range, *y = f->ranges + b->first_range;
    for (int i = 0; i < a->nranges; i++)
        if (x[i].low != y[i].low || x[i].high != y[i].high || x[i].width != y[i].width)
            return false;
    return true;
}

/* Finds the number [*at, *at + *width) of a's text that differs from the one at the same place of b,
 * where all around it is the same; *other_width are the digits of b. */
static bool differ_by_number(const struct group *a, const struct group *b, int *at, int *width,
                             int *other_width)
{
    int i = 0, end_a = a->text_len, end_b = b->text_len;
    while (i < end_a && i < end_b && a->name[i] == b->name[i])
        i++;
    while (i > 0 && is_digit(a->name[i - 1]))
        i--;
    while (end_a > i && end_b > i && a->name[end_a - 1] == b->name[end_b - 1])
        end_a--, end_b--;
    /* What is left may have eaten into the number from the back: 11 and 21 share a digit. */
    while (end_a < a->text_len && is_digit(a->name[end_a]))
        end_a++, end_b++;
    *at = i;
    *width = end_a - i;
    *other_width = end_b - i;
    if (*width < 1 || *other_width < 1 || *width > DIGITS_MAX || *other_width > DIGITS_MAX)
        return false;
    for (int k = i; k < end_a; k++)
        if (!is_digit(a->name[k]))
            return false;
    for (int k = i; k < end_b; k++)
        if (!is_digit(b->name[k]))
            return false;
    return true;
}

static void print_ranges(const struct range *ranges, int n, bool bracket, struct ls_buf *buf)
{
    if (bracket)
        ls_buf_add(buf, "[", 1);
    for (int i = 0; i < n; i++) {
        ls_buf_printf(buf, "%s%0*" PRIu64, i ? "," : "", ranges[i].width, ranges[i].low);
        if (ranges[i].high > ranges[i].low)
            ls_buf_printf(buf, "-%0*" PRIu64, ranges[i].width, ranges[i].high);
    }
    if (bracket)
        ls_buf_add(buf, "]", 1);
}

static void print_group(const struct folder *f, const struct group *g, struct ls_buf *buf)
{
    ls_buf_add(buf, g->name, (size_t)g->text_len);
    if (g->nranges) {
        const struct range *ranges = f->ranges + g->first_range;
        print_ranges(ranges, g->nranges, g->nranges > 1 || ranges->high > ranges->low, buf);
    }
}

/* Prints groups first .. first + n - 1, which differ in the number of `at` only, as one entry. */
static bool print_merged(struct folder *f, int first, int n, int at, struct ls_buf *buf)
{
    const struct group *g = &f->groups[first];
    int start = f->nranges, width = 0;
    for (int i = 0; i < n; i++) {
        const char *digits = g[i].name + at;
        for (width = 0; at + width < g[i].text_len && is_digit(digits[width]);)
            width++;
        if (!add_number(f, start, digits, width))
            return false;
    }
    const struct group *last = &g[n - 1];
    ls_buf_add(buf, last->name, (size_t)at);
    print_ranges(f->ranges + start, f->nranges - start, true, buf);
    ls_buf_add(buf, last->name + at + width, (size_t)(last->text_len - at - width));
    /* Text behind the last bracket is not for old versions of Slurm, so a lone number has one, too. */
    print_ranges(f->ranges + g->first_range, g->nranges, true, buf);
    f->nranges = start;
    return true;
}

/* How many groups from `first` on differ in the same number. */
static int merge_length(const struct folder *f, int first, int *at)
{
    const struct group *g = f->groups;
    int n = 1, width, next_width;
    for (int place = -1; first + n < f->ngroups; n++, place = *at) {
        int where;
        if (!same_numbers(f, &g[first], &g[first + n]) ||
            !differ_by_number(&g[first + n - 1], &g[first + n], &where, &width, &next_width) ||
            (place >= 0 && where != place))
            break;
        *at = where;
    }
    return n;
}

static enum ls_status print_all(struct folder *f)
{
    struct ls_buf plain, merged;
    enum ls_status status = LS_OK;
    ls_buf_init(&plain, f->buf->max);
    ls_buf_init(&merged, f->buf->max);
    for (int i = 0, n, at = 0; i < f->ngroups && status == LS_OK; i += n) {
        n = merge_length(f, i, &at);
        plain.len = merged.len = 0;
        for (int k = 0; k < n; k++) {
            if (k)
                ls_buf_add(&plain, ",", 1);
            print_group(f, &f->groups[i + k], &plain);
        }
        if (n > 1 && !print_merged(f, i, n, at, &merged))
            status = no_memory(f->err);
        const struct ls_buf *best = n > 1 && merged.len < plain.len ? &merged : &plain;
        if (i)
            ls_buf_add(f->buf, ",", 1);
        ls_buf_add(f->buf, best->data, best->len);
        if (plain.failed || merged.failed || f->buf->failed)
            status = no_memory(f->err);
    }
    ls_buf_free(&plain);
    ls_buf_free(&merged);
    return status;
}

enum ls_status ls_hostlist_fold(const char *const *names, int count, struct ls_buf *buf,
                                struct ls_error *err)
{
    struct folder f = {.buf = buf, .err = err};
    enum ls_status status = LS_OK;
    if (count <= 0)
        return ls_error_set(err, LS_ERR_FORMAT, "the list of hosts has no names in it");
    if (count > LS_HOSTLIST_MAX)
        return ls_error_set(err, LS_ERR_OVERFLOW,
                            "found %d names, a list has at most %d; fold them in parts", count,
                            LS_HOSTLIST_MAX);
    for (int i = 0; i < count && status == LS_OK; i++) {
        status = check_name(names[i], i, err);
        if (status == LS_OK && !add_name(&f, names[i]))
            status = no_memory(err);
    }
    if (status == LS_OK)
        status = print_all(&f);
    free(f.groups);
    free(f.ranges);
    return status;
}
