#!/usr/bin/env python3
"""Accelerate."""

# SPDX-License-Identifier: Apache-2.0

import torch
from accelerate import Accelerator
from torch.nn.functional import mse_loss

from training import STEPS, checksum, finish, leave, show_rank, torch_loss, torch_problem


def main():
    accelerator = Accelerator(cpu=True)
    rank, size = accelerator.process_index, accelerator.num_processes
    show_rank(rank, size, accelerator.local_process_index)
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=256, shuffle=True)
    model, optimizer, loader = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=0.02), loader)
    step = 0
    while step < STEPS:
        for mine, wanted in loader:
            optimizer.zero_grad()
            accelerator.backward(mse_loss(model(mine), wanted))
            optimizer.step()
            step += 1
    sums = accelerator.gather(torch.tensor([checksum(network)], dtype=torch.float64)).tolist()
    accelerator.end_training()
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    main()
    leave()
