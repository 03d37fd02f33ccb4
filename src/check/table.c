/* The table of all checks, in the order in which they are printed. */
#include "check/internal.h"

#include <string.h>

#define SLURM LS_CHECK_NEEDS_SLURM
#define GPU   LS_CHECK_NEEDS_GPU
#define RDMA  LS_CHECK_NEEDS_RDMA
#define NODES LS_CHECK_NEEDS_NODES
#define JOB   LS_CHECK_NEEDS_JOB

static const char install[] = "install the same on all nodes";
static const char settings[] =
    "give all ranks the same settings: ranks that differ wait for each other for ever";

/* Rows without a local half are done between the nodes. */
const struct ls_check ls_checks[] = {
    {.id = "env.slurm",
     .summary = "Slurm's variables agree",
     .needs = SLURM,
     .every_task = true,
     .deadline = 2,
     .local = ls_check_slurm},
    {.id = "env.pmix", .summary = "all tasks meet through PMIx"},
    {.id = "env.nccl",
     .summary = "NCCL_ and UCX_ settings are known, sane and the same",
     .every_task = true,
     .deadline = 2,
     .local = ls_check_settings,
     .compare = ls_check_same_settings,
     .remedy = settings},
    {.id = "env.conf",
     .summary = "nccl.conf and ucx.conf are the same",
     .deadline = 5,
     .local = ls_check_conf,
     .compare = ls_check_same_files,
     .remedy = settings},
    {.id = "gpu.visible",
     .summary = "the GPUs that were granted are there, one for each rank",
     .needs = GPU,
     .every_task = true,
     .deadline = 4,
     .local = ls_check_gpu_visible,
     .compare = ls_check_distinct_gpus},
    {.id = "gpu.mode",
     .summary = "GPUs answer, take any process, and nobody else is on them",
     .needs = GPU,
     .every_task = true,
     .deadline = 8,
     .local = ls_check_gpu_mode},
    {.id = "gpu.ecc",
     .summary = "no uncorrected memory error of a GPU",
     .needs = GPU,
     .every_task = true,
     .deadline = 8,
     .local = ls_check_gpu_ecc},
    {.id = "gpu.clocks",
     .summary = "nothing holds down a GPU's clocks, power or PCIe link",
     .needs = GPU,
     .every_task = true,
     .deadline = 8,
     .local = ls_check_gpu_clocks},
    {.id = "gpu.nvlink",
     .summary = "NVLinks are up, and the same everywhere",
     .needs = GPU,
     .every_task = true,
     .halves = true,
     .deadline = 8,
     .local = ls_check_gpu_nvlink,
     .compare = ls_check_equal_fail,
     .remedy = "have the node drained; or ask for one type: --gpus-per-node=TYPE:N"},
    {.id = "gpu.xid",
     .summary = "no GPU error in the kernel's log",
     .needs = GPU,
     .deadline = 4,
     .local = ls_check_gpu_xid},
    {.id = "gdr.mod",
     .summary = "NICs can reach GPU memory",
     .needs = GPU | RDMA,
     .deadline = 2,
     .local = ls_check_gdr},
    {.id = "pci.acs",
     .summary = "GPUs and NICs talk without a way round by the CPU",
     .needs = GPU,
     .deadline = 2,
     .local = ls_check_pci_acs},
    {.id = "ib.port",
     .summary = "compute NICs are up, alike and managed",
     .needs = RDMA,
     .deadline = 2,
     .local = ls_check_ib_port,
     .compare = ls_check_equal_ports,
     .remedy = "NCCL hangs where NICs differ: have the node's NICs, cables and MTU looked at"},
    {.id = "ib.gid",
     .summary = "RoCE has a routable address",
     .needs = RDMA,
     .deadline = 2,
     .local = ls_check_ib_gid,
     .compare = ls_check_equal_warn,
     .remedy = "leave NCCL_IB_GID_INDEX unset, so that NCCL 2.21 and later choose on each node"},
    {.id = "ib.open",
     .summary = "NICs can be opened here",
     .needs = RDMA,
     .every_task = true,
     .deadline = 4,
     .local = ls_check_ib_open},
    {.id = "ib.ctr",
     .summary = "no link error while the check runs",
     .needs = RDMA,
     .halves = true,
     .deadline = 4,
     .local = ls_check_ib_counters},
    {.id = "net.name",
     .summary = "names of nodes can be looked up",
     .deadline = 3,
     .local = ls_check_names,
     .compare = ls_check_names_known},
    {.id = "net.port",
     .summary = "TCP between nodes, on any port",
     .needs = NODES,
     .compare = ls_check_links},
    /* After net.port, which knows whether nodes of several subnets reach each other. */
    {.id = "net.if",
     .summary = "one network interface for all nodes",
     .deadline = 2,
     .local = ls_check_interface,
     .compare = ls_check_same_subnets},
    {.id = "sys.clock", .summary = "clocks agree", .needs = NODES, .compare = ls_check_clocks},
    {.id = "sys.memlock",
     .summary = "memory can be locked",
     .every_task = true,
     .deadline = 2,
     .local = ls_check_memlock},
    {.id = "sys.nofile",
     .summary = "file descriptors suffice",
     .every_task = true,
     .deadline = 2,
     .local = ls_check_nofile},
    {.id = "sys.stack",
     .summary = "the stack has a limit",
     .every_task = true,
     .deadline = 2,
     .local = ls_check_stack},
    {.id = "sys.shm", .summary = "shared memory suffices", .deadline = 2, .local = ls_check_shm},
    {.id = "sys.cpu",
     .summary = "tasks have the CPUs that were asked for, near their GPUs, and do not share them",
     .every_task = true,
     .deadline = 2,
     .local = ls_check_cpus,
     .compare = ls_check_shared_cpus},
    {.id = "sys.mem", .summary = "memory and its limit", .deadline = 2, .local = ls_check_memory},
    {.id = "ver.lockstep",
     .summary = "Lockstep",
     .deadline = 2,
     .local = ls_check_lockstep_version,
     .compare = ls_check_equal_fail,
     .remedy = install},
    {.id = "ver.pmix",
     .summary = "PMIx",
     .deadline = 2,
     .local = ls_check_pmix_version,
     .compare = ls_check_equal_fail,
     .remedy = install},
    {.id = "ver.ucx",
     .summary = "UCX",
     .deadline = 2,
     .local = ls_check_ucx_version,
     .compare = ls_check_equal_fail,
     .remedy = install},
    {.id = "ver.nccl",
     .summary = "NCCL",
     .needs = GPU,
     .deadline = 5,
     .local = ls_check_nccl_version,
     .compare = ls_check_equal_fail,
     .remedy = install},
    {.id = "ver.driver",
     .summary = "NVIDIA driver",
     .needs = GPU,
     .deadline = 2,
     .local = ls_check_driver_version,
     .compare = ls_check_equal_fail,
     .remedy = install},
    {.id = "ver.ofed",
     .summary = "NIC driver",
     .needs = RDMA,
     .deadline = 2,
     .local = ls_check_ofed_version,
     .compare = ls_check_equal_warn,
     .remedy = install},
    {.id = "ver.firmware",
     .summary = "NIC firmware",
     .needs = RDMA,
     .deadline = 2,
     .local = ls_check_firmware_version,
     .compare = ls_check_equal_warn,
     .remedy = install},
    {.id = "ver.kernel",
     .summary = "kernel and C library",
     .deadline = 2,
     .local = ls_check_kernel_version,
     .compare = ls_check_equal_warn,
     .remedy = install},
    {.id = "fs.bin",
     .summary = "programs are the same bytes",
     .deadline = 5,
     .local = ls_check_program,
     .compare = ls_check_equal_fail,
     .remedy = install},
    {.id = "fs.out",
     .summary = "output can be written, renamed over, and is seen from another node",
     .halves = true,
     .deadline = 5,
     .local = ls_check_output,
     .compare = ls_check_output_seen},
    {.id = "job.cfg",
     .summary = "the job description is the same on all nodes",
     .needs = JOB,
     .deadline = 2,
     .local = ls_check_job,
     .compare = ls_check_equal_fail,
     .remedy = "keep it on a file system that all nodes share, or copy it to every node"},
    {.id = "job.data",
     .summary = "data files can be read and are the same",
     .needs = JOB,
     .deadline = 5,
     .local = ls_check_data,
     .compare = ls_check_equal_fail,
     .remedy =
         "copy the data to every node again, or keep them on a file system that all nodes share"},
    {.id = "job.memory",
     .summary = "the plan fits into the memory that Slurm grants",
     .needs = JOB,
     .deadline = 8,
     .local = ls_check_job_memory},
    {.id = "coll.smoke", .summary = "all-reduce gives the right sums"},
    {.id = "net.pair",
     .summary = "no node or link is slower than the rest",
     .compare = ls_check_pairs},
};
const int ls_nchecks = (int)(sizeof ls_checks / sizeof *ls_checks);

