"""Test Anything Protocol for tests in Python, and what they share: a scratch folder, small data sets,
and running the program."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

_count = 0
_failed = 0


def ok(passed, what, *details):
    """One check; details are shown when it fails."""
    global _count, _failed
    _count += 1
    print(("ok" if passed else "not ok"), _count, "-", what)
    if not passed:
        _failed += 1
        for detail in details:
            for line in str(detail).splitlines()[-20:]:
                print("#", line)
    sys.stdout.flush()
    return passed


def same(got, want, what):
    return ok(got == want, what, f"got  {got!r}", f"want {want!r}")


def wait_for(condition, what, seconds=120):
    """The value of the condition once it is true; a failed check if that takes too long."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            ok(False, f"{what} within {seconds} s")
            return value
        time.sleep(0.01)


def children(pid):
    """Processes whose parent is pid."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = read(f"/proc/{p}/stat", "r").rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(p))
    return found


def done():
    print(f"1..{_count}")
    sys.exit(1 if _failed else 0)


class Scratch:
    """A folder that goes with the test."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="lockstep-test-")
        return self

    def __exit__(self, *unused):
        shutil.rmtree(self.path, ignore_errors=True)

    def __call__(self, *parts):
        return os.path.join(self.path, *parts)


def idx_bytes(shape, data):
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(data)


def write_idx(path, shape, data):
    with open(path, "wb") as f:
        f.write(idx_bytes(shape, data))


def make_set(prefix, n, size=8, classes=4, seed=1):
    """Images of noise with a bright square whose place tells the class."""
    draw = random.Random(seed)
    pixels, labels = bytearray(), bytearray()
    half = size // 2
    for _ in range(n):
        label = draw.randrange(classes)
        image = [draw.randrange(90) for _ in range(size * size)]
        top, left = (label // 2 % 2) * half, (label % 2) * half
        for y in range(half):
            for x in range(half):
                image[(top + y) * size + left + x] += 120
        pixels += bytes(image)
        labels.append(label)
    write_idx(prefix + "-images", (n, size, size), pixels)
    write_idx(prefix + "-labels", (n,), labels)


def job_text(folder, name="tiny", model=None, train="steps = 20; global_batch = 32;", extra=""):
    """A job on the sets `train` and `test` in the folder."""
    model = model or 'type = "mlp"; classes = 4; hidden = [ 32 ]; dropout = 0.1;'
    return f"""
name = "{name}";
seed = 7;
model: {{ {model} }};
data: {{
    format = "idx";
    train: {{ images = "{folder}/train-images"; labels = "{folder}/train-labels"; }};
    test: {{ images = "{folder}/test-images"; labels = "{folder}/test-labels"; }};
    mean = 0.3; std = 0.3;
}};
train: {{ {train} }};
optimizer: {{ type = "adamw"; lr = 0.01; clip = 1.0;
             schedule: {{ type = "cosine"; warmup = 3; }}; }};
checkpoint: {{ dir = "{folder}/{name}.ckpt"; keep = 3; }};
{extra}
"""


CONVNET = """type = "layers"; classes = 4; layers = (
    { type = "conv"; filters = 8; kernel = 3; pad = 1; bias = false; },
    { type = "batch_norm"; }, { type = "relu"; }, { type = "max_pool"; kernel = 2; },
    { type = "residual"; repeat = 2; layers = (
        { type = "conv"; filters = 8; kernel = 3; pad = 1; bias = false; },
        { type = "batch_norm"; }, { type = "relu"; } ); },
    { type = "avg_pool"; kernel = 2; }, { type = "dropout"; rate = 0.1; },
    { type = "global_pool"; }, { type = "linear"; units = 4; } );"""


def program():
    return os.path.join(os.environ.get("builddir", "."), "lockstep")


def run(*args, timeout=300, **kwargs):
    """Runs the program; returns a CompletedProcess with text output."""
    return subprocess.run([program(), *args], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout, check=False, **kwargs)


def record(result):
    """The JSON record on the last line of standard output."""
    lines = result.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {}


def read(path, mode="rb"):
    with open(path, mode) as f:
        return f.read()
