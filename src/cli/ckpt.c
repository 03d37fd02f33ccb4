/* `lockstep ckpt`: list, show and verify checkpoints. Changes nothing on disk. */
#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JSON_VERSION 1 /* of the documents that --json prints */

static const char help[] =
    "Usage: lockstep ckpt list [--json] DIR\n"
    "       lockstep ckpt show [--json] PATH\n"
    "       lockstep ckpt verify [--json] PATH...\n"
    "Look at checkpoints.\n"
    "\n"
    "  list    the checkpoints in the directory DIR, newest first\n"
    "  show    where a checkpoint was saved, and a table of its tensors; PATH is a checkpoint,\n"
    "          a directory of checkpoints (the newest is shown), or a .safetensors file\n"
    "  verify  read every byte and compare it with the hashes in the manifest; PATH is a\n"
    "          checkpoint or a directory of checkpoints (all are verified)\n"
    "\n"
    "      --json  print one JSON document instead of a table\n"
    "  -h, --help  show this help\n"
    "\n"
    "Exit status: 0 all is well; 1 something is damaged or cannot be read; 2 usage.\n";

static int usage(const char *what, const char *word)
{
    ls_cli_error("ckpt: %s%s%s", what, word ? ": " : "", word ? word : "");
    fputs("Try 'lockstep ckpt --help'.\n", stderr);
    return LS_EXIT_USAGE;
}

static int fail(const struct ls_error *err)
{
    ls_cli_error("ckpt: %s", err->message);
    return ls_cli_exit_code(err->status);
}

/* Names from files go to a terminal: no control bytes. */
static const char *clean(const char *name, char out[static 256])
{
    size_t n = strnlen(name, 255);
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
    out[n] = '\0';
    return out;
}

static const char *date(double seconds, char out[static 32])
{
    time_t t = (time_t)seconds;
    struct tm tm;
    /* A manifest may say anything: only what fits a calendar is shown as a date. */
    if (!(seconds > 0 && seconds < 2.5e11) || !localtime_r(&t, &tm) ||
        !strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm))
        strcpy(out, "-");
    return out;
}

static const char *loss_text(double loss, char out[static 32])
{
    if (isnan(loss))
        return strcpy(out, "-");
    snprintf(out, 32, "%.6g", loss);
    return out;
}

/* ---- JSON
 * ------------------------------------------------------------------------------------------------ */

static json_t *json_loss(double loss)
{
    return isfinite(loss) ? json_real(loss) : json_null();
}

static int print_json(json_t *document)
{
    int rc = document ? json_dumpf(document, stdout, JSON_INDENT(2)) : -1;
    json_decref(document);
    putchar('\n');
    if (rc == 0)
        return LS_EXIT_OK;
    ls_cli_error("ckpt: cannot print the JSON document: out of memory or a write error");
    return LS_EXIT_FAILED;
}

static json_t *json_info(const struct ls_ckpt_info *i)
{
    json_t *o = json_pack("{s:s, s:I, s:b}", "path", i->path, "step", (json_int_t)i->step,
                          "complete", i->complete);
    if (i->complete)
        json_object_update_new(
            o, json_pack("{s:I, s:I, s:I, s:f, s:o}", "position", (json_int_t)i->position,
                         "updates", (json_int_t)i->updates, "bytes", (json_int_t)i->bytes,
                         "created", i->created, "train_loss", json_loss(i->train_loss)));
    else
        json_object_set_new(o, "problem", json_string(i->problem));
    return o;
}

/* ---- list
 * ------------------------------------------------------------------------------------------------ */

static void list_table(const struct ls_ckpt_info *infos, int n)
{
    printf("%12s  %12s  %10s  %10s  %-19s  %s\n", "STEP", "UPDATES", "LOSS", "SIZE", "CREATED",
           "PATH");
    for (int i = 0; i < n; i++) {
        char size[24], created[32], loss[32], path[256];
        const struct ls_ckpt_info *c = &infos[i];
        if (c->complete)
            printf("%12lld  %12lld  %10s  %10s  %-19s  %s\n", (long long)c->step,
                   (long long)c->updates, loss_text(c->train_loss, loss),
                   ls_format_bytes(c->bytes, size), date(c->created, created),
                   clean(c->path, path));
        else
            printf("%12lld  incomplete: %s\n", (long long)c->step, c->problem);
    }
}

