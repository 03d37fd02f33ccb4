/* What tests of machines share: stored trees, an environment in a table, decisions. */
#ifndef LS_TESTS_MACHINES_H
#define LS_TESTS_MACHINES_H

#include "tests/tap.h"
#include "topo/rules.h"
#include "topo/tree.h"

#include <string.h>

static inline const char *tmp_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/tmp";
}

/* The machine tests/topo/trees/NAME.tree, unpacked once for all calls; the copy is the caller's to free.
 * Ends the test if it cannot be read. */
static inline struct ls_topo_machine *load(const char *name)
{
    static struct {
        const char *name;
        struct ls_topo_machine machine;
    } known[16];
    const char *srcdir = getenv("srcdir");
    char path[4096];
    int i = 0;
    struct ls_error err = {0};
    struct ls_topo_machine *machine = malloc(sizeof *machine);
    while (i < 15 && known[i].name && strcmp(known[i].name, name) != 0)
        i++;
    snprintf(path, sizeof path, "%s/tests/topo/trees/%s.tree", srcdir ? srcdir : ".", name);
    if (!known[i].name)
        ls_topo_tree_read(path, tmp_dir(), &known[i].machine, &err);
    if (!machine || err.status != LS_OK) {
        printf("Bail out! %s\n", err.message);
        exit(1);
    }
    known[i].name = name;
    *machine = known[i].machine;
    return machine;
}

/* "A=1", "B=2", NULL */
static inline const char *get_listed(void *user, const char *name)
{
    size_t n = strlen(name);
    for (const char *const *v = user; v && *v; v++)
        if (!strncmp(*v, name, n) && (*v)[n] == '=')
            return *v + n + 1;
    return NULL;
}

static inline const struct ls_topo_variable *find_variable(const struct ls_topo_decision *d,
                                                           const char *name)
{
    for (int i = 0; i < d->nvariable; i++)
        if (!strcmp(d->variable[i].name, name))
            return &d->variable[i];
    return NULL;
}

static inline bool is_set_to(const struct ls_topo_decision *d, const char *name, const char *value)
{
    const struct ls_topo_variable *v = find_variable(d, name);
    if (!v || !v->reason || !*v->reason)
        return false;
    return value ? v->value && !strcmp(v->value, value) : !v->value;
}

static inline const struct ls_topo_note *find_note(const struct ls_topo_decision *d,
                                                   const char *part)
{
    for (int i = 0; i < d->nnote; i++)
        if (strstr(d->note[i].text, part))
            return &d->note[i];
    return NULL;
}

#endif
