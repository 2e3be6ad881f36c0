#!/usr/bin/env python3
"""Lightning: lightning_train.py trainer|fabric DEVICES NODES, with the two numbers that its users give; or
lightning_train.py cli, for `fabric run`, which has started the processes and sets the numbers itself."""

# SPDX-License-Identifier: Apache-2.0

import logging
import os
import sys
import warnings

import lightning
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from training import STEPS, checksum, finish, leave, show_rank, torch_loss, torch_problem

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.sums = []

    def training_step(self, batch, _):
        return mse_loss(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)

    def on_train_end(self):  # the process group is there until then
        self.sums = self.all_gather(torch.tensor([checksum(self.network)], dtype=torch.float64)).flatten().tolist()


def with_trainer(devices, nodes):
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    module = Module(network)
    trainer = lightning.Trainer(accelerator="cpu", devices=devices, num_nodes=nodes, strategy="ddp", max_steps=STEPS, max_epochs=-1,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    show_rank(trainer.global_rank, trainer.world_size, trainer.local_rank)
    trainer.fit(module, DataLoader(TensorDataset(inputs, targets), batch_size=512, shuffle=True))
    finish(trainer.global_rank, trainer.world_size, first, torch_loss(network, inputs, targets), module.sums)


def with_fabric(devices, nodes):
    fabric = lightning.Fabric(accelerator="cpu", devices=devices, num_nodes=nodes, strategy="ddp")
    fabric.launch()
    train_with(fabric)


def train_with(fabric):
    show_rank(fabric.global_rank, fabric.world_size, fabric.local_rank)
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=0.02))
    for _ in range(STEPS):
        optimizer.zero_grad()
        part = slice(fabric.global_rank, None, fabric.world_size)
        fabric.backward(mse_loss(model(inputs[part]), targets[part]))
        optimizer.step()
    sums = fabric.all_gather(torch.tensor([checksum(network)], dtype=torch.float64)).flatten().tolist()
    finish(fabric.global_rank, fabric.world_size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    how, *numbers = sys.argv[1:]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if how == "cli":
        train_with(lightning.Fabric())
    else:
        {"trainer": with_trainer, "fabric": with_fabric}[how](*map(int, numbers))
    leave()
