/* The policy table: every variable that others like to set, what this program does about it, and why. Most
 * are left alone, since the libraries choose better at run time than anyone beforehand. A rule sees a variable
 * only if neither the user nor the site's configuration files have set it. */
#include "topo/decide.h"

#include <stdio.h>
#include <string.h>

/* Returns the value, or NULL to leave it alone; *reason in any case. */
typedef const char *rule(struct ls_decide *c, const char **reason);

static const char *device_order(struct ls_decide *c, const char **reason)
{
    (void)c;
    *reason = "numbers GPUs as Slurm and the driver do; by default CUDA puts the fastest first";
    return "PCI_BUS_ID";
}

static const char *visible_devices(struct ls_decide *c, const char **reason)
{
    *reason = c->granted < 0 ? "no job: every GPU may be used" : "Slurm's to set; never touched";
    return NULL;
}

static const char *socket_ifname(struct ls_decide *c, const char **reason)
{
    *reason = c->interface_why;
    return c->name_interface && c->decision->interface ? ls_decide_text(c, "=%s",
                                                                        c->decision->interface)
                                                       : NULL;
}

static const struct ls_topo_iface *chosen(const struct ls_decide *c)
{
    for (int i = 0; i < c->machine->niface && c->decision->interface; i++)
        if (!strcmp(c->machine->iface[i].name, c->decision->interface))
            return &c->machine->iface[i];
    return NULL;
}

static const char *socket_family(struct ls_decide *c, const char **reason)
{
    const struct ls_topo_iface *iface = chosen(c);
    bool only6 = iface && iface->ipv6 && !iface->ipv4;
    *reason = only6 ? "the interface has IPv6 addresses only"
                    : "NCCL prefers IPv4 and takes what is there";
    return only6 ? "AF_INET6" : NULL;
}

static bool is_rdma(const struct ls_decide *c)
{
    return c->decision->expected == LS_TOPO_IB || c->decision->expected == LS_TOPO_ROCE ||
           (c->decision->expected == LS_TOPO_SHM && c->ncompute > 0);
}

static const char *ib_disable(struct ls_decide *c, const char **reason)
{
    bool tcp = c->request->transport == LS_TOPO_TCP;
    *reason = tcp ? "transport 'tcp' was asked for" : "NCCL falls back to sockets by itself";
    return tcp ? "1" : NULL;
}

/* The compute ports, "mlx5_0:1,mlx5_3:1" behind `start`. */
static const char *port_list(struct ls_decide *c, const char *start)
{
    char text[1000];
    size_t first = (size_t)snprintf(text, sizeof text, "%s", start), at = first;
    for (int i = 0; i < c->machine->nnic; i++)
        for (int p = 0; p < c->machine->nic[i].nport && at < sizeof text - 64; p++)
            if (ls_decide_is_compute(c, i, p))
                at +=
                    (size_t)snprintf(text + at, sizeof text - at, "%s%s:%d", at > first ? "," : "",
                                     c->machine->nic[i].name, c->machine->nic[i].port[p].number);
    return ls_decide_text(c, "%s", text);
}

/* Exact names: without '=' they are beginnings, and mlx5_1 would take mlx5_10 as well. */
static const char *hca_list(struct ls_decide *c)
{
    return port_list(c, "=");
}

static const char *ib_hca(struct ls_decide *c, const char **reason)
{
    const struct ls_topo_machine *m = c->machine;
    if (c->request->transport == LS_TOPO_TCP || !c->ncompute) {
        *reason = "no RDMA device is used";
        return NULL;
    }
    if (!c->several_nodes) {
        *reason = c->interface_why; /* the job is on one node */
        return NULL;
    }
    if (c->site->nic[0]) {
        *reason = "the site declares its compute NICs";
        return hca_list(c);
    }
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++) {
            const struct ls_topo_nic *nic = &m->nic[i];
            if (!ls_decide_nccl_takes(nic, &nic->port[p]) || ls_decide_is_compute(c, i, p))
                continue;
            *reason = c->compute[i] ? ls_decide_text(c, "port %d of %s is of another link layer",
                                                     nic->port[p].number, nic->name)
                                    : ls_decide_text(c, "keeps %s out: %s", nic->name, nic->why);
            return hca_list(c);
        }
    *reason = "all active ports are of one link layer and speed: NCCL takes the right ones";
    return NULL;
}

