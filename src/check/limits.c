/* Limits of this task, memory, shared memory, CPUs. */
#include "check/internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)
/* What NCCL takes of /dev/shm for each rank with a GPU (its guide asks for room; 64 MiB is ample). */
#define SHM_PER_RANK (64 * MIB)
/* Descriptors of a process of its own, and of a connection to each rank over TCP, twice while they
 * reconnect. */
enum { NOFILE_BASE = 256, NOFILE_PER_RANK = 4 };

static const struct ls_topo_limits *limits(const struct ls_check_context *context,
                                           struct ls_check_out *out)
{
    if (context->machine)
        return &context->machine->limits;
    ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the machine could not be read: see sys.machine");
    return NULL;
}

static const char *bytes_text(int64_t bytes, char text[static 24])
{
    if (bytes == -1)
        return "unlimited";
    return bytes < 0 ? "not known" : ls_format_bytes(bytes, text);
}

void ls_check_memlock(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    char text[24];
    bool rdma = l && context->machine->nnic > 0;
    if (!l)
        return;
    if (l->memlock == -1)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "unlimited");
    else if (rdma)
        ls_check_say(
            out, LS_CHECK_FAIL, "", "unlimited, for RDMA",
            "LimitMEMLOCK=infinity in slurmd's unit (limits.conf does not reach slurmd), and "
            "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
            "%s", bytes_text(l->memlock, text));
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s; no RDMA device needs more",
                     bytes_text(l->memlock, text));
}

void ls_check_nofile(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    int64_t ranks = (int64_t)context->size * context->workers;
    int64_t need = NOFILE_BASE + NOFILE_PER_RANK * ranks;
    char expected[96];
    if (!l)
        return;
    snprintf(expected, sizeof expected, "at least %lld, for %lld ranks", (long long)need,
             (long long)ranks);
    if (l->nofile == -1 || l->nofile >= need)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%lld", (long long)l->nofile);
    else
        ls_check_say(out, context->job ? LS_CHECK_FAIL : LS_CHECK_WARN, "", expected,
                     "ulimit -n in the batch script, or LimitNOFILE in slurmd's unit", "%lld",
                     (long long)l->nofile);
}

void ls_check_stack(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    char text[24];
    if (l && l->stack == -1)
        ls_check_say(out, LS_CHECK_WARN, "", "a limit, such as 8 MiB",
                     "ulimit -s 8192: with no limit, threads get only 2 MiB, and NCCL before 2.28 "
                     "crashes",
                     "unlimited");
    else if (l)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s", bytes_text(l->stack, text));
}

void ls_check_shm(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    int64_t need = SHM_PER_RANK * context->local_size * context->workers;
    char text[24], wanted[24], expected[96];
    if (!l)
        return;
    bool gpus = context->machine->ngpu > 0;
    snprintf(expected, sizeof expected, "at least %s free", ls_format_bytes(need, wanted));
    if (l->shm_free < 0)
        ls_check_say(out, gpus ? LS_CHECK_FAIL : LS_CHECK_WARN, "", expected,
                     "mount a tmpfs on /dev/shm", "/dev/shm cannot be asked");
    else if (l->shm_free < need)
        ls_check_say(out, gpus ? LS_CHECK_FAIL : LS_CHECK_WARN, "", expected,
                     "remove what old jobs left in /dev/shm, or make it larger; containers take "
                     "--shm-size",
                     "%s free in /dev/shm", ls_format_bytes(l->shm_free, text));
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "enough free in /dev/shm for %s",
                     ls_format_bytes(need, wanted));
}

void ls_check_cpus(struct ls_check_out *out, const struct ls_check_context *context)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the CPU mask cannot be read");
        return;
    }
    int allowed = CPU_COUNT(&mask), wanted = context->slurm->cpus_per_task;
    if (wanted > allowed && context->machine && allowed >= context->machine->ncpu)
        ls_check_say(out, LS_CHECK_PASS, "", "", "",
                     "%d CPUs asked for, and all %d of the machine may be used", wanted, allowed);
    else if (wanted > allowed) {
        char expected[64];
        snprintf(expected, sizeof expected, "%d, by --cpus-per-task", wanted);
        ls_check_say(out, LS_CHECK_WARN, "", expected,
                     "say --cpus-per-task to srun, too (older versions do not inherit it), or "
                     "--cpu-bind=none",
                     "%d CPUs may be used", allowed);
    } else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%d CPUs", allowed);
}

void ls_check_memory(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    char text[24];
    if (!l)
        return;
    if (l->memory_bytes < 0)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no limit could be read");
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s", ls_format_bytes(l->memory_bytes, text));
}
