"""`lockstep exec` without Slurm: programs as ranks of one machine, their variables, output, signals and ends."""

import json
import os
import signal
import subprocess
import sys
import time

import tap

HELPER = os.path.join(os.environ.get("srcdir", "."), "tests", "cli", "exec_helper.py")


def clean_env(**extra):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    env = {k: v for k, v in os.environ.items()
           if k not in names and not k.startswith(("SLURM", "PMIX", "TORCHELASTIC", "OMPI", "JAX"))}
    return {**env, **extra}


def run(*args, env=None, stdin=None, binary=False):
    return subprocess.run([tap.program(), "exec", *args], env=env or clean_env(), input=stdin,
                          stdin=None if stdin is not None else subprocess.DEVNULL,
                          capture_output=True, text=not binary, timeout=120, check=False)


def helper(*args):
    return [sys.executable, HELPER, *args]


def last_line(result):
    lines = result.stderr.strip().splitlines()
    return lines[-1] if lines else ""


def check_end(result, code, *words):
    """The exit code, and what the last line says."""
    what = f"exit {code}: " + ", ".join(words)
    tap.ok(result.returncode == code and all(w in last_line(result) for w in words), what,
           f"code {result.returncode}", result.stderr)


# ---- variables ----

def told(scratch, n):
    ranks = []
    for r in range(n):
        with open(scratch(f"rank-{r}.json")) as f:
            ranks.append(json.load(f))
    return ranks


def test_variables(scratch):
    for n in (1, 2, 3, 4):
        result = run("-n", str(n), "--", *helper("tell", scratch.path), stdin="hello")
        if not tap.ok(result.returncode == 0, f"{n} ranks tell what they know", result.stderr):
            continue
        ranks = told(scratch, n)
        env = [r["env"] for r in ranks]
        for r, e in enumerate(env):
            want = {"RANK": r, "WORLD_SIZE": n, "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": n,
                    "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "NODE_RANK": 0, "ROLE_RANK": r,
                    "ROLE_WORLD_SIZE": n, "JAX_PROCESS_ID": r, "JAX_NUM_PROCESSES": n,
                    "PMIX_RANK": r, "MASTER_ADDR": "127.0.0.1"}
            got = {k: e.get(k) for k in want}
            if got != {k: str(v) for k, v in want.items()}:
                tap.same(got, want, f"rank {r} of {n}")
        for name in ("MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "TORCHELASTIC_RUN_ID",
                     "PMIX_NAMESPACE"):
            tap.ok(len({e[name] for e in env}) == 1, f"{n} ranks agree on {name}")
        configs = [json.loads(e["TF_CONFIG"]) for e in env]
        cluster = configs[0]["cluster"]
        tap.ok(all(c["cluster"] == cluster for c in configs) and len(cluster["chief"]) == 1 and
               len(cluster.get("worker", [])) == n - 1, f"{n} ranks: one TensorFlow cluster")
        tap.same([(c["task"]["type"], c["task"]["index"]) for c in configs],
                 [("chief", 0)] + [("worker", i) for i in range(n - 1)], f"{n} ranks: their tasks")
        ports = cluster["chief"] + cluster.get("worker", [])
        ports += [f"127.0.0.1:{env[0]['MASTER_PORT']}", env[0]["JAX_COORDINATOR_ADDRESS"]]
        tap.same(len(set(ports)), n + 2, f"{n} ranks: no port twice")
        tap.same([r["stdin"] for r in ranks], ["hello"] + [""] * (n - 1),
                 f"{n} ranks: standard input goes to rank 0")
        bound = len(os.sched_getaffinity(0)) >= n
        share = [int(e["OMP_NUM_THREADS"]) for e in env]
        tap.ok(all(s >= 1 for s in share) and
               (not bound or all(s <= len(r["cpus"]) for s, r in zip(share, ranks))),
               f"{n} ranks: threads as many as cores", share)
    tap.ok("OMPI_COMM_WORLD_RANK" not in env[0], "Open MPI's variables only on request")
    run("-n", "2", "--ompi-env", "--evaluator", "--", *helper("tell", scratch.path),
        env=clean_env(OMP_NUM_THREADS="7"))
    env = [r["env"] for r in told(scratch, 2)]
    tap.same([(e["OMPI_COMM_WORLD_RANK"], e["OMPI_COMM_WORLD_SIZE"], e["OMPI_COMM_WORLD_LOCAL_RANK"])
              for e in env], [("0", "2", "0"), ("1", "2", "1")], "--ompi-env")
    tap.same(json.loads(env[1]["TF_CONFIG"])["task"], {"type": "evaluator", "index": 0},
             "--evaluator: the last rank")
    tap.same(env[0]["OMP_NUM_THREADS"], "7", "OMP_NUM_THREADS of the user stays")
    cpus = sorted(os.sched_getaffinity(0))
    run("-n", "2", "--bind", "none", "--", *helper("tell", scratch.path))
    tap.same([r["cpus"] for r in told(scratch, 2)], [cpus, cpus], "--bind none")
    if len(cpus) >= 2:
        run("-n", "2", "--", *helper("tell", scratch.path))
        both = [set(r["cpus"]) for r in told(scratch, 2)]
        tap.ok(both[0] | both[1] == set(cpus) and (not both[0] & both[1] or both[0] == both[1]),
               "--bind auto: shares that do not overlap", both)


