/* Versions, and the bytes of the programs, as facts that must be the same on all nodes. */
#include "check/internal.h"
#include "comm/comm.h"
#include "wire/wire.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#include "config.h"

static bool read_line(const struct ls_check_context *context, const char *path, char *text,
                      int size)
{
    char whole[4200];
    snprintf(whole, sizeof whole, "%s%s", context->root, path);
    FILE *f = fopen(whole, "re");
    char *line = f ? fgets(text, size, f) : NULL;
    if (f)
        fclose(f);
    if (line)
        line[strcspn(line, "\n")] = '\0';
    return line != NULL;
}

void ls_check_lockstep_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    (void)context;
    ls_check_fact(out, "%s", PACKAGE_VERSION);
}

void ls_check_pmix_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    char text[64];
    (void)context;
    ls_check_fact(out, "%s", ls_wire_pmix_version(text));
}

void ls_check_ucx_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    ls_check_fact(out, "%s", ls_comm_ucx_version());
    for (int i = 0; m && m->ucx == LS_TOPO_UCX_NO_IB && i < m->nnic; i++)
        if (m->nic[i].class == LS_TOPO_NIC_COMPUTE) {
            ls_check_say(out, LS_CHECK_WARN, m->nic[i].name, "UCX's module libuct_ib.so",
                         "install a UCX that was built with rdma-core",
                         "UCX will use TCP beside this active port");
            return;
        }
}

/* The library that a program of this node would load; its own function says its version. */
static bool ask_library(const char *name, const char *function, int *version)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int (*get)(int *) = lib ? (int (*)(int *))dlsym(lib, function) : NULL;
    return get && get(version) == 0;
}

void ls_check_nccl_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    (void)context;
    int v = 0;
    if (!ask_library("libnccl.so.2", "ncclGetVersion", &v))
        ls_check_say(out, LS_CHECK_SKIP, "", "", "",
                     "no libnccl.so.2 on the library path; programs may bring their own");
    else /* X.Y.Z: X * 10000 + Y * 100 + Z since 2.9, X * 1000 + Y * 100 + Z before */
        ls_check_fact(out, "%d.%d.%d", v < 10000 ? v / 1000 : v / 10000,
                      v < 10000 ? v / 100 % 10 : v / 100 % 100, v % 100);
}

void ls_check_cuda_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    int v = 0;
    (void)context;
    for (size_t i = 0; i < sizeof names / sizeof *names && v <= 0; i++)
        if (!ask_library(names[i], "cudaRuntimeGetVersion", &v))
            v = 0;
    if (v > 0) /* X * 1000 + Y * 10 */
        ls_check_fact(out, "%d.%d", v / 1000, v % 1000 / 10);
    else
        ls_check_say(out, LS_CHECK_SKIP, "", "", "",
                     "no libcudart.so on the library path; programs may bring their own");
}

void ls_check_driver_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    char text[256];
    if (!read_line(context, "/proc/driver/nvidia/version", text, sizeof text)) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no /proc/driver/nvidia/version");
        return;
    }
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ..." */
    char *at = strstr(text, "Module");
    at = at ? at + strcspn(at, "0123456789") : text;
    at[strcspn(at, " ")] = '\0';
    ls_check_fact(out, "%s", at);
}

/* It has no function that says its version, but the name of its file ends in it. */
void ls_check_verbs_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    char path[PATH_MAX];
    struct link_map *map = NULL;
    (void)context;
    void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lib && dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, path)) {
        const char *slash = strrchr(path, '/');
        ls_check_fact(out, "%s", slash ? slash + 1 : path);
    } else
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no libibverbs.so.1 on the library path");
}

void ls_check_ofed_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    char text[128];
    if (read_line(context, "/sys/module/mlx5_core/version", text, sizeof text))
        ls_check_fact(out, "mlx5_core %s", text);
    else
        ls_check_fact(out, "mlx5_core of the kernel");
}

void ls_check_firmware_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct ls_buf all;
    ls_buf_init(&all, 1 << 16);
    for (int i = 0; i < context->machine->nnic; i++) {
        const struct ls_topo_nic *nic = &context->machine->nic[i];
        char path[128], text[64];
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/fw_ver", nic->name);
        if (nic->class == LS_TOPO_NIC_COMPUTE && read_line(context, path, text, sizeof text))
            ls_buf_printf(&all, "%s%s %s", all.len ? ", " : "", nic->name, text);
    }
    if (all.len)
        ls_check_fact(out, "%s", all.data);
    else
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no compute NIC says its firmware");
    ls_buf_free(&all);
}

void ls_check_kernel_version(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct utsname name;
    (void)context;
    if (uname(&name) == 0)
        ls_check_fact(out, "%s %s, glibc %s", name.sysname, name.release, gnu_get_libc_version());
    else
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "uname says nothing");
}

/* ---- fs.bin ---- */

static bool hash_file(const char *path, uint64_t *hash)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    XXH3_state_t *state = fd >= 0 ? XXH3_createState() : NULL;
    char *buffer = state ? malloc(1 << 20) : NULL;
    ssize_t n = -1;
    if (buffer) {
        XXH3_64bits_reset(state);
        while ((n = read(fd, buffer, 1 << 20)) > 0)
            XXH3_64bits_update(state, buffer, (size_t)n);
        *hash = XXH3_64bits_digest(state);
    }
    free(buffer);
    XXH3_freeState(state);
    if (fd >= 0)
        close(fd);
    return n == 0;
}

/* The folder that a library of this process was found in: another one on one node is another installation. */
static int add_library(struct dl_phdr_info *info, size_t size, void *text)
{
    char folder[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!slash || (size_t)(slash - info->dlpi_name) >= sizeof folder)
        return 0; /* the program itself, or the kernel's own */
    memcpy(folder, info->dlpi_name, (size_t)(slash - info->dlpi_name));
    folder[slash - info->dlpi_name] = '\0';
    ls_buf_printf(text, "\n%s=%s", slash + 1, *folder && realpath(folder, path) ? path : folder);
    return 0;
}

void ls_check_program(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct ls_buf text;
    ls_buf_init(&text, 1 << 16);
    for (int i = 0; context->program[i]; i++) {
        const char *path = context->program[i], *slash = strrchr(path, '/');
        uint64_t hash;
        if (!hash_file(path, &hash)) {
            ls_check_say(out, LS_CHECK_FAIL, "", "a file that can be read",
                         "install it on every node, or on a file system that all nodes share",
                         "%s cannot be read", path);
            ls_buf_free(&text);
            return;
        }
        ls_buf_printf(&text, "%s%s=%016llx", i ? "\n" : "", slash ? slash + 1 : path,
                      (unsigned long long)hash);
    }
    dl_iterate_phdr(add_library, &text);
    ls_check_fact(out, "%s", text.data ? text.data : "");
    ls_buf_free(&text);
}
