/* Network interfaces: which exist, what they are, which hold the default route and addresses. */
#include "topo/sysfs.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beginnings of names that bridges, containers, tunnels and management controllers take. NCCL itself leaves
 * out only docker, lo and virbr. */
static const char *const never[] = {
    "docker",    "br-",   "virbr",  "veth",   "vnet",  "cni", "flannel", "cali",
    "cilium",    "kube",  "podman", "lxc",    "lxd",   "tun", "tap",     "wg",
    "tailscale", "vxlan", "dummy",  "ifb",    "idrac", "usb", "bmc",     "nodelocaldns",
    "ovs",       "gre",   "sit",    "ip6tnl", "ipvl"};

static bool is_never(const char *name)
{
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (!strncmp(name, never[i], strlen(never[i])))
            return true;
    return false;
}

static enum ls_topo_iface_class classify(struct ls_sys *sys, const char *name, const char *link)
{
    char text[256];
    int64_t type = ls_sys_number(sys, ARPHRD_ETHER, "sys/class/net/%s/type", name);
    if (type == ARPHRD_LOOPBACK || !strcmp(name, "lo"))
        return LS_TOPO_IFACE_LOOPBACK;
    if (type == ARPHRD_INFINIBAND)
        return LS_TOPO_IFACE_IPOIB;
    if (type != ARPHRD_ETHER || is_never(name) || strstr(link, "/usb"))
        return LS_TOPO_IFACE_VIRTUAL;
    ls_sys_read(sys, text, sizeof text, "sys/class/net/%s/uevent", name);
    if (strstr(text, "DEVTYPE=bond") || !strncmp(name, "team", 4))
        return LS_TOPO_IFACE_BOND;
    /* A VLAN is as good as the interface below it. */
    if (strstr(link, "/virtual/") && !strstr(text, "DEVTYPE=vlan"))
        return LS_TOPO_IFACE_VIRTUAL;
    return LS_TOPO_IFACE_ETHERNET;
}

static void read_iface(struct ls_sys *sys, struct ls_topo_iface *iface)
{
    char link[1024], state[32];
    const char *name = iface->name;
    iface->pci.numa = -1;
    if (ls_sys_link(sys, link, sizeof link, "sys/class/net/%s", name))
        ls_pci_from_link(sys, link, &iface->pci);
    iface->class = classify(sys, name, link);
    ls_sys_read(sys, state, sizeof state, "sys/class/net/%s/operstate", name);
    int64_t flags = ls_sys_number(sys, 0, "sys/class/net/%s/flags", name);
    iface->up = !strcmp(state, "up") || (!strcmp(state, "unknown") && (flags & IFF_UP));
    int64_t mtu = ls_sys_number(sys, 0, "sys/class/net/%s/mtu", name);
    iface->mtu = mtu > 0 && mtu < 1 << 20 ? (int)mtu : 0;
    iface->mbit = ls_sys_number(sys, -1, "sys/class/net/%s/speed", name);
    if (iface->mbit <= 0 || iface->mbit > 10000000)
        iface->mbit = -1;
}

static struct ls_topo_iface *find(struct ls_topo_machine *machine, const char *name)
{
    for (int i = 0; i < machine->niface; i++)
        if (!strcmp(machine->iface[i].name, name))
            return &machine->iface[i];
    return NULL;
}

/* proc/net/route: Iface Destination Gateway Flags RefCnt Use Metric Mask ... */
static void read_routes4(char *text, struct ls_topo_machine *machine)
{
    long best = -1;
    char *save = NULL;
    strtok_r(text, "\n", &save);
    for (char *line; (line = strtok_r(NULL, "\n", &save));) {
        char name[16];
        unsigned destination, flags, mask;
        long metric;
        if (sscanf(line, "%15s %8x %*s %4x %*s %*s %9ld %8x", name, &destination, &flags, &metric,
                   &mask) != 5)
            continue;
        struct ls_topo_iface *iface = find(machine, name);
        if (!iface || !(flags & RTF_UP) || (flags & RTF_REJECT) || metric < 0)
            continue;
        iface->ipv4 = true;
        if (destination || mask || (best >= 0 && metric > best))
            continue;
        if (metric != best)
            for (int i = 0; i < machine->niface; i++)
                machine->iface[i].default_route = false;
        best = metric;
        iface->default_route = true;
    }
}

/* proc/net/ipv6_route: destination, prefix length, source, prefix length, next hop, metric, ..., flags, name */
static void read_routes6(char *text, struct ls_topo_machine *machine)
{
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[16], destination[33];
        unsigned prefix, flags;
        if (sscanf(line, "%32s %2x %*s %*s %*s %*s %*s %*s %8x %15s", destination, &prefix, &flags,
                   name) != 4)
            continue;
        struct ls_topo_iface *iface = find(machine, name);
        if (iface && prefix == 0 && strspn(destination, "0") == 32 && (flags & RTF_GATEWAY) &&
            !(flags & RTF_REJECT))
            iface->default_route = true;
    }
}

/* proc/net/if_inet6: address, index, prefix length, scope, flags, name */
static void read_addresses6(char *text, struct ls_topo_machine *machine)
{
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[16];
        unsigned scope;
        if (sscanf(line, "%*s %*s %*s %2x %*s %15s", &scope, name) != 2)
            continue;
        struct ls_topo_iface *iface = find(machine, name);
        if (iface && scope == 0)
            iface->ipv6 = true;
    }
}

void ls_topo_read_ifaces(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    enum { TABLE = 65536 };
    int n = ls_sys_list(sys, "sys/class/net");
    for (int i = 0; i < n; i++) {
        /* bonding_masters is a file among the links */
        if (!strcmp(sys->names[i], "bonding_masters"))
            continue;
        if (machine->niface == LS_TOPO_IFACES ||
            strlen(sys->names[i]) >= sizeof machine->iface[0].name) {
            sys->left_out++;
            continue;
        }
        strcpy(machine->iface[machine->niface++].name, sys->names[i]);
    }
    for (int i = 0; i < machine->niface; i++)
        read_iface(sys, &machine->iface[i]);
    char *text = malloc(TABLE);
    if (!text)
        return;
    if (ls_sys_read(sys, text, TABLE, "proc/net/route"))
        read_routes4(text, machine);
    bool has_default = false;
    for (int i = 0; i < machine->niface; i++)
        has_default |= machine->iface[i].default_route;
    if (!has_default && ls_sys_read(sys, text, TABLE, "proc/net/ipv6_route"))
        read_routes6(text, machine);
    if (ls_sys_read(sys, text, TABLE, "proc/net/if_inet6"))
        read_addresses6(text, machine);
    free(text);
}
