/* Slurm against the other witnesses: PMIx, and the CPUs that the kernel grants. */
#include "topo/internal.h"

#include <stdio.h>
#include <string.h>

/* Is `word` (or word_v4 and the like) in the text as a word of its own? */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++)
        if ((at == text || strchr(" \t\n,:", at[-1])) && (!at[n] || strchr(" \t\n,:_", at[n])))
            return true;
    return false;
}

/* The kinds of `srun --mpi=list`: the words on lines behind the headings, separated by commas. */
static void list_kinds(const char *mpi_list, char out[static 160])
{
    size_t n = 0;
    out[0] = '\0';
    while (*mpi_list) {
        size_t line = strcspn(mpi_list, "\n"), skip = 0;
        /* A heading ("MPI plugin types are...", "specific pmix plugin versions available: ..."), which
         * older versions put "srun: " in front of, has more than one word. */
        while (skip < line && strchr(" \t", mpi_list[skip]))
            skip++;
        if (line - skip > 6 && !strncmp(mpi_list + skip, "srun: ", 6))
            skip += 6;
        size_t word = strcspn(mpi_list + skip, " \t\n");
        if (word && skip + word == line && n + word + 3 < 160)
            n += (size_t)sprintf(out + n, "%s%.*s", n ? ", " : "", (int)word, mpi_list + skip);
        mpi_list += line + (mpi_list[line] == '\n');
    }
}

static enum ls_status forgotten(const struct ls_slurm *slurm, const char *mpi_list,
                                struct ls_error *err)
{
    char kinds[160];
    if (slurm->mpi_type && !strncmp(slurm->mpi_type, "pmix", 4))
        return ls_error_set(
            err, LS_ERR_ENV,
            "Slurm started %d tasks with --mpi=%.40s, but PMIx says 1: each would "
            "train alone; the PMIX_ variables are unset, or LD_LIBRARY_PATH leads to "
            "another libpmix than Slurm's: try 'unset LD_LIBRARY_PATH' before srun",
            slurm->ntasks, slurm->mpi_type);
    if (!mpi_list || has_word(mpi_list, "pmix"))
        return ls_error_set(
            err, LS_ERR_ENV,
            "Slurm started %d tasks, but PMIx says 1: each would train alone, since "
            "srun was called %s%.40s; type: srun --mpi=pmix lockstep run JOB.cfg",
            slurm->ntasks, slurm->mpi_type ? "with --mpi=" : "without --mpi=pmix",
            slurm->mpi_type ? slurm->mpi_type : "");
    list_kinds(mpi_list, kinds);
    return ls_error_set(
        err, LS_ERR_ENV,
        "Slurm started %d tasks, but PMIx says 1: each would train alone, and this "
        "site's srun has no pmix, only: %s (srun --mpi=list); ask the administrators "
        "for Slurm's mpi/pmix plugin (build Slurm with --with-pmix)",
        slurm->ntasks, kinds[0] ? kinds : "nothing");
}

enum ls_status ls_slurm_check_pmix(const struct ls_slurm *slurm, const struct ls_pmix_view *pmix,
                                   const char *mpi_list, struct ls_error *err)
{
    if (slurm->place != LS_SLURM_STEP)
        return LS_OK; /* mpirun, or nobody: Slurm has no say in it */
    if (!pmix->found || pmix->size == 1)
        if (slurm->ntasks > 1)
            return forgotten(slurm, mpi_list, err);
    if (!pmix->found)
        return LS_OK; /* one task, which needs no one */
    if (pmix->nspace && !strncmp(pmix->nspace, "slurm.", 6)) {
        char expected[64];
        snprintf(expected, sizeof expected, "slurm.pmix.%lld.%lld", (long long)slurm->job_id,
                 (long long)slurm->step_id);
        if (strcmp(pmix->nspace, expected) != 0)
            return ls_error_set(
                err, LS_ERR_ENV,
                "found PMIx namespace %.80s, expected %s for step %lld of job %lld: "
                "the PMIX_ variables are inherited from another step; unset them, or "
                "type: srun --mpi=pmix lockstep run JOB.cfg",
                pmix->nspace, expected, (long long)slurm->step_id, (long long)slurm->job_id);
    }
    const struct {
        const char *what;
        int slurm, pmix;
    } pairs[] = {
        {"tasks in all", slurm->ntasks, pmix->size},
        {"this rank", slurm->proc_id, pmix->rank},
        {"tasks on this node", slurm->tasks_per_node[slurm->node_id], pmix->local_size},
        {"this local rank", slurm->local_id, pmix->local_rank},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].slurm != pairs[i].pmix)
            return ls_error_set(
                err, LS_ERR_ENV,
                "Slurm and PMIx disagree on %s: Slurm says %d, PMIx says %d (rank %d "
                "on %.80s); do not mix srun with mpirun, and unset inherited SLURM_ "
                "and PMIX_ variables; type: srun --mpi=pmix lockstep run JOB.cfg",
                pairs[i].what, pairs[i].slurm, pairs[i].pmix, slurm->proc_id,
                slurm->node_name ? slurm->node_name : "this node");
    return LS_OK;
}

enum ls_status ls_slurm_check_cpus(struct ls_slurm *slurm, int allowed, struct ls_error *err)
{
    int asked = slurm->cpus_per_task;
    if (slurm->place != LS_SLURM_STEP || allowed < 1 || asked <= allowed)
        return LS_OK;
    char *line = ls_arena_printf(
        &slurm->arena,
        "SLURM_CPUS_PER_TASK=%d, but this task may use %d CPU%s: from 22.05 to 23.02 srun takes no "
        "number of CPUs from the job; type: srun --cpus-per-task=%d ..., or export "
        "SRUN_CPUS_PER_TASK=%d",
        asked, allowed, allowed == 1 ? "" : "s", asked, asked);
    if (!line || !ls_grow(&slurm->warnings, &slurm->warnings_cap, slurm->nwarnings + 1,
                          sizeof *slurm->warnings))
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a warning");
    slurm->warnings[slurm->nwarnings++] = line;
    return LS_OK;
}
