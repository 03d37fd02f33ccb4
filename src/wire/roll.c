/* Who has come, and for the same? Asked before the first fence: while one is open that collects data, Slurm's PMIx answers
 * no question on that node, and one that collects none does not wait there for other nodes. By direct requests only:
 * every rank but 0 says why it is here; rank 0 asks for that, and then says for the first time something itself, who is
 * absent or here for something else. So requests wait at the rank that they ask, and nobody asks twice. Who declines says
 * so before its first fence, and answers from within it: the request comes from a node where none is open, unless that
 * has tasks of both kinds. */
#include "wire/roll.h"
#include "wire/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is published: of the check HERE, with its word, and ABSENT: LIST, and what became of each rank; or DECLINED, and
 * its word. Of keepers and workers COME, once, and as long before the first fence as possible: a second commit just
 * before it was seen to spoil that fence behind a check. */
enum item { HERE, ABSENT, COME };
enum { LIST = 'l', DECLINED = 'd' };
enum { CAME, MISSING, DIFFERS };
/* Seconds that the others wait longer than rank 0, so that they hear of what it found. */
#define LONGER 3.0
/* Between two questions that PMIx could not even ask, as long as a node's slurmstepd has not begun. */
enum { PAUSE_US = 20000 };

struct question {
    struct ls_wire_wait *wait; /* NULL: not asked */
    pmix_status_t started;
};

/* Stays where it is: PMIx does not say how long it looks at a key that it was asked for. */
static const char *key_of(const pmix_proc_t *me, enum item item)
{
    static const char *const names[] = {"here", "absent", "come"};
    static char keys[sizeof names / sizeof *names][LS_WIRE_KEY];
    enum ls_wire_program program = item <= ABSENT ? LS_WIRE_OTHER : LS_WIRE_KEEPER;
    return *keys[item] ? keys[item] : ls_wire_key(me, program, names[item], 0, keys[item]);
}

/* The value stays with PMIx, which keeps it for PMIx_Get. */
static void answered(pmix_status_t status, pmix_value_t *value, void *wait)
{
    (void)value;
    ls_wire_wait_done(status, wait);
}

static void ask(const pmix_proc_t *me, int rank, enum item item, struct question *q)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, me->nspace, (pmix_rank_t)rank);
    q->wait = ls_wire_wait_new();
    q->started = PMIX_ERR_NOMEM;
    if (q->wait)
        q->started = PMIx_Get_nb(&proc, key_of(me, item), NULL, 0, answered, q->wait);
}

/* Asks again where there was an error, until `until`. */
static bool get(const pmix_proc_t *me, int rank, enum item item, struct question *q, double until)
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
        ask(me, rank, item, q);
    }
}

static bool put(const pmix_proc_t *me, enum item item, const void *data, size_t n)
{
    pmix_value_t v;
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)data;
    v.data.bo.size = n;
    return PMIx_Put(PMIX_GLOBAL, key_of(me, item), &v) == PMIX_SUCCESS;
}

