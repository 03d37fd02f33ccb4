/* GPUs, NICs and CPUs of a task. GPUs are those that Slurm granted, never more; CPUs are those near them,
 * apart from those of the other tasks of the node. */
#include "topo/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- GPUs ---- */

/* Indices of machine->gpu in the order in which CUDA numbers them (by PCI address): those whose device node
 * can be opened; where none can, the nodes are not there yet, and all count. */
static int numbered(const struct ls_topo_machine *m, int gpus[static LS_TOPO_GPUS])
{
    int n = 0;
    for (int g = 0; g < m->ngpu; g++)
        if (m->gpu[g].open)
            gpus[n++] = g;
    if (n > 0)
        return n;
    for (; n < m->ngpu; n++)
        gpus[n] = n;
    return n;
}

static int by_uuid(const struct ls_topo_machine *m, const char *uuid)
{
    size_t n = strlen(uuid);
    for (int i = 0; i < m->nmig; i++)
        if (!strncmp(m->mig[i].uuid, uuid, n))
            return m->mig[i].gpu;
    /* The older form of MIG names, MIG-GPU-<uuid>/<instance>/<instance>, has the GPU's inside; CUDA takes
     * any beginning that is unique. */
    const char *gpu = !strncmp(uuid, "MIG-GPU-", 8) ? uuid + 4 : uuid;
    n = strcspn(gpu, "/");
    int found = -1, mig = -1, nmig = 0;
    for (int g = 0; g < m->ngpu; g++) {
        if (n > 4 && !strncmp(m->gpu[g].uuid, gpu, n))
            found = found < 0 ? g : -2;
        if (m->gpu[g].mig && m->gpu[g].open) {
            mig = g;
            nmig++;
        }
    }
    if (found < 0 && !strncmp(uuid, "MIG-", 4) && nmig == 1)
        return mig;
    return found < 0 ? -1 : found;
}

/* One entry of CUDA_VISIBLE_DEVICES; -1: no such GPU. */
static int resolve(const struct ls_topo_machine *m, const struct ls_visible *visible, int i)
{
    int gpus[LS_TOPO_GPUS], n = numbered(m, gpus);
    if (visible->uuid)
        return by_uuid(m, visible->uuid[i]);
    if (visible->index[i] < n)
        return gpus[visible->index[i]];
    /* With MIG the numbers are those of instances. */
    for (int g = 0; g < n; g++)
        if (m->gpu[gpus[g]].mig)
            return gpus[g];
    return -1;
}

/* GPUs of all tasks of the step on this node, by Slurm's own list: numbers of device nodes. -1: not said,
 * or in a form that is not one. */
static int of_step(struct ls_decide *c, int gpus[static LS_TOPO_GPUS])
{
    const char *text = ls_decide_get(c, "SLURM_STEP_GPUS");
    struct ls_visible list;
    int n = 0;
    if (!text)
        text = ls_decide_get(c, "SLURM_JOB_GPUS");
    if (!text || ls_visible_parse(text, c->arena, &list, NULL) != LS_OK || !list.index)
        return -1;
    for (int i = 0; i < list.count && n < LS_TOPO_GPUS; i++)
        for (int g = 0; g < c->machine->ngpu; g++)
            if (c->machine->gpu[g].minor == list.index[i])
                gpus[n++] = g;
    return n;
}

static enum ls_status read_visible(struct ls_decide *c, struct ls_visible *visible)
{
    struct ls_error why = {0};
    const char *text =
        c->request->get ? c->request->get(c->request->user, "CUDA_VISIBLE_DEVICES") : NULL;
    if (ls_visible_parse(text, c->arena, visible, &why) != LS_OK)
        return ls_error_set(c->err, LS_ERR_ENV, "%s", why.message);
    if (visible->note[0])
        ls_decide_note(c, LS_TOPO_WARN, "%s", visible->note);
    return LS_OK;
}

/* Do all tasks of the node see the same `count` GPUs? Otherwise these are the task's own. */
static bool is_shared(const struct ls_decide *c, int count, int step)
{
    if (c->request->local_size == 1)
        return false;
    int on_node = ls_decide_number(c, "SLURM_GPUS_ON_NODE");
    if (step < 0)
        step = on_node;
    if (step >= 0)
        return count >= step;
    return count > 1;
}

