/* Where programs meet: an address of keeper 0 that all have reached, and ports that are held. As processes of
 * this machine, and, where this is allowed, in network namespaces that stand for machines. */
#include "tests/tap.h"
#include "tests/wire/hub.h"
#include "wire/address.h"
#include "wire/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

enum { PORTS = 3 };

/* What each keeper found. */
struct seen {
    enum ls_status status;
    char message[1024];
    char address[HUB_MAX][LS_WIRE_ADDRESS_TEXT];
    uint16_t port[HUB_MAX * PORTS];
    int n_ports;
    bool held, freed;
};
static struct seen *seen; /* [HUB_MAX], shared */
static char space[2][64]; /* network namespaces of keeper 0 and of the others; "" for ours */

static bool can_bind(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return ok;
}

/* Does somebody answer at this port of the machine? */
static bool can_connect(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return yes;
}

static int keeper(struct hub_end *end, int rank, void *arg)
{
    (void)arg;
    static const char *const host[] = {"n0", "n1", "n2", "n3", "n4"};
    struct seen *s = &seen[rank];
    struct ls_wire_rendezvous *r = NULL;
    struct ls_error err = {0};
    const char *name = space[rank > 0];
    int fd = *name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (*name && setns(fd, CLONE_NEWNET) != 0)
        return 1;
    s->status = ls_wire_rendezvous_open(rank, end->size, host, rank ? 1 : PORTS, hub_exchange, end,
                                        &r, &err);
    memcpy(s->message, err.message, sizeof s->message);
    if (s->status != LS_OK)
        return 0;
    s->n_ports = r->first[end->size];
    memcpy(s->port, r->port, (size_t)s->n_ports * sizeof *s->port);
    for (int k = 0; k < end->size; k++)
        memcpy(s->address[k], r->address[k], sizeof s->address[k]);
    uint16_t own = r->port[r->first[rank]];
    s->held = !can_bind(own) && !can_connect(own); /* or it would be lost in a queue of ours */
    ls_wire_rendezvous_release(r, 0);
    s->freed = can_bind(own);
    ls_wire_rendezvous_close(r);
    return 0;
}

static void meet(int n, hub_meddle_fn *meddle)
{
    pid_t pid[HUB_MAX];
    memset(seen, 0, HUB_MAX * sizeof *seen);
    for (int k = 0; k < n; k++)
        seen[k].status = LS_ERR_INTERNAL;
    hub_start(n, keeper, NULL, 2, meddle, pid);
    for (int k = 0; k < n; k++)
        hub_wait(pid[k]);
}

static void check_same(int n, const char *what)
{
    bool ok = true, held = true, freed = true;
    for (int k = 0; k < n; k++) {
        ok &= seen[k].status == LS_OK && seen[k].n_ports == PORTS + n - 1 &&
              !memcmp(seen[k].address, seen[0].address, sizeof seen[0].address) &&
              !memcmp(seen[k].port, seen[0].port, sizeof seen[0].port);
        held &= seen[k].held;
        freed &= seen[k].freed;
        if (seen[k].message[0])
            tap_note("keeper %d: %s", k, seen[k].message);
    }
    tap_ok(ok, "%s: all know the same addresses and ports", what);
    tap_ok(held, "%s: nobody else can take a port, or reach it too early", what);
    tap_ok(freed, "%s: until it is released", what);
}

/* ---- ports ---- */

/* Binds by a file with this text (NULL: no file) and counts what lies in low..high. */
static int count_within(const char *text, int low, int high, int n)
{
    char path[] = "/tmp/lockstep-test-ports-XXXXXX";
    int file = mkstemp(path), within = 0, fd[64];
    if (file < 0 || (text && write(file, text, strlen(text)) < 0))
        return -1;
    close(file);
    if (!text)
        unlink(path);
    for (int i = 0; i < n; i++) {
        uint16_t port = 0;
        fd[i] = ls_wire_bind_apart(path, &port);
        within += fd[i] >= 0 && port >= low && port <= high && !can_bind(port);
    }
    for (int i = 0; i < n; i++)
        close(fd[i]);
    unlink(path);
    return within;
}

static void check_ports(void)
{
    enum { N = 64 };
    int low = 0, high = 0;
    tap_ok(count_within("32768\t60999\n", 61000, 65535, N) == N,
           "ports lie above the kernel's range");
    tap_ok(count_within("20000 64900", 10240, 19999, N) == N,
           "or below it, where there is more room");
    FILE *f = fopen(LS_WIRE_PORT_RANGE, "re");
    if (f && fscanf(f, "%9d %9d", &low, &high) == 2) {
        /* What the kernel chooses itself. */
        tap_ok(count_within("1024 65535", low, high, N) == N, "or in it, where it is all there is");
        tap_ok(count_within(NULL, low, high, N) == N, "or if nothing is known of it");
        for (const char *const *t = (const char *const[]){"", "x y", "5", "60999 32768", "-1 7",
                                                          "1 99999999999", NULL};
             *t; t++)
            tap_ok(count_within(*t, low, high, N) == N, "or if '%s' is what is known", *t);
    } else {
        tap_ok(true, "the kernel's own choice # SKIP cannot read " LS_WIRE_PORT_RANGE);
    }
    if (f)
        fclose(f);
}

