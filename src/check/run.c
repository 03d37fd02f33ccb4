/* Runs the table: forks the local halves and the child between the nodes, carries answers from one to the
 * other, and compares. This process touches no network, no PMIx and no file of the user, so nothing can
 * keep it from its deadline. */
#include "check/internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
    const struct ls_check_context *context;
    struct ls_check_report *report;
    struct ls_check_children *children;
    enum { FIRST, SHARED, SECOND, TOLD } half; /* SHARED, TOLD: has ended, the others hear of it */
    bool late; /* the second halves that come last were started, too */
    bool finished;
    int meet;                  /* socket of the child between the nodes; -1: none */
    const struct ls_check *at; /* what that child does, */
    char doing[96];            /* in words */
    struct missing {
        int rank;
        enum ls_check_status status;
        const char *host, *measured; /* in the list's arena */
    } * missing;
    int nmissing, cap;
    struct early {
        char *data; /* a frame */
        size_t n;
    } * early;
    int nearly, early_cap;
    const char **fact;  /* [checks][size] */
    const char **own;   /* [checks], of one rank */
    struct ls_buf said; /* by the children here, in halves that have ended */
    bool over;          /* the meeting is, before its time: */
    enum ls_check_status verdict;
    const char *why; /* in words, or: */
    char *last;      /* what its child said last, in the form of ls_check_pack; NULL: nothing */
    size_t nlast;
};

static enum ls_status fork_meet(struct run *r, struct ls_error *err)
{
    int fds[2];
    r->meet = -1;
    if (!r->context->pmix)
        return LS_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return ls_error_errno(err, errno, "starting the checks between the nodes");
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int code = ls_check_meet(r->context, fds[1]);
        _exit(code);
    }
    close(fds[1]);
    if (pid < 0) {
        int cause = errno;
        close(fds[0]);
        return ls_error_errno(err, cause, "starting the checks between the nodes");
    }
    struct timeval patience = {.tv_sec = 5};
    setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    r->meet = fds[0];
    r->report->meet = pid;
    return LS_OK;
}

/* ---- collecting ---- */

static enum ls_status set_size(struct run *r, int size, int nodes, struct ls_error *err)
{
    struct ls_check_report *rep = r->report;
    struct ls_arena *arena = &rep->list.arena;
    rep->size = size;
    rep->nodes = nodes;
    rep->host = ls_arena_alloc(arena, (size_t)size * sizeof *rep->host);
    rep->node = ls_arena_alloc(arena, (size_t)size * sizeof *rep->node);
    r->fact = ls_arena_alloc(arena, (size_t)ls_nchecks * (size_t)size * sizeof *r->fact);
    r->own = ls_arena_alloc(arena, (size_t)ls_nchecks * sizeof *r->own);
    if (!rep->host || !rep->node || !r->fact || !r->own)
        return ls_error_set(err, LS_ERR_NOMEM, "collecting the answers of %d ranks", size);
    for (int i = 0; i < size; i++)
        rep->host[i] = "";
    return LS_OK;
}

static enum ls_status collect(struct run *r, int rank, int node, const char *host, const char *text,
                              size_t n, struct ls_error *err)
{
    struct ls_check_report *rep = r->report;
    rep->node[rank] = node;
    if (!(rep->host[rank] = ls_arena_strdup(&rep->list.arena, host)))
        return ls_error_set(err, LS_ERR_NOMEM, "collecting the answers of rank %d", rank);
    memset(r->own, 0, (size_t)ls_nchecks * sizeof *r->own);
    struct ls_error quiet = {0};
    enum ls_status status = ls_check_unpack(text, n, rank, &rep->list, r->own, &quiet);
    for (int c = 0; c < ls_nchecks; c++)
        r->fact[(size_t)c * (size_t)rep->size + (size_t)rank] = r->own[c];
    /* Answers of another version are a finding about that node, not the end of the check. */
    if (status == LS_ERR_FORMAT)
        ls_check_add(&rep->list, ls_check_find("ver.lockstep"), LS_CHECK_FAIL, rank, "",
                     quiet.message, "the same version everywhere", "install the same on all nodes");
    else if (status != LS_OK)
        return ls_error_set(err, status, "%s", quiet.message);
    return LS_OK;
}

static enum ls_status collect_peer(struct run *r, char *data, size_t n, struct ls_error *err)
{
    int rank, size, node, nodes, at = 0;
    char *line = memchr(data, '\n', n);
    if (line)
        *line = '\0';
    if (!line || sscanf(data, "%d %d %d %d %n", &rank, &size, &node, &nodes, &at) < 4 || !at ||
        rank < 0 || rank >= size || (r->fact && size != r->report->size))
        return ls_error_set(err, LS_ERR_INTERNAL, "a peer without a name");
    if (!r->fact)
        LS_TRY(set_size(r, size, nodes, err));
    return collect(r, rank, node, data + at, line + 1, n - (size_t)(line + 1 - data), err);
}

