/* The child between the nodes: meets the other tasks through PMIx, carries everyone's answers to everyone,
 * and does what takes several nodes in between. Whatever hangs here is told by frames that stay away. */
#include "check/internal.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

#define MEET_DEADLINE 15.0 /* for all tasks to start, and the slowest local check */

struct meeting {
    const struct ls_check_context *context;
    int fd;
    struct ls_wire_client *client;
    char **first; /* [size] what the first halves of every rank said */
    size_t *nfirst;
    struct ls_buf own; /* results and facts of this child */
    bool told;         /* why nobody meets: the parent knows each rank that is at fault */
};

static enum ls_status exchange(struct meeting *m, const char *text, size_t n,
                               const void *const **all, const size_t **bytes, struct ls_error *err)
{
    return ls_wire_exchange(m->client, text, n, all, bytes, err);
}

/* Do PMIx and Slurm talk of the same tasks? */
static void compare_pmix(struct meeting *m)
{
    const struct ls_wire_client *c = m->client;
    const struct ls_slurm *slurm = m->context->slurm;
    struct ls_error err = {0};
    char version[64], text[160];
    struct ls_pmix_view view = ls_wire_view(c);
    bool same =
        slurm->place != LS_SLURM_STEP || ls_slurm_check_pmix(slurm, &view, NULL, &err) == LS_OK;
    snprintf(text, sizeof text, "PMIx %s, %d ranks on %d nodes", ls_wire_pmix_version(version),
             c->size, c->n_nodes);
    ls_check_pack(&m->own, "env.pmix", same ? LS_CHECK_PASS : LS_CHECK_FAIL, "",
                  same ? text : err.message, same ? "" : "the tasks that Slurm speaks of", "");
}

/* What rank `r` has said, in its second half `n` bytes at `second`. */
static enum ls_status send_peer(struct meeting *m, enum ls_check_frame kind, int r,
                                const void *second, size_t n, struct ls_error *err)
{
    const struct ls_wire_client *c = m->client;
    struct ls_buf peer;
    ls_buf_init(&peer, (size_t)4 << 20);
    ls_buf_printf(&peer, "%d %d %d %d %s\n", r, c->size, c->node[r], c->n_nodes, c->host[r]);
    ls_buf_add(&peer, m->first[r], m->nfirst[r]);
    if (n)
        ls_buf_add(&peer, second, n);
    enum ls_status status = peer.failed
                                ? ls_error_set(err, LS_ERR_NOMEM, "collecting answers")
                                : ls_check_frame_send(m->fd, kind, peer.data, peer.len, err);
    ls_buf_free(&peer);
    return status;
}

static enum ls_status share_first(struct meeting *m, struct ls_error *err)
{
    enum ls_check_frame kind;
    char *text = NULL;
    size_t n = 0;
    const void *const *all;
    const size_t *bytes;
    LS_TRY(ls_check_frame_read(m->fd, &kind, &text, &n, err));
    enum ls_status status = exchange(m, text, n, &all, &bytes, err);
    free(text);
    LS_TRY(status);
    int size = m->client->size;
    m->first = calloc((size_t)size, sizeof *m->first);
    m->nfirst = calloc((size_t)size, sizeof *m->nfirst);
    for (int r = 0; m->first && m->nfirst && r < size; r++) {
        if (!(m->first[r] = malloc(bytes[r] + 1)))
            break;
        memcpy(m->first[r], all[r], bytes[r]);
        m->nfirst[r] = bytes[r];
    }
    if (!m->first || !m->nfirst || !m->first[size - 1])
        return ls_error_set(err, LS_ERR_NOMEM, "collecting the answers of %d ranks", size);
    for (int r = 1; m->client->rank == 0 && r < size; r++)
        LS_TRY(send_peer(m, LS_CHECK_EARLY, r, NULL, 0, err));
    return ls_check_frame_send(m->fd, LS_CHECK_MET, "", 0, err);
}

/* found: something did not work, and the answers say what. */
static enum ls_status between_nodes(struct meeting *m, bool *found, struct ls_error *err)
{
    LS_TRY(ls_check_frame_doing(m->fd, "net.port connecting to other nodes", err));
    ls_check_ring(m->context, m->client, &m->own);
    *found = !ls_check_fabric(m->context, m->client, m->fd, &m->own);
    LS_TRY(ls_check_frame_send(m->fd, LS_CHECK_SENT, "", 0, err));
    return ls_check_frame_doing(m->fd, "env.pmix collecting what all found", err);
}

/* This child's own results, and those of the second halves: not added to `own`, which the parent gets alone, if this
 * fails, beside what it has of those. */
static enum ls_status exchange_second(struct meeting *m, const void *const **all,
                                      const size_t **bytes, struct ls_error *err)
{
    enum ls_check_frame kind;
    char *text = NULL;
    size_t n = 0;
    struct ls_buf both;
    LS_TRY(ls_check_frame_read(m->fd, &kind, &text, &n, err));
    ls_buf_init(&both, (size_t)2 << 20);
    ls_buf_add(&both, m->own.data, m->own.len);
    ls_buf_add(&both, text, n);
    free(text);
    enum ls_status status =
        m->own.failed || both.failed
            ? ls_error_set(err, LS_ERR_NOMEM, "collecting answers")
            : exchange(m, both.data ? both.data : "", both.len, all, bytes, err);
    ls_buf_free(&both);
    return status;
}

