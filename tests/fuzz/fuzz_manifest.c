/* Fuzz target: the manifest of a checkpoint. The sum in its last line would stop every mutant, so
 * the input is the text before it and the target appends the right one; every other input goes in
 * as it is. What is accepted names plain files only and prints to a text that is accepted again. */
#include "ckpt/manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void check(const char *text, size_t size)
{
    struct ls_manifest m, again;
    struct ls_error err = {0};
    enum ls_status status = ls_manifest_parse("fuzz", text, size, &m, &err);
    if (status != LS_OK) {
        if (err.status != status || !err.message[0] || strchr(err.message, '\n'))
            abort();
        return;
    }
    for (int i = 0; i < m.nfiles; i++)
        if (strchr(m.files[i].name, '/') || m.files[i].name[0] == '.' || !m.files[i].name[0])
            abort();
    char *printed;
    size_t n;
    if (ls_manifest_print(&m, &printed, &n, &err) == LS_OK) {
        if (ls_manifest_parse("again", printed, n, &again, &err) != LS_OK || again.step != m.step ||
            again.seed != m.seed || again.job_hash != m.job_hash || again.nfiles != m.nfiles ||
            (isfinite(m.train_loss) && again.train_loss != m.train_loss))
            abort();
        ls_manifest_free(&again);
        free(printed);
    }
    ls_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check((const char *)data, size);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(data, size));
    struct ls_buf buf;
    ls_buf_init(&buf, (size_t)1 << 24);
    ls_buf_add(&buf, (const char *)data, size);
    ls_buf_printf(&buf, ",\n  \"xxh128\": \"");
    for (size_t i = 0; i < sizeof sum.digest; i++)
        ls_buf_printf(&buf, "%02x", sum.digest[i]);
    ls_buf_printf(&buf, "\"\n}\n");
    if (!buf.failed)
        check(buf.data, buf.len);
    ls_buf_free(&buf);
    return 0;
}
