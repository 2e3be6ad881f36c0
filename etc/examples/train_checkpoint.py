#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 train_checkpoint.py

Trains a small model with PyTorch DDP, and saves a checkpoint every N steps and before it stops: after SIGTERM or
SIGUSR1 all ranks stop after the same step and exit with 0. The next start continues from the checkpoint.
train_checkpoint.sbatch runs it in a job that Slurm requeues before its time limit, train_supervised.sbatch also in one
that loses a node. Needs PyTorch 1.13 or newer, and a folder that all nodes see.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import gc
import glob
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

signals = []  # that this rank has received
reduced = []  # see train_ddp.py


def is_to_stop(device):
    """True on all ranks when one of them has received a signal: a rank that stops alone would leave the others waiting."""
    flag = torch.tensor([len(signals)], device=device)
    dist.all_reduce(flag)
    reduced[:] = [*reduced[-100:], flag]
    return flag.item() > 0


def file_of_this_start(checkpoint):
    """Slurm counts the requeues of a job, and slurm-bootstrap supervise the restarts of its step. Ranks of an earlier start may
    live on, on a node that Slurm cannot reach: they write to the file of their own start, and the last start counts."""
    return "{}.{:03d}-{:03d}".format(checkpoint, *(int(os.environ.get(f"{name}_RESTART_COUNT", 0)) for name in ("SLURM", "BOOTSTRAP")))


def files_of_all_starts(checkpoint):
    return sorted(glob.glob(glob.escape(checkpoint) + ".[0-9][0-9][0-9]-[0-9][0-9][0-9]"))


def save(state, checkpoint):
    """Writes the file whole or not at all, even if the job ends meanwhile."""
    path = file_of_this_start(checkpoint)
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)
    for other in files_of_all_starts(checkpoint):
        if other < path:
            os.remove(other)


def load(checkpoint, rank):
    """Rank 0 reads: two ranks could find different files."""
    files = files_of_all_starts(checkpoint)
    states = [torch.load(files[-1], map_location="cpu") if files and rank == 0 else None]
    dist.broadcast_object_list(states)
    return states[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="save after so many steps")
    parser.add_argument("--checkpoint", default="train_checkpoint-{}.pt".format(os.environ.get("SLURM_JOB_ID", "0")))
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: signals.append(number))

    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)  # for broadcast_object_list
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)  # the same weights and task on all ranks
    network, target = nn.Linear(8, 1).to(device), torch.randn(8, 1, device=device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = load(arguments.checkpoint, rank) or {"step": 0, "first_loss": None}
    if state["step"] > 0:
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        print(f"start at step {state['step']} on {size} ranks", flush=True)

    stopped = False
    for step in range(state["step"] + 1, arguments.steps + 1):
        generator = torch.Generator().manual_seed(step * size + rank)  # other samples on each rank and in each step
        samples = torch.randn(64, 8, generator=generator).to(device)
        loss = (model(samples) - samples @ target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = {"step": step, "first_loss": state["first_loss"] or loss.item(), "loss": loss.item()}
        if rank == 0 and step % 100 == 0:
            print(f"step {step}  loss {loss.item():.6f}", flush=True)
        stopped = is_to_stop(device)
        if rank == 0 and (stopped or step % arguments.every == 0):
            save({**state, "model": network.state_dict(), "optimizer": optimizer.state_dict()}, arguments.checkpoint)
        if stopped:
            break

    if rank == 0 and stopped:
        print(f"saved step {state['step']}", flush=True)
    if rank == 0 and not stopped:
        print(f"final loss {state['loss']:.6f} (it was {state['first_loss']:.6f}) on {size} ranks", flush=True)
    del model  # see train_ddp.py
    gc.collect()
    dist.destroy_process_group()
    if not stopped and not state["loss"] < state["first_loss"]:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main()
