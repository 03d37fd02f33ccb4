/* `lockstep topo`: shows a machine, how far its parts are apart, and every decision with its reason. */
#include "cli/cli.h"
#include "cli/rules.h"
#include "topo/host.h"
#include "topo/nvml.h"
#include "topo/tree.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lockstep topo [OPTION]...\n"
    "Show this machine's GPUs, NICs and CPUs, and what follows from them: binding, variables, "
    "reasons.\n"
    "\n"
    "      --root=PATH        another machine: a directory with sys and proc in it, or a file of "
    "--save\n"
    "      --save=FILE        write this machine (or that of --root) to FILE, without names, "
    "addresses\n"
    "                         and serial numbers, and show nothing; '-' is standard output\n"
    "      --transport=NAME   auto, ib, roce, tcp, shm or keep (LOCKSTEP_TRANSPORT, else auto)\n"
    "      --no-bind          leave CPUs as they are\n"
    "      --nodes=N          decide as in a job on N nodes\n"
    "      --local-size=N     ranks of this node (default: Slurm's, or 1)\n"
    "      --ranks=N          ranks of the job (default: nodes x local size)\n"
    "      --site=FILE        the site's file, see lockstep-site.conf(5)\n"
    "  -e, --env=NAME=VALUE   as if this variable were set; with --root no others are\n"
    "      --json             print one JSON object\n"
    "  -h, --help             show this help\n";

struct options {
    const char *root, *save, *site;
    enum ls_topo_transport transport;
    bool transport_given, bind, json;
    int nodes, local_size, ranks;
    const char *env[64]; /* "NAME=VALUE" */
    int nenv;
};

/* Everything that is shown, of every local rank. */
struct report {
    const struct options *options;
    struct ls_topo_machine *machine;
    const char *nvml; /* was it asked, and if not, why */
    struct ls_error nvml_error;
    struct ls_topo_site site;
    struct ls_arena arena;
    int local_size;
    struct ls_topo_decision *task; /* [local_size] */
};

static int usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int usage(const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (*text)
        ls_cli_error("topo: %s", text);
    fputs("Try 'lockstep topo --help'.\n", stderr);
    return LS_EXIT_USAGE;
}

static const char *get_variable(void *user, const char *name)
{
    const struct options *o = user;
    size_t n = strlen(name);
    for (int i = o->nenv - 1; i >= 0; i--)
        if (!strncmp(o->env[i], name, n) && o->env[i][n] == '=')
            return o->env[i] + n + 1;
    return o->root ? NULL : ls_cli_user_variable(NULL, name);
}

static const char *ucx_name(enum ls_topo_ucx ucx)
{
    static const char *const names[] = {[LS_TOPO_UCX_UNKNOWN] = "not known",
                                        [LS_TOPO_UCX_NO_IB] = "missing",
                                        [LS_TOPO_UCX_IB] = "there"};
    return names[ucx];
}

/* ---- text ---- */

static const char *class_name(enum ls_topo_nic_class class)
{
    static const char *const names[] = {[LS_TOPO_NIC_COMPUTE] = "compute",
                                        [LS_TOPO_NIC_STORAGE] = "storage",
                                        [LS_TOPO_NIC_PHANTOM] = "phantom",
                                        [LS_TOPO_NIC_DOWN] = "down",
                                        [LS_TOPO_NIC_CLOSED] = "closed"};
    return names[class];
}

static const char *iface_name(enum ls_topo_iface_class class)
{
    static const char *const names[] = {[LS_TOPO_IFACE_ETHERNET] = "ethernet",
                                        [LS_TOPO_IFACE_IPOIB] = "ipoib",
                                        [LS_TOPO_IFACE_BOND] = "bond",
                                        [LS_TOPO_IFACE_LOOPBACK] = "loopback",
                                        [LS_TOPO_IFACE_VIRTUAL] = "virtual"};
    return names[class];
}

