/* The f32 reference as a device backend: malloc for memory, naive loops for kernels, a made-up
 * packed form. With it ls_exec can be compared with the naive executor bit for bit. */
#include "tests/reference/ref.h"

#include <stdlib.h>
#include <string.h>

struct ls_device {
    int opened;
};
/* A kernel owns a copy of the description, with room to unpack operands into. */
struct ls_kernel {
    struct ls_op_desc op;
    struct ls_attr attr;
    struct ls_operand *io;
    bool pack;
    int pack_operand;
};

int64_t ls_ref_size(enum ls_dtype dtype, bool f64)
{
    return dtype == LS_F32 && f64 ? (int64_t)sizeof(double) : ls_dtype_size(dtype);
}

static int64_t operand_numel(const struct ls_operand *o)
{
    int64_t n = 1;
    for (int d = 0; d < o->ndim; d++)
        n *= o->shape[d];
    return n;
}

int64_t ls_ref_pack_size(void *arg, const struct ls_op_desc *op, int operand)
{
    (void)arg;
    bool weight = ((op->kind == LS_K_MATMUL || op->kind == LS_K_CONV2D) && operand == 1) ||
                  (op->kind == LS_K_CONV2D_GRAD_DATA && operand == 0);
    return weight ? (operand_numel(&op->in[operand]) + LS_REF_PACK_HEAD) * 4 : 0;
}

/* Where element i of the plain operand lies in the packed one. */
static int64_t packed_place(enum ls_kind user, const struct ls_attr *attr, int64_t i, int64_t numel)
{
    int64_t turn = 4 * (int64_t)user + 2 * attr->ta + attr->tb;
    return LS_REF_PACK_HEAD + (numel - 1 - i + turn) % numel;
}

void ls_ref_pack(enum ls_kind user, const struct ls_attr *attr, const void *plain, void *packed,
                 int64_t numel, bool f64)
{
    size_t size = f64 ? sizeof(double) : sizeof(float);
    memset(packed, 0xff, LS_REF_PACK_HEAD * size);
    for (int64_t i = 0; i < numel; i++)
        memcpy((char *)packed + size * (size_t)packed_place(user, attr, i, numel),
               (const char *)plain + size * (size_t)i, size);
}

void ls_ref_unpack(enum ls_kind user, const struct ls_attr *attr, const void *packed, void *plain,
                   int64_t numel, bool f64)
{
    size_t size = f64 ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < numel; i++)
        memcpy((char *)plain + size * (size_t)i,
               (const char *)packed + size * (size_t)packed_place(user, attr, i, numel), size);
}

static const char *version(void)
{
    return "reference";
}

static enum ls_status open_device(const struct ls_device_config *config, struct ls_device **dev,
                                  struct ls_error *err)
{
    (void)config;
    *dev = calloc(1, sizeof **dev);
    return *dev ? LS_OK : ls_error_set(err, LS_ERR_NOMEM, "no memory for the reference device");
}

static void close_device(struct ls_device *dev)
{
    free(dev);
}

static const char *describe(struct ls_device *dev)
{
    (void)dev;
    return "naive loops";
}

static enum ls_status alloc(struct ls_device *dev, int64_t bytes, void **mem, struct ls_error *err)
{
    (void)dev;
    *mem = aligned_alloc(64, (size_t)ls_round_up(bytes, 64));
    if (!*mem)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory: %lld bytes", (long long)bytes);
    memset(*mem, 0, (size_t)bytes);
    return LS_OK;
}

static void free_memory(struct ls_device *dev, void *mem, int64_t bytes)
{
    (void)dev;
    (void)bytes;
    free(mem);
}

static enum ls_status read_memory(struct ls_device *dev, void *host, const void *mem, int64_t bytes,
                                  struct ls_error *err)
{
    (void)dev;
    (void)err;
    memcpy(host, mem, (size_t)bytes);
    return LS_OK;
}

static enum ls_status write_memory(struct ls_device *dev, void *mem, const void *host,
                                   int64_t bytes, struct ls_error *err)
{
    return read_memory(dev, mem, host, bytes, err);
}

static int64_t pack_size(struct ls_device *dev, const struct ls_op_desc *op, int operand)
{
    (void)dev;
    return ls_ref_pack_size(NULL, op, operand);
}

static void release(struct ls_device *dev, struct ls_kernel *kernel)
{
    (void)dev;
    if (kernel)
        free(kernel->io);
    free(kernel);
}

static enum ls_status prepare(struct ls_device *dev, const struct ls_op_desc *op,
                              struct ls_kernel **kernel, int64_t *workspace, struct ls_error *err)
{
    struct ls_kernel *k = calloc(1, sizeof *k);
    int n = op->nin + op->nout;
    if (!k || !(k->io = calloc((size_t)n + 1, sizeof *k->io))) {
        release(dev, k);
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for a reference kernel");
    }
    memcpy(k->io, op->in, (size_t)op->nin * sizeof *k->io);
    memcpy(k->io + op->nin, op->out, (size_t)op->nout * sizeof *k->io);
    k->attr = *op->attr;
    k->op = *op;
    k->op.attr = &k->attr;
    k->op.in = k->io;
    k->op.out = k->io + op->nin;
    *kernel = k;
    if (workspace)
        *workspace = 0;
    return LS_OK;
}

static enum ls_status prepare_pack(struct ls_device *dev, const struct ls_op_desc *op, int operand,
                                   struct ls_kernel **kernel, struct ls_error *err)
{
    LS_TRY(prepare(dev, op, kernel, NULL, err));
    (*kernel)->pack = true;
    (*kernel)->pack_operand = operand;
    return LS_OK;
}

static enum ls_status launch(struct ls_device *dev, struct ls_kernel *k, void *const *operands,
                             void *workspace, struct ls_error *err)
{
    (void)dev;
    (void)workspace;
    if (k->pack) {
        ls_ref_pack(k->op.kind, &k->attr, operands[0], operands[1],
                    operand_numel(&k->io[k->pack_operand]), false);
        return LS_OK;
    }
    int n = k->op.nin + k->op.nout;
    void **at = calloc((size_t)n + 1, sizeof *at), *plain = NULL;
    if (!at)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for operands");
    memcpy(at, operands, (size_t)n * sizeof *at);
    for (int i = 0; i < k->op.nin; i++)
        if (k->io[i].packed) { /* one operand of a kind at most: the weight */
            int64_t numel = operand_numel(&k->io[i]);
            plain = malloc((size_t)numel * sizeof(float));
            if (!plain)
                abort();
            ls_ref_unpack(k->op.kind, &k->attr, operands[i], plain, numel, false);
            at[i] = plain;
        }
    bool known = ls_ref_run_f32(&k->op, at);
    free(plain);
    free(at);
    return known
               ? LS_OK
               : ls_error_set(err, LS_ERR_UNSUPPORTED, "no reference for kind %d", (int)k->op.kind);
}

static enum ls_status sync_device(struct ls_device *dev, struct ls_error *err)
{
    (void)dev;
    (void)err;
    return LS_OK;
}

const struct ls_device_api *ls_ref_device(void)
{
    static const struct ls_device_api api = {
        .abi = LS_DEVICE_ABI,
        .name = "reference",
        .version = version,
        .open = open_device,
        .close = close_device,
        .describe = describe,
        .alloc = alloc,
        .free = free_memory,
        .read = read_memory,
        .write = write_memory,
        .pack_size = pack_size,
        .prepare_pack = prepare_pack,
        .prepare = prepare,
        .release = release,
        .launch = launch,
        .sync = sync_device,
    };
    return &api;
}
