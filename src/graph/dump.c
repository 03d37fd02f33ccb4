/* The program as text: stable from run to run, one line per persistent tensor and per op. */
#include "graph/graph.h"

#include <inttypes.h>

static const char *const axes[LS_AXES] = {"replica", "data", "pipeline", "tensor"};

static void print_places(const struct ls_tensor *t, FILE *out)
{
    static const char *const kinds[] = {"R", "S", "P", "Pmax", "O", "A"};
    for (int a = 0; a < LS_AXES; a++) {
        struct ls_place w = t->place[a];
        if (w.kind == LS_PLACE_R)
            continue;
        fprintf(out, " %s:%s", axes[a], kinds[w.kind]);
        if (w.kind == LS_PLACE_S && w.dim == LS_DIM_FLAT)
            fputs("(flat)", out);
        else if (w.kind == LS_PLACE_S || w.kind == LS_PLACE_A)
            fprintf(out, "(%d)", w.dim);
    }
}

static void print_tensor(const struct ls_prog *p, int i, FILE *out)
{
    static const char *const roles[LS_ROLES] = {"input",   "param",   "grad", "state",
                                                "derived", "control", "act",  "work"};
    static const char *const types[LS_DTYPES] = {"f32", "f64", "i32", "u8"};
    const struct ls_tensor *t = &p->tensor[i];
    fprintf(out, "%%%d %s %s[", i, t->name, types[t->dtype]);
    for (int d = 0; d < t->ndim; d++)
        fprintf(out, d ? ",%" PRId64 : "%" PRId64, t->shape[d]);
    fprintf(out, "] %s%s", roles[t->role], t->persistent ? "*" : "");
    print_places(t, out);
    if (t->storage == LS_STORE_VIEW)
        fprintf(out, " view %%%d+%" PRId64, t->base, t->offset);
    if (t->storage == LS_STORE_VIEW && t->slice_axis >= 0)
        fprintf(out, "+coord(%s)*%" PRId64, axes[t->slice_axis], ls_graph_numel(p, i));
    if (t->storage == LS_STORE_NEXT)
        fprintf(out, " next %%%d", t->base);
    if (t->packed >= 0)
        fprintf(out, " of %%%d", t->packed);
    if (t->at >= 0)
        fprintf(out, " @%" PRId64, t->at);
    if (t->comm)
        fputs(" comm", out);
}

static void print_ranks(const struct ls_op *op, FILE *out)
{
    const struct ls_attr *a = &op->attr;
    if (!a->axes)
        return;
    const char *before = " axes=";
    for (int k = 0; k < LS_AXES; k++)
        if (a->axes >> k & 1) {
            fprintf(out, "%s%s", before, axes[k]);
            before = "+";
        }
    if (op->kind == LS_K_ALL_GATHER || op->kind == LS_K_SLICE)
        fprintf(out, " dim=%d", a->dim);
    if (a->max)
        fputs(" max", out);
    if (op->kind == LS_K_KEEP || op->kind == LS_K_SEND)
        fprintf(out, " from=%d", a->from);
    if (op->kind == LS_K_SEND)
        fprintf(out, " to=%d", a->to);
    if (op->seq >= 0)
        fprintf(out, " seq=%d wait=%d", op->seq, op->wait);
}

static void print_attr(const struct ls_op *op, FILE *out)
{
    const struct ls_attr *a = &op->attr;
    static const char *const acts[] = {"", "relu", "gelu"};
    const struct {
        const char *name;
        bool on;
    } flags[] = {{"ta", a->ta},
                 {"tb", a->tb},
                 {"bias", a->bias},
                 {"keep_pre", a->keep_pre},
                 {"nesterov", a->nesterov},
                 {"accumulate", a->accumulate}};
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"kernel", a->kernel}, {"stride", a->stride},     {"pad", a->pad},
                   {"height", a->height}, {"width", a->width},       {"rate", a->rate},
                   {"eps", a->eps},       {"momentum", a->momentum}, {"beta1", a->beta1},
                   {"beta2", a->beta2},   {"decay", a->decay},       {"max_norm", a->max_norm},
                   {"wishes", a->wishes}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].on)
            fprintf(out, " %s", flags[i].name);
    if (a->act != LS_OP_ACT_NONE)
        fprintf(out, " act=%s", acts[a->act]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value != 0)
            fprintf(out, " %s=%g", numbers[i].name, numbers[i].value);
    if (a->path)
        fprintf(out, " path=%016" PRIx64, a->path);
    if (op->kind == LS_K_PACK)
        fprintf(out, " for=%d.%d", op->pack_op, op->pack_operand);
}

void ls_graph_dump(const struct ls_prog *p, FILE *out)
{
    for (int i = 0; i < p->ntensor; i++) {
        const struct ls_tensor *t = &p->tensor[i];
        if (!t->persistent && t->role != LS_ROLE_INPUT)
            continue;
        print_tensor(p, i, out);
        fputc('\n', out);
    }
    for (int i = 0; i < p->nop; i++) {
        const struct ls_op *op = &p->op[i];
        for (int s = 0; s < LS_SEGMENTS; s++)
            fputc(op->segs >> s & 1 ? "mluep"[s] : '-', out);
        fprintf(out, " #%d %s", op->id, ls_graph_kind(op->kind)->name);
        print_attr(op, out);
        print_ranks(op, out);
        fputs(" (", out);
        for (int k = 0; k < op->nin; k++)
            fprintf(out, k ? " %%%d" : "%%%d", op->in[k]);
        fputs(") ->", out);
        for (int k = 0; k < op->nout; k++) {
            fputs(k ? "; " : " ", out);
            print_tensor(p, op->out[k], out);
        }
        fputc('\n', out);
    }
    static const char *const roles[LS_ROLES] = {"input",   "param",   "grad", "state",
                                                "derived", "control", "act",  "work"};
    for (int r = 0; r < LS_ROLES; r++)
        if (p->arena_bytes[r])
            fprintf(out, "arena %s: %" PRId64 " bytes\n", roles[r], p->arena_bytes[r]);
}
