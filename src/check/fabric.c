/* The fabric as the ranks of a job use it: collectives with known results, and the bandwidth of pairs of
 * nodes, over src/comm. */
#include "check/internal.h"
#include "comm/comm.h"
#include "wire/wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_DEADLINE    5.0
#define CONNECT_DEADLINE 3.0
/* A pair is measured in each sweep, by the best of REPEATS: what else ran at that moment must not count. What
 * the figures of the sweeps differ is the noise (pairs.h). */
enum { REPEATS = 3, SWEEPS = 5 };

struct fabric {
    const struct ls_check_context *context;
    struct ls_wire_client *client;
    struct ls_buf *out;
    struct ls_comm_world *world;
    struct ls_comm *all, *leaders;
    int *leader; /* [nodes] lowest rank of each */
    int fd;      /* to the parent */
    const char *id, *doing;
};

/* What is begun: told to the parent, and said with what then fails. */
static void begin(struct fabric *f, const char *id, const char *doing)
{
    char text[160];
    f->id = id;
    f->doing = doing;
    snprintf(text, sizeof text, "%s %s", id, doing);
    ls_check_frame_doing(f->fd, text, NULL);
}

static bool is_set(const char *name)
{
    return getenv(name) != NULL;
}

static enum ls_status open_world(struct fabric *f, struct ls_error *err)
{
    struct ls_wire_client *c = f->client;
    struct ls_comm_config config = {.rank = c->rank,
                                    .size = c->size,
                                    .node = c->node,
                                    .host = c->host,
                                    .exchange = ls_wire_exchange,
                                    .arg = c,
                                    .deadline = WAIT_DEADLINE,
                                    .connect_deadline = CONNECT_DEADLINE,
                                    .is_set = is_set};
    int *ranks = malloc((size_t)c->size * sizeof *ranks);
    f->leader = malloc((size_t)c->n_nodes * sizeof *f->leader);
    enum ls_status status =
        ranks && f->leader ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "connecting the ranks");
    if (status == LS_OK) {
        for (int r = c->size - 1; r >= 0; r--) {
            ranks[r] = r;
            f->leader[c->node[r]] = r;
        }
        status = ls_comm_open(&config, &f->world, err);
    }
    if (status == LS_OK)
        status = ls_comm_group(f->world, "all", ranks, c->size, &f->all, err);
    if (status == LS_OK && f->leader[c->node[c->rank]] == c->rank)
        status = ls_comm_group(f->world, "nodes", f->leader, c->n_nodes, &f->leaders, err);
    free(ranks);
    return status;
}

/* ---- coll.smoke ---- */

/* Small whole numbers: their sums are exact in single precision for any number of ranks. */
static float term(int64_t i, int rank)
{
    return (float)(i % 61 + rank % 8);
}

static enum ls_status smoke(struct fabric *f, int64_t bytes, double *seconds, struct ls_error *err)
{
    int64_t n = bytes / (int64_t)sizeof(float);
    const struct ls_wire_client *c = f->client;
    float *x = malloc((size_t)bytes);
    double ranks = 0;
    for (int r = 0; r < c->size; r++)
        ranks += r % 8;
    if (!x)
        return ls_error_set(err, LS_ERR_NOMEM, "%lld bytes for an all-reduce", (long long)bytes);
    for (int64_t i = 0; i < n; i++)
        x[i] = term(i, c->rank);
    struct ls_comm_request *request;
    *seconds = ls_time_monotonic();
    enum ls_status status =
        ls_comm_all_reduce(f->all, x, x, n, LS_COMM_F32, LS_COMM_SUM, &request, err);
    if (status == LS_OK)
        status = ls_comm_wait(request, err);
    *seconds = ls_time_monotonic() - *seconds;
    for (int64_t i = 0; status == LS_OK && i < n; i++) {
        double want = (double)(i % 61) * c->size + ranks;
        if ((double)x[i] != want)
            status = ls_error_set(err, LS_ERR_NUMERIC,
                                  "an all-reduce of %lld bytes over %d ranks gave %g at element "
                                  "%lld, not %g",
                                  (long long)bytes, c->size, (double)x[i], (long long)i, want);
    }
    free(x);
    return status;
}

static enum ls_status all_smoke(struct fabric *f, struct ls_error *err)
{
    int64_t sizes[] = {8, 1 << 20, 256 << 20};
    int n = f->context->full ? 3 : 2;
    char text[160] = "";
    for (int i = 0; i < n; i++) {
        double seconds = 0;
        char bytes[24];
        LS_TRY(smoke(f, sizes[i], &seconds, err));
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s in %.2g ms",
                 i ? ", " : "sums are right: ", ls_format_bytes(sizes[i], bytes), 1e3 * seconds);
    }
    if (f->client->rank == 0)
        ls_check_pack(f->out, "coll.smoke", LS_CHECK_PASS, "", text, "", "");
    return LS_OK;
}

/* ---- net.pair ---- */

static enum ls_status both_ways(struct fabric *f, int partner, int64_t bytes, char *send,
                                char *receive, struct ls_error *err)
{
    struct ls_comm_request *out, *in;
    int64_t n = bytes / (int64_t)sizeof(float);
    LS_TRY(ls_comm_recv(f->leaders, receive, n, LS_COMM_F32, partner, &in, err));
    LS_TRY(ls_comm_send(f->leaders, send, n, LS_COMM_F32, partner, &out, err));
    LS_TRY(ls_comm_wait(out, err));
    return ls_comm_wait(in, err);
}

