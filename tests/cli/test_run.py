"""`lockstep run` as a user sees it: results, exit codes, signals, resuming, and bad input."""

import json
import os
import signal
import subprocess

import tap


def write_job(scratch, name, **kwargs):
    path = scratch(name + ".cfg")
    with open(path, "w") as f:
        f.write(tap.job_text(scratch.path, name, **kwargs))
    return path


def weights(checkpoint):
    return {name: tap.read(os.path.join(checkpoint, name))
            for name in ("model.safetensors", "optimizer.safetensors")}


def checkpoints(folder):
    if not os.path.isdir(folder):
        return []
    return sorted(n for n in os.listdir(folder) if n.startswith("step-") and "tmp" not in n)


def start(*args):
    return subprocess.Popen([tap.program(), *args], stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_usage(scratch):
    for args, code in ((["--help"], 0), (["--version"], 0), ([], 2), (["runn"], 2), (["run"], 2),
                       (["run", "--help"], 0), (["run", "--nonsense", "x"], 2),
                       (["run", scratch("absent.cfg")], 2), (["plan", "--help"], 0),
                       (["plan", "--print=nonsense", "x"], 2), (["plan", "-n2", "--nodes=3", "x"], 2)):
        result = tap.run(*args)
        tap.same(result.returncode, code, f"lockstep {' '.join(args)[:40]} exits with {code}")
    tap.ok("did you mean 'run'" in tap.run("runn").stderr, "a mistyped command names the nearest")


def test_result(scratch):
    job = write_job(scratch, "first", train="epochs = 3; global_batch = 32; eval_every = 10;")
    result = tap.run("run", "--json", job)
    tap.same(result.returncode, 0, "a small job trains")
    r = tap.record(result)
    tap.same(r.get("status"), "done", "status")
    tap.same(r.get("steps"), 48, "3 epochs of 512 samples are 48 steps of 32")
    tap.ok(r.get("test_accuracy", 0) > 0.95, "it learns what is easy to learn", r)
    for key in ("seconds", "train_loss", "test_loss", "samples_per_second", "peak_memory_bytes",
                "planned_memory_bytes", "first_step_seconds"):
        tap.ok(isinstance(r.get(key), (int, float)) and r[key] > 0, f"{key} is a number", r)
    tap.ok(os.path.isdir(r["checkpoint"]), "the checkpoint that it names is there")
    lines = [json.loads(x) for x in tap.read(scratch("first.ckpt", "metrics.jsonl"), "r").splitlines()]
    tap.same([x["step"] for x in lines if x["type"] == "step"], list(range(1, 49)),
             "metrics.jsonl has every step once")
    tap.same([x["step"] for x in lines if x["type"] == "eval"], [10, 20, 30, 40, 48],
             "evaluations every 10 steps and at the end")
    plan = json.loads(tap.run("plan", "--json", job).stdout)
    tap.same(plan["memory_bytes"]["total"], r["planned_memory_bytes"],
             "the plan's total is what the arenas use")
    tap.same((plan["ranks"], plan["collectives"]), (1, []), "one rank sends nothing")
    again = tap.run("run", "--json", job)
    tap.same((again.returncode, tap.record(again)["test_accuracy"]), (0, r["test_accuracy"]),
             "the same command again: nothing to do, the same accuracy")
    plain = tap.run("run", job)
    tap.ok("test accuracy" in plain.stdout and "checkpoint:" in plain.stdout, "a summary for people",
           plain.stdout)


def test_plan_of_ranks(scratch):
    """What the plan says of the collectives is what a run says when it starts."""
    job = write_job(scratch, "planned")

    def collectives(*args):
        return json.loads(tap.run("plan", "--json", *args, job).stdout)["collectives"]

    here = collectives("-n", "2")
    most = max(here, key=lambda c: c["bytes"])
    said = tap.run("run", "-n", "2", job).stderr
    tap.ok(f"{sum(c['times'] for c in here)} collectives of" in said and
           f": {most['how']}\n" in said, "plan -n 2: number and algorithm as a run says them", said, here)
    apart = collectives("-n", "4", "--nodes", "2")
    tap.ok(all(c["how"].startswith("ucx exchange over 2 nodes") for c in apart),
           "small ones on two nodes: an exchange", apart)
    ring = collectives("-n", "4", "--nodes", "2", "--set", "parallel.all_reduce=ring")
    tap.ok([c["bytes"] for c in ring] == [c["bytes"] for c in apart] and
           all(c["how"].startswith("ucx ring") for c in ring), "the job can choose another way", ring)
    text = tap.run("plan", "-n", "4", "--nodes", "2", job).stdout
    tap.ok('(parallel.all_reduce = "auto")' in text and "all_reduce  " in text and
           text.count("ucx exchange") == len(apart), "and people see it in a table", text)


def test_same_bits(scratch):
    for model in ("mlp", "convnet"):
        kwargs = {"model": tap.CONVNET} if model == "convnet" else {}
        train = "steps = 12; global_batch = 32; micro_batch = 16;"
        paths = []
        for i in range(2):
            job = write_job(scratch, f"{model}{i}", train=train, **kwargs)
            paths.append(tap.record(tap.run("run", "--json", job))["checkpoint"])
        tap.ok(weights(paths[0]) == weights(paths[1]), f"{model}: two runs, identical weights")
        other = tap.record(tap.run("run", "--json", "--set", "seed=8", "--set",
                                   f"checkpoint.dir={scratch(model + '-seed.ckpt')}", job))
        tap.ok(weights(other["checkpoint"]) != weights(paths[0]), f"{model}: another seed differs")


def test_resume(scratch):
    for model in ("mlp", "convnet"):
        kwargs = {"model": tap.CONVNET} if model == "convnet" else {}
        train = "steps = 400; global_batch = 32; micro_batch = 16; eval_every = 0;"
        whole = write_job(scratch, f"{model}-whole", train=train, **kwargs)
        want = tap.record(tap.run("run", "--json", whole))
        part = write_job(scratch, f"{model}-part", train=train, **kwargs)
        folder = scratch(f"{model}-part.ckpt")
        for sig, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 75)):
            before = set(checkpoints(folder))
            run = start("run", "--json", "--set", "checkpoint.every_steps=20", part)
            tap.wait_for(lambda: set(checkpoints(folder)) - before or run.poll() is not None,
                         "a checkpoint")
            run.send_signal(sig)
            out, err = run.communicate(timeout=120)
            r = json.loads(out.splitlines()[-1])
            if r["status"] == "done":
                tap.ok(False, f"{model}: the run ended before signal {sig} came", err)
                break
            tap.same((run.returncode, r["status"]), (code, "stopped"),
                     f"{model}: {sig.name} saves and exits with {code}")
            tap.same(os.path.basename(r["checkpoint"]), f"step-{r['steps']:08d}",
                     f"{model}: what it saved is the step that it finished")
        got = tap.record(tap.run("run", "--json", part))
        tap.ok(got["status"] == "done" and weights(got["checkpoint"]) == weights(want["checkpoint"]),
               f"{model}: stopped and resumed three times, bit-equal to an uninterrupted run", got)
        lines = [json.loads(x) for x in
                 tap.read(os.path.join(folder, "metrics.jsonl"), "r").splitlines()]
        tap.same([x["step"] for x in lines if x["type"] == "step"], list(range(1, 401)),
                 f"{model}: metrics.jsonl has every step once, in order")


