/* Finds the other keepers, works out which rank runs where, and starts this keeper's workers. */
#include "keep/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Keepers that each print their own lines; with more, only keeper 0 does. */
#define MOST_LAYOUTS 16

static enum ls_status copy_hosts(struct ls_keeper *k, int n, const char *const *host,
                                 struct ls_error *err)
{
    k->host = calloc((size_t)n + 1, sizeof *k->host);
    for (int i = 0; k->host && i < n; i++)
        if (!(k->host[i] = strdup(host[i])))
            return ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
    return k->host ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
}

/* Programs meet at an address and ports of our finding. */
static enum ls_status arrange(struct ls_keeper *k, ls_wire_exchange_fn *exchange,
                              struct ls_error *err)
{
    if (!k->config->programs)
        return LS_OK;
    return ls_wire_rendezvous_open(k->me, k->map.n_keepers, (const char *const *)k->host,
                                   ls_keep_ports(k->me, k->config->workers), exchange, k->client,
                                   &k->meet, err);
}

/* One keeper alone: no PMIx above, no sockets. */
static enum ls_status meet_nobody(struct ls_keeper *k, struct ls_error *err)
{
    char name[256] = "localhost";
    const int node = 0;
    gethostname(name, sizeof name - 1);
    const char *host = k->config->host ? k->config->host : name;
    LS_TRY(copy_hosts(k, 1, &host, err));
    LS_TRY(ls_wire_map_init(&k->map, 1, &node, &k->config->workers, err));
    LS_TRY(arrange(k, NULL, err));
    struct ls_wire_control_config config = {.size = 1, .host = &host};
    return ls_wire_control_open(&config, &k->control, err);
}

/* What every keeper says of itself: how many workers it will have, or why it has none. */
struct greeting {
    int workers, status;
    int unfit;
    char check[8]; /* "off", "fast", "full"; "": not known */
    char why[sizeof((struct ls_error){0}.message)];
};

static enum ls_status refuse(const struct ls_wire_client *c, const struct greeting *g, int i,
                             struct ls_error *err)
{
    return ls_error_set(err, (enum ls_status)g[i].status, "task %d on %s cannot take part: %s", i,
                        c->host[i], g[i].why);
}

static bool is_same_check(const struct greeting *a, const struct greeting *b)
{
    return !*a->check || !*b->check || !strcmp(a->check, b->check);
}

/* Names the first task that checks otherwise than most do. */
static enum ls_status compare_checks(const struct ls_wire_client *c, const struct greeting *g,
                                     struct ls_error *err)
{
    int usual = 0, most = -1, odd = 0;
    for (int i = 0; i < c->size && 2 * most <= c->size; i++) {
        int n = 0;
        for (int j = 0; j < c->size; j++)
            n += *g[i].check && !strcmp(g[i].check, g[j].check);
        if (n > most) {
            most = n;
            usual = i;
        }
    }
    while (odd < c->size && is_same_check(&g[odd], &g[usual]))
        odd++;
    if (odd == c->size)
        return LS_OK;
    return ls_error_set(err, LS_ERR_ENV,
                        "task %d on %s has LOCKSTEP_CHECK=%s, task %d on %s has %s (off: or not "
                        "set, or LOCKSTEP_CHECKED is): give all tasks the same",
                        odd, c->host[odd], g[odd].check, usual, c->host[usual], g[usual].check);
}

/* The first keeper that cannot take part ends all of them, before anything is started. */
static enum ls_status judge(const struct ls_wire_client *c, const struct greeting *g, int *workers,
                            struct ls_error *err)
{
    for (int i = 0; i < c->size; i++)
        if (g[i].workers < 1 && !g[i].unfit)
            return refuse(c, g, i, err);
    LS_TRY(compare_checks(c, g, err));
    for (int i = 0; i < c->size; i++) {
        if (g[i].workers < 1)
            return refuse(c, g, i, err);
        workers[i] = g[i].workers;
    }
    return LS_OK;
}

static enum ls_status hear(struct ls_keeper *k, const struct ls_wire_client *c,
                           const struct greeting *mine, int *workers, struct ls_error *err)
{
    const void *const *all;
    const size_t *bytes;
    LS_TRY(ls_wire_exchange(k->client, mine, sizeof *mine, &all, &bytes, err));
    struct greeting *g = calloc((size_t)c->size, sizeof *g);
    if (!g)
        return ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
    enum ls_status status = LS_OK;
    k->common = true;
    for (int i = 0; i < c->size && status == LS_OK; i++) {
        if (bytes[i] != sizeof *g) {
            status = ls_error_set(err, LS_ERR_ENV,
                                  "task %d on %s is of another version of lockstep", i, c->host[i]);
            break;
        }
        memcpy(&g[i], all[i], sizeof *g);
        g[i].check[sizeof g->check - 1] = '\0';
        g[i].why[sizeof g->why - 1] = '\0';
    }
    if (status == LS_OK)
        status = judge(c, g, workers, err);
    free(g);
    k->common = status != LS_OK;
    return status;
}

