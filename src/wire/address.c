/* A node's addresses, chosen and ordered so that the first try usually works. */
#include "wire/address.h"
#include "wire/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t machine_id(void)
{
    char boot[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof boot - 1);
        boot[n > 0 ? n : 0] = '\0';
        close(fd);
    }
    return ls_hash64(boot);
}

static bool convert(const struct ifaddrs *i, struct ls_wire_address *out)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return false;
    *out = (struct ls_wire_address){.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0};
    if (i->ifa_addr->sa_family == AF_INET) {
        struct sockaddr_in a;
        memcpy(&a, i->ifa_addr, sizeof a);
        memcpy(out->bytes, &a.sin_addr, 4);
        return true;
    }
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 a;
    memcpy(&a, i->ifa_addr, sizeof a);
    out->v6 = 1;
    memcpy(out->bytes, &a.sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&a.sin6_addr);
}

enum ls_status ls_wire_card_make(struct ls_wire_card *card, struct ls_error *err)
{
    *card =
        (struct ls_wire_card){LS_WIRE_MAGIC, LS_WIRE_CARD_VERSION, machine_id(), {0}, 0, 0, {{0}}};
    if (getrandom(card->token, sizeof card->token, 0) != (ssize_t)sizeof card->token)
        return ls_error_errno(err, errno, "no random bytes from the kernel");
    struct ifaddrs *list;
    if (getifaddrs(&list))
        return ls_error_errno(err, errno, "cannot list the network addresses of this node");
    for (int pass = 0; pass < 4; pass++) // other IPv4, other IPv6, loopback IPv4, loopback IPv6
        for (struct ifaddrs *i = list; i; i = i->ifa_next) {
            struct ls_wire_address a;
            if (card->n_addresses < LS_WIRE_MAX_ADDRESSES && convert(i, &a) &&
                a.loopback == pass / 2 && a.v6 == pass % 2)
                card->address[card->n_addresses++] = a;
        }
    freeifaddrs(list);
    return LS_OK;
}

static int shared_bits(const struct ls_wire_address *a, const struct ls_wire_address *b)
{
    if (a->v6 != b->v6 || a->loopback || b->loopback)
        return 0;
    int bits = 0;
    for (int i = 0; i < (a->v6 ? 16 : 4); i++) {
        unsigned diff = a->bytes[i] ^ b->bytes[i];
        if (diff)
            return bits + __builtin_clz(diff) - 24;
        bits += 8;
    }
    return bits;
}

// Higher is tried earlier.
static int rank_address(const struct ls_wire_card *from, const struct ls_wire_address *a)
{
    if (a->loopback)
        return 1000 - a->v6;
    int best = 0;
    for (int i = 0; i < from->n_addresses; i++) {
        int bits = shared_bits(&from->address[i], a);
        // The very same address on another machine is a bridge (docker0 and the like): it leads
        // home.
        if (bits == (a->v6 ? 128 : 32))
            return -1;
        best = bits > best ? bits : best;
    }
    return a->v6 ? best / 4 : best;
}

void ls_wire_address_fill(const struct ls_wire_address *a, uint16_t port,
                          struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&in4.sin_addr, a->bytes, 4);
    memcpy(&in6.sin6_addr, a->bytes, 16);
    memcpy(out, a->v6 ? (void *)&in6 : (void *)&in4, a->v6 ? sizeof in6 : sizeof in4);
}

int ls_wire_card_routes(const struct ls_wire_card *from, const struct ls_wire_card *to,
                        struct sockaddr_storage *out, int max)
{
    int score[LS_WIRE_MAX_ADDRESSES], n = 0;
    int count = to->n_addresses < LS_WIRE_MAX_ADDRESSES ? to->n_addresses : LS_WIRE_MAX_ADDRESSES;
    for (int i = 0; i < count && n < max; i++) {
        const struct ls_wire_address *a = &to->address[i];
        if (a->loopback && from->machine != to->machine)
            continue;
        int s = rank_address(from, a), at = n++;
        for (; at > 0 && score[at - 1] < s; at--) { // stable: equals keep the owner's order
            score[at] = score[at - 1];
            out[at] = out[at - 1];
        }
        score[at] = s;
        ls_wire_address_fill(a, to->port, &out[at]);
    }
    return n;
}

