#!/bin/bash
# Breaks one rule of the graph at a time, in a copy, and expects the tests of this folder to notice:
# a test that cannot fail proves nothing. Needs a C compiler and Python 3; writes only to a temporary
# folder. `mutants.sh WORD` runs only the mutants whose description contains WORD.
#
#   number FILE  a change of numbers: test_grad or test_passes must notice
#   ranks FILE   a change that only many ranks show: test_shard must notice
#   text FILE    a change of the program that these programs' numbers do not show: the golden dumps must
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
only=${1-}
work=$(mktemp -d "${TMPDIR:-/tmp}/mutants.XXXXXX")
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}
flags=(-std=gnu17 -D_GNU_SOURCE -O1 -w -Isrc -I.)
count=0
failed=0

ok() { # verdict ("ok" or "not ok"), text
    count=$((count + 1))
    [ "$1" = ok ] || failed=1
    echo "$1 $count - $2"
}

mkdir -p "$work/src" "$work/tests" "$work/o"
cd "$srcdir" || exit 1
for room in base device graph job model; do
    mkdir "$work/src/$room"
    cp src/$room/*.h "$work/src/$room/"
done
cp src/base/*.c "$work/src/base/"
cp src/graph/*.c "$work/src/graph/"
cp src/model/*.c "$work/src/model/"
cp tests/tap.h "$work/tests/"
cp -r tests/reference tests/graph "$work/tests/"
cd "$work" || exit 1
mkdir pristine
cp -r src/graph src/model pristine/

compile() { # source: its object lies in o/
    "$cc" "${flags[@]}" -c "$1" -o "o/${1//\//_}.o"
}
link_test() { # name of a test
    "$cc" "o/tests_graph_$1.c.o" "${objects[@]}" -lm -lpthread -o "$1"
}
# Prints what the first test that notices says first; nothing when none does.
notice() {
    local t
    for t in "$@"; do
        link_test "$t" || return 1
        # the pipe breaks at the first match, and that ends the test
        { srcdir=. timeout 40 "./$t"; echo "status $?"; } 2>&1 |
            grep -m1 -E '^not ok|^Bail out|^# naive|^# world|^status [^0]' && return
    done
    return 0
}

mutant() { # number|ranks|text, file, description, old text, new text
    [[ "$3" == *"$only"* ]] || return
    cp -r pristine/graph pristine/model src/
    if ! FILE=$2 OLD=$4 NEW=$5 "${LS_PYTHON:-python3}" - <<'PY'; then
import os, re, sys
path = os.environ["FILE"]
text = open(path).read()
pattern = re.compile(r"\s+".join(map(re.escape, os.environ["OLD"].split())))
if len(pattern.findall(text)) != 1:
    sys.exit(1)
open(path, "w").write(pattern.sub(lambda m: os.environ["NEW"], text))
PY
        ok "not ok" "$3: the text to change is not (or not once) in $2"
        return
    fi
    local first
    if ! compile "$2" 2>compile.log; then
        ok "not ok" "$3: does not compile: $(head -1 compile.log)"
    else
        if [ "$1" = ranks ]; then
            first=$(notice test_shard)
        else
            first=$(notice test_grad test_passes)
        fi
        [ "$1" = text ] && [ -z "$first" ] && first=$(notice test_dump)
        if [ -n "$first" ]; then
            ok ok "$3"
            echo "#   ${first:0:110}"
        else
            ok "not ok" "$3: nothing noticed"
        fi
    fi
    cp "pristine/${2#src/}" "$2"
    compile "$2"
}

sources=(src/base/*.c src/graph/*.c src/model/*.c tests/reference/ref_*.c tests/reference/naive*.c
    tests/reference/world.c tests/graph/*.c)
objects=()
for f in "${sources[@]}"; do
    if ! compile "$f" 2>compile.log; then
        echo "Bail out! the unchanged sources do not compile: $(head -1 compile.log)"
        exit 1
    fi
    case $f in */test_*) ;; *) objects+=("o/${f//\//_}.o") ;; esac
