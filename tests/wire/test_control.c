/* The channel between keepers, as processes of this machine: fences, records, failures, stop, the
 * end; keepers that are killed or stand still; strangers at the door. */
#include "tests/tap.h"
#include "tests/wire/hub.h"
#include "wire/address.h"
#include "wire/internal.h"
#include "wire/link.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>

// What the keepers of one test tell the test.
struct board {
    struct report {
        int fail_count, fail_rank, fail_keeper, fail_code;
        int stops, records, all_finished, fences;
        char text[1024];
        volatile int ready;
    } of[HUB_MAX];
};
struct plan {
    int size, fanout;
    double silence, deadline;
    int fences;
    size_t big;             // bytes of each blob, 0: small and different
    int fail_rank[HUB_MAX]; // keeper k reports this rank; -2: nothing
    bool echo[HUB_MAX];
    int suspect[HUB_MAX]; // with an echo: the rank that is to be asked about, 0: none
    bool silent;          // nobody answers such a question
    int stopper;          // keeper that says stop, -1: none
    int victim;           // keeper that waits to be killed or stopped, -1: none
    bool wait_failure;    // ends only after LS_WIRE_FAILURE
    struct board *board;
};

static struct plan plain(int size, int fanout, struct board *board)
{
    struct plan p = {.size = size, .fanout = fanout, .stopper = -1, .victim = -1, .board = board};
    for (int k = 0; k < HUB_MAX; k++)
        p.fail_rank[k] = -2;
    memset(board, 0, sizeof *board);
    return p;
}

static const char *const *hosts(void)
{
    static char text[HUB_MAX][8];
    static const char *host[HUB_MAX];
    for (int k = 0; k < HUB_MAX; k++) {
        snprintf(text[k], sizeof text[k], "n%d", k);
        host[k] = text[k];
    }
    return host;
}

static enum ls_status open_control(struct hub_end *end, int rank, const struct plan *p,
                                   struct ls_wire_control **c, struct ls_error *err)
{
    struct ls_wire_control_config config = {.rank = rank,
                                            .size = p->size,
                                            .host = hosts(),
                                            .exchange = hub_exchange,
                                            .arg = end,
                                            .silence = p->silence,
                                            .deadline = p->deadline,
                                            .fanout = p->fanout};
    return ls_wire_control_open(&config, c, err);
}

static void wait_control(struct ls_wire_control *c)
{
    struct pollfd fd = {.fd = ls_wire_control_fd(c), .events = POLLIN};
    poll(&fd, fd.fd >= 0, ls_wire_control_timeout(c));
}

static size_t blob_size(const struct plan *p, int keeper, int seq)
{
    return p->big ? p->big : (size_t)((keeper * 7 + seq * 3) % 50);
}

// [keeper u32][seq u32][bytes]
static char *make_blob(const struct plan *p, int keeper, int seq, size_t *n)
{
    size_t size = blob_size(p, keeper, seq);
    *n = 8 + size;
    char *b = malloc(*n);
    memcpy(b, &keeper, 4);
    memcpy(b + 4, &seq, 4);
    memset(b + 8, keeper + seq, size);
    return b;
}

static bool check_blobs(const struct plan *p, int seq, const char *data, size_t n)
{
    bool seen[HUB_MAX] = {0};
    int count = 0;
    while (n >= 8) {
        int keeper, s;
        memcpy(&keeper, data, 4);
        memcpy(&s, data + 4, 4);
        if (keeper < 0 || keeper >= p->size || seen[keeper] || s != seq)
            return false;
        size_t size = blob_size(p, keeper, seq);
        if (n < 8 + size)
            return false;
        for (size_t i = 0; i < size; i++)
            if (data[8 + i] != (char)(keeper + seq))
                return false;
        seen[keeper] = true;
        count++;
        data += 8 + size;
        n -= 8 + size;
    }
    return n == 0 && count == p->size;
}

// Fences by hand, as there is no server; everything else that comes is kept in the queue's order.
static bool run_fences(struct ls_wire_control *c, const struct plan *p, struct report *me, int rank)
{
    for (int seq = 0; seq < p->fences; seq++) {
        size_t n;
        char *blob = make_blob(p, rank, seq, &n);
        ls_wire_control_contribute(c, 1, seq, blob, n);
        free(blob);
        struct ls_wire_item *item;
        while (!(item = ls_wire_control_take(c))) {
            wait_control(c);
            ls_wire_control_io(c);
        }
        bool ok = item->fence && item->generation == 1 && item->seq == seq &&
                  check_blobs(p, seq, item->event.data, item->event.n);
        free(item);
        if (!ok)
            return false;
        me->fences++;
    }
    return true;
}

