"""`lockstep exec` and `lockstep env` on a real cluster: one task per node, one per rank, uneven tasks, inside an
allocation; and an MPI program that finds its PMIx server."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import cluster
import frameworks
import tap

HERE = os.path.join(os.environ.get("srcdir", "."), "tests", "cli")
HELPER = os.path.join(HERE, "exec_helper.py")
LOCKSTEP = os.path.abspath(tap.program())


def exec_step(c, layout, *command, options=(), **kwargs):
    return c.run("srun", "--mpi=pmix", "--kill-on-bad-exit=0", "--mem=100", *layout, LOCKSTEP, "exec",
                 *options, "--", *command, **kwargs)


def helper(*args):
    return [sys.executable, HELPER, *args]


def told(scratch, n):
    ranks = []
    for r in range(n):
        path = scratch(f"rank-{r}.json")
        if not os.path.exists(path):
            return []
        with open(path) as f:
            ranks.append(json.load(f)["env"])
        os.unlink(path)
    return ranks


def decided(env):
    """What Lockstep itself has set for this rank, by rule."""
    listed = dict(x.split("=", 1) for x in env.get("LOCKSTEP_SET", "").split(";") if x)
    return {name: value for name, value in listed.items() if env.get(name) == value}


def test_layouts(c, scratch):
    """Returns, of each layout, what was decided for each rank."""
    rules = {}
    layouts = (
        (["-N2", "--ntasks-per-node=1"], 3, [3, 3], "one task per node, three ranks each"),
        (["-N2", "--ntasks-per-node=2"], 1, [2, 2], "one task per rank"),
        (["-N2", "--ntasks-per-node=2", "-m", "cyclic"], 1, [2, 2], "tasks dealt over nodes"),
        (["-N2", "--ntasks-per-node=2"], 2, [4, 4], "two tasks per node, two ranks each"),
        (["-N2", "-n3", "--ntasks-per-node=2"], 1, [2, 1], "uneven tasks"),
        (["-N1", "-n1"], 4, [4], "one task"),
    )
    for layout, per_task, sizes, what in layouts:
        n = sum(sizes)
        result = exec_step(c, layout, *helper("tell", scratch.path),
                           options=[f"--workers-per-task={per_task}"])
        env = told(scratch, n)
        if not tap.ok(result.returncode == 0 and len(env) == n, what, result.stdout, result.stderr):
            continue
        for name in ("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "TORCHELASTIC_RUN_ID",
                     "PMIX_NAMESPACE", "WORLD_SIZE"):
            if len({e[name] for e in env}) != 1:
                tap.ok(False, f"{what}: agree on {name}", [e[name] for e in env])
        tap.same([e["RANK"] for e in env], [str(r) for r in range(n)], f"{what}: RANK")
        groups = {}
        for e in env:
            groups.setdefault((e["GROUP_RANK"], e["SLURMD_NODENAME"]), []).append(e)
        tap.same(sorted(len(g) for g in groups.values()), sorted(sizes), f"{what}: groups are nodes")
        tap.ok(all(sorted(int(e["LOCAL_RANK"]) for e in g) == list(range(len(g))) and
                   {e["LOCAL_WORLD_SIZE"] for e in g} == {str(len(g))} for g in groups.values()),
               f"{what}: local ranks of each node")
        rules[what] = [decided(e) for e in env]
        tap.ok(all(d.get("UCX_NUM_EPS") == str(n) and d.get("NCCL_DEBUG") == "WARN" and
                   int(d.get("OMP_NUM_THREADS", 0)) >= 1 and
                   d.get("UCX_NUM_PPN") == e["LOCAL_WORLD_SIZE"] for d, e in zip(rules[what], env)),
               f"{what}: the rules were applied to each rank", rules[what])
        tap.ok(all([e["SLURM_NTASKS"], e["SLURM_STEP_NUM_TASKS"], e["SLURM_PROCID"], e["SLURM_LOCALID"]] ==
                   [str(n), str(n), e["RANK"], e["LOCAL_RANK"]] for e in env),
               f"{what}: Slurm's variables say the same of each rank, for programs that read these",
               [{k: e.get(k) for k in ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "RANK")} for e in env])
        clusters = [json.loads(e["TF_CONFIG"])["cluster"] for e in env]
        ends = clusters[0]["chief"] + clusters[0].get("worker", [])
        tap.ok(all(x == clusters[0] for x in clusters) and len(set(ends)) == n,
               f"{what}: one TensorFlow cluster", clusters[0])
        result = exec_step(c, layout, *helper("meet"), options=[f"--workers-per-task={per_task}"])
        tap.ok(result.returncode == 0 and f"met {list(range(n))}" in result.stdout,
               f"{what}: they meet at the master's port", result.stdout, result.stderr)
    return rules


def test_rules(c, scratch):
    """The user's own stay; the check comes first; a bad setting of one task ends all of them, with one message."""
    layout = ["-N2", "--ntasks-per-node=1"]
    c.env.update(NCCL_DEBUG="INFO", OMP_NUM_THREADS="7")
    result = exec_step(c, layout, *helper("tell", scratch.path), options=["--workers-per-task=2"])
    env = told(scratch, 4)
    tap.same([(e["NCCL_DEBUG"], e["OMP_NUM_THREADS"]) for e in env], [("INFO", "7")] * 4,
             "what the user has set stays")
    tap.ok(env and not any(n in decided(e) for e in env for n in ("NCCL_DEBUG", "OMP_NUM_THREADS")),
           "and is not taken for ours", result.stderr)
    del c.env["NCCL_DEBUG"], c.env["OMP_NUM_THREADS"]
    for what, change, part in (("a bad setting", "LOCKSTEP_TRANSPORT=udp", "LOCKSTEP_TRANSPORT"),
                               ("Slurm's variables", "SLURM_PROCID=x", "SLURM_PROCID")):
        result = c.run("srun", "--mpi=pmix", "--kill-on-bad-exit=0", "--mem=100", *layout, "sh", "-c",
                       f'[ $SLURM_NODEID = 1 ] && export {change}; exec "$0" exec -- sleep 1000', LOCKSTEP)
        tap.ok(result.returncode == 125 and result.stderr.count(part) == 1 and
               re.search(r"task 1 on n\d cannot take part", result.stderr),
               f"{what} of one task: all end, one tells", result.returncode, result.stderr)
    c.env["LOCKSTEP_CHECK"] = "fast"
    result = exec_step(c, layout, "echo", "started")
    tap.ok(result.returncode == 0 and result.stdout.count("started") == 2, "the check comes first",
           result.stdout, result.stderr)
    del c.env["LOCKSTEP_CHECK"]
    result = c.run("srun", "--mpi=pmix", "--mem=100", *layout, "env", "LOCKSTEP_CHECK=fsat", LOCKSTEP, "exec",
                   "echo", "started")
    tap.ok(result.returncode == 125 and "started" not in result.stdout and "LOCKSTEP_CHECK" in result.stderr,
           "a word that is none starts nothing", result.stdout, result.stderr)


