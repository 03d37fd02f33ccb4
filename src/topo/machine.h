/* The machine as data, second half: GPUs, NICs, interfaces, CPUs and limits of one node, read from sysfs
 * and /proc under a root prefix (so that a stored tree is a machine, too), and what follows from them.
 * This half is what the Slurm plugins use: libc only, no thread, no fork, no dlopen, no name lookup, no
 * file outside <root>/sys, <root>/proc, <root>/dev; every list is bounded, so time and memory are.
 * Everything about GPUs that only NVML knows is added by the launcher (nvml.h). */
#ifndef LS_TOPO_MACHINE_H
#define LS_TOPO_MACHINE_H

#include "base/base.h"

#include <sched.h>

enum {
    LS_TOPO_GPUS = 32, /* per node */
    LS_TOPO_MIGS = 7 * LS_TOPO_GPUS,
    LS_TOPO_NICS = 64, /* verbs devices */
    LS_TOPO_PORTS = 4, /* per verbs device */
    LS_TOPO_GIDS = 16, /* per port that are kept; empty entries are not */
    LS_TOPO_IFACES = 128,
    LS_TOPO_BRIDGES = 12 /* PCI bridges above a device */
};

/* A PCI address, "0000:3b:00.0", and the chain of bridges above the device, root first. */
struct ls_topo_pci {
    char bdf[16]; /* "" if not a PCI device */
    int depth;
    char above[LS_TOPO_BRIDGES][16];
    int numa;       /* -1: not known, as in many virtual machines; never taken for node 0 */
    cpu_set_t cpus; /* local_cpulist; empty: not known */
};

/* How far two devices are apart, in NCCL's words (the names are stable, the numbers are not). */
enum ls_topo_distance {
    LS_TOPO_SAME, /* the same device */
    LS_TOPO_PIX,  /* one PCI switch */
    LS_TOPO_PXB,  /* several PCI switches, but no host bridge */
    LS_TOPO_PHB,  /* the host bridge, or the same NUMA node */
    LS_TOPO_SYS,  /* the link between sockets */
    LS_TOPO_UNKNOWN
};

struct ls_topo_gpu {
    struct ls_topo_pci pci;
    char uuid[48];      /* "GPU-..."; "" where /proc does not say */
    char model[64];     /* "" likewise */
    int minor;          /* of /dev/nvidiaN; -1 */
    bool mig;           /* /proc lists MIG instances, or NVML said so */
    bool open;          /* the device node can be opened here (cgroup) */
    bool translated;    /* its DMA goes through the IOMMU (type of its group is DMA or DMA-FQ) */
    double nvlink_gbit; /* per second and direction, all links together; 0: none, or not known */
};
/* A MIG instance and the GPU that it is a part of; only NVML knows these. */
struct ls_topo_mig {
    char uuid[48]; /* "MIG-..." */
    int gpu;
};

enum ls_topo_link { LS_TOPO_LINK_OTHER, LS_TOPO_LINK_IB, LS_TOPO_LINK_ETHERNET };
struct ls_topo_gid {
    int index, version; /* version: of RoCE, 1 or 2; 0: InfiniBand, or not said */
    uint8_t raw[16];
    char netdev[16];
};
struct ls_topo_port {
    int number;
    bool active, up; /* state ACTIVE; phys_state LinkUp */
    enum ls_topo_link link;
    double gbit; /* per second */
    int lid, sm_lid;
    int ngid;
    struct ls_topo_gid gid[LS_TOPO_GIDS];
};
/* What a NIC is for. */
enum ls_topo_nic_class {
    LS_TOPO_NIC_COMPUTE,
    LS_TOPO_NIC_STORAGE, /* slower, of another link layer or farther than the compute NICs, or has the default route */
    LS_TOPO_NIC_PHANTOM, /* RoCE without a network interface */
    LS_TOPO_NIC_DOWN,    /* no active port */
    LS_TOPO_NIC_CLOSED   /* its device node cannot be opened here */
};
struct ls_topo_nic {
    char name[32];   /* verbs device, "mlx5_0" */
    char driver[24]; /* of the PCI device, "mlx5_core"; "" if not said */
    struct ls_topo_pci pci;
    int nport;
    struct ls_topo_port port[LS_TOPO_PORTS];
    char netdev[16]; /* "" if none */
    int uverbs;      /* of /dev/infiniband/uverbsN; -1 */
    bool open;
    enum ls_topo_nic_class class; /* by ls_topo_classify */
    const char *why;              /* in words, static */
};