/* Of the compute ports with RoCE: do all have a routable address, and of which family? */
static void gid_families(const struct ls_decide *c, int *v4, int *v6, int *none)
{
    *v4 = *v6 = *none = 0;
    for (int i = 0; i < c->machine->nnic; i++)
        for (int p = 0; p < c->machine->nic[i].nport; p++) {
            const struct ls_topo_port *port = &c->machine->nic[i].port[p];
            if (!ls_decide_is_compute(c, i, p) || port->link != LS_TOPO_LINK_ETHERNET)
                continue;
            int index = ls_topo_choose_gid(port), k = 0;
            while (k < port->ngid && port->gid[k].index != index)
                k++;
            if (k == port->ngid)
                ++*none;
            else if (port->gid[k].raw[10] == 0xff && port->gid[k].raw[11] == 0xff &&
                     port->gid[k].raw[0] == 0)
                ++*v4;
            else
                ++*v6;
        }
}

static const char *gid_index(struct ls_decide *c, const char **reason)
{
    *reason = "NCCL 2.21 and later find it";
    for (int i = 0; i < c->machine->nnic && c->link == LS_TOPO_LINK_ETHERNET; i++)
        for (int p = 0; p < c->machine->nic[i].nport; p++)
            if (ls_decide_is_compute(c, i, p)) {
                *reason = ls_decide_text(
                    c,
                    "NCCL 2.21 and later find it on each node; older ones need %d "
                    "here (%s)",
                    ls_topo_choose_gid(&c->machine->nic[i].port[p]), c->machine->nic[i].name);
                return NULL;
            }
    return NULL;
}

static const char *addr_family(struct ls_decide *c, const char **reason)
{
    int v4, v6, none;
    gid_families(c, &v4, &v6, &none);
    bool only6 = is_rdma(c) && v6 > 0 && v4 == 0;
    *reason = only6 ? "the RoCE ports have routable IPv6 addresses only, and NCCL looks for IPv4"
                    : "NCCL looks for IPv4, which is there or not needed";
    return only6 ? "AF_INET6" : NULL;
}

static const char *declared(struct ls_decide *c, int value, bool used, const char **reason)
{
    *reason = value < 0
                  ? "a matter of the fabric that no node shows: declared by the site, or not set"
              : used ? "the site declares it"
                     : "the site declares it, but no RDMA device is used";
    return value >= 0 && used ? ls_decide_text(c, "%d", value) : NULL;
}

static const char *traffic_class(struct ls_decide *c, const char **reason)
{
    return declared(c, c->site->traffic_class, is_rdma(c), reason);
}

static const char *service_level(struct ls_decide *c, const char **reason)
{
    return declared(c, c->site->service_level, is_rdma(c), reason);
}

/* UCX warns of variables that it does not use, and is left without any network by the name of a device that it
 * cannot use: so these are set only where its InfiniBand module has been seen. */
static bool ucx_has_ib(struct ls_decide *c, const char *wish, const char **reason)
{
    if (c->machine->ucx == LS_TOPO_UCX_NO_IB)
        *reason = ls_decide_text(c, "%s, but UCX has no InfiniBand module", wish);
    if (c->machine->ucx == LS_TOPO_UCX_UNKNOWN)
        *reason = ls_decide_text(
            c, "%s: for `lockstep run` and `exec`, which see if UCX has its InfiniBand module",
            wish);
    return c->machine->ucx == LS_TOPO_UCX_IB;
}

static const char *ucx_declared(struct ls_decide *c, int value, const char **reason)
{
    const char *text = declared(c, value, is_rdma(c), reason);
    return text && ucx_has_ib(c, *reason, reason) ? text : NULL;
}

static const char *ucx_traffic_class(struct ls_decide *c, const char **reason)
{
    return ucx_declared(c, c->site->traffic_class, reason);
}

static const char *ucx_service_level(struct ls_decide *c, const char **reason)
{
    return ucx_declared(c, c->site->service_level, reason);
}

