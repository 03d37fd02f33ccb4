/* `lockstep plan`: what a job needs and does, without running a step: parameters, FLOPs, memory by role;
 * and the program after any pass. */
#include "cli/cli.h"
#include "comm/comm.h"
#include "data/data.h"
#include "model/model.h"
#include "train/train.h"

#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char help_head[] =
    "Usage: lockstep plan [OPTION]... JOB.cfg\n"
    "Show parameters, FLOPs per step and memory by role of the program of JOB.cfg.\n"
    "\n"
    "  -n, --ranks N        of one rank among N (default 1)\n"
    "      --nodes M        that lie on M nodes (default 1): how collectives run follows from it\n"
    "  -s, --set KEY=VALUE  override one value\n"
    "      --print PASS     print the program as text after PASS instead\n"
    "      --json           print the plan as one JSON record\n"
    "  -h, --help           show this help\n"
    "\n"
    "Passes, in order:";

struct plan {
    const struct ls_job *job;
    const struct ls_device_api *api;
    struct ls_device *dev;
    struct ls_prog prog;
    const char *print; /* a pass, or NULL */
    int ranks;         /* along the data axis */
    int nodes;         /* on which they lie */
    bool json;
};

static const struct {
    const char *name, *meaning;
} roles[LS_ROLES] = {
    [LS_ROLE_INPUT] = {"input", "one micro-batch of data"},
    [LS_ROLE_PARAM] = {"parameters", "weights and running statistics"},
    [LS_ROLE_GRAD] = {"gradients", "accumulated over micro-batches"},
    [LS_ROLE_STATE] = {"optimizer", "moments"},
    [LS_ROLE_DERIVED] = {"derived", "weights in the backend's layout"},
    [LS_ROLE_CONTROL] = {"control", "per-step values"},
    [LS_ROLE_ACT] = {"activations", "forward and backward, shared by lifetime"},
    [LS_ROLE_WORK] = {"work", "update"},
};

static double step_flops(const struct ls_prog *p, int64_t micros)
{
    double flops = 0;
    for (int i = 0; i < p->nop; i++) {
        double f = ls_graph_flops(p, &p->op[i]);
        if (p->op[i].segs & LS_SEG_LAST)
            flops += f * (double)micros;
        else if (p->op[i].segs & LS_SEG_UPDATE)
            flops += f;
    }
    return flops;
}

static int64_t rule_count(const struct ls_prog *p, bool statistics)
{
    int64_t n = 0;
    for (int i = 0; i < p->nparam; i++)
        if ((p->param[i].rule == LS_RULE_EMA) == statistics)
            n += ls_graph_numel(p, p->param[i].tensor);
    return n;
}

/* ---- collectives ---- */

struct exchange {
    enum ls_kind kind;
    int64_t bytes; /* of the whole vector */
    int times;     /* so many of these in a row */
    char how[96];
};

/* The collectives of a step in their order; equal neighbours are one entry. */
static enum ls_status find_exchanges(const struct plan *plan, struct exchange **found, int *n,
                                     struct ls_error *err)
{
    static const enum ls_comm_kind kinds[] = {[LS_K_ALL_REDUCE] = LS_COMM_ALL_REDUCE,
                                              [LS_K_REDUCE_SCATTER] = LS_COMM_REDUCE_SCATTER,
                                              [LS_K_ALL_GATHER] = LS_COMM_ALL_GATHER};
    const struct ls_prog *p = &plan->prog;
    const char *algorithm = ls_cli_all_reduce(plan->job);
    int cap = 0;
    for (int i = 0; i < p->nop && plan->ranks > 1; i++) {
        const struct ls_op *op = &p->op[i];
        if (!ls_graph_is_collective(op->kind) || op->kind == LS_K_SEND)
            continue;
        int whole = op->kind == LS_K_ALL_GATHER ? op->out[0] : op->in[0];
        struct exchange e = {.kind = op->kind, .bytes = ls_graph_bytes(p, whole), .times = 1};
        if (*n && (*found)[*n - 1].kind == e.kind && (*found)[*n - 1].bytes == e.bytes) {
            (*found)[*n - 1].times++;
            continue;
        }
        LS_TRY(ls_comm_explain(kinds[e.kind], plan->ranks, plan->nodes, algorithm, e.bytes, e.how,
                               err));
        if (!ls_grow(found, &cap, *n + 1, sizeof **found))
            return ls_error_set(err, LS_ERR_NOMEM, "listing the collectives");
        (*found)[(*n)++] = e;
    }
    return LS_OK;
}

static void print_exchanges(const struct plan *plan, const struct exchange *e, int n)
{
    char bytes[24];
    if (n)
        printf("\n%-14s  %5s  %10s  how (parallel.all_reduce = \"%s\")\n", "collective", "times",
               "bytes", ls_cli_all_reduce(plan->job));
    for (int i = 0; i < n; i++)
        printf("%-14s  %5d  %10s  %s\n", ls_graph_kind(e[i].kind)->name, e[i].times,
               ls_format_bytes(e[i].bytes, bytes), e[i].how);
}