static int list(char **paths, bool json)
{
    struct ls_error err = {0};
    struct ls_ckpt_info *infos;
    int n, code = LS_EXIT_OK;
    if (ls_ckpt_list(paths[0], &infos, &n, &err) != LS_OK)
        return fail(&err);
    if (json) {
        json_t *all = json_array();
        for (int i = 0; i < n; i++)
            json_array_append_new(all, json_info(&infos[i]));
        code = print_json(json_pack("{s:i, s:s, s:o}", "format", JSON_VERSION, "dir", paths[0],
                                    "checkpoints", all));
    } else if (n == 0) {
        printf("%s: no checkpoints\n", paths[0]);
    } else {
        list_table(infos, n);
    }
    ls_ckpt_infos_free(infos, n);
    return code;
}

/* ---- show
 * ------------------------------------------------------------------------------------------------ */

struct totals {
    int64_t tensors, elements, bytes;
};

static void show_heading(void)
{
    printf("%-40s  %-5s  %-20s  %10s\n", "TENSOR", "DTYPE", "SHAPE", "SIZE");
}

static void show_tensor(const char *name, enum ls_dtype dtype, const int64_t *shape, int ndim,
                        struct totals *sum)
{
    char text[256], size[24], dims[8 * 22 + 3] = "[";
    int64_t numel, bytes = 0;
    for (int d = 0, at = 1; d < ndim; d++)
        at += snprintf(dims + at, sizeof dims - (size_t)at, d ? ", %lld" : "%lld",
                       (long long)shape[d]);
    strcat(dims, "]");
    if (ls_shape_numel(shape, ndim, &numel) && ls_mul_i64(numel, ls_dtype_size(dtype), &bytes)) {
        ls_add_i64(sum->elements, numel, &sum->elements);
        ls_add_i64(sum->bytes, bytes, &sum->bytes);
    }
    sum->tensors++;
    printf("%-40s  %-5s  %-20s  %10s\n", clean(name, text), ls_st_dtype_name(dtype), dims,
           ls_format_bytes(bytes, size));
}

static void show_totals(const struct totals *sum)
{
    char a[32], b[32], size[24];
    printf("%s tensors, %s elements, %s\n", ls_format_count(sum->tensors, a),
           ls_format_count(sum->elements, b), ls_format_bytes(sum->bytes, size));
}

static json_t *json_tensor(const char *name, enum ls_dtype dtype, const int64_t *shape, int ndim)
{
    json_t *dims = json_array();
    int64_t numel, bytes = 0;
    for (int d = 0; d < ndim; d++)
        json_array_append_new(dims, json_integer(shape[d]));
    if (ls_shape_numel(shape, ndim, &numel))
        ls_mul_i64(numel, ls_dtype_size(dtype), &bytes);
    return json_pack("{s:s, s:s, s:o, s:I}", "name", name, "dtype", ls_st_dtype_name(dtype),
                     "shape", dims, "bytes", (json_int_t)bytes);
}

static int show_file(const char *path, bool json)
{
    struct ls_error err = {0};
    struct ls_st_file st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code = LS_EXIT_OK;
    if (fd < 0)
        ls_error_errno(&err, errno, "%s", path);
    else
        ls_st_read_header(fd, path, &st, &err);
    if (fd >= 0)
        close(fd);
    if (err.status != LS_OK)
        return fail(&err);
    if (json) {
        json_t *all = json_array();
        for (int i = 0; i < st.ntensors; i++) {
            const struct ls_st_tensor *t = &st.tensors[i];
            json_array_append_new(all, json_tensor(t->name, t->dtype, t->shape, t->ndim));
        }
        code = print_json(json_pack("{s:i, s:s, s:I, s:o}", "format", JSON_VERSION, "path", path,
                                    "bytes", (json_int_t)st.size, "tensors", all));
    } else {
        struct totals sum = {0};
        show_heading();
        for (int i = 0; i < st.ntensors; i++) {
            const struct ls_st_tensor *t = &st.tensors[i];
            show_tensor(t->name, t->dtype, t->shape, t->ndim, &sum);
        }
        show_totals(&sum);
    }
    ls_st_free(&st);
    return code;
}

