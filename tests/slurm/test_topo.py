"""What src/topo reads in real jobs of every kind: steps, batch scripts, arrays, heterogeneous jobs, and
what leaks from one into the other."""

import os

import tap
from cluster import Cluster, skip_without_slurm

SHOW = os.path.join(os.path.abspath(os.environ.get("builddir", ".")), "tests/slurm/show_slurm")


def line(nodes, node, rank, local, ntasks, layout, gpus=0, array=-1, components=0, warnings=0,
         place="step"):
    layout = f" layout {layout}" if layout else ""
    return (f"{place} nodes {nodes} id {node} rank {rank} local {local} of {ntasks}{layout} "
            f"gpus {gpus} array {array} components {components} warnings {warnings}")


def allocation(nodes, ntasks, layout, **kwargs):
    return line(nodes, -1, -1, -1, ntasks, layout, place="allocation", **kwargs)


def test_srun(c):
    for args, want in (
            (["-N2", "-w", "n[0-1]", "--ntasks-per-node=2", "--gpus-per-node=2"],
             [line("n0 n1", r // 2, r, r % 2, 4, "2,2", gpus=2) for r in range(4)]),
            (["-N4"], [line("n0 n1 n2 n3", r, r, 0, 4, "1,1,1,1") for r in range(4)]),
            (["-N1", "-n4", "-w", "n0"], [line("n0", 0, r, r, 4, "4") for r in range(4)]),
            (["-N1", "-n2", "-w", "n0", "--gpus-per-task=1"], [line("n0", 0, r, r, 2, "2", gpus=1)
                                                   for r in range(2)]),
            (["-n1", "-w", "n0"], [line("n0", 0, 0, 0, 1, "1")]),
            (["-n5", "-m", "arbitrary", "-w", "n0,n0,n0,n2,n2"],
             [line("n0 n2", r // 3, r, r % 3, 5, "3,2") for r in range(5)])):
        r = c.run("srun", "--mpi=pmix", *args, SHOW)
        tap.same((sorted(r.stdout.splitlines()), r.returncode), (sorted(want), 0),
                 "srun " + " ".join(args))
    r = c.run("srun", "-n1", "-w", "n0", SHOW, ":", "-N2", "-w", "n[1-2]", "--ntasks-per-node=2",
              SHOW)
    where = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    tap.same(sorted(r.stdout.splitlines()),
             [line("n0 n1 n2", n, r, local, 5, "1,2,2", components=2)
              for r, (n, local) in enumerate(where)], "srun of a heterogeneous job")


def batch(c, args, script):
    """The lines that a batch script prints, those of an array one after the other."""
    r = c.run("sbatch", "-W", "-o", "out.%a", *args, "--wrap", script)
    lines = r.stderr.splitlines()
    for name in sorted(n for n in os.listdir(c.scratch.path) if n.startswith("out.")):
        lines += sorted(tap.read(c.scratch(name), "r").splitlines())
        os.remove(c.scratch(name))
    return lines


def test_sbatch(c):
    tap.same(batch(c, ["-w", "n[0-2]", "--ntasks-per-node=2", "--gpus-per-node=1"], SHOW),
             [allocation("n0 n1 n2", 6, "2,2,2", gpus=1)], "a batch script")
    tap.same(batch(c, ["-w", "n[0-1]", "--exclusive"], SHOW),
             [allocation("n0 n1", 0, "", gpus=2)], "a batch script that asked for no tasks")
    tap.same(batch(c, ["-w", "n[0-2]"], f"srun -N2 -n2 {SHOW}"),
             [line("n0 n1", r, r, 0, 2, "1,1") for r in range(2)], "a step on a part of a job")
    tap.same(batch(c, ["-n1", "-w", "n0", "--array=3,5"], SHOW),
             [allocation("n0", 1, "1", array=3), allocation("n0", 1, "1", array=5)], "an array")
    tap.same(c.run("salloc", "-w", "n[0-1]", "-n3", SHOW).stdout,
             allocation("n0 n1", 3, "2,1") + "\n", "salloc")


def test_leaks(c):
    script = c.scratch("inner")
    with open(script, "w") as f:
        f.write(f"#!/bin/sh\n{SHOW}\n")
    r = c.run("srun", "-N2", "--mpi=pmix", "sh", "-c",
              f"[ $SLURM_PROCID = 1 ] || exit 0; sbatch -W -N1 -n1 -w n3 -o inner.out {script}")
    tap.same(r.returncode, 0, "sbatch from inside a step")
    got = tap.read(c.scratch("inner.out"), "r").split()
    tap.same((got[0], got[2], int(got[-1]) > 0), ("allocation", "n3", True),
             "is no step, whatever it has inherited, and warns")
    env = dict(c.env)
    c.env["SLURM_PROCID"] = "1"
    r = c.run(SHOW)
    tap.ok(r.returncode == 4 and "no SLURM_JOB_ID" in r.stdout, "a rank without a job", r.stdout)
    c.env.clear()
    c.env.update(env)
    r = c.run(SHOW)
    tap.same(r.stdout.split()[0], "none", "outside of a job")


def main():
    skip_without_slurm()
    with tap.Scratch() as scratch, Cluster(scratch) as cluster:
        test_srun(cluster)
        test_sbatch(cluster)
        test_leaks(cluster)
    tap.done()


main()
