/* Asks NVML. Its prototypes are declared here by hand, after NVIDIA's reference manual of the library, so that
 * nothing of CUDA is needed to build; names with a version are stable. */
#include "topo/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *device;
struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    int type; /* TYPE_UNSIGNED and others */
    int status;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};
_Static_assert(sizeof(struct pci_info) == 68 && sizeof(struct field_value) == 40,
               "as in the library's binary interface");
enum { SUCCESS = 0, TYPE_UNSIGNED = 1, NVLINK_SPEED_COMMON = 90 /* MB/s, of each link */ };
/* The most of any GPU so far is 18; asking for one too many is answered with an error, which is fine. */
enum { LINKS = 36, MIGS_PER_GPU = 16 };

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int status);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned index, device *gpu);
    int (*pci)(device gpu, struct pci_info *info);
    int (*uuid)(device gpu, char *out, unsigned size);
    int (*name)(device gpu, char *out, unsigned size);
    int (*minor)(device gpu, unsigned *minor);
    /* These may be missing: MIG came with driver 450, NVLink's fields with 410. */
    int (*mig_mode)(device gpu, unsigned *current, unsigned *pending);
    int (*mig_count)(device gpu, unsigned *n);
    int (*mig_by_index)(device gpu, unsigned index, device *mig);
    int (*link_state)(device gpu, unsigned link, unsigned *active);
    int (*fields)(device gpu, int n, struct field_value *values);
};
static const struct {
    const char *name;
    size_t offset;
    bool required;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), true},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), true},
    {"nvmlErrorString", offsetof(struct nvml, error_string), true},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, count), true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, by_index), true},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci), true},
    {"nvmlDeviceGetUUID", offsetof(struct nvml, uuid), true},
    {"nvmlDeviceGetName", offsetof(struct nvml, name), true},
    {"nvmlDeviceGetMinorNumber", offsetof(struct nvml, minor), true},
    {"nvmlDeviceGetMigMode", offsetof(struct nvml, mig_mode), false},
    {"nvmlDeviceGetMaxMigDeviceCount", offsetof(struct nvml, mig_count), false},
    {"nvmlDeviceGetMigDeviceHandleByIndex", offsetof(struct nvml, mig_by_index), false},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state), false},
    {"nvmlDeviceGetFieldValues", offsetof(struct nvml, fields), false},
};