static void note_failure(struct report *me, const struct ls_wire_event *e)
{
    me->fail_count++;
    me->fail_rank = e->rank;
    me->fail_keeper = e->keeper;
    me->fail_code = e->code;
    snprintf(me->text, sizeof me->text, "%s", e->text);
}

static bool check_record(const struct ls_wire_event *e)
{
    char want[32];
    snprintf(want, sizeof want, "record of %d", e->rank);
    return e->rank == e->keeper * 10 && e->n == strlen(want) && memcmp(e->data, want, e->n) == 0;
}

static void say_things(struct ls_wire_control *c, const struct plan *p, int rank)
{
    if (p->fail_rank[rank] != -2) {
        char text[64];
        snprintf(text, sizeof text, "rank %d broke", p->fail_rank[rank]);
        if (p->suspect[rank])
            ls_wire_control_suspect(c, p->fail_rank[rank], 40 + rank, p->suspect[rank], text);
        else
            ls_wire_control_fail(c, p->fail_rank[rank], 40 + rank, p->echo[rank], text);
    }
    if (p->stopper == rank)
        ls_wire_control_stop(c, SIGUSR1);
    char record[32];
    int n = snprintf(record, sizeof record, "record of %d", rank * 10);
    ls_wire_control_record(c, rank * 10, record, (size_t)n);
}

static int keeper_main(struct hub_end *end, int rank, void *arg)
{
    const struct plan *p = arg;
    struct report *me = &p->board->of[rank];
    struct ls_wire_control *c;
    struct ls_error err = {0};
    if (open_control(end, rank, p, &c, &err) != LS_OK) {
        snprintf(me->text, sizeof me->text, "%s", err.message);
        return 100 + (int)err.status;
    }
    if (!run_fences(c, p, me, rank)) {
        ls_wire_control_close(c);
        return 99;
    }
    say_things(c, p, rank);
    me->ready = 1;
    bool waiting = p->victim == rank || p->wait_failure || p->stopper >= 0, done = false;
    int code = 98;
    if (!waiting)
        ls_wire_control_finished(c);
    while (!done) {
        struct ls_wire_event e;
        wait_control(c);
        while (!done && ls_wire_poll(NULL, c, &e)) {
            bool finish = waiting && (e.kind == LS_WIRE_FAILURE || e.kind == LS_WIRE_STOP);
            if (e.kind == LS_WIRE_FAILURE)
                note_failure(me, &e);
            else if (e.kind == LS_WIRE_ASKED && e.rank == rank * 10 && !p->silent)
                ls_wire_control_answer(c, e.rank, "rank 50 broke\nit is in data wait");
            else if (e.kind == LS_WIRE_STOP)
                me->stops += e.code == SIGUSR1;
            else if (e.kind == LS_WIRE_RECORD)
                me->records += check_record(&e);
            else if (e.kind == LS_WIRE_ALL_FINISHED) {
                me->all_finished++;
                ls_wire_control_done(c, 60 + me->fail_count, "over");
            } else if (e.kind == LS_WIRE_DONE) {
                code = e.code;
                done = true;
            }
            if (finish && p->victim != rank) {
                waiting = false;
                ls_wire_control_finished(c);
            }
        }
    }
    ls_wire_control_close(c);
    return code;
}

static int run(struct plan *p, pid_t *pid, hub_meddle_fn *meddle)
{
    hub_start(p->size, keeper_main, p, 1, meddle, pid);
    return p->size;
}

static bool all_exit(const pid_t *pid, int n, int code)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        int rc = hub_wait(pid[i]);
        if (rc != code)
            tap_note("keeper %d ended with %d, not %d", i, rc, code);
        ok = ok && rc == code;
    }
    return ok;
}

static void test_round(struct board *board, int size, int fanout, int fences, size_t big)
{
    pid_t pid[HUB_MAX];
    struct plan p = plain(size, fanout, board);
    p.fences = fences;
    p.big = big;
    bool ok = all_exit(pid, run(&p, pid, NULL), 60);
    for (int k = 0; k < size; k++)
        ok = ok && board->of[k].fences == fences && board->of[k].fail_count == 0 &&
             board->of[k].records == (k ? 0 : size) && board->of[k].all_finished == (k == 0);
    tap_ok(ok, "%d keepers, fan-out %d: %d fences%s, every record, one end", size, fanout, fences,
           big ? " of megabytes" : "");
}

