/* Which variables announce a PMIx or PMI server; shared by env.c and server.c. */
#ifndef LS_WIRE_ENV_H
#define LS_WIRE_ENV_H

#include "wire/wire.h"

/* The namespace that a server above gave this process; NULL: there is none. */
const char *ls_wire_env_namespace(void);
/* What that server wants of libpmix here, as far as it says: "version 4.2.2, security by munge, data by ds21,hash";
 * "nothing that it tells" else. Returns `out`. */
const char *ls_wire_env_demands(char out[static 256]);
/* `variable` is a name, or "NAME=value". */
bool ls_wire_env_announces(const char *variable);

#endif
