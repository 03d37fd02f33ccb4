/* metrics.jsonl: one JSON object per line, for programs and plots. */
#include "watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER 65536 /* written when three quarters full or a second old */

struct ls_metrics {
    int fd;
    char *path;
    char text[BUFFER];
    size_t len;
    double flushed; /* monotonic seconds */
    struct ls_error error;
};

static void flush(struct ls_metrics *m)
{
    if (m->len && m->error.status == LS_OK)
        ls_file_write_all(m->fd, m->text, m->len, m->path, &m->error);
    m->len = 0;
    m->flushed = ls_time_monotonic();
}

/* The step of a record, or -1 if the line is no record. */
static int64_t step_of(const char *line, size_t n)
{
    json_t *record = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    json_t *step = json_object_get(record, "step");
    int64_t value = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    json_decref(record);
    return value;
}

/* Bytes of the file to keep: up to the first whole line of a later step. Records are in order, so only
 * lines from the end are looked at. */
static size_t keep_until(const char *text, size_t size, int64_t step)
{
    size_t end = size;
    while (end && text[end - 1] != '\n') /* a cut last line */
        end--;
    while (end) {
        size_t start = end - 1;
        while (start && text[start - 1] != '\n')
            start--;
        int64_t at = step_of(text + start, end - start);
        if (at >= 0 && at <= step)
            break;
        end = start;
    }
    return end;
}

static enum ls_status trim(const char *path, int64_t step, struct ls_error *err)
{
    char *text;
    size_t size;
    struct ls_error missing = {0};
    enum ls_status status = ls_file_read(path, SIZE_MAX / 4, &text, &size, &missing);
    if (status == LS_ERR_NOTFOUND)
        return LS_OK;
    if (status != LS_OK)
        return ls_error_set(err, status, "%s", missing.message);
    size_t keep = keep_until(text, size, step);
    free(text);
    if (keep < size && truncate(path, (off_t)keep) != 0)
        return ls_error_errno(err, errno, "shortening %s to step %lld", path, (long long)step);
    return LS_OK;
}

enum ls_status ls_metrics_open(const char *path, int64_t step, struct ls_metrics **metrics,
                               struct ls_error *err)
{
    LS_TRY(trim(path, step, err));
    struct ls_metrics *m = calloc(1, sizeof *m);
    char *copy = strdup(path);
    if (!m || !copy) {
        free(m);
        free(copy);
        return ls_error_set(err, LS_ERR_NOMEM, "opening %s", path);
    }
    m->path = copy;
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    m->flushed = ls_time_monotonic();
    if (m->fd < 0) {
        enum ls_status status = ls_error_errno(err, errno, "opening %s", path);
        free(copy);
        free(m);
        return status;
    }
    *metrics = m;
    return LS_OK;
}

/* A number as JSON; what JSON cannot say is null. */
static const char *number(double v, char out[static 32])
{
    if (isfinite(v))
        snprintf(out, 32, "%.9g", v);
    else
        strcpy(out, "null");
    return out;
}

__attribute__((format(printf, 2, 3))) static void record(struct ls_metrics *m, const char *fmt, ...)
{
    va_list ap;
    if (m->len > BUFFER * 3 / 4 || ls_time_monotonic() - m->flushed > 1)
        flush(m);
    va_start(ap, fmt);
    int n = vsnprintf(m->text + m->len, BUFFER - m->len, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < BUFFER - m->len)
        m->len += (size_t)n;
}

void ls_metrics_step(struct ls_metrics *m, const struct ls_step_figures *f)
{
    char loss[32], norm[32];
    record(m,
           "{\"type\": \"step\", \"step\": %lld, \"epoch\": %.6f, \"loss\": %s, \"lr\": %.9g, "
           "\"grad_norm\": %s, \"seconds\": %.6f, \"samples_per_second\": %.1f, "
           "\"data_wait_seconds\": %.6f, \"comm_seconds\": %.6f%s}\n",
           (long long)f->step, f->epoch, number(f->loss, loss), f->lr, number(f->grad_norm, norm),
           f->seconds, f->samples_per_second, f->data_wait, f->comm,
           f->skipped ? ", \"skipped\": true" : "");
}

void ls_metrics_eval(struct ls_metrics *m, int64_t step, double loss, double accuracy,
                     int64_t samples, double seconds)
{
    char text[32];
    record(m,
           "{\"type\": \"eval\", \"step\": %lld, \"test_loss\": %s, \"test_accuracy\": %.9g, "
           "\"samples\": %lld, \"seconds\": %.6f}\n",
           (long long)step, number(loss, text), accuracy, (long long)samples, seconds);
}

void ls_metrics_checkpoint(struct ls_metrics *m, int64_t step, const char *path, double seconds)
{
    json_t *name = json_string(path); /* a path may hold what JSON must escape */
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    record(m, "{\"type\": \"checkpoint\", \"step\": %lld, \"path\": %s, \"seconds\": %.6f}\n",
           (long long)step, quoted ? quoted : "null", seconds);
    free(quoted);
    json_decref(name);
}

enum ls_status ls_metrics_close(struct ls_metrics *m, struct ls_error *err)
{
    if (!m)
        return LS_OK;
    flush(m);
    if (close(m->fd) != 0 && m->error.status == LS_OK)
        ls_error_errno(&m->error, errno, "closing %s", m->path);
    enum ls_status status = m->error.status;
    if (status != LS_OK)
        ls_error_set(err, status, "%s", m->error.message);
    free(m->path);
    free(m);
    return status;
}