static void test_failure(struct board *board)
{
    pid_t pid[HUB_MAX];
    struct plan p = plain(7, 2, board);
    p.wait_failure = true;
    p.fail_rank[0] = 1, p.echo[0] = true; // noticed first, at keeper 0 itself
    p.fail_rank[6] = 60;
    p.fail_rank[2] = 20, p.echo[2] = true;
    bool ok = all_exit(pid, run(&p, pid, NULL), 61);
    for (int k = 0; k < 7; k++)
        ok = ok && board->of[k].fail_count == 1 && board->of[k].fail_rank == 60 &&
             board->of[k].fail_keeper == 6 && board->of[k].fail_code == 46 &&
             strcmp(board->of[k].text, "rank 60 broke") == 0;
    tap_ok(ok, "the cause wins over its echoes, and everyone hears it once");

    p = plain(3, 16, board);
    p.wait_failure = true;
    p.fail_rank[1] = 10, p.echo[1] = true;
    ok = all_exit(pid, run(&p, pid, NULL), 61);
    for (int k = 0; k < 3; k++)
        ok = ok && board->of[k].fail_count == 1 && board->of[k].fail_rank == 10;
    tap_ok(ok, "an echo alone counts in the end");

    p = plain(1, 16, board);
    p.wait_failure = true;
    p.fail_rank[0] = 0;
    tap_ok(all_exit(pid, run(&p, pid, NULL), 61) && board->of[0].fail_count == 1,
           "one keeper fails alone");
}

// Keeper 5 of a tree of 7 waited in vain for rank 40 of keeper 4: both are two hops from keeper 0.
static void suspect(struct board *board, bool silent, int victim, const char *want,
                    const char *what)
{
    pid_t pid[HUB_MAX];
    struct plan p = plain(7, 2, board);
    p.wait_failure = true;
    p.silent = silent;
    p.fail_rank[0] = 1, p.echo[0] = true; // it has heard of it, and was here sooner
    p.fail_rank[5] = 50, p.suspect[5] = 40;
    p.fail_rank[victim] = victim * 10;
    bool ok = all_exit(pid, run(&p, pid, NULL), 61);
    for (int k = 0; k < 7; k++) {
        ok = ok && board->of[k].fail_count == 1 && strcmp(board->of[k].text, want) == 0;
        if (strcmp(board->of[k].text, want) != 0)
            tap_note("keeper %d: %s", k, board->of[k].text);
    }
    tap_ok(ok, "%s", what);
}

static void test_suspect(struct board *board)
{
    suspect(board, false, 5, "rank 50 broke; it is in data wait",
            "what a rank does that others wait for is asked, and everyone hears it, without what "
            "was said before");
    suspect(board, true, 5, "rank 50 broke; its node does not answer",
            "without an answer that is said, after a while");
    suspect(board, true, 6, "rank 60 broke", "a cause that comes meanwhile wins");
}

static void test_stop(struct board *board)
{
    pid_t pid[HUB_MAX];
    struct plan p = plain(6, 2, board);
    p.stopper = 5;
    bool ok = all_exit(pid, run(&p, pid, NULL), 60);
    for (int k = 0; k < 6; k++)
        ok = ok && board->of[k].stops == 1;
    tap_ok(ok, "a stop signal reaches everyone");
}

// All keepers are up and connected once every one has said what it has to say.
static void wait_ready(const struct plan *p)
{
    for (int k = 0; k < p->size; k++)
        while (!p->board->of[k].ready)
            usleep(1000);
}

static bool names(const struct report *r, int victim)
{
    char want[64];
    snprintf(want, sizeof want, "keeper %d on n%d is gone", victim, victim);
    return r->fail_count == 1 && r->fail_rank == -1 && r->fail_keeper == victim &&
           strncmp(r->text, want, strlen(want)) == 0;
}

