/* The parent of all checks against a child between the nodes that hangs, dies or lies: this file has its own
 * ls_check_meet, and the linker takes it instead of meet.c. Whatever the child does, the check ends. */
#include "tests/check/local.h"

#include <signal.h>
#include <sys/wait.h>

enum behaviour {
    HANG,
    HANG_WITH_UCX,
    HALF_A_FRAME,
    DIE,
    LIE,
    NONSENSE,
    KEEP_FIRST, /* hears the first halves, and never says that all have met */
    MISS_TWO, /* likewise, and says who has not come: two ranks of one node, and one of this node */
    MISS_NOBODY,  /* likewise, but it is not in the job */
    DROP_FIRST,   /* likewise, and says that PMIx failed */
    DROP_SECOND,  /* hears both, and says that PMIx failed */
    DIE_AT_PEERS, /* hears both, tells what this rank said, and dies before it tells of the other */
    RAISE_LATE,   /* likewise, but while it sends, an error is counted on a link */
    HANG_EARLY,   /* as rank 0: tells what the other one has said in its first half, and hangs */
    DROP_EARLY,   /* likewise, and says that PMIx failed */
    PEER_EARLY,   /* likewise, and then all that was said */
};
static enum behaviour behaviour;
#define COUNTER "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"

/* What the parent says; a frame that does not come, or another one, ends this child. */
static char *hear(int fd, enum ls_check_frame want, size_t *n)
{
    enum ls_check_frame kind;
    char *text = NULL;
    if (ls_check_frame_read(fd, &kind, &text, n, NULL) != LS_OK || kind != want)
        _exit(2);
    return text;
}

/* Rank 1 of 2, as a meeting does that then ends early. */
static void talk(int fd)
{
    static const char head[] = "1 2 1 2 n1\n";
    static const char *const missing[] = {"0 3 n7\nis late", "2 3 n7\nis late", "3 3 n0\nis late"};
    static const char failed[] = "R\tenv.pmix\tfail\t\tended\t\t\n";
    struct ls_buf peer;
    size_t n;
    ls_buf_init(&peer, (size_t)1 << 20);
    ls_buf_add(&peer, head, sizeof head - 1);
    char *text = hear(fd, LS_CHECK_FIRST, &n);
    ls_buf_add(&peer, text, n);
    free(text);
    if (behaviour >= DROP_SECOND) {
        ls_check_frame_send(fd, LS_CHECK_MET, "", 0, NULL);
        if (behaviour == RAISE_LATE)
            write_file(COUNTER, "5\n");
        ls_check_frame_send(fd, LS_CHECK_SENT, "", 0, NULL);
        text = hear(fd, LS_CHECK_SECOND, &n);
        ls_buf_add(&peer, text, n);
        free(text);
    }
    for (int i = 0; behaviour == MISS_TWO && i < 3; i++)
        ls_check_frame_send(fd, LS_CHECK_MISSING, missing[i], strlen(missing[i]), NULL);
    if (behaviour == MISS_NOBODY)
        ls_check_frame_send(fd, LS_CHECK_MISSING, "9 3 n9\nis late", 14, NULL);
    if (behaviour >= DIE_AT_PEERS)
        ls_check_frame_send(fd, LS_CHECK_PEER, peer.data, peer.len, NULL);
    else if (behaviour != KEEP_FIRST)
        ls_check_frame_send(fd, LS_CHECK_NO_PEERS, failed, sizeof failed - 1, NULL);
    ls_buf_free(&peer);
    if (behaviour != KEEP_FIRST)
        _exit(0);
}