static const char *ucx_net_devices(struct ls_decide *c, const char **reason)
{
    enum ls_topo_transport t = c->request->transport;
    *reason = "UCX leaves out slow devices itself; a wrong name leaves none";
    if (t != LS_TOPO_IB && t != LS_TOPO_ROCE)
        return NULL;
    *reason = ls_decide_text(c, "transport '%s' was asked for", ls_topo_transport_names[t]);
    return ucx_has_ib(c, *reason, reason) ? port_list(c, "") : NULL;
}

static const char *cross_nic(struct ls_decide *c, const char **reason)
{
    if (c->site->fabric == LS_TOPO_FABRIC_UNKNOWN || !is_rdma(c)) {
        *reason = "rails cannot be seen from a node; NCCL prefers the same rail and allows others";
        return NULL;
    }
    bool rail = c->site->fabric == LS_TOPO_FABRIC_RAIL;
    *reason = rail ? "the site declares separate rails" : "the site declares a single fabric";
    return rail ? "0" : "1";
}

static const char *topo_file(struct ls_decide *c, const char **reason)
{
    *reason =
        c->machine->virtual_machine
            ? "a file for another size of virtual machine is worse than none; name your vendor's"
            : "NCCL reads the topology from the machine";
    return NULL;
}

static const char *nccl_debug(struct ls_decide *c, const char **reason)
{
    (void)c;
    *reason = "so that NCCL's errors say their cause";
    return "WARN";
}

static const char *ucx_tls(struct ls_decide *c, const char **reason)
{
    bool gpu = c->decision->ngpu > 0;
    *reason = "UCX takes what is there; a list that lacks one of self, sm, cuda or ud breaks jobs";
    if (c->request->transport == LS_TOPO_TCP) {
        *reason = "transport 'tcp' was asked for";
        return gpu ? "self,sm,tcp,cuda" : "self,sm,tcp";
    }
    if (c->request->transport == LS_TOPO_SHM) {
        *reason = "transport 'shm' was asked for";
        return gpu ? "self,sm,cuda" : "self,sm";
    }
    return NULL;
}

static const char *ucx_num_eps(struct ls_decide *c, const char **reason)
{
    *reason = c->request->ranks > 0
                  ? "the number of ranks: a hint by which UCX tells what scales, and no more"
                  : "the number of ranks is not known";
    return c->request->ranks > 0 ? ls_decide_text(c, "%lld", (long long)c->request->ranks) : NULL;
}

static const char *ucx_num_ppn(struct ls_decide *c, const char **reason)
{
    *reason = "ranks of this node: a hint by which UCX shares out bandwidth";
    return c->request->ranks > 0 ? ls_decide_text(c, "%d", c->request->local_size) : NULL;
}

static int at_most(int n, int limit)
{
    return limit > 0 && limit < n ? limit : n;
}

static const char *omp_threads(struct ls_decide *c, const char **reason)
{
    const struct ls_topo_decision *d = c->decision;
    int size = c->request->local_size;
    int cores = ls_topo_cores(c->machine, &d->cpus), n = cores;
    bool shared = !d->bound && !c->own_mask && size > 1;
    if (cores == 0) {
        *reason = "the CPUs of this process are not known";
        return NULL;
    }
    if (shared)
        n = cores / size;
    if (c->cpus_on_node > 0)
        n = at_most(n, c->cpus_on_node / size > 0 ? c->cpus_on_node / size : 1);
    n = at_most(n, c->cpus_per_task);
    n = n > 0 ? n : 1;
    *reason = ls_decide_text(c, "%d cores in the CPUs of this task%s%s", cores,
                             shared ? ", shared with the other tasks of the node" : "",
                             n < cores && !shared ? "; Slurm granted fewer CPUs" : "");
    return ls_decide_text(c, "%d", n);
}

