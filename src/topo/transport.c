/* Which network the libraries will use, which of its NICs are for computing, and the interface over which
 * ranks find each other. */
#include "topo/decide.h"

#include <stdio.h>
#include <string.h>

bool ls_decide_nccl_takes(const struct ls_topo_nic *nic, const struct ls_topo_port *port)
{
    return nic->open && port->active && port->link != LS_TOPO_LINK_OTHER;
}

bool ls_decide_is_compute(const struct ls_decide *c, int nic, int port)
{
    const struct ls_topo_port *p = &c->machine->nic[nic].port[port];
    return c->compute[nic] && p->active && p->link == c->link;
}

static bool has_link(const struct ls_topo_nic *nic, enum ls_topo_link link)
{
    for (int p = 0; p < nic->nport; p++)
        if (nic->port[p].active && nic->port[p].link == link)
            return true;
    return false;
}

static double rate(const struct ls_topo_nic *nic, enum ls_topo_link link)
{
    double gbit = 0;
    for (int p = 0; p < nic->nport; p++)
        if (nic->port[p].active && nic->port[p].link == link && nic->port[p].gbit > gbit)
            gbit = nic->port[p].gbit;
    return gbit;
}

/* NICs of one link layer: the compute NICs, or, where these are of another, the fastest that are usable. */
static int choose_of_link(struct ls_decide *c, enum ls_topo_link link)
{
    const struct ls_topo_machine *m = c->machine;
    double top = 0;
    int n = 0;
    for (int pass = 0; pass < 2 && n == 0; pass++)
        for (int i = 0; i < m->nnic; i++) {
            const struct ls_topo_nic *nic = &m->nic[i];
            bool usable = nic->class == LS_TOPO_NIC_COMPUTE ||
                          (pass == 1 && nic->class == LS_TOPO_NIC_STORAGE);
            c->compute[i] = usable && has_link(nic, link);
            if (c->compute[i] && rate(nic, link) > top)
                top = rate(nic, link);
            n += c->compute[i];
        }
    for (int i = 0; i < m->nnic; i++)
        if (c->compute[i] && rate(&m->nic[i], link) < 0.9 * top) {
            c->compute[i] = false;
            n--;
        }
    c->link = link;
    return n;
}

/* The list of the site's file, as far as it is there. */
static int choose_by_site(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    char name[32];
    int n = 0, listed = 0;
    for (const char *at = c->site->nic; *at;) {
        at += strspn(at, ", ");
        size_t len = strcspn(at, ", ");
        if (len > 0) {
            bool found = false;
            listed++;
            snprintf(name, sizeof name, "%.*s", (int)(len < 31 ? len : 31), at);
            for (int i = 0; i < m->nnic; i++)
                if (!strcmp(m->nic[i].name, name) && (m->nic[i].class == LS_TOPO_NIC_COMPUTE ||
                                                      m->nic[i].class == LS_TOPO_NIC_STORAGE)) {
                    c->compute[i] = found = true;
                    n++;
                }
            if (!found)
                ls_decide_note(
                    c, LS_TOPO_PROBLEM,
                    "the site's list of NICs names %s, but it is not there, down or closed on "
                    "this node",
                    name);
        }
        at += len;
    }
    if (listed && n == 0)
        ls_decide_note(
            c, LS_TOPO_PROBLEM,
            "none of the NICs in the site's list can be used here; chosen by rule instead");
    return n;
}

static int most_of(const struct ls_decide *c, enum ls_topo_link link)
{
    int n = 0;
    for (int i = 0; i < c->machine->nnic; i++)
        n += c->compute[i] && has_link(&c->machine->nic[i], link);
    return n;
}

static enum ls_status refuse(struct ls_decide *c, const char *what)
{
    char found[256] = "";
    size_t at = 0;
    for (int i = 0; i < c->machine->nnic && at < sizeof found - 80; i++)
        at += (size_t)snprintf(found + at, sizeof found - at, "%s%s: %.40s", i ? "; " : "",
                               c->machine->nic[i].name, c->machine->nic[i].why);
    return ls_error_set(
        c->err, LS_ERR_ENV,
        "transport '%s' was asked for, but no such port is active and open on this node "
        "(%s); use 'auto', or another node",
        ls_topo_transport_names[c->request->transport], c->machine->nnic ? found : what);
}

