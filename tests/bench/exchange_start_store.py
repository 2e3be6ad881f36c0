"""From the start of a process to an id in its hand, with PyTorch's TCPStore: exchange_start_store.py HOST PORT FOLDER [late].

Started by exchange_clock; prints a line of JSON with times in nanoseconds. Importing torch takes seconds and is not
what is compared: when a rank has imported it, it waits until all have (by files in FOLDER), and that time is left out.

With `late` rank 0 opens its server 0.3 s after all others have begun to connect to it, as happens when rank 0 is slow to
start; "served" is when the server was there, so that "ended" - "served" is what the others waited for nothing.
"""
# SPDX-License-Identifier: Apache-2.0

import json
import os
import sys
import time


def announce(folder, name, rank):
    open(f"{folder}/{name}.{rank}", "w").close()


def wait_for_all(folder, name, size):
    while sum(entry.startswith(f"{name}.") for entry in os.listdir(folder)) < size:
        time.sleep(0.02)


def meet(folder, name, rank, size):
    announce(folder, name, rank)
    wait_for_all(folder, name, size)


def main():
    interpreted = time.monotonic_ns()
    from datetime import timedelta

    from torch.distributed import TCPStore

    imported = time.monotonic_ns()
    host, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    meet(folder, "imported", rank, size)
    resumed = time.monotonic_ns()
    if sys.argv[4:] == ["late"]:
        announce(folder, "connecting", rank)
        if rank == 0:
            wait_for_all(folder, "connecting", size)
            time.sleep(0.3)
    # Without the wait for all workers: the fastest that it can be.
    store = TCPStore(host, port, size, rank == 0, timedelta(seconds=60), wait_for_workers=False)
    if rank == 0:
        served = time.monotonic_ns()
        store.set("served", str(served))
        store.set("id", "x" * 128)
    assert store.get("id") == b"x" * 128
    ended = time.monotonic_ns()
    served = int(store.get("served"))
    times = {"started": int(os.environ["BENCH_STARTED"]), "interpreted": interpreted, "imported": imported}
    print(json.dumps({"rank": rank, **times, "resumed": resumed, "served": served, "ended": ended}), flush=True)
    meet(folder, "done", rank, size)  # the server lives in rank 0


main()
