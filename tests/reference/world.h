/* Ranks as threads: in-memory collectives for the naive executor and for ls_exec. Each checks that all
 * members of its group are at the same place in the order of collectives; sums start at a different
 * rank for every part of the elements, as those of a ring do. Test code: what goes wrong ends the
 * process with a message. */
#ifndef LS_TESTS_WORLD_H
#define LS_TESTS_WORLD_H

#include "graph/graph.h"

#define LS_WORLD_MAX 16 /* ranks */

struct ls_world;
/* `f64`: elements of LS_F32 are stored as double. */
struct ls_world *ls_world_open(const int mesh[LS_AXES], bool f64);
void ls_world_close(struct ls_world *w);
int ls_world_size(const struct ls_world *w);
void ls_world_coord(const struct ls_world *w, int rank, int coord[LS_AXES]);
/* Runs the collective and returns when it has ended; `arg` is the world. */
void ls_world_collective(void *arg, const int *coord, const struct ls_collective *c);
/* A number that two ranks share when they ran the same collectives in the same order. */
uint64_t ls_world_trace(const struct ls_world *w, int rank);

/* One rank as ls_exec sees it. `late`: a collective runs when somebody waits for it or for a later one,
 * not when it starts. */
struct ls_world_rank {
    struct ls_world *world;
    int coord[LS_AXES];
    bool late;
    struct ls_collective queue[64]; /* started, not run yet */
    int first, count;
    int started, progressed, lent; /* how often; bytes */
    void *mem[LS_ROLES];
    int nmem;
};
void ls_world_exec_open(struct ls_world *w, int rank, bool late, struct ls_world_rank *r,
                        struct ls_exec_comm *comm);
void ls_world_exec_close(struct ls_world_rank *r);

#endif
