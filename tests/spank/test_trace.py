"""Every system call of the SPANK plugin's hooks on a node, by strace: none that forks, executes, waits,
connects or locks; files only below /sys, /proc, /dev and the site's configuration; and not many."""

import os
import re
import shutil
import subprocess

import tap

BUILD = os.path.abspath(os.environ.get("builddir", "."))
MODULE = os.path.join(BUILD, ".libs/spank_lockstep.so")
# What a reader of files and limits needs.
ALLOWED = {"openat", "read", "close", "fstat", "newfstatat", "stat", "lstat", "statx", "readlink",
           "readlinkat", "getdents64", "access", "faccessat", "faccessat2", "lseek", "statfs",
           "prlimit64", "getrlimit", "sched_getaffinity", "sched_setaffinity", "brk", "mmap", "munmap",
           "mremap", "madvise", "pread64"}
PLACES = ("/sys/", "/proc/", "/dev/", "/etc/")


def main():
    if not shutil.which("strace"):
        print("1..0 # SKIP found no strace; on Debian: apt-get install strace")
        return
    with tap.Scratch() as scratch:
        out = scratch("trace")
        r = subprocess.run(["strace", "-f", "-o", out, "-s", "4096",
                            os.path.join(BUILD, "tests/spank/trace_spank"), MODULE],
                           capture_output=True, text=True, check=False, timeout=120)
        text = tap.read(out, "r") if os.path.exists(out) else ""
        if "ptrace" in r.stderr and "write(-1" not in text:
            print("1..0 # SKIP strace may not trace here: " + r.stderr.splitlines()[-1])
            return
        tap.same((r.returncode, r.stderr.count("rror")), (0, 0), "a task is prepared")
        calls, inside = [], None
        for line in text.splitlines():
            line = re.sub(r"^\d+ +", "", line)
            marked = re.match(r'write\(-1, "(\w+)"', line)
            if marked:
                inside = None if marked.group(1) == "end" else marked.group(1)
            elif inside:
                calls.append((inside, line))
    names = {re.match(r"\w*", line).group(0) for _, line in calls}
    tap.same(sorted(names - ALLOWED), [], f"{len(calls)} system calls, none forbidden")
    tap.ok(10 < len(calls) < 20000, "a bounded number", len(calls))
    opened = [line for _, line in calls if line.startswith("openat") and "ENOENT" not in line]
    paths = [re.search(r'"([^"]*)"', line).group(1) for line in opened]
    elsewhere = [p for p in paths if p.startswith("/") and not (p + "/").startswith(PLACES) and
                 not p.endswith("/lockstep-site.conf")]
    tap.same(elsewhere, [], f"{len(paths)} files, all of the machine's own or the site's")
    tap.same([line for line in opened if "O_CLOEXEC" not in line], [], "none is inherited")
    tap.same([line for line in opened if "O_WRONLY" in line or "O_CREAT" in line], [],
             "none is written")
    late = [line for hook, line in calls if hook == "slurm_spank_task_init" and
            line.startswith(("openat", "stat", "newfstatat", "access", "faccessat", "readlink")) and
            not re.match(r'faccessat2?\(\d+, "(nvidia|infiniband/)', line)]
    tap.same(late, [], "once tasks start, no file is looked at, but whether devices are the task's")
    tap.done()


main()
