/* Work that may never return, in a child of its own. */
#include "cli/apart.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whatever becomes of the child, it holds nothing that somebody waits for, such as Slurm's pipes. */
static _Noreturn void be_child(int (*work)(void *arg), void *arg, int out, int pipe)
{
    enum { PIPE = 3 };
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* Numbers above those that are taken next. */
    out = fcntl(out, F_DUPFD, PIPE + 1);
    pipe = fcntl(pipe, F_DUPFD, PIPE + 1);
    if (dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0 || dup2(pipe, PIPE) < 0)
        _exit(1);
    close_range(PIPE + 1, ~0U, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsigned char code = (unsigned char)work(arg);
    if (fflush(NULL) == 0 && write(PIPE, &code, 1) == 1)
        _exit(0);
    _exit(1);
}

void ls_cli_apart_start(struct ls_cli_apart *apart, int (*work)(void *arg), void *arg)
{
    int fds[2];
    *apart = (struct ls_cli_apart){.pid = -1, .pipe = -1};
    apart->out = memfd_create("lockstep-apart", MFD_CLOEXEC);
    if (apart->out < 0 || pipe2(fds, O_CLOEXEC) != 0)
        return;
    fflush(NULL); /* else the child would say it again */
    apart->pid = fork();
    if (apart->pid == 0)
        be_child(work, arg, apart->out, fds[1]);
    close(fds[1]);
    apart->pipe = fds[0];
}

int ls_cli_apart_end(struct ls_cli_apart *apart, double until)
{
    unsigned char code;
    int result = LS_CLI_APART_LATE;
    for (double left = 0; apart->pipe >= 0 && left >= 0; left = until - ls_time_monotonic()) {
        struct pollfd fd = {.fd = apart->pipe, .events = POLLIN};
        if (poll(&fd, 1, (int)(left * 1000)) <= 0)
            continue;
        ssize_t n = read(apart->pipe, &code, 1);
        if (n < 0 && errno == EINTR)
            continue;
        result = n == 1 ? code : LS_CLI_APART_DIED;
        break;
    }
    if (apart->pipe < 0)
        result = LS_CLI_APART_DIED;
    else
        close(apart->pipe);
    if (apart->pid > 0) {
        if (result == LS_CLI_APART_LATE)
            kill(apart->pid, SIGKILL);
        waitpid(apart->pid, NULL, result == LS_CLI_APART_LATE ? WNOHANG : 0);
    }
    if (apart->out >= 0)
        lseek(apart->out, 0, SEEK_SET);
    return result;
}
