/* What a rank does, seen from its keeper: a page of memory that the two share, and the state of its process. So
 * somebody can tell even where the rank itself stands still. */
#include "keep/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum ls_status ls_keep_open_window(struct ls_worker *w, struct ls_error *err)
{
    void *map = MAP_FAILED;
    w->window_fd = memfd_create("lockstep-window", MFD_CLOEXEC);
    if (w->window_fd >= 0 && ftruncate(w->window_fd, sizeof *w->window) == 0)
        map = mmap(NULL, sizeof *w->window, PROT_READ | PROT_WRITE, MAP_SHARED, w->window_fd, 0);
    if (map == MAP_FAILED)
        return ls_error_errno(err, errno, "memory to watch rank %d", w->rank);
    w->window = map;
    return LS_OK;
}

void ls_keep_close_window(struct ls_worker *w)
{
    if (w->window)
        munmap(w->window, sizeof *w->window);
    w->window = NULL;
}

/* The letter of /proc/PID/stat: "1 (name) S parent ..."; 0: not known. */
static char process_state(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *close = strrchr(text, ')');
    return close && close[1] == ' ' ? close[2] : 0;
}

void ls_keep_describe_rank(const struct ls_worker *w, char out[static 200])
{
    static const struct {
        char state;
        const char *text;
    } odd[] = {{'T', "its process is stopped (SIGSTOP)"},
               {'t', "its process is held by a debugger"},
               {'D', "its process waits for a disk or a file server"},
               {'Z', "its process is ending"},
               {'X', "its process has ended"}};
    char does[128] = "";
    const struct ls_comm_window *window = w->window;
    const char *more = "";
    char state = w->pid > 0 ? process_state(w->pid) : 'X';
    if (window)
        ls_comm_activity_text(atomic_load(&window->activity), atomic_load(&window->sequence),
                              window->group, does);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if (odd[i].state == state)
            more = odd[i].text;
    snprintf(out, 200, "%.120s%s%s", does, *does && *more ? "\n" : "", more);
    if (!*out)
        snprintf(out, 200, "its process runs");
}
