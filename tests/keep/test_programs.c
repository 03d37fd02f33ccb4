/* Ranks that are programs, without any process: the variables that they get, where their output goes, and what
 * becomes of lines on the way. */
#include "keep/output.h"
#include "keep/variables.h"
#include "tests/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- variables ---- */

static char text[1 << 20];

/* Value of `name`; "" if there is none. */
static const char *value(char **list, const char *name)
{
    size_t n = strlen(name);
    for (; *list; list++)
        if (!strncmp(*list, name, n) && (*list)[n] == '=')
            return *list + n + 1;
    return "";
}

/* Three keepers on two nodes with 2, 1 and 2 ranks; keepers 0 and 2 share node 0. */
static struct ls_keep_world uneven(struct ls_wire_map *map, struct ls_wire_rendezvous *meet)
{
    static const int node[] = {0, 1, 0}, workers[] = {2, 1, 2};
    static const char *const host[] = {"n0", "n1", "n0"};
    static char address[3][LS_WIRE_ADDRESS_TEXT] = {"10.0.0.1", "fd00::2", "10.0.0.1"};
    static int first[] = {0, 4, 5, 7};
    static uint16_t port[] = {4000, 4001, 4100, 4101, 5000, 6000, 6001};
    ls_wire_map_init(map, 3, node, workers, NULL);
    *meet = (struct ls_wire_rendezvous){
        .n_keepers = 3, .address = address, .first = first, .port = port};
    return (struct ls_keep_world){
        .map = map, .meet = meet, .host = host, .job = "7.0", .restarts = 2};
}

static void check_numbers(void)
{
    struct ls_wire_map map = {0};
    struct ls_wire_rendezvous meet;
    struct ls_keep_world world = uneven(&map, &meet);
    static const struct {
        const char *name, *of[5];
    } want[] = {
        {"RANK", {"0", "1", "2", "3", "4"}},
        {"WORLD_SIZE", {"5", "5", "5", "5", "5"}},
        {"LOCAL_RANK", {"0", "1", "0", "2", "3"}},
        {"LOCAL_WORLD_SIZE", {"4", "4", "1", "4", "4"}},
        {"GROUP_RANK", {"0", "0", "1", "0", "0"}},
        {"GROUP_WORLD_SIZE", {"2", "2", "2", "2", "2"}},
        {"MASTER_ADDR", {"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"}},
        {"MASTER_PORT", {"4100", "4100", "4100", "4100", "4100"}},
        {"JAX_COORDINATOR_ADDRESS",
         {"10.0.0.1:4101", "10.0.0.1:4101", "10.0.0.1:4101", "10.0.0.1:4101", "10.0.0.1:4101"}},
        {"JAX_PROCESS_ID", {"0", "1", "2", "3", "4"}},
        {"JAX_NUM_PROCESSES", {"5", "5", "5", "5", "5"}},
        {"TORCHELASTIC_RUN_ID", {"7.0", "7.0", "7.0", "7.0", "7.0"}},
        {"TORCHELASTIC_RESTART_COUNT", {"2", "2", "2", "2", "2"}},
        {"OMPI_COMM_WORLD_LOCAL_RANK", {"0", "1", "0", "2", "3"}},
        {"OMPI_MCA_orte_hnp_uri",
         {"0.0;tcp://10.0.0.1:4101", "0.0;tcp://10.0.0.1:4101", "0.0;tcp://10.0.0.1:4101",
          "0.0;tcp://10.0.0.1:4101", "0.0;tcp://10.0.0.1:4101"}},
    };
    world.ompi = true;
    struct ls_arena arena = {0};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        bool ok = true, left_out;
        for (int r = 0; r < 5; r++) {
            char **list;
            ok &= ls_keep_variables(&world, r, &arena, &list, &left_out, NULL) == LS_OK &&
                  !strcmp(value(list, want[i].name), want[i].of[r]) && !left_out;
            for (char **v = list; *v; v++)
                ok &= ls_keep_is_ours(*v);
        }
        tap_ok(ok, "%s of five ranks on two nodes", want[i].name);
    }
    world.ompi = false;
    char **list;
    bool left_out;
    ls_keep_variables(&world, 0, &arena, &list, &left_out, NULL);
    tap_ok(!*value(list, "OMPI_COMM_WORLD_RANK"), "Open MPI's only on request");
    ls_arena_free(&arena);
    ls_wire_map_free(&map);
}

