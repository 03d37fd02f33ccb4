/* Status names and the one-line error record. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *ls_status_name(enum ls_status status)
{
    static const char *const names[] = {
        [LS_OK] = "ok",
        [LS_ERR_USAGE] = "usage",
        [LS_ERR_NOMEM] = "out of memory",
        [LS_ERR_IO] = "input/output",
        [LS_ERR_NOTFOUND] = "not found",
        [LS_ERR_FORMAT] = "bad format",
        [LS_ERR_OVERFLOW] = "too large",
        [LS_ERR_BUSY] = "busy",
        [LS_ERR_UNSUPPORTED] = "unsupported",
        [LS_ERR_ENV] = "environment",
        [LS_ERR_NUMERIC] = "numeric",
        [LS_ERR_TIMEOUT] = "timeout",
        [LS_ERR_ABORTED] = "aborted",
        [LS_ERR_INTERNAL] = "internal",
    };
    return status < sizeof names / sizeof *names ? names[status] : "unknown";
}

static enum ls_status record(struct ls_error *err, enum ls_status status, const char *tail,
                             const char *fmt, va_list ap)
{
    if (err && err->status == LS_OK) {
        err->status = status;
        int n = vsnprintf(err->message, sizeof err->message, fmt, ap);
        if (tail && n >= 0 && (size_t)n < sizeof err->message)
            snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", tail);
    }
    return status;
}

enum ls_status ls_error_set(struct ls_error *err, enum ls_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record(err, status, NULL, fmt, ap);
    va_end(ap);
    return status;
}

enum ls_status ls_error_errno(struct ls_error *err, int errnum, const char *fmt, ...)
{
    enum ls_status status = errnum == ENOMEM   ? LS_ERR_NOMEM
                            : errnum == ENOENT ? LS_ERR_NOTFOUND
                                               : LS_ERR_IO;
    char text[128];
    va_list ap;
    va_start(ap, fmt);
    record(err, status, strerror_r(errnum, text, sizeof text), fmt, ap);
    va_end(ap);
    return status;
}

enum ls_status ls_error_context(struct ls_error *err, const char *fmt, ...)
{
    if (!err)
        return LS_ERR_INTERNAL;
    char front[sizeof err->message], old[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(front, sizeof front, fmt, ap);
    va_end(ap);
    memcpy(old, err->message, sizeof old);
    size_t room = sizeof err->message, used = strnlen(front, room - 3);
    memcpy(err->message, front, used);
    memcpy(err->message + used, ": ", 2);
    used += 2;
    size_t rest = strnlen(old, room - used - 1);
    memcpy(err->message + used, old, rest);
    err->message[used + rest] = '\0';
    return err->status;
}