static void say(void *arg, const char *text)
{
    const struct ls_keeper *k = arg;
    fprintf(k->config->out, "lockstep: %s\n", text);
    fflush(k->config->out);
}

void ls_keeper_leave_slurm(struct ls_keeper *k)
{
    ls_wire_client_close(k->client);
    k->client = NULL;
    if (k->rolled)
        ls_wire_roll_end();
    k->rolled = false;
}

/* Where the tasks of one node do not all check, the fence of one that does not hides it from the others. They end all,
 * as they must anyway. */
#define UNFIT_ARRIVAL 5.0

static enum ls_status follow(struct ls_keeper *k, struct ls_error *err)
{
    const struct ls_keep_config *c = k->config;
    struct ls_error late = {0};
    if (!c->unfit)
        return ls_wire_roll_again(LS_WIRE_ARRIVAL, err);
    enum ls_status status = ls_wire_roll_again(UNFIT_ARRIVAL, &late);
    if (status == LS_OK)
        return LS_OK;
    ls_error_set(err, c->refusal->status,
                 "%s has LOCKSTEP_CHECK=%s, and another task of it does otherwise: give all tasks "
                 "the same",
                 c->host ? c->host : "this node", c->check);
    say(k, err->message);
    ls_wire_roll_abort(k->kind->late, err->message);
    err->message[0] = '\0';
    return c->refusal->status;
}

/* Through Slurm's PMIx. */
static enum ls_status meet_keepers(struct ls_keeper *k, struct ls_error *err)
{
    const struct ls_keep_config *config = k->config;
    k->teller = (struct ls_wire_teller){.say = say, .arg = k, .code = k->kind->late};
    k->rolled = true;
    if (config->follows)
        LS_TRY(follow(k, err));
    else /* whoever checks first must not wait for this one */
        ls_wire_roll_decline(config->refusal ? config->refusal->message
                                             : "starts without a check: LOCKSTEP_CHECK is off "
                                               "there, or not set, or LOCKSTEP_CHECKED is");
    LS_TRY(ls_wire_client_open_telling(config->host, LS_WIRE_ARRIVAL, &k->teller, &k->client, err));
    const struct ls_wire_client *c = k->client;
    struct ls_pmix_view view = ls_wire_view(c);
    struct ls_error mine = {0};
    k->me = c->rank;
    LS_TRY(copy_hosts(k, c->size, c->host, err));
    if (config->refusal)
        mine = *config->refusal;
    else
        ls_slurm_check_pmix(config->step, &view, NULL, &mine);
    struct greeting greeting = {.workers = mine.status == LS_OK ? config->workers : 0,
                                .status = (int)mine.status,
                                .unfit = config->refusal && config->unfit};
    snprintf(greeting.check, sizeof greeting.check, "%s", config->check ? config->check : "");
    snprintf(greeting.why, sizeof greeting.why, "%s", mine.message);
    int *workers = calloc((size_t)c->size, sizeof *workers);
    if (!workers)
        return ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
    enum ls_status status = hear(k, c, &greeting, workers, err);
    if (status == LS_OK)
        status = ls_wire_map_init(&k->map, c->size, c->node, workers, err);
    free(workers);
    LS_TRY(status);
    LS_TRY(arrange(k, ls_wire_exchange, err));
    struct ls_wire_control_config control = {.rank = c->rank,
                                             .size = c->size,
                                             .host = (const char *const *)k->host,
                                             .exchange = ls_wire_exchange,
                                             .arg = k->client};
    LS_TRY(ls_wire_control_open(&control, &k->control, err));
    /* Finalized before training: from here on a death is ours to handle, not Slurm's. */
    ls_keeper_leave_slurm(k);
    return LS_OK;
}

/* ---- workers ---- */

static enum ls_status start_worker(struct ls_keeper *k, struct ls_worker *w, struct ls_error *err)
{
    int pipe_fd[2];
    struct ls_arena arena = {0};
    char **env = NULL;
    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return ls_error_errno(err, errno, "starting rank %d", w->rank);
    w->record_fd = pipe_fd[0];
    enum ls_status status = k->kind->env(k, w, pipe_fd[1], &arena, &env, err);
    if (status == LS_OK)
        status = k->kind->start(k, w, pipe_fd[1], env, err);
    ls_arena_free(&arena);
    if (w->window_fd >= 0)
        close(w->window_fd);
    w->window_fd = -1;
    fcntl(w->record_fd, F_SETFL, O_NONBLOCK);
    LS_TRY(status);
    w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
    k->running++;
    if (w->pidfd < 0)
        return ls_error_errno(err, errno, "watching rank %d", w->rank);
    fcntl(w->pidfd, F_SETFD, FD_CLOEXEC);
    return LS_OK;
}