/* What of Slurm's each rank has in the uneven world, whose nodes Slurm lists in another order. */
static void check_slurm(void)
{
    struct ls_wire_map map = {0};
    struct ls_wire_rendezvous meet;
    struct ls_keep_world world = uneven(&map, &meet);
    struct ls_slurm slurm = {.place = LS_SLURM_STEP, .ntasks = 3};
    struct ls_arena arena = {0};
    char **list;
    bool left_out, ok = true;
    static const char *const local[] = {"0", "1", "0", "2", "3"};
    tap_ok(ls_hostlist_parse("n1,n[3-4],n0", &slurm.nodes, NULL) == LS_OK, "a list of nodes");
    ls_keep_variables(&world, 0, &arena, &list, &left_out, NULL);
    tap_ok(!*value(list, "SLURM_PROCID"), "outside of a step nothing of Slurm's is set");
    world.slurm = &slurm;
    for (int r = 0; r < 5; r++) {
        char rank[8];
        snprintf(rank, sizeof rank, "%d", r);
        ls_keep_variables(&world, r, &arena, &list, &left_out, NULL);
        ok &= !strcmp(value(list, "SLURM_PROCID"), rank) &&
              !strcmp(value(list, "SLURM_LOCALID"), local[r]) &&
              !strcmp(value(list, "SLURM_NTASKS"), "5") &&
              !strcmp(value(list, "SLURM_STEP_NUM_TASKS"), "5") &&
              !strcmp(value(list, "SLURM_NPROCS"), "5") && ls_keep_has(list, "SLURM_NTASKS=3") &&
              !ls_keep_has(list, "SLURM_JOB_ID=1") && !ls_keep_is_ours("SLURM_PROCID=0");
    }
    tap_ok(ok, "in a step whose tasks have several ranks each rank is a task to Slurm's variables");
    tap_ok(!strcmp(value(list, "SLURM_STEP_TASKS_PER_NODE"), "1,0(x2),4") &&
               !strcmp(value(list, "SLURM_TASKS_PER_NODE"), "1,0(x2),4"),
           "tasks per node, in the order of Slurm's list; got %s",
           value(list, "SLURM_TASKS_PER_NODE"));
    ls_wire_map_free(&map);
    static const int node[] = {0, 1, 0}, one[] = {1, 1, 1};
    static const char *const host[] = {"n0", "n1", "n0"};
    static int first[] = {0, 3, 4, 5};
    ls_wire_map_init(&map, 3, node, one, NULL);
    meet.first = first;
    world.host = host;
    ls_keep_variables(&world, 2, &arena, &list, &left_out, NULL);
    tap_ok(!*value(list, "SLURM_PROCID") && !strcmp(value(list, "RANK"), "2"),
           "with one rank in each task they are right as they are, and left alone");
    ls_hostlist_free(&slurm.nodes);
    ls_wire_map_free(&map);
    ls_arena_free(&arena);
}

static void check_tensorflow(void)
{
    struct ls_wire_map map = {0};
    struct ls_wire_rendezvous meet;
    struct ls_keep_world world = uneven(&map, &meet);
    struct ls_arena arena = {0};
    char **list;
    bool left_out;
    ls_keep_variables(&world, 0, &arena, &list, &left_out, NULL);
    tap_ok(!strcmp(value(list, "TF_CONFIG"),
                   "{\"cluster\": {\"chief\": [\"10.0.0.1:4000\"], \"worker\": "
                   "[\"10.0.0.1:4001\", \"[fd00::2]:5000\", \"10.0.0.1:6000\", "
                   "\"10.0.0.1:6001\"]}, \"task\": {\"type\": \"chief\", \"index\": 0}}"),
           "rank 0 is the chief; IPv6 has brackets");
    ls_keep_variables(&world, 4, &arena, &list, &left_out, NULL);
    tap_ok(strstr(value(list, "TF_CONFIG"), "\"task\": {\"type\": \"worker\", \"index\": 3}}"),
           "the last of five is worker 3");
    world.evaluator = true;
    ls_keep_variables(&world, 4, &arena, &list, &left_out, NULL);
    tap_ok(strstr(value(list, "TF_CONFIG"), "\"task\": {\"type\": \"evaluator\", \"index\": 0}}") &&
               !strstr(value(list, "TF_CONFIG"), "6001"),
           "or the evaluator, which is no part of the cluster");
    ls_keep_variables(&world, 3, &arena, &list, &left_out, NULL);
    tap_ok(strstr(value(list, "TF_CONFIG"), "\"task\": {\"type\": \"worker\", \"index\": 2}}") &&
               !strstr(value(list, "TF_CONFIG"), "6001"),
           "for others, too");
    ls_wire_map_free(&map);
    /* More ranks than fit into one variable of 128 KiB. */
    const int node = 0, many = 20000;
    int first[] = {0, many + 2};
    char address[1][LS_WIRE_ADDRESS_TEXT] = {"10.0.0.1"};
    uint16_t *port = calloc((size_t)many + 2, sizeof *port);
    ls_wire_map_init(&map, 1, &node, &many, NULL);
    meet = (struct ls_wire_rendezvous){
        .n_keepers = 1, .address = address, .first = first, .port = port};
    ls_keep_variables(&world, 1, &arena, &list, &left_out, NULL);
    tap_ok(left_out && !*value(list, "TF_CONFIG") && !strcmp(value(list, "WORLD_SIZE"), "20000"),
           "what the kernel would refuse is left out, and said");
    free(port);
    ls_wire_map_free(&map);
    ls_arena_free(&arena);
}

