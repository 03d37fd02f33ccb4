/* Build tool: copies a manual page and puts the schema where it says @SCHEMA@. */
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char mark[] = "@SCHEMA@\n";
    struct ls_error err = {0};
    char *page;
    size_t size;
    if (argc != 2) {
        fputs("usage: gen_man lockstep.cfg.5.in >lockstep.cfg.5\n", stderr);
        return 2;
    }
    if (ls_file_read(argv[1], (size_t)1 << 20, &page, &size, &err) != LS_OK) {
        fprintf(stderr, "gen_man: %s\n", err.message);
        return 1;
    }
    char *at = strstr(page, mark);
    if (!at) {
        fprintf(stderr, "gen_man: %s: found no line @SCHEMA@, expected one\n", argv[1]);
        free(page);
        return 1;
    }
    fwrite(page, 1, (size_t)(at - page), stdout);
    ls_job_print_man(stdout);
    fputs(at + strlen(mark), stdout);
    free(page);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
