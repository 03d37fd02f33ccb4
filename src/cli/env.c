/* `lockstep env`: prints what `lockstep exec` would set, for a task of srun that starts its program itself. The
 * tasks meet through Slurm's PMIx; each is one rank. */
#include "cli/cli.h"
#include "cli/launch.h"
#include "keep/variables.h"

#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: eval \"$(lockstep env [OPTION]...)\"\n"
    "Print the variables by which frameworks find their ranks, for a shell.\n"
    "\n"
    "      --evaluator      the last rank is TensorFlow's evaluator\n"
    "      --ompi-env       OMPI_COMM_WORLD_RANK and its like, too\n"
    "      --json           one JSON object instead, of strings, and null for what is to be unset\n"
    "  -h, --help           show this help\n"
    "\n"
    "Every task of a step has to run it: srun --mpi=pmix bash -c 'eval \"$(lockstep env)\" || "
    "exit; ...'.\n"
    "Variables that another launcher has left are unset. Where it fails it prints 'false', so "
    "that\n"
    "eval fails. See lockstep-env(1).\n";

struct options {
    bool evaluator, ompi, json;
};

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"evaluator", no_argument, NULL, 'e'},
                                          {"ompi-env", no_argument, NULL, 'm'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    *o = (struct options){0};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;)
        switch (c) {
        case 'e':
            o->evaluator = true;
            break;
        case 'm':
            o->ompi = true;
            break;
        case 'j':
            o->json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return LS_EXIT_OK;
        default:
            return ls_cli_usage("env", NULL, NULL);
        }
    if (optind < argc) {
        ls_cli_error("env: expected no argument, found '%s'; lockstep exec starts programs",
                     argv[optind]);
        return ls_cli_usage("env", NULL, NULL);
    }
    return -1;
}

/* ---- printing ---- */

/* NAME='value', where a quote in the value becomes '\''. */
static void add_quoted(struct ls_buf *b, const char *variable)
{
    int n = (int)strcspn(variable, "=");
    ls_buf_printf(b, "export %.*s='", n, variable);
    for (const char *p = variable + n + 1; *p; p++)
        ls_buf_add(b, *p == '\'' ? "'\\''" : p, *p == '\'' ? 4 : 1);
    ls_buf_printf(b, "'\n");
}

/* No shell has a variable of another name; as a word of eval's it could be anything. */
static bool is_shell_name(const char *variable)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    return strspn(variable, letters) == strcspn(variable, "=");
}

/* Set already, no part of `list`, and against it. */
static bool is_contrary(char *const *list, const char *variable)
{
    return ls_keep_is_ours(variable) && !ls_keep_has(list, variable);
}

static bool print_shell(char *const *list)
{
    struct ls_buf b;
    ls_buf_init(&b, (size_t)1 << 20);
    for (char **e = environ; *e; e++)
        if (is_contrary(list, *e) && is_shell_name(*e))
            ls_buf_printf(&b, "unset %.*s\n", (int)strcspn(*e, "="), *e);
    for (; *list; list++)
        add_quoted(&b, *list);
    bool ok = !b.failed && fputs(b.data, stdout) >= 0 && fflush(stdout) == 0;
    ls_buf_free(&b);
    return ok;
}

static bool print_json(char *const *list)
{
    json_t *o = json_object();
    for (char **e = environ; *e; e++) {
        char *name = is_contrary(list, *e) ? strndup(*e, strcspn(*e, "=")) : NULL;
        if (name)
            json_object_set_new(o, name, json_null());
        free(name);
    }
    for (; *list; list++) {
        char *copy = strdup(*list), *equals = copy ? strchr(copy, '=') : NULL;
        if (equals) {
            *equals = '\0';
            json_object_set_new(o, copy, json_string(equals + 1));
        }
        free(copy);
    }
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    bool ok = text && puts(text) >= 0 && fflush(stdout) == 0;
    free(text);
    return ok;
}

/* ---- the world of tasks ---- */

