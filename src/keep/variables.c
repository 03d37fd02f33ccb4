/* Pure: (which rank runs where, addresses and ports) -> variables. The names and their meaning:
 *   PyTorch     pytorch.org/docs/stable/elastic/run.html, "Environment Variables"
 *   TensorFlow  tensorflow.org/guide/distributed_training, "Setting up the TF_CONFIG environment variable"
 *   JAX         jax/_src/distributed.py and clusters/: it reads the coordinator's address, and derives number and
 *               id of processes from Slurm's variables or Open MPI's; JAX_NUM_PROCESSES and JAX_PROCESS_ID are
 *               what scripts pass to jax.distributed.initialize themselves
 *   Slurm       srun(1), "OUTPUT ENVIRONMENT VARIABLES"
 *   Open MPI    open-mpi.org FAQ, "environmental variables that MPI processes can use" */
#include "keep/variables.h"

#include <stdlib.h>
#include <string.h>

/* The kernel's MAX_ARG_STRLEN, with the name and the rest of it taken off. */
#define LONGEST (128 * 1024 - 256)

/* Names that end with '*' stand for all that begin so. */
static const char *const names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "NODE_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_*",
    "TF_CONFIG",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "OMPI_COMM_WORLD_*",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_MCA_orte_hnp_uri",
};

static size_t name_length(const char *variable)
{
    return strcspn(variable, "=");
}

bool ls_keep_is_ours(const char *variable)
{
    size_t n = name_length(variable);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t m = strlen(names[i]);
        bool prefix = names[i][m - 1] == '*';
        if (prefix ? n >= m && !strncmp(variable, names[i], m - 1)
                   : n == m && !strncmp(variable, names[i], m))
            return true;
    }
    return false;
}

const char *ls_keep_leftovers(char *const *env, char out[static 512])
{
    size_t at = 0;
    out[0] = '\0';
    for (; env && *env; env++) {
        size_t n = name_length(*env);
        if (!ls_keep_is_ours(*env))
            continue;
        if (at + n + 8 > 512) {
            snprintf(out + at, 512 - at, ", ...");
            break;
        }
        at += (size_t)snprintf(out + at, 512 - at, "%s%.*s", at ? ", " : "", (int)n, *env);
    }
    return out;
}

bool ls_keep_has(char *const *list, const char *variable)
{
    size_t n = name_length(variable);
    for (; *list; list++)
        if (!strncmp(*list, variable, n) && (*list)[n] == '=')
            return true;
    return false;
}

int ls_keep_ports(int keeper, int workers)
{
    return workers + (keeper == 0 ? 2 : 0);
}

void ls_keep_place(const struct ls_keep_world *w, int rank, struct ls_keep_place *place)
{
    const struct ls_wire_map *map = w->map;
    const struct ls_wire_place *at = &map->rank[rank];
    *place = (struct ls_keep_place){.rank = rank,
                                    .size = map->size,
                                    .local_rank = at->local_rank,
                                    .node = at->node,
                                    .n_nodes = map->n_nodes,
                                    .host = w->host[at->keeper],
                                    .job = w->job};
    for (int r = 0; r < map->size; r++)
        place->local_size += map->rank[r].node == at->node;
}

/* ---- addresses ---- */

/* An IPv6 address needs brackets where a port follows. */
static void add_endpoint(struct ls_buf *b, const char *address, int port)
{
    ls_buf_printf(b, strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, port);
}

static void add_rank(const struct ls_keep_world *w, struct ls_buf *b, int rank)
{
    const struct ls_wire_rendezvous *m = w->meet;
    int k = w->map->rank[rank].keeper, i = m->first[k] + rank - w->map->first[k];
    add_endpoint(b, m->address[k], m->port[i]);
}

static int master_port(const struct ls_keep_world *w, int which)
{
    return w->meet->port[w->map->first[1] + which];
}

/* ---- the list ---- */

struct list {
    struct ls_arena *arena;
    char **item;
    int n, cap;
    bool failed;
};

static void add(struct list *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct list *l, const char *fmt, ...)
{
    struct ls_buf text;
    va_list ap;
    ls_buf_init(&text, LONGEST + 256);
    va_start(ap, fmt);
    ls_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    char *copy = text.failed ? NULL : ls_arena_strdup(l->arena, text.data);
    ls_buf_free(&text);
    if (!copy || l->n + 1 >= l->cap)
        l->failed = true;
    else
        l->item[l->n++] = copy;
}