const char *ls_wire_address_text(const struct sockaddr_storage *address, char out[static 64])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET) {
        struct sockaddr_in a;
        memcpy(&a, address, sizeof a);
        inet_ntop(AF_INET, &a.sin_addr, ip, sizeof ip);
        snprintf(out, 64, "%s:%u", ip, ntohs(a.sin_port));
    } else {
        struct sockaddr_in6 a;
        memcpy(&a, address, sizeof a);
        inet_ntop(AF_INET6, &a.sin6_addr, ip, sizeof ip);
        snprintf(out, 64, "[%s]:%u", ip, ntohs(a.sin6_port));
    }
    return out;
}

// One socket for both families where the kernel has IPv6.
static int try_bind(int family, uint16_t wanted, uint16_t *port)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int off = 0;
    // The port stands at the same place in both.
    struct sockaddr_in in = {.sin_family = (sa_family_t)family, .sin_port = htons(wanted)};
    struct sockaddr_storage a = {0};
    memcpy(&a, &in, sizeof in);
    socklen_t n = sizeof a;
    if ((family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) ||
        bind(fd, (struct sockaddr *)&a,
             family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) ||
        getsockname(fd, (struct sockaddr *)&a, &n)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    memcpy(&in, &a, sizeof in);
    *port = ntohs(in.sin_port);
    return fd;
}

static int bind_to(uint16_t wanted, uint16_t *port)
{
    int fd = try_bind(AF_INET6, wanted, port);
    return fd >= 0 || errno == EADDRINUSE ? fd : try_bind(AF_INET, wanted, port);
}

int ls_wire_bind(uint16_t *port)
{
    return bind_to(0, port);
}

// Below are ports that services are registered for, by and large.
enum { LOWEST_PORT = 10240, ENOUGH_PORTS = 1024, TRIES = 64 };

static bool read_range(const char *path, int *low, int *high)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fscanf(f, "%9d %9d", low, high) == 2 && *low > 0 && *low <= *high &&
              *high <= UINT16_MAX;
    if (f)
        fclose(f);
    return ok;
}

int ls_wire_bind_apart(const char *range, uint16_t *port)
{
    int low, high;
    if (!read_range(range, &low, &high))
        return ls_wire_bind(port);
    int first = high + 1, count = UINT16_MAX - high;
    if (count < ENOUGH_PORTS) {
        first = LOWEST_PORT;
        count = low - LOWEST_PORT;
    }
    for (int i = 0; count >= ENOUGH_PORTS && i < TRIES; i++) {
        uint32_t draw;
        if (getrandom(&draw, sizeof draw, 0) != (ssize_t)sizeof draw)
            break;
        int fd = bind_to((uint16_t)(first + (int)(draw % (uint32_t)count)), port);
        if (fd >= 0)
            return fd;
    }
    return ls_wire_bind(port);
}

int ls_wire_listen(uint16_t *port)
{
    int fd = ls_wire_bind(port);
    if (fd < 0 || listen(fd, 128) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

bool ls_wire_address_of(const struct sockaddr_storage *from, struct ls_wire_address *out)
{
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    memcpy(&in4, from, sizeof in4);
    memcpy(&in6, from, sizeof in6);
    *out = (struct ls_wire_address){.v6 = from->ss_family == AF_INET6};
    if (out->v6)
        memcpy(out->bytes, &in6.sin6_addr, 16);
    else
        memcpy(out->bytes, &in4.sin_addr, 4);
    return from->ss_family == AF_INET || from->ss_family == AF_INET6;
}

const char *ls_wire_address_name(const struct ls_wire_address *a, char out[static 64])
{
    if (!inet_ntop(a->v6 ? AF_INET6 : AF_INET, a->bytes, out, 64))
        snprintf(out, 64, "?");
    return out;
}
