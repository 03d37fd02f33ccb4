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

/* One measurement. The same pair is measured several times, by both of its ends: what these figures
 * differ is the noise, and the best of them is what the pair can do. */
struct ls_check_pair {
    int a, b;     /* nodes, a < b */
    double value; /* bandwidth, any unit; NAN: not measured */
    double
        waited; /* share of the time that the one who measured waited for a CPU; 0 if not known */
};
enum ls_check_cause {
    LS_CHECK_SLOW_NODE,  /* a: slow with everyone */
    LS_CHECK_SLOW_LINK,  /* a, b: slow with each other, fine elsewhere */
    LS_CHECK_SLOW_GROUP, /* a fast inside, b fast inside (a node of each), slow between: a switch */
    LS_CHECK_NO_BASIS,   /* too few pairs to tell anything: fewer than three nodes */
    LS_CHECK_TOO_NOISY, /* a, b is the slowest pair, but measurements differ by as much on their own */
    LS_CHECK_TOO_BUSY /* likewise, but the nodes waited for their CPUs: more tasks than CPUs, say */
};
struct ls_check_finding {
    enum ls_check_cause cause;
    int a, b;
    double score; /* its median / the reference: 0.5 is half as fast */
    double
        noise; /* TOO_NOISY: by how much measurements differ, as a share; TOO_BUSY: share waited */
};
/* Finds what is slow relative to the rest.
 *
 * Figure of a pair: the best of its measurements. Reference: median of the nodes' best pairs, which one bad
 * node among three, or every second link, cannot move.
 * A pair is fine if its figure is at least 80 % of the reference, however noisy the rest is: it has shown
 * that it can. It is slow if its figure is below 80 %, and by more than noise explains, which is the larger of
 *   - 3 times what the median measurement of a pair is below its best: of the pair itself, and of the median
 *     pair (a normal distribution's best of 10 is then 4.6 standard deviations below the reference),
 *   - 5 times the spread (MAD, as a standard deviation) of the figures above 60 % of the reference.
 * So a node of half the speed is found as long as single measurements are within 16 %, or pairs within
 * 10 %; beyond that, nobody is accused and nobody acquitted: the only finding is TOO_NOISY. Likewise
 * TOO_BUSY, if the median pair waited for a CPU for a tenth of its time: figures then tell of the CPUs. One
 * busy node among others that are not is a slow node. What cannot be seen at all: noise that stays the same
 * over all measurements of a pair and makes few pairs slow.
 *
 * group[node], if not NULL, receives the number of the fast group of each node.
 * *findings is malloc'd (the caller's; NULL if none). NOMEM only. */
enum ls_status ls_check_find_slow(int nodes, const struct ls_check_pair *pair, int n, int *group,
                                  double *reference, struct ls_check_finding **findings, int *count,
                                  struct ls_error *err);

#endif
