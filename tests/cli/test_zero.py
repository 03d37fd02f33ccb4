"""`parallel.zero = 1`: sharded moments train the same model, and checkpoints know nothing of it."""

import json
import os
import struct

import tap

# 64-33-10: no slice ends where a parameter does. Buckets of one parameter each.
ODD = 'type = "mlp"; classes = 4; hidden = [ 33 ]; dropout = 0.1;'
BUCKETS = "parallel: { bucket = 1024; };"
SGD = 'type = "sgd"; lr = 0.05; momentum = 0.9; nesterov = true; weight_decay = 1.0e-4;'
ADAMW = 'type = "adamw"; lr = 0.01;'
TRAIN = "steps = 8; global_batch = 48; micro_batch = 4; eval_every = 4;"  # 12, 6, 4, 3 a rank


def write_job(scratch, name, optimizer, model=ODD, train=TRAIN, extra=BUCKETS):
    text = tap.job_text(scratch.path, name, model=model, train=train, extra=extra)
    before, rest = text.split("optimizer: {")
    path = scratch(name + ".cfg")
    with open(path, "w") as f:
        f.write(before + "optimizer: { " + optimizer + " };\n" + rest[rest.index("checkpoint:"):])
    return path


def run(job, n, zero, folder, *sets):
    """A run's record; its checkpoint is in `folder`."""
    args = ["run", "--json", "-n", str(n)]
    for s in (f"parallel.zero={zero}", f"checkpoint.dir={folder}", *sets):
        args += ["--set", s]
    result = tap.run(*args, job, timeout=120)
    r = tap.record(result) if result.stdout.strip() else {}
    if result.returncode != 0:
        tap.ok(False, f"{os.path.basename(job)}, {n} ranks, zero = {zero}: runs", result.stderr)
        r.setdefault("checkpoint", None)
    return r


def files(r):
    """What a checkpoint holds, byte by byte."""
    names = ("model.safetensors", "optimizer.safetensors")
    return [tap.read(os.path.join(r["checkpoint"], n)) for n in names] if r["checkpoint"] else r


def losses(folder):
    rows = [json.loads(line) for line in tap.read(os.path.join(folder, "metrics.jsonl"),
                                                  "r").splitlines()]
    return [(row["loss"], row["grad_norm"]) for row in rows if row["type"] == "step"]


def close(a, b, tolerance):
    return len(a) == len(b) and all(abs(x - y) <= tolerance * abs(y) for p, q in zip(a, b)
                                    for x, y in zip(p, q))


def test_same(scratch):
    """Every rank count, optimizer and model: the losses of one rank; the bytes of zero = 0."""
    cases = (("adamw", ADAMW, ODD, (2, 3, 4)), ("sgd", SGD, ODD, (2, 4)),
             ("norm", ADAMW, tap.CONVNET, (2, 4)))
    for name, optimizer, model, counts in cases:
        job = write_job(scratch, name, optimizer, model)
        alone = scratch(f"{name}-1")
        first = run(job, 1, 1, alone)
        for n in counts:
            folders = [scratch(f"{name}-{n}-{zero}") for zero in (0, 1)]
            whole, sliced = (run(job, n, zero, f) for zero, f in enumerate(folders))
            tap.ok(close(losses(folders[1]), losses(alone), 2e-3),
                   f"{name}: {n} ranks, zero = 1: losses and gradient norms of one rank",
                   losses(folders[1]), losses(alone))
            tap.same((sliced["test_accuracy"], sliced["steps"]), (first["test_accuracy"], 8),
                     f"{name}: {n} ranks, zero = 1: the accuracy of one rank")
            tap.ok(files(whole) == files(sliced),
                   f"{name}: {n} ranks: checkpoints of zero 0 and 1 are the same bytes")
            tap.ok(sliced["planned_memory_bytes"] < whole["planned_memory_bytes"],
                   f"{name}: {n} ranks: each needs less memory", sliced["planned_memory_bytes"],
                   whole["planned_memory_bytes"])
    clipped = write_job(scratch, "clipped", ADAMW + " clip = 0.5;")
    a, b = (run(clipped, 3, zero, scratch(f"clipped-{zero}")) for zero in (0, 1))
    tap.ok(close(losses(scratch("clipped-1")), losses(scratch("clipped-0")), 1e-4),
           "with clipping the norm is added up in another order: the same within rounding",
           losses(scratch("clipped-1")), losses(scratch("clipped-0")))
    tap.ok(abs(a["test_loss"] - b["test_loss"]) < 1e-3, "and so is the model", a, b)


