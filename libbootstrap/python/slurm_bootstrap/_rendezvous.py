"""init_method="slurm://" of PyTorch: rank 0 opens its store on a free port, and the address travels over the exchange."""

# SPDX-License-Identifier: Apache-2.0

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlparse

from slurm_bootstrap._job import BootstrapError, Job

if TYPE_CHECKING:
    from torch.distributed import Store

_DEFAULT_TIMEOUT = timedelta(minutes=30)  # PyTorch's default for calls without a timeout, such as those of torch.distributed.rpc


def _own_address(name: str) -> str:
    """The name of rank 0's host, or, where no name service knows it, the address from which it reaches the host of srun."""
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError as error:
        outside = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
        try:
            kind, _, _, _, to = socket.getaddrinfo(outside, 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[0]
            with socket.socket(kind, socket.SOCK_DGRAM) as way:
                way.connect(to)  # sends nothing
                return str(way.getsockname()[0])
        except OSError:
            raise error from None


def _open_store(job: Job, host: str, port: int, timeout: timedelta) -> Any:
    from torch.distributed import TCPStore

    words: dict[str, Any] = {"world_size": job.size, "is_master": job.rank == 0, "timeout": timeout, "wait_for_workers": False}
    if os.environ.get("USE_LIBUV") == "0":  # as PyTorch's own methods understand it, from 2.3 on
        try:
            return TCPStore(host, port, use_libuv=False, **words)
        except TypeError:
            pass
    return TCPStore(host, port, **words)


def _check_place(url: str, job: Job) -> None:
    """Compares the program's rank and size with Slurm's. A rank that is refused informs the others, which would wait for it."""
    refusal = ""
    said = dict(parse_qsl(urlparse(url).query))
    for name, value in (("rank", job.rank), ("world_size", job.size)):
        if said.get(name, "-1") not in ("-1", str(value)):
            refusal = (f"init_process_group has {name}={said[name]}, and in this step of Slurm it is {value}; with "
                       "init_method='slurm://' leave rank and world_size out")  # fmt: skip
    refused = [rank for rank, flag in enumerate(job.exchange(b"1" if refusal else b"0")) if flag == b"1"]
    if refusal:
        raise ValueError(refusal)
    if refused:
        raise BootstrapError(f"slurm://: rank {refused[0]} passed another rank or world_size than Slurm's; read its error")


def rendezvous(url: str, timeout: timedelta = _DEFAULT_TIMEOUT, **_others: Any) -> "Iterator[tuple[Store, int, int]]":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError("slurm:// makes a rank of each task, and this process is a worker of torchrun, which has a rendezvous "
                         "of its own; use init_method='env://'")  # fmt: skip
    job = Job(timeout.total_seconds())
    _check_place(url, job)
    store, address, problem = None, "", None
    if job.rank == 0:
        try:
            own = _own_address(job.master_addr)
            store = _open_store(job, own, 0, timeout)
            address = f"{own} {store.port}"
        except Exception as error:  # the others must not wait for it
            problem, address = error, f"! {error}"
    host, _, port = job._from_rank_0(address).partition(" ")
    if problem is not None:
        raise problem
    if host == "!":
        raise BootstrapError(f"slurm://: rank 0 cannot open its store: {port}")
    yield store or _open_store(job, host, int(port), timeout), job.rank, job.size
    raise RuntimeError("slurm:// cannot make its world again with other ranks")
