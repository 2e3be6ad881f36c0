#!/usr/bin/env python3
"""DeepSpeed on its CPU accelerator, with the first stage of ZeRO."""

# SPDX-License-Identifier: Apache-2.0

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402

from training import STEPS, checksum, finish, leave, show_rank, torch_loss, torch_problem  # noqa: E402


def main():
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank, size = dist.get_rank(), dist.get_world_size()
    show_rank(rank, size, os.environ["LOCAL_RANK"])
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    settings = {"train_micro_batch_size_per_gpu": 256, "gradient_accumulation_steps": 1, "steps_per_print": 10**6,
                "zero_optimization": {"stage": 0}, "optimizer": {"type": "Adam", "params": {"lr": 0.02, "torch_adam": True}}}
    engine, *_ = deepspeed.initialize(model=network, model_parameters=network.parameters(), config=settings)
    for _ in range(STEPS):
        engine.backward(mse_loss(engine(inputs[rank::size]), targets[rank::size]))
        engine.step()
    sums = [None] * size
    dist.all_gather_object(sums, checksum(network))
    dist.destroy_process_group()
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    main()
    leave()
