/* Loads NVML, and asks it what it is asked for everywhere. */
#include "topo/nvml_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
    bool required;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct ls_nvml, init), true},
    {"nvmlShutdown", offsetof(struct ls_nvml, shutdown), true},
    {"nvmlErrorString", offsetof(struct ls_nvml, error_string), true},
    {"nvmlDeviceGetCount_v2", offsetof(struct ls_nvml, count), true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct ls_nvml, by_index), true},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct ls_nvml, pci), true},
    {"nvmlDeviceGetUUID", offsetof(struct ls_nvml, uuid), true},
    {"nvmlDeviceGetName", offsetof(struct ls_nvml, name), true},
    {"nvmlDeviceGetMinorNumber", offsetof(struct ls_nvml, minor), true},
    {"nvmlDeviceGetMigMode", offsetof(struct ls_nvml, mig_mode), false},
    {"nvmlDeviceGetMaxMigDeviceCount", offsetof(struct ls_nvml, mig_count), false},
    {"nvmlDeviceGetMigDeviceHandleByIndex", offsetof(struct ls_nvml, mig_by_index), false},
    {"nvmlDeviceGetNvLinkState", offsetof(struct ls_nvml, link_state), false},
    {"nvmlDeviceGetFieldValues", offsetof(struct ls_nvml, fields), false},
    {"nvmlDeviceGetNvLinkErrorCounter", offsetof(struct ls_nvml, link_errors), false},
    {"nvmlDeviceGetGpuFabricInfoV", offsetof(struct ls_nvml, fabric), false},
    {"nvmlDeviceGetComputeMode", offsetof(struct ls_nvml, compute_mode), false},
    {"nvmlDeviceGetPersistenceMode", offsetof(struct ls_nvml, persistence), false},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct ls_nvml, processes), false},
    {"nvmlDeviceGetEccMode", offsetof(struct ls_nvml, ecc_mode), false},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct ls_nvml, ecc_errors), false},
    {"nvmlDeviceGetRemappedRows", offsetof(struct ls_nvml, remapped), false},
    {"nvmlDeviceGetRetiredPagesPendingStatus", offsetof(struct ls_nvml, retired), false},
    {"nvmlDeviceGetCurrentClocksEventReasons", offsetof(struct ls_nvml, clock_events), false},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct ls_nvml, clock_throttle), false},
    {"nvmlDeviceGetTemperature", offsetof(struct ls_nvml, temperature), false},
    {"nvmlDeviceGetTemperatureThreshold", offsetof(struct ls_nvml, temperature_limit), false},
    {"nvmlDeviceGetEnforcedPowerLimit", offsetof(struct ls_nvml, power_limit), false},
    {"nvmlDeviceGetPowerManagementDefaultLimit", offsetof(struct ls_nvml, power_default), false},
    {"nvmlDeviceGetCurrPcieLinkWidth", offsetof(struct ls_nvml, pcie_width), false},
    {"nvmlDeviceGetMaxPcieLinkWidth", offsetof(struct ls_nvml, pcie_width_max), false},
};

static enum ls_status load(const char *library, struct ls_nvml *nvml, struct ls_error *err)
{
    *nvml = (struct ls_nvml){.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
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

enum ls_status ls_nvml_open(const char *library, struct ls_nvml *nvml, struct ls_error *err)
{
    LS_TRY(load(library ? library : "libnvidia-ml.so.1", nvml, err));
    int code = nvml->init();
    if (code == LS_NVML_SUCCESS)
        return LS_OK;
    enum ls_status status =
        ls_error_set(err, LS_ERR_ENV, "NVML refuses to start: %s", nvml->error_string(code));
    dlclose(nvml->library);
    return status;
}

void ls_nvml_close(struct ls_nvml *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
}

enum ls_status ls_nvml_count(const struct ls_nvml *nvml, unsigned *n, struct ls_error *err)
{
    int code = nvml->count(n);
    if (code == LS_NVML_SUCCESS)
        return LS_OK;
    return ls_error_set(err, LS_ERR_ENV, "NVML does not count GPUs: %s", nvml->error_string(code));
}

bool ls_nvml_bdf(const struct ls_nvml *nvml, ls_nvml_device gpu, char out[static 16])
{
    struct ls_nvml_pci_info info;
    char bdf[32];
    if (nvml->pci(gpu, &info) != LS_NVML_SUCCESS)
        return false;
    snprintf(bdf, sizeof bdf, "%04x:%02x:%02x.0", info.domain, info.bus & 0xff, info.device & 0x1f);
    if (strlen(bdf) >= 16)
        return false;
    strcpy(out, bdf);
    return true;
}

void ls_nvml_copy(char *out, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    out[n] = '\0';
}
