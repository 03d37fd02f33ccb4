/* How a worker meets the other ranks: PMIx, fingerprint, communicators; PMIx is left before training. */
#include "cli/cli.h"
#include "cli/worker.h"
#include "keep/keep.h"
#include "topo/topo.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_DEADLINE 3.0

/* The memory in which a keeper sees what this rank does; NULL: no keeper. It stays until the end of the process. */
static struct ls_comm_window *open_window(void)
{
    const char *text = getenv(LS_KEEP_WINDOW_VARIABLE);
    struct stat s;
    void *map = MAP_FAILED;
    int fd = text ? (int)strtol(text, NULL, 10) : -1;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &s) == 0 && s.st_size >= (off_t)sizeof(struct ls_comm_window))
        map = mmap(NULL, sizeof(struct ls_comm_window), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

static bool is_set(const char *name)
{
    return getenv(name) != NULL;
}

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* Slurm's PMIx must talk of the same tasks as its variables; that of mpirun or of a keeper has its own. */
static enum ls_status check_slurm(const struct ls_wire_client *c, struct ls_error *err)
{
    struct ls_slurm slurm;
    struct ls_pmix_view view = ls_wire_view(c);
    if (strncmp(c->job, "slurm.", 6) != 0)
        return LS_OK;
    LS_TRY(ls_slurm_read(read_env, NULL, &slurm, err));
    enum ls_status status = ls_slurm_check_pmix(&slurm, &view, NULL, err);
    ls_slurm_free(&slurm);
    return status;
}

/* Launchers that start several processes, and the variable by which they tell how many. */
static const struct {
    const char *name, *variable;
} launchers[] = {{"mpirun", "OMPI_COMM_WORLD_SIZE"}, {"mpiexec", "PMI_SIZE"}};

/* Nothing above speaks PMIx. That is fine for one process, and never for one of several. */
static enum ls_status alone(struct ls_error *err)
{
    struct ls_slurm slurm;
    struct ls_pmix_view none = {.found = false};
    enum ls_status status = ls_slurm_read(read_env, NULL, &slurm, err);
    if (status == LS_OK && slurm.place == LS_SLURM_STEP)
        status = ls_slurm_check_pmix(&slurm, &none, NULL, err);
    ls_slurm_free(&slurm);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && status == LS_OK; i++) {
        const char *size = getenv(launchers[i].variable);
        if (size && *size && strcmp(size, "1") != 0)
            status = ls_error_set(
                err, LS_ERR_ENV,
                "%s started %.20s processes (%s), but PMIx does not answer: it has none, or one of "
                "its own that does not fit; use lockstep run -n %.20s",
                launchers[i].name, size, launchers[i].variable, size);
    }
    return status;
}

/* Whatever happens next, this rank can say who it is. */
static enum ls_status know_ranks(const struct ls_wire_client *c, struct ls_ranks *ranks,
                                 struct ls_error *err)
{
    ranks->host = calloc((size_t)c->size + 1, sizeof *ranks->host);
    for (int r = 0; r < c->size; r++)
        if (!ranks->host || !(ranks->host[r] = strdup(c->host[r])))
            return ls_error_set(err, LS_ERR_NOMEM, "meeting the other ranks");
    ranks->rank = c->rank;
    ranks->size = c->size;
    return LS_OK;
}

static enum ls_status connect_ranks(const struct ls_job *job, const char *device,
                                    struct ls_wire_client *c, struct ls_ranks *ranks,
                                    struct ls_error *err)
{
    struct ls_buf text;
    enum ls_status status = ls_worker_fingerprint(job, device, &text, err);
    if (status == LS_OK)
        status = ls_wire_fingerprint(ls_wire_exchange, c, text.data, c->host, c->size, err);
    ls_buf_free(&text);
    LS_TRY(status);
    int *all = malloc((size_t)c->size * sizeof *all);
    if (!all)
        return ls_error_set(err, LS_ERR_NOMEM, "meeting the other ranks");
    for (int r = 0; r < c->size; r++)
        all[r] = r;
    struct ls_comm_config config = {.rank = c->rank,
                                    .size = c->size,
                                    .node = c->node,
                                    .host = (const char *const *)ranks->host,
                                    .exchange = ls_wire_exchange,
                                    .arg = c,
                                    .deadline = job->recover.hang_kill,
                                    .connect_deadline = CONNECT_DEADLINE,
                                    .all_meet = job->parallel.all_reduce == LS_REDUCE_EXCHANGE,
                                    .is_set = is_set,
                                    .window = open_window()};
    status = ls_ranks_heard(ls_comm_open(&config, &ranks->world, err), err);
    if (status == LS_OK)
        status = ls_comm_group(ranks->world, "data", all, c->size, &ranks->data, err);
    if (status == LS_OK)
        status = ls_comm_choose(ranks->data, ls_cli_all_reduce(job), err);
    free(all);
    return status;
}

static void say(void *arg, const char *text)
{
    (void)arg;
    ls_cli_error("%s", text);
}

enum ls_status ls_worker_meet(const struct ls_job *job, const char *plugin_dir,
                              struct ls_ranks *ranks, struct ls_wire_client **client,
                              struct ls_error *err)
{
    const struct ls_device_api *device = NULL;
    struct ls_error quiet = {0};
    *ranks = (struct ls_ranks){.size = 1};
    if (!getenv("PMIX_NAMESPACE"))
        return alone(err);
    const char *began = getenv(LS_KEEP_BEGAN_VARIABLE);
    double start = began ? strtod(began, NULL) : ls_time_monotonic();
    static const struct ls_wire_teller teller = {.say = say, .code = LS_EXIT_TIMEOUT};
    enum ls_status status = ls_wire_client_open_telling(
        getenv("SLURMD_NODENAME"), LS_WIRE_ARRIVAL, getenv(LS_RECORD_FD_VARIABLE) ? NULL : &teller,
        client, &quiet); /* a keeper tells */
    if (status == LS_ERR_NOTFOUND)
        return alone(err);
    if (status != LS_OK)
        return ls_error_set(err, status, "%s", quiet.message);
    struct ls_wire_client *c = *client;
    if (c->size > 1)
        LS_TRY(know_ranks(c, ranks, err));
    LS_TRY(check_slurm(c, err));
    /* Training needs the backend anyway; loaded now, it tells its version. */
    if (c->size > 1) {
        LS_TRY(ls_device_load(plugin_dir, ls_train_device(job), &device, err));
        LS_TRY(connect_ranks(job, device->version(), c, ranks, err));
    }
    ranks->bootstrap = ls_time_monotonic() - start;
    ls_wire_client_close(c);
    *client = NULL;
    return LS_OK;
}

void ls_worker_give_up(struct ls_wire_client *client, int code, const char *message)
{
    if (client && !getenv(LS_RECORD_FD_VARIABLE))
        ls_wire_client_abort(client, code, message); /* no keeper above: through PMIx */
    ls_wire_client_close(client);
}

void ls_worker_abort(struct ls_ranks *ranks, const char *reason)
{
    if (ranks->world)
        ls_comm_abort(ranks->world, reason);
}

void ls_worker_leave(struct ls_ranks *ranks, bool together)
{
    /* Nobody closes while a peer still needs an answer. */
    if (together && ranks->data)
        ls_comm_barrier(ranks->data, NULL);
    if (ranks->data)
        ls_comm_group_close(ranks->data);
    if (ranks->world)
        ls_comm_close(ranks->world);
    for (int r = 0; ranks->host && ranks->host[r]; r++)
        free(ranks->host[r]);
    free(ranks->host);
}