static enum ls_status show(const struct options *o, const struct ls_keep_world *world, int rank,
                           struct ls_error *err)
{
    struct ls_arena arena = {0};
    char **list;
    bool left_out;
    enum ls_status status = ls_keep_variables(world, rank, &arena, &list, &left_out, err);
    if (status == LS_OK && left_out && rank == 0)
        ls_cli_error(
            "warning: no TF_CONFIG: the addresses of %d ranks are more than the kernel takes "
            "for one variable",
            world->map->size);
    char leftovers[512];
    if (status == LS_OK && rank == 0 && ls_keep_leftovers(environ, leftovers)[0])
        ls_cli_error("replaced what was set already, by a container's hook or another launcher: %s",
                     leftovers);
    if (status == LS_OK && !(o->json ? print_json(list) : print_shell(list)))
        status = ls_error_set(err, LS_ERR_IO, "env: cannot write to standard output");
    ls_arena_free(&arena);
    return status;
}

/* Fills in the map and the rendezvous; the caller frees both in any case. */
static enum ls_status meet(const struct options *o, struct ls_wire_client *c,
                           const char *const *host, struct ls_wire_map *map,
                           struct ls_wire_rendezvous **r, struct ls_error *err)
{
    const int alone = 0;
    int size = c ? c->size : 1, rank = c ? c->rank : 0;
    int *workers = malloc((size_t)size * sizeof *workers);
    if (!workers)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d tasks", size);
    for (int i = 0; i < size; i++)
        workers[i] = 1;
    enum ls_status status = ls_wire_map_init(map, size, c ? c->node : &alone, workers, err);
    free(workers);
    LS_TRY(status);
    if (o->evaluator && size < 2)
        return ls_error_set(err, LS_ERR_USAGE,
                            "an evaluator beside the chief needs 2 ranks or more, found 1");
    return ls_wire_rendezvous_open(rank, size, host, ls_keep_ports(rank, 1), ls_wire_exchange, c, r,
                                   err);
}

static enum ls_status work(const struct options *o, struct ls_slurm *slurm, struct ls_error *err)
{
    char job[64];
    struct ls_wire_client *client = NULL;
    LS_TRY(ls_cli_read_slurm(slurm, err));
    if (slurm->place == LS_SLURM_ALLOCATION)
        return ls_error_set(
            err, LS_ERR_ENV,
            "job %lld has an allocation, but this is no task of a step: run it in "
            "every task, srun --mpi=pmix bash -c 'eval \"$(lockstep env)\" || exit; "
            "...', or start the program by lockstep exec",
            (long long)slurm->job_id);
    bool step = slurm->place == LS_SLURM_STEP;
    if (step && !ls_cli_step_has_pmix(slurm))
        return LS_ERR_ENV;
    ls_cli_name_run(slurm, job);
    if (getenv("PMIX_NAMESPACE"))
        LS_TRY(ls_wire_client_open(slurm->node_name, LS_WIRE_ARRIVAL, &client, err));
    const char *here = slurm->node_name ? slurm->node_name : "localhost";
    const char *const *host = client ? client->host : &here;
    struct ls_wire_map map = {0};
    struct ls_wire_rendezvous *meeting = NULL;
    enum ls_status status = meet(o, client, host, &map, &meeting, err);
    struct ls_keep_world world = {.map = &map,
                                  .meet = meeting,
                                  .host = host,
                                  .job = job,
                                  .restarts = slurm->restart_count > 0 ? slurm->restart_count : 0,
                                  .evaluator = o->evaluator,
                                  .ompi = o->ompi};
    if (status == LS_OK)
        status = show(o, &world, client ? client->rank : 0, err);
    ls_wire_rendezvous_close(meeting);
    ls_wire_map_free(&map);
    ls_wire_client_close(client);
    return status;
}

int ls_cli_env(int argc, char **argv)
{
    struct options options;
    struct ls_slurm slurm = {0};
    struct ls_error err = {0};
    int code = parse(argc, argv, &options);
    if (code == LS_EXIT_OK)
        return code;
    enum ls_status status = LS_ERR_USAGE;
    if (code < 0) {
        status = work(&options, &slurm, &err);
        code = ls_cli_exit_code(status);
        if (err.message[0])
            ls_cli_error("%s", err.message);
        ls_slurm_free(&slurm);
    }
    if (status != LS_OK && !options.json)
        puts("false"); /* or eval would take nothing for success */
    return code;
}