static const char *link_name(enum ls_topo_link link)
{
    return link == LS_TOPO_LINK_IB         ? "InfiniBand"
           : link == LS_TOPO_LINK_ETHERNET ? "Ethernet"
                                           : "other";
}

static const char *numa_name(int numa, char out[static 16])
{
    snprintf(out, 16, numa < 0 ? "?" : "%d", numa);
    return out;
}

static void print_limit(const char *name, int64_t value, bool bytes)
{
    char text[24];
    if (value == -2)
        printf("  %-10s not known\n", name);
    else if (value == -1)
        printf("  %-10s unlimited\n", name);
    else if (bytes)
        printf("  %-10s %s\n", name, ls_format_bytes(value, text));
    else
        printf("  %-10s %lld\n", name, (long long)value);
}

static void print_machine(const struct ls_topo_machine *m)
{
    char cpus[128], numa[16];
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (m->core[c] >= 0)
            CPU_SET(c, &all);
    printf("Machine: %d CPUs, %d cores, %d NUMA node%s%s; allowed here: %s\n", m->ncpu,
           ls_topo_cores(m, &all), m->nnuma, m->nnuma == 1 ? "" : "s",
           m->virtual_machine ? ", a virtual machine" : "", ls_topo_format_cpus(&m->allowed, cpus));
    printf("GPUs: %s\n", m->ngpu ? "" : "none");
    for (int g = 0; g < m->ngpu; g++)
        printf("  GPU%-2d %-12s NUMA %-2s CPUs %-16s %s%s%s\n", g, m->gpu[g].pci.bdf,
               numa_name(m->gpu[g].pci.numa, numa),
               CPU_COUNT(&m->gpu[g].pci.cpus) ? ls_topo_format_cpus(&m->gpu[g].pci.cpus, cpus)
                                              : "?",
               m->gpu[g].model[0] ? m->gpu[g].model : "(model not known)",
               m->gpu[g].mig ? ", MIG" : "", m->gpu[g].open ? "" : ", closed");
    printf("NICs: %s\n", m->nnic ? "" : "none");
    for (int i = 0; i < m->nnic; i++) {
        const struct ls_topo_nic *nic = &m->nic[i];
        printf("  %-11s %-12s NUMA %-2s %s: %s\n", nic->name, nic->pci.bdf[0] ? nic->pci.bdf : "?",
               numa_name(nic->pci.numa, numa), class_name(nic->class), nic->why);
        for (int p = 0; p < nic->nport; p++) {
            const struct ls_topo_port *port = &nic->port[p];
            printf("    port %d: %s, %s %.0f Gb/s", port->number, port->active ? "active" : "down",
                   link_name(port->link), port->gbit);
            if (port->link == LS_TOPO_LINK_ETHERNET && port->active)
                printf(", %s, GID %d", nic->netdev[0] ? nic->netdev : "no interface",
                       ls_topo_choose_gid(port));
            putchar('\n');
        }
    }
    printf("Interfaces: %s\n", m->niface ? "" : "none");
    for (int i = 0; i < m->niface; i++) {
        const struct ls_topo_iface *iface = &m->iface[i];
        printf("  %-15s %-8s %s", iface->name, iface_name(iface->class), iface->up ? "up" : "down");
        if (iface->mbit > 0)
            printf(", %.3g Gb/s", (double)iface->mbit / 1000);
        printf("%s%s%s\n", iface->ipv4 ? ", IPv4" : "", iface->ipv6 ? ", IPv6" : "",
               iface->default_route ? ", default route" : "");
    }
    puts("Limits:");
    print_limit("memlock", m->limits.memlock, true);
    print_limit("stack", m->limits.stack, true);
    print_limit("nofile", m->limits.nofile, false);
    print_limit("nproc", m->limits.nproc, false);
    print_limit("/dev/shm", m->limits.shm_free >= 0 ? m->limits.shm_free : m->limits.shm_bytes,
                true);
    print_limit("memory", m->limits.memory_bytes, true);
}

