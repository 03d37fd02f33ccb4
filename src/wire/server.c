/* The PMIx server of a keeper's own workers. PMIx calls back on a thread of its own: callbacks only
 * queue an item and write an eventfd, and the keeper's loop does the rest. Fences of the whole
 * world are answered when the keepers have gathered them; a direct request for a rank's data is
 * refused, as everything travels by fences. */
#include "wire/env.h"
#include "wire/folder.h"
#include "wire/internal.h"
#include "wire/pmix_util.h"
#include "wire/server_map.h"

#include <errno.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// A local operation of PMIx takes milliseconds; a machine in trouble may take longer.
static const double patience = 20;
// For the end, when all workers are gone and only milliseconds of work are left.
static const double last_patience = 5;

struct generation {
    struct generation *next;
    int number;
    int size, first, end; // ranks of the world; own workers are first .. end - 1
    int fences;
    pmix_nspace_t nspace;
};

struct fence {
    struct fence *next;
    int generation, seq;
    pmix_modex_cbfunc_t answer;
    void *arg;
};

struct ls_wire_server {
    int event_fd;
    size_t handler;
    bool failed;
    struct ls_wire_folder folder;
    struct generation *generations;
    struct fence *fences;
    struct ls_wire_queue queue;
};

// PMIx is one per process, and its fence callback carries no pointer of ours: hence the only global
// of this room. The mutex guards it and everything in struct ls_wire_server that callbacks see.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ls_wire_server *current;
static bool used; // PMIx 4.2 aborts the process in a second PMIx_server_init

// ---- on PMIx's thread ---------------------------------------------------------------------------

// Called with the mutex held.
static struct generation *find(const struct ls_wire_server *s, const char *nspace)
{
    struct generation *g = s ? s->generations : NULL;
    while (g && strncmp(g->nspace, nspace, PMIX_MAX_NSLEN) != 0)
        g = g->next;
    return g;
}

// Called with the mutex held.
static void queue_item(struct ls_wire_server *s, struct ls_wire_item *item)
{
    if (!item)
        return;
    ls_wire_queue_add(&s->queue, item);
    uint64_t one = 1;
    if (write(s->event_fd, &one, sizeof one) < 0)
        return; // only when the counter is full: then it is readable already
}

static void tell(const pmix_proc_t *proc, enum ls_wire_event_kind kind, int code, const char *text)
{
    pthread_mutex_lock(&mutex);
    struct generation *g = find(current, proc->nspace);
    if (g && proc->rank >= (pmix_rank_t)g->first && proc->rank < (pmix_rank_t)g->end) {
        struct ls_wire_event e = {.kind = kind, .rank = (int)proc->rank, .text = text};
        e.code = kind == LS_WIRE_WORKER_ABORT ? code : g->number;
        queue_item(current, ls_wire_item_new(&e));
    }
    pthread_mutex_unlock(&mutex);
}

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                  void *arg)
{
    (void)object, (void)done, (void)arg;
    tell(proc, LS_WIRE_WORKER_READY, 0, NULL);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                  void *arg)
{
    (void)object, (void)done, (void)arg;
    tell(proc, LS_WIRE_WORKER_LEFT, 0, NULL);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char text[],
                              pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t done, void *arg)
{
    (void)object, (void)procs, (void)n, (void)done, (void)arg;
    tell(proc, LS_WIRE_WORKER_ABORT, status, text);
    return PMIX_OPERATION_SUCCEEDED;
}

// Whether a fence spans the whole generation; if not, *local says whether it stays within this
// server.
static bool spans(const struct generation *g, const pmix_proc_t procs[], size_t n, bool *local)
{
    *local = true;
    size_t named = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(procs[i].nspace, g->nspace, PMIX_MAX_NSLEN) != 0)
            *local = false;
        else if (procs[i].rank == PMIX_RANK_WILDCARD)
            return true;
        else if (procs[i].rank < (pmix_rank_t)g->first || procs[i].rank >= (pmix_rank_t)g->end)
            *local = false;
        named++;
    }
    return named == (size_t)g->size;
}

