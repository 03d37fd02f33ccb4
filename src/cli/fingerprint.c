/* What a rank says of itself before it connects: which build, which libraries, which job, which settings. */
#include "cli/cli.h"
#include "cli/worker.h"
#include "comm/comm.h"
#include "keep/keep.h"
#include "topo/rules.h"
#include "topo/topo.h"
#include "wire/wire.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

#define MAX_TEXT ((size_t)1 << 19)

extern char **environ;

/* Settings that must be the same on all ranks, or they talk past each other. */
static bool relevant(const char *variable)
{
    static const char *const prefixes[] = {"UCX_", "NCCL_", "OMP_",    "GOMP_",
                                           "KMP_", "DNNL_", "ONEDNN_", "LOCKSTEP_"};
    static const char *const own[] = {LS_RECORD_FD_VARIABLE "=", LS_KEEP_WINDOW_VARIABLE "=",
                                      "LOCKSTEP_THREADS=",       LS_KEEP_BEGAN_VARIABLE "=",
                                      LS_TOPO_SET_VARIABLE "=",  LS_TOPO_SITE_VARIABLE "=",
                                      "LOCKSTEP_SPANK="};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strncmp(variable, own[i], strlen(own[i])))
            return false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
            /* What we have set for this very task may differ between nodes, as their devices and CPUs do;
             * `lockstep check` compares the devices. */
            return !ls_topo_is_set_by_us(getenv(LS_TOPO_SET_VARIABLE), variable);
    return false;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum ls_status add_environment(struct ls_buf *text, struct ls_error *err)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **sorted = malloc((n + 1) * sizeof *sorted);
    if (!sorted)
        return ls_error_set(err, LS_ERR_NOMEM, "comparing the ranks");
    memcpy(sorted, environ, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++)
        if (relevant(sorted[i]))
            ls_buf_printf(text, "%s\n", sorted[i]);
    free(sorted);
    return LS_OK;
}

static void add_build_id(const struct dl_phdr_info *info, struct ls_buf *text)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const char *at = (const char *)info->dlpi_addr + h->p_vaddr;
        for (size_t left = h->p_type == PT_NOTE ? h->p_memsz : 0; left >= sizeof(ElfW(Nhdr));) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            size_t name = (note.n_namesz + 3) & ~(size_t)3, desc = (note.n_descsz + 3) & ~(size_t)3;
            size_t bytes = sizeof note + name + desc;
            if (bytes > left)
                break;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4)
                for (size_t k = 0; k < note.n_descsz; k++)
                    ls_buf_printf(text, "%02x", (unsigned char)at[sizeof note + name + k]);
            at += bytes;
            left -= bytes;
        }
    }
}

struct objects {
    struct ls_buf *text;
    int seen;
};

/* The linker's build id, a note in each object: two builds of one version have different ones. The program comes
 * first; of what it has loaded, the backend is ours, too. Libraries of others are named by their versions. */
static int add_build(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct objects *o = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (o->seen++ == 0)
        ls_buf_printf(o->text, "build=");
    else if (!strncmp(name, "lockstep_", 9))
        ls_buf_printf(o->text, "build of %s=", name);
    else
        return 0;
    add_build_id(info, o->text);
    ls_buf_printf(o->text, "\n");
    return 0;
}

enum ls_status ls_worker_fingerprint(const struct ls_job *job, const char *device,
                                     struct ls_buf *text, struct ls_error *err)
{
    char pmix[64];
    ls_buf_init(text, MAX_TEXT);
    ls_buf_printf(text, "lockstep=%s\n", PACKAGE_VERSION);
    dl_iterate_phdr(add_build, &(struct objects){.text = text});
    ls_buf_printf(text, "pmix=%s\nucx=%s\ndevice=%s\n", ls_wire_pmix_version(pmix),
                  ls_comm_ucx_version(), device);
    ls_job_lines(job, text);
    LS_TRY(add_environment(text, err));
    return text->failed ? ls_error_set(err, LS_ERR_NOMEM, "comparing the ranks") : LS_OK;
}