def starting_line(text):
    found = re.search(r"^in an allocation, starting: (.*)$", text, re.M)
    return found.group(1) if found else ""


def test_own_layout(c, scratch):
    """Whatever numbers of tasks, CPUs and GPUs the allocation was made with, its own step has one task on every
    node with all that the job has there; and the line that it prints does the same."""
    tell = helper("tell", scratch.path)
    for args, gpus in ((["-n8"], None), (["-n3"], None), (["--ntasks-per-node=2"], None),
                       (["-n4", "-c2", "-m", "cyclic", "--mem-bind=local"], None),
                       (["-n4", "--gpus=4"], "0,1"),
                       (["-n4", "--gpus=4", "--ntasks-per-gpu=1"], "0,1"),
                       (["--ntasks-per-node=2", "--gpus-per-task=1"], "0,1"),
                       (["--ntasks-per-node=2", "--gpus-per-node=2", "--gpu-bind=single:1"], "0,1")):
        what = "-N2 " + " ".join(args)
        for way in ("salloc", "sbatch"):
            command = [LOCKSTEP, "exec", "--workers-per-task=1", "--", *tell]
            if way == "salloc":
                result = c.run("salloc", "-N2", "--mem=100", *args, *command)
                text = result.stderr
            else:
                result = c.run("sbatch", "--wait", "-N2", "--mem=100", "-o", scratch("own.out"), *args,
                               "--wrap", shlex.join(command))
                text = result.stderr + tap.read(scratch("own.out"), "r")
            env = told(scratch, 2)
            tap.ok(result.returncode == 0 and [e["WORLD_SIZE"] for e in env] == ["2", "2"] and
                   len({e["SLURMD_NODENAME"] for e in env}) == 2,
                   f"{way} {what}: one task on every node", text)
            tap.same([e.get("CUDA_VISIBLE_DEVICES") for e in env], [gpus] * len(env),
                     f"{way} {what}: with all GPUs")
        line = starting_line(text)
        result = c.run("sbatch", "--wait", "-N2", "--mem=100", "-o", scratch("line.out"), *args, "--wrap", line)
        env = told(scratch, 2)
        tap.ok(result.returncode == 0 and len({e["SLURMD_NODENAME"] for e in env}) == 2 and
               [e.get("CUDA_VISIBLE_DEVICES") for e in env] == [gpus, gpus],
               f"{what}: the printed line does the same", line, tap.read(scratch("line.out"), "r"))
    for way in ("salloc", "sbatch"):
        command = [LOCKSTEP, "exec", "--", "true"]
        if way == "salloc":
            result = c.run("salloc", "-N1", "--mem=100", ":", "-N2", "--mem=100", *command)
            text = result.stderr
        else:
            script = scratch("het.sh")
            with open(script, "w") as f:
                f.write("#!/bin/bash\n#SBATCH -N1 --mem=100\n#SBATCH hetjob\n#SBATCH -N2 --mem=100\n" +
                        shlex.join(command) + "\n")
            result = c.run("sbatch", "--wait", "-o", scratch("het.out"), script)
            text = tap.read(scratch("het.out"), "r")
        tap.ok(result.returncode == 125 and "is heterogeneous, with 2 components" in text and
               "--het-group=0-1" in text, f"{way} of a heterogeneous job: what to type", result.returncode, text)