const struct ls_check *ls_check_find(const char *id)
{
    for (int i = 0; i < ls_nchecks; i++)
        if (!strcmp(ls_checks[i].id, id))
            return &ls_checks[i];
    return NULL;
}

const char *ls_check_unmet(const struct ls_check *check, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    if (check->full && !context->full)
        return "only with --full";
    if (check->needs & JOB && !context->job_path)
        return "no job description was given";
    if (check->needs & JOB && !context->job && check->local != ls_check_job)
        return "the job description cannot be read";
    if (check->needs & SLURM && context->slurm->place == LS_SLURM_NONE && !context->slurm_problem)
        return "not in a Slurm job";
    if (check->needs & (GPU | RDMA) && !m)
        return "the machine could not be read from /sys and /proc";
    if (check->needs & GPU && m->ngpu == 0 && context->slurm->gpus_on_node == 0)
        return "no GPU here, and none was asked for";
    if (check->needs & RDMA && m->nnic == 0)
        return "no InfiniBand or RoCE device here";
    /* With PMIx, the child between the nodes knows better. */
    if (!strcmp(check->id, "env.pmix") && context->size > 1)
        return NULL; /* never skipped: it has passed, or failed */
    if (!check->local && !context->pmix)
        return context->size > 1 ? "the tasks have not met" : "one task";
    return NULL;
}
