"""`lockstep run -n N` without Slurm: ranks on one machine agree with one rank, and end together."""

import json
import os
import re
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


def start(job, *args):
    return subprocess.Popen([tap.program(), "run", "--json", *args, job], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def training(scratch, job, *args):
    """A run that trains: it has saved."""
    folder = scratch(os.path.basename(job).replace(".cfg", ".ckpt"))

    def steps():
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return {n for n in names if re.fullmatch(r"step-\d+", n)}
    seen = steps()
    launcher = start(job, *args, "--set", "checkpoint.every_steps=50")
    tap.wait_for(lambda: launcher.poll() is not None or steps() - seen, "the first steps")
    return launcher


def check_clean(scratch, what):
    tap.same([n for n in os.listdir("/dev/shm") if "lockstep" in n], [], f"{what}: nothing is left in /dev/shm")
    tap.same(os.listdir(scratch("tmp")), [], f"{what}: nothing is left in TMPDIR")


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
    tap.wait_for(lambda: os.path.isdir(folder) and any(n.startswith("step-") and "tmp" not in n
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
    for sig in (signal.SIGKILL, signal.SIGABRT):  # not SIGSEGV, which sanitizers catch
        launcher = training(scratch, job, "-n", "3")
        workers = sorted(tap.children(launcher.pid))
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
        check_clean(scratch, sig.name)
    launcher = training(scratch, job, "-n", "2", "--set", "recover.hang_kill=2s")
    workers = sorted(tap.children(launcher.pid))
    os.kill(workers[1], signal.SIGSTOP)
    _, err = launcher.communicate(timeout=60)
    tap.same(launcher.returncode, 5, "a worker is stopped: exit 5")
    last = err.strip().splitlines()[-1]
    tap.ok("rank 0 on" in last and "rank 1 on" in last and "after 2" in last,
           "and the last line says who waited for whom, and how long", last)
    tap.ok(not any(os.path.exists(f"/proc/{w}") for w in workers), "the stopped one is ended, too")
    check_clean(scratch, "a worker is stopped")
    launcher = training(scratch, job, "-n", "2")
    workers = tap.children(launcher.pid)
    launcher.kill()
    launcher.communicate(timeout=60)
    tap.wait_for(lambda: not any(os.path.exists(f"/proc/{w}") for w in workers),
                 "the launcher's death is its workers' death")
    tap.ok([n for n in os.listdir(scratch("tmp")) if n.startswith("lockstep-pmix-")],
           "a killed launcher leaves the folder of its PMIx server")
    missing, _ = run("-n", "2", "--set", "data.train.images=/nonexistent", job)
    tap.ok(missing.returncode == 1 and "/nonexistent" in missing.stderr.strip().splitlines()[-1],
           "a data file that is not there: said once, last", missing.stderr)
    check_clean(scratch, "which removes that folder; after it")


def test_cannot_start(scratch):
    """One rank of several fails before the first step: the others do not wait for recover.hang_kill, 5 minutes."""
    job = write_job(scratch, "unable", train="steps = 8; global_batch = 32; micro_batch = 8;")
    with open(scratch("a-file"), "w"):
        pass
    result, r = run("-n", "2", "--set", f"checkpoint.dir={scratch('a-file')}", job)
    last = result.stderr.strip().splitlines()[-1]
    tap.ok(result.returncode == 1 and "rank 0 on" in last and "a-file" in last,
           "a checkpoint directory that is a file: rank 0 says so", result.stderr)
    tap.same((r["status"], r["ranks"]), ("failed", 2), "and so does its record")
    check_clean(scratch, "a rank that cannot start")
    holder = training(scratch, write_job(scratch, "holder", train="steps = 1000000000; global_batch = 32;"))
    result, _ = run("-n", "3", "--set", f"checkpoint.dir={scratch('holder.ckpt')}", job)
    last = result.stderr.strip().splitlines()[-1]
    tap.ok(result.returncode == 1 and "rank 0 on" in last and "holder.ckpt" in last,
           "a checkpoint directory of another run: rank 0 says so", result.stderr)
    holder.terminate()
    holder.communicate(timeout=60)


def test_signals(scratch):
    """SIGTERM and SIGINT outweigh SIGUSR1, even while its checkpoint is being saved; only a second one kills. The
    ranks stand still meanwhile, as they would in a long save."""
    job = write_job(scratch, "wish", train="steps = 1000000000; global_batch = 32; micro_batch = 8; eval_every = 0;")
    later = 1.1  # seconds: by then SIGTERM is another request
    for n in (1, 2):
        for what, signals, code, word in (
                ("SIGTERM at once behind SIGUSR1", [(signal.SIGUSR1, 0), (signal.SIGTERM, 0)], 143, "stopped"),
                ("SIGTERM late behind SIGUSR1", [(signal.SIGUSR1, later), (signal.SIGTERM, 0)], 143, "stopped"),
                ("SIGINT behind SIGUSR1", [(signal.SIGUSR1, later), (signal.SIGINT, 0)], 130, "stopped"),
                ("SIGUSR1 behind SIGTERM", [(signal.SIGTERM, later), (signal.SIGUSR1, 0)], 143, "stopped"),
                ("SIGTERM twice behind SIGUSR1",
                 [(signal.SIGUSR1, 0), (signal.SIGTERM, later), (signal.SIGTERM, 0)], 143, None)):
            if n == 1 and word is None:
                continue  # two of a kind that come while it stands still are one
            launcher = training(scratch, job, "-n", str(n))
            ranks = tap.children(launcher.pid) if n > 1 else [launcher.pid]
            for r in ranks:
                os.kill(r, signal.SIGSTOP)
            for sig, pause in signals:
                launcher.send_signal(sig)
                time.sleep(pause)
            for r in ranks:
                try:
                    os.kill(r, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            out, err = launcher.communicate(timeout=60)
            status = json.loads(out.splitlines()[-1])["status"] if out.strip() else None
            tap.same((launcher.returncode, status), (code, word), f"{n} ranks: {what}")
            tap.ok(("ended at once" in err) == (word is None), f"{n} ranks: {what}: saved or not", err)
    check_clean(scratch, "all signals")


def main():
    with tap.Scratch() as scratch:
        os.mkdir(scratch("tmp"))
        os.environ["TMPDIR"] = scratch("tmp")
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 100, seed=2)
        test_same_numbers(scratch)
        test_same_bits(scratch)
        test_resume(scratch)
        test_cannot_start(scratch)
        test_signals(scratch)
        test_failures(scratch)
    tap.done()


main()
