"""Calls after one that failed: after_failure_program.py LIBRARY VICTIM FAULT KIND...

After a first barrier the victim has ended, is late or is stopped, and all other ranks make a call of each kind. Each rank prints the
result of each call. Every value contains the rank and the call, so that a wrong one is reported as "wrong"."""

import ctypes
import os
import signal
import subprocess
import sys
import time

ctypes.CDLL(sys.argv[1])  # which slurm_bootstrap then uses

from slurm_bootstrap import BootstrapError, Job  # noqa: E402

TIMEOUT, LATE = 2, 3.5  # seconds


def suffer(fault):
    if fault == "gone":
        os._exit(0)
    if fault == "late":
        time.sleep(LATE)
    if fault == "stopped":
        subprocess.Popen(["sh", "-c", f"sleep {LATE}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)


def call(job, kind, number):
    if kind == "barrier":
        job.barrier()
        return True
    if kind == "exchange":
        return job.exchange(b"%8d" % (1000 * number + job.rank)) == [b"%8d" % (1000 * number + rank) for rank in range(job.size)]
    text = job._from_rank_0(f"text {number}" if job.rank == 0 else None)
    return text == f"text {number}"


def main(victim, fault, kinds):
    Job().barrier()
    job = Job(timeout=TIMEOUT)
    if job.rank == victim:
        suffer(fault)
    for number, kind in enumerate(kinds, 1):
        try:
            end = "right" if call(job, kind, number) else "wrong"
        except BootstrapError as error:
            end = f"failed: {error}"
        os.write(1, f"rank {job.rank} call {number} {kind} {end}\n".encode())
    time.sleep(LATE)  # so that no rank finds a node where all ranks have ended
    os._exit(0)


main(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
