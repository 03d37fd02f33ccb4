"""`lockstep run` on a real Slurm cluster: every layout trains the same, and every fault has a message and an
end, and leaves nothing behind."""

import ctypes
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from types import SimpleNamespace

import cluster
import tap
from jobs import has_checkpoint, output, prepare, running, set_length, submit, wait_state

LONG = "train.steps=1000000000"
HERE = os.path.dirname(os.path.abspath(tap.program()))
WORKER = os.path.join(HERE, "lockstep-worker")
PMIX = ("srun", "--mpi=pmix", "--kill-on-bad-exit=0")


# ---- small tools ---------------------------------------------------------------------------------

def write_job(scratch, name, **kwargs):
    path = scratch(name + ".cfg")
    with open(path, "w") as f:
        f.write(tap.job_text(scratch.path, name, **kwargs))
    return path


def environment(pid):
    try:
        pairs = tap.read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return {}
    return dict(p.decode(errors="replace").split("=", 1) for p in pairs if b"=" in p)


def processes(c, program=None):
    """pid -> name of its node, of our programs on this cluster."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            continue
        if exe == program or (program is None and exe in ("lockstep", "lockstep-worker")):
            env = environment(pid)
            if env.get("SLURM_CONF") == c.env["SLURM_CONF"]:
                found[int(pid)] = env.get("SLURMD_NODENAME", "")
    return found


def on_node(found, node):
    return [pid for pid, name in sorted(found.items()) if name == node]


def left_over(c, scratch):
    """What a run has left: processes, and files. Shared memory and the sockets beside it have no names in a file
    system: they live as long as a process does."""
    found = [f"process {p} on {n}" for p, n in processes(c).items()]
    found += [f"/dev/shm/{n}" for n in os.listdir("/dev/shm") if "lockstep" in n]
    for top in (scratch("tmp"), os.path.join(c.folder, "tmp")):
        found += [os.path.join(folder, n) for folder, _, names in os.walk(top) for n in names]
    return found + [scratch("tmp", n) for n in os.listdir(scratch("tmp"))]


def check_clean(c, scratch, what):
    end = time.monotonic() + 20
    while left_over(c, scratch) and time.monotonic() < end:
        time.sleep(0.02)
    tap.same(left_over(c, scratch), [], f"{what}: nothing is left behind")


def losses(path):
    return [x["loss"] for x in map(json.loads, tap.read(path, "r").splitlines())
            if x["type"] == "step"]


def last_line(text):
    """The last line of ours: srun adds its own, and PMIx and libevent complain of clients that were killed."""
    others = r"srun:|slurmstepd\S*:|salloc:|\[warn\]|\[\S+:\d+\] PMIX ERROR"
    lines = [x for x in text.splitlines() if x.strip() and not re.match(others, x)]
    return lines[-1] if lines else ""


# ---- every layout trains the same ----------------------------------------------------------------

def record_of(result):
    for line in reversed(result.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


class Reference:
    """What one rank without Slurm does: the loss of every step."""

    def __init__(self, scratch, job, name):
        self.job, self.name, self.scratch, self.runs = job, name, scratch, 0
        self.record = tap.record(tap.run("run", "--json", "--set", self.place(), job))
        self.losses = losses(self.folder("metrics.jsonl"))

    def place(self):
        self.runs += 1
        return f"checkpoint.dir={self.folder()}"

    def folder(self, *parts):
        return self.scratch(f"{self.name}-{self.runs}.ckpt", *parts)

    def check(self, result, ranks, what):
        r = record_of(result)
        got = (result.returncode, r.get("status"), r.get("ranks"), r.get("steps"))
        if not tap.same(got, (0, "done", ranks, self.record["steps"]), f"{what}: {ranks} ranks train"):
            print("#", result.stdout[-2000:], result.stderr[-2000:])
            return
        mine = losses(self.folder("metrics.jsonl"))
        worst = max(abs(a - b) / abs(b) for a, b in zip(mine, self.losses))
        tap.ok(len(mine) == len(self.losses) and worst < 1e-4,
               f"{what}: the losses of one rank, step by step", worst, mine, self.losses)
        tap.ok(math.isclose(r["test_loss"], self.record["test_loss"], rel_tol=1e-3),
               f"{what}: the test loss of one rank", r["test_loss"], self.record["test_loss"])


def layout_lines(result):
    """rank -> node, as the keepers say it."""
    return {int(r): n for r, n in re.findall(r"^  rank (\d+) on (\w+), CPUs", result.stderr, re.M)}


def test_layouts(c, scratch):
    job = write_job(scratch, "layout",
                    train="steps = 24; global_batch = 32; micro_batch = 4; eval_every = 0;")
    want = Reference(scratch, job, "layout")
    run = (tap.program(), "run", "--json")

    def step(*args):
        return c.run(*args, "--set", want.place(), job)

    for what, args, ranks, spread in (
            ("one node", ("-N1", "-n1"), 1, None),
            ("two nodes", ("-N2", "--ntasks-per-node=1"), 2, [1, 1]),
            ("four nodes", ("-N4", "--ntasks-per-node=1"), 4, [1, 1, 1, 1]),
            ("8 x 1", ("-N4", "--ntasks-per-node=2"), 8, [2, 2, 2, 2]),
            ("uneven tasks", ("-N2", "-n3"), 3, [1, 2])):
        result = step(*PMIX, *args, *run)
        want.check(result, ranks, what)
        if spread:
            nodes = list(layout_lines(result).values())
            tap.same(sorted(nodes.count(n) for n in set(nodes)), spread,
                     f"{what}: the keepers say who runs where")
    result = step(*PMIX, "-N4", "--ntasks-per-node=1", *run, "--workers-per-task", "2")
    want.check(result, 8, "4 x 2 workers")
    tap.ok("8 ranks: 2 on each of 4 keepers" in result.stderr, "4 x 2 workers: said", result.stderr)
    want.check(step(*PMIX, "-N1", "-n1", "-c4", *run, "--workers-per-task", "8"), 8, "1 x 8 workers")
    result = c.run(*PMIX, "-N1", "-n1", *run, "--set", want.place(), job, ":", "-N2", "-n2", *run,
                   "--set", f"checkpoint.dir={want.folder()}", job)
    want.check(result, 3, "a heterogeneous job")
    result = c.run(*PMIX, "-N1", "-n1", *run, "--workers-per-task", "2", "--set", want.place(), job, ":", "-N2", "-n2",
                   *run, "--set", f"checkpoint.dir={want.folder()}", job)
    want.check(result, 4, "tasks with different numbers of workers")
    tap.ok("4 ranks: 1 to 2 on each of 3 keepers" in result.stderr, "which is what they say", result.stderr)


def test_ledger(c, scratch):
    """With weights that stand still, the loss of a step belongs to its samples: over an epoch the mean is that
    of an evaluation on the same set, if and only if every sample was used once."""
    job = write_job(scratch, "ledger", model='type = "mlp"; classes = 4; hidden = [ 32 ];',
                    train="epochs = 2; global_batch = 32; micro_batch = 4; eval_every = 0;")
    text = tap.read(job, "r").replace("lr = 0.01", "lr = 1e-20").replace("weight_decay", "#")
    with open(job, "w") as f:
        f.write(text.replace("/test-", "/train-"))
    want = Reference(scratch, job, "ledger")
    for what, args in (("4 x 1", ("-N4", "--ntasks-per-node=1")), ("uneven", ("-N2", "-n3"))):
        result = c.run(*PMIX, *args, tap.program(), "run", "--json", "--set", want.place(), job)
        mine, r = losses(want.folder("metrics.jsonl")), record_of(result)
        same = len(mine) == 32 and all(math.isclose(a, b, rel_tol=1e-5)
                                       for a, b in zip(mine, want.losses))
        tap.ok(same, f"ledger, {what}: every step has the samples of one rank's", mine, want.losses)
        means = [sum(mine[e * 16:e * 16 + 16]) / 16 for e in range(2)]
        tap.ok(len(mine) == 32 and all(math.isclose(m, r["test_loss"], rel_tol=1e-5) for m in means),
               f"ledger, {what}: every sample once an epoch", means, r)
        tap.ok(len(set(mine)) == 32, f"ledger, {what}: and no two steps have the same", mine)


def test_without_keeper(c, scratch):
    job = write_job(scratch, "direct",
                    train="steps = 12; global_batch = 32; micro_batch = 4; eval_every = 0;")
    want = Reference(scratch, job, "direct")
    result = c.run(*PMIX, "-N4", "--ntasks-per-node=1", WORKER, "--json", "--set", want.place(), job)
    want.check(result, 4, "the worker under srun")
    boot = record_of(result).get("bootstrap_seconds")
    tap.ok(isinstance(boot, float) and boot > 0, "and tells how long the ranks took to meet", boot)
    if not shutil.which("mpirun"):
        tap.ok(True, "the worker under mpirun # SKIP found no mpirun; on Debian: apt-get install openmpi-bin")
        return
    env = {k: v for k, v in c.env.items() if not k.startswith(("SLURM", "PMIX"))}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    result = subprocess.run(["mpirun", "-n", "2", "--oversubscribe", WORKER, "--json", "--set",
                             want.place(), job], env=env, stdin=subprocess.DEVNULL, text=True,
                            capture_output=True, timeout=120, check=False)
    want.check(result, 2, "the worker under mpirun")


def test_allocations(c, scratch):
    job = write_job(scratch, "bare",
                    train="steps = 12; global_batch = 32; micro_batch = 4; eval_every = 0;")
    want = Reference(scratch, job, "bare")
    result = c.run("salloc", "-N2", tap.program(), "run", "--json", "--set", want.place(), job)
    tap.ok("in an allocation, starting: srun --mpi=pmix --nodes=2 --ntasks=2 --ntasks-per-node=1 " in result.stderr,
           "a bare run in salloc prints its srun line", result.stderr)
    want.check(result, 2, "salloc")
    script = scratch("bare.sh")
    with open(script, "w") as f:
        f.write(f"#!/bin/sh\n{tap.program()} run --json --set "
                f"checkpoint.dir={scratch('bare')}-$SLURM_ARRAY_TASK_ID.ckpt {job}\n")
    c.run("sbatch", "-W", "-N2", "--array=91-92", "-o", "bare-%a.out", script)
    for i in (91, 92):
        text = tap.read(scratch(f"bare-{i}.out"), "r")
        tap.ok("in an allocation, starting: srun" in text, f"array task {i}: prints its srun line", text)
        want.runs = i
        want.check(SimpleNamespace(returncode=0, stdout=text, stderr=""), 2, f"array task {i}")


def test_one_after_the_other(c, scratch):
    """The second program of a task meets what PMIx knows of the first."""
    job = write_job(scratch, "twice", train="steps = 12; global_batch = 32; micro_batch = 4; eval_every = 0;")
    want = Reference(scratch, job, "twice")
    run = f"{tap.program()} run --json --set"
    result = c.run(*PMIX, "-N4", "--ntasks-per-node=1", "sh", "-c",
                   f"{run} checkpoint.dir={scratch('before')} {job} && exec {run} {want.place()} {job}")
    tap.same(result.stdout.count('"status":"done"'), 2, "two runs in one step: both train")
    want.check(result, 4, "two runs in one step: the second one")


def test_few_micro_batches(c, scratch):
    job = write_job(scratch, "few", train="steps = 8; global_batch = 16; micro_batch = 8; eval_every = 0;")
    want = Reference(scratch, job, "few")
    result = c.run(*PMIX, "-N4", "--ntasks-per-node=1", tap.program(), "run", "--json", "--set",
                   want.place(), job)
    want.check(result, 4, "more ranks than micro-batches")
    for kind in ("none", "pmix"):
        result = c.run("srun", f"--mpi={kind}", "-n1", tap.program(), "run", "--json", "--set",
                       want.place(), job)
        want.check(result, 1, f"a world of one, --mpi={kind}")


# ---- refused before anything starts --------------------------------------------------------------

def on_one(node, command, others):
    """A command line for all tasks that is another one on this node."""
    return ("sh", "-c", f'if [ "$SLURMD_NODENAME" = {node} ]; then {command}; else {others}; fi')


def check_refused(c, scratch, what, result, code, *texts, last=True):
    text = result.stderr + result.stdout
    tap.same(result.returncode, code, f"{what}: exit code {code}")
    found = last_line(text) if last else text
    tap.ok(all(t in found for t in texts), f"{what}: says so", *texts, text)
    tap.same(sum(line.startswith("lockstep: ") for line in text.splitlines()), 1, f"{what}: once")
    check_clean(c, scratch, what)


def test_refusals(c, scratch):
    job = write_job(scratch, "refused", train="steps = 8; global_batch = 32; micro_batch = 4;")
    run = f"exec {tap.program()} run"
    four = ("-N4", "--ntasks-per-node=1")

    def refused(what, command, code, *texts, layout=PMIX + four):
        check_refused(c, scratch, what, c.run(*layout, *command), code, *texts)

    plain = ("srun", "--kill-on-bad-exit=0", *four)
    refused("forgotten --mpi=pmix", ("sh", "-c", f"{run} {job}"), 4, "Slurm started 4 tasks",
            "type: srun --mpi=pmix", layout=plain)
    os.mkdir(scratch("shim"))
    with open(scratch("shim", "srun"), "w") as f:
        f.write("#!/bin/sh\necho 'MPI plugin types are...'; echo none; echo pmi2\n")
    os.chmod(scratch("shim", "srun"), 0o755)
    refused("a site without the plugin", ("sh", "-c", f"PATH={scratch('shim')}:$PATH {run} {job}"), 4,
            "has no pmix, only: none, pmi2 (srun --mpi=list)", layout=plain)
    refused("another job on one node", on_one("n1", f"{run} --set train.steps=9 {job}", f"{run} {job}"),
            4, 'rank 1 on n1 differs from 3 others: train.steps is "9", elsewhere "8"')
    refused("another setting on one node",
            on_one("n3", f"UCX_TCP_TX_SEG_SIZE=9000 {run} {job}", f"{run} {job}"), 4,
            'rank 3 on n3 differs from 3 others: UCX_TCP_TX_SEG_SIZE is "9000", elsewhere not set')
    refused("another binary on one node",
            on_one("n2", f"exec {other_build(scratch)} run {job}", f"{run} {job}"), 4,
            'rank 2 on n2 differs from 3 others: build is "')
    refused("another backend on one node",
            on_one("n3", f"exec {other_backend(scratch)} run {job}", f"{run} {job}"), 4,
            'rank 3 on n3 differs from 3 others: build of lockstep_cpu.so is "')
    refused("a node without the job", on_one("n1", f"cd /; {run} refused.cfg", f"{run} refused.cfg"), 2,
            "task 1 on n1 cannot take part: refused.cfg: No such file or directory; every node reads it for itself, this one in /: ")
    refused("a variable is unset", ("sh", "-c", f"unset SLURM_PROCID; {run} {job}"), 4,
            "task 0 on n0 cannot take part: SLURM_PROCID is not set within step 0")
    refused("one node has a contradictory variable",
            on_one("n1", f"SLURM_NTASKS=7 {run} {job}", f"{run} {job}"), 4,
            "task 1 on n1 cannot take part: ", "SLURM_NTASKS=7")
    refused("Slurm and PMIx disagree", on_one("n1", f"SLURM_PROCID=2 {run} {job}", f"{run} {job}"), 4,
            "task 1 on n1 cannot take part: Slurm and PMIx disagree on this rank")
    with open(scratch("a-file"), "w"):
        pass
    refused("a checkpoint directory that is a file", (tap.program(), "run", "--workers-per-task", "2", "--set",
                                                      f"checkpoint.dir={scratch('a-file')}", job), 1,
            "rank 0 on n", " failed first: ", "a-file", layout=(*PMIX, "-N2", "--ntasks-per-node=1"))
    data = tap.read(job, "r").replace(scratch.path + "/t", "t")
    os.mkdir(scratch("elsewhere"))
    for place in (scratch("relative.cfg"), scratch("elsewhere", "relative.cfg")):
        with open(place, "w") as f:
            f.write(data)
    refused("a node without the data", on_one("n1", f"cd elsewhere; {run} relative.cfg",
                                              f"{run} relative.cfg"), 1,
            "rank 1 on n1 failed first: ", "train-images")
    for what, n, seed in (("another copy of the data", 512, 7), ("more data", 600, 1)):
        folder = scratch(what)
        os.mkdir(folder)
        shutil.copy(scratch("relative.cfg"), folder)
        tap.make_set(os.path.join(folder, "train"), n, seed=seed)
        tap.make_set(os.path.join(folder, "test"), 64, seed=2)
        refused(f"{what} on one node", on_one("n2", f"cd '{what}'; {run} relative.cfg", f"{run} relative.cfg"), 4,
                "rank 2 on n2 failed first: ", f"train-images: rank 2 on n2 found {n} samples of ",
                "rank 0 on n0 512 samples of ")
    refused("a worker that dies before it has met anyone",
            on_one("n2", f"exec {with_worker(scratch, 'doomed', 'kill -9 $$')} run {job}", f"{run} {job}"), 137,
            "rank 2 on n2 failed first: killed by signal 9")
    refused("a worker that ends with 0 and has done nothing",
            on_one("n2", f"exec {with_worker(scratch, 'idle', 'exit 0')} run {job}", f"{run} {job}"), 1,
            "rank 2 on n2 failed first: exited with status 0 and left no completion record")


def copy_programs(scratch, name):
    os.mkdir(scratch(name))
    for program in ("lockstep", "lockstep-worker"):
        shutil.copy(os.path.join(HERE, program), scratch(name))
    os.symlink(os.path.join(HERE, "plugins"), scratch(name, "plugins"))
    return scratch(name, "lockstep")


def change_build_id(source, target):
    data = bytearray(tap.read(source))
    note = re.search(rb"\x04\0\0\0.\0\0\0\x03\0\0\0GNU\0", data, re.S)
    data[note.end()] ^= 0xff
    with open(target, "wb") as f:
        f.write(data)


def other_build(scratch):
    """The same programs with another build id, as of the same version built elsewhere."""
    program = copy_programs(scratch, "other")
    path = scratch("other", "lockstep-worker")
    change_build_id(path, path)
    return program


def other_backend(scratch):
    """The same programs beside a backend of another build."""
    program = copy_programs(scratch, "stale")
    os.remove(scratch("stale", "plugins"))
    os.mkdir(scratch("stale", "plugins"))
    change_build_id(os.path.join(HERE, "plugins", "lockstep_cpu.so"), scratch("stale", "plugins", "lockstep_cpu.so"))
    return program


def with_worker(scratch, name, script):
    """The launcher beside a worker program that is this line of shell."""
    program = copy_programs(scratch, name)
    path = scratch(name, "lockstep-worker")
    os.remove(path)
    with open(path, "w") as f:
        f.write(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)
    return program


# ---- faults in mid-step --------------------------------------------------------------------------

class Step:
    """A long step that trains."""

    def __init__(self, c, scratch, job, *options, layout=("-N4", "--ntasks-per-node=1"), program=None):
        shutil.rmtree(scratch("long.ckpt"), ignore_errors=True)
        self.c, self.log = c, scratch("step.log")
        with open(self.log, "w") as f:
            self.popen = subprocess.Popen(
                [*PMIX, *layout, *(program or (tap.program(), "run")), "--set", LONG, *options, job], env=c.env,
                stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, cwd=scratch.path)
        self.trains = tap.wait_for(lambda: "step 1/" in self.text() or self.popen.poll() is not None,
                                   "the step trains")

    def text(self):
        return tap.read(self.log, "r")

    def end(self, seconds=60):
        """Exit code; None after too long, and then it is ended by force."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            return None

    def workers_end(self, seconds=30):
        """Seconds until no worker is left."""
        begin = time.monotonic()
        tap.wait_for(lambda: not processes(self.c, "lockstep-worker"), "all workers end", seconds)
        return time.monotonic() - begin


