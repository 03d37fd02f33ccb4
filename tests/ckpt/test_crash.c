/* A save that is killed, or told of a failure, at every one of its system calls. The child runs
 * under ptrace: no preloaded library, no hook in the code under test.
 *
 * Three saves: a new step with retention, a step that exists, and the same on a file system that
 * cannot exchange two names. */
#include "tests/ckpt/common.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#if defined __x86_64__
#define CAN_INJECT 1
#else
#define CAN_INJECT 0
#endif

struct result { /* shared with the child: telling it costs no system call */
    enum ls_status open, save;
    bool done, warned;
    char message[1024];
};
struct scenario {
    const char *name;
    int64_t step, keep, newest, steps; /* to save; before: the newest step; after: how many */
    bool no_exchange;
};
static const struct scenario scenarios[] = {
    {"new step", 3, 2, 2, 2, false},
    {"same step", 2, 9, 2, 2, false},
    {"same step without exchange", 2, 9, 2, 2, true},
};
static struct result *result;

/* The system calls of the last run, in order, and what each returned. */
#define MAX_TRACE 1024
struct call {
    long number, fd, result;
};
static struct call trace[MAX_TRACE];
static int ntrace;

/* The values of a checkpoint that is replaced differ from its successor's in `seconds` alone. */
static void child_save(const char *dir, const struct scenario *s)
{
    struct sample sample;
    struct ls_ckpt_dir *c = NULL;
    struct ls_error err = {0};
    sample_init(&sample, s->step);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    result->open = ls_ckpt_open(dir, &c, &err);
    if (result->open == LS_OK) {
        result->save = ls_ckpt_save(c, &sample.state, s->keep, NULL, &err);
        result->warned = ls_ckpt_warning(c) != NULL;
        ls_ckpt_close(c);
    }
    memcpy(result->message, err.message, sizeof err.message);
    result->done = true;
    _exit(0);
}

#if CAN_INJECT
static long call_number(pid_t p)
{
    return ptrace(PTRACE_PEEKUSER, p, offsetof(struct user_regs_struct, orig_rax), 0);
}
static long call_argument(pid_t p, int i)
{
    static const size_t at[] = {
        offsetof(struct user_regs_struct, rdi), offsetof(struct user_regs_struct, rsi),
        offsetof(struct user_regs_struct, rdx), offsetof(struct user_regs_struct, r10),
        offsetof(struct user_regs_struct, r8)};
    return ptrace(PTRACE_PEEKUSER, p, at[i], 0);
}
static void skip_call(pid_t p)
{
    ptrace(PTRACE_POKEUSER, p, offsetof(struct user_regs_struct, orig_rax), -1L);
}
static long get_result(pid_t p)
{
    return ptrace(PTRACE_PEEKUSER, p, offsetof(struct user_regs_struct, rax), 0);
}
static void set_result(pid_t p, long value)
{
    ptrace(PTRACE_POKEUSER, p, offsetof(struct user_regs_struct, rax), value);
}
#else
static long call_number(pid_t p)
{
    (void)p;
    return -2;
}
static long call_argument(pid_t p, int i)
{
    (void)p, (void)i;
    return 0;
}
static void skip_call(pid_t p)
{
    (void)p;
}
static long get_result(pid_t p)
{
    (void)p;
    return 0;
}
static void set_result(pid_t p, long value)
{
    (void)p, (void)value;
}
#endif

/* A sanitizer's own calls are not counted: their number depends on the heap that the child inherits,
 * so the n-th call would not be the same one in two runs; and failing them ends the process. */
static bool is_off_limits(long nr)
{
#ifdef __SANITIZE_ADDRESS__
    return nr == SYS_mmap || nr == SYS_munmap || nr == SYS_brk || nr == SYS_madvise ||
           nr == SYS_sigaltstack;
#else
    (void)nr;
    return false;
#endif
}

static bool step_child(pid_t p, int *status)
{
    ptrace(PTRACE_SYSCALL, p, 0, 0);
    if (waitpid(p, status, 0) != p)
        exit(99);
    return WIFSTOPPED(*status);
}

/* Runs the save; at its n-th system call (from 1) kills it (error 0), or makes that call fail with
 * `error`. Returns false when the save had fewer calls. *call: which one it was. */
