/* The same lists as Slurm: thousands of random ones are expanded by `scontrol show hostnames`, and what
 * we fold is expanded by it, too. One call takes many lists, with marks between them. */
#include "tests/tap.h"
#include "topo/topo.h"

#include <string.h>
#include <unistd.h>

#define LISTS 4000
/* The kernel takes 128 KiB in one argument. */
#define BATCH_MAX 100000

static uint64_t seed;

static int draw(int n)
{
    return (int)(ls_mix64(3, seed++) % (uint64_t)n);
}

static void add_bracket(struct ls_buf *buf)
{
    ls_buf_add(buf, "[", 1);
    for (int ranges = 1 + draw(3), k = 0; k < ranges; k++) {
        int low = draw(3) ? draw(12) : draw(1200), width = draw(2) ? 0 : draw(6);
        ls_buf_printf(buf, "%s%0*d", k ? "," : "", width, low);
        if (draw(2)) {
            /* Slurm takes the width from the first number alone. */
            int other = draw(4) ? width : draw(6);
            ls_buf_printf(buf, "-%0*d", other, low + draw(6));
        }
    }
    ls_buf_add(buf, "]", 1);
}

/* Only what every version of Slurm reads: no text behind the last bracket. */
static void random_list(struct ls_buf *buf)
{
    static const char *const texts[] = {"n", "rack", "node-", "x.y_", "a1b", "N0", "cpu-"};
    static const char *const commas[] = {",", ",", ",", ",,", " ", "\t"};
    for (int entries = 1 + draw(4), i = 0; i < entries; i++) {
        int brackets = draw(4);
        if (i)
            ls_buf_printf(buf, "%s", commas[draw(6)]);
        ls_buf_printf(buf, "%s", texts[draw(7)]);
        for (int b = 0; b < brackets; b++) {
            if (b && draw(2))
                ls_buf_printf(buf, "%s", texts[draw(7)]);
            add_bracket(buf);
        }
        if (!brackets && draw(2))
            ls_buf_printf(buf, "%0*d", draw(4), draw(200));
    }
}

/* Runs scontrol on `lists`; false when it fails. */
static bool run_scontrol(const char *lists, struct ls_buf *out)
{
    struct ls_buf command;
    char block[65536];
    ls_buf_init(&command, (size_t)1 << 20);
    ls_buf_printf(&command, "scontrol show hostnames '%s' 2>&1", lists);
    FILE *pipe = popen(command.data, "r");
    ls_buf_free(&command);
    ls_buf_init(out, (size_t)1 << 28);
    if (!pipe)
        return false;
    for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;)
        ls_buf_add(out, block, n);
    return pclose(pipe) == 0 && out->data && !out->failed;
}

/* Our own expansion of `list`, and the list that it folds to. */
static bool expand(const char *list, struct ls_buf *names, struct ls_buf *folded)
{
    struct ls_hostlist parsed;
    struct ls_error err = {0};
    if (ls_hostlist_parse(list, &parsed, &err) != LS_OK) {
        tap_note("'%s': %s", list, err.message);
        return false;
    }
    ls_hostlist_expand(&parsed, '\n', names);
    const char **lines = calloc((size_t)parsed.count, sizeof *lines);
    char *copy = strdup(names->data), *save = NULL;
    int n = 0;
    if (lines && copy)
        for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            lines[n++] = line;
    bool good =
        lines && copy && n == parsed.count && ls_hostlist_fold(lines, n, folded, &err) == LS_OK;
    if (!good)
        tap_note("'%s': %s", list, err.message);
    free(copy);
    free(lines);
    ls_hostlist_free(&parsed);
    return good;
}

/* Compares text at *at with the names, behind which the mark must follow. */
static bool matches(const char **at, const struct ls_buf *names, const char *mark)
{
    bool same = strncmp(*at, names->data, names->len) == 0 &&
                strncmp(*at + names->len, mark, strlen(mark)) == 0;
    const char *end = strstr(*at, mark);
    *at = end ? end + strlen(mark) : *at + strlen(*at);
    return same;
}

