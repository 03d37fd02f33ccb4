/* Slurm's environment: what real jobs of every kind looked like (recorded on Slurm 22.05), and each way
 * in which it can be incomplete, garbled, contradictory or left over from another job. */
#include "tests/tap.h"
#include "topo/topo.h"

#include <string.h>

/* ---- environments ------------------------------------------------------------------------------- */

/* srun -N2 --ntasks-per-node=2 --gpus-per-node=2 --mpi=pmix, the last task. */
static const char *const step[] = {"CUDA_VISIBLE_DEVICES=0,1",
                                   "PMIX_NAMESPACE=slurm.pmix.2.0",
                                   "PMIX_RANK=3",
                                   "SLURMD_NODENAME=n1",
                                   "SLURM_CPUS_ON_NODE=2",
                                   "SLURM_GPUS_ON_NODE=2",
                                   "SLURM_JOBID=2",
                                   "SLURM_JOB_ID=2",
                                   "SLURM_JOB_NAME=bash",
                                   "SLURM_JOB_NODELIST=n[0-1]",
                                   "SLURM_JOB_NUM_NODES=2",
                                   "SLURM_LOCALID=1",
                                   "SLURM_MPI_TYPE=pmix",
                                   "SLURM_NNODES=2",
                                   "SLURM_NODEID=1",
                                   "SLURM_NODELIST=n[0-1]",
                                   "SLURM_NPROCS=4",
                                   "SLURM_NTASKS=4",
                                   "SLURM_NTASKS_PER_NODE=2",
                                   "SLURM_PROCID=3",
                                   "SLURM_STEPID=0",
                                   "SLURM_STEP_ID=0",
                                   "SLURM_STEP_NODELIST=n[0-1]",
                                   "SLURM_STEP_NUM_NODES=2",
                                   "SLURM_STEP_NUM_TASKS=4",
                                   "SLURM_STEP_TASKS_PER_NODE=2(x2)",
                                   "SLURM_TASKS_PER_NODE=2(x2)",
                                   NULL};

/* The batch script of sbatch -N3 --ntasks-per-node=2 -c2 --gpus-per-node=1. */
static const char *const batch[] = {"CUDA_VISIBLE_DEVICES=0",
                                    "SLURMD_NODENAME=n0",
                                    "SLURM_CPUS_ON_NODE=4",
                                    "SLURM_CPUS_PER_TASK=2",
                                    "SLURM_GPUS_ON_NODE=1",
                                    "SLURM_JOBID=3",
                                    "SLURM_JOB_ID=3",
                                    "SLURM_JOB_NAME=jobname",
                                    "SLURM_JOB_NODELIST=n[0-2]",
                                    "SLURM_JOB_NUM_NODES=3",
                                    "SLURM_LOCALID=0",
                                    "SLURM_NNODES=3",
                                    "SLURM_NODEID=0",
                                    "SLURM_NODELIST=n[0-2]",
                                    "SLURM_NPROCS=6",
                                    "SLURM_NTASKS=6",
                                    "SLURM_NTASKS_PER_NODE=2",
                                    "SLURM_PROCID=0",
                                    "SLURM_TASKS_PER_NODE=2(x3)",
                                    NULL};

/* A step of five tasks on two of the three nodes of that job: 3 + 2. */
static const char *const part_step[] = {"SLURMD_NODENAME=n1",
                                        "SLURM_CPUS_PER_TASK=2",
                                        "SLURM_JOBID=3",
                                        "SLURM_JOB_ID=3",
                                        "SLURM_JOB_NAME=jobname",
                                        "SLURM_JOB_NODELIST=n[0-2]",
                                        "SLURM_JOB_NUM_NODES=3",
                                        "SLURM_LOCALID=1",
                                        "SLURM_NNODES=2",
                                        "SLURM_NODEID=1",
                                        "SLURM_NODELIST=n[0-2]",
                                        "SLURM_NPROCS=5",
                                        "SLURM_NTASKS=5",
                                        "SLURM_NTASKS_PER_NODE=2",
                                        "SLURM_PROCID=4",
                                        "SLURM_STEPID=1",
                                        "SLURM_STEP_ID=1",
                                        "SLURM_STEP_NODELIST=n[0-1]",
                                        "SLURM_STEP_NUM_NODES=2",
                                        "SLURM_STEP_NUM_TASKS=5",
                                        "SLURM_STEP_TASKS_PER_NODE=3,2",
                                        "SLURM_TASKS_PER_NODE=3,2",
                                        NULL};

