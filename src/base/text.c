/* The text buffer and a few things done to strings. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ls_buf_init(struct ls_buf *buf, size_t max)
{
    *buf = (struct ls_buf){.max = max};
}

static bool reserve(struct ls_buf *buf, size_t more)
{
    if (buf->failed || more > buf->max || buf->len > buf->max - more) {
        buf->failed = true;
        return false;
    }
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return true;
    size_t cap = buf->cap ? buf->cap : 256;
    while (cap < need)
        cap *= 2;
    char *grown = realloc(buf->data, cap);
    if (!grown) {
        buf->failed = true;
        return false;
    }
    buf->data = grown;
    buf->cap = cap;
    return true;
}

void ls_buf_add(struct ls_buf *buf, const char *bytes, size_t n)
{
    if (!reserve(buf, n))
        return;
    if (n)
        memcpy(buf->data + buf->len, bytes, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
}

void ls_buf_vprintf(struct ls_buf *buf, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        buf->failed = true;
    else if (reserve(buf, (size_t)n)) {
        vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}

void ls_buf_printf(struct ls_buf *buf, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ls_buf_vprintf(buf, fmt, ap);
    va_end(ap);
}

void ls_buf_free(struct ls_buf *buf)
{
    free(buf->data);
    *buf = (struct ls_buf){.max = buf->max};
}

#define MAX_WORD 63

int ls_edit_distance(const char *a, const char *b)
{
    int la = (int)strnlen(a, MAX_WORD), lb = (int)strnlen(b, MAX_WORD);
    int d[MAX_WORD + 1][MAX_WORD + 1];
    for (int i = 0; i <= la; i++)
        d[i][0] = i;
    for (int j = 0; j <= lb; j++)
        d[0][j] = j;
    for (int i = 1; i <= la; i++)
        for (int j = 1; j <= lb; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[la][lb];
}

const char *ls_format_bytes(int64_t bytes, char out[static 24])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    snprintf(out, 24, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return out;
}

const char *ls_format_count(int64_t n, char out[static 32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)(n < 0 ? -n : n)), o = 0;
    if (n < 0)
        out[o++] = '-';
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            out[o++] = ',';
        out[o++] = digits[i];
    }
    out[o] = '\0';
    return out;
}
