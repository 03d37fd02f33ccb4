/* What the files of this room hand to each other: items from the server's thread and from other
 * keepers, both taken by ls_wire_poll. Not for other rooms. */
#ifndef LS_WIRE_INTERNAL_H
#define LS_WIRE_INTERNAL_H

#include "wire/wire.h"

/* An event for the keeper, or a piece of the workers' fence number `seq` in `generation`: on its
 * way up from the server, or gathered from all keepers and on its way down. One malloc block. */
struct ls_wire_item {
    struct ls_wire_item *next;
    bool fence;
    int generation, seq;
    struct ls_wire_event event; /* text, data and n point into `bytes`; fences use data and n */
    char bytes[];
};
/* Copies `text` (NULL: "") and `data`. NULL when memory is short. */
struct ls_wire_item *ls_wire_item_new(const struct ls_wire_event *event);
/* A first-in first-out list. */
struct ls_wire_queue {
    struct ls_wire_item *head, *tail;
};
void ls_wire_queue_add(struct ls_wire_queue *queue, struct ls_wire_item *item);
struct ls_wire_item *ls_wire_queue_take(struct ls_wire_queue *queue); /* NULL: empty */
void ls_wire_queue_free(struct ls_wire_queue *queue);

/* ---- server.c ---- */

struct ls_wire_item *ls_wire_server_take(struct ls_wire_server *server); /* the caller free()s it */
/* Answers fence `seq`. An unknown one (its generation has ended) is fine. */
void ls_wire_server_answer(struct ls_wire_server *server, int generation, int seq, const void *data,
                           size_t n);
/* Answers all fences with an error, now and later. */
void ls_wire_server_fail(struct ls_wire_server *server);

/* ---- control.c ---- */

/* This keeper's part of a fence. */
void ls_wire_control_contribute(struct ls_wire_control *control, int generation, int seq,
                                const void *data, size_t n);
/* Reads, writes and looks at the clock, once; never waits. */
void ls_wire_control_io(struct ls_wire_control *control);
struct ls_wire_item *ls_wire_control_take(struct ls_wire_control *control);
/* Keeps `item` (may be NULL) until the next call, and frees the one before. */
void ls_wire_control_hold(struct ls_wire_control *control, struct ls_wire_item *item);

#endif
