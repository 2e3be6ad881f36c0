#!/usr/bin/env python3
"""Trains models data-parallel on the ranks of a step and prints what each step took; started by the scaling report:

train.py BACKEND MODEL,... DEVICE SCALING WARM-UP STEPS

The loop is the same for every back end: forward, backward, one sum of the flat gradient buffer over all ranks, update.
There is no barrier, so that the communication time of a rank includes its wait for slower ones; the page takes the least
over the ranks for the transfer itself. Standard output is lines of JSON behind an @, which steps.py reads.
"""
# SPDX-License-Identifier: Apache-2.0

import sys

print('@{"kind": "start"}', flush=True)  # the report's clock: from here on a silent rank hangs

import hashlib
import json
import os
import re
import socket
import time
from pathlib import Path

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
LEARNING_RATE = 0.05
MOMENTUM = 0.9
# Gloo's threads may let go of a tensor late, and must not be the last that hold one when the group ends:
# etc/examples/train_ddp.py explains it.
KEPT = []


def tell(kind, **fields):
    print("@" + json.dumps({"kind": kind, **fields}))


def tell_place(rank, device_name):
    """Ranks with the same boot id are on the same machine, whatever their hosts are called. Cores as the kernel lists them: Slurm
    forwards lines of up to 1 KiB whole."""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    status = Path("/proc/self/status").read_text()
    tell("rank", rank=rank, host=socket.gethostname(), machine=machine, device=device_name, load=round(os.getloadavg()[0], 2),
         cores=re.search(r"^Cpus_allowed_list:\s*(.{1,700})", status, re.M)[1])
    sys.stdout.flush()


class Training:
    """One model of one rank, with its gradients as views into one flat buffer: nothing is copied to exchange them."""

    def __init__(self, torch, model, batches, device, weight):
        self.torch, self.device, self.weight = torch, device, weight
        self.model = model.to(device)
        self.batches = [(samples.to(device), labels.to(device)) for samples, labels in batches]
        parameters = list(self.model.parameters())
        self.gradients = torch.zeros(sum(parameter.numel() for parameter in parameters), device=device)
        place = 0
        for parameter in parameters:
            parameter.grad = self.gradients[place:place + parameter.numel()].view_as(parameter)
            place += parameter.numel()
        self.optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)

    def clock(self):
        """The time when all submitted work is done: a GPU works while the program goes on."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def step(self, number, exchange):
        """One step: its loss, and the seconds of forward, backward, communication and update."""
        samples, labels = self.batches[number % len(self.batches)]
        begin = self.clock()
        loss = self.torch.nn.functional.cross_entropy(self.model(samples), labels)
        forward = self.clock()
        self.gradients.zero_()
        (loss * self.weight).backward()  # so that the sum over all ranks is the mean over all samples
        backward = self.clock()
        exchange.reduce(self.gradients, "SUM")
        communication = self.clock()
        self.optimizer.step()
        return loss.detach(), (forward - begin, backward - forward, communication - backward, self.clock() - communication)

    def flat(self):
        """All parameters as one buffer."""
        return self.torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])


def run_model(torch, models, name, strong, warm_up, steps, rank, exchange, device):
    ranks = int(os.environ["WORLD_SIZE"])
    batch = models.SHAPES[device.type][name]["batch"] * (8 if strong else 1)
    if strong and batch < ranks:
        sys.exit(f"{ranks} processes cannot share a batch of {batch} samples")
    samples = batch // ranks + (rank < batch % ranks) if strong else batch
    batches = models.make_batches(name, device.type, samples, rank)
    training = Training(torch, models.build(name, device.type), batches, device, samples / (batch if strong else batch * ranks))
    steps = [training.step(number, exchange) for number in range(warm_up + steps)]
    parameters = training.flat()
    least, most = parameters.clone(), parameters.clone()
    exchange.reduce(least, "MIN")
    exchange.reduce(most, "MAX")
    KEPT.extend((training.gradients, least, most))
    difference = (most - least).abs().max().item()  # of a nan nothing is more or less: it stays one
    scale = most.abs().max().item()
    for number, (loss, seconds) in enumerate(steps):
        parts = {part: round(time, 7) for part, time in zip(("forward", "backward", "communication", "update"), seconds)}
        tell("step", model=name, rank=rank, step=number - warm_up, samples=samples, **parts, loss=loss.item())
    digest = hashlib.sha256(parameters.cpu().numpy().tobytes()).hexdigest()
    tell("end", model=name, rank=rank, digest=digest, difference=difference, scale=scale, parameters=parameters.numel())
    sys.stdout.flush()


def main():
    backend, names, device_type, scaling, warm_up, steps = sys.argv[1:]
    if missing := [name for name in PLACE if name not in os.environ]:
        sys.exit(f"{', '.join(missing)} should be set by slurm-bootstrap and are not; is the plugin on this node?")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        import exchange
        import models
        import torch
    except ImportError as error:
        sys.exit(f"training needs PyTorch and NumPy for {sys.executable}, which did not load: {error}")
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if device_type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    tell_place(rank, torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu")
    world = exchange.connect(backend, rank, ranks)
    for name in names.split(","):
        if rank == 0:
            tell("begin", model=name)
            sys.stdout.flush()
        run_model(torch, models, name, scaling == "strong", int(warm_up), int(steps), rank, world, device)
    world.close()


if __name__ == "__main__":
    main()
