/* Run lengths, as in SLURM_TASKS_PER_NODE: "2(x3),1". */
#include "topo/internal.h"

#include <stdlib.h>

/* Slurm counts the tasks of a node in 16 bits. */
#define VALUE_MAX 65535

static enum ls_status bad_value(const char *text, size_t at, const char *what, struct ls_error *err)
{
    char c = text[at];
    if (c == '\0')
        return ls_topo_bad(err, LS_ERR_FORMAT, text, at, "the text ends, expected %s", what);
    if (c >= '0' && c <= '9')
        return ls_topo_bad(err, LS_ERR_FORMAT, text, at, "expected %s", what);
    return ls_topo_bad(err, LS_ERR_FORMAT, text, at, "found '%c', expected %s",
                       c > ' ' && c <= '~' ? c : '?', what);
}

/* "2" or "2(x3)" at *at. */
static enum ls_status read_run(const char *text, size_t *at, uint64_t *value, uint64_t *times,
                               struct ls_error *err)
{
    size_t start = *at;
    *times = 1;
    if (!ls_topo_digits(text, at, VALUE_MAX, value) || *value == 0)
        return bad_value(text, start, "a number from 1 to 65535, as in 2(x3),1", err);
    if (text[*at] != '(')
        return LS_OK;
    ++*at;
    if (text[*at] != 'x')
        return bad_value(text, *at, "'x' and how often, as in 2(x3)", err);
    start = ++*at;
    if (!ls_topo_digits(text, at, LS_HOSTLIST_MAX, times) || *times == 0)
        return bad_value(text, start, "how often, from 1 to 65536, as in 2(x3)", err);
    if (text[*at] != ')')
        return bad_value(text, *at, "')'", err);
    ++*at;
    return LS_OK;
}

static enum ls_status read_all(const char *text, int **values, int *count, int *cap,
                               struct ls_error *err)
{
    for (size_t at = 0;; at++) {
        uint64_t value, times;
        size_t start = at;
        LS_TRY(read_run(text, &at, &value, &times, err));
        if (times > (uint64_t)(LS_HOSTLIST_MAX - *count))
            return ls_topo_bad(err, LS_ERR_OVERFLOW, text, start, "more than %d nodes",
                               LS_HOSTLIST_MAX);
        if (!ls_grow(values, cap, *count + (int)times, sizeof **values))
            return ls_error_set(err, LS_ERR_NOMEM, "no memory for the tasks of %d nodes", *count);
        while (times--)
            (*values)[(*count)++] = (int)value;
        if (!text[at])
            return LS_OK;
        if (text[at] != ',')
            return bad_value(text, at, "',' or the end", err);
    }
}

enum ls_status ls_runs_parse(const char *text, int **values, int *count, struct ls_error *err)
{
    int cap = 0;
    *values = NULL;
    *count = 0;
    enum ls_status status = read_all(text, values, count, &cap, err);
    if (status != LS_OK) {
        free(*values);
        *values = NULL;
        *count = 0;
    }
    return status;
}
