/* Readers of "[type:]N" and of the lists in which Slurm says which GPUs a job has. */
#include "spank/gpus.h"

#include <stdlib.h>
#include <string.h>

/* More entries than any list of GPUs has. */
#define MOST 4096

static bool type_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("._-", c);
}

enum ls_status ls_gpus_parse(const char *text, struct ls_gpus *gpus, struct ls_error *err)
{
    const char *colon = strrchr(text, ':'), *number = colon ? colon + 1 : text;
    size_t len = colon ? (size_t)(colon - text) : 0, digits = strspn(number, "0123456789");
    bool good = !colon || (len > 0 && len < sizeof gpus->type);
    *gpus = (struct ls_gpus){0};
    for (size_t i = 0; i < len && good; i++)
        good = type_char(text[i]);
    long count = digits > 0 && digits <= 4 && !number[digits] ? strtol(number, NULL, 10) : 0;
    if (!good || count < 1 || count > LS_GPUS_MAX)
        return ls_error_set(err, LS_ERR_USAGE,
                            "found '%.80s', expected the number of GPUs of each node, 1 to %d, or "
                            "their type and number, such as a100:4",
                            text, LS_GPUS_MAX);
    memcpy(gpus->type, text, len);
    gpus->count = (int)count;
    return LS_OK;
}

int ls_gpus_listed(const char *list)
{
    int count = 0;
    if (!list || !*list || !strcmp(list, "NoDevFiles"))
        return 0;
    for (const char *at = list; at && count < MOST; at = strchr(at, ',')) {
        at += *at == ',';
        char *end;
        long first = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        long last = first >= 0 && *end == '-' ? strtol(end + 1, NULL, 10) : first;
        count += last > first && last - first < MOST ? (int)(last - first) + 1 : 1;
    }
    return count;
}
