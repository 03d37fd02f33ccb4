/* Reads a machine: each file beside this one reads one kind of part. */
#include "topo/machine.h"

#include "topo/sysfs.h"

#include <stdlib.h>
#include <string.h>

enum ls_status ls_topo_read(const char *root, struct ls_topo_machine *machine, struct ls_error *err)
{
    return ls_topo_read_recorded(root, machine, NULL, NULL, err);
}

enum ls_status ls_topo_read_recorded(const char *root, struct ls_topo_machine *machine,
                                     ls_sys_record *record, void *user, struct ls_error *err)
{
    struct ls_sys sys = {.root = root, .left = LS_SYS_CALLS, .record = record, .user = user};
    memset(machine, 0, sizeof *machine);
    if (!ls_sys_exists(&sys, "sys") && !ls_sys_exists(&sys, "proc"))
        return ls_error_set(err, LS_ERR_IO,
                            "%s: found neither sys nor proc in it, expected the tree of a machine; "
                            "'lockstep topo --save' makes one",
                            *root ? root : "/");
    sys.names = malloc(sizeof(char[LS_SYS_NAMES][LS_SYS_NAME]));
    if (!sys.names)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory to read the machine");
    ls_topo_read_cpus(&sys, machine);
    ls_topo_read_gpus(&sys, machine);
    ls_topo_read_nics(&sys, machine);
    ls_topo_read_ifaces(&sys, machine);
    ls_topo_read_limits(&sys, machine);
    free(sys.names);
    machine->left_out = sys.left_out;
    ls_topo_classify(machine);
    return LS_OK;
}

void ls_topo_refresh(int dev, struct ls_topo_machine *machine)
{
    struct ls_sys sys = {.root = "", .dev = &dev, .left = LS_SYS_CALLS};
    ls_topo_open_gpus(&sys, machine);
    ls_topo_open_nics(&sys, machine);
    if (sched_getaffinity(0, sizeof machine->allowed, &machine->allowed) != 0)
        CPU_ZERO(&machine->allowed); /* not known, rather than somebody else's */
    ls_topo_own_limits(&machine->limits);
    ls_topo_classify(machine);
}