done
first=$(notice test_grad test_passes test_dump test_shard)
if [ -n "$first" ]; then
    echo "Bail out! the unchanged sources fail: $first"
    exit 1
fi

g=src/graph
m=src/model

mutant number $g/differentiate.c "matmul: gradient of a transposed weight forgets the other transpose" \
    'tb ? (struct ls_attr){.ta = true, .tb = ta}' 'tb ? (struct ls_attr){.ta = true}'
mutant number $g/differentiate.c "add: only one side gets a gradient" \
    'static void diff_add(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g) { for (int k = 0; k < 2; k++)' \
    'static void diff_add(struct ls_prog *p, const struct ls_op *op, int dy, struct grads *g) { for (int k = 0; k < 1; k++)'
mutant number $g/differentiate.c "a second contribution replaces the first" \
    'if (g->of[primal] >= 0) grad =' 'if (0) grad ='
mutant number $g/differentiate.c "dropout: the backward draws its own numbers" \
    'give(p, g, op->in[0], *ls_graph_emit(p, LS_K_DROPOUT, &op->attr,' \
    'struct ls_attr attr = op->attr; attr.path++; give(p, g, op->in[0], *ls_graph_emit(p, LS_K_DROPOUT, &attr,'
mutant number $g/differentiate.c "GELU: slope at the result" \
    'LS_K_GELU_GRAD, NULL, IN(op->in[0], dy)' 'LS_K_GELU_GRAD, NULL, IN(op->out[0], dy)'
mutant number $g/differentiate.c "batch norm: gain and bias gradients swapped" \
    'int d[3] = {r[0], r[1], r[2]};' 'int d[3] = {r[0], r[2], r[1]};'

mutant number $g/evaluate.c "evaluation keeps dropout" \
    'case LS_K_DROPOUT: out = in; break;' ''
mutant number $g/evaluate.c "evaluation normalises with the mean as variance" \
    'statistics[1] = running(p, op->out[3]);' 'statistics[1] = running(p, op->out[1]);'
mutant number $g/evaluate.c "evaluation counts hits of the training logits" \
    'IN(now[p->logits], p->labels)' 'IN(p->logits, p->labels)'
mutant number $g/evaluate.c "evaluation sums are in another order" \
    'IN(now[p->loss[0]], now[p->loss[1]], right)' 'IN(now[p->loss[1]], now[p->loss[0]], right)'

mutant number $g/bucket.c "buckets mix decay, no decay and statistics" \
    'p->param[a].rule == p->param[b].rule &&' ''
mutant number $g/bucket.c "members of a bucket overlap" \
    'at += ls_round_up(ls_graph_numel(p, m->tensor), MEMBER_ALIGN);' 'at += MEMBER_ALIGN;'
mutant text $g/bucket.c "the size of a bucket has no limit" \
    'bytes + more > p->options.bucket_bytes' '0'

mutant number $g/optimize.c "running statistics count in the gradient norm" \
    'if (p->bucket[i].rule != LS_RULE_EMA) parts' 'parts'
mutant number $g/optimize.c "biases decay" \
    'if (b->rule != LS_RULE_DECAY)' 'if (0)'
mutant number $g/optimize.c "clipping is lost" \
    '.max_norm = p->options.optimizer.max_norm,' '.max_norm = 0,'
mutant number $g/optimize.c "only the last micro-batch is accumulated" \
    'p->segs = LS_SEG_MICRO | LS_SEG_LAST;' 'p->segs = LS_SEG_LAST;'
mutant number $g/optimize.c "the optimizer reads the gradient of the last micro-batch" \
    'sums[i], control);' 'p->bucket[i].grad, control);'
mutant text $g/optimize.c "the update does not wait for the commit" \
    'IN(b->param, b->m, b->v, grad, control)' 'IN(b->param, b->m, b->v, grad, p->control)'

