/* What a keeper decides without any process: completion records, and which CPUs go to which worker. */
#include "keep/keep.h"
#include "tests/tap.h"

#include <string.h>

static void check_records(void)
{
    struct ls_record in = {.status = LS_ERR_IO, .code = 1, .steps = 1234567890123, .suspect = 3};
    strcpy(in.message, "writing x: No space left on device\nsecond line");
    char text[LS_RECORD_MAX];
    size_t n = ls_record_write(&in, text);
    struct ls_record out;
    tap_ok(n > 0 && ls_record_read(text, n, &out), "a record reads back");
    tap_ok(out.status == in.status && out.code == 1 && out.steps == in.steps && out.suspect == 3 &&
               !strcmp(out.message, in.message),
           "with all it said");
    int whole = 0;
    for (size_t cut = 0; cut < n; cut++)
        whole += ls_record_read(text, cut, &out);
    tap_ok(whole == 0, "no cut of it is taken for a record");
    memset(in.message, 'x', sizeof in.message - 1);
    in.message[sizeof in.message - 1] = '\0';
    n = ls_record_write(&in, text);
    tap_ok(n > 0 && ls_record_read(text, n, &out) && !strcmp(in.message, out.message),
           "the longest message fits");
    tap_ok(!ls_record_read("lockstep-record 2 0 999 5 0\n\n.\n", 31, &out),
           "an impossible exit code");
    tap_ok(!ls_record_read("lockstep-record 2 0 1 5 -1\n\n.\n", 30, &out) &&
               !ls_record_read("lockstep-record 2 0 1 5 2000000\n\n.\n", 35, &out) &&
               ls_record_read("lockstep-record 2 0 1 5 2\n\n.\n", 29, &out),
           "an impossible rank");
    tap_ok(!ls_record_read("nonsense\n.\n", 11, &out), "something else");
}

static const char *split(const struct ls_keep_cpu *cpus, int n, int workers, int worker,
                         bool *bound)
{
    static char text[128];
    cpu_set_t mask;
    *bound = ls_keep_split(cpus, n, workers, worker, &mask);
    return ls_keep_format_cpus(&mask, text);
}

static void check_cpus(void)
{
    /* Two packages of two cores with two threads each; siblings are n and n + 4. */
    const struct ls_keep_cpu smt[] = {{0, 0, 0}, {4, 0, 0}, {1, 0, 1}, {5, 0, 1},
                                      {2, 1, 0}, {6, 1, 0}, {3, 1, 1}, {7, 1, 1}};
    bool bound;
    tap_ok(!strcmp(split(smt, 8, 1, 0, &bound), "0-7") && bound, "one worker has all CPUs");
    tap_ok(!strcmp(split(smt, 8, 2, 0, &bound), "0-1,4-5") && bound, "two: the first package");
    tap_ok(!strcmp(split(smt, 8, 2, 1, &bound), "2-3,6-7") && bound, "and the second");
    tap_ok(!strcmp(split(smt, 8, 4, 2, &bound), "2,6") && bound, "four: a whole core each");
    tap_ok(!strcmp(split(smt, 8, 3, 0, &bound), "0,4") && bound, "three: one core");
    tap_ok(!strcmp(split(smt, 8, 3, 2, &bound), "2-3,6-7") && bound, "and two, in one package");
    tap_ok(!strcmp(split(smt, 8, 8, 5, &bound), "0-7") && !bound,
           "more workers than cores: not bound");
    cpu_set_t mask;
    struct ls_keep_cpu *cpus = NULL;
    int n = 0;
    CPU_ZERO(&mask);
    CPU_SET(3, &mask);
    CPU_SET(1, &mask);
    tap_ok(ls_keep_cpus("/nonexistent", &mask, &cpus, &n, NULL) == LS_OK && n == 2 &&
               cpus[0].cpu == 1 && cpus[1].cpu == 3 && cpus[1].core == 3,
           "without topology files every CPU is a core of its own");
    free(cpus);
}

static void check_stops(void)
{
    const enum ls_stop_meaning KNOWN = LS_STOP_KNOWN, WISH = LS_STOP_WISH, NOW = LS_STOP_AT_ONCE;
    const struct {
        const char *what;
        int sig[4];
        double time[4];
        enum ls_stop_meaning meaning[4];
        int left;
    } cases[] = {
        {"SIGTERM twice", {SIGTERM, SIGTERM}, {5, 7}, {WISH, NOW}, SIGTERM},
        {"SIGTERM by two ways, then again",
         {SIGTERM, SIGTERM, SIGTERM},
         {5, 5.5, 6.1},
         {WISH, KNOWN, NOW},
         SIGTERM},
        {"SIGINT twice, however soon", {SIGINT, SIGINT}, {5, 5.1}, {WISH, NOW}, SIGINT},
        {"SIGUSR1 often", {SIGUSR1, SIGUSR1, SIGUSR1}, {5, 5.1, 9}, {WISH, KNOWN, KNOWN}, SIGUSR1},
        {"SIGTERM at once behind SIGUSR1",
         {SIGUSR1, SIGTERM, SIGTERM, SIGTERM},
         {5, 5.1, 5.9, 6.2},
         {WISH, WISH, KNOWN, NOW},
         SIGTERM},
        {"SIGTERM late behind SIGUSR1", {SIGUSR1, SIGTERM}, {5, 125}, {WISH, WISH}, SIGTERM},
        {"SIGINT behind SIGUSR1", {SIGUSR1, SIGINT, SIGINT}, {5, 6, 7}, {WISH, WISH, NOW}, SIGINT},
        {"SIGUSR1 behind SIGTERM", {SIGTERM, SIGUSR1}, {5, 125}, {WISH, KNOWN}, SIGTERM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_stop stop = {0};
        bool same = true;
        for (int n = 0; n < 4 && cases[i].sig[n]; n++)
            same &= ls_stop_hear(&stop, cases[i].sig[n], cases[i].time[n]) == cases[i].meaning[n];
        tap_ok(same && stop.sig == cases[i].left, "%s", cases[i].what);
    }
}

int main(void)
{
    check_records();
    check_stops();
    check_cpus();
    return tap_done();
}