static json_t *json_exchanges(const struct exchange *e, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "kind", json_string(ls_graph_kind(e[i].kind)->name));
        json_object_set_new(o, "times", json_integer(e[i].times));
        json_object_set_new(o, "bytes", json_integer(e[i].bytes));
        json_object_set_new(o, "how", json_string(e[i].how));
        json_array_append_new(list, o);
    }
    return list;
}

static void print_table(const struct plan *plan, int64_t steps, int64_t micros, int64_t workspace)
{
    const struct ls_prog *p = &plan->prog;
    int64_t total = workspace;
    char count[32], bytes[24];
    printf("%s on %s\n\n", plan->job->name, plan->api->describe(plan->dev));
    printf("parameters        %16s\n", ls_format_count(rule_count(p, false), count));
    if (rule_count(p, true))
        printf("running statistics%16s\n", ls_format_count(rule_count(p, true), count));
    printf("steps             %16s\n", ls_format_count(steps, count));
    printf("samples per step  %16s  (%lld micro-batches of %lld)\n",
           ls_format_count(plan->job->train.global_batch, count), (long long)micros,
           (long long)p->options.micro_batch);
    printf("FLOPs per step    %16.3e\n", step_flops(p, micros));
    if (plan->ranks > 1)
        printf("ranks             %16d  (on %d node%s)\n", plan->ranks, plan->nodes,
               plan->nodes > 1 ? "s" : "");
    printf("buckets           %16d  (at most %s each)\n\n", p->nbucket,
           ls_format_bytes(plan->job->parallel.bucket, bytes));
    printf("%-12s  %12s  %s\n", "memory", "bytes", "what");
    for (int r = 0; r < LS_ROLES; r++) {
        total += p->arena_bytes[r];
        if (!p->arena_bytes[r])
            continue;
        printf("%-12s  %12s  %s", roles[r].name, ls_format_bytes(p->arena_bytes[r], bytes),
               roles[r].meaning);
        if (r == LS_ROLE_STATE && plan->ranks > 1 && p->options.zero > 0)
            printf(", one slice of %d", plan->ranks);
        putchar('\n');
    }
    if (workspace)
        printf("%-12s  %12s  %s\n", "workspace", ls_format_bytes(workspace, bytes),
               "scratch of one kernel at a time");
    printf("%-12s  %12s\n", "total", ls_format_bytes(total, bytes));
}

