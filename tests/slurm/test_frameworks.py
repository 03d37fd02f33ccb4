"""Real frameworks under `lockstep exec` in a step on two nodes: no address, port or rank is set by anyone else."""

import os

import cluster
import frameworks
import tap

LOCKSTEP = os.path.abspath(tap.program())
LAYOUTS = ((1, 2, "one task per node, two ranks each"), (2, 1, "one task per rank"))


def main():
    cluster.skip_without_slurm()
    found = [(f, frameworks.find(f)) for f in frameworks.ALL]
    if any(python for _, python in found):
        with tap.Scratch() as scratch, cluster.Cluster(scratch) as c:
            # The nodes are one machine, and pretend to be several.
            c.env["GLOO_SOCKET_IFNAME"] = "lo"
            for framework, python in found:
                for tasks, per_task, what in LAYOUTS if python else ():
                    result = c.run("srun", "--mpi=pmix", "--kill-on-bad-exit=0", "-N2", f"--ntasks-per-node={tasks}",
                                   LOCKSTEP, "exec", f"--workers-per-task={per_task}", "--", python,
                                   framework.script, timeout=300)
                    frameworks.check(framework, 4, result, f"srun -N2, {what}")
    tap.done()


main()
