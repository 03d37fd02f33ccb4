/* What goes wrong: a rank that is killed, stopped, late, unreachable, that aborts or starts something
 * else. Everyone else ends with an error that names it, in bounded time, and nothing stays behind. */
#include "tests/comm/harness.h"
#include "tests/tap.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VICTIM_READY = 1, OTHERS_WAIT = 2 };

struct fault {
    int victim;
    int64_t count;
    int signal;
};

static int status_of(struct rank *r, enum ls_status status)
{
    harness_fail(r, "%s", r->err.message);
    return (int)status;
}

static void pause_forever(void)
{
    for (;;)
        pause();
}

/* All do two all-reduces; before the second, the victim tells that it is ready to be struck. */
static int struck(struct rank *r)
{
    const struct fault *f = r->arg;
    struct ls_comm *c;
    if (harness_group(r, "data", &c))
        return 99;
    void *x;
    if (ls_comm_alloc(r->world, f->count * 4, &x, &r->err) != LS_OK)
        return 99;
    struct ls_comm_request *q;
    for (int i = 0; i < 2; i++) {
        if (i == 1 && r->rank == f->victim) {
            ls_comm_activity(r->world, LS_COMM_DATA_WAIT);
            harness_tell(r, VICTIM_READY);
            pause_forever();
        }
        enum ls_status status =
            ls_comm_all_reduce(c, x, x, f->count, LS_COMM_F32, LS_COMM_SUM, &q, &r->err);
        if (status == LS_OK) {
            harness_tell(r, OTHERS_WAIT);
            status = ls_comm_wait(q, &r->err);
        }
        if (status != LS_OK)
            return status_of(r, status);
    }
    return 0;
}

