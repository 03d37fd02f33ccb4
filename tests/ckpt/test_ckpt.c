/* Checkpoints: round trips, retention, damage of every kind, locks, and directories that are not
 * what they should be. */
#include "ckpt/internal.h" /* names, to plant leftovers */
#include "tests/ckpt/common.h"

#include <signal.h>
#include <sys/wait.h>

static int warnings;
static char last_warning[1024];
static void on_warning(void *arg, const char *message)
{
    (void)arg;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static void test_round_trip(void)
{
    struct path dir = in_scratch("new/nested");
    struct ls_error err = {0};
    struct ls_ckpt_dir *c;
    struct sample s;
    const char *path = NULL;
    char *found;

    tap_ok(ls_ckpt_find(dir.s, &found, NULL, NULL, &err) == LS_OK && !found,
           "find: no directory is no checkpoint and no error");
    tap_ok(ls_ckpt_open(dir.s, &c, &err) == LS_OK, "open makes the directory: %s", err.message);
    tap_ok(ls_ckpt_find(dir.s, &found, NULL, NULL, &err) == LS_OK && !found, "find: none yet");

    sample_init(&s, 1);
    tap_ok(ls_ckpt_save(c, &s.state, 2, &path, &err) == LS_OK && !ls_ckpt_warning(c), "save: %s",
           err.message);
    tap_ok(path && strcmp(path, in_scratch("new/nested/step-00000001").s) == 0, "path: %s", path);
    tap_ok(sample_loads(path, 1, &err), "load gives every bit back, NaN loss too: %s", err.message);
    for (int64_t step = 2; step <= 4; step++) {
        sample_init(&s, step);
        if (ls_ckpt_save(c, &s.state, 2, &path, &err) != LS_OK)
            tap_ok(false, "save step %d: %s", (int)step, err.message);
    }
    tap_ok(sample_loads(path, 4, &err), "load step 4: %s", err.message);
    tap_ok(!exists(in_scratch("new/nested/step-00000002").s) &&
               exists(in_scratch("new/nested/step-00000003").s) &&
               count_entries(dir.s, "step-") == 2 && count_entries(dir.s, ".tmp-") == 0,
           "keep 2: the newest two are there, nothing else");
    size_t size;
    uint8_t *latest = read_file(in_scratch("new/nested/latest").s, &size);
    tap_ok(strcmp((char *)latest, "step-00000004\n") == 0, "latest names the newest");
    free(latest);

    struct ls_ckpt_info *infos, info;
    int n;
    tap_ok(ls_ckpt_list(dir.s, &infos, &n, &err) == LS_OK && n == 2, "list: two entries");
    tap_ok(infos[0].step == 4 && infos[1].step == 3 && infos[0].complete &&
               infos[0].position == s.state.position && infos[0].updates == s.state.updates &&
               infos[0].train_loss == 1.0 / 3 && infos[0].bytes > 200 && infos[0].created > 1e9,
           "list: newest first, fields of the manifest");
    ls_ckpt_infos_free(infos, n);
    tap_ok(ls_ckpt_verify(path, &info, &err) == LS_OK && info.complete && info.step == 4,
           "verify: %s", err.message);
    free(info.path);

    /* The same step again: replaced. Same values give the same files, but for times. */
    size_t size2;
    uint8_t *before = read_file(in_scratch("new/nested/step-00000004/model.safetensors").s, &size);
    s.state.seconds = 99;
    tap_ok(ls_ckpt_save(c, &s.state, 2, &path, &err) == LS_OK && !ls_ckpt_warning(c),
           "save the same step again: %s", err.message);
    uint8_t *after = read_file(in_scratch("new/nested/step-00000004/model.safetensors").s, &size2);
    tap_ok(size == size2 && memcmp(before, after, size) == 0, "the same state gives the same file");
    free(before);
    free(after);
    struct sample got;
    sample_init(&got, 0);
    tap_ok(ls_ckpt_load(path, &got.state, &err) == LS_OK && got.state.seconds == 99 &&
               count_entries(dir.s, "step-") == 2,
           "the new one took its place");

    /* A lower step than what is there (a run that went back): kept, whatever `keep` says. */
    sample_init(&s, 2);
    tap_ok(ls_ckpt_save(c, &s.state, 1, &path, &err) == LS_OK && sample_loads(path, 2, &err) &&
               count_entries(dir.s, "step-") == 1,
           "retention never removes what was just saved");

    /* No optimizer state, and an incomplete or foreign thing in the place of the name. */
    mkdir(in_scratch("new/nested/step-00000005").s, 0777);
    write_file(in_scratch("new/nested/step-00000005/model.safetensors").s, "x", 1);
    sample_init(&s, 5);
    s.state.noptimizer = 0;
    tap_ok(ls_ckpt_save(c, &s.state, 9, &path, &err) == LS_OK &&
               ls_ckpt_verify(path, NULL, &err) == LS_OK,
           "an incomplete directory of that name is replaced: %s", err.message);
    write_file(in_scratch("new/nested/step-00000006").s, "x", 1);
    s.state.step = 6;
    tap_ok(ls_ckpt_save(c, &s.state, 9, &path, &err) == LS_OK &&
               ls_ckpt_verify(path, NULL, &err) == LS_OK && count_entries(dir.s, ".tmp-") == 0,
           "a file of that name is replaced: %s", err.message);
    s.state.step = 123456789012;
    tap_ok(ls_ckpt_save(c, &s.state, 9, &path, &err) == LS_OK && strstr(path, "step-123456789012"),
           "more digits: %s", err.message);
    ls_ckpt_close(c);
    tap_ok(ls_ckpt_find(dir.s, &found, NULL, NULL, &err) == LS_OK && found &&
               strstr(found, "step-123456789012"),
           "find: %s", err.message);
    free(found);

    s.state.step = -1;
    ls_ckpt_open(dir.s, &c, &err);
    tap_ok(ls_ckpt_save(c, &s.state, 1, NULL, &err) == LS_ERR_INTERNAL, "bad step: %s",
           err.message);
    ls_ckpt_close(c);
}

/* Loads step 1 into `s` after a change; true if it fails with this text and writes no buffer. */
static void refuse_load(const char *what, const char *path, struct sample *s, const char *text)
{
    struct ls_error err = {0};
    float weight[12];
    memcpy(weight, s->weight, sizeof weight);
    s->state.step = 77;
    enum ls_status status = ls_ckpt_load(path, &s->state, &err);
    tap_ok(status != LS_OK && strstr(err.message, text) && s->state.step == 77 &&
               memcmp(weight, s->weight, sizeof weight) == 0,
           "load, %s: %s", what, err.message);
}

static void test_mismatch(void)
{
    struct path dir = in_scratch("mismatch"), path = in_scratch("mismatch/step-00000001");
    struct ls_error err = {0};
    struct sample s;
    tap_ok(save_step(dir.s, 1, 1, &err) == LS_OK, "%s", err.message);

    sample_init(&s, 0);
    s.model[0].name = "fc9.weight";
    refuse_load("other name", path.s, &s,
                "model.safetensors has tensor 'fc1.weight', which the job has not; "
                "model.safetensors lacks tensor 'fc9.weight'");
    sample_init(&s, 0);
    s.model[0].shape[0] = 3;
    s.model[0].shape[1] = 4;
    refuse_load("other shape", path.s, &s,
                "tensor 'fc1.weight' is F32 [4, 3] in model.safetensors, the job wants F32 [3, 4]");
    sample_init(&s, 0);
    s.model[2].dtype = LS_I32;
    refuse_load("other dtype", path.s, &s, "tensor 'fc1.bias' is F32 [4] in");
    sample_init(&s, 0);
    s.state.noptimizer = 1;
    refuse_load("too few wanted", path.s, &s,
                "optimizer.safetensors has tensor 'fc1.weight/v', which the job has not");
    sample_init(&s, 0);
    s.state.nmodel = 0;
    refuse_load("none wanted", path.s, &s, "; and 2 more");
    sample_init(&s, 0);
    struct ls_st_tensor more[SAMPLE_MODEL + 1];
    memcpy(more, s.model, sizeof s.model);
    more[SAMPLE_MODEL] = (struct ls_st_tensor){"extra", LS_F32, 1, {4}, s.bias, 0, 0};
    s.state.model = more;
    s.state.nmodel++;
    refuse_load("too many wanted", path.s, &s, "model.safetensors lacks tensor 'extra'");
    sample_init(&s, 0);
    refuse_load("no checkpoint", scratch, &s, "has no manifest.json");
}

/* Every bit of a byte in turn through the file: verify, load and find must notice each. */
static void test_bit_flips(void)
{
    static const char *const names[] = {"manifest.json", "model.safetensors",
                                        "optimizer.safetensors"};
    struct path dir = in_scratch("flips");
    struct ls_error err = {0};
    tap_ok(save_step(dir.s, 1, 9, &err) == LS_OK && save_step(dir.s, 2, 9, &err) == LS_OK, "%s",
           err.message);
    for (int f = 0; f < 3; f++) {
        struct path p = in_scratch("flips/step-00000002/%s", names[f]);
        size_t size;
        uint8_t *data = read_file(p.s, &size);
        int missed = 0, loaded = 0, unnamed = 0;
        int fd = open(p.s, O_WRONLY | O_CLOEXEC);
        for (size_t i = 0; i < size; i++) {
            uint8_t bad = (uint8_t)(data[i] ^ 1u << i % 8);
            struct ls_error e = {0};
            if (pwrite(fd, &bad, 1, (off_t)i) != 1)
                exit(99);
            missed += ls_ckpt_verify(in_scratch("flips/step-00000002").s, NULL, &e) == LS_OK;
            unnamed += !strstr(e.message, names[f]);
            if (i % 97 == 0) {
                struct ls_error e2 = {0};
                loaded += sample_loads(in_scratch("flips/step-00000002").s, 2, &e2);
            }
            if (pwrite(fd, &data[i], 1, (off_t)i) != 1)
                exit(99);
        }
        tap_ok(missed == 0 && loaded == 0, "%s: a flipped bit in each of %zu bytes is noticed",
               names[f], size);
        tap_ok(unnamed == 0, "and the message names the file (%d do not)", unnamed);

        uint8_t bad = (uint8_t)(data[size / 2] ^ 4);
        if (pwrite(fd, &bad, 1, (off_t)size / 2) != 1)
            exit(99);
        char *found;
        warnings = 0;
        struct ls_error e = {0};
        tap_ok(ls_ckpt_find(dir.s, &found, on_warning, NULL, &e) == LS_OK && found &&
                   strstr(found, "step-00000001") && warnings == 1 &&
                   strstr(last_warning, "step-00000002"),
               "find falls back and warns: %s", last_warning);
        free(found);

        /* Truncated, longer, gone, a link, a FIFO, a directory. */
        struct path aside = in_scratch("aside");
        int noticed = 0;
        for (int kind = 0; kind < 6; kind++) {
            struct ls_error e3 = {0};
            remove(p.s);
            write_file(aside.s, data, size);
            if (kind == 0)
                write_file(p.s, data, size - 1);
            if (kind == 1) {
                uint8_t *longer = calloc(1, size + 1);
                memcpy(longer, data, size);
                write_file(p.s, longer, size + 1);
                free(longer);
            }
            if (kind == 3 && symlink(aside.s, p.s) != 0)
                exit(99);
            if (kind == 4 && mkfifo(p.s, 0600) != 0)
                exit(99);
            if (kind == 5 && mkdir(p.s, 0700) != 0)
                exit(99);
            bool pass = ls_ckpt_verify(in_scratch("flips/step-00000002").s, NULL, &e3) != LS_OK &&
                        strstr(e3.message, names[f]) && find_step(dir.s, &e) == 1;
            noticed += pass;
            if (!pass)
                tap_note("kind %d: %s", kind, e3.message);
        }
        tap_ok(noticed == 6, "%s: truncated, longer, gone, a link, a FIFO, a directory", names[f]);
        remove(p.s);
        write_file(p.s, data, size);
        tap_ok(find_step(dir.s, &e) == 2, "put right again, it verifies");
        free(data);
        close(fd);
    }

    /* Files of two checkpoints exchanged: each is whole, but not the one of the manifest. */
    struct path a = in_scratch("flips/step-00000001/model.safetensors");
    struct path b = in_scratch("flips/step-00000002/model.safetensors");
    struct ls_error e = {0};
    tap_ok(renameat2(AT_FDCWD, a.s, AT_FDCWD, b.s, RENAME_EXCHANGE) == 0, "exchange");
    char *found;
    warnings = 0;
    tap_ok(ls_ckpt_find(dir.s, &found, on_warning, NULL, &e) == LS_ERR_FORMAT && !found &&
               warnings == 2 && strstr(e.message, "2 checkpoints and none verifies"),
           "all bad is an error, never a start from zero: %s", e.message);
    struct ls_ckpt_info *infos;
    int n;
    remove(in_scratch("flips/step-00000002/manifest.json").s);
    tap_ok(ls_ckpt_list(dir.s, &infos, &n, &e) == LS_OK && n == 2 && infos[0].step == 2 &&
               !infos[0].complete && strstr(infos[0].problem, "has no manifest.json") &&
               infos[1].complete,
           "list shows what is incomplete");
    ls_ckpt_infos_free(infos, n);

    /* The next save counts complete ones only, and leaves the damaged for a person. */
    struct ls_error e4 = {0};
    tap_ok(save_step(dir.s, 3, 1, &e4) == LS_OK && find_step(dir.s, &e4) == 3 &&
               exists(in_scratch("flips/step-00000002").s) &&
               !exists(in_scratch("flips/step-00000001").s),
           "retention leaves a damaged directory alone: %s", e4.message);
}

static void test_leftovers(void)
{
    struct path dir = in_scratch("left");
    struct ls_error err = {0};
    tap_ok(save_step(dir.s, 1, 9, &err) == LS_OK && save_step(dir.s, 2, 9, &err) == LS_OK, "%s",
           err.message);
    /* What a crash can leave, and what only looks like it. */
    mkdir(in_scratch("left/step-00000003.tmp-0123456789abcdef").s, 0777);
    write_file(in_scratch("left/step-00000003.tmp-0123456789abcdef/manifest.json").s, "x", 1);
    mkdir(in_scratch("precious").s, 0777);
    write_file(in_scratch("precious/file").s, "x", 1);
    if (symlink(in_scratch("precious").s,
                in_scratch("left/step-00000004.tmp-0123456789abcdef").s) != 0)
        exit(99);
    write_file(in_scratch("left/latest.tmp-0123456789abcdef").s, "x", 1);
    rename(in_scratch("left/step-00000002").s,
           in_scratch("left/step-00000002.old-0123456789abcdef").s);
    static const char *const others[] = {"step-00000005.tmp-",
                                         "step-00000005.tmp-mine",
                                         "step-5",
                                         "step-00000005.bak",
                                         "step-000000000005",
                                         "notes.txt",
                                         "xstep-00000005.tmp-0123456789abcdef",
                                         "step-00000005.tmp-0123456789abcdef0"};
    enum { OTHERS = sizeof others / sizeof *others };
    for (int i = 0; i < OTHERS; i++)
        write_file(in_scratch("left/%s", others[i]).s, "x", 1);

    tap_ok(find_step(dir.s, &err) == 2, "find reads a version that was set aside: %s", err.message);
    struct ls_ckpt_dir *c;
    tap_ok(ls_ckpt_open(dir.s, &c, &err) == LS_OK, "open: %s", err.message);
    int kept = 0;
    for (int i = 0; i < OTHERS; i++)
        kept += exists(in_scratch("left/%s", others[i]).s);
    tap_ok(count_entries(dir.s, ".tmp-0123456789abcdef") == 2 && kept == OTHERS,
           "open removes temporary entries, and nothing that only looks like one (%d)", kept);
    tap_ok(exists(in_scratch("precious/file").s), "a link is removed, not followed");
    tap_ok(exists(in_scratch("left/step-00000002").s) && find_step(dir.s, &err) == 2,
           "a version that was set aside gets its name back");
    ls_ckpt_close(c);
    mkdir(in_scratch("left/step-00000002.old-0123456789abcdef").s, 0777);
    tap_ok(ls_ckpt_open(dir.s, &c, &err) == LS_OK &&
               !exists(in_scratch("left/step-00000002.old-0123456789abcdef").s) &&
               find_step(dir.s, &err) == 2,
           "or goes, when its successor is there");
    ls_ckpt_close(c);
}

static void test_locks(void)
{
    struct path dir = in_scratch("locks");
    struct ls_error err = {0}, err2 = {0};
    struct ls_ckpt_dir *c, *d;
    tap_ok(ls_ckpt_open(dir.s, &c, &err) == LS_OK, "first writer: %s", err.message);
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld on host", (long)getpid());
    tap_ok(ls_ckpt_open(dir.s, &d, &err2) == LS_ERR_BUSY && strstr(err2.message, pid),
           "second writer in this process: %s", err2.message);
    pid_t child = fork();
    if (child == 0) {
        struct ls_error e = {0};
        int rc = ls_ckpt_open(dir.s, &d, &e) == LS_ERR_BUSY && strstr(e.message, pid) ? 0 : 1;
        _exit(rc);
    }
    int status;
    waitpid(child, &status, 0);
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "second writer in another process");
    mkdir(in_scratch("locks/step-00000003.tmp-0123456789abcdef").s, 0777);
    struct ls_error err4 = {0};
    ls_ckpt_open(dir.s, &d, &err4);
    tap_ok(count_entries(dir.s, ".tmp-") == 1, "who has no lock removes nothing");
    char *found;
    tap_ok(ls_ckpt_find(dir.s, &found, NULL, NULL, &err) == LS_OK, "readers need no lock");
    ls_ckpt_close(c);
    struct ls_error err3 = {0};
    tap_ok(ls_ckpt_open(dir.s, &d, &err3) == LS_OK, "free after close: %s", err3.message);
    ls_ckpt_close(d);

    /* The death of a holder frees it. */
    int ready[2];
    if (pipe(ready) != 0)
        exit(99);
    child = fork();
    if (child == 0) {
        struct ls_error e = {0};
        char ok = ls_ckpt_open(dir.s, &d, &e) == LS_OK;
        if (write(ready[1], &ok, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char ok = 0;
    bool heard = read(ready[0], &ok, 1) == 1 && ok;
    memset(&err2, 0, sizeof err2);
    tap_ok(heard && ls_ckpt_open(dir.s, &d, &err2) == LS_ERR_BUSY, "held by a child: %s",
           err2.message);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    tap_ok(ls_ckpt_open(dir.s, &d, &err3) == LS_OK, "free after the holder was killed");
    ls_ckpt_close(d);
    close(ready[0]);
    close(ready[1]);

    write_file(in_scratch("target").s, "keep", 4);
    remove(in_scratch("locks/lock").s);
    if (symlink(in_scratch("target").s, in_scratch("locks/lock").s) != 0)
        exit(99);
    memset(&err2, 0, sizeof err2);
    size_t size;
    enum ls_status s = ls_ckpt_open(dir.s, &d, &err2);
    uint8_t *text = read_file(in_scratch("target").s, &size);
    tap_ok(s == LS_ERR_IO && size == 4, "a link in the place of the lock is not followed: %s",
           err2.message);
    free(text);
}

static void refuse_open(const char *what, const char *dir, const char *text)
{
    struct ls_error err = {0};
    struct ls_ckpt_dir *c;
    enum ls_status status = ls_ckpt_open(dir, &c, &err);
    tap_ok(status == LS_ERR_IO && strstr(err.message, text) && strstr(err.message, "/file: "),
           "open, %s: %s", what, err.message);
}

/* Runs in a child: drops root, because permissions do not bind it. */
static int as_nobody(const char *dir)
{
    struct ls_error err = {0};
    struct ls_ckpt_dir *c;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 2;
    int bad = ls_ckpt_open(dir, &c, &err) != LS_ERR_IO ||
              !strstr(err.message, "Permission denied") || !strstr(err.message, dir);
    printf("# read-only: %s\n", err.message);
    fflush(stdout);
    return bad || find_step(dir, &err) != 1;
}

static void test_directories(void)
{
    struct ls_error err = {0};
    char *found;
    write_file(in_scratch("file").s, "x", 1);
    refuse_open("a file", in_scratch("file").s, "Not a directory");
    refuse_open("below a file", in_scratch("file/x").s, "Not a directory");
    tap_ok(ls_ckpt_find(in_scratch("file").s, &found, NULL, NULL, &err) == LS_ERR_IO && !found,
           "find, a file: %s", err.message);

    struct path dir = in_scratch("ro");
    struct ls_error err2 = {0};
    tap_ok(save_step(dir.s, 1, 1, &err2) == LS_OK, "%s", err2.message);
    chmod(scratch, 0755);
    for (int pass = 0; pass < 2; pass++) {
        chmod(dir.s, 0555); /* pass 0: the lock file itself is writable */
        chmod(in_scratch("ro/lock").s, pass ? 0444 : 0666);
        pid_t child = fork();
        if (child == 0)
            _exit(as_nobody(dir.s));
        int status;
        waitpid(child, &status, 0);
        tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "read-only directory%s: clear error, and still readable",
               pass ? " and lock file" : "");
    }
    chmod(dir.s, 0755);
}

/* A disk of 1 MiB that fills up. */
static int full_disk(const char *dir)
{
    if (!mount_tmpfs(dir, "size=1m"))
        return 77;
    struct ls_error err = {0};
    if (save_step(dir, 1, 9, &err) != LS_OK)
        return 1;
    struct sample s;
    struct ls_ckpt_dir *c;
    sample_init(&s, 2);
    s.model[0] = (struct ls_st_tensor){"big", LS_U8, 1, {2 << 20}, calloc(1, 2 << 20), 0, 0};
    if (ls_ckpt_open(dir, &c, &err) != LS_OK)
        return 2;
    if (ls_ckpt_save(c, &s.state, 9, NULL, &err) != LS_ERR_IO)
        return 3;
    printf("# full disk: %s\n", err.message);
    fflush(stdout);
    if (!strstr(err.message, "No space left on device") || !strstr(err.message, "step 2"))
        return 4;
    free(s.model[0].data);
    if (count_entries(dir, ".tmp-") != 0 || find_step(dir, &err) != 1)
        return 5;
    /* The writer goes on: a smaller one fits. */
    struct ls_error err2 = {0};
    sample_init(&s, 3);
    if (ls_ckpt_save(c, &s.state, 9, NULL, &err2) != LS_OK || find_step(dir, &err2) != 3)
        return 6;
    ls_ckpt_close(c);
    return 0;
}

static void test_full_disk(void)
{
    struct path dir = in_scratch("disk");
    mkdir(dir.s, 0777);
    pid_t child = fork();
    if (child == 0)
        _exit(full_disk(dir.s));
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        tap_ok(true, "full disk # SKIP this user cannot mount a small file system");
    else
        tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "full disk: clear error, nothing lost, nothing left, goes on (%d)",
               WEXITSTATUS(status));
}

int main(void)
{
    scratch_make();
    test_round_trip();
    test_mismatch();
    test_bit_flips();
    test_leftovers();
    test_locks();
    test_directories();
    test_full_disk();
    remove_tree(scratch);
    return tap_done();
}