static enum ls_status choose_nics(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    enum ls_topo_transport t = c->request->transport;
    if (t == LS_TOPO_IB || t == LS_TOPO_ROCE) {
        c->ncompute = choose_of_link(c, t == LS_TOPO_IB ? LS_TOPO_LINK_IB : LS_TOPO_LINK_ETHERNET);
        return c->ncompute ? LS_OK : refuse(c, "it has no RDMA device");
    }
    if (t == LS_TOPO_TCP || t == LS_TOPO_SHM)
        return LS_OK;
    c->ncompute = choose_by_site(c);
    for (int i = 0; i < m->nnic && !c->ncompute; i++)
        if (m->nic[i].class == LS_TOPO_NIC_COMPUTE) {
            c->ncompute = -1;
            c->compute[i] = true;
        }
    for (int i = 0; i < m->nnic && c->ncompute < 0; i++)
        c->compute[i] = m->nic[i].class == LS_TOPO_NIC_COMPUTE;
    int ib = most_of(c, LS_TOPO_LINK_IB), ethernet = most_of(c, LS_TOPO_LINK_ETHERNET);
    c->link = ib >= ethernet ? LS_TOPO_LINK_IB : LS_TOPO_LINK_ETHERNET;
    c->ncompute = 0;
    for (int i = 0; i < m->nnic; i++) {
        c->compute[i] = c->compute[i] && has_link(&m->nic[i], c->link);
        c->ncompute += c->compute[i];
    }
    return LS_OK;
}

/* ---- the bootstrap interface ---- */

static bool has_address(const struct ls_topo_machine *m, const struct ls_topo_iface *iface)
{
    for (int i = 0; i < m->niface; i++)
        if (m->iface[i].ipv4 || m->iface[i].ipv6)
            return iface->ipv4 || iface->ipv6;
    return true; /* nothing is said of any: a tree without these files */
}

static bool is_link(const struct ls_topo_machine *m, const struct ls_topo_iface *iface)
{
    return iface->up && iface->class != LS_TOPO_IFACE_LOOPBACK &&
           iface->class != LS_TOPO_IFACE_VIRTUAL && has_address(m, iface);
}

/* The default route's, which is where node names lead; if data take it as well (TCP), the fastest. */
static const struct ls_topo_iface *best_link(const struct ls_decide *c, bool data)
{
    const struct ls_topo_machine *m = c->machine;
    const struct ls_topo_iface *best = NULL;
    for (int i = 0; i < m->niface; i++) {
        const struct ls_topo_iface *iface = &m->iface[i];
        if (!is_link(m, iface))
            continue;
        int64_t speed = data ? iface->mbit : 0, best_speed = best && data ? best->mbit : 0;
        /* Unknown speeds (virtual cards) are not compared. */
        if (best && (speed < 0 || best_speed < 0))
            speed = best_speed = 0;
        bool better = !best || speed > best_speed;
        if (best && speed == best_speed) {
            better = iface->default_route && !best->default_route;
            if (iface->default_route == best->default_route && !iface->default_route)
                better = iface->class != LS_TOPO_IFACE_IPOIB && best->class == LS_TOPO_IFACE_IPOIB;
        }
        if (better)
            best = iface;
    }
    /* Containers and some hosts have their address on a bridge or one end of a pair. */
    for (int i = 0; i < m->niface && !best; i++)
        if (m->iface[i].up && m->iface[i].default_route)
            best = &m->iface[i];
    return best;
}

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

/* Interfaces that NCCL takes by itself (src/misc/socket.cc): names in ib*, else all but docker*, lo*, virbr*.
 * Returns how many; *bad: one of them cannot reach other nodes; *same: all are IPoIB. */
static int nccl_choice(const struct ls_topo_machine *m, const char **bad, bool *same)
{
    int n = 0;
    bool ib = false;
    *bad = NULL;
    *same = true;
    for (int i = 0; i < m->niface; i++)
        ib |= m->iface[i].up && has_address(m, &m->iface[i]) && begins(m->iface[i].name, "ib");
    for (int i = 0; i < m->niface; i++) {
        const struct ls_topo_iface *iface = &m->iface[i];
        const char *name = iface->name;
        if (!iface->up || !has_address(m, iface))
            continue;
        if (ib ? !begins(name, "ib")
               : begins(name, "docker") || begins(name, "lo") || begins(name, "virbr"))
            continue;
        n++;
        *same &= iface->class == LS_TOPO_IFACE_IPOIB;
        if (iface->class == LS_TOPO_IFACE_VIRTUAL)
            *bad = name;
    }
    return n;
}

static const struct ls_topo_iface *by_name(const struct ls_topo_machine *m, const char *name)
{
    for (int i = 0; i < m->niface; i++)
        if (!strcmp(m->iface[i].name, name) && m->iface[i].up)
            return &m->iface[i];
    return NULL;
}

