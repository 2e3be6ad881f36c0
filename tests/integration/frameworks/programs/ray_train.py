#!/usr/bin/env python3
"""Ray Train's TorchTrainer on a running Ray cluster; the argument is the number of workers."""

# SPDX-License-Identifier: Apache-2.0

import os
import sys

import ray
import torch.distributed as dist
from ray.train import ScalingConfig, get_context
from ray.train.torch import TorchTrainer, prepare_model


def train():
    sys.path.insert(0, os.environ["TRAINING"])
    import torch
    from torch.nn.functional import mse_loss

    from training import STEPS, checksum, finish, torch_loss, torch_problem

    rank, size = get_context().get_world_rank(), get_context().get_world_size()
    print(f"rank {rank} of {size}: local rank {get_context().get_local_rank()} on {os.uname().nodename}", flush=True)
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    model = prepare_model(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        mse_loss(model(inputs[rank::size]), targets[rank::size]).backward()
        optimizer.step()
    sums = [None] * size
    dist.all_gather_object(sums, checksum(network))
    finish(rank, size, first, torch_loss(network, inputs, targets), sums)


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def ranks_in_environment():
    """Ray's daemons pass their environment to all programs in the cluster."""
    return [name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT") if name in os.environ]


if __name__ == "__main__":
    # The workers import the module `training` from there.
    variables = {"TRAINING": os.path.dirname(os.path.abspath(__file__))}
    ray.init(address="auto", runtime_env={"env_vars": variables}, log_to_driver=True)
    inherited = sum(ray.get([ranks_in_environment.remote() for _ in range(int(sys.argv[1]))]), [])
    if inherited:
        sys.exit(f"Ray's tasks inherit {' '.join(sorted(set(inherited)))}")
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=int(sys.argv[1]))).fit()