/* Makes random lists until the argument is full; returns how many, or -1 when one differs. */
static int compare_batch(int room)
{
    static const char mark[] = "xmarkx";
    struct ls_buf lists, names[512], output = {0};
    int n = 0;
    bool good = true;
    ls_buf_init(&lists, (size_t)1 << 18);
    for (; n < room && n < 512 && good; n++) {
        struct ls_buf list, folded;
        ls_buf_init(&list, 4096);
        ls_buf_init(&folded, (size_t)1 << 18);
        ls_buf_init(&names[n], (size_t)1 << 24);
        random_list(&list);
        good = expand(list.data, &names[n], &folded);
        bool fits = good && lists.len + list.len + folded.len + 64 < BATCH_MAX;
        if (fits)
            ls_buf_printf(&lists, "%s,%s,%s,%s,", list.data, mark, folded.data, mark);
        ls_buf_free(&list);
        ls_buf_free(&folded);
        if (!fits) {
            ls_buf_free(&names[n]);
            break;
        }
    }
    good = good && n > 0 && run_scontrol(lists.data, &output);
    const char *at = good ? output.data : "";
    for (int i = 0; i < n && good; i++) {
        const char *start = at;
        if (!matches(&at, &names[i], "xmarkx\n") || !matches(&at, &names[i], "xmarkx\n")) {
            tap_note("Slurm has %.300s", start);
            tap_note("we have %.300s", names[i].data);
            good = false;
        }
    }
    for (int i = 0; i < n; i++)
        ls_buf_free(&names[i]);
    ls_buf_free(&lists);
    ls_buf_free(&output);
    return good ? n : -1;
}

/* A word that both must understand in the same way, or we refuse. */
static void compare_one(const char *list, bool same)
{
    struct ls_buf output, names;
    struct ls_hostlist parsed;
    struct ls_error err = {0};
    ls_buf_init(&names, (size_t)1 << 24);
    bool ran = run_scontrol(list, &output);
    bool ours = ls_hostlist_parse(list, &parsed, &err) == LS_OK;
    if (ours)
        ls_hostlist_expand(&parsed, '\n', &names);
    tap_ok(same ? ran && ours && !strcmp(output.data, names.data) : !ours,
           same ? "'%.40s' is the same in Slurm" : "'%.40s' is refused, whatever Slurm makes of it",
           list);
    ls_buf_free(&output);
    ls_buf_free(&names);
    ls_hostlist_free(&parsed);
}

int main(void)
{
    char folder[] = "/tmp/lockstep-scontrol-XXXXXX", conf[64];
    if (system("command -v scontrol >/dev/null") != 0)
        tap_skip_all("no scontrol here; install slurm-client to compare hostlists with Slurm");
    if (!mkdtemp(folder))
        return 1;
    snprintf(conf, sizeof conf, "%s/slurm.conf", folder);
    FILE *file = fopen(conf, "w");
    if (!file || fputs("ClusterName=x\nSlurmctldHost=localhost\n", file) < 0 || fclose(file))
        return 1;
    setenv("SLURM_CONF", conf, 1);

    int done = 0, n = 0;
    while (done < LISTS && (n = compare_batch(LISTS - done)) > 0)
        done += n;
    tap_ok(done == LISTS, "%d random lists, and what they fold to, are the same in Slurm", LISTS);
    static const char *const same[] = {"n[1-65536]", "n[005-5]",  "[1-3]",
                                       "a b",        "n[1-2],,m", "n[1-2][3-4][5-6][7-8]"};
    static const char *const refused[] = {"n[1-65537]", "n[1-2", "n1]", "n[1-]", "n[+1]", "n[3-1]"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        compare_one(same[i], true);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        compare_one(refused[i], false);
    unlink(conf);
    rmdir(folder);
    return tap_done();
}
