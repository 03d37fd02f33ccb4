/* Stores a machine: exactly what reading it looked at, less what identifies it. A path that no line of the
 * table allows is left out, so that a new file cannot give something away by accident. */
#include "topo/sysfs.h"
#include "topo/tree.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAND_INS = 1024, ORIGINAL = 48, SEEN = 65536 };
_Static_assert((int)SEEN > 2 * (int)LS_SYS_CALLS, "the table of paths has room");

struct save {
    struct ls_buf *out;
    struct ls_buf part; /* filtered text of one file */
    char (*original)[ORIGINAL];
    int originals;
    uint64_t *seen; /* [SEEN] hashes of paths, open addressing: some are looked at more than once */
};

/* The number, from 1, of a thing that is not to be named. */
static int stand_in(struct save *s, const char *text, size_t n)
{
    n = n < ORIGINAL ? n : ORIGINAL - 1;
    for (int i = 0; i < s->originals; i++)
        if (strlen(s->original[i]) == n && !strncmp(s->original[i], text, n))
            return i + 1;
    if (s->originals == STAND_INS)
        return STAND_INS;
    memcpy(s->original[s->originals], text, n);
    s->original[s->originals][n] = '\0';
    return ++s->originals;
}

/* ---- filters of whole files ---- */

typedef void filter(struct save *s, const char *text);

static void as_is(struct save *s, const char *text)
{
    ls_buf_printf(&s->part, "%s", text);
}