static const struct row {
    const char *name;
    bool transport; /* not touched with transport 'keep' */
    rule *rule;
    const char *reason; /* without a rule: never set, and this is why */
} table[] = {
    {"CUDA_VISIBLE_DEVICES", false, visible_devices, NULL},
    {"CUDA_DEVICE_ORDER", false, device_order, NULL},
    {"CUDA_DEVICE_MAX_CONNECTIONS", false, NULL,
     "depends on how the job divides its model and on the generation of the GPU: the job's to set"},
    {"OMP_NUM_THREADS", false, omp_threads, NULL},
    {"NCCL_DEBUG", false, nccl_debug, NULL},
    {"NCCL_SOCKET_IFNAME", true, socket_ifname, NULL},
    {"NCCL_SOCKET_FAMILY", true, socket_family, NULL},
    {"NCCL_IB_DISABLE", true, ib_disable, NULL},
    {"NCCL_IB_HCA", true, ib_hca, NULL},
    {"NCCL_IB_GID_INDEX", true, gid_index, NULL},
    {"NCCL_IB_ADDR_FAMILY", true, addr_family, NULL},
    {"NCCL_IB_TC", true, traffic_class, NULL},
    {"NCCL_IB_SL", true, service_level, NULL},
    {"NCCL_IB_TIMEOUT", true, NULL,
     "NCCL waits some 30 s as it is; for very large fabrics the site's"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", true, NULL, "NCCL finds out itself"},
    {"NCCL_CROSS_NIC", true, cross_nic, NULL},
    {"NCCL_NET_GDR_LEVEL", true, NULL,
     "NCCL's own threshold is by PCI distance; the site's to change"},
    {"NCCL_P2P_LEVEL", true, NULL, "NCCL's own threshold is by PCI distance; the site's to change"},
    {"NCCL_TOPO_FILE", true, topo_file, NULL},
    {"NCCL_NVLS_ENABLE", true, NULL, "tuning: a preset hides what NCCL would choose"},
    {"NCCL_ALGO", true, NULL, "tuning: a preset hides what NCCL would choose"},
    {"NCCL_PROTO", true, NULL, "tuning: a preset hides what NCCL would choose"},
    {"NCCL_MIN_CTAS", true, NULL, "tuning: a preset hides what NCCL would choose"},
    {"NCCL_BUFFSIZE", true, NULL, "tuning: a preset hides what NCCL would choose"},
    {"NCCL_NSOCKS_PERTHREAD", true, NULL, "tuning: NCCL chooses by the machine's vendor and speed"},
    {"NCCL_IGNORE_NET_MISMATCH", true, NULL, "NCCL's default; `lockstep check` compares the nodes"},
    {"NCCL_IGNORE_CPU_AFFINITY", true, NULL, "the CPUs of the task are right, or said to be wrong"},
    {"UCX_TLS", true, ucx_tls, NULL},
    {"UCX_NET_DEVICES", true, ucx_net_devices, NULL},
    {"UCX_NUM_EPS", true, ucx_num_eps, NULL},
    {"UCX_NUM_PPN", true, ucx_num_ppn, NULL},
    {"UCX_IB_TRAFFIC_CLASS", true, ucx_traffic_class, NULL},
    {"UCX_IB_SL", true, ucx_service_level, NULL},
    {"UCX_RNDV_THRESH", true, NULL, "UCX decides by the kind of memory; not for a launcher to set"},
    {"UCX_RNDV_SCHEME", true, NULL, "UCX decides by the kind of memory; not for a launcher to set"},
};
_Static_assert(sizeof table / sizeof *table <= LS_TOPO_VARIABLES, "room for all of the table");

static bool site_has(const struct ls_decide *c, const char *name)
{
    for (const char *const *key = c->request->site_keys; key && *key; key++)
        if (!strcmp(*key, name))
            return true;
    return false;
}

static bool user_has(const struct ls_decide *c, const char *name, const char **value)
{
    *value = c->request->get ? c->request->get(c->request->user, name) : NULL;
    return *value != NULL;
}

void ls_decide_variables(struct ls_decide *c)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct row *row = &table[i];
        struct ls_topo_variable *v = &c->decision->variable[c->decision->nvariable++];
        const char *set;
        char shown[84];
        *v = (struct ls_topo_variable){.name = row->name, .reason = row->reason};
        if (user_has(c, row->name, &set) && strcmp(row->name, "CUDA_VISIBLE_DEVICES") != 0)
            v->reason =
                ls_decide_text(c, "set to '%s' already, and left alone", ls_topo_show(set, shown));
        else if (site_has(c, row->name))
            v->reason = "set in the site's configuration file, which a variable would override";
        else if (row->transport && c->request->transport == LS_TOPO_KEEP)
            v->reason = "transport 'keep' touches no transport variable";
        else if (row->rule)
            v->value = row->rule(c, &v->reason);
    }
}
