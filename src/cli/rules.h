/* What the launcher reads before src/topo's rules can be asked: this machine, the site's file, settings. */
#ifndef LS_CLI_RULES_H
#define LS_CLI_RULES_H

#include "keep/keep.h"
#include "topo/rules.h"

struct ls_cli_rules {
    struct ls_topo_request request;
    struct ls_topo_site site;
    struct ls_topo_machine *machine;
    struct ls_arena arena;
};
/* Fills in `rules`, `rules_told` and `bind` (true on entry: the command line allows it) of a keeper whose
 * `workers` are set; `rules` stays NULL where Slurm's plugin has done it all, or the site forbids it. Errors:
 * USAGE, of LOCKSTEP_TRANSPORT or LOCKSTEP_BIND; ENV, of the site's file; NOMEM. *rules is to be freed always. */
enum ls_status ls_cli_read_rules(const struct ls_slurm *slurm, struct ls_cli_rules *rules,
                                 struct ls_keep_config *config, struct ls_error *err);
void ls_cli_free_rules(struct ls_cli_rules *rules);
/* Reads the site's file, all of whose problems go into `problems` (may be NULL). `path` NULL: the one that the
 * plugin reads, if it is there. Errors: as ls_file_read, FORMAT. */
enum ls_status ls_cli_read_site(const char *path, struct ls_topo_site *site,
                                struct ls_buf *problems, struct ls_error *err);
/* "auto", "ib", ...: false if it is none of them. */
bool ls_cli_find_transport(const char *text, enum ls_topo_transport *transport);

#endif