def hit(c, program, node, sig):
    """Sends the signal to our program on this node."""
    pids = on_node(processes(c, program), node)
    if tap.ok(len(pids) == 1, f"one {program} runs on {node}", pids):
        os.kill(pids[0], sig)


def check_fault(c, scratch, what, step, codes, pattern):
    code, text = step.end(), step.text()
    tap.ok(code in codes, f"{what}: exit code {code} is in {codes}", text)
    tap.ok(re.search(pattern, last_line(text)), f"{what}: named last", last_line(text), pattern, text)
    check_clean(c, scratch, what)


# What rank 0 says of a rank of another node that it has waited for in vain.
LATE = r"^lockstep: rank 0 on n0 failed first: \S+ \d+ of group data: rank 1 on n1 has .* after 2\.?\d* s; "


class Held:
    """Threads that a debugger holds, which is this process. Their process runs on."""

    def __init__(self, pid, name):
        self.libc, tasks = ctypes.CDLL(None), f"/proc/{pid}/task"
        self.tids = [int(t) for t in os.listdir(tasks) if tap.read(f"{tasks}/{t}/comm", "r").strip() == name]
        self.held = all(self.ask(request, t) for t in self.tids for request in (0x4206, 0x4207))  # SEIZE, INTERRUPT

    def ask(self, request, tid):
        null = ctypes.c_void_p(None)
        return self.libc.ptrace(ctypes.c_long(request), ctypes.c_long(tid), null, null) == 0

    def ended(self, tid):
        got, status = os.waitpid(tid, os.WNOHANG | 0x40000000)  # __WALL
        return got == tid and not os.WIFSTOPPED(status)

    def wait(self):
        """A debugger has to take note of an end before anybody else is told."""
        for t in self.tids:
            tap.wait_for(lambda t=t: self.ended(t), "a thread that was held ends")


