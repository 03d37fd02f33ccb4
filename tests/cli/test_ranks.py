"""`lockstep run -n N` without Slurm: ranks on one machine agree with one rank, and end together."""

import json
import os
import signal
import struct
import subprocess
import time

import tap


def write_job(scratch, name, **kwargs):
    path = scratch(name + ".cfg")
    with open(path, "w") as f:
        f.write(tap.job_text(scratch.path, name, **kwargs))
    return path


def run(*args):
    """`run` with a JSON record; a hang is an error."""
    result = tap.run("run", "--json", *args, timeout=120)
    return result, tap.record(result) if result.stdout.strip() else {}


def floats(path):
    """Name -> values of a safetensors file of F32 tensors."""
    data = tap.read(path)
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + n + begin:8 + n + end])
    return tensors


def distance(a, b):
    """Largest difference, relative to the largest value of its tensor."""
    a, b = (floats(os.path.join(x, "model.safetensors")) for x in (a, b))
    if a.keys() != b.keys():
        return float("inf")
    return max(max(abs(x - y) for x, y in zip(a[n], b[n])) / max(max(map(abs, a[n])), 1e-6)
               for n in a)


def bits(checkpoint):
    return [tap.read(os.path.join(checkpoint, n)) for n in ("model.safetensors",
                                                             "optimizer.safetensors")]