/* The batch script of a heterogeneous job: one node with one task, then two with two. */
static const char *const het_batch[] = {"SLURMD_NODENAME=n0",
                                        "SLURM_HET_SIZE=2",
                                        "SLURM_JOBID=6",
                                        "SLURM_JOB_ID=6",
                                        "SLURM_JOB_ID_HET_GROUP_0=6",
                                        "SLURM_JOB_ID_HET_GROUP_1=7",
                                        "SLURM_JOB_ID_PACK_GROUP_0=6",
                                        "SLURM_JOB_ID_PACK_GROUP_1=7",
                                        "SLURM_JOB_NODELIST=n0",
                                        "SLURM_JOB_NODELIST_HET_GROUP_0=n0",
                                        "SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2]",
                                        "SLURM_JOB_NUM_NODES=1",
                                        "SLURM_NNODES=1",
                                        "SLURM_NTASKS=1",
                                        "SLURM_NTASKS_HET_GROUP_0=1",
                                        "SLURM_NTASKS_HET_GROUP_1=4",
                                        "SLURM_PACK_SIZE=2",
                                        "SLURM_TASKS_PER_NODE=1",
                                        NULL};

/* The last task of srun -n1 : -N2 --ntasks-per-node=2, where only the old names are set. */
static const char *const het_step[] = {"SLURMD_NODENAME=n2",
                                       "SLURM_HET_SIZE=2",
                                       "SLURM_JOBID=4",
                                       "SLURM_JOB_ID=4",
                                       "SLURM_JOB_ID_PACK_GROUP_0=4",
                                       "SLURM_JOB_ID_PACK_GROUP_1=5",
                                       "SLURM_JOB_NODELIST=n[0-2]",
                                       "SLURM_JOB_NODELIST_PACK_GROUP_0=n0",
                                       "SLURM_JOB_NODELIST_PACK_GROUP_1=n[1-2]",
                                       "SLURM_LOCALID=1",
                                       "SLURM_NNODES=3",
                                       "SLURM_NODEID=2",
                                       "SLURM_NODELIST=n[0-2]",
                                       "SLURM_NPROCS=5",
                                       "SLURM_NTASKS=5",
                                       "SLURM_NTASKS_PER_NODE=2",
                                       "SLURM_PACK_SIZE=2",
                                       "SLURM_PROCID=4",
                                       "SLURM_STEP_ID=0",
                                       "SLURM_STEP_NODELIST=n[0-2]",
                                       "SLURM_STEP_NUM_NODES=3",
                                       "SLURM_STEP_NUM_TASKS=5",
                                       "SLURM_STEP_TASKS_PER_NODE=1,2(x2)",
                                       "SLURM_TASKS_PER_NODE=1,2(x2)",
                                       NULL};

/* A batch script that was submitted from inside `step`: a mixture. */
static const char *const leaked[] = {"PMIX_NAMESPACE=slurm.pmix.1.0",
                                     "SLURMD_NODENAME=n3",
                                     "SLURM_JOBID=2",
                                     "SLURM_JOB_ID=2",
                                     "SLURM_JOB_NODELIST=n3",
                                     "SLURM_JOB_NUM_NODES=1",
                                     "SLURM_LOCALID=0",
                                     "SLURM_MPI_TYPE=pmix",
                                     "SLURM_NNODES=1",
                                     "SLURM_NODEID=0",
                                     "SLURM_NODELIST=n3",
                                     "SLURM_NPROCS=4",
                                     "SLURM_NTASKS=4",
                                     "SLURM_NTASKS_PER_NODE=2",
                                     "SLURM_PROCID=0",
                                     "SLURM_STEPID=0",
                                     "SLURM_STEP_ID=0",
                                     "SLURM_STEP_NODELIST=n[0-1]",
                                     "SLURM_STEP_NUM_NODES=2",
                                     "SLURM_STEP_NUM_TASKS=4",
                                     "SLURM_STEP_TASKS_PER_NODE=2(x2)",
                                     "SLURM_TASKS_PER_NODE=1",
                                     NULL};

