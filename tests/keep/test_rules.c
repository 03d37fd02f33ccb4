/* What keepers decide for their ranks on stored machines, and what becomes of a rank's environment. */
#include "keep/internal.h"
#include "keep/rules.h"
#include "tests/topo/machines.h"

static struct ls_arena arena;

/* Decides for every rank of `map`; the decisions stay in the arena. */
static struct ls_topo_decision *decide(const char *tree, const char *const *env,
                                       const struct ls_wire_map *map)
{
    static struct ls_topo_decision d[16];
    struct ls_error err = {0};
    struct ls_topo_machine *m = load(tree);
    const struct ls_topo_request rules = {
        .machine = m, .get = get_listed, .user = (void *)env, .bind = true};
    for (int r = 0; r < map->size && r < 16; r++)
        if (ls_keep_decide(&rules, map, r, &arena, &d[r], &err) != LS_OK)
            tap_ok(false, "%s, rank %d: %s", tree, r, err.message);
    free(m);
    return d;
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define JOB      "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"

static struct ls_wire_map map_of(int keepers, const int *node, const int *workers)
{
    struct ls_wire_map map = {0};
    if (ls_wire_map_init(&map, keepers, node, workers, NULL) != LS_OK)
        exit(1);
    return map;
}

static bool is_apart(const struct ls_topo_decision *d, int n)
{
    cpu_set_t both;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++) {
            CPU_AND(&both, &d[a].cpus, &d[b].cpus);
            if (!d[a].bound || !d[b].bound || CPU_COUNT(&both) > 0)
                return false;
        }
    return true;
}

/* Two nodes of eight GPUs, one keeper of eight ranks on each: what is said of the task must not be taken for that of
 * a rank. */
static void test_several(void)
{
    struct ls_wire_map map = map_of(2, (const int[]){0, 1}, (const int[]){8, 8});
    const struct ls_topo_decision *d =
        decide("dgx",
               ENV(JOB, "SLURM_CPU_BIND_TYPE=none", "SLURM_CPUS_PER_TASK=224",
                   "SLURM_CPUS_ON_NODE=224", "SLURM_GPUS_ON_NODE=8"),
               &map);
    bool one_each = true, sizes = true;
    for (int r = 0; r < 16; r++) {
        one_each &= d[r].ngpu == 1 && d[r].gpu[0] == r % 8;
        sizes &= is_set_to(&d[r], "UCX_NUM_EPS", "16") && is_set_to(&d[r], "UCX_NUM_PPN", "8") &&
                 is_set_to(&d[r], "OMP_NUM_THREADS", "14");
    }
    tap_ok(one_each, "each of eight ranks in a task has a GPU of its own");
    tap_ok(is_apart(d, 8) && is_apart(d + 8, 8) && CPU_COUNT(&d[0].cpus) == 28 &&
               CPU_ISSET(0, &d[0].cpus) && CPU_ISSET(56, &d[4].cpus),
           "and CPUs of its own near it, although Slurm binds no task");
    tap_ok(sizes, "and variables of its own");
    tap_ok(d[0].interface && !strcmp(d[0].interface, "eno1"), "they meet over %s", d[0].interface);
    ls_wire_map_free(&map);
}

/* A keeper for each rank: Slurm's word on tasks is that on ranks. */
static void test_one_each(void)
{
    struct ls_wire_map map = map_of(4, (const int[]){0, 0, 1, 1}, (const int[]){1, 1, 1, 1});
    const struct ls_topo_decision *d =
        decide("dgx", ENV(JOB, "SLURM_CPU_BIND_TYPE=none", "SLURM_CPUS_PER_TASK=4"), &map);
    tap_ok(!d[0].bound && !d[3].bound && is_set_to(&d[0], "OMP_NUM_THREADS", "4"),
           "--cpu-bind=none and --cpus-per-task hold for a task of one rank");
    tap_ok(d[2].ngpu == 1 && d[2].gpu[0] == 0 && d[3].gpu[0] == 1,
           "ranks count from 0 on each node");
    ls_wire_map_free(&map);
}

/* No job, one node: nothing between nodes is set. */
static void test_alone(void)
{
    struct ls_wire_map map = map_of(1, (const int[]){0}, (const int[]){2});
    const struct ls_topo_decision *d = decide("tcp", ENV("A=1"), &map);
    tap_ok(is_set_to(&d[0], "NCCL_SOCKET_IFNAME", NULL) && d[0].expected == LS_TOPO_SHM &&
               is_set_to(&d[1], "UCX_NUM_PPN", "2"),
           "two ranks on one machine share memory");
    ls_wire_map_free(&map);
}

