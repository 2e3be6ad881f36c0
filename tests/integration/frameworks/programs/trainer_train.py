#!/usr/bin/env python3
"""The Trainer of transformers, with a model defined here."""

# SPDX-License-Identifier: Apache-2.0

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from transformers import Trainer, TrainingArguments

from training import STEPS, checksum, finish, leave, show_rank, torch_loss, torch_problem


class Model(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs, labels):
        outputs = self.network(inputs)
        return {"loss": mse_loss(outputs, labels), "logits": outputs}


def main():
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    data = [{"inputs": mine, "labels": wanted} for mine, wanted in zip(inputs, targets)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=256,
                                      learning_rate=0.02, lr_scheduler_type="constant", report_to=[], save_strategy="no",
                                      disable_tqdm=True, logging_strategy="no", remove_unused_columns=False)
        rank, size = arguments.process_index, arguments.world_size
        show_rank(rank, size, arguments.local_process_index)
        Trainer(model=Model(network), args=arguments, train_dataset=data).train()
        sums = [checksum(network)]
        if size > 1:
            sums = [None] * size
            dist.all_gather_object(sums, checksum(network))
            dist.destroy_process_group()
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
    leave()
