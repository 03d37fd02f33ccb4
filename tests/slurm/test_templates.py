"""The batch templates on a real cluster: each runs as it is, is cancelled, and reaches its time limit."""

import os
import re
import shutil
import signal
import subprocess
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
    for name in ("one-node", "many-nodes", "array"):
        script = prepare(scratch, name)
        set_length(scratch, name, 100000000)
        extra = ["--array=1"] if name == "array" else ["--job-name=long"]
        folder = scratch("array-1.ckpt" if name == "array" else "long.ckpt")
        shutil.rmtree(folder, ignore_errors=True)
        job, _ = submit(c, *extra, script)
        log = f"array-{job}_1.out" if name == "array" else f"long-{job}.out"
        tap.ok(running(scratch, log), f"{name}: a long job trains")
        c.run("scancel", job)
        tap.same(wait_state(c, job, ("CANCELLED",)), "CANCELLED", f"{name}: cancelled")
        end = time.monotonic() + 30
        while not has_checkpoint(folder) and time.monotonic() < end:
            time.sleep(0.1)
        text = output(scratch, log)
        tap.ok(has_checkpoint(folder), f"{name}: it saved first, into a folder by the name of the job", text)
        tap.ok("requeue" not in text and state(c, job) == "CANCELLED",
               f"{name}: a cancelled job stays cancelled", text)


def test_interrupt(c, scratch):
    """Ctrl-C at the terminal of the interactive one."""
    script = prepare(scratch, "interactive")
    set_length(scratch, "interactive", 100000000)
    shutil.rmtree(scratch("interactive.ckpt"), ignore_errors=True)
    with open(scratch("interactive.out"), "w") as log:
        srun = subprocess.Popen(["bash", script, "2"], env=c.env, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, cwd=scratch.path)
        tap.ok(running(scratch, "interactive.out"), "interactive: a long run trains")
        srun.send_signal(signal.SIGINT)
        try:
            code = srun.wait(60)
        except subprocess.TimeoutExpired:
            code = None
            srun.kill()
            srun.wait()
    text = output(scratch, "interactive.out")
    tap.ok(code not in (0, None) and has_checkpoint(scratch("interactive.ckpt")),
           "interactive: Ctrl-C saves and ends it", code, text)
    set_length(scratch, "interactive", 1)
    result = c.run("bash", script, "2")
    tap.ok(result.returncode == 0 and "resumed from" in result.stderr,
           "interactive: the same line goes on from there", result.stdout, result.stderr)


class TimeLimit:
    """A job without --signal hears of its limit, one minute, only by SIGTERM; the other tests run meanwhile."""

    def __init__(self, c, scratch):
        self.c, self.scratch = c, scratch
        script = prepare(scratch, "one-node")
        set_length(scratch, "one-node", 100000000)
        text = tap.read(script, "r").replace("one-node.cfg", "limit.cfg")
        with open(scratch("limit.sbatch"), "w") as f:
            f.write(re.sub(r"^#SBATCH --signal.*\n", "", text, flags=re.M))
        os.rename(scratch("one-node.cfg"), scratch("limit.cfg"))
        self.job, result = submit(c, "--time=1", "--job-name=limit", scratch("limit.sbatch"))
        tap.ok(self.job.isdigit(), "the time limit: submitted", result.stderr)

    def check(self):
        tap.same(wait_state(self.c, self.job, ("TIMEOUT", "COMPLETED", "FAILED", "GONE"), 180), "TIMEOUT",
                 "the time limit: it ends the job")
        text = output(self.scratch, f"limit-{self.job}.out")
        tap.ok("on signal 15; saving" in text and has_checkpoint(self.scratch("limit.ckpt")),
               "the time limit: the job saves, also without --signal", text)
        tap.ok("requeue" not in text and state(self.c, self.job) == "TIMEOUT",
               "the time limit: and asks for nothing", text)


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
        tap.ok(running(scratch, f"{name}-{log}.out"), f"{name}: a long job trains")
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
        # What has two seconds to save, the cluster's own KillWait, has less on a busy machine.
        with open(scratch("slurm.conf"), "w") as f:
            f.write("KillWait=30\n")
        with cluster.Cluster(scratch, "--conf=" + scratch("slurm.conf")) as c:
            c.env["PATH"] = os.path.dirname(os.path.abspath(tap.program())) + ":" + c.env["PATH"]
            limit = TimeLimit(c, scratch)
            test_runs(c, scratch)
            test_cancel(c, scratch)
            test_interrupt(c, scratch)
            test_requeue(c, scratch)
            limit.check()
    tap.done()


main()
