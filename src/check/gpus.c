/* The state of the GPUs that this task may use, as NVML tells it, and what is above them on the PCI bus. NVML opens
 * every GPU, and with a broken one it may hang: that is a timeout of the check then, as with any other. */
#include "check/internal.h"
#include "topo/nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Is GPU number `i`, in the order of addresses, one that this task may use? */
static bool is_mine(const struct ls_visible *visible, int i, const char *uuid)
{
    bool mig = false;
    if (!visible->set)
        return true;
    for (int v = 0; v < visible->count; v++) {
        /* names may be shortened */
        if (visible->uuid ? !strncmp(uuid, visible->uuid[v], strlen(visible->uuid[v]))
                          : (visible->index ? visible->index[v] : v) == i)
            return true;
        mig |= visible->uuid && !strncmp(visible->uuid[v], "MIG", 3);
    }
    return mig; /* which GPU an instance is on is not known here: look at all */
}

struct gpus {
    struct ls_topo_gpu_state state[LS_TOPO_GPUS]; /* of those that answer */
    int n, lost;
};

/* False: it has said why there is nothing to check. */
static bool ask(struct ls_check_out *out, const struct ls_check_context *context, struct gpus *gpus)
{
    struct ls_error err = {0};
    int all = 0;
    enum ls_status status =
        ls_topo_nvml_state(context->nvml, gpus->state, LS_TOPO_GPUS, &all, &err);
    if (status == LS_ERR_ENV && !strcmp(out->check->id, "gpu.mode")) { /* told once */
        ls_check_say(out, LS_CHECK_FAIL, "", "a driver that works",
                     "load the driver that belongs to its library, or start the node again", "%s",
                     err.message);
        return false;
    }
    if (status != LS_OK) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "%s", err.message);
        return false;
    }
    gpus->n = gpus->lost = 0;
    for (int i = 0; i < all; i++) {
        const struct ls_topo_gpu_state *s = &gpus->state[i];
        if (!is_mine(&context->slurm->visible, i, s->uuid))
            continue;
        if (!*s->problem) {
            gpus->state[gpus->n++] = *s;
            continue;
        }
        char device[16];
        snprintf(device, sizeof device, "GPU %d", i);
        gpus->lost++;
        if (!strcmp(out->check->id, "gpu.mode"))
            ls_check_say(out, LS_CHECK_FAIL, device, "a GPU that answers",
                         "have the node drained; its kernel log tells more", "%s", s->problem);
    }
    if (gpus->n == 0 && gpus->lost && strcmp(out->check->id, "gpu.mode") != 0)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no GPU of this task answers");
    else if (gpus->n == 0 && !gpus->lost)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "NVML sees no GPU of this task");
    return gpus->n > 0;
}

/* After findings on single GPUs: what there was to see, or that nothing was said. */
static void conclude(struct ls_check_out *out, int found, int known, const struct gpus *gpus,
                     const char *fine)
{
    if (!found && !known)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the driver does not say");
    else if (!found && known < gpus->n)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s; %d of %d GPUs do not say", fine,
                     gpus->n - known, gpus->n);
    else if (!found)
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s", fine);
}

/* ---- gpu.mode ---- */

void ls_check_gpu_mode(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct gpus gpus;
    int known = 0;
    if (!ask(out, context, &gpus))
        return;
    int found = gpus.lost;
    for (int i = 0; i < gpus.n; i++) {
        const struct ls_topo_gpu_state *s = &gpus.state[i];
        known += s->compute_mode >= 0;
        found +=
            s->compute_mode > LS_TOPO_COMPUTE_DEFAULT || s->persistence == 0 || s->processes > 0;
        if (s->compute_mode == LS_TOPO_COMPUTE_PROHIBITED)
            ls_check_say(out, LS_CHECK_FAIL, s->bdf, "compute mode Default",
                         "have nvidia-smi -c 0 run there", "compute mode Prohibited");
        else if (s->compute_mode > LS_TOPO_COMPUTE_DEFAULT)
            ls_check_say(out, LS_CHECK_WARN, s->bdf, "compute mode Default",
                         "one process only can use it; have nvidia-smi -c 0 run there",
                         "compute mode Exclusive");
        if (s->persistence == 0)
            ls_check_say(out, LS_CHECK_WARN, s->bdf, "persistence mode",
                         "have nvidia-persistenced run: without it every start takes seconds more",
                         "persistence mode is off");
        if (s->processes > 0)
            ls_check_say(out, LS_CHECK_WARN, s->bdf, "no process on it before the job starts",
                         "left over from another job, perhaps: nvidia-smi shows it",
                         "%d processes compute on it", s->processes);
    }
    conclude(out, found, known, &gpus, "compute mode Default, nobody else on it");
}

/* ---- gpu.ecc ---- */

