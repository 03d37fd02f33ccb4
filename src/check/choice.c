/* What a task names: NCCL_IB_HCA, UCX_NET_DEVICES, NCCL_SOCKET_IFNAME or the site may leave it other ports and another
 * interface than its node's, and each task its own, as wrappers do that count by SLURM_LOCALID. Names may differ; what is
 * behind them may not. */
#include "check/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is name and port (0: it has none) what the word means? "mlx5_0", "mlx5_0:1". */
static bool means(const char *word, size_t n, const char *name, int port, bool exact)
{
    const char *colon = memchr(word, ':', n);
    size_t length = colon ? (size_t)(colon - word) : n;
    if (strncmp(name, word, length) != 0 || (exact && name[length]))
        return false;
    return !colon || !port || atoi(colon + 1) == port;
}

static bool in_list(const char *list, const char *name, int port, bool exact)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n && means(list, n, name, port, exact))
            return true;
    }
    return false;
}

bool ls_check_nccl_names(const char *list, const char *name, int port)
{
    bool except = *list == '^';
    list += except;
    bool exact = *list == '=';
    list += exact;
    return in_list(list, name, port, exact) != except;
}

static bool ucx_names(const char *list, const char *name, int port)
{
    bool except = *list == '^';
    return in_list(list + except, name, port, true) != except;
}

/* ---- ib.use ---- */

struct use {
    int n;
    double low, high; /* Gbit/s */
    bool ib, roce;
    const struct ls_topo_nic *bare; /* has no GID to use, and no other check says so */
    struct ls_buf names;
};

static void add(struct use *use, const struct ls_topo_nic *nic, const struct ls_topo_port *port)
{
    use->low = use->n && use->low < port->gbit ? use->low : port->gbit;
    use->high = use->high > port->gbit ? use->high : port->gbit;
    use->ib |= port->link == LS_TOPO_LINK_IB;
    use->roce |= port->link == LS_TOPO_LINK_ETHERNET;
    if (port->link == LS_TOPO_LINK_ETHERNET && nic->class != LS_TOPO_NIC_COMPUTE &&
        ls_topo_choose_gid(port) < 0)
        use->bare = nic;
    ls_buf_printf(&use->names, "%s%s/%d", use->n++ ? ", " : "", nic->name, port->number);
}

/* names: NULL, all ports for computing. */
static void find(const struct ls_topo_machine *m, const char *list,
                 bool (*names)(const char *list, const char *name, int port), struct use *use)
{
    *use = (struct use){.n = 0};
    ls_buf_init(&use->names, 1 << 14);
    for (int i = 0; i < m->nnic; i++)
        for (int p = 0; p < m->nic[i].nport; p++) {
            const struct ls_topo_nic *nic = &m->nic[i];
            const struct ls_topo_port *port = &nic->port[p];
            if (port->active && port->link != LS_TOPO_LINK_OTHER &&
                (list ? nic->open && names(list, nic->name, port->number)
                      : nic->class == LS_TOPO_NIC_COMPUTE))
                add(use, nic, port);
        }
}

static void describe(const struct use *use, char out[static 96])
{
    char rate[40];
    snprintf(rate, sizeof rate, use->low < use->high ? "%.0f to %.0f" : "%.0f", use->low,
             use->high);
    if (use->n)
        snprintf(out, 96, "%d %s of %s Gbit/s, %s", use->n, use->n == 1 ? "port" : "ports", rate,
                 use->ib && use->roce ? "InfiniBand and RoCE"
                 : use->ib            ? "InfiniBand"
                                      : "RoCE");
    else
        snprintf(out, 96, "no port");
}

/* The user's word, or, of what the site declares, the rules'; NULL: neither names any. */
static const char *named(const struct ls_check_context *context,
                         const struct ls_topo_decision *decision, const char *name)
{
    const char *value = ls_check_of_user(context, name);
    for (int i = 0;
         !value && context->site && *context->site->nic && decision && i < decision->nvariable; i++)
        if (!strcmp(decision->variable[i].name, name))
            value = decision->variable[i].value;
    return value && *value && strcmp(value, "all") != 0 ? value : NULL; /* UCX's word for not set */
}

static const struct {
    const char *library, *variable;
    bool (*names)(const char *list, const char *name, int port);
} libraries[] = {{"NCCL", "NCCL_IB_HCA", ls_check_nccl_names},
                 {"UCX", "UCX_NET_DEVICES", ucx_names}};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

