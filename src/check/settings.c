/* The NCCL_ and UCX_ settings of a task: known names, values that are not silently ignored, and nothing
 * left over from debugging. What a value means on this machine, src/topo judges. */
#include "check/internal.h"
#include "topo/host.h"

#include <stdlib.h>
#include <string.h>

/* The documented names of NCCL 2.30 and older; UCX itself warns of its own that it does not know. */
static const char *const known[] = {"ALGO",
                                    "ALLOC_P2P_NET_LL_BUFFERS",
                                    "BUFFSIZE",
                                    "CHECKS_DISABLE",
                                    "CHECK_POINTERS",
                                    "COLLNET_ENABLE",
                                    "COLLNET_NODE_THRESHOLD",
                                    "COMM_BLOCKING",
                                    "COMM_ID",
                                    "CONF_FILE",
                                    "CREATE_THREAD_CONTEXT",
                                    "CROSS_NIC",
                                    "CTA_POLICY",
                                    "CUMEM_ENABLE",
                                    "CUMEM_HOST_ENABLE",
                                    "DEBUG",
                                    "DEBUG_FILE",
                                    "DEBUG_SUBSYS",
                                    "DEBUG_TIMESTAMP_FORMAT",
                                    "DEBUG_TIMESTAMP_LEVELS",
                                    "DMABUF_ENABLE",
                                    "ENV_PLUGIN",
                                    "GIN_ENABLE",
                                    "GRAPH_DUMP_FILE",
                                    "GRAPH_FILE",
                                    "GRAPH_HELPER_DISABLE",
                                    "GRAPH_MIXING_SUPPORT",
                                    "GRAPH_REGISTER",
                                    "HOSTID",
                                    "IB_ADDR_FAMILY",
                                    "IB_ADDR_RANGE",
                                    "IB_AR_THRESHOLD",
                                    "IB_CUDA_SUPPORT",
                                    "IB_DATA_DIRECT",
                                    "IB_DISABLE",
                                    "IB_ECE_ENABLE",
                                    "IB_FIFO_TC",
                                    "IB_GID_INDEX",
                                    "IB_HCA",
                                    "IB_MERGE_NICS",
                                    "IB_MERGE_VFS",
                                    "IB_MQP_RETRY_ALL",
                                    "IB_MQP_RETRY_CNT",
                                    "IB_MQP_RETRY_SLEEP_MSEC",
                                    "IB_PCI_RELAXED_ORDERING",
                                    "IB_PKEY",
                                    "IB_QPS_PER_CONNECTION",
                                    "IB_RETRY_CNT",
                                    "IB_RETURN_ASYNC_EVENTS",
                                    "IB_ROCE_VERSION_NUM",
                                    "IB_SL",
                                    "IB_SPLIT_DATA_ON_QPS",
                                    "IB_TC",
                                    "IB_TIMEOUT",
                                    "IB_USE_INLINE",
                                    "IB_WARN_RAIL_LOCAL",
                                    "IGNORE_CPU_AFFINITY",
                                    "IGNORE_DISABLED_P2P",
                                    "IGNORE_NET_MISMATCH",
                                    "LAUNCH_MODE",
                                    "LAUNCH_ORDER_IMPLICIT",
                                    "LAUNCH_RACE_FATAL",
                                    "LOCAL_REGISTER",
                                    "MAX_CTAS",
                                    "MAX_NCHANNELS",
                                    "MAX_NRINGS",
                                    "MAX_P2P_NCHANNELS",
                                    "MIN_CTAS",
                                    "MIN_NCHANNELS",
                                    "MIN_NRINGS",
                                    "MIN_P2P_NCHANNELS",
                                    "MNNVL_CLIQUE_ID",
                                    "MNNVL_ENABLE",
                                    "MNNVL_UUID",
                                    "NCHANNELS_PER_NET_PEER",
                                    "NET",
                                    "NETDEVS_POLICY",
                                    "NET_DISABLE_INTRA",
                                    "NET_FORCE_FLUSH",
                                    "NET_GDR_C2C",
                                    "NET_GDR_LEVEL",
                                    "NET_GDR_READ",
                                    "NET_MERGE_LEVEL",
                                    "NET_PLUGIN",
                                    "NET_SHARED_BUFFERS",
                                    "NET_SHARED_COMMS",
                                    "NSOCKS_PERTHREAD",
                                    "NTHREADS",
                                    "NVB_DISABLE",
                                    "NVLSTREE_MAX_CHUNKSIZE",
                                    "NVLS_ENABLE",
                                    "NVLS_NCHANNELS",
                                    "NVTX_DISABLE",
                                    "OOB_NET_ENABLE",
                                    "OOB_NET_IFNAME",
                                    "P2P_DIRECT_DISABLE",
                                    "P2P_DISABLE",
                                    "P2P_LEVEL",
                                    "P2P_LL_THRESHOLD",
                                    "P2P_NET_CHUNKSIZE",
                                    "P2P_NVL_CHUNKSIZE",
                                    "P2P_PCI_CHUNKSIZE",
                                    "P2P_USE_CUDA_MEMCPY",
                                    "PLUGIN_P2P",
                                    "PROFILER_PLUGIN",
                                    "PROGRESS_APPENDOP_FREQ",
                                    "PROTO",
                                    "PXN_C2C",
                                    "PXN_DISABLE",
                                    "RAS_ADDR",
                                    "RAS_ENABLE",
                                    "RAS_TIMEOUT_FACTOR",
                                    "RUNTIME_CONNECT",
                                    "SET_STACK_SIZE",
                                    "SET_THREAD_NAME",
                                    "SHM_DISABLE",
                                    "SHM_LOCALITY",
                                    "SHM_MEMCPY_MODE",
                                    "SHM_USE_CUDA_MEMCPY",
                                    "SINGLE_RING_THRESHOLD",
                                    "SOCKET_FAMILY",
                                    "SOCKET_IFNAME",
                                    "SOCKET_NTHREADS",
                                    "SOCKET_POLL_TIMEOUT_MSEC",
                                    "SOCKET_RETRY_CNT",
                                    "SOCKET_RETRY_SLEEP_MSEC",
                                    "STORE_IFNAME",
                                    "SYM_CTAS",
                                    "THREAD_THRESHOLDS",
                                    "TOPO_DUMP_FILE",
                                    "TOPO_FILE",
                                    "TUNER_CONFIG_FILE",
                                    "TUNER_PLUGIN",
                                    "UID_STAGGER_RATE",
                                    "UID_STAGGER_THRESHOLD",
                                    "WARN_ENABLE_DEBUG_INFO",
                                    "WIN_ENABLE",
                                    "WIN_STRIDE",
                                    "WORK_FIFO_BYTES"};