/* Seconds that this thread could have run, but waited for a CPU; 0 where the kernel does not count. */
static double cpu_waited(void)
{
    char text[96];
    unsigned long long ran, waited = 0; /* ns */
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? (double)waited * 1e-9 : 0;
}

static enum ls_status measure(struct fabric *f, int partner, int64_t bytes, char *buffer,
                              double *rate, double *waited, struct ls_error *err)
{
    double start = ls_time_monotonic(), before = cpu_waited();
    *rate = 0;
    for (int i = 0; i <= REPEATS; i++) {
        double begin = ls_time_monotonic();
        LS_TRY(both_ways(f, partner, bytes, buffer, buffer + bytes, err));
        double seconds = ls_time_monotonic() - begin;
        if (i > 0 && (double)bytes / seconds > *rate) /* the first one connects */
            *rate = (double)bytes / seconds;
    }
    *waited = (cpu_waited() - before) / (ls_time_monotonic() - start);
    return LS_OK;
}

static enum ls_status pair_rounds(struct fabric *f, struct ls_error *err)
{
    int n = f->client->n_nodes, me = f->client->node[f->client->rank];
    int64_t bytes = f->context->full ? 8 << 20 : 1 << 20;
    /* Of PMIx, not of a variable: who pairs up with another seed waits for somebody else. */
    uint64_t seed = ls_hash64(f->client->job);
    int *partner = malloc((size_t)n * 2 * sizeof *partner);
    char *buffer = calloc(2, (size_t)bytes);
    struct ls_buf fact;
    ls_buf_init(&fact, 4096);
    enum ls_status status =
        partner && buffer ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "measuring pairs of nodes");
    for (int i = 0; i < SWEEPS * LS_CHECK_ROUNDS && status == LS_OK; i++) {
        double rate = 0, waited = 0;
        ls_check_round(n, i % LS_CHECK_ROUNDS, seed, partner, partner + n);
        status = ls_comm_barrier(f->leaders, err);
        if (status == LS_OK && partner[me] >= 0)
            status = measure(f, partner[me], bytes, buffer, &rate, &waited, err);
        if (status == LS_OK && partner[me] >= 0)
            ls_buf_printf(&fact, "%d %.6g %.3f\n", partner[me], rate, waited);
    }
    if (status == LS_OK)
        ls_check_pack_fact(f->out, "net.pair", fact.data ? fact.data : "");
    ls_buf_free(&fact);
    free(partner);
    free(buffer);
    return status;
}

/* ---- both ---- */

static void failed(struct fabric *f, enum ls_status status, struct ls_error *err)
{
    ls_error_context(err, "%s", f->doing);
    ls_check_pack(f->out, f->id, status == LS_ERR_TIMEOUT ? LS_CHECK_TIMEOUT : LS_CHECK_FAIL, "",
                  err->message, "an answer from every rank",
                  status == LS_ERR_NUMERIC
                      ? "bytes are damaged on the way: do not train on these nodes; find the one "
                        "by halves"
                      : "leave the node of a rank that is named out, or of one that says on "
                        "standard error what it was still at; or try UCX_TLS=tcp");
}

bool ls_check_fabric(const struct ls_check_context *context, struct ls_wire_client *client, int fd,
                     struct ls_buf *out)
{
    struct fabric f = {.context = context, .client = client, .out = out, .fd = fd};
    struct ls_error err = {0};
    if (client->size == 1) {
        ls_check_pack(out, "coll.smoke", LS_CHECK_SKIP, "", "one rank", "", "");
        ls_check_pack(out, "net.pair", LS_CHECK_SKIP, "", "one node", "", "");
        return true;
    }
    begin(&f, "coll.smoke", "opening UCX and connecting to the other ranks");
    enum ls_status status = open_world(&f, &err);
    if (status == LS_OK) {
        begin(&f, "coll.smoke", "summing over all ranks");
        status = all_smoke(&f, &err);
    }
    if (status != LS_OK)
        failed(&f, status, &err);
    if (client->n_nodes == 1 && client->rank == 0)
        ls_check_pack(out, "net.pair", LS_CHECK_SKIP, "", "one node", "", "");
    else if (status != LS_OK && client->rank == 0)
        ls_check_pack(out, "net.pair", LS_CHECK_SKIP, "", "coll.smoke did not pass", "", "");
    else if (status == LS_OK && client->n_nodes > 1 && f.leaders) {
        begin(&f, "net.pair", "measuring pairs of nodes");
        status = pair_rounds(&f, &err);
        if (status != LS_OK)
            failed(&f, status, &err);
    }
    /* Nobody closes while a peer needs an answer. Not by ls_comm_barrier: ranks that measure no pair would
     * spin in it, on the CPUs of those that do. */
    const void *const *all;
    const size_t *sizes;
    begin(&f, "net.pair", "waiting until all are done");
    ls_wire_exchange(client, "", 0, &all, &sizes, NULL);
    if (status != LS_OK && f.world)
        ls_comm_abort(f.world, err.message);
    if (f.leaders)
        ls_comm_group_close(f.leaders);
    if (f.all)
        ls_comm_group_close(f.all);
    if (f.world)
        ls_comm_close(f.world);
    free(f.leader);
    return status == LS_OK;
}
