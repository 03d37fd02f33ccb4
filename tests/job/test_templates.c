/* Every template of `lockstep init` is a good job description. */
#include "cli/templates.h"
#include "files.h"

int main(void)
{
    test_dir_make();
    for (int i = 0; i < ls_cli_ntemplates; i++) {
        const struct ls_cli_template *t = &ls_cli_templates[i];
        test_write("job.cfg", t->text);
        struct test_result r = test_read("job.cfg", NULL, 0);
        if (!tap_ok(r.status == LS_OK && !strcmp(r.job->name, t->name), "%s is read", t->name))
            tap_note("%s", r.problems);
        test_free(&r);
        bool narrow = true;
        for (const char *line = t->text; *line; line += strcspn(line, "\n") + 1)
            narrow &= strcspn(line, "\n") <= 90;
        tap_ok(narrow, "%s fits a terminal", t->name);
    }
    test_dir_remove();
    return tap_done();
}