/* What one keeper of several, all with as many ranks, prints on this machine. */
struct scene {
    const struct ls_topo_machine *machine, *told;
    const char *const *env;
    int keepers, nodes, workers, me;
    bool explain;
};

static const char *said(struct scene s)
{
    static char text[65536];
    const struct ls_topo_request rules = {
        .machine = s.machine, .get = get_listed, .user = (void *)s.env, .bind = true};
    FILE *out = tmpfile();
    const struct ls_keep_config config = {
        .workers = s.workers, .rules = &rules, .told = s.told, .explain = s.explain, .out = out};
    struct ls_worker worker[4];
    int node[8], workers[8];
    char *host[8];
    for (int i = 0; i < s.keepers; i++) {
        node[i] = i * s.nodes / s.keepers;
        workers[i] = s.workers;
        host[i] = node[i] ? "n1" : "n0";
    }
    struct ls_keeper k = {.config = &config,
                          .map = map_of(s.keepers, node, workers),
                          .me = s.me,
                          .host = host,
                          .worker = worker};
    struct ls_error err = {0};
    for (int i = 0; i < s.workers; i++) {
        worker[i] = (struct ls_worker){.rank = s.workers * s.me + i, .bound = true};
        CPU_SET(i, &worker[i].cpus);
    }
    if (!out) {
        printf("Bail out! no temporary file\n");
        exit(1);
    }
    if (ls_keep_apply_rules(&k, &err) != LS_OK)
        tap_ok(false, "rules: %s", err.message);
    else
        ls_keep_say_rules(&k);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    fclose(out);
    free(k.decision);
    ls_arena_free(&k.arena);
    ls_wire_map_free(&k.map);
    return text;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

static void test_notes(void)
{
    struct ls_topo_machine *m = load("troubled");
    struct scene s = {
        .machine = m, .env = ENV("SLURM_JOB_ID=7"), .keepers = 2, .nodes = 2, .workers = 4};
    const char *text = said(s);
    tap_ok(count(text, "mlx5_1 is RoCE without") == 1 &&
               count(text, "knows no subnet manager") == 1,
           "keeper 0 says warnings and problems, once for all of its ranks");
    s.me = 1;
    text = said(s);
    tap_ok(count(text, "mlx5_1 is RoCE without") == 0 &&
               count(text, "n1: mlx5_0 port 1 knows no subnet manager") == 1,
           "others only problems, with the name of their node");
    s.me = 0;
    s.env = ENV("A=1");
    text = said(s);
    tap_ok(count(text, "mlx5_1 is RoCE without") == 0 &&
               count(text, "knows no subnet manager") == 1,
           "outside a job only problems");
    free(m);
}

/* The plugin has decided for tasks: what is so only with the real number of ranks, or known only here, is new. */
static void test_told(void)
{
    struct ls_topo_machine *m = load("troubled"), *told = load("troubled");
    struct scene s = {.machine = m,
                      .told = told,
                      .env = ENV("SLURM_JOB_ID=7"),
                      .keepers = 2,
                      .nodes = 2,
                      .workers = 4};
    tap_ok(!*said(s), "nothing where the plugin has said it");
    /* Two tasks can need 520 files, eight ranks 544; a single rank of a node no shared memory, four 256 MiB. */
    m->limits.nofile = told->limits.nofile = 525;
    m->limits.shm_bytes = told->limits.shm_bytes = (int64_t)100 << 20;
    const char *text = said(s);
    tap_ok(count(text, "at most 525 open files, but 8 ranks can need 544") == 1 &&
               count(text, "/dev/shm has") == 1 && count(text, "warning: ") == 2,
           "what only several ranks in a task run into is said: %s", text);
    s.env = ENV("SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0");
    m->gpu[0].mig = true;
    tap_ok(count(said(s), "is divided (MIG)") == 1, "and what the plugin cannot see");
    m->gpu[0].mig = false;
    s.workers = 1;
    tap_ok(!*said(s), "one rank in a task: nothing new");
    free(m);
    free(told);
}

/* Eight tasks of a node, whose CPUs are all near its first GPUs. */
static void test_own(void)
{
    struct ls_topo_machine *m = load("dgx");
    struct scene s = {.machine = m,
                      .env = ENV(JOB, "SLURM_GPUS_ON_NODE=8"),
                      .keepers = 8,
                      .nodes = 1,
                      .workers = 1};
    CPU_ZERO(&m->allowed);
    for (int cpu = 0; cpu < 8; cpu++)
        CPU_SET(cpu, &m->allowed);
    m->limits.nofile = 100;
    const char *text = said(s);
    tap_ok(count(text, "at most 100 open files") == 1 && count(text, "is near its GPU") == 0,
           "the first keeper of a node says what is of the node");
    s.me = 7;
    text = said(s);
    tap_ok(count(text, "at most 100 open files") == 0 &&
               count(text, "no CPU of this task (0-7) is near its GPU") == 1,
           "every one what is of its own ranks: %s", text);
    free(m);
}

static void test_explain(void)
{
    struct ls_topo_machine *m = load("troubled");
    struct scene s = {.machine = m,
                      .env = ENV("SLURM_JOB_ID=7"),
                      .keepers = 2,
                      .nodes = 2,
                      .workers = 4,
                      .explain = true};
    const char *text = said(s);
    tap_ok(count(text, "lockstep: rank 0: GPUs none; NICs mlx5_0; CPUs 0\n") == 1 &&
               count(text, "lockstep: rank 3: UCX_NUM_EPS = 8: ") == 1 &&
               count(text, "lockstep: rank 3: CUDA_VISIBLE_DEVICES left alone: ") == 1 &&
               count(text, "lockstep: rank 3: mlx5_1 is RoCE without") == 1 &&
               count(text, "warning: ") == 0,
           "decisions of every rank are explained: %.400s", text);
    s.told = m;
    tap_ok(count(said(s), "lockstep: rank 3: UCX_NUM_EPS = 8: ") == 1,
           "also where the plugin has explained its own for the task");
    s.me = 1;
    s.told = NULL;
    text = said(s);
    tap_ok(count(text, "rank ") == 0 && count(text, "knows no subnet manager") == 1,
           "on the first node; others say their problems");
    free(m);
}

/* ---- the environment ---- */

static const char *value(char **env, int n, const char *name)
{
    const char *found = NULL;
    size_t len = strlen(name);
    for (int i = 0; i < n; i++)
        if (!strncmp(env[i], name, len) && env[i][len] == '=') {
            if (found)
                return "(twice)";
            found = env[i] + len + 1;
        }
    return found ? found : "(unset)";
}

static void test_environment(void)
{
    struct ls_topo_variable variables[] = {{.name = "NCCL_DEBUG", .value = "WARN"},
                                           {.name = "UCX_NUM_EPS", .value = "16"},
                                           {.name = "UCX_TLS"},
                                           {.name = "OMP_NUM_THREADS"}};
    const struct ls_topo_decision d = {.variable = variables, .nvariable = 4};
    char *env[16] = {"UCX_NUM_EPS=2", "UCX_TLS=self,sm,tcp", "OMP_NUM_THREADS=3", "KEPT=1",
                     "LOCKSTEP_SET=UCX_NUM_EPS=2;UCX_TLS=self,sm,tcp;OMP_NUM_THREADS=8;KEPT=1"};
    int n = 5;
    tap_ok(ls_keep_set_decided(&d, &arena, env, &n), "an environment is made");
    tap_ok(!strcmp(value(env, n, "UCX_NUM_EPS"), "16"), "what was ours is replaced");
    tap_ok(!strcmp(value(env, n, "UCX_TLS"), "(unset)"), "or goes");
    tap_ok(!strcmp(value(env, n, "OMP_NUM_THREADS"), "3"), "what the user has changed since stays");
    tap_ok(!strcmp(value(env, n, "KEPT"), "1"), "and so does what no rule is about");
    tap_ok(!strcmp(value(env, n, "LOCKSTEP_SET"), "NCCL_DEBUG=WARN;UCX_NUM_EPS=16"),
           "the list is that of now: %s", value(env, n, "LOCKSTEP_SET"));
    char *bare[16] = {"A=1"};
    n = 1;
    ls_keep_set_decided(&d, &arena, bare, &n);
    tap_ok(n == 4 && !strcmp(value(bare, n, "NCCL_DEBUG"), "WARN"), "without a list, too");
}

int main(void)
{
    test_several();
    test_one_each();
    test_alone();
    test_notes();
    test_told();
    test_own();
    test_explain();
    test_environment();
    ls_arena_free(&arena);
    return tap_done();
}
