/* A rank as PMIx client: who am I, who sits where, and the exchange of small blobs. Uses PMIx_Init,
 * Put, Commit, Fence with collected data, Get, Finalize and Abort, and nothing else. */
#include "wire/env.h"
#include "wire/roll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BLOB = 1 << 20, HOST_LEN = 255 };
// Seconds after which rank 0 says that it waits: more than a start under load takes.
#define PATIENCE 5.0
// Seconds that every rank waits longer than the one before it, and how many ranks do: whoever says first what is
// wrong ends the others, which takes a moment.
#define TURN 2.0
enum { TURNS = 4 };

struct ls_wire_client_state {
    pmix_proc_t me, all;
    double deadline;
    int exchanges;
    const struct ls_wire_teller *teller; // NULL: the caller tells
    bool broken; // an exchange ran into its deadline: PMIx still knows of it
    void **blob; // [size], of the last exchange
    size_t *bytes;
    int *node;
    char **host;
};

// What every rank says of itself when it opens, followed by its host name.
struct introduction {
    uint32_t by_peers; // 1: `place` is the lowest rank of the node; 0: PMIx's node number
    uint32_t place;
};

static void drop_blobs(struct ls_wire_client *c)
{
    struct ls_wire_client_state *s = c->state;
    for (int r = 0; s->blob && r < c->size; r++) {
        free(s->blob[r]);
        s->blob[r] = NULL;
    }
}

static void client_free(struct ls_wire_client *c)
{
    struct ls_wire_client_state *s = c->state;
    if (s) {
        drop_blobs(c);
        for (int r = 0; s->host && r < c->size; r++)
            free(s->host[r]);
        free(s->host);
        free(s->blob);
        free(s->bytes);
        free(s->node);
        free(s);
    }
    free(c);
}

static enum ls_status get_u32(const pmix_proc_t *proc, const char *key, uint32_t *out,
                              struct ls_error *err)
{
    pmix_value_t *v = NULL;
    pmix_status_t rc = PMIx_Get(proc, key, NULL, 0, &v);
    char text[80];
    if (rc != PMIX_SUCCESS || !v)
        return ls_error_set(err, LS_ERR_ENV, "the PMIx server does not tell %s: %s", key,
                            ls_wire_pmix_text(rc, text));
    bool known = true;
    if (v->type == PMIX_UINT32)
        *out = v->data.uint32;
    else if (v->type == PMIX_UINT16)
        *out = v->data.uint16;
    else if (v->type == PMIX_PROC_RANK)
        *out = v->data.rank;
    else
        known = false;
    int type = v->type;
    PMIX_VALUE_RELEASE(v);
    if (!known)
        return ls_error_set(err, LS_ERR_ENV, "the PMIx server gives %s as type %d, not a number",
                            key, type);
    return LS_OK;
}

// The lowest rank in a list such as "3,5-7".
static bool lowest_peer(const char *list, uint32_t *out)
{
    bool found = false;
    for (const char *p = list; *p;) {
        char *end;
        unsigned long r = strtoul(p, &end, 10);
        if (end == p)
            return false;
        if (!found || r < *out)
            *out = (uint32_t)r;
        found = true;
        p = end + strspn(end, ",");
        if (*p == '-') { // the upper end of a range cannot be the lowest
            strtoul(p + 1, &end, 10);
            p = end + strspn(end, ",");
        }
    }
    return found;
}

static enum ls_status introduce(const struct ls_wire_client *c, struct introduction *i,
                                struct ls_error *err)
{
    const struct ls_wire_client_state *s = c->state;
    pmix_value_t *v = NULL;
    pmix_status_t rc = PMIx_Get(&s->all, PMIX_LOCAL_PEERS, NULL, 0, &v);
    bool found = rc == PMIX_SUCCESS && v && v->type == PMIX_STRING && v->data.string &&
                 lowest_peer(v->data.string, &i->place);
    if (v)
        PMIX_VALUE_RELEASE(v);
    i->by_peers = found;
    return found ? LS_OK : get_u32(&s->me, PMIX_NODEID, &i->place, err);
}

