/* The keeper's one loop: workers end and leave records, failures and stops travel, and in the end all
 * keepers leave with one exit code. */
#include "keep/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void ls_keeper_kill(struct ls_keeper *k, int sig)
{
    for (int i = 0; k->worker && i < k->config->workers; i++)
        if (k->worker[i].pid > 0)
            kill(sig == SIGKILL && k->worker[i].in_group ? -k->worker[i].pid : k->worker[i].pid,
                 sig);
    k->killed |= sig == SIGKILL;
}

/* ---- a worker ends ---- */

static void read_record(struct ls_worker *w)
{
    while (w->record_fd >= 0) {
        char spill[256];
        size_t room = sizeof w->record - w->nrecord;
        ssize_t n =
            read(w->record_fd, room ? w->record + w->nrecord : spill, room ? room : sizeof spill);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close(w->record_fd);
            w->record_fd = -1;
            return;
        }
        w->nrecord += room ? (size_t)n : 0;
    }
}

/* A failure, with the last lines behind the message. */
static void report(struct ls_keeper *k, int number, int code, bool echo, int suspect,
                   const char *message)
{
    char tail[LS_OUTPUT_TAIL] = "", text[LS_RECORD_MAX + LS_OUTPUT_TAIL];
    if (k->output)
        ls_output_tail(k->output, number, tail);
    snprintf(text, sizeof text, "%s\n%s", message, tail);
    if (suspect)
        ls_wire_control_suspect(k->control, k->worker[number].rank, code, suspect - 1, text);
    else
        ls_wire_control_fail(k->control, k->worker[number].rank, code, echo, text);
}

static void worker_ended(struct ls_keeper *k, struct ls_worker *w)
{
    int status;
    char text[LS_RECORD_MAX];
    pid_t got;
    /* While it is not waited for, its number is not given to others. */
    if (w->in_group)
        kill(-w->pid, SIGKILL);
    while ((got = waitpid(w->pid, &status, 0)) < 0 && errno == EINTR)
        ;
    if (got != w->pid)
        return;
    w->pid = 0;
    k->running--;
    read_record(w);
    int number = (int)(w - k->worker);
    if (k->output)
        ls_output_ended(k->output, number);
    struct ls_record r;
    bool echo = false, failed = k->kind->judge(k, w, status, &r, &echo);
    if (k->killed && failed)
        return; /* its death was our doing */
    if (failed)
        report(k, number, r.code, echo, r.suspect, r.message);
    ls_wire_control_record(k->control, w->rank, text, ls_record_write(&r, text));
}

/* ---- what the channel says ---- */

/* Asks all keepers, this one included, to pass a signal on: its number, and how often we have heard it. */
enum { NTH_SHIFT = 8 };
static void ask(struct ls_keeper *k, int sig)
{
    if (k->asked[sig] < INT32_MAX >> NTH_SHIFT)
        k->asked[sig]++;
    ls_wire_control_stop(k->control, sig | k->asked[sig] << NTH_SHIFT);
}

static void note_record(struct ls_keeper *k, const struct ls_wire_event *e)
{
    struct ls_record r;
    if (e->rank < 0 || e->rank >= k->map.size || !ls_record_read(e->data, e->n, &r))
        return;
    k->records[e->rank] = r;
    k->has_record[e->rank] = true;
}

static void note_failure(struct ls_keeper *k, const struct ls_wire_event *e)
{
    if (!k->failed) {
        k->failed = true;
        k->failed_rank = e->rank;
        k->failed_keeper = e->keeper;
        k->failed_code = e->rank < 0 && e->code == 1 ? k->kind->broken : e->code;
        snprintf(k->failed_text, sizeof k->failed_text, "%s", e->text);
    }
    if (k->config->programs)
        ls_keep_end_programs(k, e->rank < 0 && (e->code > 128 || k->ending));
    else /* checkpoints are safe by construction; nothing else is worth a wait */
        ls_keeper_kill(k, SIGKILL);
}

/* Success needs proof: a record of every rank. */
static void decide(struct ls_keeper *k)
{
    char text[256];
    if (k->failed) {
        ls_wire_control_done(k->control, k->failed_code ? k->failed_code : 1, "");
        return;
    }
    int code = 0;
    for (int r = 0; r < k->map.size; r++) {
        if (!k->has_record[r]) {
            snprintf(text, sizeof text, "rank %d left no completion record", r);
            ls_wire_control_done(k->control, 1, text);
            return;
        }
        if (k->records[r].code > code)
            code = k->records[r].code;
    }
    /* The last word counts, also where all ranks had ended before they could hear it. */
    if (code == LS_KEEP_REQUEUE && k->told.sig && k->told.sig != SIGUSR1)
        code = 128 + k->told.sig;
    ls_wire_control_done(k->control, code, "");
}

/* A program called MPI_Abort or the like: it asks for the end of all ranks. */
static void program_aborts(struct ls_keeper *k, const struct ls_wire_event *e)
{
    char message[LS_RECORD_MAX];
    int number = e->rank - k->map.first[k->me], code = e->code & 255;
    snprintf(message, sizeof message, "aborted all ranks (PMIx_Abort) with status %d", e->code);
    if (number < 0 || number >= k->config->workers)
        return;
    ls_output_take(k->output, number);
    report(k, number, code ? code : 1, false, 0, message);
}

