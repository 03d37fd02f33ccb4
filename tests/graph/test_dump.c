/* The text of two small programs after every pass, and of one of them as it is for two data ranks,
 * against the files in tests/graph/golden. A change of a pass shows as a change of text, to be read before
 * it is accepted:
 *
 *     LS_GOLDEN_UPDATE=1 srcdir=. build/tests/graph/test_dump && git diff tests/graph/golden
 */
#include "tests/graph/drive.h"
#include "tests/graph/jobs.h"
#include "tests/reference/ref.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>

static char *dump(const struct ls_prog *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        abort();
    ls_graph_dump(p, out);
    fclose(out);
    return text;
}

/* Length of what two texts share, up to the start of a line; its number. */
static size_t first_difference(const char *a, const char *b, int *line)
{
    size_t start = 0;
    *line = 1;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n') {
            start = i + 1;
            ++*line;
        }
    return start;
}

static void compare(const char *path, const char *text)
{
    struct ls_error err = {0};
    char *want = NULL;
    size_t size = 0;
    if (getenv("LS_GOLDEN_UPDATE"))
        drive_need(ls_file_replace(path, text, strlen(text), &err), &err);
    if (ls_file_read(path, 1 << 20, &want, &size, &err) != LS_OK) {
        tap_ok(false, "%s", err.message);
        return;
    }
    bool same = strcmp(text, want) == 0;
    tap_ok(same, "%s", path);
    if (!same) {
        int line;
        size_t at = first_difference(text, want, &line);
        tap_note("line %d should be  %.*s", line, (int)strcspn(want + at, "\n"), want + at);
        tap_note("line %d is         %.*s", line, (int)strcspn(text + at, "\n"), text + at);
    }
    free(want);
}

static void build(struct small_job *s, int ranks, struct ls_prog *p, const char *pass, bool pack)
{
    struct ls_error err = {0};
    drive_need(ls_model_build(&s->job, &s->input, p, &err), &err);
    p->options.mesh[LS_AXIS_DATA] = ranks;
    drive_need(ls_graph_compile(p, pack ? ls_ref_pack_size : NULL, NULL, pass, &err), &err);
}

int main(void)
{
    const char *srcdir = getenv("srcdir");
    struct small_job jobs[2];
    small_mlp(&jobs[0]);
    small_convnet(&jobs[1]);
    for (int j = 0; j < 2; j++)
        for (int k = 0; ls_graph_passes[k]; k++) {
            const char *pass = ls_graph_passes[k];
            char path[4096];
            struct ls_prog p;
            /* with a made-up packed form from layout on, or that pass would do nothing */
            build(&jobs[j], 1, &p, pass, true);
            snprintf(path, sizeof path, "%s/tests/graph/golden/%s-%d-%s.txt", srcdir ? srcdir : ".",
                     jobs[j].name, k, pass);
            char *text = dump(&p);
            compare(path, text);
            free(text);
            ls_graph_free(&p);
        }
    struct ls_prog p;
    build(&jobs[0], 2, &p, NULL, false);
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/graph/golden/mlp-data2-plan.txt", srcdir ? srcdir : ".");
    char *text = dump(&p);
    compare(path, text);
    free(text);
    ls_graph_free(&p);
    return tap_done();
}