static void take(struct ls_decide *c, int gpu)
{
    struct ls_topo_decision *d = c->decision;
    for (int i = 0; i < d->ngpu; i++)
        if (d->gpu[i] == gpu)
            return;
    d->gpu[d->ngpu++] = gpu;
}

/* The task's GPUs among those that it can see. `asked`: someone has asked for these GPUs, so that too few or too many
 * are a mistake. Otherwise they are just there, and the ranks may compute on CPUs. */
static enum ls_status choose(struct ls_decide *c, const int *seen, int n, bool shared, bool asked)
{
    int first = 0, end = n, local = c->request->local_rank, size = c->request->local_size;
    if (shared && n > 0 && !asked) {
        if (n < size)
            ls_decide_note(
                c, LS_TOPO_INFO,
                "%d ranks share %d GPU%s, which NCCL refuses (\"Duplicate GPU detected\")", size, n,
                n == 1 ? "" : "s");
        first = local % n;
        end = first + 1;
    } else if (shared && n > 0) {
        struct ls_error why = {0};
        if (ls_visible_choose(n, local, size, &first, &why) != LS_OK)
            return ls_error_set(c->err, LS_ERR_ENV, "%s", why.message);
        end = first + 1;
        if (n == 1)
            ls_decide_note(
                c, LS_TOPO_PROBLEM,
                "%d tasks of this node share one GPU, which NCCL refuses (\"Duplicate GPU "
                "detected\"); ask for --gpus-per-node=%d, or for one task per node",
                size, size);
        else if (n > size && local == 0)
            ls_decide_note(
                c, LS_TOPO_WARN,
                "%d GPUs for %d tasks on this node: each task takes one, %d stay unused; use "
                "--ntasks-per-node=%d, or one task with %d workers",
                n, size, n - size, n, n);
    }
    for (int i = first; i < end; i++)
        take(c, seen[i]);
    return LS_OK;
}

static void keep_common(struct ls_decide *c, const int *gpus, int n, bool shared)
{
    if (n < c->request->local_size)
        return;
    c->share = shared ? 1 : n / c->request->local_size;
    c->ncommon = n;
    memcpy(c->common, gpus, (size_t)n * sizeof *gpus);
}

enum ls_status ls_decide_gpus(struct ls_decide *c)
{
    const struct ls_topo_machine *m = c->machine;
    struct ls_visible visible;
    int seen[LS_TOPO_GPUS], n = 0, step_gpus[LS_TOPO_GPUS], step = of_step(c, step_gpus);
    LS_TRY(read_visible(c, &visible));
    bool in_job = ls_decide_get(c, "SLURM_JOB_ID") != NULL;
    if (visible.set)
        c->granted = visible.count;
    else if (step >= 0)
        c->granted = step;
    else if (in_job)
        c->granted = 0;
    if (m->ngpu == 0) {
        if (c->granted > 0)
            ls_decide_note(c, LS_TOPO_WARN,
                           "%d GPUs were granted, but NVIDIA's driver shows none here (no "
                           "/proc/driver/nvidia/gpus); is its kernel module loaded?",
                           c->granted);
        return LS_OK;
    }
    if (visible.set) {
        for (int i = 0; i < visible.count && n < LS_TOPO_GPUS; i++) {
            int gpu = resolve(m, &visible, i), gpus[LS_TOPO_GPUS];
            if (gpu >= 0) {
                seen[n++] = gpu;
                continue;
            }
            if (visible.uuid)
                return ls_error_set(c->err, LS_ERR_ENV,
                                    "CUDA_VISIBLE_DEVICES names %.60s, but no GPU of this node is "
                                    "called so; was it set for another node?",
                                    visible.uuid[i]);
            return ls_error_set(
                c->err, LS_ERR_ENV,
                "CUDA_VISIBLE_DEVICES names device %d, but this task can open %d GPUs "
                "(of %d in this node); leave the variable to Slurm, which numbers from "
                "0 what it grants",
                visible.index[i], numbered(m, gpus), m->ngpu);
        }
    } else if (step >= 0) {
        for (; n < step; n++)
            seen[n] = step_gpus[n];
    } else if (!in_job) {
        n = numbered(m, seen);
    }
    if (n == 0 && in_job)
        ls_decide_note(c, LS_TOPO_INFO,
                       "this node has %d GPUs, but none was granted; ask Slurm with "
                       "--gpus-per-node=N",
                       m->ngpu);
    bool all = !visible.set && !in_job && c->request->local_size > 1;
    bool shared = all || is_shared(c, n, step);
    keep_common(c, shared ? seen : step_gpus, shared ? n : step, shared);
    return choose(c, seen, n, shared, !all);
}

