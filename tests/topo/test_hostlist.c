/* Hostlists, run lengths and visible devices: tables of what is read, of what is refused and where,
 * and properties of random lists. */
#include "tests/tap.h"
#include "topo/topo.h"

#include <string.h>

/* ---- what is read ------------------------------------------------------------------------------- */

static const struct {
    const char *list, *names, *why;
} good[] = {
    /* From the field: launchers that split lists by commas or guessed the padding. */
    {"nodeA,nodeB[001,003],nodeC", "nodeA nodeB001 nodeB003 nodeC",
     "plain names beside a bracket (a training framework split within the bracket)"},
    {"linux[1,2]", "linux1 linux2", "first host (a trainer took 'linux[1')"},
    {"node[001-010]",
     "node001 node002 node003 node004 node005 node006 node007 node008 node009 node010",
     "padding stays (a job submission library lost it)"},
    {"nid[0099-0101]", "nid0099 nid0100 nid0101", "padding stays across a power of ten"},
    {"m[8-11]", "m8 m9 m10 m11", "no padding is invented (a deployment script did)"},
    {"n1,n2", "n1 n2", "no bracket at all"},
    {"gpu[1-3]", "gpu1 gpu2 gpu3", "a range is not one node (a cloud tool counted it so)"},
    /* Slurm's documentation, and what scontrol does. */
    {"n[001-003,7]", "n001 n002 n003 n7", "padding is that of each range"},
    {"n[01,1]", "n01 n1", "the same number in two widths"},
    {"n[9-011]", "n9 n10 n11", "the first number of a range sets the width"},
    {"n[00-0]", "n00", "a range of one"},
    {"a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4", "of two brackets the left one is slow"},
    {"n[1-2][3-4][5-6]", "n135 n136 n235 n236 n145 n146 n245 n246",
     "of three brackets the last is fast, then the first"},
    {"n[1-2][3-4][5-6][7-8]",
     "n1357 n1358 n2357 n2358 n1457 n1458 n2457 n2458 "
     "n1367 n1368 n2367 n2368 n1467 n1468 n2467 n2468",
     "four brackets"},
    {"n[1-2][001-002]", "n1001 n1002 n2001 n2002", "brackets side by side"},
    {"n[1-2]-ib", "n1-ib n2-ib", "text after the bracket, as new versions of Slurm"},
    {"n[1,3-4].site.org,m", "n1.site.org n3.site.org n4.site.org m", "a domain after the bracket"},
    {"[1-3]", "1 2 3", "nothing but a bracket"},
    {"10.0.0.[1-2]", "10.0.0.1 10.0.0.2", "addresses"},
    {"n0[1-2]", "n01 n02", "a digit before the bracket"},
    {"n1-3", "n1-3", "a dash without a bracket is part of a name"},
    {"n[1],n[1],n1", "n1 n1 n1", "repeated names stay"},
    {",a,,b,", "a b", "empty entries do not count"},
    {" a\tb\nc \r\n", "a b c", "blanks and lines separate, too"},
    {"n[0000000000000000000000000001]", "n0000000000000000000000000001", "zeros are no value"},
    {"n[999999999999999999]", "n999999999999999999", "the largest number"},
};

static void test_good(void)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ls_hostlist list;
        struct ls_error err = {0};
        struct ls_buf buf;
        char name[LS_HOSTLIST_NAME_MAX + 1];
        bool pass = ls_hostlist_parse(good[i].list, &list, &err) == LS_OK;
        ls_buf_init(&buf, 1 << 20);
        ls_hostlist_expand(&list, ' ', &buf);
        pass = pass && buf.len && !strncmp(buf.data, good[i].names, buf.len - 1) &&
               strlen(good[i].names) == buf.len - 1;
        const char *at = good[i].names;
        for (int k = 0; pass && k < list.count; k++) {
            size_t len = strcspn(at, " ");
            const char *got = ls_hostlist_nth(&list, k, name);
            pass = got && strlen(got) == len && !strncmp(got, at, len);
            at += len + (at[len] == ' ');
        }
        pass = pass && !*at && !ls_hostlist_nth(&list, list.count, name) &&
               !ls_hostlist_nth(&list, -1, name);
        if (!tap_ok(pass, "%s: %s", good[i].why, good[i].list[0] < '!' ? "(blanks)" : good[i].list))
            tap_note("%s %s", err.message, buf.data ? buf.data : "");
        ls_buf_free(&buf);
        ls_hostlist_free(&list);
    }
}

