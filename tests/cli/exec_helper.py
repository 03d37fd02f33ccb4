"""What a rank of test_exec.py does: tells its variables, or misbehaves as its arguments say."""

import json
import os
import signal
import socket
import sys
import time

RANK = int(os.environ["RANK"])


def tell(folder):
    """Writes all that this rank knows of itself."""
    with open(os.path.join(folder, f"rank-{RANK}.json"), "w") as f:
        json.dump({"env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0)),
                   "fds": [int(n) for n in os.listdir("/proc/self/fd")],
                   "stdin": sys.stdin.read()}, f)


def meet():
    """Rank 0 binds MASTER_PORT, all others connect to it; every rank binds its own port of TF_CONFIG."""
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    host, port = config["cluster"][task["type"]][task["index"]].rsplit(":", 1)
    own = socket.create_server((host, int(port)))
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    size = int(os.environ["WORLD_SIZE"])
    if RANK == 0:
        coordinator, port = os.environ["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1)
        with socket.create_server(where) as s, socket.create_server((coordinator, int(port))):
            ranks = [0] + sorted(s.accept()[0].recv(16)[0] for _ in range(size - 1))
            print("met", ranks, flush=True)
    else:
        end = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(where, timeout=30) as c:
                    c.sendall(bytes([RANK]))
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
    own.close()


def hear(folder):
    """Notes every signal that comes; TERM and INT end it with 0."""
    path = os.path.join(folder, f"signals-{RANK}")

    def note(number, _frame):
        with open(path, "a") as f:
            f.write(signal.Signals(number).name + "\n")
        if number in (signal.SIGTERM, signal.SIGINT) and "stubborn" not in sys.argv:
            sys.exit(0)

    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(s, note)
    with open(path + ".new", "w") as f:
        f.write(str(os.getppid()))
    os.rename(path + ".new", path + ".ready")
    while True:
        signal.pause()


def main():
    what, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "tell":
        tell(folder)
    elif what == "meet":
        meet()
    elif what == "hear":
        hear(folder)


main()