static void add_numbers(struct list *l, const struct ls_keep_place *p)
{
    const struct {
        const char *name;
        int value;
    } number[] = {
        {"RANK", p->rank},
        {"WORLD_SIZE", p->size},
        {"LOCAL_RANK", p->local_rank},
        {"LOCAL_WORLD_SIZE", p->local_size},
        {"GROUP_RANK", p->node},
        {"GROUP_WORLD_SIZE", p->n_nodes},
        {"NODE_RANK", p->node},
        {"ROLE_RANK", p->rank},
        {"ROLE_WORLD_SIZE", p->size},
        {"JAX_NUM_PROCESSES", p->size},
        {"JAX_PROCESS_ID", p->rank},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        add(l, "%s=%d", number[i].name, number[i].value);
}

/* By the address of mpirun JAX, for one, knows that there is one; it does not talk to it. */
static void add_ompi(struct list *l, const struct ls_keep_place *p, const char *coordinator)
{
    const struct {
        const char *name;
        int value;
    } number[] = {
        {"OMPI_COMM_WORLD_RANK", p->rank},
        {"OMPI_COMM_WORLD_SIZE", p->size},
        {"OMPI_COMM_WORLD_LOCAL_RANK", p->local_rank},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", p->local_size},
        {"OMPI_COMM_WORLD_NODE_RANK",
         p->local_rank}, /* of the process on its node, unlike NODE_RANK */
        {"OMPI_UNIVERSE_SIZE", p->size},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        add(l, "%s=%d", number[i].name, number[i].value);
    add(l, "OMPI_MCA_orte_hnp_uri=0.0;tcp://%s", coordinator);
}

/* How many ranks are on each node, in the order of Slurm's list, as "8(x2),4". */
static void add_per_node(struct list *l, const struct ls_keep_world *w)
{
    static const char *const names_of_it[] = {"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"};
    const struct ls_wire_map *map = w->map;
    int nodes = w->slurm->nodes.count;
    struct ls_buf b;
    int *count = ls_arena_alloc(l->arena, (size_t)(nodes + 1) * sizeof *count);
    if (!count) {
        l->failed = true;
        return;
    }
    memset(count, 0, (size_t)(nodes + 1) * sizeof *count);
    for (int k = 0; k < map->n_keepers; k++) {
        int i = ls_hostlist_find(&w->slurm->nodes, w->host[k]);
        if (i >= 0)
            count[i] += map->first[k + 1] - map->first[k];
    }
    ls_buf_init(&b, LONGEST);
    for (int i = 0, same; i < nodes; i += same) {
        for (same = 1; i + same < nodes && count[i + same] == count[i];)
            same++;
        ls_buf_printf(&b, same > 1 ? "%s%d(x%d)" : "%s%d", i ? "," : "", count[i], same);
    }
    l->failed |= b.failed;
    for (size_t i = 0; i < 2 && !b.failed && nodes; i++)
        add(l, "%s=%s", names_of_it[i], b.data);
    ls_buf_free(&b);
}

/* Where every task is one rank, Slurm's variables are right as they are. Else each rank becomes a task of its own
 * in them, as it is for the PMIx server that it sees. */
static void add_slurm(struct list *l, const struct ls_keep_world *w, const struct ls_keep_place *p)
{
    const struct {
        const char *name;
        int value;
    } number[] = {
        {"SLURM_NTASKS", p->size},         {"SLURM_NPROCS", p->size},
        {"SLURM_STEP_NUM_TASKS", p->size}, {"SLURM_PROCID", p->rank},
        {"SLURM_LOCALID", p->local_rank},
    };
    if (!w->slurm || p->size == w->map->n_keepers)
        return;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        add(l, "%s=%d", number[i].name, number[i].value);
    add_per_node(l, w);
}

/* Rank 0 is the chief, the last one the evaluator if there is to be one, the others are workers. The evaluator
 * is no part of the cluster. False: too long for a variable. */
static bool add_tf_config(struct list *l, const struct ls_keep_world *w, int rank)
{
    struct ls_buf b;
    int size = w->map->size, workers = size - (w->evaluator ? 1 : 0);
    ls_buf_init(&b, LONGEST);
    ls_buf_printf(&b, "{\"cluster\": {\"chief\": [\"");
    add_rank(w, &b, 0);
    ls_buf_printf(&b, "\"]");
    for (int r = 1; r < workers; r++) {
        ls_buf_printf(&b, r == 1 ? ", \"worker\": [\"" : ", \"");
        add_rank(w, &b, r);
        ls_buf_printf(&b, r == workers - 1 ? "\"]" : "\"");
    }
    const char *type = rank == 0 ? "chief" : rank < workers ? "worker" : "evaluator";
    int index = rank > 0 && rank < workers ? rank - 1 : 0;
    ls_buf_printf(&b, "}, \"task\": {\"type\": \"%s\", \"index\": %d}}", type, index);
    bool fits = !b.failed;
    if (fits)
        add(l, "TF_CONFIG=%s", b.data);
    ls_buf_free(&b);
    return fits;
}

enum ls_status ls_keep_variables(const struct ls_keep_world *w, int rank, struct ls_arena *arena,
                                 char ***out, bool *left_out, struct ls_error *err)
{
    enum { MOST = 48 };
    struct list l = {.arena = arena, .cap = MOST};
    struct ls_keep_place place;
    struct ls_buf coordinator;
    ls_keep_place(w, rank, &place);
    l.item = ls_arena_alloc(arena, MOST * sizeof *l.item);
    if (!l.item)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the variables of rank %d", rank);
    ls_buf_init(&coordinator, 128);
    add_endpoint(&coordinator, w->meet->address[0], master_port(w, 1));
    add_numbers(&l, &place);
    add(&l, "MASTER_ADDR=%s", w->meet->address[0]);
    add(&l, "MASTER_PORT=%d", master_port(w, 0));
    /* Tells libraries that a launcher has set all of this, so that they do not derive it from Slurm's. */
    add(&l, "TORCHELASTIC_RUN_ID=%s", w->job);
    add(&l, "TORCHELASTIC_RESTART_COUNT=%d", w->restarts);
    add(&l, "TORCHELASTIC_MAX_RESTARTS=0");
    add(&l, "JAX_COORDINATOR_ADDRESS=%s", coordinator.data);
    add_slurm(&l, w, &place);
    *left_out = !add_tf_config(&l, w, rank);
    if (w->ompi)
        add_ompi(&l, &place, coordinator.data);
    l.failed |= coordinator.failed;
    ls_buf_free(&coordinator);
    if (l.failed)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the variables of rank %d", rank);
    *out = l.item;
    return LS_OK;
}
