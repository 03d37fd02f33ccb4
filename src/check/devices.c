/* GPUs and NICs, by what the machine says (src/topo) and the kernel shows. */
#include "check/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- GPUs ---- */

/* Numbers of machine->gpu as CUDA counts them: those that this task may open; where it may open none, all. */
static int numbered(const struct ls_topo_machine *m, int gpus[static LS_TOPO_GPUS])
{
    int n = 0;
    for (int g = 0; g < m->ngpu; g++)
        if (m->gpu[g].open)
            gpus[n++] = g;
    if (n == 0)
        for (; n < m->ngpu; n++)
            gpus[n] = n;
    return n;
}

static const struct ls_topo_gpu *gpu_of_task(const struct ls_check_context *context,
                                             const int *gpus, int n, struct ls_check_out *out)
{
    const struct ls_topo_machine *m = context->machine;
    const struct ls_visible *visible = &context->slurm->visible;
    struct ls_error err = {0};
    int device, count = visible->set ? visible->count : n;
    if (ls_visible_choose(count, context->local_rank, context->local_size, &device, &err) !=
        LS_OK) {
        ls_check_say(out, LS_CHECK_FAIL, "", "a GPU for each rank", "", "%s", err.message);
        return NULL;
    }
    if (visible->set && visible->uuid) {
        const char *uuid = visible->uuid[device]; /* CUDA takes any beginning that is unique */
        for (int i = 0; i < m->ngpu; i++)
            if (!strncmp(m->gpu[i].uuid, uuid, strlen(uuid)))
                return &m->gpu[i];
        return &m->gpu[gpus[0]]; /* a MIG instance: /proc does not know these */
    }
    int index = visible->set && visible->index ? visible->index[device] : device;
    if (index < n)
        return &m->gpu[gpus[index]];
    ls_check_say(out, LS_CHECK_FAIL, "", "the GPUs that CUDA_VISIBLE_DEVICES names",
                 "unset CUDA_VISIBLE_DEVICES, and let Slurm set it",
                 "CUDA_VISIBLE_DEVICES names GPU %d, and %d are here", index, n);
    return NULL;
}

void ls_check_gpu_visible(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    int gpus[LS_TOPO_GPUS], n = numbered(m, gpus), granted = context->slurm->gpus_on_node;
    if (m->ngpu == 0) {
        ls_check_say(out, LS_CHECK_FAIL, "", "the GPUs that Slurm granted",
                     "the driver is not loaded on this node, or its devices are hidden",
                     "%d granted, none in /proc/driver/nvidia", granted);
        return;
    }
    const struct ls_topo_gpu *mine = gpu_of_task(context, gpus, n, out);
    if (!mine)
        return;
    if (granted > n) {
        ls_check_say(out, LS_CHECK_FAIL, "", "as many as Slurm granted",
                     "a GPU has fallen off the bus, or gres.conf is wrong: have the node drained",
                     "%d GPUs, %d granted", n, granted);
        return;
    }
    if (!mine->open) {
        ls_check_say(out, LS_CHECK_FAIL, mine->pci.bdf, "a device that can be opened",
                     "ask Slurm for GPUs: --gpus-per-node=N", "/dev/nvidia%d cannot be opened",
                     mine->minor);
        return;
    }
    for (int i = 0; i < n; i++)
        if (strcmp(m->gpu[gpus[i]].model, mine->model) != 0) {
            ls_check_say(out, LS_CHECK_WARN, m->gpu[gpus[i]].pci.bdf, mine->model,
                         "ask for one type: --gpus-per-node=TYPE:N", "%s", m->gpu[gpus[i]].model);
            return;
        }
    ls_check_say(out, LS_CHECK_PASS, "", "", "", "%d x %s%s", n, *mine->model ? mine->model : "GPU",
                 mine->mig ? ", MIG" : "");
    if (*mine->uuid && !mine->mig)
        ls_check_fact(out, "%s", mine->uuid);
}

