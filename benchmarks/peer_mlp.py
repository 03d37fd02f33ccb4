"""The PyTorch side of `mlp`: trains 784-512-512-10 with AdamW in fp32 and prints samples per second.

Only the training loop is timed; the data lies in memory as normalised floats, so that the peer has
nothing to decode, shuffle or copy. Variants (argument 2) are what people do to make it fast; the
runner tries each once and measures the fastest.

usage: peer_mlp.py BATCH VARIANT SECONDS THREADS
"""

import json
import sys
import time

import torch
import torch.nn.functional as F


def variants():
    """Ways to run that this version of PyTorch has; the runner tries them all."""
    names = ["foreach", "single"]
    if int(torch.__version__.split(".")[0]) >= 2:
        names += ["fused", "compile-fused", "compile-all"]
    return names


def main():
    if sys.argv[1] == "--describe":
        print(json.dumps({"version": torch.__version__.split("+")[0], "variants": variants()}))
        return
    batch, variant = int(sys.argv[1]), sys.argv[2]
    seconds, threads = float(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    torch.set_flush_denormal(True)

    model = torch.nn.Sequential(
        torch.nn.Linear(784, 512), torch.nn.ReLU(),
        torch.nn.Linear(512, 512), torch.nn.ReLU(),
        torch.nn.Linear(512, 10))
    options = {"lr": 1e-3, "weight_decay": 0.01}
    if "fused" in variant:
        options["fused"] = True
    else:
        options["foreach"] = variant != "single"
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    batches = max(1, 8192 // batch)
    x = torch.randn(batches * batch, 784)
    y = torch.randint(0, 10, (batches * batch,))
    data = [(x[i * batch:(i + 1) * batch], y[i * batch:(i + 1) * batch]) for i in range(batches)]

    def loss_of(images, labels):
        return F.cross_entropy(model(images), labels)

    update = optimizer.step
    if variant.startswith("compile"):
        loss_of = torch.compile(loss_of)
    if variant == "compile-all":
        update = torch.compile(update)

    def step(i):
        images, labels = data[i % batches]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(images, labels)
        loss.backward()
        update()
        return loss

    for i in range(50):
        step(i)
    steps, chunk = 0, max(1, 2048 // batch)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for i in range(chunk):
            loss = step(steps + i)
        steps += chunk
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_second": steps * batch / elapsed, "steps": steps,
                      "seconds": elapsed, "loss": float(loss)}))


main()
