/* oneDNN behind a few functions of our own: the three convolutions on channels-last images, with
 * filters in the library's own layout. Versions 2.6 and 3.x differ in how descriptions
 * are made; the first section hides that.
 */
#include "plugins/cpu/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

/* ---- the two versions of the library --------------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t md_view;
typedef const_dnnl_primitive_desc_t pd_view;
#define MD_VIEW(md) ((md_view)(md))
#else
typedef const dnnl_memory_desc_t *md_view;
typedef const_dnnl_primitive_desc_t pd_view;
#define MD_VIEW(md) (&(md))
#endif

static dnnl_status_t md_make(dnnl_memory_desc_t *md, int ndims, const dnnl_dims_t dims,
                             dnnl_format_tag_t tag)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(md, ndims, dims, dnnl_f32, tag);
#else
    return dnnl_memory_desc_init_by_tag(md, ndims, dims, dnnl_f32, tag);
#endif
}

static void md_drop(dnnl_memory_desc_t *md)
{
#if DNNL_VERSION_MAJOR >= 3
    if (*md)
        dnnl_memory_desc_destroy(*md);
    *md = NULL;
#else
    (void)md;
#endif
}

static dnnl_status_t post_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1.f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1.f);
#endif
}

/* Shapes and memory descriptions of one convolution: x [n,h,w,c], w [o,c,y,x], y [n,p,q,o]. */
struct conv_shape {
    dnnl_dims_t x, w, b, y, stride, pad, dilation;
    dnnl_memory_desc_t x_md, w_md, b_md, y_md; /* w in whatever layout the library likes */
    bool bias;
};

static dnnl_status_t conv_pd(dnnl_primitive_desc_t *pd, enum ls_kind kind,
                             const struct conv_shape *s, dnnl_engine_t engine,
                             const_dnnl_primitive_attr_t attr, pd_view hint)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
    if (kind == LS_K_CONV2D)
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, alg, s->x_md, s->w_md, s->bias ? s->b_md : NULL,
            s->y_md, s->stride, s->dilation, s->pad, s->pad, attr);
    if (kind == LS_K_CONV2D_GRAD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, alg, s->x_md, s->w_md, s->y_md, s->stride, s->dilation, s->pad, s->pad,
            hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, alg, s->x_md, s->w_md, NULL, s->y_md, s->stride, s->dilation, s->pad, s->pad,
        hint, attr);
#else
    dnnl_convolution_desc_t d;
    dnnl_status_t st;
    if (kind == LS_K_CONV2D)
        st = dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, alg, &s->x_md, &s->w_md,
                                                s->bias ? &s->b_md : NULL, &s->y_md, s->stride,
                                                s->pad, s->pad);
    else if (kind == LS_K_CONV2D_GRAD_DATA)
        st = dnnl_convolution_backward_data_desc_init(&d, alg, &s->x_md, &s->w_md, &s->y_md,
                                                      s->stride, s->pad, s->pad);
    else
        st = dnnl_convolution_backward_weights_desc_init(&d, alg, &s->x_md, &s->w_md, NULL,
                                                         &s->y_md, s->stride, s->pad, s->pad);
    return st != dnnl_success ? st : dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
#endif
}

/* ---- library --------------------------------------------------------------------------------- */

struct ls_dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

const char *ls_dnn_version(void)
{
    static char text[48]; /* the same bytes from every caller */
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

static const char *status_text(dnnl_status_t st)
{
    return st == dnnl_out_of_memory       ? "out of memory"
           : st == dnnl_invalid_arguments ? "invalid arguments"
           : st == dnnl_unimplemented     ? "not implemented for these shapes"
           : st == dnnl_runtime_error     ? "runtime error"
                                          : "error";
}

static enum ls_status failed(dnnl_status_t st, const char *what, struct ls_error *err)
{
    return ls_error_set(err,
                        st == dnnl_out_of_memory   ? LS_ERR_NOMEM
                        : st == dnnl_unimplemented ? LS_ERR_UNSUPPORTED
                                                   : LS_ERR_INTERNAL,
                        "%s: %s: %s", ls_dnn_version(), what, status_text(st));
}

enum ls_status ls_dnn_open(struct ls_dnn **out, struct ls_error *err)
{
    struct ls_dnn *dnn = calloc(1, sizeof *dnn);
    if (!dnn)
        return ls_error_set(err, LS_ERR_NOMEM, "no memory for oneDNN");
    dnnl_status_t st = dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
    if (st == dnnl_success)
        st = dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags);
    if (st != dnnl_success) {
        ls_dnn_close(dnn);
        return failed(st, "cannot create a CPU engine", err);
    }
    *out = dnn;
    return LS_OK;
}