/* What a rank does for which others waited in vain. */
static void answer(struct ls_keeper *k, int rank)
{
    char text[200];
    int number = rank - k->map.first[k->me];
    if (number < 0 || number >= k->config->workers)
        return;
    ls_keep_describe_rank(&k->worker[number], text);
    ls_wire_control_answer(k->control, rank, text);
}

static void handle(struct ls_keeper *k, const struct ls_wire_event *e)
{
    switch (e->kind) {
    case LS_WIRE_RECORD:
        note_record(k, e);
        break;
    case LS_WIRE_FAILURE:
        note_failure(k, e);
        break;
    case LS_WIRE_ASKED:
        answer(k, e->rank);
        break;
    case LS_WIRE_STOP:
        k->kind->pass_on(k, e->code & LS_KEEP_SIGNAL_MASK, e->code >> NTH_SHIFT);
        break;
    case LS_WIRE_ALL_FINISHED:
        decide(k);
        break;
    case LS_WIRE_DONE:
        k->done = true;
        k->code = k->failed && k->failed_rank < 0 && e->code == 1 ? k->kind->broken : e->code;
        if (e->text[0] && k->me == 0)
            fprintf(k->config->out, "lockstep: %s\n", e->text);
        break;
    case LS_WIRE_WORKER_ABORT:
        if (k->config->programs)
            program_aborts(k, e);
        else
            ls_wire_control_fail(k->control, e->rank, e->code ? e->code : 1, false, e->text);
        break;
    case LS_WIRE_WORKER_READY:
    case LS_WIRE_WORKER_LEFT:
    case LS_WIRE_WORKER_LOST: /* wait() knows more, and at once */
        break;
    }
}

static void drain(struct ls_keeper *k)
{
    struct ls_wire_event e;
    while (ls_wire_poll(k->server, k->control, &e))
        handle(k, &e);
}

/* The first signal asks everyone to save and end; a second one ends everyone at once. */
static void take_signal(struct ls_keeper *k, int sig, bool everywhere)
{
    switch (ls_stop_hear(&k->stop, sig, ls_time_monotonic())) {
    case LS_STOP_KNOWN:
        break;
    case LS_STOP_WISH:
        k->ending = true;
        if (!everywhere)
            ask(k, sig);
        break;
    case LS_STOP_AT_ONCE:
        ls_wire_control_fail(k->control, -1, 128 + sig, false, "ended at once by a second signal");
        ls_keeper_kill(k, SIGKILL);
        k->hurry = true;
        break;
    }
}

static void take_signals(struct ls_keeper *k, int fd)
{
    unsigned char byte;
    while (read(fd, &byte, 1) == 1) {
        int sig = byte & LS_KEEP_SIGNAL_MASK;
        k->at_terminal = byte & LS_KEEP_AT_TERMINAL ? sig : 0;
        if (k->kind->is_stop(sig))
            take_signal(k, sig, byte & LS_KEEP_AT_RANKS);
        else if (!(byte & LS_KEEP_AT_RANKS))
            ask(k, sig);
    }
}

/* Last of all: the cause, and above it what the rank printed. Keeper 0 speaks for all; where it is what was
 * lost, the next one. */
static void name_failure(struct ls_keeper *k)
{
    int speaker = k->failed_rank < 0 && k->failed_keeper == 0 && k->me > 0 ? 1 : 0;
    if (!k->failed || k->me != speaker)
        return;
    int at = k->failed_keeper >= 0 && k->failed_keeper < k->map.n_keepers ? k->failed_keeper : 0;
    char *tail = strchr(k->failed_text, '\n');
    if (tail)
        *tail++ = '\0';
    if (tail && *tail) {
        fprintf(k->config->out, "lockstep: the last lines of rank %d on %s:\n", k->failed_rank,
                k->host[at]);
        for (char *line = strtok(tail, "\n"); line; line = strtok(NULL, "\n"))
            fprintf(k->config->out, "  | %s\n", line);
    }
    if (k->failed_rank >= 0 && (k->map.size > 1 || k->config->programs))
        fprintf(k->config->out, "lockstep: rank %d on %s failed first: %s\n", k->failed_rank,
                k->host[at], k->failed_text);
    else
        fprintf(k->config->out, "lockstep: %s\n", k->failed_text);
}

/* ---- the clock ---- */

