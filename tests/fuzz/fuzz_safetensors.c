/* Fuzz target: the safetensors header. What is accepted must tile the file and fit its offsets. */
#include "ckpt/ckpt.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_st_file file;
    struct ls_error err = {0};
    enum ls_status status = ls_st_parse("fuzz", data, size, (int64_t)size, &file, &err);
    if (status != LS_OK) {
        if (err.status != status || !err.message[0] || strchr(err.message, '\n') ||
            status == LS_ERR_INTERNAL)
            abort();
        return 0;
    }
    int64_t at = file.data_start;
    for (int i = 0; i < file.ntensors; i++) {
        const struct ls_st_tensor *t = &file.tensors[i];
        int64_t numel;
        if (t->begin != at || t->end < at || t->end > (int64_t)size || t->ndim < 0 || t->ndim > 8 ||
            !ls_shape_numel(t->shape, t->ndim, &numel) ||
            numel * ls_dtype_size(t->dtype) != t->end - t->begin)
            abort();
        at = t->end;
    }
    if (at != (int64_t)size)
        abort();
    ls_st_free(&file);
    return 0;
}
