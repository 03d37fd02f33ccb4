/* The reader of job descriptions. Input: the file, and behind each NUL byte one --set. What is taken
 * must print, and what is printed must read back to the same job. */
#include "job/job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_SETS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads text through a file in memory; *job is NULL when it was refused. */
static void read_text(const char *text, size_t size, const char *const *sets, int nsets,
                      struct ls_job **job)
{
    char path[64];
    int fd = memfd_create("job", MFD_CLOEXEC);
    struct ls_buf problems;
    struct ls_error err = {0};
    ls_buf_init(&problems, (size_t)1 << 20);
    *job = NULL;
    if (fd < 0 || ls_file_write_all(fd, text, size, "memory", &err) != LS_OK)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum ls_status status = ls_job_read(path, sets, nsets, job, &problems, &err);
    if ((status == LS_OK) != (*job != NULL) || (status == LS_OK) != (problems.len == 0))
        abort(); /* refused without a reason, or taken with one */
    for (const char *at = problems.data; at && (at = strstr(at, ": ")); at += strcspn(at, "\n"))
        if (!strncmp(at + 2, "found text that libconfig", 25))
            abort(); /* our grammar and libconfig's disagree */
    ls_buf_free(&problems);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1), *end = copy + size, *printed = NULL;
    const char *sets[MAX_SETS];
    struct ls_job *job, *again;
    size_t length;
    int nsets = 0;
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    *end = '\0';
    for (char *at = copy + strlen(copy); at < end && nsets < MAX_SETS; at += strlen(at))
        sets[nsets++] = ++at;
    read_text(copy, strlen(copy), sets, nsets, &job);
    if (job) {
        FILE *out = open_memstream(&printed, &length);
        FILE *null = fopen("/dev/null", "w");
        if (!out || !null || ls_job_print(job, out, NULL) != LS_OK ||
            ls_job_print_json(job, null, NULL) != LS_OK)
            abort();
        fclose(out);
        fclose(null);
        read_text(printed, length, NULL, 0, &again);
        if (!again || ls_job_hash(again) != ls_job_hash(job))
            abort();
        ls_job_free(again);
    }
    ls_job_free(job);
    free(printed);
    free(copy);
    return 0;
}