/* The shell of salloc -N2 --ntasks-per-node=2 where sites run it on the first node. */
static const char *const interactive[] = {"SLURMD_NODENAME=n0",
                                          "SLURM_JOBID=4",
                                          "SLURM_JOB_ID=4",
                                          "SLURM_JOB_NODELIST=n[0-1]",
                                          "SLURM_JOB_NUM_NODES=2",
                                          "SLURM_LOCALID=0",
                                          "SLURM_MPI_TYPE=none",
                                          "SLURM_NNODES=2",
                                          "SLURM_NODEID=0",
                                          "SLURM_NODELIST=n[0-1]",
                                          "SLURM_NTASKS=4",
                                          "SLURM_NTASKS_PER_NODE=2",
                                          "SLURM_PROCID=0",
                                          "SLURM_STEPID=4294967290",
                                          "SLURM_STEP_ID=4294967290",
                                          "SLURM_STEP_NODELIST=n0",
                                          "SLURM_STEP_NUM_NODES=1",
                                          "SLURM_STEP_NUM_TASKS=1",
                                          "SLURM_STEP_TASKS_PER_NODE=1",
                                          "SLURM_TASKS_PER_NODE=2(x2)",
                                          NULL};

static const char *const nothing[] = {NULL};

/* An environment with changes in front: "NAME=value" sets, "NAME" unsets. Up to four of them. */
struct env {
    const char *const *base;
    const char *change[4];
};

static const char *find(const char *entry, const char *name, bool *here)
{
    size_t n = strlen(name);
    *here = !strncmp(entry, name, n) && (entry[n] == '=' || !entry[n]);
    return *here && entry[n] ? entry + n + 1 : NULL;
}

static const char *get(void *user, const char *name)
{
    const struct env *env = user;
    bool here = false;
    for (int i = 0; i < 4 && env->change[i]; i++) {
        const char *value = find(env->change[i], name, &here);
        if (here)
            return value;
    }
    for (const char *const *entry = env->base; *entry; entry++) {
        const char *value = find(*entry, name, &here);
        if (here)
            return value;
    }
    return NULL;
}

#define READ(environment, ...) \
    ls_slurm_read(get, &(struct env){.base = environment, .change = {__VA_ARGS__}}, &s, &err)

static bool is(const char *got, const char *want)
{
    return got && !strcmp(got, want);
}

static bool warns(const struct ls_slurm *s, const char *part)
{
    for (int i = 0; i < s->nwarnings; i++)
        if (strstr(s->warnings[i], part))
            return true;
    return false;
}

static void show(const struct ls_slurm *s, const struct ls_error *err)
{
    tap_note("place %d nodes %d ntasks %d: %s", (int)s->place, s->nodes.count, s->ntasks,
             err->message);
    for (int i = 0; i < s->nwarnings; i++)
        tap_note("warning: %s", s->warnings[i]);
}

#define CHECK(pass, what)        \
    do {                         \
        if (!tap_ok(pass, what)) \
            show(&s, &err);      \
    } while (0)

/* ---- what real jobs say ------------------------------------------------------------------------- */

static void test_steps(void)
{
    struct ls_slurm s;
    struct ls_error err = {0};
    char name[LS_HOSTLIST_NAME_MAX + 1];
    CHECK(READ(step) == LS_OK && s.place == LS_SLURM_STEP && s.job_id == 2 && s.step_id == 0 &&
              s.nodes.count == 2 && s.node_id == 1 && s.proc_id == 3 && s.local_id == 1 &&
              s.ntasks == 4 && s.tasks_per_node[0] == 2 && s.tasks_per_node[1] == 2,
          "a step of 2 x 2 tasks");
    CHECK(is(s.job_name, "bash") && is(s.node_name, "n1") && is(s.mpi_type, "pmix") &&
              s.array_job_id == -1 && s.array_task_id == -1 && s.restart_count == 0 &&
              s.cpus_per_task == 0 && s.cpus_on_node == 2 && s.gpus_on_node == 2 && s.visible.set &&
              s.visible.count == 2 && !s.ncomponents && !s.nwarnings,
          "its other values");
    ls_slurm_free(&s);
    CHECK(READ(part_step) == LS_OK && s.place == LS_SLURM_STEP && s.nodes.count == 2 &&
              s.ntasks == 5 && s.tasks_per_node[0] == 3 && s.tasks_per_node[1] == 2 &&
              s.proc_id == 4 && s.cpus_per_task == 2 && !s.visible.set && !s.nwarnings,
          "a step on a part of its job, 3 + 2 tasks");
    ls_slurm_free(&s);
    CHECK(READ(het_step) == LS_OK && s.place == LS_SLURM_STEP && s.ntasks == 5 &&
              s.nodes.count == 3 && s.node_id == 2 && s.ncomponents == 2 &&
              s.components[1].job_id == 5 && s.components[1].nodes.count == 2 &&
              is(ls_hostlist_nth(&s.components[1].nodes, 1, name), "n2"),
          "a step over the components of a heterogeneous job");
    ls_slurm_free(&s);
    CHECK(READ(step, "SLURM_ARRAY_JOB_ID=2", "SLURM_ARRAY_TASK_ID=0", "SLURM_RESTART_COUNT=3") ==
                  LS_OK &&
              s.array_job_id == 2 && s.array_task_id == 0 && s.restart_count == 3,
          "an array, requeued");
    ls_slurm_free(&s);
    CHECK(READ(step, "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE",
               "SLURM_STEP_NUM_TASKS") == LS_OK &&
              s.place == LS_SLURM_STEP && s.ntasks == 4 && s.nodes.count == 2,
          "the names of older versions will do");
    ls_slurm_free(&s);
    CHECK(READ(step, "SLURMD_NODENAME=n1.site.org") == LS_OK, "a node under its full name");
    ls_slurm_free(&s);
}

