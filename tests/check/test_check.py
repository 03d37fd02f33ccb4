"""lockstep check without Slurm: verdicts, exit codes, forms of output, and faults that are put in by LD_PRELOAD."""

import json
import os
import sys

import tap

LIBRARIES = os.path.join(os.environ.get("builddir", "."), "tests/check/.libs")
FAULT = os.path.join(os.environ.get("builddir", "."), "tests/check/.libs/fault.so")

# What Slurm says of a step with two GPUs.
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "n0",
        "SLURM_JOB_NODELIST": "n0", "SLURM_NODELIST": "n0", "SLURMD_NODENAME": "n0",
        "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_NUM_NODES": "1",
        "SLURM_TASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "2"}


def check(*args, fault=None, **kwargs):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMIX", "NCCL", "UCX"))}
    env.update(kwargs.pop("env", {}))
    if fault:
        env.update(LD_PRELOAD=FAULT, LS_FAULT=fault)
        # In a build with AddressSanitizer, its library then is not the first.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return tap.run("check", *args, env=env, **kwargs)


def by_id(result):
    """The results of a JSON report by the id of their check."""
    found = {}
    for one in json.loads(result.stdout)["checks"]:
        found.setdefault(one["id"], []).append(one)
    return found


def status(result, name):
    return sorted({one["status"] for one in by_id(result).get(name, [])})


def test_machine(scratch):
    result = check(cwd=scratch.path)
    tap.ok(result.returncode == 0 and "1 node in" in result.stdout, "a machine alone is fine",
           result.stdout, result.stderr)
    tap.ok("not in a Slurm job: env.slurm" in result.stdout, "what could not run says why",
           result.stdout)
    tap.ok(not [n for n in os.listdir(scratch.path) if "check" in n], "and leaves nothing behind")
    result = check("--json", cwd=scratch.path)
    report = json.loads(result.stdout)
    tap.same([report["schema"], report["exit_code"], report["ranks"], len(report["nodes"]), report["stuck"]],
             [1, 0, 1, 1, None], "JSON: schema, exit code, ranks, nodes, stuck")
    keys = {"id", "status", "node", "rank", "device", "measured", "expected", "advice"}
    tap.ok(all(set(one) == keys for one in report["checks"]), "JSON: every result has all keys")
    tap.ok(sum(report["counts"].values()) > 20, "JSON: counts", report["counts"])
    tap.same(status(result, "net.pair"), ["skip"], "one node: net.pair is skipped, not passed")
    tap.same(status(result, "fs.out"), ["pass"], "fs.out passes in both halves")
    result = check("--nagios", cwd=scratch.path)
    tap.ok(result.returncode == 0 and result.stdout.startswith("LOCKSTEP OK") and
           result.stdout.count("\n") == 1 and "|" in result.stdout, "Nagios: one line",
           result.stdout)
    result = check("-q", cwd=scratch.path)
    tap.same(result.stdout, "", "quiet, and fine: nothing")


def test_warnings(scratch):
    env = {"NCCL_IB_DISABLE": "1"}
    result = check("--json", cwd=scratch.path, env=env)
    tap.ok(result.returncode == 0 and status(result, "env.nccl") == ["warn"],
           "a warning alone does not fail", result.stdout)
    tap.same(check("--strict", cwd=scratch.path, env=env).returncode, 3, "--strict: 3")
    result = check("--nagios", cwd=scratch.path, env=env)
    tap.ok(result.returncode == 1 and "WARNING - env.nccl" in result.stdout, "Nagios: 1",
           result.stdout)
    result = check("-q", cwd=scratch.path, env=env)
    tap.ok("NCCL_IB_DISABLE=1; expected not set; nodes then talk over TCP" in result.stdout,
           "measured, expected, advice", result.stdout)


