/* Ranks that are our own worker program: how they start, are told, and end. */
#include "keep/internal.h"
#include "keep/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* In the child, between fork and exec: only what is safe there. */
static void become_worker(const struct ls_keep_config *config, const struct ls_worker *w, int fd,
                          char **env, pid_t keeper)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the keeper's death is its workers' death */
    if (getppid() != keeper)
        _exit(127);
    /* Only the keeper's word counts, and it waits until the worker is ready to hear it. */
    sigset_t word;
    sigemptyset(&word);
    sigaddset(&word, LS_KEEP_SIGNAL);
    sigprocmask(SIG_BLOCK, &word, NULL);
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    if (w->bound)
        sched_setaffinity(0, sizeof w->cpus, &w->cpus);
    fcntl(fd, F_SETFD, 0); /* the two descriptors that the worker keeps */
    fcntl(w->window_fd, F_SETFD, 0);
    execve(config->program, config->argv, env);
    _exit(127);
}

static enum ls_status start(struct ls_keeper *k, struct ls_worker *w, int fd, char **env,
                            struct ls_error *err)
{
    pid_t keeper = getpid(), pid = fork();
    if (pid == 0)
        become_worker(k->config, w, fd, env, keeper);
    close(fd);
    if (pid < 0)
        return ls_error_errno(err, errno, "starting rank %d", w->rank);
    w->pid = pid;
    return LS_OK;
}

/* The environment of a worker: the server's, the descriptors of its record and its window, its share of threads. */
static enum ls_status worker_env(struct ls_keeper *k, struct ls_worker *w, int fd,
                                 struct ls_arena *arena, char ***env, struct ls_error *err)
{
    char **block = NULL;
    LS_TRY(ls_keep_open_window(w, err));
    LS_TRY(ls_wire_server_env(k->server, 1, w->rank, environ, &block, NULL, err));
    int n = 0;
    while (block[n])
        n++;
    const struct ls_topo_decision *d = k->decision ? &k->decision[w - k->worker] : NULL;
    size_t decided = d ? (size_t)d->nvariable + 1 : 0;
    char **longer = ls_arena_alloc(arena, ((size_t)n + 5 + decided) * sizeof *longer);
    bool whole = longer != NULL;
    for (int i = 0; i < n && whole; i++)
        whole = (longer[i] = ls_arena_strdup(arena, block[i])) != NULL;
    free(block);
    whole = whole && (!d || ls_keep_set_decided(d, arena, longer, &n));
    char *record = ls_arena_printf(arena, LS_RECORD_FD_VARIABLE "=%d", fd);
    char *began = ls_arena_printf(arena, LS_KEEP_BEGAN_VARIABLE "=%.6f", k->began);
    /* Unbound workers share the CPUs: each takes its part, or they would all start a thread on each. */
    int threads = CPU_COUNT(&w->cpus) / (w->bound ? 1 : k->config->workers);
    char *share = ls_arena_printf(arena, "LOCKSTEP_THREADS=%d", threads > 0 ? threads : 1);
    char *window = ls_arena_printf(arena, LS_KEEP_WINDOW_VARIABLE "=%d", w->window_fd);
    if (!whole || !record || !share || !began || !window)
        return ls_error_set(err, LS_ERR_NOMEM, "starting rank %d", w->rank);
    longer[n] = record;
    longer[n + 1] = share;
    longer[n + 2] = began;
    longer[n + 3] = window;
    *env = longer;
    return LS_OK;
}

/* Is this failure the consequence of another one? Then it is not the one to name. */
static bool is_echo(const struct ls_record *r)
{
    return r->status == LS_ERR_ABORTED || r->status == LS_ERR_TIMEOUT;
}

void ls_keep_describe_signal(int sig, char out[static 160])
{
    snprintf(out, 160, "killed by signal %d (%s)%s", sig, strsignal(sig),
             sig == SIGKILL ? "; often memory: see the system's log" : "");
}

static void describe_end(int status, char out[static 160])
{
    if (WIFSIGNALED(status))
        ls_keep_describe_signal(WTERMSIG(status), out);
    else if (WEXITSTATUS(status) == 127)
        snprintf(out, 160, "did not start: the worker program cannot be executed");
    else
        snprintf(out, 160, "exited with status %d and left no completion record",
                 WEXITSTATUS(status));
}

static bool judge(struct ls_keeper *k, struct ls_worker *w, int status, struct ls_record *r,
                  bool *echo)
{
    (void)k;
    if (!ls_record_read(w->record, w->nrecord, r)) {
        *r = (struct ls_record){.status = LS_ERR_INTERNAL,
                                .code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 1};
        describe_end(status, r->message);
    }
    *echo = is_echo(r);
    return r->status != LS_OK;
}

/* Slurm signals every task, so every keeper asks: the workers must hear of a wish once, and of a graver one. */
static void pass_on(struct ls_keeper *k, int sig, int nth)
{
    (void)nth;
    if (k->killed || ls_stop_hear(&k->told, sig, ls_time_monotonic()) != LS_STOP_WISH)
        return;
    for (int i = 0; i < k->config->workers; i++)
        if (k->worker[i].pid > 0)
            sigqueue(k->worker[i].pid, LS_KEEP_SIGNAL, (union sigval){.sival_int = sig});
}

static bool is_stop(int sig)
{
    return sig != 0;
}

const struct ls_keep_kind ls_keep_worker_kind = {worker_env, start,       judge,    pass_on,
                                                 is_stop,    .broken = 1, .late = 5};
