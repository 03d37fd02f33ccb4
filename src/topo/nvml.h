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

#endif
