/* A SPANK handle for tests: Slurm's side of the interface, as strict as the real one. It refuses what
 * Slurm refuses in each process, moves the environment at every change so that a stale pointer is found,
 * and counts what is called. */
#ifndef LS_TEST_FAKE_H
#define LS_TEST_FAKE_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>

struct fake {
    spank_context_t context;
    bool in_init; /* options may be registered */
    char **env;   /* of the job; remote only */
    int nenv;
    uint32_t step, nnodes, node, ntasks, local_ntasks, rank;
    int local;
    bool items; /* false: every item is refused */
    struct spank_option *options[32];
    int noptions;
    char log[65536]; /* every line that the plugin wrote, with "error: " as Slurm would */
    int errors, refused;
};
extern struct fake *fake;

struct fake *fake_new(spank_context_t context);
void fake_free(struct fake *f);
/* "NAME=value" into the job's environment. */
void fake_setenv(struct fake *f, const char *assignment);
const char *fake_getenv(const struct fake *f, const char *name);
/* What Slurm does with "--name=arg": the callback's result; -2 if there is no such option. */
int fake_option(struct fake *f, const char *name, const char *arg);
bool fake_said(const struct fake *f, const char *text);

#endif
