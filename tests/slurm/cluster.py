"""A test cluster for a test: starts with the `with` statement, and stops whatever happens."""

import os
import re
import shutil
import subprocess
import sys

import tap

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "cluster")
SUPPRESSIONS = os.path.join(os.path.dirname(HERE), "lsan.supp")


class Cluster:
    """One cluster; always stopped at the end."""

    def __init__(self, scratch, *options):
        # Short, since Unix sockets are in it.
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("SLURM", "LS_CLUSTER", "PMIX"))}
        self.env["PATH"] = self.env.get("PATH", "") + ":/usr/sbin:/sbin"
        # A process that is first a client and then a server of PMIx leaves a string of libpmix behind
        # that libc allocated. Neither has frame pointers, so only full unwinding shows the sanitizer
        # whose it is; to other builds this means nothing.
        for name, value in (("ASAN_OPTIONS", "fast_unwind_on_malloc=0"),
                            ("LSAN_OPTIONS", f"suppressions={SUPPRESSIONS}:print_suppressions=0")):
            self.env[name] = ":".join(filter(None, (self.env.get(name), value)))
        self.options = options
        self.scratch = scratch

    def __enter__(self):
        self.started = self.control("start", *self.options)
        if self.started.returncode != 0:  # what follows would only wait for it, for minutes
            tap.ok(False, " ".join(["a cluster starts", *self.options]), self.started.stderr)
            tap.done()
        for name, value in re.findall(r"export (\w+)='(.*)'", self.started.stdout):
            self.env[name] = value
        return self

    def __exit__(self, *unused):
        if "LS_CLUSTER_DIR" in self.env:
            self.control("stop")

    @property
    def folder(self):
        return self.env.get("LS_CLUSTER_DIR", "")

    def control(self, *args):
        return self.run(CLUSTER, *args)

    def run(self, *command, timeout=300):
        try:
            return self.call(command, timeout)
        except subprocess.TimeoutExpired as late:
            self.tell(late)
            raise

    def call(self, command, timeout):
        return subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=timeout, check=False, cwd=self.scratch.path)

    def log(self, daemon):
        path = f"{self.folder}/log/{daemon}.log"
        return tap.read(path, "r") if os.path.exists(path) else ""

    def tell(self, late):
        """What a command had said that did not end, and what Slurm thinks: its logs go with the cluster."""
        said = [s if isinstance(s, str) else (s or b"").decode(errors="replace") for s in (late.stdout, late.stderr)]
        for what, text in (("it said", said[0]), ("on standard error", said[1]),
                           ("cluster status", self.call((CLUSTER, "status"), 60).stdout),
                           ("slurmctld.log", self.log("slurmctld"))):
            for line in text.splitlines()[-40:]:
                print(f"# {what}: {line}")
        print(f"# found no end of {' '.join(late.cmd)} after {late.timeout} s", flush=True)

    def start_step(self, *command):
        return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                cwd=self.scratch.path)


def obstacles(*options):
    """Why this machine cannot start a cluster with these options, in one line; "" where it can."""
    r = subprocess.run([CLUSTER, "can-start", *options], stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, check=False)
    return "" if r.returncode == 0 else "; ".join((r.stdout or r.stderr).splitlines())


def wait_for(condition, what, seconds=60):
    """A check of the test: that `condition()` comes true in time."""
    value = tap.wait_for(condition, what, seconds)
    return value and tap.ok(True, what)


def skip_without_slurm():
    """Ends the test, loudly, where Slurm is not installed, or its cluster cannot show anything."""
    pmix = subprocess.run(["pkg-config", "--modversion", "pmix"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout
    if re.match(r"5\.0\.[01](\D|$)", pmix):
        print(f"1..0 # SKIP PMIx {pmix.strip()} crashes between nodes; 5.0.2 and later do not")
        sys.exit(0)
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [p for p in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(p, path=path)]
    if missing:
        print("1..0 # SKIP found no " + ", ".join(missing) +
              "; on Debian: apt-get install slurm-wlm munge")
        sys.exit(0)