/* A node or a task may have its own of these. */
static const char *const own[] = {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA",  "NCCL_IB_GID_INDEX",
                                  "NCCL_DEBUG_FILE",    "NCCL_HOSTID",  "NCCL_TOPO_FILE",
                                  "UCX_NET_DEVICES",    "UCX_LOG_FILE", "NCCL_GRAPH_DUMP_FILE",
                                  "NCCL_TOPO_DUMP_FILE"};

/* Left over from a search for an error; each costs speed, or hides what is wrong. Value NULL: any. */
static const struct {
    const char *name, *value, *why;
} leftover[] = {
    {"NCCL_ALGO", NULL, "NCCL chooses better for most sizes"},
    {"NCCL_PROTO", NULL,
     "NCCL chooses better, and a forced LL128 can corrupt data on some machines"},
    {"NCCL_P2P_DISABLE", "1", "GPUs of a node then talk through host memory"},
    {"NCCL_SHM_DISABLE", "1", "ranks of a node then talk through the network"},
    {"NCCL_IB_DISABLE", "1", "nodes then talk over TCP"},
    {"NCCL_NET_GDR_LEVEL", "LOC", "NICs then never reach GPU memory"},
    {"NCCL_DEBUG", "INFO", "fine while looking for something; long logs otherwise"},
    {"NCCL_DEBUG", "TRACE", "very long logs, and slow"},
    {"NCCL_IGNORE_NET_MISMATCH", "1", "nodes with different NICs then hang instead of failing"},
    {"UCX_LOG_LEVEL", "trace", "very long logs, and slow"},
    {"UCX_LOG_LEVEL", "debug", "long logs"},
    {"UCX_RNDV_THRESH", NULL, "UCX chooses by memory type; a fixed value is rarely right"}};

static bool starts(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

static void check_name(struct ls_check_out *out, const char *name)
{
    const char *rest = name + 5; /* after "NCCL_" */
    const char *best = known[0];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcmp(rest, known[i]))
            return;
        if (ls_edit_distance(rest, known[i]) < ls_edit_distance(rest, best))
            best = known[i];
    }
    if (ls_edit_distance(rest, best) <= 2) /* others may be a plugin's own */
        ls_check_say(out, LS_CHECK_WARN, "", "a setting that NCCL knows",
                     "NCCL ignores what it does not know, without a word",
                     "%s (did you mean NCCL_%s?)", name, best);
}

static void check_leftover(struct ls_check_out *out, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof leftover / sizeof *leftover; i++)
        if (!strcmp(name, leftover[i].name) &&
            (!leftover[i].value || !strcasecmp(value, leftover[i].value))) {
            ls_check_say(out, LS_CHECK_WARN, "", "not set", leftover[i].why, "%s=%s", name, value);
            return;
        }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_own(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strlen(own[i]) == n && !strncmp(name, own[i], n))
            return true;
    return false;
}

/* ---- the environment as the user made it ---- */

/* What our own plugin or launcher has set follows from each task's devices, and may differ as these do. */
static bool is_set_by_us(const struct ls_check_context *context, const char *variable)
{
    return ls_topo_is_set_by_us(context->get(context->user, LS_TOPO_SET_VARIABLE), variable);
}

static const char *of_user(void *user, const char *name)
{
    const struct ls_check_context *context = user;
    size_t n = strlen(name);
    for (int i = 0; context->environ[i]; i++)
        if (!strncmp(context->environ[i], name, n) && context->environ[i][n] == '=')
            return is_set_by_us(context, context->environ[i]) ? NULL : context->environ[i] + n + 1;
    return NULL;
}

