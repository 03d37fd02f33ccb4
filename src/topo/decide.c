/* The decision: takes the request apart, asks each part in turn. Pure: what it knows of the machine and of
 * the environment was handed in. */
#include "topo/decide.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ls_topo_transport_names[] = {"auto", "ib", "roce", "tcp", "shm", "keep", NULL};

const char *ls_decide_get(const struct ls_decide *c, const char *name)
{
    const char *value = c->request->get ? c->request->get(c->request->user, name) : NULL;
    return value && *value ? value : NULL;
}

int ls_decide_number(const struct ls_decide *c, const char *name)
{
    const char *text = ls_decide_get(c, name);
    uint64_t value;
    size_t at = 0;
    if (!text || !ls_topo_digits(text, &at, INT32_MAX, &value))
        return -1;
    /* "4(x2)" and the like count the first */
    return (int)value;
}

const char *ls_decide_text(struct ls_decide *c, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    const char *copy = ls_arena_strdup(c->arena, text);
    c->failed |= !copy;
    return copy ? copy : "";
}

void ls_decide_note(struct ls_decide *c, enum ls_topo_level level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    if (c->decision->nnote == LS_TOPO_NOTES)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->decision->note[c->decision->nnote++] =
        (struct ls_topo_note){level, ls_decide_text(c, "%s", text), c->about, c->own};
}

bool ls_decide_in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; *at;) {
        at += strspn(at, ", ");
        size_t len = strcspn(at, ", ");
        if (len == n && n > 0 && !strncmp(at, name, n))
            return true;
        at += len;
    }
    return false;
}

static enum ls_status check_request(const struct ls_topo_request *request, struct ls_error *err)
{
    /* More ranks than CPUs of the largest machines is a mistake of the caller. */
    if (request->local_size < 1 || request->local_size > 65536 || request->local_rank < 0 ||
        request->local_rank >= request->local_size)
        return ls_error_set(err, LS_ERR_INTERNAL,
                            "local rank %d of %d: expected a rank from 0 on, below the size",
                            request->local_rank, request->local_size);
    if (request->ranks < 0 || request->nodes < 0 || request->transport > LS_TOPO_KEEP)
        return ls_error_set(err, LS_ERR_INTERNAL, "the request for a decision is not filled in");
    return LS_OK;
}

enum ls_status ls_topo_decide(const struct ls_topo_request *request, struct ls_arena *arena,
                              struct ls_topo_decision *decision, struct ls_error *err)
{
    struct ls_decide c = {.request = request,
                          .machine = request->machine,
                          .site = request->site ? request->site : &ls_topo_site_default,
                          .arena = arena,
                          .decision = decision,
                          .err = err,
                          .granted = -1};
    memset(decision, 0, sizeof *decision);
    LS_TRY(check_request(request, err));
    decision->variable = ls_arena_alloc(arena, LS_TOPO_VARIABLES * sizeof *decision->variable);
    decision->note = ls_arena_alloc(arena, LS_TOPO_NOTES * sizeof *decision->note);
    decision->gpu = ls_arena_alloc(arena, LS_TOPO_GPUS * sizeof *decision->gpu);
    decision->nic = ls_arena_alloc(arena, LS_TOPO_NICS * sizeof *decision->nic);
    if (!decision->variable || !decision->note || !decision->gpu || !decision->nic)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the decision");
    LS_TRY(ls_decide_gpus(&c));
    LS_TRY(ls_decide_transport(&c));
    ls_decide_nics(&c);
    ls_decide_cpus(&c);
    ls_decide_variables(&c);
    ls_decide_advice(&c);
    return c.failed ? ls_error_set(err, LS_ERR_NOMEM, "no memory for the decision") : LS_OK;
}
