/* The loader and what surrounds the kernels: opening, memory, copies, errors. */
#include "tests/cpu/op_case.h"
#include "tests/tap.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_load(void)
{
    const struct ls_device_api *api = NULL, *again = NULL;
    struct ls_error err = {0};
    enum ls_status status = ls_device_load(op_plugin_dir(), "cpu", &api, &err);
    if (!tap_ok(status == LS_OK && api && api->abi == LS_DEVICE_ABI, "the plugin loads"))
        exit((tap_note("%s", err.message), 1));
    tap_ok(!strcmp(api->name, "cpu"), "it calls itself cpu");
    tap_ok(strstr(api->version(), "oneDNN ") != NULL, "its version names oneDNN: %s",
           api->version());
    status = ls_device_load(op_plugin_dir(), "cpu", &again, &err);
    tap_ok(status == LS_OK && again == api, "a second load yields the same table");

    struct ls_error bad = {0};
    status = ls_device_load(op_plugin_dir(), "gpu", &again, &bad);
    tap_ok(status == LS_ERR_NOTFOUND && strstr(bad.message, "lockstep_gpu.so"),
           "an absent backend: %s", ls_status_name(status));
    bad = (struct ls_error){0};
    status = ls_device_load(op_plugin_dir(), "../cpu", &again, &bad);
    tap_ok(status == LS_ERR_USAGE && strstr(bad.message, "../cpu"), "a name that is a path");
}

/* A file that is no shared object, and a folder name that is too long. */
static void check_load_junk(void)
{
    char dir[] = "/tmp/lockstep-device-XXXXXX", path[128];
    const struct ls_device_api *api = NULL;
    struct ls_error err = {0};
    if (!mkdtemp(dir)) {
        tap_ok(false, "a folder under /tmp");
        return;
    }
    snprintf(path, sizeof path, "%s/lockstep_junk.so", dir);
    FILE *f = fopen(path, "w");
    if (f) {
        fputs("not a shared object", f);
        fclose(f);
    }
    enum ls_status status = ls_device_load(dir, "junk", &api, &err);
    tap_ok(status == LS_ERR_ENV && strstr(err.message, path) && !api,
           "a file that is no plugin is named");
    unlink(path);
    rmdir(dir);
    char longer[5000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    err = (struct ls_error){0};
    tap_ok(ls_device_load(longer, "cpu", &api, &err) == LS_ERR_OVERFLOW, "a folder name too long");
}

static void check_open(void)
{
    const struct ls_device_api *api = op_api();
    struct ls_device *dev = NULL;
    struct ls_error err = {0};
    struct ls_device_config config = {.threads = 0};
    tap_ok(api->open(&config, &dev, &err) == LS_ERR_USAGE && !dev &&
               strstr(err.message, "0 threads"),
           "no threads: refused");
    config.threads = 2;
    tap_ok(api->open(&config, &dev, &err) == LS_OK, "two threads");
    const char *text = api->describe(dev);
    tap_ok(strstr(text, "2 threads") && strstr(text, "oneDNN"), "it describes itself: %s", text);
    api->close(dev);
    api->close(NULL);
    api->release(op_device(1), NULL);
    tap_ok(true, "closing and releasing nothing is harmless");
}

static bool all_zero(const char *mem, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (mem[i])
            return false;
    return true;
}

static void check_memory(void)
{
    const struct ls_device_api *api = op_api();
    struct ls_device *dev = op_device(2);
    static const int64_t sizes[] = {1, 63, 4097, (2 << 20) - 1, 2 << 20, (6 << 20) + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ls_error err = {0};
        void *mem = NULL;
        int64_t n = sizes[i];
        bool ok =
            api->alloc(dev, n, &mem, &err) == LS_OK && (uintptr_t)mem % 64 == 0 && all_zero(mem, n);
        tap_ok(ok, "%lld bytes: zero and aligned", (long long)n);
        char *host = malloc((size_t)n);
        if (!ok || !host)
            exit(1);
        memset(host, 'a', (size_t)n);
        ok = api->write(dev, mem, host, n, &err) == LS_OK;
        memset(host, 0, (size_t)n);
        ok = ok && api->read(dev, host, mem, n, &err) == LS_OK && host[0] == 'a' &&
             host[n - 1] == 'a';
        tap_ok(ok && api->sync(dev, &err) == LS_OK, "%lld bytes there and back", (long long)n);
        free(host);
        api->free(dev, mem, n);
    }
    struct ls_error err = {0};
    void *mem = NULL;
    tap_ok(api->alloc(dev, 0, &mem, &err) == LS_ERR_OVERFLOW && !mem, "no bytes: refused");
    err = (struct ls_error){0};
    tap_ok(api->alloc(dev, INT64_C(1) << 60, &mem, &err) == LS_ERR_NOMEM && !mem,
           "more than there is: refused, %s", err.message);
    api->free(dev, NULL, 5);
}

int main(void)
{
    check_load();
    check_load_junk();
    check_open();
    check_memory();
    return tap_done();
}
