/* Answers from other nodes, of which anything may come: read, compared, grouped and judged without a crash,
 * and what was refused adds nothing that passes. Blocks of the input, divided by a NUL, are ranks. */
#include "check/internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(truth)  \
    do {              \
        if (!(truth)) \
            abort();  \
    } while (0)

enum { RANKS = 5, MOST_CHECKS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const name[RANKS] = {"n0", "n1", "n2", "n3", "n4"};
    static const int number[RANKS] = {0, 1, 2, 3, 4};
    const char *facts[RANKS][MOST_CHECKS] = {{0}}, *host[RANKS], *fact[RANKS];
    int node[RANKS], group[4096], ranks = 0;
    struct ls_check_list list = {0};
    const char *at = (const char *)data, *end = at + size;
    for (; ranks < RANKS && at <= end; ranks++) {
        const char *stop = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        struct ls_error err = {0};
        size_t n = (size_t)((stop ? stop : end) - at);
        enum ls_status status = ls_check_unpack(at, n, ranks, &list, facts[ranks], &err);
        HOLDS((status == LS_OK) == (err.message[0] == '\0'));
        HOLDS(status == LS_OK || status == LS_ERR_FORMAT);
        host[ranks] = name[ranks];
        node[ranks] = number[ranks];
        at += n + 1;
    }
    for (int c = 0; c < ls_nchecks; c++) {
        for (int r = 0; r < ranks; r++)
            fact[r] = facts[r][c];
        struct ls_check_world world = {ranks, host, node, fact};
        if (ls_checks[c].compare)
            ls_checks[c].compare(&ls_checks[c], &world, &list);
    }
    struct ls_check_report report = {
        .list = list, .size = ranks, .nodes = ranks, .host = host, .node = node};
    struct ls_check_verdict verdict;
    struct ls_arena arena = {0};
    HOLDS(!list.failed);
    if (list.n < (int)(sizeof group / sizeof *group))
        ls_check_group(&list, group);
    ls_check_judge(&list, &verdict);
    ls_check_exclude(&report, &arena);
    ls_arena_free(&arena);
    ls_check_list_free(&list);
    return 0;
}
