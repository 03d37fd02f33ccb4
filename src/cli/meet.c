/* How a worker meets the other ranks: PMIx, fingerprint, communicators; PMIx is left before training. */
#include "cli/cli.h"
#include "cli/worker.h"
#include "topo/topo.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"

#define MEET_DEADLINE    60.0 /* seconds for all ranks to start */
#define CONNECT_DEADLINE 3.0
/* Seconds that a collective may wait for a rank. A dead one is noticed at once by its keeper; this is for
 * ranks that hang, and must outlast a slow checkpoint of rank 0. */
#define WAIT_DEADLINE 300.0

extern char **environ;

static bool is_set(const char *name)
{
    return getenv(name) != NULL;
}

/* Is this "NAME=value" what Slurm's plugin has set for this very task? Such may differ between nodes, as
 * their devices do; `lockstep check` compares those. */
static bool set_by_plugin(const char *variable)
{
    size_t size = strlen(variable);
    for (const char *at = getenv("LOCKSTEP_SET"); at && *at;) {
        size_t n = strcspn(at, ";");
        if (n == size && !strncmp(at, variable, n))
            return true;
        at += n + (at[n] == ';');
    }
    return false;
}

/* Settings that must be the same on all ranks, or they talk past each other. */
static bool relevant(const char *variable)
{
    static const char *const prefixes[] = {"UCX_", "NCCL_", "OMP_",    "GOMP_",
                                           "KMP_", "DNNL_", "ONEDNN_", "LOCKSTEP_"};
    static const char *const own[] = {"LOCKSTEP_RECORD_FD=", "LOCKSTEP_THREADS=", "LOCKSTEP_SET="};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strncmp(variable, own[i], strlen(own[i])))
            return false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
            return !set_by_plugin(variable);
    return false;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum ls_status write_fingerprint(const struct ls_job *job, struct ls_buf *text,
                                        struct ls_error *err)
{
    char pmix[64];
    ls_buf_init(text, (size_t)1 << 19);
    ls_buf_printf(text, "lockstep=%s\npmix=%s\nucx=%s\njob=%016llx\n", PACKAGE_VERSION,
                  ls_wire_pmix_version(pmix), ls_comm_ucx_version(),
                  (unsigned long long)ls_job_hash(job));
    int n = 0;
    while (environ[n])
        n++;
    char **sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    if (!sorted)
        return ls_error_set(err, LS_ERR_NOMEM, "comparing the ranks");
    memcpy(sorted, environ, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_text);
    for (int i = 0; i < n; i++)
        if (relevant(sorted[i]))
            ls_buf_printf(text, "%s\n", sorted[i]);
    free(sorted);
    return text->failed ? ls_error_set(err, LS_ERR_NOMEM, "comparing the ranks") : LS_OK;
}

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* Nothing above speaks PMIx. That is fine for one process, and never for one of several. */
static enum ls_status alone(struct ls_error *err)
{
    struct ls_slurm slurm;
    struct ls_pmix_view none = {.found = false};
    enum ls_status status = ls_slurm_read(read_env, NULL, &slurm, err);
    if (status == LS_OK && slurm.place == LS_SLURM_STEP)
        status = ls_slurm_check_pmix(&slurm, &none, NULL, err);
    ls_slurm_free(&slurm);
    const char *mpirun = getenv("OMPI_COMM_WORLD_SIZE");
    if (status == LS_OK && mpirun && strcmp(mpirun, "1") != 0)
        status = ls_error_set(
            err, LS_ERR_ENV,
            "mpirun started %s processes, but PMIx does not answer: this mpirun brings a "
            "PMIx of its own that does not fit; use lockstep run -n %s",
            mpirun, mpirun);
    return status;
}

static enum ls_status connect_ranks(const struct ls_job *job, struct ls_wire_client *c,
                                    struct ls_ranks *ranks, struct ls_error *err)
{
    struct ls_buf text;
    enum ls_status status = write_fingerprint(job, &text, err);
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
                                    .deadline = WAIT_DEADLINE,
                                    .connect_deadline = CONNECT_DEADLINE,
                                    .is_set = is_set};
    if (status == LS_OK)
        status = ls_comm_open(&config, &ranks->world, err);
    if (status == LS_OK)
        status = ls_comm_group(ranks->world, "data", all, c->size, &ranks->data, err);
    static const char *const algorithms[] = {[LS_REDUCE_AUTO] = "auto",
                                             [LS_REDUCE_STAGED] = "staged",
                                             [LS_REDUCE_EXCHANGE] = "exchange",
                                             [LS_REDUCE_HALVING] = "halving",
                                             [LS_REDUCE_RING] = "ring"};
    if (status == LS_OK)
        status = ls_comm_choose(ranks->data, algorithms[job->parallel.all_reduce], err);
    free(all);
    return status;
}

enum ls_status ls_worker_meet(const struct ls_job *job, struct ls_ranks *ranks,
                              struct ls_error *err)
{
    struct ls_wire_client *client = NULL;
    struct ls_error quiet = {0};
    *ranks = (struct ls_ranks){.size = 1};
    if (!getenv("PMIX_NAMESPACE"))
        return alone(err);
    enum ls_status status =
        ls_wire_client_open(getenv("SLURMD_NODENAME"), MEET_DEADLINE, &client, &quiet);
    if (status == LS_ERR_NOTFOUND)
        return alone(err);
    if (status != LS_OK)
        return ls_error_set(err, status, "%s", quiet.message);
    if (client->size > 1)
        status = connect_ranks(job, client, ranks, err);
    if (status != LS_OK && !getenv("LOCKSTEP_RECORD_FD"))
        ls_wire_client_abort(client, 1,
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
