/* PCI addresses, the chain of bridges above a device, and how far two devices are apart. */
#include "topo/sysfs.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)text[i]))
            return false;
    return n > 0;
}

/* domain:bus:device.function; the domain has four digits, or more behind some controllers */
bool ls_pci_is_address(const char *text, size_t n)
{
    if (n < 12 || n > 15)
        return false;
    const char *tail = text + n - 8;
    return hex(text, n - 8) && tail[0] == ':' && hex(tail + 1, 2) && tail[3] == ':' &&
           hex(tail + 4, 2) && tail[6] == '.' && tail[7] >= '0' && tail[7] <= '7';
}

static void push(struct ls_topo_pci *pci, const char *text, size_t n)
{
    if (pci->bdf[0] && pci->depth < LS_TOPO_BRIDGES)
        memcpy(pci->above[pci->depth++], pci->bdf, sizeof pci->bdf);
    memset(pci->bdf, 0, sizeof pci->bdf);
    for (size_t i = 0; i < n; i++)
        pci->bdf[i] = (char)tolower((unsigned char)text[i]);
}

static void read_place(struct ls_sys *sys, struct ls_topo_pci *pci)
{
    char text[1024];
    int64_t numa = ls_sys_number(sys, -1, "sys/bus/pci/devices/%s/numa_node", pci->bdf);
    pci->numa = numa >= 0 && numa < 1024 ? (int)numa : -1;
    CPU_ZERO(&pci->cpus);
    /* Without a node the kernel lists every CPU, which says nothing. */
    if (pci->numa < 0)
        return;
    if (ls_sys_read(sys, text, sizeof text, "sys/bus/pci/devices/%s/local_cpulist", pci->bdf) ||
        ls_sys_read(sys, text, sizeof text, "sys/devices/system/node/node%d/cpulist", pci->numa))
        ls_topo_parse_cpus(text, &pci->cpus);
}

bool ls_pci_from_link(struct ls_sys *sys, const char *link, struct ls_topo_pci *pci)
{
    *pci = (struct ls_topo_pci){.numa = -1};
    for (const char *at = link; *at;) {
        size_t n = strcspn(at, "/");
        if (ls_pci_is_address(at, n))
            push(pci, at, n);
        at += n + (at[n] == '/');
    }
    if (pci->bdf[0])
        read_place(sys, pci);
    return pci->bdf[0] != '\0';
}

bool ls_pci_from_address(struct ls_sys *sys, const char *bdf, struct ls_topo_pci *pci)
{
    char link[1024];
    bool known = ls_sys_link(sys, link, sizeof link, "sys/bus/pci/devices/%s", bdf);
    /* Without sysfs, as in some containers, the address is still the address. */
    if (!known || !ls_pci_from_link(sys, link, pci) || strcmp(pci->bdf, bdf) != 0) {
        *pci = (struct ls_topo_pci){.numa = -1};
        push(pci, bdf, strlen(bdf));
        read_place(sys, pci);
    }
    return known;
}

/* "0000:3b": domain and bus of a device on the root bus */
static bool same_root_bus(const struct ls_topo_pci *a, const struct ls_topo_pci *b)
{
    const char *x = a->depth ? a->above[0] : a->bdf, *y = b->depth ? b->above[0] : b->bdf;
    size_t n = strlen(x);
    return n == strlen(y) && n > 5 && !memcmp(x, y, n - 5);
}

enum ls_topo_distance ls_topo_distance(const struct ls_topo_pci *a, const struct ls_topo_pci *b)
{
    if (!a->bdf[0] || !b->bdf[0])
        return LS_TOPO_UNKNOWN;
    if (!strcmp(a->bdf, b->bdf))
        return LS_TOPO_SAME;
    int common = 0;
    while (common < a->depth && common < b->depth && !strcmp(a->above[common], b->above[common]))
        common++;
    int deepest = a->depth > b->depth ? a->depth : b->depth;
    if (common > 0)
        return deepest - common <= 1 ? LS_TOPO_PIX : LS_TOPO_PXB;
    bool numa_known = a->numa >= 0 && b->numa >= 0;
    /* A virtual machine that puts every device on one bus hides where they are. */
    if (same_root_bus(a, b))
        return numa_known || deepest > 0 ? LS_TOPO_PHB : LS_TOPO_UNKNOWN;
    if (!numa_known)
        return LS_TOPO_UNKNOWN;
    return a->numa == b->numa ? LS_TOPO_PHB : LS_TOPO_SYS;
}

const char *ls_topo_distance_name(enum ls_topo_distance d)
{
    static const char *const names[] = {
        [LS_TOPO_SAME] = "SAME", [LS_TOPO_PIX] = "PIX", [LS_TOPO_PXB] = "PXB",
        [LS_TOPO_PHB] = "PHB",   [LS_TOPO_SYS] = "SYS", [LS_TOPO_UNKNOWN] = "?"};
    return (size_t)d < sizeof names / sizeof *names ? names[d] : "?";
}
