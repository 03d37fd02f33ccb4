/* Who has come? Asked before the first fence: while one is open, Slurm's PMIx answers no question, and one that collects no
 * data does not wait there for other nodes. By direct requests
 * only: every rank but 0 says that it is here; rank 0 asks for that, and then says for the first time something itself,
 * who is absent. So requests wait at the rank that they ask, and nobody asks twice. */
#include "wire/roll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HERE   "ls.here"
#define ABSENT "ls.absent"
#define COME   "ls.come"
/* Seconds that the others wait longer than rank 0, so that they hear of what it found. */
#define LONGER 3.0
/* Between two questions that PMIx could not even ask, as long as a node's slurmstepd has not begun. */
enum { PAUSE_US = 20000 };

struct question {
    struct ls_wire_wait *wait; /* NULL: not asked */
    pmix_status_t started;
};

/* The value stays with PMIx, which keeps it for PMIx_Get. */
static void answered(pmix_status_t status, pmix_value_t *value, void *wait)
{
    (void)value;
    ls_wire_wait_done(status, wait);
}

static void ask(const char *nspace, int rank, const char *key, struct question *q)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, nspace, (pmix_rank_t)rank);
    q->wait = ls_wire_wait_new();
    q->started = PMIX_ERR_NOMEM;
    if (q->wait)
        q->started = PMIx_Get_nb(&proc, key, NULL, 0, answered, q->wait);
}

/* Asks again where there was an error, until `until`. */
static bool get(const char *nspace, int rank, const char *key, struct question *q, double until)
{
    for (;;) {
        double left = until - ls_time_monotonic();
        pmix_status_t status = PMIX_ERR_NOMEM;
        bool done = q->wait && ls_wire_wait_end(q->wait, q->started, left > 0 ? left : 0, &status);
        q->wait = NULL;
        if (done && status == PMIX_SUCCESS)
            return true;
        if (!done || ls_time_monotonic() >= until)
            return false;
        usleep(PAUSE_US);
        ask(nspace, rank, key, q);
    }
}

static bool publish(const char *key, const void *data, size_t n)
{
    pmix_value_t v;
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)data;
    v.data.bo.size = n;
    return PMIx_Put(PMIX_GLOBAL, key, &v) == PMIX_SUCCESS && PMIx_Commit() == PMIX_SUCCESS;
}

/* Sets absent[r]. */
static void ask_all(const char *nspace, int size, double until, unsigned char *absent)
{
    struct question *q = calloc((size_t)size, sizeof *q);
    for (int r = 1; q && r < size; r++)
        ask(nspace, r, HERE, &q[r]);
    for (int r = 1; q && r < size; r++)
        absent[r] = !get(nspace, r, HERE, &q[r], until);
    free(q);
}

/* False: rank 0 says nothing. */
static bool hear(const char *nspace, int size, double until, unsigned char *absent)
{
    struct question q;
    pmix_proc_t first;
    pmix_value_t *v = NULL;
    PMIX_LOAD_PROCID(&first, nspace, 0);
    ask(nspace, 0, ABSENT, &q);
    bool heard = get(nspace, 0, ABSENT, &q, until) &&
                 PMIx_Get(&first, ABSENT, NULL, 0, &v) == PMIX_SUCCESS && v &&
                 v->type == PMIX_BYTE_OBJECT && v->data.bo.size == (size_t)size;
    if (heard)
        memcpy(absent, v->data.bo.bytes, (size_t)size);
    if (v)
        PMIX_VALUE_RELEASE(v);
    return heard;
}

/* The PMIx server of a node that tries to reach another one whose slurmstepd has gone answers nothing more for half a
 * minute (22.05.8): then no answer says nothing of those that were asked. */
static bool server_answers(const pmix_proc_t *me)
{
    struct ls_wire_wait *wait = ls_wire_wait_new();
    pmix_status_t status;
    pmix_info_t *info = NULL;
    PMIX_INFO_CREATE(info, 1);
    if (!wait || !info)
        return false;
    PMIX_INFO_LOAD(info, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
    pmix_status_t started = PMIx_Get_nb(me, "ls.nothing", info, 1, answered, wait);
    bool answers = ls_wire_wait_end(wait, started, 1, &status);
    if (answers) /* else PMIx may still read it */
        PMIX_INFO_FREE(info, 1);
    return answers;
}

static const char *node_of(const char *nspace, int rank, char out[static 256])
{
    pmix_proc_t proc;
    pmix_value_t *v = NULL;
    PMIX_LOAD_PROCID(&proc, nspace, (pmix_rank_t)rank);
    out[0] = '\0';
    if (PMIx_Get(&proc, PMIX_HOSTNAME, NULL, 0, &v) == PMIX_SUCCESS && v &&
        v->type == PMIX_STRING && v->data.string)
        snprintf(out, 256, "%s", v->data.string);
    if (v)
        PMIX_VALUE_RELEASE(v);
    return out;
}

/* Of the job of this process; 0: not to be asked. */
static int job_size(const pmix_proc_t *me)
{
    static const char slurm[] = "slurm.";
    pmix_proc_t all;
    pmix_value_t *v = NULL;
    int size = 0;
    PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
    if (!strncmp(me->nspace, slurm, sizeof slurm - 1) &&
        PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v) == PMIX_SUCCESS && v && v->type == PMIX_UINT32)
        size = (int)v->data.uint32;
    if (v)
        PMIX_VALUE_RELEASE(v);
    return size;
}

