/* The local halves, each in a child of its own: what hangs in a dead file system or a dead name server
 * is killed at its deadline, or left to the kernel if not even that ends it. */
#include "check/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TEXT = 1 << 18 };  /* of one child and half */
static const char END = '\n'; /* an empty line ends a half */

struct child {
    const struct ls_check *check;
    int index; /* in the table */
    pid_t pid;
    int fd; /* -1: closed */
    bool busy;
    double deadline;
    char *text; /* of this half */
    size_t n;
};
struct ls_check_children {
    const struct ls_check_context *context;
    struct child *child;
    int n;
    struct ls_buf text; /* said, and not yet taken */
};

/* ---- in the child ---- */

void ls_check_say(struct ls_check_out *out, enum ls_check_status status, const char *device,
                  const char *expected, const char *advice, const char *fmt, ...)
{
    char measured[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(measured, sizeof measured, fmt, ap);
    va_end(ap);
    ls_check_pack(&out->text, out->check->id, status, device, measured, expected, advice);
}

void ls_check_fact(struct ls_check_out *out, const char *fmt, ...)
{
    struct ls_buf fact;
    va_list ap;
    ls_buf_init(&fact, MAX_TEXT / 2);
    va_start(ap, fmt);
    ls_buf_vprintf(&fact, fmt, ap);
    va_end(ap);
    ls_check_pack_fact(&out->text, out->check->id, fact.data ? fact.data : "");
    ls_buf_free(&fact);
}

bool ls_check_next(struct ls_check_out *out)
{
    char go = 0;
    ls_buf_add(&out->text, &END, 1);
    if (out->fd < 0 ||
        ls_file_write_all(out->fd, out->text.data, out->text.len, "pipe", NULL) != LS_OK)
        return false;
    out->text.len = 0;
    ssize_t n;
    while ((n = read(out->fd, &go, 1)) < 0 && errno == EINTR)
        ;
    return n == 1;
}

/* A child that hangs must hold nothing that someone waits for. */
static void detach(int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; null >= 0 && i < 3; i++)
        dup2(null, i);
    if (fd > 3)
        close_range(3, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0U, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
}

static void child_main(const struct ls_check *check, const struct ls_check_context *context, int fd)
{
    struct ls_check_out out = {.check = check, .fd = fd};
    detach(fd);
    ls_buf_init(&out.text, MAX_TEXT);
    check->local(&out, context);
    /* The end of the half; of a second one that is asked for, too, which then has nothing to say. */
    while (ls_check_next(&out))
        ;
    ls_buf_free(&out.text);
    _exit(0);
}

/* ---- in the parent ---- */

static enum ls_status start(struct ls_check_children *c, struct child *child, double now,
                            struct ls_error *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return ls_error_errno(err, errno, "starting check %s", child->check->id);
    child->pid = fork();
    if (child->pid == 0)
        child_main(child->check, c->context, fds[1]);
    close(fds[1]);
    if (child->pid < 0) {
        int cause = errno;
        close(fds[0]);
        return ls_error_errno(err, cause, "starting check %s", child->check->id);
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    child->fd = fds[0];
    child->busy = true;
    child->deadline = now + child->check->deadline;
    return LS_OK;
}

enum ls_status ls_check_children_open(const struct ls_check_context *context,
                                      struct ls_check_children **children, struct ls_error *err)
{
    struct ls_check_children *c = calloc(1, sizeof *c);
    *children = c;
    if (!c || !(c->child = calloc((size_t)ls_nchecks, sizeof *c->child)))
        return ls_error_set(err, LS_ERR_NOMEM, "starting the checks");
    c->context = context;
    ls_buf_init(&c->text, (size_t)MAX_TEXT * 16);
    for (int i = 0; i < ls_nchecks; i++) {
        const struct ls_check *check = &ls_checks[i];
        const char *unmet = ls_check_unmet(check, context);
        if (context->local_rank > 0 && !check->every_task)
            continue;
        if (unmet && (context->job_path || !(check->needs & LS_CHECK_NEEDS_JOB)))
            ls_check_pack(&c->text, check->id, LS_CHECK_SKIP, "", unmet, "", "");
        if (unmet || !check->local)
            continue;
        struct child *child = &c->child[c->n];
        *child = (struct child){.check = check, .index = i, .fd = -1};
        LS_TRY(start(c, child, ls_time_monotonic(), err));
        c->n++;
    }
    return LS_OK;
}

int ls_check_children_fds(const struct ls_check_children *c, struct pollfd *fds)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (c->child[i].busy)
            fds[n++] = (struct pollfd){.fd = c->child[i].fd, .events = POLLIN};
    return n;
}

static void end(struct child *child)
{
    if (child->fd >= 0)
        close(child->fd);
    child->fd = -1;
    child->busy = false;
}

static void add_own(struct ls_check_children *c, const struct child *child,
                    enum ls_check_status status, const char *expected, const char *advice,
                    const char *fmt, double x)
{
    struct ls_check_out out = {.check = child->check, .fd = -1, .text = c->text};
    ls_check_say(&out, status, "", expected, advice, fmt, x);
    c->text = out.text;
}

/* A whole half has come: everything before the empty line. */
static void take(struct ls_check_children *c, struct child *child)
{
    ls_buf_add(&c->text, child->text, child->n - 1);
    child->busy = false;
    child->n = 0;
}

static void crashed(struct ls_check_children *c, struct child *child)
{
    int status = 0;
    end(child);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    child->pid = 0;
    add_own(c, child, LS_CHECK_FAIL, "an answer", "report this: the check itself is at fault",
            WIFSIGNALED(status) ? "the check ended by signal %.0f without an answer"
                                : "the check ended with status %.0f without an answer",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void read_child(struct ls_check_children *c, struct child *child)
{
    for (;;) {
        char *more = realloc(child->text, child->n + 4096);
        if (!more || child->n > MAX_TEXT) {
            child->text = more ? more : child->text;
            kill(child->pid, SIGKILL);
            crashed(c, child);
            return;
        }
        child->text = more;
        ssize_t n = read(child->fd, child->text + child->n, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            crashed(c, child);
            return;
        }
        child->n += (size_t)n;
        const char *t = child->text;
        if (t[child->n - 1] == END && (child->n == 1 || t[child->n - 2] == END)) {
            take(c, child);
            return;
        }
    }
}

void ls_check_children_poll(struct ls_check_children *c, double now)
{
    for (int i = 0; i < c->n; i++) {
        struct child *child = &c->child[i];
        if (child->busy)
            read_child(c, child);
        if (child->busy && now >= child->deadline) {
            kill(child->pid, SIGKILL); /* and no waiting: it may not be able to die */
            end(child);
            add_own(c, child, LS_CHECK_TIMEOUT, "an answer",
                    "something that it asked hangs, such as a file system or a name server",
                    "no answer after %.0f s", child->check->deadline);
        }
    }
}

double ls_check_children_wait(const struct ls_check_children *c, double now)
{
    double wait = -1;
    for (int i = 0; i < c->n; i++)
        if (c->child[i].busy && (wait < 0 || c->child[i].deadline - now < wait))
            wait = c->child[i].deadline > now ? c->child[i].deadline - now : 0;
    return wait;
}

void ls_check_children_take(struct ls_check_children *c, struct ls_buf *text)
{
    ls_buf_add(text, c->text.data, c->text.len);
    text->failed |= c->text.failed;
    c->text.len = 0;
}

void ls_check_children_next(struct ls_check_children *c, bool late, double now)
{
    for (int i = 0; i < c->n; i++) {
        struct child *child = &c->child[i];
        if (child->fd < 0 || !child->check->halves || child->check->late != late)
            continue;
        if (write(child->fd, "g", 1) == 1) {
            child->busy = true;
            child->deadline = now + child->check->deadline;
        }
    }
}

/* Most are gone at once; what cleans up gets a moment. */
void ls_check_children_close(struct ls_check_children *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        end(&c->child[i]);
    double until = ls_time_monotonic() + 1;
    for (int left = 1; left;) {
        left = 0;
        for (int i = 0; i < c->n; i++) {
            pid_t *pid = &c->child[i].pid;
            if (*pid > 0 && waitpid(*pid, NULL, WNOHANG) != 0)
                *pid = 0;
            left += *pid > 0;
        }
        if (left && ls_time_monotonic() > until)
            break;
        if (left)
            usleep(1000);
    }
    for (int i = 0; i < c->n; i++) {
        if (c->child[i].pid > 0)
            kill(c->child[i].pid, SIGKILL);
        free(c->child[i].text);
    }
    ls_buf_free(&c->text);
    free(c->child);
    free(c);
}