mutant number $g/fuse.c "GELU: the value before it is not kept" \
    'op->attr.keep_pre = f->readers[pre] > 1;' 'op->attr.keep_pre = false;'
mutant number $g/fuse.c "ReLU is fused although others read the value before it" \
    'if (j >= 0 && f->readers[pre] == 1)' 'if (j >= 0)'
mutant number $g/fuse.c "a bias is fused although others read the product" \
    'f->readers[op->out[0]] == 1 ?' '1 ?'
mutant number $g/fuse.c "a member without an accumulating form is not added" \
    'if (place[grad].added)' 'if (1)'
mutant number $g/fuse.c "accumulating gradients all land on the first member" \
    'p->tensor[v].offset = grad.offset;' 'p->tensor[v].offset = 0;'

mutant number $g/layout.c "packed weights are not refreshed by an update" \
    '.segs = LS_SEG_UPDATE | LS_SEG_LOAD,' '.segs = LS_SEG_LOAD,'
mutant number $g/layout.c "packed weights are not made when weights are loaded" \
    '.segs = LS_SEG_UPDATE | LS_SEG_LOAD,' '.segs = LS_SEG_UPDATE,'
mutant number $g/layout.c "one packed copy serves ops with other needs" \
    'found = same_need(p, &first, op, k) ? packed[q].tensor : -1;' 'found = packed[q].tensor;'

mutant number $g/schedule.c "ops do not wait for what they read" \
    '(old->write || write)' '0'
mutant text $g/schedule.c "a complete bucket waits for the end of the backward" \
    'if (eager(p, &op[i])) return i;' ''

mutant number $g/plan.c "memory is free after the first reader" \
    'lives[at[root]].last = end_of(p, i);' 'if (lives[at[root]].last == lives[at[root]].first) lives[at[root]].last = end_of(p, i);'
mutant number $g/plan.c "results may lie on the operands of the same op" \
    'lives[i].first <= want->last' 'lives[i].first < want->last'
mutant number $g/plan.c "persistent tensors lie on each other" \
    'p->arena_bytes[x->role] += bytes;' 'p->arena_bytes[x->role] = bytes;'

mutant number $g/prog.c "views begin where their base begins" \
    'bytes += p->tensor[t].offset * ls_dtype_size(p->tensor[t].dtype);' 'bytes += 0;'
mutant number $g/exec.c "every segment runs every op" \
    'p->op[i].segs >> s & 1 &&' ''

mutant ranks $g/kinds.c "a nonlinear op takes terms of a sum" \
    'X(CONCAT, ~0u, 0)' 'X(CONCAT, ~0u, 0) X(XENT_FINISH, 6, 0)'
mutant ranks $g/bucket.c "buckets mix placements" \
    '&& same_places(p, p->param[a].tensor, p->param[b].tensor) && same_places(p, p->param[a].grad, p->param[b].grad)' ''
mutant ranks $g/bucket.c "buckets have no length that three ranks can slice" \
    'while (b.n % ls_graph_mesh(p, LS_AXIS_DATA))' 'while (0)'
mutant ranks $g/evaluate.c "every rank has the evaluation of all" \
    'ls_graph_pin(p, p->eval, LS_AXIS_DATA, (struct ls_place){LS_PLACE_P, 0});' ''
mutant ranks $g/evaluate.c "evaluation forgets the pins" \
    'p->tensor[out[k]].pinned = p->tensor[op->out[k]].pinned;' ''
mutant ranks $g/optimize.c "whole parameters with gradients that are terms of a sum" \
    'if (p->tensor[b->grad].place[axis].kind == LS_PLACE_P)' 'if (0)'
mutant ranks $g/optimize.c "every rank keeps all moments" \
    'pin_data(p, t, b, 1, whole); return t; } static void update' 'return t; } static void update'
