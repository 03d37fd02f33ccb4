/* What NVML says about the health of GPUs. */
#include "topo/nvml.h"
#include "topo/nvml_api.h"

#include <limits.h>
#include <string.h>

/* Functions that put one number, or two, into memory; a missing one knows nothing. */
static int one(int (*get)(ls_nvml_device, unsigned *), ls_nvml_device gpu)
{
    unsigned value = 0;
    return get && get(gpu, &value) == LS_NVML_SUCCESS && value <= INT_MAX ? (int)value : -1;
}

static int64_t one_long(int (*get)(ls_nvml_device, unsigned long long *), ls_nvml_device gpu)
{
    unsigned long long value = 0;
    return get && get(gpu, &value) == LS_NVML_SUCCESS && value <= INT64_MAX ? (int64_t)value : -1;
}

static void ask_mode(const struct ls_nvml *nvml, ls_nvml_device gpu, struct ls_topo_gpu_state *s)
{
    unsigned n = 0;
    s->compute_mode = one(nvml->compute_mode, gpu);
    s->persistence = one(nvml->persistence, gpu);
    s->processes = -1;
    /* Without room for them it tells only how many there are. */
    int status = nvml->processes ? nvml->processes(gpu, &n, NULL) : -1;
    if ((status == LS_NVML_SUCCESS || status == LS_NVML_INSUFFICIENT_SIZE) && n <= INT_MAX)
        s->processes = (int)n;
}

static int64_t ask_ecc_errors(const struct ls_nvml *nvml, ls_nvml_device gpu, int counter)
{
    unsigned long long n = 0;
    if (!nvml->ecc_errors ||
        nvml->ecc_errors(gpu, LS_NVML_UNCORRECTED, counter, &n) != LS_NVML_SUCCESS)
        return -1;
    return n <= INT64_MAX ? (int64_t)n : INT64_MAX;
}

static void ask_ecc(const struct ls_nvml *nvml, ls_nvml_device gpu, struct ls_topo_gpu_state *s)
{
    unsigned current = 0, other = 0, corrected, uncorrected, pending = 0, failed = 0;
    s->ecc = s->rows_pending = s->rows_failed = -1;
    if (nvml->ecc_mode && nvml->ecc_mode(gpu, &current, &other) == LS_NVML_SUCCESS)
        s->ecc = current == 1;
    s->ecc_volatile = ask_ecc_errors(nvml, gpu, LS_NVML_VOLATILE);
    s->ecc_aggregate = ask_ecc_errors(nvml, gpu, LS_NVML_AGGREGATE);
    if (nvml->remapped &&
        nvml->remapped(gpu, &corrected, &uncorrected, &pending, &failed) == LS_NVML_SUCCESS) {
        s->rows_pending = pending != 0;
        s->rows_failed = failed != 0;
    }
    s->pages_pending = one(nvml->retired, gpu);
}

static void ask_clocks(const struct ls_nvml *nvml, ls_nvml_device gpu, struct ls_topo_gpu_state *s)
{
    unsigned degrees = 0;
    s->clock_reasons =
        one_long(nvml->clock_events ? nvml->clock_events : nvml->clock_throttle, gpu);
    s->temperature = s->temperature_slow = -1;
    if (nvml->temperature &&
        nvml->temperature(gpu, LS_NVML_SENSOR_GPU, &degrees) == LS_NVML_SUCCESS && degrees < 1000)
        s->temperature = (int)degrees;
    if (nvml->temperature_limit &&
        nvml->temperature_limit(gpu, LS_NVML_THRESHOLD_SLOWDOWN, &degrees) == LS_NVML_SUCCESS &&
        degrees < 1000)
        s->temperature_slow = (int)degrees;
    s->power_limit = one(nvml->power_limit, gpu);
    s->power_default = one(nvml->power_default, gpu);
    s->pcie_width = one(nvml->pcie_width, gpu);
    s->pcie_width_max = one(nvml->pcie_width_max, gpu);
}

static void add_link_errors(const struct ls_nvml *nvml, ls_nvml_device gpu, unsigned link,
                            struct ls_topo_gpu_state *s)
{
    for (int c = LS_NVML_LINK_REPLAY; nvml->link_errors && c < LS_NVML_LINK_COUNTERS; c++) {
        unsigned long long n = 0;
        if (nvml->link_errors(gpu, link, c, &n) != LS_NVML_SUCCESS || n > UINT32_MAX)
            continue; /* sums of these cannot overflow */
        s->link_errors = (s->link_errors < 0 ? 0 : s->link_errors) + (int64_t)n;
    }
}

static void ask_links(const struct ls_nvml *nvml, ls_nvml_device gpu, struct ls_topo_gpu_state *s)
{
    struct ls_nvml_fabric info = {.version = LS_NVML_FABRIC_V2};
    s->links_active = s->links_inactive = nvml->link_state ? 0 : -1;
    s->link_errors = s->fabric = -1;
    for (unsigned i = 0; nvml->link_state && i < LS_NVML_LINKS; i++) {
        unsigned active = 0;
        if (nvml->link_state(gpu, i, &active) != LS_NVML_SUCCESS)
            continue; /* no such link */
        *(active ? &s->links_active : &s->links_inactive) += 1;
        if (active)
            add_link_errors(nvml, gpu, i, s);
    }
    if (nvml->fabric && nvml->fabric(gpu, &info) == LS_NVML_SUCCESS &&
        info.state != LS_NVML_FABRIC_NONE)
        s->fabric = info.state == LS_NVML_FABRIC_DONE && info.status == LS_NVML_SUCCESS;
}

/* One that does not answer still has its place: which GPU is whose goes by number. */
static void ask(const struct ls_nvml *nvml, unsigned index, struct ls_topo_gpu_state *s)
{
    ls_nvml_device gpu;
    char text[96];
    int status = nvml->by_index(index, &gpu);
    if (status != LS_NVML_SUCCESS) {
        ls_nvml_copy(s->problem, sizeof s->problem, nvml->error_string(status));
        return;
    }
    ls_nvml_bdf(nvml, gpu, s->bdf);
    if (nvml->uuid(gpu, text, sizeof text) == LS_NVML_SUCCESS)
        ls_nvml_copy(s->uuid, sizeof s->uuid, text);
    ask_mode(nvml, gpu, s);
    ask_ecc(nvml, gpu, s);
    ask_clocks(nvml, gpu, s);
    ask_links(nvml, gpu, s);
}

enum ls_status ls_topo_nvml_state(const char *library, struct ls_topo_gpu_state *state, int most,
                                  int *n, struct ls_error *err)
{
    struct ls_nvml nvml;
    unsigned count = 0;
    *n = 0;
    LS_TRY(ls_nvml_open(library, &nvml, err));
    enum ls_status status = ls_nvml_count(&nvml, &count, err);
    for (unsigned i = 0; status == LS_OK && i < count && *n < most; i++) {
        state[*n] = (struct ls_topo_gpu_state){.bdf = ""};
        ask(&nvml, i, &state[(*n)++]);
    }
    ls_nvml_close(&nvml);
    return status;
}
