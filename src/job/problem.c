/* The list of everything that is wrong with a job description, in the order of the file. */
#include "job/parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REPORTED 50 /* nobody reads more; the rest is counted */

bool ls_job_problem(struct ls_job_problems *problems, struct ls_job_place place, const char *fmt,
                    ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    problems->total++;
    if (problems->n == MAX_REPORTED)
        return false;
    char *own = ls_arena_strdup(problems->arena, text);
    if (!own || !ls_grow(&problems->list, &problems->cap, problems->n + 1, sizeof *problems->list))
        problems->nomem = true;
    else
        problems->list[problems->n++] = (struct ls_job_problem){place, own};
    return false;
}

void ls_job_problems_flush(struct ls_job_problems *problems, struct ls_buf *out)
{
    struct ls_job_problem *list = problems->list;
    for (int i = 1; i < problems->n; i++) { /* insertion keeps equal places in order */
        struct ls_job_problem p = list[i];
        int k = i;
        for (; k > 0 && list[k - 1].place.order > p.place.order; k--)
            list[k] = list[k - 1];
        list[k] = p;
    }
    for (int i = 0; i < problems->n; i++) {
        const struct ls_job_place *at = &list[i].place;
        if (at->line > 0)
            ls_buf_printf(out, "%s:%d: %s\n", at->file, at->line, list[i].message);
        else
            ls_buf_printf(out, "%s: %s\n", at->file ? at->file : "job", list[i].message);
    }
    if (problems->total > problems->n && problems->n)
        ls_buf_printf(out, "%s: and %d more problems\n", list[problems->n - 1].place.file,
                      problems->total - problems->n);
    free(list);
    problems->list = NULL;
    problems->n = problems->cap = 0;
}

const char *ls_job_nearest(const char *word, const char *const *words, int nwords)
{
    const char *best = NULL;
    int length = (int)strnlen(word, 63);
    int least = length < 6 ? 2 : length / 3 + 1; /* one slip in three letters, at least one */
    for (int i = 0; i < nwords; i++) {
        if (!strcasecmp(word, words[i]))
            return words[i];
        int d = ls_edit_distance(word, words[i]);
        if (d < least && d < length && d < (int)strlen(words[i])) {
            least = d;
            best = words[i];
        }
    }
    return best;
}
