/* `lockstep plugin check`: is the SPANK plugin there on every node, in the version of this program? Runs
 * itself on each node of the allocation; a task knows by a variable that only the plugin sets. */
#include "config.h"

#include "cli/cli.h"
#include "topo/topo.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For the start of a step on all nodes; Slurm's own limit for a node that does not answer is of this size. */
#define DEADLINE 60.0

extern char **environ;

static const char help[] =
    "Usage: lockstep plugin check [--json]\n"
    "Is Slurm's plugin spank_lockstep.so active on every node, in the version of this program? In "
    "an\n"
    "allocation all of its nodes are asked, in a step the node of each task.\n"
    "\n"
    "      --json   print a JSON object for each node instead\n"
    "  -h, --help   show this help\n";

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* ---- one node ---- */

/* The version of the plugin that prepared this very task; NULL: none did. */
static const char *find_proof(const struct ls_slurm *slurm, char version[static 64])
{
    char step[96];
    const char *proof = getenv("LOCKSTEP_SPANK"), *slash = proof ? strrchr(proof, '/') : NULL;
    snprintf(step, sizeof step, "%lld.%lld", (long long)slurm->job_id, (long long)slurm->step_id);
    if (!slash || strcmp(slash + 1, step) != 0)
        return NULL;
    snprintf(version, 64, "%.*s", (int)(slash - proof), proof);
    return version;
}

static bool print_node(const char *node, const char *version, const char *problem, bool json)
{
    bool good = !problem && version && !strcmp(version, PACKAGE_VERSION);
    char why[256] = "";
    if (problem)
        snprintf(why, sizeof why, "%s", problem);
    else if (!version)
        snprintf(why, sizeof why,
                 "the plugin did nothing here: plugstack.conf of this node does not name "
                 "spank_lockstep.so, the file is missing, or it was switched off");
    else if (!good)
        snprintf(why, sizeof why, "the plugin is of version %s, this program of %s", version,
                 PACKAGE_VERSION);
    if (json) {
        json_t *object = json_pack("{s:s,s:b,s:s*,s:s*}", "node", node, "ok", good, "version",
                                   version, "problem", good ? NULL : why);
        char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
        puts(text ? text : "{}");
        free(text);
        json_decref(object);
    } else if (good) {
        printf("%s: ok, spank_lockstep %s\n", node, version);
    } else {
        printf("%s: FAILED: %s\n", node, why);
    }
    return good;
}

/* ---- all nodes, through a step ---- */

