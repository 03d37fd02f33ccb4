/* What a rank does, in words; and where its keeper sees it. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

const char *ls_comm_activity_text(uint32_t activity, uint64_t sequence, const char *group,
                                  char out[static 128])
{
    static const char *const words[] = {"starting",  "in compute",    "in data wait",
                                        "in saving", "in collective", "done"};
    out[0] = '\0';
    if (activity == LS_COMM_COLLECTIVE)
        snprintf(out, 128, "it is in collective %llu of %s%.48s", (unsigned long long)sequence,
                 *group ? "group " : "another group", group);
    else if (activity < sizeof words / sizeof *words)
        snprintf(out, 128, "it is %s", words[activity]);
    return out;
}

/* Groups change seldom; a reader that comes in between sees a mixture of two names. */
void ls_comm_show_collective(const struct ls_comm *c, uint64_t sequence)
{
    struct ls_comm_window *window = c->world->window;
    if (!window)
        return;
    if (strcmp(window->group, c->name) != 0)
        snprintf(window->group, sizeof window->group, "%s", c->name);
    atomic_store_explicit(&window->sequence, sequence, memory_order_relaxed);
}
