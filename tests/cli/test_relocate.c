/* Where the parts of an installation are after it was moved: for the layouts of distributions. */
#include "cli/cli.h"
#include "tests/tap.h"

#include <string.h>

int main(void)
{
    static const struct {
        const char *what, *dir, *home, *path, *want;
    } row[] = {
        {"plain", "/opt/x/bin", "/usr/local/bin", "/usr/local/lib/lockstep",
         "/opt/x/bin/../lib/lockstep"},
        {"multiarch", "/opt/x/bin", "/usr/bin", "/usr/lib/x86_64-linux-gnu/lockstep",
         "/opt/x/bin/../lib/x86_64-linux-gnu/lockstep"},
        {"lib64", "/opt/x/bin", "/usr/bin", "/usr/lib64/lockstep", "/opt/x/bin/../lib64/lockstep"},
        {"from libexec", "/opt/x/libexec/lockstep", "/usr/libexec/lockstep",
         "/usr/lib/x86_64-linux-gnu/lockstep",
         "/opt/x/libexec/lockstep/../../lib/x86_64-linux-gnu/lockstep"},
        {"the same folder", "/opt/x", "/usr/libexec/lockstep", "/usr/libexec/lockstep", "/opt/x"},
        {"a folder below", "/opt/x", "/usr/lib", "/usr/lib/lockstep", "/opt/x/lockstep"},
        {"names that begin alike", "/opt/x/bin", "/usr/lib", "/usr/lib64/lockstep",
         "/opt/x/bin/../lib64/lockstep"},
        {"nothing in common but the root", "/a/b", "/bin", "/lib/lockstep", "/a/b/../lib/lockstep"},
        {"slashes too many", "/opt/x/bin", "/usr//bin/", "/usr//lib/lockstep",
         "/opt/x/bin/../lib/lockstep"},
        {"the program in the root", "", "/usr/bin", "/usr/lib/lockstep", "/../lib/lockstep"},
    };
    static char out[LS_CLI_PATH], deep[LS_CLI_PATH];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        bool ok = ls_cli_relocate(row[i].dir, row[i].home, row[i].path, out);
        tap_ok(ok && !strcmp(out, row[i].want), "%s: %s", row[i].what, ok ? out : "refused");
    }
    for (size_t n = LS_CLI_PATH - 40; n < LS_CLI_PATH; n++) {
        memset(deep, 'd', n);
        deep[0] = '/';
        deep[n] = '\0';
        bool ok = ls_cli_relocate(deep, "/usr/bin", "/usr/lib/lockstep", out);
        if (ok != (n + strlen("/../lib/lockstep") < LS_CLI_PATH)) {
            tap_ok(false, "a folder of %zu bytes", n);
            return tap_done();
        }
    }
    tap_ok(true, "a path that is too long is refused, and no sooner");
    return tap_done();
}
