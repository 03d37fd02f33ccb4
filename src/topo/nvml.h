/* What only NVML knows of GPUs, for the launcher: never for the Slurm plugins, in whose processes no foreign
 * library belongs. The library is loaded when it is asked, and unloaded again. */
#ifndef LS_TOPO_NVML_H
#define LS_TOPO_NVML_H

#include "topo/machine.h"

/* Adds UUIDs, models, MIG mode and instances, and the rate of NVLink to the GPUs of *machine, matched by PCI
 * address, and adds GPUs that /proc does not list (as in containers without /proc/driver/nvidia), with
 * their place unknown. `library` is a path, or NULL for libnvidia-ml.so.1. LS_ERR_UNSUPPORTED: no such
 * library, or too old; LS_ERR_ENV: it refuses to work, with its own reason. *machine is then as it was. */
enum ls_status ls_topo_nvml_add(const char *library, struct ls_topo_machine *machine,
                                struct ls_error *err);

/* How a GPU is; -1 where it does not say, or the library is too old to ask. */
struct ls_topo_gpu_state {
    char bdf[16], uuid[48];
    char problem[64];                    /* why it does not answer; "" mostly */
    int compute_mode;                    /* LS_TOPO_COMPUTE_... */
    int persistence;                     /* 0, 1 */
    int processes;                       /* that compute on it */
    int ecc;                             /* 0, 1: on */
    int64_t ecc_volatile, ecc_aggregate; /* uncorrected: since the driver was loaded; ever */
    int rows_pending, rows_failed;       /* row remapping: awaits a reset; ran out of rows */
    int pages_pending;                   /* page retirement awaits a reset */
    int64_t clock_reasons;               /* LS_TOPO_CLOCK_... and others */
    int temperature, temperature_slow;   /* degrees Celsius: now; where clocks fall */
    int64_t power_limit, power_default;  /* mW */
    int pcie_width, pcie_width_max;      /* lanes: now; that GPU and slot can */
    int links_active, links_inactive;    /* of NVLink */
    int64_t link_errors;                 /* all links' counters together */
    int fabric; /* 0: registration with NVSwitches is not done, or failed; 1 */
};
enum { /* as NVML numbers them */
       LS_TOPO_COMPUTE_DEFAULT = 0,
       LS_TOPO_COMPUTE_EXCLUSIVE_THREAD = 1,
       LS_TOPO_COMPUTE_PROHIBITED = 2,
       LS_TOPO_COMPUTE_EXCLUSIVE = 3,
       /* What should not hold clocks down; idle, settings and the power cap are no fault. */
       LS_TOPO_CLOCK_HW_SLOWDOWN = 0x08,
       LS_TOPO_CLOCK_SW_THERMAL = 0x20,
       LS_TOPO_CLOCK_HW_THERMAL = 0x40,
       LS_TOPO_CLOCK_POWER_BRAKE = 0x80
};
/* Asks for the state of at most `most` GPUs, in NVML's order (that of PCI addresses). Opens every GPU, which can
 * take seconds, or hang with a broken one. Errors as above. */
enum ls_status ls_topo_nvml_state(const char *library, struct ls_topo_gpu_state *state, int most,
                                  int *n, struct ls_error *err);

#endif
