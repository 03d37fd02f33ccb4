/* Reads a machine: each file beside this one reads one kind of part. */
#include "topo/machine.h"

#include "topo/sysfs.h"

#include <stdlib.h>
#include <string.h>

enum ls_status ls_topo_read(const char *root, struct ls_topo_machine *machine, struct ls_error *err)
{
    struct ls_sys sys = {.root = root, .left = LS_SYS_CALLS};
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
