"""Lockstep's Slurm plugins on a real cluster: options over srun, sbatch, salloc and #SBATCH lines, the GPU
request three ways, and no node that leaves service, whatever the options and configuration."""

import contextlib
import json
import os
import re
import shutil
import signal
import time

import tap
from cluster import CLUSTER, Cluster, skip_without_slurm

BUILD = os.path.abspath(os.environ.get("builddir", "."))
SPANK = os.path.join(BUILD, "plugins/spank_lockstep.so")
HIDE = os.path.join(BUILD, ".libs/hide_files.so")
SHOW = "echo gpus=$CUDA_VISIBLE_DEVICES check=$LOCKSTEP_CHECK plugin=${LOCKSTEP_SPANK:+yes}"


def drained(c):
    return c.run("sinfo", "-h", "-N", "-t", "drain,drained,draining,down,fail", "-o", "%N %T %E").stdout


def batch(c, *args, script=SHOW, lines=()):
    """Output of a batch script with #SBATCH lines."""
    with open(c.scratch("job"), "w") as f:
        f.write("#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines) + script + "\n")
    if os.path.exists(c.scratch("out")):
        os.remove(c.scratch("out"))
    r = c.run("sbatch", "-W", "-o", "out", *args, "job")
    out = tap.read(c.scratch("out"), "r") if os.path.exists(c.scratch("out")) else ""
    return r.returncode, out + r.stderr


def srun(c, *args, script=SHOW, env=()):
    saved = dict(c.env)
    c.env.update(env)
    r = c.run("srun", *args, "/bin/sh", "-c", script)
    c.env.clear()
    c.env.update(saved)
    return r.returncode, r.stdout + r.stderr


def salloc(c, *args, script=SHOW, env=()):
    saved = dict(c.env)
    c.env.update(env)
    r = c.run("salloc", *args, "srun", "sh", "-c", script)
    c.env.clear()
    c.env.update(saved)
    return r.returncode, r.stdout + r.stderr


@contextlib.contextmanager
def plugstack(c, text):
    """Another plugstack.conf for a while; steps and commands read it anew."""
    config = c.folder + "/etc/plugstack.conf"
    kept = tap.read(config, "r")
    with open(config, "w") as f:
        f.write(text)
    try:
        yield
    finally:
        with open(config, "w") as f:
            f.write(kept)


def gpus(result):
    found = re.findall(r"gpus=(\S*)", result[1])
    return result[0], found[0] if found else None


# ---- the request for GPUs ----------------------------------------------------------------------


def test_requests(c, way):
    """Each entrance, with what the task must see; the same for every way."""
    for what, got in (
            ("srun", srun(c, "-N1", "--lockstep-gpus=2")),
            ("srun, by type", srun(c, "-N1", "--lockstep-gpus=fake:2")),
            ("sbatch", batch(c, "--lockstep-gpus=2")),
            ("an #SBATCH line", batch(c, lines=["--lockstep-gpus=2"])),
            ("salloc", salloc(c, "-N1", "--lockstep-gpus=2")),
            ("LOCKSTEP_GPUS and srun", srun(c, env={"LOCKSTEP_GPUS": "2"})),
            ("LOCKSTEP_GPUS and salloc", salloc(c, env={"LOCKSTEP_GPUS": "2"})),
            ("the command line over LOCKSTEP_GPUS",
             srun(c, "--lockstep-gpus=2", env={"LOCKSTEP_GPUS": "1"})),
            ("the command line over an #SBATCH line",
             batch(c, "--lockstep-gpus=2", lines=["--lockstep-gpus=1"])),
            ("a step of a batch job", batch(c, "--lockstep-gpus=2", script=f"srun sh -c '{SHOW}'")),
            ("the same by --gpus-per-node", srun(c, "--lockstep-gpus=2", "--gpus-per-node=2")),
            ("the same by --gres", srun(c, "--lockstep-gpus=fake:2", "--gres=gpu:fake:2")),
            ("the same by --gpus", srun(c, "-N1", "--lockstep-gpus=2", "--gpus=2")),
            ("a part by --gpus-per-task", srun(c, "-N1", "-n1", "--ntasks-per-node=1", "--lockstep-gpus=2",
                                               "--gpus-per-task=2"))):
        tap.ok(gpus(got) == (0, "0,1"), f"{way}: two GPUs by {what}", got)
    got = srun(c, "-N2", "--ntasks-per-node=1", "--lockstep-gpus=1")
    tap.same((got[0], re.findall(r"gpus=(\S*)", got[1])), (0, ["0", "0"]), f"{way}: one on each node")
    got = batch(c, "--lockstep-gpus=2", script=f"srun --gpus-per-node=1 sh -c '{SHOW}'")
    tap.same(gpus(got), (0, "0"), f"{way}: a step may take a part")
    got = srun(c, script=SHOW)
    tap.same(gpus(got), (0, ""), f"{way}: a job without the option has none")
    with open(c.scratch("inner"), "w") as f:  # a job's own CUDA_VISIBLE_DEVICES may be that of the job around it
        f.write("#!/bin/sh\necho gpus=$(scontrol show job $SLURM_JOB_ID | sed -n 's/ *TresPerNode=//p')\n")
    inner = "sbatch -W -o inner.out {} inner >&2; cat inner.out"
    for option, want in (("", ""), ("--lockstep-gpus=1", "gres:gpu:1")):
        for what, got in (("a batch script", batch(c, "--lockstep-gpus=2", script=inner.format(option))),
                          ("a step", batch(c, "--lockstep-gpus=2",
                                           script=f"srun sh -c '{inner.format(option)}'"))):
            tap.same(gpus(got), (0, want), f"{way}: from {what}, sbatch {option} asks for that alone")
    r = c.run("salloc", "--lockstep-gpus=2", "sh", "-c", "salloc sh inner")
    tap.same(gpus((r.returncode, r.stdout)), (0, ""), f"{way}: and so does salloc inside of salloc")
    for args, text in ((["--lockstep-gpus=3"], "not available"),
                       (["--lockstep-gpus=1", "--gpus-per-node=2"], "say it once"),
                       (["--lockstep-gpus=2", "--gpus-per-node=fake:2"], "say it once"),
                       (["--lockstep-gpus=1", "--gres=gpu:2"], "say it once"),
                       (["--lockstep-gpus=fake:2", "--gres=gpu:2"], "say it once"),
                       (["-N2", "--lockstep-gpus=1", "--gpus=3"], "leave one of them out"),
                       (["--lockstep-gpus=1", "--gpus-per-socket=2", "--sockets-per-node=1"], "--gpus-per-socket"),
                       (["--lockstep-gpus=2", "--gpus-per-socket=1", "--sockets-per-node=1"], "--gpus-per-socket"),
                       (["-N1", "--ntasks-per-node=4", "--lockstep-gpus=2", "--gpus-per-task=1"], "raise it"),
                       (["--lockstep-gpus=x"], "expected the number of GPUs"),
                       (["--lockstep-gpus=0"], "1 to 32"), (["--lockstep-gpus="], "expected")):
        got = srun(c, *args)
        tap.ok(got[0] != 0 and text in got[1], f"{way}: {' '.join(args)} is refused", got)
    got = batch(c, "--lockstep-gpus=2", script="srun --lockstep-gpus=1 true")
    tap.ok(got[0] != 0 and "step inside of job" in got[1], f"{way}: a step cannot ask", got)
    # A step of a job that is there, from outside of it: only the filter knows before it runs.
    outside = "env -u SLURM_JOB_ID -u SLURM_JOBID srun --jobid=$SLURM_JOB_ID {} true"
    said = "whose GPUs are given" if way == "cli_filter.lua" else "granted 0 here"
    r = c.run("salloc", "-N1", "sh", "-c", outside.format("--lockstep-gpus=1"))
    tap.ok(said in r.stderr, f"{way}: srun --jobid cannot ask: {said}", r.returncode, r.stderr)
    r = c.run("salloc", "-N1", "sh", "-c", "export LOCKSTEP_GPUS=1; " + outside.format(""))
    tap.ok("--jobid" not in r.stderr and r.returncode == 0, f"{way}: LOCKSTEP_GPUS is no such mistake", r.stderr)
    got = salloc(c, "--lockstep-gpus=1", script="true")
    tap.same(got[0], 0, f"{way}: what salloc hands to srun is no request of its own")
    tap.same(drained(c), "", f"{way}: all nodes are in service")


def test_no_way(c):
    """The message comes in any case; whether the task goes on is the site's choice."""
    for need, failed in (("optional", False), ("required", True)):
        with plugstack(c, f"{need} {SPANK}\n"):
            for what, got in (("srun", srun(c, "--lockstep-gpus=2")),
                              ("sbatch", batch(c, "--lockstep-gpus=2")),
                              ("#SBATCH", batch(c, lines=["--lockstep-gpus=2"])),
                              ("LOCKSTEP_GPUS", srun(c, env={"LOCKSTEP_GPUS": "2"}))):
                tap.ok((got[0] != 0) == failed and "nothing installed" in got[1] and
                       "--gpus-per-node=2" in got[1],
                       f"no way installed, {need}: {what} says so" + failed * ", and fails", got)
            got = salloc(c, "--lockstep-gpus=2")
            tap.ok("this step has none" in got[1], f"no way installed, {need}: salloc's step says so", got)
            tap.same(gpus(srun(c, "--lockstep-gpus=2", "--gpus-per-node=2")), (0, "0,1"),
                     f"no way installed, {need}: --gpus-per-node is one")
    for what, got in (("srun", srun(c, "--gpus-per-node=1")), ("sbatch", batch(c, "--gpus-per-node=1")),
                      ("an #SBATCH line", batch(c, lines=["--gpus-per-node=1"])),
                      ("a step of it", batch(c, lines=["--gpus-per-node=1"], script=f"srun sh -c '{SHOW}'")),
                      ("salloc", salloc(c, "--gpus-per-node=1"))):
        tap.same(gpus(got), (0, "0"), f"which needs no option: {what}")
    tap.same(drained(c), "", "no way installed: all nodes are in service")


# ---- options -----------------------------------------------------------------------------------


def test_options(c):
    for what, got, want in (
            ("srun", srun(c, "--lockstep-check=full"), "full"),
            ("sbatch", batch(c, "--lockstep-check=full", script=f"srun sh -c '{SHOW}'"), "full"),
            ("an #SBATCH line", batch(c, lines=["--lockstep-check=fast"],
                                      script=f"srun sh -c '{SHOW}'"), "fast"),
            ("salloc", salloc(c, "--lockstep-check=fast"), "fast"),
            ("the variable", srun(c, env={"LOCKSTEP_CHECK": "fast"}), "fast"),
            ("the option over the variable",
             srun(c, "--lockstep-check=full", env={"LOCKSTEP_CHECK": "fast"}), "full"),
            ("an option, where the environment is left behind",
             srun(c, "--export=NONE", "--lockstep-check=full", script="PATH=/bin; " + SHOW), "full"),
            ("a variable, likewise", srun(c, "--export=NONE", env={"LOCKSTEP_CHECK": "fast"},
                                          script="PATH=/bin; " + SHOW), "fast"),
            ("nothing", srun(c), "")):
        found = re.findall(r"check=(\S*) plugin=yes", got[1])
        tap.ok(got[0] == 0 and found == [want], f"--lockstep-check by {what}", got)
    got = srun(c, "-N2", "--lockstep-explain", "--lockstep-transport=tcp", script="env")
    tap.ok("lockstep: rank 0: CUDA_DEVICE_ORDER = PCI_BUS_ID" in got[1] and
           "lockstep: rank 0: CUDA_VISIBLE_DEVICES left alone" in got[1],
           "--lockstep-explain says what was set and what was not", got[1])
    tap.ok("rank 1:" not in got[1], "on the first node", got[1])
    tap.same(got[1].count("LOCKSTEP_TRANSPORT=tcp"), 2, "the transport reaches run and exec")
    for name in ("OMP_NUM_THREADS", "CUDA_DEVICE_ORDER", "NCCL_DEBUG"):
        got = srun(c, env={name: "mine"}, script=f"echo ${name}")
        tap.ok("mine" in got[1].split(), f"the user's {name} stays", got)
    for args, env in ((["--lockstep-plugin=no"], {}), ([], {"LOCKSTEP_PLUGIN": "no"})):
        got = srun(c, *args, env=env, script="env")
        tap.ok("CUDA_DEVICE_ORDER" not in got[1] and "LOCKSTEP_SPANK=" not in got[1] and
               "lockstep: " not in got[1], f"switched off by {args or env}", got[1])
    got = c.run("srun", "--help")
    tap.same(got.stdout.count("--lockstep-"), 6, "srun --help lists the options")
    # A demand that this machine cannot meet; whether it ends the task is the site's choice.
    for need, code in (("optional", 0), ("required", 1)):
        with plugstack(c, f"{need} {SPANK}\n"):
            got = srun(c, "--lockstep-transport=ib")
        tap.ok(got[0] == code and "'ib' was asked for" in got[1],
               f"InfiniBand on demand, where there is none: {need} ends with {code}", got)
    got = batch(c, script=SHOW)
    tap.ok(got[0] == 0 and "plugin=\n" in got[1], "a batch script's own environment is left alone", got)
    tap.same(drained(c), "", "all nodes are in service")


# ---- limits ------------------------------------------------------------------------------------


def limits(c, words, *args, soft=(32, 1000)):
    """Locked memory in KiB and open files of a task, submitted from a shell with low soft limits."""
    low = 'ulimit -S -l "$1" && ulimit -S -n "$2" && shift 2 && exec "$@"'
    with plugstack(c, f"required {SPANK} {words}\n"):
        r = c.run("bash", "-c", low, "-", *map(str, soft), *args)
    return r.stdout.split(), r.stderr


def test_limits(c):
    """The soft limits of the shell come along, and Slurm sets them after every hook of a plugin."""
    show = ["sh", "-c", "ulimit -S -l; ulimit -S -n"]
    hard = c.run("srun", "sh", "-c", "ulimit -H -l; ulimit -H -n").stdout.split()
    if any(h != "unlimited" and int(h) < least for h, least in zip(hard, (64, 2000))):
        print(f"# WARNING: the hard limits here are {hard}: raised limits are NOT tested")
        return
    tap.same(limits(c, "", "srun", *show)[0], ["32", "1000"], "limits: the shell's where nothing is raised")
    for words, args, want in (
            ("memlock=hard nofile=hard", ["srun"], hard), ("memlock=64KiB nofile=2000", ["srun"], [64, 2000]),
            ("nofile=2000", ["srun"], ["32", 2000]), ("nofile=500", ["srun"], ["32", "1000"]),
            ("memlock=hard nofile=hard", ["srun", "--propagate=MEMLOCK"], ["32", hard[1]]),
            ("memlock=hard nofile=hard", ["srun", "--propagate=ALL"], ["32", "1000"]),
            ("memlock=hard nofile=hard", ["salloc", "srun"], hard)):
        got = limits(c, words, *args, *show)[0]
        tap.ok(len(got) == 2 and all(g == w if isinstance(w, str) else g == "unlimited" or int(g) >= w
                                     for g, w in zip(got, want)),  # a number: at least
               f"limits: {words}, {' '.join(args)}", got, want)
    with open(c.scratch("job"), "w") as f:
        f.write("#!/bin/sh\nulimit -S -l; ulimit -S -n\nsrun sh -c 'ulimit -S -l; ulimit -S -n'\n")
    limits(c, "memlock=hard nofile=hard", "sbatch", "-W", "-o", "out", "job")
    tap.same(tap.read(c.scratch("out"), "r").split(), 2 * hard, "limits: raised in a batch script and below")
    if c.run("sh", "-c", "ulimit -H -l unlimited").returncode == 0:
        tap.same(limits(c, "memlock=unlimited", "srun", *show)[0][0], "unlimited", "limits: memlock=unlimited")
    else:
        print("# WARNING: no hard limit can be raised here: memlock=unlimited is tested as an error only")
        tap.ok("cannot raise memlock" in limits(c, "memlock=unlimited", "srun", *show)[1],
               "limits: what cannot be raised is said")
    warning = "at most 300 open files"
    tap.ok(warning in limits(c, "", "srun", *show, soft=(32, 300))[1], "limits: what will be is warned of")
    got = limits(c, "nofile=hard", "srun", *show, soft=(32, 300))
    tap.ok(warning not in got[1], "limits: and not where it is raised", got)
    config, other = c.env["SLURM_CONF"], c.folder + "/etc/other.conf"
    with open(other, "w") as f:
        f.write(tap.read(config, "r") + "PropagateResourceLimitsExcept=NOFILE\n")
    c.env["SLURM_CONF"] = other
    got = limits(c, "", "srun", *show, soft=(32, 300))
    c.env["SLURM_CONF"] = config
    tap.ok(warning not in got[1] and got[0][0] == "32" and got[0][1] != "300",
           "limits: nor where slurm.conf propagates none", got)


# ---- lockstep plugin check ---------------------------------------------------------------------


def test_plugin_check(c):
    program = os.path.join(BUILD, "lockstep")

    def check(*args):
        r = c.run("salloc", "-N3", "-w", "n[0-2]", program, "plugin", "check", *args)
        return r.returncode, sorted(r.stdout.splitlines()), r.stderr

    version = c.run(program, "--version").stdout.split()[1]
    got = check()
    tap.same(got[:2], (0, [f"n{i}: ok, spank_lockstep {version}" for i in range(3)]),
             "plugin check: three nodes have it")
    got = check("--json")
    tap.same((got[0], [json.loads(line) for line in got[1]]),
             (0, [{"node": f"n{i}", "ok": True, "version": version} for i in range(3)]), "as JSON")
    c.env["LOCKSTEP_SPANK"] = version + "/1.0"  # a lie that the environment brings along
    with plugstack(c, ""):
        got = check()
    tap.ok(got[0] == 1 and len(got[1]) == 3 and all("FAILED" in line for line in got[1]),
           "plugin check: without the plugin each node is named", got)
    del c.env["LOCKSTEP_SPANK"]
    r = c.run("srun", "-N2", program, "plugin", "check")
    tap.ok(r.returncode == 0 and r.stdout.count("ok") == 2, "plugin check as a step", r.stdout, r.stderr)
    with open(c.scratch("job"), "w") as f:
        f.write(f"#!/bin/sh\n{program} plugin check\n")
    r = c.run("sbatch", "-W", "-N2", "-n8", "--ntasks-per-node=4", "-o", "out", "job")
    got = [line for line in tap.read(c.scratch("out"), "r").splitlines() if "srun:" not in line]
    tap.ok(r.returncode == 0 and len(got) == 2 and all(": ok, " in line for line in got),
           "plugin check in a batch job of eight tasks", got)
    for args, code, text in ((["check"], 4, "no allocation"), ([], 2, "verb"), (["look"], 2, "verb"),
                             (["check", "x"], 2, "verb"), (["--help"], 0, "Usage")):
        r = c.run(program, "plugin", *args)
        tap.ok(r.returncode == code and text in r.stdout + r.stderr,
               f"plugin {' '.join(args)}: {code}", r.stderr)


def restart_node(c, n, text):
    """slurmd of node `n` alone reads another plugstack.conf."""
    conf, own = f"{c.folder}/etc/slurm-n{n}.conf", f"/etc/plugstack-n{n}.conf"
    with open(c.folder + own, "w") as f:
        f.write(text)
    with open(conf, "w") as f:
        f.write(tap.read(c.folder + "/etc/slurm.conf", "r").replace("/etc/plugstack.conf", own))
    c.control("kill-node", str(n))
    started = c.run("env", f"LS_CLUSTER_NODE={c.folder}/n{n}", "slurmd", "-N", f"n{n}", "-f", conf)
    tap.same(started.returncode, 0, f"n{n} starts with a plugstack.conf of its own")


def test_plugin_check_faults(c):
    """Every node is verified: of three, one lacks the plugin, one has another version; then one does not answer."""
    program = os.path.join(BUILD, "lockstep")
    version = c.run(program, "--version").stdout.split()[1]
    other = version[:-1] + ("8" if version[-1] != "8" else "7")
    with open(SPANK, "rb") as f:
        binary = f.read()
    tap.ok(binary.count(version.encode()) > 0, "the version is in the plugin")
    with open(c.scratch("spank_lockstep.so"), "wb") as f:
        f.write(binary.replace(version.encode(), other.encode()))
    restart_node(c, 1, "")
    restart_node(c, 2, f"optional {c.scratch('spank_lockstep.so')}\n")

    def check(script=""):
        r = c.run("salloc", "-N3", "sh", "-c", f"{script} exec {program} plugin check --json")
        found = {}
        for line in r.stdout.splitlines():
            one = json.loads(line)
            found[one["node"]] = (one["ok"], one.get("version"), one.get("problem", "")[:24])
        return r.returncode, found
    missing = (False, None, "the plugin did nothing h")
    differs = (False, other, "the plugin is of version")
    tap.same(check(), (1, {"n0": (True, version, ""), "n1": missing, "n2": differs}),
             "plugin check: one node without it, one with another version")
    got = check(f"{CLUSTER} crash-node 2;")
    tap.same(got, (1, {"n0": (True, version, ""), "n1": missing, "n2": (False, None, "no answer: the step did ")}),
             "plugin check: a node that is dead")


def test_variables_of_nodes(c):
    """Nodes with other devices get other variables, and lockstep run knows that they are not the user's."""
    if not os.path.exists(os.path.join(BUILD, "plugins/lockstep_cpu.so")):
        print("# WARNING: no CPU backend was built: lockstep run is NOT tested on nodes that differ")
        return
    tap.make_set(c.scratch("train"), 64)
    tap.make_set(c.scratch("test"), 32)
    with open(c.scratch("job.cfg"), "w") as f:
        f.write(tap.job_text(c.scratch.path, train="steps = 2; global_batch = 32;"))
    run = os.path.join(BUILD, "lockstep") + " run job.cfg --resume=never"
    differ = "export NCCL_IB_HCA==$SLURMD_NODENAME:1; "
    got = srun(c, "-N2", "--mpi=pmix", "--ntasks-per-node=1", script=differ + run)
    tap.ok(got[0] != 0 and "NCCL_IB_HCA is" in got[1], "ranks with different variables are refused", got)
    plugin = 'LOCKSTEP_SET="$LOCKSTEP_SET;NCCL_IB_HCA=$NCCL_IB_HCA"; '
    got = srun(c, "-N2", "--mpi=pmix", "--ntasks-per-node=1", script=differ + plugin + run)
    tap.ok(got[0] == 0, "unless the plugin has set them", got)


def test_site(c):
    """With several ranks in a task the launcher decides, by the file that plugstack.conf names."""
    exec2 = [os.path.join(BUILD, "lockstep"), "exec", "--workers-per-task=2", "--", "sh", "-c",
             "echo ifname=$NCCL_SOCKET_IFNAME eps=$UCX_NUM_EPS"]
    step = ["srun", "-N2", "--mpi=pmix", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
    for text, want in (("interface = lo\n", "ifname==lo eps=4"), ("enabled = no\n", "ifname= eps=")):
        with open(c.scratch("site.conf"), "w") as f:
            f.write(text)
        with plugstack(c, f"required {SPANK} site={c.scratch('site.conf')}\n"):
            r = c.run(*step, *exec2)
        tap.ok(r.returncode == 0 and r.stdout.splitlines() == [want] * 4,
               f"site file of plugstack.conf: '{text.strip()}' holds for ranks", r.stdout, r.stderr)
    r = c.run(*step, "--lockstep-explain", *exec2)
    said = [re.findall(rf"rank {rank}: UCX_NUM_EPS = (\d+)", r.stderr) for rank in range(4)]
    tap.same(said, [["2", "4"], ["4"], [], []],
             "--lockstep-explain: the task's decision, and then those for its ranks, of the first node")


# ---- nothing drains a node ---------------------------------------------------------------------

HOSTILE = [[f"--lockstep-{option}={value}"]
           for option in ("gpus", "transport", "bind", "check", "plugin")
           for value in ("", "-1", "%s%n", "x" * 5000)] + [
    ["--lockstep-transport=roce"], ["--lockstep-transport=ib", "--lockstep-bind=none"],
    ["--lockstep-gpus=2", "--gpus-per-task=1", "-n2"],
    ["--lockstep-gpus=1", "--gpus-per-node=2"], ["--lockstep-gpus=32"],
    ["--lockstep-transport=shm", "-N2"], ["--lockstep-explain", "-n4", "-N1", "-O"],
    ["--lockstep-gpus=1", "--lockstep-explain", "--export=NONE"],
    ["--lockstep-explain", "--export=CUDA_VISIBLE_DEVICES=0,,1"],
    ["--export=ALL,CUDA_VISIBLE_DEVICES=%s%n,SLURM_STEP_GPUS=-1,SLURM_GPUS_ON_NODE=999999999999"]]

CONFIGS = ["enabled=no", "enabeld=yes", "memlock=unlimited nofile=999999999", "memlock=-1", "site=/absent",
           "site=/dev/zero", "root=/absent", "root=/proc/self", "transport=ib", "check=full bind=none",
           "=", "x" * 3000, "%s%n"]


def test_hostile(c):
    with plugstack(c, f"required {SPANK}\n"):  # an optional one drains nothing in any case
        hostile_options(c)
    hostile_configs(c, ("optional", "required"))
    forged_options(c)
    mixed_installs(c)


def hostile_options(c):
    for args in HOSTILE:
        codes = (c.run("srun", *args, "true").returncode,
                 batch(c, *args, script="true")[0], c.run("salloc", *args, "srun", "true").returncode)
        tap.same(drained(c), "", f"srun, sbatch and salloc {' '.join(args)[:60]} {codes}: no node is drained")


def hostile_configs(c, needs):
    for words in CONFIGS:
        for need in needs:
            with plugstack(c, f"{need} {SPANK} {words}\n"):
                codes = (c.run("srun", "-N2", "true").returncode, batch(c, script="srun true")[0])
            tap.same(drained(c), "", f"plugstack.conf {need} {words[:30]} {codes}: no node is drained")


def forged_options(c):
    """Anybody can set the variables by which Slurm hands options to nodes, past everything that srun checks; so it
    does where login nodes have no plugin."""
    config, other = c.env["SLURM_CONF"], c.folder + "/etc/other.conf"
    with open(other, "w") as f:
        f.write(tap.read(config, "r").replace("/etc/plugstack.conf", "/etc/other.stack"))
    with open(c.folder + "/etc/other.stack", "w"):
        pass
    kept = dict(c.env)
    with plugstack(c, f"required {SPANK}\n"):
        for option in ("gpus", "transport", "bind", "check", "plugin", "explain"):
            for value in ("", "-1", "%s%n", "x" * 5000):
                c.env.update({"SLURM_CONF": other, f"_SLURM_SPANK_OPTION_lockstep_lockstep_{option}": value})
                got, code = srun(c, "-N2"), batch(c, script="srun true")[0]
                c.env.clear()
                c.env.update(kept)
                tap.same(drained(c), "", f"a forged {option}={value[:8]} {got[0], code}: no node is drained")
                if value == "%s%n" and option != "plugin":  # whose every other word is no
                    tap.ok(got[0] != 0 and f"--lockstep-{option}" in got[1], "and its task says what is wrong", got)


def mixed_installs(c):
    for text, what in (("", "absent"), ("optional /absent/spank_lockstep.so\n", "missing"),
                       (f"optional {SPANK}\noptional {SPANK}\n", "named twice")):
        with plugstack(c, text):
            tap.same((c.run("srun", "-N2", "true").returncode, drained(c)), (0, ""),
                     f"the plugin is {what}")
    # Options that login nodes know, and the nodes do not, and the other way round.
    config, other = c.env["SLURM_CONF"], c.folder + "/etc/other.conf"
    with open(other, "w") as f:
        f.write(tap.read(config, "r").replace("/etc/plugstack.conf", "/etc/other.stack"))
    ours = f"optional {SPANK}\n"
    for login, node, what in ((ours, "", "login nodes"), ("", ours, "compute nodes")):
        with open(c.folder + "/etc/other.stack", "w") as f:
            f.write(login)
        option = ["--lockstep-check=full"] if login else []
        with plugstack(c, node):
            c.env["SLURM_CONF"] = other
            code = c.run("srun", *option, "-N2", "true").returncode
            c.env["SLURM_CONF"] = config
        tap.same(drained(c), "", f"only {what} have the plugin ({code}): no node is drained")
    tap.same((c.run("srun", "-N4", "true").returncode, drained(c)), (0, ""), "and the cluster works")


def store(root, files):
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "w") as f:
            f.write(text)


def test_order(c):
    """Before or after a plugin that hides the machine's files from the task: the decisions are the same."""
    tree = c.scratch("machine")
    store(tree, {"sys/devices/system/cpu/online": "0-3\n", "proc/meminfo": "MemTotal: 16777216 kB\n",
                 "etc/nccl.conf": "NCCL_DEBUG=INFO\n", "dev/nvidia0": "", "dev/nvidia1": "",
                 **{f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information": f"Device Minor: {minor}\n"
                    for minor, bus in ((0, "23"), (1, "43"))}})
    show = "for d; do ls $d | wc -l; done"
    for what, root, folders, gpu in (
            ("this machine", "", ["/sys", "/etc", "/dev"], "GPUs none"),
            ("a stored one", f"root={tree}", [f"{tree}/{d}" for d in ("sys", "proc", "etc", "dev")],
             "GPUs 0000:23:00.0 0000:43:00.0")):
        said = []
        ours, hide = f"required {SPANK} {root}\n", f"optional {HIDE} {' '.join(folders)}\n"
        for text in (ours, ours + hide, hide + ours):
            with plugstack(c, text):
                r = c.run("srun", "-N1", "-w", "n0", "--gpus-per-node=2", "--lockstep-explain", "sh", "-c", show,
                          "-", *folders)
            said.append((r.returncode, [l for l in r.stderr.splitlines() if "lockstep:" in l],
                         set(r.stdout.split()) == {"0"}, r.stderr))
        if any("hide_files: not allowed" in s[3] for s in said):
            print("# WARNING: mount namespaces are not allowed here: the order of plugins is NOT tested")
            return
        tap.same([s[2] for s in said], [False, True, True], f"{what}: a plugin hides the files of the machine")
        tap.ok(said[0][0] == 0 and len(said[0][1]) > 10 and gpu in said[0][3], f"{what}: decisions without it",
               said[0])
        for i, place in ((1, "after"), (2, "before")):
            tap.same(said[i][:2], said[0][:2], f"{what}: the same with that plugin {place} ours")


def traced(c, text, step):
    """Files, programs and kinds of connections of slurmd on n0 and all that comes from it, for one step."""
    out = c.scratch("strace")
    with plugstack(c, text):
        pid = tap.read(c.folder + "/run/slurmd-n0.pid", "r").strip()
        tracer = c.start_step("strace", "-f", "-qq", "-o", out, "-s", "4096", "-e",
                              "trace=openat,execve,connect", "-p", pid)
        # It traces once it has opened its output and the step below is seen in it.
        while not os.path.exists(out) and tracer.poll() is None:
            time.sleep(0.02)
        for _ in range(100):
            if c.run("srun", "-N1", "-w", "n0", "/bin/true", step).returncode or tracer.poll() is not None:
                break
            if step in tap.read(out, "r"):
                break
        tracer.send_signal(signal.SIGINT)
        said = tracer.communicate(timeout=60)[0]
    calls = [line for line in (tap.read(out, "r") if os.path.exists(out) else "").splitlines()
             if "ENOENT" not in line]
    if os.path.exists(out):
        os.remove(out)
    return (said, {m.group(1) for line in calls for m in [re.search(r'openat\([^"]*"([^"]*)"', line)] if m},
            {m.group(1) for line in calls for m in [re.search(r'execve\("([^"]*)"', line)] if m},
            {m.group(1) for line in calls for m in [re.search(r"connect\(\d+, {sa_family=(\w+)", line)] if m})


def test_live_trace(c):
    if not shutil.which("strace"):
        tap.ok(True, "slurmstepd is traced # SKIP found no strace; on Debian: apt-get install strace")
        return
    without, having = (traced(c, text, f"trace-{i}") for i, text in
                       enumerate(("", f"required {SPANK} check=fast\n")))
    if not without[2]:
        tap.ok(True, "slurmstepd is traced # SKIP strace may not trace slurmd here: " +
               " ".join(without[0].split()))
        return
    tap.ok(SPANK in having[1] and SPANK not in without[1], "slurmstepd is traced with and without it")
    tap.same((having[2], having[3]), (without[2], without[3]),
             "the plugin adds no program and no kind of connection to slurmstepd")
    # Numbers of processes differ from run to run, and so does how much of the task's program is traced.
    more = {re.sub(r"\d+", "N", f) for f in having[1]} - {re.sub(r"\d+", "N", f) for f in without[1]}
    tap.same(sorted(f for f in more if f.startswith("/") and f != re.sub(r"\d+", "N", SPANK) and
                    not (f + "/").startswith(("/sys/", "/proc/", "/dev/", "/etc/", "/lib", "/usr/lib/locale/"))
                    and c.folder not in f and not f.startswith(re.sub(r"\d+", "N", c.folder))),
             [], f"and {len(more)} files, all of the machine's own or the site's")


def with_cluster(scratch, test, *options):
    with Cluster(scratch, *options) as c:
        test(c)
        log = "".join(tap.read(f"{c.folder}/log/{name}", "r") for name in os.listdir(c.folder + "/log"))
        tap.ok("segfault" not in log and "core dumped" not in log.lower(), "nothing crashed")


def main():
    skip_without_slurm()
    if not os.path.exists(SPANK):
        print("1..0 # SKIP the Slurm plugins are not built: configure found no Slurm headers")
        return
    with tap.Scratch() as scratch:
        def lua(c):
            test_requests(c, "cli_filter.lua")
            test_options(c)
            test_limits(c)
            test_site(c)
            test_plugin_check(c)
            test_variables_of_nodes(c)
            test_order(c)
            test_live_trace(c)
            test_hostile(c)
        with_cluster(scratch, lua, "--gpu-type=fake")
        with_cluster(scratch, lambda c: test_requests(c, "job_submit"), "--gpu-request=job_submit",
                     "--gpu-type=fake")
        with_cluster(scratch, test_plugin_check_faults, "--nodes=3")
        with_cluster(scratch, test_no_way, "--gpu-request=no", "--nodes=2")
    tap.done()


if __name__ == "__main__":  # test_groups.py does some of it again
    main()