/* ---- what is refused ---------------------------------------------------------------------------- */

static const struct {
    const char *list, *place, *part;
} bad[] = {
    {"", "", "no names"},
    {", ,", "", "no names"},
    {"n[1-2", "character 2 ", "not closed"}, /* one version of scontrol prints "n]" */
    {"n[1-2,", "character 7 ", "ends within a bracket"},
    {"n[", "character 3 ", "ends within a bracket"},
    {"n1]", "character 3 ", "']' without '['"}, /* scontrol takes it as a name */
    {"n[1-2]]", "character 7 ", "']' without '['"},
    {"n[[1-2]]", "character 3 ", "found '['"},
    {"n[]", "character 3 ", "found ']'"},
    {"n[1-2][]", "character 8 ", "found ']'"},
    {"n[1-]", "character 5 ", "found ']'"}, /* scontrol reads n1 */
    {"n[-1]", "character 3 ", "found '-'"},
    {"n[+1-3]", "character 3 ", "found '+'"}, /* scontrol reads n01 to n03 */
    {"n[1,,2]", "character 5 ", "found ','"},
    {"n[,1]", "character 3 ", "found ','"},
    {"n[1,]", "character 5 ", "found ']'"},
    {"n[1-2-3]", "character 6 ", "found '-'"},
    {"n[3-1]", "character 3 ", "smaller number first"},
    {"n[a-c]", "character 3 ", "found 'a'"},
    {"n[1:3]", "character 4 ", "found ':'"},
    {"n[ 1]", "character 3 ", "found ' '"},
    {"bgl[000x133]", "character 8 ", "boxes"},
    {"a,(null)", "character 3 ", "found '('"}, /* squeue's word for no nodes */
    {"a;b", "character 2 ", "found ';'"},
    {"-n1", "character 1 ", "begin with '-'"},
    {"$HOST", "character 1 ", "found '$'"},
    {"n\303\251", "character 2 ", "0xc3"},
    {"n\033[1]", "character 2 ", "0x1b"},
    {"n[1-65537]", "character 3 ", "more than 65536 names"},
    {"n[0-999999999999999999]", "character 3 ", "more than 65536 names"},
    {"n[1-9999999999999999999]", "character 5 ", "too large"},
    {"n[99999999999999999999999]", "character 3 ", "too large"},
    {"n[0-65535][0-1]", "character 1 ", "more than 65536 names"},
    {"n[0-65535],m", "character 12 ", "more than 65536 names"},
    {"n[0-255][0-255][0-255][0-255][0-255][0-255][0-255][0-255]", "character 1 ", "65536 names"},
};

static void test_bad(void)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_hostlist list = {.count = 7};
        struct ls_error err = {0};
        enum ls_status status = ls_hostlist_parse(bad[i].list, &list, &err);
        bool pass = (status == LS_ERR_FORMAT || status == LS_ERR_OVERFLOW) &&
                    err.status == status && strstr(err.message, bad[i].place) &&
                    strstr(err.message, bad[i].part) && list.count == 0 && !list.text &&
                    !list.entries;
        for (const char *c = err.message; *c; c++)
            pass = pass && *c >= ' ' && *c <= '~';
        if (!tap_ok(pass, "refused: case %d, %s", (int)i, bad[i].part))
            tap_note("%s", err.message);
    }
    char longest[LS_HOSTLIST_NAME_MAX + 2];
    struct ls_hostlist list;
    struct ls_error err = {0};
    memset(longest, 'n', sizeof longest);
    longest[LS_HOSTLIST_NAME_MAX] = '\0';
    tap_ok(ls_hostlist_parse(longest, &list, &err) == LS_OK && list.count == 1,
           "a name of 255 characters");
    ls_hostlist_free(&list);
    longest[LS_HOSTLIST_NAME_MAX] = 'n';
    longest[LS_HOSTLIST_NAME_MAX + 1] = '\0';
    tap_ok(ls_hostlist_parse(longest, &list, &err) == LS_ERR_OVERFLOW &&
               strstr(err.message, "255 characters"),
           "a name of 256 characters is refused");
    err = (struct ls_error){0};
    memcpy(longest + LS_HOSTLIST_NAME_MAX - 6, "[9-10]", 7);
    tap_ok(ls_hostlist_parse(longest, &list, &err) == LS_OK && list.count == 2,
           "only the names count, not the brackets");
    ls_hostlist_free(&list);
}

/* ---- asking ------------------------------------------------------------------------------------- */