/* NVIDIA's table of Xid errors: those that a program causes, and those of the hardware. */
static bool by_program(int xid)
{
    return xid == 13 || xid == 31 || xid == 43 || xid == 45;
}

enum { KMSG_RECORDS = 1000000 }; /* a log that grows faster than it is read ends, too */

void ls_check_gpu_xid(struct ls_check_out *out, const struct ls_check_context *context)
{
    char path[4200], line[2048];
    snprintf(path, sizeof path, "%s/dev/kmsg", context->root);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), hardware = 0, program = 0;
    bool read = false;
    if (fd < 0) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the kernel's log is closed to users: %s",
                     strerror(errno));
        return;
    }
    FILE *f = fdopen(fd, "r");
    for (int records = 0; f && records < KMSG_RECORDS; records++) {
        if (!fgets(line, sizeof line, f)) {
            if (feof(f) || errno != EPIPE)
                break;   /* EAGAIN: that was all */
            clearerr(f); /* older records were overwritten while we read */
            continue;
        }
        read = true;
        /* "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus." */
        const char *at = strstr(line, "NVRM: Xid ");
        at = at ? strstr(at, "): ") : NULL;
        int xid = at ? atoi(at + 3) : 0;
        if (xid)
            *(by_program(xid) ? &program : &hardware) = xid;
    }
    if (f)
        fclose(f);
    else
        close(fd);
    if (!read) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the kernel's log is empty here");
        return;
    }
    if (hardware)
        ls_check_say(out, LS_CHECK_FAIL, "", "no Xid of the hardware since the node was started",
                     "have the GPU looked at", "Xid %d in the kernel's log", hardware);
    else if (program)
        ls_check_say(out, LS_CHECK_WARN, "", "no Xid since the node was started",
                     "a program caused it, perhaps an earlier one", "Xid %d in the kernel's log",
                     program);
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "no Xid");
}

void ls_check_gdr(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    if (m->peermem || m->dmabuf)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s",
                     m->peermem ? "nvidia_peermem is loaded" : "by dma-buf");
    else
        ls_check_say(out, LS_CHECK_WARN, "", "nvidia_peermem, or the open kernel modules",
                     "modprobe nvidia_peermem; without it data takes the way through host memory",
                     "nvidia_peermem is not loaded");
}

/* ---- NICs ---- */

static const char *link_name(enum ls_topo_link link)
{
    return link == LS_TOPO_LINK_IB         ? "InfiniBand"
           : link == LS_TOPO_LINK_ETHERNET ? "RoCE"
                                           : "other";
}

/* The fastest rate among the compute NICs is what all should have. */
static double best_rate(const struct ls_topo_machine *m)
{
    double best = 0;
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport && m->nic[i].class == LS_TOPO_NIC_COMPUTE; p++)
            if (m->nic[i].port[p].active && m->nic[i].port[p].gbit > best)
                best = m->nic[i].port[p].gbit;
    return best;
}

/* False: it has said why. */
static bool port_is_good(struct ls_check_out *out, const struct ls_topo_nic *nic,
                         const struct ls_topo_port *port, double rate)
{
    char device[64];
    snprintf(device, sizeof device, "%s/%d", nic->name, port->number);
    if (port->link == LS_TOPO_LINK_IB && port->sm_lid == 0) {
        ls_check_say(out, LS_CHECK_FAIL, device, "a subnet manager",
                     "start opensm, or look at the switch", "active, but its SM lid is 0");
        return false;
    }
    if (port->gbit < rate) {
        char expected[64];
        snprintf(expected, sizeof expected, "%.0f Gbit/s, as its neighbours", rate);
        ls_check_say(out, LS_CHECK_FAIL, device, expected,
                     "a bad cable or a wrong slot: have it looked at", "%.0f Gbit/s", port->gbit);
        return false;
    }
    return true;
}

