/* A little machine for PTX: see ptx.h, and NVIDIA's "PTX ISA" for what instructions mean. */
#include "tests/check/ptx.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE = 128, NAMES = 48, ARGS = 4, TEXT = 32 };
enum op {
    PARAM64,
    PARAM32,
    MOVE,
    FMA,
    SUB,
    UNEQUAL,
    BRANCH,
    XOR,
    GLOBAL,
    MAD,
    WIDE,
    ADD64,
    STORE,
    RET
};
static const struct {
    const char *name;
    enum op op;
    int args;
} ops[] = {
    {"ld.param.u64", PARAM64, 2},
    {"ld.param.u32", PARAM32, 2},
    {"ld.param.f32", PARAM32, 2},
    {"mov.f32", MOVE, 2},
    {"mov.u32", MOVE, 2},
    {"mov.b32", MOVE, 2},
    {"fma.rn.f32", FMA, 4},
    {"sub.u32", SUB, 3},
    {"setp.ne.u32", UNEQUAL, 3},
    {"bra", BRANCH, 1},
    {"xor.b32", XOR, 3},
    {"cvta.to.global.u64", GLOBAL, 2},
    {"mad.lo.u32", MAD, 4},
    {"mul.wide.u32", WIDE, 3},
    {"add.u64", ADD64, 3},
    {"st.global.u32", STORE, 2},
    {"ret", RET, 0},
};

struct instruction {
    enum op op;
    int guard; /* register of the predicate; -1 */
    int arg[ARGS];
};
struct machine {
    struct instruction code[CODE];
    int n, nnames;
    char name[NAMES][TEXT]; /* of registers, parameters, labels and numbers */
    uint64_t value[NAMES];  /* a label's: number of the instruction */
    char why[96];
};

static int find(struct machine *m, const char *name)
{
    for (int i = 0; i < m->nnames; i++)
        if (!strcmp(m->name[i], name))
            return i;
    if (m->nnames == NAMES)
        return -1;
    int i = m->nnames++;
    snprintf(m->name[i], TEXT, "%s", name);
    if (!strncmp(name, "0f", 2))
        m->value[i] = strtoul(name + 2, NULL, 16);
    else if (isdigit((unsigned char)*name))
        m->value[i] = strtoul(name, NULL, 10);
    return i;
}

static void set(struct machine *m, const char *name, uint64_t value)
{
    int i = find(m, name);
    if (i >= 0)
        m->value[i] = value;
}

/* "@%p fma.rn.f32 %a,%b,%c,%d" without its semicolon. */
static int decode(struct machine *m, const char *line)
{
    char word[3][TEXT * 4] = {"", "", ""}, *rest = NULL;
    struct instruction in = {.guard = -1};
    int first = *line == '@' ? sscanf(line, "@%31s %31s %127s", word[0], word[1], word[2])
                             : 1 + sscanf(line, "%31s %127s", word[1], word[2]);
    if (first < 2 || m->n == CODE)
        return 0;
    in.guard = *word[0] ? find(m, word[0]) : -1;
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        int n = 0;
        if (strcmp(ops[o].name, word[1]) != 0)
            continue;
        in.op = ops[o].op;
        for (char *a = strtok_r(word[2], ",[]", &rest); a && n < ARGS;
             a = strtok_r(NULL, ",[]", &rest))
            in.arg[n++] = find(m, a);
        for (int i = 0; i < n; i++)
            if (in.arg[i] < 0)
                return 0;
        if (n != ops[o].args)
            return 0;
        m->code[m->n++] = in;
        return 1;
    }
    return 0;
}

/* ".param .u64 out,.param .u32 turns": gives each the address of its value. */
static void take_parameters(struct machine *m, const char *at, void **parameters)
{
    const char *end = strchr(at, ')');
    char type[8], name[TEXT];
    for (int i = 0; (at = strstr(at, ".param")) && at < end; at++, i++)
        if (sscanf(at, ".param .%7s %31[^,)]", type, name) == 2)
            set(m, name, (uint64_t)(uintptr_t)parameters[i]);
}

static int load(struct machine *m, const char *text, const char *kernel, void **parameters)
{
    char head[96], line[160];
    snprintf(head, sizeof head, ".entry %s(", kernel);
    const char *at = strstr(text, head);
    if (!at)
        return snprintf(m->why, sizeof m->why, "no kernel %s", kernel), 0;
    take_parameters(m, at, parameters);
    at = strchr(at, '{') + 1;
    while (*at && *at != '}') {
        size_t n = strcspn(at, ";:\n");
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        if (at[n] == ':')
            set(m, line, (uint64_t)m->n);
        else if (n && strncmp(line, ".reg", 4) != 0 && !decode(m, line))
            return snprintf(m->why, sizeof m->why, "what is '%.80s'?", line), 0;
        at += n + (at[n] != '\0');
    }
    return 1;
}

static float as_float(uint64_t value)
{
    uint32_t bits = (uint32_t)value;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint64_t as_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void run(struct machine *m)
{
    uint64_t *v = m->value;
    for (int pc = 0; pc < m->n; pc++) {
        const struct instruction *in = &m->code[pc];
        const int *a = in->arg;
        if (in->guard >= 0 && !v[in->guard])
            continue;
        switch (in->op) {
        case PARAM64:
            memcpy(&v[a[0]], (void *)(uintptr_t)v[a[1]], 8);
            break;
        case PARAM32:
            v[a[0]] = *(const uint32_t *)(uintptr_t)v[a[1]];
            break;
        case MOVE:
        case GLOBAL:
            v[a[0]] = v[a[1]];
            break;
        case FMA:
            v[a[0]] = as_bits(fmaf(as_float(v[a[1]]), as_float(v[a[2]]), as_float(v[a[3]])));
            break;
        case SUB:
            v[a[0]] = (uint32_t)v[a[1]] - (uint32_t)v[a[2]];
            v[a[0]] &= UINT32_MAX;
            break;
        case UNEQUAL:
            v[a[0]] = (uint32_t)v[a[1]] != (uint32_t)v[a[2]];
            break;
        case BRANCH:
            pc = (int)v[a[0]] - 1;
            break;
        case XOR:
            v[a[0]] = v[a[1]] ^ v[a[2]];
            break;
        case MAD:
            v[a[0]] = (v[a[1]] * v[a[2]] + v[a[3]]) & UINT32_MAX;
            break;
        case WIDE:
            v[a[0]] = (v[a[1]] & UINT32_MAX) * (v[a[2]] & UINT32_MAX);
            break;
        case ADD64:
            v[a[0]] = v[a[1]] + v[a[2]];
            break;
        case STORE:
            *(uint32_t *)(uintptr_t)v[a[0]] = (uint32_t)v[a[1]];
            break;
        case RET:
            return;
        }
    }
}

const char *ptx_run(const char *text, const char *kernel, void **parameters, uint32_t block,
                    uint32_t width, uint32_t thread)
{
    static struct machine m;
    memset(&m, 0, sizeof m);
    set(&m, "%ctaid.x", block);
    set(&m, "%ntid.x", width);
    set(&m, "%tid.x", thread);
    if (!load(&m, text, kernel, parameters))
        return m.why;
    run(&m);
    return NULL;
}