/* ---- NICs ---- */

static enum ls_topo_distance nearest(const struct ls_decide *c, int nic)
{
    const struct ls_topo_decision *d = c->decision;
    enum ls_topo_distance best = LS_TOPO_UNKNOWN;
    for (int i = 0; i < d->ngpu; i++) {
        enum ls_topo_distance one =
            ls_topo_distance(&c->machine->gpu[d->gpu[i]].pci, &c->machine->nic[nic].pci);
        if (one < best)
            best = one;
    }
    return best;
}

void ls_decide_nics(struct ls_decide *c)
{
    struct ls_topo_decision *d = c->decision;
    enum ls_topo_distance closest = LS_TOPO_UNKNOWN;
    for (int i = 0; i < c->machine->nnic; i++)
        if (c->compute[i] && nearest(c, i) < closest)
            closest = nearest(c, i);
    /* All of the same distance: which of them takes what is the libraries' choice. With several GPUs each
     * has its own nearest ones. */
    enum ls_topo_distance limit = d->ngpu > 1 && closest < LS_TOPO_PXB ? LS_TOPO_PXB : closest;
    for (int distance = LS_TOPO_SAME; distance <= (int)limit; distance++)
        for (int i = 0; i < c->machine->nnic; i++)
            if (c->compute[i] && (int)nearest(c, i) == distance)
                d->nic[d->nnic++] = i;
}

/* ---- CPUs ---- */

/* Allowed CPUs near a GPU; false, and all allowed ones, if that is not known or there are none. */
static bool near_cpus(const struct ls_topo_machine *m, int gpu, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    if (gpu >= 0)
        CPU_AND(cpus, &m->allowed, &m->gpu[gpu].pci.cpus);
    if (CPU_COUNT(cpus) > 0)
        return true;
    *cpus = m->allowed;
    return false;
}

/* Part `part` of `parts` of the whole cores in `from`; false: fewer cores than parts. */
static bool cut(const struct ls_topo_machine *m, const cpu_set_t *from, int part, int parts,
                cpu_set_t *out)
{
    int16_t cores[CPU_SETSIZE];
    int n = 0;
    cpu_set_t seen;
    CPU_ZERO(&seen);
    CPU_ZERO(out);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, from))
            continue;
        int core = m->core[cpu] >= 0 ? m->core[cpu] : cpu;
        if (!CPU_ISSET(core, &seen))
            cores[n++] = (int16_t)core;
        CPU_SET(core, &seen);
    }
    int first = (int)((int64_t)n * part / parts), end = (int)((int64_t)n * (part + 1) / parts);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        for (int i = first; i < end && CPU_ISSET(cpu, from); i++)
            if ((m->core[cpu] >= 0 ? m->core[cpu] : cpu) == cores[i])
                CPU_SET(cpu, out);
    return n >= parts;
}

/* The GPU that local rank `rank` is taken to have; -1: not known. */
static int assumed_gpu(const struct ls_decide *c, int rank)
{
    return rank * c->share < c->ncommon ? c->common[rank * c->share] : -1;
}

/* Are the CPUs near any two of the GPUs in use the same, or apart? */
static bool is_clean(const struct ls_decide *c)
{
    cpu_set_t a, b, both;
    for (int i = 0; i < c->request->local_size && i < LS_TOPO_GPUS; i++)
        for (int k = 0; k < i; k++) {
            near_cpus(c->machine, assumed_gpu(c, i), &a);
            near_cpus(c->machine, assumed_gpu(c, k), &b);
            CPU_AND(&both, &a, &b);
            if (!CPU_EQUAL(&a, &b) && CPU_COUNT(&both) > 0)
                return false;
        }
    return true;
}

/* Cuts the allowed CPUs among the tasks of the node, all of which do so alike; true: `cpus` are this one's. */
static bool part_of_node(const struct ls_decide *c, cpu_set_t *cpus)
{
    const struct ls_topo_machine *m = c->machine;
    int size = c->request->local_size, me = c->request->local_rank, before = 0, group = 0;
    cpu_set_t mine, theirs;
    if (c->ncommon == 0 || !is_clean(c))
        return cut(m, &m->allowed, me, size, cpus);
    near_cpus(m, assumed_gpu(c, me), &mine);
    for (int r = 0; r < size; r++) {
        near_cpus(m, assumed_gpu(c, r), &theirs);
        before += r < me && CPU_EQUAL(&mine, &theirs);
        group += CPU_EQUAL(&mine, &theirs);
    }
    return cut(m, &mine, before, group, cpus);
}

