/* Answers on their way: what was written is read, and nothing else is. */
#include "check/internal.h"
#include "tests/tap.h"

#include <string.h>

static void test_round_trip(void)
{
    struct ls_buf text;
    struct ls_check_list list = {0};
    const char *facts[64] = {0};
    struct ls_error err = {0};
    ls_buf_init(&text, 1 << 16);
    ls_check_pack(&text, "sys.cpu", LS_CHECK_WARN, "dev", "1 CPU\tand a tab\nand a line", "2",
                  "ask");
    ls_check_pack(&text, "ver.ucx", LS_CHECK_SKIP, "", "\x1b[31mred", "", "");
    ls_check_pack_fact(&text, "env.nccl", "A=1\nB=2");
    ls_check_pack_fact(&text, "net.port", "1 ok\n");
    ls_check_pack_fact(&text, "ver.pmix", "");
    enum ls_status status = ls_check_unpack(text.data, text.len, 3, &list, facts, &err);
    tap_ok(status == LS_OK && list.n == 2, "two results come back: %s", err.message);
    const struct ls_check_result *r = list.result;
    tap_ok(r->check == ls_check_find("sys.cpu") && r->status == LS_CHECK_WARN && r->rank == 3 &&
               !strcmp(r->device, "dev") && !strcmp(r->measured, "1 CPU and a tab and a line") &&
               !strcmp(r->expected, "2") && !strcmp(r->advice, "ask"),
           "as it was, without what would break a line");
    tap_ok(!strcmp(r[1].measured, " [31mred"), "nothing that a terminal would obey");
    tap_ok(!strcmp(facts[ls_check_find("env.nccl") - ls_checks], "A=1\nB=2"),
           "a fact of two lines");
    tap_ok(!strcmp(facts[ls_check_find("net.port") - ls_checks], "1 ok"), "a fact of one line");
    tap_ok(!strcmp(facts[ls_check_find("ver.pmix") - ls_checks], ""), "an empty fact is one");
    tap_ok(!facts[ls_check_find("ver.ucx") - ls_checks], "and none is none");
    ls_check_list_free(&list);
    ls_buf_free(&text);
}

static void test_refused(void)
{
    static const char *const bad[] = {"R\tsys.cpu\tgreat\t\t\t\t\n",
                                      "R\tsys.cpu\tpass\t\t\t\n",
                                      "R\tsys.cpu\tpass\t\t\t\t\t\n",
                                      "R\tno.such\tpass\t\t\t\t\n",
                                      "X\tsys.cpu\tfact\n",
                                      "F\tsys.cpu\n",
                                      "F\n",
                                      "\n",
                                      "\t\t\t\t\t\t\t\t\t\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_check_list list = {0};
        struct ls_error err = {0};
        const char *facts[64] = {0};
        enum ls_status status = ls_check_unpack(bad[i], strlen(bad[i]), 7, &list, facts, &err);
        tap_ok(status == LS_ERR_FORMAT && list.n == 0 && strstr(err.message, "line 1 ") &&
                   strstr(err.message, "rank 7"),
               "refused: %s", err.message);
        ls_check_list_free(&list);
    }
    struct ls_check_list list = {0};
    tap_ok(ls_check_unpack("", 0, 0, &list, NULL, NULL) == LS_OK && list.n == 0,
           "nothing is nothing");
    const char zero[] = "F\tsys.cpu\ta\0b\n";
    tap_ok(ls_check_unpack(zero, sizeof zero - 1, 0, &list, NULL, NULL) == LS_ERR_FORMAT,
           "a NUL is refused");
    ls_check_list_free(&list);
}

static void test_table(void)
{
    bool ok = true;
    for (int i = 0; i < ls_nchecks; i++) {
        ok &= ls_check_find(ls_checks[i].id) == &ls_checks[i];
        ok &= !ls_checks[i].local || (ls_checks[i].deadline > 0 && ls_checks[i].deadline <= 20);
    }
    tap_ok(ok, "%d checks, each with an id of its own and a deadline", ls_nchecks);
    tap_ok(ls_nchecks < 64, "fewer than the tests have room for");
}

int main(void)
{
    test_round_trip();
    test_refused();
    test_table();
    return tap_done();
}
