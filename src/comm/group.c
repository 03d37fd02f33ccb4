/* Groups: which members lie on which node, and the shared memory in which those of a node meet. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ls_status short_of_memory(const char *name, struct ls_error *err)
{
    return ls_error_set(err, LS_ERR_NOMEM, "group %s", name);
}

/* Sorts members by node: fills where, first, member, nodes, lanes_max, locals, members. */
static enum ls_status lay_out(struct ls_comm *c, struct ls_error *err)
{
    struct ls_comm_world *w = c->world;
    size_t n = (size_t)c->n;
    c->where = calloc(n, sizeof *c->where);
    c->first = calloc(n + 1, sizeof *c->first);
    c->member = calloc(n, sizeof *c->member);
    c->sent = calloc(n, sizeof *c->sent);
    c->received = calloc(n, sizeof *c->received);
    if (!c->where || !c->first || !c->member || !c->sent || !c->received)
        return short_of_memory(c->name, err);
    for (int i = 0; i < c->n; i++) {
        int j = 0;
        while (w->node[c->rank[j]] != w->node[c->rank[i]])
            j++;
        c->where[i] = j < i ? c->where[j] : c->nodes++;
    }
    c->lanes_max = c->n;
    for (int k = 0, at = 0; k < c->nodes; k++) {
        c->first[k] = at;
        for (int i = 0; i < c->n; i++)
            if (c->where[i] == k)
                c->member[at++] = i;
        c->first[k + 1] = at;
        if (at - c->first[k] < c->lanes_max)
            c->lanes_max = at - c->first[k];
    }
    c->my_node = c->where[c->me];
    c->members = c->member + c->first[c->my_node];
    c->locals = c->first[c->my_node + 1] - c->first[c->my_node];
    c->local_index = calloc((size_t)c->locals, sizeof *c->local_index);
    if (!c->local_index)
        return short_of_memory(c->name, err);
    for (int k = 0; k < c->locals; k++) {
        if (c->members[k] == c->me)
            c->local = k;
        while (w->local_rank[c->local_index[k]] != c->rank[c->members[k]])
            c->local_index[k]++;
    }
    return LS_OK;
}

/* One memory file per node and group: a line of every member, pipes, and staging buffers, of which
 * pages exist only once they are used. */
static enum ls_status map_shared(struct ls_comm *c, struct ls_error *err)
{
    struct ls_comm_world *w = c->world;
    size_t m = (size_t)c->locals;
    char what[80];
    snprintf(what, sizeof what, "group %s", c->name);
    size_t lines = (size_t)ls_round_up((int64_t)(m * sizeof(struct ls_comm_member)), 4096);
    size_t pipes = (size_t)ls_round_up((int64_t)(m * m * sizeof(struct ls_comm_pipe)), 4096);
    size_t data = m * m * 2 * (size_t)LS_COMM_PIPE;
    c->shared_bytes = lines + pipes + data + m * 2 * (size_t)LS_COMM_STAGE;
    uint64_t tag = UINT64_C(0x96) << 32 | c->id;
    void *map;
    int fd;
    if (c->local == 0) {
        LS_TRY(ls_comm_shm_create("lockstep-group", c->shared_bytes, &fd, &map, err));
        enum ls_status status = LS_OK;
        for (int k = 1; k < c->locals && status == LS_OK; k++)
            status = ls_comm_socket_send(w, c->local_index[k], tag, c->shared_bytes, fd, err);
        close(fd);
        c->shared = map;
        LS_TRY(status);
    } else {
        LS_TRY(ls_comm_socket_recv(w, c->local_index[0], tag, c->shared_bytes, what, &fd, err));
        enum ls_status status = ls_comm_shm_map(fd, c->shared_bytes, &map, err);
        close(fd);
        LS_TRY(status);
        c->shared = map;
    }
    c->line = calloc(m, sizeof *c->line);
    c->stage_in = calloc(m, sizeof *c->stage_in);
    c->stage_out = calloc(m, sizeof *c->stage_out);
    if (!c->line || !c->stage_in || !c->stage_out)
        return short_of_memory(c->name, err);
    char *at = c->shared;
    for (size_t k = 0; k < m; k++)
        c->line[k] = (struct ls_comm_member *)at + k;
    c->pipes = (struct ls_comm_pipe *)(at + lines);
    c->pipe_data = at + lines + pipes;
    for (size_t k = 0; k < m; k++) {
        c->stage_in[k] = at + lines + pipes + data + 2 * k * LS_COMM_STAGE;
        c->stage_out[k] = c->stage_in[k] + LS_COMM_STAGE;
    }
    return LS_OK;
}