// Numbers the nodes in the order of their lowest rank, and counts local ranks.
static enum ls_status place_ranks(struct ls_wire_client *c, const void *const *all,
                                  const size_t *bytes, struct ls_error *err)
{
    struct ls_wire_client_state *s = c->state;
    struct introduction mine, other;
    uint32_t *place = calloc((size_t)c->size, sizeof *place);
    enum ls_status st = LS_OK;
    if (!place)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d ranks", c->size);
    memcpy(&mine, all[c->rank], sizeof mine);
    for (int r = 0; r < c->size && st == LS_OK; r++) {
        if (bytes[r] < sizeof other || bytes[r] > sizeof other + HOST_LEN) {
            st = ls_error_set(err, LS_ERR_ENV,
                              "rank %d introduces itself with %zu bytes; give all ranks one build",
                              r, bytes[r]);
            break;
        }
        memcpy(&other, all[r], sizeof other);
        place[r] = other.place;
        size_t len = bytes[r] - sizeof other; /* a blob, not a string: nothing ends it */
        s->host[r] = calloc(1, len + 1);
        if (s->host[r])
            memcpy(s->host[r], (const char *)all[r] + sizeof other, len);
        if (!s->host[r])
            st = ls_error_set(err, LS_ERR_NOMEM, "no memory for %d ranks", c->size);
        else if (other.by_peers != mine.by_peers)
            st = ls_error_set(err, LS_ERR_ENV,
                              "PMIx tells rank %d on %s and rank %d their local peers differently",
                              r, s->host[r], c->rank);
    }
    // Nodes are few compared with ranks, and this runs once: a plain search will do.
    for (int r = 0; r < c->size && st == LS_OK; r++) {
        int q = 0;
        while (place[q] != place[r])
            q++;
        s->node[r] = q == r ? c->n_nodes++ : s->node[q];
    }
    for (int r = 0; r < c->size && st == LS_OK; r++)
        if (s->node[r] == s->node[c->rank]) {
            c->local_rank += r < c->rank;
            c->local_size++;
        }
    free(place);
    return st;
}

static enum ls_status allocate(struct ls_wire_client *c, struct ls_error *err)
{
    struct ls_wire_client_state *s = c->state;
    size_t n = (size_t)c->size;
    s->blob = calloc(n, sizeof *s->blob);
    s->bytes = calloc(n, sizeof *s->bytes);
    s->node = calloc(n, sizeof *s->node);
    s->host = calloc(n, sizeof *s->host);
    if (!s->blob || !s->bytes || !s->node || !s->host)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d ranks", c->size);
    c->node = s->node;
    c->host = (const char *const *)s->host;
    return LS_OK;
}

// Slurm's PMIx asks the nodes one by one: with more tasks the start would take seconds longer.
enum { MOST_ASKED = 1024 };

static bool asks(const struct ls_wire_client *c)
{
    return c->state->teller && c->size > 1 && c->size <= MOST_ASKED &&
           strncmp(c->state->me.nspace, "slurm.", 6) == 0 && ls_wire_is_first(&c->state->me);
}

// One process speaks for the step, and ends it: an empty message is left for the caller.
static enum ls_status tell(const struct ls_wire_client *c, struct ls_error *err)
{
    const struct ls_wire_teller *teller = c->state->teller;
    if (teller && err) {
        teller->say(teller->arg, err->message);
        PMIx_Abort(teller->code, err->message, NULL, 0);
        err->message[0] = '\0';
    }
    return LS_ERR_TIMEOUT;
}

// "2 of 4 tasks have not come yet: task 1 on n1, task 3 on n3"
static void describe_absent(const struct ls_wire_client *c,
                            const struct ls_wire_roll_questions *roll, const char *when, char *out,
                            size_t room)
{
    char who[LS_WIRE_ROLL_TEXT];
    bool blocked;
    int absent = ls_wire_roll_absent(roll, &blocked, who);
    if (blocked)
        snprintf(out, room, "%s%s has not come %s: it has ended, or its node cannot be reached",
                 absent == 1 ? "" : "one of ", who, when);
    else
        snprintf(out, room, "%d of %d tasks %s not come %s: %s", absent, c->size,
                 absent == 1 ? "has" : "have", when, who);
}

