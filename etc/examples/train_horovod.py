#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap run --horovod -- python3 train_horovod.py

Trains a small network with Horovod and PyTorch, without horovodrun.

The ranks meet over Gloo, at Horovod's own rendezvous server, which the command starts beside rank 0; HOROVOD_RANK and
the other variables come from it. With `srun --mpi=pmix python3 train_horovod.py` Horovod finds itself started for MPI.
Either way Horovod has to be built for it: `horovodrun --check-build` lists its controllers. Exits with 1 when the loss
did not fall or when the ranks do not hold the same model in the end.
"""
# SPDX-License-Identifier: Apache-2.0

import os
import sys

try:
    import horovod.torch as hvd
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"train_horovod.py needs Horovod with PyTorch: {error}")

STEPS = 200
POINTS = 4096


def choose_device():
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
        return torch.device("cuda", hvd.local_rank())
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hvd.local_size()))
    return torch.device("cpu")


def train(network, inputs, targets):
    """Each rank learns from its own part of the data; returns the loss over all of it, before and after."""
    rank, size = hvd.rank(), hvd.size()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())

    def loss_of_all():
        with torch.no_grad():
            return nn.functional.mse_loss(network(inputs), targets).item()

    first_loss = loss_of_all()
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        nn.functional.mse_loss(network(inputs[rank::size]), targets[rank::size]).backward()
        optimizer.step()  # waits for the averages of all ranks' gradients
        if step % (STEPS // 4) == 0:
            loss = loss_of_all()
            if rank == 0:
                print(f"step {step:5d}  loss {loss:.4f}", flush=True)
    return first_loss, loss_of_all()


def main():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    device = choose_device()
    print(f"rank {rank} of {size}: local rank {hvd.local_rank()} on {os.uname().nodename}, {device}", flush=True)

    inputs = torch.linspace(-3, 3, POINTS, device=device).unsqueeze(1)
    torch.manual_seed(rank)  # the models differ until they are broadcast
    network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    first_loss, final_loss = train(network, inputs, torch.sin(2 * inputs))

    checksum = sum(parameter.detach().double().abs().sum() for parameter in network.parameters())
    checksums = hvd.allgather(checksum.reshape(1), name="checksums")
    if rank == 0:
        print(f"final loss {final_loss:.4f} (it was {first_loss:.4f}) on {size} ranks", flush=True)
    hvd.shutdown()
    if not torch.allclose(checksums, checksums[0].expand(size), rtol=1e-6):
        sys.exit("the ranks do not hold the same model")
    if not final_loss < first_loss / 2:
        sys.exit(f"the loss did not fall: {first_loss:.4f} before, {final_loss:.4f} after")


if __name__ == "__main__":
    main()