static bool run(const char *dir, const struct scenario *s, int n, int error, long *call)
{
    memset(result, 0, sizeof *result);
    pid_t p = fork();
    if (p == 0)
        child_save(dir, s);
    int status, count = 0;
    bool hit = false;
    ntrace = 0;
    if (waitpid(p, &status, 0) != p || !WIFSTOPPED(status))
        exit(99);
    ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    while (step_child(p, &status)) {
        long nr = call_number(p);
        long fake = 0;
        if (result->done || is_off_limits(nr)) {
            ; /* the save is over (what follows is the child's exit), or not ours */
        } else if (++count == n) {
            hit = true;
            *call = nr;
            fake = error;
            if (!error) {
                kill(p, SIGKILL);
                waitpid(p, &status, 0);
                break;
            }
        }
        if (!fake && s->no_exchange && nr == SYS_renameat2 &&
            (call_argument(p, 4) & RENAME_EXCHANGE))
            fake = EINVAL;
        if (fake)
            skip_call(p);
        if (!step_child(p, &status))
            break;
        if (fake)
            set_result(p, -fake);
        if (!result->done && ntrace < MAX_TRACE)
            trace[ntrace++] = (struct call){nr, call_argument(p, 0), get_result(p)};
    }
    return hit;
}

static void prepare(const char *dir)
{
    struct ls_error err = {0};
    remove_tree(dir);
    if (save_step(dir, 1, 9, &err) != LS_OK || save_step(dir, 2, 9, &err) != LS_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(99);
    }
}

/* After a crash: an old or the new one is found, and a new save works and tidies up. */
static bool survives(const char *dir, const struct scenario *s, char why[static 1100])
{
    struct ls_error err = {0};
    int64_t found = find_step(dir, &err);
    if (found != s->newest && found != s->step) {
        snprintf(why, 1100, "find gives %lld: %s", (long long)found, err.message);
        return false;
    }
    /* A complete name that does not verify would be a half-written or half-deleted one. */
    struct ls_ckpt_info *infos;
    int n, bad = 0;
    if (ls_ckpt_list(dir, &infos, &n, &err) != LS_OK)
        return false;
    for (int i = 0; i < n; i++)
        bad += ls_ckpt_verify(infos[i].path, NULL, NULL) != LS_OK;
    ls_ckpt_infos_free(infos, n);
    if (bad || n < 2) {
        snprintf(why, 1100, "%d checkpoints, %d of them do not verify", n, bad);
        return false;
    }
    if (save_step(dir, 4, 1, &err) != LS_OK || find_step(dir, &err) != 4 ||
        count_entries(dir, "step-") != 1 || count_entries(dir, "-") != 1) {
        snprintf(why, 1100, "the next save: %s", err.message);
        return false;
    }
    return true;
}

static void test_kill(const struct scenario *s)
{
    struct path dir = in_scratch("kill");
    int n = 1, bad = 0;
    char why[1100] = "";
    for (;; n++) {
        long call = 0;
        prepare(dir.s);
        bool hit = run(dir.s, s, n, 0, &call);
        if (!survives(dir.s, s, why)) {
            bad++;
            tap_note("killed at system call %d (number %ld): %s", n, call, why);
        }
        if (!hit)
            break;
        if (result->done) {
            bad++;
            tap_note("the child went on after its death at %d", n);
        }
    }
    tap_ok(bad == 0 && n > 40, "%s: killed at each of %d system calls, nothing is lost", s->name,
           n - 1);
    tap_ok(result->done && result->open == LS_OK && result->save == LS_OK && !result->warned,
           "%s: and the save that nobody kills succeeds: %s", s->name, result->message);
}

/* After a failure that was reported: everything is as before. After success: the new one counts. */
static bool consistent(const char *dir, const struct scenario *s, int error, char why[static 1100])
{
    struct ls_error err = {0};
    bool failed = result->open != LS_OK || result->save != LS_OK;
    int64_t found = find_step(dir, &err), want = failed ? s->newest : s->step;
    snprintf(why, 1100, "open %s, save %s, found %lld, wanted %lld: %.500s%.200s",
             ls_status_name(result->open), ls_status_name(result->save), (long long)found,
             (long long)want, result->message, err.message);
    if (!result->done || found != want)
        return false;
    if (failed) {
        struct sample was;
        char text[128];
        sample_init(&was, 0);
        int left = count_entries(dir, ".tmp-") + count_entries(dir, ".old-");
        bool both = sample_loads(in_scratch("inject/step-00000001").s, 1, &err) &&
                    sample_loads(in_scratch("inject/step-00000002").s, 2, &err);
        bool clear = strstr(result->message, strerror_r(error, text, sizeof text)) ||
                     strstr(result->message, "memory");
        if (left || !both || !clear) {
            snprintf(why, 1100, "%d left over, old ones %s, message: %s", left,
                     both ? "there" : "lost", result->message);
            return false;
        }
    }
    return survives(dir, s, why);
}