enum ls_topo_iface_class {
    LS_TOPO_IFACE_ETHERNET,
    LS_TOPO_IFACE_IPOIB,
    LS_TOPO_IFACE_BOND,
    LS_TOPO_IFACE_LOOPBACK,
    LS_TOPO_IFACE_VIRTUAL /* bridge, veth, tunnel, container and management links: never for ranks */
};
struct ls_topo_iface {
    char name[16];
    bool up;
    enum ls_topo_iface_class class;
    int64_t mbit; /* -1: not known */
    int mtu;
    bool default_route; /* /proc/net/route, ipv6_route */
    bool ipv4, ipv6;    /* has an address; of IPv6: a global one */
    struct ls_topo_pci pci;
};

struct ls_topo_limits {
    /* bytes or counts; -1: unlimited; -2: not known */
    int64_t memlock, nofile, stack, nproc;
    int64_t shm_bytes, shm_free; /* of /dev/shm */
    int64_t memory_bytes;        /* smaller of the machine's and the cgroup's */
    int64_t shm_files;           /* that can still be made in /dev/shm */
};

/* Has UCX its InfiniBand module? Plugins and stored machines do not know; see ls_topo_host_ucx. */
enum ls_topo_ucx { LS_TOPO_UCX_UNKNOWN, LS_TOPO_UCX_NO_IB, LS_TOPO_UCX_IB };

struct ls_topo_machine {
    int ncpu; /* online */
    int nnuma;
    cpu_set_t allowed; /* of this process; of a stored tree: what its proc/self/status lists */
    int16_t core
        [CPU_SETSIZE]; /* lowest CPU of the physical core that a CPU belongs to; -1: no such CPU */
    struct ls_topo_gpu gpu[LS_TOPO_GPUS]; /* in PCI order */
    int ngpu;
    struct ls_topo_mig mig[LS_TOPO_MIGS];
    int nmig;
    bool peermem,
        dmabuf; /* GPUDirect RDMA: nvidia_peermem is loaded; the open kernel modules are */
    struct ls_topo_nic nic[LS_TOPO_NICS];
    int nnic;
    struct ls_topo_iface iface[LS_TOPO_IFACES];
    int niface;
    struct ls_topo_limits limits;
    bool virtual_machine;
    enum ls_topo_ucx ucx; /* set by the launcher */
    int left_out;         /* devices beyond the bounds above: said in a diagnostic */
};

/* Reads the machine. `root` is "" for this one. What is missing is empty, not an error; LS_ERR_IO only if
 * not even <root>/sys and <root>/proc are there. *machine is large (some hundred KiB): allocate it. */
enum ls_status ls_topo_read(const char *root, struct ls_topo_machine *machine,
                            struct ls_error *err);
/* Looks again at what belongs to a process and not to the node: which devices it may open (its cgroup), its
 * CPUs, and its limits of memlock, nofile, stack and nproc. For a process that inherits a machine which another one
 * has read, as Slurm's tasks do. `dev` is a descriptor of the node's /dev, opened when that was read: the path may
 * lead into another mount namespace by now. CPUs and limits are always the caller's. */
void ls_topo_refresh(int dev, struct ls_topo_machine *machine);
/* Pure. GPU g against NIC n, or two PCI chains. */
enum ls_topo_distance ls_topo_distance(const struct ls_topo_pci *a, const struct ls_topo_pci *b);
const char *ls_topo_distance_name(enum ls_topo_distance d);
/* Sets class and why of every NIC. Called by ls_topo_read; again after tests change something. */
void ls_topo_classify(struct ls_topo_machine *machine);
/* Physical cores that a set of CPUs touches. */
int ls_topo_cores(const struct ls_topo_machine *machine, const cpu_set_t *cpus);
/* Reads "0-3,8" (numbers from CPU_SETSIZE on are left out); false, and an empty set, if not understood. */
bool ls_topo_parse_cpus(const char *text, cpu_set_t *cpus);
/* "0-3,8", with "..." at the end where it does not fit; returns `out`. */
const char *ls_topo_format_cpus(const cpu_set_t *cpus, char out[static 128]);
/* The GID that RoCE traffic should use: version 2, routable, IPv4 before IPv6; index, or -1. */
int ls_topo_choose_gid(const struct ls_topo_port *port);
/* Why RoCE traffic cannot use this GID, in words; NULL: it can. */
const char *ls_topo_gid_fault(const struct ls_topo_gid *gid);

#endif
