/* The part of CUDA's driver interface that this room uses, declared by hand after NVIDIA's reference manual of the
 * driver API, so that nothing of CUDA is needed to build or to load; names with a version are stable. Functions
 * have the names of the library, so that a message names what failed. */
#ifndef LS_CHECK_CUDA_API_H
#define LS_CHECK_CUDA_API_H

#include "base/base.h"

enum {
    LS_CUDA_SUCCESS = 0,
    LS_CUDA_OUT_OF_MEMORY = 2,
    LS_CUDA_NO_DEVICE = 100,
    LS_CUDA_NO_COMPILER = 221, /* libnvidia-ptxjitcompiler.so.1 */
    LS_CUDA_NOT_READY = 802,   /* the NVSwitches are not set up */
    LS_CUDA_MISMATCH = 803,    /* of this library and the driver in the kernel */
    LS_CUDA_MULTIPROCESSORS = 16
};

/* Streams, events, modules and memory belong to a context, and go with it. */
struct ls_cuda {
    int (*cuInit)(unsigned flags);
    int (*cuGetErrorString)(int code, const char **text);
    int (*cuDeviceGetCount)(int *n);
    int (*cuDeviceGet)(int *device, int index);
    int (*cuDeviceGetName)(char *name, int size, int device);
    int (*cuDeviceGetUuid_v2)(unsigned char uuid[16], int device); /* of an instance, under MIG */
    int (*cuDeviceGetPCIBusId)(char *bdf, int size, int device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease_v2)(int device);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuMemGetInfo_v2)(size_t *available, size_t *total);
    int (*cuMemAlloc_v2)(uint64_t *memory, size_t bytes);
    int (*cuMemHostAlloc)(void **memory, size_t bytes, unsigned flags);
    int (*cuMemcpyHtoDAsync_v2)(uint64_t to, const void *from, size_t bytes, void *stream);
    int (*cuMemcpyDtoHAsync_v2)(void *to, uint64_t from, size_t bytes, void *stream);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuEventCreate)(void **event, unsigned flags);
    int (*cuEventRecord)(void *event, void *stream);
    int (*cuEventSynchronize)(void *event);
    int (*cuEventElapsedTime)(float *milliseconds, void *begin, void *end);
    int (*cuModuleLoadData)(void **module, const void *text);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                          void *stream, void **parameters, void **extra);
};

/* Loads it, and starts nothing; `library` is a path, or NULL for libcuda.so.1. It is never unloaded: threads of it may
 * run on. LS_ERR_UNSUPPORTED: no such library, or too old. */
enum ls_status ls_cuda_load(const char *library, struct ls_cuda *cuda, struct ls_error *err);

#endif