def test_few(scratch):
    """Three ranks, two micro-batches: one rank adds nothing, and still updates its slice."""
    job = write_job(scratch, "few", ADAMW,
                    train="steps = 5; global_batch = 16; micro_batch = 8; eval_every = 0;")
    a, b = (run(job, 3, zero, scratch(f"few-{zero}")) for zero in (0, 1))
    tap.ok(files(a) == files(b), "a rank without a micro-batch: the bytes of zero = 0")
    one = run(job, 1, 0, scratch("few-one"))
    tap.ok(abs(b["train_loss"] - one["train_loss"]) < 1e-3 * one["train_loss"],
           "and the loss of one rank", b["train_loss"], one["train_loss"])


def test_resume(scratch):
    """A run in two halves, the second with any rank count and stage, goes on as if never stopped."""
    for name, optimizer in (("half", ADAMW), ("half-sgd", SGD)):
        job = write_job(scratch, name, optimizer)
        whole = {n: run(job, n, 1, scratch(f"{name}-whole-{n}")) for n in (1, 2, 3)}
        for first, second in (((3, 1), (3, 1)), ((3, 1), (3, 0)), ((3, 0), (3, 1)),
                              ((1, 0), (2, 1)), ((3, 1), (1, 1)), ((2, 1), (3, 1))):
            folder = scratch("{}-{}{}-{}{}".format(name, *first, *second))
            half = run(job, *first, folder, "train.steps=4")
            rest = run(job, *second, folder)
            what = "{}: {} ranks, zero = {}, then {} with {}".format(name, *first, *second)
            tap.same((half.get("steps"), rest.get("steps")), (4, 8), what)
            n = second[0]
            if first[0] == n:
                tap.ok(files(rest) == files(whole[n]), what + ": bit-equal to an unbroken run")
            tap.ok(close(losses(folder), losses(scratch(f"{name}-whole-{n}")), 2e-3),
                   what + ": the losses of an unbroken run", losses(folder))


def moments_of(r):
    data = tap.read(os.path.join(r["checkpoint"], "optimizer.safetensors"))
    (n,) = struct.unpack("<Q", data[:8])
    return {k: t["shape"] for k, t in json.loads(data[8:8 + n]).items() if k != "__metadata__"}


def test_form(scratch):
    """Files have whole tensors without padding; the plan and the record say what a rank has."""
    job = write_job(scratch, "form", ADAMW)
    r = run(job, 4, 1, scratch("form-4"))
    tap.same(sorted(map(tuple, moments_of(r).values())),
             sorted([(4,), (33,), (33, 4), (64, 33)] * 2), "moments are stored whole")
    plans = {}
    for zero in (0, 1):
        result = tap.run("plan", "--json", "-n", "4", "--set", f"parallel.zero={zero}", job)
        plans[zero] = json.loads(result.stdout)["memory_bytes"]
    tap.same(plans[1]["total"], r["planned_memory_bytes"], "the plan is what a rank takes")
    text = tap.run("plan", "-n", "4", "--set", "parallel.zero=1", job).stdout
    tap.ok("moments, one slice of 4" in text, "the plan names the slices", text)
    tap.ok("slice" not in tap.run("plan", "-n", "1", "--set", "parallel.zero=1", job).stdout,
           "one rank has no slices")
    tap.ok(plans[0]["optimizer"] >= 3.9 * plans[1]["optimizer"], "a quarter of the moments", plans)
    tap.ok(0 < r["comm_seconds"] < r["step_seconds"] <= r["seconds"],
           "the record tells the seconds in collectives", r)
    steps = [json.loads(line) for line in tap.read(scratch("form-4", "metrics.jsonl"),
                                                   "r").splitlines()]
    total = sum(s["comm_seconds"] for s in steps if s["type"] == "step")
    tap.ok(abs(total - r["comm_seconds"]) < 1e-4, "metrics.jsonl tells those of every step", total)
    alone = run(job, 1, 1, scratch("form-1"))
    tap.same(alone["comm_seconds"], 0, "one rank has nobody to talk to")
    for stage in (2, 3):
        result = tap.run("run", "-n", "2", "--set", f"parallel.zero={stage}", job)
        tap.ok(result.returncode == 2 and "do not work yet" in result.stderr,
               f"stage {stage} is refused", result.stderr)


def main():
    with tap.Scratch() as scratch:
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 100, seed=2)
        test_same(scratch)
        test_few(scratch)
        test_resume(scratch)
        test_form(scratch)
    tap.done()


main()
