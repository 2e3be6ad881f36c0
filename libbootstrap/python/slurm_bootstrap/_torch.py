"""init_method="slurm://" of PyTorch: rank 0 opens its store on a free port, and the address travels over the exchange."""

# SPDX-License-Identifier: Apache-2.0

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import parse_qsl, urlparse

from slurm_bootstrap._job import BootstrapError, Job

if TYPE_CHECKING:
    from torch.distributed import Store

_MODULE = "torch.distributed.rendezvous"
_DEFAULT_TIMEOUT = timedelta(minutes=30)  # PyTorch's own for calls without one, as those of torch.distributed.rpc


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
    """What the program says of itself must be what Slurm says. A rank that is refused tells the others, which would wait for it."""
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


def _rendezvous(url: str, timeout: timedelta = _DEFAULT_TIMEOUT, **_: Any) -> "Iterator[tuple[Store, int, int]]":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError("slurm:// makes a rank of each task, and this process is a worker of torchrun, which has a rendezvous "
                         "of its own; use init_method='env://'")  # fmt: skip
    job = Job(timeout.total_seconds())
    _check_place(url, job)
    store, address, problem = None, None, None
    if job.rank == 0:
        try:
            store = _open_store(job, job.master_addr, 0, timeout)
            address = f"{job.master_addr} {store.port}"
        except Exception as error:  # the others must not wait for it
            problem, address = error, f"! {error}"
    host, _, port = job._from_rank_0(address).partition(" ")
    if problem is not None:
        raise problem
    if host == "!":
        raise BootstrapError(f"slurm://: rank 0 cannot open its store: {port}")
    yield store or _open_store(job, host, int(port), timeout), job.rank, job.size
    raise RuntimeError("slurm:// cannot make its world again with other ranks")


def register() -> None:
    """Adds slurm:// to PyTorch, once. PyTorch 2.5 and newer call it at the end of `import torch`."""
    try:
        from torch.distributed.rendezvous import register_rendezvous_handler

        register_rendezvous_handler("slurm", _rendezvous)
    except Exception:  # it is there already, or PyTorch has no torch.distributed: `import torch` must go on
        pass


class _AtImport(MetaPathFinder):
    """Waits for PyTorch's module, where the program imports it after us: PyTorch before 2.5 does not call register()."""

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_now_or_later() -> None:
    if "torch" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AtImport())
