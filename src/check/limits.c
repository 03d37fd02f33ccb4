/* Limits of this task, memory, shared memory, CPUs. */
#include "check/internal.h"

#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MIB (INT64_C(1) << 20)
/* What NCCL takes of /dev/shm for each rank with a GPU (its guide asks for room; 64 MiB is ample). */
#define SHM_PER_RANK (64 * MIB)
/* NCCL makes a file there for each pair of ranks of a node and channel, of which it has at most 64. */
#define SHM_FILES_PER_PAIR 64
/* Threads of all programs of a user on a node: below this, the rules of `lockstep topo` warn, too. */
#define NPROC_ENOUGH 4096
/* Descriptors of a process of its own, and of a connection to each rank over TCP, twice while they
 * reconnect. */
enum { NOFILE_BASE = 256, NOFILE_PER_RANK = 4 };

static const struct ls_topo_limits *limits(const struct ls_check_context *context,
                                           struct ls_check_out *out)
{
    if (context->machine)
        return &context->machine->limits;
    ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the machine could not be read (see sys.machine)");
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
            "%s may be locked", bytes_text(l->memlock, text));
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s may be locked; no RDMA device needs more",
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
    if (l->nofile == -1)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "unlimited");
    else if (l->nofile >= need)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%lld descriptors", (long long)l->nofile);
    else
        ls_check_say(out, context->job ? LS_CHECK_FAIL : LS_CHECK_WARN, "", expected,
                     "ulimit -n in the batch script, or LimitNOFILE in slurmd's unit",
                     "%lld descriptors", (long long)l->nofile);
}

void ls_check_nproc(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    if (!l)
        return;
    if (l->nproc == -1)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "unlimited");
    else if (l->nproc >= NPROC_ENOUGH)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%lld processes and threads",
                     (long long)l->nproc);
    else if (l->nproc < 0)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "not known");
    else
        ls_check_say(out, LS_CHECK_WARN, "",
                     "at least 4096, for threads of all programs of this user",
                     "ulimit -u before srun, or LimitNPROC in slurmd's unit",
                     "%lld processes and threads", (long long)l->nproc);
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
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s at most", bytes_text(l->stack, text));
}

/* What the last line "RemoveIPC=" of a file says; `before` if there is none. */
static bool read_remove_ipc(const char *path, bool before)
{
    char *text = NULL, *save = NULL;
    size_t n;
    if (ls_file_read(path, 1 << 16, &text, &n, NULL) == LS_OK)
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            line += strspn(line, " \t");
            if (!strncmp(line, "RemoveIPC=", 10)) {
                const char *value = line + 10 + strspn(line + 10, " \t");
                /* nothing is the default, yes */
                before = strchr("1yYtT", *value) || !strncasecmp(value, "on", 2);
            }
        }
    free(text);
    return before;
}

/* Does logind run, and remove what a user has in /dev/shm when the user's last login ends, jobs or not? That is its
 * default (logind.conf(5)); NCCL's guide asks for RemoveIPC=no. */
static bool removes_ipc(const struct ls_check_context *context)
{
    char path[4200];
    glob_t found = {0};
    snprintf(path, sizeof path, "%s/run/systemd/sessions", context->root);
    if (access(path, F_OK) != 0)
        return false;
    snprintf(path, sizeof path, "%s/etc/systemd/logind.conf", context->root);
    bool yes = read_remove_ipc(path, true);
    snprintf(path, sizeof path, "%s/etc/systemd/logind.conf.d/*.conf", context->root);
    if (glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            yes = read_remove_ipc(found.gl_pathv[i], yes);
    globfree(&found);
    return yes;
}

void ls_check_shm(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_limits *l = limits(context, out);
    int64_t ranks = (int64_t)context->local_size * context->workers, need = SHM_PER_RANK * ranks;
    int64_t files = SHM_FILES_PER_PAIR * ranks * (ranks - 1);
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
    else if (l->shm_files >= 0 && l->shm_files < files)
        ls_check_say(out, LS_CHECK_WARN, "", "a file for each pair of ranks and channel of NCCL",
                     "remove what old jobs left in /dev/shm, or mount it with more nr_inodes",
                     "%lld files can be made in /dev/shm, and %lld may be needed",
                     (long long)l->shm_files, (long long)files);
    else if (gpus && removes_ipc(context))
        ls_check_say(out, LS_CHECK_WARN, "", "RemoveIPC=no in logind.conf",
                     "set it: when a user's last login to the node ends, logind removes what the "
                     "user's jobs have in /dev/shm",
                     "logind removes files of users in /dev/shm");
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "at least %s free in /dev/shm, as needed",
                     ls_format_bytes(need, wanted));
}

/* ---- sys.cpu ---- */

