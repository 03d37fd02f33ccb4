/* Fingerprints: who is named, what is shown, and that no bytes can break the comparison. */
#include "tests/tap.h"
#include "wire/wire.h"

#include <string.h>

enum { MAX = 64 };

static struct ls_error compare(int n, const char *const *text, const char *const *host)
{
    const void *blob[MAX];
    size_t bytes[MAX];
    for (int i = 0; i < n; i++) {
        blob[i] = text[i];
        bytes[i] = strlen(text[i]);
    }
    struct ls_error err = {0};
    enum ls_status st = ls_wire_compare(blob, bytes, host, n, &err);
    if (st != err.status)
        err.status = LS_ERR_INTERNAL;
    return err;
}

static void expect(const char *what, struct ls_error err, enum ls_status status,
                   const char *message)
{
    bool ok = err.status == status && strcmp(err.message, message) == 0;
    tap_ok(ok, "%s", what);
    if (!ok)
        tap_note("got %d: %s", (int)err.status, err.message);
}

#define ADVICE "; give all ranks the same build, job description and environment"

static void test_messages(void)
{
    const char *host[] = {"n0", "n0", "n1", "n1", "n2"};
    const char *a = "ucx=1.13.1\njob=aa\n", *b = "ucx=1.15.0\njob=aa\n", *c = "ucx=1.13.1\n";

    expect("the same text everywhere", compare(4, (const char *[]){a, a, a, a}, host), LS_OK, "");
    expect("a world of one", compare(1, (const char *[]){a}, host), LS_OK, "");
    expect("empty texts", compare(3, (const char *[]){"", "", ""}, host), LS_OK, "");
    expect("one odd rank", compare(4, (const char *[]){a, a, b, a}, host), LS_ERR_ENV,
           "rank 2 on n1 differs from 3 others: ucx is \"1.15.0\", elsewhere \"1.13.1\"" ADVICE);
    expect("rank 0 is the odd one", compare(3, (const char *[]){b, a, a}, host), LS_ERR_ENV,
           "rank 0 on n0 differs from 2 others: ucx is \"1.15.0\", elsewhere \"1.13.1\"" ADVICE);
    expect("two ranks of one node", compare(5, (const char *[]){a, a, b, b, a}, host), LS_ERR_ENV,
           "ranks 2-3 on n1 differ from 3 others: ucx is \"1.15.0\", elsewhere \"1.13.1\"" ADVICE);
    expect("ranks of two nodes", compare(5, (const char *[]){a, b, a, a, b}, host), LS_ERR_ENV,
           "ranks 1 on n0, 4 on n2 differ from 3 others: ucx is \"1.15.0\", elsewhere "
           "\"1.13.1\"" ADVICE);
    expect(
        "at a tie rank 0 is right", compare(2, (const char *[]){a, b}, host), LS_ERR_ENV,
        "rank 1 on n0 differs from rank 0 on n0: ucx is \"1.15.0\", elsewhere \"1.13.1\"" ADVICE);
    expect("a line is missing", compare(3, (const char *[]){a, c, a}, host), LS_ERR_ENV,
           "rank 1 on n0 differs from 2 others: job is not set, elsewhere \"aa\"" ADVICE);
    expect("a line too many", compare(3, (const char *[]){c, a, c}, host), LS_ERR_ENV,
           "rank 1 on n0 differs from 2 others: job is \"aa\", elsewhere not set" ADVICE);
    expect("an empty text", compare(3, (const char *[]){c, "", c}, host), LS_ERR_ENV,
           "rank 1 on n0 differs from 2 others: ucx is not set, elsewhere \"1.13.1\"" ADVICE);
    expect("two odd groups", compare(5, (const char *[]){a, a, b, a, c}, host), LS_ERR_ENV,
           "rank 2 on n1 differs from 3 others: ucx is \"1.15.0\", elsewhere \"1.13.1\". rank 4 on "
           "n2 differs from 3 others: job is not set, elsewhere \"aa\"" ADVICE);
    expect("another order", compare(2, (const char *[]){a, "job=aa\nucx=1.13.1\n"}, host),
           LS_ERR_ENV,
           "rank 1 on n0 differs from rank 0 on n0: same lines in another order or number" ADVICE);
    expect("no final newline, no '=', control bytes",
           compare(2, (const char *[]){"x=\x01z", "flag"}, host), LS_ERR_ENV,
           "rank 1 on n0 differs from rank 0 on n0: flag is \"\", elsewhere not set; x is not set, "
           "elsewhere \"?z\"" ADVICE);
}

// Everything at its longest: the message is cut, but says what to do.
static void test_long(void)
{
    static char host_text[MAX][80], text[MAX][4096];
    const char *host[MAX], *all[MAX];
    for (int i = 0; i < MAX; i++) {
        snprintf(host_text[i], sizeof host_text[i], "%070d.%d", i, i);
        char *p = text[i];
        for (int k = 0; k < 20; k++)
            p += sprintf(p, "a.rather.long.key.of.its.own.%d=%0100d\n", k, i / 2);
        host[i] = host_text[i];
        all[i] = text[i];
    }
    struct ls_error err = compare(MAX, all, host);
    size_t n = strlen(err.message), tail = strlen(ADVICE);
    tap_ok(err.status == LS_ERR_ENV && n < sizeof err.message && n > tail &&
               strcmp(err.message + n - tail, ADVICE) == 0,
           "a long difference is cut before the advice (%zu bytes)", n);
}