static int judge_ecc(struct ls_check_out *out, const struct ls_topo_gpu_state *s)
{
    static const char drain[] = "have the node drained, and the GPU reset or replaced";
    const struct {
        int64_t n;
        enum ls_check_status status;
        const char *what, *expected, *advice;
    } rows[] = {
        {s->ecc_volatile, LS_CHECK_FAIL, "uncorrected memory errors since the driver was loaded",
         "none", drain},
        {s->rows_failed, LS_CHECK_FAIL, "row remapping has failed", "rows to spare", drain},
        {s->rows_pending, LS_CHECK_FAIL, "row remapping awaits a reset", "none that waits",
         "have the GPU reset"},
        {s->pages_pending, LS_CHECK_FAIL, "page retirement awaits a reset", "none that waits",
         "have the GPU reset"},
        {s->ecc_aggregate, LS_CHECK_WARN, "uncorrected memory errors in its life", "none",
         "if they are new, have it looked at"},
    };
    int found = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].n <= 0 || (found && rows[i].status == LS_CHECK_WARN))
            continue;
        found++;
        if (rows[i].n > 1)
            ls_check_say(out, rows[i].status, s->bdf, rows[i].expected, rows[i].advice, "%lld %s",
                         (long long)rows[i].n, rows[i].what);
        else
            ls_check_say(out, rows[i].status, s->bdf, rows[i].expected, rows[i].advice, "%s",
                         rows[i].what);
    }
    return found;
}

void ls_check_gpu_ecc(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct gpus gpus;
    int found = 0, known = 0, off = 0;
    if (!ask(out, context, &gpus))
        return;
    for (int i = 0; i < gpus.n; i++) {
        const struct ls_topo_gpu_state *s = &gpus.state[i];
        found += judge_ecc(out, s);
        known += s->ecc_volatile >= 0 || s->rows_failed >= 0 || s->pages_pending >= 0;
        off += s->ecc == 0;
    }
    if (!found && off && !known)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "ECC is off, so errors are not seen");
    else
        conclude(out, found, known, &gpus, "no uncorrected error");
}

/* ---- gpu.clocks ---- */

static int judge_clocks(struct ls_check_out *out, const struct ls_topo_gpu_state *s)
{
    static const struct {
        int64_t bit;
        const char *what, *advice;
    } reasons[] = {
        {LS_TOPO_CLOCK_HW_THERMAL, "clocks are held down by heat", "have its cooling looked at"},
        {LS_TOPO_CLOCK_SW_THERMAL, "clocks are held down by heat", "have its cooling looked at"},
        {LS_TOPO_CLOCK_POWER_BRAKE, "clocks are held down by the power brake",
         "have the node's power supplies looked at"},
        {LS_TOPO_CLOCK_HW_SLOWDOWN, "clocks are held down by the hardware",
         "have its cooling and power looked at"},
    };
    int found = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons && s->clock_reasons > 0 && !found; i++)
        if (s->clock_reasons & reasons[i].bit) {
            found++;
            ls_check_say(out, LS_CHECK_WARN, s->bdf, "no slowdown", reasons[i].advice, "%s",
                         reasons[i].what);
        }
    if (s->temperature_slow > 0 && s->temperature >= s->temperature_slow) {
        found++;
        ls_check_say(out, LS_CHECK_WARN, s->bdf, "below the temperature of slowdown",
                     "have its cooling looked at", "%d C, and clocks fall at %d C", s->temperature,
                     s->temperature_slow);
    }
    if (s->power_limit > 0 && s->power_limit < s->power_default) {
        char expected[64];
        found++;
        snprintf(expected, sizeof expected, "%lld W, its default",
                 (long long)(s->power_default / 1000));
        ls_check_say(out, LS_CHECK_WARN, s->bdf, expected,
                     "nvidia-smi -pl sets it; a site may want it so",
                     "its power is limited to %lld W", (long long)(s->power_limit / 1000));
    }
    if (s->pcie_width > 0 && s->pcie_width < s->pcie_width_max) {
        char expected[64];
        found++;
        snprintf(expected, sizeof expected, "%d lanes", s->pcie_width_max);
        ls_check_say(out, LS_CHECK_WARN, s->bdf, expected,
                     "a bad slot or riser, perhaps: have it looked at", "%d lanes of PCIe",
                     s->pcie_width);
    }
    return found;
}

void ls_check_gpu_clocks(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct gpus gpus;
    int found = 0, known = 0;
    if (!ask(out, context, &gpus))
        return;
    for (int i = 0; i < gpus.n; i++) {
        found += judge_clocks(out, &gpus.state[i]);
        known += gpus.state[i].clock_reasons >= 0;
    }
    conclude(out, found, known, &gpus, "nothing holds clocks down, idle");
}

/* ---- gpu.nvlink ---- */

/* How many links a GPU should have depends on the board: the best of the node is what all should have, and
 * nodes are compared with each other, also those where not one is active. */
