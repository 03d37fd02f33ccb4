/* The parts of src/check: local halves, comparisons, and the checks between nodes. */
#ifndef LS_CHECK_INTERNAL_H
#define LS_CHECK_INTERNAL_H

#include "check/check.h"
#include "check/pairs.h"

/* ---- pack.c: answers on their way ---- */

/* What one task says: lines "R<tab>id<tab>status<tab>device<tab>measured<tab>expected<tab>advice" and
 * "F<tab>id<tab>fact". Trusts nothing: it comes from other nodes, and perhaps other versions. */
void ls_check_pack(struct ls_buf *text, const char *id, enum ls_check_status status,
                   const char *device, const char *measured, const char *expected,
                   const char *advice);
void ls_check_pack_fact(struct ls_buf *text, const char *id, const char *fact);
/* Adds the results of rank `rank`; facts go to facts[index of the check] (copied into the list's arena),
 * unless `facts` is NULL. LS_ERR_FORMAT at the first line that is not understood; what came before
 * stays. */
enum ls_status ls_check_unpack(const char *text, size_t n, int rank, struct ls_check_list *list,
                               const char **facts, struct ls_error *err);

/* ---- compare.c ---- */

/* Has a rank found something already? Then the comparison adds no pass. */
bool ls_check_found(const struct ls_check_list *list, const struct ls_check *check);
/* Of the network interface of a RoCE NIC, in bytes, which the port's own MTU follows; 0: not known. devices.c */
int ls_check_interface_mtu(const struct ls_topo_machine *m, const struct ls_topo_nic *nic);

/* Facts must be equal on all ranks; whoever differs from the majority is named, with the remedy of the row. A rank
 * that skipped the check where others gave a fact differs, too: its skip becomes what a difference is, a failure
 * or only a warning. */
void ls_check_equal_fail(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list);
void ls_check_equal_warn(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list);
/* Like ls_check_equal_fail, but what differs only after the first ": ", the names of the ports, is a warning. */
void ls_check_equal_ports(const struct ls_check *check, const struct ls_check_world *world,
                          struct ls_check_list *list);
/* Likewise of what explains an MTU; but a rank that could not ask for its own stays as it is: skipped. */
void ls_check_equal_mtu(const struct ls_check *check, const struct ls_check_world *world,
                        struct ls_check_list *list);
/* Facts: "named" or "all", what ports the libraries of a task use, by which names. Only the second line must be equal,
 * where any task names its own. choice.c */
void ls_check_same_use(const struct ls_check *check, const struct ls_check_world *world,
                       struct ls_check_list *list);
/* Facts of `key=value` lines: only keys that differ are shown. A difference is a failure. The two differ in what
 * they call a line. */
void ls_check_same_settings(const struct ls_check *check, const struct ls_check_world *world,
                            struct ls_check_list *list);
void ls_check_same_files(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list);
/* A UUID must not be in the facts of two ranks of one node; warns of nodes that have no GPU where others have. */
void ls_check_distinct_gpus(const struct ls_check *check, const struct ls_check_world *world,
                            struct ls_check_list *list);

/* Ranks that skipped the check though others have an answer to compare: their skip becomes that status, with the
 * remedy of the row. Not where another check tells it already. */
void ls_check_blame_skips(const struct ls_check *check, const struct ls_check_world *world,
                          struct ls_check_list *list, enum ls_check_status status,
                          const char *expected);
/* Facts: a line for each GPU, "DEVICE TO FROM ARITHMETIC MODEL", with bytes and operations per second; 0: not
 * measured. Each is compared with the median of its model in the job. gpu_compare.c */
void ls_check_gpu_speeds(const struct ls_check *check, const struct ls_check_world *world,
                         struct ls_check_list *list);
/* Facts: "0-3,8 of 64", the CPUs of a task, and how many the tasks of its node have. limits.c */
void ls_check_shared_cpus(const struct ls_check *check, const struct ls_check_world *world,
                          struct ls_check_list *list);
