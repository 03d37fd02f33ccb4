/* `lockstep init`: writes a commented job description to start from. Each template must read back
 * without a problem (tests/job/test_templates does that), so a new key needs no change here. */
#include "cli/cli.h"
#include "cli/templates.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: lockstep init [OPTION]... [NAME [FILE]]\n"
    "Write a commented job description to FILE (NAME.cfg; - is the standard output).\n"
    "NAME is the template to start from (mlp).\n"
    "\n"
    "  -l, --list   list the templates\n"
    "  -f, --force  replace FILE if it is there\n"
    "  -h, --help   show this help\n"
    "\n"
    "The keys are described in lockstep.cfg(5).\n";

static int list(void)
{
    for (int i = 0; i < ls_cli_ntemplates; i++)
        printf("%-10s %s\n", ls_cli_templates[i].name, ls_cli_templates[i].summary);
    return LS_EXIT_OK;
}

static const struct ls_cli_template *find(const char *name)
{
    for (int i = 0; i < ls_cli_ntemplates; i++)
        if (!strcmp(ls_cli_templates[i].name, name))
            return &ls_cli_templates[i];
    return NULL;
}

/* Without force, the file must not be there: O_EXCL leaves no moment between looking and writing. */
static enum ls_status write_new(const char *path, const char *text, struct ls_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return ls_error_set(err, LS_ERR_BUSY,
                            "found %s, expected no such file; choose another name or add --force",
                            path);
    if (fd < 0)
        return ls_error_errno(err, errno, "creating %s", path);
    enum ls_status status = ls_file_write_all(fd, text, strlen(text), path, err);
    if (close(fd) != 0 && status == LS_OK)
        status = ls_error_errno(err, errno, "closing %s", path);
    if (status != LS_OK)
        unlink(path);
    return status;
}

static int write_template(const struct ls_cli_template *template, const char *path, bool force)
{
    struct ls_error err = {0};
    if (!strcmp(path, "-")) {
        fputs(template->text, stdout);
        return fflush(stdout) == 0 && !ferror(stdout) ? LS_EXIT_OK : LS_EXIT_FAILED;
    }
    enum ls_status status =
        force ? ls_file_replace(path, template->text, strlen(template->text), &err)
              : write_new(path, template->text, &err);
    if (status != LS_OK) {
        ls_cli_error("init: %s", err.message);
        return ls_cli_exit_code(status);
    }
    printf("wrote %s; look at it, then: lockstep run %s\n", path, path);
    return LS_EXIT_OK;
}

int ls_cli_init(int argc, char **argv)
{
    static const struct option longs[] = {{"list", no_argument, NULL, 'l'},
                                          {"force", no_argument, NULL, 'f'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    bool force = false;
    for (int c; (c = getopt_long(argc, argv, "lfh", longs, NULL)) != -1;)
        switch (c) {
        case 'l':
            return list();
        case 'f':
            force = true;
            break;
        case 'h':
            fputs(help, stdout);
            return LS_EXIT_OK;
        default:
            return ls_cli_usage("init", NULL, "");
        }
    if (argc - optind > 2)
        return ls_cli_usage(
            "init", "found too many arguments, expected a template and a file: ", argv[optind + 2]);
    const char *name = argc > optind ? argv[optind] : "mlp";
    const struct ls_cli_template *template = find(name);
    if (!template)
        return ls_cli_usage(
            "init",
            "found no template of this name, expected one of 'lockstep init --list': ", name);
    char path[64];
    snprintf(path, sizeof path, "%s.cfg", template->name);
    return write_template(template, argc > optind + 1 ? argv[optind + 1] : path, force);
}