def test_hangs(c, scratch):
    """A rank of another node that does not come: what it does, only its own node knows."""
    job = write_job(scratch, "long", train="steps = 8; global_batch = 32; micro_batch = 4; eval_every = 0;")
    two = ("-w", "n[0-1]", "-N2")
    step = Step(c, scratch, job, "--set", "recover.hang_kill=2s", layout=two)
    pids = on_node(processes(c, "lockstep-worker"), "n1")
    held = Held(pids[0], "ls-feed") if tap.same(len(pids), 1, "one worker runs on n1") else None
    what = "a rank waits for its data"
    if held and not held.held:
        tap.ok(True, f"{what} # SKIP this machine does not let a process hold a thread of another")
        c.run("scancel", *job_ids(c))
        step.end()
    elif tap.ok(held and held.tids, f"{what}: a thread brings it, and is held"):
        held.wait()
        check_fault(c, scratch, what, step, [5], LATE + "it is in data wait$")

    # Those who are told of it may report that sooner than the one that waited in vain.
    step = Step(c, scratch, job, "--set", "recover.hang_kill=2s", "--workers-per-task", "2", layout=two)
    pids = on_node(processes(c, "lockstep-worker"), "n1")
    if tap.same(len(pids), 2, "two workers run on n1"):
        os.kill(pids[0], signal.SIGSTOP)
    check_fault(c, scratch, "one of two workers of a task is stopped", step, [5],
                r"^lockstep: rank \d on n\d failed first: \S+ \d+ of group data: rank [23] on n1 has .* after 2\.?\d* s; "
                r"it is [^;]*; its process is stopped \(SIGSTOP\)$")

    # Nobody there can say anything; srun is told when to end the step that stands still.
    step = Step(c, scratch, job, "--set", "recover.hang_kill=2s", layout=("--wait=5", *two))
    for program in ("lockstep", "lockstep-worker"):
        hit(c, program, "n1", signal.SIGSTOP)
    code, text = step.end(), step.text()
    tap.ok(code not in (0, None), "a node stands still: the step ends, and not with 0", code)
    tap.ok(re.search(LATE + "its node does not answer$", text, re.M), "a node stands still: named", text)
    # As where a keeper is killed, the next one removes the files of its PMIx server.
    tap.run("run", "-n", "2", "--resume", "never", "--set", f"checkpoint.dir={scratch('still')}", job, env=c.env)
    check_clean(c, scratch, "a node stands still")


