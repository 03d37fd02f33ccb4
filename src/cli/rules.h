/* What the launcher reads before src/topo's rules can be asked: this machine, the site's file, settings. */
#ifndef LS_CLI_RULES_H
#define LS_CLI_RULES_H

#include "keep/keep.h"
#include "topo/rules.h"

struct ls_cli_rules {
    struct ls_topo_request request;
    struct ls_topo_site site;
    /* told: as the plugin saw it, if it has prepared the step */
    struct ls_topo_machine *machine, *told;
    struct ls_arena arena;
};
/* Fills in `rules`, `told`, `explain` and `bind` (true on entry: the command line allows it) of a keeper whose
 * `workers` are set; `rules` stays NULL where Slurm's plugin has done it all, or the site forbids it. Errors:
 * USAGE, of LOCKSTEP_TRANSPORT, LOCKSTEP_BIND or LOCKSTEP_EXPLAIN; ENV, of the site's file; NOMEM. *rules is to be
 * freed always. */
enum ls_status ls_cli_read_rules(const struct ls_slurm *slurm, struct ls_cli_rules *rules,
                                 struct ls_keep_config *config, struct ls_error *err);
void ls_cli_free_rules(struct ls_cli_rules *rules);
/* Reads the site's file, all of whose problems go into `problems` (may be NULL). `path` NULL: the one that the
 * plugin reads, if it is there. Errors: as ls_file_read, FORMAT. */
enum ls_status ls_cli_read_site(const char *path, struct ls_topo_site *site,
                                struct ls_buf *problems, struct ls_error *err);
/* The environment as the user made it: without what the plugin has set for this step, or for one around it. */
const char *ls_cli_user_variable(void *unused, const char *name);
/* LOCKSTEP_TRANSPORT, where it is set, into *transport; LOCKSTEP_BIND=none makes *bind false. Errors: USAGE. */
enum ls_status ls_cli_read_settings(ls_topo_getenv *get, void *user,
                                    enum ls_topo_transport *transport, bool *bind,
                                    struct ls_error *err);
/* "auto", "ib", ...: false if it is none of them. */
bool ls_cli_find_transport(const char *text, enum ls_topo_transport *transport);

#endif
