"""The test cluster itself: it starts, runs steps on four nodes with PMIx and fake GPUs, loses and regains
a node, several live side by side, and nothing is left when it has stopped."""

import os
import re
import subprocess

import tap
from cluster import CLUSTER, Cluster, skip_without_slurm, wait_for

def belonging_to(folder):
    """Processes that have the folder in their command line or environment, this one aside."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for part in ("cmdline", "environ"):
            try:
                text = tap.read(f"/proc/{pid}/{part}")
            except OSError:
                continue
            if folder.encode() in text and int(pid) != os.getpid():
                found.append((int(pid), text[:200]))
    return found


def listening(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = tap.read(table, "r").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                yield fields[1].rsplit(":", 1)[0]


def ports_of(cluster):
    text = tap.read(cluster.env["SLURM_CONF"], "r")
    first = int(re.search(r"SlurmctldPort=(\d+)", text).group(1))
    return range(first, first + 1 + int(tap.read(cluster.folder + "/etc/nodes", "r")))


def test_steps(cluster):
    tap.same(cluster.started.returncode, 0, "the cluster starts")
    tap.same(sorted(re.findall(r"export (\w+)=", cluster.started.stdout)),
             ["LS_CLUSTER_DIR", "SLURM_CONF"], "start prints what to export")
    tap.same(cluster.control("env").stdout, cluster.started.stdout, "env prints it again")
    again = cluster.control("start")
    tap.same((again.returncode, again.stdout), (0, cluster.started.stdout),
             "a second start changes nothing")
    r = cluster.run("srun", "-N4", "hostname")
    tap.same((r.returncode, len(r.stdout.splitlines())), (0, 4), "srun -N4 hostname")
    r = cluster.run("srun", "-N4", "sh", "-c", "echo $SLURMD_NODENAME")
    tap.same(sorted(r.stdout.split()), ["n0", "n1", "n2", "n3"], "on four nodes")
    r = cluster.run("srun", "--mpi=list")
    tap.ok("pmix" in (r.stdout + r.stderr).split(), "there is PMIx", r.stdout, r.stderr)
    r = cluster.run("srun", "-N2", "--ntasks-per-node=2", "--mpi=pmix", "sh", "-c",
                    "echo $PMIX_RANK $SLURM_PROCID $PMIX_NAMESPACE")
    lines = sorted(line.split() for line in r.stdout.splitlines())
    tap.same([line[:2] for line in lines], [[str(i), str(i)] for i in range(4)],
             "a step under PMIx has the ranks of Slurm")
    tap.ok(len({tuple(line[2:]) for line in lines}) == 1 and
           all(re.fullmatch(r"slurm\.pmix\.\d+\.\d+", line[2]) for line in lines),
           "and one namespace", r.stdout, r.stderr)
    r = cluster.run("srun", "-N2", "sh", "-c", "echo none${PMIX_RANK-}")
    tap.same(r.stdout.split(), ["none", "none"], "without --mpi there is no PMIx, as on most sites")
    r = cluster.run("srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", "sh", "-c",
                    "echo $CUDA_VISIBLE_DEVICES")
    tap.same(r.stdout.split(), ["0,1", "0,1"], "fake GPUs are granted to a node")
    r = cluster.run("srun", "-n2", "-N1", "--gpus-per-task=1", "sh", "-c",
                    "echo $CUDA_VISIBLE_DEVICES")
    tap.same(sorted(r.stdout.split()), ["0", "1"], "and to a task")
    r = cluster.run("srun", "-N1", "--gpus-per-node=3", "true")
    tap.ok(r.returncode != 0, "more than there are is refused", r.stderr)
    r = cluster.run("sbatch", "-W", "-N3", "-o", "out", "--wrap", "srun echo in batch")
    tap.same((r.returncode, tap.read(cluster.scratch("out"), "r")), (0, "in batch\n" * 3), "sbatch")
    addresses = {a for port in ports_of(cluster) for a in listening(port)}
    tap.ok(addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"},
           "daemons listen on the loopback interface only", addresses)


def test_nodes(cluster):
    step = cluster.start_step("srun", "-N4", "--no-kill", "--mpi=pmix", "sh", "-c",
                              "echo $$ > pid.$SLURMD_NODENAME; setsid sleep 600 & wait")
    names = [cluster.scratch(f"pid.n{i}") for i in range(4)]
    wait_for(lambda: all(os.path.exists(n) and tap.read(n).strip() for n in names), "a step runs")
    pids = [int(tap.read(n)) for n in names]
    r = cluster.control("crash-node", "1")
    tap.same(r.returncode, 0, "crash-node")
    state = [process_runs(pid) for pid in pids]
    tap.same(state, [True, False, True, True], "the tasks of that node are gone, the others are not")
    r = cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    tap.same(r.returncode, 0, "Slurm hears of it")
    r = cluster.control("kill-node", "2")
    tap.ok(r.returncode == 0 and process_runs(pids[2]), "kill-node leaves its tasks")
    tap.same(cluster.control("kill-node", "2").returncode, 1, "once")
    for node in "12":
        tap.same(cluster.control("start-node", node).returncode, 0, f"n{node} starts again")
    cluster.run("scancel", "-u", str(os.getuid()))
    cluster.run("scancel", "--me")
    step.communicate(timeout=60)
    wait_for(lambda: cluster.run("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D")
             .stdout.split() == ["4"], "all nodes are idle again")
    for args in (["crash-node", "4"], ["crash-node"], ["kill-node", "x"], ["start-node", "-1"]):
        r = cluster.control(*args)
        tap.ok(r.returncode == 1 and "expected 0 to 3" in r.stderr, " ".join(args) + " is refused",
               r.stderr)


def process_runs(pid):
    try:
        return tap.read(f"/proc/{pid}/stat", "r").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_stop(cluster):
    folder, ports = cluster.folder, ports_of(cluster)
    step = cluster.start_step("srun", "-N4", "--mpi=pmix", "sh", "-c",
                              "touch up.$SLURMD_NODENAME; setsid sleep 600 & wait")
    waiting = cluster.start_step("srun", "-N4", "--exclusive", "true")
    wait_for(lambda: all(os.path.exists(cluster.scratch(f"up.n{i}")) for i in range(4)),
             "a step runs, and another waits")
    r = cluster.control("stop")
    tap.same((r.returncode, r.stderr), (0, ""), "stop")
    for process in (step, waiting):
        process.communicate(timeout=60)
    wait_for(lambda: not belonging_to(folder), "no process is left", 10)
    for pid, text in belonging_to(folder):
        print(f"# {pid} {text}")
    tap.ok(not os.path.exists(folder), "no directory is left")
    tap.ok(not any(list(listening(port)) for port in ports), "no port is taken any more")
    tap.same(cluster.control("stop").returncode, 0, "a second stop finds nothing to do")


def test_many(scratch):
    clusters = [Cluster(scratch, "--nodes=2", "--gpus=0") for _ in range(3)]
    starts = [subprocess.Popen([CLUSTER, "start", *c.options], env=c.env, text=True,
                               stdout=subprocess.PIPE) for c in clusters]
    for c, start in zip(clusters, starts):
        for name, value in re.findall(r"export (\w+)='(.*)'", start.communicate(timeout=120)[0]):
            c.env[name] = value
    tap.same([s.returncode for s in starts], [0, 0, 0], "three clusters start at the same time")
    ports = [port for c in clusters for port in ports_of(c)]
    tap.same(len(set(ports)), 9, "on ports of their own")
    clusters[0].control("stop")
    for c in clusters[1:]:
        tap.same(len(c.run("srun", "-N2", "hostname").stdout.split()), 2,
                 "the others go on when one has stopped")
        c.control("stop")
    tap.ok(not any(belonging_to(c.folder) for c in clusters), "nothing is left of them")


def test_usage(scratch):
    c = Cluster(scratch)
    for args, code, text in ((["--help"], 0, "Usage"), ([], 2, "Usage"), (["begin"], 2, "Usage"),
                             (["stop"], 1, "LS_CLUSTER_DIR"), (["status"], 1, "LS_CLUSTER_DIR"),
                             (["start", "--nodes=0"], 1, "at least one node"),
                             (["start", "--nodes=x"], 1, "'x'"), (["start", "--fast"], 1, "--fast"),
                             (["start", "--conf=/absent"], 1, "/absent"),
                             (["start", "--hold=tight"], 1, "--hold=tight"),
                             (["can-start"], 0, ""), (["can-start", "--nods=1"], 1, "--nods=1")):
        r = c.control(*args)
        tap.ok(r.returncode == code and text in r.stdout + r.stderr,
               f"cluster {' '.join(args)}: {code}", r.returncode, r.stdout, r.stderr)
    c.env["TMPDIR"] = scratch("a" * 80)
    os.mkdir(c.env["TMPDIR"])
    r = c.control("start")
    tap.ok(r.returncode == 1 and "too long" in r.stderr, "a path too long for sockets is refused")
    tap.same(os.listdir(c.env["TMPDIR"]), [], "and leaves nothing")
    c = Cluster(scratch)
    c.env["LS_CLUSTER_DIR"] = scratch("mine")
    os.mkdir(scratch("mine"))
    open(scratch("mine", "file"), "w").close()
    r = c.control("start")
    tap.ok(r.returncode == 1 and "somebody else" in r.stderr, "a directory with other files",
           r.stderr)
    c.control("stop")
    tap.same(os.listdir(scratch("mine")), ["file"], "which are left alone")
    conf = scratch("bad.conf")
    with open(conf, "w") as f:
        f.write("NoSuchKey=1\n")
    c = Cluster(scratch, f"--conf={conf}")
    c.env["TMPDIR"] = scratch("t")
    os.mkdir(c.env["TMPDIR"])
    r = c.control("start", *c.options)
    tap.ok(r.returncode == 1 and "did not start" in r.stderr, "a configuration that Slurm refuses",
           r.stderr)
    tap.ok(not any("lockstep-cluster." in name for name in os.listdir(c.env["TMPDIR"])) and
           not belonging_to(c.env["TMPDIR"] + "/"), "leaves nothing")


def main():
    skip_without_slurm()
    with tap.Scratch() as scratch:
        with Cluster(scratch) as cluster:
            test_steps(cluster)
            test_nodes(cluster)
            test_stop(cluster)
        test_many(scratch)
        test_usage(scratch)
    tap.done()


main()
