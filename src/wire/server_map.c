/* Describes the whole world to PMIx: sizes, node and process map, and per rank its place. Local
 * size, rank and peers are those of the node, over all its keepers. */
#include "wire/server_map.h"
#include "wire/pmix_util.h"

#include <pmix_server.h>
#include <stdlib.h>

// Growth of the lists: ranks of up to seven digits with their separators.
enum { MAX_LIST = 16 << 20 };

// "0,1;2,3": the ranks of every node; or those of one node only (node >= 0).
static void list_ranks(const struct ls_wire_map *map, int node, struct ls_buf *out)
{
    ls_buf_init(out, MAX_LIST);
    int from = node < 0 ? 0 : node, to = node < 0 ? map->n_nodes : node + 1;
    for (int d = from; d < to; d++) {
        bool first = true;
        if (d > from)
            ls_buf_printf(out, ";");
        for (int r = 0; r < map->size; r++)
            if (map->rank[r].node == d) {
                ls_buf_printf(out, first ? "%d" : ",%d", r);
                first = false;
            }
    }
}

// Names without a meaning: identity is the number, and host names need not differ between nodes.
static void list_nodes(const struct ls_wire_map *map, struct ls_buf *out)
{
    ls_buf_init(out, MAX_LIST);
    for (int d = 0; d < map->n_nodes; d++)
        ls_buf_printf(out, d ? ",node%d" : "node%d", d);
}

struct maps {
    struct ls_buf nodes, ranks, peers;
    char *node_map, *rank_map;
};

static enum ls_status make_maps(const struct ls_wire_map *map, int node, struct maps *m,
                                struct ls_error *err)
{
    list_nodes(map, &m->nodes);
    list_ranks(map, -1, &m->ranks);
    list_ranks(map, node, &m->peers);
    if (m->nodes.failed || m->ranks.failed || m->peers.failed)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the map of %d ranks", map->size);
    char text[80];
    pmix_status_t rc = PMIx_generate_regex(m->nodes.data, &m->node_map);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_generate_ppn(m->ranks.data, &m->rank_map);
    if (rc != PMIX_SUCCESS)
        return ls_error_set(err, LS_ERR_ENV, "PMIx cannot fold the map of %d ranks: %s", map->size,
                            ls_wire_pmix_text(rc, text));
    return LS_OK;
}

static void free_maps(struct maps *m)
{
    ls_buf_free(&m->nodes);
    ls_buf_free(&m->ranks);
    ls_buf_free(&m->peers);
    free(m->node_map);
    free(m->rank_map);
}

#ifdef PMIX_REGEX
enum { MAP_TYPE = PMIX_REGEX };
#else
enum { MAP_TYPE = PMIX_STRING };
#endif
#ifdef PMIX_PROC_INFO_ARRAY
static const char rank_key[] = PMIX_PROC_INFO_ARRAY;
#else
static const char rank_key[] = PMIX_PROC_DATA;
#endif

static void describe_rank(const struct ls_wire_place *place, int rank, pmix_info_t *info)
{
    pmix_data_array_t *array;
    PMIX_DATA_ARRAY_CREATE(array, 4, PMIX_INFO);
    pmix_info_t *in = array->array;
    pmix_rank_t r = (pmix_rank_t)rank;
    uint16_t local = (uint16_t)place->local_rank;
    uint32_t node = (uint32_t)place->node;
    PMIX_INFO_LOAD(&in[0], PMIX_RANK, &r, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&in[1], PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    PMIX_INFO_LOAD(&in[2], PMIX_NODE_RANK, &local, PMIX_UINT16);
    PMIX_INFO_LOAD(&in[3], PMIX_NODEID, &node, PMIX_UINT32);
    PMIX_LOAD_KEY(info->key, rank_key);
    info->value.type = PMIX_DATA_ARRAY;
    info->value.data.darray = array;
}

enum ls_status ls_wire_describe_world(const struct ls_wire_map *map, int keeper, const char *nspace,
                                      pmix_info_t **out, size_t *n, struct ls_error *err)
{
    enum { FIXED = 8 };
    int node = map->rank[map->first[keeper]].node;
    uint32_t size = (uint32_t)map->size, nodes = (uint32_t)map->n_nodes, local = 0;
    for (int r = 0; r < map->size; r++)
        local += map->rank[r].node == node;
    if (local > UINT16_MAX)
        return ls_error_set(err, LS_ERR_OVERFLOW, "%u ranks on one node; PMIx takes %d", local,
                            UINT16_MAX);
    struct maps m = {0};
    enum ls_status st = make_maps(map, node, &m, err);
    if (st != LS_OK) {
        free_maps(&m);
        return st;
    }
    *n = FIXED + size;
    pmix_info_t *info;
    PMIX_INFO_CREATE(info, *n);
    if (!info) {
        free_maps(&m);
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for the map of %u ranks", size);
    }
    PMIX_INFO_LOAD(&info[0], PMIX_UNIV_SIZE, &size, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_JOB_SIZE, &size, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[2], PMIX_LOCAL_SIZE, &local, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[3], PMIX_NUM_NODES, &nodes, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[4], PMIX_LOCAL_PEERS, m.peers.data, PMIX_STRING);
    PMIX_INFO_LOAD(&info[5], PMIX_NODE_MAP, m.node_map, MAP_TYPE);
    PMIX_INFO_LOAD(&info[6], PMIX_PROC_MAP, m.rank_map, MAP_TYPE);
    PMIX_INFO_LOAD(&info[7], PMIX_JOBID, nspace, PMIX_STRING);
    for (int r = 0; r < map->size; r++)
        describe_rank(&map->rank[r], r, &info[FIXED + r]);
    free_maps(&m);
    *out = info;
    return LS_OK;
}