def test_gpus(c, scratch):
    """Without --workers-per-task: one rank for each GPU of the task."""
    for args, ranks in ((["--ntasks-per-node=1", "--gpus-per-node=2"], 2), (["--ntasks-per-node=1"], 1),
                        (["--ntasks-per-node=2", "--gpus-per-node=2"], 1),
                        (["--ntasks-per-node=1", "--gpus-per-task=2"], 2),
                        (["--ntasks-per-node=2", "--gpus-per-task=1"], 1)):
        tasks = 2 if "--ntasks-per-node=2" in args else 1
        result = exec_step(c, ["-N1", *args], *helper("tell", scratch.path))
        env = told(scratch, tasks * ranks)
        tap.same((result.returncode, [e["WORLD_SIZE"] for e in env]), (0, [str(tasks * ranks)] * tasks * ranks),
                 "ranks of srun " + " ".join(args))
        tap.same(f"{ranks} ranks in a task, one for each of its GPUs" in result.stderr, ranks > 1,
                 f"and {'says so' if ranks > 1 else 'says nothing'}")
    result = exec_step(c, ["-N1", "--gpus-per-node=2"], *helper("tell", scratch.path),
                       options=["--workers-per-task=1"])
    tap.same((result.returncode, len(told(scratch, 1))), (0, 1), "one is what was asked for")


def test_allocation(c, scratch):
    result = c.run("salloc", "-N2", "--mem=100", LOCKSTEP, "exec", "--workers-per-task=2", "--",
                   *helper("tell", scratch.path))
    env = told(scratch, 4)
    tap.ok(result.returncode == 0 and len(env) == 4 and "starting: srun --mpi=pmix" in result.stderr,
           "in salloc it starts its own step, and shows the line", result.stdout, result.stderr)
    test_own_layout(c, scratch)
    test_gpus(c, scratch)
    script = scratch("job.sh")
    with open(script, "w") as f:
        f.write(f"#!/bin/bash\n{LOCKSTEP} exec -- {' '.join(helper('tell', scratch.path))}\n")
    result = c.run("sbatch", "--wait", "-N3", "--mem=100", "--output", scratch("job.out"), script)
    env = told(scratch, 3)
    tap.ok(result.returncode == 0 and [e["WORLD_SIZE"] for e in env] == ["3"] * 3, "in sbatch, too",
           tap.read(scratch("job.out"), "r"), result.stderr)