/* Lines that begin with one of the names. */
static void lines_of(struct save *s, const char *text, const char *const *names)
{
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        for (const char *const *name = names; *name; name++)
            if (!strncmp(at, *name, strlen(*name)))
                ls_buf_printf(&s->part, "%.*s\n", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

static void information(struct save *s, const char *text)
{
    static const char *const names[] = {
        "Model:", "GPU UUID:", "Bus Location:", "Device Minor:", "GPU Excluded:", NULL};
    lines_of(s, text, names);
}

static void status(struct save *s, const char *text)
{
    static const char *const names[] = {"Cpus_allowed_list:", NULL};
    lines_of(s, text, names);
}

static void limits(struct save *s, const char *text)
{
    static const char *const names[] = {"Max locked memory", "Max open files", "Max stack size",
                                        "Max processes", NULL};
    lines_of(s, text, names);
}

static void meminfo(struct save *s, const char *text)
{
    static const char *const names[] = {"MemTotal:", NULL};
    lines_of(s, text, names);
}

static void uevent(struct save *s, const char *text)
{
    static const char *const names[] = {"DEVTYPE=", NULL};
    lines_of(s, text, names);
}

static void mounts(struct save *s, const char *text)
{
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        const char *shm = strstr(at, " /dev/shm tmpfs "), *size = strstr(at, "size=");
        if (shm && shm < at + n) {
            bool sized = size && size < at + n;
            ls_buf_printf(&s->part, "tmpfs /dev/shm tmpfs rw%s%.*s 0 0\n", sized ? "," : "",
                          sized ? (int)strcspn(size, ", \n") : 0, sized ? size : "");
        }
        at += n + (at[n] == '\n');
    }
}

static void cpuinfo(struct save *s, const char *text)
{
    const char *flags = strstr(text, "\nflags"),
               *guest = flags ? strstr(flags, " hypervisor") : NULL;
    bool is = guest && guest < flags + 1 + strcspn(flags + 1, "\n");
    ls_buf_printf(&s->part, "processor\t: 0\nflags\t\t: fpu%s\n", is ? " hypervisor" : "");
}

static void product(struct save *s, const char *text)
{
    bool guest = strstr(text, "Virtual Machine") || strstr(text, "KVM");
    ls_buf_printf(&s->part, "%s\n", guest ? "KVM Virtual Machine" : "Server");
}

static void driver_version(struct save *s, const char *text)
{
    ls_buf_printf(&s->part, "NVRM version: NVIDIA UNIX %s\n",
                  strstr(text, "Open Kernel Module") ? "Open Kernel Module" : "Kernel Module");
}

/* Keeps what rules look at: family, link-local or not, and which are equal. */
static void gid(struct save *s, const char *text)
{
    struct in6_addr a;
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, zero[16];
    if (inet_pton(AF_INET6, text, &a) != 1)
        return;
    uint8_t *b = a.s6_addr;
    bool local4 = b[12] == 169 && b[13] == 254, four = !memcmp(b, mapped, 12);
    bool local6 = b[0] == 0xfe && (b[1] & 0xc0) == 0x80;
    if (!memcmp(b, zero, 16) || (local6 && !memcmp(b + 8, zero, 8))) {
        as_is(s, text);
        return;
    }
    int n = stand_in(s, text, strlen(text));
    if (four) {
        b[12] = local4 ? 169 : 10;
        b[13] = local4 ? 254 : 0;
    } else {
        memset(b, 0, 16);
        memcpy(b, local6 ? "\xfe\x80\0" : "\x20\x01\x0d\xb8", local6 ? 2 : 4);
    }
    b[14] = (uint8_t)(n >> 8);
    b[15] = (uint8_t)n;
    for (int i = 0; i < 16; i += 2)
        ls_buf_printf(&s->part, "%s%02x%02x", i ? ":" : "", b[i], b[i + 1]);
}

/* Destinations and gateways become numbers; whether they are the default stays. */
static void route(struct save *s, const char *text)
{
    ls_buf_printf(&s->part, "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n");
    for (const char *at = text; *at;) {
        char name[16];
        unsigned destination, flags, mask;
        long metric;
        if (sscanf(at, "%15s %8x %*s %4x %*s %*s %9ld %8x", name, &destination, &flags, &metric,
                   &mask) == 5)
            ls_buf_printf(&s->part, "%s\t%08X\t00000000\t%04X\t0\t0\t%ld\t%08X\n", name,
                          destination || mask ? 10U : 0U, flags, metric, mask);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
}

static void route6(struct save *s, const char *text)
{
    for (const char *at = text; *at;) {
        char name[16], destination[33];
        unsigned prefix, flags;
        if (sscanf(at, "%32s %2x %*s %*s %*s %*s %*s %*s %8x %15s", destination, &prefix, &flags,
                   name) == 4 &&
            prefix == 0)
            ls_buf_printf(&s->part, "%032d 00 %032d 00 %032d 00000400 00000001 00000000 %08x %s\n",
                          0, 0, 0, flags, name);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
}

static void addresses6(struct save *s, const char *text)
{
    for (const char *at = text; *at;) {
        char name[16];
        unsigned scope;
        if (sscanf(at, "%*s %*s %*s %2x %*s %15s", &scope, name) == 2)
            ls_buf_printf(&s->part, "%032d 01 40 %02x 80 %s\n", 0, scope, name);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
}

/* '*' stands for any characters but '/' */
static bool matches(const char *pattern, const char *path)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            size_t n = strcspn(path, "/");
            for (size_t i = 0; i <= n; i++)
                if (matches(pattern + 1, path + i))
                    return true;
            return false;
        }
        if (*pattern != *path++)
            return false;
    }
    return !*path;
}

/* What proc/self/cgroup leads to is stored in another form: see add_memory. */
static const struct {
    const char *pattern;
    filter *filter;
} files[] = {
    {"sys/devices/system/cpu/online", as_is},
    {"sys/devices/system/cpu/cpu*/topology/thread_siblings_list", as_is},
    {"sys/devices/system/node/online", as_is},
    {"sys/devices/system/node/node*/cpulist", as_is},
    {"sys/bus/pci/devices/*/numa_node", as_is},
    {"sys/bus/pci/devices/*/local_cpulist", as_is},
    {"sys/bus/pci/devices/*/iommu_group/type", as_is},
    {"sys/class/dmi/id/product_name", product},
    {"sys/class/infiniband/*/ports/*/state", as_is},
    {"sys/class/infiniband/*/ports/*/phys_state", as_is},
    {"sys/class/infiniband/*/ports/*/link_layer", as_is},
    {"sys/class/infiniband/*/ports/*/rate", as_is},
    {"sys/class/infiniband/*/ports/*/lid", as_is},
    {"sys/class/infiniband/*/ports/*/sm_lid", as_is},
    {"sys/class/infiniband/*/ports/*/gids/*", gid},
    {"sys/class/infiniband/*/ports/*/gid_attrs/types/*", as_is},
    {"sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*", as_is},
    {"sys/class/infiniband_verbs/*/ibdev", as_is},
    {"sys/class/net/*/type", as_is},
    {"sys/class/net/*/operstate", as_is},
    {"sys/class/net/*/flags", as_is},
    {"sys/class/net/*/mtu", as_is},
    {"sys/class/net/*/speed", as_is},
    {"sys/class/net/*/uevent", uevent},
    {"proc/cpuinfo", cpuinfo},
    {"proc/meminfo", meminfo},
    {"proc/net/route", route},
    {"proc/net/ipv6_route", route6},
    {"proc/net/if_inet6", addresses6},
    {"proc/self/limits", limits},
    {"proc/self/mounts", mounts},
    {"proc/self/status", status},
    {"proc/driver/nvidia/version", driver_version},
    {"proc/driver/nvidia/gpus/*/information", information},
};
static const char *const links[] = {"sys/bus/pci/devices/*", "sys/class/infiniband/*",
                                    "sys/class/net/*"};
static const char *const dirs[] = {"sys/class/infiniband/*/device/net/*",
                                   "proc/driver/nvidia/capabilities/gpu*/mig/gi*",
                                   "sys/module/nvidia_peermem", "sys/module/nv_peer_mem"};

/* ---- recording ---- */

static void add_file(struct save *s, const char *path)
{
    const char *text = s->part.data ? s->part.data : "";
    size_t n = s->part.len;
    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n == 0)
        return;
    if (!memchr(text, '\n', n)) {
        ls_buf_printf(s->out, "%s = %.*s\n", path, (int)n, text);
        return;
    }
    ls_buf_printf(s->out, "%s =\n", path);
    for (const char *at = text; at < text + n;) {
        size_t len = strcspn(at, "\n");
        ls_buf_printf(s->out, "| %.*s\n", (int)len, at);
        at += len + 1;
    }
}