static void check_leftovers(void)
{
    char out[512];
    char *env[] = {(char *)"RANK=3",         (char *)"RANKS=4",
                   (char *)"PATH=/bin",      (char *)"TORCHELASTIC_USE_AGENT_STORE=True",
                   (char *)"MASTER_PORT=",   (char *)"JAX_LOCAL_DEVICE_IDS=0",
                   (char *)"TF_CONFIG={}",   (char *)"MY_RANK=1",
                   (char *)"OMPI_MCA_btl=x", NULL};
    tap_ok(!strcmp(ls_keep_leftovers(env, out),
                   "RANK, TORCHELASTIC_USE_AGENT_STORE, MASTER_PORT, TF_CONFIG"),
           "leftovers are what we set, and what would contradict; got %s", out);
    char *many[64];
    for (int i = 0; i < 63; i++)
        many[i] = (char *)"TORCHELASTIC_SOMETHING_LONG=1";
    many[63] = NULL;
    tap_ok(strlen(ls_keep_leftovers(many, out)) < 512 && strstr(out, ", ..."),
           "a long list is cut");
}

/* ---- where output goes ---- */

static void check_paths(void)
{
    const struct ls_keep_place place = {.rank = 12, .local_rank = 3, .host = "n1", .job = "7.0"};
    static const struct {
        const char *pattern, *path; /* NULL: refused */
    } cases[] = {
        {"log/%r", "log/12"},    {"%j/%h-%l.%s", "7.0/n1-3.err"},
        {"100%%/%r", "100%/12"}, {"%x/%r", NULL},
        {"%r%", NULL},
    };
    char path[LS_KEEP_PATH];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool ok = ls_keep_output_path(cases[i].pattern, &place, "err", path);
        tap_ok(cases[i].path ? ok && !strcmp(path, cases[i].path) : !ok, "pattern %s",
               cases[i].pattern);
    }
    memset(text, 'x', 5000);
    strcpy(text + 5000, "%r");
    tap_ok(!ls_keep_output_path(text, &place, "out", path), "a path that is too long");
    tap_ok(ls_keep_output_check("a/%r", NULL) == LS_OK &&
               ls_keep_output_check("%h.%l", NULL) == LS_OK,
           "patterns that give every rank a file");
    tap_ok(ls_keep_output_check("a/%l", NULL) == LS_ERR_USAGE &&
               ls_keep_output_check("%h", NULL) == LS_ERR_USAGE &&
               ls_keep_output_check("%%r", NULL) == LS_ERR_USAGE,
           "and that do not");
}

/* ---- lines ---- */

/* Two ranks whose output goes through pipes that the test holds at both ends. */
struct bench {
    struct ls_keep_place place[2];
    struct ls_output *o;
    int rank[2][2]; /* write ends: [rank][out, err] */
    int read[2];    /* where it comes out: out, err */
    int write[2];
};

static void open_bench(struct bench *b, bool label, const char *pattern)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < 2; i++) {
        int ends[2];
        b->place[i] = (struct ls_keep_place){.rank = i, .size = 2, .host = "h", .job = "j"};
        if (pipe2(ends, O_CLOEXEC) != 0)
            abort();
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        b->read[i] = ends[0];
        b->write[i] = ends[1];
    }
    const struct ls_output_config config = {.workers = 2,
                                            .place = b->place,
                                            .label = label,
                                            .pattern = pattern,
                                            .out = b->write[0],
                                            .err = b->write[1]};
    if (ls_output_open(&config, &b->o, NULL) != LS_OK)
        abort();
    for (int i = 0; i < 2; i++)
        if (ls_output_pipes(b->o, i, b->rank[i], NULL) != LS_OK)
            abort();
}