static int manifest_json(const char *path, const struct ls_manifest *m)
{
    json_t *files = json_array();
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, m->job_hash);
    for (int f = 0; f < m->nfiles; f++) {
        const struct ls_manifest_file *file = &m->files[f];
        json_t *all = json_array();
        for (int i = 0; i < file->ntensors; i++) {
            const struct ls_manifest_tensor *t = &file->tensors[i];
            json_array_append_new(all, json_tensor(t->name, t->dtype, t->shape, t->ndim));
        }
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:o}", "name", file->name, "bytes",
                                               (json_int_t)file->bytes, "xxh128", file->sum.hex,
                                               "tensors", all));
    }
    json_t *document = json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:f, s:s, s:o}", "format", JSON_VERSION,
        "path", path, "step", (json_int_t)m->step, "position", (json_int_t)m->position, "updates",
        (json_int_t)m->updates, "seed", (json_int_t)m->seed, "job_hash", hash, "seconds",
        m->seconds, "train_loss", json_loss(m->train_loss), "created", m->created, "lockstep",
        m->lockstep, "files", files);
    return print_json(document);
}

static void manifest_table(const char *path, const struct ls_manifest *m)
{
    char a[32], loss[32], created[32], size[24], version[256];
    printf("checkpoint  %s\n", path);
    printf("step        %s\n", ls_format_count(m->step, a));
    printf("position    %s\n", ls_format_count(m->position, a));
    printf("updates     %s\n", ls_format_count(m->updates, a));
    printf("seed        %lld\n", (long long)m->seed);
    printf("job hash    %016" PRIx64 "\n", m->job_hash);
    printf("train loss  %s\n", loss_text(m->train_loss, loss));
    printf("trained     %.1f s\n", m->seconds);
    printf("created     %s\n", date(m->created, created));
    printf("written by  lockstep %s\n", clean(m->lockstep, version));
    for (int f = 0; f < m->nfiles; f++) {
        const struct ls_manifest_file *file = &m->files[f];
        struct totals sum = {0};
        printf("\n%s, %s\n", file->name, ls_format_bytes(file->bytes, size));
        show_heading();
        for (int i = 0; i < file->ntensors; i++) {
            const struct ls_manifest_tensor *t = &file->tensors[i];
            show_tensor(t->name, t->dtype, t->shape, t->ndim, &sum);
        }
        show_totals(&sum);
    }
}

static int show_checkpoint(const char *path, bool json)
{
    struct ls_error err = {0};
    struct ls_manifest m;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = LS_EXIT_OK;
    if (fd < 0)
        ls_error_errno(&err, errno, "%s", path);
    else
        ls_manifest_read(fd, path, &m, &err);
    if (fd >= 0)
        close(fd);
    if (err.status != LS_OK)
        return fail(&err);
    if (json)
        code = manifest_json(path, &m);
    else
        manifest_table(path, &m);
    ls_manifest_free(&m);
    return code;
}

/* A directory of `n` checkpoints, rather than a checkpoint itself? */
static bool is_parent(const char *path, int n)
{
    char manifest[4200];
    snprintf(manifest, sizeof manifest, "%.4096s/manifest.json", path);
    return n > 0 && access(manifest, F_OK) != 0;
}