void ls_dnn_close(struct ls_dnn *dnn)
{
    if (!dnn)
        return;
    if (dnn->stream)
        dnnl_stream_destroy(dnn->stream);
    if (dnn->engine)
        dnnl_engine_destroy(dnn->engine);
    free(dnn);
}

/* ---- memory objects and reorders ------------------------------------------------------------- */

/* A memory object whose address is set at launch, and only when it changed. */
struct slot {
    dnnl_memory_t mem;
    void *at;
};

static dnnl_status_t slot_make(struct slot *s, md_view md, dnnl_engine_t engine)
{
    return dnnl_memory_create(&s->mem, md, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t slot_set(struct slot *s, void *at)
{
    if (s->at == at)
        return dnnl_success;
    s->at = at;
    return dnnl_memory_set_data_handle(s->mem, at);
}

static void slot_drop(struct slot *s)
{
    if (s->mem)
        dnnl_memory_destroy(s->mem);
}

static dnnl_status_t make_reorder(dnnl_primitive_t *prim, md_view from, md_view to, bool add,
                                  dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success && add) {
        st = dnnl_post_ops_create(&ops);
        if (st == dnnl_success)
            st = post_sum(ops);
        if (st == dnnl_success)
            st = dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    if (st == dnnl_success)
        st = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr);
    if (st == dnnl_success)
        st = dnnl_primitive_create(prim, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return st;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

enum { SLOT_X, SLOT_W, SLOT_BIAS, SLOT_Y, SLOT_SCRATCH, SLOT_PLAIN, SLOTS };

struct conv {
    struct ls_kernel head;
    enum ls_kind kind;
    bool bias, relu, accumulate;
    struct ls_dnn *dnn;
    const struct ls_cpu_table *table;
    int device_threads;
    int64_t y_numel;
    dnnl_primitive_t prim;
    dnnl_primitive_t reorder, reorder_add; /* filters between plain and the library's layout */
    struct slot slot[SLOTS];
    dnnl_exec_arg_t args[5];
    int nargs;
    int64_t scratch_at; /* workspace: filters in the library's layout, then the scratch pad */
};

static void conv_destroy(struct ls_kernel *head)
{
    struct conv *c = (struct conv *)head;
    if (c->prim)
        dnnl_primitive_destroy(c->prim);
    if (c->reorder)
        dnnl_primitive_destroy(c->reorder);
    if (c->reorder_add)
        dnnl_primitive_destroy(c->reorder_add);
    for (int i = 0; i < SLOTS; i++)
        slot_drop(&c->slot[i]);
    free(c);
}

static dnnl_status_t run_reorder(const struct conv *c, dnnl_primitive_t prim, int from, int to)
{
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, c->slot[from].mem}, {DNNL_ARG_TO, c->slot[to].mem}};
    return dnnl_primitive_execute(prim, c->dnn->stream, 2, args);
}

/* The library's own ReLU makes 0 of NaN, which must stay visible. */
static void conv_relu(struct ls_kernel *head, void *const *io, void *ws, int part, int parts)
{
    (void)ws;
    const struct conv *c = (const struct conv *)head;
    float *y = io[c->bias ? 3 : 2];
    int64_t lo, hi;
    ls_cpu_slice(c->y_numel, 16, part, parts, &lo, &hi);
    c->table->relu(y + lo, y + lo, hi - lo);
}

static enum ls_status conv_run(struct ls_kernel *head, void *const *io, void *ws,
                               struct ls_error *err)
{
    struct conv *c = (struct conv *)head;
    char *scratch = ws;
    bool add = false;
    void *x, *w, *y, *bias = NULL;
    if (c->kind == LS_K_CONV2D) {
        x = io[0], w = io[1], y = io[c->bias ? 3 : 2];
        bias = c->bias ? io[2] : NULL;
    } else if (c->kind == LS_K_CONV2D_GRAD_DATA) {
        w = io[0], y = io[1], x = io[2];
    } else {
        x = io[0], y = io[1], w = io[c->accumulate ? 4 : 2];
        add = c->accumulate && ((const double *)io[3])[LS_C_MICRO] > 0;
    }
    dnnl_status_t st = slot_set(&c->slot[SLOT_X], x);
    if (st == dnnl_success)
        st = slot_set(&c->slot[SLOT_W], c->reorder ? scratch : w);
    if (st == dnnl_success && c->reorder)
        st = slot_set(&c->slot[SLOT_PLAIN], w);
    if (st == dnnl_success && bias)
        st = slot_set(&c->slot[SLOT_BIAS], bias);
    if (st == dnnl_success)
        st = slot_set(&c->slot[SLOT_Y], y);
    if (st == dnnl_success && c->slot[SLOT_SCRATCH].mem)
        st = slot_set(&c->slot[SLOT_SCRATCH], scratch + c->scratch_at);
    omp_set_num_threads(c->device_threads);
    if (st == dnnl_success && c->reorder && c->kind != LS_K_CONV2D_GRAD_WEIGHT)
        st = run_reorder(c, c->reorder, SLOT_PLAIN, SLOT_W);
    if (st == dnnl_success)
        st = dnnl_primitive_execute(c->prim, c->dnn->stream, c->nargs, c->args);
    if (st == dnnl_success && c->reorder && c->kind == LS_K_CONV2D_GRAD_WEIGHT)
        st = run_reorder(c, add ? c->reorder_add : c->reorder, SLOT_W, SLOT_PLAIN);
    if (st == dnnl_success)
        st = dnnl_stream_wait(c->dnn->stream);
    if (st != dnnl_success)
        return failed(st, "a convolution did not run", err);
    if (c->relu)
        ls_cpu_parallel(head, conv_relu, io, ws);
    return LS_OK;
}

/* Reads shapes from the op and checks them against each other. */
static enum ls_status conv_shape(const struct ls_op_desc *op, struct conv_shape *s,
                                 struct ls_error *err)
{
    const struct ls_attr *at = op->attr;
    const struct ls_operand *x, *w, *y;
    if (op->kind == LS_K_CONV2D) {
        LS_TRY(ls_cpu_check(op, at->bias ? 3 : 2, 1, at->bias ? "fpff" : "fpf", err));
        x = &op->in[0], w = &op->in[1], y = &op->out[0];
        if (at->act == LS_OP_ACT_GELU)
            return ls_cpu_unsupported(op, "a convolution takes no GELU", err);
        if (at->bias && (op->in[2].ndim != 1 || op->in[2].shape[0] != w->shape[0]))
            return ls_cpu_unsupported(op, "the bias needs one value per filter", err);
    } else if (op->kind == LS_K_CONV2D_GRAD_DATA) {
        LS_TRY(ls_cpu_check(op, 2, 1, "pff", err));
        w = &op->in[0], y = &op->in[1], x = &op->out[0];
    } else {
        LS_TRY(at->accumulate ? ls_cpu_check(op, 4, 1, "fffdf", err)
                              : ls_cpu_check(op, 2, 1, "fff", err));
        x = &op->in[0], y = &op->in[1], w = &op->out[0];
        if (at->accumulate && !ls_cpu_same_shape(&op->in[2], w))
            return ls_cpu_unsupported(op, "the accumulator has another shape", err);
    }
    if (x->ndim != 4 || w->ndim != 4 || y->ndim != 4 || at->stride < 1 || at->pad < 0)
        return ls_cpu_unsupported(op, "expected four dimensions, stride >= 1 and pad >= 0", err);
    bool fits =
        x->shape[0] == y->shape[0] && x->shape[3] == w->shape[1] && y->shape[3] == w->shape[0];
    for (int d = 1; d <= 2; d++) {
        int64_t room = x->shape[d] + 2 * (int64_t)at->pad - w->shape[d + 1];
        fits = fits && room >= 0 && room / at->stride + 1 == y->shape[d];
    }
    if (!fits)
        return ls_cpu_unsupported(op, "the shapes do not fit each other", err);
    *s = (struct conv_shape){
        .x = {x->shape[0], x->shape[3], x->shape[1], x->shape[2]},
        .w = {w->shape[0], w->shape[1], w->shape[2], w->shape[3]},
        .b = {w->shape[0]},
        .y = {y->shape[0], y->shape[3], y->shape[1], y->shape[2]},
        .stride = {at->stride, at->stride},
        .pad = {at->pad, at->pad},
        .bias = op->kind == LS_K_CONV2D && at->bias,
    };
    return LS_OK;
}

static dnnl_status_t shape_mds(struct conv_shape *s)
{
    dnnl_status_t st = md_make(&s->x_md, 4, s->x, dnnl_nhwc);
    if (st == dnnl_success)
        st = md_make(&s->w_md, 4, s->w, dnnl_format_tag_any);
    if (st == dnnl_success)
        st = md_make(&s->b_md, 1, s->b, dnnl_a);
    if (st == dnnl_success)
        st = md_make(&s->y_md, 4, s->y, dnnl_nhwc);
    return st;
}

static void shape_drop(struct conv_shape *s)
{
    md_drop(&s->x_md), md_drop(&s->w_md), md_drop(&s->b_md), md_drop(&s->y_md);
}

/* The library's choice for an op: same op, same choice, packed or not. */
static dnnl_status_t choose(struct ls_dnn *dnn, const struct ls_op_desc *op, struct conv_shape *s,
                            dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    *pd = NULL;
    dnnl_status_t st = shape_mds(s);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success && op->kind != LS_K_CONV2D)
        st = conv_pd(&hint, LS_K_CONV2D, s, dnn->engine, attr, NULL);
    if (st == dnnl_success)
        st = conv_pd(pd, op->kind, s, dnn->engine, attr, hint);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return st;
}

