/* Turns a file and everything it includes into one libconfig text, token by token, and keeps where
 * each line came from. What libconfig would take silently or reject without a reason is reported
 * here: duplicate keys, numbers that do not fit, unquoted words, brackets that do not match.
 *
 * libconfig resolves includes against the working directory and wraps integers of more than 32 (or
 * 64) bits, so it only ever sees the text that is made here. */
#include "job/parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE     ((size_t)1 << 20) /* bytes of one file */
#define MAX_TOTAL    ((size_t)4 << 20) /* of all files, so that includes cannot multiply */
#define MAX_INCLUDES 64                /* files in all */
#define MAX_DEPTH    10                /* files inside each other, as in libconfig */
#define MAX_NESTING  64                /* brackets; libconfig's parser needs stack for each */
#define MAX_KEYS     256               /* in one group; libconfig searches them one by one */
#define MAX_VALUES   65536             /* in all */

struct file {
    struct ls_job_lexer lexer;
    char *data;
    const char *dir; /* with its '/', or "" */
    dev_t dev;
    ino_t ino;
    int nesting; /* brackets that were open where it began */
};

struct bracket {
    char close; /* '}', ')' or ']'; '\0' at the top level */
    struct ls_job_place place;
    int keys;           /* where its keys begin in `keys` */
    bool filled;        /* list: there is an element */
    bool after_element; /* list: an element stands behind the last comma */
};

struct key {
    const char *name;
    struct ls_job_place place;
};

struct scan {
    struct ls_job_source *source;
    struct file *files[MAX_DEPTH];
    int nfiles, nincludes;
    size_t total;
    struct bracket brackets[MAX_NESTING + 1];
    int nesting;
    struct key *keys; /* of all open groups */
    int nkeys, cap, nvalues;
    bool after_string; /* another string right behind it continues it */
    bool failed;
};

static struct ls_job_lexer *lexer(struct scan *scan)
{
    return &scan->files[scan->nfiles - 1]->lexer;
}

static struct bracket *top(struct scan *scan)
{
    return &scan->brackets[scan->nesting];
}

static void fatal(struct scan *scan)
{
    scan->failed = true;
}

static void nomem(struct scan *scan)
{
    scan->source->problems->nomem = true;
    scan->failed = true;
}

/* ---- output ------------------------------------------------------------------------------------ */

/* A new line of output for each new place. */
static void emit(struct scan *scan, struct ls_job_place place, const char *text)
{
    struct ls_job_source *src = scan->source;
    struct ls_job_place *last = src->nlines ? &src->lines[src->nlines - 1] : NULL;
    if (!last || last->file != place.file || last->line != place.line) {
        if (!ls_grow(&src->lines, &src->cap, src->nlines + 1, sizeof *src->lines)) {
            nomem(scan);
            return;
        }
        if (last)
            ls_buf_add(&src->text, "\n", 1);
        src->lines[src->nlines++] = place;
    }
    ls_buf_add(&src->text, text, strlen(text));
    ls_buf_add(&src->text, " ", 1);
}

/* Decoded text goes back into quotes, with the mark that tells the reader what it was. */
static void emit_string(struct scan *scan, struct ls_job_place place, char mark, const char *s)
{
    emit(scan, place, "\"");
    struct ls_buf *text = &scan->source->text;
    text->len--; /* the blank behind the quote */
    if (mark == LS_JOB_BAD_MARK)
        ls_buf_add(text, "\\x01", 4);
    if (mark == LS_JOB_WORD_MARK)
        ls_buf_add(text, "\\x02", 4);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            ls_buf_add(text, "\\", 1);
        ls_buf_add(text, s, 1);
    }
    ls_buf_add(text, "\" ", 2);
}

/* ---- files ------------------------------------------------------------------------------------- */

static void close_file(struct scan *scan)
{
    struct file *file = scan->files[--scan->nfiles];
    free(file->data);
    free(file);
}

/* Puts a text on the stack; `data` is then the scan's. */
static struct file *open_text(struct scan *scan, const char *name, char *data, size_t size)
{
    struct ls_job_source *src = scan->source;
    struct file *file = calloc(1, sizeof *file);
    const char *own = ls_arena_strdup(src->arena, name);
    if (!file || !own) {
        free(file);
        free(data);
        nomem(scan);
        return NULL;
    }
    const char *text = data;
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) { /* the byte order mark of some editors */
        text += 3;
        size -= 3;
    }
    file->lexer = (struct ls_job_lexer){.at = text,
                                        .end = text + size,
                                        .file = own,
                                        .line = 1,
                                        .problems = src->problems,
                                        .order = &src->nlines};
    file->data = data;
    file->nesting = scan->nesting;
    scan->files[scan->nfiles++] = file;
    return file;
}

