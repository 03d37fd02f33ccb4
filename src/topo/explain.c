/* A decision in words, line by line: for the plugin and for the launcher, who say it alike. */
#include "topo/rules.h"

#include <stdio.h>

static void say_devices(const struct ls_topo_machine *machine, const struct ls_topo_decision *d,
                        ls_topo_say *say, void *user)
{
    char cpus[128];
    struct ls_buf line;
    ls_buf_init(&line, 4096);
    ls_buf_printf(&line, "GPUs");
    for (int i = 0; i < d->ngpu; i++)
        ls_buf_printf(&line, " %s", machine->gpu[d->gpu[i]].pci.bdf);
    ls_buf_printf(&line, "%s; NICs", d->ngpu ? "" : " none");
    for (int i = 0; i < d->nnic; i++)
        ls_buf_printf(&line, " %s", machine->nic[d->nic[i]].name);
    ls_buf_printf(&line, "%s; CPUs %s%s", d->nnic ? "" : " none",
                  ls_topo_format_cpus(d->bound ? &d->cpus : &machine->allowed, cpus),
                  d->bound ? "" : " (not bound)");
    say(user, line.failed ? "no memory for its devices" : line.data);
    ls_buf_free(&line);
}

void ls_topo_explain(const struct ls_topo_machine *machine, const struct ls_topo_decision *decision,
                     ls_topo_say *say, void *user)
{
    char line[2048];
    say_devices(machine, decision, say, user);
    for (int i = 0; i < decision->nvariable; i++) {
        const struct ls_topo_variable *v = &decision->variable[i];
        snprintf(line, sizeof line, "%s %s%s: %s", v->name, v->value ? "= " : "left alone",
                 v->value ? v->value : "", v->reason);
        say(user, line);
    }
    for (int i = 0; i < decision->nnote; i++)
        say(user, decision->note[i].text);
}