static md_view query(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

static md_view filter_md(const_dnnl_primitive_desc_t pd, enum ls_kind kind)
{
    return query(pd, kind == LS_K_CONV2D_GRAD_WEIGHT ? dnnl_query_diff_weights_md
                                                     : dnnl_query_weights_md);
}

static void add_arg(struct conv *c, int arg, int slot)
{
    c->args[c->nargs++] = (dnnl_exec_arg_t){arg, c->slot[slot].mem};
}

static dnnl_status_t build(struct conv *c, const struct conv_shape *s, dnnl_primitive_desc_t pd,
                           bool packed, int64_t *workspace)
{
    dnnl_engine_t engine = c->dnn->engine;
    dnnl_memory_desc_t plain;
    dnnl_status_t st = md_make(&plain, 4, s->w, dnnl_oihw);
    if (st != dnnl_success)
        return st;
    md_view filter = filter_md(pd, c->kind);
    md_view scratch = query(pd, dnnl_query_scratchpad_md);
    bool reorder = !packed && (!dnnl_memory_desc_equal(filter, MD_VIEW(plain)) || c->accumulate);
    int64_t bytes = scratch ? (int64_t)dnnl_memory_desc_get_size(scratch) : 0;
    c->scratch_at = reorder ? ls_round_up((int64_t)dnnl_memory_desc_get_size(filter), 64) : 0;
    *workspace = c->scratch_at + bytes;
    st = dnnl_primitive_create(&c->prim, pd);
    if (st == dnnl_success)
        st = slot_make(&c->slot[SLOT_X], MD_VIEW(s->x_md), engine);
    if (st == dnnl_success)
        st = slot_make(&c->slot[SLOT_W], filter, engine);
    if (st == dnnl_success && s->bias)
        st = slot_make(&c->slot[SLOT_BIAS], MD_VIEW(s->b_md), engine);
    if (st == dnnl_success)
        st = slot_make(&c->slot[SLOT_Y], MD_VIEW(s->y_md), engine);
    if (st == dnnl_success && bytes > 0)
        st = slot_make(&c->slot[SLOT_SCRATCH], scratch, engine);
    if (st == dnnl_success && reorder) {
        bool out = c->kind == LS_K_CONV2D_GRAD_WEIGHT;
        md_view from = out ? filter : MD_VIEW(plain), to = out ? MD_VIEW(plain) : filter;
        st = slot_make(&c->slot[SLOT_PLAIN], MD_VIEW(plain), engine);
        if (st == dnnl_success)
            st = make_reorder(&c->reorder, from, to, false, engine);
        if (st == dnnl_success && c->accumulate)
            st = make_reorder(&c->reorder_add, from, to, true, engine);
    }
    md_drop(&plain);
    if (st != dnnl_success)
        return st;
    bool dx = c->kind == LS_K_CONV2D_GRAD_DATA, dw = c->kind == LS_K_CONV2D_GRAD_WEIGHT;
    add_arg(c, dx ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, SLOT_X);
    add_arg(c, dw ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, SLOT_W);
    add_arg(c, dx || dw ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, SLOT_Y);
    if (s->bias)
        add_arg(c, DNNL_ARG_BIAS, SLOT_BIAS);
    if (bytes > 0)
        add_arg(c, DNNL_ARG_SCRATCHPAD, SLOT_SCRATCH);
    return st;
}

enum ls_status ls_dnn_conv(struct ls_device *dev, const struct ls_op_desc *op,
                           struct ls_kernel **kernel, int64_t *workspace, struct ls_error *err)
{
    struct conv_shape s = {0};
    LS_TRY(conv_shape(op, &s, err));
    struct conv *c = ls_cpu_kernel(sizeof *c, err);
    if (!c)
        return LS_ERR_NOMEM;
    c->head.run = conv_run;
    c->head.destroy = conv_destroy;
    c->head.threads = c->device_threads = dev->threads;
    c->kind = op->kind;
    c->bias = s.bias;
    c->accumulate = op->kind == LS_K_CONV2D_GRAD_WEIGHT && op->attr->accumulate;
    c->relu = op->kind == LS_K_CONV2D && op->attr->act == LS_OP_ACT_RELU;
    c->y_numel = s.y[0] * s.y[1] * s.y[2] * s.y[3];
    c->table = dev->table;
    c->dnn = dev->dnn;
    bool packed = op->kind == LS_K_CONV2D             ? op->in[1].packed
                  : op->kind == LS_K_CONV2D_GRAD_DATA ? op->in[0].packed
                                                      : false;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = choose(dev->dnn, op, &s, &pd);
    if (st == dnnl_success)
        st = build(c, &s, pd, packed, workspace);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    shape_drop(&s);
    if (st != dnnl_success) {
        conv_destroy(&c->head);
        return ls_cpu_unsupported(op, status_text(st), err);
    }
    *kernel = &c->head;
    return LS_OK;
}

/* ---- packing --------------------------------------------------------------------------------- */

static bool packs(const struct ls_op_desc *op, int operand)
{
    return (op->kind == LS_K_CONV2D && operand == 1) ||
           (op->kind == LS_K_CONV2D_GRAD_DATA && operand == 0);
}

int64_t ls_dnn_pack_size(struct ls_device *dev, const struct ls_op_desc *op, int operand)
{
    struct conv_shape s = {0};
    if (!packs(op, operand) || conv_shape(op, &s, NULL) != LS_OK)
        return 0;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t plain;
    int64_t size = 0;
    if (choose(dev->dnn, op, &s, &pd) == dnnl_success &&
        md_make(&plain, 4, s.w, dnnl_oihw) == dnnl_success) {
        md_view filter = filter_md(pd, op->kind);
        if (!dnnl_memory_desc_equal(filter, MD_VIEW(plain)))
            size = ls_round_up((int64_t)dnnl_memory_desc_get_size(filter), 64);
        md_drop(&plain);
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    shape_drop(&s);
    return size;
}

static enum ls_status pack_run(struct ls_kernel *head, void *const *io, void *ws,
                               struct ls_error *err)
{
    (void)ws;
    struct conv *c = (struct conv *)head;
    dnnl_status_t st = slot_set(&c->slot[SLOT_PLAIN], io[0]);
    if (st == dnnl_success)
        st = slot_set(&c->slot[SLOT_W], io[1]);
    omp_set_num_threads(c->device_threads);
    if (st == dnnl_success)
        st = run_reorder(c, c->reorder, SLOT_PLAIN, SLOT_W);
    if (st == dnnl_success)
        st = dnnl_stream_wait(c->dnn->stream);
    return st == dnnl_success ? LS_OK : failed(st, "filters could not be packed", err);
}

enum ls_status ls_dnn_prepare_pack(struct ls_device *dev, const struct ls_op_desc *op, int operand,
                                   struct ls_kernel **kernel, struct ls_error *err)
{
    struct conv_shape s = {0};
    if (!packs(op, operand))
        return ls_cpu_unsupported(op, "this operand has no packed form", err);
    LS_TRY(conv_shape(op, &s, err));
    struct conv *c = ls_cpu_kernel(sizeof *c, err);
    if (!c)
        return LS_ERR_NOMEM;
    c->head.run = pack_run;
    c->head.destroy = conv_destroy;
    c->device_threads = dev->threads;
    c->dnn = dev->dnn;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t plain;
    dnnl_status_t st = choose(dev->dnn, op, &s, &pd);
    if (st == dnnl_success)
        st = md_make(&plain, 4, s.w, dnnl_oihw);
    if (st == dnnl_success) {
        st = make_reorder(&c->reorder, MD_VIEW(plain), filter_md(pd, op->kind), false,
                          dev->dnn->engine);
        if (st == dnnl_success)
            st = slot_make(&c->slot[SLOT_PLAIN], MD_VIEW(plain), dev->dnn->engine);
        if (st == dnnl_success)
            st = slot_make(&c->slot[SLOT_W], filter_md(pd, op->kind), dev->dnn->engine);
        md_drop(&plain);
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    shape_drop(&s);
    if (st != dnnl_success) {
        conv_destroy(&c->head);
        return ls_cpu_unsupported(op, status_text(st), err);
    }
    *kernel = &c->head;
    return LS_OK;
}