static bool open_file(struct scan *scan, const char *path, struct ls_error *err)
{
    char *data;
    size_t size;
    struct stat st;
    if (ls_file_read(path, MAX_FILE, &data, &size, err) != LS_OK)
        return false;
    scan->total += size;
    struct file *file = open_text(scan, path, data, size);
    if (!file)
        return false;
    const char *slash = strrchr(path, '/');
    char *dir = ls_arena_strdup(scan->source->arena, path);
    if (!dir || stat(path, &st) != 0) {
        nomem(scan);
        return true;
    }
    dir[slash ? slash + 1 - path : 0] = '\0';
    file->dir = dir;
    file->dev = st.st_dev;
    file->ino = st.st_ino;
    return true;
}

/* Goes on without the file when it cannot be included: its absence is one problem of many. */
static void include(struct scan *scan)
{
    struct ls_job_lexer *lx = lexer(scan);
    struct file *file = scan->files[scan->nfiles - 1];
    struct ls_job_problems *problems = scan->source->problems;
    struct ls_error err = {0};
    struct stat st;
    if (!file->dir) {
        ls_job_problem(problems, lx->place, "found @include, expected a value");
        fatal(scan);
        return;
    }
    const char *path = lx->text[0] == '/'
                           ? ls_arena_strdup(scan->source->arena, lx->text)
                           : ls_arena_printf(scan->source->arena, "%s%s", file->dir, lx->text);
    if (!path) {
        nomem(scan);
        return;
    }
    if (stat(path, &st) == 0)
        for (int i = 0; i < scan->nfiles; i++)
            if (scan->files[i]->dev == st.st_dev && scan->files[i]->ino == st.st_ino) {
                ls_job_problem(problems, lx->place,
                               "found @include \"%s\" inside that file itself, expected no cycle",
                               lx->text);
                return;
            }
    if (scan->nfiles == MAX_DEPTH) {
        ls_job_problem(problems, lx->place,
                       "found @include at depth %d, expected at most %d files inside each other",
                       MAX_DEPTH, MAX_DEPTH - 1);
        return;
    }
    if (++scan->nincludes > MAX_INCLUDES || scan->total > MAX_TOTAL) {
        ls_job_problem(problems, lx->place,
                       "found too many included files, expected at most %d and %zu MiB in all",
                       MAX_INCLUDES, MAX_TOTAL >> 20);
        fatal(scan);
        return;
    }
    if (!open_file(scan, path, &err) && !problems->nomem)
        ls_job_problem(problems, lx->place, "@include \"%s\": %s", lx->text, err.message);
}

/* ---- grammar ------------------------------------------------------------------------------------ */

static const char *found(const struct ls_job_lexer *lx, char out[static 96])
{
    switch (lx->token) {
    case LS_TOK_END:
        return lx->line ? "the end of the file" : "the end of the value";
    case LS_TOK_STRING:
        snprintf(out, 96, "the string \"%.60s\"", lx->text);
        return out;
    case LS_TOK_INCLUDE:
        return "@include";
    case LS_TOK_BAD:
        return "a value";
    default:
        snprintf(out, 96, "%.60s", lx->text);
        return out;
    }
}

static void unexpected(struct scan *scan, const char *expected)
{
    char text[96];
    struct ls_job_lexer *lx = lexer(scan);
    ls_job_problem(scan->source->problems, lx->place, "found %s, expected %s", found(lx, text),
                   expected);
    fatal(scan);
}

/* The innermost bracket does not end as it should. */
static void unclosed(struct scan *scan)
{
    char expected[64];
    const struct bracket *b = top(scan);
    int n = snprintf(expected, sizeof expected, "%c for the bracket", b->close);
    if (b->place.line)
        snprintf(expected + n, sizeof expected - (size_t)n, " of line %d", b->place.line);
    unexpected(scan, expected);
}

static void open_bracket(struct scan *scan, char open)
{
    struct ls_job_lexer *lx = lexer(scan);
    if (scan->nesting == MAX_NESTING) {
        ls_job_problem(scan->source->problems, lx->place,
                       "found more than %d brackets inside each other, expected fewer",
                       MAX_NESTING);
        fatal(scan);
        return;
    }
    scan->nesting++;
    *top(scan) = (struct bracket){.close = open == '{'   ? '}'
                                           : open == '(' ? ')'
                                                         : ']',
                                  .place = lx->place,
                                  .keys = scan->nkeys};
    emit(scan, lx->place, open == '{' ? "{" : "(");
}

static void close_bracket(struct scan *scan)
{
    struct ls_job_lexer *lx = lexer(scan);
    struct bracket *b = top(scan);
    if (b->close && lx->text[0] != b->close) {
        unclosed(scan);
        return;
    }
    if (!b->close || scan->nesting == scan->files[scan->nfiles - 1]->nesting) {
        ls_job_problem(scan->source->problems, lx->place,
                       "found %s, which closes nothing, expected key = value", lx->text);
        fatal(scan);
        return;
    }
    scan->nkeys = b->keys;
    emit(scan, lx->place, b->close == '}' ? "}" : ")");
    scan->nesting--;
}

