#!/usr/bin/env python3
"""submitit: submits a job of its own, whose tasks train with DDP through submitit's helper for torch.distributed.

submitit_train.py NODES TASKS_PER_NODE
"""

# SPDX-License-Identifier: Apache-2.0

import os
import sys
import time

import submitit


def train():
    import torch.distributed as dist

    from torch_train import train_in_group

    environment = submitit.helpers.TorchDistributedEnvironment().export()
    dist.init_process_group("gloo")
    assert (dist.get_rank(), dist.get_world_size()) == (environment.rank, environment.world_size)
    train_in_group(environment.local_rank)


def main():
    nodes, tasks = map(int, sys.argv[1:])
    executor = submitit.SlurmExecutor(folder="submitit", python=sys.executable)
    setup = [f"export PYTHONPATH={os.path.dirname(os.path.abspath(__file__))}"]
    executor.update_parameters(nodes=nodes, ntasks_per_node=tasks, gres="gpu:2", time=5, setup=setup, use_srun=True)
    job = executor.submit(train)
    while not job.done():
        time.sleep(0.5)
    job.results()
    for task in range(nodes * tasks):
        print(job.paths.stdout.with_name(f"{job.job_id}_{task}_log.out").read_text(), end="")


if __name__ == "__main__":
    main()
