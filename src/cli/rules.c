/* Reads what src/topo's rules want to know, for the keepers of `run` and `exec`. */
#include "cli/rules.h"
#include "cli/cli.h"
#include "topo/host.h"
#include "topo/nvml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

bool ls_cli_find_transport(const char *text, enum ls_topo_transport *transport)
{
    for (int i = 0; ls_topo_transport_names[i]; i++)
        if (!strcmp(text, ls_topo_transport_names[i])) {
            *transport = (enum ls_topo_transport)i;
            return true;
        }
    return false;
}

const char *ls_cli_user_variable(void *unused, const char *name)
{
    const char *set = getenv(LS_TOPO_SET_VARIABLE);
    size_t n = strlen(name);
    (void)unused;
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, name, n) && (*e)[n] == '=')
            return ls_topo_is_set_by_us(set, *e) ? NULL : *e + n + 1;
    return NULL;
}

/* LOCKSTEP_SPANK is VERSION/JOB.STEP: has the plugin prepared this very step? It may be inherited. */
static bool is_prepared(const struct ls_slurm *slurm)
{
    const char *proof = getenv("LOCKSTEP_SPANK"), *step = proof ? strrchr(proof, '/') : NULL;
    char mine[64];
    snprintf(mine, sizeof mine, "/%lld.%lld", (long long)slurm->job_id, (long long)slurm->step_id);
    return slurm->place == LS_SLURM_STEP && step && !strcmp(step, mine);
}

enum ls_status ls_cli_read_settings(ls_topo_getenv *get, void *user,
                                    enum ls_topo_transport *transport, bool *bind,
                                    struct ls_error *err)
{
    const char *name = get(user, "LOCKSTEP_TRANSPORT"), *how = get(user, "LOCKSTEP_BIND");
    if (name && *name && !ls_cli_find_transport(name, transport))
        return ls_error_set(err, LS_ERR_USAGE,
                            "LOCKSTEP_TRANSPORT: found '%.40s', expected auto, ib, roce, tcp, shm "
                            "or keep",
                            name);
    if (how && *how && strcmp(how, "auto") != 0 && strcmp(how, "none") != 0)
        return ls_error_set(err, LS_ERR_USAGE,
                            "LOCKSTEP_BIND: found '%.40s', expected auto or none", how);
    *bind = *bind && !(how && !strcmp(how, "none"));
    return LS_OK;
}

static const char *from_process(void *unused, const char *name)
{
    (void)unused;
    return getenv(name);
}

static enum ls_status read_settings(struct ls_cli_rules *r, struct ls_keep_config *config,
                                    struct ls_error *err)
{
    const char *explain = getenv("LOCKSTEP_EXPLAIN");
    LS_TRY(ls_cli_read_settings(from_process, NULL, &r->request.transport, &config->bind, err));
    r->request.bind = config->bind;
    if (explain && *explain && strcmp(explain, "yes") != 0 && strcmp(explain, "no") != 0)
        return ls_error_set(err, LS_ERR_USAGE,
                            "LOCKSTEP_EXPLAIN: found '%.40s', expected yes or no", explain);
    config->explain = explain && !strcmp(explain, "yes");
    return LS_OK;
}

enum ls_status ls_cli_read_site(const char *path, struct ls_topo_site *site,
                                struct ls_buf *problems, struct ls_error *err)
{
    const char *from = path ? path : LS_SYSCONFDIR "/lockstep-site.conf";
    char *text = NULL;
    size_t size;
    struct ls_error why = {0};
    *site = ls_topo_site_default;
    enum ls_status status = ls_file_read(from, 1 << 20, &text, &size, &why);
    if (status == LS_ERR_NOTFOUND && !path)
        return LS_OK;
    if (status == LS_OK)
        status = ls_topo_site_parse(from, text, site, problems, &why);
    free(text);
    return status == LS_OK ? LS_OK : ls_error_set(err, status, "%s", why.message);
}

/* NVML takes its time, and is asked only where its driver is. The plugin does not ask it. */
static enum ls_status read_machine(const struct ls_slurm *slurm, bool told, struct ls_cli_rules *r,
                                   struct ls_error *err)
{
    struct ls_error why = {0};
    r->machine = malloc(sizeof *r->machine);
    r->told = told ? malloc(sizeof *r->told) : NULL;
    if (!r->machine || (told && !r->told))
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the description of this machine");
    LS_TRY(ls_topo_read("", r->machine, err));
    if (told)
        *r->told = *r->machine;
    if (access("/dev/nvidiactl", F_OK) == 0 &&
        ls_topo_nvml_add(NULL, r->machine, &why) == LS_ERR_ENV && slurm->proc_id <= 0)
        ls_cli_error("warning: %s", why.message);
    r->machine->ucx = ls_topo_host_ucx(ls_cli_user_variable, NULL);
    return LS_OK;
}

/* Is anything to be set that depends on how UCX was built? The plugin must not look for that. */
static bool is_left_to_us(const struct ls_cli_rules *r)
{
    return r->request.transport == LS_TOPO_IB || r->request.transport == LS_TOPO_ROCE ||
           r->site.traffic_class >= 0 || r->site.service_level >= 0;
}

enum ls_status ls_cli_read_rules(const struct ls_slurm *slurm, struct ls_cli_rules *rules,
                                 struct ls_keep_config *config, struct ls_error *err)
{
    const char **keys = NULL, *site = getenv(LS_TOPO_SITE_VARIABLE);
    bool told = is_prepared(slurm);
    LS_TRY(read_settings(rules, config, err));
    struct ls_error why = {0};
    if (ls_cli_read_site(site && *site ? site : NULL, &rules->site, NULL, &why) != LS_OK)
        return ls_error_set(err, LS_ERR_ENV, "site file: %s", why.message);
    if (told && config->workers == 1 && !is_left_to_us(rules))
        return LS_OK;
    if (!rules->site.enabled)
        return LS_OK;
    LS_TRY(read_machine(slurm, told, rules, err));
    LS_TRY(ls_topo_host_keys(ls_cli_user_variable, NULL, &rules->arena, &keys, err));
    rules->request.machine = rules->machine;
    rules->request.site = &rules->site;
    rules->request.site_keys = keys;
    rules->request.get = ls_cli_user_variable;
    config->rules = &rules->request;
    config->told = rules->told;
    return LS_OK;
}

void ls_cli_free_rules(struct ls_cli_rules *rules)
{
    free(rules->machine);
    free(rules->told);
    ls_arena_free(&rules->arena);
}