static void test_allocations(void)
{
    struct ls_slurm s;
    struct ls_error err = {0};
    CHECK(READ(batch) == LS_OK && s.place == LS_SLURM_ALLOCATION && s.job_id == 3 &&
              s.step_id == -1 && s.proc_id == -1 && s.nodes.count == 3 && s.ntasks == 6 &&
              s.tasks_per_node && s.tasks_per_node[2] == 2 && s.cpus_per_task == 2 &&
              is(s.job_name, "jobname") && !s.nwarnings,
          "a batch script is no task, whatever SLURM_PROCID says");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURMD_NODENAME", "SLURM_PROCID", "SLURM_NODEID") == LS_OK &&
              s.place == LS_SLURM_ALLOCATION && !s.node_name,
          "the shell of salloc is on no node");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_JOB_CPUS_PER_NODE=4(x3)") == LS_OK && s.cpus_per_node == 4,
          "the CPUs of every node");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_JOB_CPUS_PER_NODE=4(x2),2") == LS_OK && s.cpus_per_node == 0,
          "nodes with different numbers have none in common");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_JOB_CPUS_PER_NODE=4(x") == LS_ERR_ENV &&
              strstr(err.message, "SLURM_JOB_CPUS_PER_NODE"),
          "a garbled number of CPUs");
    err = (struct ls_error){0};
    CHECK(READ(het_batch, "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES",
               "SLURM_NNODES") == LS_OK &&
              s.place == LS_SLURM_ALLOCATION && s.nodes.count == 0 && s.ncomponents == 2 &&
              s.components[1].nodes.count == 2,
          "the shell of a heterogeneous salloc knows the nodes of its components");
    ls_slurm_free(&s);
    CHECK(READ(interactive) == LS_OK && s.place == LS_SLURM_ALLOCATION && s.step_id == -1 &&
              s.nodes.count == 2 && s.ntasks == 4 && !s.nwarnings,
          "nor is it a task where it runs as a step on the first node");
    ls_slurm_free(&s);
    CHECK(READ(interactive, "PMIX_NAMESPACE=slurm.pmix.4.4294967290") == LS_OK && !s.nwarnings,
          "with a PMIx of its own");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_NTASKS", "SLURM_NPROCS") == LS_OK && s.ntasks == 6,
          "tasks are nodes x tasks per node where only these were asked for");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE") == LS_OK &&
              s.ntasks == 6 && !s.tasks_per_node,
          "also without the list");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE",
               "SLURM_TASKS_PER_NODE=4(x3)") == LS_OK &&
              s.ntasks == 0 && !s.tasks_per_node,
          "an exclusive job that asked for no tasks has as many as CPUs, which means nothing");
    ls_slurm_free(&s);
    CHECK(READ(het_batch) == LS_OK && s.place == LS_SLURM_ALLOCATION && s.nodes.count == 1 &&
              s.ncomponents == 2 && s.components[0].ntasks == 1 && s.components[1].ntasks == 4 &&
              s.components[1].nodes.count == 2 && s.components[1].job_id == 7,
          "a heterogeneous job shows its first component, and all of them beside it");
    ls_slurm_free(&s);
}

