/* What the commands that start ranks share. */
#include "cli/launch.h"
#include "cli/cli.h"
#include "keep/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* A mask that leaves out CPUs of this machine is somebody's decision: is it the one that was asked for? Slurm's
 * plugin, where it is, has asked that already. */
static enum ls_status check_mask(struct ls_slurm *slurm, struct ls_error *err)
{
    cpu_set_t mask;
    if (getenv("LOCKSTEP_SPANK") || sched_getaffinity(0, sizeof mask, &mask) != 0 ||
        CPU_COUNT(&mask) >= sysconf(_SC_NPROCESSORS_ONLN))
        return LS_OK;
    return ls_slurm_check_cpus(slurm, CPU_COUNT(&mask), err);
}

enum ls_status ls_cli_read_slurm(struct ls_slurm *slurm, struct ls_error *err)
{
    LS_TRY(ls_slurm_read(read_env, NULL, slurm, err));
    enum ls_status status = check_mask(slurm, err);
    for (int i = 0; i < slurm->nwarnings && slurm->proc_id <= 0; i++)
        ls_cli_error("warning: %s", slurm->warnings[i]);
    if (status != LS_OK)
        ls_slurm_free(slurm);
    return status;
}

enum ls_status ls_cli_ask_slurm(struct ls_slurm *slurm, struct ls_error *err)
{
    return ls_slurm_read(read_env, NULL, slurm, err);
}

const char *ls_cli_tmpdir(void)
{
    const char *tmpdir = getenv("TMPDIR");
    return tmpdir && *tmpdir ? tmpdir : "/tmp";
}

void ls_cli_name_run(const struct ls_slurm *slurm, char out[static 64])
{
    if (slurm->place == LS_SLURM_STEP)
        snprintf(out, 64, "%lld.%lld", (long long)slurm->job_id, (long long)slurm->step_id);
    else
        snprintf(out, 64, "%d", (int)getpid());
}

/* ---- signals ---- */

/* The write end of the pipe through which signals reach the keeper's loop; set once, as is the next. */
static int signal_pipe = -1;
/* The slurmstepd above, if it signals not only its tasks but all their descendants; 0: none does. */
static pid_t signals_all;
/* The keepers have met: until then the loop does not run that reads the pipe. */
static volatile sig_atomic_t begun;
/* With what SIGUSR1 ends a task before that. */
static volatile sig_atomic_t code_of_usr1;

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (!begun)
        _exit(sig == SIGUSR1 ? code_of_usr1 : 128 + sig);
    unsigned char byte = (unsigned char)sig;
    if (info->si_code == SI_KERNEL)
        byte |= LS_KEEP_AT_TERMINAL;
    else if (signals_all && info->si_pid == signals_all)
        byte |= LS_KEEP_AT_RANKS;
    int keep = errno;
    if (write(signal_pipe, &byte, 1) < 0) {
        /* The pipe is full of signals already: nothing is lost. */
    }
    errno = keep;
}

/* Name and parent of a process, from /proc/PID/stat: "1 (name) S parent ...". */
static bool read_process(pid_t pid, char name[static 64], pid_t *parent)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    int above;
    if (!open || !close || sscanf(close, ") %*c %d", &above) != 1)
        return false;
    snprintf(name, 64, "%.*s", (int)(close - open - 1), open + 1);
    *parent = above;
    return true;
}

/* Does Slurm track this step by a cgroup? Then it signals only its tasks, that is us (not tried here: the test
 * cluster has no cgroups); with proctrack/linuxproc everything below them, too (seen). Version 1 says so in the
 * line of its freezer. */
static bool tracked_by_cgroup(void)
{
    char line[4200];
    bool found = false;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = strstr(line, "/step_") && (strstr(line, ":freezer:") || !strncmp(line, "0::", 3));
    if (f)
        fclose(f);
    return found;
}

static pid_t find_stepd(void)
{
    char name[64];
    pid_t pid = getppid();
    for (pid_t above; pid > 1 && read_process(pid, name, &above); pid = above)
        if (!strncmp(name, "slurmstepd", 10))
            return pid;
    return 0;
}

int ls_cli_hear_signals(const int *signals, const struct ls_slurm *slurm)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    signal_pipe = fds[1];
    if (slurm && slurm->place == LS_SLURM_STEP && !tracked_by_cgroup())
        signals_all = find_stepd();
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (; *signals; signals++)
        sigaction(*signals, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return fds[0];
}

/* ---- the keeper ---- */

