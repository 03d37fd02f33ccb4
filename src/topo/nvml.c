/* What NVML says about the machine. */
#include "topo/nvml.h"
#include "topo/nvml_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIGS_PER_GPU = 16 };

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

static void read_nvlink(const struct ls_nvml *nvml, ls_nvml_device handle, struct ls_topo_gpu *gpu)
{
    struct ls_nvml_field_value value = {.field = LS_NVML_FIELD_NVLINK_SPEED};
    unsigned active, links = 0;
    if (!nvml->link_state || !nvml->fields)
        return;
    for (unsigned i = 0; i < LS_NVML_LINKS; i++)
        links += nvml->link_state(handle, i, &active) == LS_NVML_SUCCESS && active == 1;
    /* It says so for each GPU; what the name of the model promised is not there then. */
    gpu->nvlink_gbit = 0;
    if (links > 0 && nvml->fields(handle, 1, &value) == LS_NVML_SUCCESS &&
        value.status == LS_NVML_SUCCESS && value.type == LS_NVML_TYPE_UNSIGNED)
        gpu->nvlink_gbit = (double)links * (double)value.value.u * 8 / 1000;
}

static void read_migs(const struct ls_nvml *nvml, ls_nvml_device handle, int gpu,
                      struct ls_topo_machine *machine)
{
    unsigned current = 0, pending = 0, n = 0;
    ls_nvml_device instance;
    char uuid[96];
    if (!nvml->mig_mode || !nvml->mig_count || !nvml->mig_by_index ||
        nvml->mig_mode(handle, &current, &pending) != LS_NVML_SUCCESS || current != 1)
        return;
    machine->gpu[gpu].mig = true;
    if (nvml->mig_count(handle, &n) != LS_NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < n && i < MIGS_PER_GPU && machine->nmig < LS_TOPO_MIGS; i++) {
        if (nvml->mig_by_index(handle, i, &instance) != LS_NVML_SUCCESS ||
            nvml->uuid(instance, uuid, sizeof uuid) != LS_NVML_SUCCESS)
            continue; /* places for instances may be empty */
        struct ls_topo_mig *mig = &machine->mig[machine->nmig++];
        ls_nvml_copy(mig->uuid, sizeof mig->uuid, uuid);
        mig->gpu = gpu;
    }
}

static void read_gpu(const struct ls_nvml *nvml, ls_nvml_device handle,
                     struct ls_topo_machine *machine)
{
    char bdf[16], text[96];
    unsigned minor;
    struct ls_topo_gpu *gpu = ls_nvml_bdf(nvml, handle, bdf) ? find(machine, bdf) : NULL;
    if (!gpu)
        return;
    if (nvml->uuid(handle, text, sizeof text) == LS_NVML_SUCCESS)
        ls_nvml_copy(gpu->uuid, sizeof gpu->uuid, text);
    if (nvml->name(handle, text, sizeof text) == LS_NVML_SUCCESS)
        ls_nvml_copy(gpu->model, sizeof gpu->model, text);
    if (nvml->minor(handle, &minor) == LS_NVML_SUCCESS && minor < 1024)
        gpu->minor = (int)minor;
    read_nvlink(nvml, handle, gpu);
    read_migs(nvml, handle, (int)(gpu - machine->gpu), machine);
}

static enum ls_status read_all(const struct ls_nvml *nvml, struct ls_topo_machine *machine,
                               struct ls_error *err)
{
    unsigned n = 0;
    LS_TRY(ls_nvml_count(nvml, &n, err));
    machine->nmig = 0;
    for (unsigned i = 0; i < n && i < 2 * LS_TOPO_GPUS; i++) {
        ls_nvml_device handle;
        /* A GPU that fell off the bus answers with an error; the others still count. */
        if (nvml->by_index(i, &handle) == LS_NVML_SUCCESS)
            read_gpu(nvml, handle, machine);
    }
    return LS_OK;
}

enum ls_status ls_topo_nvml_add(const char *library, struct ls_topo_machine *machine,
                                struct ls_error *err)
{
    struct ls_nvml nvml;
    struct ls_topo_machine *result = malloc(sizeof *result);
    if (!result)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a machine");
    *result = *machine;
    enum ls_status status = ls_nvml_open(library, &nvml, err);
    if (status == LS_OK) {
        status = read_all(&nvml, result, err);
        ls_nvml_close(&nvml);
    }
    if (status == LS_OK) {
        *machine = *result;
        ls_topo_classify(machine); /* which NICs are near GPUs */
    }
    free(result);
    return status;
}
