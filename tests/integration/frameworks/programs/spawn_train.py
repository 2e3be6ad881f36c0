#!/usr/bin/env python3
"""torch.multiprocessing.spawn as in PyTorch's tutorials, for a world on this node alone: setdefault sets the address."""

# SPDX-License-Identifier: Apache-2.0

import os

import torch.distributed as dist
import torch.multiprocessing as mp

from torch_train import train_in_group

WORKERS = 2


def work(rank):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29523")
    dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
    train_in_group(rank)


if __name__ == "__main__":
    mp.spawn(work, nprocs=WORKERS)