def test_resume_choices(scratch):
    job = write_job(scratch, "choice", train="steps = 6; global_batch = 32;")
    tap.run("run", "--set", "checkpoint.every_steps=2", job)
    folder = scratch("choice.ckpt")
    tap.same(checkpoints(folder), ["step-00000002", "step-00000004", "step-00000006"],
             "every_steps and keep")
    never = tap.run("run", "--resume", "never", job)
    tap.ok(never.returncode == 2 and "already holds" in never.stderr,
           "--resume never is refused where checkpoints are", never.stderr)
    old = tap.run("run", "--resume", os.path.join(folder, "step-00000002"), job)
    tap.ok(old.returncode == 2 and "already holds" in old.stderr,
           "resuming an older one in the same folder is refused", old.stderr)
    there = tap.run("run", "--json", "--resume", os.path.join(folder, "step-00000002"), "--set",
                    f"checkpoint.dir={scratch('other.ckpt')}", job)
    tap.ok(there.returncode == 0 and
           weights(tap.record(there)["checkpoint"]) ==
           weights(os.path.join(folder, "step-00000006")),
           "resuming an older one into another folder gives the same weights", there.stderr)
    path = os.path.join(folder, "step-00000006", "model.safetensors")
    bytes_ = bytearray(tap.read(path))
    bytes_[-1] ^= 1
    with open(path, "wb") as f:
        f.write(bytes_)
    flipped = tap.run("run", "--json", job)
    tap.ok(flipped.returncode == 0 and "step-00000006" in flipped.stderr and
           "at step 4" in flipped.stderr, "a flipped bit: said, and the one before is taken",
           flipped.stderr)
    tap.same(tap.run("run", "--resume", scratch("nowhere"), job).returncode, 1,
             "a checkpoint that is not there")
    for change, word in (("seed=9", "seed"), ("train.global_batch=64", "global_batch"),
                         ("model.hidden=[16]", "hidden")):
        result = tap.run("run", "--set", change, "--set", "train.steps=9", job)
        tap.ok(result.returncode in (1, 2) and result.stderr.strip(),
               f"a checkpoint of another {word} is refused", result.stderr)


