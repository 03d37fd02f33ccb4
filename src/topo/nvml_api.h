/* The part of NVML's binary interface that this room uses, declared by hand after NVIDIA's reference manual of
 * the library, so that nothing of CUDA is needed to build; names with a version are stable. */
#ifndef LS_TOPO_NVML_API_H
#define LS_TOPO_NVML_API_H

#include "base/base.h"

typedef void *ls_nvml_device;
struct ls_nvml_pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct ls_nvml_field_value {
    unsigned field, scope;
    long long timestamp, latency;
    int type; /* LS_NVML_TYPE_UNSIGNED and others */
    int status;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};
struct ls_nvml_fabric {
    unsigned version; /* LS_NVML_FABRIC_V2 */
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state; /* LS_NVML_FABRIC_... */
    unsigned health;
};
_Static_assert(sizeof(struct ls_nvml_pci_info) == 68 && sizeof(struct ls_nvml_field_value) == 40 &&
                   sizeof(struct ls_nvml_fabric) == 36,
               "as in the library's binary interface");
enum {
    LS_NVML_SUCCESS = 0,
    LS_NVML_INSUFFICIENT_SIZE = 7,
    LS_NVML_TYPE_UNSIGNED = 1,
    LS_NVML_FIELD_NVLINK_SPEED = 90, /* MB/s, of each link */
    LS_NVML_UNCORRECTED = 1,         /* memory errors */
    LS_NVML_VOLATILE = 0,            /* since the driver was loaded */
    LS_NVML_AGGREGATE = 1,           /* in the life of the GPU */
    LS_NVML_SENSOR_GPU = 0,
    LS_NVML_THRESHOLD_SLOWDOWN = 1,
    LS_NVML_LINK_REPLAY =
        0, /* error counters of a link: 0 to 3 are replay, recovery, CRC of flits and data */
    LS_NVML_LINK_COUNTERS = 4,
    LS_NVML_FABRIC_V2 = 0x02000024,
    LS_NVML_FABRIC_NONE = 0,
    LS_NVML_FABRIC_DONE = 3,
    /* The most of any GPU so far is 18; asking for one too many is answered with an error, which is fine. */
    LS_NVML_LINKS = 36
};

struct ls_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int status);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned index, ls_nvml_device *gpu);
    int (*pci)(ls_nvml_device gpu, struct ls_nvml_pci_info *info);
    int (*uuid)(ls_nvml_device gpu, char *out, unsigned size);
    int (*name)(ls_nvml_device gpu, char *out, unsigned size);
    int (*minor)(ls_nvml_device gpu, unsigned *minor);
    /* All that follow may be missing: MIG came with driver 450, NVLink's fields with 410. */
    int (*mig_mode)(ls_nvml_device gpu, unsigned *current, unsigned *pending);
    int (*mig_count)(ls_nvml_device gpu, unsigned *n);
    int (*mig_by_index)(ls_nvml_device gpu, unsigned index, ls_nvml_device *mig);
    int (*link_state)(ls_nvml_device gpu, unsigned link, unsigned *active);
    int (*link_errors)(ls_nvml_device gpu, unsigned link, int counter, unsigned long long *n);
    int (*fields)(ls_nvml_device gpu, int n, struct ls_nvml_field_value *values);
    int (*fabric)(ls_nvml_device gpu, struct ls_nvml_fabric *info);
    int (*compute_mode)(ls_nvml_device gpu, unsigned *mode);
    int (*persistence)(ls_nvml_device gpu, unsigned *on);
    int (*processes)(ls_nvml_device gpu, unsigned *n, void *infos);
    int (*ecc_mode)(ls_nvml_device gpu, unsigned *current, unsigned *pending);
    int (*ecc_errors)(ls_nvml_device gpu, int kind, int counter, unsigned long long *n);
    int (*remapped)(ls_nvml_device gpu, unsigned *corrected, unsigned *uncorrected,
                    unsigned *pending, unsigned *failed);
    int (*retired)(ls_nvml_device gpu, unsigned *pending);
    int (*clock_events)(ls_nvml_device gpu, unsigned long long *reasons);
    int (*clock_throttle)(ls_nvml_device gpu, unsigned long long *reasons); /* its older name */
    int (*temperature)(ls_nvml_device gpu, int sensor, unsigned *degrees);
    int (*temperature_limit)(ls_nvml_device gpu, int threshold, unsigned *degrees);
    int (*power_limit)(ls_nvml_device gpu, unsigned *milliwatt);
    int (*power_default)(ls_nvml_device gpu, unsigned *milliwatt);
    int (*pcie_width)(ls_nvml_device gpu, unsigned *lanes);
    int (*pcie_width_max)(ls_nvml_device gpu, unsigned *lanes);
};

/* Loads and starts it; `library` is a path, or NULL for libnvidia-ml.so.1. LS_ERR_UNSUPPORTED: no such library,
 * or too old; LS_ERR_ENV: it refuses to work. */
enum ls_status ls_nvml_open(const char *library, struct ls_nvml *nvml, struct ls_error *err);
void ls_nvml_close(struct ls_nvml *nvml);
/* Counts the GPUs, those that do not answer included. LS_ERR_ENV. */
enum ls_status ls_nvml_count(const struct ls_nvml *nvml, unsigned *n, struct ls_error *err);
/* PCI address as in sysfs; false: it does not say. */
bool ls_nvml_bdf(const struct ls_nvml *nvml, ls_nvml_device gpu, char out[static 16]);
/* Text of a foreign library: bounded, printable. */
void ls_nvml_copy(char *out, size_t size, const char *text);

#endif