static void say(int fd, const char *what)
{
    if (write(fd, what, strlen(what)) != (ssize_t)strlen(what))
        tap_ok(false, "a rank prints");
}

/* Works as the keeper's loop does, until nothing more happens; `wait`: also for the clock. */
static void work(struct bench *b, bool wait)
{
    for (;;) {
        struct pollfd fds[16];
        int n = ls_output_count(b->o);
        ls_output_poll(b->o, fds);
        int timeout = ls_output_timeout(b->o);
        if (poll(fds, (nfds_t)n, wait && timeout > 0 ? timeout : 0) == 0 && (!wait || timeout < 0))
            return;
        ls_output_work(b->o, fds);
    }
}

/* What came out there since the last time, in `text`. */
static const char *heard(struct bench *b, int which)
{
    size_t at = 0;
    ssize_t n;
    while ((n = read(b->read[which], text + at, sizeof text - at - 1)) > 0)
        at += (size_t)n;
    text[at] = '\0';
    return text;
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        close(b->rank[i][0]);
        close(b->rank[i][1]);
        close(b->read[i]);
        close(b->write[i]);
    }
    ls_output_close(b->o);
}

static void check_lines(void)
{
    struct bench b;
    open_bench(&b, false, NULL);
    say(b.rank[0][0], "one ");
    say(b.rank[1][0], "two ");
    work(&b, false);
    say(b.rank[1][0], "three\n");
    work(&b, false);
    say(b.rank[0][0], "four\nfive\nsi");
    work(&b, false);
    tap_ok(!strcmp(heard(&b, 0), "two three\none four\nfive\n"),
           "lines of two ranks are not mixed");
    work(&b, true);
    tap_ok(!strcmp(heard(&b, 0), "si"), "a line without an end is shown after a while");
    say(b.rank[1][0], "seven\n");
    say(b.rank[1][1], "error\n");
    work(&b, true);
    tap_ok(!strcmp(heard(&b, 0), "\nseven\n"), "and ended when another rank prints");
    tap_ok(!strcmp(heard(&b, 1), "error\n"), "standard error goes to standard error");
    say(b.rank[0][0], "10%\r20%\r");
    work(&b, false);
    tap_ok(!strcmp(heard(&b, 0), "10%\r20%\r"), "a progress bar is shown at once");
    say(b.rank[0][0], "no end");
    ls_output_ended(b.o, 0);
    ls_output_ended(b.o, 1);
    work(&b, false);
    tap_ok(!strcmp(heard(&b, 0), "no end") && ls_output_idle(b.o),
           "what a rank leaves in its pipe is not lost");
    close_bench(&b);
    open_bench(&b, true, NULL);
    say(b.rank[1][0], "a\n\nb\rc\r\nd\n");
    say(b.rank[0][1], "e\n");
    work(&b, false);
    tap_ok(!strcmp(heard(&b, 0), "[1@h] a\n[1@h] \n[1@h] b\r[1@h] c\r\n[1@h] d\n"),
           "labels on every line, also on those that begin with a carriage return");
    tap_ok(!strcmp(heard(&b, 1), "[0@h] e\n"), "on standard error, too");
    close_bench(&b);
}

static void check_limits(void)
{
    struct bench b;
    open_bench(&b, false, NULL);
    /* Nobody reads: rank 0 must be held up before memory grows. */
    fcntl(b.rank[0][0], F_SETFL, O_NONBLOCK);
    size_t sent = 0, expect = 0; /* bytes */
    char line[128];
    bool full = false;
    while (!full && sent < (64U << 20)) {
        int n = snprintf(line, sizeof line, "%0100zu\n", sent);
        ssize_t done = write(b.rank[0][0], line, (size_t)n);
        full = done < 0 && errno == EAGAIN;
        if (full) { /* perhaps only until we have worked */
            work(&b, false);
            done = write(b.rank[0][0], line, (size_t)n);
            full = done < 0 && errno == EAGAIN;
        }
        if (done > 0)
            sent += (size_t)done;
    }
    tap_ok(full, "a rank waits when nobody reads, after %zu bytes", sent);
    ls_output_ended(b.o, 0);
    static char got[1 << 20];
    for (int turn = 0; turn < 1000 && expect < sent && sent < sizeof got; turn++) {
        const char *p = heard(&b, 0);
        memcpy(got + expect, p, strlen(p));
        expect += strlen(p);
        work(&b, false);
    }
    bool same = true;
    for (size_t at = 0; at < expect && same; at += 101) {
        snprintf(line, sizeof line, "%0100zu\n", at);
        same = !strncmp(got + at, line, 101);
    }
    tap_ok(same && expect == sent, "and all of it comes out in order");
    memset(text, 'y', 200000);
    fcntl(b.rank[1][0], F_SETFL, O_NONBLOCK);
    for (size_t at = 0, turn = 0; at < 200000 && turn < 1000; turn++) {
        ssize_t done = write(b.rank[1][0], text + at, 200000 - at);
        at += done > 0 ? (size_t)done : 0;
        work(&b, false);
        char drop[1 << 16];
        ssize_t read_now;
        while ((read_now = read(b.read[0], drop, sizeof drop)) > 0)
            expect += (size_t)read_now;
    }
    work(&b, true);
    tap_ok(expect - sent + strlen(heard(&b, 0)) == 200000, "a line of 200 kB passes");
    close(b.read[0]);
    b.read[0] = -1;
    say(b.rank[1][0], "lost\n");
    work(&b, false);
    tap_ok(write(b.rank[1][0], "x", 1) < 0 && errno == EPIPE,
           "a rank whose reader has gone hears of it");
    say(b.rank[1][1], "still\n");
    work(&b, false);
    tap_ok(!strcmp(heard(&b, 1), "still\n"), "and the other stream works on");
    close_bench(&b);
}

