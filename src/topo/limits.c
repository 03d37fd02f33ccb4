/* Limits of this process and of its node: those of the shell's ulimit, shared memory, memory. */
#include "topo/sysfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { UNLIMITED = -1, UNKNOWN = -2 };

static int64_t of_process(int resource)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return UNKNOWN;
    return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT64_MAX ? UNLIMITED
                                                                         : (int64_t)limit.rlim_cur;
}

/* The soft limit in a line of proc/self/limits. */
static int64_t of_text(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (!at)
        return UNKNOWN;
    at += strlen(name);
    at += strspn(at, " ");
    char *end;
    errno = 0;
    long long value = strtoll(at, &end, 10);
    if (!strncmp(at, "unlimited", 9))
        return UNLIMITED;
    return end == at || errno || value < 0 ? UNKNOWN : value;
}

/* `kib` of "MemTotal:  131072 kB" in bytes */
static int64_t memory_total(struct ls_sys *sys)
{
    char text[512];
    int64_t bytes;
    if (!ls_sys_read(sys, text, sizeof text, "proc/meminfo"))
        return UNKNOWN;
    const char *at = strstr(text, "MemTotal:");
    return at && ls_mul_i64(strtoll(at + 9, NULL, 10), 1024, &bytes) && bytes > 0 ? bytes : UNKNOWN;
}

static void lower(int64_t *limit, int64_t value)
{
    /* Version 1 says "no limit" by a number near the greatest. */
    if (value > 0 && value < INT64_MAX / 2 && (*limit < 0 || value < *limit))
        *limit = value;
}

/* A limit may stand at any level of the tree above this process. `path` is cut. */
static void lower_by_cgroup(struct ls_sys *sys, const char *mount, const char *file, char *path,
                            int64_t *limit)
{
    for (int depth = 0; depth < 32; depth++) {
        lower(limit, ls_sys_number(sys, -1, "sys/fs/cgroup/%s%s/%s", mount, path, file));
        char *slash = strrchr(path, '/');
        if (!slash || !*path)
            return;
        *slash = '\0';
    }
}

static int64_t memory(struct ls_sys *sys)
{
    char text[8192], *save = NULL;
    int64_t limit = memory_total(sys);
    ls_sys_read(sys, text, sizeof text, "proc/self/cgroup");
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *path = strstr(line, ":/");
        if (!path || strstr(path, "..") || strlen(path) > 512)
            continue;
        if (!strncmp(line, "0::", 3))
            lower_by_cgroup(sys, "", "memory.max", path + 1, &limit);
        else if (strstr(line, ":memory:"))
            lower_by_cgroup(sys, "memory", "memory.limit_in_bytes", path + 1, &limit);
    }
    return limit;
}

/* Size of /dev/shm by the mount table: the option size=, otherwise the kernel's half of the memory. */
static int64_t shm_of_mounts(struct ls_sys *sys)
{
    char *text = malloc(65536), *save = NULL;
    int64_t bytes = UNKNOWN, unit = 1;
    if (text && ls_sys_read(sys, text, 65536, "proc/self/mounts"))
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            if (!strstr(line, " /dev/shm tmpfs "))
                continue;
            char *size = strstr(line, "size="), *end;
            if (!size) {
                int64_t total = memory_total(sys);
                bytes = total > 0 ? total / 2 : UNKNOWN;
                continue;
            }
            long long value = strtoll(size + 5, &end, 10);
            unit = *end == 'k' ? 1024 : *end == 'm' ? 1 << 20 : *end == 'g' ? 1 << 30 : 1;
            if (value <= 0 || !ls_mul_i64(value, unit, &bytes))
                bytes = UNKNOWN;
        }
    free(text);
    return bytes;
}

static const struct {
    int resource;
    const char *name;
    size_t offset;
} table[] = {
    {RLIMIT_MEMLOCK, "Max locked memory", offsetof(struct ls_topo_limits, memlock)},
    {RLIMIT_NOFILE, "Max open files", offsetof(struct ls_topo_limits, nofile)},
    {RLIMIT_STACK, "Max stack size", offsetof(struct ls_topo_limits, stack)},
    {RLIMIT_NPROC, "Max processes", offsetof(struct ls_topo_limits, nproc)},
};
enum { TABLE = sizeof table / sizeof *table };

static int64_t *limit_at(struct ls_topo_limits *limits, int i)
{
    return (int64_t *)((char *)limits + table[i].offset);
}

void ls_topo_own_limits(struct ls_topo_limits *limits)
{
    for (int i = 0; i < TABLE; i++)
        *limit_at(limits, i) = of_process(table[i].resource);
}

static void own_shm(struct ls_topo_limits *limits)
{
    struct statvfs shm;
    limits->shm_bytes = limits->shm_free = limits->shm_files = UNKNOWN;
    if (statvfs("/dev/shm", &shm) == 0) {
        limits->shm_bytes = (int64_t)(shm.f_blocks * shm.f_frsize);
        limits->shm_free = (int64_t)(shm.f_bavail * shm.f_frsize);
        if (shm.f_files > 0) /* a file system may count none */
            limits->shm_files = (int64_t)shm.f_favail;
    }
}

void ls_topo_read_limits(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    struct ls_topo_limits *limits = &machine->limits;
    char text[4096] = "";
    limits->memory_bytes = memory(sys);
    if (!*sys->root) {
        ls_topo_own_limits(limits);
        own_shm(limits);
        return;
    }
    ls_sys_read(sys, text, sizeof text, "proc/self/limits");
    for (int i = 0; i < TABLE; i++)
        *limit_at(limits, i) = of_text(text, table[i].name);
    limits->shm_bytes = shm_of_mounts(sys);
    limits->shm_free = limits->shm_files = UNKNOWN;
}
