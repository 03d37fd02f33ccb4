"""JAX under exec: it finds the coordinator, the number of processes and its own by itself; with "explicit" the script
passes what JAX does not read, as outside Slurm. A sum over all processes is right only if they have met."""

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import numpy as np
from jax.experimental import multihost_utils

given = {}
if "explicit" in sys.argv:
    given = {"num_processes": int(os.environ["JAX_NUM_PROCESSES"]), "process_id": int(os.environ["JAX_PROCESS_ID"])}
jax.distributed.initialize(**given)
rank = jax.process_index()
if rank != int(os.environ["RANK"]):
    sys.exit(f"JAX says process {rank}, RANK is {os.environ['RANK']}")
everyone = multihost_utils.process_allgather(np.array([rank + 1]))
print(f"rank {rank} of {jax.process_count()}: sum {int(everyone.sum())}", flush=True)
jax.distributed.shutdown()
