"""`lockstep topo` as a user sees it: the report on every stored tree, JSON, saving, options, exit codes.

After a change on purpose: LS_GOLDEN_UPDATE=1 builddir=... srcdir=. python3 tests/topo/test_show.py, and
look at what git says of tests/topo/trees."""

import json
import os
import subprocess

import tap

TREES = os.path.join(os.environ.get("srcdir", "."), "tests", "topo", "trees")
# tree -> options that stand for a typical job on such a machine
REPORTS = {
    "dgx": ["--nodes=40", "--local-size=8", "-eSLURM_JOB_ID=7",
            "-eSLURM_STEP_GPUS=0,1,2,3,4,5,6,7", "-eCUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"],
    "roce-bond": ["--nodes=2", "--local-size=4"],
    "roce-v6": ["--nodes=2", "--local-size=2"],
    "cloud-vm": ["--nodes=2", "--local-size=4"],
    "tcp": ["--nodes=64"],
    "mixed": ["--nodes=2", "--local-size=2"],
    "many": ["--nodes=2", "--local-size=4", "-eNCCL_IB_HCA=mlx5_1"],
    "mig": ["--nodes=1", "-eSLURM_JOB_ID=7",
            "-eCUDA_VISIBLE_DEVICES=MIG-GPU-00000000-0000-4000-8000-000000000000/1/0"],
    "cgroup": ["--nodes=2", "-eSLURM_JOB_ID=7", "-eCUDA_VISIBLE_DEVICES=0", "-eSLURM_STEP_GPUS=2"],
    "troubled": ["--nodes=2"],
}


def topo(*args, env=None):
    return subprocess.run([tap.program(), "topo", *args], capture_output=True, text=True, timeout=120,
                          check=False, stdin=subprocess.DEVNULL, env=env)


def tree(name):
    return os.path.join(TREES, name + ".tree")


def test_reports():
    for name, options in REPORTS.items():
        path = os.path.join(TREES, name + ".txt")
        r = topo("--root=" + tree(name), *options)
        if os.environ.get("LS_GOLDEN_UPDATE"):
            with open(path, "w") as f:
                f.write(r.stdout)
        want = tap.read(path, "r")
        tap.ok((r.returncode, r.stderr) == (0, ""), f"{name}: success", r.stderr)
        differ = [f"got  {a}\nwant {b}" for a, b in zip(r.stdout.splitlines(), want.splitlines())
                  if a != b]
        tap.ok(r.stdout == want, f"{name}: the report", *differ[:5], len(r.stdout), len(want))


def test_json():
    for name, options in REPORTS.items():
        r = topo("--root=" + tree(name), "--json", *options)
        report = json.loads(r.stdout) if r.returncode == 0 else {}
        tasks = report.get("tasks", [])
        machine = report.get("machine", {})
        tap.ok(tasks and all(v["reason"] for t in tasks for v in t["variables"])
               and all(n["level"] in ("info", "warning", "problem") for t in tasks for n in t["notes"])
               and [t["local_rank"] for t in tasks] == list(range(len(tasks))), f"{name}: JSON", r.stderr)
        tap.ok(all(g["nic_distance"].keys() == {n["name"] for n in machine["nics"]}
                   for g in machine["gpus"]), f"{name}: the matrix is whole")
    dgx = json.loads(topo("--root=" + tree("dgx"), "--json", *REPORTS["dgx"]).stdout)
    tap.same([(t["gpus"], t["nics"], t["cpus"]) for t in dgx["tasks"]][5], ([5], ["mlx5_9"], "70-83,182-195"),
             "GPU, NIC and CPUs of local rank 5")
    tap.same(dgx["machine"]["gpus"][5]["nic_distance"]["mlx5_9"], "PIX", "one switch")
    tap.same({v["name"]: v["value"] for v in dgx["tasks"][0]["variables"]}["UCX_NUM_EPS"], "320",
             "a variable")
    tap.same((dgx["tasks"][0]["transport"], dgx["tasks"][0]["ucx"]), ("ib", "dc_mlx5"), "a transport")
    tap.same(dgx["machine"]["limits"]["memlock"], "unlimited", "a limit")
    tap.same([dgx["machine"][name] for name in ("peermem", "dmabuf", "ucx_infiniband")],
             [True, False, "not known"], "GPUDirect RDMA, and what no stored machine says")
    port = dgx["machine"]["nics"][0]["ports"][0]
    tap.same((port["lid"], port["sm_lid"], port["gids"]), (0x100, 1, []), "a port of InfiniBand")
    bond = json.loads(topo("--root=" + tree("roce-bond"), "--json").stdout)["machine"]["nics"][1]["ports"][0]
    tap.ok(bond["gid"] == 3 and [g["index"] for g in bond["gids"] if g["rejected"] is None] == [3] and
           {g["rejected"] for g in bond["gids"]} == {None, "not routable", "not of RoCE version 2"},
           "GIDs of RoCE, with the fault of those that are not used", bond)


