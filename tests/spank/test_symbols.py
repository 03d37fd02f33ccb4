"""The Slurm plugins export what Slurm asks for and nothing else, need no library but libc and the like,
and were linked with the flags that harden."""

import os
import re
import subprocess

import tap

BUILD = os.path.join(os.environ.get("builddir", "."), ".libs")
SPANK = {"plugin_name", "plugin_type", "plugin_version", "spank_plugin_version", "slurm_spank_init",
         "slurm_spank_init_post_opt", "slurm_spank_task_init_privileged", "slurm_spank_task_init",
         "slurm_spank_exit", "slurm_spank_init_failure_mode"}
JOB_SUBMIT = {"plugin_name", "plugin_type", "plugin_version", "init", "fini", "job_submit", "job_modify"}
# What a plugin in slurmd must never call: each of these forks, waits, opens code or looks up a name.
FORBIDDEN = re.compile(r"^(fork|vfork|clone|exec\w*|posix_spawn\w*|system|popen|dlopen|dlmopen|sleep|"
                       r"usleep|nanosleep|getaddrinfo|gethostby\w+|getpw\w+|getgr\w+|socket|connect|"
                       r"pthread_create|exit|_exit|abort|setenv|unsetenv|putenv|chdir|umask|strtok)$")
# In srun only: LOCKSTEP_GPUS becomes what Slurm reads.
ALLOWED = {"setenv", "unsetenv"}


def tool(*args):
    return subprocess.run(args, capture_output=True, text=True, check=False).stdout


def check(path, wanted, optional):
    name = os.path.basename(path)
    if not tap.ok(os.path.exists(path), f"{name} is there", path):
        return
    sanitized = "__asan" in tool("nm", "-D", path)
    defined = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", path).splitlines()}
    tap.ok(wanted - optional <= defined <= wanted, f"{name} exports what Slurm asks for, and no more",
           sorted(defined ^ wanted))
    needed = {line.split()[-1].split("@")[0] for line in
              tool("nm", "-D", "--undefined-only", path).splitlines()}
    tap.same(sorted(n for n in needed - ALLOWED if FORBIDDEN.match(n)), [],
             f"{name} can neither fork, wait, open code nor look up names")
    dynamic = tool("readelf", "-d", path)
    libraries = re.findall(r"NEEDED.*\[(.*?)\]", dynamic)
    tap.ok(sanitized or all(lib.startswith(("libc.", "libm.", "ld-linux")) for lib in libraries),
           f"{name} needs no library but libc", libraries)
    headers = tool("readelf", "-lW", path)
    if not sanitized:
        tap.ok("BIND_NOW" in dynamic or "NOW" in dynamic, f"{name} is bound at once", dynamic)
        tap.ok("GNU_RELRO" in headers, f"{name} has read-only relocations")
    stack = re.search(r"GNU_STACK.*", headers)
    tap.ok(stack and "RWE" not in stack.group(0), f"{name} has no executable stack")


def main():
    check(os.path.join(BUILD, "spank_lockstep.so"), SPANK, {"slurm_spank_init_failure_mode"})
    path = os.path.join(BUILD, "job_submit_lockstep.so")
    if os.path.exists(path):
        check(path, JOB_SUBMIT, set())
    tap.done()


main()
