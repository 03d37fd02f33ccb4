/* Answers as lines of text, and lists of them. */
#include "check/internal.h"

#include <stdlib.h>
#include <string.h>

const char *const ls_check_status_names[] = {"pass", "skip", "warn", "timeout", "fail", NULL};

enum { FIELDS = 7 };

void ls_check_list_free(struct ls_check_list *list)
{
    free(list->result);
    ls_arena_free(&list->arena);
    *list = (struct ls_check_list){0};
}

static const char *keep(struct ls_check_list *list, const char *text)
{
    const char *copy = ls_arena_strdup(&list->arena, text);
    list->failed |= !copy;
    return copy ? copy : "";
}

void ls_check_add(struct ls_check_list *list, const struct ls_check *check,
                  enum ls_check_status status, int rank, const char *device, const char *measured,
                  const char *expected, const char *advice)
{
    if (!ls_grow(&list->result, &list->cap, list->n + 1, sizeof *list->result)) {
        list->failed = true;
        return;
    }
    list->result[list->n++] = (struct ls_check_result){.check = check,
                                                       .status = status,
                                                       .rank = rank,
                                                       .device = keep(list, device),
                                                       .measured = keep(list, measured),
                                                       .expected = keep(list, expected),
                                                       .advice = keep(list, advice)};
}

/* ---- writing ---- */

/* Whatever would break a line, or a terminal, becomes a blank. */
static void put(struct ls_buf *text, const char *field)
{
    size_t at = text->len;
    ls_buf_add(text, field, strlen(field));
    for (; !text->failed && at < text->len; at++)
        if ((unsigned char)text->data[at] < ' ' || text->data[at] == 127)
            text->data[at] = ' ';
}

void ls_check_pack(struct ls_buf *text, const char *id, enum ls_check_status status,
                   const char *device, const char *measured, const char *expected,
                   const char *advice)
{
    const char *fields[] = {id, ls_check_status_names[status], device, measured, expected, advice};
    ls_buf_add(text, "R", 1);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ls_buf_add(text, "\t", 1);
        put(text, fields[i]);
    }
    ls_buf_add(text, "\n", 1);
}

/* A fact may have lines of its own: they become fields. */
void ls_check_pack_fact(struct ls_buf *text, const char *id, const char *fact)
{
    ls_buf_printf(text, "F\t%s\t", id);
    for (const char *end; *fact; fact = end) {
        end = strchr(fact, '\n');
        size_t n = end ? (size_t)(end - fact) : strlen(fact);
        size_t at = text->len;
        ls_buf_add(text, fact, n);
        for (; !text->failed && at < text->len; at++)
            if ((unsigned char)text->data[at] < ' ')
                text->data[at] = ' ';
        end = end ? end + 1 : fact + n;
        if (*end)
            ls_buf_add(text, "\x1f", 1);
    }
    ls_buf_add(text, "\n", 1);
}

/* ---- reading ---- */

static int find_status(const char *name)
{
    for (int i = 0; ls_check_status_names[i]; i++)
        if (!strcmp(name, ls_check_status_names[i]))
            return i;
    return -1;
}

/* Splits `line` in place; returns the number of fields, or -1 if there are more than FIELDS. */
static int split(char *line, char *field[FIELDS])
{
    int n = 1;
    field[0] = line;
    for (char *tab = line; (tab = strchr(tab, '\t')); n++) {
        if (n == FIELDS)
            return -1;
        *tab++ = '\0';
        field[n] = tab;
    }
    return n;
}

static bool take(char *line, int rank, struct ls_check_list *list, const char **facts)
{
    char *f[FIELDS];
    int n = split(line, f);
    const struct ls_check *check = n > 1 ? ls_check_find(f[1]) : NULL;
    if (!check)
        return false;
    if (n == 3 && !strcmp(f[0], "F")) {
        for (char *p = f[2]; *p; p++)
            if (*p == '\x1f')
                *p = '\n';
        if (facts)
            facts[check - ls_checks] = keep(list, f[2]);
        return true;
    }
    int status = n == FIELDS && !strcmp(f[0], "R") ? find_status(f[2]) : -1;
    if (status < 0)
        return false;
    ls_check_add(list, check, (enum ls_check_status)status, rank, f[3], f[4], f[5], f[6]);
    return true;
}

enum ls_status ls_check_unpack(const char *text, size_t n, int rank, struct ls_check_list *list,
                               const char **facts, struct ls_error *err)
{
    int number = 0;
    for (const char *p = text, *end = text + n; p < end; number++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t length = (size_t)((stop ? stop : end) - p);
        char *line = ls_arena_alloc(&list->arena, length + 1);
        if (!line)
            return ls_error_set(err, LS_ERR_NOMEM, "reading the answers of rank %d", rank);
        memcpy(line, p, length);
        if (memchr(line, '\0', length) || !take(line, rank, list, facts))
            return ls_error_set(
                err, LS_ERR_FORMAT,
                "line %d of the answers of rank %d is not understood: is it the same "
                "version of lockstep on all nodes?",
                number + 1, rank);
        p += length + 1;
    }
    return list->failed ? ls_error_set(err, LS_ERR_NOMEM, "reading the answers of rank %d", rank)
                        : LS_OK;
}
