#!/usr/bin/env python3
"""Start it with: srun --bootstrap=on -N2 --ntasks-per-node 1 --gres gpu:2 python3 train_spawn.py

Trains a small network with PyTorch, with one task for each node that starts a worker for each GPU of the node itself.
One task with several GPUs may be anything, so slurm-bootstrap sets it up only if it is asked.

The task gets the number of its node and the number of nodes (RANK, WORLD_SIZE), and a common address (MASTER_ADDR,
MASTER_PORT); the workers' ranks follow from that, as long as all nodes have equally many GPUs. Uses NCCL where PyTorch
finds a GPU, else gloo and two workers on the CPUs. Exits with 1 when the loss did not fall or when the workers do not
hold the same model in the end.
"""
# SPDX-License-Identifier: Apache-2.0

import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 200
POINTS = 4096


def choose_device(index, workers):
    if torch.cuda.is_available():
        torch.cuda.set_device(index)
        return torch.device("cuda", index)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))  # they share the task's cores out
    return torch.device("cpu")


def train(network, device, inputs, targets):
    """Each worker learns from its own part of the data; returns the loss over all of it, before and after."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first_loss = None
    for step in range(STEPS + 1):
        if step % (STEPS // 4) == 0:
            with torch.no_grad():
                loss = nn.functional.mse_loss(network(inputs), targets).item()
            first_loss = loss if first_loss is None else first_loss
            if rank == 0:
                print(f"step {step:5d}  loss {loss:.4f}", flush=True)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[rank::size]), targets[rank::size]).backward()  # averages all gradients
        optimizer.step()
    with torch.no_grad():
        return first_loss, nn.functional.mse_loss(network(inputs), targets).item()


def work(index, workers):
    """One worker: the one with number `index` of this node."""
    rank = int(os.environ["RANK"]) * workers + index
    size = int(os.environ["WORLD_SIZE"]) * workers
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=size)  # at MASTER_ADDR and MASTER_PORT
    device = choose_device(index, workers)
    print(f"rank {rank} of {size}: worker {index} on {os.uname().nodename}, {device}, {backend}", flush=True)

    torch.manual_seed(1)
    inputs = torch.linspace(-3, 3, POINTS, device=device).unsqueeze(1)
    network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    first_loss, final_loss = train(network, device, inputs, torch.sin(2 * inputs))

    # A place for each worker. This tensor lives longer than the process group: gloo's threads of PyTorch 1.13 may let
    # go of it late, and if theirs is the last reference, the end of the group waits for them for ever.
    checksums = torch.zeros(size, dtype=torch.float64, device=device)
    checksums[rank] = sum(parameter.detach().double().abs().sum() for parameter in network.parameters())
    dist.all_reduce(checksums)
    agree = torch.allclose(checksums, checksums[0].expand(size), rtol=1e-6)
    if rank == 0:
        print(f"final loss {final_loss:.4f} (it was {first_loss:.4f}) on {size} ranks", flush=True)
    # DDP keeps the process group alive: gloo's threads would outlive it, and can abort the program while Python ends.
    gc.collect()
    dist.destroy_process_group()
    if not agree:
        sys.exit("the workers do not hold the same model")
    if not final_loss < first_loss / 2:
        sys.exit(f"the loss did not fall: {first_loss:.4f} before, {final_loss:.4f} after")


if __name__ == "__main__":
    count = torch.cuda.device_count() or 2
    mp.spawn(work, args=(count,), nprocs=count)