enum ls_status ls_cli_keep(struct ls_keep_config config, const int *signals,
                           const struct ls_slurm *slurm, int *code)
{
    struct ls_error err = {0};
    /* Our own workers come back after it; what another program does with it is its own affair. */
    code_of_usr1 = config.programs ? 128 + SIGUSR1 : LS_EXIT_REQUEUE;
    config.begun = &begun;
    ls_cli_tell_check(&config);
    int fd = ls_cli_hear_signals(signals, slurm);
    if (fd < 0) {
        ls_cli_error("cannot watch for signals: %s", strerror(errno));
        return LS_ERR_IO;
    }
    config.tmpdir = ls_cli_tmpdir();
    config.out = stderr;
    enum ls_status status = ls_keep_run(&config, fd, code, &err);
    if (status != LS_OK && err.message[0])
        ls_cli_error("%s", err.message);
    return status;
}

/* A name with another job in it is inherited. */
bool ls_cli_others_wait(void)
{
    static const char head[] = "slurm.pmix.";
    const char *nspace = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID");
    size_t n = sizeof head - 1;
    if (!nspace || strncmp(nspace, head, n) != 0)
        return false;
    return !job || (!strncmp(nspace + n, job, strlen(job)) && nspace[n + strlen(job)] == '.');
}

enum ls_status ls_cli_give_up(const struct ls_error *why, const int *signals)
{
    const struct ls_slurm unknown = {.proc_id = -1};
    int code;
    if (!ls_cli_others_wait()) {
        ls_cli_error("%s", why->message);
        return why->status;
    }
    return ls_cli_keep((struct ls_keep_config){.refusal = why,
                                               .step = &unknown,
                                               .host = getenv("SLURMD_NODENAME")},
                       signals, NULL, &code);
}

/* ---- in a step: PMIx must know the other tasks ---- */

/* What `srun --mpi=list` says, for the message; NULL if there is no srun. */
static char *mpi_list(void)
{
    static char text[1024];
    FILE *f = popen("srun --mpi=list 2>&1", "re");
    if (!f)
        return NULL;
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    return pclose(f) == 0 && n ? text : NULL;
}

bool ls_cli_step_has_pmix(const struct ls_slurm *slurm)
{
    if (getenv("PMIX_NAMESPACE") || slurm->ntasks == 1)
        return true;
    struct ls_error err = {0};
    struct ls_pmix_view none = {.found = false};
    ls_slurm_check_pmix(slurm, &none, slurm->proc_id == 0 ? mpi_list() : NULL, &err);
    /* With a rank but no server it was taken from this task alone: the others have theirs, and wait. */
    if (slurm->proc_id == 0)
        ls_cli_error("%s", err.message);
    else if (getenv("PMIX_RANK"))
        ls_cli_error(
            "task %d: PMIX_RANK is set, and PMIX_NAMESPACE is not: something has unset it in "
            "this task, and the others wait for it",
            slurm->proc_id);
    return false;
}

/* ---- in an allocation: start our own step ---- */

/* What srun(1) would read from here, set by sbatch, salloc or an earlier step: how many tasks, where, and which
 * CPUs, memory and GPUs each gets. Our step has one task on every node, and all that the job has there. What was
 * asked of the job as a whole (GPUs per node, memory, its partition) stays. */
static const char *const leaks[] = {
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK",
    "SLURM_CPUS_PER_GPU",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_TRES_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_MEM_BIND",
    "SLURM_MEM_BIND_LIST",
    "SLURM_MEM_BIND_PREFER",
    "SLURM_MEM_BIND_SORT",
    "SLURM_MEM_BIND_TYPE",
    "SLURM_MEM_BIND_VERBOSE",
    "SLURM_GPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_HOSTFILE",
    "SLURM_ARBITRARY_NODELIST",
    "SLURM_HINT",
    "SLURM_THREADS_PER_CORE",
    "SLURM_EXACT",
    "SLURM_OVERCOMMIT",
    "SLURM_SPREAD_JOB",
    "SLURM_USE_MIN_NODES",
};

/* As a shell reads it back. */
static void add_word(struct ls_buf *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=:,./@%^";
    if (*word && !word[strspn(word, plain)]) {
        ls_buf_printf(out, " %s", word);
        return;
    }
    ls_buf_printf(out, " '");
    for (; *word; word++)
        if (*word == '\'')
            ls_buf_printf(out, "'\\''");
        else
            ls_buf_add(out, word, 1);
    ls_buf_printf(out, "'");
}

/* The line for whoever wants to write it into a script; it does what happens now. */
static void say_line(const char *const *line)
{
    struct ls_buf out;
    bool first = true;
    ls_buf_init(&out, (size_t)4 << 20);
    ls_buf_printf(&out, "in an allocation, starting:");
    for (size_t i = 0; i < sizeof leaks / sizeof *leaks; i++)
        if (getenv(leaks[i])) {
            ls_buf_printf(&out, "%s -u %s", first ? " env" : "", leaks[i]);
            first = false;
        }
    for (; *line; line++)
        add_word(&out, *line);
    fprintf(stderr, "%s\n", out.data ? out.data : "srun");
    ls_buf_free(&out);
}