// Called with the mutex held: the fence waits in the list, its data is on the way to the keepers.
static pmix_status_t start_fence(struct ls_wire_server *s, struct generation *g, const void *data,
                                 size_t n, pmix_modex_cbfunc_t answer, void *arg)
{
    struct ls_wire_event e = {.data = data, .n = n};
    struct ls_wire_item *item = ls_wire_item_new(&e);
    struct fence *f = item ? calloc(1, sizeof *f) : NULL;
    if (!f) {
        free(item);
        return PMIX_ERR_NOMEM;
    }
    f->next = s->fences;
    f->generation = g->number;
    f->seq = g->fences++;
    f->answer = answer;
    f->arg = arg;
    s->fences = f;
    item->fence = true;
    item->generation = f->generation;
    item->seq = f->seq;
    queue_item(s, item);
    return PMIX_SUCCESS;
}

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t n_procs, const pmix_info_t info[],
                              size_t n_info, char *data, size_t n, pmix_modex_cbfunc_t answer,
                              void *arg)
{
    (void)info, (void)n_info;
    pmix_status_t rc;
    bool local = false;
    pthread_mutex_lock(&mutex);
    struct generation *g = n_procs ? find(current, procs[0].nspace) : NULL;
    if (!g || current->failed)
        rc = PMIX_ERR_LOST_CONNECTION;
    else if (spans(g, procs, n_procs, &local))
        rc = start_fence(current, g, data, n, answer, arg);
    else
        rc = local ? PMIX_OPERATION_SUCCEEDED : PMIX_ERR_NOT_SUPPORTED;
    pthread_mutex_unlock(&mutex);
    if (rc == PMIX_OPERATION_SUCCEEDED) {
        answer(PMIX_SUCCESS, data, n, arg, free, data);
        return PMIX_SUCCESS;
    }
    free(data);
    // Answering with an error reaches every waiting worker; returning one would not.
    if (rc != PMIX_SUCCESS)
        answer(rc, NULL, 0, arg, NULL, NULL);
    return PMIX_SUCCESS;
}

static pmix_status_t on_direct_request(const pmix_proc_t *proc, const pmix_info_t info[], size_t n,
                                       pmix_modex_cbfunc_t answer, void *arg)
{
    (void)proc, (void)info, (void)n, (void)answer, (void)arg;
    return PMIX_ERR_NOT_FOUND;
}

static void on_event(size_t handler, pmix_status_t status, const pmix_proc_t *source,
                     pmix_info_t info[], size_t n_info, pmix_info_t *results, size_t n_results,
                     pmix_event_notification_cbfunc_fn_t done, void *arg)
{
    (void)handler, (void)status, (void)info, (void)n_info, (void)results, (void)n_results;
    if (source)
        tell(source, LS_WIRE_WORKER_LOST, 0, NULL);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

// ---- on the keeper's thread ---------------------------------------------------------------------

// What no argument of PMIx_server_init can carry, set while it runs.
//
// It looks at the whole machine through hwloc, with every plugin that there is (OpenCL, CUDA and the
// like), to offer the result to workers: 80 ms, and a keeper must not touch a GPU. Our workers do not
// ask, so it gets a flat list of CPUs: 5 ms.
//
// Data reaches workers by messages. With a handful of workers that is a little faster than files of shared
// memory ("ds21", the default of 4.2), and a keeper that is killed leaves none. With ds21 alone, as a user
// may have set it, server and workers do not even start.
static const struct {
    const char *name, *value;
} settings[] = {
    {"HWLOC_COMPONENTS", "no_os,stop"},
    {"HWLOC_PLUGINS_BLACKLIST",
     "hwloc_opencl.so,hwloc_gl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so"},
    {"PMIX_MCA_gds", "hash"},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void set_environment(char *saved[SETTINGS])
{
    for (int i = 0; i < SETTINGS; i++) {
        const char *old = getenv(settings[i].name);
        saved[i] = old ? strdup(old) : NULL;
        setenv(settings[i].name, settings[i].value, 1);
    }
}

static void restore_environment(char *saved[SETTINGS])
{
    for (int i = 0; i < SETTINGS; i++) {
        if (saved[i])
            setenv(settings[i].name, saved[i], 1);
        else
            unsetenv(settings[i].name);
        free(saved[i]);
    }
}

static enum ls_status start(struct ls_wire_server *s, struct ls_error *err)
{
    static pmix_server_module_t module = {
        .client_connected = on_connected,
        .client_finalized = on_finalized,
        .abort = on_abort,
        .fence_nb = on_fence,
        .direct_modex = on_direct_request,
    };
    pmix_info_t info[2];
    PMIX_INFO_CONSTRUCT(&info[0]);
    PMIX_INFO_CONSTRUCT(&info[1]);
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, s->folder.path, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_SYSTEM_TMPDIR, s->folder.path, PMIX_STRING);
    char *saved[SETTINGS];
    set_environment(saved);
    used = true;
    pmix_status_t rc = PMIx_server_init(&module, info, 2);
    restore_environment(saved);
    PMIX_INFO_DESTRUCT(&info[0]);
    PMIX_INFO_DESTRUCT(&info[1]);
    char text[80];
    if (rc != PMIX_SUCCESS)
        return ls_error_set(err, LS_ERR_ENV, "PMIx_server_init of version %s in %s: %s",
                            PMIx_Get_version(), s->folder.path, ls_wire_pmix_text(rc, text));
    // Only this code: a handler for everything would hear what the server itself sends.
    pmix_status_t code = PMIX_ERR_LOST_CONNECTION;
    rc = PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL);
    s->handler = rc >= 0 ? (size_t)rc : SIZE_MAX;
    return LS_OK;
}

