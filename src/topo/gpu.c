/* GPUs: what NVIDIA's kernel driver lists in /proc, and where they are. Nothing here opens a device. */
#include "topo/sysfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of "Name: \t value" in an information file; "" if it is not there. */
static void field(const char *text, const char *name, char *out, size_t size)
{
    const char *at = strstr(text, name);
    out[0] = '\0';
    if (!at || (at != text && at[-1] != '\n'))
        return;
    at += strlen(name);
    at += strspn(at, " \t");
    size_t n = strcspn(at, "\n");
    while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
        n--;
    if (n < size) {
        memcpy(out, at, n);
        out[n] = '\0';
    }
}

/* Bytes per second and direction that NVLink gives one GPU, from NVIDIA's data sheets, for machines where
 * NVML is not asked. Models in the form of a PCI card have no or other links: "PCIe" is left out. */
static double nvlink_of(const char *model)
{
    static const struct {
        const char *part;
        double gbit;
    } known[] = {{"V100-SXM2", 1200}, {"V100-SXM3", 1200}, {"A100-SXM4", 2400},
                 {"A800-SXM4", 1600}, {"H800 SXM", 1600},  {"H100 80GB HBM3", 3600},
                 {"H100 SXM", 3600},  {"H20", 3600},       {"H200", 3600},
                 {"GH200", 3600},     {"B200", 7200},      {"B300", 7200},
                 {"GB200", 7200},     {"GB300", 7200}};
    double gbit = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(model, known[i].part) && !strstr(model, "PCIe") && !strstr(model, "NVL"))
            gbit = known[i].gbit;
    return gbit;
}

static bool has_mig(struct ls_sys *sys, int minor)
{
    if (minor < 0)
        return false;
    int n = ls_sys_list(sys, "proc/driver/nvidia/capabilities/gpu%d/mig", minor);
    for (int i = 0; i < n; i++)
        if (!strncmp(sys->names[i], "gi", 2))
            return true;
    return false;
}

/* False: not a GPU that programs can use. */
static bool read_gpu(struct ls_sys *sys, const char *bdf, struct ls_topo_gpu *gpu)
{
    char text[2048], value[64];
    *gpu = (struct ls_topo_gpu){.minor = -1};
    ls_pci_from_address(sys, bdf, &gpu->pci);
    ls_sys_read(sys, text, sizeof text, "proc/driver/nvidia/gpus/%s/information", bdf);
    field(text, "GPU Excluded:", value, sizeof value);
    if (!strcmp(value, "Yes"))
        return false;
    field(text, "Model:", gpu->model, sizeof gpu->model);
    field(text, "GPU UUID:", gpu->uuid, sizeof gpu->uuid);
    if (strncmp(gpu->uuid, "GPU-", 4) != 0 || strchr(gpu->uuid, '?'))
        gpu->uuid[0] = '\0';
    field(text, "Device Minor:", value, sizeof value);
    if (value[0] >= '0' && value[0] <= '9')
        gpu->minor = (int)(strtol(value, NULL, 10) & 0xffff);
    gpu->mig = has_mig(sys, gpu->minor);
    gpu->open = gpu->minor >= 0 && ls_sys_openable(sys, "dev/nvidia%d", gpu->minor);
    gpu->nvlink_gbit = nvlink_of(gpu->model);
    if (ls_sys_read(sys, value, sizeof value, "sys/bus/pci/devices/%s/iommu_group/type", bdf))
        gpu->translated = !strncmp(value, "DMA", 3);
    return true;
}

static int by_address(const void *a, const void *b)
{
    const struct ls_topo_gpu *x = a, *y = b;
    size_t nx = strlen(x->pci.bdf), ny = strlen(y->pci.bdf);
    return nx != ny ? (nx < ny ? -1 : 1) : strcmp(x->pci.bdf, y->pci.bdf);
}

void ls_topo_read_gpus(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    char text[512];
    char bdf[2 * LS_TOPO_GPUS][16];
    int count = 0, n = ls_sys_list(sys, "proc/driver/nvidia/gpus");
    for (int i = 0; i < n; i++) {
        if (!ls_pci_is_address(sys->names[i], strlen(sys->names[i])))
            continue;
        if (count < 2 * LS_TOPO_GPUS)
            strcpy(bdf[count++], sys->names[i]);
        else
            sys->left_out++;
    }
    for (int i = 0; i < count; i++) {
        struct ls_topo_gpu gpu;
        if (!read_gpu(sys, bdf[i], &gpu))
            continue;
        if (machine->ngpu < LS_TOPO_GPUS)
            machine->gpu[machine->ngpu++] = gpu;
        else
            sys->left_out++;
    }
    qsort(machine->gpu, (size_t)machine->ngpu, sizeof machine->gpu[0], by_address);
    if (machine->ngpu == 0)
        return;
    machine->peermem = ls_sys_exists(sys, "sys/module/nvidia_peermem") ||
                       ls_sys_exists(sys, "sys/module/nv_peer_mem");
    machine->dmabuf = ls_sys_read(sys, text, sizeof text, "proc/driver/nvidia/version") &&
                      strstr(text, "Open Kernel Module");
}
