/* What users and sites write for the Slurm plugins: words of plugstack.conf, requests for GPUs, lists of
 * them. No crash, a message for every refusal, and what is accepted is in its range. */
#include "spank/gpus.h"
#include "spank/plugin.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(truth)  \
    do {              \
        if (!(truth)) \
            abort();  \
    } while (0)

static bool said(enum ls_status status, const struct ls_error *err)
{
    return (status == LS_OK) == (err->message[0] == '\0') && err->status == status;
}

static void check_args(char *text)
{
    char *words[64];
    int n = 0;
    struct ls_spank_args args = ls_spank_args_default;
    struct ls_error err = {0};
    for (char *save, *word = strtok_r(text, " \t\n", &save); word && n < 64;
         word = strtok_r(NULL, " \t\n", &save))
        words[n++] = word;
    HOLDS(said(ls_spank_args_parse(n, words, &args, &err), &err));
    HOLDS(args.enabled >= 0 && args.enabled <= 1 && args.transport >= 0 &&
          args.transport <= LS_TOPO_KEEP);
    HOLDS(args.bind >= 0 && args.bind <= 1 && args.check >= 0 && args.check <= 2);
    HOLDS(args.site[0] == '/' && (!args.root[0] || args.root[0] == '/'));
    HOLDS(args.nofile.kind != LS_SPANK_UNLIMITED);
    HOLDS((args.memlock.kind == LS_SPANK_AT_LEAST) == (args.memlock.value > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    HOLDS(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    struct ls_gpus gpus;
    struct ls_error err = {0};
    bool good = ls_gpus_parse(text, &gpus, &err) == LS_OK;
    HOLDS(said(err.status, &err));
    HOLDS(good ? gpus.count >= 1 && gpus.count <= LS_GPUS_MAX : gpus.count == 0 && !gpus.type[0]);
    HOLDS(strlen(gpus.type) < sizeof gpus.type);
    HOLDS(ls_gpus_listed(text) >= 0);
    check_args(text);
    free(text);
    return 0;
}
