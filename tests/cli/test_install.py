"""An installation that was moved: `make install` elsewhere, renamed, and a job run from there; and the container templates
with it, in a mount namespace that shows nothing of it but what they mount."""

import os
import re
import shutil
import subprocess
import sys

import tap

TEMPLATES = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "sbatch_templates"))
BUILD = os.environ.get("builddir", ".")


def clean_env(**extra):
    """Also without what a make around this test tells its own."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("SLURM", "PMIX", "MAKE", "MFLAGS", "LOCKSTEP_")) and k != "DESTDIR"}
    return {**env, **extra}


def run(*command, **extra):
    return subprocess.run(command, env=clean_env(**extra), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=600, check=False)


def find_program(folder):
    for at, _, files in os.walk(folder):
        if "lockstep" in files and os.path.basename(at) == "bin":
            return os.path.join(at, "lockstep")
    return None


def install(scratch):
    """The prefix, as moved away from where it was installed; None if it could not be."""
    # Not "install", which remakes links to plugins under the feet of tests beside this one.
    result = run("make", "-C", BUILD, "install-exec", "install-data", f"DESTDIR={scratch('root')}")
    program = find_program(scratch("root"))
    if not tap.ok(result.returncode == 0 and program, "make install, into a folder", result.stdout, result.stderr):
        return None, None
    prefix = os.path.dirname(os.path.dirname(program))
    meant = prefix[len(scratch("root")):]
    shutil.move(prefix, scratch("moved"))
    shutil.rmtree(scratch("root"))
    return scratch("moved"), meant


def test_job(scratch, prefix, meant):
    """Worker and backend are found from where the program is now."""
    tap.make_set(scratch("train"), 64)
    tap.make_set(scratch("test"), 32)
    with open(scratch("tiny.cfg"), "w") as f:
        f.write(tap.job_text(scratch.path))
    lockstep = os.path.join(prefix, "bin", "lockstep")
    for ranks in ("1", "2"):
        result = run(lockstep, "run", scratch("tiny.cfg"), "-n", ranks, "--resume=never", "--set",
                     f'checkpoint.dir="{scratch("tiny-" + ranks)}"')
        tap.ok(result.returncode == 0 and "done after 20 steps" in result.stdout + result.stderr,
               f"a moved installation trains with {ranks} rank(s)", result.stdout, result.stderr)
    result = run(lockstep, "exec", "-n", "2", "--", "sh", "-c", "echo $RANK")
    tap.same(sorted(result.stdout.split()), ["0", "1"], "and starts programs")
    if os.path.exists(os.path.join(meant, "bin", "lockstep")):
        print(f"# there is an installation in {meant}, which is what it falls back to")
        return
    for part in ("lockstep-worker", "lockstep_cpu.so"):
        for at, _, files in os.walk(prefix):
            if part in files:
                os.rename(os.path.join(at, part), scratch(part))
                result = run(lockstep, "run", scratch("tiny.cfg"), "-n", "2", "--resume=never")
                tap.ok(result.returncode != 0 and part.split("_")[0] in result.stderr,
                       f"without its {part} it fails, and says so", result.returncode, result.stderr)
                os.rename(scratch(part), os.path.join(at, part))


# Stands for srun of pyxis and for apptainer: shows the command a /opt and an installation that have only what was
# mounted, as an image that knows nothing of Lockstep.
CONTAINER = """import os, re, subprocess, sys
prefix, mounts, command = os.environ["LS_TEST_PREFIX"], [], []
args = sys.argv[2 if sys.argv[1] == "srun" else 3:]
while args:
    word = args.pop(0)
    if word.startswith("--container-mounts="):
        mounts = word.split("=", 1)[1].split(",")
    elif word == "--bind":
        mounts.append(args.pop(0))
    elif word == "--pwd":
        args.pop(0)
    elif not word.startswith("--"):
        command = [word, *args] if sys.argv[1] == "srun" else args
        break
if sys.argv[1] == "srun" and not mounts:
    os.execvp(command[0], command)
lines = ["set -e", "mkdir -p $LS_TEST_SAVED", "mount --bind $LS_TEST_PREFIX $LS_TEST_SAVED",
         "mount -t tmpfs none $LS_TEST_PREFIX", "mount -t tmpfs none /opt"]
for m in mounts:
    source, target = (m.split(":") + [m])[:2]
    if source == os.getcwd():
        continue
    print("mounted", target, flush=True)
    saved = os.environ["LS_TEST_SAVED"] + source[len(prefix):]
    make = "mkdir -p" if os.path.isdir(source) else "install -D /dev/null"
    lines += [f"{make} {target}", f"mount --bind {saved} {target}"]
command = [a.replace("exec-pytorch.py", "in-container.py") for a in command]
os.execvp("unshare", ["unshare", "-m", "bash", "-c", "\\n".join(lines) + '\\nexec "$@"', "container", *command])
"""
# What runs in the container in place of PyTorch: the installed lockstep that it finds there, which becomes a worker of
# the world that exec has made.
INSIDE = """import os, subprocess
subprocess.run([os.environ["LS_TEST_INSIDE"], "run", os.environ["LS_TEST_JOB"], "--resume=never", "--set",
                f'checkpoint.dir="{os.environ["LS_TEST_DIR"]}"'], check=True)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
"""


def test_containers(scratch, prefix):
    if run("unshare", "-m", "true").returncode != 0:
        print("# SKIPPED: mounting in container templates was NOT tried: unshare -m is not permitted here")
        tap.ok(True, "container templates # SKIP unshare -m is not permitted; run as root")
        return
    with open(scratch("container"), "w") as f:
        f.write(CONTAINER)
    with open(scratch("in-container.py"), "w") as f:
        f.write(INSIDE)
    os.mkdir(scratch("bin"))
    for name in ("srun", "apptainer"):
        with open(scratch("bin", name), "w") as f:
            f.write(f'#!/bin/sh\nexec {sys.executable} {scratch("container")} {name} "$@"\n')
        os.chmod(scratch("bin", name), 0o755)
    for name, inside in (("container-apptainer", prefix), ("container-pyxis", "/opt/lockstep")):
        path = os.path.join(prefix, "bin") + ":" + scratch("bin") + ":" + os.environ["PATH"]
        result = subprocess.run(
            ["bash", os.path.join(TEMPLATES, name + ".sbatch")], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=300, check=False, cwd=scratch.path, env=clean_env(
                PATH=path, SLURM_CPUS_ON_NODE="2", LS_TEST_PREFIX=prefix, LS_TEST_SAVED=scratch("saved"),
                LS_TEST_INSIDE=os.path.join(inside, "bin", "lockstep"), LS_TEST_JOB=scratch("tiny.cfg"),
                LS_TEST_DIR=scratch("in-" + name)))
        mounted = re.findall("^mounted (.*)$", result.stdout, re.M)
        tap.ok(result.returncode == 0 and "rank 0 of " in result.stdout, f"{name}: what is mounted is enough to train",
               result.stdout, result.stderr)
        tap.ok(mounted and all(os.path.basename(m) == "lockstep" for m in mounted),
               f"{name}: and nothing of an image is covered, whatever the prefix", mounted)


def main():
    os.environ["builddir"] = os.path.abspath(BUILD)
    with tap.Scratch() as scratch:
        prefix, meant = install(scratch)
        if prefix:
            test_job(scratch, prefix, meant)
            test_containers(scratch, prefix)
    tap.done()


main()