def job_ids(c):
    ids = c.run("squeue", "-h", "-n", "lockstep", "-o", "%i").stdout.split()
    tap.same(len(ids), 1, "one job runs")
    return ids


def speakers(text):
    return sorted(re.findall(r"^\[(\d+@\w+)\] lockstep: ", text, re.M))


def test_faults_without_keeper(c, scratch):
    """Workers that srun starts: each says who it is. Nothing watches over them but srun."""
    job = write_job(scratch, "long", train="steps = 8; global_batch = 32; micro_batch = 4; eval_every = 0;")
    step = Step(c, scratch, job, program=(WORKER,))
    hit(c, "lockstep-worker", "n2", signal.SIGKILL)
    code, text = step.end(), step.text()
    tap.ok(code == 137 and "rank 2 on n2 broke" in text, "without a keeper, a worker is killed: its peers end", code,
           text)
    tap.same(speakers(text), ["0@n0", "1@n1", "3@n3"], "and say who they are")
    check_clean(c, scratch, "without a keeper, a worker is killed")

    step = Step(c, scratch, job, "--set", "recover.hang_kill=2s", program=(WORKER,),
                layout=("--kill-on-bad-exit=1", "-N4", "--ntasks-per-node=1"))
    hit(c, "lockstep-worker", "n2", signal.SIGSTOP)
    code, text = step.end(), step.text()
    tap.ok(code == 5 and re.search(r"^\[\d@n\d\] lockstep: .*rank 2 on n2 has not arrived after 2", text, re.M),
           "without a keeper, a worker is stopped: its peers end, and srun ends it", code, text)
    check_clean(c, scratch, "without a keeper, a worker is stopped")

    other = os.path.join(os.path.dirname(scratch("other", "lockstep")), "lockstep-worker")
    result = c.run(*PMIX, "-N4", "--ntasks-per-node=1",
                   *on_one("n2", f"exec {other} --json {job}", f"exec {WORKER} --json {job}"))
    text = result.stderr
    tap.ok(result.returncode == 4 and 'rank 2 on n2 differs from 3 others: build is "' in text,
           "without a keeper, another binary on one node: refused", result.returncode, text)
    tap.ok(speakers(text) and "\nlockstep: " not in "\n" + text, "by ranks that say who they are", text)
    records = [json.loads(x) for x in result.stdout.splitlines()]
    tap.ok(len(records) <= 1 and all((r["status"], r["ranks"]) == ("failed", 4) for r in records),
           "with one record, of 4 ranks", result.stdout)
    check_clean(c, scratch, "without a keeper, another binary on one node")