def test_ends(c, scratch):
    layout = ["-N2", "-w", "n0,n1", "--ntasks-per-node=1"]
    result = exec_step(c, layout, "sh", "-c", "[ $RANK = 3 ] || sleep 1000; echo oops >&2; exit 42",
                       options=["--workers-per-task=2"])
    text = result.stderr
    tap.ok(result.returncode == 42 and "rank 3 on n1 failed first: exited with status 42" in text and
           "  | oops" in text, "a failing rank is named with its node and last lines", text)
    result = exec_step(c, layout, "no-such-program")
    tap.ok(result.returncode == 127 and "no-such-program" in result.stderr, "127", result.stderr)
    result = exec_step(c, layout, "sleep", "1000", options=["--timeout=0.5"])
    tap.ok(result.returncode == 124 and "0.5 s" in result.stderr, "124", result.stderr)
    result = c.run("srun", "--mpi=none", "-N2", "--mem=100", LOCKSTEP, "exec", "true")
    tap.ok(result.returncode == 125 and "--mpi=pmix" in result.stderr, "without PMIx: what to type",
           result.stderr)
    # As in an image whose libpmix lacks what Slurm's demands.
    result = c.run("srun", "--mpi=pmix", "--mem=100", *layout, "env", "PMIX_SECURITY_MODE=munge", LOCKSTEP, "exec",
                   "true")
    tap.ok(result.returncode == 125 and "asks for version" in result.stderr and "security by munge" in result.stderr and
           "container" in result.stderr, "a PMIx module that is missing here: which, and what to do", result.stderr)
    # The host where somebody typed srun is not where rank 0 is.
    result = c.run("srun", "--mpi=pmix", "--mem=100", *layout, "env", "SLURM_LAUNCH_NODE_IPADDR=192.0.2.7",
                   "SLURM_SRUN_COMM_HOST=192.0.2.7", LOCKSTEP, "exec", "--workers-per-task=2", "--", *helper("meet"))
    tap.ok(result.returncode == 0 and "met [0, 1, 2, 3]" in result.stdout,
           "ranks meet at rank 0's machine, not at the one that srun was started on", result.stdout, result.stderr)
    result = exec_step(c, layout, "sh", "-c", "echo $RANK; echo x >&2",
                       options=["--label", "--workers-per-task=2"])
    tap.same(sorted(result.stdout.split("\n")[:-1]), [f"[{r}@n{r // 2}] {r}" for r in range(4)],
             "labels name the nodes")
    exec_step(c, layout, "sh", "-c", "echo $RANK",
              options=["-o", scratch("out") + "/%h/%l", "--workers-per-task=2"])
    tap.same([tap.read(scratch("out", f"n{r // 2}", str(r % 2)), "r") for r in range(4)],
             [f"{r}\n" for r in range(4)], "a file for each rank of each node")


class Listeners:
    """Four ranks on two nodes that note the signals they hear, and end on TERM."""

    def __init__(self, c, scratch):
        for r in range(4):
            for name in (f"signals-{r}", f"signals-{r}.ready"):
                if os.path.exists(scratch(name)):
                    os.unlink(scratch(name))
        self.scratch = scratch
        self.step = c.start_step("srun", "--mpi=pmix", "--kill-on-bad-exit=0", "--mem=100", "-N2",
                                 "--ntasks-per-node=1", LOCKSTEP, "exec", "--workers-per-task=2", "--",
                                 *helper("hear", scratch.path))
        self.wait(lambda: all(os.path.exists(scratch(f"signals-{r}.ready")) for r in range(4)),
                  "four ranks listen")

    def wait(self, condition, what):
        end = time.monotonic() + 60
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        tap.ok(condition(), what)

    def heard(self):
        paths = [self.scratch(f"signals-{r}") for r in range(4)]
        return [tap.read(p, "r").split() if os.path.exists(p) else [] for p in paths]

    def wait_heard(self, name, what):
        self.wait(lambda: all("SIG" + name in h for h in self.heard()), what)

    def end(self, names, what):
        out, _ = self.step.communicate(timeout=60)
        tap.same(self.heard(), [["SIG" + n for n in names]] * 4, what)
        tap.ok(self.step.returncode == 0, "and ends well", self.step.returncode, out)