/* GPUs against GPUs and NICs. */
static void print_distances(const struct ls_topo_machine *m)
{
    if (m->ngpu == 0)
        return;
    printf("Distances:\n  %-6s", "");
    for (int g = 0; g < m->ngpu; g++)
        printf(" GPU%-3d", g);
    for (int i = 0; i < m->nnic; i++)
        printf(" %-6s", m->nic[i].name);
    putchar('\n');
    for (int g = 0; g < m->ngpu; g++) {
        printf("  GPU%-3d", g);
        for (int k = 0; k < m->ngpu; k++)
            printf(" %-6s",
                   ls_topo_distance_name(ls_topo_distance(&m->gpu[g].pci, &m->gpu[k].pci)));
        for (int i = 0; i < m->nnic; i++) {
            const char *name =
                ls_topo_distance_name(ls_topo_distance(&m->gpu[g].pci, &m->nic[i].pci));
            size_t width = strlen(m->nic[i].name);
            printf(" %-*s", width < 6 ? 6 : (int)width, name);
        }
        putchar('\n');
    }
}

static void print_tasks(const struct report *r)
{
    char cpus[128];
    puts("Tasks of this node:");
    for (int t = 0; t < r->local_size; t++) {
        const struct ls_topo_decision *d = &r->task[t];
        printf("  local rank %d: GPU", t);
        for (int i = 0; i < d->ngpu; i++)
            printf("%s%d", i ? "," : " ", d->gpu[i]);
        printf("%s; NIC", d->ngpu ? "" : " none");
        for (int i = 0; i < d->nnic; i++)
            printf("%s%s", i ? "," : " ", r->machine->nic[d->nic[i]].name);
        printf("%s; CPUs %s%s\n", d->nnic ? "" : " none", ls_topo_format_cpus(&d->cpus, cpus),
               d->bound ? "" : " (not bound)");
    }
}

static void print_variables(const struct ls_topo_decision *d)
{
    puts("Variables to set:");
    for (int i = 0; i < d->nvariable; i++)
        if (d->variable[i].value)
            printf("  %s=%s\n      %s\n", d->variable[i].name, d->variable[i].value,
                   d->variable[i].reason);
    puts("Variables left alone:");
    for (int i = 0; i < d->nvariable; i++)
        if (!d->variable[i].value)
            printf("  %s\n      %s\n", d->variable[i].name, d->variable[i].reason);
}

/* Was this said by an earlier task of the node, too? */
static bool is_repeated(const struct report *r, int task, const char *text)
{
    for (int t = 0; t < task; t++)
        for (int i = 0; i < r->task[t].nnote; i++)
            if (!strcmp(r->task[t].note[i].text, text))
                return true;
    return false;
}

static void print_notes(const struct report *r)
{
    static const char *const levels[] = {"note", "warning", "problem"};
    puts("Notes:");
    for (int t = 0; t < r->local_size; t++)
        for (int i = 0; i < r->task[t].nnote; i++) {
            const struct ls_topo_note *note = &r->task[t].note[i];
            if (!is_repeated(r, t, note->text))
                printf("  %s (local rank %d): %s\n", levels[note->level], t, note->text);
        }
}

static void print_text(const struct report *r)
{
    const struct ls_topo_decision *d = &r->task[0];
    print_machine(r->machine);
    printf("NVML: %s\n", r->nvml);
    printf("InfiniBand module of UCX: %s\n", ucx_name(r->machine->ucx));
    print_distances(r->machine);
    printf("Network: %s (UCX: %s); ranks meet %s%s\n", ls_topo_transport_names[d->expected],
           d->expected_ucx, d->interface ? "over " : "on this node",
           d->interface ? d->interface : "");
    print_tasks(r);
    print_variables(d);
    print_notes(r);
}

/* ---- JSON ---- */

