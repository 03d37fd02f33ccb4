/* Diagnostics: what in this machine, in its limits or in the user's own variables will slow a job down or
 * stop it, each with its remedy. */
#include "topo/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- limits ---- */

static bool uses_rdma(const struct ls_decide *c)
{
    return c->decision->expected == LS_TOPO_IB || c->decision->expected == LS_TOPO_ROCE;
}

static void advise_limits(struct ls_decide *c)
{
    const struct ls_topo_limits *l = &c->machine->limits;
    const struct ls_topo_request *r = c->request;
    char is[24], want[24];
    if (l->memlock >= 0 && (uses_rdma(c) || c->decision->ngpu > 0))
        ls_decide_note(
            c, uses_rdma(c) ? LS_TOPO_PROBLEM : LS_TOPO_WARN,
            "at most %s may be locked in memory, but RDMA and pinned buffers need it "
            "unlimited; set LimitMEMLOCK=infinity in slurmd's unit (limits.conf does not "
            "reach it) and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
            ls_format_bytes(l->memlock, is));
    /* NCCL and UCX take some 10 to 60 MiB for each local rank. */
    int64_t shm = l->shm_free >= 0 ? l->shm_free : l->shm_bytes,
            need = (int64_t)r->local_size << 26;
    if (shm >= 0 && r->local_size > 1 && shm < need)
        ls_decide_note(
            c, LS_TOPO_PROBLEM,
            "/dev/shm has %s free, but %d ranks of this node need some %s; remove left-over "
            "files, or give the container more (--shm-size, --ipc=host)",
            ls_format_bytes(shm, is), r->local_size, ls_format_bytes(need, want));
    /* Connections to every peer, from each side, and the program's own files. */
    int64_t files = 512 + 4 * r->ranks;
    if (l->nofile >= 0 && l->nofile < files)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "at most %lld open files, but %lld ranks can need %lld; raise LimitNOFILE in "
            "slurmd's unit, or 'ulimit -n' before srun",
            (long long)l->nofile, (long long)r->ranks, (long long)files);
    if (l->stack == -1 && c->decision->ngpu > 0)
        ls_decide_note(c, LS_TOPO_WARN,
                       "the stack is unlimited, for which threads get 2 MiB and NCCL before 2.28 "
                       "crashes; use 'ulimit -s 8192' before srun");
    if (l->nproc >= 0 && l->nproc < 4096)
        ls_decide_note(c, LS_TOPO_WARN,
                       "at most %lld processes and threads for this user; raise LimitNPROC",
                       (long long)l->nproc);
}

/* ---- network ---- */

static void advise_nics(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    int ib = 0, ethernet = 0;
    for (int i = 0; i < m->nnic; i++) {
        const struct ls_topo_nic *nic = &m->nic[i];
        if (nic->class == LS_TOPO_NIC_CLOSED && c->request->transport != LS_TOPO_TCP)
            ls_decide_note(
                c, LS_TOPO_WARN,
                "%s is active, but %s; where nodes differ in this NCCL hangs: let the job's "
                "cgroup open /dev/infiniband on all of them",
                nic->name, nic->why);
        if (nic->class == LS_TOPO_NIC_PHANTOM)
            ls_decide_note(c, LS_TOPO_WARN, "%s is %s and cannot carry anything; kept out",
                           nic->name, nic->why);
        for (int p = 0; p < nic->nport; p++) {
            const struct ls_topo_port *port = &nic->port[p];
            bool taken = nic->class != LS_TOPO_NIC_PHANTOM && ls_decide_nccl_takes(nic, port);
            ib += taken && port->link == LS_TOPO_LINK_IB;
            ethernet += taken && port->link == LS_TOPO_LINK_ETHERNET;
            if (!ls_decide_is_compute(c, i, p))
                continue;
            if (port->link == LS_TOPO_LINK_IB && port->sm_lid == 0)
                ls_decide_note(
                    c, LS_TOPO_PROBLEM,
                    "%s port %d knows no subnet manager (sm_lid is 0); is opensm running?",
                    nic->name, port->number);
            if (port->link == LS_TOPO_LINK_ETHERNET && ls_topo_choose_gid(port) < 0)
                ls_decide_note(c, LS_TOPO_PROBLEM,
                               "%s port %d has no routable RoCE v2 address; give %s an IP address",
                               nic->name, port->number, nic->netdev[0] ? nic->netdev : "it");
        }
    }
    if (ib && ethernet && c->request->transport != LS_TOPO_TCP)
        ls_decide_note(
            c, LS_TOPO_INFO,
            "InfiniBand and RoCE ports are active on one node: NCCL refuses to join them, and "
            "some UCX versions stop at the Ethernet port; for an MPI program that does, set "
            "UCX_NET_DEVICES to the ports in NCCL_IB_HCA");
    if (m->left_out)
        ls_decide_note(c, LS_TOPO_WARN, "%d devices are beyond what is looked at, and left out",
                       m->left_out);
}

