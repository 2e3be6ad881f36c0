#!/usr/bin/env python3
"""PyTorch and JAX in one program: each makes a world of its own, at a port of its own."""

# SPDX-License-Identifier: Apache-2.0

import jax
import numpy as np
import torch.distributed as dist
from jax.experimental import multihost_utils

from torch_train import end_group, of_all, train_with_ddp
from training import finish, show_rank


def main():
    dist.init_process_group("gloo")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    assert (rank, size) == (dist.get_rank(), dist.get_world_size()), "the two worlds differ"
    show_rank(rank, size, "of both")
    ranks = multihost_utils.process_allgather(np.array(rank))
    assert sorted(ranks.tolist()) == list(range(size)), ranks

    first, final, mine = train_with_ddp("env")
    sums = of_all(mine)
    end_group()
    finish(rank, size, first, final, sums)


if __name__ == "__main__":
    main()