static bool is_new(struct save *s, enum ls_sys_kind kind, const char *path)
{
    uint64_t hash = ls_mix64(ls_hash64(path), (uint64_t)kind) | 1;
    for (size_t i = 0; i < SEEN; i++) {
        uint64_t *slot = &s->seen[(hash + i) % SEEN];
        if (*slot == hash)
            return false;
        if (!*slot) {
            *slot = hash;
            return true;
        }
    }
    return false; /* full: directories with more entries than are ever looked at */
}

static bool is_in(const char *const *patterns, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (matches(patterns[i], path))
            return true;
    return false;
}

static void keep(void *user, enum ls_sys_kind kind, const char *path, const char *text)
{
    struct save *s = user;
    if (!is_new(s, kind, path))
        return;
    /* The driver's name is all that is wanted of its link, whose way depends on where the device is. */
    if (kind == LS_SYS_LINK && matches("sys/class/infiniband/*/device/driver", path)) {
        const char *base = strrchr(text, '/') ? strrchr(text, '/') + 1 : text;
        ls_buf_printf(s->out, "%s -> ../drivers/%s\n", path, base);
    } else if (kind == LS_SYS_LINK && is_in(links, sizeof links / sizeof *links, path)) {
        ls_buf_printf(s->out, "%s -> %s\n", path, text);
    } else if (kind == LS_SYS_DIR && is_in(dirs, sizeof dirs / sizeof *dirs, path)) {
        ls_buf_printf(s->out, "%s/\n", path);
    } else if (kind == LS_SYS_NODE) {
        ls_buf_printf(s->out, "%s =\n", path);
    } else if (kind == LS_SYS_FILE) {
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (matches(files[i].pattern, path)) {
                s->part.len = 0;
                files[i].filter(s, text);
                add_file(s, path);
            }
    }
}

/* The limit that the cgroups come to, without their names, in which jobs and users are. */
static void add_memory(struct save *s, const struct ls_topo_machine *machine)
{
    if (machine->limits.memory_bytes <= 0)
        return;
    ls_buf_printf(s->out, "proc/self/cgroup = 0::/job\nsys/fs/cgroup/job/memory.max = %lld\n",
                  (long long)machine->limits.memory_bytes);
}

/* ---- what identifies, wherever it stands: UUIDs, and hardware addresses in names of interfaces ---- */

static size_t hex_run(const char *text)
{
    size_t n = 0;
    while (isxdigit((unsigned char)text[n]))
        n++;
    return n;
}

/* 8-4-4-4-12 */
static bool is_uuid(const char *text)
{
    static const int parts[] = {8, 4, 4, 4, 12};
    for (int i = 0; i < 5; i++) {
        if (hex_run(text) != (size_t)parts[i] || (i < 4 && text[parts[i]] != '-'))
            return false;
        text += parts[i] + (i < 4);
    }
    return true;
}

static void hide(struct save *s, struct ls_buf *to, const char *text)
{
    for (const char *at = text; *at;) {
        size_t run = hex_run(at);
        if (is_uuid(at)) {
            ls_buf_printf(to, "00000000-0000-0000-0000-%012d", stand_in(s, at, 36));
            at += 36;
        } else if ((run == 12 || run == 16) && at > text && at[-1] == 'x') {
            ls_buf_printf(to, "%0*d", (int)run, stand_in(s, at, run));
            at += run;
        } else {
            size_t n = run ? run : 1;
            ls_buf_add(to, at, n);
            at += n;
        }
    }
}

enum ls_status ls_topo_tree_save(const char *root, struct ls_buf *text, struct ls_error *err)
{
    struct ls_buf raw;
    struct save s = {
        .out = &raw, .original = calloc(STAND_INS, ORIGINAL), .seen = calloc(SEEN, sizeof *s.seen)};
    struct ls_topo_machine *machine = malloc(sizeof *machine);
    ls_buf_init(&raw, LS_TREE_MAX);
    ls_buf_init(&s.part, 1 << 20);
    enum ls_status status = LS_ERR_NOMEM;
    if (machine && s.original && s.seen)
        status = ls_topo_read_recorded(root, machine, keep, &s, err);
    if (status == LS_OK) {
        add_memory(&s, machine);
        ls_buf_printf(text, "lockstep-tree 1\n");
        hide(&s, text, raw.data ? raw.data : "");
    }
    if (raw.failed || s.part.failed || text->failed)
        status = LS_ERR_NOMEM;
    if (status == LS_ERR_NOMEM)
        ls_error_set(err, LS_ERR_NOMEM, "no memory to store the machine");
    free(machine);
    free(s.original);
    free(s.seen);
    ls_buf_free(&raw);
    ls_buf_free(&s.part);
    return status;
}
