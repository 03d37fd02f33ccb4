/* Finds and opens device backends. The only place that knows that a backend is a shared object. */
#include "device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A name becomes part of a path: letters, digits and '_' only. */
static bool name_ok(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && n <= 64 && name[n] == '\0';
}

enum ls_status ls_device_load(const char *dir, const char *name, const struct ls_device_api **api,
                              struct ls_error *err)
{
    char path[4096];
    if (!name_ok(name))
        return ls_error_set(err, LS_ERR_USAGE,
                            "\"%s\" is no name of a device backend; expected one like \"cpu\"",
                            name);
    int n = snprintf(path, sizeof path, "%s/lockstep_%s.so", dir, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return ls_error_set(err, LS_ERR_OVERFLOW, "the plugin folder's name is too long: %.80s...",
                            dir);
    if (access(path, R_OK) != 0)
        return ls_error_errno(
            err, errno,
            "device backend \"%s\": cannot read %s (was it built, and is this the "
            "plugin folder?)",
            name, path);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        return ls_error_set(err, LS_ERR_ENV,
                            "device backend \"%s\" does not load: %s; install what is missing, or "
                            "choose another device",
                            name, why ? why : path);
    }
    /* From here on the object stays: OpenMP threads do not survive dlclose. */
    union { /* C has no cast from an object pointer to a function pointer */
        void *object;
        ls_device_entry_fn *function;
    } entry = {.object = dlsym(object, LS_DEVICE_ENTRY)};
    if (!entry.object)
        return ls_error_set(err, LS_ERR_ENV, "%s is no device backend: it has no symbol %s", path,
                            LS_DEVICE_ENTRY);
    const struct ls_device_api *found = entry.function();
    if (!found || found->abi != LS_DEVICE_ABI)
        return ls_error_set(err, LS_ERR_ENV,
                            "%s speaks version %u of the device interface, this program version "
                            "%d: build both from one source tree",
                            path, found ? found->abi : 0, LS_DEVICE_ABI);
    if (strcmp(found->name, name) != 0)
        return ls_error_set(err, LS_ERR_ENV, "%s calls itself \"%s\", expected \"%s\"", path,
                            found->name, name);
    *api = found;
    return LS_OK;
}
