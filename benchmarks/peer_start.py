"""The PyTorch side of `start`: from the start of the process to the end of the first training step.

Reads IDX files (plain, or gzip by name), imports torch, builds the MLP and trains one batch: the
least that a script can do. Prints the seconds since START, a wall clock taken before the spawn.

usage: peer_start.py START IMAGES LABELS THREADS
"""

import gzip
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F


def read(path, header):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        return np.frombuffer(f.read(), dtype=np.uint8, offset=header)


start, images, labels, threads = float(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
torch.set_num_threads(threads)
x = torch.from_numpy(read(images, 16).reshape(-1, 784)[:128].astype(np.float32) / 255)
y = torch.from_numpy(read(labels, 8)[:128].astype(np.int64))
model = torch.nn.Sequential(
    torch.nn.Linear(784, 512), torch.nn.ReLU(),
    torch.nn.Linear(512, 512), torch.nn.ReLU(),
    torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss = F.cross_entropy(model(x), y)
loss.backward()
optimizer.step()
print(json.dumps({"seconds": time.time() - start, "version": torch.__version__.split("+")[0]}))
