/* The job descriptions that `lockstep init` writes. */
#ifndef LS_CLI_TEMPLATES_H
#define LS_CLI_TEMPLATES_H

struct ls_cli_template {
    const char *name, *summary, *text;
};
extern const struct ls_cli_template ls_cli_templates[];
extern const int ls_cli_ntemplates;

#endif