static enum ls_status as_first(const pmix_proc_t *me, int size, double until, unsigned char *absent,
                               struct ls_error *err)
{
    ask_all(me->nspace, size, until, absent);
    if (memchr(absent, 1, (size_t)size) && !server_answers(me))
        return ls_error_set(err, LS_ERR_TIMEOUT,
                            "not all of %d ranks have come, and PMIx on this node does not answer: "
                            "it still tries to reach a node whose tasks have ended",
                            size);
    publish(ABSENT, absent, (size_t)size);
    return LS_OK;
}

static enum ls_status as_other(const pmix_proc_t *me, int size, double until, unsigned char *absent,
                               const struct ls_wire_roll *roll, struct ls_error *err)
{
    char node[256];
    publish(HERE, "1", 1);
    if (hear(me->nspace, size, until + LONGER, absent))
        return LS_OK;
    node_of(me->nspace, 0, node);
    roll->silent(roll->arg, 0, node);
    return ls_error_set(
        err, LS_ERR_TIMEOUT,
        "rank 0%s%s has not said who has come: it hangs, or PMIx there still tries to "
        "reach a node whose tasks have ended",
        *node ? " on " : "", node);
}

enum ls_status ls_wire_roll_call(double deadline, const struct ls_wire_roll *roll,
                                 struct ls_error *err)
{
    pmix_proc_t me;
    double until = ls_time_monotonic() + deadline;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return LS_OK;
    int size = job_size(&me), count = 0;
    unsigned char *absent = size > 1 ? calloc((size_t)size, 1) : NULL;
    if (!absent)
        return LS_OK;
    enum ls_status status = me.rank == 0 ? as_first(&me, size, until, absent, err)
                                         : as_other(&me, size, until, absent, roll, err);
    for (int r = 0; status == LS_OK && r < size; r++)
        if (absent[r]) {
            char node[256];
            roll->absent(roll->arg, r, node_of(me.nspace, r, node));
            count++;
        }
    free(absent);
    if (count > 0)
        return ls_error_set(err, LS_ERR_TIMEOUT, "%d of %d ranks %s not come within %g s", count,
                            size, count == 1 ? "has" : "have", deadline);
    return status;
}

/* The tasks of this node, "0,1,5"; NULL: PMIx does not say. malloc'd. */
static char *local_ranks(const pmix_proc_t *me)
{
    pmix_proc_t all;
    pmix_value_t *v = NULL;
    char *list = NULL;
    PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
    if (PMIx_Get(&all, PMIX_LOCAL_PEERS, NULL, 0, &v) == PMIX_SUCCESS && v &&
        v->type == PMIX_STRING && v->data.string)
        list = strdup(v->data.string);
    if (v)
        PMIX_VALUE_RELEASE(v);
    return list;
}

enum ls_status ls_wire_roll_again(double deadline, struct ls_error *err)
{
    static const char again[] = "ls.again";
    pmix_proc_t me;
    double until = ls_time_monotonic() + deadline;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return LS_OK;
    char *list = local_ranks(&me), *next = list;
    enum ls_status status = LS_OK;
    publish(again, "1", 1);
    while (next && *next && status == LS_OK) {
        struct question q;
        int rank = (int)strtol(next, &next, 10);
        next += *next == ',';
        ask(me.nspace, rank, again, &q);
        if (!get(me.nspace, rank, again, &q, until))
            status =
                ls_error_set(err, LS_ERR_TIMEOUT,
                             "rank %d of this node has not come back from the check within %g s",
                             rank, deadline);
    }
    free(list);
    return status;
}

void ls_wire_roll_end(void)
{
    PMIx_Finalize(NULL, 0);
}

/* ---- for a client ---- */

