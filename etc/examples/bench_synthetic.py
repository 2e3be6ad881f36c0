#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 bench_synthetic.py

Measures how many made-up images per second a ResNet-50 learns from with PyTorch DistributedDataParallel (DDP).

The images lie in memory, so that neither disks nor decoding count: what is left is computing and exchanging gradients.
On GPUs (NCCL) it is the real network on images of 224 x 224; without GPUs (gloo) a thin one on small images, whose
figures compare layouts of one cluster with each other and not with any other ResNet-50.

Rank 0 prints the rate of every iteration, its mean with 1.96 standard deviations, the total over all ranks, and the
loss: exits with 1 when it did not fall or when the ranks do not hold the same model. Needs PyTorch 1.13 or newer.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import gc
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STAGES = (3, 4, 6, 3)  # blocks in each stage: with the layers at both ends these make the 50 of the name
GROWTH = 4  # a block gives out four times the channels that its middle works on
FULL = {"channels": 64, "side": 224, "batch": 32, "iterations": 10, "batches": 10}
SMALL = {"channels": 8, "side": 32, "batch": 8, "iterations": 10, "batches": 3}

# Tensors that were given to a collective: gloo's threads may let go of them late, and must not be the last that hold
# one when the process group ends (train_ddp.py has the details).
reduced = []


class Block(nn.Module):
    """1x1, 3x3 and 1x1 convolution beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, channels_in, middle, stride):
        super().__init__()
        channels_out = middle * GROWTH
        self.path = nn.Sequential(
            *normed(channels_in, middle, 1), nn.ReLU(inplace=True),
            *normed(middle, middle, 3, stride), nn.ReLU(inplace=True),
            *normed(middle, channels_out, 1))
        same_shape = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same_shape else nn.Sequential(*normed(channels_in, channels_out, 1, stride))
        # A new block passes its input on, which keeps the first steps of a deep network stable.
        nn.init.zeros_(self.path[-1].weight)

    def forward(self, images):
        return torch.relu(self.path(images) + self.shortcut(images))


def normed(channels_in, channels_out, size, stride=1):
    """A convolution and its batch normalisation."""
    convolution = nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution, nn.BatchNorm2d(channels_out)


def resnet50(channels=64, classes=1000):
    """The network of 50 layers; 64 channels in its first stage make it the real one, fewer a thin one."""
    layers = [*normed(3, channels, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    width = channels
    for stage, blocks in enumerate(STAGES):
        middle = channels << stage
        for number in range(blocks):
            layers.append(Block(width, middle, 2 if stage > 0 and number == 0 else 1))
            width = middle * GROWTH
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def parse_arguments(defaults):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--iterations", type=int, default=defaults["iterations"], help="rates measured (%(default)s)")
    parser.add_argument("--batches", type=int, default=defaults["batches"], help="steps of an iteration (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before the first iteration (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=defaults["batch"], help="images of a rank (%(default)s)")
    parser.add_argument("--channels", type=int, default=defaults["channels"], help="of the first stage (%(default)s)")
    parser.add_argument("--side", type=int, default=defaults["side"], help="of an image in pixels (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate (%(default)s)")
    arguments = parser.parse_args()
    if min(value for name, value in vars(arguments).items() if name != "warm_up") <= 0 or arguments.warm_up < 0:
        parser.error("every number must be above 0, --warm-up may be 0")
    return arguments


def train_steps(model, optimizer, batch, count, device):
    """Seconds that the steps took, and the loss before the last of them."""
    images, labels = batch
    start = time.perf_counter()
    for _ in range(count):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all ranks here
        optimizer.step()
    loss = loss.item()  # a GPU has done all of it when this is known
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, loss


def reduce(values, operation, device):
    """Sum, maximum, ... of numbers over all ranks."""
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=operation)
    reduced.append(tensor)
    return tensor.tolist()


def replicas_agree(model, device):
    """True when all ranks hold the same parameters, up to rounding."""
    checksum = [sum(parameter.double().abs().sum() for parameter in model.parameters()).item()]
    most, least = (reduce(checksum, operation, device)[0] for operation in (dist.ReduceOp.MAX, dist.ReduceOp.MIN))
    return math.isfinite(most) and most - least <= 1e-6 * most


def measure(model, optimizer, batch, arguments, device):
    """Prints the rates; returns the loss before the first and the last step, as the mean of all ranks."""
    ranks, images = dist.get_world_size(), arguments.batches * arguments.batch_size
    unit = "GPU" if device.type == "cuda" else "CPU process"
    _, first = train_steps(model, optimizer, batch, 1, device)
    if arguments.warm_up > 1:
        train_steps(model, optimizer, batch, arguments.warm_up - 1, device)
    rates = []
    for number in range(arguments.iterations):
        seconds, last = train_steps(model, optimizer, batch, arguments.batches, device)
        rates.append(images / seconds)
        if dist.get_rank() == 0:
            print(f"iteration {number + 1:3d}: {rates[-1]:.1f} img/sec per {unit}", flush=True)
    # Every rank measured its own; a row of iterations is one rate of the world.
    summed = reduce(rates, dist.ReduceOp.SUM, device)
    mean, spread = statistics.fmean(summed), 1.96 * statistics.pstdev(summed)
    if dist.get_rank() == 0:
        print(f"Img/sec per {unit}: {mean / ranks:.1f} +- {spread / ranks:.1f}")
        print(f"Total img/sec on {ranks} {unit}(s): {mean:.1f} +- {spread:.1f}", flush=True)
    losses = reduce([first, last], dist.ReduceOp.SUM, device)
    return losses[0] / ranks, losses[1] / ranks


def main():
    on_gpu = torch.cuda.is_available()
    arguments = parse_arguments(FULL if on_gpu else SMALL)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    else:
        torch.set_num_threads(1)  # layers this thin take longer to share out than to compute
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method="env://")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    network = resnet50(arguments.channels).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    torch.manual_seed(2 + rank)
    shape = (arguments.batch_size, 3, arguments.side, arguments.side)
    batch = torch.randn(shape).to(device), torch.randint(1000, shape[:1]).to(device)
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        print(f"ResNet-50 with {arguments.channels} channels in its first stage: {parameters:,} parameters, "
              f"{arguments.batch_size} images of {arguments.side} x {arguments.side} on each of {ranks} ranks", flush=True)
    first_loss, final_loss = measure(model, optimizer, batch, arguments, device)
    agree = replicas_agree(network, device)
    if rank == 0:
        print(f"final loss {final_loss:.4f} (it was {first_loss:.4f}) on {ranks} ranks", flush=True)
    # DDP keeps the process group alive: gloo's threads would outlive it, and can abort the program while Python ends.
    del model, optimizer
    gc.collect()
    dist.destroy_process_group()
    if not agree:
        sys.exit("the ranks do not hold the same model")
    if not final_loss < first_loss:
        sys.exit(f"the loss did not fall: {first_loss:.4f} before, {final_loss:.4f} after")


if __name__ == "__main__":
    main()