static int show(char **paths, bool json)
{
    struct ls_error err = {0};
    struct ls_ckpt_info *infos;
    struct stat st;
    int n, code = -1;
    if (stat(paths[0], &st) == 0 && !S_ISDIR(st.st_mode))
        return show_file(paths[0], json);
    if (ls_ckpt_list(paths[0], &infos, &n, &err) != LS_OK)
        return fail(&err);
    if (!is_parent(paths[0], n))
        code = show_checkpoint(paths[0], json);
    for (int i = 0; i < n && code < 0; i++)
        if (infos[i].complete)
            code = show_checkpoint(infos[i].path, json);
    if (code < 0) {
        ls_cli_error("ckpt: %s: %d checkpoint%s, and none is complete", paths[0], n,
                     n == 1 ? "" : "s");
        code = LS_EXIT_FAILED;
    }
    ls_ckpt_infos_free(infos, n);
    return code;
}

/* ---- verify
 * ---------------------------------------------------------------------------------------------- */

static bool verify_one(const char *path, json_t *results)
{
    struct ls_error err = {0};
    struct ls_ckpt_info info = {0};
    bool good = ls_ckpt_verify(path, &info, &err) == LS_OK;
    char size[24];
    if (results)
        json_array_append_new(
            results,
            good ? json_pack("{s:s, s:b, s:I, s:I}", "path", path, "ok", 1, "step",
                             (json_int_t)info.step, "bytes", (json_int_t)info.bytes)
                 : json_pack("{s:s, s:b, s:s}", "path", path, "ok", 0, "problem", err.message));
    else if (good)
        printf("ok   %s  %s\n", path, ls_format_bytes(info.bytes, size));
    else
        printf("bad  %s  %s\n", path, err.message);
    free(info.path);
    return good;
}

static bool verify_path(const char *path, json_t *results)
{
    struct ls_ckpt_info *infos = NULL;
    int n = 0;
    bool good = true;
    /* Not a directory, or unreadable: verify_one says so in its own words. */
    if (ls_ckpt_list(path, &infos, &n, NULL) != LS_OK || !is_parent(path, n))
        good = verify_one(path, results);
    else
        for (int i = 0; i < n; i++)
            good &= verify_one(infos[i].path, results);
    ls_ckpt_infos_free(infos, n);
    return good;
}

static int verify(char **paths, int n, bool json)
{
    json_t *results = json ? json_array() : NULL;
    bool good = true;
    for (int i = 0; i < n; i++)
        good &= verify_path(paths[i], results);
    int code = good ? LS_EXIT_OK : LS_EXIT_FAILED;
    if (json) {
        int printed = print_json(json_pack("{s:i, s:b, s:o}", "format", JSON_VERSION, "ok", good,
                                           "checkpoints", results));
        code = printed == LS_EXIT_OK ? code : printed;
    }
    return code;
}

/* ---- the command
 * ----------------------------------------------------------------------------------------- */

int ls_cli_ckpt(int argc, char **argv)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool json = false;
    optind = 0; /* glibc: start anew, whoever parsed before us */
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;)
        switch (c) {
        case 'j':
            json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return fflush(stdout) == 0 ? LS_EXIT_OK : LS_EXIT_FAILED;
        default:
            fputs("Try 'lockstep ckpt --help'.\n", stderr);
            return LS_EXIT_USAGE;
        }
    int n = argc - optind - 1;
    if (n < 0)
        return usage("expected list, show or verify", NULL);
    const char *verb = argv[optind];
    char **paths = argv + optind + 1;
    bool many = strcmp(verb, "verify") == 0;
    if (!many && strcmp(verb, "list") != 0 && strcmp(verb, "show") != 0)
        return usage("expected list, show or verify, found", verb);
    if (n < 1)
        return usage("expected a path after", verb);
    if (n > 1 && !many)
        return usage("expected one path, found a second", paths[1]);
    int code = many             ? verify(paths, n, json)
               : verb[0] == 'l' ? list(paths, json)
                                : show(paths, json);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        ls_cli_error("ckpt: cannot write to the standard output");
        return LS_EXIT_FAILED;
    }
    return code;
}