def test_signals(c, scratch):
    listeners = Listeners(c, scratch)
    job = c.run("squeue", "-h", "-s", "-o", "%i").stdout.split()
    (step_id,) = [s for s in job if s.endswith(".0")]
    for name in ("USR1", "USR2", "TERM"):
        c.run("scancel", f"--signal={name}", step_id)
        listeners.wait_heard(name, f"all ranks hear {name} from Slurm")
    listeners.end(["USR1", "USR2", "TERM"], "each of them once")


def test_slow_node(c, scratch):
    """Slurm signals every task, and where it signals only these, every keeper passes it on: one that hears it long
    after the others must not make their ranks hear it again."""
    listeners = Listeners(c, scratch)
    first, second = (int(tap.read(scratch(f"signals-{r}.ready"), "r")) for r in (0, 2))
    os.kill(first, signal.SIGUSR1)
    listeners.wait_heard("USR1", "a keeper passes a signal on to all nodes")
    time.sleep(1.2)  # longer than keepers take for one request in any case
    os.kill(second, signal.SIGUSR1)
    os.kill(second, signal.SIGUSR2)
    listeners.wait_heard("USR2", "the slow one hears it, and then another one")
    os.kill(first, signal.SIGTERM)
    listeners.end(["USR1", "USR2", "TERM"], "no rank hears the first one twice")


def test_env(c):
    show = 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT"'
    line = f'eval "$({LOCKSTEP} env)" || exit 9; {show}'
    result = c.run("srun", "--mpi=pmix", "--mem=100", "-N2", "--ntasks-per-node=2", "bash", "-c", line)
    seen = sorted(x.split() for x in result.stdout.splitlines())
    tap.ok(result.returncode == 0 and [x[:3] for x in seen] ==
           [[str(r), "4", str(r % 2)] for r in range(4)] and len({x[3] for x in seen}) == 1,
           "env in the tasks of a step", result.stdout, result.stderr)
    for tasks, per_task in ((1, 2), (2, 2)):
        n = 2 * tasks * per_task
        result = exec_step(c, ["-N2", f"--ntasks-per-node={tasks}"], "bash", "-c", f"a=$RANK/$WORLD_SIZE; {line} $a",
                           options=[f"--workers-per-task={per_task}"])
        seen = sorted((x.split() for x in result.stdout.splitlines()), key=lambda x: int(x[0]))
        tap.ok(result.returncode == 0 and [x[0] + "/" + x[1] for x in seen] == [x[4] for x in seen] ==
               [f"{r}/{n}" for r in range(n)], f"env within exec, {per_task} ranks in each of {2 * tasks} tasks",
               result.stdout, result.stderr)
    result = c.run("srun", "--mpi=none", "--mem=100", "-N2", "bash", "-c", line)
    tap.ok(result.returncode == 9 and "--mpi=pmix" in result.stderr,
           "without PMIx eval fails, and nobody is a world of one", result.stdout, result.stderr)
    result = c.run("salloc", "-N2", "--mem=100", "bash", "-c", line)
    tap.ok(result.returncode == 9 and "every task" in result.stderr, "nor in an allocation",
           result.stdout, result.stderr)


def test_mpi(c, scratch):
    """Open MPI, which knows nothing of us, finds the keeper's PMIx server."""
    if not shutil.which("mpicc"):
        tap.ok(True, "an Open MPI program # SKIP found no mpicc; on Debian: apt-get install libopenmpi-dev")
        return
    program = scratch("allreduce")
    built = subprocess.run(["mpicc", os.path.join(HERE, "allreduce.c"), "-o", program], check=False,
                           capture_output=True, text=True)
    if not tap.ok(built.returncode == 0, "mpicc", built.stderr):
        return
    # Nodes that share a machine share /dev/shm, where Open MPI names files by host and local rank.
    c.env["OMPI_MCA_btl"] = "self,tcp"
    for layout, per_task, n in ((["-N2", "--ntasks-per-node=1"], 2, 4),
                                (["-N2", "--ntasks-per-node=2"], 1, 4), (["-N3", "-n3"], 1, 3)):
        result = exec_step(c, layout, program, options=[f"--workers-per-task={per_task}"])
        tap.same(sorted(result.stdout.splitlines()),
                 [f"rank {r} of {n}: sum {n * (n + 1) // 2}" for r in range(n)],
                 f"an MPI allreduce of {n} ranks, {per_task} in a task")
    result = exec_step(c, ["-N2", "-w", "n0,n1", "--ntasks-per-node=1"], program, "7",
                       options=["--workers-per-task=2"])
    tap.ok(result.returncode == 7 and "rank 1 on n0 failed first: aborted" in result.stderr,
           "MPI_Abort ends all ranks with its status", result.returncode, result.stderr)


