/* Passes on what ranks print. One thread, no wait: see output.h. */
#include "keep/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 64 << 10, /* a longer line may be cut in two when others print meanwhile */
    SINK_FULL = 256 << 10,     /* no more is read for a sink that holds so much */
    RING = 4096,               /* the last bytes of each stream */
    TAIL_BYTES = 3000,         /* a failure's text may have 4000 */
    TAIL_LINES = 10,
    WRITES_PER_TURN = 64,
};
/* Seconds after which a line without an end is shown as it is: a prompt, a progress bar. */
static const double patience = 0.1;

struct stream {
    int fd; /* -1: closed */
    struct sink *sink;
    const struct ls_keep_place *place;
    char *line; /* [LINE_MAX_BYTES]: what waits for its end */
    size_t n;
    double since; /* when the oldest byte of it came */
    bool inside;  /* the last byte that was passed on did not end a line */
    char last;    /* that byte */
    char ring[RING];
    size_t written; /* bytes ever put into the ring */
};
struct sink {
    int fd;
    char *path;          /* of a file of ours; NULL: our own stream */
    bool always;         /* a regular file or the like: never makes a writer wait */
    bool broken;         /* nobody reads any more, or the disk is full */
    struct stream *open; /* whose line is not finished there */
    char *data;
    size_t at, end, cap;
};
struct ls_output {
    struct ls_output_config config;
    int n_streams, n_sinks;
    struct stream *stream; /* [2 * workers]: out, err of worker 0, then 1, ... */
    struct sink *sink;     /* our own out and err; or one or two for each worker */
};

/* ---- sinks ---- */

static void give_up(struct ls_output *o, struct sink *s, int why)
{
    s->broken = true;
    s->at = s->end = 0;
    if (why != EPIPE)
        dprintf(o->config.err, "lockstep: cannot write %s: %s; the rest of it is lost\n",
                s->path ? s->path : "what ranks print", strerror(why));
    /* A rank that prints on hears of it as it would without us: SIGPIPE, EPIPE. */
    for (int i = 0; i < o->n_streams; i++)
        if (o->stream[i].sink == s && o->stream[i].fd >= 0) {
            close(o->stream[i].fd);
            o->stream[i].fd = -1;
        }
}

static void put(struct sink *s, const char *data, size_t n)
{
    if (s->broken || !n)
        return;
    if (s->at && s->at == s->end)
        s->at = s->end = 0;
    if (s->end + n > s->cap) {
        memmove(s->data, s->data + s->at, s->end - s->at);
        s->end -= s->at;
        s->at = 0;
    }
    size_t cap = s->cap;
    while (s->end + n > cap)
        cap *= 2;
    if (cap != s->cap) {
        char *grown = realloc(s->data, cap);
        if (!grown)
            return; /* lost, as there is no memory to keep it in */
        s->data = grown;
        s->cap = cap;
    }
    memcpy(s->data + s->end, data, n);
    s->end += n;
}

/* Is there room for PIPE_BUF bytes? Then a write of no more does not wait. Our streams stay as we found them:
 * O_NONBLOCK would hit everyone who shares them. */
static bool writable(const struct sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    return s->always || (poll(&p, 1, 0) == 1 && p.revents);
}

static void flush(struct ls_output *o, struct sink *s)
{
    for (int turn = 0; s->at < s->end && turn < WRITES_PER_TURN && writable(s); turn++) {
        size_t n = s->end - s->at;
        if (!s->always && n > PIPE_BUF)
            n = PIPE_BUF;
        ssize_t done = write(s->fd, s->data + s->at, n);
        if (done < 0 && errno != EINTR && errno != EAGAIN)
            give_up(o, s, errno);
        else if (done > 0)
            s->at += (size_t)done;
    }
}

/* ---- lines ---- */

static void put_label(struct ls_output *o, struct stream *t)
{
    char label[300];
    if (!o->config.label)
        return;
    int n = snprintf(label, sizeof label, "[%d@%.250s] ", t->place->rank, t->place->host);
    if (n > 0)
        put(t->sink, label, (size_t)n);
}

/* Ends the line that another rank has left open, and puts labels where lines begin. A carriage return begins
 * one too, unless a newline follows. */
