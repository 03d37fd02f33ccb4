/* CPUs: which are online, which this process may use, which share a core; and lists such as "0-3,8". */
#include "topo/internal.h"
#include "topo/sysfs.h"

#include <stdio.h>
#include <string.h>

bool ls_topo_parse_cpus(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (size_t at = 0; text[at];) {
        uint64_t first, last;
        bool good = ls_topo_digits(text, &at, 1 << 20, &first);
        last = first;
        if (good && text[at] == '-') {
            at++;
            good = ls_topo_digits(text, &at, 1 << 20, &last) && last >= first;
        }
        if (!good || (text[at] && text[at] != ',')) {
            CPU_ZERO(cpus);
            return false;
        }
        for (uint64_t c = first; c <= last && c < CPU_SETSIZE; c++)
            CPU_SET(c, cpus);
        at += text[at] == ',';
    }
    return true;
}

const char *ls_topo_format_cpus(const cpu_set_t *cpus, char out[static 128])
{
    size_t at = 0;
    out[0] = '\0';
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, cpus))
            continue;
        int last = c;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        if (at > 110) {
            strcpy(out + at, ",...");
            break;
        }
        int n = last > c ? snprintf(out + at, 128 - at, "%s%d-%d", at ? "," : "", c, last)
                         : snprintf(out + at, 128 - at, "%s%d", at ? "," : "", c);
        at += n > 0 ? (size_t)n : 0;
        c = last;
    }
    return out;
}

int ls_topo_cores(const struct ls_topo_machine *machine, const cpu_set_t *cpus)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, cpus))
            CPU_SET(machine->core[c] >= 0 ? machine->core[c] : c, &cores);
    return CPU_COUNT(&cores);
}

/* The value of "Name:\tvalue" in proc/self/status and its like. */
static bool field(const char *text, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    for (const char *at = text; *at;) {
        size_t line = strcspn(at, "\n");
        if (line > n && !strncmp(at, name, n) && at[n] == ':') {
            const char *value = at + n + 1 + strspn(at + n + 1, " \t");
            size_t len = strcspn(value, "\n");
            snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), value);
            return true;
        }
        at += line + (at[line] == '\n');
    }
    return false;
}

static void read_cores(struct ls_sys *sys, const cpu_set_t *online, struct ls_topo_machine *machine)
{
    char text[256];
    cpu_set_t siblings;
    for (int c = 0; c < CPU_SETSIZE; c++)
        machine->core[c] = -1;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, online) || machine->core[c] >= 0)
            continue;
        machine->core[c] = (int16_t)c;
        /* One read for each core: what its first CPU says holds for the others. */
        if (!ls_sys_read(sys, text, sizeof text,
                         "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c) ||
            !ls_topo_parse_cpus(text, &siblings))
            continue;
        for (int s = c + 1; s < CPU_SETSIZE; s++)
            if (CPU_ISSET(s, &siblings) && CPU_ISSET(s, online) && machine->core[s] < 0)
                machine->core[s] = (int16_t)c;
    }
}

/* Bare metal says nothing; hypervisors tell the guest so by a flag of the CPU (x86) or by their name. */
static bool is_guest(struct ls_sys *sys)
{
    char text[8192];
    if (ls_sys_read(sys, text, sizeof text, "proc/cpuinfo")) {
        const char *flags = strstr(text, "\nflags");
        const char *guest = flags ? strstr(flags, " hypervisor") : NULL;
        if (guest && guest < flags + 1 + strcspn(flags + 1, "\n"))
            return true;
    }
    return ls_sys_read(sys, text, sizeof text, "sys/class/dmi/id/product_name") &&
           (strstr(text, "Virtual Machine") || strstr(text, "KVM"));
}

void ls_topo_read_cpus(struct ls_sys *sys, struct ls_topo_machine *machine)
{
    char text[4096], list[1024];
    cpu_set_t online, nodes;
    if (!ls_sys_read(sys, text, sizeof text, "sys/devices/system/cpu/online") ||
        !ls_topo_parse_cpus(text, &online))
        CPU_ZERO(&online);
    if (!*sys->root) {
        if (sched_getaffinity(0, sizeof machine->allowed, &machine->allowed) != 0)
            machine->allowed = online;
    } else if (!ls_sys_read(sys, text, sizeof text, "proc/self/status") ||
               !field(text, "Cpus_allowed_list", list, sizeof list) ||
               !ls_topo_parse_cpus(list, &machine->allowed)) {
        machine->allowed = online;
    }
    if (CPU_COUNT(&online) == 0)
        online = machine->allowed;
    machine->ncpu = CPU_COUNT(&online);
    read_cores(sys, &online, machine);
    if (ls_sys_read(sys, text, sizeof text, "sys/devices/system/node/online") &&
        ls_topo_parse_cpus(text, &nodes))
        machine->nnuma = CPU_COUNT(&nodes);
    machine->virtual_machine = is_guest(sys);
}