def test_bad_data(scratch):
    images, labels = tap.read(scratch("train-images")), tap.read(scratch("train-labels"))
    cases = (("missing", None, labels), ("truncated", images[:-1], labels),
             ("over-long", images + b"x", labels), ("wrong magic", b"\1" + images[1:], labels),
             ("random bytes", os.urandom(4096), labels), ("empty", b"", labels),
             ("label out of range", images, labels[:-1] + b"\4"),
             ("fewer labels", images, tap.idx_bytes((511,), labels[8:-1])))
    job = write_job(scratch, "bad")
    for what, i, l in cases:
        for name, data in (("bad-images", i), ("bad-labels", l)):
            path = scratch(name)
            if os.path.exists(path):
                os.unlink(path)
            if data is not None:
                with open(path, "wb") as f:
                    f.write(data)
        result = tap.run("run", "--set", f"data.train.images={scratch('bad-images')}", "--set",
                         f"data.train.labels={scratch('bad-labels')}", job)
        tap.ok(result.returncode == 1 and scratch("bad-") in result.stderr,
               f"{what}: exit 1 and a message that names the file", result.stderr)
    tap.same(checkpoints(scratch("bad.ckpt")), [], "no checkpoint came of it")


def test_bad_places(scratch):
    job = write_job(scratch, "place", train="steps = 100000; global_batch = 32; eval_every = 0;")
    folder = scratch("place.ckpt")
    first = start("run", "--set", "checkpoint.every_steps=10", job)
    tap.wait_for(lambda: checkpoints(folder), "a checkpoint of the first run")
    second = tap.run("run", job)
    tap.ok(second.returncode == 1 and str(first.pid) in second.stderr,
           "a second writer is refused, and told who holds the folder", second.stderr)
    first.terminate()
    first.communicate(timeout=120)
    tap.same(first.returncode, 143, "the first writer goes on undisturbed, until it is stopped")
    with open(scratch("a-file"), "w") as f:
        f.write("x")
    result = tap.run("run", "--set", f"checkpoint.dir={scratch('a-file')}", job)
    tap.ok(result.returncode == 1 and "a-file" in result.stderr, "checkpoint.dir is a file",
           result.stderr)
    # A limit on the size of files acts as a full disk does, and needs no rights.
    limited = tap.run("run", "--set", "train.steps=30", "--set", "checkpoint.every_steps=10",
                      "--set", "model.hidden=[512,512]", "--set",
                      f"checkpoint.dir={scratch('full.ckpt')}", job,
                      preexec_fn=lambda: __import__("resource").setrlimit(
                          __import__("resource").RLIMIT_FSIZE, (100000, 100000)))
    tap.ok(limited.returncode == 1 and "full.ckpt" in limited.stderr, "a file that cannot grow: exit 1",
           limited.stderr)
    tap.same([n for n in os.listdir(scratch("full.ckpt")) if n.startswith("step-")], [],
             "and nothing half-written stays")
    for ranks in ("1", "2"):
        with open("/dev/full", "w") as full:
            lost = subprocess.run([tap.program(), "run", "--json", "-q", "-n", ranks, "--set", "train.steps=5", "--set",
                                   f"checkpoint.dir={scratch(f'lost-{ranks}.ckpt')}", job], stdout=full,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=120, check=False)
        tap.ok(lost.returncode == 1 and "writing the JSON record to standard output: No space left" in lost.stderr,
               f"a record of {ranks} ranks that cannot be written: exit 1, and why", lost.stderr)


def test_diverged(scratch):
    job = write_job(scratch, "diverge", train="steps = 200; global_batch = 32;")
    result = tap.run("run", "--json", "--set", "data.std=1e-38", job)
    tap.ok(result.returncode == 1 and "not finite" in result.stderr,
           "a run that diverged ends with a reason", result.stderr)
    tap.same(tap.record(result).get("status"), "failed", "and a record that says so")


