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

static const char allocation[] = "allocation of communicated memory";

static enum ls_status new_arena(struct ls_comm_world *w, int64_t bytes,
                                struct ls_comm_arena **arena, struct ls_error *err)
{
    if (bytes <= 0 || bytes > INT64_C(1) << 39)
        return ls_error_set(err, LS_ERR_USAGE, "%s: expected 1 byte to 512 GiB, found %lld",
                            allocation, (long long)bytes);
    if (w->arenas >= 1 << 20)
        return ls_error_set(err, LS_ERR_USAGE, "%s: too many", allocation);
    if (!ls_grow(&w->arena, &w->arenas_cap, w->arenas + 1, sizeof *w->arena))
        return ls_error_set(err, LS_ERR_NOMEM, "%s", allocation);
    struct ls_comm_arena *a = &w->arena[w->arenas];
    *a =
        (struct ls_comm_arena){.bytes = bytes, .tag = UINT64_C(0xa11c) << 32 | (uint64_t)w->arenas};
    a->base = calloc((size_t)w->locals, sizeof *a->base);
    if (!a->base)
        return ls_error_set(err, LS_ERR_NOMEM, "%s", allocation);
    w->arenas++;
    *arena = a;
    return LS_OK;
}

static size_t arena_size(const struct ls_comm_arena *a)
{
    return (size_t)ls_round_up(a->bytes, a->bytes >= HUGE ? HUGE : PAGE);
}

/* Creates this rank's part, touched before the peers do, so that the pages lie near its CPU, and passes
 * it to them. */
static enum ls_status give(struct ls_comm_world *w, struct ls_comm_arena *a, struct ls_error *err)
{
    int fd;
    void *map;
    LS_TRY(ls_comm_shm_create("lockstep-arena", arena_size(a), &fd, &map, err));
    a->base[w->me] = map;
    touch(map, arena_size(a));
    enum ls_status status = LS_OK;
    for (int k = 0; k < w->locals && status == LS_OK; k++)
        if (k != w->me)
            status = ls_comm_socket_send(w, k, a->tag, (uint64_t)a->bytes, fd, err);
    close(fd);
    return status;
}

static enum ls_status take(struct ls_comm_world *w, struct ls_comm_arena *a, int local,
                           struct ls_error *err)
{
    int fd;
    void *map;
    LS_TRY(ls_comm_socket_recv(w, local, a->tag, (uint64_t)a->bytes, allocation, &fd, err));
    enum ls_status status = ls_comm_shm_map(fd, arena_size(a), &map, err);
    close(fd);
    if (status == LS_OK) {
        a->base[local] = map;
        touch(map, arena_size(a));
    }
    return status;
}

enum ls_status ls_comm_alloc(struct ls_comm_world *w, int64_t bytes, void **mem,
                             struct ls_error *err)
{
    struct ls_comm_arena *a;
    LS_TRY(new_arena(w, bytes, &a, err));
    LS_TRY(give(w, a, err));
    for (int k = 0; k < w->locals; k++)
        if (k != w->me)
            LS_TRY(take(w, a, k, err));
    *mem = a->base[w->me];
    return LS_OK;
}

enum ls_status ls_comm_alloc_common(struct ls_comm_world *w, int64_t bytes, void **mem,
                                    struct ls_error *err)
{
    if (!w->near)
        return ls_comm_alloc(w, bytes, mem, err);
    struct ls_comm_arena *a;
    LS_TRY(new_arena(w, bytes, &a, err));
    LS_TRY(w->me == 0 ? give(w, a, err) : take(w, a, 0, err));
    for (int k = 1; k < w->locals; k++)
        a->base[k] = a->base[0];
    *mem = a->base[0];
    return LS_OK;
}

void ls_comm_shm_close(struct ls_comm_world *w)
{
    for (int i = 0; i < w->arenas; i++) {
        struct ls_comm_arena *a = &w->arena[i];
        for (int k = 0; k < w->locals; k++)
            if (k == 0 || a->base[k] != a->base[0])
                ls_comm_shm_unmap(a->base[k], arena_size(a));
        free(a->base);
    }
    free(w->arena);
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
