/* What the files of this room pass to each other while a job description is read: places,
 * problems, the flattened source, and values on their way from libconfig to the struct. */
#ifndef LS_JOB_PARTS_H
#define LS_JOB_PARTS_H

#include "job/schema.h"

#include <libconfig.h>

/* ---- places and problems -------------------------------------------------------------------- */

struct ls_job_place {
    const char *file; /* as the user would find it, or "--set"; lives in the job's arena */
    int line;         /* 0: the file has no lines */
    int order;        /* problems are reported in this order */
};
#define LS_JOB_ORDER_LAST 1000000000 /* behind every line of a file */

struct ls_job_problem {
    struct ls_job_place place;
    char *message;
};
/* Collects; nothing is printed before the end. Past a limit it only counts. */
struct ls_job_problems {
    struct ls_arena *arena; /* for the messages */
    struct ls_job_problem *list;
    int n, cap, total;
    bool nomem; /* also set by others who run out of memory while they read */
};
/* Says what was found, what was expected. Returns false, so that `return ls_job_problem(...)`
 * reads well in functions that answer "is it good?". */
bool ls_job_problem(struct ls_job_problems *problems, struct ls_job_place place, const char *fmt,
                    ...) __attribute__((format(printf, 3, 4)));
/* Sorts by place and writes one line each; frees the list. */
void ls_job_problems_flush(struct ls_job_problems *problems, struct ls_buf *out);
/* The most similar word, if it is similar enough to be a slip; NULL otherwise. */
const char *ls_job_nearest(const char *word, const char *const *words, int nwords);

/* ---- source: the text of a file and all its includes, made safe for libconfig ----------------- */

/* `text` is one libconfig text in which every integer is 64 bits wide and every [ ] is a ( ), so
 * that lists may mix 1 and 0.5. Keys and strings that start with a control character are notes of
 * the reader; no user's text can contain one. */
struct ls_job_source {
    struct ls_arena *arena;
    struct ls_job_problems *problems;
    struct ls_buf text;
    struct ls_job_place *lines; /* where each line of `text` comes from */
    int nlines, cap;
};
#define LS_JOB_SKIP_KEY  "*skip" /* start of a key that was reported already */
#define LS_JOB_BAD_MARK  '\x01'  /* a string: the value was reported already */
#define LS_JOB_WORD_MARK '\x02'  /* a string: written without quotes */

/* Reads `path`, follows its includes. False: reported, or (*status, err) when the file itself
 * cannot be read. `source` needs arena and problems set; ls_job_source_free in any case. */
bool ls_job_source_file(struct ls_job_source *source, const char *path, struct ls_error *err);
/* The same for text that is already there; no includes. */
bool ls_job_source_text(struct ls_job_source *source, const char *name, int order,
                        const char *text);
void ls_job_source_free(struct ls_job_source *source);
struct ls_job_place ls_job_source_place(const struct ls_job_source *source, int line);

/* ---- lexer: one file's tokens ------------------------------------------------------------------ */

enum ls_job_token {
    LS_TOK_END,     /* of this file */
    LS_TOK_NAME,    /* letters, digits, - and _; in place of a value a bare word */
    LS_TOK_BOOL,    /* true, false in any case */
    LS_TOK_INT,     /* decimal or hexadecimal, in value `integer` */
    LS_TOK_FLOAT,   /* text is the number */
    LS_TOK_STRING,  /* text is the decoded string */
    LS_TOK_WORD,    /* a bare word that is no name: 25MiB, /a/path, -inf, train.steps */
    LS_TOK_BAD,     /* a value that was reported */
    LS_TOK_PUNCT,   /* one of = : ; , { } ( ) [ ] in text[0] */
    LS_TOK_INCLUDE, /* text is the file's name */
    LS_TOK_FATAL,   /* reported; no further token makes sense */
};
struct ls_job_lexer {
    const char *at, *end;
    const char *file;
    int line;
    struct ls_job_problems *problems;
    int *order; /* of the next problem */
    /* the token */
    enum ls_job_token token;
    struct ls_job_place place;
    int64_t integer;
    size_t len;
    char text[LS_JOB_MAX_TEXT + 1];
};
void ls_job_lex(struct ls_job_lexer *lexer);
/* Reads the number that is all of `text`: LS_TOK_INT, LS_TOK_FLOAT, LS_TOK_BAD (a number, but too
 * large), or LS_TOK_WORD (not a number). */
