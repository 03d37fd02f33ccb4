/* Pure rules: (machine, Slurm's environment, site file, user's environment, options) -> (binding,
 * variables, reasons, diagnostics). The SPANK plugin, the launcher, `lockstep topo`, `check` and `exec` all
 * call ls_topo_decide, so that they cannot disagree. Defaults set as little as possible; a variable that
 * the user or the site's nccl.conf or ucx.conf has set is left alone, and the decision says so. */
#ifndef LS_TOPO_RULES_H
#define LS_TOPO_RULES_H

#include "topo/machine.h"
#include "topo/topo.h"

enum ls_topo_transport {
    LS_TOPO_AUTO,
    LS_TOPO_IB,
    LS_TOPO_ROCE,
    LS_TOPO_TCP,
    LS_TOPO_SHM,
    LS_TOPO_KEEP /* touch no transport variable */
};
/* Names of the option's values, in the enum's order, NULL at the end. */
extern const char *const ls_topo_transport_names[];

/* What the site declares (lockstep-site.conf(5)): `key = value` lines, '#' comments. */
struct ls_topo_site {
    bool enabled;       /* enabled = yes */
    char interface[16]; /* bootstrap interface; "" */
    char nic[256];      /* compute NICs, "mlx5_0,mlx5_1"; "" = by rule */
    enum { LS_TOPO_FABRIC_UNKNOWN, LS_TOPO_FABRIC_RAIL, LS_TOPO_FABRIC_SINGLE } fabric;
    int traffic_class, service_level; /* -1: not declared */
    int rc_max;                       /* endpoints up to which RC is expected; 256 */
};
/* The site file that the plugin reads, where plugstack.conf names one: for the launcher, which runs below it. */
#define LS_TOPO_SITE_VARIABLE "LOCKSTEP_SITE"
/* Adds what `text` (a whole file) says to *site, which starts as ls_topo_site_default. LS_ERR_FORMAT: line,
 * what was found, what was expected, nearest key; all problems in `problems` (may be NULL). */
extern const struct ls_topo_site ls_topo_site_default;
enum ls_status ls_topo_site_parse(const char *name, const char *text, struct ls_topo_site *site,
                                  struct ls_buf *problems, struct ls_error *err);

/* Keys that nccl.conf or ucx.conf set ("NCCL_IB_HCA", ...), so that they are left alone: the reader of both
 * formats. `names` is a list in `arena`, NULL-terminated. Unreadable lines are skipped, as NCCL does. */
enum ls_status ls_topo_conf_keys(const char *text, struct ls_arena *arena, const char ***names,
                                 struct ls_error *err);

struct ls_topo_request {
    const struct ls_topo_machine *machine;
    ls_topo_getenv *get; /* the environment of the task: Slurm's variables and the user's */
    void *user;
    const struct ls_topo_site *site;  /* NULL: the default */
    const char *const *site_keys;     /* from ls_topo_conf_keys, NULL-terminated; may be NULL */
    enum ls_topo_transport transport; /* option */
    bool bind;                        /* option: choose CPUs */
    int local_rank, local_size;       /* tasks (or workers) of this node */
    int64_t ranks;                    /* of the whole job: endpoints; 0: not known */
    int nodes;                        /* 0: not known */
};
enum ls_topo_level { LS_TOPO_INFO, LS_TOPO_WARN, LS_TOPO_PROBLEM };
struct ls_topo_note {
    enum ls_topo_level level;
    const char *text; /* one line, complete with remedy */
    const char
        *about; /* the user's variable that it judges; "cpus": the task's CPUs; NULL: anything
                          else */
    bool own;   /* of this task and not of its node: said by more than one task of it */
};
struct ls_topo_variable {
    const char *name, *value; /* value NULL: left alone on purpose */
    const char *reason;
};
/* Everything lies in the caller's arena. */
struct ls_topo_decision {
    int ngpu, *gpu; /* indices into machine->gpu for this task: never more than Slurm granted */
    int nnic, *nic; /* compute NICs of this task, nearest first */
    bool bound;
    cpu_set_t cpus;                  /* if bound; a subset of machine->allowed */
    enum ls_topo_transport expected; /* IB, ROCE, TCP, SHM: what the libraries will choose */
    const char *expected_ucx; /* "rc_mlx5", "dc_mlx5", "ud_mlx5", "tcp", ..., and why in a note */
    const char *interface;    /* bootstrap; NULL: none needed */
    struct ls_topo_variable *variable;
    int nvariable;
    struct ls_topo_note *note;
    int nnote;
};
/* Errors: LS_ERR_ENV where nothing sensible can be done (a transport was demanded that is not there; a GPU
 * was granted that does not exist), with remedy; LS_ERR_NOMEM. */
enum ls_status ls_topo_decide(const struct ls_topo_request *request, struct ls_arena *arena,
                              struct ls_topo_decision *decision, struct ls_error *err);

/* Says a decision: devices and CPUs, every variable with its reason, every note; one line at a time, without an
 * end. CPUs that are not bound are machine->allowed. */
typedef void ls_topo_say(void *user, const char *line);
void ls_topo_explain(const struct ls_topo_machine *machine, const struct ls_topo_decision *decision,
                     ls_topo_say *say, void *user);

/* UCX's own choice by its rule of scalable transports: endpoints against MAX_NUM_EPS (RC and TCP 256). */
const char *ls_topo_ucx_transport(const struct ls_topo_machine *machine, int64_t endpoints,
                                  int rc_max);

#endif
