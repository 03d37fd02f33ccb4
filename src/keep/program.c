/* Ranks that are programs of any kind: how they start, are told, and end. They know nothing of us. */
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

/* Seconds between asking a rank to end and killing it, after another one has failed: everyone is to be gone
 * within a second. */
#define GRACE 0.5
/* Slurm signals every task, so that every keeper asks. Within so many seconds it is the same request; and after
 * that, while a keeper catches up on what another one has asked before: a node may be slow. A rank that has had its
 * signal, and ends by it, must not get it again: its handlers are gone by then. */
#define SAME_REQUEST 1.0
#define LATE_REQUEST 60.0

/* ---- before they start ---- */

static struct ls_keep_world world_of(const struct ls_keeper *k)
{
    const struct ls_keep_programs *p = k->config->programs;
    return (struct ls_keep_world){.map = &k->map,
                                  .meet = k->meet,
                                  .host = (const char *const *)k->host,
                                  .job = p->job,
                                  .slurm = p->slurm,
                                  .restarts = p->restarts,
                                  .evaluator = p->evaluator,
                                  .ompi = p->ompi};
}

static void say_leftovers(const struct ls_keeper *k)
{
    char list[512];
    if (k->me == 0 && ls_keep_leftovers(environ, list)[0])
        fprintf(
            k->config->out,
            "lockstep: replaced what was set already, by a container's hook or another launcher: "
            "%s\n",
            list);
}

/* Programs take LOCAL_RANK as the number of their GPU: says so where there is no such GPU. */
static void check_gpus(const struct ls_keeper *k)
{
    const struct ls_visible *v = k->config->programs->visible;
    for (int i = 0; v && v->set && v->count > 0 && i < k->config->workers; i++) {
        const struct ls_keep_place *p = &k->place[i];
        struct ls_error err = {0};
        int device;
        if (ls_visible_choose(v->count, p->local_rank, p->local_size, &device, &err) == LS_OK &&
            device == p->local_rank)
            continue;
        fprintf(
            k->config->out,
            "lockstep: warning: rank %d on %s sees %d GPU%s, but its LOCAL_RANK is %d: programs "
            "that take it as the number of their GPU fail; start one task per node with "
            "--workers-per-task, or add --gpu-bind=none to srun\n",
            p->rank, p->host, v->count, v->count == 1 ? "" : "s", p->local_rank);
        return;
    }
}

enum ls_status ls_keep_prepare_programs(struct ls_keeper *k, struct ls_error *err)
{
    const struct ls_keep_config *c = k->config;
    const struct ls_keep_world world = world_of(k);
    if (c->programs->evaluator && k->map.size < 2)
        return ls_error_set(err, LS_ERR_USAGE,
                            "an evaluator beside the chief needs 2 ranks or more, "
                            "found 1");
    k->place = calloc((size_t)c->workers, sizeof *k->place);
    if (!k->place)
        return ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
    for (int i = 0; i < c->workers; i++)
        ls_keep_place(&world, k->worker[i].rank, &k->place[i]);
    const struct ls_output_config output = {.workers = c->workers,
                                            .place = k->place,
                                            .label = c->programs->label,
                                            .pattern = c->programs->output,
                                            .out = STDOUT_FILENO,
                                            .err = STDERR_FILENO};
    LS_TRY(ls_output_open(&output, &k->output, err));
    say_leftovers(k);
    check_gpus(k);
    return LS_OK;
}

static bool has(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=' && (*env)[n + 1])
            return true;
    return false;
}

