/* Which CPUs each worker of a keeper gets: runs of whole cores, in the order of packages. */
#include "keep/keep.h"

#include <stdlib.h>
#include <string.h>

static int read_number(const char *root, int cpu, const char *what, int otherwise)
{
    char path[4200], text[32];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/%s", root, cpu, what);
    FILE *f = fopen(path, "re");
    if (!f)
        return otherwise;
    int value = fgets(text, sizeof text, f) ? (int)strtol(text, NULL, 10) : otherwise;
    fclose(f);
    return value;
}

static int by_place(const void *a, const void *b)
{
    const struct ls_keep_cpu *x = a, *y = b;
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return x->cpu - y->cpu;
}

enum ls_status ls_keep_cpus(const char *root, const cpu_set_t *mask, struct ls_keep_cpu **cpus,
                            int *n, struct ls_error *err)
{
    struct ls_keep_cpu *list = calloc((size_t)CPU_COUNT(mask) + 1, sizeof *list);
    if (!list)
        return ls_error_set(err, LS_ERR_NOMEM, "reading the CPUs of this node");
    int count = 0;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, mask))
            list[count++] = (struct ls_keep_cpu){c, read_number(root, c, "physical_package_id", 0),
                                                 read_number(root, c, "core_id", c)};
    qsort(list, (size_t)count, sizeof *list, by_place);
    *cpus = list;
    *n = count;
    return LS_OK;
}

static bool same_core(const struct ls_keep_cpu *a, const struct ls_keep_cpu *b)
{
    return a->package == b->package && a->core == b->core;
}

bool ls_keep_split(const struct ls_keep_cpu *cpus, int n, int workers, int worker, cpu_set_t *mask)
{
    int cores = 0, core = -1;
    for (int i = 0; i < n; i++)
        cores += i == 0 || !same_core(&cpus[i], &cpus[i - 1]);
    bool bound = cores >= workers;
    int64_t first = (int64_t)cores * worker / workers,
            end = (int64_t)cores * (worker + 1) / workers;
    CPU_ZERO(mask);
    for (int i = 0; i < n; i++) {
        core += i == 0 || !same_core(&cpus[i], &cpus[i - 1]);
        if (!bound || (core >= first && core < end))
            CPU_SET(cpus[i].cpu, mask);
    }
    return bound;
}

int ls_keep_cores(const struct ls_keep_cpu *cpus, int n, const cpu_set_t *mask)
{
    int cores = 0;
    const struct ls_keep_cpu *before = NULL;
    for (int i = 0; i < n; i++)
        if (CPU_ISSET(cpus[i].cpu, mask)) {
            cores += !before || !same_core(before, &cpus[i]);
            before = &cpus[i];
        }
    return cores;
}

const char *ls_keep_format_cpus(const cpu_set_t *mask, char out[static 128])
{
    size_t at = 0;
    out[0] = '\0';
    for (int c = 0; c < CPU_SETSIZE && at < 110; c++) {
        if (!CPU_ISSET(c, mask))
            continue;
        int last = c;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, mask))
            last++;
        int n = last > c ? snprintf(out + at, 128 - at, "%s%d-%d", at ? "," : "", c, last)
                         : snprintf(out + at, 128 - at, "%s%d", at ? "," : "", c);
        at += n > 0 ? (size_t)n : 0;
        c = last;
    }
    return out;
}
