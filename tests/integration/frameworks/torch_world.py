#!/usr/bin/env python3
"""A PyTorch program as users have them: joins its world in the way that its argument says, and adds up over it.

Each process prints `world RANK SIZE LOCAL_RANK HOST SUM`, where the sum over all ranks shows that they have met.
  env | tcp | file    init_process_group with that method; file: BOOTSTRAP_INIT_FILE
  loader              env, and a DataLoader with worker processes whose world is the parent's
  spawn N             one process for each task, which starts N that share out its GPUs
"""

import os
import socket
import sys

import torch
import torch.distributed as dist

kept = []  # see etc/examples/train_ddp.py


def init_method(how):
    if how == "tcp":
        return "tcp://{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ)
    if how == "file":
        return "file://" + os.environ["BOOTSTRAP_INIT_FILE"]
    return "env://"


def join(how, rank, size, local_rank):
    if how in ("tcp", "file", "spawn"):
        dist.init_process_group("gloo", init_method=init_method(how), rank=rank, world_size=size)
    else:
        dist.init_process_group("gloo")
    total = torch.tensor([2.0**dist.get_rank()], dtype=torch.float64)
    dist.all_reduce(total)
    kept.append(total)
    # One write: lines of processes that share a pipe must not be torn apart.
    os.write(1, f"world {dist.get_rank()} {dist.get_world_size()} {local_rank} {socket.gethostname()} {int(total)}\n".encode())
    dist.barrier()
    dist.destroy_process_group()


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        # A worker process has the variables of its rank, and is none.
        return index * index, int(os.environ["RANK"])


def load():
    batches = list(torch.utils.data.DataLoader(Squares(), batch_size=16, num_workers=2))
    assert sum(int(squares.sum()) for squares, _ in batches) == sum(i * i for i in range(64))
    assert all(int(rank) == int(os.environ["RANK"]) for _, ranks in batches for rank in ranks)


def spawned(index, count):
    join("spawn", int(os.environ["RANK"]) * count + index, int(os.environ["WORLD_SIZE"]) * count, index)


def main():
    how = sys.argv[1]
    torch.set_num_threads(1)
    if how == "spawn":
        count = int(sys.argv[2])
        torch.multiprocessing.spawn(spawned, args=(count,), nprocs=count)
        return
    if how == "loader":
        load()
    join(how, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["LOCAL_RANK"])


if __name__ == "__main__":
    main()