def test_leftovers(scratch):
    left = {"RANK": "9", "LOCAL_RANK": "9", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    result = run("-n", "2", "--", *helper("tell", scratch.path), env=clean_env(**left))
    env = [r["env"] for r in told(scratch, 2)]
    tap.ok([e["RANK"] for e in env] == ["0", "1"] and env[0]["MASTER_PORT"] != "1" and
           "TORCHELASTIC_USE_AGENT_STORE" not in env[0], "leftovers are replaced, or go")
    line = [x for x in result.stderr.splitlines() if "replaced" in x]
    tap.ok(len(line) == 1 and all(name in line[0] for name in left), "and it says so, once",
           result.stderr)
    result = run("-n", "2", "--", *helper("tell", scratch.path))
    tap.same(result.stderr, "", "without leftovers it says nothing")
    # Its file and the folder that it lists are 3 and 4.
    tap.ok(all(fd < 5 for r in told(scratch, 2) for fd in r["fds"]),
           "no descriptor of the keeper leaks", [r["fds"] for r in told(scratch, 2)])


def test_meeting():
    for n in (1, 4):
        result = run("-n", str(n), "--", *helper("meet"))
        tap.ok(result.returncode == 0 and f"met {list(range(n))}" in result.stdout,
               f"{n} ranks: all ports are free, and rank 0 binds the master's", result.stdout,
               result.stderr)


# ---- output ----

def test_output(scratch):
    show = 'for i in 1 2 3; do echo "out $RANK $i"; echo "err $RANK $i" >&2; done'
    result = run("-n", "3", "--", "sh", "-c", show)
    want = sorted(f"{{}} {r} {i}" for r in range(3) for i in (1, 2, 3))
    tap.same(sorted(result.stdout.splitlines()), sorted(w.format("out") for w in want),
             "standard output of all ranks")
    tap.same(sorted(result.stderr.splitlines()), sorted(w.format("err") for w in want),
             "standard error of all ranks")
    result = run("-n", "2", "--label", "--", "sh", "-c", 'echo $RANK; printf "no end"')
    host = os.uname().nodename
    tap.same(sorted(result.stdout.splitlines()),
             sorted(f"[{r}@{host}] {x}" for r in (0, 1) for x in (r, "no end")), "--label")
    folder = scratch("logs")
    result = run("-n", "2", "-o", folder + "/%j/%r-%h.%s", "--", "sh", "-c", show)
    (run_folder,) = os.listdir(folder)
    tap.same(sorted(os.listdir(os.path.join(folder, run_folder))),
             sorted(f"{r}-{host}.{s}" for r in (0, 1) for s in ("out", "err")), "--output: files")
    tap.same(tap.read(os.path.join(folder, run_folder, f"1-{host}.err"), "r"),
             "err 1 1\nerr 1 2\nerr 1 3\n", "and what is in them")
    tap.same(result.stdout, "", "and nothing elsewhere")
    data = bytes(range(256)) * 8192
    result = run("-n", "1", "--", "cat", stdin=data, binary=True)
    tap.ok(result.stdout == data, "one rank: every byte passes as it is", len(result.stdout))
    # Whole lines, whatever the timing: four ranks write in pieces that are no lines.
    piece = "import sys\nfor i in range(4000):\n" \
            "  for part in (str(i), ' ', 'x' * 50, '\\n'): sys.stdout.write(part); " \
            "i % 97 or sys.stdout.flush()"
    result = run("-n", "4", "--", sys.executable, "-c", piece)
    lines = result.stdout.splitlines()
    tap.ok(sorted(lines) == sorted(f"{i} " + "x" * 50 for i in range(4000) for _ in range(4)),
           "16000 lines of four ranks: none mixed, none lost", len(lines))
    result = run("-n", "2", "--", "sh", "-c", "yes $RANK | head -c 20000000; exit 3")
    tap.ok(result.stdout.count("\n") >= 10000000 // 2, "a rank that fails: what it printed is there",
           len(result.stdout))
    quiet = subprocess.run(f"{tap.program()} exec -n 2 -- yes | head -n 3", shell=True, text=True,
                           env=clean_env(), capture_output=True, timeout=60, check=False)
    tap.same(quiet.stdout, "y\ny\ny\n", "a reader that leaves ends ranks that go on printing")


# ---- ends ----

def test_failures(scratch):
    wait = 'trap "" TERM; sleep 1000 & wait'  # not even asking helps
    began = time.monotonic()
    result = run("-n", "3", "--", "sh", "-c",
                 f'if [ $RANK = 1 ]; then echo first >&2; echo oops >&2; exit 42; fi; {wait}')
    check_end(result, 42, "rank 1 on", "failed first", "exited with status 42")
    tap.ok("  | first\n  | oops\n" in result.stderr, "its last lines are shown above", result.stderr)
    tap.ok(time.monotonic() - began < 30, "nobody hangs")
    result = run("-n", "2", "--", "sh", "-c", "if [ $RANK = 1 ]; then kill -SEGV $$; fi; sleep 1000")
    check_end(result, 139, "rank 1 on", "killed by signal 11")
    check_end(run("-n", "1", "--", "false"), 1, "rank 0 on", "exited with status 1")
    check_end(run("-n", "2", "--", "no-such-program"), 127, "no-such-program", "No such file")
    check_end(run("-n", "2", "--", "/etc"), 126, "/etc", "Permission denied")
    check_end(run("-n", "2", "--timeout", "0.5", "--", "sleep", "1000"), 124, "0.5 s")
    tap.same(run("-n", "2", "--timeout", "100", "--", "true").returncode, 0, "a timeout not reached")
    result = run("-n", "2", "--", "sh", "-c", "[ $RANK = 0 ] || exit 75; sleep 0.2; echo saved")
    tap.ok(result.returncode == 75 and "saved" in result.stdout,
           "75 asks for a requeue: the others may finish", result.stdout, result.stderr)
    # Children of a rank end with it, and all end with the launcher.
    child = f'sleep 1000 & echo $! >{scratch.path}/child-$RANK.tmp; ' \
            f'mv {scratch.path}/child-$RANK.tmp {scratch.path}/child-$RANK; '
    run("-n", "2", "--", "sh", "-c", child + "[ $RANK = 0 ] && exit 5; wait")
    pids = [int(tap.read(scratch(f"child-{r}"), "r")) for r in range(2)
            if os.path.exists(scratch(f"child-{r}"))]
    tap.wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "children of ranks end")
    tap.ok(pids, "children of ranks end with them")


