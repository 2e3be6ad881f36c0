#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 train_ddp.py

Trains a small classifier with PyTorch DistributedDataParallel (DDP) on data that it makes itself.

An ordinary DDP program: it needs only RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, set
by srun with slurm-bootstrap, as above, or by torchrun, as in train_torchrun.sbatch.

Uses NCCL where PyTorch finds a GPU, else gloo on the CPUs. Needs PyTorch 1.13 or newer and nothing else. Rank 0 prints
what every rank sees, the loss while it falls, and the speed. Exits with 1 when the loss did not fall or when the ranks
do not hold the same model in the end.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import gc
import math
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DistributedSampler

POINTS = 8192
ROWS = 8  # of the table of losses

# Tensors that were given to a collective. Gloo's threads let go of a tensor some time after all_reduce has returned; if
# theirs is the last reference, they need Python's lock to free it, and PyTorch 1.13 may hold that lock while it waits
# for those threads to end: then the program never ends. So these live longer than the process group.
reduced = []


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--steps", type=int, default=400, help="optimiser steps (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="samples of one rank in a step (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=0.005, help="learning rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of data, model and order (default: %(default)s)")
    return parser.parse_args()


def choose_device():
    """The GPU of this rank; without GPUs the CPU, with the node's cores shared out among its ranks."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        return device
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    return torch.device("cpu")


def make_spirals(seed, device):
    """Two spirals around each other: no line separates them, a small network does."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(POINTS) % 2
    radius = torch.rand(POINTS, generator=generator).sqrt()
    angle = 3 * math.pi * radius + math.pi * labels
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    points += 0.01 * torch.randn(POINTS, 2, generator=generator)
    return points.to(device), labels.to(device)


def reduce(value, operation, device):
    """Sum, maximum, ... of a number over all ranks."""
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=operation)
    reduced.append(tensor)
    return tensor.item()


def print_ranks(device):
    """One row for each rank, with what that rank itself sees."""
    row = (
        str(dist.get_rank()),
        socket.gethostname(),
        os.environ.get("LOCAL_RANK", "-"),
        str(dist.get_world_size()),
        "{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ),
        os.environ.get("CUDA_VISIBLE_DEVICES", "-"),
        str(device),
    )
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, row)
    if dist.get_rank() != 0:
        return
    rows.insert(0, ("rank", "host", "local rank", "world size", "master", "visible GPUs", "device"))
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print(flush=True)


def endless_batches(sampler, batch_size):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from BatchSampler(sampler, batch_size, drop_last=False)
        epoch += 1


def evaluate(model, points, labels):
    """Loss and accuracy over all data; the same on every rank."""
    with torch.no_grad():
        logits = model(points)
        loss = nn.functional.cross_entropy(logits, labels)
        return loss.item(), (logits.argmax(dim=1) == labels).float().mean().item()


def train(model, points, labels, arguments, device):
    """Returns the seconds that the steps took."""
    sampler = DistributedSampler(range(POINTS), seed=arguments.seed)
    batches = endless_batches(sampler, arguments.batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    every = max(1, arguments.steps // ROWS)
    losses = []
    start = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        batch = next(batches)
        loss = nn.functional.cross_entropy(model(points[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all ranks here
        optimizer.step()
        losses.append(loss.detach())
        if step % every == 0:
            mean = reduce(torch.stack(losses).mean().item(), dist.ReduceOp.SUM, device) / dist.get_world_size()
            losses.clear()
            if dist.get_rank() == 0:
                print(f"step {step:5d}  loss {mean:.4f}", flush=True)
    return time.perf_counter() - start


def replicas_agree(model, device):
    """True when all ranks hold the same parameters, up to rounding."""
    checksum = sum(parameter.double().abs().sum() for parameter in model.parameters()).item()
    most = reduce(checksum, dist.ReduceOp.MAX, device)
    least = reduce(checksum, dist.ReduceOp.MIN, device)
    return math.isfinite(most) and most - least <= 1e-6 * most


def main():
    arguments = parse_arguments()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", init_method="env://")
    device = choose_device()
    print_ranks(device)

    torch.manual_seed(arguments.seed)
    points, labels = make_spirals(arguments.seed, device)
    network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)

    first_loss, _ = evaluate(network, points, labels)
    if dist.get_rank() == 0:
        print(f"step {0:5d}  loss {first_loss:.4f}", flush=True)
    seconds = train(model, points, labels, arguments, device)
    final_loss, accuracy = evaluate(network, points, labels)
    agree = replicas_agree(network, device)

    if dist.get_rank() == 0:
        rate = arguments.steps / seconds
        samples = rate * arguments.batch_size * dist.get_world_size()
        print(f"\n{rate:.0f} steps per second, {samples:.0f} samples per second, {accuracy:.1%} of all points right")
        print(f"final loss {final_loss:.4f} (it was {first_loss:.4f}) on {dist.get_world_size()} ranks", flush=True)
    # DDP keeps the process group alive: gloo's threads would outlive it, and can abort the program while Python ends.
    del model
    gc.collect()
    dist.destroy_process_group()
    if not agree:
        sys.exit("the ranks do not hold the same model")
    if not final_loss < first_loss:
        sys.exit(f"the loss did not fall: {first_loss:.4f} before, {final_loss:.4f} after")


if __name__ == "__main__":
    main()