// Rank 0 waits for the others here, where it can still find out for whom, and not in its fence.
static enum ls_status call_roll(const struct ls_wire_client *c, struct ls_error *err)
{
    const struct ls_wire_client_state *s = c->state;
    char absent[LS_WIRE_ROLL_TEXT + 120], text[LS_WIRE_ROLL_TEXT + 160], when[40];
    double patience = s->deadline < PATIENCE ? s->deadline : PATIENCE;
    struct ls_wire_roll_questions *roll = ls_wire_roll_new(&s->me, c->size);
    if (!roll)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory to ask %d tasks", c->size);
    bool all = ls_wire_roll_wait(roll, patience);
    if (!all) {
        describe_absent(c, roll, "yet", absent, sizeof absent);
        snprintf(text, sizeof text, "waiting: %s; see what srun says", absent);
        s->teller->say(s->teller->arg, text);
        all = ls_wire_roll_wait(roll, s->deadline - patience);
    }
    enum ls_status status = LS_OK;
    if (!all) {
        snprintf(when, sizeof when, "within %g s", s->deadline);
        describe_absent(c, roll, when, absent, sizeof absent);
        ls_error_set(
            err, LS_ERR_TIMEOUT,
            "%s; see what srun says, and look there for a program that did not start, or hangs",
            absent);
        status = tell(c, err);
    }
    ls_wire_roll_forget(roll);
    return status;
}

static enum ls_status arrive(const struct ls_wire_client *c, struct ls_error *err)
{
    if (!asks(c) || !ls_wire_roll_come(&c->state->me) || c->rank > 0)
        return LS_OK;
    return call_roll(c, err);
}

static enum ls_status look_around(struct ls_wire_client *c, const char *host, struct ls_error *err)
{
    uint32_t size;
    LS_TRY(get_u32(&c->state->all, PMIX_JOB_SIZE, &size, err));
    if (size < 1 || size > 1 << 20 || c->state->me.rank >= size)
        return ls_error_set(err, LS_ERR_ENV, "PMIx says rank %u of %u", c->state->me.rank, size);
    c->rank = (int)c->state->me.rank;
    c->size = (int)size;
    LS_TRY(allocate(c, err));
    LS_TRY(arrive(c, err));

    struct {
        struct introduction head;
        char host[HOST_LEN + 1];
    } me = {0};
    LS_TRY(introduce(c, &me.head, err));
    if (host)
        snprintf(me.host, sizeof me.host, "%s", host);
    else if (gethostname(me.host, sizeof me.host - 1))
        snprintf(me.host, sizeof me.host, "unknown");
    const void *const *all;
    const size_t *bytes;
    LS_TRY(ls_wire_exchange(c, &me, sizeof me.head + strlen(me.host), &all, &bytes, err));
    return place_ranks(c, all, bytes, err);
}

static enum ls_status init(struct ls_wire_client *c, struct ls_error *err)
{
    struct ls_wire_client_state *s = c->state;
    char text[80], demands[256];
    // PMIx cannot become a server in a process whose PMIx_Init has failed, and from version 5 on it
    // makes everyone a world of one: so its own variable is asked first.
    const char *nspace = ls_wire_env_namespace();
    if (!nspace)
        return ls_error_set(err, LS_ERR_NOTFOUND, "no PMIx server started this process");
    pmix_status_t rc = ls_wire_pmix_init(&s->me);
    if (rc == PMIX_ERR_UNREACH || rc == PMIX_ERR_INVALID_NAMESPACE)
        return ls_error_set(
            err, LS_ERR_ENV,
            "PMIX_NAMESPACE=%.100s is set, but that PMIx server does not answer (%s); "
            "unset the PMIX_* variables if another job left them here; in a container, share the "
            "network and mount PMIX_SERVER_TMPDIR",
            nspace, ls_wire_pmix_text(rc, text));
    if (rc != PMIX_SUCCESS)
        return ls_error_set(
            err, LS_ERR_ENV,
            "PMIx_Init of %s: %s; the server above asks for %s: libpmix here must be of the same "
            "major version and have these modules (PMIx names one that is missing above this "
            "line); "
            "install them, in a container inside of it, or start containers below lockstep exec",
            PMIx_Get_version(), ls_wire_pmix_text(rc, text), ls_wire_env_demands(demands));
    PMIX_LOAD_PROCID(&s->all, s->me.nspace, PMIX_RANK_WILDCARD);
    c->job = s->me.nspace;
    return LS_OK;
}

