/* A library for LD_PRELOAD that lets chosen system calls fail on chosen nodes.
 *
 *   LS_FAULT="NODE:WHAT:ARGUMENT[;...]"     NODE is SLURMD_NODENAME, or * for all
 *
 *   hang:PREFIX      open of a path that begins so never returns, as on a dead file server
 *   absent:PREFIX    open says ENOENT
 *   crash:PREFIX     open kills the process
 *   stale:PREFIX     the first file that is opened stays what its path means, as in a cache of names
 *   clock:SECONDS    the wall clock is so many seconds ahead
 *   resolve:ADDRESS  every name has this address, and a canonical name made of it that ends in ip6.arpa if it is IPv6
 *                    and no loopback; write - for colons
 *   stuck:ucp        UCX never makes a worker
 *   pace:MB/S        after each large piece that is sent over TCP, the process sleeps as if the network had that speed
 *   deaf:0           connections that come in are never accepted, and are closed */
#undef _FORTIFY_SOURCE /* its open is not ours to replace */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The argument of fault `what` of this node that applies to `path` (NULL: to anything). */
static bool find(const char *what, const char *path, char argument[static 256])
{
    const char *at = getenv("LS_FAULT"), *node = getenv("SLURMD_NODENAME");
    for (size_t n; at && *at; at += n + (at[n] == ';')) {
        char where[64], kind[32];
        n = strcspn(at, ";");
        if (n >= 400 || sscanf(at, "%63[^:]:%31[^:]:%255[^;]", where, kind, argument) != 3)
            continue;
        if (strcmp(where, "*") != 0 && (!node || strcmp(where, node) != 0))
            continue;
        if (!strcmp(kind, what) && (!path || !strncmp(path, argument, strlen(argument))))
            return true;
    }
    return false;
}

/* Returns -1 with errno, or 0: go on. */
static int meet_fault(const char *path)
{
    char argument[256];
    if (find("hang", path, argument))
        for (;;)
            pause();
    if (find("crash", path, argument))
        raise(SIGKILL);
    if (find("absent", path, argument)) {
        errno = ENOENT;
        return -1;
    }
    return 0;
}

static int real_open(const char *name, const char *path, int flags, mode_t mode)
{
    int (*call)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    static int first = -1;
    static char stale[256];
    char argument[256];
    if (first >= 0 && !strcmp(path, stale))
        return lseek(first, 0, SEEK_SET) < 0 ? -1 : dup(first);
    int fd = meet_fault(path) < 0 ? -1 : call(path, flags, mode);
    if (fd >= 0 && first < 0 && strlen(path) < sizeof stale && find("stale", path, argument)) {
        first = dup(fd);
        strcpy(stale, path);
    }
    return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return real_open("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return real_open("open64", path, flags, mode);
}

/* What open becomes where flags are known to the fortified C library. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return real_open("open", path, flags, 0);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    FILE *(*call)(const char *, const char *) =
        (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    return meet_fault(path) < 0 ? NULL : call(path, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*call)(clockid_t, struct timespec *);
    static long ahead = -1;
    char argument[256];
    if (!call)
        call = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (ahead < 0)
        ahead = find("clock", NULL, argument) ? strtol(argument, NULL, 10) : 0;
    int result = call(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += ahead;
    return result;
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags)
{
    int (*call)(int, struct sockaddr *, socklen_t *, int) =
        (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    char argument[256];
    int got = call(fd, address, size, flags), domain = 0;
    socklen_t n = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n);
    if (got >= 0 && domain != AF_UNIX && find("deaf", NULL, argument)) {
        close(got);
        errno = EAGAIN;
        return -1;
    }
    return got;
}

/* Whoever sleeps after what it sent is slow, whatever else the machine does; and the CPU is free meanwhile. */
static ssize_t pace(int fd, ssize_t n)
{
    static double seconds = -1; /* for a byte */
    char argument[256];
    enum { LARGE = 4096 };
    int keep = errno, domain = 0;
    socklen_t size = sizeof domain;
    if (seconds < 0)
        seconds = find("pace", NULL, argument) ? 1e-6 / strtod(argument, NULL) : 0;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    if (n >= LARGE && seconds > 0 && domain != AF_UNIX)
        usleep((useconds_t)(1e6 * seconds * (double)n));
    errno = keep;
    return n;
}

ssize_t send(int fd, const void *data, size_t n, int flags)
{
    ssize_t (*call)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    return pace(fd, call(fd, data, n, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t (*call)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    return pace(fd, call(fd, message, flags));
}

int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict all)
{
    int (*call)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
            RTLD_NEXT, "getaddrinfo");
    char address[256];
    if (!find("resolve", NULL, address))
        return call(name, service, hints, all);
    for (char *p = address; *p; p++)
        *p = *p == '-' ? ':' : *p;
    int code = call(address, service, hints, all);
    if (code == 0 && (*all)->ai_canonname && strchr(address, ':') && strcmp(address, "::1") != 0) {
        free((*all)->ai_canonname);
        (*all)->ai_canonname = strdup("7.0.0.0.0.0.d.f.ip6.arpa");
    }
    return code;
}

int ucp_worker_create(void *context, const void *parameters, void **worker);
int ucp_worker_create(void *context, const void *parameters, void **worker)
{
    int (*call)(void *, const void *, void **) =
        (int (*)(void *, const void *, void **))dlsym(RTLD_NEXT, "ucp_worker_create");
    char argument[256];
    if (find("stuck", NULL, argument))
        for (;;)
            pause();
    return call ? call(context, parameters, worker) : -1;
}