static enum ls_status load(const char *library, struct nvml *nvml, struct ls_error *err)
{
    *nvml = (struct nvml){.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (!nvml->library)
        return ls_error_set(err, LS_ERR_UNSUPPORTED, "NVML cannot be loaded: %s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(nvml->library, symbols[i].name);
        /* POSIX lets a function's address be kept in an object's */
        memcpy((char *)nvml + symbols[i].offset, &symbol, sizeof symbol);
        if (!symbol && symbols[i].required) {
            dlclose(nvml->library);
            return ls_error_set(
                err, LS_ERR_UNSUPPORTED,
                "%s has no %s: found a library that is too old, expected that of driver "
                "410 or later",
                library, symbols[i].name);
        }
    }
    return LS_OK;
}

/* Text of a foreign library: bounded, printable. */
static void copy(char *out, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = text[i];
    for (size_t i = 0; i < n; i++)
        if (out[i] < ' ' || out[i] > '~')
            out[i] = '?';
    out[n] = '\0';
}

static bool is_before(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    return na != nb ? na < nb : strcmp(a, b) < 0;
}

static struct ls_topo_gpu *find(struct ls_topo_machine *machine, const char *bdf)
{
    for (int g = 0; g < machine->ngpu; g++)
        if (!strcmp(machine->gpu[g].pci.bdf, bdf))
            return &machine->gpu[g];
    if (machine->ngpu == LS_TOPO_GPUS) {
        machine->left_out++;
        return NULL;
    }
    /* In the order of addresses, by which CUDA numbers them. */
    int at = machine->ngpu++;
    for (; at > 0 && is_before(bdf, machine->gpu[at - 1].pci.bdf); at--)
        machine->gpu[at] = machine->gpu[at - 1];
    for (int i = 0; i < machine->nmig; i++)
        machine->mig[i].gpu += machine->mig[i].gpu >= at;
    struct ls_topo_gpu *gpu = &machine->gpu[at];
    /* NVML shows only what can be opened. */
    *gpu = (struct ls_topo_gpu){.pci.numa = -1, .minor = -1, .open = true};
    strcpy(gpu->pci.bdf, bdf);
    return gpu;
}

static void read_nvlink(const struct nvml *nvml, device handle, struct ls_topo_gpu *gpu)
{
    struct field_value value = {.field = NVLINK_SPEED_COMMON};
    unsigned active, links = 0;
    if (!nvml->link_state || !nvml->fields)
        return;
    for (unsigned i = 0; i < LINKS; i++)
        links += nvml->link_state(handle, i, &active) == SUCCESS && active == 1;
    /* It says so for each GPU; what the name of the model promised is not there then. */
    gpu->nvlink_gbit = 0;
    if (links > 0 && nvml->fields(handle, 1, &value) == SUCCESS && value.status == SUCCESS &&
        value.type == TYPE_UNSIGNED)
        gpu->nvlink_gbit = (double)links * (double)value.value.u * 8 / 1000;
}

static void read_migs(const struct nvml *nvml, device handle, int gpu,
                      struct ls_topo_machine *machine)
{
    unsigned current = 0, pending = 0, n = 0;
    device instance;
    char uuid[96];
    if (!nvml->mig_mode || !nvml->mig_count || !nvml->mig_by_index ||
        nvml->mig_mode(handle, &current, &pending) != SUCCESS || current != 1)
        return;
    machine->gpu[gpu].mig = true;
    if (nvml->mig_count(handle, &n) != SUCCESS)
        return;
    for (unsigned i = 0; i < n && i < MIGS_PER_GPU && machine->nmig < LS_TOPO_MIGS; i++) {
        if (nvml->mig_by_index(handle, i, &instance) != SUCCESS ||
            nvml->uuid(instance, uuid, sizeof uuid) != SUCCESS)
            continue; /* places for instances may be empty */
        struct ls_topo_mig *mig = &machine->mig[machine->nmig++];
        copy(mig->uuid, sizeof mig->uuid, uuid);
        mig->gpu = gpu;
    }
}

static void read_gpu(const struct nvml *nvml, device handle, struct ls_topo_machine *machine)
{
    struct pci_info info;
    char bdf[32], text[96];
    unsigned minor;
    if (nvml->pci(handle, &info) != SUCCESS)
        return;
    snprintf(bdf, sizeof bdf, "%04x:%02x:%02x.0", info.domain, info.bus & 0xff, info.device & 0x1f);
    struct ls_topo_gpu *gpu = strlen(bdf) < sizeof gpu->pci.bdf ? find(machine, bdf) : NULL;
    if (!gpu)
        return;
    if (nvml->uuid(handle, text, sizeof text) == SUCCESS)
        copy(gpu->uuid, sizeof gpu->uuid, text);
    if (nvml->name(handle, text, sizeof text) == SUCCESS)
        copy(gpu->model, sizeof gpu->model, text);
    if (nvml->minor(handle, &minor) == SUCCESS && minor < 1024)
        gpu->minor = (int)minor;
    read_nvlink(nvml, handle, gpu);
    read_migs(nvml, handle, (int)(gpu - machine->gpu), machine);
}

static enum ls_status read_all(const struct nvml *nvml, struct ls_topo_machine *machine,
                               struct ls_error *err)
{
    unsigned n = 0;
    int status = nvml->count(&n);
    if (status != SUCCESS)
        return ls_error_set(err, LS_ERR_ENV, "NVML does not count GPUs: %s",
                            nvml->error_string(status));
    machine->nmig = 0;
    for (unsigned i = 0; i < n && i < 2 * LS_TOPO_GPUS; i++) {
        device handle;
        /* A GPU that fell off the bus answers with an error; the others still count. */
        if (nvml->by_index(i, &handle) == SUCCESS)
            read_gpu(nvml, handle, machine);
    }
    return LS_OK;
}

enum ls_status ls_topo_nvml_add(const char *library, struct ls_topo_machine *machine,
                                struct ls_error *err)
{
    struct nvml nvml;
    struct ls_topo_machine *result = malloc(sizeof *result);
    if (!result)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a machine");
    *result = *machine;
    enum ls_status status = load(library ? library : "libnvidia-ml.so.1", &nvml, err);
    if (status == LS_OK) {
        int code = nvml.init();
        if (code != SUCCESS) {
            status =
                ls_error_set(err, LS_ERR_ENV, "NVML refuses to start: %s", nvml.error_string(code));
        } else {
            status = read_all(&nvml, result, err);
            nvml.shutdown();
        }
        dlclose(nvml.library);
    }
    if (status == LS_OK) {
        *machine = *result;
        ls_topo_classify(machine); /* which NICs are near GPUs */
    }
    free(result);
    return status;
}