static json_t *pci_json(const struct ls_topo_pci *pci)
{
    char cpus[128];
    return json_pack("{s:s, s:o, s:o}", "pci", pci->bdf, "numa",
                     pci->numa < 0 ? json_null() : json_integer(pci->numa), "cpus",
                     CPU_COUNT(&pci->cpus) ? json_string(ls_topo_format_cpus(&pci->cpus, cpus))
                                           : json_null());
}

static json_t *gpu_json(const struct ls_topo_machine *m, int g)
{
    const struct ls_topo_gpu *gpu = &m->gpu[g];
    json_t *o = pci_json(&gpu->pci), *gpus = json_object(), *nics = json_object();
    for (int k = 0; k < m->ngpu; k++) {
        char key[16];
        snprintf(key, sizeof key, "%d", k);
        json_object_set_new(
            gpus, key,
            json_string(ls_topo_distance_name(ls_topo_distance(&gpu->pci, &m->gpu[k].pci))));
    }
    for (int i = 0; i < m->nnic; i++)
        json_object_set_new(
            nics, m->nic[i].name,
            json_string(ls_topo_distance_name(ls_topo_distance(&gpu->pci, &m->nic[i].pci))));
    json_object_update_new(o,
                           json_pack("{s:i, s:s, s:s, s:i, s:b, s:b, s:f, s:o, s:o}", "index", g,
                                     "model", gpu->model, "uuid", gpu->uuid, "minor", gpu->minor,
                                     "mig", gpu->mig, "open", gpu->open, "nvlink_gbit",
                                     gpu->nvlink_gbit, "gpu_distance", gpus, "nic_distance", nics));
    return o;
}

/* With the reason for which one is not used; null: it may be. */
static json_t *gids_json(const struct ls_topo_port *port)
{
    json_t *gids = json_array();
    for (int i = 0; i < port->ngid && port->link == LS_TOPO_LINK_ETHERNET; i++) {
        const struct ls_topo_gid *gid = &port->gid[i];
        char text[INET6_ADDRSTRLEN];
        json_array_append_new(gids,
                              json_pack("{s:i, s:i, s:s, s:s, s:s?}", "index", gid->index,
                                        "version", gid->version, "address",
                                        inet_ntop(AF_INET6, gid->raw, text, sizeof text), "netdev",
                                        gid->netdev, "rejected", ls_topo_gid_fault(gid)));
    }
    return gids;
}

static json_t *nic_json(const struct ls_topo_nic *nic)
{
    json_t *o = pci_json(&nic->pci), *ports = json_array();
    for (int p = 0; p < nic->nport; p++) {
        const struct ls_topo_port *port = &nic->port[p];
        json_array_append_new(
            ports, json_pack("{s:i, s:b, s:s, s:f, s:i, s:i, s:i, s:o}", "port", port->number,
                             "active", port->active, "link", link_name(port->link), "gbit",
                             port->gbit, "lid", port->lid, "sm_lid", port->sm_lid, "gid",
                             port->link == LS_TOPO_LINK_ETHERNET ? ls_topo_choose_gid(port) : 0,
                             "gids", gids_json(port)));
    }
    json_object_update_new(o, json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:o}", "name", nic->name,
                                        "driver", nic->driver, "class", class_name(nic->class),
                                        "why", nic->why, "netdev", nic->netdev, "open", nic->open,
                                        "ports", ports));
    return o;
}

static json_t *iface_json(const struct ls_topo_iface *iface)
{
    return json_pack("{s:s, s:s, s:b, s:o, s:i, s:b, s:b, s:b}", "name", iface->name, "class",
                     iface_name(iface->class), "up", iface->up, "mbit",
                     iface->mbit < 0 ? json_null() : json_integer(iface->mbit), "mtu", iface->mtu,
                     "default_route", iface->default_route, "ipv4", iface->ipv4, "ipv6",
                     iface->ipv6);
}

static json_t *limit_json(int64_t value)
{
    return value == -2 ? json_null() : value == -1 ? json_string("unlimited") : json_integer(value);
}

