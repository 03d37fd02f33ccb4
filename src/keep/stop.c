/* What a signal means after those that came before. Pure, and safe in a signal handler. */
#include "keep/keep.h"

/* A launcher may send one request by several ways: SIGTERM again within so many seconds is the same. */
#define SAME_REQUEST 1.0

enum ls_stop_meaning ls_stop_hear(struct ls_stop *stop, int sig, double now)
{
    bool for_good = stop->sig && stop->sig != SIGUSR1;
    if (stop->sig && sig == SIGUSR1)
        return LS_STOP_KNOWN;
    if (for_good && sig == SIGTERM && now - stop->time < SAME_REQUEST)
        return LS_STOP_KNOWN;
    if (for_good)
        return LS_STOP_AT_ONCE;
    *stop = (struct ls_stop){.sig = sig, .time = now};
    return LS_STOP_WISH;
}