/* Where the end has not come, what the others had said in their first halves. */
static enum ls_status collect_early(struct run *r, struct ls_error *err)
{
    bool begun =
        r->fact; /* by the answers of whole checks: those of the others were on their way */
    for (int i = 0; !begun && i < r->nearly; i++)
        LS_TRY(collect_peer(r, r->early[i].data, r->early[i].n, err));
    return LS_OK;
}

/* Only what was said here is known, unless that came back already with what the others said. */
static enum ls_status collect_own(struct run *r, struct ls_error *err)
{
    int rank = r->context->rank;
    if (!r->fact)
        LS_TRY(set_size(r, r->context->size > rank ? r->context->size : rank + 1, r->context->nodes,
                        err));
    if (rank < r->report->size && *r->report->host[rank])
        return LS_OK;
    ls_check_children_take(r->children, &r->said);
    if (r->said.failed || rank >= r->report->size)
        return ls_error_set(err, r->said.failed ? LS_ERR_NOMEM : LS_ERR_INTERNAL,
                            "collecting the answers of rank %d of %d", rank, r->report->size);
    return collect(r, rank, 0, r->context->host, r->said.data ? r->said.data : "", r->said.len,
                   err);
}

/* ---- the loop ---- */

/* What was said in the half that has ended here goes to the others. */
static enum ls_status pass_on(struct run *r, enum ls_check_frame kind, struct ls_error *err)
{
    size_t before = r->said.len;
    ls_check_children_take(r->children, &r->said);
    if (r->said.failed)
        return ls_error_set(err, LS_ERR_NOMEM, "collecting answers");
    const char *text = r->said.len > before ? r->said.data + before : "";
    if (r->meet >= 0) /* if it died, reading will tell */
        ls_check_frame_send(r->meet, kind, text, r->said.len - before, NULL);
    return LS_OK;
}

static void start_second(struct run *r, double now)
{
    ls_check_children_next(r->children, false, now);
    r->half = SECOND;
}

static void start_late(struct run *r, double now)
{
    ls_check_children_next(r->children, true, now);
    r->late = true;
}

/* ---- those that have not come ---- */

static enum ls_status note_missing(struct run *r, char *data, struct ls_error *err)
{
    struct ls_arena *arena = &r->report->list.arena;
    int rank, status, at = 0;
    char *line = strchr(data, '\n');
    if (line)
        *line = '\0';
    if (!line || sscanf(data, "%d %d %n", &rank, &status, &at) < 2 || !at || rank < 0 ||
        rank >= r->context->size || (status != LS_CHECK_TIMEOUT && status != LS_CHECK_FAIL))
        return ls_error_set(err, LS_ERR_INTERNAL, "a missing peer without a name");
    const char *host = ls_arena_strdup(arena, data + at);
    const char *measured = ls_arena_strdup(arena, line + 1);
    if (!host || !measured || !ls_grow(&r->missing, &r->cap, r->nmissing + 1, sizeof *r->missing))
        return ls_error_set(err, LS_ERR_NOMEM, "collecting who is missing");
    r->missing[r->nmissing++] =
        (struct missing){rank, (enum ls_check_status)status, host, measured};
    return LS_OK;
}

/* Their nodes get numbers behind that of this one, which is 0. */
static void add_missing(struct run *r)
{
    struct ls_check_report *rep = r->report;
    int nodes = 1;
    for (int i = 0; i < r->nmissing; i++) {
        const struct missing *m = &r->missing[i];
        int same = 0;
        while (same < i && strcmp(r->missing[same].host, m->host) != 0)
            same++;
        rep->host[m->rank] = m->host;
        rep->node[m->rank] = same < i ? rep->node[r->missing[same].rank]
                             : strcmp(m->host, r->context->host) != 0 ? nodes++
                                                                      : 0;
        rep->first += m->rank == rep->first;
        ls_check_add(&rep->list, ls_check_find("env.pmix"), m->status, m->rank, "", m->measured,
                     m->status == LS_CHECK_FAIL ? "the same check in all tasks" : "all tasks meet",
                     m->status == LS_CHECK_FAIL
                         ? "all tasks need the same files and variables, LOCKSTEP_CHECK among them"
                         : "see what srun says of it, and what its own task says when it gives up");
    }
    rep->nodes = nodes > rep->nodes ? nodes : rep->nodes;
}

/* The checks here go on to the end of their half: they are all that will be known. */
static void end_meeting(struct run *r, enum ls_check_status verdict, const char *why)
{
    r->over = true;
    r->verdict = verdict;
    r->why = why;
    close(r->meet);
    r->meet = -1;
}

