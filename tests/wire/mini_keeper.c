/* A keeper to be started by srun, or alone: mini_keeper WORKERS MODE VICTIM [GENERATIONS]. Prints
 * one line of results. `mini_keeper worker` is a worker, also without a keeper above; `mini_keeper
 * differ [SECONDS]` compares fingerprints of which that of the rank in $ODD differs, and waits so
 * long for the others. */
#include "tests/wire/mini.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct ls_error *err)
{
    fprintf(stderr, "error: %s\n", err->message);
    return 100 + (int)err->status;
}

static const char *node_name(void)
{
    return getenv("SLURMD_NODENAME");
}

static void say(void *arg, const char *text)
{
    fprintf(arg, "said: %s\n", text);
}

static int differ(double deadline)
{
    struct ls_wire_client *c;
    struct ls_error err = {0};
    static struct ls_wire_teller teller = {.say = say, .code = 5};
    teller.arg = stderr;
    if (ls_wire_client_open_telling(node_name(), deadline, &teller, &c, &err) != LS_OK)
        return fail(&err);
    const char *odd = getenv("ODD");
    const char *text =
        odd && atoi(odd) == c->rank ? "lockstep=0.2\njob=ab\n" : "lockstep=0.1\njob=ab\n";
    enum ls_status st = ls_wire_fingerprint(ls_wire_exchange, c, text, c->host, c->size, &err);
    if (c->rank == 0)
        printf("%s\n", st == LS_OK ? "the same" : err.message);
    ls_wire_client_close(c);
    return 0;
}

// Everything that needs the server above, which is left again before workers start.
static int meet(int workers, struct mini_config *config, struct ls_wire_client *c,
                struct ls_error *err)
{
    static int all_workers[MINI_MAX], all_nodes[MINI_MAX];
    static char host_text[MINI_MAX][64];
    static const char *host[MINI_MAX];
    const void *const *all;
    const size_t *bytes;
    if (c->size > MINI_MAX ||
        ls_wire_exchange(c, &workers, sizeof workers, &all, &bytes, err) != LS_OK)
        return fail(err);
    for (int k = 0; k < c->size; k++) {
        memcpy(&all_workers[k], all[k], sizeof workers);
        all_nodes[k] = c->node[k];
        snprintf(host_text[k], sizeof host_text[k], "%.60s", c->host[k]);
        host[k] = host_text[k];
    }
    config->keeper = c->rank;
    config->n_keepers = c->size;
    config->node = all_nodes;
    config->workers = all_workers;
    config->host = host;
    struct ls_wire_control_config control = {.rank = c->rank,
                                             .size = c->size,
                                             .host = config->host,
                                             .exchange = ls_wire_exchange,
                                             .arg = c};
    if (ls_wire_control_open(&control, &config->control, err) != LS_OK)
        return fail(err);
    return 0;
}

static int keep(int argc, char **argv)
{
    double start = ls_time_monotonic();
    static struct mini_report report;
    struct ls_error err = {0};
    struct ls_wire_client *c = NULL;
    const char *tmpdir = getenv("TMPDIR");
    int workers = atoi(argv[1]);
    struct mini_config config = {.n_keepers = 1,
                                 .node = (int[]){0},
                                 .workers = &workers,
                                 .host = (const char *[]){"here"},
                                 .tmpdir = tmpdir ? tmpdir : "/tmp",
                                 .mode = argv[2],
                                 .program = "/proc/self/exe",
                                 .victim = argc > 3 ? atoi(argv[3]) : -1,
                                 .generations = 1,
                                 .report = &report};
    enum ls_status st = ls_wire_client_open(node_name(), 30, &c, &err);
    if (st != LS_OK && st != LS_ERR_NOTFOUND)
        return fail(&err);
    int code = c ? meet(workers, &config, c, &(struct ls_error){0}) : 0;
    if (code)
        return code;
    ls_wire_client_close(c);
    if (ls_wire_env_take(NULL, &err) != LS_OK && st == LS_OK)
        return fail(&err);
    double up = ls_time_monotonic() - start;
    code = mini_keep(&config);
    int wrong = 0, size = 0;
    for (int k = 0; k < config.n_keepers; k++)
        size += config.workers[k];
    for (int r = 0; r < size; r++)
        wrong += report.exit[r] != 0;
    printf(
        "keeper %d of %d: code %d, wrong %d, records %d, failures %d; keepers met after %.0f ms, "
        "workers ended %.0f ms later: %s\n",
        config.keeper, config.n_keepers, code, wrong, report.records, report.failures, up * 1e3,
        report.boot * 1e3, report.text);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        if (!getenv("MINI_HOST") && node_name())
            setenv("MINI_HOST", node_name(), 1);
        return mini_work();
    }
    if (argc > 1 && strcmp(argv[1], "differ") == 0)
        return differ(argc > 2 ? atof(argv[2]) : 30);
    if (argc < 3)
        return 2;
    return keep(argc, argv);
}
