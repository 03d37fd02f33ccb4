/* Which variables announce a PMIx or PMI server; shared by env.c and server.c. */
#ifndef LS_WIRE_ENV_H
#define LS_WIRE_ENV_H

#include "wire/wire.h"

/* The namespace that a server above gave this process; NULL: there is none. */
const char *ls_wire_env_namespace(void);
/* `variable` is a name, or "NAME=value". */
bool ls_wire_env_announces(const char *variable);

#endif
