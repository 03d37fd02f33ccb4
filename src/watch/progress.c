/* The progress line on a terminal, plain lines elsewhere. */
#include "watch/watch.h"

#include <math.h>

static const char *duration(double seconds, char out[static 24])
{
    int64_t s = (int64_t)ceil(seconds);
    if (s >= 3600)
        snprintf(out, 24, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
    else
        snprintf(out, 24, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return out;
}

void ls_progress_step(struct ls_progress *p, const struct ls_step_figures *f, bool last)
{
    double now = ls_time_monotonic();
    if (!p->out || (!last && p->shown > 0 && now - p->shown < (p->terminal ? 0.1 : 10.0)))
        return;
    p->shown = now;
    char rate[32], eta[24] = "";
    ls_format_count((int64_t)f->rate, rate);
    if (f->eta >= 0 && !last)
        duration(f->eta, eta);
    fprintf(p->out,
            "%sstep %lld/%lld  %3.0f %%  epoch %.2f  loss %.4f  lr %.2e  %s samples/s%s%s%s",
            p->terminal ? "\r\033[K" : "", (long long)f->step, (long long)f->steps,
            100.0 * (double)f->step / (double)(f->steps ? f->steps : 1), f->epoch, f->loss, f->lr,
            rate, eta[0] ? "  ETA " : "", eta, p->terminal && !last ? "" : "\n");
    p->open_line = p->terminal && !last;
    fflush(p->out);
}

void ls_progress_line(struct ls_progress *p, const char *fmt, ...)
{
    if (!p->out)
        return;
    if (p->open_line)
        fputs("\r\033[K", p->out);
    p->open_line = false;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(p->out, fmt, ap);
    va_end(ap);
    fputc('\n', p->out);
    fflush(p->out);
    if (p->terminal)
        p->shown = 0; /* the line that this one replaced comes back at the next step */
}
