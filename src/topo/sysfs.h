/* How this room reads sysfs and /proc: small bounded reads below a root prefix, with a budget of calls, so
 * that no tree, however large or hostile, can hold up the process that looks at it. */
#ifndef LS_TOPO_SYSFS_H
#define LS_TOPO_SYSFS_H

#include "topo/machine.h"

#include <sys/types.h>

enum {
    LS_SYS_CALLS =
        20000, /* files, links and directories read for one machine; 16 GPUs need some 2000 */
    LS_SYS_NAME = 64,   /* longest name of an entry, with its NUL */
    LS_SYS_NAMES = 1024 /* entries of a directory that are looked at */
};
/* What was looked at, for whoever wants to store it: see tree.h. */
enum ls_sys_kind { LS_SYS_FILE, LS_SYS_LINK, LS_SYS_DIR, LS_SYS_NODE };
typedef void ls_sys_record(void *user, enum ls_sys_kind kind, const char *path, const char *text);
struct ls_sys {
    const char *root; /* "" is this machine */
    const int *dev;   /* descriptor of its dev, where its path may lead elsewhere by now; NULL */
    int left;         /* calls */
    int left_out;     /* devices that found no room */
    char (*names)[LS_SYS_NAME]; /* [LS_SYS_NAMES], room for ls_sys_list */
    ls_sys_record *record;      /* NULL mostly; `path` is below the root */
    void *user;
};

/* All paths are below the root and begin with "sys/", "proc/" or "dev/".
 * Whole file up to size - 1 bytes: printable text without blanks at its end, NUL-terminated; bytes that are
 * no text become '?'. False, and "", if it is not there, no regular file, or the budget is spent. */
bool ls_sys_read(struct ls_sys *sys, char *out, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The first number of a file, otherwise `otherwise`. */
int64_t ls_sys_number(struct ls_sys *sys, int64_t otherwise, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Target of a link; false, and "", if it is none or longer than size - 1. */
bool ls_sys_link(struct ls_sys *sys, char *out, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool ls_sys_exists(struct ls_sys *sys, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* May this process open it for reading and writing? The kernel also asks the device cgroup here, and nothing
 * is opened: opening the node of a GPU can take seconds. */
bool ls_sys_openable(struct ls_sys *sys, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Names in a directory, into sys->names, as people sort them (mlx5_2 before mlx5_10); returns their number. */
int ls_sys_list(struct ls_sys *sys, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* pci.c: is this "0000:3b:00.0"? */
bool ls_pci_is_address(const char *text, size_t n);
/* Reads a PCI device from the text of a link into sys/devices (false: no PCI device in it), or by address. */
bool ls_pci_from_link(struct ls_sys *sys, const char *link, struct ls_topo_pci *pci);
bool ls_pci_from_address(struct ls_sys *sys, const char *bdf, struct ls_topo_pci *pci);

/* ls_topo_read is this, with nobody recording. */
enum ls_status ls_topo_read_recorded(const char *root, struct ls_topo_machine *machine,
                                     ls_sys_record *record, void *user, struct ls_error *err);

/* One file each. */
void ls_topo_read_cpus(struct ls_sys *sys, struct ls_topo_machine *machine);
void ls_topo_read_gpus(struct ls_sys *sys, struct ls_topo_machine *machine);
void ls_topo_read_nics(struct ls_sys *sys, struct ls_topo_machine *machine);
void ls_topo_read_ifaces(struct ls_sys *sys, struct ls_topo_machine *machine);
void ls_topo_open_gpus(struct ls_sys *sys, struct ls_topo_machine *machine);
void ls_topo_open_nics(struct ls_sys *sys, struct ls_topo_machine *machine);
/* Of this process: memlock, nofile, stack, nproc. */
void ls_topo_own_limits(struct ls_topo_limits *limits);
void ls_topo_read_limits(struct ls_sys *sys, struct ls_topo_machine *machine);

#endif
