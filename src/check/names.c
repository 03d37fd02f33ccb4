/* Interfaces and names. Lockstep looks no name up; programs that are given MASTER_ADDR do. */
#include "check/internal.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- net.if ---- */

/* What this task names for NCCL, whoever has set that; else what the rules choose, or, where they see no need to choose,
 * the way out. */
static const struct ls_topo_iface *choose(const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    struct ls_topo_decision decision;
    struct ls_arena arena = {0};
    const struct ls_topo_iface *found = NULL;
    const char *named = context->get(context->user, "NCCL_SOCKET_IFNAME");
    for (int i = 0; named && *named && *named != '^' && i < m->niface && !found; i++)
        if (m->iface[i].up && (m->iface[i].ipv4 || m->iface[i].ipv6) &&
            m->iface[i].class != LS_TOPO_IFACE_LOOPBACK &&
            ls_check_nccl_names(named, m->iface[i].name, 0))
            found = &m->iface[i];
    if (!found && ls_check_decide(context, &arena, &decision, NULL) == LS_OK && decision.interface)
        for (int i = 0; i < m->niface; i++)
            if (!strcmp(m->iface[i].name, decision.interface))
                found = &m->iface[i];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < m->niface && !found; i++)
            if (m->iface[i].up && m->iface[i].class != LS_TOPO_IFACE_LOOPBACK &&
                m->iface[i].class != LS_TOPO_IFACE_VIRTUAL && (pass || m->iface[i].default_route))
                found = &m->iface[i];
    ls_arena_free(&arena);
    return found;
}

static int bits(const unsigned char *mask, int bytes)
{
    int n = 0;
    for (int i = 0; i < bytes; i++)
        n += __builtin_popcount(mask[i]);
    return n;
}

/* "10.1.0.0/16"; IPv4 before IPv6; false: no address. */
static bool subnet(const char *name, char out[static 64])
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (int want6 = 0; want6 < 2 && !found; want6++)
        for (struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
            int family = want6 ? AF_INET6 : AF_INET, size = want6 ? 16 : 4;
            if (!a->ifa_addr || !a->ifa_netmask || a->ifa_addr->sa_family != family ||
                strcmp(a->ifa_name, name) != 0)
                continue;
            unsigned char net[16], mask[16];
            char text[INET6_ADDRSTRLEN];
            const void *address = want6 ? (void *)&((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr
                                        : (void *)&((struct sockaddr_in *)a->ifa_addr)->sin_addr;
            const void *netmask = want6
                                      ? (void *)&((struct sockaddr_in6 *)a->ifa_netmask)->sin6_addr
                                      : (void *)&((struct sockaddr_in *)a->ifa_netmask)->sin_addr;
            memcpy(net, address, (size_t)size);
            memcpy(mask, netmask, (size_t)size);
            if (want6 && net[0] == 0xfe && (net[1] & 0xc0) == 0x80)
                continue; /* link-local says nothing */
            for (int i = 0; i < size; i++)
                net[i] &= mask[i];
            snprintf(out, 64, "%s/%d", inet_ntop(family, net, text, sizeof text), bits(mask, size));
            found = true;
        }
    freeifaddrs(all);
    return found;
}

void ls_check_interface(struct ls_check_out *out, const struct ls_check_context *context)
{
    char net[64];
    const struct ls_topo_iface *iface = context->machine ? choose(context) : NULL;
    if (!context->machine)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "",
                     "the machine could not be read (see sys.machine)");
    else if (!iface && context->nodes > 1)
        ls_check_say(out, LS_CHECK_FAIL, "", "an interface to the other nodes",
                     "give one an address, and bring it up",
                     "no interface that is up and leads out of this node");
    else if (!iface)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "one node, and no interface that leads out");
    else if (!subnet(iface->name, net))
        ls_check_say(out, context->nodes > 1 ? LS_CHECK_FAIL : LS_CHECK_WARN, iface->name,
                     "an address", "give it an address, or choose another interface",
                     "it has no address");
    else /* names may differ between nodes */
        ls_check_fact(out, "subnet %s%s", net, iface->default_route ? ", default route" : "");
}

/* Racks with subnets of their own, and virtual machines that are a subnet each, are fine where routers join
 * them: the connections of net.port show that, and that the chosen interface is the one that leads to routers. */