/* Rank 0 of 2 that has heard from the other. */
static void talk_early(int fd)
{
    static const char early[] = "1 2 1 2 n7\nR\tsys.nofile\twarn\t\tearly\t\t\n";
    static const char whole[] = "1 2 1 2 n7\nR\tsys.nofile\twarn\t\tearly\t\t\n"
                                "R\tsys.shm\twarn\t\twhole\t\t\n";
    static const char own[] = "0 2 0 2 n0\nR\tsys.nofile\tpass\t\tmine\t\t\n";
    static const char failed[] = "R\tcoll.smoke\tfail\t\tended\t\t\n";
    size_t n;
    free(hear(fd, LS_CHECK_FIRST, &n));
    ls_check_frame_send(fd, LS_CHECK_EARLY, early, sizeof early - 1, NULL);
    ls_check_frame_send(fd, LS_CHECK_MET, "", 0, NULL);
    ls_check_frame_doing(fd, "coll.smoke opening UCX", NULL);
    if (behaviour == HANG_EARLY)
        return;
    if (behaviour == DROP_EARLY) {
        ls_check_frame_send(fd, LS_CHECK_NO_PEERS, failed, sizeof failed - 1, NULL);
        _exit(0);
    }
    ls_check_frame_send(fd, LS_CHECK_SENT, "", 0, NULL);
    free(hear(fd, LS_CHECK_SECOND, &n));
    ls_check_frame_send(fd, LS_CHECK_PEER, own, sizeof own - 1, NULL);
    ls_check_frame_send(fd, LS_CHECK_PEER, whole, sizeof whole - 1, NULL);
    ls_check_frame_send(fd, LS_CHECK_DONE, "", 0, NULL);
    _exit(0);
}

