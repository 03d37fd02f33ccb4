/* The world as PMIx wants it described; shared by server.c and server_map.c. */
#ifndef LS_WIRE_SERVER_MAP_H
#define LS_WIRE_SERVER_MAP_H

#include "wire/wire.h"

#include <pmix.h>

/* *info [*n] for PMIx_server_register_nspace, to be released with PMIX_INFO_FREE. */
enum ls_status ls_wire_describe_world(const struct ls_wire_map *map, int keeper, const char *nspace,
                                      pmix_info_t **info, size_t *n, struct ls_error *err);

#endif