static void test_no_job(void)
{
    struct ls_slurm s;
    struct ls_error err = {0};
    CHECK(READ(nothing) == LS_OK && s.place == LS_SLURM_NONE && s.job_id == -1 && !s.nodes.count &&
              !s.nwarnings,
          "no Slurm");
    ls_slurm_free(&s);
    CHECK(READ(nothing, "SLURM_CONF=/etc/slurm.conf", "SLURM_NTASKS=4", "CUDA_VISIBLE_DEVICES=1") ==
                  LS_OK &&
              s.place == LS_SLURM_NONE && s.visible.count == 1,
          "settings for srun make no job");
    ls_slurm_free(&s);
    CHECK(READ(nothing, "SLURM_JOB_ID=", "SLURM_PROCID=") == LS_OK && s.place == LS_SLURM_NONE,
          "empty variables are as if they were not set");
    ls_slurm_free(&s);
}

/* ---- what is wrong ------------------------------------------------------------------------------ */

static void test_errors(void)
{
    static const struct {
        struct env env;
        const char *parts[3], *what;
    } cases[] = {
        {{nothing, {"SLURM_PROCID=3"}},
         {"SLURM_PROCID=3", "no SLURM_JOB_ID", "unset"},
         "a task without a job"},
        {{nothing, {"SLURM_JOB_NODELIST=n[1-2]"}},
         {"SLURM_JOB_NODELIST=n[1-2]", "no SLURM_JOB_ID"},
         "nodes without a job"},
        {{step, {"SLURM_JOB_ID=abc"}}, {"SLURM_JOB_ID=abc", "expected a number"}, "no number"},
        {{step, {"SLURM_JOB_ID=2x"}}, {"SLURM_JOB_ID=2x"}, "something behind a number"},
        {{step, {"SLURM_JOB_ID=0"}}, {"SLURM_JOB_ID=0", "from 1"}, "job 0"},
        {{step, {"SLURM_JOB_ID=-2"}}, {"SLURM_JOB_ID=-2"}, "a negative number"},
        {{step, {"SLURM_JOB_ID=99999999999999999999999"}}, {"SLURM_JOB_ID=9999"}, "a huge number"},
        {{step, {"SLURM_JOBID=3"}}, {"SLURM_JOB_ID=2", "SLURM_JOBID=3"}, "two jobs"},
        {{step, {"SLURM_STEPID=1"}}, {"SLURM_STEP_ID=0", "SLURM_STEPID=1"}, "two steps"},
        {{step, {"SLURM_PROCID"}}, {"SLURM_PROCID is not set", "srun --mpi=pmix"}, "no rank"},
        {{step, {"SLURM_LOCALID"}}, {"SLURM_LOCALID is not set"}, "no local rank"},
        {{step, {"SLURM_NODEID"}}, {"SLURM_NODEID is not set"}, "no node"},
        {{step, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}},
         {"SLURM_STEP_NODELIST is not set"},
         "no nodes"},
        {{step, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}},
         {"SLURM_STEP_TASKS_PER_NODE is not set"},
         "no layout"},
        {{step, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}},
         {"SLURM_STEP_NUM_TASKS is not set"},
         "no number of tasks"},
        {{step, {"SLURM_PROCID=4"}}, {"SLURM_PROCID=4", "4 tasks", "0 to 3"}, "a rank too high"},
        {{step, {"SLURM_NODEID=2"}}, {"SLURM_NODEID=2", "2 nodes"}, "a node too high"},
        {{step, {"SLURM_LOCALID=2"}}, {"SLURM_LOCALID=2", "2 tasks"}, "a local rank too high"},
        {{step, {"SLURM_NODEID=0"}},
         {"SLURMD_NODENAME=n1", "node 0", "which is n0"},
         "another node than its name says"},
        {{step, {"SLURM_NTASKS=8"}}, {"SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=8"}, "two totals"},
        {{step, {"SLURM_STEP_NUM_TASKS=5", "SLURM_NTASKS=5", "SLURM_NPROCS=5"}},
         {"SLURM_STEP_NUM_TASKS=5", "SLURM_STEP_TASKS_PER_NODE=2(x2)"},
         "a total that is not the sum"},
        {{step, {"SLURM_STEP_NUM_NODES=3", "SLURM_NNODES=3"}},
         {"SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NODELIST=n[0-1]"},
         "more nodes than names"},
        {{step, {"SLURM_STEP_TASKS_PER_NODE=2(x3)", "SLURM_TASKS_PER_NODE=2(x3)"}},
         {"SLURM_STEP_TASKS_PER_NODE=2(x3)", "SLURM_STEP_NODELIST=n[0-1]"},
         "a layout of more nodes"},
        {{step, {"SLURM_TASKS_PER_NODE=1"}},
         {"SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_TASKS_PER_NODE=1"},
         "two layouts"},
        {{step, {"SLURM_STEP_TASKS_PER_NODE=2(y2)", "SLURM_TASKS_PER_NODE"}},
         {"SLURM_STEP_TASKS_PER_NODE", "character 3"},
         "a garbled layout"},
        {{step, {"SLURM_STEP_NODELIST=n[0-"}},
         {"SLURM_STEP_NODELIST", "character 5"},
         "a garbled list of nodes"},
        {{step, {"SLURM_STEP_NODELIST=(null)"}},
         {"SLURM_STEP_NODELIST", "'('"},
         "no list of nodes"},
        {{step, {"SLURM_ARRAY_TASK_ID=3"}},
         {"SLURM_ARRAY_TASK_ID", "without SLURM_ARRAY_JOB_ID"},
         "half an array"},
        {{step, {"SLURM_RESTART_COUNT=many"}}, {"SLURM_RESTART_COUNT=many"}, "a garbled count"},
        {{step, {"SLURM_CPUS_PER_TASK=0"}}, {"SLURM_CPUS_PER_TASK=0"}, "no CPUs"},
        {{step, {"CUDA_VISIBLE_DEVICES=2,2"}}, {"CUDA_VISIBLE_DEVICES", "twice"}, "a GPU twice"},
        {{step, {"CUDA_VISIBLE_DEVICES=x"}}, {"CUDA_VISIBLE_DEVICES", "character 1"}, "no GPU"},
        {{batch, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}},
         {"job 3", "no SLURM_JOB_NODELIST"},
         "a job without nodes"},
        {{batch, {"SLURM_JOB_NUM_NODES=2", "SLURM_NNODES=2"}},
         {"SLURM_JOB_NUM_NODES=2", "SLURM_JOB_NODELIST=n[0-2]"},
         "a job with more names than nodes"},
        {{batch, {"SLURM_JOB_NUM_NODES=2"}},
         {"SLURM_JOB_NUM_NODES=2", "SLURM_NNODES=3"},
         "a job with two numbers of nodes"},
        {{batch, {"SLURM_TASKS_PER_NODE=2(x2)"}}, {"SLURM_TASKS_PER_NODE=2(x2)"}, "a short layout"},
        {{het_batch, {"SLURM_JOB_NODELIST_HET_GROUP_1"}},
         {"2 components", "component 1"},
         "a component without nodes"},
        {{het_batch, {"SLURM_JOB_NODELIST_HET_GROUP_1=n["}},
         {"SLURM_JOB_NODELIST_HET_GROUP_1", "character 3"},
         "a component with garbled nodes"},
        {{batch,
          {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_HET_SIZE=1",
           "SLURM_JOB_NODELIST_HET_GROUP_0=n0"}},
         {"no SLURM_JOB_NODELIST"},
         "a job without nodes and with one component"},
        {{het_batch, {"SLURM_HET_SIZE=999", "SLURM_PACK_SIZE"}},
         {"SLURM_HET_SIZE=999", "128"},
         "too many components"},
        {{het_batch, {"SLURM_HET_SIZE=3"}}, {"SLURM_PACK_SIZE=2"}, "two numbers of components"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_slurm s;
        struct ls_error err = {0};
        struct env env = cases[i].env;
        bool pass = ls_slurm_read(get, &env, &s, &err) == LS_ERR_ENV && err.status == LS_ERR_ENV;
        for (int k = 0; k < 3 && cases[i].parts[k]; k++)
            pass = pass && strstr(err.message, cases[i].parts[k]);
        pass = pass && !s.nodes.text && !s.tasks_per_node && !s.warnings && !s.arena.head;
        if (!tap_ok(pass, "refused: %s", cases[i].what))
            tap_note("%s", err.message);
    }
}