/* "0-3,8 of 64": what this task may use, and how much of the node Slurm gave to all tasks together. */
static void say_mask(struct ls_check_out *out, const cpu_set_t *mask, int given)
{
    struct ls_buf list;
    ls_buf_init(&list, 1 << 16);
    for (int cpu = 0, last; cpu < CPU_SETSIZE; cpu = last + 1) {
        last = cpu;
        if (!CPU_ISSET(cpu, mask))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, mask))
            last++;
        ls_buf_printf(&list, "%s%d", list.len ? "," : "", cpu);
        if (last > cpu)
            ls_buf_printf(&list, "-%d", last);
    }
    ls_check_fact(out, "%s of %d", list.data ? list.data : "", given);
    ls_buf_free(&list);
}

void ls_check_cpus(struct ls_check_out *out, const struct ls_check_context *context)
{
    cpu_set_t mask;
    struct ls_arena arena = {0};
    struct ls_topo_decision decision;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the CPU mask cannot be read");
        return;
    }
    int allowed = CPU_COUNT(&mask), wanted = context->slurm->cpus_per_task;
    int here = context->machine ? context->machine->ncpu : allowed;
    int given = context->slurm->cpus_on_node;
    if (wanted > allowed && allowed < here) { /* not where Slurm counts more than the machine has */
        char expected[64];
        snprintf(expected, sizeof expected, "%d, by --cpus-per-task", wanted);
        ls_check_say(out, LS_CHECK_WARN, "", expected,
                     "say --cpus-per-task to srun, too (older versions do not inherit it), or "
                     "--cpu-bind=none",
                     "%d CPUs may be used", allowed);
    }
    if (ls_check_decide(context, &arena, &decision, NULL) == LS_OK)
        for (int i = 0; i < decision.nnote; i++)
            if (decision.note[i].about && !strcmp(decision.note[i].about, "cpus"))
                ls_check_say(out, LS_CHECK_WARN, "", "", "", "%s", decision.note[i].text);
    ls_arena_free(&arena);
    say_mask(out, &mask, given > 0 && given < here ? given : here);
}

struct node_cpus {
    cpu_set_t all;
    int tasks, sum, given;
};

static bool read_mask(const char *fact, cpu_set_t *mask, int *given)
{
    char list[8192];
    const char *of = fact ? strstr(fact, " of ") : NULL;
    if (!of || (size_t)(of - fact) >= sizeof list)
        return false;
    memcpy(list, fact, (size_t)(of - fact));
    list[of - fact] = '\0';
    *given = atoi(of + 4);
    return ls_topo_parse_cpus(list, mask) && CPU_COUNT(mask) > 0;
}

/* Tasks that were pinned to the same few CPUs, as by a SLURM_CPU_BIND that came along from another step. Tasks that
 * share all that Slurm gave to the node are not pinned at all, which is fine. */
static bool is_shared(const struct node_cpus *n)
{
    int all = CPU_COUNT(&n->all);
    return n->tasks > 1 && n->sum > all && all < n->given;
}

void ls_check_shared_cpus(const struct ls_check *check, const struct ls_check_world *w,
                          struct ls_check_list *list)
{
    int nodes = 0, given;
    cpu_set_t mask;
    for (int r = 0; r < w->size; r++)
        nodes = w->node[r] >= nodes ? w->node[r] + 1 : nodes;
    struct node_cpus *node = calloc((size_t)nodes + 1, sizeof *node);
    bool found = ls_check_found(list, check);
    list->failed |= !node;
    for (int r = 0; node && r < w->size; r++)
        if (read_mask(w->fact[r], &mask, &given)) {
            struct node_cpus *n = &node[w->node[r]];
            CPU_OR(&n->all, &n->all, &mask);
            n->tasks++;
            n->sum += CPU_COUNT(&mask);
            n->given = given;
        }
    for (int r = 0; node && r < w->size; r++) {
        char text[96], expected[96];
        if (!read_mask(w->fact[r], &mask, &given))
            continue;
        const struct node_cpus *n = &node[w->node[r]];
        snprintf(text, sizeof text, "%d CPUs", CPU_COUNT(&mask));
        if (!is_shared(n)) {
            if (!found)
                ls_check_add(list, check, LS_CHECK_PASS, r, "", text, "", "");
            continue;
        }
        snprintf(text, sizeof text, "%d tasks share %d CPUs", n->tasks, CPU_COUNT(&n->all));
        snprintf(expected, sizeof expected, "CPUs of their own, of the %d on the node", n->given);
        ls_check_add(
            list, check, LS_CHECK_WARN, r, "", text, expected,
            "unset SLURM_CPU_BIND, which may come from another step, or say --cpu-bind=cores");
    }
    free(node);
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