static enum ls_status finish_alone(struct run *r, struct ls_error *err)
{
    struct ls_check_report *rep = r->report;
    const struct ls_check *check = r->at ? r->at : ls_check_find("env.pmix");
    r->finished = true;
    LS_TRY(collect_early(r, err));
    LS_TRY(collect_own(r, err));
    add_missing(r);
    if (r->last)
        return ls_check_unpack(r->last, r->nlast, -1, &rep->list, NULL, err);
    /* Of the whole job: who waits is not who is at fault. */
    const char *measured = r->why;
    if (*r->doing)
        measured = ls_arena_printf(&rep->list.arena, "%s; rank %d on %s was still at: %s", r->why,
                                   r->context->rank, r->context->host, r->doing);
    if (r->verdict == LS_CHECK_TIMEOUT && *r->doing)
        rep->stuck = ls_arena_printf(&rep->list.arena, "%s: %s", check->id, r->doing);
    if (!measured)
        return ls_error_set(err, LS_ERR_NOMEM, "collecting the answers");
    ls_check_add(&rep->list, check, r->verdict, -1, "", measured, "an answer from all nodes",
                 "what other tasks say on standard error, or do not say, tells which node hangs");
    return LS_OK;
}

/* Where no child runs: the half has ended. Alone, nobody is to be waited for. */
static enum ls_status advance(struct run *r, double now, struct ls_error *err)
{
    bool alone = r->meet < 0;
    if (r->finished || ls_check_children_wait(r->children, now) >= 0)
        return LS_OK;
    if (r->over)
        return finish_alone(r, err);
    if (r->half == FIRST) {
        LS_TRY(pass_on(r, LS_CHECK_FIRST, err));
        r->half = SHARED;
        if (alone) {
            start_second(r, now);
            start_late(r, now);
        }
    }
    if (r->half != SECOND || !r->late || ls_check_children_wait(r->children, now) >= 0)
        return LS_OK;
    LS_TRY(pass_on(r, LS_CHECK_SECOND, err));
    r->half = TOLD;
    r->finished = alone;
    return alone ? collect_own(r, err) : LS_OK;
}

static void begin_doing(struct run *r, const char *data)
{
    char id[32] = "";
    int at = 0;
    sscanf(data, "%31s %n", id, &at);
    r->at = ls_check_find(id);
    snprintf(r->doing, sizeof r->doing, "%s", data + at);
}

static enum ls_status read_meet(struct run *r, double now, struct ls_error *err)
{
    enum ls_check_frame kind;
    char *data = NULL;
    size_t n = 0;
    enum ls_status status = ls_check_frame_read(r->meet, &kind, &data, &n, err);
    if (status == LS_ERR_NOTFOUND || status == LS_ERR_IO) {
        *err = (struct ls_error){0};
        /* closed; or in the middle of a message, where reading has a time limit */
        if (status == LS_ERR_NOTFOUND)
            end_meeting(r, LS_CHECK_FAIL, "the process that meets the other nodes has died");
        else
            end_meeting(r, LS_CHECK_TIMEOUT,
                        "the process that meets the other nodes stopped in the middle of a "
                        "message");
        return LS_OK;
    }
    LS_TRY(status);
    switch (kind) {
    case LS_CHECK_MET:
        start_second(r, now);
        break;
    case LS_CHECK_SENT:
        start_late(r, now);
        break;
    case LS_CHECK_DOING:
        begin_doing(r, data);
        break;
    case LS_CHECK_SILENT:
        r->report->first = 1;
        break;
    case LS_CHECK_MISSING:
        status = note_missing(r, data, err);
        break;
    case LS_CHECK_EARLY:
        if (!ls_grow(&r->early, &r->early_cap, r->nearly + 1, sizeof *r->early)) {
            status = ls_error_set(err, LS_ERR_NOMEM, "collecting answers");
            break;
        }
        r->early[r->nearly++] = (struct early){data, n};
        return LS_OK;
    case LS_CHECK_PEER:
        status = collect_peer(r, data, n, err);
        break;
    case LS_CHECK_NO_PEERS:
        r->last = data;
        r->nlast = n;
        end_meeting(r, LS_CHECK_FAIL, "");
        return LS_OK;
    default:
        r->finished = true;
    }
    free(data);
    return status;
}