def test_worlds_of_one(scratch):
    """Several processes that do not see each other must not each train alone."""
    job = write_job(scratch, "alone", train="steps = 2; global_batch = 32;")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM"))}
    for variable, launcher in (("PMI_SIZE", "mpiexec"), ("OMPI_COMM_WORLD_SIZE", "mpirun")):
        result = tap.run("run", job, env={**clean, variable: "3"})
        tap.ok(result.returncode == 4 and f"{launcher} started 3 processes" in result.stderr and
               "lockstep run -n 3" in result.stderr, f"{launcher} without PMIx: refused", result.stderr)
        result = tap.run("run", "--set", f"checkpoint.dir={scratch(launcher)}.ckpt", job,
                         env={**clean, variable: "1"})
        tap.same(result.returncode, 0, f"one process of {launcher} trains")


def test_other_data(scratch):
    """Two ranks that find different files under the same names, as on a node with a copy of its own."""
    job = tap.read(write_job(scratch, "data", train="steps = 2; global_batch = 32;"), "r")
    worker = os.path.join(os.path.dirname(os.path.abspath(tap.program())), "lockstep-worker")
    for what, n, seed, code in (("the same", 512, 1, 0), ("other", 512, 5, 4), ("more", 520, 1, 4)):
        for rank, (size, draw) in enumerate(((512, 1), (n, seed))):
            folder = scratch(f"{what}-{rank}")
            os.mkdir(folder)
            with open(os.path.join(folder, "data.cfg"), "w") as f:
                f.write(job.replace(scratch.path + "/t", "t").replace(scratch.path, f"{scratch.path}/{what}-0"))
            tap.make_set(os.path.join(folder, "train"), size, seed=draw)
            tap.make_set(os.path.join(folder, "test"), 100, seed=2)
        result = tap.run("exec", "-n", "2", "--", "sh", "-c", f'cd "{scratch.path}/{what}-$RANK" && exec "$0" data.cfg',
                         worker)
        tap.same(result.returncode, code, f"two ranks with {what} data: exit {code}")
        tap.ok(code == 0 or (f"train-images: rank 1 on {os.uname().nodename} found {n} samples" in result.stderr and
                             "rank 0 on " in result.stderr and "give all nodes the same file" in result.stderr),
               f"two ranks with {what} data: says so", result.stderr)


def test_fewer_cpus(scratch):
    """Slurm granted CPUs that this task may not use: a warning, and it trains."""
    job = write_job(scratch, "fewer", train="steps = 2; global_batch = 32;")
    cpus = sorted(os.sched_getaffinity(0))
    if os.sysconf("SC_NPROCESSORS_ONLN") < 2:
        tap.ok(True, "fewer CPUs than granted # SKIP this machine has one CPU")
        return
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM", "LOCKSTEP_SPANK"))}
    env.update(SLURM_JOB_ID="5", SLURM_STEP_ID="0", SLURM_STEP_NODELIST="n1", SLURM_STEP_TASKS_PER_NODE="1",
               SLURM_STEP_NUM_TASKS="1", SLURM_NODEID="0", SLURM_PROCID="0", SLURM_LOCALID="0",
               SLURM_CPUS_PER_TASK="2")
    for allowed, warned in ((cpus[:1], True), (cpus, False)):
        if warned or len(cpus) > 1:
            result = tap.run("run", "--set", f"checkpoint.dir={scratch(f'fewer-{len(allowed)}')}", job, env=env,
                             preexec_fn=lambda mask=tuple(allowed): os.sched_setaffinity(0, mask))
            tap.same((result.returncode, "this task may use 1 CPU:" in result.stderr), (0, warned),
                     f"{len(allowed)} of the 2 CPUs that Slurm granted")


def test_open_job(scratch):
    """Who can write a job description can let its user read and remove files."""
    job = write_job(scratch, "open", train="steps = 2; global_batch = 32;")
    for mode, warnings in ((0o644, 0), (0o666, 1)):
        os.chmod(job, mode)
        for args in (("config",), ("plan", "-n", "2"), ("run", "-n", "2", "--set", f"checkpoint.dir={scratch('open')}{mode}")):
            result = tap.run(*args, job)
            tap.same((result.returncode, result.stderr.count(f"warning: {job} can be written by everybody")),
                     (0, warnings), f"{args[0]} of a job of mode {mode:o}: said {warnings} times")


def main():
    with tap.Scratch() as scratch:
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 100, seed=2)
        test_usage(scratch)
        test_result(scratch)
        test_plan_of_ranks(scratch)
        test_same_bits(scratch)
        test_resume(scratch)
        test_resume_choices(scratch)
        test_bad_data(scratch)
        test_bad_places(scratch)
        test_diverged(scratch)
        test_worlds_of_one(scratch)
        test_other_data(scratch)
        test_fewer_cpus(scratch)
        test_open_job(scratch)
    tap.done()


main()