/* The current token begins a value: writes it, or opens its bracket. */
static void value(struct scan *scan, const char *of)
{
    struct ls_job_lexer *lx = lexer(scan);
    struct bracket *b = top(scan);
    char number[32];
    if (++scan->nvalues > MAX_VALUES) {
        ls_job_problem(scan->source->problems, lx->place,
                       "found more than %d values, expected fewer", MAX_VALUES);
        fatal(scan);
        return;
    }
    switch (lx->token) {
    case LS_TOK_PUNCT:
        if (!strchr("{([", lx->text[0])) {
            ls_job_problem(scan->source->problems, lx->place, "found %s, expected a value%s%s",
                           lx->text, of ? " for " : "", of ? of : "");
            fatal(scan);
            return;
        }
        if (b->close == ']')
            ls_job_problem(scan->source->problems, lx->place,
                           "found %s inside [ ], expected plain values; a list of groups is "
                           "written ( { ... }, { ... } )",
                           lx->text);
        open_bracket(scan, lx->text[0]);
        return;
    case LS_TOK_INT:
        snprintf(number, sizeof number, "%lldL", (long long)lx->integer);
        emit(scan, lx->place, number);
        break;
    case LS_TOK_BOOL:
    case LS_TOK_FLOAT:
        emit(scan, lx->place, lx->text);
        break;
    case LS_TOK_STRING:
        emit_string(scan, lx->place, 0, lx->text);
        break;
    case LS_TOK_NAME:
    case LS_TOK_WORD:
        emit_string(scan, lx->place, LS_JOB_WORD_MARK, lx->text);
        break;
    case LS_TOK_BAD:
        emit_string(scan, lx->place, LS_JOB_BAD_MARK, "");
        break;
    default:
        unexpected(scan, "a value");
        return;
    }
    scan->after_string = lx->token == LS_TOK_STRING;
}

/* Writes the name of a setting, or one to skip when it stands there twice. */
static void name(struct scan *scan)
{
    struct ls_job_lexer *lx = lexer(scan);
    struct bracket *b = top(scan);
    struct ls_job_problems *problems = scan->source->problems;
    char skip[32] = "";
    if (lx->token == LS_TOK_WORD) {
        const char *dot = strchr(lx->text, '.');
        if (dot && dot > lx->text && dot[1])
            ls_job_problem(problems, lx->place,
                           "found the key %.60s, expected a key without a dot: write %.*s: { %.60s "
                           "= ...; };",
                           lx->text, (int)(dot - lx->text > 60 ? 60 : dot - lx->text), lx->text,
                           dot + 1);
        else
            ls_job_problem(problems, lx->place,
                           "found %.60s, expected a key: letters, digits, _ and -", lx->text);
        snprintf(skip, sizeof skip, LS_JOB_SKIP_KEY "%d", scan->nvalues);
    }
    for (int i = b->keys; i < scan->nkeys && !skip[0]; i++)
        if (!strcmp(scan->keys[i].name, lx->text)) {
            const struct ls_job_place *first = &scan->keys[i].place;
            ls_job_problem(problems, lx->place,
                           "found the duplicate key %.60s, expected it once; the first is at %s:%d",
                           lx->text, first->file, first->line);
            snprintf(skip, sizeof skip, LS_JOB_SKIP_KEY "%d", scan->nvalues);
        }
    if (scan->nkeys - b->keys == MAX_KEYS) {
        ls_job_problem(problems, lx->place, "found more than %d keys in one group, expected fewer",
                       MAX_KEYS);
        fatal(scan);
        return;
    }
    const char *own = ls_arena_strdup(scan->source->arena, lx->text);
    if (!own || !ls_grow(&scan->keys, &scan->cap, scan->nkeys + 1, sizeof *scan->keys)) {
        nomem(scan);
        return;
    }
    scan->keys[scan->nkeys++] = (struct key){own, lx->place};
    emit(scan, lx->place, skip[0] ? skip : own);
    emit(scan, lx->place, "=");
}

static bool is_punct(const struct ls_job_lexer *lx, const char *set)
{
    return lx->token == LS_TOK_PUNCT && strchr(set, lx->text[0]);
}

