/* Waiting for operations of PMIx with a deadline, and names of its statuses. */
#include "wire/pmix_util.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct ls_wire_wait {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int owners;
    bool done;
    pmix_status_t status;
};

struct ls_wire_wait *ls_wire_wait_new(void)
{
    struct ls_wire_wait *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&w->mutex, NULL);
    w->owners = 2;
    return w;
}

// Called with the mutex held.
static void leave(struct ls_wire_wait *w)
{
    bool last = --w->owners == 0;
    pthread_mutex_unlock(&w->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

void ls_wire_wait_done(pmix_status_t status, void *arg)
{
    struct ls_wire_wait *w = arg;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    w->status = status;
    pthread_cond_signal(&w->cond);
    leave(w);
}

static struct timespec after(double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    time_t whole = (time_t)seconds;
    end.tv_sec += whole;
    end.tv_nsec += (long)((seconds - (double)whole) * 1e9);
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    return end;
}

bool ls_wire_wait_some(struct ls_wire_wait *w, pmix_status_t started, double seconds)
{
    struct timespec end = after(seconds);
    if (started != PMIX_SUCCESS)
        return true;
    pthread_mutex_lock(&w->mutex);
    while (!w->done && pthread_cond_timedwait(&w->cond, &w->mutex, &end) != ETIMEDOUT)
        ;
    bool done = w->done;
    pthread_mutex_unlock(&w->mutex);
    return done;
}

bool ls_wire_wait_end(struct ls_wire_wait *w, pmix_status_t started, double seconds,
                      pmix_status_t *status)
{
    pthread_mutex_lock(&w->mutex);
    if (started != PMIX_SUCCESS) {
        // Refused, or done on the spot: no callback comes.
        w->owners--;
        *status = started == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : started;
        leave(w);
        return true;
    }
    struct timespec end = after(seconds);
    while (!w->done && pthread_cond_timedwait(&w->cond, &w->mutex, &end) != ETIMEDOUT)
        ;
    bool done = w->done;
    if (done)
        *status = w->status;
    leave(w);
    return done;
}

const char *ls_wire_pmix_text(pmix_status_t status, char out[static 80])
{
    const char *name = PMIx_Error_string(status);
    snprintf(out, 80, "%.60s (%d)", name ? name : "PMIx status", (int)status);
    return out;
}
