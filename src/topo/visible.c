/* CUDA_VISIBLE_DEVICES, and which of the visible GPUs a task takes. The rules are those of the CUDA
 * programming guide, section "CUDA Environment Variables". */
#include "topo/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* More than any node has; NVIDIA's own limit on GPUs per system image is 64. */
#define DEVICES_MAX 1024

struct item {
    const char *text; /* without spaces around it */
    int len;
};

static struct item next_item(const char **at)
{
    const char *start = *at, *end = start + strcspn(start, ",");
    *at = *end ? end + 1 : NULL;
    while (start < end && *start == ' ')
        start++;
    while (end > start && end[-1] == ' ')
        end--;
    return (struct item){start, (int)(end - start)};
}

static bool is_uuid(struct item item)
{
    if (item.len < 5 || (strncmp(item.text, "GPU-", 4) != 0 && strncmp(item.text, "MIG-", 4) != 0))
        return false;
    for (int i = 4; i < item.len; i++)
        if (!isalnum((unsigned char)item.text[i]) && !strchr("-/", item.text[i]))
            return false;
    return true;
}

static bool is_index(struct item item, uint64_t *value)
{
    size_t at = 0;
    return item.len > 0 && ls_topo_digits(item.text, &at, INT32_MAX, value) &&
           at == (size_t)item.len;
}

/* Devices end here: an empty item or a negative index. */
static bool ends_list(struct item item)
{
    if (item.len == 0)
        return true;
    uint64_t value;
    struct item rest = {item.text + 1, item.len - 1};
    return item.text[0] == '-' && is_index(rest, &value);
}

static enum ls_status read_items(const char *text, struct ls_visible *visible,
                                 struct ls_arena *arena, struct ls_error *err)
{
    char shown[84];
    bool uuids = false;
    for (const char *at = text; at;) {
        const char *start = at;
        struct item item = next_item(&at);
        uint64_t index = 0;
        if (ends_list(item)) {
            if (visible->count || at)
                snprintf(visible->note, sizeof visible->note,
                         "CUDA_VISIBLE_DEVICES=%.60s: CUDA stops at '%.*s', so %d of the devices "
                         "named there can be seen",
                         ls_topo_show(text, shown), item.len < 12 ? item.len : 12, item.text,
                         visible->count);
            return LS_OK;
        }
        bool uuid = is_uuid(item);
        if (!uuid && !is_index(item, &index))
            return ls_topo_bad(err, LS_ERR_FORMAT, text, (size_t)(start - text),
                               "expected the number of a device or its UUID (GPU-..., MIG-...)");
        if (visible->count && uuid != uuids)
            return ls_topo_bad(err, LS_ERR_FORMAT, text, (size_t)(start - text),
                               "found numbers and UUIDs, expected one kind");
        if (visible->count == DEVICES_MAX)
            return ls_topo_bad(err, LS_ERR_OVERFLOW, text, (size_t)(start - text),
                               "more than %d devices", DEVICES_MAX);
        uuids = uuid;
        for (int i = 0; i < visible->count; i++)
            if (uuid ? strlen(visible->uuid[i]) == (size_t)item.len &&
                           !strncmp(visible->uuid[i], item.text, (size_t)item.len)
                     : visible->index[i] == (int)index)
                return ls_topo_bad(
                    err, LS_ERR_FORMAT, text, (size_t)(start - text),
                    "device %.*s is named twice, for which CUDA shows none; name each "
                    "once",
                    item.len < 60 ? item.len : 60, item.text);
        if (uuid)
            visible->uuid[visible->count] = ls_arena_printf(arena, "%.*s", item.len, item.text);
        else
            visible->index[visible->count] = (int)index;
        if (uuid && !visible->uuid[visible->count])
            return ls_error_set(err, LS_ERR_NOMEM, "no memory for the list of visible devices");
        visible->count++;
    }
    return LS_OK;
}

enum ls_status ls_visible_parse(const char *text, struct ls_arena *arena,
                                struct ls_visible *visible, struct ls_error *err)
{
    *visible = (struct ls_visible){.set = text != NULL};
    /* "NoDevFiles" is how Slurm before 22.05 says that a job has no GPU. */
    if (!text || !strcmp(text, "NoDevFiles") || !*text)
        return LS_OK;
    visible->index = ls_arena_alloc(arena, DEVICES_MAX * sizeof *visible->index);
    visible->uuid = ls_arena_alloc(arena, DEVICES_MAX * sizeof *visible->uuid);
    enum ls_status status =
        visible->index && visible->uuid
            ? read_items(text, visible, arena, err)
            : ls_error_set(err, LS_ERR_NOMEM, "no memory for the list of visible devices");
    if (status != LS_OK) {
        *visible = (struct ls_visible){0};
        return ls_error_context(err, "CUDA_VISIBLE_DEVICES");
    }
    if (visible->count && visible->uuid[0])
        visible->index = NULL;
    else
        visible->uuid = NULL;
    return LS_OK;
}

enum ls_status ls_visible_choose(int visible, int local_rank, int local_size, int *device,
                                 struct ls_error *err)
{
    if (visible <= 0)
        return ls_error_set(err, LS_ERR_ENV,
                            "local rank %d sees no GPU: none was allocated to it; ask Slurm with "
                            "--gpus-per-node=%d, or train on the CPU",
                            local_rank, local_size > 0 ? local_size : 1);
    if (visible > 1 && local_rank >= visible)
        return ls_error_set(err, LS_ERR_ENV,
                            "local rank %d sees %d GPUs, but its node has %d tasks; ask for "
                            "--gpus-per-node=%d, or for fewer tasks per node",
                            local_rank, visible, local_size, local_size);
    *device = visible == 1 ? 0 : local_rank;
    return LS_OK;
}
