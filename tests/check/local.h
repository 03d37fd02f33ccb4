/* What tests of local halves share: a world to check, and a way to ask one check. */
#ifndef LS_TESTS_CHECK_LOCAL_H
#define LS_TESTS_CHECK_LOCAL_H

#include "check/internal.h"
#include "tests/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ls_topo_machine *node;
static struct ls_slurm slurm;
static struct ls_check_context context;
static char *environment[16];
static char root[] = "/tmp/lockstep-check-XXXXXX";

static inline const char *get(void *user, const char *name)
{
    size_t n = strlen(name);
    (void)user;
    for (int i = 0; environment[i]; i++)
        if (!strncmp(environment[i], name, n) && environment[i][n] == '=')
            return environment[i] + n + 1;
    return NULL;
}

static inline void reset(void)
{
    memset(node, 0, sizeof *node);
    memset(environment, 0, sizeof environment);
    slurm = (struct ls_slurm){.place = LS_SLURM_NONE};
    node->ncpu = 4;
    node->limits =
        (struct ls_topo_limits){-1, 1 << 20, 8 << 20, -1, 1 << 30, 1 << 30, 8LL << 30, -2};
    context = (struct ls_check_context){.root = root,
                                        .get = get,
                                        .environ = environment,
                                        .slurm = &slurm,
                                        .machine = node,
                                        .workers = 1,
                                        .size = 1,
                                        .local_size = 1,
                                        .nodes = 1,
                                        .host = "n0",
                                        .out_dir = root};
}

/* A library that was built for tests, in their folder tests/`room`. Valid until the next call. */
static inline const char *built(const char *room, const char *name)
{
    static char path[4300];
    const char *builddir = getenv("builddir");
    snprintf(path, sizeof path, "%s/tests/%s/.libs/%s", builddir ? builddir : ".", room, name);
    return path;
}

static inline void write_file(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0777);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        exit(2);
}

/* What was said, as text: "fail: measured | F fact". */
static inline const char *as_text(const struct ls_check *check, const char *said, size_t n)
{
    static char text[4096];
    struct ls_check_list list = {0};
    const char *facts[64] = {0};
    struct ls_error err = {0};
    /* An empty line ends a half; there is nobody to go on for. */
    while (n && said[n - 1] == '\n' && (n == 1 || said[n - 2] == '\n'))
        n--;
    text[0] = '\0';
    if (ls_check_unpack(said, n, 0, &list, facts, &err) != LS_OK)
        snprintf(text, sizeof text, "error: %s", err.message);
    for (int i = 0; i < list.n; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s: %s%s%s", at ? " | " : "",
                 ls_check_status_names[list.result[i].status], list.result[i].device,
                 *list.result[i].device ? " " : "", list.result[i].measured);
    }
    if (facts[check - ls_checks]) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%sF %s", at ? " | " : "", facts[check - ls_checks]);
    }
    ls_check_list_free(&list);
    return text;
}

/* What the local half of a check says. */
static inline const char *run(const char *id)
{
    struct ls_check_out out = {.check = ls_check_find(id), .fd = -1};
    ls_buf_init(&out.text, 1 << 20);
    out.check->local(&out, &context);
    const char *text = as_text(out.check, out.text.data, out.text.len);
    ls_buf_free(&out.text);
    return text;
}

/* What the second half says, after `between` has changed the world. */
static inline const char *run_second(const char *id, void (*between)(void))
{
    struct ls_check_out out = {.check = ls_check_find(id)};
    char said[65536];
    int fds[2];
    size_t n = 0, half = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        out.fd = fds[1];
        ls_buf_init(&out.text, 1 << 20);
        out.check->local(&out, &context);
        ls_check_next(&out);
        ls_buf_free(&out.text);
        _exit(0);
    }
    close(fds[1]);
    for (ssize_t got; (got = read(fds[0], said + n, sizeof said - n)) > 0;) {
        n += (size_t)got;
        bool end = said[n - 1] == '\n' && (n == half + 1 || said[n - 2] == '\n');
        if (end && half)
            break;
        if (end) {
            half = n;
            between();
            if (write(fds[0], "g", 1) != 1)
                exit(2);
        }
    }
    close(fds[0]); /* lets it clean up */
    waitpid(pid, NULL, 0);
    return as_text(out.check, said + half, n - half);
}

static inline void expect(const char *what, const char *id, const char *want)
{
    const char *got = run(id);
    bool ok = !strcmp(got, want);
    tap_ok(ok, "%s: %s", id, what);
    if (!ok)
        tap_note("got  %s", got), tap_note("want %s", want);
}

static inline void unmet(const char *what, const char *id, const char *want)
{
    const char *got = ls_check_unmet(ls_check_find(id), &context);
    tap_ok(want ? got && strstr(got, want) : !got, "%s: %s", id, what);
}

/* Before and after all tests. */
static inline void open_world(void)
{
    node = calloc(1, sizeof *node);
    if (!node || !mkdtemp(root))
        exit(2);
}

static inline int close_world(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    if (system(command) != 0)
        tap_note("left %s", root);
    free(node);
    return tap_done();
}

#endif
