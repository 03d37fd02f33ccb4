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
            kill(k->worker[i].pid, sig);
    k->killed |= sig == SIGKILL;
}

static void pass_on(struct ls_keeper *k, int sig)
{
    for (int i = 0; i < k->config->workers; i++)
        if (k->worker[i].pid > 0)
            sigqueue(k->worker[i].pid, LS_KEEP_SIGNAL, (union sigval){.sival_int = sig});
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

/* Is this failure the consequence of another one? Then it is not the one to name. */
static bool is_echo(const struct ls_record *r)
{
    return r->status == LS_ERR_ABORTED || r->status == LS_ERR_TIMEOUT;
}

static void describe_end(int status, char out[static 160])
{
    if (WIFSIGNALED(status))
        snprintf(out, 160, "killed by signal %d (%s)%s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)),
                 WTERMSIG(status) == SIGKILL ? "; often memory: see the system's log" : "");
    else if (WEXITSTATUS(status) == 127)
        snprintf(out, 160, "did not start: the worker program cannot be executed");
    else
        snprintf(out, 160, "exited with status %d and left no completion record",
                 WEXITSTATUS(status));
}

static void worker_ended(struct ls_keeper *k, struct ls_worker *w)
{
    int status;
    char text[LS_RECORD_MAX];
    pid_t got;
    while ((got = waitpid(w->pid, &status, 0)) < 0 && errno == EINTR)
        ;
    if (got != w->pid)
        return;
    w->pid = 0;
    k->running--;
    read_record(w);
    struct ls_record r;
    if (!ls_record_read(w->record, w->nrecord, &r)) {
        r = (struct ls_record){.status = LS_ERR_INTERNAL,
                               .code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 1};
        describe_end(status, r.message);
    }
    if (k->killed && r.status != LS_OK)
        return; /* its death was our doing */
    if (r.status != LS_OK)
        ls_wire_control_fail(k->control, w->rank, r.code, is_echo(&r), r.message);
    ls_wire_control_record(k->control, w->rank, text, ls_record_write(&r, text));
}

/* ---- what the channel says ---- */

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
        k->failed_code = e->code;
        snprintf(k->failed_text, sizeof k->failed_text, "%s", e->text);
    }
    ls_keeper_kill(
        k, SIGKILL); /* checkpoints are safe by construction; nothing else is worth a wait */
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
    ls_wire_control_done(k->control, code, "");
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
    case LS_WIRE_STOP:
        /* Slurm signals every task, so every keeper asks: the workers must hear it once. */
        if (!k->killed && !k->told)
            pass_on(k, e->code);
        k->told = true;
        break;
    case LS_WIRE_ALL_FINISHED:
        decide(k);
        break;
    case LS_WIRE_DONE:
        k->done = true;
        k->code = e->code;
        if (e->text[0] && k->me == 0)
            fprintf(k->config->out, "lockstep: %s\n", e->text);
        break;
    case LS_WIRE_WORKER_ABORT:
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

/* A launcher may send one request by several ways: SIGTERM again within so many seconds is the same. */
#define SAME_REQUEST 1.0

/* The first signal asks everyone to save and end; a second one ends everyone at once. */
static void take_signals(struct ls_keeper *k, int fd)
{
    unsigned char sig;
    while (read(fd, &sig, 1) == 1) {
        bool again = sig == SIGTERM && ls_time_monotonic() - k->stop_time < SAME_REQUEST;
        if (k->stopping && (sig == SIGUSR1 || again))
            continue;
        if (k->stopping) {
            ls_wire_control_fail(k->control, -1, 128 + sig, false,
                                 "ended at once by a second signal");
            ls_keeper_kill(k, SIGKILL);
            continue;
        }
        k->stopping = true;
        k->stop_time = ls_time_monotonic();
        ls_wire_control_stop(k->control, sig);
    }
}

/* Keeper 0 speaks for all; where it is what was lost, the next one. */
static void name_failure(const struct ls_keeper *k)
{
    int speaker = k->failed_rank < 0 && k->failed_keeper == 0 && k->me > 0 ? 1 : 0;
    if (!k->failed || k->me != speaker)
        return;
    int at = k->failed_keeper >= 0 && k->failed_keeper < k->map.n_keepers ? k->failed_keeper : 0;
    if (k->failed_rank >= 0 && k->map.size > 1)
        fprintf(k->config->out, "lockstep: rank %d on %s failed first: %s\n", k->failed_rank,
                k->host[at], k->failed_text);
    else
        fprintf(k->config->out, "lockstep: %s\n", k->failed_text);
}

enum ls_status ls_keeper_loop(struct ls_keeper *k, int signals, struct ls_error *err)
{
    int n = k->config->workers;
    struct pollfd *fds = calloc((size_t)n * 2 + 3, sizeof *fds);
    if (!fds)
        return ls_error_set(err, LS_ERR_NOMEM, "watching the workers");
    while (!k->done) {
        drain(k);
        if (k->running == 0 && !k->finished) {
            k->finished = true;
            ls_wire_control_finished(k->control);
            continue;
        }
        if (k->done)
            break;
        fds[0] = (struct pollfd){.fd = signals, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = ls_wire_server_fd(k->server), .events = POLLIN};
        fds[2] = (struct pollfd){.fd = ls_wire_control_fd(k->control), .events = POLLIN};
        for (int i = 0; i < n; i++) {
            const struct ls_worker *w = &k->worker[i];
            fds[3 + i] = (struct pollfd){.fd = w->pid > 0 ? w->pidfd : -1, .events = POLLIN};
            fds[3 + n + i] = (struct pollfd){.fd = w->record_fd, .events = POLLIN};
        }
        if (poll(fds, (nfds_t)n * 2 + 3, ls_wire_control_timeout(k->control)) < 0 &&
            errno != EINTR) {
            free(fds);
            return ls_error_errno(err, errno, "waiting for the workers");
        }
        take_signals(k, signals);
        drain(k); /* a worker's own last word counts before its exit status */
        for (int i = 0; i < n; i++) {
            if (fds[3 + n + i].revents)
                read_record(&k->worker[i]);
            if (fds[3 + i].revents & POLLIN)
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
    struct ls_keeper k = {.config = config, .failed_keeper = -1};
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
    for (int i = 0; k.worker && i < config->workers; i++) {
        struct ls_worker *w = &k.worker[i];
        if (w->pid > 0)
            waitpid(w->pid, NULL, 0);
        if (w->pidfd > 0)
            close(w->pidfd);
        if (w->record_fd > 0)
            close(w->record_fd);
    }
    ls_wire_server_close(k.server);
    ls_wire_control_close(k.control);
    ls_wire_client_close(k.client);
    for (int i = 0; k.host && k.host[i]; i++)
        free(k.host[i]);
    free(k.host);
    free(k.worker);
    free(k.records);
    free(k.has_record);
    ls_wire_map_free(&k.map);
    return status;
}