static void test_find(void)
{
    struct ls_hostlist list;
    struct ls_error err = {0};
    char name[LS_HOSTLIST_NAME_MAX + 1];
    if (!tap_ok(ls_hostlist_parse("n[1-3],m.a.org,n[10-11],m", &list, &err) == LS_OK, "a list"))
        return;
    tap_ok(ls_hostlist_find(&list, "n2") == 1 && ls_hostlist_find(&list, "n11") == 5, "found");
    tap_ok(ls_hostlist_find(&list, "n4") == -1 && ls_hostlist_find(&list, "n") == -1 &&
               ls_hostlist_find(&list, "") == -1 && ls_hostlist_find(&list, "n100") == -1,
           "not found");
    tap_ok(ls_hostlist_find(&list, "n2.site.org") == 1, "a full name matches a short one");
    tap_ok(ls_hostlist_find(&list, "m") == 6, "the exact name counts before a longer one");
    tap_ok(ls_hostlist_find(&list, "m.b.org") == 6, "and a short one for a full name");
    tap_ok(ls_hostlist_find(&list, "m.a") == 6, "two full names match only as a whole");
    ls_hostlist_free(&list);
    ls_hostlist_parse("n[0-65535]", &list, &err);
    tap_ok(list.count == LS_HOSTLIST_MAX && !strcmp(ls_hostlist_nth(&list, 65535, name), "n65535"),
           "65536 names");
    ls_hostlist_free(&list);
}

/* ---- folding ------------------------------------------------------------------------------------ */

static const struct {
    const char *names, *list;
} folds[] = {
    {"n1", "n1"},
    {"n1 n2 n3", "n[1-3]"},
    {"n1 n3", "n[1,3]"},
    {"n3 n1 n2", "n[3,1-2]"},
    {"n1 n1", "n[1,1]"},
    {"n001 n002 n003 n7", "n[001-003,7]"},
    {"n099 n100", "n[099-100]"},
    {"n9 n10 n11", "n[9-11]"},
    {"n8 n9 n10 n010 n011", "n[8-10,010-011]"},
    {"n09 n10", "n[09-10]"},
    {"n9 n010", "n[9,010]"},
    {"login n1 n2", "login,n[1-2]"},
    {"n1 m1 n2", "n1,m1,n2"},
    {"1 2 3", "[1-3]"},
    {"r1n1 r1n2 r2n1 r2n2", "r[1-2]n[1-2]"},
    {"r1n1 r1n2 r2n1 r2n3", "r1n[1-2],r2n[1,3]"},
    {"r1n1 r2n1", "r1n1,r2n1"}, /* r[1-2]n[1] would be longer */
    {"r1n1 r2n1 r3n1", "r[1-3]n[1]"},
    {"r09n1 r09n2 r10n1 r10n2 r11n1 r11n2 x", "r[09-11]n[1-2],x"},
    {"r9n1 r9n2 r10n1 r10n2", "r[9-10]n[1-2]"},
    {"r11a1 r21a1 r22a1", "r[11,21-22]a[1]"},
    {"a1b1c1 a1b1c2 a2b1c1 a2b1c2 a2b2c1 a2b2c2", "a[1-2]b1c[1-2],a2b2c[1-2]"},
    {"n1.org n2.org", "n1.org,n2.org"}, /* old versions read no text after a bracket */
    {"n-1 n-2", "n-[1-2]"},
    {"n999999999999999999 n1000000000000000000",
     "n999999999999999999,n1000000000000000000"}, /* 18 digits are looked at */
};

static enum ls_status fold_text(const char *text, struct ls_buf *buf, struct ls_error *err)
{
    char copy[1024];
    const char *names[64];
    int n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *save = NULL, *name = strtok_r(copy, " ", &save); name && n < 64;
         name = strtok_r(NULL, " ", &save))
        names[n++] = name;
    return ls_hostlist_fold(names, n, buf, err);
}

