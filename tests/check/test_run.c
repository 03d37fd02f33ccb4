/* The parent of all checks against a child between the nodes that hangs, dies or lies: this file has its own
 * ls_check_meet, and the linker takes it instead of meet.c. Whatever the child does, the check ends. */
#include "tests/check/local.h"

#include <signal.h>
#include <sys/wait.h>

enum behaviour { HANG, HANG_WITH_UCX, HALF_A_FRAME, DIE, LIE, NONSENSE };
static enum behaviour behaviour;

int ls_check_meet(const struct ls_check_context *unused, int fd)
{
    static const char half[] = {0, 0, 0};
    (void)unused;
    switch (behaviour) {
    case HANG_WITH_UCX:
        ls_check_frame_send(fd, LS_CHECK_DOING, "coll.smoke", 10, NULL);
        break;
    case HALF_A_FRAME:
        if (write(fd, half, sizeof half) != sizeof half)
            return 1;
        break;
    case DIE:
        return 1;
    case LIE:
        ls_check_frame_send(fd, LS_CHECK_PEER, "7 2 0 1 nobody\n", 15, NULL);
        break;
    case NONSENSE:
        ls_check_frame_send(fd, LS_CHECK_DOING, "no.such", 7, NULL);
        break;
    default:
        break;
    }
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

static const struct ls_check_result *find(const struct ls_check_list *list, const char *id)
{
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->result[i].check->id, id))
            return &list->result[i];
    return NULL;
}

/* Is it gone? Waits for a process that was killed; one that was not would hang here, and fail the test so. */
static bool is_gone(pid_t pid)
{
    int status = 0;
    return pid > 0 && (waitpid(pid, &status, 0) < 0 || WIFSIGNALED(status));
}

static void test(const char *what, enum behaviour how, enum ls_status want, const char *id,
                 enum ls_check_status verdict, const char *part)
{
    static const char *const program[] = {"/proc/self/exe", NULL};
    struct ls_check_report report;
    struct ls_error err = {0};
    reset();
    behaviour = how;
    context.program = program;
    context.plugin_dir = "/";
    context.pmix = true;
    context.size = context.nodes = 2;
    context.rank = 1;
    enum ls_status status = ls_check_run(&context, 1.0, &report, &err);
    const struct ls_check_result *r = status == LS_OK ? find(&report.list, id) : NULL;
    tap_ok(status == want && (want != LS_OK || (r && r->status == verdict && r->rank == -1 &&
                                                strstr(r->measured, part))),
           "%s: %s", what,
           want != LS_OK ? err.message
           : r           ? r->measured
                         : "nothing said");
    if (status == LS_OK) {
        r = find(&report.list, "sys.nofile");
        tap_ok(r && r->status == LS_CHECK_PASS, "%s: what was found here is told", what);
        r = find(&report.list, "net.pair");
        tap_ok(r && r->status == LS_CHECK_SKIP, "%s: what did not run is a skip", what);
    }
    pid_t child = report.meet;
    ls_check_report_free(&report);
    tap_ok(is_gone(child), "%s: and nothing is left running", what);
}

int main(void)
{
    open_world();
    signal(SIGPIPE, SIG_IGN);
    test("hangs before it has met anybody", HANG, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "no end before the deadline");
    test("hangs in the network", HANG_WITH_UCX, LS_OK, "coll.smoke", LS_CHECK_TIMEOUT,
         "no end before the deadline");
    test("hangs in the middle of a message", HALF_A_FRAME, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "stopped in the middle of a message");
    test("dies", DIE, LS_OK, "env.pmix", LS_CHECK_FAIL, "has died");
    test("does something that is not in the table", NONSENSE, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "no end before the deadline");
    test("speaks of a rank that is not there", LIE, LS_ERR_INTERNAL, "", LS_CHECK_FAIL, "");
    return close_world();
}