static void pass_on(struct ls_output *o, struct stream *t, const char *data, size_t n)
{
    struct sink *s = t->sink;
    if (!n || s->broken)
        return;
    if (s->open && s->open != t) {
        put(s, "\n", 1);
        s->open->inside = false;
        s->open->last = '\n';
    }
    for (size_t at = 0; at < n;) {
        if (!t->inside && !(t->last == '\r' && data[at] == '\n'))
            put_label(o, t);
        const char *end = data + n;
        if (o->config.label) {
            size_t span = 0;
            while (at + span < n && data[at + span] != '\n' && data[at + span] != '\r')
                span++;
            end = at + span < n ? data + at + span + 1 : end;
        }
        put(s, data + at, (size_t)(end - data) - at);
        at = (size_t)(end - data);
        t->last = data[at - 1];
        t->inside = t->last != '\n' && t->last != '\r';
    }
    s->open = t->last == '\n' ? NULL : t;
}

static void remember(struct stream *t, const char *data, size_t n)
{
    for (size_t i = n > RING ? n - RING : 0; i < n; i++)
        t->ring[(t->written + i) % RING] = data[i];
    t->written += n;
}

/* How much of the waiting text ends with a line's end. */
static size_t whole_lines(const struct stream *t)
{
    for (size_t i = t->n; i > 0; i--)
        if (t->line[i - 1] == '\n' || t->line[i - 1] == '\r')
            return i;
    return t->n == LINE_MAX_BYTES ? t->n : 0;
}

static void show(struct ls_output *o, struct stream *t, size_t n)
{
    pass_on(o, t, t->line, n);
    memmove(t->line, t->line + n, t->n - n);
    t->n -= n;
    t->since = ls_time_monotonic();
}

/* False: nothing there now, or the end. */
static bool take(struct ls_output *o, struct stream *t)
{
    ssize_t got = read(t->fd, t->line + t->n, LINE_MAX_BYTES - t->n);
    if (got < 0 && errno == EINTR)
        return true;
    if (got < 0 && errno == EAGAIN)
        return false;
    if (got <= 0) {
        close(t->fd);
        t->fd = -1;
        show(o, t, t->n);
        return false;
    }
    if (!t->n)
        t->since = ls_time_monotonic();
    remember(t, t->line + t->n, (size_t)got);
    t->n += (size_t)got;
    size_t whole = whole_lines(t);
    if (whole)
        show(o, t, whole);
    return true;
}

/* ---- files ---- */

struct text {
    char *out;
    size_t n, max;
};

static void add(struct text *t, const char *part)
{
    size_t n = strlen(part);
    if (t->n + n >= t->max)
        n = t->max - t->n - 1;
    memcpy(t->out + t->n, part, n);
    t->n += n;
    t->out[t->n] = '\0';
}

bool ls_keep_output_path(const char *pattern, const struct ls_keep_place *place, const char *stream,
                         char out[static LS_KEEP_PATH])
{
    char number[24];
    struct text t = {out, 0, LS_KEEP_PATH};
    for (const char *p = pattern; *p; p++) {
        const char one[2] = {*p, '\0'};
        if (*p != '%') {
            add(&t, one);
            continue;
        }
        switch (*++p) {
        case 'r':
        case 'l':
            snprintf(number, sizeof number, "%d", *p == 'r' ? place->rank : place->local_rank);
            add(&t, number);
            break;
        case 'h':
            add(&t, place->host);
            break;
        case 'j':
            add(&t, place->job);
            break;
        case 's':
            add(&t, stream);
            break;
        case '%':
            add(&t, "%");
            break;
        default:
            return false;
        }
    }
    return t.n + 1 < t.max;
}

static bool has(const char *pattern, char letter)
{
    for (const char *p = pattern; *p; p++)
        if (*p == '%' && *++p == letter)
            return true;
        else if (!*p)
            return false;
    return false;
}

static enum ls_status open_file(struct sink *s, const char *path, struct ls_error *err)
{
    char folder[LS_KEEP_PATH];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) {
        *slash = '\0';
        LS_TRY(ls_dir_make(folder, err));
    }
    s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return ls_error_errno(err, errno, "cannot write %s", path);
    s->path = strdup(path);
    return s->path ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "no memory for output");
}