static void choose_interface(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    struct ls_topo_decision *d = c->decision;
    bool data = d->expected == LS_TOPO_TCP, same;
    const char *bad;
    if (!c->several_nodes) {
        c->interface_why = "the job is on one node";
        return;
    }
    const struct ls_topo_iface *iface = NULL;
    if (c->site->interface[0]) {
        iface = by_name(m, c->site->interface);
        c->name_interface = iface != NULL;
        c->interface_why = "the site declares it";
        if (!iface)
            ls_decide_note(
                c, LS_TOPO_PROBLEM,
                "the site's interface %s is missing or down on this node; chosen by rule "
                "instead",
                c->site->interface);
    }
    if (!iface && (iface = best_link(c, data))) {
        int n = nccl_choice(m, &bad, &same);
        bool sole = bad && n == 1 && !strcmp(bad, iface->name);
        c->name_interface = !sole && (bad || n == 0 || (n > 1 && !same) || (data && n > 1));
        c->interface_why =
            bad && !sole
                ? ls_decide_text(c, "NCCL would also take %s, which leads to no other node", bad)
            : n > 1 && data ? "several interfaces; this one is the fastest, and data take it"
            : n > 1 && same ? "NCCL takes the InfiniBand interfaces by itself"
            : n > 1         ? "several interfaces; this one holds the default route"
                            : "there is no other for NCCL to take";
    }
    if (!iface) {
        c->interface_why = "no interface is up";
        ls_decide_note(
            c, LS_TOPO_PROBLEM,
            "no network interface is up, so that ranks on other nodes cannot be reached");
        return;
    }
    d->interface = ls_decide_text(c, "%s", iface->name);
    if (iface->class == LS_TOPO_IFACE_VIRTUAL)
        ls_decide_note(c, LS_TOPO_INFO,
                       "%s is virtual, but holds the default route and is the only way out: used",
                       iface->name);
}

/* ---- what is expected ---- */

/* UCX's drivers for a device: the accelerated ones are for Mellanox cards from the fourth generation on. */
static const char *ucx_name(const struct ls_topo_nic *nic, bool scalable)
{
    bool mlx5 = !strcmp(nic->driver, "mlx5_core") || begins(nic->name, "mlx5");
    if (scalable)
        return mlx5 ? "dc_mlx5" : "ud_verbs";
    return mlx5 ? "rc_mlx5" : "rc_verbs";
}

const char *ls_topo_ucx_transport(const struct ls_topo_machine *machine, int64_t endpoints,
                                  int rc_max)
{
    for (int i = 0; i < machine->nnic && machine->ucx != LS_TOPO_UCX_NO_IB; i++)
        if (machine->nic[i].class == LS_TOPO_NIC_COMPUTE)
            return ucx_name(&machine->nic[i], endpoints > rc_max);
    return "tcp"; /* at any size: there is nothing scalable to prefer */
}

enum ls_status ls_decide_transport(struct ls_decide *c)
{
    const struct ls_topo_request *r = c->request;
    struct ls_topo_decision *d = c->decision;
    c->several_nodes =
        r->nodes != 1 && !(r->nodes == 0 && r->ranks > 0 && r->ranks == r->local_size);
    if (r->transport == LS_TOPO_SHM && r->nodes > 1)
        return ls_error_set(
            c->err, LS_ERR_ENV,
            "transport 'shm' was asked for, but the job is on %d nodes, which share no "
            "memory; use 'auto', or one node",
            r->nodes);
    LS_TRY(choose_nics(c));
    if (r->transport == LS_TOPO_SHM || (r->transport == LS_TOPO_AUTO && !c->several_nodes) ||
        (r->transport == LS_TOPO_KEEP && !c->several_nodes))
        d->expected = LS_TOPO_SHM;
    else if (c->ncompute)
        d->expected = c->link == LS_TOPO_LINK_IB ? LS_TOPO_IB : LS_TOPO_ROCE;
    else
        d->expected = LS_TOPO_TCP;
    d->expected_ucx = d->expected == LS_TOPO_SHM ? "shm" : "tcp";
    for (int i = c->machine->nnic - 1; i >= 0 && d->expected != LS_TOPO_SHM; i--)
        if (c->compute[i] && c->machine->ucx != LS_TOPO_UCX_NO_IB)
            d->expected_ucx = ucx_name(&c->machine->nic[i], r->ranks > c->site->rc_max);
    choose_interface(c);
    return LS_OK;
}
