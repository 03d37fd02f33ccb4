/* What the files of this plugin share. spank_lockstep.c knows Slurm's entry points; submit.c is what
 * happens in srun, sbatch and salloc, remote.c and limits.c in slurmstepd, slurmd.c in slurmd. args.c reads
 * plugstack.conf, options.c the command line. Every decision about GPUs, NICs and variables is
 * ls_topo_decide's.
 *
 * One rule above all: nothing here can take a node out of service. Slurm drains a node when a hook of
 * slurmstepd fails, all but task_init; so what goes wrong is remembered in `err`, and task_init says it. */
#ifndef LS_SPANK_PLUGIN_H
#define LS_SPANK_PLUGIN_H

#include "base/base.h"
#include "topo/rules.h"

#include <slurm/spank.h>
#include <stdint.h>
#include <sys/resource.h>

/* ---- plugstack.conf ---- */

enum ls_spank_limit_kind {
    LS_SPANK_KEEP,      /* as Slurm made it */
    LS_SPANK_HARD,      /* the soft limit up to the hard one */
    LS_SPANK_UNLIMITED, /* both */
    LS_SPANK_AT_LEAST   /* raised to `value` where it is lower */
};
struct ls_spank_limit {
    enum ls_spank_limit_kind kind;
    rlim_t value;
};

/* Options that take one word of a few; their values are indices into these lists, NULL at the end. */
enum { LS_SPANK_NO, LS_SPANK_YES };
enum { LS_SPANK_BIND_AUTO, LS_SPANK_BIND_NONE };
enum { LS_SPANK_CHECK_OFF, LS_SPANK_CHECK_FAST, LS_SPANK_CHECK_FULL };
extern const char *const ls_spank_switch_words[], *const ls_spank_bind_words[],
                                                      *const ls_spank_check_words[];
/* Index of `text` in `words`, or -1 after LS_ERR_USAGE with what was expected. */
int ls_spank_word(const char *text, const char *const *words, struct ls_error *err);

struct ls_spank_args {
    int enabled;         /* LS_SPANK_YES */
    int transport, bind; /* the site's choice where a user makes none */
    int check;           /* likewise */
    char site[1024];     /* the site file */
    bool site_given;     /* then it must be there */
    char root[1024];     /* prefix of /sys and /proc; "": this machine */
    struct ls_spank_limit memlock, nofile;
};
extern const struct ls_spank_args ls_spank_args_default;
/* Adds `argc` words "key=value". LS_ERR_USAGE: the word, what was expected, the nearest key. */
enum ls_status ls_spank_args_parse(int argc, char **argv, struct ls_spank_args *args,
                                   struct ls_error *err);

/* ---- options and their twins in the environment ---- */

enum ls_spank_option {
    LS_SPANK_GPUS,
    LS_SPANK_TRANSPORT,
    LS_SPANK_BIND,
    LS_SPANK_CHECK,
    LS_SPANK_EXPLAIN,
    LS_SPANK_PLUGIN,
    LS_SPANK_OPTIONS
};

struct ls_spank_choice {
    int calls; /* of the callback: Slurm hands over the environment's form first, then the command line */
    char text[96];
    int word; /* for those that take one */
};

struct ls_spank {
    bool remote;
    bool loaded; /* plugstack.conf was read, without error */
    struct ls_spank_args args;
    struct ls_spank_choice option[LS_SPANK_OPTIONS];
    struct spank_option slurm_option[LS_SPANK_OPTIONS]; /* what Slurm has pointers to */
    unsigned twins;      /* by bit: variables that ls_spank_twins_set has made */
    bool inherited;      /* --lockstep-gpus came with the job around this srun */
    bool in_job;         /* srun inside an allocation */
    struct ls_error err; /* the first failure; message "" if there is none */
    /* In slurmstepd, read before any task: */
    struct ls_topo_machine *machine;
    int dev; /* descriptor of its /dev; -1: none */
    struct ls_topo_site site;
    struct ls_arena arena;
    const char **site_keys;
};
extern struct ls_spank ls_spank_self;

/* Registers every option. Only from slurm_spank_init, in every process that has options. */
void ls_spank_options_register(spank_t sp);
/* Reads `text` as a value of that option; false, with *err, if it is none. */
bool ls_spank_option_read(enum ls_spank_option which, const char *text,
                          struct ls_spank_choice *choice, struct ls_error *err);
/* LOCKSTEP_GPUS and the others become what Slurm reads before the command line; and away again, so that
 * the job does not take it for an option of its own. Both only in srun, sbatch and salloc. */
void ls_spank_twins_set(struct ls_spank *self);
void ls_spank_twins_unset(struct ls_spank *self);
/* Options of the job around sbatch or salloc, which Slurm hands on for steps, are not those of the new job. */
void ls_spank_outer_unset(void);
/* Was --lockstep-gpus given to the job around this process? `get` reads its environment. */
bool ls_spank_gpus_inherited(ls_topo_getenv *get, void *user);
const char *ls_spank_twin(enum ls_spank_option which);
/* The word of an option: the user's, else the site's. */
int ls_spank_chosen(const struct ls_spank *self, enum ls_spank_option which);
/* The switches of plugstack.conf, site file and user: off anywhere is off. */
bool ls_spank_on(const struct ls_spank *self);

/* Reads plugstack.conf's arguments into *self. */
void ls_spank_load(struct ls_spank *self, int argc, char **argv);
/* Reads the site file into self->site; a missing one is an error only if plugstack.conf names it. */
enum ls_status ls_spank_read_site(struct ls_spank *self, struct ls_error *err);

/* ---- one file per process ---- */

int ls_spank_submit_init(struct ls_spank *self, spank_t sp);
int ls_spank_submit_post_opt(struct ls_spank *self);
void ls_spank_remote_init(struct ls_spank *self, spank_t sp);
void ls_spank_remote_post_opt(struct ls_spank *self, spank_t sp);
/* limits.c: raises what plugstack.conf says, so that it holds when the program starts. */
void ls_spank_remote_limits(struct ls_spank *self, spank_t sp);
/* Replaces soft limits, which are those of this process, by those that Slurm will set before the program starts. */
void ls_spank_foresee_limits(spank_t sp, struct ls_topo_limits *limits);
int ls_spank_remote_task(struct ls_spank *self, spank_t sp);
void ls_spank_slurmd_init(struct ls_spank *self);
void ls_spank_free(struct ls_spank *self);

#endif
