/* The state of the control channel; shared by control.c (sockets, clock, life) and tree.c (what the
 * messages mean). */
#ifndef LS_WIRE_TREE_H
#define LS_WIRE_TREE_H

#include "wire/internal.h"
#include "wire/link.h"

/* Up travels towards keeper 0, down away from it. */
enum ls_wire_message {
    LS_WIRE_ALIVE = 1,
    LS_WIRE_UP_FENCE,  /* a generation, b sequence; the data of a whole subtree */
    LS_WIRE_UP_RECORD, /* a rank, b keeper; bytes */
    LS_WIRE_UP_FAIL,   /* a rank, b keeper, c code; text */
    LS_WIRE_UP_ECHO, /* the same, but probably a consequence; in c, above the code, 1 + a rank to ask about */
    LS_WIRE_UP_ANSWER,   /* a rank; text: what it does */
    LS_WIRE_UP_LOST,     /* b keeper; text. Its whole subtree is cut off */
    LS_WIRE_UP_STOP,     /* a signal */
    LS_WIRE_UP_FINISHED, /* b keeper */
    LS_WIRE_DOWN_FENCE,
    LS_WIRE_DOWN_FAIL,
    LS_WIRE_DOWN_ASK, /* a rank */
    LS_WIRE_DOWN_STOP,
    LS_WIRE_DOWN_DONE, /* c code; text */
};

enum { LS_WIRE_ANSWER = 200 }; /* bytes of an answer, with its NUL */

struct ls_wire_gather {
    struct ls_wire_gather *next;
    int generation, seq;
    uint64_t seen; /* bit 0: this keeper; bit i: child link i */
    char *data;
    size_t n;
};

struct ls_wire_control {
    int rank, size, fanout;
    char **host; /* [size] */
    double silence;
    int epoll;
    int n_links;
    struct ls_wire_link *link; /* [n_links]: 0 the parent, then the children */
    const char **broken;       /* [n_links]: why a link has to be given up; NULL: it works */
    struct ls_wire_queue queue;
    struct ls_wire_item *held;
    struct ls_wire_gather *gathers;
    int generation;            /* of this keeper's newest fence */
    bool failed;               /* LS_WIRE_FAILURE has been queued */
    bool orphan;               /* the way to keeper 0 is gone */
    bool finished, done;       /* this keeper said so; everyone may leave */
    bool all_finished;         /* keeper 0: has been queued */
    bool *ended;               /* keeper 0 [size]: finished, or lost */
    struct ls_wire_item *echo; /* keeper 0: a failure that waits for a better one */
    double echo_due, answer_due;
    int asked;                   /* 1 + the rank about which it has asked, for that echo; 0: none */
    bool answered;               /* or nothing more is to be waited for */
    char answer[LS_WIRE_ANSWER]; /* what that rank does */
};

/* Sends over link `i` if it is open; a link that breaks is only marked. */
void ls_wire_tree_send(struct ls_wire_control *c, int i, enum ls_wire_message type, int a, int b,
                       int code, const void *data, size_t n);
/* Asks for room in link `i`'s socket while something is queued, and only then. `fresh`: not watched
 * yet. */
void ls_wire_tree_watch(struct ls_wire_control *c, int i, bool fresh);
/* Handles the frame that link `i` has received. */
void ls_wire_tree_handle(struct ls_wire_control *c, int i);
/* Link `i` was given up because of `why`. */
void ls_wire_tree_lost(struct ls_wire_control *c, int i, const char *why);
/* Keeper 0: until when its echo waits. */
double ls_wire_tree_echo_due(const struct ls_wire_control *c);
/* Keeper 0: what the clock decides. */
void ls_wire_tree_tick(struct ls_wire_control *c, double now);

#endif
