/* What sysfs does not tell of a NIC's port: its active MTU, by libibverbs. The part of its binary interface that is used
 * here is declared by hand after rdma-core's manual pages, so that nothing of it is needed to build; names of the version
 * IBVERBS_1.1 are stable. Only the check's own child loads it. */
#include "check/verbs.h"
#include "check/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verbs {
    void *library;
    void **(*list)(int *n);
    void (*free_list)(void **list);
    const char *(*name)(void *device);
    void *(*open)(void *device);
    int (*close)(void *device);
    int (*query_port)(void *device, uint8_t port, struct ls_verbs_port *attr);
};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"ibv_get_device_list", offsetof(struct verbs, list)},
    {"ibv_free_device_list", offsetof(struct verbs, free_list)},
    {"ibv_get_device_name", offsetof(struct verbs, name)},
    {"ibv_open_device", offsetof(struct verbs, open)},
    {"ibv_close_device", offsetof(struct verbs, close)},
    {"ibv_query_port", offsetof(struct verbs, query_port)},
};

static enum ls_status load(const char *library, struct verbs *v, struct ls_error *err)
{
    *v = (struct verbs){.library =
                            dlopen(library ? library : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!v->library)
        return ls_error_set(err, LS_ERR_UNSUPPORTED, "%s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(v->library, symbols[i].name);
        if (!symbol) {
            dlclose(v->library);
            return ls_error_set(err, LS_ERR_UNSUPPORTED, "libibverbs.so.1 has no %s",
                                symbols[i].name);
        }
        /* POSIX lets a function's address be kept in an object's */
        memcpy((char *)v + symbols[i].offset, &symbol, sizeof symbol);
    }
    return LS_OK;
}

/* The active MTU of every active port of `nic`, in bytes. */
static enum ls_status ask(const struct verbs *v, void *device, const struct ls_topo_nic *nic,
                          int mtu[static LS_TOPO_PORTS], struct ls_error *err)
{
    errno = 0;
    void *open = v->open(device);
    if (!open)
        return ls_error_set(err, LS_ERR_IO, "%s cannot be opened: %s", nic->name,
                            strerror(errno ? errno : EIO));
    enum ls_status status = LS_OK;
    for (int p = 0; p < nic->nport && status == LS_OK; p++) {
        struct ls_verbs_port attr = {.state = 0};
        if (!nic->port[p].active)
            continue;
        int code = v->query_port(open, (uint8_t)nic->port[p].number, &attr);
        if (code)
            status = ls_error_set(err, LS_ERR_IO, "%s/%d does not answer: %s", nic->name,
                                  nic->port[p].number, strerror(code < 0 ? -code : code));
        else if (attr.active_mtu < LS_VERBS_MTU_256 || attr.active_mtu > LS_VERBS_MTU_4096)
            status = ls_error_set(err, LS_ERR_FORMAT, "%s/%d has MTU number %d, expected 1 to 5",
                                  nic->name, nic->port[p].number, attr.active_mtu);
        else
            mtu[p] = 128 << attr.active_mtu;
    }
    v->close(open);
    return status;
}

static enum ls_status ask_all(const struct verbs *v, const struct ls_topo_machine *m,
                              int mtu[static LS_TOPO_NICS][LS_TOPO_PORTS], struct ls_error *err)
{
    int n = 0;
    errno = 0;
    void **list = v->list(&n);
    if (!list)
        return ls_error_set(err, LS_ERR_IO, "libibverbs.so.1 finds no device: %s",
                            strerror(errno ? errno : ENODEV));
    enum ls_status status = LS_OK;
    for (int i = 0; i < m->nnic && status == LS_OK; i++) {
        int at = 0;
        if (m->nic[i].class != LS_TOPO_NIC_COMPUTE)
            continue;
        while (at < n && strcmp(v->name(list[at]), m->nic[i].name) != 0)
            at++;
        status = at < n ? ask(v, list[at], &m->nic[i], mtu[i], err)
                        : ls_error_set(err, LS_ERR_NOTFOUND,
                                       "libibverbs.so.1 does not know %s: its provider may be "
                                       "missing",
                                       m->nic[i].name);
    }
    v->free_list(list);
    return status;
}

/* "", or what explains the port's MTU: it is the largest power of two that fits, headers included. */
static void explain(const struct ls_topo_machine *m, const struct ls_topo_nic *nic,
                    const struct ls_topo_port *port, char out[static 96])
{
    int mtu = ls_check_interface_mtu(m, nic);
    if (port->link != LS_TOPO_LINK_ETHERNET)
        out[0] = '\0';
    else if (mtu > 0)
        snprintf(out, 96, "its network interface %s has MTU %d", nic->netdev, mtu);
    else
        snprintf(out, 96, "the MTU of its network interface is not known");
}

static void judge(struct ls_check_out *out, const struct ls_topo_machine *m,
                  int mtu[static LS_TOPO_NICS][LS_TOPO_PORTS])
{
    int best = 0;
    bool fine = true;
    char why[96], first[96] = "";
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++)
            best = mtu[i][p] > best ? mtu[i][p] : best;
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++) {
            char device[64], expected[64];
            if (!mtu[i][p])
                continue;
            explain(m, &m->nic[i], &m->nic[i].port[p], why);
            if (!*first)
                strcpy(first, why);
            if (mtu[i][p] == best)
                continue;
            snprintf(device, sizeof device, "%s/%d", m->nic[i].name, m->nic[i].port[p].number);
            snprintf(expected, sizeof expected, "%d, as its neighbours", best);
            ls_check_say(out, LS_CHECK_FAIL, device, expected,
                         *why ? "give its network interface the MTU of the others"
                              : "look at the subnet manager's partition and at the switch",
                         "active MTU %d%s%s", mtu[i][p], *why ? ", as " : "", why);
            fine = false;
        }
    if (!best)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "",
                     "MTUs were not compared: no active port of a compute NIC");
    else if (fine)
        ls_check_fact(out, "active MTU %d%s%s", best, *first ? ": " : "", first);
}

void ls_check_ib_mtu(struct ls_check_out *out, const struct ls_check_context *context)
{
    static int mtu[LS_TOPO_NICS][LS_TOPO_PORTS];
    struct verbs v;
    struct ls_error err = {0};
    memset(mtu, 0, sizeof mtu);
    enum ls_status status = load(context->verbs, &v, &err);
    if (status == LS_OK)
        status =
            ask_all(&v, context->machine, mtu, &err); /* and the library goes with this child */
    if (status == LS_OK)
        judge(out, context->machine, mtu);
    else
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "MTUs were not compared: %s", err.message);
}
