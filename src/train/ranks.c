/* The loop's side of communicators. */
#include "train/ranks.h"

enum ls_status ls_ranks_heard(enum ls_status status, struct ls_error *err)
{
    if (status != LS_ERR_IO)
        return status;
    if (err)
        err->status = LS_ERR_ABORTED;
    return LS_ERR_ABORTED;
}

static enum ls_status alloc(void *arg, int64_t bytes, void **mem, struct ls_error *err)
{
    struct ls_ranks *ranks = arg;
    return ls_ranks_heard(ls_comm_alloc(ranks->world, bytes, mem, err), err);
}

/* Starts one of the program's collectives on the group `data`, element for element what it says. */
static enum ls_status start_on(struct ls_comm *data, const struct ls_collective *c, int members,
                               struct ls_comm_request **r, struct ls_error *err)
{
    if (c->kind == LS_K_ALL_REDUCE)
        return ls_comm_all_reduce(data, c->in, c->out, c->count, LS_COMM_F32,
                                  c->max ? LS_COMM_MAX : LS_COMM_SUM, r, err);
    if (c->kind == LS_K_REDUCE_SCATTER)
        return ls_comm_reduce_scatter(data, c->in, c->out, c->count / members, LS_COMM_F32,
                                      LS_COMM_SUM, c->squares, r, err);
    return ls_comm_all_gather(data, c->in, c->out, c->count, LS_COMM_F32, r, err);
}

/* Slices must lie behind one another: those of dimension 0. */
static bool possible(const struct ls_collective *c, int members)
{
    bool kind = c->kind == LS_K_ALL_REDUCE ||
                (c->kind == LS_K_REDUCE_SCATTER && c->count % members == 0) ||
                (c->kind == LS_K_ALL_GATHER && c->outer == 1);
    return kind && c->axes == 1u << LS_AXIS_DATA && c->dtype == LS_F32;
}

static enum ls_status start(void *arg, const struct ls_collective *c, void **req,
                            struct ls_error *err)
{
    struct ls_ranks *ranks = arg;
    if (!possible(c, ranks->size))
        return ls_error_set(err, LS_ERR_UNSUPPORTED,
                            "%s of %lld elements along dimension %d, over axes %x",
                            ls_graph_kind(c->kind)->name, (long long)c->count, c->dim, c->axes);
    double begin = ls_time_monotonic();
    struct ls_comm_request *r = NULL;
    LS_TRY(ls_ranks_heard(start_on(ranks->data, c, ranks->size, &r, err), err));
    *req = r;
    ranks->seconds += ls_time_monotonic() - begin;
    return LS_OK;
}

static enum ls_status wait_for(void *arg, void *req, struct ls_error *err)
{
    struct ls_ranks *ranks = arg;
    double begin = ls_time_monotonic();
    ls_comm_activity(ranks->world, LS_COMM_COLLECTIVE);
    LS_TRY(ls_ranks_heard(ls_comm_wait(req, err), err));
    ls_comm_activity(ranks->world, LS_COMM_COMPUTE);
    ranks->seconds += ls_time_monotonic() - begin;
    return LS_OK;
}

static void progress(void *arg)
{
    struct ls_ranks *ranks = arg;
    double begin = ls_time_monotonic();
    ls_comm_progress(ranks->world);
    ranks->seconds += ls_time_monotonic() - begin;
}

void ls_ranks_exec_comm(struct ls_ranks *ranks, struct ls_exec_comm *comm)
{
    *comm = (struct ls_exec_comm){.arg = ranks,
                                  .squares = true,
                                  .alloc = alloc,
                                  .start = start,
                                  .wait = wait_for,
                                  .progress = progress};
    comm->coord[LS_AXIS_DATA] = ranks->rank;
}

/* Messages stay below what a count of one call may be. */
#define PIECE ((int64_t)1 << 30)

enum ls_status ls_ranks_broadcast(struct ls_ranks *ranks, void *data, int64_t bytes, int root,
                                  struct ls_error *err)
{
    if (ranks->size == 1)
        return LS_OK;
    char *p = data;
    for (; bytes > 0; bytes -= PIECE, p += PIECE) {
        struct ls_comm_request *req;
        int64_t n = bytes < PIECE ? bytes : PIECE;
        /* Words of four bytes: every tensor and every struct that travels is a multiple of it. */
        LS_TRY(ls_comm_broadcast(ranks->data, p, n / 4, LS_COMM_I32, root, &req, err));
        LS_TRY(ls_ranks_heard(ls_comm_wait(req, err), err));
    }
    return LS_OK;
}

static enum ls_status pass(struct ls_ranks *ranks, int peer, char *p, int64_t bytes, bool receive,
                           struct ls_error *err)
{
    for (; bytes > 0; bytes -= PIECE, p += PIECE) {
        struct ls_comm_request *req;
        int64_t n = (bytes < PIECE ? bytes : PIECE) / 4;
        if (receive)
            LS_TRY(ls_comm_recv(ranks->data, p, n, LS_COMM_I32, peer, &req, err));
        else
            LS_TRY(ls_comm_send(ranks->data, p, n, LS_COMM_I32, peer, &req, err));
        LS_TRY(ls_ranks_heard(ls_comm_wait(req, err), err));
    }
    return LS_OK;
}

enum ls_status ls_ranks_deal(struct ls_ranks *ranks, void *data, int64_t bytes, bool collect,
                             struct ls_error *err)
{
    if (ranks->rank != 0)
        return pass(ranks, 0, data, bytes, !collect, err);
    for (int r = 1; r < ranks->size; r++)
        LS_TRY(pass(ranks, r, (char *)data + r * bytes, bytes, collect, err));
    return LS_OK;
}

enum ls_status ls_ranks_sum(struct ls_ranks *ranks, double *values, int n, struct ls_error *err)
{
    if (ranks->size == 1)
        return LS_OK;
    struct ls_comm_request *req;
    LS_TRY(ls_comm_all_reduce(ranks->data, values, values, n, LS_COMM_F64, LS_COMM_SUM, &req, err));
    return ls_ranks_heard(ls_comm_wait(req, err), err);
}

enum ls_status ls_ranks_agree(struct ls_ranks *ranks, enum ls_status mine, struct ls_error *err)
{
    double failed = mine != LS_OK;
    struct ls_error lost = {0};
    if (ls_ranks_sum(ranks, &failed, 1, &lost) != LS_OK)
        return mine != LS_OK ? mine : ls_error_set(err, lost.status, "%s", lost.message);
    if (mine != LS_OK || failed == 0)
        return mine;
    return ls_error_set(err, LS_ERR_ABORTED, "another rank failed");
}

void ls_ranks_activity(struct ls_ranks *ranks, enum ls_comm_activity activity)
{
    if (ranks->world)
        ls_comm_activity(ranks->world, activity);
}
