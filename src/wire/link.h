/* One connection between two keepers: frames over a non-blocking TCP socket. Knows no message. */
#ifndef LS_WIRE_LINK_H
#define LS_WIRE_LINK_H

#include "wire/wire.h"

/* A frame: this head as it lies in memory, then `n` bytes. All keepers run the same build on
 * machines of one byte order; the magic word catches what does not. */
struct ls_wire_head {
    uint32_t magic, type, n;
    int32_t a, b, c; /* meaning by type */
};
enum { LS_WIRE_MAGIC = 0x314b534c, LS_WIRE_FRAME_MAX = 64 << 20 };

struct ls_wire_link {
    int fd;   /* -1: closed */
    int peer; /* keeper at the other end */
    double heard, said;
    bool writing; /* wants to know when the socket takes more */
    struct ls_wire_head head;
    char *body;
    size_t got; /* of head and body */
    char *out;
    size_t out_at, out_end, out_cap;
};

/* `now` is the time at which both sides count as heard. */
void ls_wire_link_init(struct ls_wire_link *link, int fd, int peer, double now);
void ls_wire_link_close(struct ls_wire_link *link);
/* Queues a frame and sends what the socket takes. False: the link is broken, or out of memory. */
bool ls_wire_link_send(struct ls_wire_link *link, uint32_t type, int a, int b, int c,
                       const void *data, size_t n);
/* Sends what is queued as far as the socket takes it. */
bool ls_wire_link_flush(struct ls_wire_link *link);
bool ls_wire_link_pending(const struct ls_wire_link *link);
/* 1: link->head and link->body hold a frame, to be looked at before the next call. 0: nothing more
 * for now. -1: broken, *why says how. */
int ls_wire_link_receive(struct ls_wire_link *link, const char **why);

#endif