def test_here():
    r = topo("--json")
    report = json.loads(r.stdout) if r.returncode == 0 else {}
    tap.ok(report and report["machine"]["cpus"] >= 1, "this machine", r.stderr)
    with tap.Scratch() as scratch:
        r = topo("--save=" + scratch("here.tree"))
        tap.ok(r.returncode == 0 and r.stdout == "", "this machine is saved", r.stderr)
        again = json.loads(topo("--json", "--root=" + scratch("here.tree")).stdout)
        for part in ("cpus", "allowed", "numa_nodes", "virtual", "interfaces"):
            tap.same(again["machine"][part], report["machine"][part], f"saved and read: {part}")
        tap.same([g["pci"] for g in again["machine"]["gpus"]], [g["pci"] for g in report["machine"]["gpus"]],
                 "saved and read: GPUs")
        text = tap.read(scratch("here.tree"), "r")
        tap.ok(os.uname().nodename not in text, "the name of this host is not in it")
        r = topo("--save=-")
        tap.same(r.stdout, text, "'-' is standard output")
        r = topo("--save=" + scratch("no", "such", "folder"))
        tap.ok(r.returncode == 1 and "folder" in r.stderr, "a folder that is not there", r.stderr)
        with open(scratch("conf"), "w") as f:
            f.write("NCCL_DEBUG=INFO\n")
        env = {**os.environ, "NCCL_CONF_FILE": scratch("conf")}
        env.pop("NCCL_DEBUG", None)
        r = topo("--json", env=env)
        debug = [v for v in json.loads(r.stdout)["tasks"][0]["variables"] if v["name"] == "NCCL_DEBUG"][0]
        tap.ok(debug["value"] is None and "configuration file" in debug["reason"],
               "nccl.conf is respected", debug)
        env["NCCL_DEBUG"] = "TRACE"
        debug = [v for v in json.loads(topo("--json", env=env).stdout)["tasks"][0]["variables"]
                 if v["name"] == "NCCL_DEBUG"][0]
        tap.ok(debug["value"] is None and "'TRACE'" in debug["reason"], "the user is", debug)
        r = topo("--json", "--root=" + tree("tcp"), env=env)
        debug = [v for v in json.loads(r.stdout)["tasks"][0]["variables"] if v["name"] == "NCCL_DEBUG"][0]
        tap.same(debug["value"], "WARN", "variables of this process are nothing to another machine")


def decided(name, *args, **env):
    """One variable of `lockstep topo`, with these variables in the environment."""
    kept = {k: v for k, v in os.environ.items() if k != name and not k.startswith("LOCKSTEP_")}
    r = topo("--json", *args, env={**kept, **env})
    if not tap.ok(r.returncode == 0, f"topo {' '.join(args)} with {env}", r.stderr):
        return None, ""
    return [(v["value"], v["reason"]) for v in json.loads(r.stdout)["tasks"][0]["variables"] if v["name"] == name][0]


def test_settings():
    """What the plugin and the launcher go by, and nothing that they have set themselves."""
    got = decided("NCCL_DEBUG", NCCL_DEBUG="WARN", LOCKSTEP_SET="UCX_TLS=tcp;NCCL_DEBUG=WARN")
    tap.ok(got[0] == "WARN" and "already" not in got[1], "what the plugin has set is not the user's", got)
    got = decided("NCCL_DEBUG", NCCL_DEBUG="INFO", LOCKSTEP_SET="NCCL_DEBUG=WARN")
    tap.ok(got[0] is None and "'INFO' already" in got[1], "unless the user has changed it since", got)
    tap.same(decided("NCCL_IB_DISABLE", LOCKSTEP_TRANSPORT="tcp")[0], "1", "LOCKSTEP_TRANSPORT counts")
    tap.same(decided("NCCL_IB_DISABLE", "--transport=auto", LOCKSTEP_TRANSPORT="tcp")[0], None,
             "an option overrides it")
    tap.same(decided("NCCL_IB_DISABLE", "--root=" + tree("tcp"), LOCKSTEP_TRANSPORT="tcp")[0], None,
             "and it is nothing to another machine")
    tap.same(decided("NCCL_IB_DISABLE", "--root=" + tree("tcp"), "-eLOCKSTEP_TRANSPORT=tcp")[0], "1",
             "unless it is said for that one")
    job = ["--root=" + tree("dgx"), *REPORTS["dgx"]]
    bound = [json.loads(topo("--json", *job, *more).stdout)["tasks"][0]["bound"]
             for more in ([], ["-eLOCKSTEP_BIND=none"], ["-eLOCKSTEP_BIND=auto"])]
    tap.same(bound, [True, False, True], "LOCKSTEP_BIND counts")
    for name in ("LOCKSTEP_TRANSPORT", "LOCKSTEP_BIND"):
        r = topo(f"-e{name}=maybe")
        tap.ok(r.returncode == 2 and f"{name}: found 'maybe'" in r.stderr, f"a bad {name}", r.stderr)
    with tap.Scratch() as scratch:
        with open(scratch("site.conf"), "w") as f:
            f.write("interface = lo\n")
        got = decided("NCCL_SOCKET_IFNAME", "--nodes=2", LOCKSTEP_SITE=scratch("site.conf"))
        tap.ok(got[0] == "=lo", "LOCKSTEP_SITE names the site's file", got)
        r = topo("-eLOCKSTEP_SITE=" + scratch("none"))
        tap.ok(r.returncode == 1 and scratch("none") in r.stderr, "it is not there", r.stderr)