/* Rings enter and leave a node once, over all its NICs together, and pass each GPU over NVLink. */
static void advise_rate(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    double network = 0, nvlink = 0;
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++)
            if (ls_decide_is_compute(c, i, p))
                network += m->nic[i].port[p].gbit;
    if (c->decision->expected == LS_TOPO_TCP)
        for (int i = 0; i < m->niface && c->decision->interface; i++)
            if (!strcmp(m->iface[i].name, c->decision->interface) && m->iface[i].mbit > 0)
                network = (double)m->iface[i].mbit / 1000;
    for (int g = 0; g < m->ngpu; g++)
        if (m->gpu[g].nvlink_gbit > nvlink)
            nvlink = m->gpu[g].nvlink_gbit;
    if (c->several_nodes && m->ngpu > 1 && nvlink > 0 && network > 0 && network < nvlink / 3)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "the network of this node (%.0f Gb/s) is below a third of what NVLink gives one "
            "GPU (%.0f Gb/s): expect communication between nodes to set the pace; keep tensor "
            "parallelism inside nodes and accumulate gradients",
            network, nvlink);
}

static void advise_gpudirect(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    const struct ls_topo_decision *d = c->decision;
    if (!d->ngpu || !uses_rdma(c))
        return;
    if (!m->peermem && !m->dmabuf)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "GPUDirect RDMA is off: nvidia_peermem is not loaded, and the driver is not of "
            "the open kind that needs none; 'modprobe nvidia_peermem' (10 times slower "
            "without)");
    if (!d->nnic)
        return;
    enum ls_topo_distance far = ls_topo_distance(&m->gpu[d->gpu[0]].pci, &m->nic[d->nic[0]].pci);
    if (far == LS_TOPO_PHB || far == LS_TOPO_SYS)
        ls_decide_note(
            c, LS_TOPO_INFO,
            "the nearest NIC of GPU %s is %s at distance %s: NCCL uses GPUDirect RDMA up to "
            "PXB by itself",
            m->gpu[d->gpu[0]].pci.bdf, m->nic[d->nic[0]].name, ls_topo_distance_name(far));
    if (far == LS_TOPO_UNKNOWN)
        ls_decide_note(c, LS_TOPO_WARN,
                       "the distance of GPU %s to NICs is hidden (numa_node is -1), as in virtual "
                       "machines: NICs are not told apart by it; the vendor may have a file for "
                       "NCCL_TOPO_FILE",
                       m->gpu[d->gpu[0]].pci.bdf);
}

static void advise_gpus(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    const struct ls_topo_decision *d = c->decision;
    c->own = true;
    for (int i = 0; i < d->ngpu; i++) {
        const struct ls_topo_gpu *gpu = &m->gpu[d->gpu[i]];
        if (gpu->mig)
            ls_decide_note(
                c, LS_TOPO_WARN,
                "GPU %s is divided (MIG): NCCL joins no two instances of one GPU, and they "
                "have no NVLink or peer access; use one task for each, or whole GPUs",
                gpu->pci.bdf);
        if (strcmp(gpu->model, m->gpu[d->gpu[0]].model) != 0)
            ls_decide_note(
                c, LS_TOPO_WARN,
                "this task has GPUs of several models (%s, %s): all wait for the slowest",
                m->gpu[d->gpu[0]].model, gpu->model);
    }
    c->own = false;
    if (m->ngpu > 1 && d->ngpu && m->gpu[d->gpu[0]].translated && !m->virtual_machine)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "the IOMMU translates what GPUs send (group type DMA): peer-to-peer copies can "
            "hang or be slow; boot with iommu=pt, and see PCI ACS in NCCL's manual");
    if (d->ngpu == 1 && c->request->local_size > 1 && c->granted == 1 && m->ngpu > 1)
        ls_decide_note(
            c, LS_TOPO_INFO,
            "this task sees one GPU only, number 0 to it (--gpus-per-task binds each): older "
            "NCCL cannot copy between GPUs of tasks then; --gpus-per-node shows all of them");
}

