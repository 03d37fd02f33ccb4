/* What a site or a user writes about machines: the site's file, nccl.conf and ucx.conf, lists of CPUs, trees.
 * A tree is unpacked into a directory of its own and read: nothing outside of it may come to be. */
#include "topo/rules.h"
#include "topo/tree.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(truth)  \
    do {              \
        if (!(truth)) \
            abort();  \
    } while (0)

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static void try_tree(const char *text, struct ls_topo_machine *machine)
{
    const char *tmp = getenv("TMPDIR");
    char outer[4096], inner[4200], stray[4300];
    struct ls_error err = {0};
    snprintf(outer, sizeof outer, "%s/lockstep-fuzz-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    HOLDS(mkdtemp(outer));
    snprintf(inner, sizeof inner, "%s/tree", outer);
    snprintf(stray, sizeof stray, "%s/sys", outer);
    HOLDS(mkdir(inner, 0700) == 0);
    enum ls_status status = ls_topo_tree_unpack("fuzz", text, inner, &err);
    HOLDS((status == LS_OK) == (err.message[0] == '\0'));
    struct stat st;
    HOLDS(stat(outer, &st) == 0 && st.st_nlink <= 3 && access(stray, F_OK) != 0);
    err = (struct ls_error){0};
    status = ls_topo_read(inner, machine, &err);
    if (status == LS_OK) {
        struct ls_arena arena = {0};
        struct ls_topo_decision d;
        struct ls_topo_request r = {
            .machine = machine, .bind = true, .local_size = 3, .local_rank = 2};
        status = ls_topo_decide(&r, &arena, &d, &err);
        HOLDS(status == LS_OK || status == LS_ERR_ENV);
        for (int i = 0; i < d.nvariable && status == LS_OK; i++)
            HOLDS(d.variable[i].reason && d.variable[i].reason[0]);
        ls_arena_free(&arena);
    }
    nftw(outer, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct ls_topo_machine *machine = malloc(sizeof *machine);
    HOLDS(text && machine);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';

    struct ls_topo_site site = ls_topo_site_default;
    struct ls_error err = {0};
    enum ls_status status = ls_topo_site_parse("fuzz", text, &site, NULL, &err);
    HOLDS((status == LS_OK) == (err.message[0] == '\0'));
    HOLDS(site.rc_max >= 1 && site.traffic_class >= -1 && site.traffic_class <= 255);
    HOLDS(strlen(site.nic) < sizeof site.nic && strlen(site.interface) < sizeof site.interface);

    struct ls_arena arena = {0};
    const char **names;
    HOLDS(ls_topo_conf_keys(text, &arena, &names, &err) == LS_OK);
    for (int i = 0; names[i]; i++)
        HOLDS(names[i][0] && strlen(names[i]) < 128);
    ls_arena_free(&arena);

    cpu_set_t cpus;
    char shown[128];
    if (!ls_topo_parse_cpus(text, &cpus))
        HOLDS(CPU_COUNT(&cpus) == 0);
    HOLDS(strlen(ls_topo_format_cpus(&cpus, shown)) < sizeof shown);

    if (!strncmp(text, "lockstep-tree", 13))
        try_tree(text, machine);
    free(machine);
    free(text);
    return 0;
}
