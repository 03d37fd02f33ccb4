/* Verbs devices: ports, GIDs, netdevs, and what each is for. */
#include "topo/sysfs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERBS "sys/class/infiniband/%s"

/* Empty entries in a row after which the rest of a table is taken for empty, too; tables have up to 256. */
enum { EMPTY_RUN = 16, GIDS_READ = 256 };

/* "fe80:0000:...": 16 bytes; false: empty or not a GID */
static bool parse_gid(const char *text, uint8_t raw[static 16])
{
    struct in6_addr address;
    static const uint8_t none[16];
    if (strlen(text) != 39 || inet_pton(AF_INET6, text, &address) != 1)
        return false;
    memcpy(raw, &address, 16);
    return memcmp(raw, none, 16) != 0 && memcmp(raw, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0", 16) != 0;
}

static void read_gids(struct ls_sys *sys, const char *name, struct ls_topo_port *port)
{
    char text[64];
    for (int i = 0, empty = 0; i < GIDS_READ && empty < EMPTY_RUN && port->ngid < LS_TOPO_GIDS;
         i++) {
        struct ls_topo_gid gid = {.index = i};
        if (!ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/gids/%d", name, port->number,
                         i) ||
            !parse_gid(text, gid.raw)) {
            empty++;
            continue;
        }
        empty = 0;
        if (port->link == LS_TOPO_LINK_ETHERNET) {
            if (ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/gid_attrs/types/%d", name,
                            port->number, i))
                gid.version = strstr(text, "v2") ? 2 : strstr(text, "v1") ? 1 : 0;
            if (ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/gid_attrs/ndevs/%d", name,
                            port->number, i) &&
                strlen(text) < sizeof gid.netdev)
                strcpy(gid.netdev, text);
        }
        port->gid[port->ngid++] = gid;
    }
}

