/* What the files of ls_topo_decide share: the request taken apart, and how notes and variables are added.
 *
 *   ls_topo_decide (decide.c)
 *     -> place.c      GPUs, NICs and CPUs of the task
 *     -> transport.c  what the libraries will choose; bootstrap interface
 *     -> variables.c  the policy table: what is set, and why the rest is left alone
 *     -> advice.c     diagnostics of machine, limits and the user's own variables */
#ifndef LS_TOPO_DECIDE_H
#define LS_TOPO_DECIDE_H

#include "topo/internal.h"
#include "topo/rules.h"

enum { LS_TOPO_VARIABLES = 64, LS_TOPO_NOTES = 96 };

struct ls_decide {
    const struct ls_topo_request *request;
    const struct ls_topo_machine *machine;
    const struct ls_topo_site *site;
    struct ls_arena *arena;
    struct ls_topo_decision *decision;
    struct ls_error *err;
    bool failed;       /* no memory: said once, at the end */
    const char *about; /* of the notes that follow, static */
    bool own;          /* notes are of this task from here on, and not of its node */

    /* place.c */
    bool own_mask;                   /* Slurm gave the task CPUs of its own already */
    int cpus_on_node, cpus_per_task; /* Slurm's; 0: not said */
    int granted;                     /* GPUs that Slurm granted; -1: nothing said */
    /* The GPUs of all tasks of the node as each of them can work out alike; local rank r has number
     * r * share. 0: not known. */
    int ncommon, share, common[LS_TOPO_GPUS];

    /* transport.c */
    bool compute[LS_TOPO_NICS];
    int ncompute;
    enum ls_topo_link link; /* of the compute NICs */
    bool several_nodes;     /* or not known to be one */
    const char *interface_why;
    bool name_interface; /* NCCL's own choice would not do */
};

/* The value of a variable: NULL if unset, or set and empty. */
const char *ls_decide_get(const struct ls_decide *c, const char *name);
/* A number from 0 to 2^31 - 1 in a variable; -1: unset or no number. */
int ls_decide_number(const struct ls_decide *c, const char *name);
void ls_decide_note(struct ls_decide *c, enum ls_topo_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *ls_decide_text(struct ls_decide *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

enum ls_status ls_decide_gpus(struct ls_decide *c);
enum ls_status ls_decide_transport(struct ls_decide *c);
void ls_decide_nics(struct ls_decide *c); /* after the transport */
void ls_decide_cpus(struct ls_decide *c);
void ls_decide_variables(struct ls_decide *c);
void ls_decide_advice(struct ls_decide *c);

/* Would NCCL take this port of its own accord? */
bool ls_decide_nccl_takes(const struct ls_topo_nic *nic, const struct ls_topo_port *port);
/* Is this port one of the compute ports that were chosen? */
bool ls_decide_is_compute(const struct ls_decide *c, int nic, int port);
/* Is `name` an entry of the list "a,b,c"? */
bool ls_decide_in_list(const char *list, const char *name);

#endif
