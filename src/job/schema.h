/* The schema: one row per key of a job description. Everything that reads, checks, prints, hashes
 * or documents a key is driven by its row; to add a key, add a row (and a field in job.h). */
#ifndef LS_JOB_SCHEMA_H
#define LS_JOB_SCHEMA_H

#include "job/job.h"

enum ls_job_kind {
    LS_JOB_INT,    /* int64_t */
    LS_JOB_FLOAT,  /* double */
    LS_JOB_BOOL,   /* bool */
    LS_JOB_STRING, /* const char * */
    LS_JOB_ENUM,   /* an enum whose values count up from 0 in the order of `words` */
    LS_JOB_BYTES,  /* int64_t; an integer, or text such as "25MiB" */
    LS_JOB_TIME,   /* double, seconds; a number, or text such as "30min" */
    LS_JOB_INTS,   /* int64_t *, count */
    LS_JOB_FLOATS, /* double[LS_JOB_CHANNELS], count; one number stands for a list of one */
    LS_JOB_LAYERS, /* struct ls_layer *, count */
};

#define LS_JOB_REQUIRED  0x01u /* must be given wherever the key means something */
#define LS_JOB_HASHED    0x02u /* shapes the run's numbers: part of ls_job_hash */
#define LS_JOB_ABOVE     0x04u /* min itself is not allowed */
#define LS_JOB_BELOW     0x08u /* max itself is not allowed */
#define LS_JOB_FILE_NAME 0x10u /* STRING: one path component, not hidden */

#define LS_JOB_NOWHERE SIZE_MAX /* offset of an ENUM that has one value and no field */

#define LS_JOB_MAX_INTS        64   /* elements of an INTS list */
#define LS_JOB_MAX_TEXT        4095 /* bytes of a string: what a path may have */
#define LS_JOB_MAX_LAYER_DEPTH 16 /* residual blocks inside each other, the list itself included */
#define LS_JOB_MAX_LAYERS      4096 /* layers of a model, repeats counted */

struct ls_job_key {
    const char *path; /* "train.steps"; of a layer: the bare key */
    enum ls_job_kind kind;
    size_t offset;            /* of the value in struct ls_job or struct ls_layer */
    size_t count;             /* lists: of the int beside it */
    unsigned flags;           /* LS_JOB_REQUIRED and so on */
    double min, max;          /* numbers, also each element of a list; ENUM: first value to offer */
    const char *const *words; /* ENUM: NULL-terminated */
    const char *word;         /* INT: the word that stands for LS_JOB_AUTO */
    const char *fallback;     /* default, as a user would write it; text without its quotes; <x> is
                                 made from the value of key x; NULL: none, stays unset */
    const char *when;         /* the ENUM key on which this row depends, in the same table... */
    unsigned mask;            /* ...and the values (1u << value) with which it means something */
    const char *doc;          /* mdoc text, one sentence or two */
};

struct ls_job_table {
    const struct ls_job_key *keys;
    int nkeys;
};

/* Rows of one path stand together (they differ in `when`), a row behind the row it depends on. */
extern const struct ls_job_table ls_job_keys;   /* of struct ls_job, in the order of printing */
extern const struct ls_job_table ls_layer_keys; /* of struct ls_layer; row 0 is `type` */

/* The groups, each behind the one that contains it; "" is the top level. */
struct ls_job_group {
    const char *path, *doc;
};
extern const struct ls_job_group ls_job_groups[];
extern const int ls_job_ngroups;

/* First row with this path, or -1. */
int ls_job_key_find(const struct ls_job_table *table, const char *path);
/* One behind the last row that has the same path as row `i`. */
int ls_job_key_end(const struct ls_job_table *table, int i);
bool ls_job_group_find(const char *path);
/* Does the row mean something, given the values of the enumerations in `base`? */
bool ls_job_key_applies(const struct ls_job_table *table, const struct ls_job_key *key,
                        const void *base);
/* Value of an ENUM field. */
unsigned ls_job_enum_get(const struct ls_job_key *key, const void *base);
/* Part of a path behind its last dot. */
const char *ls_job_leaf(const char *path);
/* True when `path` lies directly in `group`. */
bool ls_job_in_group(const char *path, const char *group);

#endif
