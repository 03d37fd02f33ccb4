/* The SPANK plugin under a program that plays Slurm: every hook in every process with hostile arguments,
 * options, environments and items; what it sets, and what it must leave alone. The module is opened
 * anew for each case, as Slurm does. */
#include "fake.h"

#include "base/base.h"
#include "tests/tap.h"

#include <dlfcn.h>
#include <sched.h>
#include <slurm/slurm.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char module_path[4096], root[] = "/tmp/lockstep-spank-XXXXXX";
static void *module;

static const char *const hooks[] = {"slurm_spank_init", "slurm_spank_init_post_opt",
                                    "slurm_spank_task_init_privileged", "slurm_spank_task_init",
                                    "slurm_spank_exit"};
enum { INIT, POST_OPT, LIMITS, TASK, EXIT, HOOKS };

/* ---- a plugin in a process ---- */

static struct fake *open_plugin(spank_context_t context)
{
    module = dlopen(module_path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        printf("Bail out! %s\n", dlerror());
        exit(1);
    }
    return fake_new(context);
}

static int hook(int which, int argc, char **argv)
{
    spank_f *f = NULL;
    *(void **)&f = dlsym(module, hooks[which]);
    fake->in_init = which == INIT;
    int rc = f((spank_t)fake, argc, argv);
    fake->in_init = false;
    return rc;
}

static void close_plugin(void)
{
    hook(EXIT, 0, NULL);
    dlclose(module);
    fake_free(fake);
}

/* Words of plugstack.conf, NULL at the end; copies, as Slurm owns them. */
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})
static char **copy_args(const char *const *words, int *argc)
{
    static char *args[16];
    *argc = 0;
    while (words && words[*argc] && *argc < 15) {
        args[*argc] = (char *)words[*argc];
        ++*argc;
    }
    return args;
}

static int start(spank_context_t context, const char *const *words)
{
    int argc;
    open_plugin(context);
    char **argv = copy_args(words, &argc);
    return hook(INIT, argc, argv);
}

/* slurmstepd up to the exec of its only task; what task_init returned. The other hooks must return 0. */
static int run_task(void)
{
    tap_ok(hook(POST_OPT, 0, NULL) == 0 && hook(LIMITS, 0, NULL) == 0,
           "the hooks before the task return 0");
    return hook(TASK, 0, NULL);
}

static int whole_task(const char *const *words, const char *option, const char *value)
{
    if (start(S_CTX_REMOTE, words) != 0)
        return 77;
    if (option)
        fake_option(fake, option, value);
    return run_task();
}

/* ---- a small node, stored ---- */

