/* Waiting for operations of PMIx with a deadline, and names of its statuses. */
#include "wire/pmix_util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static pmix_status_t init_status = PMIX_ERR_INIT; /* not tried */

pmix_status_t ls_wire_pmix_init(pmix_proc_t *me)
{
    if (init_status == PMIX_ERR_INIT || init_status == PMIX_SUCCESS)
        init_status = PMIx_Init(me, NULL, 0);
    return init_status;
}

void ls_wire_pmix_end(void)
{
    if (init_status == PMIX_SUCCESS &&
        PMIx_Initialized()) /* a count below zero would be a server's that comes later */
        PMIx_Finalize(NULL, 0);
}

static const char *const programs[LS_WIRE_PROGRAMS] = {"keeper", "other"};

/* The mark of the n-th program of a task; false: there is no place for it. */
static bool mark_path(const pmix_proc_t *me, enum ls_wire_program program, int n, char *path,
                      size_t size)
{
    const char *folder = getenv("PMIX_SERVER_TMPDIR");
    if (!folder || strncmp(me->nspace, "slurm.", 6) != 0)
        return false;
    int len = snprintf(path, size, "%s/lockstep-%s-%u.%d", folder, programs[program], me->rank, n);
    return len > 0 && (size_t)len < size;
}

bool ls_wire_is_first(const pmix_proc_t *me)
{
    static int first = -1; /* before this program leaves marks of its own */
    char path[4096];
    if (first < 0) {
        first = 1;
        for (int p = 0; p < LS_WIRE_PROGRAMS; p++)
            if (mark_path(me, (enum ls_wire_program)p, 0, path, sizeof path) &&
                access(path, F_OK) == 0)
                first = 0;
    }
    return first;
}

/* Leaves the mark of this process; how many others are there, or 0 where that cannot be told. */
static int count_earlier(const pmix_proc_t *me, enum ls_wire_program program)
{
    enum { MOST = 100000 };
    char path[4096];
    ls_wire_is_first(me);
    for (int n = 0; n < MOST && mark_path(me, program, n, path, sizeof path); n++) {
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0) {
            close(fd);
            return n;
        }
        if (errno != EEXIST)
            break;
    }
    return 0;
}

const char *ls_wire_key(const pmix_proc_t *me, enum ls_wire_program program, const char *what,
                        int number, char out[static LS_WIRE_KEY])
{
    static int earlier[LS_WIRE_PROGRAMS] = {-1, -1};
    if (earlier[program] < 0)
        earlier[program] = count_earlier(me, program);
    snprintf(out, LS_WIRE_KEY, "ls.%s.%d.%s.%d", programs[program], earlier[program], what, number);
    return out;
}