#define MOST_FLAGS 16

/* A job that asked for GPUs per task gives its steps as many for each of theirs (seen on 22.05), and ours have fewer:
 * all that it has must be asked for in one number. NULL: nothing has to be said; *bad: it cannot be. */
static const char *ask_for_gpus(const struct ls_slurm *slurm, struct ls_arena *arena, bool *bad)
{
    const char *each = getenv("SLURM_GPUS_PER_TASK"); /* [type:]number */
    if (!each || !*each || getenv("SLURM_GPUS"))
        return NULL;
    const char *colon = strrchr(each, ':'), *number = colon ? colon + 1 : each;
    char *end;
    long n = strtol(number, &end, 10);
    *bad = *end || end == number || n < 1 || n > 1024 || strchr(each, ',') || slurm->ntasks < 1;
    if (!*bad)
        return ls_arena_printf(arena, "--gpus=%.*s%lld", (int)(number - each), each,
                               (long long)n * slurm->ntasks);
    ls_cli_error(
        "SLURM_GPUS_PER_TASK=%s for %d tasks: how many GPUs the job has cannot be worked out; "
        "ask for them by --gpus-per-node, or write the srun line yourself",
        each, slurm->ntasks);
    return NULL;
}

/* The line as words; NULL after an error, which was printed. */
static const char **write_line(const struct ls_slurm *slurm, const char *command, char *const *argv,
                               struct ls_arena *arena)
{
    int argc = 0, n = 0, nodes = slurm->nodes.count;
    char exe[4096];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    while (argv[argc])
        argc++;
    bool bad = false;
    const char *gpus = ask_for_gpus(slurm, arena, &bad);
    if (bad)
        return NULL;
    const char **line = ls_arena_alloc(arena, ((size_t)argc + MOST_FLAGS) * sizeof *line);
    if (!line || len <= 0) {
        ls_cli_error("cannot start a step: no memory, or no /proc");
        return NULL;
    }
    exe[len] = '\0';
    line[n++] = "srun";
    line[n++] = "--mpi=pmix";
    line[n++] = ls_arena_printf(arena, "--nodes=%d", nodes);
    line[n++] = ls_arena_printf(arena, "--ntasks=%d", nodes);
    line[n++] = "--ntasks-per-node=1";
    /* Where nodes have different numbers, none fits: without one the step has all CPUs of each (seen). */
    if (slurm->cpus_per_node > 0)
        line[n++] = ls_arena_printf(arena, "--cpus-per-task=%d", slurm->cpus_per_node);
    if (gpus)
        line[n++] = gpus;
    line[n++] = "--cpu-bind=none";
    line[n++] = "--kill-on-bad-exit=0";
    line[n++] = "--disable-status"; /* Ctrl-C is for us; srun itself would only print a report */
    /* All tasks end together. One that stands still then would keep the step for ever. */
    line[n++] = "--wait=60";
    line[n++] = ls_arena_strdup(arena, exe);
    line[n++] = command;
    for (int i = 1; i < argc; i++)
        line[n++] = argv[i];
    line[n] = NULL;
    for (int i = 0; i < n; i++)
        if (!line[i]) {
            ls_cli_error("cannot start a step: no memory");
            return NULL;
        }
    return line;
}

/* One step of our own cannot span components of a heterogeneous job: only its owner knows which of them train. */
static bool refuse_components(const struct ls_slurm *slurm, const char *command)
{
    if (slurm->ncomponents < 2)
        return false;
    ls_cli_error(
        "job %lld is heterogeneous, with %d components: which of them take part only you can "
        "say; type: srun --mpi=pmix --het-group=0-%d --ntasks-per-node=1 --cpu-bind=none "
        "--kill-on-bad-exit=0 lockstep %s ...",
        (long long)slurm->job_id, slurm->ncomponents, slurm->ncomponents - 1, command);
    return true;
}

int ls_cli_start_step(const struct ls_slurm *slurm, const char *command, char *const *argv)
{
    struct ls_arena arena = {0};
    if (refuse_components(slurm, command))
        return LS_EXIT_ENV;
    const char **line = write_line(slurm, command, argv, &arena);
    if (!line) {
        ls_arena_free(&arena);
        return LS_EXIT_ENV;
    }
    say_line(line);
    for (size_t i = 0; i < sizeof leaks / sizeof *leaks; i++)
        unsetenv(leaks[i]);
    execvp("srun", (char *const *)line);
    ls_cli_error("cannot execute srun: %s", strerror(errno));
    ls_arena_free(&arena);
    return LS_EXIT_ENV;
}
