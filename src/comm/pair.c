/* Send and receive. They are no collectives: the k-th send of one member to another meets the k-th
 * receive there, whatever collectives run beside them. Inside a node the receiver copies straight
 * out of the sender's arena, or through a pipe of two halves; between nodes a schedule of one step. */
#include "comm/internal.h"

#include <string.h>

static bool is_local(const struct ls_comm_request *r)
{
    return r->comm->where[r->root] == r->comm->my_node;
}

static int place_of(const struct ls_comm *c, int member)
{
    int k = 0;
    while (c->members[k] != member)
        k++;
    return k;
}

enum ls_status ls_comm_pair_start(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    uint64_t *count = r->kind == LS_COMM_SEND ? c->sent : c->received;
    r->sequence = ++count[r->root];
    r->direct = false;
    if (is_local(r))
        return LS_OK;
    char text[128];
    struct ls_error e = {0};
    if (ls_comm_net_connect(c->world->net, c->rank[r->root], &e) != LS_OK)
        return ls_comm_fail(c->world, e.status, "%s: %s", ls_comm_request_text(r, text), e.message);
    r->src[c->local] = r->in;
    r->dst[c->local] = r->out;
    r->src_stride = r->dst_stride = 0;
    if (!ls_comm_schedule_pair(r))
        return ls_comm_fail(c->world, LS_ERR_NOMEM, "%s", ls_comm_request_text(r, text));
    ls_comm_wire_open(r);
    return LS_OK;
}

static bool send_local(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int to = place_of(c, r->root);
    struct ls_comm_pipe *p = &c->pipes[c->local * c->locals + to];
    bool moved = false;
    for (;;) {
        uint64_t posted = atomic_load_explicit(&p->posted, memory_order_relaxed);
        uint64_t taken = atomic_load_explicit(&p->taken, memory_order_acquire);
        if (r->pieces && r->moved == r->bytes) {
            /* What lies in the sender's own buffer must have been read. */
            if (r->direct && taken < r->pieces)
                return moved;
            r->phase = LS_COMM_END;
            return true;
        }
        if (posted - taken >= 2)
            return moved;
        int64_t n = r->bytes - r->moved;
        uint64_t at = ls_comm_shm_locate(c->world, r->in, r->bytes);
        if (at && n > LS_COMM_SMALL) {
            r->direct = true;
        } else {
            at = 0;
            n = n < LS_COMM_PIPE ? n : LS_COMM_PIPE;
            char *half =
                c->pipe_data +
                ((int64_t)(c->local * c->locals + to) * 2 + (int64_t)(posted % 2)) * LS_COMM_PIPE;
            if (n)
                memcpy(half, (const char *)r->in + r->moved, (size_t)n);
        }
        p->entry[posted % 2].at = at;
        p->entry[posted % 2].bytes = (uint64_t)n;
        p->entry[posted % 2].total = (uint64_t)r->bytes;
        r->moved += n;
        r->pieces = posted + 1;
        atomic_store_explicit(&p->posted, posted + 1, memory_order_release);
        moved = true;
    }
}

static bool recv_local(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int from = place_of(c, r->root);
    struct ls_comm_pipe *p = &c->pipes[from * c->locals + c->local];
    bool moved = false;
    for (;;) {
        uint64_t taken = atomic_load_explicit(&p->taken, memory_order_relaxed);
        if (r->pieces && r->moved == r->bytes) {
            r->phase = LS_COMM_END;
            return true;
        }
        if (atomic_load_explicit(&p->posted, memory_order_acquire) == taken)
            return moved;
        int64_t n = (int64_t)p->entry[taken % 2].bytes;
        uint64_t at = p->entry[taken % 2].at;
        if ((int64_t)p->entry[taken % 2].total != r->bytes || n > r->bytes - r->moved) {
            char text[128];
            int rank = c->rank[r->root];
            ls_comm_fail(c->world, LS_ERR_INTERNAL,
                         "%s expects %lld bytes, but rank %d on %s sends %llu",
                         ls_comm_request_text(r, text), (long long)r->bytes, rank,
                         c->world->host[rank], (unsigned long long)p->entry[taken % 2].total);
            return false;
        }
        const char *data = at ? ls_comm_shm_at(c->world, c->local_index[from], at)
                              : c->pipe_data + ((int64_t)(from * c->locals + c->local) * 2 +
                                                (int64_t)(taken % 2)) *
                                                   LS_COMM_PIPE;
        if (n)
            memcpy((char *)r->out + r->moved, data, (size_t)n);
        r->moved += n;
        r->pieces++;
        atomic_store_explicit(&p->taken, taken + 1, memory_order_release);
        moved = true;
    }
}

bool ls_comm_step_pair(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    if (c->world->failed || r->phase == LS_COMM_END)
        return false;
    bool moved;
    if (is_local(r)) {
        /* Those before it in the same pipe go first. */
        for (const struct ls_comm_request *o = c->active; o && o != r; o = o->next)
            if (o->kind == r->kind && o->root == r->root)
                return false;
        moved = r->kind == LS_COMM_SEND ? send_local(r) : recv_local(r);
    } else {
        moved = ls_comm_wire_run(r);
        if (moved)
            r->phase = LS_COMM_END;
    }
    if (r->phase == LS_COMM_END)
        ls_comm_finish(r);
    return moved;
}