static pid_t start_step(int nodes, int *output)
{
    char self[4096], nodes_arg[32], tasks_arg[32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int fds[2];
    pid_t child;
    if (n <= 0 || pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    self[n] = '\0';
    snprintf(nodes_arg, sizeof nodes_arg, "--nodes=%d", nodes);
    snprintf(tasks_arg, sizeof tasks_arg, "--ntasks=%d", nodes);
    /* Beside whatever runs, and by nothing that the job's environment says about other steps. */
    char *const argv[] = {(char *)"srun",
                          nodes_arg,
                          tasks_arg,
                          (char *)"--ntasks-per-node=1",
                          (char *)"--cpus-per-task=1",
                          (char *)"--cpu-bind=none",
                          (char *)"--mpi=none",
                          (char *)"--overlap",
                          self,
                          (char *)"plugin",
                          (char *)"check",
                          (char *)"--json",
                          NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    int rc = posix_spawnp(&child, "srun", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    if (rc != 0) {
        close(fds[0]);
        errno = rc;
        return -1;
    }
    *output = fds[0];
    return child;
}

/* All that the step prints, until it ends; false when the deadline came first. */
static bool read_all(int fd, struct ls_buf *text)
{
    double end = ls_time_monotonic() + DEADLINE;
    for (;;) {
        char block[4096];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = end - ls_time_monotonic();
        if (left <= 0)
            return false;
        if (poll(&p, 1, (int)(left * 1000) + 1) <= 0)
            continue;
        ssize_t n = read(fd, block, sizeof block);
        if (n == 0)
            return true;
        if (n > 0)
            ls_buf_add(text, block, (size_t)n);
    }
}

/* Prints what the nodes said; those that said nothing are told by name. */
static bool report(const struct ls_hostlist *nodes, char *text, bool json)
{
    bool *seen = calloc((size_t)nodes->count, sizeof *seen), good = seen != NULL;
    char name[LS_HOSTLIST_NAME_MAX + 1], *save;
    for (char *line = strtok_r(text, "\n", &save); line && seen;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *object = json_loads(line, 0, NULL);
        const char *node = json_string_value(json_object_get(object, "node"));
        int at = node ? ls_hostlist_find(nodes, node) : -1;
        if (at >= 0 && !seen[at]) {
            seen[at] = true;
            good &= print_node(node, json_string_value(json_object_get(object, "version")),
                               json_string_value(json_object_get(object, "problem")), json);
        }
        json_decref(object);
    }
    for (int i = 0; i < nodes->count && seen; i++)
        if (!seen[i])
            good &= print_node(ls_hostlist_nth(nodes, i, name), NULL,
                               "no answer: the step did not run there, see srun's message", json);
    free(seen);
    return good;
}

static int check_nodes(const struct ls_slurm *slurm, bool json)
{
    struct ls_buf text;
    int output, wstatus;
    pid_t child = start_step(slurm->nodes.count, &output);
    if (child < 0) {
        ls_cli_error("plugin: cannot start srun: %s", strerror(errno));
        return LS_EXIT_ENV;
    }
    ls_buf_init(&text, (size_t)1 << 26);
    ls_buf_add(&text, "", 0); /* a step that prints nothing */
    bool ended = read_all(output, &text);
    if (!ended) {
        ls_cli_error("plugin: the step has not ended after %.0f s; is a node not answering?",
                     DEADLINE);
        kill(child, SIGKILL);
    }
    waitpid(child, &wstatus, 0);
    close(output);
    bool good = text.data && report(&slurm->nodes, text.data, json);
    ls_buf_free(&text);
    return !ended ? LS_EXIT_TIMEOUT : good ? LS_EXIT_OK : LS_EXIT_FAILED;
}

static int check(bool json)
{
    struct ls_slurm slurm;
    struct ls_error err = {0};
    int code;
    if (ls_slurm_read(read_env, NULL, &slurm, &err) != LS_OK) {
        ls_cli_error("plugin: %s", err.message);
        return ls_cli_exit_code(err.status);
    }
    if (slurm.place == LS_SLURM_ALLOCATION && slurm.ncomponents > 1) {
        ls_cli_error("plugin: job %lld is heterogeneous; type: srun --het-group=0-%d "
                     "--ntasks-per-node=1 lockstep plugin check",
                     (long long)slurm.job_id, slurm.ncomponents - 1);
        code = LS_EXIT_ENV;
    } else if (slurm.place == LS_SLURM_ALLOCATION) {
        code = check_nodes(&slurm, json);
    } else if (slurm.place == LS_SLURM_STEP) {
        char version[64];
        const char *node = slurm.node_name ? slurm.node_name : "unknown";
        bool good = print_node(node, find_proof(&slurm, version), NULL, json);
        code = good ? LS_EXIT_OK : LS_EXIT_FAILED;
    } else {
        ls_cli_error(
            "plugin: this is no allocation; type 'salloc -N<nodes> lockstep plugin check', or "
            "'srun -N<nodes> lockstep plugin check'");
        code = LS_EXIT_ENV;
    }
    ls_slurm_free(&slurm);
    return code;
}

int ls_cli_plugin(int argc, char **argv)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return LS_EXIT_OK;
        }
        if (c != 'j')
            return ls_cli_usage("plugin", NULL, NULL);
        json = true;
    }
    if (optind + 1 != argc || strcmp(argv[optind], "check") != 0)
        return ls_cli_usage("plugin", "expected the verb check, and no more", "");
    return check(json);
}
