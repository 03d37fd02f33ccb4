/* The dims string of an op: attributes applied, '*' and '#' expanded, every letter given an extent,
 * and every operand checked against it. */
#include "graph/graph.h"

#include <ctype.h>
#include <string.h>

/* Letters that stand for the dimensions of '*' and '#'; no kind uses them otherwise. */
static const char wild_lower[] = "abde", wild_upper[] = "ABDE";

static enum ls_status wrong(const struct ls_prog *p, const struct ls_op *op, struct ls_error *err,
                            int operand, const char *what)
{
    (void)p;
    return ls_error_set(err, LS_ERR_INTERNAL, "%s, operand %d: %s", ls_graph_kind(op->kind)->name,
                        operand, what);
}

/* The string with '?' replaced by what the attributes add, operands and results apart. */
static void apply_attributes(const struct ls_op *op, char *operands, char *results)
{
    const char *dims = ls_graph_kind(op->kind)->dims, *arrow = strstr(dims, "->");
    const struct ls_attr *a = &op->attr;
    size_t n = (size_t)(arrow - dims);
    memcpy(operands, dims, n);
    operands[n] = '\0';
    strcpy(results, arrow + 2);
    if (op->kind == LS_K_MATMUL)
        strcpy(operands, a->ta ? a->tb ? "ki,jk,?" : "ki,kj,?" : a->tb ? "ik,jk,?" : "ik,kj,?");
    char *q = strstr(operands, ",?");
    if (q) {
        *q = '\0';
        if (a->bias)
            strcat(operands, op->kind == LS_K_MATMUL ? ",j" : ",o");
    }
    if ((q = strstr(results, ",?")))
        strcpy(q, a->keep_pre ? ",ij" : "");
    if (!a->accumulate)
        return;
    unsigned bits = ls_graph_kind(op->kind)->accumulates;
    const char *r = results;
    for (int k = 0; r; k++) {
        const char *end = strchr(r, ',');
        size_t len = end ? (size_t)(end - r) : strlen(r);
        if (bits >> k & 1) {
            size_t at = strlen(operands);
            operands[at++] = ',';
            memcpy(operands + at, r, len);
            operands[at + len] = '\0';
        }
        r = end ? end + 1 : NULL;
    }
    strcat(operands, ",C");
}

/* Splits "a,b,c" into tokens; returns their number, -1 if there are more than max. */
static int split(char *text, char **token, int max)
{
    int n = 0;
    for (char *t = text; t;) {
        char *comma = strchr(t, ',');
        if (comma)
            *comma = '\0';
        if (n == max)
            return -1;
        token[n++] = t;
        t = comma ? comma + 1 : NULL;
    }
    return n;
}

/* Writes the labels of a token for a tensor of `ndim` dimensions; false if it cannot have so many.
 */
static bool expand(const char *token, int ndim, char label[LS_MAX_DIMS + 1])
{
    bool wild = *token == '*' || *token == '#';
    int rest = (int)strlen(token) - wild, n = 0, more = ndim - rest;
    if (more < 0 || (!wild && more) || ndim > LS_MAX_DIMS)
        return false;
    for (; wild && n < more; n++)
        label[n] = (*token == '*' ? wild_lower : wild_upper)[n];
    strcpy(label + n, token + wild);
    return true;
}

static int64_t window(int64_t in, int64_t kernel, int64_t stride, int64_t pad)
{
    return in + 2 * pad < kernel ? 0 : (in + 2 * pad - kernel) / stride + 1;
}