/* ---- what leaked -------------------------------------------------------------------------------- */

static void test_leaks(void)
{
    struct ls_slurm s;
    struct ls_error err = {0};
    CHECK(READ(leaked) == LS_OK && s.place == LS_SLURM_ALLOCATION && s.nodes.count == 1 &&
              s.step_id == -1 && s.ntasks == 0 && warns(&s, "submitted from inside a step") &&
              warns(&s, "SLURM_NTASKS asks for 4 tasks") && warns(&s, "PMIX_NAMESPACE"),
          "a job submitted from inside a step is no step, and warns");
    ls_slurm_free(&s);
    CHECK(READ(leaked, "PMIX_NAMESPACE") == LS_OK && s.place == LS_SLURM_ALLOCATION,
          "its node alone is proof");
    ls_slurm_free(&s);
    CHECK(READ(leaked, "SLURMD_NODENAME=n0", "SLURM_JOB_NODELIST=n0", "SLURM_NODELIST=n0") ==
                  LS_OK &&
              s.place == LS_SLURM_ALLOCATION,
          "so is the PMIx of another job");
    ls_slurm_free(&s);
    CHECK(READ(leaked, "SLURMD_NODENAME=n0", "SLURM_JOB_NODELIST=n0", "SLURM_NODELIST=n0",
               "PMIX_NAMESPACE") == LS_ERR_ENV &&
              strstr(err.message, "left over"),
          "without proof it is a contradiction");
    err = (struct ls_error){0};
    CHECK(READ(batch, "SLURM_CPU_BIND=quiet,mask_cpu:0x3") == LS_OK &&
              warns(&s, "SLURM_CPU_BIND=quiet,mask_cpu:0x3"),
          "a CPU mask of another step would slow every step of this job");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_CPU_BIND=none", "SLURM_MEM_BIND=local") == LS_OK && !s.nwarnings,
          "a wish without a mask is a setting");
    ls_slurm_free(&s);
    CHECK(READ(step, "SLURM_CPU_BIND=quiet,mask_cpu:0x3") == LS_OK && !s.nwarnings,
          "within a step srun has set it");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SRUN_CPUS_PER_TASK=8") == LS_OK && warns(&s, "SRUN_CPUS_PER_TASK=8"),
          "two numbers of CPUs");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_TRES_PER_TASK=cpu=1") == LS_OK && warns(&s, "SLURM_TRES_PER_TASK"),
          "which srun refuses");
    ls_slurm_free(&s);
    CHECK(READ(batch, "SLURM_TRES_PER_TASK=cpu:2", "SRUN_CPUS_PER_TASK=2") == LS_OK && !s.nwarnings,
          "twice the same number is fine");
    ls_slurm_free(&s);
    CHECK(READ(nothing, "PMIX_NAMESPACE=slurm.pmix.1.0") == LS_OK && warns(&s, "job 1"),
          "PMIx of a job outside of it");
    ls_slurm_free(&s);
    CHECK(READ(step, "CUDA_VISIBLE_DEVICES=0,,1") == LS_OK && s.visible.count == 1 &&
              warns(&s, "CUDA stops at"),
          "a list of devices with a hole");
    ls_slurm_free(&s);
    CHECK(READ(part_step) == LS_OK && ls_slurm_check_cpus(&s, 1, &err) == LS_OK &&
              warns(&s, "this task may use 1 CPU:") && warns(&s, "--cpus-per-task=2"),
          "srun that ignored the CPUs of the job");
    ls_slurm_free(&s);
    CHECK(READ(part_step) == LS_OK && ls_slurm_check_cpus(&s, 2, &err) == LS_OK && !s.nwarnings,
          "or did not");
    ls_slurm_free(&s);
}