static void until_told(struct harness *h, int rank, int value)
{
    while (harness_told(h, rank) != value)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Strikes the victim while the others wait for it; reports what the others said. */
static void strike(const char *layout, struct fault f, double deadline, double bound,
                   enum ls_status want, const char *words)
{
    if (!harness_can(layout))
        return;
    struct harness *h = harness_new(layout);
    int size = (int)strlen(layout), right = 0;
    harness_start(h, deadline, struck, &f);
    until_told(h, f.victim, VICTIM_READY);
    double start = ls_time_monotonic();
    kill(harness_pid(h, f.victim), f.signal);
    /* The victim of SIGSTOP must not keep the test waiting. */
    bool named = false;
    for (int i = 0; i < size; i++)
        if (i != f.victim) {
            int status = 0;
            waitpid(harness_pid(h, i), &status, 0);
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            bool ok = code == (int)want || code == LS_ERR_ABORTED;
            named |= code == (int)want && strstr(harness_message(h, i), words) != NULL;
            ok &= strstr(harness_message(h, i), words) != NULL || code == LS_ERR_ABORTED;
            right += ok;
            tap_note("rank %d: %d: %s", i, code, harness_message(h, i));
        }
    double took = ls_time_monotonic() - start;
    kill(harness_pid(h, f.victim), SIGKILL);
    waitpid(harness_pid(h, f.victim), NULL, 0);
    tap_ok(right == size - 1 && named && took < bound,
           "layout %s, rank %d gets signal %d: all others end, one says \"%s\"", layout, f.victim,
           f.signal, words);
    harness_free(h);
}

/* ---- abort ---- */

static int aborting(struct rank *r)
{
    struct ls_comm *c;
    if (harness_group(r, "data", &c))
        return 99;
    float x = 1;
    struct ls_comm_request *q;
    /* The abort may come while others are still on their way out of the barrier. */
    enum ls_status status = ls_comm_barrier(c, &r->err);
    if (r->rank == 1) {
        ls_comm_abort(r->world, "the disk is full");
        return 0;
    }
    if (status == LS_OK)
        status = ls_comm_all_reduce(c, &x, &x, 1, LS_COMM_F32, LS_COMM_SUM, &q, &r->err);
    if (status == LS_OK)
        status = ls_comm_wait(q, &r->err);
    if (status == LS_ERR_ABORTED && strstr(r->err.message, "rank 1 on") &&
        strstr(r->err.message, "the disk is full"))
        return 0;
    return status_of(r, status) + 50;
}

/* ---- mismatch ---- */

static int mismatched(struct rank *r)
{
    int64_t n = *(const int64_t *)r->arg + (r->rank == 1 ? 16 : 0);
    struct ls_comm *c;
    if (harness_group(r, "data", &c))
        return 99;
    float *x = calloc((size_t)n, sizeof *x);
    struct ls_comm_request *q;
    enum ls_status status = ls_comm_all_reduce(c, x, x, n, LS_COMM_F32, LS_COMM_SUM, &q, &r->err);
    if (status == LS_OK)
        status = ls_comm_wait(q, &r->err);
    free(x);
    if (status == LS_OK)
        return 98;
    return strstr(r->err.message, "the same collectives") ? 0 : status_of(r, status) + 50;
}

/* ---- misuse ---- */

static int misuse(struct rank *r)
{
    struct ls_comm *c, *d;
    struct ls_comm_request *q;
    float x = 1;
    int two[] = {0, 0};
    if (harness_group(r, "data", &c))
        return 1;
    struct ls_error e = {0};
    int bad = 0;
    bad += ls_comm_all_reduce(c, &x, &x, -1, LS_COMM_F32, LS_COMM_SUM, &q, &e) != LS_ERR_USAGE;
    bad += ls_comm_all_reduce(c, &x, &x, INT64_MAX / 2, LS_COMM_F32, LS_COMM_SUM, &q, &e) !=
           LS_ERR_USAGE;
    bad += ls_comm_broadcast(c, &x, 1, LS_COMM_F32, 5, &q, &e) != LS_ERR_USAGE;
    bad += ls_comm_send(c, &x, 1, LS_COMM_F32, r->rank, &q, &e) != LS_ERR_USAGE;
    bad += ls_comm_group(r->world, "twice", two, 2, &d, &e) != LS_ERR_USAGE;
    bad += ls_comm_choose(c, "rign", &e) != LS_ERR_USAGE;
    e = (struct ls_error){0};
    int members[] = {0, 1};
    bad += ls_comm_group(r->world, "data", members, 2, &d, &e) != LS_ERR_USAGE;
    if (!strstr(e.message, "group data"))
        return harness_fail(r, "%s", e.message);
    return bad ? harness_fail(r, "%d calls were not refused", bad) : 0;
}

static int nothing(struct rank *r)
{
    (void)r;
    return 0;
}

static void doomed(const char *layout, const char *words)
{
    if (!harness_can(layout))
        return;
    struct harness *h = harness_new(layout);
    harness_doom(h, 1);
    double start = ls_time_monotonic();
    harness_start(h, 3, nothing, NULL);
    harness_wait(h);
    int status = harness_status(h, 0), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    tap_note("rank 0: %d: %s", code, harness_message(h, 0));
    tap_ok((code == LS_ERR_ENV || code == LS_ERR_IO || code == LS_ERR_TIMEOUT) &&
               strstr(harness_message(h, 0), words) && ls_time_monotonic() - start < 20,
           "layout %s: rank 1 ends while the world opens: rank 0 says so", layout);
    harness_free(h);
}

/* Without UCX, several nodes are an error that says what to do. */
static void no_network(void)
{
    if (harness_can("01"))
        return;
    struct harness *h = harness_new("01");
    harness_start(h, 3, nothing, NULL);
    harness_wait(h);
    tap_ok(WEXITSTATUS(harness_status(h, 0)) == LS_ERR_ENV &&
               strstr(harness_message(h, 0), "--with-ucx"),
           "two nodes without UCX: %s", harness_message(h, 0));
    harness_free(h);
}

static int shm_entries(void)
{
    DIR *d = opendir("/dev/shm");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

int main(void)
{
    int before = shm_entries();
    /* Generous bounds: the machine may be busy. What counts is that nobody waits for the deadline. */
    const char *gone = "rank 1 on n0 is gone";
    strike("00", (struct fault){1, 1000, SIGKILL}, 60, 30, LS_ERR_IO, gone);
    strike("000", (struct fault){1, 500000, SIGKILL}, 60, 30, LS_ERR_IO, gone);
    strike("01", (struct fault){1, 1000, SIGKILL}, 60, 30, LS_ERR_IO, "rank 1 on n1 broke");
    strike("01", (struct fault){1, 2000000, SIGKILL}, 60, 30, LS_ERR_IO, "rank 1 on n1 broke");
    strike("0011", (struct fault){2, 500000, SIGKILL}, 60, 30, LS_ERR_IO, "rank 2 on n1");
    strike("0011", (struct fault){3, 100, SIGKILL}, 60, 30, LS_ERR_IO, "rank 3 on n1");
    strike(
        "00", (struct fault){1, 1000, SIGSTOP}, 1, 30, LS_ERR_TIMEOUT,
        "all-reduce 2 of group data: rank 1 on n0 has not arrived after 1 s; it is in data wait");
    strike("01", (struct fault){1, 100000, SIGSTOP}, 1, 30, LS_ERR_TIMEOUT,
           "all-reduce 2 of group data: rank 1 on n1 has not arrived after 1.1 s");
    /* Rank 2 waits beside it, and has to speak before rank 0, which waits for rank 2: their waits begin
     * less than half a second apart, also on a busy machine. */
    strike("0011", (struct fault){3, 1000, SIGSTOP}, 5, 60, LS_ERR_TIMEOUT,
           "rank 3 on n1 has not arrived after 5 s; it is in data wait");
    static const char *const layouts[] = {"00", "0000", "01", "0011", "0123"};
    for (int i = 0; i < 5; i++) {
        if (!harness_can(layouts[i]))
            continue;
        struct harness *h = harness_new(layouts[i]);
        tap_ok(harness_run(h, 30, aborting, NULL) == 0, "layout %s: an abort ends all waits",
               layouts[i]);
        harness_free(h);
    }
    int64_t counts[] = {100, 100000};
    for (int i = 0; i < 4; i++) {
        const char *layout = i % 2 ? "01" : "00";
        if (!harness_can(layout))
            continue;
        struct harness *h = harness_new(layout);
        tap_ok(harness_run(h, 5, mismatched, &counts[i / 2]) == 0,
               "layout %s: different counts near %lld are an error", layout,
               (long long)counts[i / 2]);
        harness_free(h);
    }
    struct harness *h = harness_new("00");
    tap_ok(harness_run(h, 5, misuse, NULL) == 0, "calls that make no sense are refused");
    harness_free(h);
    no_network();
    doomed("00", "rank 1 on n0");
    doomed("01", "rank 1 on n1");
    tap_ok(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no process is left");
    tap_ok(shm_entries() <= before, "nothing is left in /dev/shm");
    return tap_done();
}
