/* Which rank runs where: workers are numbered keeper by keeper, local ranks node by node. */
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

static int count_nodes(const int *node, int n)
{
    int top = 0;
    for (int k = 0; k < n; k++)
        if (node[k] >= top)
            top = node[k] + 1;
    return top;
}

static enum ls_status check(int n_keepers, const int *node, const int *workers, int64_t *size,
                            struct ls_error *err)
{
    *size = 0;
    if (n_keepers < 1)
        return ls_error_set(err, LS_ERR_USAGE, "expected at least one keeper, got %d", n_keepers);
    for (int k = 0; k < n_keepers; k++) {
        // Nodes are numbered in the order of their lowest keeper, so a number is below the
        // keeper's.
        if (node[k] < 0 || node[k] > k)
            return ls_error_set(err, LS_ERR_USAGE, "keeper %d: node number %d is not in 0..%d", k,
                                node[k], k);
        if (workers[k] < 1)
            return ls_error_set(err, LS_ERR_USAGE,
                                "keeper %d has %d workers, at least 1 is needed; start fewer tasks",
                                k, workers[k]);
        *size += workers[k];
    }
    // A rank travels in 32 bits, and PMIx wants one array entry for each.
    if (*size > LS_WIRE_MOST_RANKS)
        return ls_error_set(err, LS_ERR_OVERFLOW, "%lld workers are more than %d", (long long)*size,
                            LS_WIRE_MOST_RANKS);
    return LS_OK;
}

enum ls_status ls_wire_map_init(struct ls_wire_map *map, int n_keepers, const int *node,
                                const int *workers, struct ls_error *err)
{
    *map = (struct ls_wire_map){0};
    int64_t size;
    LS_TRY(check(n_keepers, node, workers, &size, err));
    int n_nodes = count_nodes(node, n_keepers);
    map->first = calloc((size_t)n_keepers + 1, sizeof *map->first);
    map->rank = calloc((size_t)size, sizeof *map->rank);
    int *on_node = calloc((size_t)n_nodes, sizeof *on_node);
    if (!map->first || !map->rank || !on_node) {
        free(on_node);
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the map of %lld ranks",
                            (long long)size);
    }
    int rank = 0;
    for (int k = 0; k < n_keepers; k++) {
        map->first[k] = rank;
        for (int w = 0; w < workers[k]; w++)
            map->rank[rank++] = (struct ls_wire_place){k, node[k], on_node[node[k]]++};
    }
    map->first[n_keepers] = rank;
    map->size = rank;
    map->n_keepers = n_keepers;
    map->n_nodes = n_nodes;
    free(on_node);
    return LS_OK;
}

void ls_wire_map_free(struct ls_wire_map *map)
{
    free(map->first);
    free(map->rank);
    *map = (struct ls_wire_map){0};
}
