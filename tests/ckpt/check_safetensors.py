"""Compares Lockstep's safetensors files and verdicts with the reference package.

usage: check_safetensors.py DIR

DIR/ours.json         what ours.safetensors and empty.safetensors should hold, bytes in hexadecimal
DIR/accepts-NAME, DIR/rejects-NAME, DIR/either-NAME   samples, with the verdict that is expected
DIR/theirs-*          written by this script, for Lockstep to read

Prints one line "ok TEXT" or "not ok TEXT" per check. Exit code 77: the package is missing.
"""
import json
import os
import sys

try:
    import numpy
    import safetensors
    from safetensors.numpy import save_file
except ImportError as e:
    print(e)
    sys.exit(77)

DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "U8": "u1"}


def check(good, text):
    print(("ok " if good else "not ok ") + text)


def read(path):
    with safetensors.safe_open(path, framework="numpy") as f:
        return {name: f.get_tensor(name) for name in f.keys()}, f.metadata()


def main():
    directory = sys.argv[1]

    def here(name):
        return os.path.join(directory, name)

    print("# safetensors", safetensors.__version__)
    with open(here("ours.json"), encoding="utf-8") as f:
        wanted = json.load(f)
    for name, content in wanted.items():
        tensors, metadata = read(here(name))
        check(set(tensors) == set(content["tensors"]), f"{name}: the same tensors")
        check(metadata == content["metadata"], f"{name}: the same metadata")
        for key, want in content["tensors"].items():
            got = tensors[key]
            check(
                list(got.shape) == want["shape"]
                and got.dtype == numpy.dtype(DTYPES[want["dtype"]])
                and got.tobytes().hex() == want["hex"],
                f"{name}: tensor {key!r} has the same dtype, shape and bytes",
            )

    for name in sorted(os.listdir(directory)):
        verdict = name.split("-")[0]
        if verdict not in ("accepts", "rejects", "either"):
            continue
        try:
            with safetensors.safe_open(here(name), framework="numpy") as f:
                f.keys()
            got = "accepts"
        except Exception:  # the package has several kinds
            got = "rejects"
        if verdict == "either":
            print(f"# the reference {got} {name}")
        else:
            check(got == verdict, f"the reference {got} {name}")

    save_file(
        {
            "w": numpy.arange(24, dtype="<f4").reshape(2, 3, 4),
            "d": numpy.array([1.5, float("nan")], dtype="<f8"),
            "i": numpy.array(-7, dtype="<i4"),
            "u": numpy.zeros((0, 3), dtype="u1"),
            'odd "\u00e9\\': numpy.array([255], dtype="u1"),
        },
        here("theirs.safetensors"),
        metadata={"k": "v"},
    )
    save_file({}, here("theirs-empty.safetensors"))


main()