/* ---- numbers of peers ---- */

static void advise_scale(struct ls_decide *c)
{
    const struct ls_topo_request *r = c->request;
    long long ranks = (long long)r->ranks;
    if (!c->several_nodes || r->ranks <= 1)
        return;
    if (uses_rdma(c))
        ls_decide_note(
            c, LS_TOPO_INFO,
            "UCX is expected to choose %s: %lld endpoints, and RC counts as scalable up to "
            "%d. NCCL uses RC at any size",
            c->decision->expected_ucx, ranks, c->site->rc_max);
    if (c->decision->expected == LS_TOPO_TCP)
        ls_decide_note(
            c, LS_TOPO_INFO,
            "TCP with %lld endpoints. What grows with the number of peers is open files and "
            "buffers: up to %lld connections of each rank. No setting follows from it: UCX "
            "demotes tcp beyond 256 endpoints only where it has something that scales. That "
            "UDP beats TCP beyond 40 nodes is folklore: neither UCX nor NCCL has a UDP "
            "transport; UD, for which it is mistaken, needs InfiniBand or RoCE",
            ranks, ranks - 1);
}

/* The likely cause of "UCX is slow here, and fast on the other nodes". */
static void advise_ucx(struct ls_decide *c)
{
    if (c->machine->ucx != LS_TOPO_UCX_NO_IB || !uses_rdma(c))
        return;
    ls_decide_note(
        c, LS_TOPO_WARN,
        "UCX has no InfiniBand module (libuct_ib.so) on this node and will use TCP, although %s "
        "is active; install a UCX that was built with rdma-core%s",
        c->link == LS_TOPO_LINK_IB ? "InfiniBand" : "RoCE",
        c->request->transport == LS_TOPO_AUTO ? "" : "; what was asked for holds for NCCL only");
}

static void advise_tasks(struct ls_decide *c)
{
    const char *text = ls_decide_get(c, "SLURM_STEP_TASKS_PER_NODE");
    int *tasks = NULL, n = 0;
    if (!text)
        text = ls_decide_get(c, "SLURM_TASKS_PER_NODE");
    if (!text || !c->decision->ngpu || ls_runs_parse(text, &tasks, &n, NULL) != LS_OK)
        return;
    for (int i = 1; i < n; i++)
        if (tasks[i] != tasks[0]) {
            char shown[84];
            ls_decide_note(
                c, LS_TOPO_WARN,
                "nodes have different numbers of tasks (%s), with which NCCL 2.31.2 was seen "
                "to hang at its start; use --ntasks-per-node",
                ls_topo_show(text, shown));
            break;
        }
    free(tasks);
}

static void advise_cpus(struct ls_decide *c)
{
    int cpus = CPU_COUNT(&c->decision->cpus), asked = c->cpus_per_task;
    if (cpus > 0 && asked > cpus)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "--cpus-per-task=%d, but this task may use %d CPUs; Slurm 22.05 to 23.02 need "
            "SRUN_CPUS_PER_TASK or the option again on srun",
            asked, cpus);
    if (cpus == 1 && c->decision->ngpu > 0 && asked <= 1)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "this task may use one CPU, on which NCCL's threads and the program take turns; "
            "ask for --cpus-per-task=4 or more");
}

/* ---- the user's own variables ---- */

static bool begins(const char *name, const char *with, size_t n)
{
    return n > 0 && !strncmp(name, with, n);
}

/* Calls a check for each entry of a list "a,b:1"; `n` is the length without a port. */
struct entry {
    const char *text;
    int n;
};
static bool next_entry(const char **at, struct entry *entry)
{
    *at += strspn(*at, ",");
    if (!**at)
        return false;
    size_t len = strcspn(*at, ",");
    entry->text = *at;
    entry->n = (int)strcspn(*at, ",:");
    *at += len;
    return true;
}