static void test_lost(struct board *board, int victim, int signal)
{
    enum { SIZE = 7 }; // 0: 1 2; 1: 3 4; 2: 5 6
    pid_t pid[SIZE];
    struct plan p = plain(SIZE, 2, board);
    p.wait_failure = true;
    p.victim = victim;
    p.silence = signal == SIGSTOP ? 1 : 0;
    run(&p, pid, NULL);
    wait_ready(&p);
    kill(pid[victim], signal);
    bool ok = true;
    for (int k = 0; k < SIZE; k++) {
        if (k == victim)
            continue;
        // Those below the victim are cut off from keeper 0 and end with 1; without keeper 0 all
        // are.
        bool cut = victim == 0 || (k - 1) / 2 == victim;
        int rc = hub_wait(pid[k]), want = cut ? 1 : 61;
        if (rc != want || !names(&board->of[k], victim)) {
            tap_note("keeper %d: %d, %s", k, rc, board->of[k].text);
            ok = false;
        }
    }
    kill(pid[victim], SIGKILL);
    hub_wait(pid[victim]);
    tap_ok(ok, "keeper %d %s: everyone names it and ends", victim,
           signal == SIGSTOP ? "stands still" : "is killed");
}

// ---- strangers and wrong addresses ----

static int strangers[3] = {-1, -1, -1};

static void connect_strangers(char blob[][HUB_BLOB], size_t *bytes, int n)
{
    (void)bytes, (void)n;
    // The last one says what keeper 1 would say, but for the token.
    struct ls_wire_card card;
    struct {
        uint32_t magic, version;
        int32_t rank;
        uint8_t token[LS_WIRE_TOKEN];
    } hello = {LS_WIRE_MAGIC, LS_WIRE_CARD_VERSION, 1, {0}};
    const void *words[] = {"", "GET / HTTP/1.0\r\n\r\n and much more text than that", &hello};
    const size_t size[] = {0, 40, sizeof hello};
    memcpy(&card, blob[0], sizeof card);
    for (int i = 0; i < 3; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(card.port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        strangers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(strangers[i], (struct sockaddr *)&to, sizeof to) == 0)
            hub_write(strangers[i], words[i], size[i]);
    }
}

static void spoil_port(char blob[][HUB_BLOB], size_t *bytes, int n)
{
    (void)bytes, (void)n;
    struct ls_wire_card card;
    memcpy(&card, blob[0], sizeof card);
    card.port = 1; // nobody listens there
    memcpy(blob[0], &card, sizeof card);
}

static void spoil_version(char blob[][HUB_BLOB], size_t *bytes, int n)
{
    (void)blob, (void)n;
    bytes[1] = 7;
}

static void test_door(struct board *board)
{
    pid_t pid[HUB_MAX];
    struct plan p = plain(3, 16, board);
    p.fences = 3;
    bool ok = all_exit(pid, run(&p, pid, connect_strangers), 60);
    for (int i = 0; i < 3; i++)
        close(strangers[i]);
    tap_ok(ok, "strangers at the door change nothing");

    p = plain(2, 16, board);
    p.deadline = 1;
    run(&p, pid, spoil_port);
    ok = hub_wait(pid[0]) == 100 + LS_ERR_TIMEOUT && hub_wait(pid[1]) == 100 + LS_ERR_ENV;
    tap_ok(ok &&
               strstr(board->of[1].text, "keeper 1 on n1 cannot reach keeper 0 on n0 (127.0.0.1:1: "
                                         "Connection refused") &&
               strstr(board->of[0].text, "keeper 1 on n1 did not connect with keeper 0 on n0"),
           "an address where nobody listens is named");
    tap_note("%s", board->of[1].text);

    p = plain(2, 16, board);
    p.deadline = 1;
    run(&p, pid, spoil_version);
    ok = hub_wait(pid[0]) == 100 + LS_ERR_ENV && hub_wait(pid[1]) == 100 + LS_ERR_ENV;
    tap_ok(ok && strstr(board->of[0].text, "keeper 1 on n1 speaks another version"),
           "another version is named");
}

int main(void)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    test_round(board, 1, 0, 5, 0);
    test_round(board, 2, 0, 50, 0);
    test_round(board, 3, 1, 50, 0); // a chain
    test_round(board, 13, 3, 20, 0);
    test_round(board, 20, 16, 20, 0);
    test_round(board, 4, 2, 2, 5 << 20);
    test_failure(board);
    test_suspect(board);
    test_stop(board);
    test_lost(board, 6, SIGKILL);
    test_lost(board, 1, SIGKILL);
    test_lost(board, 0, SIGKILL);
    test_lost(board, 6, SIGSTOP);
    test_lost(board, 0, SIGSTOP);
    test_door(board);
    munmap(board, sizeof *board);
    return tap_done();
}
