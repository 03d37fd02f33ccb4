/* In-memory collectives between threads. See world.h. */
#include "tests/reference/world.h"
#include "tests/reference/ref.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct group {
    int n, seq[LS_WORLD_MAX];
    const void *ptr[LS_WORLD_MAX];
    pthread_barrier_t barrier;
    pthread_mutex_t lock; /* point to point: one message in flight per pair */
    pthread_cond_t moved;
    struct {
        const void *ptr;
        int seq;
    } mail[LS_WORLD_MAX][LS_WORLD_MAX];
};
struct ls_world {
    int mesh[LS_AXES], n;
    bool f64;
    struct group *group[1 << LS_AXES][LS_WORLD_MAX]; /* by axes and first member */
    uint64_t trace[LS_WORLD_MAX];
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("# world: ", stdout);
    vprintf(fmt, ap);
    puts("\nBail out!");
    fflush(stdout);
    va_end(ap);
    _Exit(1); /* other threads hold locks */
}

static void *allocate(size_t n)
{
    void *mem = calloc(n ? n : 1, 1);
    if (!mem)
        die("no memory");
    return mem;
}

/* ---- groups ----------------------------------------------------------------------------------- */

static int stride(const struct ls_world *w, int axis)
{
    int s = 1;
    for (int a = axis + 1; a < LS_AXES; a++)
        s *= w->mesh[a];
    return s;
}

static int rank_of(const struct ls_world *w, const int *coord)
{
    int r = 0;
    for (int a = 0; a < LS_AXES; a++)
        r += coord[a] * stride(w, a);
    return r;
}

void ls_world_coord(const struct ls_world *w, int rank, int coord[LS_AXES])
{
    for (int a = 0; a < LS_AXES; a++)
        coord[a] = rank / stride(w, a) % w->mesh[a];
}

/* The first rank of the group, this rank's place in it, and how many there are. */
static int find_group(const struct ls_world *w, unsigned axes, const int *coord, int *me, int *n)
{
    int first = rank_of(w, coord);
    *me = 0;
    *n = 1;
    for (int a = 0; a < LS_AXES; a++) {
        if (!(axes >> a & 1))
            continue;
        first -= coord[a] * stride(w, a);
        *me = *me * w->mesh[a] + coord[a];
        *n *= w->mesh[a];
    }
    return first;
}

struct ls_world *ls_world_open(const int mesh[LS_AXES], bool f64)
{
    struct ls_world *w = allocate(sizeof *w);
    w->f64 = f64;
    w->n = 1;
    for (int a = 0; a < LS_AXES; a++) {
        w->mesh[a] = mesh[a] > 1 ? mesh[a] : 1;
        w->n *= w->mesh[a];
    }
    if (w->n > LS_WORLD_MAX)
        die("%d ranks, at most %d", w->n, LS_WORLD_MAX);
    for (unsigned axes = 1; axes < 1 << LS_AXES; axes++)
        for (int r = 0; r < w->n; r++) {
            int coord[LS_AXES], me, n;
            ls_world_coord(w, r, coord);
            if (find_group(w, axes, coord, &me, &n) != r)
                continue;
            struct group *g = w->group[axes][r] = allocate(sizeof *g);
            g->n = n;
            pthread_barrier_init(&g->barrier, NULL, (unsigned)n);
            pthread_mutex_init(&g->lock, NULL);
            pthread_cond_init(&g->moved, NULL);
        }
    return w;
}

void ls_world_close(struct ls_world *w)
{
    for (int axes = 1; axes < 1 << LS_AXES; axes++)
        for (int r = 0; r < w->n; r++)
            if (w->group[axes][r]) {
                pthread_barrier_destroy(&w->group[axes][r]->barrier);
                pthread_mutex_destroy(&w->group[axes][r]->lock);
                pthread_cond_destroy(&w->group[axes][r]->moved);
                free(w->group[axes][r]);
            }
    free(w);
}

int ls_world_size(const struct ls_world *w)
{
    return w->n;
}

uint64_t ls_world_trace(const struct ls_world *w, int rank)
{
    return w->trace[rank];
}

/* ---- collectives ------------------------------------------------------------------------------ */

static double get(const void *mem, int64_t i, bool wide)
{
    return wide ? ((const double *)mem)[i] : (double)((const float *)mem)[i];
}

static void reduce(const struct group *g, const struct ls_collective *c, int64_t first,
                   int64_t count, bool wide, void *to)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t i = first + k;
        int start = (int)(i * g->n / c->count);
        double sum = get(g->ptr[start], i, wide);
        for (int r = 1; r < g->n; r++) {
            double v = get(g->ptr[(start + r) % g->n], i, wide);
            sum = c->max ? (v > sum ? v : sum) : sum + v;
            if (!wide)
                sum = (float)sum; /* what travels has the type of the elements */
        }
        if (wide)
            ((double *)to)[k] = sum;
        else
            ((float *)to)[k] = (float)sum;
    }
}

