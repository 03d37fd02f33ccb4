"""`lockstep hosts` as a user sees it: output, standard input, exit codes, messages."""

import subprocess

import tap


def hosts(*args, text=""):
    return subprocess.run([tap.program(), "hosts", *args], input=text, capture_output=True, text=True,
                          timeout=300, check=False)


def test_output():
    for args, text, want in (
            (["expand", "n[001-003,7],login"], "", "n001\nn002\nn003\nn7\nlogin\n"),
            (["expand", "b", "a[1-2]"], "", "b\na1\na2\n"),
            (["count", "n[1-4]"], "", "4\n"),
            (["count", "n[0-65535]", "m,n"], "", "65538\n"),
            (["fold", "n1", "n2,n3", "n[7-8]"], "", "n[1-3,7-8]\n"),
            (["fold", "r[1-2]n[01-04]"], "", "r[1-2]n[01-04]\n"),
            (["fold", "-"], "n1\nn2\r\n\nn4", "n[1-2,4]\n"),
            (["fold", "n0", "-", "n3"], "n1 n2\n", "n[0-3]\n"),
            (["expand", "-"], "n[1-2]\nm\n", "n1\nn2\nm\n"),
            (["count", "-"], "n[1-2]\nm\n", "3\n")):
        r = hosts(*args, text=text)
        tap.same((r.returncode, r.stdout, r.stderr), (0, want, ""), "hosts " + " ".join(args))
    names = "".join(f"r{r}n{n:02}\n" for r in range(1, 65) for n in range(64))
    r = hosts("fold", "-", text=names)
    tap.same(r.stdout, "r[1-64]n[00-63]\n", "4096 names fold")
    tap.same(hosts("expand", r.stdout.strip()).stdout, names, "and expand to the same names")
    r = hosts("--help")
    tap.ok(r.returncode == 0 and r.stdout.startswith("Usage: lockstep hosts"), "--help")


def test_errors():
    for args, text, part in (
            ([], "", "expected expand, count or fold"),
            (["unfold", "n1"], "", "found 'unfold'"),
            (["expand"], "", "expected at least one"),
            (["--fast"], "", "--help"),
            (["expand", ""], "", "no names"),
            (["expand", "n[1-2"], "", "character 2 of 'n[1-2'"),
            (["expand", "n1", "n[3-1]"], "", "smaller number first"),
            (["count", "n[0-65536]"], "", "65536 names"),
            (["fold", "n[0-65535]", "m"], "", "65537 names"),
            (["fold", "-"], "", "standard input"),
            (["fold", "-"], "n1\nn!\n", "standard input"),
            (["fold", "-"], "n1\0n2", "0x00")):
        r = hosts(*args, text=text)
        tap.ok(r.returncode == 2 and part in r.stderr and r.stdout == "",
               f"hosts {' '.join(args)}: {part}", r.returncode, r.stdout, r.stderr)
    with open("/dev/full", "w") as full:
        r = subprocess.run([tap.program(), "hosts", "expand", "n1"], stdout=full, text=True,
                           stderr=subprocess.PIPE, check=False)
    tap.ok(r.returncode == 1 and "standard output" in r.stderr, "a full disk", r.stderr)


test_output()
test_errors()
tap.done()