class Absent:
    """A step of which one task does something else; the others wait for it for half a minute. Other tests run
    beside it."""

    def __init__(self, c, scratch, name, command, instead="sleep 1000"):
        self.c, self.log, self.name = c, scratch(name + ".log"), name
        script = f'if [ "$SLURM_PROCID" = 1 ]; then exec {instead}; else exec {command}; fi'
        with open(self.log, "w") as f:
            self.popen = subprocess.Popen([*PMIX, "--mem=100", "-N3", "--ntasks-per-node=1", "sh", "-c", script],
                                          env=c.env, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                                          cwd=scratch.path)

    def text(self):
        return tap.read(self.log, "r")

    def waits(self):
        tap.wait_for(lambda: WAITING in self.text() or self.popen.poll() is not None,
                     "the first task says that it waits")

    def check_ends(self):
        """Where a task has ended, Slurm's PMIx may fail to send to its node, and then ends the step itself."""
        code = self.popen.wait(timeout=120)
        lines = re.findall(r"^lockstep: (.*)$", self.text(), re.M)
        tap.ok(code in (5, 127, 137) and len(lines) <= 2 and len(set(lines)) == len(lines),
               f"{self.name}: the step ends, and nothing is said twice", code, self.text())

    def check(self, codes, words):
        """Ends with one of these codes; what we say is these lines, once each."""
        code = self.popen.wait(timeout=120)
        lines = re.findall(r"^lockstep: (.*)$", self.text(), re.M)
        tap.ok(code in codes, f"{self.name}: exit code {code} is in {codes}", self.text())
        tap.ok(len(lines) == len(words) and all(w in x for w, x in zip(words, lines)),
               f"{self.name}: one task speaks", self.text())


