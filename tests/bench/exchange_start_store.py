"""Times a process from its start until it has an id, with PyTorch's TCPStore: exchange_start_store.py HOST PORT FOLDER.

exchange_clock starts it. Prints a line of JSON with times in nanoseconds. The import of torch takes seconds and is not
compared: each rank then waits until all ranks have imported it (by files in FOLDER), and that time is left out.
"""
# SPDX-License-Identifier: Apache-2.0

import json
import os
import sys
import time


def meet(folder, name, rank, size):
    open(f"{folder}/{name}.{rank}", "w").close()
    while sum(entry.startswith(f"{name}.") for entry in os.listdir(folder)) < size:
        time.sleep(0.02)


def main():
    interpreted = time.monotonic_ns()
    from datetime import timedelta

    from torch.distributed import TCPStore

    imported = time.monotonic_ns()
    host, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    meet(folder, "imported", rank, size)
    resumed = time.monotonic_ns()
    # No wait for all workers, which is the fastest way.
    store = TCPStore(host, port, size, rank == 0, timedelta(seconds=60), wait_for_workers=False)
    if rank == 0:
        store.set("id", "x" * 128)
    assert store.get("id") == b"x" * 128
    ended = time.monotonic_ns()
    times = {"started": int(os.environ["BENCH_STARTED"]), "interpreted": interpreted, "imported": imported}
    print(json.dumps({"rank": rank, **times, "resumed": resumed, "ended": ended}), flush=True)
    meet(folder, "done", rank, size)  # the server lives in rank 0


main()