/* What the user set stays, except where it would contradict. */
static enum ls_status add_extras(const struct ls_keeper *k, const struct ls_worker *w,
                                 struct ls_arena *arena, char **env, int *n, struct ls_error *err)
{
    const struct ls_visible *v = k->config->programs->visible;
    const struct ls_keep_place *p = &k->place[w - k->worker];
    int device;
    const struct ls_topo_decision *d = k->decision ? &k->decision[w - k->worker] : NULL;
    bool ok = !d || ls_keep_set_decided(d, arena, env, n);
    env[*n] = NULL;
    if (ok && !has(env, "OMP_NUM_THREADS"))
        ok &= (env[(*n)++] = ls_arena_printf(arena, "OMP_NUM_THREADS=%d", w->cores)) != NULL;
    /* JAX takes all GPUs that it sees, and ranks of one node must not. */
    if (ok && v && v->set && v->count > 0 && p->local_size > 1 &&
        !has(environ, "JAX_LOCAL_DEVICE_IDS") &&
        ls_visible_choose(v->count, p->local_rank, p->local_size, &device, NULL) == LS_OK)
        ok &= (env[(*n)++] = ls_arena_printf(arena, "JAX_LOCAL_DEVICE_IDS=%d", device)) != NULL;
    /* Open MPI 4 believes in PMIx only below launchers that it knows, Slurm among them: this takes away the
     * component that would declare it started by nobody. */
    if (ok && !has(environ, "SLURM_STEP_ID") && !has(environ, "OMPI_MCA_schizo"))
        ok &= (env[(*n)++] = ls_arena_strdup(arena, "OMPI_MCA_schizo=^orte")) != NULL;
    env[*n] = NULL;
    return ok ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "starting rank %d", w->rank);
}

static enum ls_status program_env(struct ls_keeper *k, struct ls_worker *w, int fd,
                                  struct ls_arena *arena, char ***env, struct ls_error *err)
{
    (void)fd;
    const struct ls_keep_world world = world_of(k);
    char **block = NULL, **ours = NULL;
    bool left_out = false, whole = true;
    int n = 0, count = 0, extra = 0;
    LS_TRY(ls_keep_variables(&world, w->rank, arena, &ours, &left_out, err));
    if (left_out && w->rank == 0)
        fprintf(
            k->config->out,
            "lockstep: warning: no TF_CONFIG: the addresses of %d ranks are more than the kernel "
            "takes for one variable\n",
            k->map.size);
    LS_TRY(ls_wire_server_env(k->server, 1, w->rank, environ, &block, NULL, err));
    while (block[count])
        count++;
    while (ours[extra])
        extra++;
    size_t decided = k->decision ? (size_t)k->decision[w - k->worker].nvariable : 0;
    char **all = ls_arena_alloc(arena, ((size_t)count + (size_t)extra + 5 + decided) * sizeof *all);
    for (int i = 0; i < count && (whole = whole && all); i++)
        if (!ls_keep_is_ours(block[i]) && !ls_keep_has(ours, block[i]))
            whole = (all[n++] = ls_arena_strdup(arena, block[i])) != NULL;
    free(block);
    if (!whole || !all)
        return ls_error_set(err, LS_ERR_NOMEM, "starting rank %d", w->rank);
    for (int i = 0; i < extra; i++)
        all[n++] = ours[i];
    *env = all;
    return add_extras(k, w, arena, all, &n, err);
}

/* ---- start ---- */

/* In the child, between fork and exec: only what is safe there. What goes wrong is written to `fd`, which
 * closes by itself when the program starts. */