def submit(c, script, **extra):
    c.env.update(extra)
    result = c.run("sbatch", "--parsable", "--mem=100", "--exclusive=user", script)
    return result.stdout.strip()


def wait_text(scratch, name, text, seconds=120):
    end = time.monotonic() + seconds
    seen = ""
    while text not in seen and time.monotonic() < end:
        time.sleep(0.1)
        seen = tap.read(scratch(name), "r") if os.path.exists(scratch(name)) else ""
    return seen


def test_templates(c, scratch):
    """exec-pytorch saves and is requeued, goes on from there; container-apptainer with a stand-in."""
    python = frameworks.find(frameworks.TORCH)
    if not python:
        print("# SKIPPED: the PyTorch and container templates were NOT tried")
        return
    for name in ("exec-pytorch.py", "exec-pytorch.sbatch", "container-apptainer.sbatch"):
        shutil.copy(os.path.join(os.environ.get("srcdir", "."), "sbatch_templates", name), scratch(name))
    with open(scratch("apptainer"), "w") as f:  # drops options and image, as nothing is mounted here
        f.write('#!/bin/bash\nshift\nwhile [[ $1 == --* ]]; do shift 2; done\nshift\n'
                'echo contained >>"$PWD/contained"\nexec "$@"\n')
    os.chmod(scratch("apptainer"), 0o755)
    c.env["PATH"] = os.path.dirname(LOCKSTEP) + ":" + c.env["PATH"]
    job = submit(c, scratch("exec-pytorch.sbatch"), PYTHON=python, STEPS="100000000")
    text = wait_text(scratch, f"exec-pytorch-{job}.out", "step 100 ")
    tap.ok("step 100 " in text, "exec-pytorch: four ranks on two nodes train", text)
    c.run("scancel", "--signal=USR1", f"{job}.0")
    text = wait_text(scratch, f"exec-pytorch-{job}.out", "requeue 1")
    tap.ok("saved after step" in text and "requeue 1" in text, "USR1: saved, and requeued on exit 75", text)
    c.run("scancel", job)
    saved = int(text.split("saved after step ")[1].split(",")[0])
    job = submit(c, scratch("exec-pytorch.sbatch"), STEPS=str(saved + 200))
    text = wait_text(scratch, f"exec-pytorch-{job}.out", f"saved after step {saved + 200}")
    tap.ok(f"saved after step {saved + 200}" in text and "step 0 " not in text, "and goes on from there",
           saved, text)
    job = submit(c, scratch("container-apptainer.sbatch"), STEPS=str(saved + 300),
                 APPTAINER=scratch("apptainer"))
    text = wait_text(scratch, f"container-apptainer-{job}.out", f"saved after step {saved + 300}")
    tap.ok(f"saved after step {saved + 300}" in text and
           tap.read(scratch("contained"), "r").count("contained") == 4,
           "container-apptainer: every rank in a container of its own", text)


def main():
    cluster.skip_without_slurm()
    with tap.Scratch() as scratch, cluster.Cluster(scratch) as c:
        with_plugin = test_layouts(c, scratch)
        test_rules(c, scratch)
        test_allocation(c, scratch)
        test_ends(c, scratch)
        test_signals(c, scratch)
        test_slow_node(c, scratch)
        test_env(c)
        test_mpi(c, scratch)
        test_templates(c, scratch)
    with tap.Scratch() as scratch, cluster.Cluster(scratch, "--spank=no") as c:
        tap.same(test_layouts(c, scratch), with_plugin, "without the plugin, the same is decided for every rank")
        test_rules(c, scratch)
    tap.done()


main()
