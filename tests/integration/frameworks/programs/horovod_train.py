#!/usr/bin/env python3
"""Horovod with PyTorch. The argument selects what is tried beside training:

  train        nothing; with MPI, its groups of ranks on a node are compared with Horovod's
  mnist        the program of most courses: a small convolutional network on images of 28 x 28, made here from noise and
               a pattern for each of ten digits
  sets         a static process set for each parity of ranks
  dynamic      the same sets, added after the start (HOROVOD_DYNAMIC_PROCESS_SETS=1) and removed again, twice
  again        hvd.shutdown() and a second hvd.init() before training, over MPI
  benchmark    the synthetic benchmark of Horovod's examples, on a small network
"""

# SPDX-License-Identifier: Apache-2.0

import os
import sys
import time

import horovod.torch as hvd
import torch

from training import STEPS, checksum, finish, show_rank, torch_problem


def start_mpi():
    """Starts MPI by mpi4py: hvd.shutdown() ends MPI if hvd.init() has started it, and MPI can start only once in a process."""
    from mpi4py import MPI

    if not MPI.Is_initialized():
        sys.exit("mpi4py has not started MPI")


def check_mpi():
    """MPI_Comm_split_type(SHARED) has the ranks of this node, in order."""
    from mpi4py import MPI

    shared = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    own = hvd.rank() - hvd.local_rank()
    wanted = list(range(own, own + hvd.local_size()))
    found = shared.allgather(MPI.COMM_WORLD.Get_rank())
    if found != wanted:
        sys.exit(f"MPI has ranks {found} on the node of rank {hvd.rank()}, not {wanted}")


def check_dynamic_sets():
    """All ranks add and remove a set together, also ranks outside of it."""
    for _ in range(2):
        sets = [hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])]
        check_sets(sets)
        removed = [hvd.remove_process_set(each) for each in sets]
        if not all(removed):
            sys.exit(f"rank {hvd.rank()} removed {removed.count(True)} of {len(removed)} process sets")


def check_sets(sets):
    for parity, each in enumerate(sets):
        if hvd.rank() % 2 != parity:
            continue
        total = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum, process_set=each, name=f"set {parity}").item()
        wanted = sum(range(parity, hvd.size(), 2))
        if total != wanted:
            sys.exit(f"process set {parity} has the sum {total}, not {wanted}")


def mnist():
    """Network, images and labels; the same in every process."""
    torch.manual_seed(1)
    labels = torch.arange(1024) % 10
    images = torch.randn(10, 1, 28, 28)[labels] + 0.5 * torch.randn(1024, 1, 28, 28)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 5, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 5, stride=2), torch.nn.ReLU(),
                                  torch.nn.Flatten(), torch.nn.Linear(16 * 4 * 4, 10))
    return network, images, labels


def benchmark():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                                  torch.nn.Linear(8, 10))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.01), named_parameters=network.named_parameters())
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    began = time.perf_counter()
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    if hvd.rank() == 0:
        print(f"Total img/sec on {hvd.size()} CPU(s): {20 * 8 * hvd.size() / (time.perf_counter() - began):.1f}", flush=True)


def main():
    how = sys.argv[1]
    sets = [hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])] if how == "sets" else []
    if how == "again":
        start_mpi()
        hvd.init()
        hvd.shutdown()
    hvd.init(process_sets=sets) if sets else hvd.init()
    rank, size = hvd.rank(), hvd.size()
    show_rank(rank, size, hvd.local_rank())
    if hvd.mpi_enabled() and os.environ.get("HOROVOD_CONTROLLER") != "gloo":
        check_mpi()
    check_sets(sets)
    if how == "dynamic":
        check_dynamic_sets()
    if how == "benchmark":
        benchmark()
    network, inputs, targets = mnist() if how == "mnist" else torch_problem()
    loss_of = torch.nn.functional.cross_entropy if how == "mnist" else torch.nn.functional.mse_loss

    def loss_of_all():
        with torch.no_grad():
            return loss_of(network(inputs), targets).item()

    first = loss_of_all()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005 if how == "mnist" else 0.02)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(network(inputs[rank::size]), targets[rank::size]).backward()
        optimizer.step()
    sums = hvd.allgather(torch.tensor([checksum(network)], dtype=torch.float64), name="checksums").tolist()
    hvd.shutdown()
    finish(rank, size, first, loss_of_all(), sums)


if __name__ == "__main__":
    main()