enum ls_job_token ls_job_number(const char *text, size_t len, int64_t *integer, double *real);

/* Length of the UTF-8 sequence at `s`, 0 if there is none. */
size_t ls_job_utf8(const char *s, size_t left);

/* ---- values ------------------------------------------------------------------------------------ */

struct ls_job_value {
    enum {
        LS_VALUE_BAD, /* reported already */
        LS_VALUE_INT,
        LS_VALUE_FLOAT,
        LS_VALUE_BOOL,
        LS_VALUE_TEXT,
        LS_VALUE_WORD, /* text without quotes in a file */
        LS_VALUE_LIST,
        LS_VALUE_GROUP,
    } type;
    int64_t i; /* INT, BOOL */
    double f;
    const char *s;
    const config_setting_t *node; /* LIST (NULL: empty), GROUP */
    const struct ls_job_source *source;
    struct ls_job_place place;
};

struct ls_job_reader {
    struct ls_arena *arena; /* the job's */
    struct ls_job_problems *problems;
    int layers; /* seen so far, to bound the work */
};

struct ls_job_value ls_job_value_of(const struct ls_job_source *source,
                                    const config_setting_t *node);
/* A default or a bare --set value: a number, true, false, [] or text. */
struct ls_job_value ls_job_value_plain(const char *text, struct ls_job_place place);
/* "the string \"x\"", for messages. */
const char *ls_job_value_found(const struct ls_job_value *value, char out[static 128]);
/* "an integer from 1 to 5", for messages and for the man page. */
void ls_job_key_expected(const struct ls_job_key *key, struct ls_buf *out);

/* Checks type, unit and range, and fills the field of `base`; reports and returns false if it does
 * not fit. `label` names the key in messages. */
bool ls_job_store(struct ls_job_reader *reader, const struct ls_job_key *key, const char *label,
                  const struct ls_job_value *value, int depth, void *base);
/* Fills the field with the key's default, or with "unset". */
bool ls_job_store_default(struct ls_job_reader *reader, const struct ls_job_table *table,
                          const struct ls_job_key *key, void *base);

/* ---- from the values that are there to a filled struct ------------------------------------------ */

struct ls_job_given {
    bool is; /* a value was given for the path of this row, the first of its path */
    struct ls_job_value value;
};
enum { LS_ORIGIN_NONE, LS_ORIGIN_DEFAULT, LS_ORIGIN_FILE };
struct ls_job_origin {
    int kind; /* NONE: unset, or means nothing here */
    struct ls_job_place place;
};
/* Takes every row of the table in turn. `origin` (one per row) may be NULL. `where` finds the place
 * to name when a key is missing; file NULL: say nothing. */
struct ls_job_where {
    struct ls_job_place (*find)(const void *context, const char *path);
    const void *context;
};
bool ls_job_resolve(struct ls_job_reader *reader, const struct ls_job_table *table,
                    const struct ls_job_given *given, const char *prefix, struct ls_job_where where,
                    int depth, void *base, struct ls_job_origin *origin);

/* A list of layers from a libconfig list; depth 0 is model.layers. */
bool ls_job_layers(struct ls_job_reader *reader, const char *label,
                   const struct ls_job_value *value, int depth, struct ls_layer **layers,
                   int *nlayers);
/* Rules that involve more than one key. `train` is the place of that group. */
void ls_job_check(const struct ls_job *job, struct ls_job_place train,
                  struct ls_job_problems *problems);

/* ---- printing ------------------------------------------------------------------------------------ */

/* The shortest decimal that reads back to the same double, with a point or an exponent. */
const char *ls_job_format_double(double value, char out[static 32]);
/* A size or time with the largest unit that leaves a whole number; other kinds without a unit. */
const char *ls_job_format_quantity(enum ls_job_kind kind, double x, char out[static 32]);

#endif
