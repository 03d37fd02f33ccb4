/* Which algorithm a collective takes: a function of its size, of how the members lie on nodes, and of the
 * job's wish. Knows no network and no memory, so that `lockstep plan` can ask it, too. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

enum {
    LANE_BYTES = 128 << 10,    /* less is not worth a lane of its own */
    EXCHANGE_BYTES = 32 << 10, /* what one member may send in the one step of an exchange */
    HALVING_BYTES = 64 << 10,  /* per node: below, a ring's many steps cost more than they save */
    CHAIN_BYTES = 256 << 10,
};

void ls_comm_plan(const struct ls_comm *c, enum ls_comm_kind kind, enum ls_comm_type type,
                  enum ls_comm_op op, int64_t count, struct ls_comm_plan *p)
{
    int64_t size = ls_comm_size(type);
    bool blocks = kind == LS_COMM_REDUCE_SCATTER || kind == LS_COMM_ALL_GATHER;
    bool alone = c->n == c->nodes; /* one member per node: no staging, whatever the buffers */
    int64_t bytes = count * size * (blocks ? c->n : 1);
    int64_t lanes = bytes / LANE_BYTES;
    p->lanes = lanes < 1 ? 1 : lanes > c->lanes_max ? c->lanes_max : (int)lanes;
    p->half_wire =
        !ls_comm_is_half(type) || op == LS_COMM_MAX || op == LS_COMM_MIN || (c->n == 2 && alone);
    p->algorithm = c->algorithm;
    if (p->algorithm <= LS_COMM_STAGED) {
        int64_t sent = bytes / p->lanes * (c->nodes - 1) / (blocks ? c->nodes : 1);
        if (kind == LS_COMM_BROADCAST)
            p->algorithm = bytes >= CHAIN_BYTES ? LS_COMM_RINGS : LS_COMM_EXCHANGE;
        else if (sent <= EXCHANGE_BYTES && c->nodes <= LS_COMM_EXCHANGE_NODES)
            p->algorithm = LS_COMM_EXCHANGE;
        else if (!blocks && c->nodes > 2 && bytes / p->lanes <= HALVING_BYTES * (int64_t)c->nodes)
            p->algorithm = LS_COMM_HALVING;
        else
            p->algorithm = LS_COMM_RINGS;
    }
    if (kind != LS_COMM_ALL_REDUCE && p->algorithm == LS_COMM_HALVING)
        p->algorithm = LS_COMM_RINGS;
    /* What needs a buffer beside the user's goes in rounds. */
    bool reduces = kind == LS_COMM_ALL_REDUCE || kind == LS_COMM_REDUCE_SCATTER;
    bool scratch = reduces && (p->algorithm == LS_COMM_EXCHANGE || !p->half_wire ||
                               kind == LS_COMM_REDUCE_SCATTER);
    int64_t fit = LS_COMM_STAGE / size / (blocks ? c->n : 1) / 64 * 64;
    p->round = alone && !scratch ? count : fit ? fit : 1;
}

enum ls_status ls_comm_choose(struct ls_comm *c, const char *algorithm, struct ls_error *err)
{
    static const char *const name[] = {[LS_COMM_AUTO] = "auto",
                                       [LS_COMM_STAGED] = "staged",
                                       [LS_COMM_EXCHANGE] = "exchange",
                                       [LS_COMM_HALVING] = "halving",
                                       [LS_COMM_RINGS] = "ring"};
    for (unsigned i = 0; i < sizeof name / sizeof *name; i++)
        if (strcmp(algorithm, name[i]) == 0) {
            c->algorithm = (enum ls_comm_algorithm)i;
            return LS_OK;
        }
    return ls_error_set(err, LS_ERR_USAGE,
                        "algorithm \"%s\" of group %s; expected auto, staged, exchange, halving or "
                        "ring",
                        algorithm, c->name);
}

static void describe(const struct ls_comm *c, enum ls_comm_kind kind, int64_t bytes,
                     char out[static 96])
{
    static const char *const name[] = {[LS_COMM_EXCHANGE] = "exchange",
                                       [LS_COMM_HALVING] = "halving and doubling",
                                       [LS_COMM_RINGS] = "ring"};
    char size[24];
    if (c->n == 1) {
        snprintf(out, 96, "one rank, nothing to do");
    } else if (c->nodes == 1) {
        snprintf(out, 96, "shared memory, %s",
                 bytes <= LS_COMM_SMALL           ? "one hop"
                 : c->algorithm == LS_COMM_STAGED ? "staged"
                                                  : "direct");
    } else {
        struct ls_comm_plan p;
        bool blocks = kind == LS_COMM_REDUCE_SCATTER || kind == LS_COMM_ALL_GATHER;
        ls_comm_plan(c, kind, LS_COMM_F32, LS_COMM_SUM, bytes / 4 / (blocks ? c->n : 1), &p);
        int64_t lane = bytes / p.lanes, segments = (lane + LS_COMM_TILE - 1) / LS_COMM_TILE;
        snprintf(out, 96, "ucx %s over %d nodes, %d lane%s of %lld segment%s of %s",
                 name[p.algorithm], c->nodes, p.lanes, p.lanes > 1 ? "s" : "", (long long)segments,
                 segments == 1 ? "" : "s",
                 ls_format_bytes(lane < LS_COMM_TILE ? lane : LS_COMM_TILE, size));
    }
}

const char *ls_comm_describe(const struct ls_comm *c, int64_t bytes, char out[static 96])
{
    describe(c, LS_COMM_ALL_REDUCE, bytes, out);
    return out;
}

enum ls_status ls_comm_explain(enum ls_comm_kind kind, int n, int nodes, const char *algorithm,
                               int64_t bytes, char out[static 96], struct ls_error *err)
{
    struct ls_comm c = {.name = "plan", .n = n, .nodes = nodes};
    if (n < 1 || nodes < 1 || nodes > n || kind > LS_COMM_BROADCAST || bytes < 0)
        return ls_error_set(
            err, LS_ERR_USAGE,
            "a collective of %lld bytes over %d ranks on %d nodes; expected at least "
            "one rank on every node",
            (long long)bytes, n, nodes);
    c.lanes_max = n / nodes;
    LS_TRY(ls_comm_choose(&c, algorithm, err));
    describe(&c, kind, bytes, out);
    return LS_OK;
}
