/* Where a keeper can be reached: what it publishes before the tree is connected. */
#ifndef LS_WIRE_ADDRESS_H
#define LS_WIRE_ADDRESS_H

#include "wire/wire.h"

#include <netinet/in.h>

enum { LS_WIRE_MAX_ADDRESSES = 16, LS_WIRE_TOKEN = 16 };

/* Travels as it lies in memory. */
struct ls_wire_address {
    uint8_t v6;       /* 0: `bytes` holds 4, 1: 16 */
    uint8_t loopback; /* reaches this machine only */
    uint8_t bytes[16];
};
struct ls_wire_card {
    uint32_t magic, version;
    uint64_t machine; /* same boot of the same kernel: loopback is worth a try */
    uint8_t token[LS_WIRE_TOKEN];
    uint16_t port, n_addresses;
    struct ls_wire_address address[LS_WIRE_MAX_ADDRESSES];
};
enum { LS_WIRE_CARD_VERSION = 2 };

/* Fills everything but `port`: token from the kernel, addresses of all interfaces that are up (IPv4
 * first, no link-local IPv6: these need a scope), loopback last. */
enum ls_status ls_wire_card_make(struct ls_wire_card *card, struct ls_error *err);
/* The addresses of `to` in the order in which `from` should try them: loopback first within one
 * machine and not at all between machines, then those that share most leading bits with one of
 * ours. Returns their number. */
int ls_wire_card_routes(const struct ls_wire_card *from, const struct ls_wire_card *to,
                        struct sockaddr_storage *out, int max);
/* The socket address of one address. */
void ls_wire_address_fill(const struct ls_wire_address *address, uint16_t port,
                          struct sockaddr_storage *out);
/* The reverse, without the port; false for another family. `loopback` is not known. */
bool ls_wire_address_of(const struct sockaddr_storage *from, struct ls_wire_address *out);
/* Binds a socket to a port that the kernel chooses, on all addresses of both families where the kernel has
 * IPv6. Nobody can take the port, and who connects to it is refused. -1: errno says why. */
int ls_wire_bind(uint16_t *port);
/* The same, but of a port that the kernel does not give to connections once it is free again: outside the range that
 * the file `range` (LS_WIRE_PORT_RANGE) holds, above it or else below, at random. Where there is no room outside, or
 * no such file, the kernel chooses. */
#define LS_WIRE_PORT_RANGE "/proc/sys/net/ipv4/ip_local_port_range"
int ls_wire_bind_apart(const char *range, uint16_t *port);
/* Listens on all addresses of both families where the kernel has IPv6, on a port that it chooses. -1: errno
 * says why. */
int ls_wire_listen(uint16_t *port);
/* "10.0.0.1" or "fd00::1". Returns `out`. */
const char *ls_wire_address_name(const struct ls_wire_address *address, char out[static 64]);
/* "10.0.0.1:4000" or "[fe80::1]:4000". Returns `out`. */
const char *ls_wire_address_text(const struct sockaddr_storage *address, char out[static 64]);

#endif