enum { MOST_NAMES = 8, ROUNDS = 32 };
/* A task that has come answers in milliseconds. */
static const double answer_wait = 0.1;

/* Tasks are asked in rounds, one by one where there are few: a node whose tasks have all ended blocks the PMIx server of
 * this node, so that nobody else answers any more, and it is of the round that was asked last. */
struct ls_wire_roll_questions {
    pmix_proc_t me;
    int size;
    int asked, last; /* tasks 0 .. asked - 1 were, from `last` on in the round asked last */
    bool blocked;    /* by one of that round */
    bool *come;      /* [size] */
    struct question question[]; /* [size] */
};

bool ls_wire_roll_come(void)
{
    return publish(COME, "1", 1);
}

struct ls_wire_roll_questions *ls_wire_roll_new(const pmix_proc_t *me, int size)
{
    struct ls_wire_roll_questions *q = calloc(1, sizeof *q + (size_t)size * sizeof q->question[0]);
    bool *come = calloc((size_t)size, sizeof *come);
    if (!q || !come) {
        free(q);
        free(come);
        return NULL;
    }
    q->me = *me;
    q->size = size;
    q->come = come;
    come[me->rank] = true;
    return q;
}

/* An error is no answer: asked again after a while. */
static bool wait_for(struct ls_wire_roll_questions *q, int rank, double until)
{
    struct question *question = &q->question[rank];
    while (!q->come[rank]) {
        double left = until - ls_time_monotonic();
        pmix_status_t status = PMIX_ERR_NOMEM;
        if (question->wait &&
            !ls_wire_wait_some(question->wait, question->started, left > 0 ? left : 0))
            return false;
        if (question->wait)
            ls_wire_wait_end(question->wait, question->started, 0, &status);
        question->wait = NULL;
        q->come[rank] = status == PMIX_SUCCESS;
        if (q->come[rank])
            break;
        if (left > 0)
            usleep(PAUSE_US);
        ask(q->me.nspace, rank, COME, question);
        if (left <= 0)
            return false;
    }
    return true;
}

static bool wait_for_asked(struct ls_wire_roll_questions *q, int first, double until)
{
    bool all = true;
    for (int r = first; r < q->asked; r++)
        all = wait_for(q, r, until) && all;
    return all;
}

static void ask_round(struct ls_wire_roll_questions *q)
{
    int n = (q->size + ROUNDS - 1) / ROUNDS;
    q->last = q->asked;
    for (; q->asked < q->size && n > 0; q->asked++, n--)
        if (!q->come[q->asked])
            ask(q->me.nspace, q->asked, COME, &q->question[q->asked]);
}

bool ls_wire_roll_wait(struct ls_wire_roll_questions *q, double seconds)
{
    double until = ls_time_monotonic() + seconds;
    while (q->asked < q->size && ls_time_monotonic() < until) {
        if (!q->blocked)
            ask_round(q);
        double now = ls_time_monotonic();
        bool all =
            wait_for_asked(q, q->last, now + answer_wait < until ? now + answer_wait : until);
        q->blocked = !all && !server_answers(&q->me);
    }
    return wait_for_asked(q, 0, until) && q->asked == q->size;
}

int ls_wire_roll_absent(const struct ls_wire_roll_questions *q, bool *blocked,
                        char out[static LS_WIRE_ROLL_TEXT])
{
    int count = 0, n = 0;
    out[0] = '\0';
    *blocked = false;
    for (int r = q->last; r < q->asked; r++)
        *blocked |= q->blocked && !q->come[r];
    for (int r = *blocked ? q->last : 0; r < q->asked; r++) {
        char node[256];
        if (q->come[r] || count++ >= MOST_NAMES)
            continue;
        node_of(q->me.nspace, r, node);
        n += snprintf(out + n, LS_WIRE_ROLL_TEXT - (size_t)n, "%stask %d%s%.48s", n ? ", " : "", r,
                      *node ? " on " : "", node);
    }
    if (count > MOST_NAMES)
        snprintf(out + n, LS_WIRE_ROLL_TEXT - (size_t)n, " and %d more", count - MOST_NAMES);
    return count;
}

void ls_wire_roll_forget(struct ls_wire_roll_questions *q)
{
    pmix_status_t status;
    for (int r = 0; r < q->size; r++)
        if (q->question[r].wait)
            ls_wire_wait_end(q->question[r].wait, q->question[r].started, 0, &status);
    free(q->come);
    free(q);
}

const char *ls_wire_roll_node(const pmix_proc_t *me, int rank, char out[static 256])
{
    return node_of(me->nspace, rank, out);
}
