"""The batch templates on a real cluster: each runs as it is, is cancelled, and reaches its time limit."""

import os
import shutil
import time

import cluster
import tap
from jobs import (has_checkpoint, output, prepare, running, set_length, state, submit, wait_state)

def test_runs(c, scratch):
    for name, ranks in (("one-node", 1), ("many-nodes", 2)):
        job, result = submit(c, prepare(scratch, name))
        tap.same(wait_state(c, job, ("COMPLETED", "FAILED")), "COMPLETED", f"{name}: runs as it is")
        text = output(scratch, f"{name}-{job}.out")
        tap.ok("done after" in text and "test accuracy" in text, f"{name}: says the result",
               text, result.stderr)
        if ranks > 1:
            tap.ok(f"{ranks} ranks" in text, f"{name}: one rank on each node", text)
        tap.ok(has_checkpoint(scratch(name + ".ckpt")), f"{name}: a checkpoint named by the job")
    job, _ = submit(c, prepare(scratch, "array"))
    tap.same(wait_state(c, job, ("COMPLETED", "FAILED", "GONE")), "COMPLETED", "array: runs")
    for i in range(1, 5):
        end = time.monotonic() + 60
        while "done after" not in output(scratch, f"array-{job}_{i}.out") and time.monotonic() < end:
            time.sleep(0.1)
        tap.ok("done after" in output(scratch, f"array-{job}_{i}.out"), f"array: run {i}")
        tap.ok(has_checkpoint(scratch(f"array-{i}.ckpt")), f"array: checkpoints of run {i}")
    script = prepare(scratch, "interactive")
    result = c.run("bash", script, "2")
    tap.ok(result.returncode == 0 and "done after" in result.stdout, "interactive: srun on 2 nodes",
           result.stdout, result.stderr)


def test_cancel(c, scratch):
    for name in ("one-node", "many-nodes"):
        script = prepare(scratch, name)
        shutil.rmtree(scratch(name + ".ckpt"), ignore_errors=True)
        set_length(scratch, name, 100000000)
        job, _ = submit(c, script)
        tap.ok(running(c, scratch, name, job), f"{name}: a long job trains")
        c.run("scancel", job)
        tap.same(wait_state(c, job, ("CANCELLED",)), "CANCELLED", f"{name}: cancelled")
        end = time.monotonic() + 30
        while not has_checkpoint(scratch(name + ".ckpt")) and time.monotonic() < end:
            time.sleep(0.1)
        text = output(scratch, f"{name}-{job}.out")
        tap.ok(has_checkpoint(scratch(name + ".ckpt")), f"{name}: it saved first", text)
        tap.ok("requeue" not in text and state(c, job) == "CANCELLED",
               f"{name}: a cancelled job stays cancelled", text)


def test_requeue(c, scratch):
    """The signal that comes before the time limit, sent at once instead of after minutes."""
    for name in ("one-node", "many-nodes", "array"):
        script = prepare(scratch, name)
        for folder in os.listdir(scratch.path):
            if folder.startswith(name) and folder.endswith(".ckpt"):
                shutil.rmtree(scratch(folder))
        set_length(scratch, name, 100000000)
        extra = ["--array=1"] if name == "array" else []
        job, _ = submit(c, *extra, script)
        log = f"{job}_1" if name == "array" else job
        tap.ok(running(c, scratch, name, log), f"{name}: a long job trains")
        steps = c.run("squeue", "-h", "-s", "-j", job, "-o", "%i").stdout.split()
        step = [s for s in steps if s.endswith(".0")]
        c.run("scancel", "--signal=USR1", *step)  # as --signal=USR1@120 does: steps, not the shell
        end = time.monotonic() + 60
        while "requeue 1" not in output(scratch, f"{name}-{log}.out") and time.monotonic() < end:
            time.sleep(0.1)
        text = output(scratch, f"{name}-{log}.out")
        tap.ok("requeue 1" in text, f"{name}: USR1: saved, and requeued on exit 75", text)
        set_length(scratch, name, 1)  # the second run finds all done
        tap.same(wait_state(c, job, ("COMPLETED", "FAILED", "CANCELLED")), "COMPLETED",
                 f"{name}: the second run goes on from there")
        text = output(scratch, f"{name}-{log}.out")
        tap.ok("resumed from" in text, f"{name}: and not from the start", text)


def main():
    cluster.skip_without_slurm()
    with tap.Scratch() as scratch:
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 100, seed=2)
        with cluster.Cluster(scratch) as c:
            c.env["PATH"] = os.path.dirname(os.path.abspath(tap.program())) + ":" + c.env["PATH"]
            test_runs(c, scratch)
            test_cancel(c, scratch)
            test_requeue(c, scratch)
    tap.done()


main()
