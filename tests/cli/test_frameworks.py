"""Real frameworks under `lockstep exec -n`: PyTorch, TensorFlow, JAX (frameworks.py says which, and how they get here),
and Open MPI."""

import os
import shutil
import subprocess

import frameworks
import tap


def run(n, *command, options=()):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMIX", "OMPI", "JAX"))}
    return subprocess.run([tap.program(), "exec", "-n", str(n), *options, "--", *command], env=env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)


def check_mpi():
    if not shutil.which("mpicc"):
        remedy = "found no mpicc; on Debian: apt-get install libopenmpi-dev openmpi-bin"
        print(f"# SKIPPED: Open MPI was NOT tried: {remedy}")
        tap.ok(True, f"Open MPI # SKIP {remedy}")
        return
    with tap.Scratch() as scratch:
        program = scratch("allreduce")
        built = subprocess.run(["mpicc", os.path.join(frameworks.SCRIPTS, "allreduce.c"), "-o", program],
                               capture_output=True, text=True, check=False)
        tap.ok(built.returncode == 0, "mpicc", built.stderr)
        for n, options in ((1, []), (4, []), (3, ["--ompi-env"])):
            result = run(n, program, options=options)
            tap.ok(result.returncode == 0 and
                   frameworks.told(result) == [f"rank {r} of {n}: sum {n * (n + 1) // 2}" for r in range(n)],
                   " ".join(["Open MPI,", str(n), "ranks", *options]), result.stdout, result.stderr)
        result = run(3, program, "7")
        tap.ok(result.returncode == 7 and "rank 1 on" in result.stderr,
               "MPI_Abort: its status, and who called it", result.returncode, result.stderr)


def main():
    for framework in (frameworks.TORCH, frameworks.TENSORFLOW):
        python = frameworks.find(framework)
        for n in (1, 2, 3) if python else ():
            frameworks.check(framework, n, run(n, python, framework.script), "exec -n")
    python = frameworks.find(frameworks.JAX)
    for n in (1, 2, 3) if python else ():
        frameworks.check(frameworks.JAX, n, run(n, python, frameworks.JAX.script, "explicit"),
                         "exec -n, number and id passed")
        frameworks.check(frameworks.JAX, n, run(n, python, frameworks.JAX.script, options=["--ompi-env"]),
                         "exec -n --ompi-env, nothing passed")
    check_mpi()
    tap.done()


main()
