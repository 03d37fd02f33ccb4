/* What NVML adds to a machine, by a library that this test brings along, and what happens without one. */
#include "tests/topo/machines.h"
#include "topo/nvml.h"

static const char *library(const char *name, char out[static 4096])
{
    const char *builddir = getenv("builddir");
    snprintf(out, 4096, "%s/tests/topo/.libs/%s.so", builddir ? builddir : ".", name);
    return out;
}

static void test_add(void)
{
    char path[4096];
    struct ls_error err = {0};
    struct ls_topo_machine *m = load("mig");
    m->gpu[0].mig = false;
    enum ls_status status = ls_topo_nvml_add(library("libfakenvml", path), m, &err);
    tap_ok(status == LS_OK && m->ngpu == 3, "three GPUs, of which /proc has two: %s", err.message);
    tap_ok(!strcmp(m->gpu[0].uuid, "GPU-00000001-aaaa") &&
               !strcmp(m->gpu[0].model, "NVIDIA Test GPU") && m->gpu[0].pci.numa == 0 &&
               m->gpu[0].minor == 0 && m->gpu[0].open,
           "names come from NVML, places stay");
    tap_ok(m->gpu[0].nvlink_gbit == 12 * 25000 * 8 / 1000.0 && m->gpu[1].nvlink_gbit == 0,
           "twelve links of 25 GB/s are 2400 Gb/s; a GPU without any has none");
    tap_ok(!m->gpu[0].mig && m->gpu[1].mig && m->nmig == 3 && m->mig[0].gpu == 1 &&
               !strcmp(m->mig[2].uuid, "MIG-00000004-aaaa-5bbb-8ccc-000000000000"),
           "three MIG instances, past an empty place");
    tap_ok(!strcmp(m->gpu[2].pci.bdf, "0000:ca:00.0") && m->gpu[2].pci.numa == -1 &&
               m->gpu[2].open && m->gpu[2].minor == 2,
           "the third one's place is not known");

    /* Found before others: numbers of those that follow move on. */
    struct ls_topo_machine *second = load("mig");
    second->gpu[0] = second->gpu[1];
    second->ngpu = 1;
    status = ls_topo_nvml_add(library("libfakenvml", path), second, &err);
    tap_ok(status == LS_OK && second->ngpu == 3 &&
               !strcmp(second->gpu[0].pci.bdf, "0000:17:00.0") &&
               !strcmp(second->gpu[1].pci.bdf, "0000:65:00.0") && second->gpu[1].pci.numa == 0 &&
               second->nmig == 3 && second->mig[0].gpu == 1,
           "what is added stands in the order of addresses");
    free(second);

    /* An instance by its name alone: which GPU it is on, only NVML knows. */
    struct ls_arena arena = {0};
    struct ls_topo_decision d;
    struct ls_topo_request r = {
        .machine = m,
        .get = get_listed,
        .user =
            (void *)(const char *const[]){
                "CUDA_VISIBLE_DEVICES=MIG-00000003-aaaa-5bbb-8ccc-000000000000", NULL},
        .local_size = 1};
    status = ls_topo_decide(&r, &arena, &d, &err);
    tap_ok(status == LS_OK && d.ngpu == 1 && d.gpu[0] == 1, "a MIG instance leads to its GPU: %s",
           err.message);
    ls_arena_free(&arena);
    free(m);
}

/* In every failure the machine stays as it was. */
static void test_failures(void)
{
    const struct {
        const char *library, *fault;
        enum ls_status want;
        const char *part;
    } cases[] = {
        {"libfakenvml", "mismatch", LS_ERR_ENV, "Driver/library version mismatch"},
        {"libfakenvml", "count", LS_ERR_ENV, "does not count"},
        {"libnowhere", "", LS_ERR_UNSUPPORTED, "libnowhere"},
        {"libfakenvml_old", "", LS_ERR_UNSUPPORTED, "has no nvmlDeviceGetMinorNumber"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        struct ls_error err = {0};
        struct ls_topo_machine *m = load("mig"), *before = load("mig");
        setenv("FAKE_NVML", cases[i].fault, 1);
        enum ls_status status = ls_topo_nvml_add(library(cases[i].library, path), m, &err);
        tap_ok(status == cases[i].want && strstr(err.message, cases[i].part) &&
                   !memcmp(m, before, sizeof *m),
               "%s", err.message);
        free(m);
        free(before);
    }
    struct ls_error err = {0};
    char path[4096];
    struct ls_topo_machine *m = load("mig");
    setenv("FAKE_NVML", "lost", 1);
    enum ls_status status = ls_topo_nvml_add(library("libfakenvml", path), m, &err);
    tap_ok(status == LS_OK && !strcmp(m->gpu[0].model, "NVIDIA A100-PCIE-40GB") &&
               !strcmp(m->gpu[1].model, "NVIDIA Test GPU"),
           "one GPU fell off the bus, the others are asked");
    free(m);
    m = load("mig");
    setenv("FAKE_NVML", "garbage", 1);
    status = ls_topo_nvml_add(library("libfakenvml", path), m, &err);
    tap_ok(status == LS_OK && !strcmp(m->gpu[0].model, "???"), "a name of bytes that are no text");
    free(m);
    m = load("mig");
    setenv("FAKE_NVML", "migs", 1);
    status = ls_topo_nvml_add(library("libfakenvml", path), m, &err);
    tap_ok(status == LS_OK && m->nmig == 3, "a number of instances beyond belief");
    m->ngpu = LS_TOPO_GPUS;
    for (int g = 0; g < LS_TOPO_GPUS; g++)
        snprintf(m->gpu[g].pci.bdf, sizeof m->gpu[g].pci.bdf, "0001:%02x:00.0", g);
    setenv("FAKE_NVML", "", 1);
    status = ls_topo_nvml_add(library("libfakenvml", path), m, &err);
    tap_ok(status == LS_OK && m->ngpu == LS_TOPO_GPUS && m->left_out == 3, "no room: counted");
    free(m);
}

int main(void)
{
    test_add();
    test_failures();
    return tap_done();
}
