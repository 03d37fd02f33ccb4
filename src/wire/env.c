/* The variables by which a PMIx server announces itself to the process that it started. They are
 * the only environment that this room touches: PMIx reads them itself, so that no argument can
 * carry them. */
#include "wire/env.h"

#include <stdio.h>
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

const char *ls_wire_env_demands(char out[static 256])
{
    static const struct {
        const char *variable, *what;
    } row[] = {{"PMIX_VERSION", "version "},
               {"PMIX_SECURITY_MODE", "security by "},
               {"PMIX_GDS_MODULE", "data by "}};
    int at = 0;
    snprintf(out, 256, "nothing that it tells");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *value = getenv(row[i].variable);
        if (value && *value)
            at += snprintf(out + at, (size_t)(256 - at), "%s%s%.64s", at ? ", " : "", row[i].what,
                           value);
    }
    return out;
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
