#!/usr/bin/env python3
"""torch.multiprocessing.spawn as PyTorch's tutorials have it, for a world on this node alone: the address by setdefault."""

# SPDX-License-Identifier: Apache-2.0

import os

import torch.distributed as dist
import torch.multiprocessing as mp

from torch_train import end_group, of_all, train_with_ddp
from training import finish, show_rank

WORKERS = 2


def work(rank):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29523")
    dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
    show_rank(dist.get_rank(), dist.get_world_size(), rank)
    first, final, mine = train_with_ddp("env")
    sums = of_all(mine)
    end_group()
    finish(rank, WORKERS, first, final, sums)


if __name__ == "__main__":
    mp.spawn(work, nprocs=WORKERS)
