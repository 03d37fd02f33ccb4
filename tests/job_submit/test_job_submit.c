/* job_submit_lockstep as slurmctld would call it: what becomes a request, what is refused, and that every
 * other job stays as it is, down to the pointers. */
#include "base/base.h"
#include "tests/tap.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <string.h>

char *slurm_xstrdup(const char *text);
void slurm_xfree(void **text);

char *slurm_xstrdup(const char *text)
{
    return strdup(text);
}

void slurm_xfree(void **text)
{
    free(*text);
    *text = NULL;
}

static int (*submit)(struct job_descriptor *, uint32_t, char **);
static int (*modify)(struct job_descriptor *, void *, uint32_t, char **);

#define OPTION "_SLURM_SPANK_OPTION_lockstep_lockstep_gpus="

struct job_case {
    const char *option, *per_node, *per_job, *per_task;
    uint32_t min_nodes, max_nodes;
    uint16_t tasks;
    const char *want; /* tres_per_node afterwards; NULL: refused */
    const char *said; /* when refused */
};

static const struct job_case cases[] = {
    {"2", NULL, NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, "gres:gpu:2", NULL},
    {"a100:4", NULL, NULL, NULL, 1, 1, 4, "gres:gpu:a100:4", NULL},
    {"2", "", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, "gres:gpu:2", NULL},
    {"2", "gres:nic:1", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, "gres:nic:1,gres:gpu:2", NULL},
    {"2", "gres:gpu_slot:1", NULL, NULL, 1, 1, 1, "gres:gpu_slot:1,gres:gpu:2", NULL},
    {"2", "gres:gpu:2", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, "gres:gpu:2", NULL},
    {"2", "gres/gpu=2", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, "gres/gpu=2", NULL},
    {"1", "gres:gpu", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, "gres:gpu", NULL},
    {"a100:2", "gres:gpu:a100:2", NULL, NULL, 1, 2, 1, "gres:gpu:a100:2", NULL},
    {"2", NULL, "gres:gpu:8", NULL, 4, 4, NO_VAL16, "gres:gpu:2", NULL},
    {"2", NULL, "gres:gpu:8", NULL, 1, 4, NO_VAL16, "gres:gpu:2", NULL},
    {"2", NULL, NULL, "gres:gpu:1", 1, 1, 2, "gres:gpu:2", NULL},
    {"2", NULL, NULL, "gres:gpu:4", 1, 1, NO_VAL16, "gres:gpu:2", NULL},
    {"2", "gres:gpu:4", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, NULL, "say it once"},
    {"2", "gres:gpu:a100:2", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, NULL, "a100:2"},
    {"a100:2", "gres:gpu:2", NULL, NULL, NO_VAL, NO_VAL, NO_VAL16, NULL, "say it once"},
    {"2", "gres:gpu:a100:1,gres:gpu:h100:2", NULL, NULL, 1, 1, 1, NULL, "h100:2"},
    {"2", "gres:gpu:99999999999999999999,gres:gpu:1", NULL, NULL, 1, 1, 1, NULL, "say it once"},
    {"2", NULL, NULL, "gres:gpu:999999999", 1, 1, 60000, NULL, "60000"},
    {"2", NULL, "gres:gpu:6", NULL, 4, 4, NO_VAL16, NULL, "6 in all"},
    {"2", NULL, NULL, "gres:gpu:1", 1, 1, 4, NULL, "need 4"},
    {"", NULL, NULL, NULL, 1, 1, 1, NULL, "expected"},
    {"0", NULL, NULL, NULL, 1, 1, 1, NULL, "expected"},
    {"33", NULL, NULL, NULL, 1, 1, 1, NULL, "expected"},
    {"-1", NULL, NULL, NULL, 1, 1, 1, NULL, "expected"},
    {"a100", NULL, NULL, NULL, 1, 1, 1, NULL, "expected"},
    {"%s%n", NULL, NULL, NULL, 1, 1, 1, NULL, "%s%n"},
    {"x,gres:cpu:9:1", NULL, NULL, NULL, 1, 1, 1, NULL, "expected"},
};

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static void test_case(const struct job_case *c)
{
    char text[256], *message = NULL;
    snprintf(text, sizeof text, OPTION "%s", c->option);
    char *env[] = {(char *)"OTHER=1", NULL, text};
    struct job_descriptor job = {.spank_job_env = env,
                                 .spank_job_env_size = 3,
                                 .min_nodes = c->min_nodes,
                                 .max_nodes = c->max_nodes,
                                 .ntasks_per_node = c->tasks,
                                 .tres_per_node = copy(c->per_node),
                                 .tres_per_job = copy(c->per_job),
                                 .tres_per_task = copy(c->per_task)};
    int rc = submit(&job, 1000, &message);
    bool good = c->want ? rc == SLURM_SUCCESS && !message && job.tres_per_node &&
                              !strcmp(job.tres_per_node, c->want)
                        : rc == ESLURM_INVALID_GRES && message && strstr(message, c->said) &&
                              strstr(message, "--lockstep-gpus");
    if (!c->want) /* a refused job is not changed either */
        good = good && (c->per_node ? !strcmp(job.tres_per_node, c->per_node) : !job.tres_per_node);
    tap_ok(good, "option %s, per node %s, per job %s, per task %s: %s", c->option,
           c->per_node ? c->per_node : "-", c->per_job ? c->per_job : "-",
           c->per_task ? c->per_task : "-", message ? message : job.tres_per_node);
    free(message);
    free(job.tres_per_node);
    free(job.tres_per_job);
    free(job.tres_per_task);
}

