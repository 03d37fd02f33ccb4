/* See mini.h. */
#include "tests/wire/mini.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LS_HAVE_PMIX
#include <pmix.h>
#endif

extern char **environ;

// What sanitizers find inside PMIx is its own. It is built without frame pointers: only a full
// unwinding shows where a block came from.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "fast_unwind_on_malloc=0";
}
const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix\n";
}
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libpmix\n";
}

// ---- keeper -------------------------------------------------------------------------------------

struct worker {
    pid_t pid;
    int pidfd; // -1: has ended
    bool replaced;
};

struct mini {
    const struct mini_config *config;
    struct ls_wire_map map;
    struct ls_wire_server *server;
    struct ls_wire_control *control;
    struct worker worker[MINI_MAX]; // by rank
    int running;
    bool failed;
};

// The variables of the next generation travel as NEXT0=PMIX_..., NEXT1=...
static char **with_next(char **env, char **next)
{
    size_t n = 0, m = 0;
    while (env[n])
        n++;
    while (next[m])
        m++;
    char **all = calloc(n + m + 1, sizeof *all);
    memcpy(all, env, n * sizeof *all);
    for (size_t i = 0; i < m; i++)
        if (asprintf(&all[n + i], "NEXT%zu=%s", i, next[i]) < 0)
            abort();
    return all;
}

