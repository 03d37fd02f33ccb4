"""Real frameworks for tests of `lockstep exec`: which interpreter has them, and the scripts that say whether their ranks
have found each other. Each is optional: what is not there is said, and not counted as tried. LS_FRAMEWORKS=install
installs with pip what is missing, into a cache folder (PyTorch is several GB, TensorFlow and JAX some hundred MB).
LS_TORCH_PYTHON, LS_TF_PYTHON and LS_JAX_PYTHON name interpreters that have them."""

import os
import pathlib
import shutil
import subprocess
import sys

import tap

SCRIPTS = os.path.join(os.environ.get("srcdir", "."), "tests", "cli")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep-benchmarks"


class Framework:
    """One of them: what it is called, how it gets here, and what its script prints for rank r of n."""

    def __init__(self, name, short, module, packages, script, line):
        self.name, self.module, self.packages = name, module, packages
        self.script = os.path.join(SCRIPTS, script)
        self.line = line
        self.folder = CACHE / short
        self.variable = f"LS_{short.upper()}_PYTHON"

    def want(self, n):
        return [self.line(r, n) for r in range(n)]


TORCH = Framework("PyTorch", "torch", "torch", ["torch", "numpy"], "ddp.py", lambda r, n: f"rank {r} of {n}: same weights True")
TENSORFLOW = Framework("TensorFlow", "tf", "tensorflow", ["tensorflow-cpu"], "mwms.py",
                       lambda r, n: f"rank {r} of {n}: {'worker' if r else 'chief'} {max(r - 1, 0)} "
                                    f"weight {0.1 * (n + 1):.3f}")
JAX = Framework("JAX", "jax", "jax", ["jax"], "jaxrank.py", lambda r, n: f"rank {r} of {n}: sum {n * (n + 1) // 2}")
ALL = (TORCH, TENSORFLOW, JAX)


def has(python, module):
    """Without importing all of it. A mere folder of that name has no origin."""
    probe = f"import importlib.util as u, sys; sys.exit(getattr(u.find_spec('{module}'), 'origin', None) is None)"
    return bool(python and shutil.which(python)) and subprocess.run(
        [python, "-c", probe], check=False, capture_output=True).returncode == 0


def install(framework):
    """A virtual environment of its own, as their needs contradict each other. What fails is said."""
    python = str(framework.folder / "bin" / "python")
    print(f"# installing {' '.join(framework.packages)} with pip into {framework.folder}", flush=True)
    for command in ([sys.executable, "-m", "venv", str(framework.folder)],
                    [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *framework.packages]):
        result = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if result.returncode != 0:
            tap.ok(False, f"LS_FRAMEWORKS=install: {framework.name}", result.stdout, result.stderr)
            return None
    return python


def find(framework):
    """The first interpreter that has it; None, after a loud skip, if there is none."""
    places = (os.environ.get(framework.variable), str(framework.folder / "bin" / "python"), sys.executable,
              "/usr/bin/python3")
    python = next((p for p in places if has(p, framework.module)), None)
    if not python and os.environ.get("LS_FRAMEWORKS") == "install":
        python = install(framework)
    elif not python:
        remedy = (f"found no interpreter with {framework.module}; LS_FRAMEWORKS=install installs it into "
                  f"{framework.folder}, or set {framework.variable}")
        print(f"# SKIPPED: {framework.name} was NOT tried: {remedy}")
        tap.ok(True, f"{framework.name} # SKIP {remedy}")
    if python:
        version = subprocess.run([python, "-c", "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))",
                                  framework.packages[0]], check=False, capture_output=True, text=True)
        print(f"# {framework.name} {version.stdout.strip() or '(version not known)'}: {python}", flush=True)
    return python


def told(result):
    """What ranks have printed, in order."""
    return sorted(x for x in result.stdout.splitlines() if x.startswith("rank "))


def check(framework, n, result, what):
    tap.ok(result.returncode == 0 and told(result) == framework.want(n), f"{framework.name}: {what}, {n} ranks",
           f"exit {result.returncode}", result.stdout, result.stderr)
