#!/usr/bin/env python3
"""A PyTorch program as users have them: joins its world in the way of its argument, and adds up over it.

Each process prints `world RANK SIZE LOCAL_RANK HOST SUM`, where the sum over all ranks shows that they have met.
  env | file    init_process_group with that method; file: BOOTSTRAP_INIT_FILE
"""

import os
import socket
import sys

import torch
import torch.distributed as dist

kept = []  # see etc/examples/train_ddp.py


def join(how, rank, size, local_rank):
    if how == "file":
        dist.init_process_group("gloo", init_method="file://" + os.environ["BOOTSTRAP_INIT_FILE"], rank=rank, world_size=size)
    else:
        dist.init_process_group("gloo")
    total = torch.tensor([2.0**dist.get_rank()], dtype=torch.float64)
    dist.all_reduce(total)
    kept.append(total)
    # One write: lines of processes that share a pipe must not be torn apart.
    os.write(1, f"world {dist.get_rank()} {dist.get_world_size()} {local_rank} {socket.gethostname()} {int(total)}\n".encode())
    dist.barrier()
    dist.destroy_process_group()


def main():
    how = sys.argv[1]
    torch.set_num_threads(1)
    join(how, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["LOCAL_RANK"])


if __name__ == "__main__":
    main()