static void test_fold(void)
{
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) {
        struct ls_buf buf;
        struct ls_error err = {0};
        ls_buf_init(&buf, 1 << 16);
        bool pass =
            fold_text(folds[i].names, &buf, &err) == LS_OK && !strcmp(buf.data, folds[i].list);
        if (!tap_ok(pass, "%s -> %s", folds[i].names, folds[i].list))
            tap_note("got %s %s", buf.data ? buf.data : "nothing", err.message);
        ls_buf_free(&buf);
    }
    static const char *const wrong[] = {"n[1-2]", "a,b", "a b", "", "n1\n", "a!", "-a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ls_buf buf;
        struct ls_error err = {0};
        ls_buf_init(&buf, 1 << 16);
        tap_ok(ls_hostlist_fold((const char *const[]){"a", wrong[i]}, 2, &buf, &err) ==
                       LS_ERR_FORMAT &&
                   strstr(err.message, "name 2"),
               "not one name: case %d", (int)i);
        ls_buf_free(&buf);
    }
    struct ls_error err = {0};
    tap_ok(ls_hostlist_fold(NULL, 0, NULL, &err) == LS_ERR_FORMAT, "no names do not fold");
}

/* ---- random lists: fold(expand(list)) expands to the same names ---------------------------------- */

static uint64_t seed;

static int draw(int n)
{
    return (int)(ls_mix64(20261130, seed++) % (uint64_t)n);
}

static void random_list(struct ls_buf *buf)
{
    static const char *const texts[] = {"n", "r", "node-", "x.", "a1b", "", "7", "m"};
    for (int entries = 1 + draw(5), i = 0; i < entries; i++) {
        if (i)
            ls_buf_add(buf, ",", 1);
        ls_buf_printf(buf, "%s", texts[draw(5)]);
        for (int brackets = draw(4), b = 0; b < brackets; b++) {
            ls_buf_add(buf, "[", 1);
            for (int ranges = 1 + draw(3), k = 0; k < ranges; k++) {
                int low = draw(120), width = draw(5);
                ls_buf_printf(buf, "%s%0*d", k ? "," : "", width, low);
                if (draw(2))
                    ls_buf_printf(buf, "-%0*d", width, low + draw(5));
            }
            ls_buf_printf(buf, "]%s", texts[draw(8)]);
        }
        if (draw(8) == 0)
            ls_buf_printf(buf, "%d", draw(30));
    }
}

static bool round_trip(const char *text)
{
    struct ls_hostlist list = {0}, again = {0};
    struct ls_error err = {0};
    struct ls_buf first, folded, second;
    bool same = false;
    ls_buf_init(&first, 1 << 24);
    ls_buf_init(&folded, 1 << 24);
    ls_buf_init(&second, 1 << 24);
    if (ls_hostlist_parse(text, &list, &err) == LS_OK) {
        const char **names = calloc((size_t)list.count, sizeof *names);
        ls_hostlist_expand(&list, '\0', &first);
        const char *at = first.data;
        for (int i = 0; names && i < list.count; i++, at += strlen(at) + 1)
            names[i] = at;
        if (names && ls_hostlist_fold(names, list.count, &folded, &err) == LS_OK &&
            ls_hostlist_parse(folded.data, &again, &err) == LS_OK) {
            ls_hostlist_expand(&again, '\0', &second);
            same = first.len == second.len && !memcmp(first.data, second.data, first.len);
        }
        free(names);
    }
    if (!same)
        tap_note("%s -> %s (%s)", text, folded.data ? folded.data : "", err.message);
    ls_buf_free(&first);
    ls_buf_free(&folded);
    ls_buf_free(&second);
    ls_hostlist_free(&list);
    ls_hostlist_free(&again);
    return same;
}

static void test_round_trips(void)
{
    int failed = 0;
    for (int i = 0; i < 3000; i++) {
        struct ls_buf buf;
        ls_buf_init(&buf, 1 << 16);
        random_list(&buf);
        failed += !round_trip(buf.data);
        ls_buf_free(&buf);
    }
    tap_ok(failed == 0, "3000 random lists fold to lists of the same names");
}

/* ---- run lengths -------------------------------------------------------------------------------- */