static enum ls_status share_second(struct meeting *m, struct ls_error *err)
{
    const void *const *all;
    const size_t *bytes;
    LS_TRY(exchange_second(m, &all, &bytes, err));
    for (int r = 0; r < m->client->size; r++)
        LS_TRY(send_peer(m, LS_CHECK_PEER, r, all[r], bytes[r], err));
    return ls_check_frame_send(m->fd, LS_CHECK_DONE, "", 0, err);
}

/* Nobody else's answers will come: says why, in the words that help. What was found before it, such as a rank
 * that did not connect, says more than what then failed because of it. */
static void give_up(struct meeting *m, enum ls_status status, bool found, struct ls_error *err)
{
    const char *advice =
        status == LS_ERR_TIMEOUT
            ? "see what srun says about each task; one that hangs says so itself when it gives up"
            : "add --mpi=pmix to srun, or let 'lockstep check' start its own step in the "
              "allocation; other tasks' messages may say more";
    if (!found && !m->told)
        ls_check_pack(&m->own, "env.pmix",
                      status == LS_ERR_TIMEOUT ? LS_CHECK_TIMEOUT : LS_CHECK_FAIL, "", err->message,
                      "all tasks meet", advice);
    ls_check_frame_send(m->fd, LS_CHECK_NO_PEERS, m->own.data ? m->own.data : "", m->own.len, NULL);
}

static void tell_missing(struct meeting *m, int rank, enum ls_check_status status, const char *node,
                         const char *why)
{
    char text[LS_WIRE_ROLL_WORD + 320];
    int n = snprintf(text, sizeof text, "%d %d %s\n%s", rank, (int)status, node, why);
    if (n > 0 && n < (int)sizeof text)
        ls_check_frame_send(m->fd, LS_CHECK_MISSING, text, (size_t)n, NULL);
}

static void tell_absent(void *arg, int rank, const char *node)
{
    char text[64];
    snprintf(text, sizeof text, "has not come within %.0f s", MEET_DEADLINE);
    tell_missing(arg, rank, LS_CHECK_TIMEOUT, node, text);
}

/* The words of the roll: what such a task says of itself. Those that do not check say it in words of their own. */
static const char *const words[] = {"checks with --fast", "checks with --full"};

static void tell_differs(void *arg, int rank, const char *node, const char *word)
{
    struct meeting *m = arg;
    char text[LS_WIRE_ROLL_WORD + 32];
    const char *own = *word ? word : "does not do as rank 0 does";
    /* The node's name tells which one, unless it has several. */
    if (m->context->size > m->context->nodes)
        snprintf(text, sizeof text, "rank %d: %s", rank, own);
    else
        snprintf(text, sizeof text, "%s", own);
    m->told = true;
    tell_missing(m, rank, LS_CHECK_FAIL, node, text);
}

static void tell_silent(void *arg, int rank, const char *node)
{
    struct meeting *m = arg;
    (void)rank, (void)node; /* what is said of it comes as the error does */
    ls_check_frame_send(m->fd, LS_CHECK_SILENT, "", 0, NULL);
}

/* All tasks, or an error and those that have not come by name. */
static enum ls_status come_together(struct meeting *m, struct ls_error *err)
{
    const struct ls_wire_roll roll = {.word = words[m->context->full],
                                      .absent = tell_absent,
                                      .differs = tell_differs,
                                      .silent = tell_silent,
                                      .arg = m};
    LS_TRY(ls_check_frame_doing(m->fd, "env.pmix starting PMIx, and meeting the other tasks", err));
    LS_TRY(ls_wire_roll_call(MEET_DEADLINE, &roll, err));
    return ls_wire_client_open(m->context->host, MEET_DEADLINE, &m->client, err);
}

int ls_check_meet(const struct ls_check_context *context, int fd)
{
    struct meeting m = {.context = context, .fd = fd};
    struct ls_error err = {0};
    ls_buf_init(&m.own, (size_t)1 << 20);
    enum ls_status status = come_together(&m, &err);
    if (status == LS_OK) {
        compare_pmix(&m);
        ls_check_frame_doing(fd, "env.pmix waiting for the first answers of all", NULL);
        status = share_first(&m, &err);
    }
    bool found = false;
    if (status == LS_OK)
        status = between_nodes(&m, &found, &err);
    if (status == LS_OK)
        status = share_second(&m, &err);
    if (status != LS_OK)
        give_up(&m, status, found, &err);
    for (int r = 0; m.first && r < m.client->size; r++)
        free(m.first[r]);
    free(m.first);
    free(m.nfirst);
    ls_buf_free(&m.own);
    ls_wire_client_close(m.client);
    ls_wire_roll_end();
    return status != LS_OK;
}
