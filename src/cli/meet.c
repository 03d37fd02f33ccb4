/* How a worker meets the other ranks: PMIx, fingerprint, communicators; PMIx is left before training. */
#include "cli/cli.h"
#include "cli/worker.h"
#include "keep/keep.h"
#include "topo/topo.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

#define MEET_DEADLINE    60.0 /* seconds for all ranks to start */
#define CONNECT_DEADLINE 3.0

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
    ranks->host = calloc((size_t)c->size + 1, sizeof *ranks->host);
    int *all = malloc((size_t)c->size * sizeof *all);
    if (!ranks->host || !all) {
        free(all);
        return ls_error_set(err, LS_ERR_NOMEM, "meeting the other ranks");
    }
    for (int r = 0; r < c->size && status == LS_OK; r++) {
        all[r] = r;
        if (!(ranks->host[r] = strdup(c->host[r])))
            status = ls_error_set(err, LS_ERR_NOMEM, "meeting the other ranks");
    }
    ranks->rank = c->rank;
    ranks->size = c->size;
    struct ls_comm_config config = {.rank = c->rank,
                                    .size = c->size,
                                    .node = c->node,
                                    .host = (const char *const *)ranks->host,
                                    .exchange = ls_wire_exchange,
                                    .arg = c,
                                    .deadline = job->recover.hang_kill,
                                    .connect_deadline = CONNECT_DEADLINE,
                                    .is_set = is_set};
    if (status == LS_OK)
        status = ls_comm_open(&config, &ranks->world, err);
    if (status == LS_OK)
        status = ls_comm_group(ranks->world, "data", all, c->size, &ranks->data, err);
    if (status == LS_OK)
        status = ls_comm_choose(ranks->data, ls_cli_all_reduce(job), err);
    free(all);
    return status;
}

enum ls_status ls_worker_meet(const struct ls_job *job, const char *plugin_dir,
                              struct ls_ranks *ranks, struct ls_error *err)
{
    const struct ls_device_api *device = NULL;
    struct ls_wire_client *client = NULL;
    struct ls_error quiet = {0};
    *ranks = (struct ls_ranks){.size = 1};
    if (!getenv("PMIX_NAMESPACE"))
        return alone(err);
    const char *began = getenv(LS_KEEP_BEGAN_VARIABLE);
    double start = began ? strtod(began, NULL) : ls_time_monotonic();
    enum ls_status status =
        ls_wire_client_open(getenv("SLURMD_NODENAME"), MEET_DEADLINE, &client, &quiet);
    if (status == LS_ERR_NOTFOUND)
        return alone(err);
    if (status != LS_OK)
        return ls_error_set(err, status, "%s", quiet.message);
    status = check_slurm(client, err);
    /* Training needs the backend anyway; loaded now, it tells its version. */
    if (status == LS_OK && client->size > 1)
        status = ls_device_load(plugin_dir, ls_train_device(job), &device, err);
    if (device)
        status = connect_ranks(job, device->version(), client, ranks, err);
    ranks->bootstrap = ls_time_monotonic() - start;
    if (status != LS_OK && !getenv(LS_RECORD_FD_VARIABLE))
        ls_wire_client_abort(client, ls_cli_exit_code(status),
                             err->message); /* no keeper above: end the others through PMIx */
    ls_wire_client_close(client);
    return status;
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
    for (int r = 0; ranks->host && r < ranks->size; r++)
        free(ranks->host[r]);
    free(ranks->host);
}