static void test_random_bytes(void)
{
    const char *host[] = {"n0", "n1", "n2"};
    bool ok = true;
    for (uint64_t round = 0; round < 20000 && ok; round++) {
        unsigned char raw[3][40];
        const void *blob[3];
        size_t bytes[3];
        bool equal = true;
        for (int r = 0; r < 3; r++) {
            // An alphabet in which keys meet often.
            for (unsigned i = 0; i < sizeof raw[r]; i++) {
                uint32_t w[4];
                ls_philox(1, (uint64_t)r, round * 64 + i, w);
                raw[r][i] = (unsigned char)"ab=\n\0\xff=\n"[w[0] & 7];
                bytes[r] = w[1] % 8;
            }
            // Exactly as long as it says, so that the sanitizer sees every step beyond.
            char *copy = malloc(bytes[r] + !bytes[r]);
            memcpy(copy, raw[r], bytes[r]);
            blob[r] = copy;
            equal = equal && bytes[r] == bytes[0] && !memcmp(raw[r], raw[0], bytes[0]);
        }
        struct ls_error err = {0};
        enum ls_status st = ls_wire_compare(blob, bytes, host, 3, &err);
        ok = st == (equal ? LS_OK : LS_ERR_ENV) && (equal || strstr(err.message, ADVICE));
        for (int r = 0; r < 3; r++)
            free((void *)(uintptr_t)blob[r]);
    }
    tap_ok(ok, "random bytes: equal texts pass, others give a message");
}

static void test_map(void)
{
    struct ls_wire_map map;
    struct ls_error err = {0};
    enum ls_status st = ls_wire_map_init(&map, 3, (int[]){0, 1, 0}, (int[]){2, 3, 1}, &err);
    struct ls_wire_place want[] = {{0, 0, 0}, {0, 0, 1}, {1, 1, 0},
                                   {1, 1, 1}, {1, 1, 2}, {2, 0, 2}};
    tap_ok(st == LS_OK && map.size == 6 && map.n_nodes == 2 && map.n_keepers == 3 &&
               memcmp(map.rank, want, sizeof want) == 0 && map.first[2] == 5 && map.first[3] == 6,
           "map: two keepers share a node, local ranks go on");
    ls_wire_map_free(&map);
    tap_ok(ls_wire_map_init(&map, 2, (int[]){0, 1}, (int[]){2, 0}, &err) == LS_ERR_USAGE &&
               strstr(err.message, "keeper 1 has 0 workers"),
           "map: a keeper without workers");
    ls_wire_map_free(&map);
    err = (struct ls_error){0};
    tap_ok(ls_wire_map_init(&map, 2, (int[]){0, 2}, (int[]){1, 1}, &err) == LS_ERR_USAGE,
           "map: node numbers out of order");
    ls_wire_map_free(&map);
    err = (struct ls_error){0};
    tap_ok(ls_wire_map_init(&map, 2, (int[]){0, 0}, (int[]){1 << 30, 1 << 30}, &err) ==
               LS_ERR_OVERFLOW,
           "map: too many workers");
    ls_wire_map_free(&map);
}

// Three ranks in one process: the others' part of every exchange is known.
struct ring {
    const char *text[3];
    int calls;
    size_t most; // bytes of the longest blob
    uint64_t hash[3];
    const void *all[3];
    size_t bytes[3];
};

static enum ls_status ring_exchange(void *arg, const void *mine, size_t n, const void *const **all,
                                    const size_t **bytes, struct ls_error *err)
{
    struct ring *ring = arg;
    (void)mine, (void)err;
    for (int r = 0; r < 3; r++) {
        ring->hash[r] = ls_hash64(ring->text[r]);
        ring->all[r] = ring->calls ? ring->text[r] : (const void *)&ring->hash[r];
        ring->bytes[r] = ring->calls ? strlen(ring->text[r]) : sizeof ring->hash[r];
    }
    ring->calls++;
    ring->most = n > ring->most ? n : ring->most;
    *all = ring->all;
    *bytes = ring->bytes;
    return LS_OK;
}

static void test_exchange(void)
{
    const char *host[] = {"n0", "n1", "n2"}, *a = "ucx=1.13.1\njob=aa\n",
               *b = "ucx=1.15.0\njob=aa\n";
    struct ring ring = {.text = {a, a, a}};
    struct ls_error err = {0};
    enum ls_status st = ls_wire_fingerprint(ring_exchange, &ring, a, host, 3, &err);
    tap_ok(st == LS_OK && ring.calls == 1 && ring.most == 8,
           "equal ranks exchange a hash and nothing else");
    for (int odd = 0; odd < 3; odd++) {
        ring = (struct ring){.text = {odd == 0 ? b : a, odd == 1 ? b : a, odd == 2 ? b : a}};
        for (int r = 0; r < 3; r++) {
            char want[64];
            ring.calls = 0;
            err = (struct ls_error){0};
            st = ls_wire_fingerprint(ring_exchange, &ring, ring.text[r], host, 3, &err);
            snprintf(want, sizeof want, "rank %d on n%d differs from 2 others: ucx is ", odd, odd);
            tap_ok(st == LS_ERR_ENV && ring.calls == 2 && !strncmp(err.message, want, strlen(want)),
                   "rank %d is odd: rank %d comes to that verdict", odd, r);
        }
    }
}

int main(void)
{
    test_messages();
    test_exchange();
    test_long();
    test_random_bytes();
    test_map();
    return tap_done();
}