static enum ls_status open_sinks(struct ls_output *o, struct ls_error *err)
{
    const struct ls_output_config *c = &o->config;
    static const char *const name[2] = {"out", "err"};
    char path[LS_KEEP_PATH];
    if (!c->pattern) {
        o->sink[0].fd = c->out;
        o->sink[1].fd = c->err;
        o->n_sinks = 2;
    }
    bool split = c->pattern && has(c->pattern, 's');
    for (int i = 0; i < o->n_streams; i++) {
        struct stream *t = &o->stream[i];
        bool shares = c->pattern && !split && i % 2;
        t->sink = !c->pattern ? &o->sink[i % 2] : &o->sink[o->n_sinks - shares];
        if (!c->pattern || shares)
            continue;
        if (!ls_keep_output_path(c->pattern, t->place, name[i % 2], path))
            return ls_error_set(err, LS_ERR_USAGE, "output pattern %.200s: too long", c->pattern);
        o->n_sinks++;
        LS_TRY(open_file(t->sink, path, err));
    }
    return LS_OK;
}

enum ls_status ls_keep_output_check(const char *pattern, struct ls_error *err)
{
    const struct ls_keep_place sample = {.host = "", .job = ""};
    char path[LS_KEEP_PATH];
    if (!ls_keep_output_path(pattern, &sample, "", path))
        return ls_error_set(err, LS_ERR_USAGE,
                            "output pattern '%.200s': expected %%r (rank), %%l (local rank), %%h "
                            "(host), %%j (job), %%s (out or err) or %%%%",
                            pattern);
    if (!has(pattern, 'r') && !(has(pattern, 'h') && has(pattern, 'l')))
        return ls_error_set(err, LS_ERR_USAGE,
                            "output pattern '%.200s': all ranks would write into one file; put %%r "
                            "into the name",
                            pattern);
    return LS_OK;
}

/* ---- life ---- */

enum ls_status ls_output_open(const struct ls_output_config *config, struct ls_output **output,
                              struct ls_error *err)
{
    struct ls_output *o = calloc(1, sizeof *o);
    int n = 2 * config->workers;
    if (o) {
        o->config = *config;
        o->stream = calloc((size_t)n, sizeof *o->stream);
        o->sink = calloc((size_t)n, sizeof *o->sink);
    }
    if (!o || !o->stream || !o->sink) {
        ls_output_close(o);
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for output");
    }
    o->n_streams = n;
    enum ls_status status = LS_OK;
    for (int i = 0; i < n; i++) {
        struct stream *t = &o->stream[i];
        *t = (struct stream){.fd = -1, .place = &config->place[i / 2]};
        t->line = malloc(LINE_MAX_BYTES);
        o->sink[i].cap = LINE_MAX_BYTES;
        o->sink[i].data = malloc(o->sink[i].cap);
        if (!t->line || !o->sink[i].data)
            status = ls_error_set(err, LS_ERR_NOMEM, "no memory for output");
    }
    if (status == LS_OK)
        status = open_sinks(o, err);
    for (int i = 0; i < o->n_sinks && status == LS_OK; i++) {
        struct stat st;
        o->sink[i].always = fstat(o->sink[i].fd, &st) == 0 && S_ISREG(st.st_mode);
    }
    if (status == LS_OK)
        *output = o;
    else
        ls_output_close(o);
    return status;
}

enum ls_status ls_output_pipes(struct ls_output *o, int worker, int fds[static 2],
                               struct ls_error *err)
{
    fds[0] = fds[1] = -1;
    for (int i = 0; i < 2; i++) {
        int ends[2];
        struct stream *t = &o->stream[2 * worker + i];
        /* Only our end does not wait: the rank's is as a program expects it. */
        if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
            return ls_error_errno(err, errno, "a pipe for rank %d", t->place->rank);
        t->fd = ends[0];
        fds[i] = ends[1];
    }
    return LS_OK;
}

int ls_output_count(const struct ls_output *o)
{
    return o->n_streams + o->n_sinks;
}

void ls_output_poll(const struct ls_output *o, struct pollfd *fds)
{
    for (int i = 0; i < o->n_streams; i++) {
        const struct stream *t = &o->stream[i];
        bool room = t->sink->end - t->sink->at < SINK_FULL;
        fds[i] = (struct pollfd){.fd = room ? t->fd : -1, .events = POLLIN};
    }
    for (int i = 0; i < o->n_sinks; i++) {
        const struct sink *s = &o->sink[i];
        fds[o->n_streams + i] =
            (struct pollfd){.fd = s->at < s->end ? s->fd : -1, .events = POLLOUT};
    }
}