static bool read_port(struct ls_sys *sys, const char *name, int number, struct ls_topo_port *port)
{
    char text[64];
    *port = (struct ls_topo_port){.number = number};
    if (!ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/state", name, number))
        return false;
    port->active = strtol(text, NULL, 10) == 4; /* IBV_PORT_ACTIVE */
    ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/phys_state", name, number);
    port->up = strtol(text, NULL, 10) == 5; /* LinkUp */
    ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/link_layer", name, number);
    port->link = !strcmp(text, "InfiniBand") ? LS_TOPO_LINK_IB
                 : !strcmp(text, "Ethernet") ? LS_TOPO_LINK_ETHERNET
                                             : LS_TOPO_LINK_OTHER;
    ls_sys_read(sys, text, sizeof text, VERBS "/ports/%d/rate", name, number);
    double gbit = strtod(text, NULL);
    port->gbit = gbit > 0 && gbit < 1e6 ? gbit : 0;
    port->lid = (int)(ls_sys_number(sys, 0, VERBS "/ports/%d/lid", name, number) & 0xffff);
    port->sm_lid = (int)(ls_sys_number(sys, 0, VERBS "/ports/%d/sm_lid", name, number) & 0xffff);
    if (port->active)
        read_gids(sys, name, port);
    return true;
}

static void read_ports(struct ls_sys *sys, struct ls_topo_nic *nic)
{
    char text[64];
    int number[LS_TOPO_PORTS], count = 0;
    int n = ls_sys_list(sys, VERBS "/ports", nic->name);
    for (int i = 0; i < n; i++) {
        char *end;
        long value = strtol(sys->names[i], &end, 10);
        if (*end || value < 1 || value > 255)
            continue;
        if (count < LS_TOPO_PORTS)
            number[count++] = (int)value;
        else
            sys->left_out++;
    }
    for (int i = 0; i < count; i++)
        if (read_port(sys, nic->name, number[i], &nic->port[nic->nport]))
            nic->nport++;
    /* The table of GIDs names the interface also where it is a bond, which the device does not. */
    for (int p = 0; p < nic->nport && !nic->netdev[0]; p++)
        for (int g = 0; g < nic->port[p].ngid && !nic->netdev[0]; g++)
            strcpy(nic->netdev, nic->port[p].gid[g].netdev);
    if (nic->netdev[0])
        return;
    n = ls_sys_list(sys, VERBS "/device/net", nic->name);
    for (int i = 0; i < n && !nic->netdev[0]; i++)
        if (strlen(sys->names[i]) < sizeof nic->netdev) {
            snprintf(text, sizeof text, "%s", sys->names[i]);
            memcpy(nic->netdev, text, sizeof nic->netdev);
        }
}

static void read_nic(struct ls_sys *sys, struct ls_topo_nic *nic)
{
    char link[1024];
    nic->pci.numa = nic->uverbs = -1;
    if (!ls_sys_link(sys, link, sizeof link, VERBS, nic->name) ||
        !ls_pci_from_link(sys, link, &nic->pci)) {
        const char *last = ls_sys_link(sys, link, sizeof link, VERBS "/device", nic->name)
                               ? strrchr(link, '/')
                               : "";
        last = last && *last == '/' ? last + 1 : link;
        if (ls_pci_is_address(last, strlen(last)))
            ls_pci_from_address(sys, last, &nic->pci);
    }
    if (ls_sys_link(sys, link, sizeof link, VERBS "/device/driver", nic->name)) {
        const char *base = strrchr(link, '/') ? strrchr(link, '/') + 1 : link;
        if (strlen(base) < sizeof nic->driver)
            strcpy(nic->driver, base);
    }
    read_ports(sys, nic);
}

/* Finds the device node that belongs to each verbs device. */
static void find_nodes(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    int number[2 * LS_TOPO_NICS], count = 0, n = ls_sys_list(sys, "sys/class/infiniband_verbs");
    char name[64];
    for (int i = 0; i < n && count < 2 * LS_TOPO_NICS; i++) {
        char *end;
        long value = strncmp(sys->names[i], "uverbs", 6) ? -1 : strtol(sys->names[i] + 6, &end, 10);
        if (value >= 0 && value < 1 << 20 && !*end && end != sys->names[i] + 6)
            number[count++] = (int)value;
    }
    for (int i = 0; i < count; i++) {
        if (!ls_sys_read(sys, name, sizeof name, "sys/class/infiniband_verbs/uverbs%d/ibdev",
                         number[i]))
            continue;
        for (int k = 0; k < machine->nnic; k++)
            if (!strcmp(machine->nic[k].name, name))
                machine->nic[k].uverbs = number[i];
    }
}

void ls_topo_open_nics(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    for (int i = 0; i < machine->nnic; i++)
        machine->nic[i].open =
            machine->nic[i].uverbs >= 0 &&
            ls_sys_openable(sys, "dev/infiniband/uverbs%d", machine->nic[i].uverbs);
}

void ls_topo_read_nics(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    int n = ls_sys_list(sys, "sys/class/infiniband");
    for (int i = 0; i < n; i++) {
        if (machine->nnic == LS_TOPO_NICS || strlen(sys->names[i]) >= sizeof machine->nic[0].name) {
            sys->left_out++;
            continue;
        }
        strcpy(machine->nic[machine->nnic++].name, sys->names[i]);
    }
    for (int i = 0; i < machine->nnic; i++)
        read_nic(sys, &machine->nic[i]);
    if (machine->nnic)
        find_nodes(sys, machine);
    ls_topo_open_nics(sys, machine);
}

static bool is_ipv4(const uint8_t raw[static 16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return !memcmp(raw, mapped, 12);
}

static bool is_routable(const uint8_t raw[static 16])
{
    if (is_ipv4(raw))
        return !(raw[12] == 169 && raw[13] == 254) && raw[12] != 127;
    return !(raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80);
}

const char *ls_topo_gid_fault(const struct ls_topo_gid *gid)
{
    if (gid->version != 2)
        return "not of RoCE version 2";
    return is_routable(gid->raw) ? NULL : "not routable";
}

int ls_topo_choose_gid(const struct ls_topo_port *port)
{
    int v6 = -1;
    for (int i = 0; i < port->ngid; i++) {
        const struct ls_topo_gid *gid = &port->gid[i];
        if (ls_topo_gid_fault(gid))
            continue;
        if (is_ipv4(gid->raw))
            return gid->index;
        if (v6 < 0)
            v6 = gid->index;
    }
    return v6;
}
