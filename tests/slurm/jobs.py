"""Batch jobs from the templates: copied as a user would, submitted, watched."""

import os
import re
import shutil
import time

import tap

TEMPLATES = os.path.join(os.environ.get("srcdir", "."), "sbatch_templates")


def prepare(scratch, name):
    """The pair, copied as a user would, with the small test set and fewer steps."""
    script = "interactive.sh" if name == "interactive" else name + ".sbatch"
    for file in (script, name + ".cfg"):
        shutil.copy(os.path.join(TEMPLATES, file), scratch(file))
    text = tap.read(scratch(name + ".cfg"), "r")
    for split, prefix in (("train", "train"), ("test", "t10k")):
        for kind in ("images-idx3", "labels-idx1"):
            text = text.replace(f"/usr/share/datasets/fashion-mnist/{prefix}-{kind}-ubyte.gz",
                                scratch(f"{split}-{kind[:6]}"))
    text = text.replace("classes = 10", "classes = 4").replace("[ 512, 512 ]", "[ 32 ]")
    with open(scratch(name + ".cfg"), "w") as f:
        f.write(text)
    return scratch(script)


def set_length(scratch, name, length):
    path = scratch(name + ".cfg")
    text = re.sub(r"epochs = 6;|steps = \d+;", f"steps = {length};", tap.read(path, "r"))
    with open(path, "w") as f:
        f.write(text)


def submit(c, *args):
    result = c.run("sbatch", "--parsable", "--mem=100", "--exclusive=user", *args)
    return result.stdout.strip(), result


def state(c, job):
    out = c.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.split()
    return out[0] if out else "GONE"


def wait_state(c, job, wanted, seconds=90):
    end = time.monotonic() + seconds
    now = state(c, job)
    while now not in wanted and time.monotonic() < end:
        time.sleep(0.1)
        now = state(c, job)
    return now


def output(scratch, pattern):
    for name in sorted(os.listdir(scratch.path)):
        if re.fullmatch(pattern, name):
            return tap.read(scratch(name), "r")
    return ""


def has_checkpoint(folder):
    return os.path.isdir(folder) and any(re.fullmatch(r"step-\d+", n) for n in os.listdir(folder))


def running(scratch, log):
    """Waits until the job of that output trains: its first checkpoint would be too late."""
    end = time.monotonic() + 60
    while "step 1/" not in output(scratch, log) and time.monotonic() < end:
        time.sleep(0.1)
    return "step 1/" in output(scratch, log)