static json_t *machine_json(const struct ls_topo_machine *m)
{
    const struct ls_topo_limits *l = &m->limits;
    char cpus[128];
    json_t *gpus = json_array(), *nics = json_array(), *ifaces = json_array();
    for (int g = 0; g < m->ngpu; g++)
        json_array_append_new(gpus, gpu_json(m, g));
    for (int i = 0; i < m->nnic; i++)
        json_array_append_new(nics, nic_json(&m->nic[i]));
    for (int i = 0; i < m->niface; i++)
        json_array_append_new(ifaces, iface_json(&m->iface[i]));
    json_t *limits =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "memlock", limit_json(l->memlock),
                  "nofile", limit_json(l->nofile), "stack", limit_json(l->stack), "nproc",
                  limit_json(l->nproc), "shm_bytes", limit_json(l->shm_bytes), "shm_free",
                  limit_json(l->shm_free), "memory_bytes", limit_json(l->memory_bytes));
    return json_pack("{s:i, s:i, s:s, s:b, s:b, s:b, s:s, s:o, s:o, s:o, s:o}", "cpus", m->ncpu,
                     "numa_nodes", m->nnuma, "allowed", ls_topo_format_cpus(&m->allowed, cpus),
                     "virtual", m->virtual_machine, "peermem", m->peermem, "dmabuf", m->dmabuf,
                     "ucx_infiniband", ucx_name(m->ucx), "gpus", gpus, "nics", nics, "interfaces",
                     ifaces, "limits", limits);
}

static json_t *task_json(const struct report *r, int t)
{
    static const char *const levels[] = {"info", "warning", "problem"};
    const struct ls_topo_decision *d = &r->task[t];
    char cpus[128];
    json_t *gpus = json_array(), *nics = json_array(), *variables = json_array(),
           *notes = json_array();
    for (int i = 0; i < d->ngpu; i++)
        json_array_append_new(gpus, json_integer(d->gpu[i]));
    for (int i = 0; i < d->nnic; i++)
        json_array_append_new(nics, json_string(r->machine->nic[d->nic[i]].name));
    for (int i = 0; i < d->nvariable; i++)
        json_array_append_new(variables,
                              json_pack("{s:s, s:s?, s:s}", "name", d->variable[i].name, "value",
                                        d->variable[i].value, "reason", d->variable[i].reason));
    for (int i = 0; i < d->nnote; i++)
        json_array_append_new(notes, json_pack("{s:s, s:s}", "level", levels[d->note[i].level],
                                               "text", d->note[i].text));
    return json_pack("{s:i, s:o, s:o, s:b, s:s, s:s, s:s, s:s?, s:o, s:o}", "local_rank", t, "gpus",
                     gpus, "nics", nics, "bound", d->bound, "cpus",
                     ls_topo_format_cpus(&d->cpus, cpus), "transport",
                     ls_topo_transport_names[d->expected], "ucx", d->expected_ucx, "interface",
                     d->interface, "variables", variables, "notes", notes);
}

static int print_json(const struct report *r)
{
    json_t *tasks = json_array();
    for (int t = 0; t < r->local_size; t++)
        json_array_append_new(tasks, task_json(r, t));
    json_t *o = json_pack("{s:o, s:s, s:o}", "machine", machine_json(r->machine), "nvml", r->nvml,
                          "tasks", tasks);
    int failed = !o || json_dumpf(o, stdout, JSON_INDENT(2)) != 0;
    putchar('\n');
    json_decref(o);
    if (failed)
        ls_cli_error("topo: cannot write the JSON object");
    return failed ? LS_EXIT_FAILED : LS_EXIT_OK;
}

/* ---- work ---- */

