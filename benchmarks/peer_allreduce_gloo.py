#!/usr/bin/env python3
"""The peer of allreduce.c: torch.distributed's Gloo. peer_allreduce_gloo.py [--ranks N] [BYTES...]
starts its ranks itself and prints the same lines: bytes, median us, best us, GB/s."""

import os
import socket
import sys
import time

USUAL = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def rank_main(rank, ranks, sizes):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size in sizes:
        count = max(7, min(400, int(0.2 / (size / 5e8 + 3e-4))))
        x = torch.ones(size // 4)
        samples = []
        for i in range(-5, count):
            x.fill_(1)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(x)
            if i >= 0:
                samples.append(time.perf_counter() - start)
        samples.sort()
        if rank == 0:
            median = samples[count // 2]
            print(f"{size} {median * 1e6:.2f} {samples[0] * 1e6:.2f} {size / median / 1e9:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = sys.argv[1:]
    ranks = 2
    if args[:1] == ["--ranks"]:
        ranks, args = int(args[1]), args[2:]
    sizes = [int(a) for a in args] or USUAL
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                      GLOO_SOCKET_IFNAME="lo")
    children = []
    for rank in range(1, ranks):
        pid = os.fork()
        if pid == 0:
            rank_main(rank, ranks, sizes)
            os._exit(0)
        children.append(pid)
    rank_main(0, ranks, sizes)
    sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))


if __name__ == "__main__":
    main()