int ls_check_interface_mtu(const struct ls_topo_machine *m, const struct ls_topo_nic *nic)
{
    for (int i = 0; i < m->niface; i++)
        if (*nic->netdev && !strcmp(m->iface[i].name, nic->netdev))
            return m->iface[i].mtu;
    return 0;
}

/* What nodes compare of their active compute ports: before the colon, what must be equal. */
struct ports {
    int n, mtu; /* mtu: the smallest; 0: not known */
    enum ls_topo_link link;
    struct ls_buf names;
};

static void add_port(struct ports *ports, const struct ls_topo_machine *m,
                     const struct ls_topo_nic *nic, const struct ls_topo_port *port)
{
    int mtu = port->link == LS_TOPO_LINK_ETHERNET ? ls_check_interface_mtu(m, nic) : 0;
    if (mtu > 0 && (!ports->mtu || mtu < ports->mtu))
        ports->mtu = mtu;
    ports->link = port->link;
    ls_buf_printf(&ports->names, "%s%s/%d", ports->n++ ? ", " : "", nic->name, port->number);
}

static void say_ports(struct ls_check_out *out, const struct ports *ports, double rate)
{
    char mtu[32] = "";
    if (ports->mtu)
        snprintf(mtu, sizeof mtu, ", MTU %d", ports->mtu);
    ls_check_fact(out, "%d active %s of %.0f Gbit/s, %s%s: %s", ports->n,
                  ports->n == 1 ? "port" : "ports", rate, link_name(ports->link), mtu,
                  ports->names.data ? ports->names.data : "");
}

void ls_check_ib_port(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    double rate = best_rate(m);
    struct ports ports = {.n = 0};
    bool fine = true;
    ls_buf_init(&ports.names, 1 << 16);
    for (int i = 0; i < m->nnic; i++) {
        const struct ls_topo_nic *nic = &m->nic[i];
        if (nic->class == LS_TOPO_NIC_DOWN) {
            ls_check_say(out, LS_CHECK_WARN, nic->name, "an active port",
                         "if it should carry traffic, look at the cable", "%s",
                         nic->why ? nic->why : "down");
            continue;
        }
        for (int p = 0; p < nic->nport && nic->class == LS_TOPO_NIC_COMPUTE; p++)
            if (nic->port[p].active) {
                fine &= port_is_good(out, nic, &nic->port[p], rate);
                add_port(&ports, m, nic, &nic->port[p]);
            }
    }
    if (ports.n == 0)
        ls_check_say(out, LS_CHECK_FAIL, "", "a compute NIC with an active port",
                     "look at cables and ibstat", "none of %d NICs is up and free", m->nnic);
    else if (fine)
        say_ports(out, &ports, rate);
    ls_buf_free(&ports.names);
}

void ls_check_ib_gid(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    struct ls_buf fact;
    bool fine = true;
    ls_buf_init(&fact, 1 << 16);
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport && m->nic[i].class == LS_TOPO_NIC_COMPUTE; p++) {
            const struct ls_topo_port *port = &m->nic[i].port[p];
            if (port->link != LS_TOPO_LINK_ETHERNET || !port->active)
                continue;
            int index = ls_topo_choose_gid(port);
            if (index < 0) {
                ls_check_say(out, LS_CHECK_FAIL, m->nic[i].name,
                             "a GID of RoCE version 2 with a routable address",
                             "give its network interface an address", "none of its %d GIDs is",
                             port->ngid);
                fine = false;
            } else
                ls_buf_printf(&fact, "%s%s GID %d", fact.len ? ", " : "", m->nic[i].name, index);
        }
    if (fine && fact.len)
        ls_check_fact(out, "%s", fact.data);
    else if (fine)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no RoCE port among the compute NICs");
    ls_buf_free(&fact);
}