WAITING = "waiting: 1 of 3 tasks has not come yet: task 1 on n"
GAVE_UP = "1 of 3 tasks has not come within 30 s: task 1 on n"


def test_faults(c, scratch):
    job = write_job(scratch, "long",
                    train="steps = 8; global_batch = 32; micro_batch = 4; eval_every = 0;")
    # The same fault again where another program took the processor: the promise is Lockstep's part.
    for attempt in range(3):
        step = Step(c, scratch, job)
        hit(c, "lockstep-worker", "n2", signal.SIGKILL)
        seconds = step.workers_end()
        check_fault(c, scratch, "a worker is killed", step, [137],
                    r"^lockstep: rank 2 on n2 failed first: killed by signal 9 \(Killed\)")
        if seconds < 1:
            break
    tap.ok(seconds < 1, "a worker is killed: its peers end within a second", seconds)

    step = Step(c, scratch, job, "--workers-per-task", "2", layout=("-w", "n[0-1]", "-N2", "--ntasks-per-node=1"))
    pids = on_node(processes(c, "lockstep-worker"), "n1")
    if tap.same(len(pids), 2, "two workers run on n1"):
        os.kill(pids[0], signal.SIGKILL)
    check_fault(c, scratch, "one of two workers of a task is killed", step, [137],
                r"^lockstep: rank [23] on n1 failed first: killed by signal 9")

    step = Step(c, scratch, job, "--set", "recover.hang_kill=2s", layout=("-w", "n[0-1]", "-N2"))
    hit(c, "lockstep-worker", "n1", signal.SIGSTOP)
    check_fault(c, scratch, "a worker is stopped", step, [5],
                LATE + r"it is .*; its process is stopped \(SIGSTOP\)$")

    for keeper in (1, 0):
        what = f"keeper {keeper} is killed"
        step = Step(c, scratch, job)
        hit(c, "lockstep", f"n{keeper}", signal.SIGKILL)
        step.workers_end()
        # It could not remove the files of its PMIx server: the next keeper of this user does.
        step.end()
        tap.run("run", "-n", "2", "--resume", "never", "--set", f"checkpoint.dir={scratch(what)}", job, env=c.env)
        check_fault(c, scratch, what, step, [1, 137], rf"^lockstep: keeper {keeper} on n{keeper} is gone: it closed the connection, so it was killed or ")

    # No word of Slurm's ends a task that stands still, and with it the step, unless srun is told when to.
    step = Step(c, scratch, job, layout=("--wait=5", "-N4", "--ntasks-per-node=1"))
    hit(c, "lockstep", "n1", signal.SIGSTOP)
    code, text = step.end(), step.text()
    tap.ok(code not in (0, None), "a keeper is stopped: the step ends, and not with 0", code)
    tap.ok("lockstep: keeper 1 on n1 is gone: it has said nothing" in text, "a keeper is stopped: named", text)
    # Like a killed one, it leaves the files of its PMIx server to the next keeper.
    tap.run("run", "-n", "2", "--resume", "never", "--set", f"checkpoint.dir={scratch('stopped')}", job, env=c.env)
    check_clean(c, scratch, "a keeper is stopped")

    # A save takes long where a rank stands still; what comes meanwhile must not end it, and must count.
    step = Step(c, scratch, job)
    hit(c, "lockstep-worker", "n1", signal.SIGSTOP)
    ids = job_ids(c)
    c.run("scancel", "--signal=USR1", *ids)
    c.run("scancel", "--signal=TERM", *ids)
    hit(c, "lockstep-worker", "n1", signal.SIGCONT)
    code = step.end()
    tap.ok(code == 143 and "saving" in step.text() and "second signal" not in step.text() and
           has_checkpoint(scratch("long.ckpt")), "SIGTERM behind SIGUSR1: saved, and no wish to come back", code,
           step.text())
    check_clean(c, scratch, "SIGTERM behind SIGUSR1")

    step = Step(c, scratch, job)
    c.run("scancel", *job_ids(c))
    code = step.end()
    tap.ok(code not in (0, None), "scancel: the step ends, and not with 0", code)
    tap.ok("on signal 15; saving" in step.text() and has_checkpoint(scratch("long.ckpt")),
           "scancel: it has saved", step.text())
    check_clean(c, scratch, "scancel")