def test_faults(scratch):
    where = scratch("out")
    os.mkdir(where)
    own = os.path.realpath(where)
    result = check("--json", cwd=where, fault="*:hang:./.lockstep-check")
    tap.same(result.returncode, 5, "a file system that hangs: exit code 5")
    tap.same(status(result, "fs.out"), ["timeout"], "and the check that did not answer")
    tap.ok(json.loads(result.stdout)["seconds"] < 30, "the others are not held up",
           result.stdout[-200:])
    tap.same(status(result, "sys.cpu"), ["pass"], "and have passed")
    result = check("--nagios", cwd=where, fault="*:hang:./.lockstep-check")
    tap.ok(result.returncode == 3 and "UNKNOWN - fs.out on " in result.stdout and
           " failed=0 timedout=1 " in result.stdout and result.stdout.count("|") == 1, "Nagios: 3",
           result.stdout)
    result = check("--json", cwd=where, fault="*:crash:./.lockstep-check")
    tap.ok(result.returncode == 1 and status(result, "fs.out") == ["fail"] and
           "signal 9" in by_id(result)["fs.out"][0]["measured"],
           "a check that crashes has failed", result.stdout[-600:])
    result = check("--json", cwd=where, fault="*:stale:./.lockstep-check")
    tap.ok(result.returncode == 1 and status(result, "fs.out") == ["fail"] and
           "holds old data" in by_id(result)["fs.out"][0]["measured"],
           "a name that still means what was renamed away has failed", result.stdout[-600:])
    result = check("--json", cwd=where, fault="*:absent:./.lockstep-check")
    tap.ok(result.returncode == 1 and [one["status"] for one in by_id(result)["fs.out"]] == ["fail"],
           "a folder that cannot be written has failed, once", by_id(result)["fs.out"])
    tap.ok(check("--nagios", cwd=where, fault="*:absent:./.lockstep-check").returncode == 2,
           "Nagios: 2")
    tap.same(os.listdir(own), [], "nothing is left behind")


def test_hanging_reads(scratch):
    """What is read before any check runs: the machine, and the job."""
    result = check("--json", cwd=scratch.path, fault="*:hang:/sys/class/net/lo/operstate")
    tap.same([result.returncode, status(result, "sys.machine"), status(result, "gpu.visible"),
              status(result, "sys.shm"), status(result, "fs.out")],
             [5, ["timeout"], ["skip"], ["skip"], ["pass"]],
             "a device that hangs: 5, and the checks that need no machine go on")
    result = check("--json", cwd=scratch.path, fault="*:crash:/sys/class/net/lo/operstate")
    tap.ok(result.returncode == 1 and "died" in by_id(result)["sys.machine"][0]["measured"],
           "reading the machine crashes: 1", result.stdout[-600:], result.stderr)
    job = scratch("hangs.cfg")
    with open(job, "w") as f:
        f.write(tap.job_text(scratch.path))
    result = check(job, fault=f"*:hang:{job}")
    tap.ok(result.returncode == 5 and f"{job}: no answer" in result.stderr,
           "a job file that hangs: 5, and the file", result.stdout, result.stderr)
    result = check(job, fault=f"*:crash:{job}")
    tap.ok(result.returncode == 1 and "has died" in result.stderr, "reading the job crashes: 1",
           result.stdout, result.stderr)