/* What is wrong with the named ports wherever else they are the same. UCX may be given interfaces for TCP. */
static void judge(struct ls_check_out *out, const struct use *use, const char *variable,
                  const char *list)
{
    if (use->bare)
        ls_check_say(out, LS_CHECK_FAIL, use->bare->name,
                     "a GID of RoCE version 2 with a routable address",
                     "give its network interface an address, or do not name it",
                     "%s=%.80s names it, and none of its GIDs is", variable, list);
    if (!use->n && !strcmp(variable, "NCCL_IB_HCA"))
        ls_check_say(out, LS_CHECK_WARN, "", "an active port",
                     "NCCL then takes TCP: leave NCCL_IB_HCA unset, or name ports that are up",
                     "NCCL_IB_HCA=%.80s leaves no active port", list);
}

void ls_check_ib_use(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    struct ls_arena arena = {0};
    struct ls_topo_decision decision;
    bool decided = ls_check_decide(context, &arena, &decision, NULL) == LS_OK;
    struct ls_buf what, names;
    bool any = false;
    ls_buf_init(&what, 1 << 12);
    ls_buf_init(&names, 1 << 16);
    for (int i = 0; i < LIBRARIES; i++) {
        struct use use;
        char text[96];
        const char *list = named(context, decided ? &decision : NULL, libraries[i].variable);
        find(m, list, libraries[i].names, &use);
        describe(&use, text);
        any |= list != NULL;
        if (list)
            judge(out, &use, libraries[i].variable, list);
        ls_buf_printf(&what, "%s%s: %s", i ? "; " : "", libraries[i].library, text);
        ls_buf_printf(&names, "%s%s=%s", i ? "; " : "", libraries[i].variable,
                      list ? list : "(not set)");
        if (use.n)
            ls_buf_printf(&names, ", %s", use.names.data);
        ls_buf_free(&use.names);
    }
    ls_check_fact(out, "%s\n%s\n%s", any ? "named" : "all", what.data ? what.data : "",
                  names.data ? names.data : "");
    ls_buf_free(&what);
    ls_buf_free(&names);
    ls_arena_free(&arena);
}

/* The second line of a fact. */
static const char *what_of(const char *fact, int *n)
{
    const char *line = fact + strcspn(fact, "\n");
    line += *line == '\n';
    *n = (int)strcspn(line, "\n");
    return line;
}

static bool is_same_use(const char *a, const char *b)
{
    int na, nb;
    const char *x = what_of(a, &na), *y = what_of(b, &nb);
    return na == nb && !strncmp(x, y, (size_t)na);
}

/* The rank whose ports most ranks have alike; -1: nobody says. */
static int usual_use(const struct ls_check_world *w, bool *any)
{
    int best = -1, most = 0;
    *any = false;
    for (int r = 0; r < w->size; r++) {
        int count = 0;
        if (!w->fact[r])
            continue;
        *any |= !strncmp(w->fact[r], "named\n", 6);
        for (int s = r; s < w->size && 2 * most <= w->size; s++)
            count += w->fact[s] && is_same_use(w->fact[r], w->fact[s]);
        if (count > most) {
            most = count;
            best = r;
        }
    }
    return best;
}

void ls_check_same_use(const struct ls_check *check, const struct ls_check_world *w,
                       struct ls_check_list *list)
{
    bool any;
    int usual = usual_use(w, &any), odd = 0, n;
    char text[256], expected[256];
    if (usual < 0)
        return;
    if (!any) {
        ls_check_add(list, check, LS_CHECK_SKIP, -1, "",
                     "no task and no site names ports: see ib.port", "", "");
        return;
    }
    const char *most = what_of(w->fact[usual], &n);
    snprintf(expected, sizeof expected, "%.*s", n, most);
    for (int r = 0; r < w->size; r++) {
        if (!w->fact[r] || is_same_use(w->fact[r], w->fact[usual]))
            continue;
        const char *mine = what_of(w->fact[r], &n);
        snprintf(text, sizeof text, "%.*s, by %s", n, mine, mine[n] ? mine + n + 1 : "");
        ls_check_add(list, check, LS_CHECK_FAIL, r, "", text, expected, check->remedy);
        odd++;
    }
    odd += ls_check_found(list, check);
    for (int r = 0; !odd && r < w->size; r++)
        if (w->fact[r])
            ls_check_add(list, check, LS_CHECK_PASS, r, "", expected, "", "");
}
