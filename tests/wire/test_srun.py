"""PMIx as Slurm gives it: workers that srun starts directly, and keepers under srun that serve workers
of their own, on the nodes of a test cluster; and workers that mpirun starts."""

import os
import re
import shutil
import subprocess

import tap
from slurm.cluster import Cluster, skip_without_slurm

MINI = os.path.join(os.environ.get("builddir", "."), "tests", "wire", "mini_keeper")
LINE = re.compile(r"keeper (\d+) of (\d+): code (\d+), wrong (\d+), records (\d+), failures (\d+); "
                  r"keepers met after (\d+) ms, workers ended (\d+) ms later: (.*)")


def keepers(result):
    return sorted((int(m[1]), *map(int, m.groups()[1:6]), m[9])
                  for m in LINE.finditer(result.stdout))


def times(result):
    met = [(int(m[7]), int(m[8])) for m in LINE.finditer(result.stdout)]
    if met:
        print(f"# slowest keeper: met after {max(a for a, _ in met)} ms, its workers ended "
              f"{max(b for _, b in met)} ms later")


def check_good(result, n, records, what):
    want = [(k, n, 0, 0, records if k == 0 else 0, 0, "") for k in range(n)]
    tap.ok(result.returncode == 0 and keepers(result) == want, what, result.stdout, result.stderr)
    times(result)


def test_workers(cluster):
    for layout in (["-N2", "--ntasks-per-node=2"], ["-N4", "--ntasks-per-node=1"],
                   ["-N2", "--ntasks-per-node=2", "--distribution=cyclic"]):
        r = cluster.run("srun", "--mpi=pmix", *layout, MINI, "worker")
        tap.ok(r.returncode == 0, "workers under srun " + " ".join(layout), r.stdout, r.stderr)
    r = cluster.run("srun", "-N2", "--mpi=none", MINI, "worker")
    tap.ok("no PMIx server started this process" in r.stderr and r.returncode == 5,
           "without --mpi=pmix a worker says so", r.stdout, r.stderr)
    r = cluster.run("srun", "--mpi=pmix", "-N4", MINI, "differ")
    tap.same(r.stdout.strip(), "the same", "equal fingerprints")
    cluster.env["ODD"] = "2"
    r = cluster.run("srun", "--mpi=pmix", "-N4", MINI, "differ")
    tap.ok(r.stdout.startswith('rank 2 on n2 differs from 3 others: lockstep is "0.2", '
                               'elsewhere "0.1";'), "a rank of another build is named with its node",
           r.stdout, r.stderr)


def test_missing(cluster):
    """Ranks that never come: one of the others speaks, early and at its deadline, and ends them all."""
    steps = {}
    early = {"2": ["waiting: 1 of 4 tasks has not come yet: task 2 on n2; see what srun says"],
             "1|3": ["waiting: 2 of 4 tasks have not come yet: task 1 on n1, task 3 on n3; see what srun says"],
             "0": [], "0|1": []}
    silent = "not all of 4 tasks have come within 6 s; task 0 on n0 would say who is missing, and has not"
    last = {"2": "1 of 4 tasks has not come within 6 s: task 2 on n2; see what srun says, and look there",
            "1|3": "2 of 4 tasks have not come within 6 s: task 1 on n1, task 3 on n3; see what srun says",
            "0": silent, "0|1": silent}
    for absent in early:
        script = f'case $SLURM_PROCID in {absent}) exec sleep 1000;; *) exec {MINI} differ 6;; esac'
        steps[absent] = cluster.start_step("srun", "--mpi=pmix", "-N4", "--ntasks-per-node=1", "--kill-on-bad-exit=0",
                                           "sh", "-c", script)
    for absent, step in steps.items():
        text = step.communicate(timeout=120)[0]
        said = re.findall(r"^said: (.*)$", text, re.M)
        tap.ok(said[:-1] == early[absent] and said[-1:] and last[absent] in said[-1],
               f"{absent} not there: one rank says so", text)
        tap.ok(not re.search(r"^error: .", text, re.M) and step.returncode not in (0, None),
               f"{absent} not there: the others are ended, and silent", step.returncode, text)


def test_keepers(cluster):
    r = cluster.run("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=1", MINI, "2", "exchange")
    check_good(r, 2, 4, "two keepers with two workers each")
    r = cluster.run("srun", "--mpi=pmix", "-N4", "--ntasks-per-node=1", MINI, "1", "exchange")
    check_good(r, 4, 4, "four keepers with one worker each")
    r = cluster.run("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=3", "-m", "cyclic", MINI,
                    "1", "exchange")
    check_good(r, 6, 6, "one keeper for each rank, dealt over two nodes")
    r = cluster.run("srun", "--mpi=pmix", "-N4", "--ntasks-per-node=1", MINI, "2", "twice", "5")
    check_good(r, 4, 8, "a worker dies, the step lives, all boot into the next generation")
    r = cluster.run("srun", "--mpi=pmix", "--kill-on-bad-exit=0", "-N4", "--ntasks-per-node=1", MINI,
                    "1", "kill", "3")
    want = [(k, 4, 1, 4 if k < 0 else 1, 4 if k == 0 else 0, 1, "rank 3 ended with 137")
            for k in range(4)]
    tap.ok(r.returncode == 1 and keepers(r) == want,
           "a worker dies in an exchange: every keeper names it", r.stdout, r.stderr)
    left = [os.path.join(folder, name) for folder, _, names in
            os.walk(os.path.join(cluster.folder, "tmp")) for name in names]
    tap.same(left, [], "nothing is left in the nodes' temporary folders")


def test_mpirun():
    mpirun = shutil.which("mpirun")
    if not mpirun:
        tap.ok(True, "workers under mpirun # SKIP found no mpirun; on Debian: apt-get install openmpi-bin")
        return
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMIX"))}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", MINI_HOST="here")
    r = subprocess.run([mpirun, "-n", "3", "--oversubscribe", MINI, "worker"], env=env, check=False,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    tap.ok(r.returncode == 0, "workers under mpirun", r.stdout, r.stderr)


def main():
    skip_without_slurm()
    with tap.Scratch() as scratch, Cluster(scratch) as cluster:
        r = cluster.run(MINI, "1", "exchange")
        if "without PMIx" in r.stdout + r.stderr:
            print("1..0 # SKIP configured without PMIx")
            return
        check_good(r, 1, 1, "a keeper alone")
        test_workers(cluster)
        test_missing(cluster)
        test_keepers(cluster)
    test_mpirun()
    tap.done()


main()
