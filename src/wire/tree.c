/* What keepers tell each other, and what follows. Keeper 0 decides: which failure was the first,
 * whether all have finished. Everything below a lost keeper is cut off and looks after itself. */
#include "wire/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

// A broken connection is often noticed before the death behind it, as that has to be waited for,
// written and sent: half a second covers a loaded node and is short for a person.
static const double echo_wait = 0.5;
// Two hops and a look into memory take milliseconds. A node that does not manage that in two seconds does not answer.
static const double answer_wait = 2;

enum { MAX_TEXT = 4000, MAX_RECORD = 64 << 10 };
/* What is in a frame's c: a code of one byte, and 1 + a rank. */
enum { CODE_MASK = 255, SUSPECT_SHIFT = 8 };

static size_t cut(const char *text)
{
    return text ? strnlen(text, MAX_TEXT) : 0;
}

void ls_wire_tree_watch(struct ls_wire_control *c, int i, bool fresh)
{
    struct ls_wire_link *link = &c->link[i];
    if (link->fd < 0)
        return;
    bool writing = ls_wire_link_pending(link);
    if (!fresh && writing == link->writing)
        return;
    link->writing = writing;
    struct epoll_event e = {.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN,
                            .data.u32 = (uint32_t)i};
    if (epoll_ctl(c->epoll, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link->fd, &e))
        c->broken[i] = "it cannot be watched";
}

void ls_wire_tree_send(struct ls_wire_control *c, int i, enum ls_wire_message type, int a, int b,
                       int code, const void *data, size_t n)
{
    struct ls_wire_link *link = &c->link[i];
    if (link->fd < 0 || c->broken[i])
        return;
    if (!ls_wire_link_send(link, type, a, b, code, data, n))
        c->broken[i] = "the connection broke";
    link->said = ls_time_monotonic();
    ls_wire_tree_watch(c, i, false);
}

static void send_down(struct ls_wire_control *c, enum ls_wire_message type, int a, int b, int code,
                      const void *data, size_t n)
{
    for (int i = 1; i < c->n_links; i++)
        ls_wire_tree_send(c, i, type, a, b, code, data, n);
}

static void send_up(struct ls_wire_control *c, enum ls_wire_message type, int a, int b, int code,
                    const void *data, size_t n)
{
    ls_wire_tree_send(c, 0, type, a, b, code, data, n);
}

static void queue_event(struct ls_wire_control *c, enum ls_wire_event_kind kind, int rank,
                        int keeper, int code, const char *text, const void *data, size_t n)
{
    struct ls_wire_event e = {kind, rank, keeper, code, text, data, n};
    struct ls_wire_item *item = ls_wire_item_new(&e);
    if (item)
        ls_wire_queue_add(&c->queue, item);
}

// ---- failures -----------------------------------------------------------------------------------

// Here and below: this is the failure.
static void fail_here(struct ls_wire_control *c, int rank, int keeper, int code, const char *text)
{
    if (c->failed || c->done)
        return;
    c->failed = true;
    free(c->echo);
    c->echo = NULL;
    queue_event(c, LS_WIRE_FAILURE, rank, keeper, code, text, NULL, 0);
    send_down(c, LS_WIRE_DOWN_FAIL, rank, keeper, code, text, cut(text));
}

static void take_failure(struct ls_wire_control *c, int rank, int keeper, int code,
                         const char *text)
{
    if (c->rank > 0 && !c->orphan)
        send_up(c, LS_WIRE_UP_FAIL, rank, keeper, code, text, cut(text));
    else
        fail_here(c, rank, keeper, code, text);
}

static void ask(struct ls_wire_control *c, int rank)
{
    send_down(c, LS_WIRE_DOWN_ASK, rank, 0, 0, NULL, 0);
    queue_event(c, LS_WIRE_ASKED, rank, 0, 0, NULL, NULL, 0);
}

// `suspect` is 1 + a rank, or 0. Who waited in vain knows more than those who were told of it.
static void take_echo(struct ls_wire_control *c, int rank, int keeper, int code, int suspect,
                      const char *text)
{
    if (c->rank > 0 && !c->orphan) {
        send_up(c, LS_WIRE_UP_ECHO, rank, keeper, code | suspect << SUSPECT_SHIFT, text, cut(text));
        return;
    }
    if (c->failed || c->done || (c->echo && (c->asked || !suspect)))
        return;
    double now = ls_time_monotonic();
    struct ls_wire_event e = {LS_WIRE_FAILURE, rank, keeper, code, text, NULL, 0};
    struct ls_wire_item *before = c->echo, *item = ls_wire_item_new(&e);
    if (!item)
        return;
    if (!before)
        c->echo_due = now + echo_wait;
    free(before);
    c->echo = item;
    c->asked = suspect;
    c->answered = !suspect;
    if (suspect) {
        c->answer_due = now + answer_wait;
        ask(c, suspect - 1);
    }
}