static void store(const char *path, const char *text)
{
    char full[512], folder[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = '\0';
    ls_dir_make(folder, NULL);
    FILE *f = fopen(full, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static char root_arg[64];

static void make_root(void)
{
    if (!mkdtemp(root))
        exit(1);
    snprintf(root_arg, sizeof root_arg, "root=%s", root);
    store("/sys/devices/system/cpu/online", "0-3\n");
    store("/proc/meminfo", "MemTotal: 16777216 kB\n");
    store("/etc/lockstep-site.conf", "enabled = no\n");
    store("/etc/good.conf", "# nothing\n");
    store("/etc/bad.conf", "enabeld = yes\n");
}

/* ---- hostile input ---- */

static const char *const bad_words[] = {
    "",
    "=",
    "enabled",
    "enabled=",
    "enabled=maybe",
    "enabeld=yes",
    "memlock=",
    "memlock=-1",
    "memlock=0",
    "memlock=99999999999999999999",
    "memlock=9223372036854775807GiB",
    "memlock=1kib",
    "nofile=unlimited",
    "nofile=1KiB",
    "site=relative",
    "site=",
    "root=x",
    "transport=udp",
    "bind=yes",
    "check=on",
    "%s%n%s%n=%n",
    "enabled=%s%n",
    "\xff\xfe=\x80",
};
static const char *const bad_files[] = {"site=/nonexistent/lockstep-site.conf", "site=/dev/zero",
                                        "site=/", "root=/nonexistent"};
static const char *const bad_values[] = {
    "",      " ",    "-1",     "0",     "33",    "1e1",  "0x1",    ":1",   "a:",   "a b:1",
    "a:1:x", "%s%n", "\xff:1", "99999", "auto ", "AUTO", "yes,no", "2;rm", "a,b:1"};
static const char *const option_names[] = {"lockstep-gpus",   "lockstep-transport",
                                           "lockstep-bind",   "lockstep-check",
                                           "lockstep-plugin", "lockstep-explain"};
static const spank_context_t contexts[] = {S_CTX_LOCAL,  S_CTX_ALLOCATOR,  S_CTX_REMOTE,
                                           S_CTX_SLURMD, S_CTX_JOB_SCRIPT, S_CTX_ERROR};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Every hook in this order and in the reverse one; false if a node could be drained. */
static bool survives(spank_context_t context, const char *word, const char *value, bool items)
{
    bool good = true;
    int argc;
    for (int order = 0; order < 2; order++) {
        open_plugin(context);
        fake->items = items;
        char **argv = copy_args(word ? ARGS(word) : NULL, &argc);
        for (int i = 0; i < HOOKS; i++) {
            int which = order ? HOOKS - 1 - i : i, rc = hook(which, argc, argv);
            bool submit = context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
            good &= rc == 0 || submit || (context == S_CTX_REMOTE && which == TASK);
            for (size_t o = 0; value && which == INIT && o < COUNT(option_names); o++) {
                rc = fake_option(fake, option_names[o], value);
                good &= rc == 0 || rc == -2 || submit;
            }
        }
        close_plugin();
    }
    return good;
}

static void test_hostile(void)
{
    static char big[100000];
    memset(big, 'x', sizeof big - 1);
    for (size_t c = 0; c < COUNT(contexts); c++) {
        bool words = survives(contexts[c], NULL, NULL, true), values = true, files = true;
        for (size_t i = 0; i < COUNT(bad_words); i++)
            words &= survives(contexts[c], bad_words[i], NULL, true);
        words &= survives(contexts[c], big, NULL, true);
        for (size_t i = 0; i < COUNT(bad_files); i++)
            files &= survives(contexts[c], bad_files[i], NULL, true);
        for (size_t i = 0; i < COUNT(bad_values); i++)
            values &= survives(contexts[c], NULL, bad_values[i], true);
        values &= survives(contexts[c], NULL, big, true);
        tap_ok(words, "process %d: no words of plugstack.conf fail a hook of the node",
               contexts[c]);
        tap_ok(files, "process %d: no file does", contexts[c]);
        tap_ok(values, "process %d: no value of an option does", contexts[c]);
        tap_ok(survives(contexts[c], NULL, "2", false), "process %d: no missing item does",
               contexts[c]);
    }
}

/* Each bad word is refused at the submit side, and on the node by task_init, with the word. */
static void test_refusals(void)
{
    int submit = 0, node = 0, named = 0, values = 0;
    for (size_t i = 0; i < COUNT(bad_words); i++) {
        submit += start(S_CTX_ALLOCATOR, ARGS(bad_words[i])) == -1 && fake->errors == 1;
        close_plugin();
        node += start(S_CTX_REMOTE, ARGS(bad_words[i])) == 0 && hook(POST_OPT, 0, NULL) == 0 &&
                hook(TASK, 0, NULL) == -1 && fake->errors == 1;
        named += fake_said(fake, "plugstack.conf") && fake_said(fake, "expected");
        close_plugin();
    }
    tap_ok(submit == (int)COUNT(bad_words), "%d bad words are refused by sbatch", submit);
    tap_ok(node == (int)COUNT(bad_words), "and by the task, once (%d)", node);
    tap_ok(named == (int)COUNT(bad_words), "with place and expectation (%d)", named);
    for (size_t i = 0; i < COUNT(bad_values); i++)
        for (size_t o = 0; o < COUNT(option_names); o++) {
            bool empty_switch = !bad_values[i][0] && !strcmp(option_names[o], "lockstep-explain");
            start(S_CTX_LOCAL, NULL);
            int rc = fake_option(fake, option_names[o], bad_values[i]);
            values += (rc == -1 && fake_said(fake, option_names[o])) || (empty_switch && rc == 0);
            close_plugin();
        }
    tap_ok(values == (int)(COUNT(bad_values) * COUNT(option_names)),
           "every bad value is refused by srun, with the option's name (%d)", values);
}

/* ---- options ---- */

static void test_options(void)
{
    static const int wanted[] = {COUNT(option_names), COUNT(option_names), COUNT(option_names), 0,
                                 0};
    for (size_t c = 0; c < COUNT(wanted); c++) {
        start(contexts[c], NULL);
        tap_ok(fake->noptions == wanted[c] && fake->refused == 0, "process %d has %d options",
               contexts[c], fake->noptions);
        close_plugin();
    }
    static const char *const good[][2] = {
        {"lockstep-gpus", "8"},
        {"lockstep-gpus", "a100:4"},
        {"lockstep-gpus", "h100-80.gb:1"},
        {"lockstep-gpus", "32"},
        {"lockstep-transport", "keep"},
        {"lockstep-transport", "roce"},
        {"lockstep-bind", "none"},
        {"lockstep-check", "full"},
        {"lockstep-explain", NULL},
        {"lockstep-plugin", "no"},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        start(S_CTX_LOCAL, NULL);
        tap_ok(fake_option(fake, good[i][0], good[i][1]) == 0 && !fake->log[0], "--%s=%s",
               good[i][0], good[i][1] ? good[i][1] : "");
        close_plugin();
    }
}

static void test_idempotent(void)
{
    start(S_CTX_REMOTE, ARGS(root_arg));
    for (int i = 0; i < 5; i++) {
        fake_option(fake, "lockstep-check", i < 4 ? "fast" : "full");
        fake_option(fake, "lockstep-transport", "tcp");
    }
    tap_ok(run_task() == 0, "a callback may come five times");
    tap_ok(!strcmp(fake_getenv(fake, "LOCKSTEP_CHECK") ? fake_getenv(fake, "LOCKSTEP_CHECK") : "",
                   "full"),
           "and the last one counts");
    int n = fake->nenv;
    tap_ok(hook(TASK, 0, NULL) == 0 && fake->nenv == n, "a hook that comes twice changes nothing");
    close_plugin();
}

static void test_twins(void)
{
    static const char form[] = "SLURM_SPANK__SLURM_SPANK_OPTION_lockstep_lockstep_gpus";
    setenv("LOCKSTEP_GPUS", "2", 1);
    start(S_CTX_ALLOCATOR, NULL);
    tap_ok(getenv(form) && !strcmp(getenv(form), "2"),
           "LOCKSTEP_GPUS becomes what Slurm reads before the command line");
    hook(POST_OPT, 0, NULL);
    tap_ok(!getenv(form), "and is gone when options are read");
    close_plugin();

    setenv(form, "4", 1);
    start(S_CTX_ALLOCATOR, NULL);
    hook(POST_OPT, 0, NULL);
    tap_ok(getenv(form) && !strcmp(getenv(form), "4"), "what Slurm has handed on stays");
    close_plugin();
    unsetenv(form);

    setenv("SLURM_JOB_ID", "7", 1);
    start(S_CTX_LOCAL, NULL);
    tap_ok(!getenv(form), "inside a job the variable asks for nothing");
    tap_ok(fake_option(fake, "lockstep-gpus", "2") == -1 && fake_said(fake, "step inside of job 7"),
           "--lockstep-gpus of a step is refused, with the reason");
    close_plugin();
    setenv(form, "2", 1);
    start(S_CTX_LOCAL, NULL);
    tap_ok(fake_option(fake, "lockstep-gpus", "2") == 0, "that of the job around it is not");
    tap_ok(fake_option(fake, "lockstep-gpus", "2") == -1, "but one on top of it is");
    close_plugin();
    static const char check[] = "SLURM_SPANK__SLURM_SPANK_OPTION_lockstep_lockstep_check";
    setenv(check, "full", 1);
    unsetenv("LOCKSTEP_GPUS");
    start(S_CTX_ALLOCATOR, NULL);
    tap_ok(!getenv(form) && !getenv(check), "sbatch inside of a job has none of its options");
    tap_ok(fake_option(fake, "lockstep-gpus", "1") == 0, "and may have its own");
    close_plugin();
    unsetenv("SLURM_JOB_ID");
    unsetenv("LOCKSTEP_GPUS");

    setenv("LOCKSTEP_EXPLAIN", "no", 1);
    start(S_CTX_LOCAL, NULL);
    tap_ok(!getenv("SLURM_SPANK__SLURM_SPANK_OPTION_lockstep_lockstep_explain"),
           "LOCKSTEP_EXPLAIN=no is no option");
    close_plugin();
    setenv("LOCKSTEP_EXPLAIN", "maybe", 1);
    start(S_CTX_LOCAL, NULL);
    const char *handed = getenv("SLURM_SPANK__SLURM_SPANK_OPTION_lockstep_lockstep_explain");
    tap_ok(handed && fake_option(fake, "lockstep-explain", handed) == -1 &&
               fake_said(fake, "LOCKSTEP_EXPLAIN"),
           "LOCKSTEP_EXPLAIN=maybe is refused");
    hook(POST_OPT, 0, NULL);
    close_plugin();
    unsetenv("LOCKSTEP_EXPLAIN");
}

/* ---- what a task gets ---- */

static const char *value(const char *name)
{
    const char *v = fake_getenv(fake, name);
    return v ? v : "(unset)";
}

static void test_precedence(void)
{
    static const struct {
        const char *plugstack, *user, *option, *want;
    } cases[] = {
        {NULL, NULL, NULL, "(unset)"},
        {"check=fast", NULL, NULL, "fast"},
        {"check=fast", "LOCKSTEP_CHECK=off", NULL, "off"},
        {"check=fast", "LOCKSTEP_CHECK=off", "full", "full"},
        {NULL, NULL, "off", "off"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        start(S_CTX_REMOTE,
              cases[i].plugstack ? ARGS(root_arg, cases[i].plugstack) : ARGS(root_arg));
        if (cases[i].user)
            fake_setenv(fake, cases[i].user);
        if (cases[i].option)
            fake_option(fake, "lockstep-check", cases[i].option);
        run_task();
        tap_ok(!strcmp(value("LOCKSTEP_CHECK"), cases[i].want),
               "plugstack.conf %s, variable %s, option %s: %s",
               cases[i].plugstack ? cases[i].plugstack : "-", cases[i].user ? cases[i].user : "-",
               cases[i].option ? cases[i].option : "-", value("LOCKSTEP_CHECK"));
        close_plugin();
    }
}

static void test_variables(void)
{
    whole_task(ARGS(root_arg), NULL, NULL);
    tap_ok(strcmp(value("OMP_NUM_THREADS"), "(unset)") != 0 && fake->errors == 0,
           "a task gets OMP_NUM_THREADS=%s", value("OMP_NUM_THREADS"));
    tap_ok(strstr(value("LOCKSTEP_SPANK"), "/41.0"), "and the version of the plugin: %s",
           value("LOCKSTEP_SPANK"));
    tap_ok(!fake->log[0], "and no word is said about it");
    close_plugin();

    start(S_CTX_REMOTE, ARGS(root_arg));
    fake_setenv(fake, "OMP_NUM_THREADS=77");
    run_task();
    tap_ok(!strcmp(value("OMP_NUM_THREADS"), "77"), "what the user has set stays");
    close_plugin();

    static const uint32_t special[] = {SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT,
                                       SLURM_INTERACTIVE_STEP};
    for (size_t i = 0; i < COUNT(special); i++) {
        start(S_CTX_REMOTE, ARGS(root_arg));
        fake->step = special[i];
        tap_ok(run_task() == 0 && fake->nenv == 0, "step %x, which is no srun, gets nothing",
               special[i]);
        close_plugin();
    }
}

/* srun in a shell that srun started: the variables of the outer step are not the user's. */
static void test_nested(void)
{
    char *kept[64];
    int n;
    start(S_CTX_REMOTE, ARGS(root_arg));
    run_task();
    n = fake->nenv;
    for (int i = 0; i < n; i++)
        kept[i] = strdup(fake->env[i]);
    tap_ok(n < 64 && strstr(value("LOCKSTEP_SET"), "UCX_NUM_EPS=1"),
           "a task of one: UCX_NUM_EPS=%s", value("UCX_NUM_EPS"));
    close_plugin();
    start(S_CTX_REMOTE, ARGS(root_arg));
    for (int i = 0; i < n; i++) {
        fake_setenv(fake, kept[i]);
        free(kept[i]);
    }
    fake_setenv(fake, "OMP_NUM_THREADS=77");
    fake->ntasks = 8;
    run_task();
    tap_ok(!strcmp(value("UCX_NUM_EPS"), "8"), "eight in a step inside: UCX_NUM_EPS=%s",
           value("UCX_NUM_EPS"));
    tap_ok(!strcmp(value("OMP_NUM_THREADS"), "77"), "what the user changed in between stays");
    close_plugin();

    start(S_CTX_REMOTE, ARGS(root_arg));
    fake_setenv(fake, "UCX_TLS=tcp,self");
    fake_setenv(fake, "LOCKSTEP_SET=;;=;UCX_TLS=tcp,self;UCX_TLS");
    run_task();
    tap_ok(!strcmp(value("UCX_TLS"), "(unset)"), "what is not wanted any more goes");
    close_plugin();
}

static void test_switches(void)
{
    char site[128], bad[128];
    snprintf(site, sizeof site, "site=%s/etc/lockstep-site.conf", root);
    snprintf(bad, sizeof bad, "site=%s/etc/bad.conf", root);
    const struct {
        const char *const *words;
        const char *option;
        const char *what;
    } cases[] = {
        {ARGS(root_arg, "enabled=no"), NULL, "plugstack.conf"},
        {ARGS(root_arg, site), NULL, "the site file"},
        {ARGS(root_arg), "no", "--lockstep-plugin=no"},
        {ARGS(root_arg, bad), "no", "--lockstep-plugin=no, with a bad site file"},
        {ARGS("enabeld=yes"), "no", "--lockstep-plugin=no, with a bad plugstack.conf"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        cpu_set_t before, after;
        sched_getaffinity(0, sizeof before, &before);
        int rc =
            whole_task(cases[i].words, cases[i].option ? "lockstep-plugin" : NULL, cases[i].option);
        sched_getaffinity(0, sizeof after, &after);
        bool handed = i == 1; /* the file switches the launcher's rules off, too */
        tap_ok(rc == 0 && fake->nenv == handed && !fake->log[0] && CPU_EQUAL(&before, &after) &&
                   (!handed || !strcmp(value("LOCKSTEP_SITE"), site + 5)),
               "switched off by %s", cases[i].what);
        close_plugin();
    }
    tap_ok(whole_task(ARGS(root_arg, bad), NULL, NULL) == -1 && fake_said(fake, "bad.conf"),
           "a bad site file fails the task, by name");
    close_plugin();
    snprintf(bad, sizeof bad, "site=%s/etc/good.conf", root);
    tap_ok(whole_task(ARGS(root_arg, bad), "lockstep-explain", NULL) == 0 &&
               !strcmp(value("LOCKSTEP_SITE"), bad + 5) &&
               !strcmp(value("LOCKSTEP_EXPLAIN"), "yes"),
           "the launcher learns which site file it was, and that it shall explain");
    close_plugin();
    tap_ok(whole_task(ARGS(root_arg), NULL, NULL) == 0 &&
               !strcmp(value("LOCKSTEP_SITE"), "(unset)") &&
               !strcmp(value("LOCKSTEP_EXPLAIN"), "(unset)"),
           "and nothing where nothing is said");
    close_plugin();
    start(S_CTX_REMOTE, ARGS(root_arg));
    fake_option(fake, "lockstep-plugin", "%s%n");
    tap_ok(run_task() == -1 && fake_said(fake, "lockstep-plugin"),
           "a bad --lockstep-plugin does not switch it off");
    close_plugin();
    snprintf(bad, sizeof bad, "site=%s/etc/bad.conf", root);
    start(S_CTX_SLURMD, ARGS(bad));
    tap_ok(fake->errors == 1 && fake_said(fake, "bad.conf"), "and slurmd's log has it");
    close_plugin();
}

static void test_late(void)
{
    char gone[64];
    start(S_CTX_REMOTE, ARGS(root_arg));
    hook(POST_OPT, 0, NULL);
    snprintf(gone, sizeof gone, "%s.gone", root);
    rename(root, gone);
    tap_ok(hook(TASK, 0, NULL) == 0 && strcmp(value("OMP_NUM_THREADS"), "(unset)") != 0,
           "a task is served when another mount namespace hides the files");
    rename(gone, root);
    close_plugin();
}

/* slurmstepd may open every GPU, and its task, in a cgroup, only the second one: CUDA's number 0 is that. */
static void test_devices(void)
{
    char first[512], dev[512], gone[512];
    store("/proc/driver/nvidia/gpus/0000:23:00.0/information", "Device Minor: \t 0\n");
    store("/proc/driver/nvidia/gpus/0000:43:00.0/information", "Device Minor: \t 1\n");
    store("/dev/nvidia0", "");
    store("/dev/nvidia1", "");
    start(S_CTX_REMOTE, ARGS(root_arg));
    fake_option(fake, "lockstep-explain", NULL);
    fake_setenv(fake, "CUDA_VISIBLE_DEVICES=0");
    hook(POST_OPT, 0, NULL);
    snprintf(first, sizeof first, "%s/dev/nvidia0", root);
    snprintf(dev, sizeof dev, "%s/dev", root);
    snprintf(gone, sizeof gone, "%s/gone", root);
    unlink(first);
    rename(dev, gone); /* as in the mount namespace of a container */
    tap_ok(hook(TASK, 0, NULL) == 0 && fake_said(fake, "GPUs 0000:43:00.0;"),
           "the GPU is the one that the task may open, of the node's devices: %s", fake->log);
    rename(gone, dev);
    close_plugin();
}

/* Two tasks, neither of which has a CPU near its GPU. */
static void test_notes(void)
{
    struct rlimit old, low;
    char device[512];
    snprintf(device, sizeof device, "%s/sys/bus/pci/devices/0000:43:00.0", root);
    store("/sys/devices/pci0000:40/0000:43:00.0/local_cpulist", "1000-1003\n");
    store("/sys/devices/pci0000:40/0000:43:00.0/numa_node", "3\n");
    store("/sys/bus/pci/devices/x", "");
    if (symlink("../../../devices/pci0000:40/0000:43:00.0", device) != 0)
        tap_note("%s: not linked", device);
    getrlimit(RLIMIT_NOFILE, &old);
    low = (struct rlimit){64, old.rlim_max};
    for (int local = 0; local < 2; local++) {
        start(S_CTX_REMOTE, ARGS(root_arg));
        fake->local = local;
        fake->rank = (uint32_t)local;
        fake->ntasks = fake->local_ntasks = 2;
        fake_setenv(fake, "SLURM_JOB_ID=41");
        fake_setenv(fake, "CUDA_VISIBLE_DEVICES=0"); /* as --gpus-per-task does */
        fake_setenv(fake, "SLURM_GPUS_ON_NODE=2");
        hook(POST_OPT, 0, NULL);
        setrlimit(RLIMIT_NOFILE, &low);
        int rc = hook(TASK, 0, NULL);
        setrlimit(RLIMIT_NOFILE, &old);
        tap_ok(rc == 0 && fake_said(fake, "at most 64 open files") == (local == 0),
               "what is of the node is said by the first task only: task %d", local);
        char mine[64];
        snprintf(mine, sizeof mine, "lockstep: rank %d: no CPU of this task (", local);
        tap_ok(fake_said(fake, mine) &&
                   fake_said(fake, "is near its GPU 0000:43:00.0 (NUMA node 3)"),
               "what is of the task by itself: %s", fake->log);
        close_plugin();
    }
}

static void test_explain(void)
{
    for (uint32_t node = 0; node < 2; node++) {
        start(S_CTX_REMOTE, ARGS(root_arg));
        fake->node = node;
        fake->nnodes = fake->ntasks = 2;
        fake->rank = node;
        fake_option(fake, "lockstep-explain", NULL);
        run_task();
        tap_ok(fake_said(fake, ": OMP_NUM_THREADS = ") == (node == 0),
               "--lockstep-explain on node %u", node);
        close_plugin();
    }
}

static void test_grants(void)
{
    static const char inherited[] = "SLURM_SPANK__SLURM_SPANK_OPTION_lockstep_lockstep_gpus=2";
    static const struct {
        uint32_t step;
        const char *env[4];
        int rc;
        const char *said;
        const char *what;
    } cases[] = {
        {0, {"SLURM_GPUS_ON_NODE=2"}, 0, NULL, "as many as asked for"},
        {0, {"SLURM_STEP_GPUS=0,1"}, 0, NULL, "as many in a list"},
        {0, {"SLURM_STEP_GPUS=4-5"}, 0, NULL, "as many in a range"},
        {0, {"SLURM_GPUS_ON_NODE=1"}, -1, "granted 1 here", "fewer"},
        {0, {NULL}, -1, "nothing installed", "none"},
        {0, {"SLURM_STEP_GPUS=NoDevFiles"}, -1, "nothing installed", "none, as old Slurm says it"},
        {SLURM_BATCH_SCRIPT, {inherited, "SLURM_JOB_GPUS=0,1"}, 0, NULL, "a batch script"},
        {SLURM_BATCH_SCRIPT, {inherited}, -1, "--gpus-per-node=2", "a batch script without"},
        {0, {inherited, "SLURM_JOB_GPUS=0,1", "SLURM_STEP_GPUS=0"}, 0, NULL, "a part for a step"},
        {0, {inherited, "SLURM_JOB_GPUS=0,1"}, 0, NULL, "none for a step"},
        {0, {inherited}, 0, "and this step has none", "none for a step of salloc"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        start(S_CTX_REMOTE, ARGS(root_arg));
        fake->step = cases[i].step;
        for (int e = 0; e < 4 && cases[i].env[e]; e++)
            fake_setenv(fake, cases[i].env[e]);
        fake_option(fake, "lockstep-gpus", "2");
        int rc = run_task();
        tap_ok(rc == cases[i].rc &&
                   (cases[i].said ? fake_said(fake, cases[i].said) : !fake->log[0]),
               "two GPUs were asked for: %s", cases[i].what);
        if (fake->log[0])
            tap_note("%.*s", (int)strcspn(fake->log, "\n"), fake->log);
        close_plugin();
    }
}

static void test_limits(void)
{
    struct rlimit old, low, now;
    getrlimit(RLIMIT_NOFILE, &old);
    low = (struct rlimit){64, old.rlim_max};
    static const struct {
        const char *word;
        rlim_t want; /* 0: the hard limit */
        int errors;
    } cases[] = {{"nofile=hard", 0, 0},
                 {"nofile=100", 100, 0},
                 {"nofile=32", 64, 0},
                 {"enabled=yes", 64, 0},
                 {"nofile=9223372036854775807", 64, 1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        start(S_CTX_REMOTE, ARGS(root_arg, cases[i].word));
        setrlimit(RLIMIT_NOFILE, &low);
        int rc = hook(LIMITS, 0, NULL);
        getrlimit(RLIMIT_NOFILE, &now);
        setrlimit(RLIMIT_NOFILE, &old);
        tap_ok(rc == 0 && now.rlim_cur == (cases[i].want ? cases[i].want : old.rlim_max) &&
                   fake->errors == cases[i].errors,
               "%s: %llu open files", cases[i].word, (unsigned long long)now.rlim_cur);
        close_plugin();
    }
}

/* What Slurm sets after the plugin: the soft limit of the submit host comes along as a variable. */
static void test_propagated_limits(void)
{
    struct rlimit old, low;
    char most[64];
    getrlimit(RLIMIT_NOFILE, &old);
    low = (struct rlimit){64, old.rlim_max};
    snprintf(most, sizeof most, "SLURM_RLIMIT_NOFILE=%llu", (unsigned long long)old.rlim_max);
    const struct {
        const char *word, *variable;
        bool stays;
        const char *said; /* of open files; NULL: nothing */
        const char *what;
    } cases[] = {
        {"nofile=hard", "SLURM_RLIMIT_NOFILE=64", false, NULL, "less than was raised: goes"},
        {"nofile=600", "SLURM_RLIMIT_NOFILE=64", false, NULL, "less than the number: goes"},
        {"nofile=600", "SLURM_RLIMIT_NOFILE=700", true, NULL, "more than the number: stays"},
        {"nofile=600", "SLURM_RLIMIT_NOFILE=U64", true, "at most 64 open files",
         "asked for: stays"},
        {"nofile=hard", "SLURM_RLIMIT_NOFILE=x", true, NULL, "no number: stays"},
        {"nofile=hard", "SLURM_RLIMIT_NOFILE=U", true, NULL, "no number asked for: stays"},
        {"enabled=yes", "SLURM_RLIMIT_NOFILE=63", true, "at most 63 open files", "nothing raised"},
        {"enabled=yes", most, true, NULL, "up to the hard limit"},
        {"enabled=yes", "SLURM_RLIMIT_NOFILE=18446744073709551614", true, "at most 64 open files",
         "above the hard limit, which Slurm cannot do"},
        {"enabled=yes", "SLURM_RLIMIT_STACK=8388608", true, "at most 64 open files", "of another"},
        {"memlock=hard", "SLURM_RLIMIT_NOFILE=63", true, "at most 63 open files",
         "the other raised"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len = strcspn(cases[i].variable, "=");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)len, cases[i].variable);
        start(S_CTX_REMOTE, ARGS(root_arg, cases[i].word));
        fake_setenv(fake, cases[i].variable);
        hook(POST_OPT, 0, NULL);
        setrlimit(RLIMIT_NOFILE, &low);
        hook(LIMITS, 0, NULL);
        int rc = hook(TASK, 0, NULL);
        setrlimit(RLIMIT_NOFILE, &old);
        const char *left = fake_getenv(fake, name);
        tap_ok(
            rc == 0 && (left != NULL) == cases[i].stays &&
                (!left || !strcmp(left, cases[i].variable + len + 1)) &&
                (cases[i].said ? fake_said(fake, cases[i].said) : !fake_said(fake, "open files")),
            "%s, %s: %s", cases[i].word, cases[i].variable, cases[i].what);
        close_plugin();
    }
}

/* An environment of thousands of variables, some of them nonsense, and none at all. */
static void test_environment(void)
{
    static char large[131072];
    memset(large, 'v', sizeof large - 1);
    memcpy(large, "CUDA_VISIBLE_DEVICES=0,", 23);
    static const char *const odd[] = {"CUDA_VISIBLE_DEVICES=GPU-%s%n",
                                      "CUDA_VISIBLE_DEVICES=99999999999",
                                      "CUDA_VISIBLE_DEVICES=",
                                      "=",
                                      "SLURM_LOCALID=-1",
                                      "SLURM_GPUS_ON_NODE=99999999999999999999",
                                      large};
    for (size_t i = 0; i < COUNT(odd); i++) {
        start(S_CTX_REMOTE, ARGS(root_arg));
        for (int n = 0; n < 300; n++) {
            char text[32];
            snprintf(text, sizeof text, "VARIABLE_%d=%d", n, n);
            fake_setenv(fake, text);
        }
        fake_setenv(fake, odd[i]);
        int rc = run_task();
        tap_ok(rc == 0 || (rc == -1 && fake->errors == 1), "odd variable %zu: %d", i, rc);
        close_plugin();
    }
    start(S_CTX_REMOTE, ARGS(root_arg));
    fake->items = false;
    tap_ok(run_task() == 0, "a handle that answers nothing");
    close_plugin();
    static const uint32_t most = UINT32_MAX;
    start(S_CTX_REMOTE, ARGS(root_arg));
    fake->nnodes = fake->ntasks = fake->local_ntasks = fake->rank = most;
    fake->local = -1;
    int rc = run_task();
    tap_ok(rc == 0 || rc == -1, "a handle that answers nonsense");
    close_plugin();
}

int main(void)
{
    const char *build = getenv("builddir");
    snprintf(module_path, sizeof module_path, "%s/.libs/spank_lockstep.so", build ? build : ".");
    make_root();
    test_hostile();
    test_refusals();
    test_options();
    test_idempotent();
    test_twins();
    test_precedence();
    test_variables();
    test_nested();
    test_switches();
    test_late();
    test_explain();
    test_grants();
    test_limits();
    test_propagated_limits();
    test_environment();
    test_devices(); /* from here on the node has GPUs */
    test_notes();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    if (system(command) != 0)
        tap_note("%s is left", root);
    return tap_done();
}
