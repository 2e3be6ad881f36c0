#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 train_checkpoint.py

Trains a small model with PyTorch DDP and saves a checkpoint when it is to stop: train_checkpoint.sbatch runs it in a job
that Slurm requeues before its time limit. After SIGTERM or SIGUSR1 all ranks stop behind the same step and end with 0.
The next start goes on from there. Needs PyTorch 1.13 or newer, and a folder that all nodes see.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import gc
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


def save(state, path):
    """In one piece, also when the job ends meanwhile."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoint", default="train_checkpoint-{}.pt".format(os.environ.get("SLURM_JOB_ID", "0")))
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: signals.append(number))

    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if not has_gpu:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)  # the same weights and task on all ranks
    network, target = nn.Linear(8, 1).to(device), torch.randn(8, 1, device=device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = {"step": 0, "first_loss": None}
    if os.path.exists(arguments.checkpoint):
        state = torch.load(arguments.checkpoint, map_location=device)
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
        if stopped:
            break

    if rank == 0 and stopped:
        save({**state, "model": network.state_dict(), "optimizer": optimizer.state_dict()}, arguments.checkpoint)
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
