"""Steps that Slurm holds by task plugins and control groups, with Lockstep's plugin as `required`: no option and no
configuration drains a node, a task sees the GPUs of its step and no others, and nothing outlives a job."""

import glob
import os
import re
import sys

import tap
import test_spank as spank
from cluster import CLUSTER, Cluster, obstacles, skip_without_slurm, wait_for

GROUPS = "/sys/fs/cgroup"
GPUS = ("0000:01:00.0", "0000:02:00.0")
# What the kernel says when a task opens the fake GPUs; none has a driver.
OPEN = """
import errno, os
for g in range(2):
    try:
        os.close(os.open(f"%s/dev/gpu{g}", os.O_RDWR))
    except OSError as e:
        print(f"gpu{g}", errno.errorcode[e.errno])
"""
# In a session of its own, a child of nobody, deaf to what Slurm says first.
STRAY = "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 100; done' </dev/null >/dev/null 2>&1 &)"


def required(c, words=""):
    return spank.plugstack(c, f"required {spank.SPANK} {words}\n")


def groups(c, inside=""):
    """Control groups of the cluster's nodes."""
    nodes = tap.read(c.folder + "/etc/nodes", "r").strip() if os.path.isdir(c.folder) else "4"
    return [path for n in range(int(nodes)) for path in glob.glob(f"{GROUPS}/*/slurm_n{n}{inside}")]


def cores(c):
    """Of a node, as Slurm counts them: it gives jobs whole ones."""
    conf = tap.read(c.env["SLURM_CONF"], "r")
    sockets, each = re.search(r"SocketsPerBoard=(\d+) CoresPerSocket=(\d+)", conf).groups()
    return min(int(sockets) * int(each), len(os.sched_getaffinity(0)))


# ---- tasks -------------------------------------------------------------------------------------


def make_tree(c, scratch):
    """A machine whose GPUs are those that Slurm grants: the same devices, by their numbers."""
    tree = scratch("tree")
    os.makedirs(tree + "/dev")
    os.symlink("/sys", tree + "/sys")
    for g, address in enumerate(GPUS):
        os.makedirs(f"{tree}/proc/driver/nvidia/gpus/{address}")
        with open(f"{tree}/proc/driver/nvidia/gpus/{address}/information", "w") as f:
            f.write(f"Model: \t\t NVIDIA A100-SXM4-80GB\nDevice Minor: \t {g}\n")
        os.mknod(f"{tree}/dev/nvidia{g}", 0o20666, os.stat(f"{c.folder}/dev/gpu{g}").st_rdev)
    return tree


def explained(result):
    """rank -> GPUs that the plugin chose for it, and what is said of CPUs."""
    return (dict(re.findall(r"rank (\d+): GPUs (.*?);", result[1])),
            sorted(set(re.findall(r"rank \d+: (CPUs (?:\S+: |are ).*)", result[1]))))


def test_devices(c):
    """Without the plugin: the cluster does what it is there for."""
    for gpus, want in ((2, ["gpu0 ENXIO", "gpu1 ENXIO"]), (1, ["gpu0 ENXIO", "gpu1 EPERM"]),
                       (0, ["gpu0 EPERM", "gpu1 EPERM"])):
        r = c.run("srun", "-N1", *[f"--gpus-per-node={gpus}"] * (gpus > 0), sys.executable, "-c", OPEN % c.folder)
        tap.same((r.returncode, r.stdout.splitlines()), (0, want), f"{gpus} GPUs are granted, and no others opened")