static bool all_routed(const struct ls_check_world *w, const struct ls_check_list *list)
{
    bool connected = false;
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->result[i].check->id, "net.port")) {
            if (list->result[i].status != LS_CHECK_PASS)
                return false;
            connected = true;
        }
    for (int r = 0; r < w->size && connected; r++)
        connected = !w->fact[r] || strstr(w->fact[r], ", default route");
    return connected;
}

static bool same_subnet(const char *a, const char *b)
{
    size_t n = strcspn(a, ",");
    return n == strcspn(b, ",") && !strncmp(a, b, n);
}

static bool same_family(const char *a, const char *b)
{
    return !strchr(a, ':') == !strchr(b, ':');
}

/* The rank whose subnet (or only its family) most ranks share; -1: nobody gave one. */
static int usual_subnet(const struct ls_check_world *w, bool (*alike)(const char *, const char *),
                        int *most)
{
    int best = -1;
    *most = 0;
    for (int r = 0; r < w->size && 2 * *most <= w->size; r++) {
        int count = 0;
        for (int s = r; s < w->size && w->fact[r]; s++)
            count += w->fact[s] && alike(w->fact[r], w->fact[s]);
        if (count > *most) {
            *most = count;
            best = r;
        }
    }
    return best;
}

void ls_check_same_subnets(const struct ls_check *check, const struct ls_check_world *w,
                           struct ls_check_list *list)
{
    int most, family = usual_subnet(w, same_family, &most), given = 0, odd = 0;
    int usual = usual_subnet(w, same_subnet, &most);
    for (int r = 0; r < w->size; r++)
        given += w->fact[r] != NULL;
    bool routed = most < given && all_routed(w, list);
    for (int r = 0; usual >= 0 && r < w->size; r++) {
        if (!w->fact[r])
            continue;
        if (!same_family(w->fact[r], w->fact[family]))
            ls_check_add(list, check, LS_CHECK_FAIL, r, "", w->fact[r], w->fact[family],
                         "give all nodes addresses of one family, IPv4 or IPv6");
        else if (!routed && !same_subnet(w->fact[r], w->fact[usual]))
            ls_check_add(list, check, LS_CHECK_WARN, r, "", w->fact[r], w->fact[usual],
                         "if no router joins them, choose an interface that all nodes share: "
                         "NCCL_SOCKET_IFNAME, or interface in lockstep-site.conf");
        else
            continue;
        odd++;
    }
    for (int r = 0; !odd && r < w->size; r++)
        if (w->fact[r])
            ls_check_add(list, check, LS_CHECK_PASS, r, "", w->fact[r], "", "");
}

/* ---- net.name ---- */

struct answer {
    const char *why;            /* the name was not found; NULL: it was */
    const char *wrong, *advice; /* what is wrong with what was found; NULL: nothing */
    int family;                 /* of the first address: that is the one which programs take */
};

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return address->sa_family == AF_INET &&
           (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) ==
               127;
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && !strcasecmp(text + n - m, with);
}

static struct answer lookup(const char *name)
{
    struct answer answer = {.family = AF_UNSPEC};
    struct addrinfo *all = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    int code = getaddrinfo(name, NULL, &hints, &all);
    if (code) {
        answer.why = gai_strerror(code);
        return answer;
    }
    answer.family = all->ai_family;
    for (struct addrinfo *a = all; a; a = a->ai_next)
        if (is_loopback(a->ai_addr)) {
            answer.wrong = "is a loopback address";
            answer.advice =
                "remove its line of 127.x or ::1 from /etc/hosts; PyTorch and MPI publish it";
        }
    if (all->ai_canonname && ends(all->ai_canonname, ".arpa")) {
        answer.wrong = "stands for a name that ends in .arpa";
        answer.advice = "give it a name of its own in the name service; PyTorch publishes that one";
    }
    freeaddrinfo(all);
    return answer;
}

/* Every node asks for its own name and for those of the next two: all for all would be n * n questions to
 * the name server. */