def test_job(scratch):
    job = scratch("tiny.cfg")
    with open(job, "w") as f:
        f.write(tap.job_text(scratch.path))
    result = check("--json", job)
    tap.same([status(result, n) for n in ("job.cfg", "job.data", "job.memory", "fs.out")],
             [["pass"]] * 4, "a job: description, data, memory, output")
    tap.ok(not os.path.exists(scratch("tiny.ckpt")), "the checkpoint folder is not made")
    result = check("--json", job, env={"SLURM_MEM_PER_NODE": "20"})
    tap.ok(result.returncode == 1 and status(result, "job.memory") == ["fail"] and
           "SLURM_MEM_PER_NODE" in by_id(result)["job.memory"][0]["expected"],
           "a job that does not fit into --mem", result.stdout[-600:])
    # One of its GPUs is granted 10 MiB.
    step = {**STEP, "SLURM_MEM_PER_GPU": "10"}
    result = check("--json", job, env=step)
    tap.ok(status(result, "job.memory") == ["fail"] and
           "20.0 MiB, by SLURM_MEM_PER_GPU" in by_id(result)["job.memory"][0]["expected"],
           "a job that does not fit into --mem-per-gpu", result.stdout[-600:], result.stderr)
    tap.same(status(result, "gpu.nvlink"), ["skip"],
             "a check of two halves that has nothing to do in the second one is skipped, and no more")
    result = check("--json", "--workers-per-task", "1000000", job)
    tap.same(result.returncode, 2, "too many workers are a usage error")
    os.rename(scratch("test-labels"), scratch("elsewhere"))
    result = check("--json", job)
    tap.ok(result.returncode == 1 and status(result, "job.data") == ["fail"],
           "a data file is missing", result.stdout[-600:])
    os.rename(scratch("elsewhere"), scratch("test-labels"))
    result = check("-s", "checkpoint.dir=/proc/none", job)
    tap.ok(result.returncode == 1 and "cannot create a file in /proc" in result.stdout,
           "a checkpoint folder that cannot be written", result.stdout)
    result = check("-s", "train.stepz=1", job)
    tap.ok(result.returncode == 2 and "train.steps" in result.stderr,
           "a mistake in the job is a usage error", result.stderr)


def test_gpus(scratch):
    """gpu.bw with a library that plays CUDA, which the program finds as it finds the real one."""
    step = {**STEP, "LD_LIBRARY_PATH": LIBRARIES, "FAKE_CUDA_RUN": str(os.getpid())}

    def measured(wish):
        result = check("--json", cwd=scratch.path, env={**step, "FAKE_CUDA": wish})
        return [(one["status"], one["device"], one["measured"]) for one in by_id(result).get("gpu.bw", [])]

    tap.same(measured(""), [("pass", None, "2 x NVIDIA Test GPU: 50.0 GB/s to it, 40.0 GB/s from it, 60.0 TFLOP/s in "
                                         "the middle")], "gpu.bw: two GPUs")
    tap.same(measured("*:down:1=30"), [("fail", "0000:a1:00.0", "30.0 GB/s from it, 25 % below the median")],
             "gpu.bw: one of them is slow")
    tap.same(measured("*:hang:cuMemcpyDtoHAsync_v2"), [("timeout", None, "no answer after 12 s")],
             "gpu.bw: a GPU that hangs")


def test_usage(scratch):
    for args in (("--slow",), ("a", "b"), ("--json", "--nagios"), ("-s", "a=1")):
        tap.same(check(*args, cwd=scratch.path).returncode, 2, f"usage: {' '.join(args)}")
    result = check("--help")
    tap.ok(result.returncode == 0 and "--nagios" in result.stdout, "help")


def test_run(scratch):
    job = scratch("tiny.cfg")
    for value, code in (("fast", 0), ("off", 0), ("", 0), ("sometimes", 2)):
        result = tap.run("run", "-q", "-s", f"checkpoint.dir={scratch('run' + value)}", job,
                         env={**os.environ, "LOCKSTEP_CHECK": value})
        tap.ok(result.returncode == code and ("done after" in result.stdout) == (code == 0),
               f"LOCKSTEP_CHECK={value}: run ends with {code}", result.stdout, result.stderr)
    result = tap.run("run", "-q", "-s", "checkpoint.dir=/proc/none", job,
                     env={**os.environ, "LOCKSTEP_CHECK": "fast"})
    tap.ok(result.returncode == 1 and "fs.out" in result.stderr and not result.stdout and
           "nothing is started" in result.stderr, "a check that fails: run does not start",
           result.stdout, result.stderr)


def main():
    if not os.path.exists(FAULT):
        print(f"1..0 # SKIP found no {FAULT}")
        sys.exit(0)
    with tap.Scratch() as scratch:
        tap.make_set(scratch("train"), 512)
        tap.make_set(scratch("test"), 100, seed=2)
        test_machine(scratch)
        test_warnings(scratch)
        test_faults(scratch)
        test_hanging_reads(scratch)
        test_job(scratch)
        test_gpus(scratch)
        test_usage(scratch)
        test_run(scratch)
    tap.done()


main()
