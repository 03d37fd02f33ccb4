/* Decisions on stored machines: which GPUs, NICs, CPUs; which variables, and which are left alone; which
 * diagnostics. Each case from the field stands for its kind. */
#include "tests/topo/machines.h"

static struct ls_arena arena;
static struct ls_error error;
#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define JOB      "SLURM_JOB_ID=7"

static struct ls_topo_request request(const struct ls_topo_machine *m, const char *const *env,
                                      int local_rank, int local_size, int nodes)
{
    return (struct ls_topo_request){.machine = m,
                                    .get = get_listed,
                                    .user = (void *)env,
                                    .bind = true,
                                    .local_rank = local_rank,
                                    .local_size = local_size,
                                    .nodes = nodes,
                                    .ranks = (int64_t)nodes * local_size};
}

/* Decides; the result stays in the arena until the end. */
static struct ls_topo_decision decided(struct ls_topo_request r, enum ls_status *status)
{
    struct ls_topo_decision d;
    error = (struct ls_error){0};
    *status = ls_topo_decide(&r, &arena, &d, &error);
    if (*status != LS_OK)
        memset(&d, 0, sizeof d);
    return d;
}

static struct ls_topo_decision on(const char *tree, const char *const *env, int local_rank,
                                  int local_size, int nodes)
{
    enum ls_status status;
    struct ls_topo_machine *m = load(tree);
    struct ls_topo_decision d = decided(request(m, env, local_rank, local_size, nodes), &status);
    if (status != LS_OK)
        tap_ok(false, "%s: %s", tree, error.message);
    free(m);
    return d;
}

static const char *gpus_of(const struct ls_topo_decision *d, char out[static 128])
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < d->ngpu; i++)
        at += (size_t)snprintf(out + at, 128 - at, "%s%d", i ? "," : "", d->gpu[i]);
    return out;
}

/* ---- GPUs ---- */

