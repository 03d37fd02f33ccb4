/* Clocks, among them the age of this process. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ls_time_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double ls_time_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

double ls_time_since_exec(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f)
        return -1;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *p = strrchr(text, ')'); /* the command name may hold anything, even spaces and ')' */
    if (!p)
        return -1;
    /* Field 22 is the start time in clock ticks since boot; field 3 follows the name. */
    for (int field = 2; field < 22 && p; field++)
        p = strchr(p + 1, ' ');
    long ticks = sysconf(_SC_CLK_TCK);
    if (!p || ticks <= 0)
        return -1;
    return read_clock(CLOCK_BOOTTIME) - strtod(p, NULL) / (double)ticks;
}
