#!/usr/bin/env python3
"""PyTorch and JAX in one program: each makes a world of its own, at a port of its own."""

# SPDX-License-Identifier: Apache-2.0

import jax
import numpy as np
import torch
import torch.distributed as dist
from jax.experimental import multihost_utils

from training import checksum, finish, show_rank, torch_loss, torch_problem
from torch_train import end_group, of_all, train


def main():
    dist.init_process_group("gloo")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    assert (rank, size) == (dist.get_rank(), dist.get_world_size()), "the two worlds differ"
    show_rank(rank, size, "of both")
    ranks = multihost_utils.process_allgather(np.array(rank))
    assert sorted(ranks.tolist()) == list(range(size)), ranks

    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    model = torch.nn.parallel.DistributedDataParallel(network)
    train(model, torch.optim.Adam(network.parameters(), lr=0.02), inputs, targets)
    sums = of_all(checksum(network))
    del model
    end_group()
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


if __name__ == "__main__":
    main()