static enum ls_status choose_cpus(struct ls_keeper *k, struct ls_error *err)
{
    const struct ls_keep_config *c = k->config;
    cpu_set_t mask;
    struct ls_keep_cpu *cpus = NULL;
    int n = 0;
    bool whole = true;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return ls_error_errno(err, errno, "reading the CPU mask");
    LS_TRY(ls_keep_cpus("", &mask, &cpus, &n, err));
    for (int i = 0; i < c->workers; i++) {
        struct ls_worker *w = &k->worker[i];
        w->bound = ls_keep_split(cpus, n, c->workers, i, &w->cpus);
        if (k->decision && k->decision[i].bound) {
            w->bound = true;
            w->cpus = k->decision[i].cpus;
        }
        if (!c->bind) {
            w->bound = false;
            w->cpus = mask;
        }
        int cores = ls_keep_cores(cpus, n, &w->cpus) / (w->bound ? 1 : c->workers);
        w->cores = cores > 0 ? cores : 1;
        whole = whole && ls_keep_limit_threads(k, w);
    }
    free(cpus);
    return whole ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
}

/* The words of keeper 0 for how the ranks are spread. */
static void print_numbers(const struct ls_keeper *k)
{
    const struct ls_wire_map *m = &k->map;
    int least = m->size, most = 0;
    for (int i = 0; i < m->n_keepers; i++) {
        int n = m->first[i + 1] - m->first[i];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    const char *what = m->n_keepers == 1 ? "keeper" : "keepers";
    if (least == most)
        fprintf(k->config->out, "%d ranks: %d on each of %d %s\n", m->size, most, m->n_keepers,
                what);
    else
        fprintf(k->config->out, "%d ranks: %d to %d on each of %d %s\n", m->size, least, most,
                m->n_keepers, what);
}

static void print_layout(const struct ls_keeper *k)
{
    char text[128];
    if (k->config->quiet || k->map.size == 1 || (k->me > 0 && k->map.n_keepers > MOST_LAYOUTS))
        return;
    if (k->me == 0)
        print_numbers(k);
    for (int i = 0; i < k->config->workers; i++)
        fprintf(k->config->out, "  rank %d on %s, CPUs %s%s\n", k->worker[i].rank, k->host[k->me],
                ls_keep_format_cpus(&k->worker[i].cpus, text),
                k->worker[i].bound ? ""
                : k->config->bind  ? ", shared: fewer cores than ranks"
                                   : ", not bound");
    fflush(k->config->out);
}

enum ls_status ls_keeper_start(struct ls_keeper *k, struct ls_error *err)
{
    const struct ls_keep_config *c = k->config;
    LS_TRY(c->step ? meet_keepers(k, err) : meet_nobody(k, err));
    if (c->begun)
        *c->begun = 1;
    k->worker = calloc((size_t)c->workers, sizeof *k->worker);
    k->records = calloc((size_t)k->map.size, sizeof *k->records);
    k->has_record = calloc((size_t)k->map.size, sizeof *k->has_record);
    if (!k->worker || !k->records || !k->has_record)
        return ls_error_set(err, LS_ERR_NOMEM, "starting the keeper");
    for (int i = 0; i < c->workers; i++)
        k->worker[i] = (struct ls_worker){
            .rank = k->map.first[k->me] + i, .pidfd = -1, .record_fd = -1, .window_fd = -1};
    LS_TRY(ls_keep_apply_rules(k, err));
    LS_TRY(choose_cpus(k, err));
    ls_keep_say_rules(k);
    if (c->programs)
        LS_TRY(ls_keep_prepare_programs(k, err));
    LS_TRY(ls_wire_env_take(NULL, err));
    LS_TRY(ls_wire_server_open(c->tmpdir, &k->server, err));
    /* Libraries name files of the whole machine by it, so programs of two runs must not share it. */
    LS_TRY(ls_wire_server_begin(k->server, c->programs ? c->programs->job : "lockstep", 1, &k->map,
                                k->me, err));
    print_layout(k);
    for (int i = 0; i < c->workers; i++)
        LS_TRY(start_worker(k, &k->worker[i], err));
    return LS_OK;
}
