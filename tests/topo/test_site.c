/* The site's file, and the keys of nccl.conf and ucx.conf. */
#include "tests/tap.h"
#include "topo/host.h"

#include <string.h>
#include <unistd.h>

static void test_good(void)
{
    struct ls_topo_site site = ls_topo_site_default;
    struct ls_error err = {0};
    enum ls_status status = ls_topo_site_parse(
        "s",
        "# comment\n\n enabled = no\r\ninterface=ib0 # more\n\tnic = mlx5_0,mlx5_1\nfabric = rail\n"
        "traffic_class = 106\nservice_level = 0\nrc_max = 512",
        &site, NULL, &err);
    tap_ok(status == LS_OK && !site.enabled && !strcmp(site.interface, "ib0") &&
               !strcmp(site.nic, "mlx5_0,mlx5_1") && site.fabric == LS_TOPO_FABRIC_RAIL &&
               site.traffic_class == 106 && site.service_level == 0 && site.rc_max == 512,
           "every key: %s", err.message);
    site = ls_topo_site_default;
    status = ls_topo_site_parse("s", "", &site, NULL, &err);
    tap_ok(status == LS_OK && site.enabled && !site.interface[0] && site.traffic_class == -1 &&
               site.service_level == -1 && site.rc_max == 256 &&
               site.fabric == LS_TOPO_FABRIC_UNKNOWN,
           "an empty file changes nothing");
    status = ls_topo_site_parse("s", "fabric = single\n", &site, NULL, &err);
    status = status ? status : ls_topo_site_parse("t", "rc_max = 9\n", &site, NULL, &err);
    tap_ok(status == LS_OK && site.fabric == LS_TOPO_FABRIC_SINGLE && site.rc_max == 9,
           "a second file adds to the first");
}

