#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 all_reduce.py

Times PyTorch's all_reduce by message size: the mean of 20 calls, after 5 that are not timed, with algbw and busbw of
nccl-tests. Needs the variables of env://, as srun with slurm-bootstrap or torchrun set them. Uses NCCL on GPUs, else gloo.
The largest message is BYTES (all_reduce.py BYTES), by default 128 MiB on GPUs and 1 MiB on CPUs. Exits with 1 if a sum is wrong.
"""
# SPDX-License-Identifier: Apache-2.0

import os
import sys
import time

import torch
import torch.distributed as dist


def seconds_of(message, calls):
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(message)
    if message.is_cuda:
        torch.cuda.synchronize(message.device)
    return (time.perf_counter() - began) / calls


has_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo", init_method="env://")
rank, ranks = dist.get_rank(), dist.get_world_size()
most = max(8, int(sys.argv[1])) if len(sys.argv) > 1 else 1 << (27 if has_gpu else 20)
sizes = [8 << power for power in range(40) if 8 << power <= most]
buffer = torch.empty(most // 4, device=device)
messages = [buffer[: size // 4] for size in sizes]  # until the end: gloo's threads may still hold a tensor
report = torch.zeros(2, dtype=torch.float64, device=device)  # seconds and wrong numbers, of all ranks
all_wrong = 0
if rank == 0:
    print(f"{'bytes':>12} {'us':>12} {'algbw GB/s':>12} {'busbw GB/s':>12} {'#wrong':>12}")
for size, message in zip(sizes, messages):
    dist.all_reduce(message.fill_(rank % 8 + 1))
    report[1] = (message != sum(each % 8 + 1 for each in range(ranks))).sum()
    seconds_of(message.zero_(), 5)  # to warm up; zeros, since repeated sums of other numbers overflow
    report[0] = seconds_of(message, 20)
    dist.all_reduce(report)
    seconds, wrong = report[0].item() / ranks, int(report[1].item())
    algbw, all_wrong = size / seconds / 1e9, all_wrong + wrong
    if rank == 0:
        print(f"{size:12} {seconds * 1e6:12.1f} {algbw:12.3f} {algbw * 2 * (ranks - 1) / ranks:12.3f} {wrong:12}", flush=True)
dist.destroy_process_group()
sys.exit(all_wrong > 0)
