/* An installation may be moved, or mounted elsewhere: its folders keep their places relative to each other. */
#include "cli/cli.h"

#include <string.h>

/* Length of what two absolute paths share in whole names; 0: only the root. */
static size_t shared(const char *a, const char *b)
{
    size_t n = 0;
    for (size_t i = 0; a[i] == b[i] || !a[i] || !b[i]; i++) {
        if ((a[i] == '/' || !a[i]) && (b[i] == '/' || !b[i]))
            n = i;
        if (!a[i] || !b[i])
            break;
    }
    return n;
}

bool ls_cli_relocate(const char *dir, const char *home, const char *path,
                     char out[static LS_CLI_PATH])
{
    size_t n = shared(home, path), at = strlen(dir);
    if (at >= LS_CLI_PATH)
        return false;
    strcpy(out, dir);
    for (const char *p = home + n; *p; p += strcspn(p, "/")) {
        p += strspn(p, "/");
        if (!*p)
            break;
        if (at + 3 >= LS_CLI_PATH)
            return false;
        memcpy(out + at, "/..", 4);
        at += 3;
    }
    size_t rest = strlen(path + n);
    if (at + rest >= LS_CLI_PATH)
        return false;
    memcpy(out + at, path + n, rest + 1);
    return true;
}
