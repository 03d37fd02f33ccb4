/* Machines as text, for the launcher: the files, links and directories from which ls_topo_read tells a
 * machine, in one file that can be read, written by hand and sent to others.
 *
 *   lockstep-tree 1
 *   # comment
 *   sys/devices/system/cpu/online = 0-63
 *   sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0
 *   sys/module/nvidia_peermem/
 *   dev/nvidia0 =
 *   proc/net/route =
 *   | Iface Destination ...
 *   | eth0 00000000 ...
 *
 * Paths begin with sys, proc or dev. A link leads to a directory, which is made if nothing is in it, so that
 * files may be named by way of the link. Nothing leads out of the tree. */
#ifndef LS_TOPO_TREE_H
#define LS_TOPO_TREE_H

#include "topo/machine.h"

enum { LS_TREE_MAX = 8 << 20, LS_TREE_ENTRIES = 65536 }; /* bytes of a file; lines */

/* Makes the tree `text` in the empty directory `dir`. LS_ERR_FORMAT: line, what was found, what was
 * expected; LS_ERR_IO. What was made before an error stays. `name` is for messages. */
enum ls_status ls_topo_tree_unpack(const char *name, const char *text, const char *dir,
                                   struct ls_error *err);
/* Adds the tree of this machine (root "/"), or of another one that is stored under `root`. Serial numbers,
 * UUIDs, addresses and names of jobs are not in it: stand-ins are, the same one for the same thing. */
enum ls_status ls_topo_tree_save(const char *root, struct ls_buf *text, struct ls_error *err);
/* Reads the machine that `path` stands for: a directory, or a file made by ls_topo_tree_save, which is
 * unpacked below `tmpdir` for as long as it takes. */
enum ls_status ls_topo_tree_read(const char *path, const char *tmpdir,
                                 struct ls_topo_machine *machine, struct ls_error *err);

#endif
