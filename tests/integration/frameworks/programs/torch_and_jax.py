#!/usr/bin/env python3
"""PyTorch and JAX in one program: each makes a world of its own, at a port of its own."""

# SPDX-License-Identifier: Apache-2.0

import jax
import numpy as np
import torch.distributed as dist
from jax.experimental import multihost_utils

from torch_train import train_in_group


def main():
    dist.init_process_group("gloo")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    assert (rank, size) == (dist.get_rank(), dist.get_world_size()), "the two worlds differ"
    ranks = multihost_utils.process_allgather(np.array(rank))
    assert sorted(ranks.tolist()) == list(range(size)), ranks
    train_in_group("of both")


if __name__ == "__main__":
    main()
