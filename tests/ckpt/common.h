/* What the checkpoint tests share: a scratch directory, a small state, and a reader of safetensors
 * that has nothing in common with the one under test. */
#ifndef LS_TEST_CKPT_COMMON_H
#define LS_TEST_CKPT_COMMON_H

#include "ckpt/ckpt.h"
#include "tests/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static char scratch[4096];

static int scratch_unlink(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}
UNUSED static void remove_tree(const char *path)
{
    nftw(path, scratch_unlink, 16, FTW_DEPTH | FTW_PHYS);
}
UNUSED static void scratch_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%.4000s/ls-ckpt-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(scratch)) {
        perror(scratch);
        exit(99);
    }
}

/* Mounts a file system in memory that only this process and its children see, as root or in a user
 * namespace; false where neither is allowed. */
UNUSED static bool mount_tmpfs(const char *dir, const char *options)
{
    struct {
        const char *file;
        char text[64];
    } set[3] = {
        {"/proc/self/setgroups", "deny"}, {"/proc/self/uid_map", ""}, {"/proc/self/gid_map", ""}};
    snprintf(set[1].text, 64, "0 %u 1", getuid());
    snprintf(set[2].text, 64, "0 %u 1", getgid());
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        for (int i = 0; i < 3; i++) {
            int fd = open(set[i].file, O_WRONLY | O_CLOEXEC);
            bool ok = write(fd, set[i].text, strlen(set[i].text)) > 0;
            if (fd >= 0)
                close(fd);
            if (!ok)
                return false;
        }
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", dir, "tmpfs", 0, options) == 0;
}

struct path {
    char s[4352];
};
UNUSED __attribute__((format(printf, 1, 2))) static struct path in_scratch(const char *fmt, ...)
{
    struct path p;
    va_list ap;
    int n = snprintf(p.s, sizeof p.s, "%s/", scratch);
    va_start(ap, fmt);
    vsnprintf(p.s + n, sizeof p.s - (size_t)n, fmt, ap);
    va_end(ap);
    return p;
}

UNUSED static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "we");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) {
        perror(path);
        exit(99);
    }
}
UNUSED static uint8_t *read_file(const char *path, size_t *size)
{
    char *data;
    struct ls_error err = {0};
    if (ls_file_read(path, (size_t)1 << 30, &data, size, &err) != LS_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(99);
    }
    return (uint8_t *)data;
}
UNUSED static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}
/* Entries of a directory whose name contains `part`. */
UNUSED static int count_entries(const char *path, const char *part)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
             strstr(e->d_name, part) != NULL;
    if (d)
        closedir(d);
    return n;
}