enum ls_status ls_wire_client_open_telling(const char *host, double deadline,
                                           const struct ls_wire_teller *teller,
                                           struct ls_wire_client **client, struct ls_error *err)
{
    struct ls_wire_client *c = calloc(1, sizeof *c);
    if (c)
        c->state = calloc(1, sizeof *c->state);
    if (!c || !c->state) {
        free(c);
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a PMIx client");
    }
    c->state->deadline = deadline;
    c->state->teller = teller;
    enum ls_status st = init(c, err);
    if (st != LS_OK) {
        client_free(c);
        return st;
    }
    st = look_around(c, host, err);
    if (st != LS_OK) {
        ls_wire_client_close(c);
        return st;
    }
    *client = c;
    return LS_OK;
}

enum ls_status ls_wire_client_open(const char *host, double deadline,
                                   struct ls_wire_client **client, struct ls_error *err)
{
    return ls_wire_client_open_telling(host, deadline, NULL, client, err);
}

static enum ls_status publish(struct ls_wire_client *c, const char *key, const void *mine, size_t n,
                              struct ls_error *err)
{
    // PMIx has no empty byte objects: one byte always goes in front.
    char *copy = malloc(n + 1);
    if (!copy)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %zu bytes to exchange", n);
    copy[0] = 1;
    if (n)
        memcpy(copy + 1, mine, n);
    pmix_value_t v;
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = copy;
    v.data.bo.size = n + 1;
    pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &v);
    free(copy);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    char text[80];
    if (rc != PMIX_SUCCESS)
        return ls_error_set(err, LS_ERR_ABORTED, "exchange %d: cannot publish: %s",
                            c->state->exchanges, ls_wire_pmix_text(rc, text));
    return LS_OK;
}

// Not everyone came. Where all see that, one is to say so.
static enum ls_status give_up(const struct ls_wire_client *c, struct ls_error *err)
{
    const struct ls_wire_client_state *s = c->state;
    char node[256];
    if (asks(c) && s->exchanges == 1 && c->rank > 0)
        ls_error_set(err, LS_ERR_TIMEOUT,
                     "not all of %d tasks have come within %g s; task 0 on %s would say who is "
                     "missing, and has not: look for what srun says about it, and at that node",
                     c->size, s->deadline, ls_wire_roll_node(&s->me, 0, node));
    else
        ls_error_set(err, LS_ERR_TIMEOUT,
                     "exchange %d of %d ranks: not all of them arrived within %g s; one did not "
                     "start, or hangs: look for what srun or mpirun says about it",
                     s->exchanges, c->size, s->deadline);
    return tell(c, err);
}

static enum ls_status fence(struct ls_wire_client *c, struct ls_error *err)
{
    struct ls_wire_client_state *s = c->state;
    struct ls_wire_wait *wait = ls_wire_wait_new();
    if (!wait)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for an exchange");
    bool collect = true;
    char text[160];
    pmix_info_t info;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    double seconds = s->deadline, begin = ls_time_monotonic();
    if (s->teller)
        seconds += TURN * (c->rank < TURNS ? c->rank : TURNS);
    pmix_status_t rc = PMIx_Fence_nb(&s->all, 1, &info, 1, ls_wire_wait_done, wait);
    if (s->teller && c->rank == 0 && !ls_wire_wait_some(wait, rc, PATIENCE)) {
        snprintf(text, sizeof text,
                 "waiting for the others: not all of %d ranks have arrived yet; see what srun or "
                 "mpirun says about them",
                 c->size);
        s->teller->say(s->teller->arg, text);
    }
    bool done = ls_wire_wait_end(wait, rc, seconds - (ls_time_monotonic() - begin), &rc);
    PMIX_INFO_DESTRUCT(&info);
    s->broken = !done || rc != PMIX_SUCCESS;
    if (!done)
        return give_up(c, err);
    if (rc != PMIX_SUCCESS)
        return ls_error_set(err, LS_ERR_ABORTED, "exchange %d: a rank or its keeper is gone: %s",
                            s->exchanges, ls_wire_pmix_text(rc, text));
    return LS_OK;
}

