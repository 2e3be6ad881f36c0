"""Shared by the programs of this folder: the data, the network, and the lines that a test reads.

Each rank prints `rank R of N: local rank L on HOST`, as the framework sees it. Rank 0 then prints `final loss A (it was B)
on N ranks`. A program exits with 1 if the loss did not fall or the ranks have different models.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import sys

STEPS = 60
POINTS = 2048
WIDTH = 32
SEED = 1


def show_rank(rank, size, local_rank):
    # One write, so that lines of processes that share a pipe do not mix.
    os.write(1, f"rank {rank} of {size}: local rank {local_rank} on {os.uname().nodename}\n".encode())


def finish(rank, size, first_loss, final_loss, checksums):
    """`checksums`: a number for each rank's model."""
    if rank == 0:
        os.write(1, f"final loss {final_loss:.4f} (it was {first_loss:.4f}) on {size} ranks\n".encode())
    if len(checksums) != size or any(abs(one - checksums[0]) > 1e-5 * abs(checksums[0]) for one in checksums):
        sys.exit(f"the ranks do not hold the same model: {checksums}")
    if not final_loss < first_loss / 2:
        sys.exit(f"the loss did not fall: {first_loss:.4f} before, {final_loss:.4f} after")


def leave():
    """Ends the program without Python's own end. Frameworks keep the model, which keeps gloo's threads alive: see
    end_group in torch_train.py."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def torch_problem():
    """The network, inputs and targets; the same in every process."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    inputs = torch.linspace(-3, 3, POINTS).unsqueeze(1)
    return nn.Sequential(nn.Linear(1, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)), inputs, torch.sin(2 * inputs)


def torch_loss(network, inputs, targets):
    import torch

    with torch.no_grad():
        return torch.nn.functional.mse_loss(network(inputs), targets).item()


def checksum(network):
    return sum(parameter.detach().double().abs().sum().item() for parameter in network.parameters())
