"""Debian packages, built, looked into, unpacked and run: the ties to this Slurm, where each file goes, and a program that
works from where the packages put it, or from elsewhere. A build takes minutes, so only with LS_DEB_TESTS=yes."""

import os
import re
import shutil
import subprocess
import sys

import tap

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "tests", "slurm"))
import cluster

BUILD = os.path.abspath(os.environ.get("builddir", "."))
PACKAGES = ("lockstep", "lockstep-slurm", "lockstep-slurmctld")


def skip(why):
    print(f"1..0 # SKIP Debian packages were NOT tried: {why}")
    sys.exit(0)


def run(*command, cwd=None):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("SLURM", "PMIX", "MAKE", "MFLAGS", "LOCKSTEP_", "DEB_")) and k != "DESTDIR"}
    # Nothing here looks into packages of debugging symbols, and `make check` runs the tests of the sources.
    env["DEB_BUILD_OPTIONS"] = f"noautodbgsym nocheck parallel={len(os.sched_getaffinity(0))}"
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800,
                          check=False, cwd=cwd)


def slurm_version():
    """Upstream's, of what the packages are built with, as [22, 5, 8]."""
    number = run("dpkg-query", "-W", "-f", "${source:Upstream-Version}", "libslurm-dev").stdout
    return [int(x) for x in re.match(r"(\d+)\.(\d+)\.(\d+)", number).groups()]


def fits(depends, package, version):
    """Would apt take this version of the package beside ours?"""
    ties = re.findall(rf"(?:^|, ){re.escape(package)} \((\S+) ([^)]+)\)", depends)
    return bool(ties) and all(run("dpkg", "--compare-versions", version, relation, than).returncode == 0
                              for relation, than in ties)


def test_ties(deb):
    major, minor, micro = slurm_version()
    here = f"{major}.{minor:02d}.{micro}"
    others = {"a later build of it": f"{here}-9+deb99u1", "an older micro version": f"{major}.{minor:02d}.{micro - 1}-1",
              "the next micro version": f"{major}.{minor:02d}.{micro + 1}-1",
              "a pre-release of it": f"{major}.{minor:02d}.{micro + 1}~rc1-1",
              "the next minor version": f"{major}.{minor + 1:02d}.0-1", "an older one": f"{major - 1}.11.9-1"}
    want = {"lockstep-slurm": ("slurm-wlm-basic-plugins",
                               {"a later build of it": True, "an older micro version": True,
                                "the next micro version": True, "a pre-release of it": True,
                                "the next minor version": False, "an older one": False}),
            "lockstep-slurmctld": ("slurmctld", {"a later build of it": True, "an older micro version": False,
                                                 "the next micro version": False, "a pre-release of it": False,
                                                 "the next minor version": False, "an older one": False})}
    for name, (package, verdicts) in want.items():
        depends = run("dpkg-deb", "-f", deb[name], "Depends").stdout
        tap.ok(fits(depends, package, f"{here}-1"), f"{name} fits {package} {here}", depends)
        for which, verdict in verdicts.items():
            tap.ok(fits(depends, package, others[which]) == verdict,
                   f"{name} {'fits' if verdict else 'refuses'} {which}, {others[which]}", depends)
    depends = run("dpkg-deb", "-f", deb["lockstep"], "Depends").stdout
    tap.ok("slurm" not in depends and all(x in depends for x in ("libpmix", "libjansson", "libconfig", "libdnnl")),
           "lockstep needs its libraries, and no Slurm", depends)