static enum ls_status fetch(struct ls_wire_client *c, const char *key, int rank,
                            struct ls_error *err)
{
    struct ls_wire_client_state *s = c->state;
    pmix_proc_t peer;
    PMIX_LOAD_PROCID(&peer, s->me.nspace, (pmix_rank_t)rank);
    int seconds = s->deadline < 1 ? 1 : (int)s->deadline;
    pmix_info_t info;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_value_t *v = NULL;
    pmix_status_t rc = PMIx_Get(&peer, key, &info, 1, &v);
    PMIX_INFO_DESTRUCT(&info);
    char text[80];
    // A dead rank's fence may succeed for the others: then its blob is missing.
    if (rc != PMIX_SUCCESS || !v)
        return ls_error_set(err, LS_ERR_ABORTED,
                            "exchange %d: rank %d%s%s is gone, it has published nothing: %s",
                            s->exchanges, rank, s->host[rank] ? " on " : "",
                            s->host[rank] ? s->host[rank] : "", ls_wire_pmix_text(rc, text));
    enum ls_status st = LS_OK;
    if (v->type != PMIX_BYTE_OBJECT || v->data.bo.size < 1 || v->data.bo.size > MAX_BLOB + 1)
        st = ls_error_set(err, LS_ERR_ENV, "exchange %d: rank %d published something else",
                          s->exchanges, rank);
    else if (!(s->blob[rank] = malloc(v->data.bo.size)))
        st = ls_error_set(err, LS_ERR_NOMEM, "no memory for the blobs of %d ranks", c->size);
    else {
        s->bytes[rank] = v->data.bo.size - 1;
        memcpy(s->blob[rank], v->data.bo.bytes + 1, s->bytes[rank]);
    }
    PMIX_VALUE_RELEASE(v);
    return st;
}

enum ls_status ls_wire_exchange(void *client, const void *mine, size_t n, const void *const **all,
                                const size_t **bytes, struct ls_error *err)
{
    struct ls_wire_client *c = client;
    struct ls_wire_client_state *s = c->state;
    if (n > MAX_BLOB)
        return ls_error_set(err, LS_ERR_OVERFLOW, "%zu bytes to exchange are more than %d", n,
                            MAX_BLOB);
    if (s->broken)
        return ls_error_set(err, LS_ERR_ABORTED, "exchange %d: an earlier one failed",
                            s->exchanges);
    s->exchanges++;
    char key[LS_WIRE_KEY];
    ls_wire_key(&s->me, s->teller ? LS_WIRE_KEEPER : LS_WIRE_OTHER, "exchange", s->exchanges, key);
    LS_TRY(publish(c, key, mine, n, err));
    LS_TRY(fence(c, err));
    drop_blobs(c);
    for (int r = 0; r < c->size; r++)
        LS_TRY(fetch(c, key, r, err));
    *all = (const void *const *)s->blob;
    *bytes = s->bytes;
    return LS_OK;
}

void ls_wire_client_close(struct ls_wire_client *client)
{
    if (!client)
        return;
    PMIx_Finalize(NULL, 0);
    client_free(client);
}

void ls_wire_client_abort(struct ls_wire_client *client, int code, const char *text)
{
    (void)client;
    PMIx_Abort(code, text, NULL, 0);
}

const char *ls_wire_pmix_version(char out[static 64])
{
    // "OpenPMIx 4.2.2rc2 (PMIx Standard: ...": the second word.
    const char *v = PMIx_Get_version();
    const char *digit = v ? strpbrk(v, "0123456789") : NULL;
    if (digit)
        snprintf(out, 64, "%.*s", (int)strcspn(digit, " ,("), digit);
    else
        snprintf(out, 64, "unknown");
    return out;
}
