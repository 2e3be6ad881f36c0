#!/usr/bin/env python3
"""Ignite: idist.Parallel, which detects how the program was started."""

# SPDX-License-Identifier: Apache-2.0

import ignite.distributed as idist
import torch
from ignite.engine import Engine
from torch.nn.functional import mse_loss

from training import STEPS, checksum, finish, leave, show_rank, torch_loss, torch_problem


def train(_):
    rank, size = idist.get_rank(), idist.get_world_size()
    show_rank(rank, size, idist.get_local_rank())
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    model = idist.auto_model(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)

    def step(_, batch):
        optimizer.zero_grad()
        loss = mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    Engine(step).run([(inputs[rank::size], targets[rank::size])], max_epochs=STEPS)
    sums = idist.all_gather(torch.tensor([checksum(network)], dtype=torch.float64)).tolist()
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(train)
    leave()