def test_contents(scratch, deb):
    """Unpacks them; returns the root."""
    root, files = scratch("root"), {}
    for name, path in deb.items():
        result = run("dpkg-deb", "-x", path, root)
        tap.ok(result.returncode == 0, f"{name} unpacks", result.stderr)
        listed = run("dpkg-deb", "-c", path).stdout
        files[name] = {x.split()[5][1:] for x in listed.splitlines() if not x.endswith("/")}
    slurm = next(x for x in run("dpkg", "-L", "slurm-wlm-basic-plugins").stdout.split() if x.endswith("/auth_munge.so"))
    plugins = os.path.dirname(slurm)
    libraries = os.path.dirname(plugins)
    want = {"lockstep": ["/usr/bin/lockstep", "/usr/libexec/lockstep/lockstep-worker",
                         "/usr/libexec/lockstep/lockstep-check", libraries + "/lockstep/lockstep_cpu.so",
                         "/usr/share/lockstep/sbatch_templates/container-pyxis.sbatch",
                         "/usr/share/man/man1/lockstep-exec.1.gz", "/usr/share/man/man5/lockstep.cfg.5.gz"],
            "lockstep-slurm": [plugins + "/spank_lockstep.so", "/usr/share/lockstep/cli_filter.lua",
                               "/usr/share/lockstep/plugstack.conf.d/lockstep.conf",
                               "/usr/share/man/man8/spank_lockstep.8.gz"],
            "lockstep-slurmctld": [plugins + "/job_submit_lockstep.so", "/usr/share/man/man8/job_submit_lockstep.8.gz"]}
    for name, paths in want.items():
        tap.same([p for p in paths if p not in files[name]], [], f"{name}: its files are where they belong")
        tap.same([p for p in files[name] if p.startswith("/etc") or p.endswith(".la")], [],
                 f"{name}: nothing in /etc, nothing of libtool's")
    all_files = [p for f in files.values() for p in f if "/share/doc/" not in p]
    tap.same(len(all_files), len(set(all_files)), "no file is in two packages")
    tap.ok(f"{plugins}/spank_lockstep.so" in tap.read(root + "/usr/share/lockstep/plugstack.conf.d/lockstep.conf", "r"),
           "the sample of plugstack.conf names the plugin where it is")
    return root, root + plugins


def test_run(scratch, root, plugins):
    """From where they were unpacked, and from elsewhere: /usr/lib/<multiarch> is found relative to the program."""
    tap.make_set(scratch("train"), 64)
    tap.make_set(scratch("test"), 32)
    with open(scratch("tiny.cfg"), "w") as f:
        f.write(tap.job_text(scratch.path))
    with cluster.Cluster(scratch, f"--spank={plugins}/spank_lockstep.so") as c:
        result = c.run("salloc", "-N2", "--mem=100", root + "/usr/bin/lockstep", "plugin", "check")
        tap.ok(result.returncode == 0 and result.stdout.count(": ok") == 2,
               "the package's plugin is active on both nodes of a cluster", result.stdout, result.stderr)
    os.rename(root + "/usr", scratch("elsewhere"))
    lockstep = scratch("elsewhere", "bin", "lockstep")
    for ranks in ("1", "2"):
        result = run(lockstep, "run", scratch("tiny.cfg"), "-n", ranks, "--resume=never", "--set",
                     f'checkpoint.dir="{scratch("run-" + ranks)}"')
        tap.ok(result.returncode == 0 and "done after 20 steps" in result.stdout + result.stderr,
               f"the package's program trains with {ranks} rank(s), from another prefix", result.stdout, result.stderr)


def test_configure(scratch):
    """Where make install puts plugins, and what configure says where Slurm does not look there."""
    os.mkdir(scratch("configured"))
    result = run(os.path.join(os.path.abspath(os.environ["srcdir"]), "configure"), f"--prefix={scratch('private')}",
                 cwd=scratch("configured"))
    tap.ok("plugins into $(libdir)/slurm" in result.stdout and
           re.search("This Slurm looks for plugins in /.*/slurm", result.stdout),
           "a private prefix does not touch Slurm's folder, and configure says so", result.stdout, result.stderr)


def main():
    if os.environ.get("LS_DEB_TESTS") != "yes":
        skip("LS_DEB_TESTS=yes builds them, which takes minutes")
    missing = [p for p in ("dpkg-buildpackage", "dh", "dpkg-deb") if not shutil.which(p)]
    if missing:
        skip(f"found no {', '.join(missing)}; on Debian: apt-get install dpkg-dev debhelper")
    cluster.skip_without_slurm()
    result = run("make", "-C", BUILD, "deb")
    made = sorted(os.listdir(os.path.join(BUILD, "deb"))) if os.path.isdir(os.path.join(BUILD, "deb")) else []
    deb = {name: os.path.join(BUILD, "deb", x) for name in PACKAGES for x in made
           if x.startswith(name + "_") and x.endswith(".deb")}
    if tap.ok(result.returncode == 0 and sorted(deb) == sorted(PACKAGES), "make deb: three packages", made,
              result.stdout, result.stderr):
        with tap.Scratch() as scratch:
            test_ties(deb)
            root, plugins = test_contents(scratch, deb)
            test_run(scratch, root, plugins)
            test_configure(scratch)
    tap.done()


main()