def children(pid):
    """Processes whose parent is pid."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = tap.read(f"/proc/{p}/stat", "r").rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(p))
    return found


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return tap.ok(False, f"{what} within {seconds} s")
        time.sleep(0.01)
    return True


def start(job, *args):
    return subprocess.Popen([tap.program(), "run", "--json", *args, job], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def test_same_numbers(scratch):
    for model, kwargs in (("mlp", {}), ("convnet", {"model": tap.CONVNET})):
        train = "steps = 10; global_batch = 48; micro_batch = 8; eval_every = 5;"
        job = write_job(scratch, model, train=train, **kwargs)
        first = None
        for n in (1, 2, 3, 4):
            place = f"checkpoint.dir={scratch(f'{model}-{n}.ckpt')}"
            result, r = run("-n", str(n), "--set", place, job)
            if not tap.same((result.returncode, r.get("status"), r.get("ranks")), (0, "done", n),
                            f"{model}: {n} ranks train"):
                print("#", result.stderr)
                continue
            first = first or r
            boot = r["bootstrap_seconds"]
            tap.ok(boot is None if n == 1 else 0 < boot < r["first_step_seconds"] + 60,
                   f"{model}: {n} ranks: the time to meet", boot)
            tap.ok(abs(r["train_loss"] - first["train_loss"]) < 1e-4 * abs(first["train_loss"]),
                   f"{model}: {n} ranks: the loss of one rank", r["train_loss"], first["train_loss"])
            # AdamW divides by the size of the gradient: rounding grows, in ten steps by some powers.
            tap.ok(distance(r["checkpoint"], first["checkpoint"]) < 5e-3,
                   f"{model}: {n} ranks: the weights of one rank",
                   distance(r["checkpoint"], first["checkpoint"]))
            tap.same(r["test_accuracy"], first["test_accuracy"], f"{model}: {n} ranks: the accuracy")
    job = write_job(scratch, "few", train="steps = 5; global_batch = 16; micro_batch = 8;")
    result, r = run("-n", "4", "--set", f"checkpoint.dir={scratch('few-4.ckpt')}", job)
    _, one = run("-n", "1", "--set", f"checkpoint.dir={scratch('few-1.ckpt')}", job)
    tap.ok(result.returncode == 0 and distance(r["checkpoint"], one["checkpoint"]) < 5e-3,
           "more ranks than micro-batches: those without one add nothing", result.stderr)
    job = write_job(scratch, "norm", model=tap.CONVNET,
                    train="steps = 5; global_batch = 16; micro_batch = 8;")
    result, _ = run("-n", "4", job)
    tap.ok(result.returncode == 2 and "batch norm" in result.stderr,
           "but with batch norm that is refused", result.stderr)
    job = write_job(scratch, "odd", train="steps = 5; global_batch = 32;")
    result, _ = run("-n", "3", job)
    tap.ok(result.returncode == 2 and "micro_batch" in result.stderr,
           "a batch that does not divide: the message names micro_batch", result.stderr)


def test_same_bits(scratch):
    job = write_job(scratch, "bits", train="steps = 12; global_batch = 32; micro_batch = 8;")
    runs = [run("-n", "2", "--set", f"checkpoint.dir={scratch(f'bits{i}.ckpt')}", job)[1]
            for i in range(2)]
    tap.ok(bits(runs[0]["checkpoint"]) == bits(runs[1]["checkpoint"]),
           "the same layout twice: identical weights and moments")


def test_resume(scratch):
    train = "steps = 300; global_batch = 32; micro_batch = 8; eval_every = 0;"
    job = write_job(scratch, "again", train=train)
    _, whole = run("-n", "2", "--set", f"checkpoint.dir={scratch('whole.ckpt')}", job)
    folder = scratch("again.ckpt")
    part = start(job, "-n", "2", "--set", "checkpoint.every_steps=10")
    wait_for(lambda: os.path.isdir(folder) and any(n.startswith("step-") and "tmp" not in n
                                                   for n in os.listdir(folder)), "a checkpoint")
    os.killpg(part.pid, signal.SIGTERM)  # as a terminal or Slurm does: launcher and workers alike
    out, err = part.communicate(timeout=60)
    r = json.loads(out.splitlines()[-1])
    tap.same((part.returncode, r["status"]), (143, "stopped"),
             "SIGTERM to the launcher: all ranks save the same step, 143")
    _, got = run("-n", "2", job)
    tap.ok(bits(got["checkpoint"]) == bits(whole["checkpoint"]),
           "resumed on 2 ranks: bit-equal to an uninterrupted run", err)
    more, r = run("-n", "4", "--set", "train.steps=310", job)
    tap.ok(more.returncode == 0 and r["steps"] == 310, "and goes on with 4 ranks", more.stderr)


def test_failures(scratch):
    train = "steps = 1000000; global_batch = 32; micro_batch = 8; eval_every = 0;"
    job = write_job(scratch, "fail", train=train)
    folder = scratch("fail.ckpt")
    for sig in (signal.SIGKILL, signal.SIGABRT):  # not SIGSEGV, which sanitizers catch
        seen = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        launcher = start(job, "-n", "3", "--set", "checkpoint.every_steps=50")
        wait_for(lambda: os.path.isdir(folder) and set(os.listdir(folder)) - seen - {"lock"},
                 "the first steps")
        workers = sorted(children(launcher.pid))
        if not tap.same(len(workers), 3, "three workers run"):
            launcher.kill()
            continue
        began = time.monotonic()
        os.kill(workers[1], sig)
        _, err = launcher.communicate(timeout=60)
        tap.ok(launcher.returncode == 128 + sig, f"{sig.name} of a worker: exit 128 + {int(sig)}",
               launcher.returncode, err)
        last = err.strip().splitlines()[-1]
        tap.ok("rank 1 on" in last and "signal" in last, "the last line names rank, host and cause",
               last)
        tap.ok(time.monotonic() - began < 10, "nobody hangs")
        tap.ok(not any(os.path.exists(f"/proc/{w}") for w in workers), "no worker is left")
    launcher = start(job, "-n", "2")
    wait_for(lambda: len(children(launcher.pid)) == 2, "two workers")
    workers = children(launcher.pid)
    launcher.kill()
    launcher.communicate(timeout=60)
    wait_for(lambda: not any(os.path.exists(f"/proc/{w}") for w in workers),
             "the launcher's death is its workers' death")
    missing, _ = run("-n", "2", "--set", "data.train.images=/nonexistent", job)
    tap.ok(missing.returncode == 1 and "/nonexistent" in missing.stderr.strip().splitlines()[-1],
           "a data file that is not there: said once, last", missing.stderr)
    tap.same([n for n in os.listdir("/dev/shm") if "lockstep" in n], [], "nothing is left in /dev/shm")


def main():
    with tap.Scratch() as scratch:
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 100, seed=2)
        test_same_numbers(scratch)
        test_same_bits(scratch)
        test_resume(scratch)
        test_failures(scratch)
    tap.done()


main()
