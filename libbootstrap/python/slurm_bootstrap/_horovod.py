"""A Horovod world over Gloo in any step, without horovodrun: Horovod's own rendezvous server in rank 0.

The variables are those of tools/horovod/horovod_world.cc; test_horovod.py compares them.
"""

# SPDX-License-Identifier: Apache-2.0

import os

from slurm_bootstrap._job import BootstrapError, Job

_GLOO_TIMEOUT = "300"  # Gloo's own 30 s are too short where many ranks load PyTorch from one file system
_LINE = 512  # bytes of a rank's place


def _is_alone(job: Job) -> bool:
    """Where each task sees its own GPU alone, as device 0, it passes for a node of its own."""
    step = ".".join(os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    is_set_up = os.environ.get("SLURM_BOOTSTRAP_STEP", "").startswith(step + ".")
    return is_set_up and os.environ.get("LOCAL_WORLD_SIZE", str(job.local_size)) != str(job.local_size)


def _place_of(job: Job) -> list[str]:
    """Host, local rank and size, cross rank and size, as Horovod is to see them."""
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    if _is_alone(job):
        return [f"{host}-{job.local_rank}", "0", "1", str(job.rank), str(job.size)]
    return [host, *map(str, (job.local_rank, job.local_size, job.cross_rank, job.cross_size))]


def _start_server(lines: list[str]) -> str:
    """Its port, or why there is none."""
    from slurm_bootstrap import _horovod_server

    try:
        return str(_horovod_server.start(lines))
    except Exception as error:  # the others must not wait for it
        return f"rank 0 cannot start Horovod's rendezvous server: {error}"


def horovod(timeout: float = 60) -> None:
    """Makes the ranks of this step one Horovod world: call it before hvd.init(). It waits `timeout` seconds for the
    other ranks. Collective."""
    for name in ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"):
        if os.environ.get(name) == "mpi":
            raise BootstrapError(f"{name}=mpi is set, and slurm_bootstrap.horovod() makes a world over Gloo; unset it, or start "
                                 "Horovod over MPI: srun --mpi=pmix, without this call")  # fmt: skip
    job = Job(timeout)
    place = _place_of(job)
    if job.size > 1:
        lines = job.exchange(" ".join(place).encode().ljust(_LINE))
        answer = None
        if job.rank == 0:
            answer = f"{job.master_addr} {_start_server([line.decode() for line in lines])}"
        host, _, port = job._from_rank_0(answer).partition(" ")
        if not port.isdigit():
            raise BootstrapError(port)
        os.environ.update(HOROVOD_GLOO_RENDEZVOUS_ADDR=host, HOROVOD_GLOO_RENDEZVOUS_PORT=port)
    names = ("HOSTNAME", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    os.environ.update({f"HOROVOD_{name}": value for name, value in zip(names, place)})
    os.environ.update(HOROVOD_RANK=str(job.rank), HOROVOD_SIZE=str(job.size), HOROVOD_CONTROLLER="gloo")
    os.environ.setdefault("HOROVOD_CPU_OPERATIONS", "gloo")
    os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", _GLOO_TIMEOUT)
    if "GLOO_SOCKET_IFNAME" in os.environ:
        os.environ.setdefault("HOROVOD_GLOO_IFACE", os.environ["GLOO_SOCKET_IFNAME"])