int ls_output_timeout(const struct ls_output *o)
{
    double now = ls_time_monotonic(), due = now + 3600;
    for (int i = 0; i < o->n_streams; i++)
        if (o->stream[i].n && o->stream[i].since + patience < due)
            due = o->stream[i].since + patience;
    return due >= now + 3600 ? -1 : due <= now ? 0 : (int)((due - now) * 1e3) + 1;
}

void ls_output_work(struct ls_output *o, const struct pollfd *fds)
{
    double now = ls_time_monotonic();
    for (int i = 0; i < o->n_streams; i++) {
        struct stream *t = &o->stream[i];
        if (t->fd >= 0 && fds[i].fd == t->fd && fds[i].revents)
            take(o, t);
        if (t->n && now - t->since >= patience)
            show(o, t, t->n);
    }
    for (int i = 0; i < o->n_sinks; i++)
        flush(o, &o->sink[i]);
}

bool ls_output_idle(const struct ls_output *o)
{
    bool idle = true;
    for (int i = 0; i < o->n_streams; i++)
        idle &= o->stream[i].fd < 0;
    for (int i = 0; i < o->n_sinks; i++)
        idle &= o->sink[i].at == o->sink[i].end;
    return idle;
}

void ls_output_ended(struct ls_output *o, int worker)
{
    for (int i = 2 * worker; i < 2 * worker + 2; i++) {
        struct stream *t = &o->stream[i];
        while (t->fd >= 0 && take(o, t))
            ;
        if (t->fd >= 0)
            close(t->fd);
        t->fd = -1;
        show(o, t, t->n);
    }
}

/* ---- the tail ---- */

static size_t copy_ring(const struct stream *t, char out[static RING])
{
    size_t n = t->written < RING ? t->written : RING;
    for (size_t i = 0; i < n; i++)
        out[i] = t->ring[(t->written - n + i) % RING];
    return n;
}

/* Where the last lines begin; text[n - 1] may or may not end one. */
static size_t begin_of_tail(const char *text, size_t n, bool cut)
{
    size_t least = n > TAIL_BYTES ? n - TAIL_BYTES : 0, at = n, lines = 0;
    size_t end = n && text[n - 1] == '\n' ? n - 1 : n;
    for (size_t i = end; i > least && lines < TAIL_LINES; i--)
        if (text[i - 1] == '\n') {
            at = i;
            lines++;
        }
    if (lines < TAIL_LINES && least == 0 && !cut)
        at = 0;
    return lines || at < n ? at : least; /* one endless line: its end */
}

/* Without what a carriage return has overwritten, and without what would move the cursor. */
static void clean(const char *text, size_t n, char out[static LS_OUTPUT_TAIL])
{
    size_t len = 0, begin = 0;
    for (size_t i = 0; i < n && len < LS_OUTPUT_TAIL - 2; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\r') {
            len = i + 1 < n && text[i + 1] != '\n' ? begin : len;
            continue;
        }
        out[len++] = c == '\n' || c == '\t' || (c >= ' ' && c != 127) ? text[i] : '?';
        begin = c == '\n' ? len : begin;
    }
    if (len && out[len - 1] != '\n')
        out[len++] = '\n';
    out[len] = '\0';
}

const char *ls_output_tail(const struct ls_output *o, int worker, char out[static LS_OUTPUT_TAIL])
{
    char text[RING];
    const struct stream *t = &o->stream[2 * worker + 1];
    if (!t->written)
        t--;
    size_t n = copy_ring(t, text);
    size_t at = begin_of_tail(text, n, t->written > RING);
    clean(text + at, n - at, out);
    return out;
}

void ls_output_close(struct ls_output *o)
{
    if (!o)
        return;
    for (int i = 0; o->stream && i < 2 * o->config.workers; i++) {
        if (o->stream[i].fd >= 0 && o->n_streams)
            close(o->stream[i].fd);
        free(o->stream[i].line);
    }
    for (int i = 0; o->sink && i < 2 * o->config.workers; i++) {
        struct sink *s = &o->sink[i];
        if (i < o->n_sinks)
            flush(o, s);
        if (i < o->n_sinks && o->config.pattern && s->fd > 0)
            close(s->fd);
        free(s->path);
        free(s->data);
    }
    free(o->stream);
    free(o->sink);
    free(o);
}
