/* What a run tells people and programs: the progress line, plain lines, and metrics.jsonl. Writes to
 * streams that it is given; decides nothing. */
#ifndef LS_WATCH_H
#define LS_WATCH_H

#include "base/base.h"

#include <stdio.h>

/* ---- progress ---- */

struct ls_progress {
    FILE *out;      /* NULL: silent */
    bool terminal;  /* redraw one line, or print plain lines now and then */
    double shown;   /* monotonic seconds of the last line; 0: none yet */
    bool open_line; /* a redrawn line waits for its newline */
};
/* One finished step, as people and metrics.jsonl see it. */
struct ls_step_figures {
    int64_t step, steps; /* finished steps, and how many there will be */
    double epoch;        /* samples consumed / samples in the set */
    double loss;         /* mean over the step's samples */
    double lr, grad_norm;
    double seconds;            /* of this step */
    double samples_per_second; /* of this step */
    double data_wait;          /* seconds of it spent waiting for data */
    double comm;               /* seconds of it spent in collectives, waiting for others included */
    double eta;                /* seconds until the end at the current rate; < 0 unknown */
    double rate;               /* samples per second, smoothed, for people */
    bool skipped;              /* the update was skipped: loss or gradient was not finite */
};
/* Shows the step if it is time: 10 times a second on a terminal, else every 10 s; `last` always. */
void ls_progress_step(struct ls_progress *progress, const struct ls_step_figures *f, bool last);
/* A line of its own, above the progress line. */
void ls_progress_line(struct ls_progress *progress, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- metrics.jsonl ---- */

/* One JSON object per line: {"type": "step", "step": 1, "loss": ...}, "eval" or "checkpoint".
 * Not-a-number is null. Lines are written whole; a crash can lose the last second, not cut a line. */
struct ls_metrics;
/* Opens `path` for appending, after removing records of steps beyond `step`, which a resumed run does
 * again (and a cut last line). */
enum ls_status ls_metrics_open(const char *path, int64_t step, struct ls_metrics **metrics,
                               struct ls_error *err);
void ls_metrics_step(struct ls_metrics *metrics, const struct ls_step_figures *f);
void ls_metrics_eval(struct ls_metrics *metrics, int64_t step, double loss, double accuracy,
                     int64_t samples, double seconds);
void ls_metrics_checkpoint(struct ls_metrics *metrics, int64_t step, const char *path,
                           double seconds);
/* Flushes and closes; the first write error of all is reported here. `metrics` may be NULL. */
enum ls_status ls_metrics_close(struct ls_metrics *metrics, struct ls_error *err);

#endif
