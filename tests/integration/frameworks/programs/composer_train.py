#!/usr/bin/env python3
"""composer's Trainer."""

# SPDX-License-Identifier: Apache-2.0

import logging

import torch
from composer import Trainer
from composer.models import ComposerModel
from composer.utils import dist
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from training import STEPS, checksum, finish, leave, show_rank, torch_loss, torch_problem

logging.disable(logging.WARNING)


class Model(ComposerModel):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, batch):
        return self.network(batch[0])

    def loss(self, outputs, batch, *_, **__):
        return mse_loss(outputs, batch[1])


def main():
    dist.initialize_dist("cpu")
    rank, size = dist.get_global_rank(), dist.get_world_size()
    show_rank(rank, size, dist.get_local_rank())
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    data = TensorDataset(inputs, targets)
    loader = DataLoader(data, batch_size=256, sampler=dist.get_sampler(data, shuffle=True))
    trainer = Trainer(model=Model(network), train_dataloader=loader, max_duration=f"{STEPS}ba", device="cpu", progress_bar=False,
                      optimizers=torch.optim.Adam(network.parameters(), lr=0.02))
    trainer.fit()
    sums = dist.all_gather_object(checksum(network))
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    main()
    leave()
