/* The ground floor: status and error, checked sizes, growing arrays, arena, strings, files, time.
 * Knows no other room. Nothing here prints, exits or reads the environment. */
#ifndef LS_BASE_H
#define LS_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- status and error ---- */

/* What went wrong, by kind: a caller decides on the kind, a person reads the message. */
enum ls_status {
    LS_OK = 0,
    LS_ERR_USAGE,       /* a command line or job description that cannot be taken as it is */
    LS_ERR_NOMEM,       /* memory */
    LS_ERR_IO,          /* the operating system refused a read, write, open, rename */
    LS_ERR_NOTFOUND,    /* a file or entry that should exist does not */
    LS_ERR_FORMAT,      /* a file is there, but its content is wrong: truncated, corrupt, foreign */
    LS_ERR_OVERFLOW,    /* a size does not fit */
    LS_ERR_BUSY,        /* someone else holds it: a second writer in a checkpoint directory */
    LS_ERR_UNSUPPORTED, /* understood, but not something this build or device can do */
    LS_ERR_ENV,         /* the environment is unusable: no backend, no device, library too old */
    LS_ERR_NUMERIC,     /* the loss or the gradient is not finite and stays so */
    LS_ERR_TIMEOUT,     /* a peer did not answer before the deadline */
    LS_ERR_ABORTED,     /* ended because another rank failed first */
    LS_ERR_INTERNAL,    /* a rule of this program is broken: a bug, please report */
};

/* Filled by the function that decides on an error; callers pass it on, or put context in front.
 * Owned by the caller, usually on its stack. `message` is one line without a newline. */
struct ls_error {
    enum ls_status status;
    char message[1024];
};

/* Records an error and returns `status`, so that `return ls_error_set(...)` reads well. The first
 * error wins: a second call on the same struct changes nothing. `err` may be NULL. */
enum ls_status ls_error_set(struct ls_error *err, enum ls_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* As above, with ": <strerror(errnum)>" after the text; ENOMEM and ENOENT choose their status. */
enum ls_status ls_error_errno(struct ls_error *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts "text: " in front of the message that is there; returns err->status. */
enum ls_status ls_error_context(struct ls_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const char *ls_status_name(enum ls_status status);

#define LS_TRY(expr)                            \
    do {                                        \
        enum ls_status ls_try_status_ = (expr); \
        if (ls_try_status_ != LS_OK)            \
            return ls_try_status_;              \
    } while (0)

/* ---- checked sizes: every product of numbers that come from a file or a user ---- */

/* All return false on overflow (or a negative operand) and then leave *out alone. */
bool ls_mul_i64(int64_t a, int64_t b, int64_t *out);
bool ls_add_i64(int64_t a, int64_t b, int64_t *out);
/* Product of a shape; 1 for ndim 0. */
bool ls_shape_numel(const int64_t *shape, int ndim, int64_t *out);
int64_t ls_round_up(int64_t n, int64_t multiple); /* n >= 0, multiple > 0; no overflow check */

/* ---- growing arrays ---- */

/* Makes room for `need` elements of `size` bytes in the malloc'd array *array of capacity *cap.
 * Returns false when memory is short; the old array then stays valid. New elements are zero. */
bool ls_grow(void *array, int *cap, int need, size_t size);

/* ---- arena: what lives as long as a program or a job ---- */

struct ls_arena {
    struct ls_arena_block *head;
};
/* Zeroed memory, aligned for any type, freed all at once. NULL when memory is short. */
void *ls_arena_alloc(struct ls_arena *arena, size_t size);
char *ls_arena_strdup(struct ls_arena *arena, const char *s);
char *ls_arena_printf(struct ls_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void ls_arena_free(struct ls_arena *arena);

/* ---- text buffer with a mandatory maximum ---- */

struct ls_buf {
    char *data; /* NUL-terminated once something was added; NULL before */
    size_t len, cap, max;
    bool failed; /* out of memory or past max: checked once, at the end */
};
void ls_buf_init(struct ls_buf *buf, size_t max);
void ls_buf_add(struct ls_buf *buf, const char *bytes, size_t n);
void ls_buf_printf(struct ls_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ls_buf_vprintf(struct ls_buf *buf, const char *fmt, va_list ap);
void ls_buf_free(struct ls_buf *buf);

/* ---- strings ---- */

/* Optimal string alignment distance (insert, delete, replace, swap neighbours); case counts. */
int ls_edit_distance(const char *a, const char *b);
/* Writes "1.5 MiB" and the like; returns `out`. */
const char *ls_format_bytes(int64_t bytes, char out[static 24]);
/* Writes "12,345,678"; returns `out`. */
const char *ls_format_count(int64_t n, char out[static 32]);

/* ---- files ---- */

/* Reads a whole regular file of at most `max` bytes. *data is malloc'd, NUL-terminated beyond
 * *size, and the caller's. Errors: NOTFOUND, IO, OVERFLOW (larger than max). */
enum ls_status ls_file_read(const char *path, size_t max, char **data, size_t *size,
                            struct ls_error *err);
/* Loops over short writes and EINTR. `path` is for the message only. */
enum ls_status ls_file_write_all(int fd, const void *data, size_t size, const char *path,
                                 struct ls_error *err);
/* Writes a sibling temporary file, fsyncs it, renames it over `path`, fsyncs the directory. */
enum ls_status ls_file_replace(const char *path, const void *data, size_t size,
                               struct ls_error *err);
enum ls_status ls_dir_make(const char *path, struct ls_error *err); /* mkdir -p */
enum ls_status ls_dir_sync(const char *path, struct ls_error *err); /* fsync of a directory */

/* ---- time ---- */

double ls_time_monotonic(void); /* seconds; only differences mean something */
double ls_time_wall(void);      /* seconds since 1970 */
/* Seconds since this process was started by the kernel (from /proc); < 0 when unknown. */
double ls_time_since_exec(void);

/* ---- random numbers: Philox 4x32-10 (Salmon et al., SC 2011), a pure function of its key ---- */

/* FNV-1a, 64 bits: the stable identity of a layer path or a file name. */
uint64_t ls_hash64(const char *s);
/* Finalizer of splitmix64: mixes two words into one key. */
uint64_t ls_mix64(uint64_t a, uint64_t b);
/* The four words of counter (index, stream) under `key`. */
void ls_philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[static 4]);
/* In (0, 1): word `index % 4` of counter `index / 4`, so neighbours share one call. */
double ls_uniform(uint64_t key, uint64_t stream, uint64_t index);
/* Standard normal, Box-Muller on the uniforms 2*index and 2*index + 1. */
double ls_normal(uint64_t key, uint64_t stream, uint64_t index);

#endif
