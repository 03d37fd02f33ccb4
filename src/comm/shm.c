/* Shared memory of a node: anonymous files (memfd), passed over sockets. They have no name, so that
 * nothing is left behind by a process that is killed, and /dev/shm does not limit them. */
#include "comm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = 2 << 20, PAGE = 4096 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* Reserves address space aligned to huge pages where the file is that large, and maps into it. */
static void *map_aligned(int fd, size_t bytes)
{
    size_t align = bytes >= HUGE ? HUGE : PAGE;
    char *room =
        mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    char *at = (char *)(((uintptr_t)room + align - 1) / align * align);
    if (at > room)
        munmap(room, (size_t)(at - room));
    size_t end = (bytes + PAGE - 1) / PAGE * PAGE;
    size_t rest = (size_t)(room + bytes + align - (at + end)) / PAGE * PAGE;
    if (rest)
        munmap(at + end, rest);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
}

enum ls_status ls_comm_shm_map(int fd, size_t bytes, void **map, struct ls_error *err)
{
    void *p = map_aligned(fd, bytes);
    if (p == MAP_FAILED)
        return ls_error_errno(err, errno, "cannot map %zu bytes of shared memory", bytes);
    *map = p;
    return LS_OK;
}

enum ls_status ls_comm_shm_create(const char *name, size_t bytes, int *fd, void **map,
                                  struct ls_error *err)
{
    int f = memfd_create(name, MFD_CLOEXEC);
    if (f < 0)
        return ls_error_errno(err, errno, "cannot create shared memory (memfd_create)");
    if (ftruncate(f, (off_t)bytes) != 0) {
        ls_error_errno(err, errno, "cannot size shared memory to %zu bytes", bytes);
        close(f);
        return err ? err->status : LS_ERR_IO;
    }
    enum ls_status status = ls_comm_shm_map(f, bytes, map, err);
    if (status != LS_OK)
        close(f);
    else
        *fd = f;
    return status;
}

void ls_comm_shm_unmap(void *map, size_t bytes)
{
    if (map)
        munmap(map, bytes);
}

/* Makes the pages present in this process, so that no collective pays for the first touch. Huge
 * pages are a wish: memory files get them at a touch only where the system says "always", and by
 * MADV_COLLAPSE afterwards where it says "advise". */
static void touch(void *map, size_t bytes)
{
    madvise(map, bytes, MADV_HUGEPAGE);
    if (madvise(map, bytes, MADV_POPULATE_WRITE) != 0)
        /* An atomic add of nothing: the owner may be writing at this moment. */
        for (size_t i = 0; i < bytes; i += PAGE)
            __atomic_fetch_add((char *)map + i, 0, __ATOMIC_RELAXED);
    if (bytes >= HUGE)
        madvise(map, bytes, MADV_COLLAPSE);
}

static struct ls_comm_arena *new_arena(struct ls_comm_world *w, int64_t bytes)
{
    if (!ls_grow(&w->arena, &w->arenas_cap, w->arenas + 1, sizeof *w->arena))
        return NULL;
    struct ls_comm_arena *a = &w->arena[w->arenas];
    a->bytes = bytes;
    a->base = calloc((size_t)w->locals, sizeof *a->base);
    if (!a->base)
        return NULL;
    w->arenas++;
    return a;
}

enum ls_status ls_comm_alloc(struct ls_comm_world *w, int64_t bytes, void **mem,
                             struct ls_error *err)
{
    static const char what[] = "allocation of communicated memory";
    if (bytes <= 0 || bytes > INT64_C(1) << 39)
        return ls_error_set(err, LS_ERR_USAGE, "%s: expected 1 byte to 512 GiB, found %lld", what,
                            (long long)bytes);
    if (w->arenas >= 1 << 20)
        return ls_error_set(err, LS_ERR_USAGE, "%s: too many", what);
    int index = w->arenas;
    struct ls_comm_arena *a = new_arena(w, bytes);
    if (!a)
        return ls_error_set(err, LS_ERR_NOMEM, "%s", what);
    size_t size = (size_t)ls_round_up(bytes, bytes >= HUGE ? HUGE : PAGE);
    uint64_t tag = UINT64_C(0xa11c) << 32 | (uint64_t)index;
    int fd;
    void *map;
    LS_TRY(ls_comm_shm_create("lockstep-arena", size, &fd, &map, err));
    a->base[w->me] = map;
    touch(map, size); /* before the peers, so that the pages lie near the owner's CPU */
    enum ls_status status = LS_OK;
    for (int k = 0; k < w->locals && status == LS_OK; k++)
        if (k != w->me)
            status = ls_comm_socket_send(w, k, tag, (uint64_t)bytes, fd, err);
    close(fd);
    for (int k = 0; k < w->locals && status == LS_OK; k++) {
        if (k == w->me)
            continue;
        status = ls_comm_socket_recv(w, k, tag, (uint64_t)bytes, what, &fd, err);
        if (status != LS_OK)
            break;
        status = ls_comm_shm_map(fd, size, &map, err);
        close(fd);
        if (status == LS_OK) {
            a->base[k] = map;
            touch(map, size);
        }
    }
    if (status == LS_OK)
        *mem = a->base[w->me];
    return status;
}

uint64_t ls_comm_shm_locate(const struct ls_comm_world *w, const void *p, int64_t bytes)
{
    for (int i = 0; i < w->arenas; i++) {
        const char *base = w->arena[i].base[w->me];
        if (base && (const char *)p >= base && (const char *)p - base <= w->arena[i].bytes - bytes)
            return LS_COMM_SHARED | (uint64_t)i << 40 | (uint64_t)((const char *)p - base);
    }
    return 0;
}

char *ls_comm_shm_at(const struct ls_comm_world *w, int local, uint64_t where)
{
    uint64_t offset = where & ((UINT64_C(1) << 40) - 1);
    uint64_t index = (where & ~LS_COMM_SHARED) >> 40;
    return index < (uint64_t)w->arenas ? w->arena[index].base[local] + offset : NULL;
}