/* Extents that attributes decide: the image behind a window, or the windows over an image. */
static enum ls_status infer_windows(const struct ls_op *op, struct ls_dims *d, struct ls_error *err)
{
    const struct ls_attr *a = &op->attr;
    int64_t *e = d->extent;
    int64_t ky = a->kernel, kx = a->kernel;
    switch (op->kind) {
    case LS_K_CONV2D_GRAD_WEIGHT:
        e['Y'] = a->height;
        e['X'] = a->width;
        break;
    case LS_K_CONV2D_GRAD_DATA:
    case LS_K_MAX_POOL_GRAD:
    case LS_K_AVG_POOL_GRAD:
        e['H'] = a->height;
        e['W'] = a->width;
        break;
    case LS_K_GLOBAL_POOL_GRAD:
        e['H'] = a->height;
        e['W'] = a->width;
        return LS_OK;
    case LS_K_CONV2D:
    case LS_K_MAX_POOL:
    case LS_K_AVG_POOL:
        break;
    default:
        return LS_OK;
    }
    if (e['Y']) {
        ky = e['Y'];
        kx = e['X'];
    }
    int64_t p = a->stride > 0 ? window(e['H'], ky, a->stride, a->pad) : 0;
    int64_t q = a->stride > 0 ? window(e['W'], kx, a->stride, a->pad) : 0;
    if (p <= 0 || q <= 0)
        return ls_error_set(err, LS_ERR_INTERNAL,
                            "%s: a window of %lld x %lld does not fit an image of %lld x %lld with "
                            "padding %d and stride %d",
                            ls_graph_kind(op->kind)->name, (long long)ky, (long long)kx,
                            (long long)e['H'], (long long)e['W'], (int)a->pad, (int)a->stride);
    if ((e['P'] && e['P'] != p) || (e['Q'] && e['Q'] != q))
        return ls_error_set(err, LS_ERR_INTERNAL, "%s: %lld x %lld windows, expected %lld x %lld",
                            ls_graph_kind(op->kind)->name, (long long)e['P'], (long long)e['Q'],
                            (long long)p, (long long)q);
    e['P'] = p;
    e['Q'] = q;
    return LS_OK;
}

/* Gives the letters of one operand their extents. */
static enum ls_status bind(const struct ls_prog *p, const struct ls_op *op, struct ls_dims *d,
                           int k, struct ls_error *err)
{
    const struct ls_tensor *t = &p->tensor[op->in[k]];
    if (t->packed >= 0)
        t = &p->tensor[t->packed];
    for (int i = 0; i < t->ndim; i++) {
        int64_t *e = &d->extent[(unsigned char)d->in[k][i]];
        if (*e && *e != t->shape[i])
            return ls_error_set(err, LS_ERR_INTERNAL,
                                "%s: dimension '%c' is %lld, but %lld in %s (operand %d)",
                                ls_graph_kind(op->kind)->name, d->in[k][i], (long long)*e,
                                (long long)t->shape[i], t->name, k);
        *e = t->shape[i];
    }
    return LS_OK;
}

enum ls_status ls_graph_labels(const struct ls_prog *p, const struct ls_op *op, struct ls_dims *d,
                               struct ls_error *err)
{
    memset(d, 0, sizeof *d);
    if (!ls_graph_kind(op->kind)->dims)
        return LS_OK;
    char operands[LS_DIMS_MAX], results[LS_DIMS_MAX], *token[LS_OP_MAX_IN];
    apply_attributes(op, operands, results);
    d->nin = split(operands, token, LS_OP_MAX_IN);
    if (d->nin != op->nin)
        return wrong(p, op, err, op->nin, "wrong number of operands");
    int wild =
        0; /* how many dimensions '*' or '#' stands for, from the first operand that has it */
    for (int k = 0; k < d->nin; k++) {
        int plain = p->tensor[op->in[k]].packed;
        int ndim = p->tensor[plain >= 0 ? plain : op->in[k]].ndim;
        if (!strcmp(token[k], "C")) { /* the control tensor is no dimension of anything */
            if (op->in[k] != p->control && ls_graph_root(p, op->in[k]) != p->control)
                return wrong(p, op, err, k, "expected the control tensor");
            strcpy(d->in[k], "C");
            continue;
        }
        if (!expand(token[k], ndim, d->in[k]))
            return wrong(p, op, err, k, "wrong number of dimensions");
        if (*token[k] == '*' || *token[k] == '#')
            wild = ndim - (int)strlen(token[k]) + 1;
    }
    d->nout = split(results, token, LS_OP_MAX_OUT);
    for (int k = 0; k < d->nout; k++) {
        bool has_wild = *token[k] == '*' || *token[k] == '#';
        if (!expand(token[k], (int)strlen(token[k]) - has_wild + (has_wild ? wild : 0), d->out[k]))
            return wrong(p, op, err, k, "result has too many dimensions");
    }
    return LS_OK;
}

enum ls_status ls_graph_dims(const struct ls_prog *p, const struct ls_op *op, struct ls_dims *d,
                             struct ls_error *err)
{
    LS_TRY(ls_graph_labels(p, op, d, err));
    if (!d->nin)
        return LS_OK;
    for (int k = 0; k < d->nin; k++)
        if (strcmp(d->in[k], "C") != 0)
            LS_TRY(bind(p, op, d, k, err));
    LS_TRY(infer_windows(op, d, err));
    d->extent['C'] = LS_CONTROL_WORDS;
    return LS_OK;
}