static void test_bad(void)
{
    static char long_name[400], long_line[2000];
    memset(long_name, 'x', sizeof long_name - 1);
    memcpy(long_name, "interface = ", 12);
    memset(long_line, ' ', sizeof long_line - 1);
    const struct {
        const char *text, *part;
    } cases[] = {
        {"enabeld = yes", "s:1: 'enabeld' is not a key; did you mean 'enabled'?"},
        {"\nenabled = maybe", "s:2: enabled: found 'maybe', expected yes or no"},
        {"enabled = YES", "expected yes or no"},
        {"enabled", "found 'enabled', expected key = value"},
        {"enabled =", "found '', expected yes or no"},
        {"= yes", "'' is not a key"},
        {"enabled = yes\nenabled = yes", "s:2: 'enabled' is set a second time"},
        {"interface = eth0 eth1", "expected the name of a network interface"},
        {"interface = 0123456789abcdef", "expected the name"},
        {long_name, "expected the name"},
        {"nic = mlx5_0,,mlx5_1", "expected names of verbs devices"},
        {"nic = ,mlx5_0", "expected names"},
        {"nic = mlx5_0,", "expected names"},
        {"nic = mlx5_0;rm", "expected names"},
        {"fabric = rails", "expected rail, single or unknown"},
        {"traffic_class = 256", "expected a number from 0 to 255"},
        {"traffic_class = -1", "expected a number from 0 to 255"},
        {"traffic_class = 0x10", "expected a number from 0 to 255"},
        {"service_level = 16", "expected a number from 0 to 15"},
        {"rc_max = 0", "expected a number from 1"},
        {"rc_max = 99999999999999999999", "expected a number from 1"},
        {"enabled = yes\xff", "found 'yes?'"},
        {long_line, "a line of 1999 characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_topo_site site = ls_topo_site_default;
        struct ls_error err = {0};
        enum ls_status status = ls_topo_site_parse("s", cases[i].text, &site, NULL, &err);
        tap_ok(status == LS_ERR_FORMAT && strstr(err.message, cases[i].part) &&
                   !memcmp(&site, &ls_topo_site_default, sizeof site),
               "%s", err.message);
    }
    struct ls_topo_site site = ls_topo_site_default;
    struct ls_error err = {0};
    struct ls_buf problems;
    ls_buf_init(&problems, 4096);
    ls_topo_site_parse("s", "a = 1\nrc_max = 7\nb\n", &site, &problems, &err);
    tap_ok(problems.data && strstr(problems.data, "s:1: 'a'") &&
               strstr(problems.data, "s:3: found 'b'") && site.rc_max == 256,
           "all problems are listed, and nothing is taken over");
    ls_buf_free(&problems);
}

static bool has(const char **names, const char *const *want)
{
    int n = 0;
    for (; want[n] && names[n]; n++)
        if (strcmp(names[n], want[n]) != 0)
            return false;
    return !want[n] && !names[n];
}

static void test_keys(void)
{
    const struct {
        const char *what, *text;
        const char *want[5];
    } cases[] = {
        {"empty", "", {NULL}},
        {"nccl.conf",
         "NCCL_DEBUG=WARN\n#NCCL_IB_HCA=x\nNCCL_SOCKET_IFNAME==ens1f0\n",
         {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME"}},
        {"blanks, no end of line",
         "  UCX_TLS = all\n\tUCX_NUM_EPS\t=1",
         {"UCX_TLS", "UCX_NUM_EPS"}},
        {"sections of ucx.conf",
         "[Grace]\nCPU model=Grace\nUCX_REG_NONBLOCK_MEM_TYPES=host\n",
         {"UCX_REG_NONBLOCK_MEM_TYPES"}},
        {"unreadable lines", "NCCL_DEBUG\n=1\n\xff\xfe=2\nA B=1\nNCCL_ALGO=\n", {"NCCL_ALGO"}},
        {"ends of line of another system", "A=1\r\nB=2\r\n", {"A", "B"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_arena arena = {0};
        struct ls_error err = {0};
        const char **names;
        enum ls_status status = ls_topo_conf_keys(cases[i].text, &arena, &names, &err);
        tap_ok(status == LS_OK && has(names, cases[i].want), "keys: %s", cases[i].what);
        ls_arena_free(&arena);
    }
}

static const char *get(void *user, const char *name)
{
    const char *const *pairs = user;
    for (; *pairs; pairs += 2)
        if (!strcmp(*pairs, name))
            return pairs[1];
    return NULL;
}

/* In an empty folder, which is left empty. */
static void test_ucx_modules(const char *dir)
{
    static const char *const names[] = {"libuct_ib.so.0", "libuct_ib.so"};
    const char *env[] = {"UCX_MODULE_DIR", dir, NULL};
    tap_ok(ls_topo_host_ucx(get, env) == LS_TOPO_UCX_NO_IB, "UCX without its InfiniBand module");
    for (int i = 0; i < 2; i++) {
        ls_file_replace(names[i], "", 0, NULL);
        tap_ok(ls_topo_host_ucx(get, env) == LS_TOPO_UCX_IB, "UCX with %s", names[i]);
        unlink(names[i]);
    }
    env[1] = "/absent";
    tap_ok(ls_topo_host_ucx(get, env) == LS_TOPO_UCX_UNKNOWN, "no folder of modules: not known");
}

static void test_host(void)
{
    char dir[4096], path[5000];
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/lockstep-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir) || chdir(dir) != 0)
        exit(1);
    const struct {
        const char *name, *text;
    } files[] = {
        {".nccl.conf", "IN_HOME=1\n"}, {"other.conf", "IN_OTHER=1\n"}, {"ucx.conf", "IN_UCX=1\n"}};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        ls_file_replace(path, files[i].text, strlen(files[i].text), NULL);
    }
    snprintf(path, sizeof path, "%s/other.conf", dir);
    const char *home[] = {"HOME", dir, NULL},
               *other[] = {"HOME", dir, "NCCL_CONF_FILE", path, NULL};
    const char *const *both[] = {home, other};
    for (int i = 0; i < 2; i++) {
        struct ls_arena arena = {0};
        struct ls_error err = {0};
        const char **names;
        bool seen[3] = {0};
        enum ls_status status = ls_topo_host_keys(get, (void *)both[i], &arena, &names, &err);
        for (int k = 0; status == LS_OK && names[k]; k++)
            for (int f = 0; f < 3; f++)
                seen[f] |= strlen(names[k]) == strcspn(files[f].text, "=") &&
                           !strncmp(names[k], files[f].text, strlen(names[k]));
        tap_ok(status == LS_OK && seen[2] && seen[0] == (i == 0) && seen[1] == (i == 1),
               "NCCL_CONF_FILE %s ~/.nccl.conf", i ? "comes instead of" : "not set:");
        ls_arena_free(&arena);
    }
    for (int i = 0; i < 3; i++)
        unlink(files[i].name);
    test_ucx_modules(dir);
    if (chdir("/") == 0)
        rmdir(dir);
}

int main(void)
{
    test_good();
    test_bad();
    test_keys();
    test_host();
    return tap_done();
}