enum ls_status ls_wire_server_open(const char *tmpdir, struct ls_wire_server **server,
                                   struct ls_error *err)
{
    struct ls_wire_server *s = calloc(1, sizeof *s);
    if (!s)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a PMIx server");
    s->folder.fd = -1;
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum ls_status st = LS_OK;
    if (s->event_fd < 0)
        st = ls_error_errno(err, errno, "eventfd");
    pthread_mutex_lock(&mutex);
    if (st == LS_OK && used)
        st = ls_error_set(err, LS_ERR_INTERNAL, "this process is or was a PMIx server already");
    if (st == LS_OK)
        current = s;
    pthread_mutex_unlock(&mutex);
    bool registered = st == LS_OK;
    if (st == LS_OK)
        st = ls_wire_folder_make(tmpdir, &s->folder, err);
    if (st == LS_OK)
        st = start(s, err);
    if (st == LS_OK) {
        *server = s;
        return LS_OK;
    }
    if (registered) {
        pthread_mutex_lock(&mutex);
        current = NULL;
        pthread_mutex_unlock(&mutex);
    }
    ls_wire_folder_remove(&s->folder);
    if (s->event_fd >= 0)
        close(s->event_fd);
    free(s);
    return st;
}

int ls_wire_server_fd(const struct ls_wire_server *server)
{
    return server->event_fd;
}

static enum ls_status finish(struct ls_wire_wait *wait, pmix_status_t started, const char *what,
                             struct ls_error *err)
{
    pmix_status_t rc;
    char text[80];
    if (!ls_wire_wait_end(wait, started, patience, &rc))
        return ls_error_set(err, LS_ERR_TIMEOUT, "%s did not end within %g s", what, patience);
    if (rc != PMIX_SUCCESS)
        return ls_error_set(err, LS_ERR_ENV, "%s: %s", what, ls_wire_pmix_text(rc, text));
    return LS_OK;
}

static enum ls_status register_namespace(const struct generation *g, const struct ls_wire_map *map,
                                         int keeper, struct ls_error *err)
{
    pmix_info_t *info;
    size_t n;
    LS_TRY(ls_wire_describe_world(map, keeper, g->nspace, &info, &n, err));
    struct ls_wire_wait *wait = ls_wire_wait_new();
    enum ls_status st = LS_OK;
    if (!wait)
        st = ls_error_set(err, LS_ERR_NOMEM, "no memory for a PMIx namespace");
    else
        st = finish(wait,
                    PMIx_server_register_nspace(g->nspace, g->end - g->first, info, n,
                                                ls_wire_wait_done, wait),
                    "PMIx_server_register_nspace", err);
    // A registration past its deadline still reads the array.
    if (st != LS_ERR_TIMEOUT)
        PMIX_INFO_FREE(info, n);
    return st;
}

