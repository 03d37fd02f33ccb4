/* Which exchanges make a collective between nodes. A lane is the member at one place of every node;
 * lanes work side by side on their own slices, and a lane's data is cut into tiles, what one message
 * carries.
 *
 *   ring      n - 1 steps in which partial results travel to where they are finished, n - 1 in which
 *             the results travel on: the least data, the most steps
 *   halving   recursive halving, then doubling: as little data in 2 log2 n steps (R. Rabenseifner,
 *             "Optimization of Collective Reduction Operations", ICCS 2004); other node counts than
 *             powers of two fold the first ones in pairs
 *   exchange  each sends to each and sums in node order: one step, the most data
 *   broadcast a chain, or a binomial tree where it is small */
#include "comm/internal.h"

#include <stdlib.h>
#include <string.h>

static int64_t cut(int64_t total, int parts, int i)
{
    int64_t lines = (total + 15) / 16;
    int64_t at = lines * i / parts * 16;
    return at < total ? at : total;
}

/* ---- tiles ---- */

static bool add_tiles(struct ls_comm_schedule *s, int block, int64_t from, int64_t to)
{
    int64_t most = LS_COMM_TILE / (s->wire_size > 0 ? s->wire_size : 1);
    while (from < to) {
        int64_t n = to - from < most ? to - from : most;
        if (!ls_grow(&s->tile, &s->tiles_cap, s->tiles + 1, sizeof *s->tile))
            return false;
        s->tile[s->tiles++] = (struct ls_comm_tile){
            .block = block, .n = (int)n, .at = from, .place = s->lane_elements};
        s->lane_elements += n;
        from += n;
    }
    return true;
}

static bool end_chunk(struct ls_comm_schedule *s)
{
    if (!ls_grow(&s->chunk, &s->chunks_cap, s->chunks + 2, sizeof *s->chunk))
        return false;
    s->chunk[0] = 0;
    s->chunk[++s->chunks] = s->tiles;
    return true;
}

/* One vector, of which the lane's slice is cut into `chunks`. */
static bool tile_vector(struct ls_comm_request *r, int lanes, int lane, int chunks)
{
    struct ls_comm_schedule *s = &r->net;
    int64_t from = cut(r->length, lanes, lane), n = cut(r->length, lanes, lane + 1) - from;
    for (int k = 0; k < chunks; k++)
        if (!add_tiles(s, 0, from + cut(n, chunks, k), from + cut(n, chunks, k + 1)) ||
            !end_chunk(s))
            return false;
    return true;
}

/* A block per member: chunk k is the lane's slice of the blocks of node k. */
static bool tile_blocks(struct ls_comm_request *r, int lanes, int lane)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    int64_t from = cut(r->length, lanes, lane), to = cut(r->length, lanes, lane + 1);
    for (int k = 0; k < c->nodes; k++) {
        for (int i = c->first[k]; i < c->first[k + 1]; i++)
            if (!add_tiles(s, c->member[i], from, to))
                return false;
        if (!end_chunk(s))
            return false;
    }
    return true;
}

/* ---- steps ---- */

static const struct ls_comm_step no_step = {.to = -1, .from = -1, .after = -1};

static bool add_step(struct ls_comm_schedule *s, const struct ls_comm_step *step)
{
    if (!ls_grow(&s->step, &s->steps_cap, s->steps + 1, sizeof *s->step))
        return false;
    s->step[s->steps++] = *step;
    return true;
}

static int peer(const struct ls_comm *c, int node, int lane)
{
    return c->rank[c->member[c->first[node] + lane]];
}

/* reduce: partial results travel until each node has finished its own chunk. gather: finished
 * chunks travel on. */
static bool ring(struct ls_comm_request *r, int lane, bool reduce, bool gather)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    int n = c->nodes, p = c->my_node;
    struct ls_comm_step t = no_step;
    t.to = peer(c, (p + 1) % n, lane);
    t.from = peer(c, (p + n - 1) % n, lane);
    for (int half = 0; half < 2; half++) {
        if (half == 0 ? !reduce : !gather)
            continue;
        for (int i = 0; i < n - 1; i++) {
            int out = half == 0 ? (p + 2 * n - i - 1) % n : (p + n - i) % n;
            int in = (out + n - 1) % n;
            t.send_from = s->chunk[out];
            t.send_to = s->chunk[out + 1];
            t.recv_from = s->chunk[in];
            t.recv_to = s->chunk[in + 1];
            t.final = half == 1;
            t.how = half == 1 ? LS_COMM_STORE : i == n - 2 ? LS_COMM_FINISH : LS_COMM_REDUCE;
            t.after = s->steps - 1; /* what is sent has come in the step before */
            if (!add_step(s, &t))
                return false;
        }
    }
    return true;
}

