/* `lockstep hosts`: expands, counts and folds Slurm's lists of hosts, as the launcher reads them. */
#include "cli/cli.h"
#include "topo/topo.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* As many names of the greatest length as a list can have. */
#define TEXT_MAX ((size_t)LS_HOSTLIST_MAX * (LS_HOSTLIST_NAME_MAX + 2))

static const char help[] =
    "Usage: lockstep hosts expand LIST...\n"
    "       lockstep hosts count LIST...\n"
    "       lockstep hosts fold LIST...\n"
    "Work with Slurm's lists of hosts, such as 'n[001-003,7],login'. Nothing is looked up.\n"
    "\n"
    "  expand       print the names, one a line, in the order in which Slurm numbers the nodes\n"
    "  count        print how many there are\n"
    "  fold         print the shortest list for these names in this order\n"
    "  -h, --help   show this help\n"
    "\n"
    "A LIST of '-' is read from standard input, where lines and blanks separate names, too.\n"
    "Quote lists: the shell has brackets of its own.\n";

static int fail(const struct ls_error *err)
{
    ls_cli_error("hosts: %s", err->message);
    /* A list that cannot be read is a command line that cannot be taken as it is. */
    return err->status == LS_ERR_FORMAT || err->status == LS_ERR_OVERFLOW
               ? LS_EXIT_USAGE
               : ls_cli_exit_code(err->status);
}

static enum ls_status read_input(struct ls_buf *text, struct ls_error *err)
{
    char block[65536];
    size_t n;
    ls_buf_init(text, TEXT_MAX);
    while ((n = fread(block, 1, sizeof block, stdin)) > 0) {
        if (memchr(block, '\0', n))
            return ls_error_set(err, LS_ERR_FORMAT,
                                "standard input has a byte 0x00, expected names of hosts");
        ls_buf_add(text, block, n);
    }
    if (ferror(stdin))
        return ls_error_set(err, LS_ERR_IO, "cannot read standard input");
    if (text->failed)
        return ls_error_set(err, LS_ERR_OVERFLOW,
                            "standard input has more than %zu bytes, the most that a list needs",
                            TEXT_MAX);
    return LS_OK;
}

/* Counts one LIST, and adds its names, a line each, unless `names` is NULL. */
static enum ls_status add_list(const char *arg, int64_t *count, struct ls_buf *names,
                               struct ls_error *err)
{
    struct ls_buf input = {0};
    struct ls_hostlist list = {0};
    bool from_input = !strcmp(arg, "-");
    enum ls_status status = from_input ? read_input(&input, err) : LS_OK;
    if (status == LS_OK)
        status = ls_hostlist_parse(from_input ? (input.data ? input.data : "") : arg, &list, err);
    if (status != LS_OK && from_input)
        ls_error_context(err, "standard input");
    *count += list.count;
    if (names)
        ls_hostlist_expand(&list, '\n', names);
    if (status == LS_OK && names && names->failed)
        status = ls_error_set(err, LS_ERR_OVERFLOW,
                              "the names are more than %zu bytes; give fewer lists", TEXT_MAX);
    ls_hostlist_free(&list);
    ls_buf_free(&input);
    return status;
}

/* Cuts the lines of `names` apart and folds them. */
static enum ls_status fold(struct ls_buf *names, int count, struct ls_buf *out,
                           struct ls_error *err)
{
    const char **lines = calloc((size_t)count, sizeof *lines);
    if (!lines)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for %d names", count);
    char *at = names->data;
    for (int i = 0; i < count; i++) {
        char *end = strchr(at, '\n');
        *end = '\0';
        lines[i] = at;
        at = end + 1;
    }
    enum ls_status status = ls_hostlist_fold(lines, count, out, err);
    free(lines);
    if (status == LS_OK)
        ls_buf_add(out, "\n", 1);
    return status;
}

static int work(const char *verb, char **lists, int n)
{
    struct ls_error err = {0};
    struct ls_buf names, out;
    int64_t count = 0;
    bool counts = !strcmp(verb, "count");
    enum ls_status status = LS_OK;
    ls_buf_init(&names, TEXT_MAX);
    ls_buf_init(&out, TEXT_MAX);
    for (int i = 0; i < n && status == LS_OK; i++)
        status = add_list(lists[i], &count, counts ? NULL : &names, &err);
    if (status == LS_OK && counts)
        ls_buf_printf(&out, "%lld\n", (long long)count);
    else if (status == LS_OK && !strcmp(verb, "fold"))
        status = fold(&names, (int)count, &out, &err); /* as many as lines in TEXT_MAX bytes */
    const struct ls_buf *text = !strcmp(verb, "expand") ? &names : &out;
    if (status == LS_OK && text->failed)
        status = ls_error_set(&err, LS_ERR_NOMEM, "no memory for the names");
    if (status == LS_OK &&
        (fwrite(text->data, 1, text->len, stdout) != text->len || fflush(stdout)))
        status = ls_error_errno(&err, errno, "cannot write to standard output");
    ls_buf_free(&names);
    ls_buf_free(&out);
    return status == LS_OK ? LS_EXIT_OK : fail(&err);
}

int ls_cli_hosts(int argc, char **argv)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {0}};
    static const char *const verbs[] = {"expand", "count", "fold"};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c != 'h')
            return ls_cli_usage("hosts", NULL, NULL);
        fputs(help, stdout);
        return LS_EXIT_OK;
    }
    if (optind == argc)
        return ls_cli_usage("hosts", "found no verb, expected expand, count or fold", "");
    const char *verb = argv[optind++];
    bool known = false;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        known |= !strcmp(verb, verbs[i]);
    if (!known) {
        ls_cli_error("hosts: found '%s', expected expand, count or fold", verb);
        return ls_cli_usage("hosts", NULL, NULL);
    }
    if (optind == argc)
        return ls_cli_usage("hosts", "found no list, expected at least one", "");
    return work(verb, argv + optind, argc - optind);
}