/* Has Slurm cut the job's CPUs among the tasks already? */
static bool has_own_mask(const struct ls_decide *c)
{
    return c->request->local_size > 1 && c->cpus_on_node > 0 &&
           CPU_COUNT(&c->machine->allowed) < c->cpus_on_node;
}

static const char *why_not_bound(struct ls_decide *c, cpu_set_t *cpus)
{
    const struct ls_topo_machine *m = c->machine;
    const struct ls_topo_decision *d = c->decision;
    const char *bind = ls_decide_get(c, "SLURM_CPU_BIND_TYPE");
    cpu_set_t near, both;
    bool known = false, apart = d->ngpu > 0;
    if (!c->request->bind)
        return "binding is switched off";
    if (bind && !strncmp(bind, "none", 4))
        return "--cpu-bind=none asks for no binding";
    if (c->own_mask)
        return "Slurm has given this task CPUs of its own";
    if (CPU_COUNT(&m->allowed) == 0)
        return "the CPUs of this process are not known";
    if (c->request->local_size > CPU_COUNT(&m->allowed))
        return "there are more tasks than CPUs";
    if (c->request->local_size == 1) {
        CPU_ZERO(cpus);
        for (int i = 0; i < d->ngpu; i++) {
            known |= near_cpus(m, d->gpu[i], &near);
            CPU_OR(cpus, cpus, &near);
        }
        if (!known)
            return "the only task of the node has no GPU whose place is known";
    } else if (!part_of_node(c, cpus)) {
        return "there are fewer cores near the GPUs than tasks";
    }
    for (int i = 0; i < d->ngpu; i++)
        if (near_cpus(m, d->gpu[i], &near)) {
            CPU_AND(&both, &near, cpus);
            apart &= CPU_COUNT(&both) == 0;
        } else {
            apart = false;
        }
    if (apart)
        return "Slurm gave the GPUs to the tasks in another order than that of their numbers";
    if (CPU_COUNT(cpus) < c->cpus_per_task)
        return "that would leave fewer CPUs than --cpus-per-task asks for";
    return NULL;
}

static void check_mask(struct ls_decide *c)
{
    const struct ls_topo_decision *d = c->decision;
    char text[128];
    cpu_set_t near;
    c->about = "cpus";
    c->own = true;
    for (int i = 0; i < d->ngpu; i++) {
        const struct ls_topo_gpu *gpu = &c->machine->gpu[d->gpu[i]];
        if (CPU_COUNT(&gpu->pci.cpus) == 0 || near_cpus(c->machine, d->gpu[i], &near))
            continue;
        ls_decide_note(c, LS_TOPO_WARN,
                       "no CPU of this task (%s) is near its GPU %s (NUMA node %d); use "
                       "--gres-flags=enforce-binding, or --cpu-bind=none",
                       ls_topo_format_cpus(&c->machine->allowed, text), gpu->pci.bdf,
                       gpu->pci.numa);
    }
    c->about = NULL;
    c->own = false;
}

void ls_decide_cpus(struct ls_decide *c)
{
    struct ls_topo_decision *d = c->decision;
    char text[128];
    int on_node = ls_decide_number(c, "SLURM_CPUS_ON_NODE");
    int per_task = ls_decide_number(c, "SLURM_CPUS_PER_TASK");
    c->cpus_on_node = on_node > 0 ? on_node : 0;
    c->cpus_per_task = per_task > 0 ? per_task : 0;
    c->own_mask = has_own_mask(c);
    const char *why = why_not_bound(c, &d->cpus);
    d->bound = !why;
    if (why)
        d->cpus = c->machine->allowed;
    if (d->bound)
        ls_decide_note(c, LS_TOPO_INFO, "CPUs %s: whole cores%s, apart from those of other tasks",
                       ls_topo_format_cpus(&d->cpus, text),
                       d->ngpu ? " near the GPU where that is known" : "");
    else
        ls_decide_note(c, LS_TOPO_INFO, "CPUs are left as they are: %s", why);
    check_mask(c);
}