static bool exchange(struct ls_comm_request *r, int lane)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    int n = c->nodes, p = c->my_node;
    for (int i = 1; i < n; i++) {
        int out = (p + i) % n, in = (p + n - i) % n;
        struct ls_comm_step t = no_step;
        t.to = peer(c, out, lane);
        t.from = peer(c, in, lane);
        t.keep = in;
        t.final = r->kind == LS_COMM_ALL_GATHER;
        t.how = t.final ? LS_COMM_STORE : LS_COMM_KEEP;
        int send = r->kind == LS_COMM_ALL_REDUCE ? 0 : t.final ? p : out;
        int recv = r->kind == LS_COMM_ALL_REDUCE ? 0 : t.final ? in : p;
        t.send_from = s->chunk[send];
        t.send_to = s->chunk[send + 1];
        t.recv_from = s->chunk[recv];
        t.recv_to = s->chunk[recv + 1];
        if (!add_step(s, &t))
            return false;
    }
    s->combine = r->kind != LS_COMM_ALL_GATHER;
    return true;
}

static int power_below(int n)
{
    int p = 1;
    while (p * 2 <= n)
        p *= 2;
    return p;
}

/* Nodes are numbered anew: of the first ones, folded in pairs, only the odd count. */
static int node_of(int id, int extra)
{
    return id < extra ? 2 * id + 1 : id + extra;
}

int ls_comm_halving_partner(int nodes, int node, int d)
{
    int power = power_below(nodes), extra = nodes - power;
    if (d >= power || (node < 2 * extra && node % 2 == 0))
        return -1;
    return node_of((node < 2 * extra ? node / 2 : node - extra) ^ d, extra);
}

static bool halving(struct ls_comm_request *r, int lane)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    int power = power_below(c->nodes), extra = c->nodes - power, p = c->my_node;
    struct ls_comm_step t = no_step;
    if (p < 2 * extra && p % 2 == 0) { /* my partner does it for me */
        t.to = t.from = peer(c, p + 1, lane);
        t.send_to = s->tiles;
        if (!add_step(s, &(struct ls_comm_step){
                             .to = t.to, .from = -1, .send_to = s->tiles, .after = -1}))
            return false;
        return add_step(
            s,
            &(struct ls_comm_step){
                .to = -1, .from = t.from, .recv_to = s->tiles, .how = LS_COMM_STORE, .after = -1});
    }
    int id = p < 2 * extra ? p / 2 : p - extra;
    if (p < 2 * extra && !add_step(s, &(struct ls_comm_step){.to = -1,
                                                             .from = peer(c, p - 1, lane),
                                                             .recv_to = s->tiles,
                                                             .how = LS_COMM_REDUCE,
                                                             .after = -1}))
        return false;
    int lo = 0, hi = power;
    for (int d = power / 2; d >= 1; d /= 2) {
        int mid = lo + (hi - lo) / 2;
        bool up = id & d;
        t = no_step;
        t.to = t.from = peer(c, ls_comm_halving_partner(c->nodes, p, d), lane);
        t.send_from = s->chunk[up ? lo : mid];
        t.send_to = s->chunk[up ? mid : hi];
        t.recv_from = s->chunk[up ? mid : lo];
        t.recv_to = s->chunk[up ? hi : mid];
        t.how = d == 1 ? LS_COMM_FINISH : LS_COMM_REDUCE;
        t.after = s->steps - 1;
        if (!add_step(s, &t))
            return false;
        if (up)
            lo = mid;
        else
            hi = mid;
    }
    for (int d = 1; d < power; d *= 2) {
        t = no_step;
        t.to = t.from = peer(c, ls_comm_halving_partner(c->nodes, p, d), lane);
        int theirs = id & d ? lo - d : hi;
        t.send_from = s->chunk[lo];
        t.send_to = s->chunk[hi];
        t.recv_from = s->chunk[theirs];
        t.recv_to = s->chunk[theirs + d];
        t.final = t.after_all = true;
        t.how = LS_COMM_STORE;
        if (!add_step(s, &t))
            return false;
        if (id & d)
            lo -= d;
        else
            hi += d;
    }
    if (p >= 2 * extra)
        return true;
    t = no_step;
    t.to = peer(c, p - 1, lane);
    t.send_to = s->tiles;
    t.final = t.after_all = true;
    return add_step(s, &t);
}

/* From node to node, the root's first: a chain, or a binomial tree. */
static bool broadcast(struct ls_comm_request *r, int lane, bool chain)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    int n = c->nodes, root = c->where[r->root], p = (c->my_node + n - root) % n;
    int low = p ? p & -p : 2 * power_below(n); /* in the tree, the parent is p - low */
    int parent = p == 0 ? -1 : chain ? p - 1 : p - low;
    struct ls_comm_step t = no_step;
    if (parent >= 0) {
        t.from = peer(c, (parent + root) % n, lane);
        t.recv_to = s->tiles;
        t.how = LS_COMM_STORE;
        if (!add_step(s, &t))
            return false;
    }
    for (int d = chain ? 1 : low / 2; d >= 1; d /= 2) {
        if (p + d >= n)
            continue;
        t = no_step;
        t.to = peer(c, (p + d + root) % n, lane);
        t.send_to = s->tiles;
        t.final = true;
        t.after = parent >= 0 ? 0 : -1;
        if (!add_step(s, &t))
            return false;
    }
    return true;
}