/* Two GPUs on each node, and so many on each socket. */
static void test_sockets(void)
{
    static const struct {
        const char *list;
        uint16_t sockets;
        bool good;
    } rows[] = {{"gres:gpu:2", 2, false},       {"gres:gpu:2", 1, true},
                {"gres:gpu:1", 2, true},        {"gres:gpu:1", 1, false},
                {"gres:gpu:1", NO_VAL16, true}, {"gres:gpu:a100:3", NO_VAL16, false},
                {"gres:nic:8", 2, true},        {"gres:gpu:99999999999999999999", 60000, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *env[] = {(char *)OPTION "2"}, *message = NULL;
        struct job_descriptor job = {.spank_job_env = env,
                                     .spank_job_env_size = 1,
                                     .ntasks_per_node = NO_VAL16,
                                     .sockets_per_node = rows[i].sockets,
                                     .tres_per_socket = copy(rows[i].list)};
        int rc = submit(&job, 1000, &message);
        tap_ok(rows[i].good ? rc == SLURM_SUCCESS && !message
                            : rc == ESLURM_INVALID_GRES && message && !job.tres_per_node &&
                                  strstr(message, "--gpus-per-socket"),
               "per socket %s, of %d: %s", rows[i].list, rows[i].sockets,
               message ? message : job.tres_per_node);
        free(message);
        free(job.tres_per_node);
        free(job.tres_per_socket);
    }
}

static void test_others(void)
{
    char *env[] = {(char *)"_SLURM_SPANK_OPTION_lockstep_lockstep_check=full",
                   (char *)"SPANK__SLURM_SPANK_OPTION_lockstep_lockstep_gpus=2", NULL};
    for (int i = 0; i < 3; i++) {
        struct job_descriptor job, before;
        char *message = NULL;
        memset(&job, i == 0 ? 0 : 0x5a, sizeof job);
        job.spank_job_env = i == 1 ? NULL : env;
        job.spank_job_env_size = i == 1 ? 3 : i == 0 ? 0 : 3;
        memcpy(&before, &job, sizeof job);
        int rc = submit(&job, 0, &message);
        tap_ok(rc == SLURM_SUCCESS && !message && !memcmp(&before, &job, sizeof job),
               "a job without the option is not touched (%d)", i);
        tap_ok(modify(&job, NULL, 0, &message) == SLURM_SUCCESS &&
                   !memcmp(&before, &job, sizeof job),
               "nor by a later change (%d)", i);
    }
}

int main(void)
{
    const char *build = getenv("builddir");
    char path[4096];
    snprintf(path, sizeof path, "%s/.libs/job_submit_lockstep.so", build ? build : ".");
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!tap_ok(module != NULL, "slurmctld can load it"))
        return tap_done();
    *(void **)&submit = dlsym(module, "job_submit");
    *(void **)&modify = dlsym(module, "job_modify");
    const uint32_t *version = dlsym(module, "plugin_version");
    tap_ok(version && *version == SLURM_VERSION_NUMBER, "its version is that of Slurm's headers");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_case(&cases[i]);
    test_sockets();
    test_others();
    dlclose(module);
    return tap_done();
}
