/* lockstep-site.conf: what only the site knows of its fabric. Strict: a typo must not silently mean a
 * default. */
#include "topo/internal.h"
#include "topo/rules.h"

#include <stdio.h>
#include <string.h>

const struct ls_topo_site ls_topo_site_default = {
    .enabled = true, .traffic_class = -1, .service_level = -1, .rc_max = 256};

enum kind { YES_NO, NAME, NAMES, FABRIC, NUMBER };
static const struct key {
    const char *name;
    enum kind kind;
    size_t offset, size; /* of the text */
    int min, max;        /* of a number */
    const char *expected;
} keys[] = {
    {"enabled", YES_NO, offsetof(struct ls_topo_site, enabled), 0, 0, 0, "yes or no"},
    {"interface", NAME, offsetof(struct ls_topo_site, interface),
     sizeof((struct ls_topo_site *)0)->interface, 0, 0, "the name of a network interface"},
    {"nic", NAMES, offsetof(struct ls_topo_site, nic), sizeof((struct ls_topo_site *)0)->nic, 0, 0,
     "names of verbs devices with commas between them, such as mlx5_0,mlx5_1"},
    {"fabric", FABRIC, 0, 0, 0, 0, "rail, single or unknown"},
    {"traffic_class", NUMBER, offsetof(struct ls_topo_site, traffic_class), 0, 0, 255,
     "a number from 0 to 255"},
    {"service_level", NUMBER, offsetof(struct ls_topo_site, service_level), 0, 0, 15,
     "a number from 0 to 15"},
    {"rc_max", NUMBER, offsetof(struct ls_topo_site, rc_max), 0, 1, 1000000,
     "a number from 1 to 1000000"},
};
enum { KEYS = sizeof keys / sizeof *keys };

struct reader {
    const char *name;
    int line;
    struct ls_buf *problems;
    struct ls_error *err;
};

static void problem(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void problem(struct reader *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ls_error_set(r->err, LS_ERR_FORMAT, "%s:%d: %s", r->name, r->line, text);
    if (r->problems)
        ls_buf_printf(r->problems, "%s:%d: %s\n", r->name, r->line, text);
}

/* Letters, digits and what names of devices and interfaces have besides. */
static bool is_name(const char *text, bool list)
{
    if (!*text)
        return false;
    for (const char *p = text; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
              strchr("_-.", *p) || (list && *p == ',' && p != text && p[1] && p[1] != ',')))
            return false;
    return true;
}

static bool set_value(const struct key *key, const char *value, struct ls_topo_site *site)
{
    static const char *const fabrics[] = {"unknown", "rail", "single"};
    char *base = (char *)site + key->offset;
    uint64_t number;
    size_t at = 0;
    switch (key->kind) {
    case YES_NO:
        *(bool *)base = !strcmp(value, "yes");
        return !strcmp(value, "yes") || !strcmp(value, "no");
    case NAME:
    case NAMES:
        if (!is_name(value, key->kind == NAMES) || strlen(value) >= key->size)
            return false;
        strcpy(base, value);
        return true;
    case FABRIC:
        for (int i = 0; i < 3; i++)
            if (!strcmp(value, fabrics[i])) {
                site->fabric = i;
                return true;
            }
        return false;
    default:
        if (!ls_topo_digits(value, &at, (uint64_t)key->max, &number) || value[at] ||
            number < (uint64_t)key->min)
            return false;
        *(int *)base = (int)number;
        return true;
    }
}

static const struct key *find_key(const char *name, const struct key **nearest)
{
    *nearest = &keys[0];
    for (int i = 0; i < KEYS; i++) {
        if (!strcmp(keys[i].name, name))
            return &keys[i];
        if (ls_edit_distance(name, keys[i].name) < ls_edit_distance(name, (*nearest)->name))
            *nearest = &keys[i];
    }
    return NULL;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]))
        text[--n] = '\0';
    return text;
}

static void read_line(struct reader *r, char *line, bool seen[static KEYS],
                      struct ls_topo_site *site)
{
    char shown[84];
    const struct key *nearest;
    line[strcspn(line, "#")] = '\0';
    line = trim(line);
    if (!*line)
        return;
    char *equals = strchr(line, '=');
    if (!equals) {
        problem(r, "found '%s', expected key = value", ls_topo_show(line, shown));
        return;
    }
    *equals = '\0';
    char *name = trim(line), *value = trim(equals + 1);
    const struct key *key = strlen(name) < 64 ? find_key(name, &nearest) : NULL;
    if (!key) {
        problem(r, "'%s' is not a key%s%s%s", ls_topo_show(name, shown),
                strlen(name) < 64 ? "; did you mean '" : "", strlen(name) < 64 ? nearest->name : "",
                strlen(name) < 64 ? "'?" : "");
        return;
    }
    if (seen[key - keys])
        problem(r, "'%s' is set a second time; keep one of the lines", key->name);
    else if (!set_value(key, value, site))
        problem(r, "%s: found '%s', expected %s", key->name, ls_topo_show(value, shown),
                key->expected);
    seen[key - keys] = true;
}

enum ls_status ls_topo_site_parse(const char *name, const char *text, struct ls_topo_site *site,
                                  struct ls_buf *problems, struct ls_error *err)
{
    struct ls_error first = {0};
    struct reader r = {.name = name, .problems = problems, .err = &first};
    struct ls_topo_site read = *site;
    bool seen[KEYS] = {0};
    for (const char *at = text; *at;) {
        char line[1024];
        size_t n = strcspn(at, "\n");
        r.line++;
        if (n >= sizeof line) {
            problem(&r, "a line of %zu characters, expected at most %zu", n, sizeof line - 1);
        } else {
            memcpy(line, at, n);
            line[n] = '\0';
            read_line(&r, line, seen, &read);
        }
        at += n + (at[n] == '\n');
    }
    if (first.status != LS_OK)
        return ls_error_set(err, first.status, "%s", first.message);
    *site = read; /* all or nothing */
    return LS_OK;
}
