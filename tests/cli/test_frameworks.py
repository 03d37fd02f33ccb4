"""Real frameworks under `lockstep exec`: PyTorch, TensorFlow, Open MPI. Each is optional: what is not installed is
said, and not counted as tried. LS_TORCH_PYTHON and LS_TF_PYTHON name interpreters that have them."""

import os
import shutil
import subprocess
import sys

import tap

HERE = os.path.join(os.environ.get("srcdir", "."), "tests", "cli")
CACHE = os.path.expanduser("~/.cache/lockstep-benchmarks")


def find_python(module, variable, folder):
    """The first interpreter that has the module, without importing all of it."""
    probe = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"
    for python in (os.environ.get(variable), os.path.join(CACHE, folder, "bin", "python"),
                   sys.executable, "/usr/bin/python3"):
        if python and shutil.which(python) and subprocess.run(
                [python, "-c", probe], check=False, capture_output=True).returncode == 0:
            return python
    return None


def skip(what, remedy):
    print(f"# SKIPPED: {what} was NOT tried: {remedy}")
    tap.ok(True, f"{what} # SKIP {remedy}")


def run(n, *command):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMIX", "OMPI"))}
    return subprocess.run([tap.program(), "exec", "-n", str(n), "--", *command], env=env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)


def check(n, result, want, what):
    lines = sorted(x for x in result.stdout.splitlines() if x.startswith("rank "))
    tap.ok(result.returncode == 0 and lines == want, f"{what}, {n} ranks", result.stdout, result.stderr)


def main():
    torch = find_python("torch", "LS_TORCH_PYTHON", "torch")
    if torch:
        for n in (1, 2, 3):
            check(n, run(n, torch, os.path.join(HERE, "ddp.py")),
                  [f"rank {r} of {n}: same weights True" for r in range(n)],
                  "PyTorch DistributedDataParallel over gloo")
    else:
        skip("PyTorch", "found no interpreter with torch; pip install torch, and set LS_TORCH_PYTHON")
    tensorflow = find_python("tensorflow", "LS_TF_PYTHON", "tf")
    if tensorflow:
        for n in (1, 2, 3):
            check(n, run(n, tensorflow, os.path.join(HERE, "mwms.py")),
                  [f"rank {r} of {n}: {'worker' if r else 'chief'} {max(r - 1, 0)} "
                   f"weight {0.1 * (n + 1):.3f}" for r in range(n)],
                  "TensorFlow MultiWorkerMirroredStrategy")
    else:
        skip("TensorFlow", "found no interpreter with tensorflow; pip install tensorflow-cpu, and set "
             "LS_TF_PYTHON")
    if shutil.which("mpicc"):
        with tap.Scratch() as scratch:
            program = scratch("allreduce")
            built = subprocess.run(["mpicc", os.path.join(HERE, "allreduce.c"), "-o", program],
                                   capture_output=True, text=True, check=False)
            tap.ok(built.returncode == 0, "mpicc", built.stderr)
            for n in (1, 4):
                check(n, run(n, program),
                      [f"rank {r} of {n}: sum {n * (n + 1) // 2}" for r in range(n)], "Open MPI")
            result = run(3, program, "7")
            tap.ok(result.returncode == 7 and "rank 1 on" in result.stderr,
                   "MPI_Abort: its status, and who called it", result.returncode, result.stderr)
    else:
        skip("Open MPI", "found no mpicc; on Debian: apt-get install libopenmpi-dev openmpi-bin")
    tap.done()


main()
