/* What several commands share: messages, exit codes, finding plugins, reading a job description. */
#include "cli/cli.h"
#include "keep/keep.h"
#include "topo/topo.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ls_cli_exit_code(enum ls_status status)
{
    switch (status) {
    case LS_OK:
        return LS_EXIT_OK;
    case LS_ERR_USAGE:
        return LS_EXIT_USAGE;
    case LS_ERR_ENV:
        return LS_EXIT_ENV;
    case LS_ERR_TIMEOUT:
        return LS_EXIT_TIMEOUT;
    default:
        return LS_EXIT_FAILED;
    }
}

void ls_cli_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("lockstep: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

int ls_cli_usage(const char *command, const char *what, const char *detail)
{
    if (what)
        ls_cli_error("%s: %s%s", command, what, detail);
    fprintf(stderr, "Try 'lockstep %s --help'.\n", command);
    return LS_EXIT_USAGE;
}

/* The folder of the running program; false: /proc does not tell. */
static bool program_folder(char dir[static LS_CLI_PATH])
{
    ssize_t n = readlink("/proc/self/exe", dir, LS_CLI_PATH - 1);
    char *slash = n > 0 ? (dir[n] = '\0', strrchr(dir, '/')) : NULL;
    if (slash)
        *slash = '\0';
    return slash;
}

/* malloc'd: `name` in `beside`, a folder below the running program's; or in `installed`, a folder of the installation
 * that this program is in, wherever that has been moved to; or where it was meant to be. NULL: in none of these. */
static char *find_part(const char *beside, const char *installed, const char *name, int mode)
{
    /* Programs for people are in the one, those that they start in the other. */
    static const char *const homes[] = {LS_BINDIR, LS_LIBEXECDIR};
    char dir[LS_CLI_PATH], folder[LS_CLI_PATH], path[2 * LS_CLI_PATH];
    if (program_folder(dir)) {
        snprintf(path, sizeof path, "%s%s%s", dir, beside, name);
        if (access(path, mode) == 0)
            return strdup(path);
        for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
            if (!ls_cli_relocate(dir, homes[i], installed, folder))
                continue;
            snprintf(path, sizeof path, "%s%s", folder, name);
            if (access(path, mode) == 0)
                return strdup(path);
        }
    }
    snprintf(path, sizeof path, "%s%s", installed, name);
    return access(path, mode) == 0 ? strdup(path) : NULL;
}

char *ls_cli_plugin_dir(void)
{
    const char *set = getenv("LOCKSTEP_PLUGIN_DIR");
    if (set && *set)
        return strdup(set);
    /* In the build tree they are in plugins/, beside the program. */
    char *dir = find_part("/plugins", LS_PKGLIBDIR, "", R_OK | X_OK);
    return dir ? dir : strdup(LS_PKGLIBDIR);
}

char *ls_cli_program_path(const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "/%s", name);
    char *path = find_part("", LS_LIBEXECDIR, file, X_OK);
    if (!path)
        ls_cli_error(
            "the program %s is neither beside this one, nor in the same place relative to it as in "
            "an installation, nor in %s: is the installation complete?",
            name, LS_LIBEXECDIR);
    return path;
}

bool ls_cli_number(const char *text, int *value)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || *end || end == text || v < 1 || v > 65536)
        return false;
    *value = (int)v;
    return true;
}

bool ls_cli_is_first_task(void)
{
    const char *rank = getenv("SLURM_PROCID");
    return !rank || !strcmp(rank, "0");
}

void ls_cli_warn_of_writers(const char *path)
{
    struct stat s;
    if (stat(path, &s) == 0 && S_ISREG(s.st_mode) && s.st_mode & S_IWOTH)
        ls_cli_error("warning: %s can be written by everybody, and names files that are read and "
                     "removed in your name; say chmod o-w",
                     path);
}

int ls_cli_read_job(const char *path, const char *const *sets, int nsets, struct ls_job **job)
{
    struct ls_error err = {0};
    struct ls_buf problems;
    ls_buf_init(&problems, (size_t)1 << 20);
    enum ls_status status = ls_job_read(path, sets, nsets, job, &problems, &err);
    if (status != LS_OK) {
        if (problems.data)
            fputs(problems.data, stderr);
        ls_cli_error("%s", err.message);
    } else if (!getenv(LS_RECORD_FD_VARIABLE)) /* a keeper above has said it */
        ls_cli_warn_of_writers(path);
    ls_buf_free(&problems);
    return status == LS_OK ? LS_EXIT_OK : LS_EXIT_USAGE;
}

/* A setting of our own, and listed as such: ranks with other CPUs have other ones, and may. */
static void set_own(const char *name, const char *value, bool always)
{
    const char *set = getenv(LS_TOPO_SET_VARIABLE);
    struct ls_buf list;
    if (getenv(name) && !always)
        return;
    ls_buf_init(&list, (size_t)1 << 17);
    ls_buf_printf(&list, "%s%s%s=%s", set ? set : "", set && *set ? ";" : "", name, value);
    setenv(name, value, 1);
    if (!list.failed)
        setenv(LS_TOPO_SET_VARIABLE, list.data, 1);
    ls_buf_free(&list);
}

void ls_cli_prepare_threads(int count)
{
    char threads[16];
    /* Fork and join of a parallel region cost microseconds only while the other threads spin; but they
     * must not spin long where something else needs the core. Measured on the MLP template with 2 threads:
     * 5000 turns (some 0.2 ms) are as fast as spinning for ever on an idle machine, and 1.4 times as fast
     * as 500; under a load of 6 they still give 16,000 samples/s, where 50000 gave 2,600. */
    if (!getenv("OMP_WAIT_POLICY"))
        set_own("GOMP_SPINCOUNT", "5000", false);
    /* A thread on each CPU stays there, with its share of the weights in that core's cache. Fewer threads
     * than CPUs share them with others, and must be free to move. */
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == count)
        set_own("OMP_PROC_BIND", "true", false);
    set_own("OMP_DYNAMIC", "false", false);
    snprintf(threads, sizeof threads, "%d", count);
    set_own("OMP_NUM_THREADS", threads, true);
}

const char *ls_cli_all_reduce(const struct ls_job *job)
{
    static const char *const words[] = {[LS_REDUCE_AUTO] = "auto",
                                        [LS_REDUCE_STAGED] = "staged",
                                        [LS_REDUCE_EXCHANGE] = "exchange",
                                        [LS_REDUCE_HALVING] = "halving",
                                        [LS_REDUCE_RING] = "ring"};
    return words[job->parallel.all_reduce];
}