static int judge_links(struct ls_check_out *out, const struct gpus *gpus, int best)
{
    int found = 0;
    for (int i = 0; i < gpus->n; i++) {
        const struct ls_topo_gpu_state *s = &gpus->state[i];
        char expected[64];
        snprintf(expected, sizeof expected, "%d, as its neighbours", best);
        if (s->links_active < best && s->links_active + s->links_inactive > 0) {
            found++;
            ls_check_say(out, LS_CHECK_FAIL, s->bdf, expected,
                         "have the node drained; a reset of all its GPUs may help",
                         "%d active NVLinks, %d inactive", s->links_active, s->links_inactive);
        }
        if (s->fabric == 0) {
            found++;
            ls_check_say(out, LS_CHECK_FAIL, s->bdf, "a GPU that is registered with its NVSwitches",
                         "have nvidia-fabricmanager looked at", "the NVLink fabric is not ready");
        }
    }
    return found;
}

void ls_check_gpu_nvlink(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct gpus before, after;
    int best = 0, links = 0, counted = 0, rising = 0;
    if (!ask(out, context, &before))
        return;
    for (int i = 0; i < before.n; i++) {
        links += before.state[i].links_active + before.state[i].links_inactive;
        best = before.state[i].links_active > best ? before.state[i].links_active : best;
        counted += before.state[i].link_errors >= 0;
    }
    int found = judge_links(out, &before, best);
    if (links <= 0 && !found) {
        ls_check_say(out, LS_CHECK_SKIP, "", "", "",
                     links ? "the driver does not say" : "no GPU here has NVLinks");
        return;
    }
    /* None may be right, for cards without a bridge; the other nodes tell. */
    if (!found)
        ls_check_fact(out, "%d active links of each GPU", best);
    if (!counted && best > 0)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "the error counters of NVLinks are not known");
    if (!ls_check_next(out) || !counted || !ask(out, context, &after))
        return;
    for (int i = 0; i < after.n && after.n == before.n; i++) {
        int64_t rose = after.state[i].link_errors - before.state[i].link_errors;
        if (before.state[i].link_errors < 0 || rose <= 0)
            continue;
        rising++;
        ls_check_say(out, LS_CHECK_WARN, after.state[i].bdf, "no error in these seconds",
                     "if it goes on, have the node drained", "NVLink errors rose by %lld",
                     (long long)rose);
    }
}

/* ---- pci.acs ---- */

enum {
    CONFIG_HEADER = 64, /* all that users may read */
    CONFIG_BYTES = 4096,
    EXTENDED = 0x100, /* where capabilities of PCI Express begin */
    CAP_ACS = 0x000d,
    ACS_CONTROL = 6,
    ACS_REDIRECT = 0x0c /* of requests and of completions between peers */
};

static unsigned word(const unsigned char *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

/* 1: traffic between devices below this bridge goes by way of the root; 0: it does not; -1: errno. */
static int redirects(const struct ls_check_context *context, const char *bdf)
{
    char path[4300];
    unsigned char config[CONFIG_BYTES];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", context->root, bdf);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? pread(fd, config, sizeof config, 0) : -1;
    int cause = errno;
    if (fd >= 0)
        close(fd);
    errno = cause;
    if (n < 0)
        return -1;
    errno = EACCES;
    if (n <= CONFIG_HEADER)
        return -1;
    /* A chain that a broken device may have closed to a ring. */
    unsigned at = EXTENDED;
    for (int steps = 0; steps < CONFIG_BYTES / 4 && at >= EXTENDED && at + 8 <= (size_t)n;
         steps++) {
        if (word(config + at) == CAP_ACS)
            return (word(config + at + ACS_CONTROL) & ACS_REDIRECT) != 0;
        at = word(config + at + 2) >> 4 & ~3U;
    }
    return 0; /* without the capability nothing is redirected */
}

static void judge_bridges(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    int seen = 0, bad = 0, closed = 0, cause = 0;
    char first[16] = "";
    for (int g = 0; g < m->ngpu; g++)
        for (int b = 0; b < m->gpu[g].pci.depth; b++) {
            int answer = redirects(context, m->gpu[g].pci.above[b]);
            cause = answer < 0 ? errno : cause;
            closed += answer < 0;
            seen++;
            if (answer > 0 && !bad++)
                strcpy(first, m->gpu[g].pci.above[b]);
        }
    if (bad)
        ls_check_say(
            out, LS_CHECK_WARN, first, "no redirection above GPUs",
            "switch ACS off for bridges (setpci, or the BIOS): GPUs and NICs then talk directly",
            "ACS sends traffic between devices by way of the CPU");
    else if (closed)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "",
                     cause == EACCES || cause == EPERM
                         ? "needs root: users cannot read the configuration of PCI bridges"
                         : "the configuration of PCI bridges cannot be read");
    else if (!seen)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no PCI bridge is to be seen above a GPU");
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "no redirection above GPUs");
}

void ls_check_pci_acs(struct ls_check_out *out, const struct ls_check_context *context)
{
    const struct ls_topo_machine *m = context->machine;
    for (int g = 0; g < m->ngpu; g++)
        if (m->gpu[g].translated && !m->virtual_machine) {
            ls_check_say(out, LS_CHECK_WARN, m->gpu[g].pci.bdf, "DMA past the IOMMU",
                         "start the kernel with iommu=pt", "its DMA goes through the IOMMU");
            break;
        }
    if (m->virtual_machine)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "a virtual machine: its host decides");
    else
        judge_bridges(out, context);
}
