#!/usr/bin/env python3
"""PyTorch's own ways of training. The first argument selects one:

  env | tcp | file   init_process_group with that method, and DistributedDataParallel
  loader             env, with a DataLoader that has worker processes
  groups             env, with a process group for each node
  fsdp               fully_shard over a DeviceMesh, and a distributed checkpoint that all ranks read again
"""

# SPDX-License-Identifier: Apache-2.0

import gc
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from training import STEPS, checksum, finish, show_rank, torch_loss, torch_problem

kept = []  # tensors of collectives, see etc/examples/train_ddp.py


def join(how):
    if how == "tcp":
        method = "tcp://{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ)
    elif how == "file":
        method = "file://" + os.environ["BOOTSTRAP_INIT_FILE"]
    else:
        dist.init_process_group("gloo")
        return
    dist.init_process_group("gloo", init_method=method, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def of_all(value):
    values = torch.zeros(dist.get_world_size(), dtype=torch.float64)
    values[dist.get_rank()] = value
    dist.all_reduce(values)
    kept.append(values)
    return values.tolist()


def end_group():
    """A model that still refers to the group keeps gloo's threads alive. One of them may then release a tensor while
    Python ends, and the program aborts: "terminate called without an active exception"."""
    gc.collect()
    dist.destroy_process_group()


def batches(inputs, targets, with_workers):
    rank, size = dist.get_rank(), dist.get_world_size()
    if not with_workers:
        while True:
            yield inputs[rank::size], targets[rank::size]
    data = torch.utils.data.TensorDataset(inputs, targets)
    sampler = torch.utils.data.DistributedSampler(data, seed=1)
    loader = torch.utils.data.DataLoader(data, batch_size=256, sampler=sampler, num_workers=1, persistent_workers=True)
    while True:
        yield from loader


def train(model, optimizer, inputs, targets, with_workers=False):
    source = batches(inputs, targets, with_workers)
    for _ in range(STEPS):
        mine, wanted = next(source)
        optimizer.zero_grad()
        mse_loss(model(mine), wanted).backward()
        optimizer.step()


def check_groups():
    """A sum in the group of this node, and one over all groups."""
    local_size = int(os.environ["LOCAL_WORLD_SIZE"])
    node, nodes = dist.get_rank() // local_size, dist.get_world_size() // local_size
    groups = [dist.new_group(list(range(each * local_size, (each + 1) * local_size))) for each in range(nodes)]
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total, group=groups[node])
    kept.append(total)
    wanted = sum(range(node * local_size, (node + 1) * local_size))
    if total.item() != wanted:
        sys.exit(f"the group of node {node} has the sum {total.item()}, not {wanted}")


def train_with_ddp(how):
    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    model = DistributedDataParallel(network)
    train(model, torch.optim.Adam(network.parameters(), lr=0.02), inputs, targets, how == "loader")
    return first, torch_loss(network, inputs, targets), checksum(network)


def train_with_fsdp():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network, inputs, targets = torch_problem()
    first = torch_loss(network, inputs, targets)
    fully_shard(network, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    train(network, torch.optim.Adam(network.parameters(), lr=0.02), inputs, targets)
    folder = os.path.join(os.environ["HOME"], "checkpoint-" + os.environ["SLURM_JOB_ID"])
    state = network.state_dict()
    checkpoint.save(state, checkpoint_id=folder)
    for part in state.values():
        part.detach().zero_()
    checkpoint.load(state, checkpoint_id=folder)
    network.load_state_dict(state)
    whole = sum(parameter.full_tensor().detach().double().abs().sum().item() for parameter in network.parameters())
    return first, torch_loss(network, inputs, targets), whole


def train_in_group(local_rank, how="env"):
    """Trains in the existing group, and ends it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    show_rank(rank, size, local_rank)
    if how == "groups":
        check_groups()
    first, final, mine = train_with_fsdp() if how == "fsdp" else train_with_ddp(how)
    sums = of_all(mine)
    end_group()
    finish(rank, size, first, final, sums)


if __name__ == "__main__":
    join(sys.argv[1])
    train_in_group(os.environ["LOCAL_RANK"], sys.argv[1])