static void test_gpus(void)
{
    const struct {
        const char *what, *tree;
        const char *const *env;
        int rank, size;
        const char *want; /* NULL: refused, and the message has `part` */
        const char *part; /* of the message, or of a note; NULL: any */
    } cases[] = {
        {"no job: all", "dgx", ENV("A=1"), 0, 1, "0,1,2,3,4,5,6,7", NULL},
        {"no job: one each", "dgx", ENV("A=1"), 3, 8, "3", NULL},
        {"no job: more ranks than GPUs", "dgx", ENV("A=1"), 9, 10, "1", "share 8 GPUs"},
        {"no job: one GPU for two", "tcp", ENV("A=1"), 1, 2, "0", "share 1 GPU"},
        {"a job without GPUs", "dgx", ENV(JOB), 0, 1, "", "none was granted"},
        {"NoDevFiles of old Slurm", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=NoDevFiles"), 0, 1, "",
         "none was granted"},
        {"set and empty", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES="), 0, 1, "", "none was granted"},
        {"-1", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=-1"), 0, 1, "", NULL},
        {"0,1 and one task", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1"), 0, 1, "0,1", NULL},
        {"one task of eight", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"), 5, 8, "5",
         NULL},
        {"CUDA stops at an empty item", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=0,,1"), 0, 1, "0",
         "CUDA stops"},
        {"CUDA stops at -1", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=0,-1,2"), 0, 1, "0",
         "CUDA stops"},
        {"a device twice", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=2,2"), 0, 1, NULL, "named twice"},
        {"no device of that number", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=9"), 0, 1, NULL,
         "names device 9"},
        {"garbage", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=all"), 0, 1, NULL,
         "CUDA_VISIBLE_DEVICES"},
        {"a UUID", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=GPU-00000000-0000-4000-8000-000000000006"),
         0, 1, "6", NULL},
        {"a UUID of another node", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=GPU-11111111-0000-4000-8000-000000000006"), 0, 1, NULL,
         "another node"},
        {"a beginning that is not unique", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=GPU-00000000"), 0,
         1, NULL, "no GPU of this node"},
        {"--gpus-per-task: local rank 3 sees one", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=3", "SLURM_STEP_GPUS=0,1,2,3"), 3, 4, "3",
         "--gpus-per-task"},
        {"local rank 3 sees four", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1,2,3", "SLURM_STEP_GPUS=0,1,2,3"), 3, 4, "3", NULL},
        {"local rank 3 sees two that all see", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=0,1"), 3, 4, NULL,
         "--gpus-per-node=4"},
        {"two tasks with four GPUs of their own", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=4,5,6,7", "SLURM_STEP_GPUS=0,1,2,3,4,5,6,7"), 1, 2,
         "4,5,6,7", NULL},
        {"more GPUs than tasks", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1,2,3", "SLURM_STEP_GPUS=0,1,2,3"), 0, 2, "0",
         "2 stay unused"},
        {"more tasks than GPUs", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=0"), 1,
         2, "0", "Duplicate GPU"},
        {"variable taken away: Slurm's list", "dgx", ENV(JOB, "SLURM_STEP_GPUS=2,5"), 1, 2, "5",
         NULL},
        {"the job's list in a batch step", "dgx", ENV(JOB, "SLURM_JOB_GPUS=1,2"), 0, 1, "1,2",
         NULL},
        {"cgroup: device 0 is the one that opens", "cgroup",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=0,1,2,3"), 2, 4, "2", NULL},
        {"cgroup: there is no device 1", "cgroup", ENV(JOB, "CUDA_VISIBLE_DEVICES=1"), 0, 1, NULL,
         "can open 1 GPUs (of 4 in this node)"},
        {"cgroup without the variable", "cgroup", ENV("A=1"), 0, 1, "2", NULL},
        {"a MIG instance", "mig",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=MIG-1c2d3e4f-0000-5000-8000-00000001"), 0, 1, "0",
         "divided (MIG)"},
        {"MIG by its older name", "mig",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=MIG-GPU-00000000-0000-4000-8000-000000000000/1/0"), 0, 1,
         "0", "divided (MIG)"},
        {"MIG instances by number", "mig", ENV(JOB, "CUDA_VISIBLE_DEVICES=3"), 0, 1, "0",
         "divided (MIG)"},
        {"GPUs granted where no driver shows any", "troubled", ENV(JOB, "CUDA_VISIBLE_DEVICES=0"),
         0, 1, "0", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum ls_status status;
        char text[128];
        struct ls_topo_machine *m = load(cases[i].tree);
        struct ls_topo_decision d =
            decided(request(m, cases[i].env, cases[i].rank, cases[i].size, 2), &status);
        bool good = cases[i].want ? status == LS_OK && !strcmp(gpus_of(&d, text), cases[i].want) &&
                                        (!cases[i].part || find_note(&d, cases[i].part))
                                  : status == LS_ERR_ENV && strstr(error.message, cases[i].part);
        tap_ok(good, "%s: %s", cases[i].what, status == LS_OK ? gpus_of(&d, text) : error.message);
        free(m);
    }
    struct ls_topo_machine *m = load("dgx");
    enum ls_status status;
    m->ngpu = 0;
    struct ls_topo_decision d =
        decided(request(m, ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1"), 0, 1, 1), &status);
    tap_ok(status == LS_OK && d.ngpu == 0 && find_note(&d, "2 GPUs were granted"),
           "GPUs without a driver are no reason to stop: other vendors, fakes of tests");
    free(m);

    /* Device nodes numbered against the order of the bus: Slurm counts nodes, CUDA the bus. */
    m = load("dgx");
    for (int g = 0; g < 8; g++)
        m->gpu[g].minor = 7 - g;
    d = decided(request(m, ENV(JOB, "SLURM_STEP_GPUS=0,1"), 0, 1, 1), &status);
    tap_ok(d.ngpu == 2 && d.gpu[0] == 7 && d.gpu[1] == 6,
           "Slurm's numbers are those of device nodes");
    d = decided(request(m, ENV(JOB, "CUDA_VISIBLE_DEVICES=0"), 0, 1, 1), &status);
    tap_ok(d.ngpu == 1 && d.gpu[0] == 0, "CUDA's are by the bus");
    tap_ok(is_set_to(&d, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"), "and CUDA is told to count so");
    strcpy(m->gpu[1].model, "NVIDIA A10");
    d = decided(request(m, ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER=FASTEST_FIRST"),
                        0, 1, 1),
                &status);
    tap_ok(is_set_to(&d, "CUDA_DEVICE_ORDER", NULL) &&
               find_note(&d, "CUDA_DEVICE_ORDER=FASTEST_FIRST") && find_note(&d, "several models"),
           "mixed models, and an order of the user's");
    free(m);
}

/* ---- CPUs ---- */

static const char *cpus_of(const struct ls_topo_decision *d, char out[static 128])
{
    return d->bound ? ls_topo_format_cpus(&d->cpus, out) : "";
}

static void test_cpus(void)
{
    static const char all[] = "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7";
    static const char step[] = "SLURM_STEP_GPUS=0,1,2,3,4,5,6,7";
    const struct {
        const char *what, *tree;
        const char *const *env;
        int rank, size;
        const char *want; /* "": not bound */
        const char *part; /* of a note */
    } cases[] = {
        {"eight tasks, first", "dgx", ENV(JOB, all, step), 0, 8, "0-13,112-125", "whole cores"},
        {"eight tasks, last", "dgx", ENV(JOB, all, step), 7, 8, "98-111,210-223", NULL},
        {"GPUs bound one to each task", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=6", step), 6, 8,
         "84-97,196-209", NULL},
        {"two tasks on one socket share it", "dgx",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=0,1"), 1, 2, "28-55,140-167", NULL},
        {"one task and one GPU", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=5"), 0, 1, "56-111,168-223",
         NULL},
        {"one task and GPUs on both sockets", "dgx", ENV(JOB, all), 0, 1, "0-223", NULL},
        {"GPUs given in another order", "dgx", ENV(JOB, "CUDA_VISIBLE_DEVICES=7", step), 0, 8, "",
         "another order"},
        {"--cpu-bind=none", "dgx", ENV(JOB, all, step, "SLURM_CPU_BIND_TYPE=none"), 0, 8, "",
         "--cpu-bind=none"},
        {"fewer than --cpus-per-task", "dgx", ENV(JOB, all, step, "SLURM_CPUS_PER_TASK=64"), 0, 8,
         "", "--cpus-per-task"},
        {"Slurm cut the CPUs already", "cgroup",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=0,1,2,3", "SLURM_CPUS_ON_NODE=32"), 2,
         4, "", "of its own"},
        {"a job with few CPUs on the node", "cgroup",
         ENV(JOB, "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=2", "SLURM_CPUS_ON_NODE=8"), 0, 1,
         "16-23", NULL},
        {"a mask away from the GPU", "cgroup",
         ENV(JOB, "SLURM_STEP_GPUS=0,1", "SLURM_CPUS_ON_NODE=8"), 0, 2, "16-19", "is near its GPU"},
        {"no place is known", "cloud-vm", ENV(JOB, "CUDA_VISIBLE_DEVICES=0"), 0, 1, "",
         "place is known"},
        {"no place is known, four tasks", "cloud-vm", ENV(JOB, "CUDA_VISIBLE_DEVICES=0,1,2,3"), 3,
         4, "18-23,42-47", NULL},
        {"more tasks than CPUs", "troubled", ENV("A=1"), 0, 64, "", "more tasks than CPUs"},
        {"no GPU, no CPU of choice", "tcp", ENV(JOB), 0, 1, "", "place is known"},
        {"no GPU, four tasks: apart all the same", "tcp", ENV(JOB), 1, 4, "4-7,20-23", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        struct ls_topo_decision d =
            on(cases[i].tree, cases[i].env, cases[i].rank, cases[i].size, 2);
        tap_ok(!strcmp(cpus_of(&d, text), cases[i].want) &&
                   (!cases[i].part || find_note(&d, cases[i].part)),
               "%s: '%s'", cases[i].what, cpus_of(&d, text));
    }
    enum ls_status status;
    struct ls_topo_machine *m = load("dgx");
    struct ls_topo_request r = request(m, ENV(JOB, all, step), 0, 8, 2);
    r.bind = false;
    struct ls_topo_decision d = decided(r, &status);
    tap_ok(!d.bound && find_note(&d, "switched off"), "binding can be switched off");
    free(m);
}

/* Whatever the tree, the tasks and Slurm's variables: within what is allowed, whole cores, apart. */
static void test_apart(void)
{
    static const char *const trees[] = {"dgx",  "roce-bond", "cloud-vm", "mixed",
                                        "many", "tcp",       "cgroup"};
    static const char *const variables[][3] = {{NULL},
                                               {"CUDA_VISIBLE_DEVICES=0,1", JOB},
                                               {"SLURM_STEP_GPUS=0,1", JOB},
                                               {JOB},
                                               {"SLURM_STEP_GPUS=3,1,0,2", JOB}};
    int checked = 0, bad = 0;
    for (size_t t = 0; t < sizeof trees / sizeof *trees; t++)
        for (size_t e = 0; e < sizeof variables / sizeof *variables; e++)
            for (int size = 1; size <= 12; size++) {
                struct ls_topo_machine *m = load(trees[t]);
                cpu_set_t taken, both;
                CPU_ZERO(&taken);
                for (int rank = 0; rank < size; rank++) {
                    enum ls_status status;
                    struct ls_topo_decision d = decided(
                        request(m, (const char *const *)variables[e], rank, size, 1), &status);
                    if (status != LS_OK || !d.bound)
                        continue;
                    checked++;
                    CPU_AND(&both, &taken, &d.cpus);
                    bad += CPU_COUNT(&both) != 0 || CPU_COUNT(&d.cpus) == 0;
                    CPU_OR(&taken, &taken, &d.cpus);
                    CPU_AND(&both, &m->allowed, &d.cpus);
                    bad += !CPU_EQUAL(&both, &d.cpus);
                    for (int c = 0; c < CPU_SETSIZE; c++)
                        bad += CPU_ISSET(c, &d.cpus) && CPU_ISSET(m->core[c], &m->allowed) &&
                               !CPU_ISSET(m->core[c], &d.cpus);
                }
                ls_arena_free(&arena);
                free(m);
            }
    tap_ok(checked > 1000 && bad == 0, "%d bound tasks: in the mask, whole cores, apart; %d bad",
           checked, bad);
}

/* ---- NICs ---- */

static void test_nics(void)
{
    const struct {
        const char *what, *tree;
        const char *const *env;
        int rank, size;
        const char *want;
    } cases[] = {
        {"the one below the same switch", "dgx", ENV("A=1"), 6, 8, "8"},
        {"three below the same switch", "many", ENV("A=1"), 1, 4, "3,4,5"},
        {"the slow one is left out", "many", ENV("A=1"), 0, 4, "0,2"},
        {"all that are near any of the task's GPUs", "mixed", ENV("A=1"), 0, 1, "0,2"},
        {"distance unknown: all", "cloud-vm", ENV("A=1"), 0, 4, "0,1"},
        {"no GPU: all", "roce-bond", ENV(JOB), 0, 1, "1,2"},
        {"none", "tcp", ENV("A=1"), 0, 1, ""},
        {"only open ones", "cgroup", ENV("A=1"), 0, 1, "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_topo_decision d =
            on(cases[i].tree, cases[i].env, cases[i].rank, cases[i].size, 2);
        char text[128] = "";
        size_t at = 0;
        for (int n = 0; n < d.nnic; n++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", n ? "," : "", d.nic[n]);
        tap_ok(!strcmp(text, cases[i].want), "NICs: %s: %s", cases[i].what, text);
    }
}

/* ---- transports and variables ---- */

static void test_transports(void)
{
    const struct {
        const char *tree;
        enum ls_topo_transport transport;
        int nodes;
        enum ls_topo_transport want;
        const char *ucx;  /* NULL: refused, and `part` is of the message */
        const char *part; /* "NAME=VALUE"; NULL: none of the transport's variables is set */
    } cases[] = {
        {"dgx", LS_TOPO_AUTO, 4, LS_TOPO_IB, "rc_mlx5",
         "NCCL_IB_HCA==mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1"},
        {"dgx", LS_TOPO_AUTO, 1, LS_TOPO_SHM, "shm", NULL},
        {"dgx", LS_TOPO_AUTO, 33, LS_TOPO_IB, "dc_mlx5", "UCX_NUM_EPS=264"},
        {"dgx", LS_TOPO_ROCE, 4, LS_TOPO_ROCE, "rc_mlx5", "NCCL_IB_HCA==mlx5_1:1,mlx5_7:1"},
        {"dgx", LS_TOPO_TCP, 4, LS_TOPO_TCP, "tcp", "NCCL_IB_DISABLE=1"},
        {"dgx", LS_TOPO_TCP, 4, LS_TOPO_TCP, "tcp", "UCX_TLS=self,sm,tcp,cuda"},
        {"dgx", LS_TOPO_SHM, 1, LS_TOPO_SHM, "shm", "UCX_TLS=self,sm,cuda"},
        {"dgx", LS_TOPO_SHM, 2, 0, NULL, "on 2 nodes"},
        {"dgx", LS_TOPO_KEEP, 4, LS_TOPO_IB, "rc_mlx5", NULL},
        {"roce-bond", LS_TOPO_AUTO, 2, LS_TOPO_ROCE, "rc_mlx5",
         "NCCL_IB_HCA==mlx5_bond_0:1,mlx5_bond_1:1"},
        {"roce-bond", LS_TOPO_IB, 2, 0, NULL, "transport 'ib' was asked for"},
        {"roce-v6", LS_TOPO_AUTO, 2, LS_TOPO_ROCE, "rc_mlx5", "NCCL_IB_ADDR_FAMILY=AF_INET6"},
        {"roce-v6", LS_TOPO_AUTO, 2, LS_TOPO_ROCE, "rc_mlx5", "NCCL_SOCKET_FAMILY=AF_INET6"},
        {"cloud-vm", LS_TOPO_AUTO, 2, LS_TOPO_ROCE, "rc_mlx5", "NCCL_SOCKET_IFNAME==eth0"},
        {"tcp", LS_TOPO_AUTO, 2, LS_TOPO_TCP, "tcp", "NCCL_SOCKET_IFNAME==eth1"},
        {"tcp", LS_TOPO_AUTO, 300, LS_TOPO_TCP, "tcp", "NCCL_SOCKET_IFNAME==eth1"},
        {"tcp", LS_TOPO_IB, 2, 0, NULL, "no RDMA device"},
        {"tcp", LS_TOPO_ROCE, 2, 0, NULL, "no RDMA device"},
        {"mixed", LS_TOPO_AUTO, 2, LS_TOPO_IB, "rc_mlx5", "NCCL_IB_HCA==mlx5_0:1,mlx5_2:1"},
        {"mixed", LS_TOPO_ROCE, 2, LS_TOPO_ROCE, "rc_mlx5",
         "NCCL_IB_HCA==mlx5_1:1,mlx5_3:1,mlx5_4:2"},
        {"many", LS_TOPO_AUTO, 2, LS_TOPO_IB, "rc_mlx5",
         "NCCL_IB_HCA==mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,"
         "mlx5_9:1,mlx5_10:1,mlx5_11:1"},
        {"mig", LS_TOPO_AUTO, 2, LS_TOPO_IB, "rc_mlx5", NULL},
        {"troubled", LS_TOPO_AUTO, 2, LS_TOPO_IB, "rc_mlx5", "NCCL_IB_HCA==mlx5_0:1"},
    };
    static const char *const transport_variables[] = {
        "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "UCX_TLS", "NCCL_IB_ADDR_FAMILY"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum ls_status status;
        struct ls_topo_machine *m = load(cases[i].tree);
        int size = cases[i].nodes == 33 ? 8 : 1;
        struct ls_topo_request r = request(m, ENV("A=1"), 0, size, cases[i].nodes);
        r.transport = cases[i].transport;
        struct ls_topo_decision d = decided(r, &status);
        bool good = status == (cases[i].ucx ? LS_OK : LS_ERR_ENV);
        if (!cases[i].ucx) {
            good = good && strstr(error.message, cases[i].part);
        } else if (good) {
            char name[64] = "";
            const char *equals = cases[i].part ? strchr(cases[i].part, '=') : NULL;
            good = d.expected == cases[i].want && !strcmp(d.expected_ucx, cases[i].ucx);
            if (equals) {
                snprintf(name, sizeof name, "%.*s", (int)(equals - cases[i].part), cases[i].part);
                good = good && is_set_to(&d, name, equals + 1);
            }
            for (int k = 0; k < 5 && !equals; k++)
                good = good && (is_set_to(&d, transport_variables[k], NULL) ||
                                (cases[i].transport == LS_TOPO_SHM));
        }
        tap_ok(good, "%s, %s on %d nodes: %s %s", cases[i].tree,
               ls_topo_transport_names[cases[i].transport], cases[i].nodes,
               status == LS_OK ? d.expected_ucx : error.message,
               cases[i].part ? cases[i].part : "");
        free(m);
    }
    struct ls_topo_decision d = on("dgx", ENV("A=1"), 0, 8, 33);
    tap_ok(is_set_to(&d, "UCX_NUM_PPN", "8") && find_note(&d, "dc_mlx5: 264 endpoints"),
           "33 nodes of 8 ranks are the first beyond 256 endpoints");
    d = on("tcp", ENV("A=1"), 0, 1, 41);
    tap_ok(find_note(&d, "folklore") && find_note(&d, "up to 40 connections") &&
               !strcmp(d.interface, "eth1"),
           "TCP: what grows with the peers, and what is folklore");
}

static void test_endpoints(void)
{
    struct ls_topo_machine *m = load("dgx");
    const struct {
        int64_t endpoints;
        int rc_max;
        const char *want;
    } cases[] = {{0, 256, "rc_mlx5"},    {256, 256, "rc_mlx5"},  {257, 256, "dc_mlx5"},
                 {7200, 256, "dc_mlx5"}, {257, 1024, "rc_mlx5"}, {2, 1, "dc_mlx5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        tap_ok(
            !strcmp(ls_topo_ucx_transport(m, cases[i].endpoints, cases[i].rc_max), cases[i].want),
            "%lld endpoints of %d: %s", (long long)cases[i].endpoints, cases[i].rc_max,
            cases[i].want);
    for (int i = 0; i < m->nnic; i++) {
        strcpy(m->nic[i].driver, "irdma");
        strcpy(m->nic[i].name, "irdma0");
    }
    tap_ok(!strcmp(ls_topo_ucx_transport(m, 300, 256), "ud_verbs") &&
               !strcmp(ls_topo_ucx_transport(m, 256, 256), "rc_verbs"),
           "cards without DC fall to UD");
    m->nnic = 0;
    tap_ok(!strcmp(ls_topo_ucx_transport(m, 5000, 256), "tcp"),
           "TCP at any size, if nothing else is");
    free(m);
}

/* Whether UCX has its InfiniBand module decides what may be said to it. */
static void test_ucx_module(void)
{
    enum ls_status status;
    struct ls_topo_machine *m = load("dgx");
    struct ls_topo_request r = request(m, ENV("A=1"), 0, 8, 4);
    struct ls_topo_decision d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_NET_DEVICES", NULL) && !find_note(&d, "libuct_ib"),
           "'auto' names no devices to UCX");
    r.transport = LS_TOPO_ROCE;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_NET_DEVICES", NULL) &&
               strstr(find_variable(&d, "UCX_NET_DEVICES")->reason, "which see if UCX has"),
           "nor does 'roce' where UCX is not known");
    m->ucx = LS_TOPO_UCX_IB;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_NET_DEVICES", "mlx5_1:1,mlx5_7:1") &&
               !strcmp(d.expected_ucx, "rc_mlx5"),
           "'roce' binds UCX to the RoCE ports, beside InfiniBand");
    r.transport = LS_TOPO_IB;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_NET_DEVICES",
                     "mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1"),
           "'ib' to the InfiniBand ports");
    r.transport = LS_TOPO_AUTO;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_NET_DEVICES", NULL), "'auto' still to none");
    m->ucx = LS_TOPO_UCX_NO_IB;
    d = decided(r, &status);
    const struct ls_topo_note *note = find_note(&d, "libuct_ib");
    tap_ok(note && note->level == LS_TOPO_WARN && strstr(note->text, "InfiniBand is active") &&
               d.expected == LS_TOPO_IB && !strcmp(d.expected_ucx, "tcp") &&
               !strcmp(ls_topo_ucx_transport(m, 2, 256), "tcp"),
           "without the module UCX takes TCP beside an active port, and that is said");
    r.transport = LS_TOPO_ROCE;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_NET_DEVICES", NULL) && find_note(&d, "holds for NCCL only"),
           "and a demand leaves UCX its TCP");
    r.transport = LS_TOPO_AUTO;
    r.nodes = 1;
    r.ranks = 8;
    d = decided(r, &status);
    tap_ok(!find_note(&d, "libuct_ib"), "on one node it is of no interest");
    free(m);
}

/* Names of the variables that were given a value. */
static int count_set(const struct ls_topo_decision *d)
{
    int n = 0;
    for (int i = 0; i < d->nvariable; i++)
        n += d->variable[i].value != NULL;
    return n;
}

static void test_hands_off(void)
{
    static const char *const never[] = {"NCCL_ALGO",
                                        "NCCL_PROTO",
                                        "NCCL_MIN_CTAS",
                                        "NCCL_BUFFSIZE",
                                        "NCCL_NVLS_ENABLE",
                                        "NCCL_NET_GDR_LEVEL",
                                        "NCCL_P2P_LEVEL",
                                        "NCCL_TOPO_FILE",
                                        "NCCL_IB_GID_INDEX",
                                        "NCCL_IB_TC",
                                        "NCCL_IB_SL",
                                        "NCCL_IB_TIMEOUT",
                                        "NCCL_CROSS_NIC",
                                        "UCX_NET_DEVICES",
                                        "UCX_TLS",
                                        "UCX_RNDV_THRESH",
                                        "UCX_RNDV_SCHEME",
                                        "CUDA_VISIBLE_DEVICES",
                                        "CUDA_DEVICE_MAX_CONNECTIONS"};
    static const char *const trees[] = {"dgx",   "roce-bond", "roce-v6", "cloud-vm", "tcp",
                                        "mixed", "many",      "mig",     "cgroup",   "troubled"};
    int bad = 0;
    for (size_t t = 0; t < 10; t++) {
        struct ls_topo_decision d = on(trees[t], ENV("A=1"), 0, 1, 8);
        for (size_t i = 0; i < sizeof never / sizeof *never; i++)
            bad += !is_set_to(&d, never[i], NULL);
        for (int i = 0; i < d.nvariable; i++)
            bad += !d.variable[i].reason || !*d.variable[i].reason;
    }
    tap_ok(bad == 0,
           "variables that are never guessed are not, on any machine; each has its reason");

    /* Every variable that the rules would set, set by the user to something else, one at a time. */
    int tried = 0;
    for (size_t t = 0; t < 10; t++) {
        struct ls_topo_decision d = on(trees[t], ENV("A=1"), 0, 1, 8);
        for (int i = 0; i < d.nvariable; i++) {
            if (!d.variable[i].value)
                continue;
            char mine[128];
            snprintf(mine, sizeof mine, "%s=mine", d.variable[i].name);
            struct ls_topo_decision e = on(trees[t], ENV(mine), 0, 1, 8);
            const struct ls_topo_variable *v = find_variable(&e, d.variable[i].name);
            tried++;
            bad += v->value || !strstr(v->reason, "'mine'") || count_set(&e) < count_set(&d) - 1;
            snprintf(mine, sizeof mine, "%s=", d.variable[i].name);
            e = on(trees[t], ENV(mine), 0, 1, 8);
            bad += find_variable(&e, d.variable[i].name)->value != NULL;
            /* and by the site's files */
            enum ls_status status;
            struct ls_topo_machine *m = load(trees[t]);
            struct ls_topo_request r = request(m, ENV("A=1"), 0, 1, 8);
            const char *const keys[] = {d.variable[i].name, NULL};
            r.site_keys = keys;
            e = decided(r, &status);
            v = find_variable(&e, d.variable[i].name);
            bad += v->value || !strstr(v->reason, "configuration file");
            free(m);
        }
    }
    tap_ok(bad == 0 && tried > 50,
           "what user or site have set, even to nothing, is left alone: %d times", tried);
    ls_arena_free(&arena);
}

static void test_site(void)
{
    enum ls_status status;
    struct ls_topo_machine *m = load("dgx");
    struct ls_topo_site site = ls_topo_site_default;
    struct ls_topo_request r = request(m, ENV("A=1"), 0, 8, 64);
    r.site = &site;
    site.traffic_class = 106;
    site.service_level = 3;
    site.fabric = LS_TOPO_FABRIC_RAIL;
    site.rc_max = 1024;
    strcpy(site.interface, "ib0");
    strcpy(site.nic, "mlx5_0,mlx5_3");
    struct ls_topo_decision d = decided(r, &status);
    tap_ok(is_set_to(&d, "NCCL_IB_TC", "106") && is_set_to(&d, "NCCL_IB_SL", "3") &&
               is_set_to(&d, "NCCL_CROSS_NIC", "0") && is_set_to(&d, "UCX_IB_TRAFFIC_CLASS", NULL),
           "what the site declares of its fabric");
    tap_ok(is_set_to(&d, "NCCL_SOCKET_IFNAME", "=ib0") && !strcmp(d.interface, "ib0") &&
               is_set_to(&d, "NCCL_IB_HCA", "=mlx5_0:1,mlx5_3:1") &&
               !strcmp(d.expected_ucx, "rc_mlx5"),
           "its interface, NICs, and limit of RC");
    tap_ok(strstr(find_variable(&d, "UCX_IB_TRAFFIC_CLASS")->reason, "which see if UCX has"),
           "what cannot be seen here is left to who can");
    m->ucx = LS_TOPO_UCX_NO_IB;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_IB_SL", NULL) &&
               strstr(find_variable(&d, "UCX_IB_SL")->reason, "UCX has no InfiniBand module"),
           "nothing is set for a module that is not there");
    m->ucx = LS_TOPO_UCX_IB;
    site.fabric = LS_TOPO_FABRIC_SINGLE;
    strcpy(site.interface, "eth77");
    strcpy(site.nic, "mlx5_0,mlx5_99");
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "UCX_IB_TRAFFIC_CLASS", "106") && is_set_to(&d, "UCX_IB_SL", "3") &&
               is_set_to(&d, "NCCL_CROSS_NIC", "1"),
           "UCX is told only where it has InfiniBand");
    tap_ok(find_note(&d, "eth77 is missing") && find_note(&d, "names mlx5_99") &&
               is_set_to(&d, "NCCL_IB_HCA", "=mlx5_0:1") && !strcmp(d.interface, "eno1"),
           "what the site names and this node lacks is a problem, not an error");
    strcpy(site.nic, "nic9");
    d = decided(r, &status);
    tap_ok(status == LS_OK && find_note(&d, "none of the NICs") && d.expected == LS_TOPO_IB,
           "none of the site's NICs is here: by rule");
    r.transport = LS_TOPO_TCP;
    d = decided(r, &status);
    tap_ok(is_set_to(&d, "NCCL_IB_TC", NULL) && is_set_to(&d, "NCCL_IB_HCA", NULL) &&
               is_set_to(&d, "UCX_IB_SL", NULL) &&
               strstr(find_variable(&d, "UCX_IB_SL")->reason, "no RDMA device is used"),
           "a traffic class is nothing without RDMA");
    free(m);
}

static void test_omp(void)
{
    const struct {
        const char *what, *tree;
        const char *const *env;
        int size;
        const char *want;
    } cases[] = {
        {"cores of a bound task, not threads", "dgx", ENV("A=1"), 8, "14"},
        {"one task", "tcp", ENV(JOB), 1, "16"},
        {"--cpus-per-task", "dgx", ENV(JOB, "SLURM_CPUS_PER_TASK=4", "CUDA_VISIBLE_DEVICES=0"), 1,
         "4"},
        {"few CPUs on the node and no mask", "dgx", ENV(JOB, "SLURM_CPUS_ON_NODE=16"), 4, "4"},
        {"a mask of its own", "cgroup", ENV(JOB, "SLURM_CPUS_ON_NODE=32", "SLURM_STEP_GPUS=2"), 4,
         "8"},
        {"more tasks than cores", "troubled", ENV("A=1"), 64, "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_topo_decision d = on(cases[i].tree, cases[i].env, 0, cases[i].size, 1);
        const struct ls_topo_variable *v = find_variable(&d, "OMP_NUM_THREADS");
        tap_ok(v && v->value && !strcmp(v->value, cases[i].want), "OMP_NUM_THREADS, %s: %s (%s)",
               cases[i].what, v && v->value ? v->value : "-", v ? v->reason : "");
    }
}

/* ---- diagnostics ---- */

static void test_notes(void)
{
    const struct {
        const char *tree;
        const char *const *env;
        int size, nodes;
        enum ls_topo_level level;
        const char *part;
        bool want;
    } cases[] = {
        /* limits */
        {"cloud-vm", ENV("A=1"), 1, 2, LS_TOPO_PROBLEM, "LimitMEMLOCK", true},
        {"tcp", ENV("A=1"), 1, 2, LS_TOPO_WARN, "LimitMEMLOCK", true},
        {"tcp", ENV(JOB), 1, 2, LS_TOPO_WARN, "LimitMEMLOCK", false},
        {"dgx", ENV("A=1"), 8, 2, LS_TOPO_WARN, "LimitMEMLOCK", false},
        {"roce-bond", ENV("A=1"), 4, 1, LS_TOPO_PROBLEM, "/dev/shm", true},
        {"roce-bond", ENV("A=1"), 1, 1, LS_TOPO_PROBLEM, "/dev/shm", false},
        {"tcp", ENV("A=1"), 1, 2, LS_TOPO_WARN, "stack is unlimited", true},
        {"tcp", ENV("A=1"), 1, 200, LS_TOPO_WARN, "LimitNOFILE", true},
        {"tcp", ENV("A=1"), 1, 8, LS_TOPO_WARN, "LimitNOFILE", false},
        {"dgx", ENV("A=1"), 8, 512, LS_TOPO_WARN, "LimitNOFILE", false},
        /* network */
        {"cgroup", ENV("A=1"), 1, 2, LS_TOPO_WARN, "mlx5_0 is active, but", true},
        {"troubled", ENV("A=1"), 1, 2, LS_TOPO_WARN, "mlx5_1 is RoCE without", true},
        {"troubled", ENV("A=1"), 1, 2, LS_TOPO_PROBLEM, "no subnet manager", true},
        {"dgx", ENV("A=1"), 1, 2, LS_TOPO_PROBLEM, "no subnet manager", false},
        {"mixed", ENV("A=1"), 1, 2, LS_TOPO_INFO, "InfiniBand and RoCE ports", true},
        {"many", ENV("A=1"), 1, 2, LS_TOPO_INFO, "InfiniBand and RoCE ports", false},
        {"cgroup", ENV("A=1"), 1, 2, LS_TOPO_WARN, "below a third", true},
        {"dgx", ENV("A=1"), 8, 2, LS_TOPO_WARN, "below a third", false},
        {"many", ENV("A=1"), 4, 2, LS_TOPO_WARN, "below a third", false},
        {"cgroup", ENV("A=1"), 1, 1, LS_TOPO_WARN, "below a third", false},
        /* GPUs and NICs */
        {"mixed", ENV("A=1"), 1, 2, LS_TOPO_WARN, "GPUDirect RDMA is off", true},
        {"dgx", ENV("A=1"), 1, 2, LS_TOPO_WARN, "GPUDirect RDMA is off", false},
        {"roce-bond", ENV("A=1"), 1, 2, LS_TOPO_WARN, "GPUDirect RDMA is off", false},
        {"troubled", ENV("A=1"), 1, 2, LS_TOPO_INFO, "at distance PHB", true},
        {"cloud-vm", ENV("A=1"), 1, 2, LS_TOPO_WARN, "numa_node is -1", true},
        {"mixed", ENV("A=1"), 1, 2, LS_TOPO_WARN, "IOMMU", true},
        {"dgx", ENV("A=1"), 1, 2, LS_TOPO_WARN, "IOMMU", false},
        /* tasks */
        {"dgx", ENV("SLURM_TASKS_PER_NODE=7,8"), 8, 2, LS_TOPO_WARN, "different numbers", true},
        {"dgx", ENV("SLURM_TASKS_PER_NODE=8(x2)"), 8, 2, LS_TOPO_WARN, "different numbers", false},
        {"dgx", ENV("SLURM_TASKS_PER_NODE=8(x3),7"), 8, 4, LS_TOPO_WARN, "different numbers", true},
        {"dgx", ENV("SLURM_TASKS_PER_NODE=junk"), 8, 4, LS_TOPO_WARN, "different numbers", false},
        {"cgroup", ENV("SLURM_CPUS_PER_TASK=16"), 1, 1, LS_TOPO_WARN, "SRUN_CPUS_PER_TASK", true},
        {"cgroup", ENV("SLURM_CPUS_PER_TASK=8"), 1, 1, LS_TOPO_WARN, "SRUN_CPUS_PER_TASK", false},
        /* the user's own variables */
        {"many", ENV("NCCL_IB_HCA=mlx5_1"), 1, 2, LS_TOPO_WARN, "means 2 more devices", true},
        {"many", ENV("NCCL_IB_HCA==mlx5_1"), 1, 2, LS_TOPO_WARN, "more devices", false},
        {"many", ENV("NCCL_IB_HCA=^mlx5_1"), 1, 2, LS_TOPO_WARN, "means 2 more devices", true},
        {"many", ENV("NCCL_IB_HCA=^=mlx5_1"), 1, 2, LS_TOPO_WARN, "more devices", false},
        {"many", ENV("NCCL_IB_HCA=mlx5_1:1,mlx5_2"), 1, 2, LS_TOPO_WARN, "means 2 more devices",
         true},
        {"many", ENV("NCCL_IB_HCA=mlx5_2,mlx5_11"), 1, 2, LS_TOPO_WARN, "more devices", false},
        {"many", ENV("NCCL_IB_HCA=mlx5"), 1, 2, LS_TOPO_WARN, "NCCL_IB_HCA", false},
        {"many", ENV("NCCL_IB_HCA=ibp1"), 1, 2, LS_TOPO_PROBLEM, "names ibp1", true},
        {"many", ENV("NCCL_IB_HCA==mlx5"), 1, 2, LS_TOPO_PROBLEM, "names mlx5,", true},
        {"tcp", ENV("NCCL_SOCKET_IFNAME=^docker0"), 1, 2, LS_TOPO_WARN, "lo may be taken", true},
        {"tcp", ENV("NCCL_SOCKET_IFNAME=^docker,lo"), 1, 2, LS_TOPO_WARN, "lo may be taken", false},
        {"tcp", ENV("NCCL_SOCKET_IFNAME=eth"), 1, 2, LS_TOPO_PROBLEM, "NCCL_SOCKET_IFNAME", false},
        {"tcp", ENV("NCCL_SOCKET_IFNAME==eth"), 1, 2, LS_TOPO_PROBLEM, "NCCL_SOCKET_IFNAME", true},
        {"tcp", ENV("NCCL_SOCKET_IFNAME=ib0"), 1, 2, LS_TOPO_PROBLEM, "NCCL_SOCKET_IFNAME", true},
        {"dgx", ENV("NCCL_P2P_LEVEL=2"), 1, 2, LS_TOPO_WARN, "NCCL_P2P_LEVEL=2", true},
        {"dgx", ENV("NCCL_NET_GDR_LEVEL=pxb"), 1, 2, LS_TOPO_WARN, "NCCL_NET_GDR_LEVEL=pxb", true},
        {"dgx", ENV("NCCL_NET_GDR_LEVEL=SYS"), 1, 2, LS_TOPO_WARN, "NCCL_NET_GDR_LEVEL", false},
        {"roce-bond", ENV("NCCL_IB_GID_INDEX=0"), 1, 2, LS_TOPO_WARN, "NCCL_IB_GID_INDEX=0", true},
        {"roce-bond", ENV("NCCL_IB_GID_INDEX=3"), 1, 2, LS_TOPO_WARN, "NCCL_IB_GID_INDEX", false},
        {"dgx", ENV("UCX_TLS=rc,self,sm"), 1, 2, LS_TOPO_WARN, "lacks cuda", true},
        {"dgx", ENV("UCX_TLS=rc,self,sm,cuda_copy"), 1, 2, LS_TOPO_WARN, "lacks cuda", false},
        {"dgx", ENV("UCX_TLS=^ud"), 1, 2, LS_TOPO_WARN, "UCX_TLS", false},
        {"dgx", ENV("UCX_TLS=all"), 8, 900, LS_TOPO_WARN, "UCX_TLS", false},
        {"dgx", ENV("UCX_TLS=rc_x,self,sm,cuda"), 8, 900, LS_TOPO_WARN, "forces RC on 7200", true},
        {"dgx", ENV("UCX_TLS=rc,dc,self,sm,cuda"), 8, 900, LS_TOPO_WARN, "forces RC", false},
        {"dgx", ENV("UCX_TLS=rc,tcp,cuda"), 8, 2, LS_TOPO_WARN, "lacks sm", true},
        {"tcp", ENV("UCX_TLS=rc,self,sm,cuda"), 1, 2, LS_TOPO_PROBLEM, "names InfiniBand only",
         true},
        {"tcp", ENV("UCX_TLS=tcp,self,sm,cuda"), 1, 2, LS_TOPO_PROBLEM, "names InfiniBand", false},
        {"tcp", ENV("UCX_NET_DEVICES=mlx5_0:1"), 1, 2, LS_TOPO_PROBLEM, "names mlx5_0,", true},
        {"tcp", ENV("UCX_NET_DEVICES=eth0"), 1, 2, LS_TOPO_PROBLEM, "UCX_NET_DEVICES", false},
        {"troubled", ENV("UCX_NET_DEVICES=mlx5_2:1"), 1, 2, LS_TOPO_PROBLEM, "missing or down",
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_topo_decision d =
            on(cases[i].tree, cases[i].env, 0, cases[i].size, cases[i].nodes);
        const struct ls_topo_note *note = find_note(&d, cases[i].part);
        tap_ok((note != NULL) == cases[i].want && (!note || note->level == cases[i].level),
               "%s, %s: %s'%s'", cases[i].tree, cases[i].env[0], cases[i].want ? "" : "no ",
               cases[i].part);
    }
    /* A port without a routable address, where it is a compute port. */
    enum ls_status status;
    struct ls_topo_machine *m = load("troubled");
    struct ls_topo_request r = request(m, ENV("A=1"), 0, 1, 2);
    r.transport = LS_TOPO_ROCE;
    struct ls_topo_decision d = decided(r, &status);
    tap_ok(find_note(&d, "mlx5_3 port 1 has no routable") != NULL, "RoCE without an address");
    free(m);
}

/* A port of each kind on one card: the list must name ports. */
static void test_ports(void)
{
    enum ls_status status;
    struct ls_topo_machine *m = load("mixed");
    m->nic[0] = m->nic[4]; /* InfiniBand on port 1, Ethernet on port 2 */
    m->nnic = 1;
    ls_topo_classify(m);
    struct ls_topo_request r = request(m, ENV("A=1"), 0, 1, 2);
    struct ls_topo_decision d = decided(r, &status);
    tap_ok(d.expected == LS_TOPO_IB && is_set_to(&d, "NCCL_IB_HCA", "=mlx5_4:1"),
           "two kinds of port on one card, InfiniBand first");
    r.transport = LS_TOPO_ROCE;
    d = decided(r, &status);
    tap_ok(d.expected == LS_TOPO_ROCE && is_set_to(&d, "NCCL_IB_HCA", "=mlx5_4:2"), "and Ethernet");
    free(m);

    /* Front ends: only of Ethernet, and only if the GPUs have others. */
    m = load("roce-bond");
    for (int i = 0; i < m->niface; i++)
        m->iface[i].default_route = !strcmp(m->iface[i].name, "bond0");
    ls_topo_classify(m);
    tap_ok(m->nic[1].class == LS_TOPO_NIC_COMPUTE,
           "the default route on one of two NICs for four GPUs does not take it away");
    m->ngpu = 1;
    ls_topo_classify(m);
    tap_ok(m->nic[1].class == LS_TOPO_NIC_STORAGE && m->nic[2].class == LS_TOPO_NIC_COMPUTE,
           "but it does where others suffice");
    free(m);
}

static void test_request(void)
{
    struct ls_topo_machine *m = load("tcp");
    enum ls_status status;
    struct ls_topo_request bad[] = {request(m, NULL, 1, 1, 1), request(m, NULL, -1, 1, 1),
                                    request(m, NULL, 0, 0, 1), request(m, NULL, 0, 1, -1),
                                    request(m, NULL, 0, 1 << 20, 1)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        decided(bad[i], &status);
        tap_ok(status == LS_ERR_INTERNAL && error.message[0], "not a request: %s", error.message);
    }
    struct ls_topo_request r = request(m, NULL, 0, 1, 0);
    r.get = NULL;
    struct ls_topo_decision d = decided(r, &status);
    tap_ok(status == LS_OK && d.interface, "nothing known of job and environment: %s",
           d.interface ? d.interface : "-");
    free(m);
}

int main(void)
{
    test_gpus();
    test_cpus();
    test_apart();
    test_nics();
    test_transports();
    test_endpoints();
    test_ucx_module();
    test_hands_off();
    test_site();
    test_omp();
    test_notes();
    test_ports();
    test_request();
    ls_arena_free(&arena);
    return tap_done();
}