/* Facts: "subnet ADDRESS/BITS", and ", default route" where the interface holds that. names.c */
void ls_check_same_subnets(const struct ls_check *check, const struct ls_check_world *world,
                           struct ls_check_list *list);
/* Facts: a line of names that a node could not look up, and the family of its own address, "IPv4". names.c */
void ls_check_names_known(const struct ls_check *check, const struct ls_check_world *world,
                          struct ls_check_list *list);
/* Facts: "seen N what", "unseen N why": the file that node N wrote is not to be read; "stale N why": what node N
 * renamed over this node's file is not. files.c */
void ls_check_output_seen(const struct ls_check *check, const struct ls_check_world *world,
                          struct ls_check_list *list);
/* Facts: a line for each other node, its number, a blank, what was seen of it. links.c */
void ls_check_links(const struct ls_check *check, const struct ls_check_world *world,
                    struct ls_check_list *list);
void ls_check_clocks(const struct ls_check *check, const struct ls_check_world *world,
                     struct ls_check_list *list);
void ls_check_pairs(const struct ls_check *check, const struct ls_check_world *world,
                    struct ls_check_list *list);

/* ---- what the children of this task say; children.c ---- */

struct ls_check_children;
/* Forks one child for each local half that applies. */
enum ls_status ls_check_children_open(const struct ls_check_context *context,
                                      struct ls_check_children **children, struct ls_error *err);
/* For poll(2): adds the descriptors to watch; returns their number. */
struct pollfd;
int ls_check_children_fds(const struct ls_check_children *c, struct pollfd *fds);
/* Reads what has come, ends what is late. */
void ls_check_children_poll(struct ls_check_children *c, double now);
/* Seconds until the next deadline; < 0: none, every child has finished the half that runs. */
double ls_check_children_wait(const struct ls_check_children *c, double now);
/* Moves what was said since the last time to the end of `text`. */
void ls_check_children_take(struct ls_check_children *c, struct ls_buf *text);
/* Starts the second half of those that are late, or of the others. */
void ls_check_children_next(struct ls_check_children *c, bool late, double now);
/* Tells those that are left to clean up, and kills what does not. */
void ls_check_children_close(struct ls_check_children *c);

/* ---- frames between this task and the child that meets the others; frame.c ---- */

enum ls_check_frame {
    LS_CHECK_FIRST,  /* to the child: what the first halves said */
    LS_CHECK_SECOND, /* to the child: what the second halves said */
    LS_CHECK_MET,    /* from it: everyone's first halves are done */
    LS_CHECK_DOING, /* from it: the id of what it begins, a blank, in words: "coll.smoke opening UCX" */
    LS_CHECK_MISSING, /* from it: a rank that has not come in time (`timeout`), or for something else (`fail`): "rank
                         status host", newline, in words */
    LS_CHECK_SILENT, /* from it: rank 0 hangs, or cannot say who is missing; this rank may have to speak for it */
    LS_CHECK_SENT, /* from it: no node sends anything more in a check */
    LS_CHECK_EARLY, /* from it, to rank 0, as the next: what was said in first halves, should the end not come */
    LS_CHECK_PEER, /* from it, once for each rank: "rank size node nodes host", newline, answers */
    LS_CHECK_DONE, /* from it: the end; its own results are in those of the peers */
    LS_CHECK_NO_PEERS /* from it: PMIx failed; a result in the form of ls_check_pack */
};
/* LS_CHECK_DOING. */
enum ls_status ls_check_frame_doing(int fd, const char *doing, struct ls_error *err);
/* At most 8 MiB. */
enum ls_status ls_check_frame_send(int fd, enum ls_check_frame kind, const void *data, size_t n,
                                   struct ls_error *err);
/* Blocks for one whole frame; *data is malloc'd, NUL-terminated. LS_ERR_NOTFOUND: closed. */
enum ls_status ls_check_frame_read(int fd, enum ls_check_frame *kind, char **data, size_t *n,
                                   struct ls_error *err);

/* ---- meet.c: the child between the nodes ---- */