def start(*args, **kwargs):
    return subprocess.Popen([tap.program(), "exec", *args], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean_env(), start_new_session=True, **kwargs)


def heard(scratch, n):
    return [tap.read(scratch(f"signals-{r}"), "r").split() if os.path.exists(scratch(f"signals-{r}"))
            else [] for r in range(n)]


def listen(scratch, *extra):
    for name in os.listdir(scratch.path):
        if name.startswith("signals-"):
            os.unlink(scratch(name))
    launcher = start("-n", "2", "--", *helper("hear", scratch.path, *extra))
    tap.wait_for(lambda: all(os.path.exists(scratch(f"signals-{r}.ready")) for r in range(2)),
                 "two ranks listen")
    return launcher


def test_signals(scratch):
    launcher = listen(scratch)
    for name in ("SIGUSR1", "SIGUSR2", "SIGTERM"):
        os.kill(launcher.pid, getattr(signal, name))
        tap.wait_for(lambda n=name: all(n in h for h in heard(scratch, 2)), f"both ranks hear {name}")
    _, err = launcher.communicate(timeout=60)
    tap.same((launcher.returncode, heard(scratch, 2)), (0, [["SIGUSR1", "SIGUSR2", "SIGTERM"]] * 2),
             "signals are passed on as they are, once; ranks that end well end well")
    tap.same(err, "", "and nobody is blamed")
    launcher = listen(scratch)
    os.killpg(launcher.pid, signal.SIGINT)  # as a shell script's terminal does
    launcher.communicate(timeout=60)
    tap.same((launcher.returncode, heard(scratch, 2)), (0, [["SIGINT"]] * 2), "SIGINT")
    launcher = listen(scratch, "stubborn")
    os.kill(launcher.pid, signal.SIGINT)
    tap.wait_for(lambda: all(heard(scratch, 2)), "both ranks hear SIGINT")
    os.kill(launcher.pid, signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    tap.ok(launcher.returncode == 130 and "second signal" in err, "a second one ends at once",
           launcher.returncode, err)
    launcher = start("-n", "2", "--", "sleep", "1000")
    tap.wait_for(lambda: len(tap.children(launcher.pid)) == 2, "two ranks")
    os.kill(launcher.pid, signal.SIGTERM)
    launcher.communicate(timeout=60)
    tap.same(launcher.returncode, 143, "ranks that die of SIGTERM: 143")
    launcher = start("-n", "2", "--", "sleep", "1000")
    tap.wait_for(lambda: len(tap.children(launcher.pid)) == 2, "two ranks")
    pids = tap.children(launcher.pid)
    launcher.kill()
    launcher.communicate(timeout=60)
    tap.wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "ranks end")
    tap.ok(True, "the launcher's death is its ranks' death")