static enum ls_status register_workers(struct generation *g, struct ls_error *err)
{
    for (int r = g->first; r < g->end; r++) {
        pmix_proc_t proc;
        PMIX_LOAD_PROCID(&proc, g->nspace, (pmix_rank_t)r);
        struct ls_wire_wait *wait = ls_wire_wait_new();
        if (!wait)
            return ls_error_set(err, LS_ERR_NOMEM, "no memory for a PMIx client");
        LS_TRY(finish(
            wait,
            PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, ls_wire_wait_done, wait),
            "PMIx_server_register_client", err));
    }
    return LS_OK;
}

/* PMIx 5.0.0 and 5.0.1 (Ubuntu 24.04) crash while they store what a fence has brought from another
 * server; 4.2 and 5.0.2 and later do not. */
static bool crashes_between_servers(const char *version)
{
    return (!strncmp(version, "5.0.0", 5) || !strncmp(version, "5.0.1", 5)) &&
           !(version[5] >= '0' && version[5] <= '9');
}

enum ls_status ls_wire_server_begin(struct ls_wire_server *s, const char *job, int generation,
                                    const struct ls_wire_map *map, int keeper, struct ls_error *err)
{
    char version[64];
    if (map->n_keepers > 1 && crashes_between_servers(ls_wire_pmix_version(version)))
        return ls_error_set(err, LS_ERR_ENV,
                            "PMIx %s crashes when it carries data between several launchers: "
                            "install PMIx 4.2, or 5.0.2 or later, or run on one node with one "
                            "task",
                            version);
    struct generation *g = calloc(1, sizeof *g);
    if (!g)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a generation of workers");
    g->number = generation;
    g->size = map->size;
    g->first = map->first[keeper];
    g->end = map->first[keeper + 1];
    snprintf(g->nspace, sizeof g->nspace, "lockstep.%.200s.%d", job, generation);
    enum ls_status st = LS_OK;
    pthread_mutex_lock(&mutex);
    if (find(s, g->nspace))
        st = ls_error_set(err, LS_ERR_INTERNAL, "generation %d is there already", generation);
    else {
        g->next = s->generations;
        s->generations = g;
        s->failed = false;
    }
    pthread_mutex_unlock(&mutex);
    if (st != LS_OK) {
        free(g);
        return st;
    }
    st = register_namespace(g, map, keeper, err);
    if (st == LS_OK)
        st = register_workers(g, err);
    if (st != LS_OK)
        ls_wire_server_end(s, generation);
    return st;
}

// Concatenates `base`, without what announces a server above, and `own` into one block.
static char **join(char *const *base, char *const *own, int *first)
{
    size_t count = 1, bytes = 0;
    for (char *const *e = base; e && *e; e++, count++)
        bytes += strlen(*e) + 1;
    for (char *const *e = own; e && *e; e++, count++)
        bytes += strlen(*e) + 1;
    char **env = malloc(count * sizeof *env + bytes);
    if (!env)
        return NULL;
    char *p = (char *)(env + count);
    int k = 0;
    for (char *const *e = base; e && *e; e++)
        if (!ls_wire_env_announces(*e)) {
            env[k++] = p;
            p = stpcpy(p, *e) + 1;
        }
    if (first)
        *first = k;
    for (char *const *e = own; e && *e; e++) {
        env[k++] = p;
        p = stpcpy(p, *e) + 1;
    }
    env[k] = NULL;
    return env;
}

enum ls_status ls_wire_server_env(struct ls_wire_server *s, int generation, int rank,
                                  char *const *base, char ***env, int *first, struct ls_error *err)
{
    // Only this thread changes the list, so reading it needs no lock.
    const struct generation *g = s->generations;
    while (g && g->number != generation)
        g = g->next;
    if (!g || rank < g->first || rank >= g->end)
        return ls_error_set(err, LS_ERR_INTERNAL, "rank %d of generation %d is not served here",
                            rank, generation);
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, g->nspace, (pmix_rank_t)rank);
    char **own = NULL, text[80];
    pmix_status_t rc = PMIx_server_setup_fork(&proc, &own);
    enum ls_status st = LS_OK;
    if (rc != PMIX_SUCCESS)
        st = ls_error_set(err, LS_ERR_ENV, "PMIx_server_setup_fork for rank %d: %s", rank,
                          ls_wire_pmix_text(rc, text));
    else if (!(*env = join(base, own, first)))
        st = ls_error_set(err, LS_ERR_NOMEM, "no memory for the environment of rank %d", rank);
    for (char **e = own; e && *e; e++)
        free(*e);
    free(own);
    return st;
}

