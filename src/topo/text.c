/* Numbers in text, and messages that show where a text is wrong. */
#include "topo/internal.h"

#include <stdio.h>
#include <string.h>

static char printable(char c)
{
    return c >= ' ' && c <= '~' ? c : '?';
}

const char *ls_topo_show(const char *text, char out[static 84])
{
    size_t n = strnlen(text, 81), shown = n > 80 ? 77 : n;
    for (size_t i = 0; i < shown; i++)
        out[i] = printable(text[i]);
    memcpy(out + shown, n > 80 ? "..." : "", n > 80 ? 4 : 1);
    return out;
}

enum ls_status ls_topo_bad(struct ls_error *err, enum ls_status status, const char *text, size_t at,
                           const char *fmt, ...)
{
    /* Enough on both sides to find the place in a list of thousands. */
    enum { BEFORE = 24, AFTER = 24 };
    char part[BEFORE + AFTER + 8], what[512];
    size_t first = at > BEFORE ? at - BEFORE : 0, len = strnlen(text + first, at - first + AFTER);
    size_t n = 0;
    if (first > 0)
        n += (size_t)sprintf(part, "...");
    for (size_t i = 0; i < len; i++)
        part[n++] = printable(text[first + i]);
    strcpy(part + n, text[first + len] ? "..." : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return ls_error_set(err, status, "at character %zu of '%s': %s", at + 1, part, what);
}

bool ls_topo_is_set_by_us(const char *set, const char *variable)
{
    size_t size = strlen(variable);
    for (const char *at = set; at && *at;) {
        size_t n = strcspn(at, ";");
        if (n == size && !strncmp(at, variable, n))
            return true;
        at += n + (at[n] == ';');
    }
    return false;
}

bool ls_topo_digits(const char *text, size_t *at, uint64_t max, uint64_t *value)
{
    size_t i = *at;
    uint64_t v = 0;
    for (; text[i] >= '0' && text[i] <= '9'; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (v > (max - digit) / 10 || digit > max)
            return false;
        v = v * 10 + digit;
    }
    if (i == *at)
        return false;
    *at = i;
    *value = v;
    return true;
}
