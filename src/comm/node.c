/* Collectives inside a node. Where all buffers lie in shared arenas, every member reduces its slice
 * straight out of its peers' buffers and writes it to all of them: each byte is read and written
 * once. Small ones travel with the arrival. Others go through staging buffers, piece by piece. */
#include "comm/internal.h"

#include <string.h>

static int64_t cut(int64_t total, int parts, int i)
{
    int64_t lines = (total + 15) / 16; /* 64 bytes of f32: no two members write one cache line */
    int64_t at = lines * i / parts * 16;
    return at < total ? at : total;
}

bool ls_comm_node_is_small(const struct ls_comm_request *r)
{
    const struct ls_comm *c = r->comm;
    int64_t blocks = r->kind == LS_COMM_REDUCE_SCATTER ? c->n : 1;
    return c->nodes == 1 && r->bytes <= LS_COMM_SMALL / blocks;
}

void ls_comm_node_small_in(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    if (r->kind == LS_COMM_BROADCAST && r->root != c->me)
        return;
    int64_t blocks = r->kind == LS_COMM_REDUCE_SCATTER ? c->n : 1;
    if (r->bytes)
        memcpy(c->line[c->local]->small[ls_comm_slot_of(r->sequence)], r->in,
               (size_t)(r->bytes * blocks));
}

void ls_comm_node_small_out(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int64_t slot = ls_comm_slot_of(r->sequence);
    if (!r->bytes)
        return;
    int64_t offset = r->kind == LS_COMM_REDUCE_SCATTER ? c->me * r->bytes : 0;
    for (int k = 0; k < c->locals; k++)
        r->gather[k] = c->line[k]->small[slot] + offset;
    switch (r->kind) {
    case LS_COMM_ALL_GATHER:
        for (int k = 0; k < c->locals; k++)
            memcpy((char *)r->out + k * r->bytes, r->gather[k], (size_t)r->bytes);
        break;
    case LS_COMM_BROADCAST:
        if (r->root != c->me)
            memcpy(r->out, r->gather[r->root], (size_t)r->bytes);
        break;
    default:
        ls_comm_reduce(r->type, r->op, c->n, r->gather, c->locals, &r->out, 1, r->count);
    }
}

int64_t ls_comm_node_piece(const struct ls_comm_request *r)
{
    const struct ls_comm *c = r->comm;
    if (c->nodes > 1) {
        struct ls_comm_plan plan;
        ls_comm_plan(c, r->kind, r->type, r->op, r->count, &plan);
        return plan.round;
    }
    int64_t blocks = r->kind == LS_COMM_REDUCE_SCATTER ? c->n : 1;
    int64_t n = LS_COMM_PIECE / ls_comm_size(r->type) / blocks / 64 * 64;
    return n ? n : 1;
}

void ls_comm_node_place(struct ls_comm_request *r, bool staged)
{
    struct ls_comm *c = r->comm;
    int64_t skip = r->begin * ls_comm_size(r->type);
    r->src_stride = r->dst_stride = staged ? r->length : r->count;
    for (int k = 0; k < c->locals; k++) {
        if (staged) {
            r->src[k] = c->stage_in[k];
            r->dst[k] = c->nodes == 1 ? c->stage_in[k] : c->stage_out[k];
            continue;
        }
        if (k == c->local) {
            r->src[k] = (const char *)r->in + skip;
            r->dst[k] = (char *)r->out + skip;
            continue;
        }
        const struct ls_comm_slot *s = &c->line[k]->slot[ls_comm_slot_of(r->sequence)];
        char *in = s->in ? ls_comm_shm_at(c->world, c->local_index[k], s->in) : NULL;
        char *out = s->out ? ls_comm_shm_at(c->world, c->local_index[k], s->out) : NULL;
        r->src[k] = in ? in + skip : NULL;
        r->dst[k] = out ? out + skip : NULL;
    }
}

void ls_comm_node_stage_in(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int64_t size = ls_comm_size(r->type);
    const char *in = (const char *)r->in + r->begin * size;
    int blocks = r->kind == LS_COMM_REDUCE_SCATTER ? c->n : 1;
    if ((r->kind == LS_COMM_BROADCAST && r->root != c->me) || !r->length)
        return;
    for (int i = 0; i < blocks; i++)
        memcpy(c->stage_in[c->local] + i * r->length * size, in + i * r->count * size,
               (size_t)(r->length * size));
}

void ls_comm_node_stage_out(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int64_t size = ls_comm_size(r->type);
    char *out = (char *)r->out + r->begin * size;
    if (!r->length || (r->kind == LS_COMM_BROADCAST && r->root == c->me))
        return;
    if (c->nodes == 1 && r->kind != LS_COMM_ALL_REDUCE)
        return; /* the work has written to the user's buffer */
    int blocks = r->kind == LS_COMM_ALL_GATHER ? c->n : 1;
    for (int i = 0; i < blocks; i++)
        memcpy(out + i * r->count * size, r->dst[c->local] + i * r->length * size,
               (size_t)(r->length * size));
}

static void all_reduce(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int64_t size = ls_comm_size(r->type);
    int64_t lo = cut(r->length, c->locals, c->local), hi = cut(r->length, c->locals, c->local + 1);
    void **dst = (void **)r->gather + c->locals; /* gather has room for 2 * locals */
    for (int k = 0; k < c->locals; k++) {
        r->gather[k] = r->src[k] + lo * size;
        dst[k] = r->dst[k] + lo * size;
    }
    ls_comm_reduce(r->type, r->op, c->n, r->gather, c->locals, dst, c->locals, hi - lo);
}

static void reduce_scatter(struct ls_comm_request *r, void *out)
{
    struct ls_comm *c = r->comm;
    for (int k = 0; k < c->locals; k++)
        r->gather[k] = r->src[k] + c->me * r->src_stride * ls_comm_size(r->type);
    if (r->squares && r->op == LS_COMM_SUM) {
        *r->squares += ls_comm_sum_squares(r->gather, c->locals, out, r->length);
        return;
    }
    ls_comm_reduce(r->type, r->op, c->n, r->gather, c->locals, &out, 1, r->length);
    if (r->squares)
        *r->squares += ls_comm_squares(out, r->length);
}

void ls_comm_node_work(struct ls_comm_request *r)
{
    struct ls_comm *c = r->comm;
    int64_t size = ls_comm_size(r->type);
    size_t bytes = (size_t)(r->length * size);
    char *out = (char *)r->out + r->begin * size;
    if (!bytes)
        return;
    switch (r->kind) {
    case LS_COMM_ALL_REDUCE:
        all_reduce(r);
        break;
    case LS_COMM_REDUCE_SCATTER:
        reduce_scatter(r, out);
        break;
    case LS_COMM_ALL_GATHER:
        /* Everyone starts with another one, so that no buffer is read by all at once. */
        for (int i = 0; i < c->locals; i++) {
            int k = (c->local + i) % c->locals;
            char *to = out + k * r->count * size;
            if (to != r->src[k])
                memcpy(to, r->src[k], bytes);
        }
        break;
    default:
        if (r->root != c->me)
            memcpy(out, r->src[r->root], bytes);
    }
}