static enum ls_status read_machine(struct report *r, struct ls_error *err)
{
    const char *tmp = getenv("TMPDIR"), *root = r->options->root;
    r->nvml = "not asked: this is a stored machine";
    if (root)
        return ls_topo_tree_read(root, tmp && *tmp ? tmp : "/tmp", r->machine, err);
    LS_TRY(ls_topo_read("", r->machine, err));
    bool asked = ls_topo_nvml_add(NULL, r->machine, &r->nvml_error) == LS_OK;
    r->nvml = asked ? "asked" : r->nvml_error.message;
    r->machine->ucx = ls_topo_host_ucx(get_variable, (void *)r->options);
    return LS_OK;
}

/* A stored tree is another site's, maybe: only a file that is named counts for it. */
static enum ls_status read_site(const struct options *o, struct ls_topo_site *site,
                                struct ls_error *err)
{
    const char *path = o->site ? o->site : get_variable((void *)o, LS_TOPO_SITE_VARIABLE);
    *site = ls_topo_site_default;
    if (path && !*path)
        path = NULL;
    if (o->root && !path)
        return LS_OK;
    struct ls_buf problems;
    ls_buf_init(&problems, 1 << 20);
    enum ls_status status = ls_cli_read_site(path, site, &problems, err);
    if (status != LS_OK && problems.data)
        fputs(problems.data, stderr);
    ls_buf_free(&problems);
    return status;
}

static enum ls_status decide(struct report *r, struct ls_error *err)
{
    const struct options *o = r->options;
    const char **keys = NULL;
    struct ls_topo_request request = {.machine = r->machine,
                                      .get = get_variable,
                                      .user = (void *)o,
                                      .site = &r->site,
                                      .transport = o->transport,
                                      .bind = o->bind,
                                      .local_size = r->local_size,
                                      .nodes = o->nodes};
    request.ranks = o->ranks ? o->ranks : (int64_t)o->nodes * r->local_size;
    if (!o->root)
        LS_TRY(ls_topo_host_keys(get_variable, (void *)o, &r->arena, &keys, err));
    request.site_keys = keys;
    r->task = ls_arena_alloc(&r->arena, (size_t)r->local_size * sizeof *r->task);
    if (!r->task)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d tasks", r->local_size);
    for (int t = 0; t < r->local_size; t++) {
        request.local_rank = t;
        LS_TRY(ls_topo_decide(&request, &r->arena, &r->task[t], err));
    }
    return LS_OK;
}

/* Tasks of this node by Slurm's "4(x2)": only a step says what is true here. */
static int local_size(const struct options *o)
{
    const char *text = get_variable((void *)o, "SLURM_STEP_TASKS_PER_NODE");
    const char *node = get_variable((void *)o, "SLURM_NODEID");
    int *runs, n, size = 1;
    if (o->local_size)
        return o->local_size;
    if (!text || !node || ls_runs_parse(text, &runs, &n, NULL) != LS_OK)
        return 1;
    int id = atoi(node);
    if (id >= 0 && id < n)
        size = runs[id];
    free(runs);
    return size;
}

static int save(const struct options *o)
{
    struct ls_error err = {0};
    struct ls_buf text;
    ls_buf_init(&text, LS_TREE_MAX);
    enum ls_status status = ls_topo_tree_save(o->root ? o->root : "/", &text, &err);
    if (status == LS_OK && !strcmp(o->save, "-")) {
        if (fwrite(text.data, 1, text.len, stdout) != text.len || fflush(stdout))
            status = ls_error_errno(&err, errno, "cannot write to standard output");
    } else if (status == LS_OK) {
        status = ls_file_replace(o->save, text.data, text.len, &err);
    }
    ls_buf_free(&text);
    if (status == LS_OK)
        return LS_EXIT_OK;
    ls_cli_error("topo: %s", err.message);
    return LS_EXIT_FAILED;
}

/* As the plugin and the launcher decide; an option overrides. False after a message. */
static bool read_settings(struct options *o)
{
    struct ls_error err = {0};
    enum ls_topo_transport transport = LS_TOPO_AUTO;
    if (ls_cli_read_settings(get_variable, o, &transport, &o->bind, &err) != LS_OK)
        return usage("%s", err.message), false;
    if (!o->transport_given)
        o->transport = transport;
    return true;
}