def test_gpus(c, tree):
    show = 'echo task $SLURM_PROCID sees $CUDA_VISIBLE_DEVICES'
    for args, want in ((["--gpus-per-node=2"], {"0": " ".join(GPUS)}), (["--gpus-per-node=1"], {"0": GPUS[0]}),
                       ([], {"0": "none"})):
        with required(c, f"root={tree}"):
            got = spank.srun(c, "-N1", "--lockstep-explain", *args)
        tap.ok(got[0] == 0 and explained(got)[0] == want, f"{args or 'no GPU'}: the task has {want['0']}", got)
    if cores(c) < 2:
        print("# WARNING: one core: two tasks of a node, and two jobs on it, are NOT tested")
        return
    with required(c, f"root={tree}"):
        got = spank.srun(c, "-N1", "-n2", "--gpus-per-task=1", "--lockstep-explain", script=show)
        tap.ok(got[0] == 0 and set(re.findall(r"task \d sees .*", got[1])) == {"task 0 sees 0", "task 1 sees 0"},
               "each of two tasks sees GPU 0", got)
        tap.same(explained(got)[0], dict(zip("01", GPUS)), "which is another for each, as the plugin knows")
        # The second job of a node: its only GPU, 0 to it, is the second of the machine.
        holder = c.start_step("srun", "-N1", "-n1", "-w", "n2", "--gpus-per-node=1", "sh", "-c",
                              f"touch {c.scratch('held')}; cat {c.scratch('fifo')}")
        os.mkfifo(c.scratch("fifo"))
        wait_for(lambda: os.path.exists(c.scratch("held")), "a job holds GPU 0")
        got = spank.srun(c, "-N1", "-n1", "-w", "n2", "--gpus-per-node=1", "--lockstep-explain", script=show)
        with open(c.scratch("fifo"), "w"):
            pass
        tap.same(holder.wait(60), 0, "to its end")
        tap.ok("task 0 sees 0" in got[1] and explained(got)[0] == {"0": GPUS[1]},
               "GPU 0 of the job beside it is the second", got)


def test_masks(c, tree=None):
    if cores(c) < 2:
        print("# WARNING: one core: CPUs of one's own are NOT tested")
        return
    show = "echo task $SLURM_PROCID on $(grep Cpus_allowed_list /proc/self/status)"
    with required(c, f"root={tree}" if tree else ""):
        got = spank.srun(c, "-N1", "-n2", "--lockstep-explain", script=show)
    masks = re.findall(r"task \d on Cpus_allowed_list:\s*(\S+)", got[1])
    tap.ok(got[0] == 0 and len(set(masks)) == 2, "Slurm gives each task CPUs of its own", got)
    tap.same(explained(got)[1], ["CPUs are left as they are: Slurm has given this task CPUs of its own"],
             "and the plugin leaves them")


# ---- lockstep ----------------------------------------------------------------------------------


def test_lockstep(c):
    program = os.path.join(spank.BUILD, "lockstep")
    step = ("srun", "-N2", "--ntasks-per-node=1", "-w", "n[0-1]", "--mpi=pmix")
    with required(c):
        r = c.run(*step, program, "check", "--fast")
        tap.ok(r.returncode == 0 and " 0 failed" in r.stdout, "lockstep check on two nodes", r.stdout, r.stderr)
        if not os.path.exists(os.path.join(spank.BUILD, "plugins/lockstep_cpu.so")):
            print("# WARNING: no CPU backend was built: training is NOT tested")
            return
        tap.make_set(c.scratch("train"), 256)
        tap.make_set(c.scratch("test"), 64)
        with open(c.scratch("job.cfg"), "w") as f:
            f.write(tap.job_text(c.scratch.path))
        r = c.run(*step, program, "run", "--json", "job.cfg")
        record = tap.record(r)
        tap.same((r.returncode, record.get("status"), record.get("ranks"), record.get("steps")), (0, "done", 2, 20),
                 "lockstep run trains on two nodes")
        for line in r.stderr.splitlines()[-20:] * (r.returncode != 0):
            print("#", line)


# ---- ends --------------------------------------------------------------------------------------