struct ls_wire_item *ls_wire_server_take(struct ls_wire_server *s)
{
    pthread_mutex_lock(&mutex);
    struct ls_wire_item *item = ls_wire_queue_take(&s->queue);
    uint64_t count;
    if (!s->queue.head && read(s->event_fd, &count, sizeof count) < 0)
        count = 0; // was not readable: fine
    pthread_mutex_unlock(&mutex);
    return item;
}

// Takes one fence off the list: that one, or any of `generation` (seq -1), or any at all.
static struct fence *take_fence(struct ls_wire_server *s, int generation, int seq)
{
    pthread_mutex_lock(&mutex);
    struct fence **at = &s->fences;
    while (*at && ((generation >= 0 && (*at)->generation != generation) ||
                   (seq >= 0 && (*at)->seq != seq)))
        at = &(*at)->next;
    struct fence *f = *at;
    if (f)
        *at = f->next;
    pthread_mutex_unlock(&mutex);
    return f;
}

void ls_wire_server_answer(struct ls_wire_server *s, int generation, int seq, const void *data,
                           size_t n)
{
    struct fence *f = take_fence(s, generation, seq);
    if (!f)
        return;
    // PMIx keeps the bytes until it calls free on its own thread.
    char *copy = malloc(n + 1);
    if (copy) {
        if (n)
            memcpy(copy, data, n);
        f->answer(PMIX_SUCCESS, copy, n, f->arg, free, copy);
    } else
        f->answer(PMIX_ERR_NOMEM, NULL, 0, f->arg, NULL, NULL);
    free(f);
}

static void refuse(struct ls_wire_server *s, int generation)
{
    for (struct fence *f; (f = take_fence(s, generation, -1));) {
        f->answer(PMIX_ERR_LOST_CONNECTION, NULL, 0, f->arg, NULL, NULL);
        free(f);
    }
}

void ls_wire_server_fail(struct ls_wire_server *s)
{
    pthread_mutex_lock(&mutex);
    s->failed = true;
    pthread_mutex_unlock(&mutex);
    refuse(s, -1);
}

// False: PMIx's thread does not answer, and nobody may wait for it again.
static bool end_generation(struct ls_wire_server *s, int generation)
{
    bool alive = true;
    pthread_mutex_lock(&mutex);
    struct generation **at = &s->generations;
    while (*at && (*at)->number != generation)
        at = &(*at)->next;
    struct generation *g = *at;
    if (g)
        *at = g->next;
    pthread_mutex_unlock(&mutex);
    if (!g)
        return true;
    refuse(s, generation);
    struct ls_wire_wait *wait = ls_wire_wait_new();
    if (wait) {
        PMIx_server_deregister_nspace(g->nspace, ls_wire_wait_done, wait);
        pmix_status_t ignored;
        alive = ls_wire_wait_end(wait, PMIX_SUCCESS, last_patience, &ignored);
    }
    free(g);
    return alive;
}

void ls_wire_server_end(struct ls_wire_server *s, int generation)
{
    end_generation(s, generation);
}

static bool drop_handler(const struct ls_wire_server *s)
{
    struct ls_wire_wait *wait = s->handler == SIZE_MAX ? NULL : ls_wire_wait_new();
    if (!wait)
        return true;
    pmix_status_t ignored, rc = PMIx_Deregister_event_handler(s->handler, ls_wire_wait_done, wait);
    return ls_wire_wait_end(wait, rc, last_patience, &ignored);
}

void ls_wire_server_close(struct ls_wire_server *s)
{
    if (!s)
        return;
    bool alive = true;
    while (alive && s->generations)
        alive = end_generation(s, s->generations->number);
    // A client that is killed while it connects can make PMIx 4.2.2 lock a mutex that its own thread
    // holds. To finalize would be to wait for that thread for ever; it ends with the process.
    if (alive && drop_handler(s))
        PMIx_server_finalize();
    pthread_mutex_lock(&mutex);
    current = NULL;
    pthread_mutex_unlock(&mutex);
    ls_wire_queue_free(&s->queue);
    ls_wire_folder_remove(&s->folder);
    close(s->event_fd);
    free(s);
}