int ls_check_meet(const struct ls_check_context *unused, int fd)
{
    static const char half[] = {0, 0, 0};
    (void)unused;
    switch (behaviour) {
    case HANG_WITH_UCX:
        ls_check_frame_doing(fd, "coll.smoke opening UCX", NULL);
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
        ls_check_frame_doing(fd, "no.such thing", NULL);
        break;
    case KEEP_FIRST:
    case MISS_TWO:
    case MISS_NOBODY:
    case DROP_FIRST:
    case DROP_SECOND:
    case DIE_AT_PEERS:
    case RAISE_LATE:
        talk(fd);
        break;
    case HANG_EARLY:
    case DROP_EARLY:
    case PEER_EARLY:
        talk_early(fd);
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

/* Nothing is said twice. */
static bool all_once(const struct ls_check_list *list)
{
    bool once = true;
    for (int i = 0; i < list->n; i++)
        for (int j = 0; j < i; j++) {
            const struct ls_check_result *a = &list->result[i], *b = &list->result[j];
            if (a->check != b->check || a->rank != b->rank || strcmp(a->device, b->device) != 0 ||
                strcmp(a->measured, b->measured) != 0)
                continue;
            tap_note("%s twice: %s", a->check->id, a->measured);
            once = false;
        }
    return once;
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
    /* Those that end by themselves may take their time on a busy machine. */
    double deadline = how == DIE || how == LIE || how >= MISS_TWO ? 20 : 3;
    enum ls_status status = ls_check_run(&context, deadline, &report, &err);
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
        tap_ok(all_once(&report.list), "%s: and nothing is told twice", what);
        const char *stuck = how == HANG_WITH_UCX ? "coll.smoke: opening UCX"
                            : how == NONSENSE    ? "env.pmix: thing"
                                                 : "";
        tap_ok(!strcmp(report.stuck ? report.stuck : "", stuck), "%s: stuck at '%s'", what,
               report.stuck ? report.stuck : "");
    }
    pid_t child = report.meet;
    ls_check_report_free(&report);
    tap_ok(is_gone(child), "%s: and nothing is left running", what);
}

static void test_missing(void)
{
    struct ls_check_report report;
    struct ls_error err = {0};
    struct ls_arena arena = {0};
    int named = 0;
    reset();
    behaviour = MISS_TWO;
    context.pmix = true;
    context.size = 4;
    context.nodes = 3;
    context.rank = 1;
    enum ls_status status = ls_check_run(&context, 20, &report, &err);
    tap_ok(status == LS_OK, "ranks that have not come: %s", err.message);
    for (int i = 0; status == LS_OK && i < report.list.n; i++) {
        const struct ls_check_result *r = &report.list.result[i];
        named += !strcmp(r->check->id, "env.pmix") && r->status == LS_CHECK_TIMEOUT &&
                 r->rank >= 0 && r->rank != 1 && !strcmp(r->measured, "is late");
    }
    if (status == LS_OK) {
        tap_ok(named == 3, "each of them is named");
        tap_ok(report.node[0] == report.node[2] && report.node[0] != report.node[1] &&
                   report.node[3] == report.node[1],
               "ranks of one node have one number");
        tap_ok(report.first == 1, "rank 1 speaks for rank 0");
        tap_ok(!strcmp(ls_check_exclude(&report, &arena), "n[7,0]"), "exclude: %s",
               ls_check_exclude(&report, &arena));
    }
    ls_arena_free(&arena);
    ls_check_report_free(&report);
}

/* What the others have said before something hung between the nodes is told; and once only where nothing did. */
static void test_early(const char *what, enum behaviour how, enum ls_check_status smoke,
                       const char *whole)
{
    struct ls_check_report report;
    struct ls_error err = {0};
    int told = 0;
    reset();
    behaviour = how;
    context.pmix = true;
    context.size = context.nodes = 2;
    enum ls_status status = ls_check_run(&context, how == HANG_EARLY ? 3 : 20, &report, &err);
    tap_ok(status == LS_OK && report.size == 2, "%s: %s", what, err.message);
    for (int i = 0; status == LS_OK && i < report.list.n; i++) {
        const struct ls_check_result *r = &report.list.result[i];
        told += r->rank == 1 && !strcmp(r->measured, "early") && !strcmp(report.host[1], "n7") &&
                report.node[1] == 1;
    }
    const struct ls_check_result *own = status == LS_OK ? find(&report.list, "sys.nofile") : NULL;
    const struct ls_check_result *r = status == LS_OK ? find(&report.list, "coll.smoke") : NULL;
    tap_ok(told == 1 && own && r && r->status == smoke, "%s: the other one is told once: %d", what,
           told);
    r = status == LS_OK ? find(&report.list, "sys.shm") : NULL;
    tap_ok(r && !strcmp(r->rank == 1 ? r->measured : "", whole), "%s: %s", what,
           r ? r->measured : "nothing");
    ls_check_report_free(&report);
}

/* The second half of what counts errors waits for the traffic between the nodes. */
static void test_late(void)
{
    static struct ls_topo_nic nic = {
        .name = "mlx5_0", .nport = 1, .port = {{.number = 1, .active = true, .up = true}}};
    struct ls_check_report report;
    struct ls_error err = {0};
    reset();
    write_file(COUNTER, "0\n");
    node->nic[0] = nic;
    node->nnic = 1;
    behaviour = RAISE_LATE;
    context.pmix = true;
    context.size = context.nodes = 2;
    context.rank = 1;
    enum ls_status status = ls_check_run(&context, 20, &report, &err);
    const struct ls_check_result *r = status == LS_OK ? find(&report.list, "ib.ctr") : NULL;
    tap_ok(r && r->status == LS_CHECK_FAIL && !strcmp(r->measured, "symbol_error rose by 5"),
           "an error that is counted while nodes send: %s", r ? r->measured : err.message);
    ls_check_report_free(&report);
}

int main(void)
{
    open_world();
    signal(SIGPIPE, SIG_IGN);
    test("hangs before it has met anybody", HANG, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "no end before the deadline");
    test("hangs in the network", HANG_WITH_UCX, LS_OK, "coll.smoke", LS_CHECK_TIMEOUT,
         "no end before the deadline of the whole check; rank 1 on n0 was still at: opening UCX");
    test("hangs in the middle of a message", HALF_A_FRAME, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "stopped in the middle of a message");
    test("dies", DIE, LS_OK, "env.pmix", LS_CHECK_FAIL, "has died");
    test("does something that is not in the table", NONSENSE, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "no end before the deadline");
    test("meets nobody", KEEP_FIRST, LS_OK, "env.pmix", LS_CHECK_TIMEOUT,
         "no end before the deadline");
    test("loses PMIx after the first halves", DROP_FIRST, LS_OK, "env.pmix", LS_CHECK_FAIL,
         "ended");
    test("loses PMIx after the second halves", DROP_SECOND, LS_OK, "env.pmix", LS_CHECK_FAIL,
         "ended");
    test("dies before it has told of all", DIE_AT_PEERS, LS_OK, "env.pmix", LS_CHECK_FAIL,
         "has died");
    test("speaks of a rank that is not there", LIE, LS_ERR_INTERNAL, "", LS_CHECK_FAIL, "");
    test("misses somebody who is not there", MISS_NOBODY, LS_ERR_INTERNAL, "", LS_CHECK_FAIL, "");
    test_missing();
    test_early("hangs after it has met", HANG_EARLY, LS_CHECK_TIMEOUT, "");
    test_early("fails after it has met", DROP_EARLY, LS_CHECK_FAIL, "");
    test_early("comes to its end", PEER_EARLY, LS_CHECK_SKIP, "whole");
    test_late();
    return close_world();
}