/* A setting: key, = or :, value. The token is the key. */
static void setting(struct scan *scan)
{
    struct ls_job_lexer *lx = lexer(scan);
    name(scan);
    if (scan->failed)
        return;
    const char *key = scan->keys[scan->nkeys - 1].name;
    ls_job_lex(lx);
    if (is_punct(lx, "=:")) {
        ls_job_lex(lx);
    } else if (is_punct(lx, "{")) { /* so common that the rest is worth reading */
        ls_job_problem(scan->source->problems, lx->place, "found {, expected : between %.60s and {",
                       key);
    } else {
        char expected[80];
        snprintf(expected, sizeof expected, "= behind the key %.60s", key);
        if (lx->token != LS_TOK_FATAL)
            unexpected(scan, expected);
        else
            fatal(scan);
        return;
    }
    if (lx->token == LS_TOK_FATAL)
        fatal(scan);
    else
        value(scan, key);
}

static void end_of_file(struct scan *scan)
{
    if (scan->nesting > scan->files[scan->nfiles - 1]->nesting)
        unclosed(scan);
    else
        close_file(scan);
}

static void step_in_group(struct scan *scan)
{
    struct ls_job_lexer *lx = lexer(scan);
    bool after_string = scan->after_string;
    scan->after_string = false;
    if (lx->token == LS_TOK_NAME || lx->token == LS_TOK_WORD) {
        setting(scan);
    } else if (is_punct(lx, "})]")) {
        close_bracket(scan);
    } else if (lx->token == LS_TOK_STRING && after_string) {
        emit_string(scan, lx->place, 0, lx->text);
        scan->after_string = true;
    } else if (!is_punct(lx, ";,")) { /* the end of a setting; harmless where there is none */
        unexpected(scan, top(scan)->close ? "key = value or }" : "key = value");
    }
}

static void step_in_list(struct scan *scan)
{
    struct ls_job_lexer *lx = lexer(scan);
    struct bracket *b = top(scan);
    struct ls_job_problems *problems = scan->source->problems;
    char text[96];
    if (is_punct(lx, "})]")) {
        close_bracket(scan);
        return;
    }
    if (is_punct(lx, ",;=:")) {
        if (lx->text[0] != ',')
            ls_job_problem(problems, lx->place,
                           "found %s, expected a comma between the elements of a list", lx->text);
        else if (!b->after_element)
            ls_job_problem(problems, lx->place,
                           "found a comma, expected an element of the list in front of it");
        b->after_element = false;
        return;
    }
    if (b->after_element)
        ls_job_problem(problems, lx->place, "found %s, expected a comma in front of it",
                       found(lx, text));
    if (b->filled)
        emit(scan, lx->place, ",");
    b->filled = b->after_element = true;
    value(scan, NULL);
}

/* Takes tokens until every file is read or nothing more can be understood. */
static bool run(struct scan *scan)
{
    while (scan->nfiles && !scan->failed) {
        struct ls_job_lexer *lx = lexer(scan);
        ls_job_lex(lx);
        if (lx->token == LS_TOK_FATAL)
            fatal(scan);
        else if (lx->token == LS_TOK_END)
            end_of_file(scan);
        else if (lx->token == LS_TOK_INCLUDE)
            include(scan);
        else if (top(scan)->close == ')' || top(scan)->close == ']')
            step_in_list(scan);
        else
            step_in_group(scan);
    }
    if (scan->source->text.failed)
        nomem(scan);
    bool good = !scan->failed;
    while (scan->nfiles)
        close_file(scan);
    free(scan->keys);
    return good;
}

bool ls_job_source_file(struct ls_job_source *source, const char *path, struct ls_error *err)
{
    struct scan *scan = calloc(1, sizeof *scan); /* too large for a stack that we do not know */
    ls_buf_init(&source->text, 8 * MAX_TOTAL);
    if (!scan) {
        source->problems->nomem = true;
        return false;
    }
    scan->source = source;
    bool good = open_file(scan, path, err) && run(scan);
    free(scan);
    return good;
}

bool ls_job_source_text(struct ls_job_source *source, const char *name, int order, const char *text)
{
    struct scan *scan = calloc(1, sizeof *scan);
    char *copy = strdup(text);
    ls_buf_init(&source->text, 8 * MAX_TOTAL);
    if (!scan || !copy) {
        free(scan);
        free(copy);
        source->problems->nomem = true;
        return false;
    }
    scan->source = source;
    struct file *file = open_text(scan, name, copy, strlen(copy));
    if (file) {
        file->lexer.line = 0;
        file->lexer.order = &order;
    }
    bool good = file && run(scan);
    free(scan);
    return good;
}

void ls_job_source_free(struct ls_job_source *source)
{
    ls_buf_free(&source->text);
    free(source->lines);
    source->lines = NULL;
    source->nlines = source->cap = 0;
}

struct ls_job_place ls_job_source_place(const struct ls_job_source *source, int line)
{
    if (line >= 1 && line <= source->nlines)
        return source->lines[line - 1];
    return source->nlines ? source->lines[source->nlines - 1]
                          : (struct ls_job_place){.order = LS_JOB_ORDER_LAST};
}