const char *ls_check_of_user(const struct ls_check_context *context, const char *name)
{
    struct ls_check_context copy = *context;
    return of_user(&copy, name);
}

enum ls_status ls_check_decide(const struct ls_check_context *context, struct ls_arena *arena,
                               struct ls_topo_decision *decision, struct ls_error *err)
{
    struct ls_check_context copy = *context;
    struct ls_topo_request request = {.machine = context->machine,
                                      .get = of_user,
                                      .user = &copy,
                                      .site = context->site,
                                      .local_rank = context->local_rank,
                                      .local_size = context->local_size,
                                      .ranks = context->size,
                                      .nodes = context->nodes};
    if (!context->machine)
        return ls_error_set(err, LS_ERR_ENV, "the machine could not be read");
    return ls_topo_decide(&request, arena, decision, err);
}

/* ---- env.nccl ---- */

/* What the rules of `lockstep topo` say of single variables. NCCL's own matter only where there are GPUs. */
static void judge_values(struct ls_check_out *out, const struct ls_check_context *context)
{
    struct ls_arena arena = {0};
    struct ls_topo_decision decision;
    struct ls_error err = {0};
    if (ls_check_decide(context, &arena, &decision, &err) != LS_OK)
        ls_check_say(out, LS_CHECK_SKIP, "", "", "", "values were not judged: %s", err.message);
    else
        for (int i = 0; i < decision.nnote; i++) {
            const struct ls_topo_note *note = &decision.note[i];
            if (note->level == LS_TOPO_INFO || !note->about ||
                !(starts(note->about, "NCCL_") || starts(note->about, "UCX_") ||
                  starts(note->about, "CUDA_")))
                continue;
            bool fatal = note->level == LS_TOPO_PROBLEM &&
                         (starts(note->about, "UCX_") || context->machine->ngpu > 0);
            ls_check_say(out, fatal ? LS_CHECK_FAIL : LS_CHECK_WARN, "", "", "", "%s", note->text);
        }
    ls_arena_free(&arena);
}

void ls_check_settings(struct ls_check_out *out, const struct ls_check_context *context)
{
    enum { MOST = 512 };
    char *set[MOST] = {NULL};
    struct ls_buf fact;
    int n = 0;
    for (int i = 0; context->environ[i] && n < MOST; i++)
        if ((starts(context->environ[i], "NCCL_") || starts(context->environ[i], "UCX_")) &&
            strchr(context->environ[i], '=') && !is_set_by_us(context, context->environ[i]))
            set[n++] = context->environ[i];
    qsort(set, (size_t)n, sizeof *set, by_text);
    ls_buf_init(&fact, 1 << 16);
    for (int i = 0; i < n; i++) {
        char name[128];
        size_t length = strcspn(set[i], "=");
        if (length >= sizeof name)
            continue;
        memcpy(name, set[i], length);
        name[length] = '\0';
        if (starts(name, "NCCL_"))
            check_name(out, name);
        check_leftover(out, name, set[i] + length + 1);
        if (!is_own(name, length))
            ls_buf_printf(&fact, "%s%s", fact.len ? "\n" : "", set[i]);
    }
    if (context->site_problem)
        ls_check_say(out, LS_CHECK_FAIL, "", "a site file that can be read",
                     "no run starts with it: correct it", "%s", context->site_problem);
    judge_values(out, context);
    ls_check_fact(out, "%s", fact.data ? fact.data : "");
    ls_buf_free(&fact);
}

/* ---- env.conf ---- */

/* Of the lines that set something: comments may differ, and so may what names devices. */
static uint64_t hash_lines(char *text)
{
    uint64_t hash = 0;
    for (char *line = text, *next; line; line = next) {
        if ((next = strchr(line, '\n')))
            *next++ = '\0';
        line += strspn(line, " \t\r");
        line[strcspn(line, "\r")] = '\0';
        if (*line && *line != '#' && !is_own(line, strcspn(line, "= \t")))
            hash = ls_mix64(hash, ls_hash64(line));
    }
    return hash;
}

void ls_check_conf(struct ls_check_out *out, const struct ls_check_context *context)
{
    static char path[LS_TOPO_HOST_FILES][4096];
    int n = ls_topo_host_files(context->get, context->user, path);
    struct ls_buf fact;
    ls_buf_init(&fact, 1 << 16);
    for (int i = 0; i < n; i++) {
        char *text = NULL;
        size_t size;
        struct ls_error absent = {0}; /* as for NCCL and UCX, which take it for empty */
        if (ls_file_read(path[i], 1 << 20, &text, &size, &absent) == LS_OK)
            ls_buf_printf(&fact, "%s%s=%016llx", fact.len ? "\n" : "", path[i],
                          (unsigned long long)hash_lines(text));
        free(text);
    }
    ls_check_fact(out, "%s", fact.data ? fact.data : "");
    ls_buf_free(&fact);
}
