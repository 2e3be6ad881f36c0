#!/usr/bin/env python3
"""mpi4py's ranks beside ours: as ChainerMN counts them, over MPI alone, and as the variables of the task are.

intra_rank, intra_size, inter_rank and inter_size follow chainermn/communicators/_communication_utility.py: from
MPI_Get_processor_name of all ranks, the hosts in order of their lowest rank. Rank 0 prints `equal: N ranks`, or the
differences and exit status 1.
"""

import os
import sys
import time

# Slurm 22.05 loses a message of MPI_Init that comes while another node still starts its tasks: CONTRIBUTING.md has more.
time.sleep(0.3)

from mpi4py import MPI


def as_chainermn(world):
    hosts = world.allgather(MPI.Get_processor_name())
    own = hosts[world.rank]
    order = list(dict.fromkeys(hosts))
    return {"RANK": world.rank, "WORLD_SIZE": world.size, "LOCAL_RANK": hosts[:world.rank].count(own),
            "LOCAL_WORLD_SIZE": hosts.count(own), "NODE_RANK": order.index(own), "GROUP_WORLD_SIZE": len(order)}


def main():
    world = MPI.COMM_WORLD
    mine = as_chainermn(world)
    wrong = [f"rank {world.rank}: {name} is {os.environ.get(name)}, and {value} to MPI"
             for name, value in mine.items() if os.environ.get(name) != str(value)]
    # The device that such programs take, comm.intra_rank, is the task's own, where there is one for each.
    device = os.environ.get("BOOTSTRAP_GPU")
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if device is not None and mine["LOCAL_WORLD_SIZE"] <= len(gpus) and int(device) != mine["LOCAL_RANK"]:
        wrong.append(f"rank {world.rank}: intra_rank {mine['LOCAL_RANK']} is not the task's own GPU {device}")
    found = world.gather(wrong)
    failed = 0
    if world.rank == 0:
        lines = sum(found, [])
        print("\n".join(lines) if lines else f"equal: {world.size} ranks", flush=True)
        failed = len(lines)
    return 1 if world.bcast(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
