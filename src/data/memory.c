/* Big anonymous memory and quiet threads. */
#include "data/internal.h"

#include <signal.h>
#include <sys/mman.h>

#define PAGE ((int64_t)4096)

/* Anonymous mmap instead of malloc: read(2) fills it with no copy in between, the kernel zeroes it,
 * and it goes back to the system on unmap. Small pages on purpose. Huge ones do not speed the feed
 * up (a sample is read at once, so a TLB miss is one of many waits in a row), and they are rarely
 * pages that another process has just freed: in a virtual machine a first touch can then cost
 * 3 ms/MiB (measured: 47 MB read in 15 to 17 ms on small pages, in 14 to 166 ms on huge ones). */
uint8_t *ls_data_map(int64_t bytes)
{
    int64_t most;
    if (bytes <= 0 || !ls_add_i64(bytes, PAGE, &most))
        return NULL;
    void *memory = mmap(NULL, (size_t)ls_round_up(bytes, PAGE), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ls_data_unmap(void *memory, int64_t bytes)
{
    if (memory)
        munmap(memory, (size_t)ls_round_up(bytes, PAGE));
}

int ls_data_thread(pthread_t *thread, const char *name, const cpu_set_t *cpus, void *(*run)(void *),
                   void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (bad == 0)
        pthread_setname_np(*thread, name);
    if (bad == 0 && cpus)
        pthread_setaffinity_np(*thread, sizeof *cpus,
                               cpus); /* a wish: where refused, as the caller */
    return bad;
}
