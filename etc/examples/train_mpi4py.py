#!/usr/bin/env python3
"""Start it with: srun --mpi=pmix -N2 --ntasks-per-node 2 python3 train_mpi4py.py

Trains a logistic regression with mpi4py and NumPy: each rank has its part of the data, and gradients are summed with
Allreduce, so that any number of ranks computes what one computes, up to rounding.

srun starts the ranks for MPI by itself (`srun --mpi=list` shows whether it can with pmix): neither mpirun nor
slurm-bootstrap is needed, and they do not disturb each other. Exits with 1 when the loss did not fall or when the ranks
do not hold the same parameters in the end.
"""
# SPDX-License-Identifier: Apache-2.0

import sys

try:
    import numpy as np
    from mpi4py import MPI
except ImportError as error:
    sys.exit(f"train_mpi4py.py needs mpi4py and NumPy: {error}")

STEPS = 200
POINTS = 8192
FEATURES = 16
LEARNING_RATE = 2.0


def make_part(rank, size):
    """Every rank makes the same data and keeps each size-th row: points of two classes, and a column of ones."""
    generator = np.random.default_rng(1)
    points = generator.standard_normal((POINTS, FEATURES))
    labels = (points @ generator.standard_normal(FEATURES) + 0.5 > 0).astype(float)
    return np.hstack([points, np.ones((POINTS, 1))])[rank::size], labels[rank::size]


def loss_and_gradient(comm, points, labels, weights):
    """Over the data of all ranks, the same on every rank."""
    probability = 1 / (1 + np.exp(-points @ weights))
    right = np.clip(np.where(labels == 1, probability, 1 - probability), 1e-12, None)
    mine = np.append(points.T @ (probability - labels), -np.log(right).sum())
    total = np.empty_like(mine)
    comm.Allreduce(mine, total, op=MPI.SUM)
    return total[-1] / POINTS, total[:-1] / POINTS


def have_same(comm, weights):
    """Whether all ranks hold the same parameters: then the least of each is its greatest."""
    least, most = np.empty_like(weights), np.empty_like(weights)
    comm.Allreduce(weights, least, op=MPI.MIN)
    comm.Allreduce(weights, most, op=MPI.MAX)
    return bool(np.all(np.isfinite(most))) and np.allclose(least, most, rtol=1e-9, atol=0)


def main():
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    hosts = comm.gather(MPI.Get_processor_name())
    if rank == 0:
        for number, host in enumerate(hosts):
            print(f"rank {number} of {size} on {host}")

    points, labels = make_part(rank, size)
    weights = np.zeros(FEATURES + 1)
    first_loss, gradient = loss_and_gradient(comm, points, labels, weights)
    final_loss = first_loss
    for step in range(1, STEPS + 1):
        weights -= LEARNING_RATE * gradient
        final_loss, gradient = loss_and_gradient(comm, points, labels, weights)
        if rank == 0 and step % (STEPS // 4) == 0:
            print(f"step {step:5d}  loss {final_loss:.4f}", flush=True)

    agree = have_same(comm, weights)
    if rank == 0:
        print(f"final loss {final_loss:.4f} (it was {first_loss:.4f}) on {size} ranks", flush=True)
    if not agree:
        sys.exit(f"rank {rank}: the ranks do not hold the same parameters")
    if not final_loss < first_loss / 2:
        sys.exit(f"rank {rank}: the loss did not fall: {first_loss:.4f} before, {final_loss:.4f} after")


if __name__ == "__main__":
    main()