static void check_machine(void)
{
    meet(4, NULL);
    check_same(4, "four keepers of one machine");
    bool loopback = true, differ = true;
    for (int k = 0; k < 4; k++)
        loopback &= !strcmp(seen[0].address[k], "127.0.0.1");
    for (int i = 0; i < seen[0].n_ports; i++)
        for (int j = 0; j < i; j++)
            differ &= seen[0].port[i] != seen[0].port[j];
    tap_ok(loopback, "they meet on loopback");
    tap_ok(differ, "all ports differ");
    struct ls_wire_rendezvous *r = NULL;
    tap_ok(ls_wire_rendezvous_open(0, 1, NULL, 2, NULL, NULL, &r, NULL) == LS_OK &&
               !strcmp(r->address[0], "127.0.0.1") && r->first[1] == 2 && !can_bind(r->port[1]),
           "a keeper alone needs no exchange");
    ls_wire_rendezvous_close(r);
}

/* ---- what goes wrong ---- */

static void elsewhere(char blob[][HUB_BLOB], size_t *bytes, int n)
{
    struct ls_wire_card card;
    (void)n;
    memcpy(&card, blob[0], sizeof card);
    if (bytes[0] < sizeof card || card.magic != LS_WIRE_MAGIC)
        return; /* the second round */
    card.machine ^= 1;
    memcpy(blob[0], &card, sizeof card);
}

static void someone_else(char blob[][HUB_BLOB], size_t *bytes, int n)
{
    struct ls_wire_card card;
    (void)n;
    memcpy(&card, blob[0], sizeof card);
    if (bytes[0] < sizeof card || card.magic != LS_WIRE_MAGIC)
        return;
    card.token[0] ^= 1;
    memcpy(blob[0], &card, sizeof card);
}

static void cut(char blob[][HUB_BLOB], size_t *bytes, int n)
{
    (void)blob, (void)n;
    bytes[1]--;
}

static void check_trouble(void)
{
    static const struct {
        hub_meddle_fn *meddle;
        const char *message, *what;
    } cases[] = {
        {elsewhere, "keeper 1 on n1 reaches no address of keeper 0 on n0",
         "addresses that are ours, too, lead home and not to another machine"},
        {someone_else, "keeper 1 on n1 reaches no address of keeper 0 on n0",
         "who does not show the token is not keeper 0"},
        {cut, "keeper 1 on n1 speaks another version", "a cut offer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meet(3, cases[i].meddle);
        bool ok = true;
        for (int k = 0; k < 3; k++)
            ok &= seen[k].status == LS_ERR_ENV && strstr(seen[k].message, cases[i].message);
        tap_ok(ok, "%s: all say so", cases[i].what);
        if (!ok)
            tap_note("%s", seen[0].message);
    }
}

/* ---- two networks, as two machines have ---- */

static bool shell(const char *fmt, const char *name)
{
    char line[512];
    snprintf(line, sizeof line, fmt, name, name, name, name, name);
    return system(line) == 0;
}

static void check_network(void)
{
    char name[2][32];
    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], "ls%d%c", (int)getpid(), 'a' + i);
    char pair[128];
    snprintf(pair, sizeof pair, "ip -n %s link add v0 type veth peer name v0 netns %s 2>/dev/null",
             name[0], name[1]);
    bool there = shell("ip netns add %s 2>/dev/null", name[0]) &&
                 shell("ip netns add %s 2>/dev/null", name[1]) && system(pair) == 0;
    /* The same bridge on both, as docker0 is: an address that leads nowhere. */
    static const char up[] = "ip -n %s link set lo up; ip -n %s link add br0 type veth peer br1; "
                             "ip -n %s addr add 172.17.0.1/16 dev br0; ip -n %s link set br0 up; "
                             "ip -n %s link set br1 up";
    there = there && shell(up, name[0]) && shell(up, name[1]) &&
            shell("ip -n %s addr add 10.99.0.1/24 dev v0; ip -n %s link set v0 up", name[0]) &&
            shell("ip -n %s addr add 10.99.0.2/24 dev v0; ip -n %s link set v0 up", name[1]);
    if (there) {
        for (int i = 0; i < 2; i++)
            snprintf(space[i], sizeof space[i], "/run/netns/%s", name[i]);
        meet(3, elsewhere);
        check_same(3, "two networks");
        tap_ok(!strcmp(seen[0].address[0], "10.99.0.1"), "they meet where all reach keeper 0");
        tap_ok(!strcmp(seen[0].address[1], "10.99.0.2"), "others are where they came from");
        meet(3, NULL);
        tap_ok(seen[1].status == LS_OK && !strcmp(seen[1].address[0], "10.99.0.1"),
               "loopback is tried, and not believed");
    } else
        tap_ok(true, "two networks # SKIP no network namespaces here: needs root and ip(8)");
    for (int i = 0; i < 2; i++)
        if (!shell("ip netns del %s 2>/dev/null", name[i]) && there)
            tap_note("could not remove %s", name[i]);
}

int main(void)
{
    seen = mmap(NULL, HUB_MAX * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (seen == MAP_FAILED)
        return 1;
    check_ports();
    check_machine();
    check_trouble();
    check_network();
    return tap_done();
}
