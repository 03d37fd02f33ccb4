/* Loads CUDA's driver library. */
#include "check/cuda_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define SYMBOL(name)                          \
    {                                         \
#name, offsetof(struct ls_cuda, name) \
    }
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    SYMBOL(cuInit),
    SYMBOL(cuGetErrorString),
    SYMBOL(cuDeviceGetCount),
    SYMBOL(cuDeviceGet),
    SYMBOL(cuDeviceGetName),
    SYMBOL(cuDeviceGetUuid_v2),
    SYMBOL(cuDeviceGetPCIBusId),
    SYMBOL(cuDeviceGetAttribute),
    SYMBOL(cuDevicePrimaryCtxRetain),
    SYMBOL(cuDevicePrimaryCtxRelease_v2),
    SYMBOL(cuCtxSetCurrent),
    SYMBOL(cuMemGetInfo_v2),
    SYMBOL(cuMemAlloc_v2),
    SYMBOL(cuMemHostAlloc),
    SYMBOL(cuMemcpyHtoDAsync_v2),
    SYMBOL(cuMemcpyDtoHAsync_v2),
    SYMBOL(cuStreamCreate),
    SYMBOL(cuEventCreate),
    SYMBOL(cuEventRecord),
    SYMBOL(cuEventSynchronize),
    SYMBOL(cuEventElapsedTime),
    SYMBOL(cuModuleLoadData),
    SYMBOL(cuModuleGetFunction),
    SYMBOL(cuLaunchKernel),
};

enum ls_status ls_cuda_load(const char *library, struct ls_cuda *cuda, struct ls_error *err)
{
    const char *path = library ? library : "libcuda.so.1";
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    *cuda = (struct ls_cuda){0};
    if (!handle)
        return ls_error_set(err, LS_ERR_UNSUPPORTED, "CUDA's driver library cannot be loaded: %s",
                            dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        /* POSIX lets a function's address be kept in an object's */
        memcpy((char *)cuda + symbols[i].offset, &symbol, sizeof symbol);
        if (!symbol) {
            dlclose(handle);
            return ls_error_set(
                err, LS_ERR_UNSUPPORTED,
                "%s has no %s: found a library that is too old, expected that of driver 470 or "
                "later",
                path, symbols[i].name);
        }
    }
    return LS_OK;
}