# ---- the time limit ------------------------------------------------------------------------------

class TimeLimit:
    """A job of one minute, the least that Slurm knows, that is told 55 seconds before its end; Slurm looks at its
    clock so seldom that this is some 20 s after its start. The other tests run beside it."""

    def __init__(self, c, scratch):
        self.c, self.scratch = c, scratch
        script = prepare(scratch, "many-nodes")
        set_length(scratch, "many-nodes", 1000000000)
        self.job, result = submit(c, "--time=1", "--signal=USR1@55", script)
        tap.ok(self.job.isdigit(), "the time limit: submitted", result.stderr)

    def text(self):
        return output(self.scratch, f"many-nodes-{self.job}.out")

    def saved(self):
        return max((int(n[5:]) for n in os.listdir(self.scratch("many-nodes.ckpt"))
                    if re.fullmatch(r"step-\d+", n)), default=0)

    def check(self):
        # On a slow machine it may have been told, and have come back, more than once by now.
        tap.wait_for(lambda: "requeue 1" in self.text(), "the time limit: saved and requeued", 90)
        tap.ok("on signal 10; saving" in self.text() and "requeue 1" in self.text(),
               "the time limit: Slurm's signal came, the job saved and asked to be started again", self.text())
        saved = self.saved()
        set_length(self.scratch, "many-nodes", saved + 5)
        tap.same(wait_state(self.c, self.job, ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")), "COMPLETED",
                 "the time limit: the second run finishes")
        tap.ok("resumed from" in self.text() and "done after" in self.text() and self.saved() >= saved + 5,
               "the time limit: from where the first one was", self.text())


def test_without_plugin(c, scratch):
    """The launcher applies the rules itself, for every rank, and explains them on demand."""
    job = write_job(scratch, "noplugin", train="steps = 8; global_batch = 32; micro_batch = 4; eval_every = 0;")
    want = Reference(scratch, job, "noplugin")
    c.env["LOCKSTEP_EXPLAIN"] = "yes"
    for workers in (1, 2):
        result = c.run(*PMIX, "-N2", "--ntasks-per-node=1", tap.program(), "run", "--json",
                       f"--workers-per-task={workers}", "--set", want.place(), job)
        want.check(result, 2 * workers, f"without the plugin, 2 x {workers}")
        said = [re.findall(rf"lockstep: rank {rank}: UCX_NUM_EPS = (\d+): ", result.stderr) for rank in range(4)]
        tap.same(said, [[str(2 * workers)] if rank < workers else [] for rank in range(4)],
                 f"without the plugin, 2 x {workers}: decided for each rank, explained for the first node")
        tap.ok("lockstep: rank 0: NCCL_ALGO left alone: " in result.stderr, "and what is left alone", result.stderr)
    c.env["LOCKSTEP_EXPLAIN"] = "maybe"
    result = c.run(*PMIX, "-N1", "-n1", tap.program(), "run", job)
    del c.env["LOCKSTEP_EXPLAIN"]
    tap.ok(result.returncode == 2 and "LOCKSTEP_EXPLAIN: found 'maybe'" in result.stderr,
           "without the plugin: a word that is none", result.returncode, result.stderr)


def main():
    cluster.skip_without_slurm()
    with tap.Scratch() as scratch:
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 64, seed=2)
        os.mkdir(scratch("tmp"))
        with cluster.Cluster(scratch) as c:
            c.env["PATH"] = HERE + ":" + c.env["PATH"]
            c.env["TMPDIR"] = scratch("tmp")
            limit = TimeLimit(c, scratch)
            test_layouts(c, scratch)
            job = write_job(scratch, "absent", train="steps = 8; global_batch = 32; micro_batch = 4;")
            run = f"{tap.program()} run {job}"
            hangs = [Absent(c, scratch, "a task that hangs before it starts", run),
                     Absent(c, scratch, "a worker that hangs before it starts", f"{WORKER} {job}")]
            absent = Absent(c, scratch, "a task whose program is not there", run, "/nonexistent/lockstep")
            absent.check_ends()
            ended = Absent(c, scratch, "SIGTERM while tasks wait", run)
            ended.waits()
            ended.popen.send_signal(signal.SIGTERM)  # srun passes it on
            ended.check((143, 137, 15), [WAITING])
            test_ledger(c, scratch)
            test_without_keeper(c, scratch)
            test_allocations(c, scratch)
            test_few_micro_batches(c, scratch)
            test_one_after_the_other(c, scratch)
            limit.check()
            for step in hangs:
                step.check((5,), [WAITING, GAVE_UP])
            check_clean(c, scratch, "all layouts")
            test_refusals(c, scratch)
            test_faults_without_keeper(c, scratch)
            test_faults(c, scratch)
            test_hangs(c, scratch)
        with cluster.Cluster(scratch, "--spank=no", "--nodes=2") as c:
            test_without_plugin(c, scratch)
    tap.done()


main()
