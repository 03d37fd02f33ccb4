/* Slurm's side of SPANK, for tests; see fake.h. */
#include "fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake *fake;

struct fake *fake_new(spank_context_t context)
{
    struct fake *f = calloc(1, sizeof *f);
    f->context = context;
    f->env = calloc(1, sizeof *f->env);
    f->items = true;
    f->nnodes = f->ntasks = f->local_ntasks = 1;
    fake = f;
    return f;
}

void fake_free(struct fake *f)
{
    for (int i = 0; i < f->nenv; i++)
        free(f->env[i]);
    free(f->env);
    free(f);
    fake = NULL;
}

static int find(const struct fake *f, const char *name, size_t len)
{
    for (int i = 0; i < f->nenv; i++)
        if (!strncmp(f->env[i], name, len) && f->env[i][len] == '=')
            return i;
    return -1;
}

void fake_setenv(struct fake *f, const char *assignment)
{
    int at = find(f, assignment, strcspn(assignment, "=")), n = f->nenv + (at < 0);
    char **moved = calloc((size_t)n + 1, sizeof *moved);
    for (int i = 0; i < n; i++) {
        bool this = i == at || i == f->nenv;
        moved[i] = strdup(this ? assignment : f->env[i]);
        if (i < f->nenv)
            free(f->env[i]);
    }
    free(f->env);
    f->env = moved;
    f->nenv = n;
}

const char *fake_getenv(const struct fake *f, const char *name)
{
    int at = find(f, name, strlen(name));
    return at < 0 ? NULL : f->env[at] + strlen(name) + 1;
}

int fake_option(struct fake *f, const char *name, const char *arg)
{
    for (int i = 0; i < f->noptions; i++)
        if (!strcmp(f->options[i]->name, name))
            return f->options[i]->cb(f->options[i]->val, arg, f->context == S_CTX_REMOTE);
    return -2;
}

bool fake_said(const struct fake *f, const char *text)
{
    return strstr(f->log, text) != NULL;
}

/* ---- what Slurm exports to plugins ---- */

static spank_err_t refuse(spank_err_t why)
{
    fake->refused++;
    return why;
}

spank_context_t spank_context(void)
{
    return fake->context;
}

const char *spank_strerror(spank_err_t err)
{
    (void)err;
    return "an error";
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
    (void)sp;
    if (!fake->in_init || !option || !option->name || !option->usage ||
        strlen(option->name) > SPANK_OPTION_MAXLEN || fake->noptions == 32)
        return refuse(ESPANK_BAD_ARG);
    fake->options[fake->noptions++] = option;
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    (void)sp;
    va_list ap;
    if (fake->context != S_CTX_REMOTE || !fake->items)
        return refuse(ESPANK_NOT_REMOTE);
    va_start(ap, item);
    void *at = va_arg(ap, void *);
    va_end(ap);
    switch (item) {
    case S_JOB_ENV:
        *(char ***)at = fake->env;
        return ESPANK_SUCCESS;
    case S_TASK_ID:
        *(int *)at = fake->local;
        return ESPANK_SUCCESS;
    case S_JOB_ID:
        *(uint32_t *)at = 41;
        return ESPANK_SUCCESS;
    case S_JOB_STEPID:
        *(uint32_t *)at = fake->step;
        return ESPANK_SUCCESS;
    case S_JOB_NNODES:
        *(uint32_t *)at = fake->nnodes;
        return ESPANK_SUCCESS;
    case S_JOB_NODEID:
        *(uint32_t *)at = fake->node;
        return ESPANK_SUCCESS;
    case S_JOB_TOTAL_TASK_COUNT:
        *(uint32_t *)at = fake->ntasks;
        return ESPANK_SUCCESS;
    case S_JOB_LOCAL_TASK_COUNT:
        *(uint32_t *)at = fake->local_ntasks;
        return ESPANK_SUCCESS;
    case S_TASK_GLOBAL_ID:
        *(uint32_t *)at = fake->rank;
        return ESPANK_SUCCESS;
    default:
        return refuse(ESPANK_BAD_ARG);
    }
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *text, int size)
{
    (void)sp;
    const char *value = fake_getenv(fake, name);
    if (fake->context != S_CTX_REMOTE)
        return refuse(ESPANK_NOT_REMOTE);
    if (!value)
        return ESPANK_ENV_NOEXIST;
    return snprintf(text, (size_t)size, "%s", value) >= size ? ESPANK_NOSPACE : ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    (void)sp;
    if (fake->context != S_CTX_REMOTE)
        return refuse(ESPANK_NOT_REMOTE);
    if (!overwrite && find(fake, name, strlen(name)) >= 0)
        return ESPANK_ENV_EXISTS;
    size_t size = strlen(name) + strlen(value) + 2;
    char *text = malloc(size);
    snprintf(text, size, "%s=%s", name, value);
    fake_setenv(fake, text);
    free(text);
    return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    (void)sp;
    int at = find(fake, name, strlen(name));
    if (fake->context != S_CTX_REMOTE)
        return refuse(ESPANK_NOT_REMOTE);
    if (at >= 0) {
        free(fake->env[at]);
        fake->env[at] = fake->env[--fake->nenv];
        fake->env[fake->nenv] = NULL;
    }
    return ESPANK_SUCCESS;
}

static void add_line(const char *prefix, const char *fmt, va_list ap)
{
    size_t used = strlen(fake->log), room = sizeof fake->log - used;
    int n = snprintf(fake->log + used, room, "%s", prefix);
    vsnprintf(fake->log + used + n, room - (size_t)n, fmt, ap);
    used = strlen(fake->log);
    if (used + 1 < sizeof fake->log)
        strcpy(fake->log + used, "\n");
}

#define LOGGER(name, prefix, count) \
    void name(const char *fmt, ...) \
    {                               \
        va_list ap;                 \
        va_start(ap, fmt);          \
        add_line(prefix, fmt, ap);  \
        va_end(ap);                 \
        fake->errors += (count);    \
    }
LOGGER(slurm_error, "error: ", 1)
LOGGER(slurm_spank_log, "", 0)

/* Not seen at the usual verbosity. */
#define SILENT(name)                \
    void name(const char *fmt, ...) \
    {                               \
        (void)fmt;                  \
    }
SILENT(slurm_info)
SILENT(slurm_verbose)
SILENT(slurm_debug)