void ls_check_ib_open(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    int open_count = 0;
    for (int i = 0; i < m->nnic; i++) {
        if (m->nic[i].open)
            open_count++;
        else if (m->nic[i].class == LS_TOPO_NIC_CLOSED)
            ls_check_say(out, LS_CHECK_FAIL, m->nic[i].name, "a device that can be opened",
                         "the job's cgroup or container hides /dev/infiniband",
                         "its device node cannot be opened");
    }
    if (open_count == m->nnic)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%d devices", open_count);
}

/* ---- ib.ctr: what rises while the other checks run ---- */

static const char cable[] = "a bad cable, perhaps: have it looked at";
static const char fabric[] = "the fabric loses packets: look at its flow control and cables";
/* Errors of the link itself, and requests that nobody answered, are failures. What was sent again is a warning: it
 * may belong to other jobs, and RoCE that routes adaptively has some. Names as in the kernel's ABI/stable and
 * mlx5's documentation of its hw_counters. */
static const struct {
    const char *folder, *name;
    enum ls_check_status status;
    const char *advice;
} counters[] = {
    {"counters", "link_downed", LS_CHECK_FAIL, cable},
    {"counters", "symbol_error", LS_CHECK_FAIL, cable},
    {"counters", "port_rcv_errors", LS_CHECK_FAIL, cable},
    {"counters", "local_link_integrity_errors", LS_CHECK_FAIL, cable},
    {"hw_counters", "local_ack_timeout_err", LS_CHECK_FAIL, fabric},
    {"hw_counters", "req_transport_retries_exceeded", LS_CHECK_FAIL, fabric},
    {"hw_counters", "packet_seq_err", LS_CHECK_WARN, fabric},
    {"hw_counters", "out_of_sequence", LS_CHECK_WARN, fabric},
    {"hw_counters", "implied_nak_seq_err", LS_CHECK_WARN, fabric},
    {"hw_counters", "rnr_nak_retry_err", LS_CHECK_WARN, fabric},
    {"hw_counters", "roce_adp_retrans", LS_CHECK_WARN, fabric},
    {"hw_counters", "roce_slow_restart", LS_CHECK_WARN, fabric},
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static int64_t counter(const struct ls_check_context *context, const char *nic, int port, int c)
{
    char path[4300], text[32];
    snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/ports/%d/%s/%s", context->root, nic,
             port, counters[c].folder, counters[c].name);
    FILE *f = fopen(path, "re");
    bool got = f && fgets(text, sizeof text, f);
    if (f)
        fclose(f);
    return got ? strtoll(text, NULL, 10) : -1;
}

typedef int64_t port_counters[LS_TOPO_PORTS][COUNTERS];

/* Of the compute NICs; -1: not there. Returns how many there are. */
static int read_counters(const struct ls_check_context *context, port_counters *now)
{
    const struct ls_topo_machine *m = context->machine;
    int n = 0;
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++)
            for (int c = 0; c < COUNTERS; c++) {
                now[i][p][c] = m->nic[i].class == LS_TOPO_NIC_COMPUTE
                                   ? counter(context, m->nic[i].name, m->nic[i].port[p].number, c)
                                   : -1;
                n += now[i][p][c] >= 0;
            }
    return n;
}

void ls_check_ib_counters(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    static port_counters before[LS_TOPO_NICS], after[LS_TOPO_NICS];
    int rising = 0;
    int n = read_counters(context, before);
    if (!ls_check_next(out))
        return;
    read_counters(context, after);
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++)
            for (int c = 0; c < COUNTERS; c++) {
                int64_t was = before[i][p][c], is = after[i][p][c];
                if (was < 0 || is <= was)
                    continue;
                rising++;
                ls_check_say(out, counters[c].status, m->nic[i].name, "no error in these seconds",
                             counters[c].advice, "%s rose by %lld", counters[c].name,
                             (long long)(is - was));
            }
    if (!n)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no counters here");
    else if (!rising)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "no errors were added");
}