static bool start_worker(struct mini *m, int rank, int generation, const char *mode,
                         struct ls_error *err)
{
    char **env = NULL, **next = NULL, **both = NULL;
    int first = 0;
    setenv("MINI_MODE", mode, 1);
    if (ls_wire_server_env(m->server, generation, rank, environ, &env, NULL, err) != LS_OK)
        return false;
    if (strcmp(mode, "twice") == 0) {
        if (ls_wire_server_env(m->server, generation + 1, rank, NULL, &next, &first, err) != LS_OK)
            return false;
        both = with_next(env, next + first);
    }
    char *const argv[] = {(char *)(uintptr_t)m->config->program, (char[]){"worker"}, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execve(m->config->program, argv, both ? both : env);
        _exit(127);
    }
    for (size_t i = 0; both && both[i]; i++)
        if (strncmp(both[i], "NEXT", 4) == 0)
            free(both[i]);
    free(both);
    free(env);
    free(next);
    m->worker[rank] = (struct worker){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    m->running++;
    return pid > 0;
}

static void worker_ended(struct mini *m, int rank)
{
    const struct mini_config *c = m->config;
    struct worker *w = &m->worker[rank];
    int status;
    waitpid(w->pid, &status, 0);
    close(w->pidfd);
    w->pidfd = -1;
    m->running--;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    c->report->exit[rank] = code;
    if (strcmp(c->mode, "twice") == 0 && rank == c->victim && !w->replaced) {
        struct ls_error err = {0};
        start_worker(m, rank, 2, "exchange", &err);
        w->replaced = true;
        return;
    }
    char text[64];
    snprintf(text, sizeof text, "rank %d ended with %d", rank, code);
    if (code)
        ls_wire_control_fail(m->control, rank, code, code == 3, text);
    ls_wire_control_record(m->control, rank, &code, sizeof code);
}

static void kill_workers(struct mini *m)
{
    for (int r = 0; r < m->map.size; r++)
        if (m->worker[r].pidfd >= 0 && strcmp(m->config->mode, "hang") == 0)
            kill(m->worker[r].pid, SIGKILL);
}

static void note(struct mini *m, const struct ls_wire_event *e)
{
    struct mini_report *r = m->config->report;
    switch (e->kind) {
    case LS_WIRE_WORKER_READY:
        r->ready[e->rank]++;
        break;
    case LS_WIRE_WORKER_LEFT:
        r->left[e->rank]++;
        break;
    case LS_WIRE_WORKER_LOST:
        r->lost[e->rank]++;
        break;
    case LS_WIRE_WORKER_ABORT:
        r->aborted[e->rank] = e->code;
        ls_wire_control_fail(m->control, e->rank, e->code, false, e->text);
        break;
    case LS_WIRE_RECORD:
        r->records++;
        break;
    case LS_WIRE_FAILURE:
        // Workers are not killed: that they end by themselves is what is tested.
        m->failed = true;
        r->failures++;
        r->fail_rank = e->rank;
        snprintf(r->text, sizeof r->text, "%s", e->text);
        kill_workers(m);
        break;
    default:
        break;
    }
}

static void drain(struct mini *m, bool *done, int *code)
{
    struct ls_wire_event e;
    while (!*done && ls_wire_poll(m->server, m->control, &e)) {
        note(m, &e);
        if (e.kind == LS_WIRE_ALL_FINISHED)
            ls_wire_control_done(m->control, m->failed, "");
        if (e.kind == LS_WIRE_DONE) {
            *code = e.code;
            *done = true;
        }
    }
}

static int loop(struct mini *m)
{
    bool said = false, done = false;
    int code = 0;
    while (drain(m, &done, &code), !done) {
        if (!m->running && !said) {
            said = true;
            ls_wire_control_finished(m->control);
        }
        struct pollfd fd[MINI_MAX + 2];
        int rank[MINI_MAX + 2], n = 2;
        fd[0] = (struct pollfd){.fd = ls_wire_server_fd(m->server), .events = POLLIN};
        fd[1] = (struct pollfd){.fd = ls_wire_control_fd(m->control), .events = POLLIN};
        for (int r = 0; r < m->map.size; r++)
            if (m->worker[r].pidfd >= 0) {
                rank[n] = r;
                fd[n++] = (struct pollfd){.fd = m->worker[r].pidfd, .events = POLLIN};
            }
        poll(fd, (nfds_t)n, ls_wire_control_timeout(m->control));
        // First what a worker said (it aborts), then that it has ended.
        drain(m, &done, &code);
        for (int i = 2; i < n; i++)
            if (fd[i].revents)
                worker_ended(m, rank[i]);
    }
    return code;
}

static enum ls_status start_generation(struct mini *m, int generation, struct ls_error *err)
{
    const struct mini_config *c = m->config;
    LS_TRY(ls_wire_server_begin(m->server, "test", generation, &m->map, c->keeper, err));
    bool twice = strcmp(c->mode, "twice") == 0;
    if (twice)
        LS_TRY(ls_wire_server_begin(m->server, "test", generation + 1, &m->map, c->keeper, err));
    for (int r = m->map.first[c->keeper]; r < m->map.first[c->keeper + 1]; r++)
        if (!start_worker(m, r, generation, c->mode, err))
            return err->status;
    return LS_OK;
}

static int run(struct mini *m, struct ls_error *err)
{
    const struct mini_config *c = m->config;
    if (ls_wire_map_init(&m->map, c->n_keepers, c->node, c->workers, err) != LS_OK)
        return 100 + (int)err->status;
    double start = ls_time_monotonic();
    if (ls_wire_server_open(c->tmpdir, &m->server, err) != LS_OK)
        return 100 + (int)err->status;
    int code = 0;
    for (int g = 1; g <= c->generations && code == 0; g++) {
        // Every generation gets its own channel here, as its end is the channel's end.
        struct ls_wire_control_config config = {.rank = c->keeper,
                                                .size = c->n_keepers,
                                                .host = c->host,
                                                .exchange = c->exchange,
                                                .arg = c->arg};
        if (!m->control && ls_wire_control_open(&config, &m->control, err) != LS_OK)
            return 100 + (int)err->status;
        if (start_generation(m, g, err) != LS_OK)
            return 100 + (int)err->status;
        code = loop(m);
        ls_wire_server_end(m->server, g);
        ls_wire_control_close(m->control);
        m->control = NULL;
        c->report->boot = ls_time_monotonic() - start;
        start = ls_time_monotonic();
    }
    return code;
}

int mini_keep(const struct mini_config *config)
{
    signal(SIGPIPE, SIG_IGN);
    static struct mini m;
    m = (struct mini){.config = config, .control = config->control};
    for (int r = 0; r < MINI_MAX; r++)
        m.worker[r].pidfd = -1;
    char number[16];
    snprintf(number, sizeof number, "%d", config->victim);
    setenv("MINI_VICTIM", number, 1);
    setenv("MINI_HOST", config->host[config->keeper], 1);
    struct ls_error err = {0};
    int code = run(&m, &err);
    if (err.status != LS_OK)
        snprintf(config->report->text, sizeof config->report->text, "%s", err.message);
    ls_wire_control_close(m.control);
    ls_wire_server_close(m.server);
    ls_wire_map_free(&m.map);
    return code;
}

// ---- worker -------------------------------------------------------------------------------------

static int complain(const struct ls_wire_client *c, const char *what, const struct ls_error *err)
{
    fprintf(stderr, "# rank %d: %s: %s\n", c ? c->rank : -1, what, err ? err->message : "");
    return 5;
}

// Bytes that depend on rank, round and place; rank 0 stays silent in round 1.
static size_t blob_size(int rank, int round)
{
    if (round == 1 && rank == 0)
        return 0;
    return round == 2 ? 40000 + (size_t)rank : (size_t)(rank + 1) * 17;
}

static bool check_all(const struct ls_wire_client *c, const void *const *all, const size_t *bytes,
                      int round)
{
    for (int r = 0; r < c->size; r++) {
        if (bytes[r] != blob_size(r, round))
            return false;
        for (size_t i = 0; i < bytes[r]; i++)
            if (((const unsigned char *)all[r])[i] != (unsigned char)(i * 3 + (size_t)(r + round)))
                return false;
    }
    return true;
}

static enum ls_status one_round(struct ls_wire_client *c, int round, bool *right,
                                struct ls_error *err)
{
    size_t n = blob_size(c->rank, round);
    unsigned char *mine = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        mine[i] = (unsigned char)(i * 3 + (size_t)(c->rank + round));
    const void *const *all;
    const size_t *bytes;
    enum ls_status st = ls_wire_exchange(c, mine, n, &all, &bytes, err);
    free(mine);
    *right = st == LS_OK && check_all(c, all, bytes, round);
    return st;
}

static bool check_places(const struct ls_wire_client *c)
{
    int local = 0, size = 0, top = 0;
    for (int r = 0; r < c->size; r++) {
        bool mine = c->node[r] == c->node[c->rank];
        local += mine && r < c->rank;
        size += mine;
        if (c->node[r] > top)
            return false; // not in the order of the lowest rank
        top += c->node[r] == top;
    }
    return local == c->local_rank && size == c->local_size && top == c->n_nodes &&
           strcmp(c->host[c->rank], getenv("MINI_HOST") ? getenv("MINI_HOST") : "") == 0;
}

static int ask_for_nothing(struct ls_wire_client *c)
{
#ifdef LS_HAVE_PMIX
    // Of every rank, so of a local and of a remote one where there are several keepers.
    for (int r = 0; r < c->size; r++) {
        pmix_proc_t peer;
        PMIX_LOAD_PROCID(&peer, c->job, (pmix_rank_t)r);
        pmix_value_t *v = NULL;
        if (PMIx_Get(&peer, "nobody.has.this", NULL, 0, &v) == PMIX_SUCCESS)
            return complain(c, "got what nobody published", NULL);
    }
#else
    (void)c;
#endif
    return 0;
}

static int misbehave(struct ls_wire_client *c, const char *mode)
{
    if (strcmp(mode, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(mode, "hang") == 0)
        raise(SIGSTOP);
    if (strcmp(mode, "abort") == 0) {
        ls_wire_client_abort(c, 7, "enough of this");
        _exit(9);
    }
    return 5;
}

static int boot(const char *mode, int victim, bool again)
{
    struct ls_wire_client *c;
    struct ls_error err = {0};
    enum ls_status st = ls_wire_client_open(
        getenv("MINI_HOST"), strcmp(mode, "hang") == 0 || strcmp(mode, "early") == 0 ? 2 : 30, &c,
        &err);
    if (st != LS_OK) {
        // A rank that died before it opened is an aborted exchange for the others.
        bool expected =
            strcmp(mode, "early") == 0 && (st == LS_ERR_ABORTED || st == LS_ERR_TIMEOUT);
        return expected ? 3 : complain(NULL, "open", &err);
    }
    int code = check_places(c) ? 0 : complain(c, "ranks are misplaced", NULL);
    bool odd = c->rank == victim && !again;
    for (int round = 0; round < 3 && code == 0; round++) {
        if (round == 1 && odd && strcmp(mode, "twice") != 0 && strcmp(mode, "exchange") != 0 &&
            strcmp(mode, "absent") != 0)
            code = misbehave(c, mode);
        bool right = false;
        st = one_round(c, round, &right, &err);
        if (st == LS_ERR_ABORTED || st == LS_ERR_TIMEOUT)
            code = 3;
        else if (!right)
            code = complain(c, "exchange", &err);
    }
    if (code == 0 && strcmp(mode, "absent") == 0)
        code = ask_for_nothing(c);
    if (code == 0 && odd && strcmp(mode, "twice") == 0)
        raise(SIGKILL);
    ls_wire_client_close(c);
    return code;
}

static bool take_next(void)
{
    char *next[64] = {0}, name[16];
    for (int i = 0; i < 63; i++) {
        snprintf(name, sizeof name, "NEXT%d", i);
        const char *v = getenv(name);
        if (!v)
            break;
        next[i] = strdup(v);
    }
    struct ls_error err = {0};
    bool ok = next[0] && ls_wire_env_take(next, &err) == LS_OK;
    for (int i = 0; next[i]; i++)
        free(next[i]);
    return ok;
}

int mini_work(void)
{
    const char *mode = getenv("MINI_MODE"), *number = getenv("MINI_VICTIM");
    if (!mode)
        mode = "exchange";
    int victim = number ? atoi(number) : -1;
    const char *rank = getenv("PMIX_RANK");
    if (strcmp(mode, "early") == 0 && rank && atoi(rank) == victim)
        raise(SIGKILL);
    int code = boot(mode, victim, false);
    if (code == 0 && strcmp(mode, "twice") == 0)
        code = take_next() ? boot(mode, victim, true) : complain(NULL, "no next generation", NULL);
    return code;
}
