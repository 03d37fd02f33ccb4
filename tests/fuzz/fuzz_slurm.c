/* Slurm's environment as lines NAME=value: no crash, a message for every refusal, and what is accepted
 * is consistent. */
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(truth)  \
    do {              \
        if (!(truth)) \
            abort();  \
    } while (0)

struct lines {
    const char *text; /* lines, each ended by NUL */
    size_t size;
};

static const char *get(void *user, const char *name)
{
    const struct lines *lines = user;
    size_t n = strlen(name);
    for (const char *at = lines->text; at < lines->text + lines->size; at += strlen(at) + 1)
        if (!strncmp(at, name, n) && at[n] == '=')
            return at + n + 1;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    HOLDS(text);
    for (size_t i = 0; i < size; i++)
        text[i] = data[i] == '\n' ? '\0' : (char)data[i];
    text[size] = '\0';
    struct lines lines = {text, size};
    struct ls_slurm s;
    struct ls_error err = {0};
    enum ls_status status = ls_slurm_read(get, &lines, &s, &err);
    HOLDS((status == LS_OK) == (err.message[0] == '\0') && err.status == status);
    HOLDS(status == LS_OK || status == LS_ERR_ENV);
    if (status == LS_OK && s.place == LS_SLURM_STEP) {
        int64_t sum = 0;
        for (int i = 0; i < s.nodes.count; i++)
            sum += s.tasks_per_node[i];
        HOLDS(sum == s.ntasks && s.proc_id >= 0 && s.proc_id < s.ntasks);
        HOLDS(s.node_id >= 0 && s.node_id < s.nodes.count);
        HOLDS(s.local_id >= 0 && s.local_id < s.tasks_per_node[s.node_id]);
        struct ls_pmix_view view = {.found = true,
                                    .nspace = get(&lines, "PMIX_NAMESPACE"),
                                    .rank = s.proc_id,
                                    .size = s.ntasks,
                                    .local_rank = s.local_id,
                                    .local_size = s.tasks_per_node[s.node_id]};
        ls_slurm_check_pmix(&s, &view, NULL, &err);
        err = (struct ls_error){0};
        view = (struct ls_pmix_view){0};
        HOLDS((ls_slurm_check_pmix(&s, &view, text, &err) == LS_OK) == (s.ntasks == 1));
    }
    if (status == LS_OK && s.place == LS_SLURM_ALLOCATION)
        HOLDS((s.nodes.count > 0 || s.ncomponents > 1) && s.proc_id < 0);
    if (status == LS_OK && s.place == LS_SLURM_NONE)
        HOLDS(s.nodes.count == 0 && s.ncomponents == 0);
    ls_slurm_free(&s);
    free(text);
    return 0;
}