/* A small state with every dtype, a scalar, an empty tensor; its values depend on `step`. */
#define SAMPLE_MODEL     6
#define SAMPLE_OPTIMIZER 2
struct sample {
    float weight[12], bias[4], m[12], v[12];
    double mean[2];
    int32_t count;
    uint8_t tag[3];
    struct ls_st_tensor model[SAMPLE_MODEL], optimizer[SAMPLE_OPTIMIZER];
    struct ls_ckpt_state state;
};
UNUSED static void sample_init(struct sample *s, int64_t step)
{
    memset(s, 0, sizeof *s);
    float x = (float)step;
    for (int i = 0; i < 12; i++) {
        s->weight[i] = x + (float)i / 7;
        s->m[i] = -x * (float)i;
        s->v[i] = x * x + (float)i;
    }
    for (int i = 0; i < 4; i++)
        s->bias[i] = i == 3 ? NAN : x / 3;
    s->mean[0] = 1.0 / 3 + (double)step;
    s->mean[1] = -INFINITY;
    s->count = (int32_t)-step;
    for (int i = 0; i < 3; i++)
        s->tag[i] = (uint8_t)(step + i);
    s->model[0] = (struct ls_st_tensor){"fc1.weight", LS_F32, 2, {4, 3}, s->weight, 0, 0};
    s->model[1] = (struct ls_st_tensor){"tag \"\xc3\xa9\\", LS_U8, 1, {3}, s->tag, 0, 0};
    s->model[2] = (struct ls_st_tensor){"fc1.bias", LS_F32, 1, {4}, s->bias, 0, 0};
    s->model[3] = (struct ls_st_tensor){"bn.mean", LS_F64, 1, {2}, s->mean, 0, 0};
    s->model[4] = (struct ls_st_tensor){"count", LS_I32, 0, {0}, &s->count, 0, 0};
    s->model[5] = (struct ls_st_tensor){"empty", LS_F32, 2, {0, 5}, NULL, 0, 0};
    s->optimizer[0] = (struct ls_st_tensor){"fc1.weight/m", LS_F32, 2, {4, 3}, s->m, 0, 0};
    s->optimizer[1] = (struct ls_st_tensor){"fc1.weight/v", LS_F32, 2, {4, 3}, s->v, 0, 0};
    s->state = (struct ls_ckpt_state){
        .step = step,
        .position = step * 128 + ((int64_t)1 << 60), /* more than a double can hold */
        .updates = step - step / 10,
        .seed = ((int64_t)1 << 53) - 1,
        .job_hash = UINT64_C(0xfedcba9876543210),
        .seconds = 12.1 * (double)step,
        .train_loss = step == 1 ? NAN : 1.0 / 3,
        .model = s->model,
        .optimizer = s->optimizer,
        .nmodel = SAMPLE_MODEL,
        .noptimizer = SAMPLE_OPTIMIZER,
    };
}
/* Loads into a cleared state and compares every bit with what `step` should hold. */
UNUSED static bool sample_loads(const char *path, int64_t step, struct ls_error *err)
{
    struct sample want, got;
    sample_init(&want, step);
    sample_init(&got, 0);
    struct ls_ckpt_state *g = &got.state, *w = &want.state;
    if (ls_ckpt_load(path, g, err) != LS_OK)
        return false;
    return memcmp(want.weight, got.weight, sizeof want.weight) == 0 &&
           memcmp(want.bias, got.bias, sizeof want.bias) == 0 &&
           memcmp(want.m, got.m, sizeof want.m) == 0 && memcmp(want.v, got.v, sizeof want.v) == 0 &&
           memcmp(want.mean, got.mean, sizeof want.mean) == 0 && want.count == got.count &&
           memcmp(want.tag, got.tag, sizeof want.tag) == 0 && g->step == w->step &&
           g->position == w->position && g->updates == w->updates && g->seed == w->seed &&
           g->job_hash == w->job_hash && memcmp(&g->seconds, &w->seconds, sizeof g->seconds) == 0 &&
           (isnan(w->train_loss) ? isnan(g->train_loss)
                                 : memcmp(&g->train_loss, &w->train_loss, sizeof(double)) == 0);
}
/* Opens, saves, closes; the first error counts. */
UNUSED static enum ls_status save_step(const char *dir, int64_t step, int64_t keep,
                                       struct ls_error *err)
{
    struct sample s;
    struct ls_ckpt_dir *c;
    sample_init(&s, step);
    enum ls_status status = ls_ckpt_open(dir, &c, err);
    if (status != LS_OK)
        return status;
    status = ls_ckpt_save(c, &s.state, keep, NULL, err);
    ls_ckpt_close(c);
    return status;
}
/* The step of the newest that verifies; 0: none; -1: error. */
UNUSED static int64_t find_step(const char *dir, struct ls_error *err)
{
    char *path;
    if (ls_ckpt_find(dir, &path, NULL, NULL, err) != LS_OK)
        return -1;
    int64_t step = path ? strtoll(strrchr(path, '/') + 6, NULL, 10) : 0;
    if (path && !sample_loads(path, step, err))
        step = -1;
    free(path);
    return step;
}

#endif
