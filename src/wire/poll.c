/* The keeper's one door: carries fences between the server and the keepers, hands out everything
 * else. */
#include "wire/internal.h"

#include <stdlib.h>
#include <string.h>

struct ls_wire_item *ls_wire_item_new(const struct ls_wire_event *event)
{
    size_t text = event->text ? strlen(event->text) + 1 : 1;
    struct ls_wire_item *item = malloc(sizeof *item + text + event->n);
    if (!item)
        return NULL;
    *item = (struct ls_wire_item){.event = *event};
    memcpy(item->bytes, event->text ? event->text : "", text);
    if (event->n)
        memcpy(item->bytes + text, event->data, event->n);
    item->event.text = item->bytes;
    item->event.data = item->bytes + text;
    return item;
}

void ls_wire_queue_add(struct ls_wire_queue *queue, struct ls_wire_item *item)
{
    if (queue->tail)
        queue->tail->next = item;
    else
        queue->head = item;
    queue->tail = item;
}

struct ls_wire_item *ls_wire_queue_take(struct ls_wire_queue *queue)
{
    struct ls_wire_item *item = queue->head;
    if (!item)
        return NULL;
    queue->head = item->next;
    if (!queue->head)
        queue->tail = NULL;
    item->next = NULL;
    return item;
}

void ls_wire_queue_free(struct ls_wire_queue *queue)
{
    for (struct ls_wire_item *item; (item = ls_wire_queue_take(queue));)
        free(item);
}

// The next event from either side; fences are passed on underway.
static struct ls_wire_item *next_event(struct ls_wire_server *server,
                                       struct ls_wire_control *control)
{
    struct ls_wire_item *item;
    while (server && (item = ls_wire_server_take(server))) {
        if (!item->fence)
            return item;
        ls_wire_control_contribute(control, item->generation, item->seq, item->event.data,
                                   item->event.n);
        free(item);
    }
    while ((item = ls_wire_control_take(control))) {
        if (!item->fence) {
            if (server && item->event.kind == LS_WIRE_FAILURE)
                ls_wire_server_fail(server);
            return item;
        }
        if (server)
            ls_wire_server_answer(server, item->generation, item->seq, item->event.data,
                                  item->event.n);
        free(item);
    }
    return NULL;
}

bool ls_wire_poll(struct ls_wire_server *server, struct ls_wire_control *control,
                  struct ls_wire_event *event)
{
    struct ls_wire_item *item = next_event(server, control);
    if (!item) {
        ls_wire_control_io(control);
        item = next_event(server, control);
    }
    ls_wire_control_hold(control, item);
    if (item)
        *event = item->event;
    return item != NULL;
}