mutant ranks $g/optimize.c "averages are sliced" \
    'b->rule != LS_RULE_EMA && p->options.zero' 'p->options.zero'
mutant ranks $g/optimize.c "every rank keeps the whole reduced gradient" \
    'pin_data(p, t, b, 1, whole); for' 'pin_data(p, t, b, 4, whole); for'
mutant ranks $g/convert.c "scattered sums lie on another rank's slice" \
    'ls_shard_become(s, r, LS_STORE_VIEW, t); p->tensor[r].slice_axis = (int)s->axis; } op->kind = LS_K_REDUCE_SCATTER' 'ls_shard_become(s, r, LS_STORE_VIEW, t); } op->kind = LS_K_REDUCE_SCATTER'
mutant ranks $g/convert.c "scattered sums take memory of their own" \
    'if (p->tensor[ls_graph_root(p, t)].persistent) {' 'if (0) {'
mutant ranks $g/shard.c "dropout is keyed by the column of the slice" \
    'if (op->kind != LS_K_DROPOUT && ' 'if ('
mutant ranks $g/shard.c "the vocabulary's offset is forgotten" \
    '&& op->kind != LS_K_XENT_SUM' ''
mutant ranks $g/shard.c "gradients travel in every micro-batch" \
    'op->segs & ~(unsigned)LS_SEG_MICRO' 'op->segs'
mutant ranks $g/convert.c "a completed sum is completed again" \
    's->now[t] = r; /*' '(void)0; /*'
mutant ranks $g/convert.c "evaluation reads what a micro-batch gathered" \
    '(m->segs & segs) == segs &&' ''
mutant ranks $g/convert.c "short ranks skip their empty micro-batch" \
    'p->op[i].attr.axes >> LS_AXIS_DATA & 1) return true;' '0) return true;'
mutant ranks $g/pipeline.c "a tied gradient is that of one stage" \
    'if (op->kind == LS_K_ADD &&' 'if (0 &&'
mutant ranks $g/fuse.c "two sums become one over the first axis" \
    'first->attr.axes |= next->attr.axes;' ''
mutant ranks $g/fuse.c "a bias is read before it is gathered" \
    'j < 0 || written_between(f, i, j, f->op[j].in[1])' 'j < 0'
mutant ranks $g/schedule.c "nobody waits for a collective" \
    'return wait;' 'return n;'
mutant ranks $g/schedule.c "collectives wait for the end of the backward" \
    '|| ls_graph_is_collective(op->kind);' ';'
mutant ranks $g/plan.c "a collective's operands die at its launch" \
    'return p->op[i].wait < p->nop ? p->op[i].wait : p->nop - 1;' 'return i;'
mutant ranks $g/plan.c "transients lie on what is persistent" \
    'int64_t at = fixed;' 'int64_t at = 0;'
mutant ranks $g/exec_ranks.c "every rank keeps its copy of what is counted once" \
    'keeps ? ls_exec_address(e, op->in[0]) : e->zeros' 'ls_exec_address(e, op->in[0])'
mutant ranks $g/exec_ranks.c "kernels do not know which slice they have" \
    'attr.first = coord * mine;' ''
mutant ranks $g/exec_ranks.c "ops start before what they wait for has ended" \
    'if (e->pending[k].wait <= op)' 'if (e->pending[k].wait < op)'
mutant ranks $g/exec.c "views of slices begin at the first coordinate" \
    'at += e->coord[x->slice_axis] * ls_graph_bytes(p, t);' '(void)x;'

mutant text $m/layers.c "the running variance is the biased one" \
    'running(b, l, c, 1, r[3], path' 'running(b, l, c, 1, r[2], path'
mutant text $m/model.c "all dropouts of a model draw the same numbers" \
    '.path = ls_hash64(path)' '.path = 1'
mutant text $m/layers.c "repeated blocks share a name" \
    '"%s.%lld", path, (long long)r)' '"%s.%lld", path, 0LL)'

echo "1..$count"
exit $failed