def held(c, name):
    """Processes of a job of `submit`, wherever they have gone."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            if f"LS_HELD={c.folder}/{name}".encode() in tap.read(path).split(b"\0"):
                found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def submit(c, name, *args):
    """A batch job on one node that leaves strays behind in its script and in its step."""
    with open(c.scratch(name), "w") as f:
        f.write(f"#!/bin/sh\nexport LS_HELD={c.folder}/{name}\n{STRAY}\nsrun -n1 sh -c '" +
                STRAY.replace("'", "'\\''") + f"; touch {c.scratch(name)}.up; sleep 1000'\n")
    r = c.run("sbatch", "--parsable", "-o", "/dev/null", *args, name)
    wait_for(lambda: os.path.exists(c.scratch(name + ".up")) and len(held(c, name)) >= 6,
             f"a job runs ({name}): script, step, and a stray of each")
    return r.stdout.strip()


def ends(c, name, job, state, seconds=60):
    wait_for(lambda: not held(c, name), f"nothing of it is left ({name})", seconds)
    wait_for(lambda: c.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.split() == [state],
             f"its state is {state}")
    wait_for(lambda: not groups(c, f"/*/job_{job}"), "nor its control groups")


def test_ends(c, tree):
    """A time limit takes a minute at least, in which the other tests of lockstep and of GPUs run."""
    with required(c):
        limited = submit(c, "limit", "-w", "n3", "-t", "1")
        test_lockstep(c)
        cancelled = submit(c, "cancel", "-w", "n2")
        c.run("scancel", cancelled)
        ends(c, "cancel", cancelled, "CANCELLED")
    test_gpus(c, tree)
    test_masks(c, tree)
    ends(c, "limit", limited, "TIMEOUT", 150)
    tap.same(spank.drained(c), "", "all nodes are in service")


def test_power_cut(c):
    with required(c):
        submit(c, "cut", "-w", "n1", "--no-requeue")
        tap.same((c.control("crash-node", "1").returncode, held(c, "cut")), (0, []), "a power cut leaves no process")
        tap.same(glob.glob(f"{GROUPS}/*/slurm_n1/*/"), [], "and no control group")
        c.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
        tap.same(c.control("start-node", "1").returncode, 0, "the node starts again")
        wait_for(lambda: c.run("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D").stdout.split() == ["4"],
                 "and is in service")


def test_stop(c, scratch):
    """Also where Slurm would have died between freezing and killing. A second cluster waits for that."""
    second = Cluster(scratch, "--hold=cgroup", "--nodes=1", "--gpus=0", "--spank=no")
    second.env["LS_CLUSTER_DIR"] = scratch("second")
    try:
        starting = second.start_step(CLUSTER, "start", *second.options)
        submit(c, "stop", "-w", "n0")
        wait_for(lambda: os.path.exists(scratch("second", ".lockstep-cluster")), "another cluster wants to start")
        tap.same((starting.poll(), os.path.exists(scratch("second", "groups"))), (None, False), "and waits")
        frozen = [path for path in groups(c, "/uid_*/job_*/step_*/freezer.state") if "/freezer/" in path]
        for path in frozen:
            with open(path, "w") as f:
                f.write("FROZEN")
        tap.ok(len(frozen) >= 2, "the steps of a job are frozen", frozen)
        r = c.control("stop")
        tap.same((r.returncode, r.stderr), (0, ""), "stop")
        wait_for(lambda: not held(c, "stop"), "no process is left", 10)
        tap.ok(starting.wait(60) == 0, "the other cluster starts", starting.stdout.read())
        tap.same((second.control("stop").returncode, groups(c), os.path.exists(c.folder)), (0, [], False),
                 "nor a control group, nor a directory of either")
    finally:
        second.control("stop")


def hostile(c):
    with required(c):
        spank.hostile_options(c)
    spank.hostile_configs(c, ("required",))
    spank.forged_options(c)
    spank.mixed_installs(c)


def with_groups(scratch):
    with Cluster(scratch, "--hold=cgroup") as c:
        tree = make_tree(c, scratch)
        test_devices(c)
        test_ends(c, tree)
        hostile(c)
        test_power_cut(c)
        test_stop(c, scratch)


def with_affinity(scratch, alone):
    with Cluster(scratch, "--hold=affinity") as c:
        test_masks(c)
        if alone:
            hostile(c)


def main():
    skip_without_slurm()
    if not os.path.exists(spank.SPANK):
        print("1..0 # SKIP the Slurm plugins are not built: configure found no Slurm headers")
        return
    with tap.Scratch() as scratch:
        why = obstacles("--hold=cgroup")
        if why:
            tap.ok(True, "control groups # SKIP " + why)
        else:
            with_groups(scratch)
        with_affinity(scratch, bool(why))
    tap.done()


if __name__ == "__main__":
    main()