static void together(struct ls_world *w, struct group *g, int me, const struct ls_collective *c)
{
    bool wide = c->dtype == LS_F64 || (c->dtype == LS_F32 && w->f64);
    size_t size = (size_t)ls_ref_size(c->dtype, w->f64);
    bool floats = c->dtype == LS_F32 || c->dtype == LS_F64;
    int64_t n = c->kind == LS_K_ALL_GATHER       ? c->count * g->n
                : c->kind == LS_K_REDUCE_SCATTER ? c->count / g->n
                                                 : c->count;
    if (!floats && c->kind != LS_K_ALL_GATHER)
        die("collective %d sums what is no floating point number", c->seq);
    char *to = allocate((size_t)n * size);
    g->ptr[me] = c->in;
    g->seq[me] = c->seq;
    pthread_barrier_wait(&g->barrier);
    for (int r = 0; r < g->n; r++)
        if (g->seq[r] != c->seq)
            die("member %d is at collective %d, member %d at %d", me, c->seq, r, g->seq[r]);
    if (c->kind == LS_K_ALL_GATHER) {
        size_t row = (size_t)c->inner * size;
        for (int64_t o = 0; o < c->outer; o++)
            for (int r = 0; r < g->n; r++)
                memcpy(to + (size_t)(o * g->n + r) * row, (const char *)g->ptr[r] + (size_t)o * row,
                       row);
    } else
        reduce(g, c, c->kind == LS_K_REDUCE_SCATTER ? me * n : 0, n, wide, to);
    pthread_barrier_wait(&g->barrier); /* nobody reads our operand any more: in place is safe */
    memcpy(c->out, to, (size_t)n * size);
    free(to);
}

static void point_to_point(struct ls_world *w, struct group *g, int me,
                           const struct ls_collective *c)
{
    size_t bytes = (size_t)(c->count * ls_ref_size(c->dtype, w->f64));
    pthread_mutex_lock(&g->lock);
    if (me == c->from) {
        g->mail[me][c->to].ptr = c->in;
        g->mail[me][c->to].seq = c->seq;
        pthread_cond_broadcast(&g->moved);
        while (g->mail[me][c->to].ptr)
            pthread_cond_wait(&g->moved, &g->lock);
    } else {
        while (!g->mail[c->from][me].ptr)
            pthread_cond_wait(&g->moved, &g->lock);
        if (g->mail[c->from][me].seq != c->seq)
            die("%d waits for message %d, %d sent %d", me, c->seq, c->from,
                g->mail[c->from][me].seq);
        memcpy(c->out, g->mail[c->from][me].ptr, bytes);
        g->mail[c->from][me].ptr = NULL;
        pthread_cond_broadcast(&g->moved);
    }
    pthread_mutex_unlock(&g->lock);
}

void ls_world_collective(void *arg, const int *coord, const struct ls_collective *c)
{
    struct ls_world *w = arg;
    int me, n, rank = rank_of(w, coord);
    struct group *g = w->group[c->axes][find_group(w, c->axes, coord, &me, &n)];
    w->trace[rank] = ls_mix64(w->trace[rank], (uint64_t)c->seq);
    if (c->kind == LS_K_SEND)
        point_to_point(w, g, me, c);
    else
        together(w, g, me, c);
}

/* ---- ls_exec ---------------------------------------------------------------------------------- */

static enum ls_status lend(void *arg, int64_t bytes, void **mem, struct ls_error *err)
{
    struct ls_world_rank *r = arg;
    (void)err;
    *mem = r->mem[r->nmem++] = allocate((size_t)bytes);
    r->lent += (int)bytes;
    return LS_OK;
}

static enum ls_status start(void *arg, const struct ls_collective *c, void **req,
                            struct ls_error *err)
{
    struct ls_world_rank *r = arg;
    (void)err;
    if (r->count - r->first == 64)
        die("too many collectives under way");
    r->started++;
    *req = (void *)(intptr_t)++r->count;
    r->queue[(r->count - 1) % 64] = *c;
    if (!r->late)
        ls_world_collective(r->world, r->coord, &r->queue[r->first++ % 64]);
    return LS_OK;
}

static enum ls_status wait_for(void *arg, void *req, struct ls_error *err)
{
    struct ls_world_rank *r = arg;
    (void)err;
    while (r->first < (int)(intptr_t)req)
        ls_world_collective(r->world, r->coord, &r->queue[r->first++ % 64]);
    return LS_OK;
}

static void progress(void *arg)
{
    struct ls_world_rank *r = arg;
    r->progressed++;
}

void ls_world_exec_open(struct ls_world *w, int rank, bool late, struct ls_world_rank *r,
                        struct ls_exec_comm *comm)
{
    *r = (struct ls_world_rank){.world = w, .late = late};
    ls_world_coord(w, rank, r->coord);
    *comm = (struct ls_exec_comm){
        .arg = r, .alloc = lend, .start = start, .wait = wait_for, .progress = progress};
    memcpy(comm->coord, r->coord, sizeof comm->coord);
}

void ls_world_exec_close(struct ls_world_rank *r)
{
    for (int i = 0; i < r->nmem; i++)
        free(r->mem[i]);
}