def test_ucx_module():
    """UCX of this machine, or what UCX_MODULE_DIR names instead."""
    with tap.Scratch() as scratch:
        env = {**os.environ, "UCX_MODULE_DIR": scratch.path}
        for want in ("missing", "there"):
            r = topo("--json", env=env)
            tap.same((r.returncode, json.loads(r.stdout)["machine"]["ucx_infiniband"]), (0, want),
                     f"UCX's InfiniBand module is {want}")
            open(scratch("libuct_ib.so.0"), "w").close()


def test_leaves_nothing():
    with tap.Scratch() as scratch:
        env = {**os.environ, "TMPDIR": scratch.path}
        topo("--root=" + tree("dgx"), env=env)
        with open(scratch("bad.tree"), "w") as f:
            f.write("lockstep-tree 1\nsys/a = 1\nsys/b -> ../../../etc\n")
        r = topo("--root=" + scratch("bad.tree"), env=env)
        tap.ok(r.returncode == 1 and "bad.tree:3:" in r.stderr, "a tree that leads out", r.stderr)
        tap.same(os.listdir(scratch.path), ["bad.tree"], "nothing is left behind")


def test_site():
    with tap.Scratch() as scratch:
        with open(scratch("site.conf"), "w") as f:
            f.write("fabric = rail\ntraffic_class = 41\n")
        r = topo("--root=" + tree("dgx"), "--nodes=2", "--site=" + scratch("site.conf"))
        tap.ok("NCCL_IB_TC=41" in r.stdout and "NCCL_CROSS_NIC=0" in r.stdout, "what the site declares")
        with open(scratch("site.conf"), "w") as f:
            f.write("fabrik = rail\n")
        r = topo("--root=" + tree("dgx"), "--site=" + scratch("site.conf"))
        tap.ok(r.returncode == 2 and "did you mean 'fabric'" in r.stderr and not r.stdout,
               "a typo in it", r.stderr)
        r = topo("--site=" + scratch("none"))
        tap.ok(r.returncode == 1 and "none" in r.stderr, "it is not there", r.stderr)


def test_errors():
    for args, code, part in (
            (["--fast"], 2, "--help"),
            (["here"], 2, "expected only options"),
            (["--transport=udp"], 2, "expected auto, ib, roce, tcp, shm or keep"),
            (["--nodes=0"], 2, "from 1 to 65536"),
            (["--local-size=x"], 2, "from 1 to 65536"),
            (["-e", "A"], 2, "NAME=VALUE"),
            (["--root="], 2, "no file name"),
            (["--root=/nonexistent"], 1, "/nonexistent"),
            (["--root=" + os.path.dirname(TREES)], 1, "neither sys nor proc"),
            (["--root=" + __file__], 1, "lockstep-tree 1"),
            (["--root=" + tree("tcp"), "--transport=ib"], 4, "no RDMA device"),
            (["--root=" + tree("tcp"), "--transport=shm", "--nodes=2"], 4, "share no memory"),
            (["--root=" + tree("dgx"), "-eCUDA_VISIBLE_DEVICES=8"], 4, "names device 8")):
        r = topo(*args)
        tap.ok(r.returncode == code and part in r.stderr and r.stdout == "",
               f"topo {' '.join(args)}: {part}", r.returncode, r.stdout, r.stderr)
    with open("/dev/full", "w") as full:
        for args in (["--json"], [], ["--save=-"]):
            r = subprocess.run([tap.program(), "topo", *args], stdout=full, text=True,
                               stderr=subprocess.PIPE, check=False)
            tap.ok(r.returncode == 1 and "lockstep: topo" in r.stderr, f"a full disk {args}", r.stderr)
    r = topo("--help")
    tap.ok(r.returncode == 0 and r.stdout.startswith("Usage: lockstep topo"), "--help")


test_reports()
test_json()
test_here()
test_settings()
test_ucx_module()
test_leaves_nothing()
test_site()
test_errors()
tap.done()