void ls_check_names(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_slurm *s = context->slurm;
    char own[256], name[LS_HOSTLIST_NAME_MAX + 1];
    struct ls_buf unknown;
    ls_buf_init(&unknown, 4096);
    if (gethostname(own, sizeof own) != 0)
        strcpy(own, "localhost");
    own[sizeof own - 1] = '\0';
    struct answer mine = lookup(own);
    if (mine.why)
        ls_check_say(out, LS_CHECK_WARN, "", "an address",
                     "add it to the name service or /etc/hosts; PyTorch and MPI look it up",
                     "this host's own name %s: %s", own, mine.why);
    else if (mine.wrong && context->nodes > 1)
        ls_check_say(out, LS_CHECK_WARN, "", "an address that other nodes can reach", mine.advice,
                     "this host's own name %s %s", own, mine.wrong);
    for (int i = 1; i <= 2 && s->node_id >= 0 && i < s->nodes.count; i++)
        if (ls_hostlist_nth(&s->nodes, (s->node_id + i) % s->nodes.count, name)) {
            const char *why = lookup(name).why;
            if (why)
                ls_buf_printf(&unknown, "%s%s (%s)", unknown.len ? ", " : "", name, why);
        }
    ls_check_fact(out, "%s\n%s", unknown.data ? unknown.data : "",
                  mine.family == AF_INET    ? "IPv4"
                  : mine.family == AF_INET6 ? "IPv6"
                                            : "");
    ls_buf_free(&unknown);
}

/* The first line of a fact: names that were not found. */
static const char *unknown_names(const char *fact, char out[static 4096])
{
    snprintf(out, 4096, "%.*s", (int)strcspn(fact, "\n"), fact);
    return out;
}

/* The second: the family of the node's own address. "" if there is none. */
static const char *own_family(const char *fact)
{
    const char *line = fact ? strchr(fact, '\n') : NULL;
    return line ? line + 1 : "";
}

/* A program that listens on IPv6 because its own name says so is not found by one that connects over IPv4. */
static bool compare_families(const struct ls_check *check, const struct ls_check_world *w,
                             struct ls_check_list *list)
{
    int four = 0, six = 0;
    for (int r = 0; r < w->size; r++) {
        four += !strcmp(own_family(w->fact[r]), "IPv4");
        six += !strcmp(own_family(w->fact[r]), "IPv6");
    }
    const char *odd = four >= six ? "IPv6" : "IPv4", *usual = four >= six ? "IPv4" : "IPv6";
    for (int r = 0; r < w->size && four && six; r++)
        if (!strcmp(own_family(w->fact[r]), odd)) {
            char text[64], expected[64];
            snprintf(text, sizeof text, "its own name is an address of %s", odd);
            snprintf(expected, sizeof expected, "%s, as on other nodes", usual);
            ls_check_add(list, check, LS_CHECK_WARN, r, "", text, expected,
                         "let /etc/hosts and the name service of all nodes give one family first");
        }
    return four && six;
}

/* If most nodes cannot find names, it is not the nodes' fault. */
void ls_check_names_known(const struct ls_check *check, const struct ls_check_world *w,
                          struct ls_check_list *list)
{
    static const char expected[] = "an address for the name of every node";
    int given = 0, bad = 0, first = -1;
    char names[4096];
    bool found = ls_check_found(list, check);
    found |= compare_families(check, w, list);
    for (int r = 0; r < w->size; r++) {
        given += w->fact[r] != NULL;
        if (w->fact[r] && *unknown_names(w->fact[r], names)) {
            bad++;
            first = first < 0 ? r : first;
        }
    }
    if (2 * bad > given) {
        char text[400];
        snprintf(text, sizeof text,
                 "%d of %d nodes cannot look up names of nodes: %s cannot find %.200s", bad, given,
                 w->host[first], unknown_names(w->fact[first], names));
        ls_check_add(
            list, check, LS_CHECK_WARN, -1, "", text, expected,
            "give programs MASTER_ADDR as an address, or add the nodes to the name service");
        return;
    }
    for (int r = 0; r < w->size; r++)
        if (w->fact[r] && *unknown_names(w->fact[r], names))
            ls_check_add(list, check, LS_CHECK_WARN, r, "", names, expected,
                         "look at /etc/resolv.conf and /etc/hosts there");
        else if (w->fact[r] && !bad && !found)
            ls_check_add(list, check, LS_CHECK_PASS, r, "",
                         given > 1 ? "own name, and those of other nodes" : "own name", "", "");
}