static void check_hca(struct ls_decide *c, const char *value)
{
    const struct ls_topo_machine *m = c->machine;
    bool exact = false;
    const char *at = value + strspn(value, "^=");
    struct entry e;
    for (const char *p = value; p < at; p++)
        exact |= *p == '=';
    while (next_entry(&at, &e)) {
        int equal = 0, longer = 0;
        for (int i = 0; i < m->nnic; i++) {
            bool same = strlen(m->nic[i].name) == (size_t)e.n;
            if (!begins(m->nic[i].name, e.text, (size_t)e.n))
                continue;
            equal += same;
            longer += !same;
        }
        if (equal && longer && !exact)
            ls_decide_note(
                c, LS_TOPO_WARN,
                "NCCL_IB_HCA: %.*s is taken for the beginning of a name and means %d more "
                "devices, such as %.*s0; write '=' in front of the list",
                e.n < 40 ? e.n : 40, e.text, longer, e.n < 40 ? e.n : 40, e.text);
        if (!equal && (exact || !longer) && value[0] != '^')
            ls_decide_note(c, LS_TOPO_PROBLEM,
                           "NCCL_IB_HCA names %.*s, but this node has no such device",
                           e.n < 40 ? e.n : 40, e.text);
    }
}

static void check_ifname(struct ls_decide *c, const char *value)
{
    const struct ls_topo_machine *m = c->machine;
    bool exclude = value[0] == '^', lo = false, exact = value[exclude] == '=';
    const char *at = value + strspn(value, "^=");
    struct entry e;
    int found = 0;
    while (next_entry(&at, &e)) {
        lo |= begins("lo", e.text, (size_t)e.n);
        for (int i = 0; i < m->niface; i++)
            found += m->iface[i].up && begins(m->iface[i].name, e.text, (size_t)e.n) &&
                     (!exact || strlen(m->iface[i].name) == (size_t)e.n);
    }
    if (exclude && !lo)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "NCCL_SOCKET_IFNAME=%.60s replaces NCCL's own list of what to leave out, so that "
            "lo may be taken; write ^docker,lo,virbr and your own",
            value);
    if (!exclude && !found && m->niface)
        ls_decide_note(
            c, LS_TOPO_PROBLEM,
            "NCCL_SOCKET_IFNAME=%.60s: no such interface is up on this node; names may differ "
            "from node to node",
            value);
}

static void check_level(struct ls_decide *c, const char *name, const char *value)
{
    static const char *const words[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                        "P2C", "PXN", "PHB", "SYS", "NET"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(value, words[i]))
            return;
    ls_decide_note(
        c, LS_TOPO_WARN,
        "%s=%.40s: numbers change their meaning between versions of NCCL, and unknown words are "
        "ignored; use LOC, NVL, PIX, PXB, PHB or SYS",
        name, value);
}

static void check_gid_index(struct ls_decide *c, const char *value)
{
    int index = atoi(value);
    if (c->link != LS_TOPO_LINK_ETHERNET || index < 0)
        return;
    for (int i = 0; i < c->machine->nnic; i++)
        for (int p = 0; p < c->machine->nic[i].nport; p++) {
            const struct ls_topo_port *port = &c->machine->nic[i].port[p];
            bool good = false;
            for (int g = 0; g < port->ngid; g++)
                good |= port->gid[g].index == index && port->gid[g].version == 2;
            if (!good && ls_decide_is_compute(c, i, p))
                ls_decide_note(
                    c, LS_TOPO_WARN,
                    "NCCL_IB_GID_INDEX=%d is no RoCE v2 entry of %s on this node (%d is); leave "
                    "it unset, NCCL 2.21 and later choose on each node",
                    index, c->machine->nic[i].name, ls_topo_choose_gid(port));
        }
}

