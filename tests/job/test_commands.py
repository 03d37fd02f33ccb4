"""`lockstep config` and `lockstep init` as a user sees them: what they print, where, and exit codes."""

import json
import os

import tap


def config(scratch):
    job = scratch("tiny.cfg")
    with open(job, "w") as f:
        f.write(tap.job_text(scratch.path))
    r = tap.run("config", job)
    tap.ok(r.returncode == 0 and not r.stderr and 'name = "tiny";' in r.stdout and
           f"# {job}:2" in r.stdout, "config prints the job with its origins", r.stdout, r.stderr)
    again = scratch("again.cfg")
    with open(again, "w") as f:
        f.write(r.stdout)
    tap.same(tap.run("config", again).returncode, 0, "what it prints is a job description")

    r = tap.run("config", "--json", "--set", "train.steps=7", "-sseed=3", job)
    values = json.loads(r.stdout)["values"]
    tap.same(values["train.steps"], {"value": 7, "origin": "--set"}, "config --json --set")
    tap.same(values["seed"]["value"], 3, "config -s")

    r = tap.run("config", "--set", "train.stepz=7", job)
    tap.ok(r.returncode == 2 and not r.stdout and "did you mean train.steps?" in r.stderr,
           "a bad --set: exit 2, message on standard error", r.stderr)
    with open(job, "a") as f:
        f.write("zebra = 1;\nname = 2;\n")
    r = tap.run("config", job)
    tap.ok(r.returncode == 2 and not r.stdout and r.stderr.count(job + ":") >= 2,
           "a bad file: exit 2, all problems", r.stderr)
    r = tap.run("config", scratch("none.cfg"))
    tap.ok(r.returncode != 0 and "none.cfg: No such file" in r.stderr, "no file", r.stderr)
    for bad in (["config"], ["config", job, job], ["config", "--zebra", job], ["config", "--set"]):
        r = tap.run(*bad)
        tap.ok(r.returncode == 2 and not r.stdout and "--help" in r.stderr,
               "usage: " + " ".join(os.path.basename(b) for b in bad), r.stderr)
    r = tap.run("config", "--help")
    tap.ok(r.returncode == 0 and r.stdout.startswith("Usage: lockstep config") and not r.stderr,
           "config --help")


def init(scratch):
    names = [line.split()[0] for line in tap.run("init", "--list").stdout.splitlines()]
    tap.same(names, ["mlp", "convnet"], "init --list")
    for name in names:
        r = tap.run("init", name, cwd=scratch.path)
        path = scratch(name + ".cfg")
        tap.ok(r.returncode == 0 and f"lockstep run {name}.cfg" in r.stdout and os.path.exists(path),
               f"init {name}", r.stdout, r.stderr)
        r = tap.run("config", path)
        tap.same((r.returncode, r.stderr), (0, ""), f"{name} is a good description")
        tap.same(tap.run("init", name, "-").stdout, tap.read(path, "r"), f"init {name} -")
    os.remove(scratch("mlp.cfg"))
    tap.ok(tap.run("init", cwd=scratch.path).returncode == 0 and
           os.path.exists(scratch("mlp.cfg")), "mlp unless something else is asked for")

    mine = scratch("mine.cfg")
    with open(mine, "w") as f:
        f.write("mine")
    r = tap.run("init", "mlp", mine)
    tap.ok(r.returncode == 1 and tap.read(mine) == b"mine" and "--force" in r.stderr,
           "an existing file is left alone", r.stderr)
    r = tap.run("init", "--force", "mlp", mine)
    tap.ok(r.returncode == 0 and tap.read(mine) == tap.read(scratch("mlp.cfg")),
           "unless --force says otherwise", r.stderr)
    r = tap.run("init", "mlp", scratch("nowhere", "x.cfg"))
    tap.ok(r.returncode == 1 and "nowhere/x.cfg" in r.stderr, "no such folder", r.stderr)
    for bad in (["init", "zebra"], ["init", "mlp", "a", "b"], ["init", "--zebra"]):
        r = tap.run(*bad, cwd=scratch.path)
        tap.ok(r.returncode == 2 and not r.stdout and "--help" in r.stderr,
               "usage: " + " ".join(bad), r.stderr)
    r = tap.run("init", "--help")
    tap.ok(r.returncode == 0 and r.stdout.startswith("Usage: lockstep init") and not r.stderr,
           "init --help")


def main():
    with tap.Scratch() as scratch:
        config(scratch)
        init(scratch)
    tap.done()


if __name__ == "__main__":
    main()
