#!/usr/bin/env python3
"""nccl4py as far as it works without a GPU: rank 0 makes an id of NCCL, and all ranks get it."""

# SPDX-License-Identifier: Apache-2.0

import os

import nccl.core
import torch.distributed as dist

from training import show_rank


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    show_rank(rank, size, os.environ["LOCAL_RANK"])
    ids = [nccl.core.get_unique_id() if rank == 0 else None]
    dist.broadcast_object_list(ids)
    all_ids = [None] * size
    dist.all_gather_object(all_ids, bytes(ids[0].as_bytes))
    assert len(set(all_ids)) == 1 and len(all_ids[0]) == 128
    try:
        nccl.core.Communicator.init(size, rank, ids[0])
        outcome = "a communicator"
    except Exception as error:  # of any kind: without a GPU, CUDA or NCCL raises its own
        outcome = f"{type(error).__name__}, as there is no GPU"
    dist.destroy_process_group()
    if rank == 0:
        print(f"one id on {size} ranks, then {outcome}", flush=True)


if __name__ == "__main__":
    main()