static void check_ucx_tls(struct ls_decide *c, const char *value)
{
    const struct ls_topo_request *r = c->request;
    bool rc = ls_decide_in_list(value, "rc") || ls_decide_in_list(value, "rc_mlx5") ||
              ls_decide_in_list(value, "rc_x") || ls_decide_in_list(value, "rc_verbs");
    bool scalable = ls_decide_in_list(value, "dc") || ls_decide_in_list(value, "dc_mlx5") ||
                    ls_decide_in_list(value, "dc_x") || ls_decide_in_list(value, "ud") ||
                    ls_decide_in_list(value, "ud_mlx5") || ls_decide_in_list(value, "ud_x") ||
                    ls_decide_in_list(value, "ib") || ls_decide_in_list(value, "all");
    bool tcp = ls_decide_in_list(value, "tcp");
    bool memory = ls_decide_in_list(value, "sm") || ls_decide_in_list(value, "shm") ||
                  ls_decide_in_list(value, "posix") || ls_decide_in_list(value, "sysv") ||
                  ls_decide_in_list(value, "all");
    bool cuda = strstr(value, "cuda") || ls_decide_in_list(value, "all");
    if (value[0] == '^')
        return;
    if (c->decision->ngpu > 0 && !cuda)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "UCX_TLS=%.60s lacks cuda: a program that hands GPU memory to UCX or MPI crashes; "
            "add cuda",
            value);
    if (rc && !scalable && r->ranks > c->site->rc_max)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "UCX_TLS=%.60s forces RC on %lld endpoints, which can use up queue pairs and memory; "
            "leave it unset, UCX then takes dc or ud",
            value, (long long)r->ranks);
    if ((rc || (scalable && !ls_decide_in_list(value, "all"))) && !tcp && c->several_nodes &&
        !c->machine->nnic)
        ls_decide_note(
            c, LS_TOPO_PROBLEM,
            "UCX_TLS=%.60s names InfiniBand only, but this node has no such device; leave it "
            "unset",
            value);
    if (r->local_size > 1 && !memory)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "UCX_TLS=%.60s lacks sm: ranks of one node then talk over the network; add self,sm",
            value);
}

static void check_ucx_devices(struct ls_decide *c, const char *value)
{
    const struct ls_topo_machine *m = c->machine;
    const char *at = value;
    struct entry e;
    if (value[0] == '^' || !strcmp(value, "all"))
        return;
    while (next_entry(&at, &e)) {
        bool active = false;
        for (int i = 0; i < m->nnic; i++)
            for (int p = 0; p < m->nic[i].nport; p++)
                active |= strlen(m->nic[i].name) == (size_t)e.n && m->nic[i].port[p].active &&
                          begins(m->nic[i].name, e.text, (size_t)e.n);
        for (int i = 0; i < m->niface; i++)
            active |= strlen(m->iface[i].name) == (size_t)e.n && m->iface[i].up &&
                      begins(m->iface[i].name, e.text, (size_t)e.n);
        if (!active)
            ls_decide_note(
                c, LS_TOPO_PROBLEM,
                "UCX_NET_DEVICES names %.*s, which is missing or down on this node: UCX may be "
                "left with no transport; leave it unset",
                e.n < 40 ? e.n : 40, e.text);
    }
}

static void advise_environment(struct ls_decide *c)
{
    static const struct {
        const char *name;
        void (*check)(struct ls_decide *c, const char *value);
    } checks[] = {{"NCCL_IB_HCA", check_hca},
                  {"NCCL_SOCKET_IFNAME", check_ifname},
                  {"NCCL_IB_GID_INDEX", check_gid_index},
                  {"UCX_TLS", check_ucx_tls},
                  {"UCX_NET_DEVICES", check_ucx_devices}};
    static const char *const levels[] = {"NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const char *value = ls_decide_get(c, checks[i].name);
        c->about = checks[i].name;
        if (value)
            checks[i].check(c, value);
    }
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const char *value = ls_decide_get(c, levels[i]);
        c->about = levels[i];
        if (value)
            check_level(c, levels[i], value);
    }
    c->about = "CUDA_DEVICE_ORDER";
    const char *order = ls_decide_get(c, "CUDA_DEVICE_ORDER");
    if (order && strcmp(order, "PCI_BUS_ID") != 0 && c->machine->ngpu > 1)
        ls_decide_note(
            c, LS_TOPO_WARN,
            "CUDA_DEVICE_ORDER=%.40s numbers GPUs in another order than Slurm and the driver: "
            "CPUs and NICs may be those of another GPU; use PCI_BUS_ID",
            order);
    c->about = NULL;
}

void ls_decide_advice(struct ls_decide *c)
{
    advise_tasks(c);
    advise_cpus(c);
    advise_gpus(c);
    advise_nics(c);
    advise_rate(c);
    advise_gpudirect(c);
    advise_scale(c);
    advise_ucx(c);
    advise_limits(c);
    advise_environment(c);
}