/* With what was put before: who asks another node in between gets only a part, and does not hear of the rest for long. */
static bool publish(const pmix_proc_t *me, enum item item, const void *data, size_t n)
{
    return put(me, item, data, n) && PMIx_Commit() == PMIX_SUCCESS;
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

/* What rank `rank` has published, once PMIx has it here; malloc'd, a NUL is behind it. NULL: something else. */
static char *take(const pmix_proc_t *me, int rank, enum item item, size_t *n)
{
    pmix_proc_t proc;
    pmix_value_t *v = NULL;
    char *data = NULL;
    PMIX_LOAD_PROCID(&proc, me->nspace, (pmix_rank_t)rank);
    if (PMIx_Get(&proc, key_of(me, item), NULL, 0, &v) == PMIX_SUCCESS && v &&
        v->type == PMIX_BYTE_OBJECT && (data = calloc(1, v->data.bo.size + 1))) {
        memcpy(data, v->data.bo.bytes, v->data.bo.size);
        *n = v->data.bo.size;
    }
    if (v)
        PMIX_VALUE_RELEASE(v);
    return data;
}

/* Sets what became of each rank. */
static void ask_all(const pmix_proc_t *me, int size, double until, const struct ls_wire_roll *roll,
                    char *became)
{
    struct question *q = calloc((size_t)size, sizeof *q);
    for (int r = 1; q && r < size; r++)
        ask(me, r, HERE, &q[r]);
    for (int r = 1; q && r < size; r++) {
        size_t n;
        if (!get(me, r, HERE, &q[r], until)) {
            became[r] = MISSING;
            continue;
        }
        char *word = take(me, r, HERE, &n), node[256];
        if (!word || strcmp(word, roll->word) != 0) {
            became[r] = DIFFERS;
            roll->differs(roll->arg, r, node_of(me->nspace, r, node), word ? word : "");
        }
        free(word);
    }
    free(q);
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

static enum ls_status as_first(const pmix_proc_t *me, int size, double until, char *became,
                               const struct ls_wire_roll *roll, struct ls_error *err)
{
    char *said = malloc((size_t)size + 1);
    if (!said)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d ranks", size);
    ask_all(me, size, until, roll, became);
    enum ls_status status = LS_OK;
    if (memchr(became, MISSING, (size_t)size) && !server_answers(me))
        status =
            ls_error_set(err, LS_ERR_TIMEOUT,
                         "not all of %d ranks have come, and PMIx on this node does not answer: "
                         "it still tries to reach a node whose tasks have ended",
                         size);
    said[0] = LIST;
    memcpy(said + 1, became, (size_t)size);
    if (status == LS_OK)
        publish(me, ABSENT, said, (size_t)size + 1);
    free(said);
    return status;
}

static enum ls_status as_other(const pmix_proc_t *me, int size, double until, char *became,
                               const struct ls_wire_roll *roll, struct ls_error *err)
{
    char node[256];
    struct question q;
    size_t n = 0;
    publish(me, HERE, roll->word, strlen(roll->word));
    ask(me, 0, ABSENT, &q);
    char *said = get(me, 0, ABSENT, &q, until + LONGER) ? take(me, 0, ABSENT, &n) : NULL;
    bool list = n == (size_t)size + 1 && said[0] == LIST, declined = n > 0 && said[0] == DECLINED;
    node_of(me->nspace, 0, node);
    if (list)
        memcpy(became, said + 1, (size_t)size);
    for (int r = 1; list && r < size; r++) {
        char other[256];
        if (became[r] == DIFFERS)
            roll->differs(roll->arg, r, node_of(me->nspace, r, other), "");
    }
    if (declined) {
        became[0] = DIFFERS;
        roll->differs(roll->arg, 0, node, said + 1);
    }
    free(said);
    if (list || declined)
        return LS_OK;
    roll->silent(roll->arg, 0, node);
    return ls_error_set(
        err, LS_ERR_TIMEOUT,
        "rank 0%s%s has not said who has come: it hangs, or PMIx there still tries to "
        "reach a node whose tasks have ended",
        *node ? " on " : "", node);
}

/* Not everyone has come, or not for the same. */
static enum ls_status judge(const pmix_proc_t *me, int size, const char *became, double deadline,
                            const struct ls_wire_roll *roll, struct ls_error *err)
{
    int missing = 0, differ = 0;
    for (int r = 0; r < size; r++) {
        char node[256];
        differ += became[r] == DIFFERS;
        if (became[r] != MISSING)
            continue;
        roll->absent(roll->arg, r, node_of(me->nspace, r, node));
        missing++;
    }
    if (differ > 0)
        return ls_error_set(err, LS_ERR_ENV, "%d of %d ranks %s here for something else", differ,
                            size, differ == 1 ? "is" : "are");
    if (missing > 0)
        return ls_error_set(err, LS_ERR_TIMEOUT, "%d of %d ranks %s not come within %g s", missing,
                            size, missing == 1 ? "has" : "have", deadline);
    return LS_OK;
}

enum ls_status ls_wire_roll_call(double deadline, const struct ls_wire_roll *roll,
                                 struct ls_error *err)
{
    pmix_proc_t me;
    double until = ls_time_monotonic() + deadline;
    if (ls_wire_pmix_init(&me) != PMIX_SUCCESS)
        return LS_OK;
    int size = job_size(&me);
    char *became = size > 1 && ls_wire_is_first(&me) ? calloc((size_t)size, 1) : NULL;
    if (!became)
        return LS_OK;
    enum ls_status status = me.rank == 0 ? as_first(&me, size, until, became, roll, err)
                                         : as_other(&me, size, until, became, roll, err);
    if (status == LS_OK)
        status = judge(&me, size, became, deadline, roll, err);
    free(became);
    return status;
}

bool ls_wire_roll_come(const pmix_proc_t *me)
{
    static bool come;
    come = come || publish(me, COME, "1", 1);
    return come;
}

void ls_wire_roll_decline(const char *word)
{
    pmix_proc_t me;
    char text[1 + LS_WIRE_ROLL_WORD];
    /* Without a server PMIx 5 would make this a world of its own. */
    if (!ls_wire_env_namespace() || ls_wire_pmix_init(&me) != PMIX_SUCCESS || job_size(&me) < 2)
        return;
    int n = snprintf(text, sizeof text, "%c%s", DECLINED, word);
    size_t bytes = n < (int)sizeof text ? (size_t)n : sizeof text - 1;
    if (me.rank == 0)
        put(&me, ABSENT, text, bytes);
    else
        put(&me, HERE, text + 1, bytes - 1);
    ls_wire_roll_come(&me);
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
    pmix_proc_t me;
    double until = ls_time_monotonic() + deadline;
    if (ls_wire_pmix_init(&me) != PMIX_SUCCESS)
        return LS_OK;
    char *list = local_ranks(&me), *next = list;
    enum ls_status status = LS_OK;
    ls_wire_roll_come(&me);
    while (next && *next && status == LS_OK) {
        struct question q;
        int rank = (int)strtol(next, &next, 10);
        next += *next == ',';
        ask(&me, rank, COME, &q);
        if (!get(&me, rank, COME, &q, until))
            status =
                ls_error_set(err, LS_ERR_TIMEOUT,
                             "rank %d of this node has not come back from the check within %g s",
                             rank, deadline);
    }
    free(list);
    return status;
}

void ls_wire_roll_abort(int code, const char *text)
{
    PMIx_Abort(code, text, NULL, 0);
}

void ls_wire_roll_end(void)
{
    ls_wire_pmix_end();
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
        ask(&q->me, rank, COME, question);
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
            ask(&q->me, q->asked, COME, &q->question[q->asked]);
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