static int show(const struct options *o)
{
    struct ls_error err = {0};
    struct report r = {.options = o, .local_size = local_size(o)};
    int code = LS_EXIT_FAILED;
    r.machine = malloc(sizeof *r.machine);
    enum ls_status status = LS_OK;
    if (!r.machine)
        status = ls_error_set(&err, LS_ERR_NOMEM, "no memory for a machine");
    if (status == LS_OK && (status = read_site(o, &r.site, &err)) == LS_ERR_FORMAT)
        code = LS_EXIT_USAGE;
    if (status == LS_OK)
        status = read_machine(&r, &err);
    if (status == LS_OK && (status = decide(&r, &err)) == LS_ERR_ENV)
        code = LS_EXIT_ENV;
    if (status == LS_OK)
        code = o->json ? print_json(&r) : (print_text(&r), LS_EXIT_OK);
    else
        ls_cli_error("topo: %s", err.message);
    if (status == LS_OK && fflush(stdout)) {
        ls_cli_error("topo: cannot write to standard output: %s", strerror(errno));
        code = LS_EXIT_FAILED;
    }
    ls_arena_free(&r.arena);
    free(r.machine);
    return code;
}

enum { ROOT = 256, SAVE, TRANSPORT, NO_BIND, NODES, LOCAL_SIZE, RANKS, SITE, JSON };

/* False after a message. */
static bool read_option(int c, struct options *o)
{
    int *number = c == NODES ? &o->nodes : c == LOCAL_SIZE ? &o->local_size : &o->ranks;
    const char **text = c == ROOT ? &o->root : c == SAVE ? &o->save : &o->site;
    switch (c) {
    case ROOT:
    case SAVE:
    case SITE:
        *text = optarg;
        return *optarg || (usage("an option has no file name"), false);
    case NODES:
    case LOCAL_SIZE:
    case RANKS:
        return ls_cli_number(optarg, number) ||
               (usage("found '%s', expected a whole number from 1 to 65536", optarg), false);
    case TRANSPORT:
        return (o->transport_given = ls_cli_find_transport(optarg, &o->transport)) ||
               (usage("--transport: found '%s', expected auto, ib, roce, tcp, shm or keep", optarg),
                false);
    case 'e':
        if (!strchr(optarg, '=') || o->nenv == 64)
            return usage("--env: found '%s', expected at most 64 of NAME=VALUE", optarg), false;
        o->env[o->nenv++] = optarg;
        return true;
    case NO_BIND:
        o->bind = false;
        return true;
    case JSON:
        return o->json = true;
    default:
        return usage("%s", ""), false;
    }
}

int ls_cli_topo(int argc, char **argv)
{
    static const struct option longs[] = {{"root", required_argument, NULL, ROOT},
                                          {"save", required_argument, NULL, SAVE},
                                          {"transport", required_argument, NULL, TRANSPORT},
                                          {"no-bind", no_argument, NULL, NO_BIND},
                                          {"nodes", required_argument, NULL, NODES},
                                          {"local-size", required_argument, NULL, LOCAL_SIZE},
                                          {"ranks", required_argument, NULL, RANKS},
                                          {"site", required_argument, NULL, SITE},
                                          {"env", required_argument, NULL, 'e'},
                                          {"json", no_argument, NULL, JSON},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct options o = {.bind = true};
    for (int c; (c = getopt_long(argc, argv, "he:", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return LS_EXIT_OK;
        }
        if (!read_option(c, &o))
            return LS_EXIT_USAGE;
    }
    if (optind < argc)
        return usage("found '%s', expected only options", argv[optind]);
    if (o.save)
        return save(&o);
    return read_settings(&o) ? show(&o) : LS_EXIT_USAGE;
}
