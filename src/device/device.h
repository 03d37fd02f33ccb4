/* The device backend: what a plugin implements and what the rest of the house may ask of it. No
 * vendor types, no models, no files. A backend is a shared object that exports one symbol,
 * `ls_device_entry`; it links only src/base and its vendor libraries and is opened with RTLD_LOCAL.
 *
 *      config --> open --> device -- alloc --> memory that kernels may touch
 *                             |
 *      op description --> prepare --> kernel -- launch(operands) --> runs in order on the device's
 *                                                                     one stream; sync waits
 */
#ifndef LS_DEVICE_H
#define LS_DEVICE_H

#include "base/base.h"
#include "device/op.h"

#define LS_DEVICE_ABI 2
#define LS_OP_MAX_IN  64 /* operands of one op that has a kernel (concat and join may have many) */
#define LS_OP_MAX_OUT 4

struct ls_device; /* of the plugin */
struct ls_kernel; /* of the plugin */

struct ls_device_config {
    int threads;        /* > 0 */
    bool deterministic; /* always true now: the same op on the same shapes gives the same bits */
};

/* What an op looks like to a backend: contiguous row-major operands of the given shapes. */
struct ls_operand {
    enum ls_dtype dtype;
    int ndim;
    int64_t shape[LS_MAX_DIMS];
    bool packed; /* the bytes are what this backend's `pack` made of an operand of that shape */
};
struct ls_op_desc {
    enum ls_kind kind;
    const struct ls_attr *attr;
    int nin, nout;
    const struct ls_operand *in, *out; /* results of state ops share memory with their operand */
};
/* Answer of `pack_size`: bytes of the packed form of operand `operand`, 0 if plain is as good. */

struct ls_device_api {
    uint32_t abi;     /* LS_DEVICE_ABI */
    const char *name; /* "cpu" */
    bool host_memory; /* kernels may read the host's memory where it is */
    /* Vendor libraries with their versions, and what else of this machine decides the bits of an update, on one line:
     * ranks are refused that differ in it. */
    const char *(*version)(void);
    enum ls_status (*open)(const struct ls_device_config *config, struct ls_device **dev,
                           struct ls_error *err);
    void (*close)(struct ls_device *dev);
    const char *(*describe)(struct ls_device *dev); /* "2 threads, AVX-512, oneDNN 2.6.3" */

    /* Zeroed memory, aligned to 64 bytes at least, every page touched once, huge pages where there
     * are some. bytes > 0. */
    enum ls_status (*alloc)(struct ls_device *dev, int64_t bytes, void **mem, struct ls_error *err);
    void (*free)(struct ls_device *dev, void *mem, int64_t bytes);
    /* Copies between host memory and device memory, after all launched work. */
    enum ls_status (*read)(struct ls_device *dev, void *host, const void *mem, int64_t bytes,
                           struct ls_error *err);
    enum ls_status (*write)(struct ls_device *dev, void *mem, const void *host, int64_t bytes,
                            struct ls_error *err);

    /* Layout: bytes that operand `operand` of this op takes in the backend's preferred layout, or 0
     * when plain is as good. The graph's layout pass then adds a pack op and marks the operand. */
    int64_t (*pack_size)(struct ls_device *dev, const struct ls_op_desc *op, int operand);
    /* The kernel that packs `operand` of `op`: launch(kernel, {plain, packed}). */
    enum ls_status (*prepare_pack)(struct ls_device *dev, const struct ls_op_desc *op, int operand,
                                   struct ls_kernel **kernel, struct ls_error *err);

    /* Chooses algorithm and workspace for one op. `workspace` is set to the bytes of scratch that
     * launch needs (0 is common); all kernels share one scratch of the largest size. Errors:
     * UNSUPPORTED names kind and shapes. */
    enum ls_status (*prepare)(struct ls_device *dev, const struct ls_op_desc *op,
                              struct ls_kernel **kernel, int64_t *workspace, struct ls_error *err);
    void (*release)(struct ls_device *dev, struct ls_kernel *kernel);
    /* operands: nin pointers, then nout pointers, to the first element of each. Asynchronous where
     * the device is; errors surface at the latest in sync. */
    enum ls_status (*launch)(struct ls_device *dev, struct ls_kernel *kernel, void *const *operands,
                             void *workspace, struct ls_error *err);
    enum ls_status (*sync)(struct ls_device *dev, struct ls_error *err);
};

/* The one exported symbol of a plugin. */
typedef const struct ls_device_api *ls_device_entry_fn(void);
#define LS_DEVICE_ENTRY "ls_device_entry"

/* ---- loader (loader.c) ---- */

/* Opens `<dir>/lockstep_<name>.so`. The object stays loaded until the process ends (OpenMP threads
 * do not survive dlclose). Errors: ENV, with the linker's reason, and what was looked for. */
enum ls_status ls_device_load(const char *dir, const char *name, const struct ls_device_api **api,
                              struct ls_error *err);

#endif
