/* struct ibv_port_attr and enum ibv_mtu of libibverbs (rdma-core: ibv_query_port(3)), by hand. Private to verbs.c; a test
 * compares them with the header where that is installed. */
#ifndef LS_CHECK_VERBS_H
#define LS_CHECK_VERBS_H

#include <stdint.h>

/* Up to what is read; whatever newer libraries write behind it has room. */
struct ls_verbs_port {
    int state, max_mtu, active_mtu;
    uint8_t rest[244];
};
_Static_assert(sizeof(struct ls_verbs_port) == 256, "no padding");
enum { LS_VERBS_MTU_256 = 1, LS_VERBS_MTU_4096 = 5 }; /* each one is twice the one before */

#endif
