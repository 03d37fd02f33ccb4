/* What a NIC is for, told by what the machine shows: link layer, speed, distance to GPUs, default route. */
#include "topo/machine.h"

#include <string.h>

struct view {
    enum ls_topo_link link; /* of its fastest active port */
    double gbit;
    bool candidate, near;
};

static void look(const struct ls_topo_machine *machine, const struct ls_topo_nic *nic,
                 struct view *view)
{
    *view = (struct view){0};
    for (int p = 0; p < nic->nport; p++)
        if (nic->port[p].active && nic->port[p].gbit >= view->gbit) {
            view->gbit = nic->port[p].gbit;
            view->link = nic->port[p].link;
        }
    for (int g = 0; g < machine->ngpu; g++)
        view->near |= ls_topo_distance(&machine->gpu[g].pci, &nic->pci) <= LS_TOPO_PXB;
}

/* What a device is on its own: out of the question, or true. */
static bool is_usable(struct ls_topo_nic *nic, const struct view *view)
{
    bool active = false, ethernet = true;
    for (int p = 0; p < nic->nport; p++) {
        active |= nic->port[p].active;
        ethernet &= !nic->port[p].active || nic->port[p].link == LS_TOPO_LINK_ETHERNET;
    }
    if (!active) {
        nic->class = LS_TOPO_NIC_DOWN;
        nic->why = "no port is active";
    } else if (ethernet && !nic->netdev[0]) {
        nic->class = LS_TOPO_NIC_PHANTOM;
        nic->why = "RoCE without a network interface";
    } else if (!nic->open) {
        nic->class = LS_TOPO_NIC_CLOSED;
        nic->why = "its device node cannot be opened here";
    } else if (view->link == LS_TOPO_LINK_OTHER) {
        nic->class = LS_TOPO_NIC_STORAGE;
        nic->why = "neither InfiniBand nor Ethernet: needs a plugin of its vendor";
    } else {
        return true;
    }
    return false;
}

static bool holds_default_route(const struct ls_topo_machine *machine, const char *netdev)
{
    for (int i = 0; i < machine->niface; i++)
        if (machine->iface[i].default_route && !strcmp(machine->iface[i].name, netdev))
            return true;
    return false;
}

/* The link layer of most candidates; of equally many, that of more bandwidth, InfiniBand first. */
static enum ls_topo_link modal_link(const struct view *view, int n, bool near)
{
    int count[3] = {0};
    double gbit[3] = {0};
    for (int i = 0; i < n; i++)
        if (view[i].candidate && view[i].near >= near) {
            count[view[i].link]++;
            gbit[view[i].link] += view[i].gbit;
        }
    int ib = LS_TOPO_LINK_IB, eth = LS_TOPO_LINK_ETHERNET;
    bool ethernet = count[eth] != count[ib] ? count[eth] > count[ib] : gbit[eth] > gbit[ib];
    return ethernet ? LS_TOPO_LINK_ETHERNET : LS_TOPO_LINK_IB;
}

/* Of several equal Ethernet NICs the one with the default route is the front end, if the GPUs have others: as many
 * as there are GPUs, or nearer ones. A machine's only NIC is for everything. IP over
 * InfiniBand with a default route is no sign of that: the network may be the only one that there is. */
static void find_front_ends(struct ls_topo_machine *machine, const struct view *view)
{
    int compute = 0, near = 0;
    for (int i = 0; i < machine->nnic; i++)
        if (machine->nic[i].class == LS_TOPO_NIC_COMPUTE) {
            compute++;
            near += view[i].near;
        }
    for (int i = 0; i < machine->nnic && compute > 1; i++) {
        struct ls_topo_nic *nic = &machine->nic[i];
        if (nic->class != LS_TOPO_NIC_COMPUTE || view[i].link != LS_TOPO_LINK_ETHERNET ||
            !holds_default_route(machine, nic->netdev) ||
            !(compute - 1 >= machine->ngpu || (near > 0 && !view[i].near)))
            continue;
        nic->class = LS_TOPO_NIC_STORAGE;
        nic->why = "front end: holds the default route, and the GPUs have other NICs";
        compute--;
    }
}

/* Where every GPU has a compute NIC on its own PCI switches, one that is near no GPU serves something else, however
 * fast it is: the storage cards of a DGX H100 have 400 Gb/s, as the others do. */
static void find_far_ones(struct ls_topo_machine *machine, const struct view *view)
{
    for (int g = 0; g < machine->ngpu; g++) {
        bool served = false;
        for (int i = 0; i < machine->nnic; i++)
            served |= machine->nic[i].class == LS_TOPO_NIC_COMPUTE &&
                      ls_topo_distance(&machine->gpu[g].pci, &machine->nic[i].pci) <= LS_TOPO_PXB;
        if (!served)
            return;
    }
    for (int i = 0; i < machine->nnic && machine->ngpu > 0; i++) {
        struct ls_topo_nic *nic = &machine->nic[i];
        if (nic->class != LS_TOPO_NIC_COMPUTE || view[i].near)
            continue;
        nic->class = LS_TOPO_NIC_STORAGE;
        nic->why = "below no GPU's switch, where every GPU has a NIC";
    }
}

void ls_topo_classify(struct ls_topo_machine *machine)
{
    struct view view[LS_TOPO_NICS];
    bool near = false;
    double top = 0;
    for (int i = 0; i < machine->nnic; i++) {
        look(machine, &machine->nic[i], &view[i]);
        view[i].candidate = is_usable(&machine->nic[i], &view[i]);
        near |= view[i].candidate && view[i].near;
    }
    enum ls_topo_link link = modal_link(view, machine->nnic, near);
    for (int i = 0; i < machine->nnic; i++)
        if (view[i].candidate && view[i].link == link && view[i].near >= near && view[i].gbit > top)
            top = view[i].gbit;
    for (int i = 0; i < machine->nnic; i++) {
        struct ls_topo_nic *nic = &machine->nic[i];
        if (!view[i].candidate)
            continue;
        nic->class = LS_TOPO_NIC_STORAGE;
        if (view[i].link != link)
            nic->why = link == LS_TOPO_LINK_IB ? "Ethernet, but the compute NICs are InfiniBand"
                                               : "InfiniBand, but the compute NICs are Ethernet";
        else if (view[i].gbit < 0.9 * top)
            nic->why = "slower than the compute NICs";
        else {
            nic->class = LS_TOPO_NIC_COMPUTE;
            nic->why = "of the fastest kind near the GPUs";
            if (!near)
                nic->why = "of the fastest kind";
        }
    }
    find_front_ends(machine, view);
    find_far_ones(machine, view);
}
