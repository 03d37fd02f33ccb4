"""A small DistributedDataParallel training that survives the end of its allocation; started by exec-pytorch.sbatch.

Nothing here knows of Slurm: rank, size, address and port come from `lockstep exec`. SIGUSR1 saves and ends with 75,
which the batch script takes as "start me again"."""

import os
import signal
import sys

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "2000"))
CHECKPOINT = os.environ.get("CHECKPOINT", "exec-pytorch.pt")

stop = False


def on_usr1(_number, _frame):
    global stop
    stop = True


def main():
    signal.signal(signal.SIGUSR1, on_usr1)
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if gpu else "cpu")
    dist.init_process_group("nccl" if gpu else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT, map_location=device)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    draw = torch.Generator().manual_seed(1000 * first + rank)
    end, loss = torch.zeros(1, device=device), torch.zeros(1)
    for step in range(first, STEPS):
        x = torch.randn(64, 32, generator=draw).to(device)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        # Signals reach ranks at different times: they agree on the step at which they stop.
        end.fill_(float(stop))
        dist.all_reduce(end, op=dist.ReduceOp.MAX)
        if end.item():
            break
    else:
        step = STEPS - 1
    # A slow node's signal may come only now, and Python's handlers go before the process does.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if rank == 0:
        temporary = CHECKPOINT + ".tmp"
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, temporary)
        os.replace(temporary, CHECKPOINT)
        print(f"saved after step {step + 1}, loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(75 if end.item() else 0)


main()
