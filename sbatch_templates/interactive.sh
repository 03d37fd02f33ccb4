#!/bin/bash
# Interactive: one srun from a login node, with output on the terminal; copy it with interactive.cfg.
#
#     ./interactive.sh [NODES]
#
# Ctrl-C saves a checkpoint and ends (--disable-status: srun itself would only print a report); the same line goes on
# from there. Inside salloc, plain `lockstep run interactive.cfg` starts the same step by itself and prints its line.
nodes=${1:-1}
exec srun --job-name=interactive --nodes="$nodes" --ntasks-per-node=1 --exclusive --mem=0 --time=00:30:00 \
    --mpi=pmix --kill-on-bad-exit=0 --cpu-bind=none --disable-status lockstep run interactive.cfg
