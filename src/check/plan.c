/* Does the job fit? The plan's memory, without allotting any of it, against what Slurm grants. */
#include "check/internal.h"
#include "data/data.h"
#include "device/device.h"
#include "graph/graph.h"
#include "model/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (INT64_C(1) << 20)
/* The program, its libraries, oneDNN's kernels, batches ahead and communicators: peak less plan and data
 * was 21 to 29 MiB for the Fashion-MNIST templates on 1 and 2 ranks. Rounded up. */
#define BESIDE (48 * MIB)

void ls_check_job(struct ls_check_out *out, const struct ls_check_context *context)
{
    if (context->job)
        ls_check_fact(out, "%s, resolved to %016llx", context->job_path,
                      (unsigned long long)ls_job_hash(context->job));
    else if (context->job_late)
        ls_check_say(out, LS_CHECK_TIMEOUT, "", "a job description that can be read",
                     "its file system hangs on this node", "%s: %s", context->job_path,
                     context->job_problem);
    else
        ls_check_say(out, LS_CHECK_FAIL, "", "a job description that can be read",
                     "copy it to every node, or to a file system that all nodes share", "%s",
                     context->job_problem);
}

struct plan {
    const struct ls_check_context *context;
    const struct ls_device_api *api;
    struct ls_device *dev;
    struct ls_prog prog;
};

static int64_t pack_size(void *arg, const struct ls_op_desc *op, int operand)
{
    struct plan *p = arg;
    return p->api->pack_size(p->dev, op, operand);
}

static enum ls_status plan_bytes(struct plan *p, int64_t *bytes, struct ls_error *err)
{
    const struct ls_job *job = p->context->job;
    struct ls_dataset set = {0}, test = {0};
    struct ls_device_config config = {.threads = 1, .deterministic = true};
    LS_TRY(ls_dataset_open(job->data.train_images, job->data.train_labels, job->model.classes, &set,
                           err));
    *bytes = BESIDE + set.n * (set.height * set.width * set.channels + 1);
    if (job->data.test_images) {
        LS_TRY(ls_dataset_open(job->data.test_images, job->data.test_labels, job->model.classes,
                               &test, err));
        *bytes += test.n * (test.height * test.width * test.channels + 1);
    }
    struct ls_model_input input = {set.height, set.width, set.channels,
                                   p->context->size * p->context->workers};
    LS_TRY(ls_device_load(p->context->plugin_dir, "cpu", &p->api, err));
    LS_TRY(p->api->open(&config, &p->dev, err));
    LS_TRY(ls_model_build(job, &input, &p->prog, err));
    LS_TRY(ls_graph_compile(&p->prog, pack_size, p, NULL, err));
    for (int r = 0; r < LS_ROLES; r++)
        *bytes += p->prog.arena_bytes[r];
    return LS_OK;
}

static int64_t number(const struct ls_check_context *context, const char *name)
{
    const char *text = context->get(context->user, name);
    return text && *text ? strtoll(text, NULL, 10) : 0;
}

/* What Slurm grants on this node in bytes (0: it does not say), and which variable says so. */
static int64_t granted(const struct ls_check_context *context, const char **by)
{
    const struct {
        const char *name;
        int64_t count; /* of what it is for */
    } variables[] = {{"SLURM_MEM_PER_NODE", 1},
                     {"SLURM_MEM_PER_CPU", context->slurm->cpus_on_node},
                     {"SLURM_MEM_PER_GPU", context->slurm->gpus_on_node}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        int64_t mib = number(context, variables[i].name), bytes;
        *by = variables[i].name;
        if (mib > 0 && variables[i].count > 0 && ls_mul_i64(mib, variables[i].count, &mib) &&
            ls_mul_i64(mib, MIB, &bytes))
            return bytes;
    }
    return 0;
}

void ls_check_job_memory(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct plan *p = calloc(1, sizeof *p);
    struct ls_error err = {0};
    const char *by;
    int64_t each = 0, limit = granted(context, &by), ranks = context->local_size * context->workers;
    if (!p)
        return;
    p->context = context;
    if (plan_bytes(p, &each, &err) != LS_OK) {
        ls_check_say(out, LS_CHECK_FAIL, "", "a job that can be planned", "see lockstep plan", "%s",
                     err.message);
        return; /* this child ends now: the kernel frees */
    }
    if (context->machine && context->machine->limits.memory_bytes > 0 &&
        (!limit || context->machine->limits.memory_bytes < limit)) {
        limit = context->machine->limits.memory_bytes;
        by = "the machine or its cgroup";
    }
    char need[24], have[24], one[24], expected[128];
    int64_t total = each * ranks;
    snprintf(expected, sizeof expected, "at most %s, by %s", ls_format_bytes(limit, have), by);
    if (!limit)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "no limit is known to compare %s with",
                     ls_format_bytes(total, need));
    else if (total > limit)
        ls_check_say(
            out, LS_CHECK_FAIL, "", expected,
            "ask for more by --mem, or use a smaller train.micro_batch or fewer ranks on a "
            "node",
            "%s for %lld ranks on this node, %s each", ls_format_bytes(total, need),
            (long long)ranks, ls_format_bytes(each, one));
    else
        ls_check_say(out, LS_CHECK_PASS, "", "", "", "%s of %s", ls_format_bytes(total, need),
                     ls_format_bytes(limit, have));
    free(p);
}