static void test_inject(const struct scenario *s, int error, const char *name)
{
    struct path dir = in_scratch("inject");
    int n = 1, bad = 0, failed = 0, warned = 0;
    for (;; n++) {
        long call = 0;
        char why[1100] = "";
        prepare(dir.s);
        bool hit = run(dir.s, s, n, error, &call);
        if (!hit)
            break;
        failed += result->open != LS_OK || result->save != LS_OK;
        warned += result->warned;
        if (!consistent(dir.s, s, error, why)) {
            bad++;
            tap_note("%s at system call %d (number %ld): %s", name, n, call, why);
        }
    }
    tap_ok(bad == 0 && failed > 20,
           "%s: %s at each of %d system calls: %d failed cleanly, %d only warned", s->name, name,
           n - 1, failed, warned);
}

static bool is_rename(const struct call *c)
{
    return (c->number == SYS_renameat || c->number == SYS_renameat2) && c->result == 0;
}
static int next_fsync(int i)
{
    while (i < ntrace && trace[i].number != SYS_fsync)
        i++;
    return i;
}

/* A kill loses nothing that the kernel has, so only the order of the calls shows what a power cut
 * would leave: all that is written is synced before it gets its name, the name before anything else
 * happens, and the names of what is to go before it goes. */
static void test_order(const struct scenario *s)
{
    struct path dir = in_scratch("order");
    long call;
    prepare(dir.s);
    run(dir.s, s, -1, 0, &call);

    int at = 0, unsynced = 0, written = 0, commits = s->no_exchange ? 2 : 1, renames = 0;
    for (; at < ntrace && renames < commits; at++)
        renames += is_rename(&trace[at]);
    int committed = at;
    /* Every descriptor written to, but the lock's (pwrite64): an fsync of it before its close. */
    for (int i = 0; i < committed; i++) {
        if (trace[i].number != SYS_write)
            continue;
        int k = i + 1;
        while (k < committed && trace[k].number != SYS_close && trace[k].number != SYS_fsync)
            k++;
        written++;
        unsynced += k == committed || trace[k].number != SYS_fsync || trace[k].fd != trace[i].fd;
    }
    int syncs = 0;
    for (int i = 0; i < committed; i++)
        syncs += trace[i].number == SYS_fsync && trace[i].result == 0;
    tap_ok(written >= 3 && unsynced == 0 && syncs == 4,
           "%s: three files and their directory are synced before the rename (%d, %d unsynced, %d "
           "syncs)",
           s->name, written, unsynced, syncs);
    tap_ok(committed < ntrace && trace[committed].number == SYS_fsync &&
               trace[committed].fd == trace[committed - 1].fd,
           "%s: the parent is synced right after it", s->name);

    int last = -1, removal = ntrace;
    for (int i = committed; i < ntrace; i++)
        if (is_rename(&trace[i]))
            last = i;
    for (int i = ntrace - 1; i > committed; i--)
        if (trace[i].number == SYS_unlinkat)
            removal = i;
    if (s->newest != s->step || s->no_exchange)
        tap_ok(last > committed && removal < ntrace && last < removal && next_fsync(last) < removal,
               "%s: old ones are renamed, that is synced, and then they go", s->name);
}

int main(void)
{
    pid_t p = fork();
    if (p == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) != 0);
    int status;
    waitpid(p, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        tap_skip_all("ptrace is not allowed here");
    if (!CAN_INJECT)
        tap_skip_all("this test knows the registers of x86-64 only");
    result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED)
        exit(99);
    scratch_make();
    /* Order and names are tested here, not the disk: in memory it takes seconds, not minutes. */
    if (!mount_tmpfs(scratch, "size=64m"))
        tap_note("no file system in memory: this will be slow");
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        test_order(&scenarios[i]);
        test_kill(&scenarios[i]);
        test_inject(&scenarios[i], ENOSPC, "ENOSPC");
        test_inject(&scenarios[i], EIO, "EIO");
    }
    umount2(scratch, MNT_DETACH);
    remove_tree(scratch);
    return tap_done();
}