static enum ls_status step(struct run *r, struct pollfd *fds, double until, struct ls_error *err)
{
    double now = ls_time_monotonic(), wait = ls_check_children_wait(r->children, now);
    static const double moment = 0.001;
    int n = ls_check_children_fds(r->children, fds);
    if (r->meet >= 0)
        fds[n++] = (struct pollfd){.fd = r->meet, .events = POLLIN};
    if (wait < 0 || wait > until - now)
        wait = until - now;
    if (poll(fds, (nfds_t)n, wait > 0 ? (int)((wait + moment) * 1000) : 0) < 0 && errno != EINTR)
        return ls_error_errno(err, errno, "waiting for the checks");
    bool heard = r->meet >= 0 && fds[n - 1].revents;
    now = ls_time_monotonic();
    ls_check_children_poll(r->children, now);
    if (heard)
        LS_TRY(read_meet(r, now, err));
    LS_TRY(advance(r, now, err));
    if (r->finished || now < until)
        return LS_OK;
    if (!r->over) {
        r->verdict = LS_CHECK_TIMEOUT;
        r->why = "no end before the deadline of the whole check";
    }
    return finish_alone(r, err);
}

/* ---- judging ---- */

/* Several tasks, and each of them alone. */
static void unmet_pmix(struct run *r)
{
    struct ls_pmix_view none = {.found = false};
    struct ls_error err = {0};
    if (ls_slurm_check_pmix(r->context->slurm, &none, NULL, &err) == LS_OK)
        snprintf(err.message, sizeof err.message, "no PMIx server started this task");
    ls_check_add(&r->report->list, ls_check_find("env.pmix"), LS_CHECK_FAIL, -1, "", err.message,
                 "all tasks meet", "");
}

static enum ls_status compare(struct run *r, struct ls_error *err)
{
    struct ls_check_report *rep = r->report;
    bool *said = calloc((size_t)ls_nchecks, sizeof *said);
    if (!said)
        return ls_error_set(err, LS_ERR_NOMEM, "comparing");
    for (int c = 0; c < ls_nchecks; c++) {
        struct ls_check_world world = {.size = rep->size,
                                       .host = rep->host,
                                       .node = rep->node,
                                       .fact = &r->fact[(size_t)c * (size_t)rep->size]};
        if (ls_checks[c].compare)
            ls_checks[c].compare(&ls_checks[c], &world, &rep->list);
    }
    if (!r->context->pmix && r->context->size > 1)
        unmet_pmix(r);
    for (int i = 0; i < rep->list.n; i++)
        said[rep->list.result[i].check - ls_checks] = true;
    /* What nobody answered was not checked. */
    for (int c = 0; c < ls_nchecks; c++) {
        if (said[c] || (ls_checks[c].needs & LS_CHECK_NEEDS_JOB && !r->context->job_path))
            continue;
        const char *why = ls_check_unmet(&ls_checks[c], r->context);
        ls_check_add(&rep->list, &ls_checks[c], LS_CHECK_SKIP, -1, "",
                     why ? why : "the checks before it did not end", "", "");
    }
    free(said);
    return rep->list.failed ? ls_error_set(err, LS_ERR_NOMEM, "collecting the answers") : LS_OK;
}

enum ls_status ls_check_run(const struct ls_check_context *context, double deadline,
                            struct ls_check_report *report, struct ls_error *err)
{
    struct run r = {.context = context, .report = report};
    double begin = ls_time_monotonic();
    *report = (struct ls_check_report){.size = 0};
    ls_buf_init(&r.said, (size_t)1 << 24);
    enum ls_status status = fork_meet(&r, err);
    struct pollfd *fds = calloc((size_t)ls_nchecks + 1, sizeof *fds);
    if (status == LS_OK && !fds)
        status = ls_error_set(err, LS_ERR_NOMEM, "starting the checks");
    if (status == LS_OK)
        status = ls_check_children_open(context, &r.children, err);
    if (status == LS_OK)
        status = advance(&r, begin, err); /* where no check applies */
    while (status == LS_OK && !r.finished)
        status = step(&r, fds, begin + deadline, err);
    if (status == LS_OK)
        status = compare(&r, err);
    ls_check_children_close(r.children);
    if (r.meet >= 0)
        close(r.meet);
    free(fds);
    free(r.missing);
    for (int i = 0; i < r.nearly; i++)
        free(r.early[i].data);
    free(r.early);
    free(r.last);
    ls_buf_free(&r.said);
    report->seconds = ls_time_monotonic() - begin;
    return status;
}

void ls_check_report_free(struct ls_check_report *report)
{
    if (report->meet > 0) {
        /* It has nothing left to do but to leave PMIx in good order. */
        double until = ls_time_monotonic() + 2;
        pid_t gone = 0;
        while ((gone = waitpid(report->meet, NULL, WNOHANG)) == 0 && ls_time_monotonic() < until)
            usleep(1000);
        if (gone == 0) {
            kill(report->meet, SIGKILL);
            waitpid(report->meet, NULL, WNOHANG);
        }
    }
    ls_check_list_free(&report->list);
    *report = (struct ls_check_report){.size = 0};
}
