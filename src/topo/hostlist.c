/* Hostlists: parsed into parts and ranges, which count and answer "name number i" without expanding. */
#include "topo/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Larger numbers than anybody's nodes have, with room to add to them. */
#define NUMBER_MAX UINT64_C(999999999999999999)

/* `first` is the place of `low` among the numbers of its bracket. */
struct ls_host_range {
    uint64_t low;
    int first, count, width;
};

/* Text and the bracket behind it; count is 1 and nranges 0 where there is no bracket. */
struct ls_host_part {
    size_t text;
    int text_len, first_range, nranges, count;
};

struct ls_host_entry {
    int first_part, nparts, first_name, count;
};

struct reader {
    const char *text;
    size_t at;
    struct ls_hostlist *list;
    struct ls_error *err;
};

static bool separates(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool names_host(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

#define BAD(r, where, ...) ls_topo_bad((r)->err, LS_ERR_FORMAT, (r)->text, where, __VA_ARGS__)

static enum ls_status no_memory(struct ls_error *err)
{
    return ls_error_set(err, LS_ERR_NOMEM, "no memory for a list of hosts");
}

static int digits_of(uint64_t n)
{
    int digits = 1;
    for (; n >= 10; n /= 10)
        digits++;
    return digits;
}

static enum ls_status too_many(struct reader *r, size_t where)
{
    return ls_topo_bad(r->err, LS_ERR_OVERFLOW, r->text, where,
                       "the list has more than %d names; give a shorter one", LS_HOSTLIST_MAX);
}

/* ---- parsing ------------------------------------------------------------------------------------ */

/* Says what is wrong with a number that ls_topo_digits did not take. */
static enum ls_status bad_number(struct reader *r)
{
    char c = r->text[r->at];
    if (c >= '0' && c <= '9')
        return BAD(r, r->at, "the number is too large; at most 18 digits count");
    if (c == '\0')
        return BAD(r, r->at, "the list ends within a bracket; expected a number and ']'");
    return BAD(r, r->at, "found '%c', expected a number, as in [1-4,7]",
               c >= ' ' && c <= '~' ? c : '?');
}

/* `before` numbers come earlier in this bracket. */
static enum ls_status read_range(struct reader *r, int before, int *longest)
{
    struct ls_hostlist *list = r->list;
    size_t start = r->at;
    uint64_t low, high;
    if (!ls_topo_digits(r->text, &r->at, NUMBER_MAX, &low))
        return bad_number(r);
    size_t width = r->at - start;
    high = low;
    if (r->text[r->at] == 'x')
        return BAD(r, r->at,
                   "boxes of multi-dimensional systems are not read; "
                   "give the names that 'scontrol show hostnames' prints");
    if (r->text[r->at] == '-') {
        r->at++;
        if (!ls_topo_digits(r->text, &r->at, NUMBER_MAX, &high))
            return bad_number(r);
    }
    if (high < low)
        return BAD(r, start, "the range ends before it begins; expected the smaller number first");
    if (high - low >= LS_HOSTLIST_MAX)
        return too_many(r, start);
    if (width > LS_HOSTLIST_NAME_MAX)
        return ls_topo_bad(r->err, LS_ERR_OVERFLOW, r->text, start,
                           "the name has more than %d characters", LS_HOSTLIST_NAME_MAX);
    if (!ls_grow(&list->ranges, &list->ranges_cap, list->nranges + 1, sizeof *list->ranges))
        return no_memory(r->err);
    list->ranges[list->nranges++] = (struct ls_host_range){
        .low = low, .first = before, .count = (int)(high - low) + 1, .width = (int)width};
    int digits = digits_of(high);
    if (digits < (int)width)
        digits = (int)width;
    if (*longest < digits)
        *longest = digits;
    return LS_OK;
}

/* At '['. */
static enum ls_status read_bracket(struct reader *r, struct ls_host_part *part, int *longest)
{
    size_t open = r->at++;
    int64_t count = 0;
    part->first_range = r->list->nranges;
    for (;;) {
        LS_TRY(read_range(r, (int)count, longest));
        count += r->list->ranges[r->list->nranges - 1].count;
        if (count > LS_HOSTLIST_MAX)
            return too_many(r, open);
        char c = r->text[r->at];
        if (c == ',') {
            r->at++;
            continue;
        }
        if (c == ']')
            break;
        if (c == '\0')
            return BAD(r, open, "the bracket is not closed; expected ']'");
        return BAD(r, r->at, "found '%c', expected ',' or ']' after a number",
                   c >= ' ' && c <= '~' ? c : '?');
    }
    r->at++;
    part->nranges = r->list->nranges - part->first_range;
    part->count = (int)count;
    return LS_OK;
}

static enum ls_status read_text(struct reader *r, bool first)
{
    char c;
    if (first && r->text[r->at] == '-')
        return BAD(r, r->at, "a name does not begin with '-'");
    while (names_host(r->text[r->at]))
        r->at++;
    c = r->text[r->at];
    if (c == ']')
        return BAD(r, r->at, "found ']' without '['");
    if (c == '\0' || c == '[' || separates(c))
        return LS_OK;
    if (c >= ' ' && c <= '~')
        return BAD(r, r->at, "found '%c'; names have letters, digits, '.', '_' and '-'", c);
    return BAD(r, r->at, "found byte 0x%02x; names have letters, digits, '.', '_' and '-'",
               (unsigned char)c);
}

static enum ls_status read_entry(struct reader *r)
{
    struct ls_hostlist *list = r->list;
    size_t start = r->at;
    int64_t count = 1, length = 0;
    int first = list->nparts;
    while (r->text[r->at] && !separates(r->text[r->at])) {
        struct ls_host_part part = {.text = r->at, .count = 1};
        int longest = 0;
        LS_TRY(read_text(r, list->nparts == first));
        if (r->at - part.text > LS_HOSTLIST_NAME_MAX)
            length = LS_HOSTLIST_NAME_MAX + 1;
        else
            part.text_len = (int)(r->at - part.text);
        if (r->text[r->at] == '[')
            LS_TRY(read_bracket(r, &part, &longest));
        length += part.text_len + longest;
        if (length > LS_HOSTLIST_NAME_MAX)
            return ls_topo_bad(r->err, LS_ERR_OVERFLOW, r->text, start,
                               "the name has more than %d characters", LS_HOSTLIST_NAME_MAX);
        count *= part.count; /* both at most LS_HOSTLIST_MAX */
        if (count + list->count > LS_HOSTLIST_MAX)
            return too_many(r, start);
        if (!ls_grow(&list->parts, &list->parts_cap, list->nparts + 1, sizeof *list->parts))
            return no_memory(r->err);
        list->parts[list->nparts++] = part;
    }
    if (!ls_grow(&list->entries, &list->entries_cap, list->nentries + 1, sizeof *list->entries))
        return no_memory(r->err);
    list->entries[list->nentries++] = (struct ls_host_entry){.first_part = first,
                                                             .nparts = list->nparts - first,
                                                             .first_name = list->count,
                                                             .count = (int)count};
    list->count += (int)count;
    return LS_OK;
}

static enum ls_status read_list(struct reader *r)
{
    if (!r->list->text)
        return no_memory(r->err);
    for (;;) {
        while (separates(r->text[r->at]))
            r->at++;
        if (!r->text[r->at])
            break;
        LS_TRY(read_entry(r));
    }
    if (r->list->count == 0)
        return ls_error_set(r->err, LS_ERR_FORMAT, "the list of hosts has no names in it");
    return LS_OK;
}

enum ls_status ls_hostlist_parse(const char *text, struct ls_hostlist *list, struct ls_error *err)
{
    *list = (struct ls_hostlist){.text = strdup(text)};
    enum ls_status status = read_list(&(struct reader){.text = text, .list = list, .err = err});
    if (status != LS_OK)
        ls_hostlist_free(list);
    return status;
}

void ls_hostlist_free(struct ls_hostlist *list)
{
    free(list->text);
    free(list->entries);
    free(list->parts);
    free(list->ranges);
    *list = (struct ls_hostlist){0};
}

/* ---- asking ------------------------------------------------------------------------------------- */

static size_t add_number(const struct ls_hostlist *list, const struct ls_host_part *part, int index,
                         char *out)
{
    const struct ls_host_range *ranges = list->ranges + part->first_range;
    int low = 0, high = part->nranges;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (ranges[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return (size_t)sprintf(out, "%0*" PRIu64, ranges[low].width,
                           ranges[low].low + (uint64_t)(index - ranges[low].first));
}

/* Writes name `index` of an entry. The last bracket takes the fastest digit, then the first, the
 * second and so on. The parse has seen to it that the name fits. */
static void write_name(const struct ls_hostlist *list, const struct ls_host_entry *entry, int index,
                       char *name)
{
    const struct ls_host_part *parts = list->parts + entry->first_part;
    int last = -1, fastest = 0;
    for (int i = 0; i < entry->nparts; i++)
        if (parts[i].nranges)
            last = i;
    if (last >= 0) {
        fastest = index % parts[last].count;
        index /= parts[last].count;
    }
    for (int i = 0; i < entry->nparts; i++) {
        memcpy(name, list->text + parts[i].text, (size_t)parts[i].text_len);
        name += parts[i].text_len;
        if (i == last) {
            name += add_number(list, &parts[i], fastest, name);
        } else if (parts[i].nranges) {
            name += add_number(list, &parts[i], index % parts[i].count, name);
            index /= parts[i].count;
        }
    }
    *name = '\0';
}

const char *ls_hostlist_nth(const struct ls_hostlist *list, int index,
                            char name[static LS_HOSTLIST_NAME_MAX + 1])
{
    int low = 0, high = list->nentries;
    if (index < 0 || index >= list->count)
        return NULL;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (list->entries[middle].first_name <= index)
            low = middle;
        else
            high = middle;
    }
    write_name(list, &list->entries[low], index - list->entries[low].first_name, name);
    return name;
}

static bool same_host(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (!*a || *a == '.') && (!*b || *b == '.') && (!*a || !*b);
}

int ls_hostlist_find(const struct ls_hostlist *list, const char *name)
{
    char other[LS_HOSTLIST_NAME_MAX + 1];
    int found = -1;
    for (int i = 0; i < list->count; i++) {
        ls_hostlist_nth(list, i, other);
        if (!strcmp(name, other))
            return i;
        /* Only a label as a whole: "n1" is "n1.site.org", but "n1.a" is not "n1.a.b". */
        if (found < 0 && same_host(name, other) && (!strchr(name, '.') || !strchr(other, '.')))
            found = i;
    }
    return found;
}

void ls_hostlist_expand(const struct ls_hostlist *list, char end, struct ls_buf *buf)
{
    char name[LS_HOSTLIST_NAME_MAX + 2];
    for (int i = 0; i < list->nentries; i++)
        for (int k = 0; k < list->entries[i].count; k++) {
            write_name(list, &list->entries[i], k, name);
            size_t len = strlen(name);
            name[len] = end;
            ls_buf_add(buf, name, len + 1);
        }
}
