"""A Horovod world over Gloo in any step, without horovodrun: Horovod's own rendezvous server beside rank 0.

`slurm-bootstrap run --horovod` runs this file, too, with the Python of the program.
"""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import os
import subprocess
import sys
import threading
from typing import Callable

from slurm_bootstrap import _horovod_server
from slurm_bootstrap._job import BootstrapError, Job

_GLOO_TIMEOUT = "300"  # Gloo's own 30 s are too short where many ranks load PyTorch from one file system
_TIME_OF_EXCHANGE = 5  # seconds, in which the other ranks receive rank 0's reason
_LINE = 512  # bytes of a rank's place


def _place_of(job: Job) -> "list[str]":
    """Host, local rank and size, cross rank and size, as Horovod is to see them."""
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    step = ".".join(os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    is_set_up = os.environ.get("SLURM_BOOTSTRAP_STEP", "").startswith(step + ".")
    if is_set_up and os.environ.get("LOCAL_WORLD_SIZE", str(job.local_size)) != str(job.local_size):
        # A task that sees its own GPU alone, as device 0, counts as a node of its own.
        return [f"{host}-{job.local_rank}", "0", "1", str(job.rank), str(job.size)]
    return [host, *map(str, (job.local_rank, job.local_size, job.cross_rank, job.cross_size))]


def _answer(job: Job, start: "Callable[[list[str]], int]", lines: "list[str]") -> str:
    """Rank 0's answer: where its server is, or why there is none."""
    try:
        return f"{job.master_addr} {start(lines)}"
    except Exception as error:  # the others must not wait for it
        return f"rank 0 cannot start Horovod's rendezvous server: {error}"


def _variables(timeout: float, start: "Callable[[list[str]], int]", caller: str) -> "dict[str, str]":
    """What Horovod reads of a rank (common/gloo/gloo_context.cc). Collective; rank 0 starts the server."""
    for name in ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"):  # Horovod over MPI starts in its own way; a mixture would hang
        if os.environ.get(name) == "mpi":
            raise BootstrapError(f"{name}=mpi is set, and {caller} makes a world over Gloo; unset it, or start Horovod over MPI: "
                                 f"srun --mpi=pmix, without {caller}")  # fmt: skip
    found = {name: value for name, value in (("HOROVOD_CPU_OPERATIONS", "gloo"), ("HOROVOD_GLOO_TIMEOUT_SECONDS", _GLOO_TIMEOUT),
                                             ("HOROVOD_GLOO_IFACE", os.environ.get("GLOO_SOCKET_IFNAME", "")))
             if value and not os.environ.get(name)}  # fmt: skip
    with Job(timeout) as job:
        place = _place_of(job)
        if job.size > 1:
            lines = [line.decode().rstrip() for line in job.exchange(" ".join(place).encode().ljust(_LINE))]
            host, _, port = job._from_rank_0(_answer(job, start, lines) if job.rank == 0 else None).partition(" ")
            if not port.isdigit():
                raise BootstrapError(f"{host} {port}" if job.rank == 0 or start is _horovod_server.start else "")
            found.update(HOROVOD_GLOO_RENDEZVOUS_ADDR=host, HOROVOD_GLOO_RENDEZVOUS_PORT=port)
        names = ("HOSTNAME", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        found.update({f"HOROVOD_{name}": value for name, value in zip(names, place)})
        found.update(HOROVOD_RANK=str(job.rank), HOROVOD_SIZE=str(job.size), HOROVOD_CONTROLLER="gloo")
    return found


def horovod(timeout: float = 60) -> None:
    """Makes the ranks of this step one Horovod world: call it before hvd.init(). It waits `timeout` seconds for the
    other ranks. Collective."""
    os.environ.update(_variables(timeout, _horovod_server.start, "slurm_bootstrap.horovod()"))


def main(library: str, process: str, timeout: str, server: str) -> None:
    """For the command: prints NAME=VALUE lines, or one sentence, which is empty if rank 0 prints it. The program `server`
    of rank 0 ends with `process`."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        sys.exit(print(f"error could not load {library}, which makes the Horovod world: {error}; install the package libbootstrap0"))

    def start(lines: "list[str]") -> int:
        words = [sys.executable, "-c", server]
        running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, universal_newlines=True)
        assert running.stdin and running.stdout
        with running.stdin as stdin:
            stdin.write("\n".join([process, *lines]))
        limit = threading.Timer(max(float(timeout) - _TIME_OF_EXCHANGE, 1), running.kill)
        limit.start()
        answer = running.stdout.readline().strip()
        limit.cancel()
        if not answer.isdigit():
            raise RuntimeError(answer or f"{sys.executable} ended before it had a port, or needs longer than --timeout")
        return int(answer)

    try:
        print("\n".join(f"{name}={value}" for name, value in _variables(float(timeout), start, "--horovod").items()))
    except BootstrapError as error:
        print(f"error {error}")