# ---- the command line, and env ----

def test_usage():
    for args, words in ((["-n", "0", "true"], "from 1 to 65536"), ([], "expected a program"),
                        (["--bind", "x", "true"], "auto or none"), (["--timeout", "-1", "true"], "seconds"),
                        (["-o", "all.log", "true"], "%r"), (["-o", "%q", "true"], "%q"),
                        (["--nonsense"], "unrecognized"), (["--", ""], "empty word")):
        result = run(*args)
        tap.ok(result.returncode == 125 and words in result.stderr, "usage: " + " ".join(args),
               result.returncode, result.stderr)
    result = run("-n", "1", "--evaluator", "true")
    tap.ok(result.returncode == 125 and "2 ranks" in result.stderr, "an evaluator needs a chief",
           result.stderr)
    result = run("-n", "1", "-o", "/proc/none/%r", "true")
    tap.ok(result.returncode == 125 and "/proc/none" in result.stderr, "a folder that cannot be made",
           result.stderr)
    tap.ok(run("--help").returncode == 0, "--help")
    tap.same(run("-n", "2", "--", "echo", "--help", "-v").stdout, "--help -v\n--help -v\n",
             "options of the program are the program's")


def test_env():
    script = f'eval "$({tap.program()} env)" || exit 9; echo $RANK $WORLD_SIZE $MASTER_ADDR $TF_CONFIG'
    result = subprocess.run(["sh", "-c", script], env=clean_env(), capture_output=True, text=True,
                            timeout=60, check=False)
    tap.ok(result.stdout.startswith('0 1 127.0.0.1 {"cluster"'), "env: one rank, for eval",
           result.stdout, result.stderr)
    result = subprocess.run([tap.program(), "env", "--json"], env=clean_env(TF_CONFIG="x"),
                            capture_output=True, text=True, timeout=60, check=False)
    values = json.loads(result.stdout)
    tap.ok(values["RANK"] == "0" and "chief" in json.loads(values["TF_CONFIG"])["cluster"],
           "env --json", result.stdout)
    bad = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    result = subprocess.run(["sh", "-c", script], env=clean_env(**bad), capture_output=True, text=True,
                            timeout=60, check=False)
    tap.ok(result.returncode == 9 and "srun --mpi=pmix" in result.stderr,
           "env outside of a step: eval fails", result.stdout, result.stderr)
    result = subprocess.run([tap.program(), "env", "x"], env=clean_env(), capture_output=True, text=True,
                            timeout=60, check=False)
    tap.same((result.returncode, result.stdout), (2, "false\n"), "env: usage")
    # What is left of another launcher goes, or is replaced, and is said.
    left = {"RANK": "9", "TORCHELASTIC_USE_AGENT_STORE": "True", "OMPI_COMM_WORLD_SIZE": "4"}
    script = f'eval "$({tap.program()} env)" || exit 9; env'
    result = subprocess.run(["sh", "-c", script], env=clean_env(**left), capture_output=True, text=True,
                            timeout=60, check=False)
    seen = [x.split("=", 1)[0] for x in result.stdout.splitlines()]
    tap.ok("RANK=0" in result.stdout.splitlines() and "TORCHELASTIC_USE_AGENT_STORE" not in seen and
           "OMPI_COMM_WORLD_SIZE" not in seen, "env: leftovers are unset",
           result.stdout, result.stderr)
    tap.ok(result.stderr.count("\n") == 1 and all(name in result.stderr for name in left),
           "and it says so, in one line", result.stderr)
    result = subprocess.run([tap.program(), "env", "--json"], env=clean_env(**left), capture_output=True, text=True,
                            timeout=60, check=False)
    values = json.loads(result.stdout)
    tap.same((values["RANK"], values["TORCHELASTIC_USE_AGENT_STORE"]), ("0", None), "env --json: null")
    odd = {"TORCHELASTIC_;echo injected #": "1"}  # no shell would pass it on, and none must run it
    result = subprocess.run([tap.program(), "env"], env=clean_env(**odd), capture_output=True, text=True,
                            timeout=60, check=False)
    tap.ok("export RANK='0'" in result.stdout and "injected" not in result.stdout,
           "a name that is no shell's is not for eval", result.stdout)
    result = subprocess.run([tap.program(), "env"], env=clean_env(), capture_output=True, text=True,
                            timeout=60, check=False)
    tap.ok(result.stderr == "" and "unset" not in result.stdout, "without leftovers it says nothing",
           result.stdout, result.stderr)
    # Under exec, the ranks' own env agrees with what exec has set.
    result = run("-n", "2", "--", "sh", "-c",
                 f'a=$RANK/$WORLD_SIZE; eval "$({tap.program()} env)"; echo $a $RANK/$WORLD_SIZE')
    tap.same(sorted(result.stdout.splitlines()), ["0/2 0/2", "1/2 1/2"], "env within exec")


def main():
    # tap.program() is used in shell commands, whose folder may differ.
    os.environ["builddir"] = os.path.abspath(os.environ.get("builddir", "."))
    with tap.Scratch() as scratch:
        test_variables(scratch)
        test_leftovers(scratch)
        test_meeting()
        test_output(scratch)
        test_failures(scratch)
        test_signals(scratch)
        test_usage()
        test_env()
    tap.done()


main()
