/* The slow-node finder: which nodes measure each other in which round, and what follows from the
 * figures. Pure. */
#ifndef LS_CHECK_PAIRS_H
#define LS_CHECK_PAIRS_H

#include "base/base.h"

#define LS_CHECK_ROUNDS 3

/* partner[i] is whom node `i` of `n` measures with in a round, -1 if it sits out: neighbours, then half
 * of the nodes apart, then a random pairing by `seed` that repeats no earlier pair where that is possible.
 * n odd leaves one out in each round, not the same one. `scratch` is [n], too. */
void ls_check_round(int n, int round, uint64_t seed, int *partner, int *scratch);

struct ls_check_pair {
    int a, b;     /* nodes, a < b */
    int rail;     /* NIC that carried it; 0 where there is one */
    double value; /* bandwidth, any unit; NAN: not measured */
};
enum ls_check_cause {
    LS_CHECK_SLOW_NODE, /* a: slow with everyone */
    LS_CHECK_SLOW_LINK, /* a, b: slow with each other, fine elsewhere */
    LS_CHECK_SLOW_RAIL, /* rail: slow everywhere, the others are not */
    LS_CHECK_SLOW_GROUP, /* a fast inside, b fast inside (a node of each), slow between: a switch or rail */
    LS_CHECK_NO_BASIS /* too few pairs to tell anything: fewer than three nodes */
};
struct ls_check_finding {
    enum ls_check_cause cause;
    int a, b, rail;
    double score; /* its median / the reference: 0.5 is half as fast */
};
/* Finds what is slow relative to the rest. reference: median of the nodes' best pairs, which one bad
 * node among three, or every second link, cannot move; slow: 20 % below it, and by five times the spread
 * (MAD, as a standard deviation) of the figures above 60 % of it. So noise accuses nobody, and among few
 * nodes only a loss of 40 % is seen. group[node], if not NULL, receives the number of the fast group of each node.
 * *findings is malloc'd (the caller's; NULL if none). NOMEM only. */
enum ls_status ls_check_find_slow(int nodes, const struct ls_check_pair *pair, int n, int *group,
                                  double *reference, struct ls_check_finding **findings, int *count,
                                  struct ls_error *err);

#endif