static void take_answer(struct ls_wire_control *c, int rank, const char *text)
{
    if (c->rank > 0 && !c->orphan) {
        send_up(c, LS_WIRE_UP_ANSWER, rank, 0, 0, text, strlen(text));
        return;
    }
    if (c->answered || c->asked != rank + 1)
        return;
    c->answered = true;
    snprintf(c->answer, sizeof c->answer, "%s", text);
}

void ls_wire_control_answer(struct ls_wire_control *c, int rank, const char *text)
{
    char copy[LS_WIRE_ANSWER];
    snprintf(copy, sizeof copy, "%s", text);
    take_answer(c, rank, copy);
}

double ls_wire_tree_echo_due(const struct ls_wire_control *c)
{
    return c->answered || c->answer_due < c->echo_due ? c->echo_due : c->answer_due;
}

// Adds the lines of the answer to the first one of what was said, but for those that it has already.
static void add_answer(const struct ls_wire_control *c, const char *said, char *out, size_t room)
{
    char answer[LS_WIRE_ANSWER], *rest = NULL;
    size_t n = strcspn(said, "\n");
    snprintf(answer, sizeof answer, "%s", c->answered ? c->answer : "its node does not answer");
    snprintf(out, room, "%.*s", (int)n, said);
    for (char *line = strtok_r(answer, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t end = strlen(out);
        if (!strstr(out, line))
            snprintf(out + end, room - end, "; %s", line);
    }
    size_t end = strlen(out);
    snprintf(out + end, room - end, "%s", said + n);
}

static void accept_echo(struct ls_wire_control *c)
{
    struct ls_wire_item *echo = c->echo;
    char text[MAX_TEXT + 2 * LS_WIRE_ANSWER];
    if (!echo)
        return;
    snprintf(text, sizeof text, "%s", echo->event.text);
    if (c->asked)
        add_answer(c, echo->event.text, text, sizeof text);
    c->echo = NULL;
    fail_here(c, echo->event.rank, echo->event.keeper, echo->event.code, text);
    free(echo);
}

void ls_wire_control_fail(struct ls_wire_control *c, int rank, int code, bool echo,
                          const char *text)
{
    char copy[MAX_TEXT + 1];
    snprintf(copy, sizeof copy, "%.*s", (int)cut(text), text ? text : "");
    if (echo)
        take_echo(c, rank, c->rank, code, 0, copy);
    else
        take_failure(c, rank, c->rank, code, copy);
}

void ls_wire_control_suspect(struct ls_wire_control *c, int rank, int code, int suspect,
                             const char *text)
{
    take_echo(c, rank, c->rank, code & CODE_MASK, suspect + 1, text);
}

// ---- the end ------------------------------------------------------------------------------------

static void end_here(struct ls_wire_control *c, int code, const char *text)
{
    if (c->done)
        return;
    send_down(c, LS_WIRE_DOWN_DONE, 0, 0, code, text, cut(text));
    c->done = true;
    queue_event(c, LS_WIRE_DONE, -1, c->rank, code, text, NULL, 0);
}

static void check_finished(struct ls_wire_control *c)
{
    if (c->all_finished || c->rank > 0)
        return;
    for (int k = 0; k < c->size; k++)
        if (!c->ended[k])
            return;
    accept_echo(c); // nothing better can come
    c->all_finished = true;
    queue_event(c, LS_WIRE_ALL_FINISHED, -1, 0, 0, NULL, NULL, 0);
}

void ls_wire_control_finished(struct ls_wire_control *c)
{
    c->finished = true;
    if (c->orphan)
        end_here(c, 1, "the connection to keeper 0 is gone");
    else if (c->rank > 0)
        send_up(c, LS_WIRE_UP_FINISHED, 0, c->rank, 0, NULL, 0);
    else {
        c->ended[0] = true;
        check_finished(c);
    }
}

void ls_wire_control_done(struct ls_wire_control *c, int code, const char *text)
{
    if (c->rank == 0)
        end_here(c, code, text);
}

static bool below(const struct ls_wire_control *c, int keeper, int top)
{
    while (keeper > top)
        keeper = (keeper - 1) / c->fanout;
    return keeper == top;
}

static void take_loss(struct ls_wire_control *c, int keeper, const char *text)
{
    if (c->rank > 0 && !c->orphan) {
        send_up(c, LS_WIRE_UP_LOST, 0, keeper, 0, text, cut(text));
        return;
    }
    fail_here(c, -1, keeper, 1, text);
    for (int k = keeper; c->ended && k < c->size; k++)
        if (below(c, k, keeper))
            c->ended[k] = true;
    check_finished(c);
}

void ls_wire_tree_lost(struct ls_wire_control *c, int i, const char *why)
{
    if (c->done)
        return;
    int peer = c->link[i].peer;
    char text[512];
    snprintf(text, sizeof text, "keeper %d on %.255s is gone: %s; see what srun says of that node",
             peer, c->host[peer], why);
    if (i > 0) {
        take_loss(c, peer, text);
        return;
    }
    c->orphan = true;
    fail_here(c, -1, peer, 1, text);
    if (c->finished)
        ls_wire_control_finished(c);
}

// ---- what comes in ------------------------------------------------------------------------------

static void handle_down(struct ls_wire_control *c, const struct ls_wire_head *h, const char *body)
{
    switch ((enum ls_wire_message)h->type) {
    case LS_WIRE_DOWN_FENCE: {
        struct ls_wire_event e = {.data = body, .n = h->n};
        struct ls_wire_item *item = ls_wire_item_new(&e);
        send_down(c, LS_WIRE_DOWN_FENCE, h->a, h->b, 0, body, h->n);
        if (item) {
            item->fence = true;
            item->generation = h->a;
            item->seq = h->b;
            ls_wire_queue_add(&c->queue, item);
        }
        break;
    }
    case LS_WIRE_DOWN_FAIL:
        fail_here(c, h->a, h->b, h->c, body);
        break;
    case LS_WIRE_DOWN_ASK:
        ask(c, h->a);
        break;
    case LS_WIRE_DOWN_STOP:
        send_down(c, LS_WIRE_DOWN_STOP, h->a, 0, 0, NULL, 0);
        queue_event(c, LS_WIRE_STOP, -1, 0, h->a, NULL, NULL, 0);
        break;
    case LS_WIRE_DOWN_DONE:
        end_here(c, h->c, body);
        break;
    default:
        c->broken[0] = "it sent a message of another version";
    }
}

static void add_to_gather(struct ls_wire_control *c, int generation, int seq, uint64_t bit,
                          const void *data, size_t n);

static void handle_up(struct ls_wire_control *c, int i, const struct ls_wire_head *h,
                      const char *body)
{
    bool relay = c->rank > 0;
    bool known = h->b >= 0 && h->b < c->size;
    switch ((enum ls_wire_message)h->type) {
    case LS_WIRE_UP_FENCE:
        add_to_gather(c, h->a, h->b, (uint64_t)1 << i, body, h->n);
        return;
    case LS_WIRE_UP_FAIL:
        if (known)
            take_failure(c, h->a, h->b, h->c, body);
        return;
    case LS_WIRE_UP_ECHO:
        if (known && h->c >= 0)
            take_echo(c, h->a, h->b, h->c & CODE_MASK, h->c >> SUSPECT_SHIFT, body);
        return;
    case LS_WIRE_UP_ANSWER:
        take_answer(c, h->a, body);
        return;
    case LS_WIRE_UP_LOST:
        if (known)
            take_loss(c, h->b, body);
        return;
    case LS_WIRE_UP_STOP:
        ls_wire_control_stop(c, h->a);
        return;
    case LS_WIRE_UP_RECORD:
        if (relay)
            send_up(c, LS_WIRE_UP_RECORD, h->a, h->b, 0, body, h->n);
        else
            queue_event(c, LS_WIRE_RECORD, h->a, h->b, 0, NULL, body, h->n);
        return;
    case LS_WIRE_UP_FINISHED:
        if (relay)
            send_up(c, LS_WIRE_UP_FINISHED, 0, h->b, 0, NULL, 0);
        else if (known) {
            c->ended[h->b] = true;
            check_finished(c);
        }
        return;
    default:
        c->broken[i] = "it sent a message of another version";
    }
}

void ls_wire_tree_handle(struct ls_wire_control *c, int i)
{
    const struct ls_wire_head *h = &c->link[i].head;
    if (h->type == LS_WIRE_ALIVE)
        return;
    if (i == 0)
        handle_down(c, h, c->link[i].body);
    else
        handle_up(c, i, h, c->link[i].body);
}

void ls_wire_tree_tick(struct ls_wire_control *c, double now)
{
    if (c->echo && now >= ls_wire_tree_echo_due(c))
        accept_echo(c);
}

void ls_wire_control_record(struct ls_wire_control *c, int rank, const void *data, size_t n)
{
    if (n > MAX_RECORD)
        n = MAX_RECORD;
    if (c->rank > 0)
        send_up(c, LS_WIRE_UP_RECORD, rank, c->rank, 0, data, n);
    else
        queue_event(c, LS_WIRE_RECORD, rank, 0, 0, NULL, data, n);
}

void ls_wire_control_stop(struct ls_wire_control *c, int signal)
{
    if (c->rank > 0 && !c->orphan) {
        send_up(c, LS_WIRE_UP_STOP, signal, 0, 0, NULL, 0);
        return;
    }
    send_down(c, LS_WIRE_DOWN_STOP, signal, 0, 0, NULL, 0);
    queue_event(c, LS_WIRE_STOP, -1, 0, signal, NULL, NULL, 0);
}

// ---- fences -------------------------------------------------------------------------------------

static struct ls_wire_gather *find_gather(struct ls_wire_control *c, int generation, int seq)
{
    for (struct ls_wire_gather *g = c->gathers; g; g = g->next)
        if (g->generation == generation && g->seq == seq)
            return g;
    struct ls_wire_gather *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->generation = generation;
    g->seq = seq;
    g->next = c->gathers;
    c->gathers = g;
    return g;
}

static void drop_gather(struct ls_wire_control *c, struct ls_wire_gather *gather)
{
    for (struct ls_wire_gather **at = &c->gathers; *at; at = &(*at)->next)
        if (*at == gather) {
            *at = gather->next;
            free(gather->data);
            free(gather);
            return;
        }
}

static void complete_gather(struct ls_wire_control *c, struct ls_wire_gather *g)
{
    struct ls_wire_head h = {.type = LS_WIRE_DOWN_FENCE, .a = g->generation, .b = g->seq};
    h.n = (uint32_t)g->n;
    if (c->rank > 0)
        send_up(c, LS_WIRE_UP_FENCE, g->generation, g->seq, 0, g->data, g->n);
    else
        handle_down(c, &h, g->data);
    drop_gather(c, g);
}

static void add_to_gather(struct ls_wire_control *c, int generation, int seq, uint64_t bit,
                          const void *data, size_t n)
{
    if (generation < c->generation || c->failed)
        return;
    struct ls_wire_gather *g = find_gather(c, generation, seq);
    if (!g || g->seen & bit)
        return;
    size_t sum = g->n + n;
    char *grown = sum <= LS_WIRE_FRAME_MAX ? realloc(g->data, sum + 1) : NULL;
    if (!grown) {
        char text[96];
        snprintf(text, sizeof text, "exchange %d of all ranks together: %s", seq,
                 sum > LS_WIRE_FRAME_MAX ? "more than 64 MiB" : "out of memory");
        ls_wire_control_fail(c, -1, 1, false, text);
        return;
    }
    if (n)
        memcpy(grown + g->n, data, n);
    g->data = grown;
    g->n = sum;
    g->seen |= bit;
    uint64_t all = ((uint64_t)1 << c->n_links) - 1;
    if (g->seen == all)
        complete_gather(c, g);
}

void ls_wire_control_contribute(struct ls_wire_control *c, int generation, int seq,
                                const void *data, size_t n)
{
    if (generation > c->generation) {
        c->generation = generation;
        for (struct ls_wire_gather *g = c->gathers, *next; g; g = next) {
            next = g->next;
            if (g->generation < generation)
                drop_gather(c, g);
        }
    }
    add_to_gather(c, generation, seq, 1, data, n);
}

const char *ls_wire_control_missing(const struct ls_wire_control *c, char out[static 256])
{
    out[0] = '\0';
    const struct ls_wire_gather *g = c->gathers; // the newest one stands first, the oldest counts
    while (g && g->next)
        g = g->next;
    if (!g)
        return out;
    int n = snprintf(out, 256, "exchange %d:", g->seq);
    int missing = 0;
    for (int i = 0; i < c->n_links; i++) {
        if (g->seen & (uint64_t)1 << i || n >= 200)
            continue;
        int k = i == 0 ? c->rank : c->link[i].peer;
        n += snprintf(out + n, 256 - (size_t)n, "%s keeper %d on %.40s", missing ? "," : "", k,
                      c->host[k]);
        missing++;
    }
    snprintf(out + n, n < 256 ? 256 - (size_t)n : 0,
             missing == 1 ? " has not arrived" : " have not arrived");
    return out;
}