static void print_json(const struct plan *plan, int64_t steps, int64_t micros, int64_t workspace,
                       const struct exchange *exchange, int nexchange)
{
    const struct ls_prog *p = &plan->prog;
    json_t *memory = json_object(), *o = json_object();
    int64_t total = workspace;
    for (int r = 0; r < LS_ROLES; r++) {
        total += p->arena_bytes[r];
        json_object_set_new(memory, roles[r].name, json_integer(p->arena_bytes[r]));
    }
    json_object_set_new(memory, "workspace", json_integer(workspace));
    json_object_set_new(memory, "total", json_integer(total));
    json_object_set_new(o, "name", json_string(plan->job->name));
    json_object_set_new(o, "device", json_string(plan->api->describe(plan->dev)));
    json_object_set_new(o, "parameters", json_integer(rule_count(p, false)));
    json_object_set_new(o, "running_statistics", json_integer(rule_count(p, true)));
    json_object_set_new(o, "steps", json_integer(steps));
    json_object_set_new(o, "global_batch", json_integer(plan->job->train.global_batch));
    json_object_set_new(o, "micro_batch", json_integer(p->options.micro_batch));
    json_object_set_new(o, "flops_per_step", json_real(step_flops(p, micros)));
    json_object_set_new(o, "buckets", json_integer(p->nbucket));
    json_object_set_new(o, "ranks", json_integer(plan->ranks));
    json_object_set_new(o, "nodes", json_integer(plan->nodes));
    json_object_set_new(o, "collectives", json_exchanges(exchange, nexchange));
    json_object_set_new(o, "memory_bytes", memory);
    json_dumpf(o, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(o);
}

static int64_t pack_size(void *arg, const struct ls_op_desc *op, int operand)
{
    struct plan *plan = arg;
    return plan->api->pack_size(plan->dev, op, operand);
}

static enum ls_status show(struct plan *plan, const struct ls_dataset *set, struct ls_error *err)
{
    const struct ls_job *job = plan->job;
    struct ls_model_input input = {set->height, set->width, set->channels, plan->ranks};
    LS_TRY(ls_model_build(job, &input, &plan->prog, err));
    LS_TRY(ls_graph_compile(&plan->prog, pack_size, plan, plan->print, err));
    if (plan->print) {
        ls_graph_dump(&plan->prog, stdout);
        return LS_OK;
    }
    struct ls_exec *exec = NULL;
    const struct ls_exec_comm nobody = {0}; /* opens, to see what it takes, but cannot run */
    LS_TRY(ls_exec_open(&plan->prog, plan->api, plan->dev, plan->ranks > 1 ? &nobody : NULL, &exec,
                        err));
    int64_t workspace = ls_exec_bytes(exec);
    ls_exec_close(exec);
    for (int r = 0; r < LS_ROLES; r++)
        workspace -= plan->prog.arena_bytes[r];
    int64_t micros = job->train.global_batch / plan->prog.options.micro_batch;
    int64_t steps = ls_train_steps(job, set->n);
    struct exchange *exchange = NULL;
    int nexchange = 0;
    enum ls_status status = find_exchanges(plan, &exchange, &nexchange, err);
    if (status == LS_OK && plan->json)
        print_json(plan, steps, micros, workspace, exchange, nexchange);
    else if (status == LS_OK) {
        print_table(plan, steps, micros, workspace);
        print_exchanges(plan, exchange, nexchange);
    }
    free(exchange);
    return status;
}

static int plan_job(struct plan *plan)
{
    const struct ls_job *job = plan->job;
    struct ls_error err = {0};
    struct ls_dataset set = {0};
    struct ls_device_config config = {.threads = ls_train_threads(job, 0), .deterministic = true};
    char *dir = ls_cli_plugin_dir();
    ls_cli_prepare_threads(config.threads);
    enum ls_status status = dir ? ls_device_load(dir, "cpu", &plan->api, &err)
                                : ls_error_set(&err, LS_ERR_NOMEM, "out of memory");
    if (status == LS_OK)
        status = plan->api->open(&config, &plan->dev, &err);
    if (status == LS_OK)
        status = ls_dataset_open(job->data.train_images, job->data.train_labels, job->model.classes,
                                 &set, &err);
    if (status == LS_OK)
        status = show(plan, &set, &err);
    if (status != LS_OK)
        ls_cli_error("%s", err.message);
    ls_graph_free(&plan->prog);
    ls_dataset_close(&set);
    if (plan->dev)
        plan->api->close(plan->dev);
    free(dir);
    return fflush(stdout) == 0 || status != LS_OK ? ls_cli_exit_code(status) : LS_EXIT_FAILED;
}

static bool known_pass(const char *name)
{
    for (int i = 0; ls_graph_passes[i]; i++)
        if (!strcmp(ls_graph_passes[i], name))
            return true;
    return false;
}

static void print_help(void)
{
    fputs(help_head, stdout);
    for (int i = 0; ls_graph_passes[i]; i++)
        printf(" %s", ls_graph_passes[i]);
    putchar('\n');
}

int ls_cli_plan(int argc, char **argv)
{
    static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"nodes", required_argument, NULL, 'm'},
                                          {"set", required_argument, NULL, 's'},
                                          {"print", required_argument, NULL, 'p'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct plan plan = {.ranks = 1, .nodes = 1};
    struct ls_job *job = NULL;
    const char **sets = calloc((size_t)argc + 1, sizeof *sets);
    int nsets = 0, code = sets ? -1 : LS_EXIT_FAILED;
    for (int c; code < 0 && (c = getopt_long(argc, argv, "n:s:h", longs, NULL)) != -1;)
        switch (c) {
        case 'n':
            if (!ls_cli_number(optarg, &plan.ranks))
                code = ls_cli_usage("plan", "-n expects a number of ranks from 1 to 65536, found ",
                                    optarg);
            break;
        case 'm':
            if (!ls_cli_number(optarg, &plan.nodes))
                code = ls_cli_usage(
                    "plan", "--nodes expects a number of nodes from 1 to 65536, found ", optarg);
            break;
        case 's':
            sets[nsets++] = optarg;
            break;
        case 'p':
            plan.print = optarg;
            if (!known_pass(optarg))
                code = ls_cli_usage("plan", "no pass is called ", optarg);
            break;
        case 'j':
            plan.json = true;
            break;
        case 'h':
            print_help();
            code = LS_EXIT_OK;
            break;
        default:
            code = ls_cli_usage("plan", NULL, "");
        }
    if (code < 0 && argc - optind != 1)
        code = ls_cli_usage("plan", "expected one job description", "");
    if (code < 0 && plan.nodes > plan.ranks)
        code = ls_cli_usage(
            "plan", "expected at least one rank on each of the nodes; give more ranks with -n", "");
    if (code < 0)
        code = ls_cli_read_job(argv[optind], sets, nsets, &job);
    if (job) {
        plan.job = job;
        code = plan_job(&plan);
    }
    ls_job_free(job);
    free(sets);
    return code;
}
