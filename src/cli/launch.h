/* What the commands that start ranks share: where am I, signals, a step of one's own. */
#ifndef LS_CLI_LAUNCH_H
#define LS_CLI_LAUNCH_H

#include "base/base.h"
#include "keep/keep.h"
#include "topo/topo.h"

/* Reads Slurm's environment; prints what is strange with it, in task 0. Errors: as ls_slurm_read. */
enum ls_status ls_cli_read_slurm(struct ls_slurm *slurm, struct ls_error *err);
/* The same, without a word. */
enum ls_status ls_cli_ask_slurm(struct ls_slurm *slurm, struct ls_error *err);
/* TMPDIR, or /tmp. */
const char *ls_cli_tmpdir(void);
/* A name of the run for libraries that want one: Slurm's job and step, or this process. */
void ls_cli_name_run(const struct ls_slurm *slurm, char out[static 64]);
/* Routes these signals (0 at the end) into a descriptor for ls_keep_run; -1: errno says why. Once in a
 * process. `slurm` (may be NULL) tells whether Slurm signals more than the keeper. */
int ls_cli_hear_signals(const int *signals, const struct ls_slurm *slurm);
/* Runs a keeper with `config`, which lacks what all have alike (tmpdir, out), and which hears `signals`; `slurm` is
 * for ls_cli_hear_signals. An error is printed, and leaves *code alone. */
enum ls_status ls_cli_keep(struct ls_keep_config config, const int *signals,
                           const struct ls_slurm *slurm, int *code);
/* Are there other tasks of a step that may wait for this one? */
bool ls_cli_others_wait(void);
/* This task cannot start: the others hear why, so that all end at once, and one of them tells. Returns an error,
 * which is why->status unless another task's was heard. */
enum ls_status ls_cli_give_up(const struct ls_error *why, const int *signals);
/* In a step: do its tasks know each other? Otherwise prints what to type, in task 0. */
bool ls_cli_step_has_pmix(const struct ls_slurm *slurm);
/* In an allocation: becomes an srun of `lockstep COMMAND argv[1]...`, one task on every node, and prints the
 * line. Returns an exit code if that fails. */
int ls_cli_start_step(const struct ls_slurm *slurm, const char *command, char *const *argv);

#endif