/* ---- Slurm and PMIx ----------------------------------------------------------------------------- */

static const char list_with[] = "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n"
                                "specific pmix plugin versions available: pmix_v4";
static const char list_without[] = "MPI plugin types are...\n\tnone\n\tpmi2\n";
static const char list_old[] = "srun: MPI types are...\nsrun: none\nsrun: openmpi\nsrun: pmi2\n";

static void test_pmix(void)
{
    static const struct {
        struct env env;
        struct ls_pmix_view view;
        const char *mpi_list, *parts[4], *what;
    } cases[] = {
        {{step, {0}}, {true, "slurm.pmix.2.0", 3, 4, 1, 2}, NULL, {0}, "they agree"},
        {{step, {0}}, {true, NULL, 3, 4, 1, 2}, NULL, {0}, "without a namespace"},
        {{step, {0}}, {true, "prte-1", 3, 4, 1, 2}, NULL, {0}, "under another server"},
        {{part_step, {0}}, {true, "slurm.pmix.3.1", 4, 5, 1, 2}, NULL, {0}, "uneven tasks"},
        {{het_step, {0}}, {true, "slurm.pmix.4.0", 4, 5, 1, 2}, NULL, {0}, "two components"},
        {{batch, {0}}, {false, NULL, 0, 0, 0, 0}, NULL, {0}, "no tasks, no PMIx"},
        {{batch, {0}}, {true, "prte-1", 1, 2, 0, 1}, NULL, {0}, "mpirun in a batch script"},
        {{nothing, {0}}, {true, "prte-1", 1, 2, 0, 1}, NULL, {0}, "mpirun without Slurm"},
        {{step, {"SLURM_MPI_TYPE"}},
         {false, NULL, 0, 0, 0, 0},
         NULL,
         {"Slurm started 4 tasks", "PMIx says 1", "without --mpi=pmix",
          "srun --mpi=pmix lockstep run"},
         "--mpi=pmix forgotten"},
        {{step, {"SLURM_MPI_TYPE=none"}},
         {true, NULL, 0, 1, 0, 1},
         list_with,
         {"PMIx says 1", "with --mpi=none", "srun --mpi=pmix"},
         "another --mpi"},
        {{step, {"SLURM_MPI_TYPE"}},
         {false, NULL, 0, 0, 0, 0},
         list_without,
         {"has no pmix", "only: none, pmi2 (srun --mpi=list)", "administrators"},
         "a site without the plugin"},
        {{step, {"SLURM_MPI_TYPE"}},
         {false, NULL, 0, 0, 0, 0},
         list_old,
         {"only: none, openmpi, pmi2"},
         "an older site without the plugin"},
        {{step, {"SLURM_MPI_TYPE"}},
         {false, NULL, 0, 0, 0, 0},
         "",
         {"only: nothing"},
         "an empty list of plugins"},
        {{step, {0}},
         {false, NULL, 0, 0, 0, 0},
         NULL,
         {"with --mpi=pmix", "LD_LIBRARY_PATH"},
         "the plugin was asked for, but does not answer"},
        {{step, {0}},
         {true, "slurm.pmix.9.0", 3, 4, 1, 2},
         NULL,
         {"slurm.pmix.9.0", "expected slurm.pmix.2.0", "inherited"},
         "PMIx of another job"},
        {{step, {0}},
         {true, "slurm.pmix.2.1", 3, 4, 1, 2},
         NULL,
         {"expected slurm.pmix.2.0"},
         "PMIx of another step"},
        {{step, {0}},
         {true, NULL, 3, 8, 1, 2},
         NULL,
         {"tasks in all", "Slurm says 4, PMIx says 8"},
         "another number of tasks"},
        {{step, {0}},
         {true, NULL, 2, 4, 1, 2},
         NULL,
         {"this rank", "Slurm says 3, PMIx says 2", "on n1"},
         "another rank"},
        {{step, {0}},
         {true, NULL, 3, 4, 1, 4},
         NULL,
         {"tasks on this node", "says 2, PMIx says 4"},
         "another layout"},
        {{step, {0}},
         {true, NULL, 3, 4, 0, 2},
         NULL,
         {"local rank", "says 1, PMIx says 0"},
         "another local rank"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_slurm s;
        struct ls_error err = {0};
        struct env env = cases[i].env;
        bool pass = ls_slurm_read(get, &env, &s, &err) == LS_OK;
        enum ls_status status = ls_slurm_check_pmix(&s, &cases[i].view, cases[i].mpi_list, &err);
        pass = pass && status == (cases[i].parts[0] ? LS_ERR_ENV : LS_OK) && err.status == status;
        for (int k = 0; k < 4 && cases[i].parts[k]; k++)
            pass = pass && strstr(err.message, cases[i].parts[k]);
        if (!tap_ok(pass, "Slurm and PMIx: %s", cases[i].what))
            tap_note("%s", err.message);
        ls_slurm_free(&s);
    }
    struct ls_slurm s;
    struct ls_error err = {0};
    CHECK(READ(het_batch, "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NODEID=0",
               "SLURM_LOCALID=0") == LS_OK &&
              s.place == LS_SLURM_STEP && s.ntasks == 1 &&
              ls_slurm_check_pmix(&s, &(struct ls_pmix_view){0}, NULL, &err) == LS_OK,
          "one task needs no PMIx");
    ls_slurm_free(&s);
}

int main(void)
{
    test_steps();
    test_allocations();
    test_no_job();
    test_errors();
    test_leaks();
    test_pmix();
    return tap_done();
}