static void check_tail(void)
{
    struct bench b;
    char tail[LS_OUTPUT_TAIL];
    open_bench(&b, false, NULL);
    tap_ok(!*ls_output_tail(b.o, 0, tail), "no tail before a rank prints");
    say(b.rank[0][0], "progress\n");
    work(&b, false);
    tap_ok(!strcmp(ls_output_tail(b.o, 0, tail), "progress\n"),
           "standard output where standard error is empty");
    for (int i = 0; i < 300; i++) {
        char line[64];
        snprintf(line, sizeof line, "line %d\n", i);
        say(b.rank[0][1], line);
        work(&b, false);
        heard(&b, 1);
    }
    say(b.rank[0][1], "10%\r20%\r\x1b[1mlast\x7f");
    ls_output_take(b.o, 0);
    tap_ok(!strcmp(ls_output_tail(b.o, 0, tail),
                   "line 291\nline 292\nline 293\nline 294\nline 295\nline 296\nline 297\n"
                   "line 298\nline 299\n?[1mlast?\n"),
           "the last ten lines, as a terminal that cannot be fooled shows them");
    memset(text, 'z', 9000);
    text[9000] = '\0';
    say(b.rank[1][1], text);
    work(&b, false);
    size_t n = strlen(ls_output_tail(b.o, 1, tail));
    tap_ok(n > 1000 && n < LS_OUTPUT_TAIL && tail[n - 1] == '\n', "the end of an endless line");
    close_bench(&b);
}

static const char *content(const char *folder, const char *name)
{
    char path[256];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (f) {
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        unlink(path);
    }
    text[n] = '\0';
    return text;
}

static void check_files(void)
{
    struct bench b;
    char folder[] = "/tmp/lockstep-test-XXXXXX", pattern[128], below[64];
    if (!mkdtemp(folder))
        abort();
    snprintf(below, sizeof below, "%s/new", folder);
    snprintf(pattern, sizeof pattern, "%s/new/%%r.%%s", folder);
    open_bench(&b, false, pattern);
    say(b.rank[0][0], "a\n");
    say(b.rank[0][1], "b\n");
    say(b.rank[1][1], "c\n");
    work(&b, false);
    close_bench(&b);
    tap_ok(!strcmp(content(below, "0.out"), "a\n") && !strcmp(content(below, "0.err"), "b\n") &&
               !strcmp(content(below, "1.out"), "") && !strcmp(content(below, "1.err"), "c\n"),
           "a file for each rank and stream, in a folder that was not there");
    snprintf(pattern, sizeof pattern, "%s/new/%%r", folder);
    open_bench(&b, true, pattern);
    say(b.rank[0][0], "a\n");
    work(&b, false);
    say(b.rank[0][1], "b\n");
    work(&b, false);
    close_bench(&b);
    tap_ok(!strcmp(content(below, "0"), "[0@h] a\n[0@h] b\n") && !strcmp(content(below, "1"), ""),
           "or for each rank, with labels");
    rmdir(below);
    rmdir(folder);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(60); /* a hang is a failure */
    check_numbers();
    check_slurm();
    check_tensorflow();
    check_leftovers();
    check_paths();
    check_lines();
    check_limits();
    check_tail();
    check_files();
    return tap_done();
}