static void test_runs(void)
{
    int *values, count;
    struct ls_error err = {0};
    bool pass = ls_runs_parse("2(x3),1", &values, &count, &err) == LS_OK && count == 4 &&
                values[0] == 2 && values[2] == 2 && values[3] == 1;
    tap_ok(pass, "2(x3),1 is 2 2 2 1");
    free(values);
    pass = ls_runs_parse("72(x2),36", &values, &count, &err) == LS_OK && count == 3 &&
           values[1] == 72 && values[2] == 36;
    tap_ok(pass, "72(x2),36 is 72 72 36");
    free(values);
    pass = ls_runs_parse("65535(x65536)", &values, &count, &err) == LS_OK && count == 65536 &&
           values[65535] == 65535;
    tap_ok(pass, "the largest");
    free(values);
    static const struct {
        const char *text, *part;
    } wrong[] = {
        {"", "character 1 "},       {"2,", "character 3 "},         {"0", "character 1 "},
        {"2(x0)", "character 4 "},  {"2(3)", "character 3 "},       {"2(x3", "character 5 "},
        {"2(x3)1", "character 6 "}, {"-1", "character 1 "},         {" 2", "character 1 "},
        {"2, 1", "character 3 "},   {"65536", "character 1 "},      {"2(x65537)", "character 4 "},
        {"2x3", "character 2 "},    {"1(x65536),1", "65536 nodes"}, {"99999999999999999999", "1 "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct ls_error){0};
        enum ls_status status = ls_runs_parse(wrong[i].text, &values, &count, &err);
        if (!tap_ok(status != LS_OK && !values && !count && strstr(err.message, wrong[i].part),
                    "run lengths refused: '%s'", wrong[i].text))
            tap_note("%s", err.message);
    }
}

/* ---- visible devices ---------------------------------------------------------------------------- */

static void test_visible(void)
{
    static const struct {
        const char *text;
        int count; /* -1: refused */
        bool note;
        const char *what;
    } cases[] = {
        {NULL, 0, false, "unset"},
        {"", 0, false, "empty"},
        {"NoDevFiles", 0, false, "the word of old versions of Slurm"},
        {"-1", 0, false, "minus one"},
        {"0", 1, false, "one"},
        {"0,1", 2, false, "two"},
        {"3,0", 2, false, "in this order"},
        {"0, 1", 2, false, "with a blank"},
        {"2,2", -1, false, "a device twice"},
        {"0,,1", 1, true, "a hole ends the list"},
        {"0,", 1, true, "so does a comma at the end"},
        {"0,-1,2", 1, true, "and a negative number"},
        {"-1,0", 0, true, "also in front"},
        {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", 1, false, "a UUID"},
        {"MIG-GPU-8932f937/1/0,MIG-a1", 2, false, "partitions of a device"},
        {"GPU-a1,GPU-a1", -1, false, "a UUID twice"},
        {"0,GPU-a1", -1, false, "numbers and UUIDs"},
        {"abc", -1, false, "a word"},
        {"0x1", -1, false, "hexadecimal"},
        {"1.5", -1, false, "a fraction"},
        {"99999999999", -1, false, "a huge number"},
        {"GPU-", -1, false, "a UUID without digits"},
    };
    struct ls_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_visible v;
        struct ls_error err = {0};
        enum ls_status status = ls_visible_parse(cases[i].text, &arena, &v, &err);
        bool pass =
            cases[i].count < 0
                ? status == LS_ERR_FORMAT && strstr(err.message, "CUDA_VISIBLE_DEVICES") && !v.set
                : status == LS_OK && v.count == cases[i].count &&
                      v.set == (cases[i].text != NULL) && (v.note[0] != 0) == cases[i].note;
        if (!tap_ok(pass, "CUDA_VISIBLE_DEVICES: %s", cases[i].what))
            tap_note("%d %d %s %s", (int)status, v.count, v.note, err.message);
    }
    struct ls_visible v;
    ls_visible_parse("3,0", &arena, &v, NULL);
    tap_ok(v.index && v.index[0] == 3 && v.index[1] == 0 && !v.uuid, "numbers in order");
    ls_visible_parse("GPU-b,GPU-a", &arena, &v, NULL);
    tap_ok(v.uuid && !strcmp(v.uuid[0], "GPU-b") && !v.index, "UUIDs in order");
    ls_arena_free(&arena);

    int device = -1;
    struct ls_error err = {0};
    tap_ok(ls_visible_choose(1, 3, 4, &device, &err) == LS_OK && device == 0,
           "one visible device is device 0 for every local rank");
    tap_ok(ls_visible_choose(4, 3, 4, &device, &err) == LS_OK && device == 3,
           "four of them are by local rank");
    tap_ok(ls_visible_choose(2, 3, 4, &device, &err) == LS_ERR_ENV &&
               strstr(err.message, "--gpus-per-node=4") && device == 3,
           "two for four tasks are an error that says what to ask for");
    err = (struct ls_error){0};
    tap_ok(ls_visible_choose(0, 0, 1, &device, &err) == LS_ERR_ENV &&
               strstr(err.message, "allocated"),
           "no device is an error");
}

int main(void)
{
    test_good();
    test_bad();
    test_find();
    test_fold();
    test_round_trips();
    test_runs();
    test_visible();
    return tap_done();
}