/* ---- putting it together ---- */

static struct ls_comm_credit *credit_of(struct ls_comm_schedule *s, int rank)
{
    for (int i = 0; i < s->credits; i++)
        if (s->credit[i].rank == rank)
            return &s->credit[i];
    if (!ls_grow(&s->credit, &s->credits_cap, s->credits + 1, sizeof *s->credit))
        return NULL;
    s->credit[s->credits] = (struct ls_comm_credit){.rank = rank};
    return &s->credit[s->credits++];
}

/* Sender and receiver find the same figures from the same steps. */
static bool add_credits(struct ls_comm_request *r)
{
    struct ls_comm_schedule *s = &r->net;
    int64_t size = ls_comm_size(r->type);
    for (int i = 0; i < s->steps; i++) {
        struct ls_comm_step *t = &s->step[i];
        struct ls_comm_credit *c;
        if (t->to >= 0) {
            if (!(c = credit_of(s, t->to)))
                return false;
            t->out_number = c->steps_to++;
            for (int k = t->send_from; k < t->send_to; k++)
                c->to_send += s->tile[k].n * (t->final ? size : s->wire_size);
        }
        if (t->from >= 0) {
            if (!(c = credit_of(s, t->from)))
                return false;
            t->in_number = c->steps_from++;
            for (int k = t->recv_from; k < t->recv_to; k++)
                c->to_recv += s->tile[k].n * (t->how == LS_COMM_STORE ? size : s->wire_size);
        }
    }
    return true;
}

static void reset(struct ls_comm_schedule *s)
{
    s->tiles = s->chunks = s->steps = s->credits = s->first_open = 0;
    s->lane_elements = 0;
    s->combine = false;
}

static bool need_partial(struct ls_comm_schedule *s, size_t bytes)
{
    if (bytes <= s->partial_bytes)
        return true;
    free(s->partial);
    s->partial = malloc(bytes);
    s->partial_bytes = s->partial ? bytes : 0;
    return s->partial != NULL;
}

bool ls_comm_schedule_build(struct ls_comm_request *r, int lane)
{
    const struct ls_comm *c = r->comm;
    struct ls_comm_schedule *s = &r->net;
    struct ls_comm_plan p;
    ls_comm_plan(c, r->kind, r->type, r->op, r->count, &p);
    bool reduces = r->kind == LS_COMM_ALL_REDUCE || r->kind == LS_COMM_REDUCE_SCATTER;
    bool all_reduce = r->kind == LS_COMM_ALL_REDUCE, ok;
    reset(s);
    s->half_wire = p.half_wire || !reduces;
    s->wire_size = s->half_wire ? ls_comm_size(r->type) : (int64_t)sizeof(float);
    if (r->kind == LS_COMM_BROADCAST)
        ok = tile_vector(r, p.lanes, lane, 1) && broadcast(r, lane, p.algorithm == LS_COMM_RINGS);
    else if (p.algorithm == LS_COMM_EXCHANGE)
        ok = (all_reduce ? tile_vector(r, p.lanes, lane, 1) : tile_blocks(r, p.lanes, lane)) &&
             exchange(r, lane);
    else if (p.algorithm == LS_COMM_HALVING)
        ok = tile_vector(r, p.lanes, lane, power_below(c->nodes)) && halving(r, lane);
    else
        ok = (all_reduce ? tile_vector(r, p.lanes, lane, c->nodes)
                         : tile_blocks(r, p.lanes, lane)) &&
             ring(r, lane, reduces, r->kind != LS_COMM_REDUCE_SCATTER);
    if (!ok || !add_credits(r))
        return false;
    s->in_place = all_reduce && s->half_wire && p.algorithm != LS_COMM_EXCHANGE;
    if (!reduces || s->in_place)
        return true;
    size_t vectors = p.algorithm == LS_COMM_EXCHANGE ? (size_t)c->nodes : 1;
    return need_partial(s, vectors * (size_t)(s->lane_elements * s->wire_size));
}

bool ls_comm_schedule_pair(struct ls_comm_request *r)
{
    struct ls_comm_schedule *s = &r->net;
    bool send = r->kind == LS_COMM_SEND;
    int rank = r->comm->rank[r->root];
    reset(s);
    s->half_wire = true;
    s->wire_size = ls_comm_size(r->type);
    struct ls_comm_step t = no_step;
    if (!add_tiles(s, 0, 0, r->count))
        return false;
    if (send) {
        t.to = rank;
        t.send_to = s->tiles;
        t.final = true;
    } else {
        t.from = rank;
        t.recv_to = s->tiles;
        t.how = LS_COMM_STORE;
    }
    return add_step(s, &t) && add_credits(r);
}

void ls_comm_schedule_free(struct ls_comm_schedule *s)
{
    free(s->tile);
    free(s->chunk);
    free(s->step);
    free(s->credit);
    free(s->partial);
}