/* Runs in a child of its own, speaks frames over `fd`; returns its exit status. */
int ls_check_meet(const struct ls_check_context *context, int fd);

/* ---- ring.c: TCP between nodes; net.port, sys.clock ---- */

struct ls_wire_client;
/* Collective over all tasks; the first of each node connect to each other. Adds results (packed). */
void ls_check_ring(const struct ls_check_context *context, struct ls_wire_client *client,
                   struct ls_buf *out);

/* ---- fabric.c: coll.smoke, net.pair over src/comm ---- */

/* False: something did not work, and `out` says what. */
bool ls_check_fabric(const struct ls_check_context *context, struct ls_wire_client *client, int fd,
                     struct ls_buf *out);

/* ---- local halves ---- */

/* What the rules of src/topo decide for this task, from the environment as the user made it: without what our
 * plugin has set. Errors as ls_topo_decide; LS_ERR_ENV also where the machine could not be read. settings.c */
enum ls_status ls_check_decide(const struct ls_check_context *context, struct ls_arena *arena,
                               struct ls_topo_decision *decision, struct ls_error *err);
/* A variable of that environment; NULL: not set. settings.c */
const char *ls_check_of_user(const struct ls_check_context *context, const char *name);
/* Does a list of NCCL's ("^=mlx5_0:1,mlx5_1") leave it this device or interface? `port` 0: it has none. choice.c */
bool ls_check_nccl_names(const char *list, const char *name, int port);

#define LS_CHECK_LOCAL(name) \
    void ls_check_##name(struct ls_check_out *out, const struct ls_check_context *context)
LS_CHECK_LOCAL(slurm); /* environment.c */
LS_CHECK_LOCAL(machine);
LS_CHECK_LOCAL(settings); /* settings.c */
LS_CHECK_LOCAL(conf);
LS_CHECK_LOCAL(gpu_visible); /* devices.c */
LS_CHECK_LOCAL(gpu_xid);
LS_CHECK_LOCAL(gpu_mode); /* gpus.c */
LS_CHECK_LOCAL(gpu_ecc);
LS_CHECK_LOCAL(gpu_clocks);
LS_CHECK_LOCAL(gpu_nvlink);
LS_CHECK_LOCAL(gpu_bw);  /* gpu_speed.c */
LS_CHECK_LOCAL(pci_acs); /* gpus.c */
LS_CHECK_LOCAL(gdr);
LS_CHECK_LOCAL(ib_port);
LS_CHECK_LOCAL(ib_gid);
LS_CHECK_LOCAL(ib_counters);
LS_CHECK_LOCAL(ib_open);
LS_CHECK_LOCAL(ib_mtu);    /* verbs.c */
LS_CHECK_LOCAL(ib_use);    /* choice.c */
LS_CHECK_LOCAL(interface); /* names.c */
LS_CHECK_LOCAL(names);
LS_CHECK_LOCAL(lockstep_version); /* versions.c */
LS_CHECK_LOCAL(ucx_version);
LS_CHECK_LOCAL(pmix_version);
LS_CHECK_LOCAL(nccl_version);
LS_CHECK_LOCAL(cuda_version);
LS_CHECK_LOCAL(driver_version);
LS_CHECK_LOCAL(verbs_version);
LS_CHECK_LOCAL(ofed_version);
LS_CHECK_LOCAL(firmware_version);
LS_CHECK_LOCAL(kernel_version);
LS_CHECK_LOCAL(program);
LS_CHECK_LOCAL(memlock); /* limits.c */
LS_CHECK_LOCAL(nofile);
LS_CHECK_LOCAL(nproc);
LS_CHECK_LOCAL(stack);
LS_CHECK_LOCAL(shm);
LS_CHECK_LOCAL(cpus);
LS_CHECK_LOCAL(memory);
LS_CHECK_LOCAL(output); /* files.c */
LS_CHECK_LOCAL(data);
LS_CHECK_LOCAL(job); /* plan.c */
LS_CHECK_LOCAL(job_memory);

#endif