static int sooner(int a, int b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static int until(double due)
{
    double left = due - ls_time_monotonic();
    return left <= 0 ? 0 : (int)(left * 1e3) + 1;
}

/* Milliseconds until something has to be done without any event; -1: never. */
static int timeout(const struct ls_keeper *k)
{
    const struct ls_keep_programs *p = k->config->programs;
    int ms = ls_wire_control_timeout(k->control);
    if (k->output)
        ms = sooner(ms, ls_output_timeout(k->output));
    if (k->kill_due > 0)
        ms = sooner(ms, until(k->kill_due));
    if (p && p->timeout > 0 && k->me == 0 && !k->failed)
        ms = sooner(ms, until(k->began + p->timeout));
    return ms;
}

static void look_at_clock(struct ls_keeper *k)
{
    const struct ls_keep_programs *p = k->config->programs;
    char text[80];
    double now = ls_time_monotonic();
    if (k->kill_due > 0 && now >= k->kill_due) {
        ls_keeper_kill(k, SIGKILL);
        k->kill_due = 0;
    }
    if (p && p->timeout > 0 && k->me == 0 && !k->failed && now >= k->began + p->timeout) {
        snprintf(text, sizeof text, "not ended within %g s, the timeout", p->timeout);
        ls_wire_control_fail(k->control, -1, 124, false, text);
    }
}

/* Nothing runs here any more, and everything is written. */
static bool is_over(const struct ls_keeper *k)
{
    return k->running == 0 && (!k->output || k->hurry || ls_output_idle(k->output));
}

/* The order of descriptors: signals, server, control, then ranks, records, output. */
enum { FIXED = 3 };

static int fill(const struct ls_keeper *k, int signals, struct pollfd *fds)
{
    int n = k->config->workers;
    fds[0] = (struct pollfd){.fd = signals, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = ls_wire_server_fd(k->server), .events = POLLIN};
    fds[2] = (struct pollfd){.fd = ls_wire_control_fd(k->control), .events = POLLIN};
    for (int i = 0; i < n; i++) {
        const struct ls_worker *w = &k->worker[i];
        fds[FIXED + i] = (struct pollfd){.fd = w->pid > 0 ? w->pidfd : -1, .events = POLLIN};
        fds[FIXED + n + i] = (struct pollfd){.fd = w->record_fd, .events = POLLIN};
    }
    if (k->output)
        ls_output_poll(k->output, fds + FIXED + 2 * n);
    return FIXED + 2 * n + (k->output ? ls_output_count(k->output) : 0);
}

enum ls_status ls_keeper_loop(struct ls_keeper *k, int signals, struct ls_error *err)
{
    int n = k->config->workers, most = FIXED + 2 * n;
    most += k->output ? ls_output_count(k->output) : 0;
    struct pollfd *fds = calloc((size_t)most, sizeof *fds);
    if (!fds)
        return ls_error_set(err, LS_ERR_NOMEM, "watching the workers");
    while (!k->done) {
        drain(k);
        if (is_over(k) && !k->finished) {
            k->finished = true;
            ls_wire_control_finished(k->control);
            continue;
        }
        if (k->done)
            break;
        int count = fill(k, signals, fds);
        if (poll(fds, (nfds_t)count, timeout(k)) < 0 && errno != EINTR) {
            free(fds);
            return ls_error_errno(err, errno, "waiting for the workers");
        }
        take_signals(k, signals);
        drain(k); /* a worker's own last word counts before its exit status */
        look_at_clock(k);
        if (k->output)
            ls_output_work(k->output, fds + FIXED + 2 * n);
        for (int i = 0; i < n; i++) {
            if (fds[FIXED + n + i].revents)
                read_record(&k->worker[i]);
            if (fds[FIXED + i].revents & POLLIN)
                worker_ended(k, &k->worker[i]);
        }
    }
    free(fds);
    name_failure(k);
    return LS_OK;
}

enum ls_status ls_keep_run(const struct ls_keep_config *config, int signals, int *code,
                           struct ls_error *err)
{
    struct ls_keeper k = {.config = config,
                          .kind = config->programs ? &ls_keep_program_kind : &ls_keep_worker_kind,
                          .began = ls_time_monotonic(),
                          .failed_keeper = -1};
    enum ls_status status = ls_keeper_start(&k, err);
    if (status == LS_OK)
        status = ls_keeper_loop(&k, signals, err);
    if (status == LS_OK)
        *code = k.code;
    else {
        if (k.control) /* the others hear why, and not only that this keeper is gone */
            ls_wire_control_fail(k.control, -1, 1, false, err ? err->message : "cannot start");
        ls_keeper_kill(&k, SIGKILL);
        if (k.common && k.me > 0 && err)
            err->message[0] = '\0';
    }
    ls_output_close(k.output);
    ls_wire_rendezvous_close(k.meet);
    for (int i = 0; k.worker && i < config->workers; i++) {
        struct ls_worker *w = &k.worker[i];
        if (w->pid > 0)
            waitpid(w->pid, NULL, 0);
        if (w->pidfd > 0)
            close(w->pidfd);
        if (w->record_fd > 0)
            close(w->record_fd);
        ls_keep_close_window(w);
    }
    ls_wire_server_close(k.server);
    ls_wire_control_close(k.control);
    ls_keeper_leave_slurm(&k);
    for (int i = 0; k.host && k.host[i]; i++)
        free(k.host[i]);
    free(k.host);
    free(k.worker);
    free(k.place);
    free(k.decision);
    ls_arena_free(&k.arena);
    free(k.records);
    free(k.has_record);
    ls_wire_map_free(&k.map);
    return status;
}
