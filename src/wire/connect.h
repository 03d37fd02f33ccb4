/* Connecting the tree of keepers; shared by control.c and connect.c. */
#ifndef LS_WIRE_CONNECT_H
#define LS_WIRE_CONNECT_H

#include "wire/link.h"

/* Collective over the keepers. Fills the links: [0] is the parent (keeper 0: closed), then the
 * children fanout * rank + 1, ... `deadline`s are set. See ls_wire_control_open for the errors. */
enum ls_status ls_wire_connect(const struct ls_wire_control_config *config,
                               struct ls_wire_link *links, int n_links, struct ls_error *err);

#endif