/* The neighbours on the rings must be there before the first collective needs them. */
static enum ls_status meet(struct ls_comm *c, struct ls_error *err)
{
    struct ls_comm_world *w = c->world;
    char what[80];
    snprintf(what, sizeof what, "group %s", c->name);
    int nodes = c->nodes, n = 0, to[2], from[2];
    if (nodes == 1 || c->local >= c->lanes_max)
        return LS_OK;
    for (int side = -1; side <= 1; side += 2) {
        int k = (c->my_node + nodes + side) % nodes;
        to[n] = from[n] = c->rank[c->member[c->first[k] + c->local]];
        n += n == 0 || to[0] != to[n];
    }
    double deadline = w->deadline > w->connect_deadline ? w->deadline : w->connect_deadline;
    return ls_comm_wire_greet(w, to, n, from, n, deadline, false, what, err);
}

enum ls_status ls_comm_group(struct ls_comm_world *w, const char *name, const int *rank, int n,
                             struct ls_comm **comm, struct ls_error *err)
{
    if (w->failed)
        return ls_error_set(err, w->error.status, "%s", w->error.message);
    int me = -1;
    for (int i = 0; i < n; i++) {
        if (rank[i] < 0 || rank[i] >= w->size || (i > 0 && rank[i] <= rank[i - 1]))
            return ls_error_set(err, LS_ERR_USAGE,
                                "group %s: member %d is rank %d; expected ascending ranks below %d",
                                name, i, rank[i], w->size);
        if (rank[i] == w->rank)
            me = i;
    }
    if (me < 0)
        return ls_error_set(err, LS_ERR_USAGE, "group %s: rank %d opens it, but is no member", name,
                            w->rank);
    struct ls_comm *c = calloc(1, sizeof *c);
    if (!c)
        return short_of_memory(name, err);
    c->world = w;
    c->n = n;
    c->me = me;
    c->active_end = &c->active;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->rank = calloc((size_t)n, sizeof *c->rank);
    enum ls_status status = LS_OK;
    if (!c->rank) {
        status = short_of_memory(name, err);
        goto fail;
    }
    memcpy(c->rank, rank, (size_t)n * sizeof *rank);
    /* The same on all members, whatever other groups each of them has opened before. */
    uint64_t id = ls_hash64(name);
    for (int i = 0; i < n; i++)
        id = ls_mix64(id, (uint64_t)rank[i]);
    c->id = (uint32_t)(id ^ id >> 32);
    for (const struct ls_comm *o = w->groups; o; o = o->next)
        if (o->id == c->id) {
            status = ls_error_set(err, LS_ERR_USAGE,
                                  "group %s: one with this name and these members is open; use "
                                  "another name",
                                  name);
            goto fail;
        }
    if ((status = lay_out(c, err)) != LS_OK || (status = map_shared(c, err)) != LS_OK ||
        (status = meet(c, err)) != LS_OK)
        goto fail;
    c->next = w->groups;
    w->groups = c;
    *comm = c;
    return LS_OK;
fail:
    ls_comm_group_close(c);
    return status;
}

static void free_requests(struct ls_comm_request *r)
{
    while (r) {
        struct ls_comm_request *next = r->next;
        ls_comm_schedule_free(&r->net);
        free(r->src);
        free(r->dst);
        free(r->gather);
        free(r);
        r = next;
    }
}

void ls_comm_group_close(struct ls_comm *c)
{
    if (!c)
        return;
    for (struct ls_comm **p = &c->world->groups; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    free_requests(c->active);
    free_requests(c->spare);
    ls_comm_shm_unmap(c->shared, c->shared_bytes);
    free(c->rank);
    free(c->where);
    free(c->first);
    free(c->member);
    free(c->local_index);
    free(c->line);
    free(c->stage_in);
    free(c->stage_out);
    free(c->sent);
    free(c->received);
    free(c);
}