static void become(const struct ls_keeper *k, const struct ls_worker *w, const int out[static 2],
                   int fd, char **env, pid_t keeper)
{
    static const int caught[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    if (w->in_group)
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the keeper's death is its ranks' death */
    if (getppid() != keeper)
        _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        signal(caught[i], SIG_DFL);
    if (w->bound)
        sched_setaffinity(0, sizeof w->cpus, &w->cpus);
    int nothing = w->rank == 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if ((w->rank == 0 || dup2(nothing, STDIN_FILENO) >= 0) && dup2(out[0], STDOUT_FILENO) >= 0 &&
        dup2(out[1], STDERR_FILENO) >= 0)
        execvpe(k->config->program, k->config->argv, env);
    int why = errno;
    if (write(fd, &why, sizeof why) < 0)
        _exit(126);
    _exit(why == ENOENT ? 127 : 126);
}

/* Ports are let go just before the fork; nobody else may hold copies then, so each start waits for the
 * program to be there: its end of the pipe closes. */
static enum ls_status start(struct ls_keeper *k, struct ls_worker *w, int fd, char **env,
                            struct ls_error *err)
{
    int out[2], number = (int)(w - k->worker);
    enum ls_status status = ls_output_pipes(k->output, number, out, err);
    /* A program in another group than the terminal's cannot read from it. */
    w->in_group = !(w->rank == 0 && isatty(STDIN_FILENO));
    ls_wire_rendezvous_release(k->meet, number);
    for (int i = 0; i < 2 && w->rank == 0; i++)
        ls_wire_rendezvous_release(k->meet, k->config->workers + i);
    pid_t keeper = getpid(), pid = status == LS_OK ? fork() : -1;
    if (pid == 0)
        become(k, w, out, fd, env, keeper);
    if (status == LS_OK && pid < 0)
        status = ls_error_errno(err, errno, "starting rank %d", w->rank);
    close(fd);
    for (int i = 0; i < 2; i++)
        if (out[i] >= 0)
            close(out[i]);
    LS_TRY(status);
    if (w->in_group)
        setpgid(pid, pid); /* whoever comes first */
    w->pid = pid;
    ssize_t n;
    while ((n = read(w->record_fd, w->record, sizeof(int))) < 0 && errno == EINTR)
        ;
    w->nrecord = n > 0 ? (size_t)n : 0;
    return LS_OK;
}

/* ---- end ---- */

static bool is_stop(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}

static bool judge(struct ls_keeper *k, struct ls_worker *w, int status, struct ls_record *r,
                  bool *echo)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0, why;
    *r = (struct ls_record){.code = sig ? 128 + sig : WEXITSTATUS(status)};
    if (w->nrecord == sizeof why) {
        memcpy(&why, w->record, sizeof why);
        snprintf(r->message, sizeof r->message, "cannot execute '%.200s': %s", k->config->program,
                 strerror(why));
    } else if (sig) {
        char text[160];
        ls_keep_describe_signal(sig, text);
        snprintf(r->message, sizeof r->message, "%s", text);
    } else
        snprintf(r->message, sizeof r->message, "exited with status %d", r->code);
    /* Whoever was asked to end does so in its own time and way; and who dies of such a signal may have had it
     * before we had. */
    *echo = is_stop(sig);
    /* One that wants to be started again has saved, as `lockstep run` does; the others may still do so. */
    return r->code != 0 && !k->ending && r->code != LS_KEEP_REQUEUE;
}

static bool is_same(const struct ls_keeper *k, int sig, int nth)
{
    double age = ls_time_monotonic() - k->passed[sig];
    return k->passed[sig] > 0 && age < (nth <= k->answered[sig] ? LATE_REQUEST : SAME_REQUEST);
}

static void pass_on(struct ls_keeper *k, int sig, int nth)
{
    if (sig < 1 || sig > 64 || k->killed)
        return;
    bool same = is_same(k, sig, nth);
    if (nth > k->answered[sig])
        k->answered[sig] = nth;
    if (same)
        return;
    k->passed[sig] = ls_time_monotonic();
    k->ending |= is_stop(sig);
    for (int i = 0; i < k->config->workers; i++) {
        const struct ls_worker *w = &k->worker[i];
        if (w->pid > 0 && (w->in_group || k->at_terminal != sig))
            kill(w->pid, sig);
    }
}

void ls_keep_end_programs(struct ls_keeper *k, bool at_once)
{
    if (k->ending && !at_once)
        return; /* they end already */
    k->killed = true;
    ls_keeper_kill(k, at_once ? SIGKILL : SIGTERM);
    if (!at_once)
        k->kill_due = ls_time_monotonic() + GRACE;
}

const struct ls_keep_kind ls_keep_program_kind = {program_env, start,         judge,      pass_on,
                                                  is_stop,     .broken = 125, .late = 125};
