/* The variables by which a PMIx server announces itself to the process that it started. They are
 * the only environment that this room touches: PMIx reads them itself, so that no argument can
 * carry them. */
#include "wire/env.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

bool ls_wire_env_announces(const char *variable)
{
    // A user's settings of PMIx components hold for every level.
    if (strncmp(variable, "PMIX_MCA_", 9) == 0)
        return false;
    return strncmp(variable, "PMIX_", 5) == 0 || strncmp(variable, "PMI_", 4) == 0 ||
           strncmp(variable, "PMI2_", 5) == 0;
}

const char *ls_wire_env_namespace(void)
{
    return getenv("PMIX_NAMESPACE");
}

enum ls_status ls_wire_env_take(char *const *env, struct ls_error *err)
{
    for (char **e = environ; e && *e;) {
        size_t n = strcspn(*e, "=");
        char *name = ls_wire_env_announces(*e) ? strndup(*e, n) : NULL;
        if (!name) {
            e++;
            continue;
        }
        int rc = unsetenv(name); // closes the gap, so *e is the next one
        free(name);
        if (rc)
            e++;
    }
    for (; env && *env; env++) {
        const char *eq = strchr(*env, '=');
        char *name = eq ? strndup(*env, (size_t)(eq - *env)) : NULL;
        int rc = name ? setenv(name, eq + 1, 1) : -1;
        free(name);
        if (rc)
            return ls_error_set(err, eq ? LS_ERR_NOMEM : LS_ERR_INTERNAL,
                                "cannot set the variable \"%.80s\"", *env);
    }
    return LS_OK;
}
